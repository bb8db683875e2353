# SPDX-License-Identifier: Apache-2.0
"""Inputs: files or a data set of Hugging Face, and options for reading their records."""

from __future__ import annotations

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from curation.base.errors import ArgumentError, InputError
from curation.base.records import LARGEST_STRING
from curation.reading.extract_settings import Extract
from curation.reading.formats import FORMATS
from curation.reading.formats.delimited import Delimited
from curation.reading.source_files import QUOTE, CarriedColumn, ReadOptions
from curation.reading.split_settings import Split
from curation.reading.urls import is_remote, shown

AUTO = "auto"  # the format by suffix
LIST_MARK = "@"
MAX_NAME_BYTES = 255  # of a file name on Linux
SHOWN_CHARACTERS = 60  # shown of a text that was given in place of a path
HUB_MARK = "hf:"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Input(
    ReadOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", repr_omit_defaults=True,
):  # fmt: skip
    """Settings that inputs of files and data sets share."""

    path: str
    name: str = ""
    blend_weight: float | msgspec.UnsetType = msgspec.UNSET
    copies: int = 1
    skip: int = 0
    limit: int | msgspec.UnsetType = msgspec.UNSET
    max_documents: int = 0
    max_bytes: int = 0
    min_documents: int = 0
    min_bytes: int = 0
    licence: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.path, os.PathLike):
            msgspec.structs.force_setattr(self, "path", os.fspath(self.path))
        if not isinstance(self.path, str):
            raise ValueError(f"path must be a string, not {self.path!r}")
        if isinstance(self.columns, str):
            raise ValueError(f"columns must be a list or a mapping, not {self.columns!r}")
        if isinstance(self.columns, Mapping):  # a call from Python does not convert it
            columns = msgspec.convert(dict(self.columns), dict[str, str | CarriedColumn])
            msgspec.structs.force_setattr(self, "columns", columns)
        if not self.path:
            raise ValueError("path is empty; expected a file, a folder, a glob or a URL")
        self.check()
        if self.max_document_bytes > LARGEST_STRING:
            raise ValueError(
                f"max_document_bytes must be at most {LARGEST_STRING:,}, the longest string of a Parquet file, not "
                f"{self.max_document_bytes}"
            )
        if self.name and not NAME.fullmatch(self.name):
            raise ValueError(
                f"name {self.name!r} must be letters, digits, '.', '_' and '-', and begin with a letter or digit"
            )
        if self.name and _is_number(self.name):
            raise ValueError(f"name {self.name!r} looks like a number, which Megatron would read as a blend weight")
        if self.blend_weight is not msgspec.UNSET and not self.blend_weight > 0:
            raise ValueError(
                f"blend_weight must be above 0, not {self.blend_weight}. For no share, leave the input out"
            )
        if self.copies < 1:
            raise ValueError(f"copies must be at least 1, not {self.copies}; to read a part of an input set sample")
        if self.skip < 0:
            raise ValueError(f"skip must be 0 or more records, not {self.skip}")
        if isinstance(self.limit, int) and self.limit < 1:
            raise ValueError(f"limit must be at least 1, not {self.limit}. To read all, leave it out; to read nothing, "
                             "leave the input out")  # fmt: skip
        _check_budget(self, "max_documents", "max_bytes", "min_documents", "min_bytes")
        if self.max_documents and self.min_documents > self.max_documents:
            raise ValueError(
                f"min_documents {self.min_documents} is above max_documents {self.max_documents}; no run can reach it"
            )

    @property
    def is_limited(self) -> bool:
        """Whether settings such as `skip` and `limit` leave out some records by their number."""
        return bool(self.skip or self.limit is not msgspec.UNSET or self.max_documents or self.max_bytes)


class FilesInput(_Input, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="files"):
    """One entry of `input:` in a recipe: files.

    path                a file, a folder (all files below it with a known suffix, except outputs of runs), a glob, an
                        URL for fsspec, or `@FILE`: a list of paths or URLs, one per line, optionally gzipped (Common
                        Crawl's wet.paths.gz)
    base                prefix of every entry of such a list (`https://data.commoncrawl.org/`)
    name                name of the input in `source`, generated ids and output names; by default derived from the path,
                        with a number where another input has that name (`x`, `x-2`). It may not look like a number,
                        which Megatron reads as a weight
    format              "auto" (by suffix), jsonl, parquet, arrow, csv, tsv, text, html, wet or warc
    text_column         "": the first of text, content, body, raw_content, ...; a dotted path selects nested JSON
    id_column           of strings or integers; a record without id gets `<name>/<doc>`
    columns             further fields to copy to `documents/`, as strings (WET and WARC: url, date, warc_id;
                        WARC: links, status, content_type; text: path): a list, or a mapping of new names to fields,
                        such as `{domain: source}`; `{n: {field: n, type: integer}}` declares a type for `documents/`:
                        integer, number or boolean, with null for empty values. Records with other values are rejected
    separator           text: split files here; "": each file is one document
    encoding            of text, html, csv and tsv; html without it is read as by browsers
    extract             html and warc: the library that finds the main text, resiliparse, trafilatura or justext, or
                        `{by: justext, language: English, tables: drop, lists: drop}`
    delimiter           of csv and tsv, one character, and a space if spaces may follow it; "": a comma in csv, a tab in
                        tsv
    quote               of csv and tsv, one character around fields that hold delimiters or line ends; "": no quoting
    escape              of csv and tsv, the character before a quote that is part of a field, such as `"\\"`; "": none.
                        Without it, a doubled quote is part of a field, and a file whose first rows seem to be escaped
                        is an error
    header              of csv and tsv, whether the first row names the columns; false: column_1, column_2, ...
    max_document_bytes  larger records are rejected; text is measured in UTF-8, in any encoding
    keep_blank          true reads texts without a visible character as documents; by default they are rejected
    blend_weight        share of this input in training (`output.blend`); all inputs have one, or none
    sample              share of the documents to read, by a hash of id, text and the recipe's `seed`
    skip                records at the start of the input that are not read
    limit               number of records to read after these; left out: all
    max_documents       number of documents after `sample` at which reading ends; 0: no limit
    max_bytes           bytes of text after `sample` at which reading ends; the document that reaches them is the last
                        one; 0: no limit
    split               parts of documents to read as documents with ids `x#0`, `x#1`: `{at: "\\n\\n"}`,
                        `{sentences: 5}` or `{tokens: 512}`. The settings above count whole documents
    copies              how often each kept document is written, one whole copy of the input after another
    min_documents       least number of documents of the input, counted as `max_documents`; fewer are an error
    min_bytes           least text of the input after `sample`, in bytes; less is an error; 0: no minimum
    licence             licence of the texts, for the data card in `report.html`, such as CC-BY-SA-4.0
    """

    base: str = ""
    format: str = AUTO
    separator: str = ""
    encoding: str = "utf-8"
    delimiter: str = ""
    quote: str = QUOTE
    escape: str | msgspec.UnsetType = msgspec.UNSET
    header: bool = True
    split: Split | msgspec.UnsetType = msgspec.UNSET
    extract: str | Extract | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.extract, Extract | msgspec.UnsetType):
            by = self.extract
            extract = Extract(by=by) if isinstance(by, str) else msgspec.convert(by, Extract)
            msgspec.structs.force_setattr(self, "extract", extract)
        if isinstance(self.split, Mapping):  # a call from Python does not convert it
            msgspec.structs.force_setattr(self, "split", msgspec.convert(self.split, Split))
        super().__post_init__()
        if is_hub(self.path):
            raise ValueError(f"{self.path} is a data set of Hugging Face; leave kind out, or write kind: hub")
        if self.base and not self.path.startswith(LIST_MARK):
            raise ValueError(f"base needs a list of paths; write path: '{LIST_MARK}{shown(self.path)}'")
        if self.format not in (AUTO, *FORMATS):
            raise ValueError(f"format must be one of {', '.join([AUTO, *FORMATS])}, not {self.format!r}")
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError):
            raise ValueError(f"encoding {self.encoding!r} is unknown to Python; write one such as latin-1") from None
        delimiter = self.delimiter if self.delimiter[:1] == " " else self.delimiter.removesuffix(" ")
        _check_character("delimiter", delimiter, 'the one of the format. Write a tab as "\\t"')
        _check_character("quote", self.quote, "fields without quotes")
        _check_character("escape", self.escape or "", "no escapes")
        if self.escape and self.escape in (self.quote, self.delimiter[:1]):
            raise ValueError(f"escape is {self.escape!r}, as quote or delimiter. Leave escape out for doubled quotes")
        if self.quote and self.quote in (
            self.delimiter[:1] or [kind.delimiter for kind in FORMATS.values() if isinstance(kind, Delimited)]
        ):
            raise ValueError(f"quote and delimiter are both {self.quote!r}; expected two characters. Set both")


class HubInput(_Input, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hub"):
    """One entry of `input:` in a recipe: a data set that Hugging Face `datasets` streams. Other settings are those of
    `FilesInput`.

    path                        `hf:ORG/NAME` or `hf:FOLDER`
    config, split, data_files   part of the data set
    revision                    version of the data set: a branch, a tag or a commit
    """

    config: str = ""
    split: str = "train"
    revision: str = ""
    data_files: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_hub(self.path) or self.path == HUB_MARK:
            raise ValueError(f"{shown(self.path)} must name a data set, for example {HUB_MARK}ORG/NAME")


AnyInput = FilesInput | HubInput
_KINDS: dict[str, type[FilesInput] | type[HubInput]] = {"files": FilesInput, "hub": HubInput}
# Fields of a FilesInput that functions and stages accept for reading files.
READING = (
    "base", "name", "format", "text_column", "id_column", "separator", "encoding", "delimiter", "quote",
    "escape", "header", "max_document_bytes",
)  # fmt: skip


RUN_SETTINGS = ("skip", "limit", "max_documents", "max_bytes", "split")  # settings of inputs that only runs use


def Input(path: str | os.PathLike[str], **settings: Any) -> AnyInput:  # noqa: N802  # named like a class: it makes one
    """Return a `HubInput` if `path` begins with `hf:`, else a `FilesInput`. The settings are those of this class.

        >>> import curation
        >>> curation.Input("data/*.jsonl.gz", text_column="body").text_column
        'body'
        >>> curation.Input(path="hf:ORG/NAME", split="train", max_documents=1000).split
        'train'

    Raises ValueError for a setting that is out of range or belongs to the other class, TypeError for an unknown one.
    """
    content = with_kind({"path": os.fspath(path) if isinstance(path, os.PathLike) else path, **settings})
    kind = content.pop("kind")
    if kind not in _KINDS:
        raise ValueError(f"kind must be files or hub, not {kind!r}; leave it out")
    return _KINDS[kind](**content)


def with_kind(content: Any) -> Any:
    """Return the dictionary of an input with its `kind`, which depends on its path. Objects of other types are
    unchanged.

    Settings of the other kind are removed if they have their default values. Raises ValueError for other values.
    """
    if not isinstance(content, Mapping):
        return content
    path = content.get("path", "")
    kind = content.get("kind", "hub" if isinstance(path, str) and is_hub(path) else "files")
    if not isinstance(kind, str) or kind not in _KINDS:
        return content
    split = content.get("split")
    if kind == "files" and isinstance(split, str):
        if split != _defaults("hub")["split"]:
            advice = f", or split: {{at: {json.dumps(split)}}} to split documents at a pattern"
            raise ValueError(_foreign_setting("split", kind, str(path)) + advice)
        content = {name: value for name, value in content.items() if name != "split"}
    if kind == "hub" and isinstance(split, Mapping | Split):
        raise ValueError(
            f"split of {path} is a part of the data set, such as train. To split its documents, run once with stages: "
            "[], then read its documents/ with split"
        )
    foreign = {
        name: default
        for name, default in _defaults("hub" if kind == "files" else "files").items()
        if name not in _KINDS[kind].__struct_fields__
    }
    for name, default in foreign.items():
        if content.get(name, default) != default:
            raise ValueError(_foreign_setting(name, kind, str(path)))
    return {"kind": kind} | {name: value for name, value in content.items() if name not in foreign}


@cache
def _defaults(kind: str) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(_KINDS[kind])}


def _foreign_setting(name: str, kind: str, path: str) -> str:
    """Return the message about a setting that belongs to the other kind of input."""
    if kind == "hub":
        return f"{name} is for files, {path} is a data set of Hugging Face; leave {name} out"
    return f"{name} is for data sets of Hugging Face; write path: '{HUB_MARK}{shown(path)}'"


def with_kinds(listed: Sequence[Any], where: str) -> list[Any]:
    """Return the result of `with_kind` for each entry. Errors name the entry in the format of msgspec."""
    inputs = []
    for number, entry in enumerate(listed):
        try:
            inputs.append(with_kind(entry))
        except ValueError as error:
            raise ValueError(f"{error} - at `{where}[{number}]`") from None
    return inputs


def _is_text(entry: str) -> bool:
    """Return whether a string is a text and no path: it has line breaks, or a part too long for a file name, and no
    file has this path."""
    is_long = max(len(part.encode(errors="replace")) for part in entry.split("/")) > MAX_NAME_BYTES
    is_pattern = is_remote(entry) or (glob.has_magic(entry) and " " not in entry)
    return ("\n" in entry or (is_long and not is_pattern)) and not os.path.lexists(entry.replace("\0", ""))


def list_inputs(given: Any, settings: Mapping[str, Any] | None = None) -> list[AnyInput]:
    """Return the inputs given as a path, an `Input`, its dictionary, or a list of these.

    settings   settings for the paths; ValueError if an entry is no path

    Raises ValueError or msgspec.ValidationError; the message names the wrong entry.
    """
    if hasattr(type(given), "columns") and not isinstance(given, AnyInput):
        raise ArgumentError(
            f"expected paths or inputs, got a {type(given).__name__}. Write it to a file, such as "
            "frame.to_parquet('texts.parquet'), and give its path"
        )
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes | os.PathLike | AnyInput | Mapping)
    listed = list(given) if several else [given]
    if text := next((entry for entry in listed if isinstance(entry, str) and _is_text(entry)), ""):
        shown_text = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
        raise ArgumentError(
            f"expected paths or inputs, got the text {shown_text!r}. "
            'Give a frame of texts: pandas.DataFrame({"text": texts})'
        )
    paths = [isinstance(entry, str | os.PathLike) for entry in listed]
    content = [
        {"path": os.fspath(entry), **(settings or {})} if is_path else entry
        for entry, is_path in zip(listed, paths, strict=True)
    ]
    inputs = msgspec.convert(with_kinds(content, "$"), list[AnyInput])
    if settings and not all(paths):
        names = ", ".join(settings)
        raise ValueError(f"{names} cannot be combined with an Input, or a dictionary of its settings. Set them in it")
    return inputs


def refuse_streamed(entries: Iterable[AnyInput]) -> None:
    """Raise InputError for inputs that only a run can read: data sets of Hugging Face, and inputs with one of
    RUN_SETTINGS."""
    for entry in entries:
        if isinstance(entry, HubInput):
            raise InputError(f"{entry.path} is streamed: run a recipe with this input, then read its documents/")
        if settings := [name for name in RUN_SETTINGS if getattr(entry, name) not in (0, msgspec.UNSET)]:
            raise InputError(
                f"{shown(entry.path)} has {' and '.join(settings)}, which only runs use. Run a recipe with this input, "
                "then read its documents/"
            )


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Limits on all inputs together; 0: no limit.

    max_documents, max_bytes   budget of all inputs, which are read in their order until it is reached; bytes of text.
                               Where some inputs are `hf:`, it is only that of these
    min_documents, min_bytes   least documents of all inputs, and bytes of their text; a run that reads less is an error
    """

    max_documents: int = 0
    max_bytes: int = 0
    min_documents: int = 0
    min_bytes: int = 0

    def __post_init__(self) -> None:
        _check_budget(self, "max_documents", "max_bytes", "min_documents", "min_bytes")


def _check_character(setting: str, value: str, empty: str) -> None:
    if len(value) > 1 or value in ("\r", "\n"):
        raise ValueError(f'{setting} must be one character other than a line end, not {value!r}; "" means {empty}')


def _check_budget(settings: msgspec.Struct, *fields: str) -> None:
    for field in fields:
        if getattr(settings, field) < 0:
            raise ValueError(f"{field} must be 0 (no limit) or more, not {getattr(settings, field)}")


def is_hub(path: str) -> bool:
    """Return whether a path names a data set for Hugging Face `datasets`."""
    return path.startswith(HUB_MARK)


def hub_label(entry: HubInput) -> str:
    """Return the name of a data set in messages and reports: `hf:ORG/NAME:CONFIG[SPLIT]@REVISION`."""
    config = f":{entry.config}" if entry.config else ""
    files = f":{shown(entry.data_files)}" if entry.data_files else ""
    return f"{entry.path}{config}{files}[{entry.split}]" + (f"@{entry.revision}" if entry.revision else "")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def default_name(path: str) -> str:
    """Return a name made from the last part of the path without wildcards."""
    parts = [part for part in Path(shown(path)).parts if not glob.has_magic(part)]
    stem = parts[-1].split(".")[0] if parts else ""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")
    if not name:
        return "input"
    return f"input-{name}" if _is_number(name) or _is_number(f"{name}-2") else name  # "1e-2" is a number


def input_names(entries: Sequence[AnyInput]) -> list[str]:
    """Return the name of every input. If two names made from paths are equal, the second `x` becomes `x-2`.

    Raises InputError if two inputs set the same `name`.
    """
    given = Counter(entry.name for entry in entries if entry.name)
    for name, times in given.items():
        if times > 1:
            raise InputError(
                f"two inputs are named {name!r}; names must be unique. Change name: of one of them in the recipe"
            )
    taken, names, used = {*given}, [], dict[str, int]()
    for entry in entries:
        name = entry.name or _unused(default_name(entry.path), taken, used)
        taken.add(name)
        names.append(name)
    return names


def _unused(name: str, taken: set[str], used: dict[str, int]) -> str:
    """Return the first of `name`, `name-2`, `name-3` and so on that is not taken. `used` has the last number of each
    name."""
    number = used.get(name, 1)
    while (candidate := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    used[name] = number
    return candidate


def entries_by_name(entries: Sequence[AnyInput]) -> dict[str, AnyInput]:
    """Return the inputs by their names, in their order."""
    return dict(zip(input_names(entries), entries, strict=True))
