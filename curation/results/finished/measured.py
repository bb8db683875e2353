# SPDX-License-Identifier: Apache-2.0
"""Loads measures that a finished run wrote to `documents/`, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.record.tables import TablePart, read_tables
from curation.results.finished.results import open_finished

RANKS = (1, 25, 50, 75, 99)
COLUMNS_AT_ONCE = 2  # columns in memory, since consecutive rules often share a denominator


class MeasuredDocuments(Mapping[str, np.ndarray]):
    """The integer columns of `documents/`: name -> int64, one per document, in the order of the documents.

    Each access reads the column from the files, unless it is one of the last two that were read.
    """

    def __init__(self, folder: Path) -> None:
        self.files = open_finished(folder).parts("documents")
        self.rows = sum(TablePart(path).rows for path in self.files)
        self._loaded = lru_cache(COLUMNS_AT_ONCE)(self._load)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._loaded(name)

    def _load(self, name: str) -> np.ndarray:
        tables = read_tables(self.files, [name], {name: pa.int64()})
        return np.concatenate([np.zeros(0, np.int64), *(table.column(name).to_numpy() for table in tables)])

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of any type."""
        return pa.concat_tables(read_tables(self.files, [name])).column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(TablePart(self.files[0]).schema.names if self.files else ())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def percentiles(measures: MeasuredDocuments, names: Iterable[str]) -> dict[str, list[float]]:
    """Return name -> percentiles (RANKS) of measures and ratios, `a/b`; empty if there are no documents.

    A percentile is the smallest value that at least that percentage of the documents does not exceed.
    """
    if not measures.rows:
        return {}
    return {name: np.percentile(_values(measures, name), RANKS, method="inverted_cdf").tolist() for name in names}


def _values(measures: MeasuredDocuments, name: str) -> np.ndarray:
    above, _, below = name.partition("/")
    return measures[above] / np.maximum(measures[below], 1) if below else measures[above]
