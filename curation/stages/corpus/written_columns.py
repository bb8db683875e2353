# SPDX-License-Identifier: Apache-2.0
"""Columns that a corpus stage writes: a file per partition, which one task writes and another task reads.

The files are in a separate folder, since `corpus.scratch` is deleted after the decision. A file has 8 bytes per value.
The next segment reads them with its documents, as it reads spans to cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.arrays import load_mapped, save_array
from curation.base.errors import IntegrityError
from curation.base.system.files import commit, numbered_path
from curation.stages.outcome import Corpus


class WrittenColumns(NamedTuple):
    """The columns that a stage writes, as `Stage.writes` names them: int64."""

    folder: Path
    names: tuple[str, ...]

    def of(self, partition: int, start: int, stop: int) -> dict[str, pa.Array]:
        """Return the values of some rows of a partition, by the name of the column. Raises IntegrityError if the file
        is missing, or has too few values."""
        path = numbered_path(self.folder, partition, ".npy")
        if not path.exists():
            raise IntegrityError(f"{path} does not exist: another program has removed it. Start over with --force")
        values = load_mapped(path)
        if values.dtype != np.int64 or values.ndim != 2 or len(values) != len(self.names) or values.shape[1] < stop:
            raise IntegrityError(f"{path} has {values.dtype} of shape {values.shape}. Start over with --force")
        return {name: pa.array(column[start:stop]) for name, column in zip(self.names, values, strict=True)}


def columns_folder(scratch: Path) -> Path:
    """Return the folder for the columns of the stage whose `corpus.scratch` is `scratch`."""
    return scratch.with_name(f"{scratch.name}-columns")


def store_columns(corpus: Corpus, partition: int, columns: Sequence[np.ndarray]) -> None:
    """Write the columns of a partition from a task: int64, one value per stored row, in the order of `writes`."""
    with commit(numbered_path(columns_folder(corpus.scratch), partition, ".npy")) as path:
        save_array(path, np.stack(columns))
