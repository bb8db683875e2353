# SPDX-License-Identifier: Apache-2.0
"""Settings of `raw/` and `cleaned/`: a format, or the name of one file, and the columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from curation.base.errors import nearest

COMPRESSED = ("jsonl.gz", "jsonl.zst")  # JSON Lines in gzip members or zstd frames
EXPORT_FORMATS = ("", "jsonl", *COMPRESSED, "csv", "parquet")
PATTERN = r"(?:[A-Za-z0-9][A-Za-z0-9._-]*\.)?(?:jsonl(?:\.gz|\.zst)?|csv|parquet)|"
COMPRESSIONS = ("gz", "gzip", "zst", "zstd", "bz2", "xz", "lz4")  # suffixes of compressed files
DOCUMENT_COLUMNS = ("doc", "id", "source", "text")
REMOVED_COLUMNS = (  # columns of removed/, besides those
    "stage", "reason", "value", "bound", "duplicate_of", "duplicate_of_doc", "file", "line",
)  # fmt: skip


def check_export(field: str, value: str) -> None:
    """Raise ValueError for a value that is neither a format nor the name of a file of a format."""
    if value in EXPORT_FORMATS:
        return
    format_ = export_format(value)
    if format_ in COMPRESSIONS:
        raise ValueError(
            f"{field} is compressed as {' or '.join(COMPRESSED)}, or in a file whose name ends with one of them, such "
            f"as documents.{COMPRESSED[0]}; not {value!r}"
        )
    if format_ not in EXPORT_FORMATS:
        raise ValueError(f"no {field} format {format_!r}{nearest(format_, EXPORT_FORMATS[1:])}")
    if not re.fullmatch(PATTERN, value):
        raise ValueError(
            f"{field} must be a format or the name of a file in {field}/, such as documents.{format_}, of letters, "
            f"digits, '.', '_' and '-'; not {value!r}"
        )


def export_format(value: str) -> str:
    """Return the format of an export: `jsonl`, `jsonl.gz`, `jsonl.zst`, `csv` or `parquet`."""
    return next((name for name in COMPRESSED if f".{value}".endswith(f".{name}")), value.rpartition(".")[2])


def is_one_file(value: str) -> bool:
    """Return whether an export is one file, whose name the value is."""
    return value not in EXPORT_FORMATS


def file_name(value: str, number: int) -> str:
    """Return the name of a file of an export: the given one, or `part-NNNNN.FORMAT`."""
    return value if is_one_file(value) else f"part-{number:05d}.{value}"


def check_columns(chosen: Sequence[str], raw: bool, carried: Sequence[str], added: Sequence[str]) -> None:
    """Raise ValueError for a column in `export_columns` that the documents do not have.

    raw      whether `raw/` is written, whose documents lack `added`
    carried  columns of the inputs
    added    columns that stages and splits add
    """
    in_raw, counts = {*DOCUMENT_COLUMNS, *carried}, Counter(chosen)
    known = in_raw | {*added}
    for name in chosen:
        if name not in known:
            names = (*DOCUMENT_COLUMNS, *carried, *added)
            raise ValueError(f"output.export_columns: the documents have no column {name!r}{nearest(name, names)}")
        if raw and name not in in_raw:
            raise ValueError(
                f"output.export_columns: the run adds {name!r}, so the documents in raw/ do not have it. Leave it or "
                "output.raw out"
            )
        if counts[name] > 1:
            raise ValueError(f"output.export_columns has {name!r} twice")
