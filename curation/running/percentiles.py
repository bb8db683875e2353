# SPDX-License-Identifier: Apache-2.0
"""How the measures of a run's documents are distributed: what people choose thresholds by."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from curation.errors import counted
from curation.running.exports import part_files

RANKS = (1, 25, 50, 75, 99)


def percentiles(folder: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Per column of integers of `documents/` the smallest value that so many percent (RANKS) do not exceed; nothing
    where there are no documents. One column is in memory at a time."""
    found = {}
    for name in names:
        tables = [pq.read_table(path, columns=[name]) for path in part_files(folder / "documents")]
        values = np.concatenate([table.column(name).to_numpy() for table in tables])
        if len(values):
            found[name] = np.percentile(values, RANKS, method="inverted_cdf").tolist()
    return found


def print_percentiles(folder: Path, documents: int, names: Iterable[str]) -> None:
    """As a table on standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True)
    console.print(f"percentiles of {counted(documents, 'document')}", highlight=False)
    found = percentiles(folder, names)
    if not found:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("measure")
    for rank in RANKS:
        table.add_column(f"{rank}%", justify="right")
    for name, values in found.items():
        table.add_row(name, *(f"{value:,}" for value in values))
    console.print(table)
