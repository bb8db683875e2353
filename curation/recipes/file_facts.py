# SPDX-License-Identifier: Apache-2.0
"""Finds facts about a file from its first records: the text column, the encoding, the dialect, and the kind of its
texts."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from charset_normalizer import from_bytes

from curation.base.errors import InputError
from curation.reading.archive_ends import fault_at_end
from curation.reading.formats import contents, format_of, probe
from curation.reading.formats.base import NEEDED, PROBED_BYTES, TEXT_COLUMNS, ColumnFormat, Format, start_of
from curation.reading.source_files import COMPRESSIONS, SourceFile, encoding_by_mark
from curation.reading.streams import StreamChunk
from curation.recipes.text_kinds import ENTITY, LOOKED_AT, has_tags, is_code, is_wrapped

PROBED_FILES = 50  # per suffix
ENCODING_BYTES = 1 << 16  # bytes probed of each other file
WEAK_COLUMNS = ("article", "description", "document")  # often a title or a summary: a column ten times as long wins
# Names of id columns, the most frequent first. `id` is the default of an input.
IDS = ("doc_id", "docid", "document_id", "uuid", "guid", "record_id", "page_id", "_id", "ID")
LIKELY = re.compile(r"text|content|body|article|story|passage|paragraph|markdown", re.IGNORECASE)
UNLIKELY = re.compile(r"html|url|uri|link|json|embedding|base64|image|hash|token_ids", re.IGNORECASE)
MIN_TEXT_BYTES = 40
MAX_ENDS_BYTES = 1 << 26  # bytes of compressed files that are read to their end, in all
# Encodings of scripts other than Latin, as charset-normalizer names them. In such a text, letters of the script are
# most bytes. In French or Polish only a tenth of the bytes is not ASCII, and charset-normalizer may take such a text
# for any of these encodings.
OTHER_ENCODINGS = ["gb18030", "big5hkscs", "cp932", "euc_jp", "cp949", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256"]
CHARSET_BYTES = 1 << 16
WINDOWS = re.compile(rb"[\x80-\x9f]")  # control characters in Latin-1, quotes and dashes in Windows-1252
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # in Windows-1252


class Facts(NamedTuple):
    """The facts about a file that are needed to read it.

    column    text column; "" for a format without columns
    is_usual  whether a run finds the column by its name
    reading   further settings: encoding, delimiter, quote, escape, header, separator
    others    further columns with text -> mean bytes; `column` is among them
    numbers   columns with numbers
    texts     number of texts that were read
    tagged    texts with tags of HTML
    code      texts of source code
    wrapped   texts with wrapped lines, source code excluded
    entities  texts with tags and entities of HTML
    bytes     UTF-8 bytes of all these texts
    foreign   bytes of characters beyond ASCII
    fault     message about a part of the file that a run will not read
    ids       column of ids under another name than `id`; "" for none
    """

    column: str = ""
    is_usual: bool = True
    reading: tuple[tuple[str, Any], ...] = ()
    others: tuple[tuple[str, float], ...] = ()
    numbers: tuple[str, ...] = ()
    texts: int = 0
    tagged: int = 0
    code: int = 0
    wrapped: int = 0
    entities: int = 0
    bytes: int = 0
    foreign: int = 0
    fault: str = ""
    ids: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of an input of a recipe that reads the file. Names of columns that are the defaults are left
        out."""
        columns = {"text_column": self.column, "id_column": self.ids}
        return {name: column for name, column in columns.items() if column} | dict(self.reading)

    @property
    def is_doubtful(self) -> bool:
        """Whether the column was chosen only for its length and its texts are shorter than a sentence."""
        chosen = not self.is_usual and self.column in dict(self.others) and not LIKELY.search(self.column)
        return chosen and dict(self.others)[self.column] < MIN_TEXT_BYTES


def suffix_of(path: str) -> str:
    """Return the suffix of a file with its compression, as it is written."""
    stem, last = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if last.lower() in COMPRESSIONS else "") + last


def facts_of(
    files: Sequence[SourceFile], also: Sequence[SourceFile] = ()
) -> tuple[dict[str, Facts], dict[str, InputError]]:
    """Return the facts of up to PROBED_FILES files per suffix, evenly spaced, and the errors of files without text.

    also   further files whose facts are wanted
    """
    suffixes: dict[str, list[SourceFile]] = {}
    for file in files:
        suffixes.setdefault(suffix_of(file.path), []).append(file)
    spaced = (members[:: max(1, -(-len(members) // PROBED_FILES))] for members in suffixes.values())
    facts: dict[str, Facts] = {}
    failures: dict[str, InputError] = {}
    unread = MAX_ENDS_BYTES
    for file in {file.path: file for file in chain(*spaced, also)}.values():
        try:
            facts[file.path] = own = _facts(file)
            if file.compression and not own.fault and (damage := fault_at_end(file, unread)):
                facts[file.path] = own._replace(fault=f"{damage}; a run reads what comes before")
            unread -= file.bytes if file.compression else 0
        except InputError as error:
            failures[file.path] = contents.explain(file, format_of(file), error)
    return facts, failures


def facts_of_others(
    files: Sequence[SourceFile], facts: Mapping[str, Facts], failures: Mapping[str, InputError]
) -> tuple[dict[str, Facts], dict[str, InputError]]:
    """Return the facts and the errors of the files that `facts_of` has not read.  Like a run, this function checks the
    start of each file, with the settings of most files of the format. Only a file that these settings do not fit is
    probed: its settings, above all the encoding, must not depend on other files.
    """
    known: dict[Format, list[Facts]] = {}
    for file in (file for file in files if file.path in facts):
        known.setdefault(format_of(file), []).append(facts[file.path])
    usual = {format_: _usual(found) for format_, found in known.items()}
    found: dict[str, Facts] = {}
    wrong: dict[str, InputError] = {}
    for file in (file for file in files if file.path not in facts and file.path not in failures):
        like = usual.get(format_of(file))
        if like and _is_like(file, like):
            found[file.path] = like
        else:
            own, errors = facts_of([file])
            found, wrong = found | own, wrong | errors
    return found, wrong


def _usual(known: Sequence[Facts]) -> Facts:
    """Return the settings of most of the files, without the counts of kinds of texts."""
    needs = Counter((facts.is_usual or facts.column, facts.reading) for facts in known)
    most = needs.most_common(1)[0][0]
    first = next(facts for facts in known if (facts.is_usual or facts.column, facts.reading) == most)
    return Facts(first.column, first.is_usual, first.reading, ids=first.ids)


def _is_like(file: SourceFile, usual: Facts) -> bool:
    """Whether a run can read a file with the usual settings, without any message about its start."""
    kind, given = format_of(file), dict(usual.reading)
    if usual.column and not (usual.is_usual or file.text_column):
        given["text_column"] = usual.column
    try:
        expected = probe(msgspec.structs.replace(file, **given))
    except InputError:
        return False
    is_guessed = "encoding" in kind.options and not kind.tells_encoding and file.encoding == "utf-8"
    if is_guessed and encoding_of(file, ENCODING_BYTES) != given.get("encoding", ""):
        return False
    return bool(file.bytes) and not kind.doubt(expected)


def agreed(facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return the facts, changed so that files with the same columns have the same text column: the most likely one by
    mean lengths."""
    alike: dict[frozenset[str], list[str]] = {}
    for path, each in facts.items():
        if len(each.others) > 1:
            alike.setdefault(frozenset(dict(each.others)), []).append(path)
    result = dict(facts)
    for names, paths in alike.items():
        lengths = {name: sum(dict(facts[path].others)[name] for path in paths) / len(paths) for name in names}
        others = tuple(sorted(lengths.items(), key=lambda pair: (-pair[1], pair[0])))
        usual = next((facts[path].column for path in paths if facts[path].is_usual), "")
        column = likeliest(dict(others), usual)
        for path in paths:
            result[path] = facts[path]._replace(column=column, is_usual=column == usual, others=others)
    return result


def _facts(file: SourceFile) -> Facts:
    kind, reading = format_of(file), _reading_of(file)
    file = msgspec.structs.replace(file, **reading)
    contents.check(file, kind)
    start = start_of(file) if kind.parts != NEEDED else StreamChunk(b"", "")
    facts = _plain_facts(file, start.data, tuple(reading.items()))
    fault = f"{start.damage}; a run reads what comes before" if start.damage else kind.doubt(file)
    return facts._replace(fault=fault if start.data or file.bytes else "the file is empty")


def _plain_facts(file: SourceFile, start: bytes, form: tuple[tuple[str, Any], ...]) -> Facts:
    kind = format_of(file)
    if not isinstance(kind, ColumnFormat):
        kind.probe(file)
        texts = [start.decode(file.encoding, "replace")] if kind.name == "text" else []
        return _with_kinds(Facts("", False, form), texts)
    columns = kind.sample_columns(file)
    ids = "" if file.id_column in columns else _ids_of(columns, file)
    if file.text_column:
        column = kind.probe(file).text_column
        return _with_kinds(Facts(column, False, form, ids=ids), columns.get(column, ()))
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
    return _with_kinds(facts, [*map(_decoded, columns.get(column, ()))])


def _ids_of(columns: Mapping[str, Sequence[Any]], file: SourceFile) -> str:
    """Return the first column that has a name of id columns and distinct strings or integers as values; "" if there is
    none."""

    def are_ids(values: Sequence[Any]) -> bool:
        return all(type(value) in (str, int) for value in values) and len({*values}) == len(values) > 0

    return next((name for name in IDS if name != file.text_column and are_ids(columns.get(name, ()))), "")


def _with_kinds(facts: Facts, values: Sequence[Any]) -> Facts:
    """Return the facts with the counts of texts among `values`."""
    texts = [value for value in values if isinstance(value, str)]
    tagged: list[str] = []
    others: list[str] = []
    for text in texts:
        (tagged if has_tags(text) else others).append(text)
    prose = [text for text in others if not is_code(text)]
    wrapped = sum(is_wrapped(text[:LOOKED_AT]) for text in prose)
    entities = sum(bool(ENTITY.search(text)) for text in tagged)
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    foreign = size - sum(len(text.encode("ascii", "ignore")) for text in texts)
    return facts._replace(
        texts=len(texts), tagged=len(tagged), code=len(others) - len(prose), wrapped=wrapped, entities=entities,
        bytes=size, foreign=foreign,
    )  # fmt: skip


def _reading_of(file: SourceFile) -> dict[str, Any]:
    """Return encoding and dialect of a file, if they are not set and not the usual ones."""
    kind = format_of(file)
    reading: dict[str, Any] = {}
    is_guessed = "encoding" in kind.options and not kind.tells_encoding and file.encoding == "utf-8"
    if is_guessed and (encoding := encoding_of(file)):
        reading["encoding"] = encoding
    return reading | kind.detect(msgspec.structs.replace(file, **reading))


def likeliest(lengths: dict[str, float], usual: str) -> str:
    """Return the column that most likely holds the text of documents.

    lengths   column -> mean bytes, of columns with text
    usual     the column that a run would take by its name; it wins unless its name is weak and another column is ten
              times as long

    Otherwise the longest column with a likely name wins, if its mean length is at least a fifth of the longest
    column's.
    """
    plain = {name: size for name, size in lengths.items() if not UNLIKELY.search(name)} or lengths
    longest = max(plain, key=lambda name: plain[name], default=usual)
    if usual and (usual not in WEAK_COLUMNS or plain.get(longest, 0) < 10 * lengths.get(usual, 0)):
        return usual
    likely = [name for name in plain if LIKELY.search(name) and 5 * plain[name] >= plain[longest]]
    return max(likely, key=lambda name: plain[name], default=longest)


def encoding_of(file: SourceFile, size: int = PROBED_BYTES) -> str:
    """Return the likely encoding of a text file that is not UTF-8: utf-16, utf-32, cp1252, latin-1 or one of
    OTHER_ENCODINGS; "" for UTF-8.

    The function cannot distinguish between other encodings of one byte per character. So the recipe calls the encoding
    a guess.
    """
    head = start_of(file, size).data
    if head.isascii() and b"\0" not in head:
        return ""
    if (encoding := encoding_by_mark(head)) != "utf-8":
        return encoding
    for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):  # without a mark: every second byte of ASCII is 0
        if 2 * head[first::2].count(0) > len(head[first::2]):
            return name
    text = head.decode(errors="replace")
    wrong = text.count("\ufffd") - head.count("\ufffd".encode())  # a U+FFFD in the file itself is valid UTF-8
    several = sum(character > "\x7f" for character in text)
    if 2 * wrong <= several or (wrong == 1 and text.endswith("\ufffd")):  # UTF-8 with faults, or cut off by the limit
        return ""
    start = head[:CHARSET_BYTES]
    start = start[: start.rfind(b"\n") + 1] or start  # a character cut off at the end would exclude the right encoding
    foreign = 3 * sum(byte > 0x7F for byte in start) >= len(start)
    if foreign and (found := from_bytes(start, cp_isolation=OTHER_ENCODINGS).best()):
        return found.encoding
    return "cp1252" if WINDOWS.search(head) and not UNDEFINED.search(head) else "latin-1"


def _has_numbers(values: Sequence[Any]) -> bool:
    """Whether a column has only numbers and nulls, and at least one number."""
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)


def _mean_bytes(columns: Mapping[str, Sequence[Any]], file: SourceFile) -> dict[str, float]:
    """Return the mean UTF-8 bytes of each column that has text in most records; if no column has, of all columns with
    text.  Columns of bytes in UTF-8 count only if no column of strings has texts of MIN_TEXT_BYTES.
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
