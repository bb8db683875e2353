# SPDX-License-Identifier: Apache-2.0
"""Notes of the rows that a corpus stage removes: a file per partition, which one task writes.

The files are in a separate folder, since `corpus.scratch` is deleted after the decision. Tasks that write `removed/`
read these notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.system.damage import reading
from curation.base.system.files import commit, numbered_path
from curation.models.vectors import arrow_type
from curation.stages.outcome import Corpus

SUFFIX = ".arrow"


def notes_folder(scratch: Path) -> Path:
    """Return the folder for the notes of the stage whose `corpus.scratch` is `scratch`."""
    return scratch.with_name(f"{scratch.name}-notes")


def with_notes(rows: pa.Table, folder: Path, partition: int, positions: np.ndarray) -> pa.Table:
    """Return `rows`, which are those at `positions` of a partition, with the notes that a stage has stored for them."""
    path = numbered_path(folder, partition, SUFFIX)
    if not path.exists():
        return rows
    with reading(path), pa.memory_map(str(path)) as source:
        notes = pa.ipc.open_file(source).read_all()
    noted = notes.column("row").to_numpy()
    places = np.searchsorted(noted, positions)
    found = np.append(noted, -1)[places] == positions
    taken = notes.take(pa.array(places, mask=~found))
    for name in notes.column_names[1:]:
        rows = rows.append_column(name, taken.column(name))
    return rows


def store_notes(
    corpus: Corpus, partition: int, rows: np.ndarray, notes: Mapping[str, Any], kinds: Mapping[str, str]
) -> None:
    """Write the notes of a partition, from a task.

    rows    int64, ascending: the rows with notes; they include all rows that the decision drops
    notes   name -> one value per row
    kinds   name -> Arrow type, as in `Outputs.notes`
    """
    first = int(corpus.storage.starts[partition])
    columns = {name: pa.array(values, arrow_type(kinds[name])) for name, values in notes.items()}
    table = pa.table({"row": pa.array(rows - first, pa.int64()), **columns})
    path = numbered_path(notes_folder(corpus.scratch), partition, SUFFIX)
    with (
        commit(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as file,
    ):
        file.write_table(table)
