# SPDX-License-Identifier: Apache-2.0
"""Formats of input files. Each is a class with its reader, and an entry in `FORMATS`. No other code in `curation`
compares names of formats. A format knows planned files, but no inputs, recipes or runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from curation.base.errors import InputError
from curation.reading.formats import contents
from curation.reading.formats.archives import Warc, Wet
from curation.reading.formats.base import NEEDED, SET, TEXT_COLUMNS, Format
from curation.reading.formats.delimited import Csv, Tsv
from curation.reading.formats.html import Html
from curation.reading.formats.jsonl import JsonLines
from curation.reading.formats.plain import Text
from curation.reading.formats.tabular import Arrow, Parquet
from curation.reading.source_files import SourceFile
from curation.reading.urls import is_remote

MAX_NAMED = 3  # unreadable files that a message names


class Streamed(Format):
    """A data set of Hugging Face, which a run stores as Arrow before it reads it."""

    name = "huggingface"
    suffixes = ()


FORMATS: dict[str, Format] = {
    kind.name: kind()
    for kind in (
        JsonLines,
        Parquet,
        Arrow,
        Csv,
        Tsv,
        Text,
        Html,
        Wet,
        Warc,
    )
}
STREAMED = Streamed()


def format_of(file: SourceFile) -> Format:
    """Return the format that reads a planned file; a streamed data set has its own format."""
    return STREAMED if file.format == STREAMED.name else FORMATS[file.format]


def by_suffix(suffix: str) -> str:
    """Return the name of the format with a suffix; "" for an unknown suffix. The suffix begins with a dot, and is not
    that of a compression."""
    return next((name for name, kind in FORMATS.items() if suffix in kind.suffixes), "")


def is_copied(file: SourceFile) -> bool:
    """Return whether a run copies a remote file before reading, because the format needs parts and the server sends
    none."""
    return file.is_whole and format_of(file).parts == NEEDED


def probe(file: SourceFile, remedy: str = SET["text_column"]) -> SourceFile:
    """Return the file with its text column set. Raises InputError if the file lacks a required column. In the message,
    `remedy` replaces the advice for recipes and commands."""
    kind = format_of(file)
    contents.check(file, kind)
    try:
        return kind.probe(file)
    except InputError as error:
        explained = contents.explain(file, kind, error)
        raise InputError(str(explained).replace(SET["text_column"], remedy)) from None


def probe_all(files: Iterable[SourceFile], is_later: Callable[[SourceFile], bool]) -> list[SourceFile]:
    """Return each file as `probe` returns it; files for which `is_later` is true are unchanged. Raises one InputError
    with the first MAX_NAMED errors and the number of further ones. After an error of a URL, no other file is
    checked."""
    probed: list[SourceFile] = []
    errors: list[InputError] = []
    for file in files:
        try:
            probed.append(file if is_later(file) else probe(file))
        except InputError as error:
            if is_remote(file.path) and not errors:
                raise
            errors.append(error)
            if is_remote(file.path):
                break
    if len(errors) == 1:
        raise errors[0]
    if errors:
        named = "; ".join(f"({number}) {error}" for number, error in enumerate(errors[:MAX_NAMED], 1))
        more = f"; and {len(errors) - MAX_NAMED:,} more" if errors[MAX_NAMED:] else ""
        raise InputError(f"{len(errors):,} files cannot be read: {named}{more}")
    return probed


__all__ = ["FORMATS", "STREAMED", "TEXT_COLUMNS", "Format", "by_suffix", "format_of", "is_copied", "probe", "probe_all"]
