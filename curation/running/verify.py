# SPDX-License-Identifier: Apache-2.0
"""Re-reads a finished run: every output is what the report says it is, and the outputs agree with each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.errors import CurationError, IntegrityError, OutputError
from curation.files import as_json, file_sha256, read_json
from curation.packing.forms import FORMS
from curation.packing.indexed import check_pair
from curation.running.exports import CLEANED, RAW, part_files
from curation.running.leaks import leaks
from curation.running.ledger import StageCount, check_ledger
from curation.running.report import as_html, digest

FOLDERS = ("documents", "removed", "tokens", "index", RAW, CLEANED, *FORMS)


def verify(folder: str | Path) -> list[str]:
    """Everything that is wrong with a run, in words; an empty list where nothing is.

    Checks the SHA-256 of every output, that no file was added, that the ledger adds up, the order and number of kept
    and removed documents, every `.idx` against its `.bin`, that all ids are in range, and that documents are on the
    sides of a split that their texts say (`leaks`). Raises OutputError where `folder` holds no finished run.
    """
    folder = Path(folder)
    try:
        content = read_json(folder / "report.json")
    except IntegrityError as error:
        return [str(error)]
    if content is None:
        raise OutputError(f"{folder} holds no finished run (no report.json)")
    if not isinstance(content, dict) or content.get("digest") != digest(content):
        return ["report.json has changed: its own digest is another"]
    if (folder / "report.json").read_bytes() != as_json(content, indent=True):
        return ["report.json has changed: it says the same in other bytes"]
    if changed := [*_digests(folder, content), *_strangers(folder, content)]:
        return changed  # what is in damaged files says nothing
    checks: tuple[Callable[[Path, dict[str, Any]], Iterator[str]], ...] = (
        _ledger, _documents, _removed, _pairs, leaks,
    )  # fmt: skip
    return [problem for check in checks for problem in check(folder, content)]


def _digests(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    page = hashlib.sha256(as_html(content).encode()).hexdigest()
    for name, expected in (*content["outputs"].items(), ("report.html", page)):
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif file_sha256(path) != expected:
            yield f"{name} has changed: its SHA-256 is not the one that report.json asks for"


def _strangers(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    for name in FOLDERS:
        for path in sorted((folder / name).rglob("*")):
            relative = path.relative_to(folder).as_posix()
            if path.is_file() and relative not in content["outputs"] and not _is_index_cache(relative, content):
                yield f"{relative} is not part of the run"


def _is_index_cache(name: str, content: dict[str, Any]) -> bool:
    """Whether Megatron has made the file beside a pair when training on it."""
    prefix, separator, _ = name.partition("/cache/")
    return bool(separator) and f"{prefix}.idx" in content["outputs"]


def _ledger(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    try:
        check_ledger(content["documents"], msgspec.convert(content["stages"], list[StageCount], strict=False))
    except IntegrityError as error:
        yield str(error)
    with open(folder / "rejected.jsonl", "rb") as file:
        lines = sum(1 for _ in file)
    if lines != content["documents"]["rejected"]:
        yield f"rejected.jsonl has {lines} lines, the report counts {content['documents']['rejected']}"


def _documents(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    copies = sum(entry["copies"] - 1 for entry in content["recipe"]["input"])
    rows = yield from _ascending(folder, "documents", copies)
    if rows != content["documents"]["kept"]:
        yield f"documents/ has {rows} rows, the report counts {content['documents']['kept']} kept"


def _removed(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    rows = yield from _ascending(folder, "removed")
    if rows != content["documents"]["removed"]:
        yield f"removed/ has {rows} rows, the report counts {content['documents']['removed']} removed"


def _ascending(folder: Path, name: str, copies: int = 0) -> Generator[str, None, int]:
    """Checks that `doc` rises from row to row over all files of a folder, but where a further copy of an input begins;
    gives the number of rows."""
    rows, last = 0, -1
    for path in part_files(folder / name):
        try:
            doc = pq.read_table(path, columns=["doc"]).column("doc").combine_chunks()
        except (OSError, ValueError) as error:
            yield f"{name}/{path.name} cannot be read: {error}"
            continue
        rows += len(doc)
        if len(doc):
            rises = len(doc) == 1 or bool(pc.all(pc.greater(doc[1:], doc[:-1])).as_py())
            copies -= rises and doc[0].as_py() <= last
            if not rises or copies < 0:
                yield f"{name}/{path.name} is not in the order of doc"
            last = doc[-1].as_py()
    return rows


def _pairs(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    tokens = content["tokens"]
    if "megatron" not in content["recipe"]["output"]["formats"]:
        return
    found = documents = 0
    for path in sorted((folder / "tokens").glob("*.idx")):
        try:
            pair = check_pair(path.with_suffix(""), tokens["vocabulary"])
        except (CurationError, OSError) as error:
            yield f"tokens/{path.name}: {error}"
            continue
        found, documents = found + pair.tokens, documents + pair.documents
    if (found, documents) != (tokens["count"], tokens["documents"]):
        yield (
            f"tokens/ has {found} tokens in {documents} documents, the report counts {tokens['count']} in "
            f"{tokens['documents']}"
        )
