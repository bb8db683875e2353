# SPDX-License-Identifier: Apache-2.0
"""Re-reads a finished run: every output is what the report says it is, and the outputs agree with each other."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.errors import CurationError, IntegrityError, OutputError
from curation.files import as_json, file_sha256, read_json
from curation.packing.blends import INDEX_FOLDER
from curation.packing.indexed import check_pair
from curation.running.exports import part_files
from curation.running.leaks import leaks
from curation.running.ledger import check_ledger
from curation.running.report import HTML, digest
from curation.running.report_schema import OUTPUT_NAMES, wrong_in_report
from curation.running.workdir import REPORT, WORK, plan_path
from curation.stages.outcome import StageCount

COLUMNS = {
    "documents": {"doc": pa.int64(), "source": pa.string(), "text": pa.large_string()},
    "removed": {"doc": pa.int64()},
}
ENTERED = (*OUTPUT_NAMES, INDEX_FOLDER)  # the folders of a run whose files are looked at


def verify(folder: str | Path) -> list[str]:
    """Everything that is wrong with a run, in words; an empty list where nothing is.

    Checks the SHA-256 of every output, that no file or folder was added, that nothing is a link, that the ledger adds
    up, the order and number of kept and removed documents, every `.idx` against its `.bin`, that all ids are in range,
    and that documents are on the sides of a split that their texts say (`leaks`). Links are not followed. Raises
    OutputError where `folder` holds no finished run.
    """
    folder = Path(folder)
    if (folder / REPORT).is_symlink():
        return [_link(REPORT)]
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
    if wrong := wrong_in_report(content):
        return [wrong]
    if changed := _files(folder, content):
        return changed  # what is in damaged files says nothing
    if unreadable := [*_tables(folder)]:
        return unreadable
    checks: tuple[Callable[[Path, dict[str, Any]], Iterator[str]], ...] = (
        _ledger, _documents, _removed, _pairs, leaks,
    )  # fmt: skip
    return [problem for check in checks for problem in check(folder, content)]


def _files(folder: Path, content: dict[str, Any]) -> list[str]:
    """Links, outputs that are gone or have changed, and what is no output."""
    found = dict(_entries(folder, content))
    links = {name for name, mode in found.items() if stat.S_ISLNK(mode)}
    expected = content["outputs"] | {HTML: content.get("report_html", "")}
    problems = [_link(name) for name in sorted(links)]
    for name, sha256 in expected.items():
        if not stat.S_ISREG(found.get(name, 0)):
            behind = links & {name, *(parent.as_posix() for parent in PurePosixPath(name).parents)}
            what = "is no regular file" if name in found else "is missing"
            problems += [] if behind else [f"{_shown(name)} {what}"]
        elif sha256 and file_sha256(folder / name) != sha256:  # reports up to 0.2.0 have none of the page
            problems.append(f"{_shown(name)} has changed: its SHA-256 is not the one that report.json asks for")
    strangers = sorted(found.keys() - expected.keys() - {REPORT} - links)
    return problems + [f"{_shown(name)} is not part of the run" for name in strangers if not _is_cache(name, content)]


def _shown(name: str) -> str:
    """A name that others may have given, without characters that a terminal would act on."""
    return repr(name)[1:-1]


def _link(name: str) -> str:
    return (
        f"{_shown(name)} is a link, a run writes none: what it points to is not checked. Put the files themselves there"
    )


def _entries(folder: Path, content: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Path in the run's folder and mode of whatever is there and no folder of a run. Links are not followed."""
    for parent, folders, names in os.walk(folder, onerror=_cannot_list):
        below = Path(parent).relative_to(folder)
        entered = []
        for name in sorted((*folders, *names)):
            path = below / name
            mode = os.lstat(folder / path).st_mode
            if stat.S_ISDIR(mode) and path.parts[0] in ENTERED:
                entered.append(name)
            elif path != Path(WORK) or not stat.S_ISDIR(mode) or not _may_work(folder, content):
                yield path.as_posix(), mode
        folders[:] = entered


def _may_work(folder: Path, content: dict[str, Any]) -> bool:
    """Whether `_work/` may be there: where the recipe keeps it, and after a kill between the report and the deletion of
    the folder, which the next run catches up on. Nothing is read in it."""
    return content["recipe"]["output"]["keep_work"] or plan_path(folder).is_file()


def _cannot_list(error: OSError) -> None:
    raise error


def _is_cache(name: str, content: dict[str, Any]) -> bool:
    """Whether Megatron or NeMo has made the file when training on a pair."""
    prefix, separator, _ = name.partition("/cache/")
    return name.startswith(f"{INDEX_FOLDER}/") or (bool(separator) and f"{prefix}.idx" in content["outputs"])


def _tables(folder: Path) -> Iterator[str]:
    """Parts without the columns that the checks read."""
    for name, wanted in COLUMNS.items():
        for path in part_files(folder / name):
            try:
                schema = pq.read_schema(path)
            except (OSError, ValueError) as error:
                yield f"{name}/{path.name} cannot be read: {error}"
                continue
            for column, kind in wanted.items():
                if schema.names.count(column) != 1 or schema.field(column).type != kind:
                    yield f"{name}/{path.name} has no column {column!r} of type {kind}"


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
        if doc.null_count:
            yield f"{name}/{path.name} has rows without doc"
        elif len(doc):
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
