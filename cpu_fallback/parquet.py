# SPDX-License-Identifier: Apache-2.0
"""Writes Parquet files with Arrow."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from curation.base.parquet import TableWriter
from curation.base.system.files import begin_sync


class ParquetFile(NamedTuple):
    """An open file. It asks the system, through the file descriptor, to start writing to the disk early."""

    writer: TableWriter
    descriptor: int

    def write(self, table: pa.Table) -> None:
        """Append the rows, and let the system write them to the disk in the background. Unlike the GPU engine, return
        no frame."""
        self.writer.write(table)
        begin_sync(self.descriptor)


@contextmanager
def parquet_file(path: Path, schema: pa.Schema, options: Mapping[str, Any]) -> Iterator[ParquetFile]:
    with pa.OSFile(str(path), "wb") as file, TableWriter(file, schema, options) as writer:
        yield ParquetFile(writer, file.fileno())
