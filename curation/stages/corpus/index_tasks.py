# SPDX-License-Identifier: Apache-2.0
"""The files of a saved index, written by tasks that share only files.

A task per group of slices sorts the keys of its documents and divides them by ascending *ranges* of keys. It also
writes the data by which documents are compared. A task per band then joins the ranges of the band, and one more task
joins the data of all groups of slices. Tasks also store the digest of each file, so that the process of the run need
not read the files again. The bytes of the files depend neither on groups of slices and ranges nor on workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from curation.base.arrays import write_array
from curation.base.system.files import commit_all, commit_folder, file_sha256
from curation.base.system.sealed import read_sealed, write_sealed
from curation.stages.base import Phase
from curation.stages.corpus.key_ranges import (
    division_of,
    division_phase,
    read_keys,
    slice_group,
    slice_group_count,
    write_cells,
)

if TYPE_CHECKING:  # the stages import this module
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

SORTED, JOINED = "sorted", "joined"  # phases
# Folders: data to compare documents, the files of the index, the digests of these files
COMPARED, FILES, DESCRIBED = "compared", "files", "described"


class Band(NamedTuple):
    """Key columns by which documents of an index are found. The columns are sorted together.

    columns    names of the key columns (uint64), the one that sorts first in front
    keys       name of a file per column
    documents  name of the file with the document of each key
    """

    columns: Sequence[str]
    keys: Sequence[str]
    documents: str


class ComparedData(NamedTuple):
    """The data by which documents are compared.

    names  names of the files
    write  function that writes the files of a corpus to a folder
    join   function that writes the files of several folders, one after the other, to a path per name
    """

    names: Sequence[str]
    write: Callable[[Engine, Corpus, Path], None]
    join: Callable[[Sequence[Path], Sequence[Path]], None]


def index_phases(bands: Sequence[Band], compared: ComparedData | None = None) -> tuple[Phase, ...]:
    """Return the phases that write the files of an index to `files_folder`."""

    def sort_slice_group(engine: Engine, corpus: Corpus, task: int) -> None:
        _sort_slice_group(engine, corpus, task, bands, compared)

    def write_files(engine: Engine, corpus: Corpus, task: int) -> None:
        if task < len(bands):
            _join_band(corpus, task, bands[task])
        elif compared:
            folders = [_compared_folder(corpus, number) for number in range(slice_group_count(corpus))]
            with index_files(corpus, compared.names) as paths:
                compared.join(folders, paths)

    return (
        division_phase(len(bands)),
        Phase(SORTED, slice_group_count, sort_slice_group, durable=True),
        Phase(JOINED, lambda corpus: len(bands) + (compared is not None), write_files, durable=True),
    )


def _sorted_path(corpus: Corpus, number: int, suffix: str) -> Path:
    return corpus.scratch / SORTED / f"{number:06d}.{suffix}"


def _compared_folder(corpus: Corpus, number: int) -> Path:
    return corpus.scratch / COMPARED / f"{number:06d}"


def _sort_slice_group(
    engine: Engine, corpus: Corpus, number: int, bands: Sequence[Band], compared: ComparedData | None
) -> None:  # fmt: skip
    """Write the ascending keys of a group of slices with their documents, the data to compare these documents, and the
    number of documents. Documents are numbered within the group of slices, so that no task needs the rows of all groups
    of slices."""
    part = slice_group(corpus, number)
    ranges = division_of(corpus).ranges
    firsts = np.array([(number << 64) // ranges for number in range(1, ranges)], np.uint64)

    def cells() -> Iterator[list[np.ndarray]]:
        for band in bands:
            keys = np.empty((len(part.rows), len(band.columns)), np.uint64)
            for index, name in enumerate(band.columns):
                keys[:, index] = part.column(name)
            order = _ascending(keys)
            keys, documents = keys[order], order.astype(np.uint32)
            bounds = [0, *np.searchsorted(keys[:, 0], firsts).tolist(), len(keys)]
            for low, high in pairwise(bounds):
                yield [keys[low:high], documents[low:high]]

    write_cells(_sorted_path(corpus, number, "bin"), cells(), len(bands) * ranges)
    if compared:
        with commit_folder(_compared_folder(corpus, number)) as folder:
            compared.write(engine, part, folder)
    write_sealed(_sorted_path(corpus, number, "json"), len(part.rows))


def _ascending(keys: np.ndarray) -> np.ndarray:
    """Return the positions of keys (shape (n, width)) in ascending order: by the first column, then by the next
    ones."""
    return np.lexsort(keys.T[::-1])


def _join_band(corpus: Corpus, number: int, band: Band) -> None:
    """Write the keys of a band in ascending order, and the document of each key; documents with equal keys are
    ascending, too."""
    slice_groups, ranges = range(slice_group_count(corpus)), division_of(corpus).ranges
    paths = [_sorted_path(corpus, number, "bin") for number in slice_groups]
    starts = np.cumsum([0, *(read_sealed(_sorted_path(corpus, number, "json")) for number in slice_groups)])
    with index_files(corpus, [*band.keys, band.documents]) as written, ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb")) for path in written]
        for cell in range(number * ranges, (number + 1) * ranges):
            keys, documents = read_keys(paths, cell, len(band.columns), starts)
            order = _ascending(keys)
            for file, values in zip(files, [*keys[order].T, documents[order]], strict=True):
                write_array(file, values)


# Files of an index


def files_folder(corpus: Corpus) -> Path:
    """Return the folder in which tasks write the files of an index."""
    return corpus.scratch / FILES


@contextmanager
def index_files(corpus: Corpus, names: Sequence[str]) -> Iterator[list[Path]]:
    """Yield temporary paths for files of an index; rename them if the block succeeds, and note their digests."""
    folder = files_folder(corpus)
    with commit_all(*(folder / name for name in names)) as paths:
        yield paths
        described = {name: _described(path) for name, path in zip(names, paths, strict=True)}
    for name, description in described.items():
        write_sealed(corpus.scratch / DESCRIBED / f"{name}.json", description)


def _described(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def noted_files(corpus: Corpus) -> dict[str, dict[str, Any]]:
    """Return the files of an index that tasks have written: name -> size and SHA-256."""
    return {path.stem: read_sealed(path) for path in sorted((corpus.scratch / DESCRIBED).glob("*.json"))}
