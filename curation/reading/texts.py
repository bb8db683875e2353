# SPDX-License-Identifier: Apache-2.0
"""The texts of inputs that are read whole outside a run, to train or test a tokenizer, a classifier or a language
model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT
from curation.base.errors import InputError
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.steps import Count, each
from curation.reading import rejections
from curation.reading.changes import check_unchanged
from curation.reading.documents import Documents
from curation.reading.formats import probe
from curation.reading.inputs import AnyInput, list_inputs, refuse_streamed
from curation.reading.paths import find_files
from curation.reading.slice_documents import read_documents
from curation.reading.slices import plan_slices
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown

SLICE_BYTES = BATCH_BYTES = 16 << 20


def local_inputs(given: object, start: str) -> list[AnyInput]:
    """Return the inputs `given`. Raises InputError for an input that only runs can read; its message begins with
    `start`."""
    try:
        inputs = list_inputs(given)
    except ValueError as error:
        raise InputError(f"{start}{error}") from None
    refuse_streamed(inputs)
    return inputs


def list_whole_inputs(given: object, label: str = "") -> list[AnyInput]:
    """Return inputs that are read whole. Raises InputError if there are no inputs, or if only runs can read one of
    them. Messages begin with `label`."""
    start = f"{label}: " if label else ""
    inputs = local_inputs(given, start)
    for entry in inputs:
        if entry.sample < 1:
            raise InputError(
                f"{start}{shown(entry.path)} has a sample, which only runs take. Run a recipe, then give its documents/"
            )
    if not inputs:
        raise InputError(f"{start}inputs is empty, expected at least one path. Name files or folders")
    return inputs


class InputTexts:
    """Batches of the documents of inputs, with counts of what was read.

    read     reads a slice: `read_documents`, or `read_visible` for what a run takes as documents
    by_file  whether each file is an input of its own

    slices                  the slices of the inputs
    texts, bytes, rejected  documents, UTF-8 bytes of their texts, and records that are not documents, read so far
    base                    records in the slices before the one that is read
    """

    def __init__(
        self, inputs: list[AnyInput], batch_bytes: int = BATCH_BYTES, *,
        read: Callable[[Slice, int], Iterator[Documents]] = read_documents, by_file: bool = False,
    ) -> None:  # fmt: skip
        files = [probe(file) for file in find_files(inputs)]
        self.slices = plan_slices(_as_inputs(files) if by_file else files, SLICE_BYTES)
        self.batch_bytes, self.read = batch_bytes, read
        self.texts = self.bytes = self.rejected = self.slices_done = self.base = 0
        self.tallies: list[rejections.RecordTally] = []

    def count(self) -> Count:
        """Return the counts of slices, texts and bytes that were read so far."""
        return Count(self.slices_done, self.texts, self.bytes)

    def tables(self, label: str = "") -> Iterator[tuple[str, pa.Table]]:
        """Yield the name of the input and a table of documents, batch by batch. At the end, warns about records that
        are no documents. With a label, the slices count as progress."""
        for input_slice in each(self.slices, label, "slice") if label else self.slices:
            tally, rows = None, 0
            for documents in self.read(input_slice, self.batch_bytes):
                check_interrupts()
                column = documents.table.column(TEXT)
                self.texts += len(column)
                self.bytes += pc.sum(pc.binary_length(column)).as_py() or 0
                self.rejected += len(documents.rejected)
                rows += documents.rows
                tally = rejections.add(tally, input_slice, documents)
                yield input_slice.source, documents.table
            check_unchanged(input_slice)
            self.slices_done += 1
            self.base += rows
            self.tallies += [tally] if tally else []
        rejections.report(self.tallies)

    def first(self) -> pa.Table | None:
        """Return the first table with a document, without counting it."""
        for input_slice in self.slices:
            for documents in self.read(input_slice, self.batch_bytes):
                if len(documents.table):
                    return documents.table
        return None

    def __iter__(self) -> Iterator[list[str | None]]:
        for _, table in self.tables():
            yield table.column(TEXT).to_pylist()


def _as_inputs(files: list[SourceFile]) -> list[SourceFile]:
    """Return files as inputs of their own, named by their names, or by their paths if two have the same name."""
    names = [Path(file.path).stem for file in files]
    if len({*names}) < len(names):
        names = [file.path for file in files]
    return [msgspec.structs.replace(file, source=name) for file, name in zip(files, names, strict=True)]
