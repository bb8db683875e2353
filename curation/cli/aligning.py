# SPDX-License-Identifier: Apache-2.0
"""`curate align`: pairs of texts of two inputs with close vectors, such as parallel sentences."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curation.base.system import interrupts
from curation.cli.execution import prepare_memory
from curation.cli.options import LOGGING, READING, check_needs_model, share
from curation.cli.parsing import Command, Parser, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

SIDES = ("left", "right")
SUFFIXES = (".jsonl", ".arrow", ".parquet")
COLUMN = "embedding"


def _add_align(parser: Parser) -> None:
    for side in SIDES:
        parser.add_argument(side, metavar=side.upper(), help=f"read the {side} texts from this file, folder or glob")
    share(parser, "model")
    parser.add_argument(
        "--column", default="", metavar="NAME",
        help="without --model: read the vectors from this column (default: embedding)",
    )  # fmt: skip
    share(parser, "windows", help="with --model: read up to N windows of a text; 0: the whole text (default: 4)")
    parser.add_argument(
        "--threshold", type=float, default=0.8, metavar="COSINE", help="lowest cosine of a pair (default: 0.8)"
    )
    share(parser, "output", metavar="FILE", help="write the pairs to this .jsonl, .arrow or .parquet file")
    share(parser, "force", help="replace FILE")
    share(parser, *READING, "engine", *LOGGING)


def align(options: argparse.Namespace) -> int:
    """Find the pairs and write them with both texts; print their number."""
    if options.model and options.column:
        raise UsageError("--column names vectors of the inputs, and --model computes them; give one of them")
    check_needs_model(options, "windows")
    prepare_memory()
    import curation
    from curation.base.engine import engine_of
    from curation.base.errors import counted

    target = _output(options)
    column = options.column or COLUMN
    left, right = (_read(path, options, column) for path in (options.left, options.right))
    found = curation.align(left, right, column=column, threshold=options.threshold)
    engine = engine_of(found)
    pairs = _with_texts(engine.to_arrow(found), [engine.to_arrow(frame[["id", "text"]]) for frame in (left, right)])
    interrupts.begin_writing()
    _write(pairs, target)
    sizes = {"left": len(left), "right": len(right)}
    shown = " and ".join(f"{size:,} {side}" for side, size in sizes.items())
    options.console.info(f"{target}: {counted(len(pairs), 'pair')} of {shown} documents")
    return int(options.console.result("align", output=str(target), pairs=len(pairs), documents=sizes))


def _output(options: argparse.Namespace) -> Path:
    from curation.base.errors import OutputError
    from curation.base.system.files import local_output, prepare_output

    target = local_output(options.output)
    if target.suffix not in SUFFIXES:
        raise OutputError(f"the output is {target}, expected a name that ends in {', '.join(SUFFIXES)}")
    return prepare_output(target, options.force)


def _read(path: str, options: argparse.Namespace, column: str) -> Any:
    """Return the documents of a side with their vectors."""
    import curation

    columns = () if options.model else (column,)
    lazy: Any = curation.read(path, engine=options.engine, text_column=options.text_column, columns=columns)
    frame = lazy.compute().reset_index(drop=True)
    if not options.model:
        return frame
    windows = {} if options.windows is None else {"windows": options.windows}
    return curation.embed(frame, options.model, column=column, **windows)


def _with_texts(pairs: pa.Table, sides: list[pa.Table]) -> pa.Table:
    """Return pairs with the position, from 0, id and text of both documents, and their cosine."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, documents in zip(SIDES, sides, strict=True):
        chosen = documents.take(pairs.column(name))
        columns |= {name: pairs.column(name), f"{name}_id": chosen.column("id"), f"{name}_text": chosen.column("text")}
    return pa.table(columns | {"cosine": pairs.column("cosine")})


def _write(pairs: pa.Table, target: Path) -> None:
    import orjson
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curation.base.system.files import commit

    with commit(target) as temporary:
        if target.suffix == ".jsonl":
            with open(temporary, "wb") as file:
                for batch in pairs.to_batches(1 << 12):
                    file.writelines(orjson.dumps(row) + b"\n" for row in batch.to_pylist())
        elif target.suffix == ".arrow":
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, pairs.schema) as writer:
                writer.write_table(pairs)
        else:
            pq.write_table(pairs, temporary, compression="zstd")


ALIGN = Command("align", "find pairs of texts with close vectors, such as parallel sentences", _add_align, align)
