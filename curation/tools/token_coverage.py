# SPDX-License-Identifier: Apache-2.0
"""Measures how well a tokenizer fits texts: unknown tokens, byte tokens, tokens per word, and tokens that no text
has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.errors import InputError, counted
from curation.base.system.html_table import html_table
from curation.base.system.steps import each, watching
from curation.reading.inputs import AnyInput
from curation.reading.texts import InputTexts, list_whole_inputs
from curation.record.folder import REPORT
from curation.record.tables import TablePart, read_tables
from curation.results.finished.results import FinishedRun, open_finished
from curation.tokens.tokenization import Tokenizer, TokenizerSpec, load_tokenizer

BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
UNKNOWN_PIECES = ("<unk>", "[UNK]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LANGUAGE = "language"
BATCH_ROWS = 4096
COUNTED = ("documents", "bytes", "words", "tokens", "unknown", "byte_tokens")


class CoverageGroup(NamedTuple):
    """The counts of some texts.

    by, name     `all`; or `source`, or a column, and its value
    words        words by `str.split()`
    unknown      tokens that stand for unknown text
    byte_tokens  tokens of single bytes, and parts of a character
    """

    by: str
    name: str
    documents: int
    bytes: int
    words: int
    tokens: int
    unknown: int
    byte_tokens: int


class TokenCoverage(NamedTuple):
    """The result of `token_coverage`: how well a tokenizer fits texts.

    tokenizer  the tokenizer
    groups     all texts, then the texts of each source, then those of each value of a column
    counts     int64, shape (vocabulary,): how often each token occurs, without special tokens
    """

    tokenizer: Tokenizer
    groups: list[CoverageGroup]
    counts: np.ndarray

    def __repr__(self) -> str:
        whole = self.groups[0]
        per_word, per_byte = whole.tokens / max(whole.words, 1), whole.tokens / max(whole.bytes, 1)
        return (
            f"<token coverage of {self.tokenizer.name}: {whole.tokens:,} tokens of "
            f"{counted(whole.documents, 'document')}, {per_word:.3g} per word, {per_byte:.3g} per byte, "
            f"{whole.unknown:,} unknown>"
        )

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], CoverageGroup._fields, self.groups)

    @property
    def unused(self) -> np.ndarray:
        """The ids of tokens that no text has, ascending; special tokens and bytes are not counted as unused."""
        kinds = _kinds_of(self.tokenizer)
        special = {*self.tokenizer.special_tokens}
        ids = np.flatnonzero((self.counts == 0) & ~kinds.byte & ~kinds.unknown)
        return np.array([id_ for id_ in ids.tolist() if self.tokenizer.piece(id_) not in special], np.int64)

    def most_frequent(self, number: int) -> list[tuple[str, int]]:
        """Return the texts of the most frequent tokens and how often they occur; among ties, lower ids come first."""
        best = np.argsort(-self.counts, kind="stable")[:number]
        return [(self.tokenizer.piece(int(id_)), int(self.counts[id_])) for id_ in best if self.counts[id_]]


def token_coverage(
    paths: str | os.PathLike[str] | AnyInput | Sequence[Any], tokenizer: str = "", *, by: str = ""
) -> TokenCoverage:
    """Return how well a tokenizer fits texts. Nothing is written.

    paths      the folder of a finished run, whose `documents/` are read; or paths, or inputs as in a recipe
    tokenizer  as in `tokenizer.name` of a recipe; "" for that of the run
    by         column whose values are groups; "": `language` of a run that has it

        >>> import curation, pandas
        >>> texts = pandas.DataFrame({"text": ["Hello world", "Hello again"]})
        >>> texts.to_json("texts.jsonl", orient="records", lines=True)
        >>> found = curation.token_coverage("texts.jsonl", "gpt2")
        >>> found.groups[0].tokens, found.groups[0].words, found.most_frequent(1)
        (4, 4, [('Hello', 2)])

    InputError: inputs that cannot be read, without text, or without the column. TokenizerError: a tokenizer that cannot
    be loaded.
    """
    folder = Path(paths) if isinstance(paths, str | os.PathLike) else None
    if by in ("source", TEXT):
        raise InputError(f"by must be a column of the documents other than {by!r}; sources are always groups")
    if folder is not None and os.path.lexists(folder / REPORT):
        run = open_finished(folder)
        loaded, tables = _load(tokenizer or _tokenizer_of(run)), _tables_of_run(run, by)
        by = by or LANGUAGE
    else:
        if not tokenizer:
            raise InputError("no tokenizer: name one, such as gpt2, or give the folder of a run that wrote tokens")
        inputs = list_whole_inputs(paths)
        inputs = [msgspec.structs.replace(entry, columns=[by]) if by else entry for entry in inputs]
        loaded, tables = _load(tokenizer), _tables_of_inputs(inputs)
    totals: dict[tuple[str, str], np.ndarray] = {}
    counts = np.zeros(loaded.vocabulary, np.int64)
    for table in tables:
        _add(totals, counts, loaded, table, by)
    if not totals or not totals["all", ""][1]:
        raise InputError("the documents have no text to count tokens of. Give files with text")
    order = {"all": 0, "source": 1}
    ranked = sorted(totals.items(), key=lambda item: (order.get(item[0][0], 2), -item[1][1], item[0][1]))
    return TokenCoverage(loaded, [CoverageGroup(*key, *sums.tolist()) for key, sums in ranked], counts)


def _load(name: str) -> Tokenizer:
    return load_tokenizer(TokenizerSpec(name=name, append_eod=False))


def _tokenizer_of(run: FinishedRun) -> str:
    name = run.report["tokens"].get("tokenizer", {}).get("name", "")
    if not name:
        raise InputError(f"the run in {run.folder} wrote no tokens, so it has no tokenizer. Name one: --tokenizer gpt2")
    return str(name)


def _tables_of_run(run: FinishedRun, by: str) -> Iterator[pa.Table]:
    files = run.parts("documents")
    if not files:
        raise InputError(
            f"the run in {run.folder} has no documents/. Give its inputs, or run it with output.documents: true"
        )
    known = TablePart(files[0]).schema.names
    if by and by not in known:
        raise InputError(f"the documents of {run.folder} have no column {by!r}; they have {', '.join(known)}")
    names = [name for name in (TEXT, "source", by or LANGUAGE) if name in known]
    for path in each(files, "counting tokens", "file"):
        for table in read_tables([path], list(dict.fromkeys(names))):
            yield from (table.slice(start, BATCH_ROWS) for start in range(0, len(table), BATCH_ROWS))


def _tables_of_inputs(inputs: list[AnyInput]) -> Iterator[pa.Table]:
    read = InputTexts(inputs)
    with watching("counting tokens", len(read.slices), read.count, "slice"):
        for source, table in read.tables():
            yield table.append_column("source", pa.array([source] * len(table), pa.large_string()))


class _Kinds(NamedTuple):
    unknown: np.ndarray  # bool, one per id
    byte: np.ndarray


def _kinds_of(tokenizer: Tokenizer) -> _Kinds:
    unknown, byte = np.zeros((2, tokenizer.vocabulary), bool)
    for id_ in range(tokenizer.vocabulary):
        piece = tokenizer.piece(id_)
        unknown[id_] = piece in UNKNOWN_PIECES
        byte[id_] = bool(BYTE_PIECE.fullmatch(piece)) or REPLACEMENT in piece
    return _Kinds(unknown, byte)


def _add(
    totals: dict[tuple[str, str], np.ndarray], counts: np.ndarray, tokenizer: Tokenizer, table: pa.Table, by: str
) -> None:
    """Add the counts of some documents to those of their groups, and to those of the tokens."""
    text = pc.fill_null(table.column(TEXT).combine_chunks().cast(pa.large_string()), "")
    engine = load_engine("cpu")
    frame = engine.from_arrow(pa.table({TEXT: text}))
    ids, lengths = tokenizer.encode(text)
    counts += np.bincount(ids, minlength=len(counts))
    kinds = _kinds(tokenizer)
    ends = np.cumsum(lengths)
    rows = [
        np.ones(len(text), np.int64),
        pc.binary_length(text).to_numpy(),
        engine.measure(frame[TEXT], ["words"])["words"],
        lengths,
        *(_sums(mask[ids], ends, lengths) for mask in (kinds.unknown, kinds.byte)),
    ]
    values = np.stack([np.asarray(row, np.int64) for row in rows], axis=1)
    totals["all", ""] = totals.get(("all", ""), np.zeros(len(COUNTED), np.int64)) + values.sum(axis=0)
    for name in dict.fromkeys(name for name in ("source", by) if name in table.column_names):
        groups = pc.fill_null(table.column(name).cast(pa.large_string()), "").combine_chunks().dictionary_encode()
        for number, value in enumerate(groups.dictionary.to_pylist()):
            sums = values[groups.indices.to_numpy() == number].sum(axis=0)
            totals[name, value] = totals.get((name, value), np.zeros(len(COUNTED), np.int64)) + sums


def _sums(flags: np.ndarray, ends: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return how many flags of each document are true; `flags` has one per token."""
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags, dtype=np.int64)])
    return np.asarray(below[ends] - below[ends - lengths])


_known: dict[str, _Kinds] = {}


def _kinds(tokenizer: Tokenizer) -> _Kinds:
    """Return the kinds of a tokenizer's tokens, computed once per tokenizer."""
    if tokenizer.digest not in _known:
        _known.clear()
        _known[tokenizer.digest] = _kinds_of(tokenizer)
    return _known[tokenizer.digest]
