# SPDX-License-Identifier: Apache-2.0
"""Writes Parquet files with cuDF: the device encodes the columns, and nvCOMP compresses them with zstd.

The tables equal those in the CPU engine's files, but the bytes of the files differ. The engines divide rows into pages
and row groups by different rules, and use different compressors. The footer has Arrow's schema, so that readers see the
same types.
"""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cudf
import pyarrow as pa
import pylibcudf as plc

from curation.base.errors import EngineError
from curation.base.parquet import check_strings, file_schema, without_nan
from gpu_pipeline.io import CUDF_ERRORS, from_arrow
from gpu_pipeline.memory.device import device_errors, finish, is_lost, reserved

BATCH_BYTES = 128 << 20  # bytes of columns that are encoded at once; not measured
GROUP_ROWS, GROUP_BYTES = 20_000, 16 << 20  # most bytes of a row group
RESERVED_TEXT = BATCH_BYTES // 4 + GROUP_BYTES  # the waiting tables twice, and their pages; the tokens of one table


class ParquetFile:
    """An open file. Tables wait on the device until they have BATCH_BYTES together. One block compresses one page, and
    a device works on thousands of pages at once."""

    def __init__(self, path: Path, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self.path, self.schema, self.options = path, file_schema(schema), options
        self.waiting: list[cudf.DataFrame] = []
        self.waiting_bytes = 0
        self.writer: plc.io.parquet.ChunkedParquetWriter | None = None

    def write(self, table: pa.Table) -> cudf.DataFrame:
        """Add the rows of a table. Return the table as a frame, so that the caller can use its columns on the
        device."""
        check_strings(table)
        frame = from_arrow(without_nan(table))
        self.waiting.append(frame)
        self.waiting_bytes += table.nbytes
        if self.waiting_bytes >= BATCH_BYTES:
            self._encode()
        return frame

    def close(self) -> None:
        """Encode the waiting tables, and write the footer."""
        if self.waiting or self.writer is None:
            self._encode()
        assert self.writer is not None  # `_encode` opens it
        with device_errors(), self._explained():
            self.writer.close([])

    def _encode(self) -> None:
        with device_errors(), self._explained():
            frames = self.waiting or [from_arrow(self.schema.empty_table())]
            frame = frames[0] if len(frames) == 1 else cudf.concat(frames, ignore_index=True)
            table = plc.Table([frame[name].to_pylibcudf()[0] for name in self.schema.names])
            self.writer = self.writer or self._open(table)
            self.writer.write(table)
            finish()
        self.waiting, self.waiting_bytes = [], 0

    def _open(self, table: "plc.Table") -> "plc.io.parquet.ChunkedParquetWriter":
        """Open the file. No column has statistics: those of texts would be whole documents."""
        columns = plc.io.types.TableInputMetadata(table)
        for column, name in zip(columns.column_metadata, self.schema.names, strict=True):
            column.set_name(name).set_nullability(True)  # a later table may have nulls
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        options = (
            plc.io.parquet.ChunkedParquetWriterOptions.builder(plc.io.SinkInfo([str(self.path)]))
            .metadata(columns)
            .key_value_metadata([{"ARROW:schema": schema}])
            .compression(plc.io.types.CompressionType[self.options["compression"].upper()])
            .stats_level(plc.io.types.StatisticsFreq.STATISTICS_NONE)
            .row_group_size_bytes(GROUP_BYTES)
            .row_group_size_rows(GROUP_ROWS)
            .max_page_size_bytes(self.options["data_page_size"])
            .build()
        )
        options.set_dictionary_policy(plc.io.types.DictionaryPolicy.NEVER)
        return plc.io.parquet.ChunkedParquetWriter.from_options(options)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except CUDF_ERRORS as error:
            if isinstance(error, EngineError | MemoryError) or is_lost(error):
                raise
            raise EngineError(
                f"cuDF cannot write {self.path.parent.name}/ ({str(error).splitlines()[0]}). Leave output.parquet out, "
                "or set it to cpu; completed parts are written again, with the same rows"
            ) from error


@contextmanager
def parquet_file(path: Path, schema: pa.Schema, options: Mapping[str, Any]) -> Iterator[ParquetFile]:
    with reserved(RESERVED_TEXT):
        file = ParquetFile(path, schema, options)
        yield file
        file.close()
