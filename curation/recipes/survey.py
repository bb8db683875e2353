# SPDX-License-Identifier: Apache-2.0
"""Files of a folder as inputs of a recipe: one input per suffix, with the text column and the encoding of its files.

Files of one format are split where they need different settings. A glob stands for files only if it matches no other
file; else a list names the files.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from charset_normalizer import from_bytes

from curation.errors import InputError
from curation.reading.formats import FORMATS, contents, format_of
from curation.reading.formats.base import PROBED_BYTES, TEXT_COLUMNS, start_of
from curation.reading.globs import HIDDEN, glob_paths
from curation.reading.inputs import LIST_MARK, AnyInput, FilesInput
from curation.reading.paths import find_files, has_input_file, has_no_suffix, is_run, split_suffix
from curation.reading.source_files import COMPRESSIONS, SourceFile, encoding_by_mark
from curation.reading.streams import Chunk
from curation.reading.urls import is_remote

PROBED_FILES = 50  # per suffix
WEAK_COLUMNS = ("article", "description", "document")  # often a title or a summary: a column ten times as long wins
# Of ids, the most frequent first. `id` is the default of an input.
IDS = ("doc_id", "docid", "document_id", "uuid", "guid", "record_id", "page_id", "_id", "ID")
LIKELY = re.compile(r"text|content|body|article|story|passage|paragraph|markdown", re.IGNORECASE)
UNLIKELY = re.compile(r"html|url|uri|link|json|embedding|base64|image|hash|token_ids", re.IGNORECASE)
MIN_TEXT_BYTES = 40
TAGS = (
    "a|abbr|article|aside|b|blockquote|body|br|code|div|em|figure|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|img|"
    "li|main|nav|ol|p|pre|script|section|small|span|strong|style|sub|sup|table|tbody|td|th|thead|title|tr|u|ul"
)
TAG = re.compile(rf"</?(?:{TAGS})(?:\s+[a-z-]+\s*=[^<>]*|\s*/)?>", re.IGNORECASE)
ENTITY = re.compile(r"&(?:[a-z]{2,8}|#\d{2,6}|#x[0-9a-f]{2,6});", re.IGNORECASE)
MIN_TAGS = 2  # of a text with tags
UNKNOWN = "unknown format"
SAME = "other files of its suffix cannot be read"
# Of scripts other than Latin, as charset-normalizer names them. Their letters are most bytes of a text; in French or
# Polish a tenth is not ASCII, which it takes for any of them.
OTHER_ENCODINGS = ["gb18030", "big5hkscs", "cp932", "euc_jp", "cp949", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256"]
CHARSET_BYTES = 1 << 16
WINDOWS = re.compile(rb"[\x80-\x9f]")  # control characters in Latin-1, quotes and dashes in Windows-1252
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # in Windows-1252


class Facts(NamedTuple):
    """What a file needs to be read.

    column    text column; "" for a format without columns
    is_usual  whether a run finds the column by its name
    reading   further settings: encoding, delimiter, quote, escape, header, separator
    others    further columns with text -> mean bytes; `column` is among them
    numbers   columns with numbers
    texts     number of texts looked at
    tagged    those with tags of HTML
    entities  those with tags and entities of HTML
    bytes     UTF-8 bytes of these texts
    foreign   those of characters beyond ASCII
    fault     what a run will not read of the file
    ids       column of ids under another name than `id`; "" for none
    """

    column: str = ""
    is_usual: bool = True
    reading: tuple[tuple[str, Any], ...] = ()
    others: tuple[tuple[str, float], ...] = ()
    numbers: tuple[str, ...] = ()
    texts: int = 0
    tagged: int = 0
    entities: int = 0
    bytes: int = 0
    foreign: int = 0
    fault: str = ""
    ids: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of an input."""
        columns = {"text_column": self.column, "id_column": self.ids}
        return {name: column for name, column in columns.items() if column} | dict(self.reading)

    @property
    def is_doubtful(self) -> bool:
        """Whether the column was chosen for its length alone and has less text than a sentence."""
        chosen = not self.is_usual and self.column in dict(self.others) and not LIKELY.search(self.column)
        return chosen and dict(self.others)[self.column] < MIN_TEXT_BYTES


class SuggestedInput(NamedTuple):
    """An input of the recipe.

    settings  of the input, with its path
    files     number of files; 0 if unknown
    bytes     stored size of the files
    facts     of the files that were probed
    listed    files that a list names, one per line, since no glob matches them alone
    """

    settings: dict[str, Any]
    files: int = 0
    bytes: int = 0
    facts: tuple[Facts, ...] = ()
    listed: tuple[str, ...] = ()

    @property
    def texts(self) -> int:
        """Number of texts that were looked at."""
        return sum(facts.texts for facts in self.facts)

    @property
    def tagged(self) -> int:
        """Those with tags of HTML."""
        return sum(facts.tagged for facts in self.facts)

    @property
    def is_html(self) -> bool:
        """Whether half of its texts have tags."""
        return 0 < self.texts <= 2 * self.tagged


class Survey(NamedTuple):
    """The inputs for a recipe.

    unused   files that none of them reads: path -> reason
    faults   files of which a run reads a part, or nothing: path -> reason
    """

    inputs: list[SuggestedInput]
    unused: dict[str, str]
    faults: Mapping[str, str] = MappingProxyType({})


def survey(entries: Sequence[AnyInput], recipe: str = "recipe.yaml") -> Survey:
    """Return inputs with format, text column and encoding for all files of `entries`; reads the start of some files.

    recipe   path of the recipe: it is not listed as unused, and lists of files are named after it

    Raises InputError for an input that does not exist or in which no text is found.
    """
    inputs: list[SuggestedInput] = []
    unused: dict[str, str] = {}
    faults: dict[str, str] = {}
    for entry in entries:
        found = _surveyed(entry)
        inputs += found.inputs
        unused |= found.unused
        faults |= found.faults
    unused.pop(os.path.normpath(recipe), None)
    return Survey([_with_list(suggested, recipe) for suggested in _with_unique_names(inputs)], unused, faults)


def _surveyed(entry: AnyInput) -> Survey:
    if not isinstance(entry, FilesInput) or is_remote(entry.path):
        return Survey([SuggestedInput({"path": entry.path})], {})
    settings = {"path": entry.path}
    if not split_suffix(entry.path)[0] and os.path.isfile(os.path.expanduser(entry.path)):
        settings["format"] = _format_of(entry.path)
        entry = msgspec.structs.replace(entry, format=settings["format"])
    bare = _bare_files(entry.path)
    if bare:
        settings["format"] = _format_of(bare[0])
        entry = msgspec.structs.replace(entry, format=settings["format"])
    unused = {path: reason for path, reason in _unknown_files(entry.path).items() if path not in bare}
    is_whole = not (unused and _is_glob(entry.path))  # a glob reads all its matches, a folder known formats alone
    files = find_files([entry] if is_whole else _known_matches(entry))
    facts, failures = _facts_of(files)
    facts = _agreed(facts)
    faults = {_shown(path, entry.path): each.fault for path, each in facts.items() if each.fault}
    if files and not os.path.isfile(os.path.expanduser(entry.path)):  # files that nobody named may hold no documents
        failures |= {path: _no_text(path, entry) for path, entry in facts.items() if entry.is_doubtful}
        facts = {path: entry for path, entry in facts.items() if path not in failures}
    if failures and len(failures) == len(facts) + len(failures):
        raise next(iter(failures.values()))
    unused |= {_shown(path, entry.path): str(error) for path, error in failures.items()}
    known = {_suffix(path) for path in facts}
    unused |= {_shown(file.path, entry.path): SAME for file in files if _suffix(file.path) not in known
               and file.path not in failures}  # fmt: skip
    groups = _grouped([file for file in files if _suffix(file.path) in known and file.path not in failures], facts)
    if len(groups) == 1 and not failures and is_whole:
        [group] = groups
        return Survey([_suggested(settings | _common(group, facts), group, facts)], unused, faults)
    inputs = []
    set_format = {name: value for name, value in settings.items() if name == "format"}
    for group in groups:
        path = _pattern(entry.path, group)
        settings = set_format | {"path": path} | _name_of(entry.path, path, group) | _common(group, facts)
        listed = tuple(_shown(file.path, entry.path) for file in group) if path == LIST_MARK else ()
        inputs.append(_suggested(settings, group, facts)._replace(listed=listed))
    return Survey(inputs, unused, faults)


def _no_text(path: str, facts: Facts) -> InputError:
    size = dict(facts.others)[facts.column]
    return InputError(
        f"no column of {path} looks like text: {facts.column}, the longest, has {size:,.0f} bytes on average. To use "
        "it, name the file itself"
    )


def _suggested(settings: dict[str, str], files: Sequence[SourceFile], facts: dict[str, Facts]) -> SuggestedInput:
    own = tuple(facts[file.path] for file in files if file.path in facts)
    return SuggestedInput(settings, len(files), sum(max(file.bytes, 0) for file in files), own)


# Groups of files with equal settings, and patterns that match them


def _grouped(files: Sequence[SourceFile], facts: dict[str, Facts]) -> list[list[SourceFile]]:
    """Files by format, and by the settings that they need. Files that were not probed have the most frequent ones."""
    formats: dict[str, list[SourceFile]] = {}
    for file in files:
        formats.setdefault(file.format, []).append(file)
    groups = []
    for members in formats.values():
        kinds: dict[tuple[object, ...], list[SourceFile]] = {}
        for file in members:
            if file.path in facts:
                kinds.setdefault(_needs(facts[file.path]), []).append(file)
        frequent = max(kinds.values(), key=len)
        frequent += [file for file in members if file.path not in facts]
        groups += [sorted(group, key=lambda file: file.path) for group in kinds.values()]
    return groups


def _needs(facts: Facts) -> tuple[object, ...]:
    """The settings in which files of one input must agree; a column that a run finds by its name is none."""
    return ("" if facts.is_usual else facts.column), facts.reading


def _common(files: Sequence[SourceFile], facts: dict[str, Facts]) -> dict[str, Any]:
    """The settings of an input in which its files agree. A run finds text columns that differ by their names."""
    known = [facts[file.path].settings for file in files if file.path in facts]
    return {name: value for name, value in known[0].items() if all(other.get(name) == value for other in known)}


def _pattern(asked: str, group: Sequence[SourceFile]) -> str:
    """A path or glob that matches the files of a group and no other file; LIST_MARK where there is none."""
    if len(group) == 1:
        return _shown(group[0].path, asked)
    folders = {os.path.dirname(file.path) for file in group}
    names = [os.path.basename(file.path) for file in group]
    ending = _common_start(sorted({_suffix(name) for name in names}))
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
    """A pattern such as `[abc].jsonl` for names that differ in one character."""
    places = [place for place, characters in enumerate(zip(*names, strict=False)) if len({*characters}) > 1]
    if len({*map(len, names)}) > 1 or len(places) != 1:
        return ""
    place, first = places[0], names[0]
    characters = "".join(sorted({name[place] for name in names}))
    found = f"{glob.escape(first[:place])}[{characters}]{glob.escape(first[place + 1 :])}"
    return found if characters.isalnum() else ""


def _top(asked: str, folders: Iterable[str]) -> str:
    """The folder above all files, as the start of a pattern."""
    folder = _shown(os.path.commonpath(list(folders)), asked)
    return "" if folder == os.curdir else os.path.join(glob.escape(folder), "")


def _matches_only(pattern: str, files: Sequence[SourceFile]) -> bool:
    return {os.path.abspath(path) for path in glob_paths(os.path.expanduser(pattern)).shown} == {
        file.path for file in files
    }


def _shown(path: str, asked: str) -> str:
    """An absolute path in the form in which the user wrote the input: relative, or absolute."""
    relative = path if os.path.isabs(os.path.expanduser(asked)) else os.path.relpath(path)
    return f"./{relative}" if relative.startswith(("@", "~", "#", "hf:")) else relative  # these begin other inputs


def _suffix(path: str) -> str:
    """The suffix of a file with its compression, as it is written."""
    stem, last = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if last.lower() in COMPRESSIONS else "") + last


def _name_of(asked: str, path: str, group: Sequence[SourceFile]) -> dict[str, str]:
    """A name by folder and format for a glob or list; files have the names of `input_names`."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(os.path.abspath(asked.split("*")[0]))).strip("-")
    return {"name": f"{stem or 'input'}-{group[0].format}"} if glob.has_magic(path) or path == LIST_MARK else {}


def _with_list(suggested: SuggestedInput, recipe: str) -> SuggestedInput:
    """An input with the path of its list, beside the recipe. The suffix `.list` is that of no format."""
    if not suggested.listed:
        return suggested
    path = f"{os.path.splitext(recipe)[0]}.{suggested.settings['name']}.list"
    return suggested._replace(settings=suggested.settings | {"path": f"{LIST_MARK}{path}"})


def _with_unique_names(inputs: Sequence[SuggestedInput]) -> list[SuggestedInput]:
    """The inputs, with numbers after names that occur again."""
    seen: dict[str, int] = {}
    unique = []
    for suggested in inputs:
        if name := suggested.settings.get("name"):
            seen[name] = seen.get(name, 0) + 1
            numbered = name if seen[name] == 1 else f"{name}-{seen[name]}"
            suggested = suggested._replace(settings=suggested.settings | {"name": numbered})
        unique.append(suggested)
    return unique


# Files that are not read


def _unknown_files(path: str) -> dict[str, str]:
    """Files of a folder or glob whose name tells no format, and folders that are left out."""
    path = os.path.expanduser(path)
    if os.path.isdir(path) and not is_run(path):
        return dict(_unknown_below(path))
    if _is_glob(path):
        return {os.path.normpath(match): UNKNOWN for match in _matches(path) if not split_suffix(match)[0]}
    return {}


def _bare_files(path: str) -> list[str]:
    """The files without a suffix of a folder in which no name tells a format."""
    folder = os.path.expanduser(path)
    if not os.path.isdir(folder) or is_run(folder) or has_input_file(folder):
        return []
    return [name for name, reason in _unknown_below(folder) if reason == UNKNOWN and has_no_suffix(name)]


def _is_glob(path: str) -> bool:
    return glob.has_magic(path) and not os.path.exists(os.path.expanduser(path))


def _matches(pattern: str) -> list[str]:
    return [match for match in glob_paths(os.path.expanduser(pattern)).shown if os.path.isfile(match)]


def _known_matches(entry: FilesInput) -> list[FilesInput]:
    """An input for each match of a glob whose format is known."""
    known = [match for match in _matches(entry.path) if split_suffix(match)[0]]
    if not known:
        raise InputError(f"no file that matches {entry.path} has a known format; see docs/inputs.md for the suffixes")
    return [msgspec.structs.replace(entry, path=match) for match in known]


def _unknown_below(folder: str) -> Iterable[tuple[str, str]]:
    for parent, folders, names in os.walk(folder):
        for name in sorted(folders):
            if is_run(os.path.join(parent, name)):
                yield os.path.normpath(os.path.join(parent, name)), "output of a run"
        folders[:] = sorted(
            name for name in folders if not name.startswith(HIDDEN) and not is_run(os.path.join(parent, name))
        )
        for name in sorted(names):
            if not name.startswith(HIDDEN) and not split_suffix(name)[0]:
                yield os.path.normpath(os.path.join(parent, name)), UNKNOWN


def _format_of(path: str) -> str:
    """The format of a file without a known suffix, by its first bytes."""
    with open(os.path.expanduser(path), "rb") as file:
        head = file.read(PROBED_BYTES).lstrip()
    return next((name for name, kind in FORMATS.items() if re.match(kind.start, head)), "text")


# Facts of files


def _facts_of(files: Sequence[SourceFile]) -> tuple[dict[str, Facts], dict[str, InputError]]:
    """The facts of up to PROBED_FILES files per suffix, evenly spaced, and the errors of files without text."""
    suffixes: dict[str, list[SourceFile]] = {}
    for file in files:
        suffixes.setdefault(_suffix(file.path), []).append(file)
    facts: dict[str, Facts] = {}
    failures: dict[str, InputError] = {}
    for members in suffixes.values():
        for file in members[:: max(1, -(-len(members) // PROBED_FILES))]:
            try:
                facts[file.path] = _facts(file)
            except InputError as error:
                failures[file.path] = contents.explain(file, format_of(file), error)
    return facts, failures


def _agreed(facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """The facts, in which files with the same columns have one text column: the likeliest by their mean lengths."""
    alike: dict[frozenset[str], list[str]] = {}
    for path, each in facts.items():
        if len(each.others) > 1:
            alike.setdefault(frozenset(dict(each.others)), []).append(path)
    agreed = dict(facts)
    for names, paths in alike.items():
        lengths = {name: sum(dict(facts[path].others)[name] for path in paths) / len(paths) for name in names}
        others = tuple(sorted(lengths.items(), key=lambda pair: (-pair[1], pair[0])))
        usual = next((facts[path].column for path in paths if facts[path].is_usual), "")
        column = likeliest(dict(others), usual)
        for path in paths:
            agreed[path] = facts[path]._replace(column=column, is_usual=column == usual, others=others)
    return agreed


def _facts(file: SourceFile) -> Facts:
    kind, reading = format_of(file), _reading_of(file)
    file = msgspec.structs.replace(file, **reading)
    contents.check(file, kind)
    start = start_of(file) if kind.is_compressible else Chunk(b"", "")
    facts = _plain_facts(file, start.data, tuple(reading.items()))
    fault = f"{start.damage}; a run reads what comes before" if start.damage else kind.doubt(file)
    return facts._replace(fault=fault if start.data or file.bytes else "the file is empty")


def _plain_facts(file: SourceFile, start: bytes, form: tuple[tuple[str, Any], ...]) -> Facts:
    kind = format_of(file)
    if not kind.has_columns:
        kind.probe(file)
        texts = [start.decode(file.encoding, "replace")] if kind.name == "text" else []
        return _with_markup(Facts("", False, form), texts)
    columns = kind.sample_columns(file)
    ids = "" if file.id_column in columns else _ids_of(columns, file)
    if file.text_column:
        column = kind.probe(file).text_column
        return _with_markup(Facts(column, False, form, ids=ids), columns.get(column, ()))
    file = msgspec.structs.replace(file, id_column=ids or file.id_column)
    lengths = _mean_bytes(columns, file)
    numbers = tuple(name for name, values in columns.items() if name != file.id_column and _has_numbers(values))
    others = tuple(sorted(((name, size) for name, size in lengths.items() if size), key=lambda pair: -pair[1]))
    try:
        found = kind.probe(file).text_column
    except InputError as error:
        if not others:
            raise error from None
        found = ""
    usual = next((name for name in TEXT_COLUMNS if name in lengths), "")
    column = likeliest(lengths, usual) or found
    kind.probe(msgspec.structs.replace(file, text_column=column))  # a run must read what the recipe names
    facts = Facts(column, column == found, form, others, numbers, ids=ids)
    return _with_markup(facts, [*map(_decoded, columns.get(column, ()))])


def _ids_of(columns: Mapping[str, Sequence[Any]], file: SourceFile) -> str:
    """The first column with a name of ids whose values are strings or integers, and all differ; "" for none."""

    def are_ids(values: Sequence[Any]) -> bool:
        return all(type(value) in (str, int) for value in values) and len({*values}) == len(values) > 0

    return next((name for name in IDS if name != file.text_column and are_ids(columns.get(name, ()))), "")


def _with_markup(facts: Facts, values: Sequence[Any]) -> Facts:
    """The facts with counts of the texts among some values."""
    texts = [value for value in values if isinstance(value, str)]
    tagged = [text for text in texts if len(TAG.findall(text)) >= MIN_TAGS]
    entities = sum(bool(ENTITY.search(text)) for text in tagged)
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    foreign = size - sum(len(text.encode("ascii", "ignore")) for text in texts)
    return facts._replace(texts=len(texts), tagged=len(tagged), entities=entities, bytes=size, foreign=foreign)


def _reading_of(file: SourceFile) -> dict[str, Any]:
    """The encoding and the dialect of a file that nobody has set, where they are not the usual ones."""
    kind = format_of(file)
    reading: dict[str, Any] = {}
    is_guessed = "encoding" in kind.options and not kind.tells_encoding and file.encoding == "utf-8"
    if is_guessed and (encoding := encoding_of(file)):
        reading["encoding"] = encoding
    return reading | kind.detect(msgspec.structs.replace(file, **reading))


def likeliest(lengths: dict[str, float], usual: str = "") -> str:
    """Return the column that most likely holds the text of documents.

    lengths   column -> mean bytes, of columns with text
    usual     the column that a run would take by its name; it wins unless its name is weak and another column is ten
              times as long

    Otherwise the longest column with a likely name wins, if it has a fifth of the length of the longest one.
    """
    plain = {name: size for name, size in lengths.items() if not UNLIKELY.search(name)} or lengths
    longest = max(plain, key=lambda name: plain[name], default=usual)
    if usual and (usual not in WEAK_COLUMNS or plain.get(longest, 0) < 10 * lengths.get(usual, 0)):
        return usual
    likely = [name for name in plain if LIKELY.search(name) and 5 * plain[name] >= plain[longest]]
    return max(likely, key=lambda name: plain[name], default=longest)


def encoding_of(file: SourceFile) -> str:
    """Return the likely encoding of a text file that is not UTF-8: utf-16, utf-32, cp1252, latin-1 or one of
    OTHER_ENCODINGS; "" for UTF-8.

    The function cannot distinguish other encodings of one byte per character. The recipe calls the encoding a guess.
    """
    head = start_of(file).data
    if (encoding := encoding_by_mark(head)) != "utf-8":
        return encoding
    for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):  # without a mark: every second byte of ASCII is 0
        if 2 * head[first::2].count(0) > len(head[first::2]):
            return name
    text = head.decode(errors="replace")
    wrong, several = text.count("\ufffd"), sum(character > "\x7f" for character in text)
    if 2 * wrong <= several or (wrong == 1 and text.endswith("\ufffd")):  # UTF-8 with faults, or cut off by the limit
        return ""
    start = head[:CHARSET_BYTES]
    start = start[: start.rfind(b"\n") + 1] or start  # a character that is cut off would rule its encoding out
    foreign = 3 * sum(byte > 0x7F for byte in start) >= len(start)
    if foreign and (found := from_bytes(start, cp_isolation=OTHER_ENCODINGS).best()):
        return found.encoding
    return "cp1252" if WINDOWS.search(head) and not UNDEFINED.search(head) else "latin-1"


def _has_numbers(values: Sequence[Any]) -> bool:
    """Whether a column has numbers, and nothing else but nulls."""
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)


def _mean_bytes(columns: Mapping[str, Sequence[Any]], file: SourceFile) -> dict[str, float]:
    """The mean UTF-8 bytes of each column with text in most records; of all columns with text if there is none.

    Columns of bytes that are UTF-8 count only where no column of strings has texts of MIN_TEXT_BYTES.
    """
    rows = max(map(len, columns.values()), default=0)
    named = {name: values for name, values in columns.items() if name != file.id_column}
    texts = {
        name: [value for value in values if isinstance(value, str) and value.strip()] for name, values in named.items()
    }
    filled = {name: written for name, written in texts.items() if 2 * len(written) > rows} or texts
    lengths = {
        name: sum(len(text.encode("utf-8", "replace")) for text in written) / len(written)
        for name, written in filled.items()
        if written
    }
    raw = {name: values for name, values in named.items() if any(isinstance(value, bytes) for value in values)}
    if raw and max(lengths.values(), default=0) < MIN_TEXT_BYTES:
        lengths |= _mean_bytes({name: [*map(_decoded, values)] for name, values in raw.items()}, file)
    return lengths


def _decoded(value: object) -> object:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
