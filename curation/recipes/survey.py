# SPDX-License-Identifier: Apache-2.0
"""Turns the files of a folder into inputs of a recipe: one input per suffix, with the text column and encoding of its
files.

Files of one format that need different settings get separate inputs. A glob is used only if it matches no other file;
otherwise a list names the files.
"""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from curation.base.errors import InputError
from curation.reading.globs import glob_paths
from curation.reading.inputs import AUTO, LIST_MARK, AnyInput, FilesInput, default_name
from curation.reading.left_out import LeftOut
from curation.reading.paths import list_files, split_suffix
from curation.reading.source_files import SourceFile
from curation.reading.urls import is_remote
from curation.recipes.file_facts import Facts, agreed, facts_of, facts_of_others, suffix_of
from curation.recipes.unread_files import (
    bare_files,
    code_among,
    format_of,
    is_glob,
    known_matches,
    only_code,
    runs_below,
    unknown_matches,
)  # fmt: skip

log = logging.getLogger(__name__)

MAX_FOLDERS = 8  # most folders that become separate inputs
MIN_SHARE = 0.1  # share of the bytes of a folder: formats with less do not distinguish folders
UNKNOWN = "unknown format"
HIDDEN_NAME = "its name or folder begins with _ or ."


class SuggestedInput(NamedTuple):
    """An input of the recipe.

    settings  of the input, with its path
    files     number of files; 0 if unknown
    bytes     stored size of the files
    facts     of the files that were probed
    listed    content of a list of the files, one per line, if no glob matches only them
    format    of the files; "" if unknown
    """

    settings: dict[str, Any]
    files: int = 0
    bytes: int = 0
    facts: tuple[Facts, ...] = ()
    listed: tuple[str, ...] = ()
    format: str = ""

    @property
    def texts(self) -> int:
        """Number of texts that were read."""
        return sum(facts.texts for facts in self.facts)

    @property
    def tagged(self) -> int:
        """Number of texts with tags of HTML."""
        return sum(facts.tagged for facts in self.facts)

    @property
    def code(self) -> int:
        """Number of texts that look like source code."""
        return sum(facts.code for facts in self.facts)

    @property
    def wrapped(self) -> int:
        """Number of texts that seem to have wrapped lines."""
        return sum(facts.wrapped for facts in self.facts)

    @property
    def is_html(self) -> bool:
        """Whether half of its texts have tags."""
        return 0 < self.texts <= 2 * self.tagged

    @property
    def is_code(self) -> bool:
        """Whether half of its texts are source code."""
        return 0 < self.texts <= 2 * self.code

    @property
    def is_wrapped(self) -> bool:
        """Whether half of its texts have wrapped lines."""
        return 0 < self.texts <= 2 * self.wrapped


class OtherForm(NamedTuple):
    """Other inputs that read the files of a folder.

    reason  why the recipe does not have them
    title   of these inputs
    """

    reason: str
    title: str
    inputs: Sequence[SuggestedInput]


class InputSurvey(NamedTuple):
    """The inputs for a recipe.

    unused   files that none of the inputs reads: path -> reason
    faults   files of which a run reads a part, or nothing: path -> reason
    others   other inputs that would read the same files
    code     globs of files with source code that none of the inputs reads -> number of files
    """

    inputs: list[SuggestedInput]
    unused: dict[str, str]
    faults: Mapping[str, str] = MappingProxyType({})
    others: Sequence[OtherForm] = ()
    code: Mapping[str, int] = MappingProxyType({})


def survey(entries: Sequence[AnyInput], recipe: str = "recipe.yaml") -> InputSurvey:
    """Return inputs with format, text column and encoding for all files of `entries`; reads the start of some files.

    recipe   path of the recipe: it is not listed as unused, and lists of files are named after it

    One warning, like that of `find_files`, counts the files that are found but not read. Raises InputError for an input
    that does not exist or in which no text is found.
    """
    left_out = LeftOut()
    found = [_surveyed(entry, left_out) for entry in entries]
    left_out.unknown.pop(os.path.normpath(recipe), None)
    if line := left_out.line():
        log.warning("%s", line)
    unused = {path: reason for each in found for path, reason in each.unused.items()}
    unused |= {os.path.normpath(path): UNKNOWN for path in left_out.unknown}
    unused |= {os.path.normpath(path): HIDDEN_NAME for path in left_out.hidden}
    inputs = _with_unique_names([suggested for each in found for suggested in each.inputs])
    taken: dict[str, tuple[str, ...]] = {}
    return InputSurvey(
        [_with_list(suggested, recipe, taken) for suggested in inputs],
        unused,
        {path: fault for each in found for path, fault in each.faults.items()},
        [
            other._replace(inputs=[_with_list(suggested, recipe, taken) for suggested in other.inputs])
            for each in found
            for other in each.others
        ],
        code_among(left_out.unknown),
    )


def _surveyed(entry: AnyInput, left_out: LeftOut) -> InputSurvey:
    if not isinstance(entry, FilesInput) or is_remote(entry.path):
        return InputSurvey([SuggestedInput({"path": entry.path})], {})
    settings = {"path": entry.path}
    if not split_suffix(entry.path)[0] and os.path.isfile(os.path.expanduser(entry.path)):
        settings["format"] = format_of(entry.path)
    elif bare := bare_files(entry.path):
        settings["format"] = format_of(bare[0])
    elif entry.format == AUTO and (code := only_code(entry.path)):
        return _surveyed_all([msgspec.structs.replace(entry, path=path, format="text") for path in code], left_out)
    entry = msgspec.structs.replace(entry, format=settings.get("format", entry.format))
    unknown = unknown_matches(entry.path) if entry.format == AUTO and is_glob(entry.path) else []
    left_out.add_unknown(unknown)  # a glob reads all its matches, a folder only known formats
    links: dict[str, str] = {}
    left_out.links = links
    files = list_files(known_matches(entry) if unknown else [entry], left_out)
    facts, failures = facts_of(files, _firsts(entry.path, files))
    facts = agreed(facts)
    is_named = os.path.isfile(os.path.expanduser(entry.path))  # other files may hold no documents
    failures |= {} if is_named else _doubtful(facts)
    others, errors = facts_of_others(files, {k: each for k, each in facts.items() if k not in failures}, failures)
    facts, failures = facts | others, failures | errors | ({} if is_named else _doubtful(others))
    failures |= {os.path.abspath(path): InputError(reason) for path, reason in links.items()}
    faults = {_shown(path, entry.path): each.fault for path, each in facts.items() if each.fault}
    facts = {path: each for path, each in facts.items() if path not in failures}
    if failures and len(failures) == len(facts) + len(failures):
        raise next(iter(failures.values()))
    read = [file for file in files if file.path in facts]
    unused = {_shown(path, entry.path): str(error) for path, error in failures.items()}
    unused |= dict.fromkeys(runs_below(entry.path), "output of a run")
    groups = _grouped(read, facts)
    if len(groups) == 1 and not failures and not unknown:
        [group] = groups
        inputs = [_suggested(settings | _common(group, facts), group, facts)]
    else:
        inputs = [_input_of(entry, settings, group, facts) for group in groups]
    found = InputSurvey(inputs, unused, faults)
    found_places = [*files, *(msgspec.structs.replace(files[0], path=os.path.abspath(path)) for path in links)]
    return _by_folder(found, entry, settings, found_places, read, facts)


def _surveyed_all(entries: Sequence[FilesInput], left_out: LeftOut) -> InputSurvey:
    """Return the survey of source code: one input per suffix."""
    found = [_surveyed(entry, left_out) for entry in entries]
    inputs = [
        each._replace(settings={"path": entry.path, "format": "text", "name": _code_name(entry.path)} | each.settings)
        for entry, own in zip(entries, found, strict=True)
        for each in own.inputs
    ]
    faults = {path: fault for each in found for path, fault in each.faults.items()}
    return InputSurvey(inputs, {path: reason for each in found for path, reason in each.unused.items()}, faults)


def _code_name(path: str) -> str:
    return default_name(f"{os.path.basename(os.path.abspath(path.split('*')[0])) or 'code'}-{path.rpartition('.')[2]}")


def _input_of(
    entry: FilesInput, settings: Mapping[str, str], group: Sequence[SourceFile], facts: dict[str, Facts]
) -> SuggestedInput:
    """Return an input for the files of a group, with a pattern or a list of them."""
    path = _pattern(entry.path, group)
    set_format = {name: value for name, value in settings.items() if name == "format"}
    own = set_format | {"path": path} | _name_of(entry.path, path, group) | _common(group, facts)
    listed = tuple(_shown(file.path, entry.path) for file in group) if path == LIST_MARK else ()
    return _suggested(own, group, facts)._replace(listed=listed)


def _doubtful(facts: Mapping[str, Facts]) -> dict[str, InputError]:
    return {path: _no_text(path, each) for path, each in facts.items() if each.is_doubtful}


def _no_text(path: str, facts: Facts) -> InputError:
    size = dict(facts.others)[facts.column]
    return InputError(
        f"no column of {path} looks like text: {facts.column}, the longest, has {size:,.0f} bytes on average. To use "
        "it, name the file itself"
    )


def _suggested(settings: dict[str, str], files: Sequence[SourceFile], facts: dict[str, Facts]) -> SuggestedInput:
    own = tuple(facts[file.path] for file in files if file.path in facts)
    size = sum(max(file.bytes, 0) for file in files)
    return SuggestedInput(settings, len(files), size, own, format=files[0].format if files else "")


# Folders as inputs


def _tops(path: str, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
    """Return the files of a folder, grouped by the first subfolder in their path; "" for files in the folder itself."""
    root = os.path.join(os.path.abspath(os.path.expanduser(path)), "")
    if not os.path.isdir(root):
        return {}
    tops: dict[str, list[SourceFile]] = {}
    for file in files:
        top, inside, _ = file.path.removeprefix(root).partition(os.sep)
        tops.setdefault(top if inside else "", []).append(file)
    return tops


def _firsts(path: str, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the first file of each suffix in each subfolder, if there are few subfolders."""
    tops = _tops(path, files)
    if not 1 < len({*tops} - {""}) <= MAX_FOLDERS:
        return []
    return [file for members in tops.values() for file in {suffix_of(file.path): file for file in members}.values()]


def _by_folder(
    found: InputSurvey, entry: FilesInput, settings: Mapping[str, str], files: Sequence[SourceFile],
    read: Sequence[SourceFile], facts: dict[str, Facts],
) -> InputSurvey:  # fmt: skip
    """Return the survey of a folder with several subfolders. If the subfolders differ, each of them gets inputs, and
    one input per format is the `OtherForm`; otherwise the reverse.

    files   all files of the folder
    read    those that an input reads
    """
    tops = _tops(entry.path, read)
    folders = {*tops} - {""}
    if len(folders) < 2:
        return found
    whole = {top: len(members) for top, members in _tops(entry.path, files).items()}
    inputs = []
    for top, members in tops.items():
        own = msgspec.structs.replace(entry, path=os.path.join(entry.path, top)) if top else entry
        groups = _grouped(members, facts)
        for group in groups:
            one = _input_of(own, settings, group, facts)
            if top:
                name = default_name(top) + f"-{group[0].format}" * (len(groups) > 1)
                is_all = len(group) == whole[top]
                own_path = own.path if is_all else one.settings["path"]
                named = one.settings | {"path": own_path, "name": name}
                ordered = {key: named[key] for key in dict.fromkeys(("path", "name", *named))}
                one = one._replace(settings=ordered, listed=() if is_all else one.listed)
            inputs.append(one)
    differ = len({_content(tops[top], facts) for top in folders}) > 1
    if len(folders) <= MAX_FOLDERS and differ:
        reason = "Folders are inputs of their own, because they differ in format, text column or kind of text"
        return found._replace(inputs=inputs, others=[OtherForm(reason, "As one input for each format", found.inputs)])
    reason = f"there are {len(folders):,}, more than {MAX_FOLDERS}" if differ else "they are alike in format and text"
    reason = f"Folders are no inputs of their own, because {reason}"
    return found._replace(others=[OtherForm(reason, "An input for each folder, ready for blends", inputs)])


def _content(members: Sequence[SourceFile], facts: Mapping[str, Facts]) -> tuple[object, ...]:
    """Return the formats and text columns of most files in a folder, and the kind of their texts."""
    known = [file for file in members if file.path in facts]
    sizes: dict[tuple[str, str], int] = {}
    for file in known:
        key = file.format, facts[file.path].column
        sizes[key] = sizes.get(key, 0) + file.bytes
    probed = _suggested({}, known, dict(facts))
    most = frozenset(key for key, size in sizes.items() if size >= MIN_SHARE * sum(sizes.values()))
    return most, probed.is_html, probed.is_code


# Groups of files with equal settings, and patterns that match them


def _grouped(files: Sequence[SourceFile], facts: dict[str, Facts]) -> list[list[SourceFile]]:
    """Return the files grouped by format and by the settings that they need."""
    formats: dict[str, list[SourceFile]] = {}
    for file in files:
        formats.setdefault(file.format, []).append(file)
    groups = []
    for members in formats.values():
        kinds: dict[tuple[object, ...], list[SourceFile]] = {}
        for file in members:
            kinds.setdefault(_needs(facts[file.path]), []).append(file)
        groups += [sorted(group, key=lambda file: file.path) for group in kinds.values()]
    return groups


def _needs(facts: Facts) -> tuple[object, ...]:
    """Return the settings in which files of one input must agree. A column that a run finds by its name is not one of
    these."""
    return ("" if facts.is_usual else facts.column), facts.reading


def _common(files: Sequence[SourceFile], facts: dict[str, Facts]) -> dict[str, Any]:
    """Return the settings in which the files of an input agree. If text columns differ, a run finds them by their
    names."""
    known = [facts[file.path].settings for file in files if file.path in facts]
    first = known[0].items() if known else ()
    return {name: value for name, value in first if all(other.get(name) == value for other in known)}


def _pattern(asked: str, group: Sequence[SourceFile]) -> str:
    """Return a path or glob that matches the files of a group and no other file; LIST_MARK if there is none."""
    if len(group) == 1:
        return _shown(group[0].path, asked)
    folders = {os.path.dirname(file.path) for file in group}
    names = [os.path.basename(file.path) for file in group]
    ending = _common_start(sorted({suffix_of(name) for name in names}))
    endings = f"*{ending}" if all(name.endswith(ending) for name in names) else f"*{ending}*"
    start = glob.escape(_common_start(names).removesuffix(ending))
    top = _top(asked, folders)
    choices = [f"{top}{endings}", f"{top}**{os.sep}{endings}"]
    if len(folders) == 1:
        choices += [f"{top}{start}{endings}", f"{top}{_with_class(names)}"]
    choices.append(f"{top}**{os.sep}{start}{endings}")
    return next((pattern for pattern in choices if _matches_only(pattern, group)), LIST_MARK)


def _common_start(names: Sequence[str]) -> str:
    return os.path.commonprefix(names)  # noqa: RUF071  # characters are compared, as they should


def _with_class(names: Sequence[str]) -> str:
    """Return a pattern such as `[abc].jsonl` for names that differ in one character."""
    places = [place for place, characters in enumerate(zip(*names, strict=False)) if len({*characters}) > 1]
    if len({*map(len, names)}) > 1 or len(places) != 1:
        return ""
    place, first = places[0], names[0]
    characters = "".join(sorted({name[place] for name in names}))
    found = f"{glob.escape(first[:place])}[{characters}]{glob.escape(first[place + 1 :])}"
    return found if characters.isalnum() else ""


def _top(asked: str, folders: Iterable[str]) -> str:
    """Return the lowest folder that contains all files, as the start of a pattern."""
    folder = _shown(os.path.commonpath(list(folders)), asked)
    return "" if folder == os.curdir else os.path.join(glob.escape(folder), "")


def _matches_only(pattern: str, files: Sequence[SourceFile]) -> bool:
    return {os.path.abspath(path) for path in glob_paths(os.path.expanduser(pattern)).shown} == {
        file.path for file in files
    }


def _shown(path: str, asked: str) -> str:
    """Return an absolute path as the user wrote the input: absolute if the input is absolute, else relative."""
    relative = path if os.path.isabs(os.path.expanduser(asked)) else os.path.relpath(path)
    return f"./{relative}" if relative.startswith(("@", "~", "#", "hf:")) else relative  # these begin other inputs


def _name_of(asked: str, path: str, group: Sequence[SourceFile]) -> dict[str, str]:
    """Return a name from folder and format for a glob or list; single files have the names of `input_names`."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(os.path.abspath(asked.split("*")[0]))).strip("-")
    return {"name": f"{stem or 'input'}-{group[0].format}"} if glob.has_magic(path) or path == LIST_MARK else {}


def _with_list(suggested: SuggestedInput, recipe: str, taken: dict[str, tuple[str, ...]]) -> SuggestedInput:
    """Return an input with the path of its list, next to the recipe. No format has the suffix `.list`.

    taken   path of each list -> its content
    """
    if not suggested.listed:
        return suggested
    start = f"{os.path.splitext(recipe)[0]}.{suggested.settings['name']}"
    names = (f"{start}{number}.list" for number in ("", *(f"-{more}" for more in range(2, 2 + len(taken)))))
    path = next(name for name in names if taken.get(name, suggested.listed) == suggested.listed)
    taken[path] = suggested.listed
    return suggested._replace(settings=suggested.settings | {"path": f"{LIST_MARK}{path}"})


def _with_unique_names(inputs: Sequence[SuggestedInput]) -> list[SuggestedInput]:
    """Return the inputs, with numbers appended to repeated names."""
    seen: dict[str, int] = {}
    unique = []
    for suggested in inputs:
        if name := suggested.settings.get("name"):
            seen[name] = seen.get(name, 0) + 1
            numbered = name if seen[name] == 1 else f"{name}-{seen[name]}"
            suggested = suggested._replace(settings=suggested.settings | {"name": numbered})
        unique.append(suggested)
    return unique
