# SPDX-License-Identifier: Apache-2.0
"""Checks a finished run: its outputs against the report and against each other."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.errors import ArgumentError, CurationError, IntegrityError, OutputError, sentence
from curation.base.system.files import as_json, file_sha256
from curation.base.system.os_errors import explain
from curation.base.system.path_advice import advice as path_advice
from curation.base.system.steps import each
from curation.reading.paths import is_run
from curation.reading.urls import is_remote, shown
from curation.record.finished_report import CHANGED, is_signed
from curation.record.folder import FRAMES, REPORT, WORK, has_mark, is_cache, plan_path
from curation.record.ledger import check_ledger
from curation.record.report_schema import OUTPUT_NAMES, wrong_in_report
from curation.record.tables import COLUMNS, WITH_TEXT, TablePart, part_paths, read_tables
from curation.results.finished.object_copy import CLAIM
from curation.results.finished.object_store import ObjectStore, is_object_url
from curation.results.finished.split_checks import has_documents, split_leaks
from curation.results.report.report import HTML
from curation.stages.outcome import StageCount
from curation.tokens.blends import INDEX_FOLDER
from curation.tokens.indexed import check_pair
from curation.tokens.ordering import SPLIT, SPLITS

ENTERED = (*OUTPUT_NAMES, INDEX_FOLDER)  # the folders of a run whose files are checked
MAX_SHOWN_RUNS = 5


class HasFolder(Protocol):
    """The result of a run, such as `curation.RunResult`."""

    @property
    def folder(self) -> Path:
        """The output folder of the run."""


def verify(folder: str | Path | HasFolder) -> list[str]:
    """Return one message for each fault of a finished run; an empty list if there is none.

    Checks, in this order:

    - the report: its own digest, its bytes and its structure
    - the SHA-256 of every output, that no file was added, and that no file is a link; links are not followed
    - the columns of `documents/` and `removed/`
    - the ledger, and the order and number of kept and removed documents
    - every `.idx` against its `.bin`, and that all ids are in the vocabulary
    - that each document is in the split that its text assigns (`split_leaks`)

    A run with `output: {documents: false}` has no kept documents. So their order, number and assignment to splits are
    not checked, but the number of documents with and without tokens is.

    Faults of the report, of files or of columns end the checks: later checks would read damaged files.
        >>> import curation
        >>> curation.verify("out")
        []

    `folder` may be a `RunResult`; or the URL of a copy in an object store (`s3://BUCKET/PREFIX`). For a copy, only the
    report, the ledger and the SHA-256 of every object are checked, not the content.

    Raises OutputError if `folder` holds no finished run, and ArgumentError if it is no path.
    """
    folder = folder_of(folder)
    if is_object_url(folder):
        return _verify_copy(ObjectStore(str(folder)))
    if not Path(folder).is_dir():
        raise OutputError(no_run(folder))
    folder = Path(folder)
    path = folder / REPORT
    if path.is_symlink():
        return [_link(REPORT)]
    if path.exists() and not path.is_file():  # a pipe has no end
        return [f"{REPORT} is no regular file"]
    content, fault = report_in(path.read_bytes() if path.exists() else None, str(path))
    if content is None:
        if fault:
            return [fault]
        raise OutputError(no_run(folder))
    if changed := _files(folder, content):
        return changed  # damaged files have no usable content
    if unreadable := [*_tables(folder, content)]:
        return unreadable
    checks: tuple[Callable[[Path, dict[str, Any]], Iterator[str]], ...] = (
        _ledger, _documents, _removed, _pairs, split_leaks,
    )  # fmt: skip
    return [problem for check in checks for problem in _ended(check(folder, content))]


def folder_of(run: Any) -> str | Path:
    """Return the folder of a run, from its path or from a result with a `folder`. Raises ArgumentError for any other
    value."""
    folder = run if isinstance(run, str | os.PathLike) else getattr(run, "folder", None)
    if not isinstance(folder, str | os.PathLike):
        raise ArgumentError(f"expected the folder of a run, or its RunResult, got {type(run).__name__}")
    return folder if isinstance(folder, str) else Path(folder)


def _ended(problems: Iterator[str]) -> Iterator[str]:
    """Yield the problems that a check finds. If the check cannot read a file whose digest is right, the last problem
    says so."""
    try:
        yield from problems
    except IntegrityError as error:
        yield str(error)


def report_in(data: bytes | None, path: str) -> tuple[dict[str, Any] | None, str]:
    """Return the content of `report.json` and ""; or None and the fault. The fault is "" if `data` is None."""
    if data is None:
        return None, ""
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return None, f"{path} is damaged: it is not valid JSON: {error}"
    if not is_signed(content):
        return None, f"report.json {CHANGED}"
    if data != as_json(content, indent=True):
        return None, "report.json has changed: it has the same content in other bytes"
    wrong = wrong_in_report(content)
    return (None, wrong) if wrong else (content, "")


def _verify_copy(store: ObjectStore) -> list[str]:
    """Return messages for faults of the copy of a run: faults of its report and ledger, and missing, changed or foreign
    objects."""
    content, fault = report_in(store.read(REPORT), f"{store.url}/{REPORT}")
    sizes = store.names()
    if content is None:
        if fault:
            return [fault]
        state = "the copy of a run has not ended" if CLAIM in sizes else "there is no report.json"
        advice = "Rerun the command that made it" if CLAIM in sizes else "Give the --output of a run"
        raise OutputError(f"{store.url} holds no finished run: {state}. {advice}")
    expected = content["outputs"] | {HTML: content["report_html"]}
    problems = []
    for name in each([*expected], "reading objects", "file", size=lambda name: sizes.get(name, 0)):
        if name not in sizes:
            problems.append(f"{_shown(name)} is missing")
        elif store.sha256(name, sizes[name]) != expected[name]:
            problems.append(f"{_shown(name)} has changed: its SHA-256 is not the one in report.json")
    foreign = sorted(sizes.keys() - expected.keys() - {REPORT, CLAIM})
    return [*problems, *(f"{_shown(name)} is not part of the run" for name in foreign), *_counts(content)]


def no_run(folder: str | Path) -> str:
    """Return the message about a folder without a finished run. It names the run that contains the folder, or the runs
    in it."""
    if is_remote(str(folder)):
        return (
            f"{shown(str(folder))} is a URL. Give a local folder: DIR/run of the work folder, or one with a copy of "
            "the objects below the URL. `curate verify URL` reads s3://"
        )
    folder = Path(folder)
    fault = "is a file" if folder.is_file() else "holds no finished run (no report.json)"
    if not os.path.lexists(folder):
        fault = f"does not exist (working directory: {os.getcwd()})"
    for parent in Path(os.path.abspath(folder)).parents:
        if (parent / REPORT).is_file() and is_run(str(parent)):
            return f"{folder} {fault}; it is part of the run in {os.path.relpath(parent)}. Give that folder"
    if plan_path(folder).is_file():
        return f"{folder} {fault}; its run has not finished. Rerun the command that made it"
    runs = sorted(str(path.parent) for path in folder.glob(f"*/{REPORT}") if is_run(str(path.parent)))
    if runs:
        return f"{folder} {fault}; {'these folders in it do' if runs[1:] else 'this folder in it does'}: " + (
            ", ".join(runs[:MAX_SHOWN_RUNS])
        )
    hint = path_advice(str(folder)) if not folder.exists() else ""
    return f"{sentence(f'{folder} {fault}{hint}')} Give the --output of a run"


def _files(folder: Path, content: dict[str, Any]) -> list[str]:
    """Return messages for links, missing outputs, changed outputs and foreign files."""
    modes = dict(_entries(folder, content))
    links = {name for name, mode in modes.items() if stat.S_ISLNK(mode)}
    expected = content["outputs"] | {HTML: content["report_html"]}
    problems = [_link(name) for name in sorted(links)]
    names = [*expected]
    for name in each(names, "reading outputs", "file", size=lambda name: _size(folder / name)):
        sha256 = expected[name]
        if not stat.S_ISREG(modes.get(name, 0)):
            links_on_path = links & {name, *(parent.as_posix() for parent in PurePosixPath(name).parents)}
            fault = "is no regular file" if name in modes else "is missing"
            problems += [] if links_on_path else [f"{_shown(name)} {fault}"]
        elif file_sha256(folder / name) != sha256:
            problems.append(f"{_shown(name)} has changed: its SHA-256 is not the one in report.json")
    frames = {FRAMES} if stat.S_ISDIR(modes.get(FRAMES, 0)) else set()  # inputs, not outputs
    others = sorted(modes.keys() - expected.keys() - {REPORT} - links - frames)
    foreign = [name for name in others if not is_cache(name, content["outputs"])]
    return problems + [f"{_shown(name)} is not part of the run" for name in foreign]


def _size(path: Path) -> int:
    """Return the bytes of a regular file; 0 for anything else. Links are not followed."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _shown(name: str) -> str:
    """Return a file name with control characters escaped, since its origin is unknown."""
    return repr(name)[1:-1]


def _link(name: str) -> str:
    return f"{_shown(name)} is a link, and a run writes none: its target is not checked. Replace the link by the files"


def _entries(folder: Path, content: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield (path, mode) of every entry except the run's own folders. Links are not followed."""
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
    """Return whether `_work/` may exist: if the recipe keeps it, or if the run was killed after the report, before it
    deleted `_work/`.

    The next run of the recipe deletes it. The checks read no file in it.
    """
    return content["recipe"]["output"]["keep_work"] or has_mark(folder)


def _cannot_list(error: OSError) -> None:
    raise error


def _tables(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each part of a table that cannot be read or lacks columns."""
    with_text = content["recipe"]["output"]["removed"] == "text"
    for name in COLUMNS:
        for path in part_paths(folder, content["outputs"], name):
            try:
                TablePart(path, WITH_TEXT if name == "removed" and with_text else None)
            except IntegrityError as error:
                yield str(error)


def _counts(content: dict[str, Any]) -> Iterator[str]:
    try:
        check_ledger(content["documents"], msgspec.convert(content["stages"], list[StageCount], strict=False))
    except IntegrityError as error:
        yield str(error)


def _ledger(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    yield from _counts(content)
    with open(folder / "rejected.jsonl", "rb") as file:
        lines = sum(1 for _ in file)
    if lines != content["documents"]["rejected"]:
        yield f"rejected.jsonl has {lines} lines, the report counts {content['documents']['rejected']}"


def _documents(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    copies = sum(entry["copies"] - 1 for entry in content["recipe"]["input"]) + _drawn_copies(content)
    if not has_documents(content):
        tokens = content["tokens"]
        if tokens["documents"] + tokens["empty_documents"] != content["documents"]["kept"]:
            yield (
                f"the report counts {content['documents']['kept']} kept documents, of which {tokens['documents']} have "
                f"tokens and {tokens['empty_documents']} have none"
            )
        return
    if isinstance(content["recipe"]["output"]["documents"], dict):  # shuffled
        rows = yield from _shards(part_paths(folder, content["outputs"], "documents"))
    else:
        rows = yield from _ascending(folder, content, "documents", copies)
    if rows != content["documents"]["kept"]:
        yield f"documents/ has {rows} rows, the report counts {content['documents']['kept']} kept"


def _drawn_copies(content: dict[str, Any]) -> int:
    """Return at how many places in `documents/`, at most, a `mix` lets a further copy of an input begin."""
    groups = [group for stage in content["stages"] if stage["kind"] == "mix" for group in stage["details"]["groups"]]
    most = max((group["most_copies"] for group in groups), default=0)
    return max(most - 1, 0) * len(content["recipe"]["input"])


def _removed(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    rows = yield from _ascending(folder, content, "removed")
    if rows != content["documents"]["removed"]:
        yield f"removed/ has {rows} rows, the report counts {content['documents']['removed']} removed"


def _ascending(folder: Path, content: dict[str, Any], name: str, copies: int = 0) -> Generator[str, None, int]:
    """Check that `doc` ascends over all files of a folder, and return the number of rows.

    `doc` may decrease `copies` times at the start of a file, where a further copy of an input begins.
    """
    rows, last = 0, -1
    for path in each(part_paths(folder, content["outputs"], name), f"checking the order of {name}/", "file"):
        docs = [table.column("doc").combine_chunks() for table in read_tables([path], ["doc"])]
        doc = pa.concat_arrays([pa.array([], pa.int64()), *docs])
        rows += len(doc)
        if len(doc):
            ascends = len(doc) == 1 or bool(pc.all(pc.greater(doc[1:], doc[:-1])).as_py())
            copies -= ascends and doc[0].as_py() <= last
            if not ascends or copies < 0:
                yield f"{name}/{path.name} is not in the order of doc"
            last = doc[-1].as_py()
    return rows


def _shards(paths: Sequence[Path]) -> Generator[str, None, int]:
    """Check that the last file of shuffled documents has the split valid, and the others train. Return the number of
    rows."""
    rows = 0
    for path in each(paths, "checking the splits of documents/", "file"):
        split = SPLITS[path == paths[-1]]
        found = Counter(name for table in read_tables([path], [SPLIT]) for name in table.column(SPLIT).to_pylist())
        rows += found.total()
        if found.keys() - {split}:
            yield f"documents/{path.name} has {found.total() - found[split]} documents of another split than {split}"
    return rows


def _pairs(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    tokens = content["tokens"]
    if "megatron" not in content["recipe"]["output"]["formats"]:
        return
    count = documents = 0
    for path in each(sorted((folder / "tokens").glob("*.idx")), "checking pairs", "pair"):
        try:
            pair = check_pair(path.with_suffix(""), tokens["vocabulary"])
        except (CurationError, OSError) as error:
            yield f"tokens/{path.name}: {explain(error) if isinstance(error, OSError) else error}"
            continue
        count, documents = count + pair.tokens, documents + pair.documents
    if (count, documents) != (tokens["count"], tokens["documents"]):
        yield (
            f"tokens/ has {count} tokens in {documents} documents, the report counts {tokens['count']} in "
            f"{tokens['documents']}"
        )
