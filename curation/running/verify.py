# SPDX-License-Identifier: Apache-2.0
"""Check a finished run: outputs against the report and against each other, and documents against their splits."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.errors import CurationError, IntegrityError, OutputError
from curation.packing.blends import INDEX_FOLDER
from curation.packing.forms.shards import MANIFEST
from curation.packing.indexed import IndexedReader, check_pair
from curation.packing.joining import is_of_stem, stem_name
from curation.packing.ordering import assign_splits, split_names
from curation.reading.paths import is_run
from curation.recipes.renamed import with_new_names
from curation.running.context import WORK
from curation.running.exports import part_files
from curation.running.ledger import check_ledger
from curation.running.object_copy import CLAIM
from curation.running.object_store import ObjectStore, is_object_url
from curation.running.report import HTML, digest
from curation.running.report_schema import OUTPUT_NAMES, wrong_in_report
from curation.running.run_folder import REPORT, plan_path
from curation.stages.outcome import StageCount
from curation.system.files import as_json, file_sha256, read_json
from curation.system.path_advice import advice as path_advice
from curation.system.steps import each

COLUMNS = {
    "documents": {"doc": pa.int64(), "source": pa.string(), "text": pa.large_string()},
    "removed": {"doc": pa.int64()},
}
REMOVED_TEXT_COLUMNS = {"bound": pa.float64(), "text": pa.large_string()}  # with `output.removed: text`
ENTERED = (*OUTPUT_NAMES, INDEX_FOLDER)  # the folders of a run whose files are checked
BATCH_DOCUMENTS = 10_000
MAX_SHOWN_RUNS = 5
REVERSIBLE = ("tiktoken",)  # other tokenizers may give two texts the same tokens
Counts = Mapping[tuple[str, str], int]  # (source or form, split) -> documents


def verify(folder: str | Path) -> list[str]:
    """Return one message for each fault of a finished run; an empty list if there is none.

    Checks, in this order:

    - the report: its own digest, its bytes and its structure
    - the SHA-256 of every output, and that nothing was added and nothing is a link; links are not followed
    - the columns of `documents/` and `removed/`
    - the ledger, and the order and number of kept and removed documents
    - every `.idx` against its `.bin`, and that all ids are in the vocabulary
    - that each document is in the split that its text assigns (`split_leaks`)

    Of a run with `output: {documents: false}` the kept documents are not there: their order, number and assignment to
    splits are not checked, but the number of documents with and without tokens is.

    Faults of the report, of files or of columns end the checks: later checks would read damaged files.
        >>> import curation
        >>> curation.verify("out")
        []

    `folder` may be the URL of a copy in an object store (`s3://BUCKET/PREFIX`). Then the report, the ledger and the
    SHA-256 of every object are checked, and no content.

    Raises OutputError if `folder` holds no finished run.
    """
    if is_object_url(folder):
        return _verify_copy(ObjectStore(str(folder)))
    folder = Path(folder)
    if not folder.is_dir():
        raise OutputError(no_run(folder))
    if (folder / REPORT).is_symlink():
        return [_link(REPORT)]
    path = folder / REPORT
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
    return [problem for check in checks for problem in check(folder, content)]


def report_in(data: bytes | None, path: str) -> tuple[dict[str, Any] | None, str]:
    """Return the content of the bytes of `report.json` and ""; or None and the fault, "" if there are no bytes."""
    if data is None:
        return None, ""
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return None, f"{path} is damaged: it is not valid JSON: {error}"
    if not isinstance(content, dict) or content.get("digest") != digest(content):
        return None, "report.json has changed: its content does not match its digest"
    if data != as_json(content, indent=True):
        return None, "report.json has changed: it has the same content in other bytes"
    wrong = wrong_in_report(content)
    return (None, wrong) if wrong else (content, "")


def _verify_copy(store: ObjectStore) -> list[str]:
    """Messages for faults of the copy of a run: of its report, its ledger, and missing, changed or foreign objects."""
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


def has_documents(content: dict[str, Any]) -> bool:
    """Whether the run of a report wrote `documents/`, as all runs up to 0.2.0 did."""
    return bool(content["recipe"]["output"].get("documents", True))


def no_run(folder: Path) -> str:
    """Return the message about a folder without a finished run; it names the run around it, or the runs in it."""
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
    return f"{folder} {fault}{path_advice(str(folder)) if not folder.exists() else ''}. Give the --output of a run"


def _files(folder: Path, content: dict[str, Any]) -> list[str]:
    """Messages for links, missing outputs, changed outputs and foreign files."""
    modes = dict(_entries(folder, content))
    links = {name for name, mode in modes.items() if stat.S_ISLNK(mode)}
    expected = content["outputs"] | {HTML: content.get("report_html", "")}
    problems = [_link(name) for name in sorted(links)]
    names = [*expected]
    for name in each(names, "reading outputs", "file", size=lambda name: _size(folder / name)):
        sha256 = expected[name]
        if not stat.S_ISREG(modes.get(name, 0)):
            links_on_path = links & {name, *(parent.as_posix() for parent in PurePosixPath(name).parents)}
            fault = "is no regular file" if name in modes else "is missing"
            problems += [] if links_on_path else [f"{_shown(name)} {fault}"]
        elif sha256 and file_sha256(folder / name) != sha256:  # reports up to 0.2.0 lack the digest of report.html
            problems.append(f"{_shown(name)} has changed: its SHA-256 is not the one in report.json")
    foreign = sorted(modes.keys() - expected.keys() - {REPORT} - links)
    return problems + [f"{_shown(name)} is not part of the run" for name in foreign if not _is_cache(name, content)]


def _size(path: Path) -> int:
    """The bytes of a regular file; 0 for everything else, to which no link is followed."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _shown(name: str) -> str:
    """A file name with control characters escaped, since anyone may have chosen it."""
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
    """Whether `_work/` is allowed: if the recipe keeps it, or after a kill between the report and its deletion.

    The next run of the recipe deletes the leftover. The checks read nothing in it.
    """
    return content["recipe"]["output"]["keep_work"] or plan_path(folder).is_file()


def _cannot_list(error: OSError) -> None:
    raise error


def _is_cache(name: str, content: dict[str, Any]) -> bool:
    """Whether the file is an index that Megatron or NeMo writes when it trains on a pair."""
    prefix, separator, _ = name.partition("/cache/")
    return name.startswith(f"{INDEX_FOLDER}/") or (bool(separator) and f"{prefix}.idx" in content["outputs"])


def _tables(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each part without the columns that the checks read."""
    for name, columns in COLUMNS.items():
        if name == "removed" and content["recipe"]["output"].get("removed") == "text":
            columns = columns | REMOVED_TEXT_COLUMNS
        for path in part_files(folder / name):
            try:
                schema = pq.read_schema(path)
            except (OSError, ValueError) as error:
                yield f"{name}/{path.name} cannot be read: {error}"
                continue
            for column, kind in columns.items():
                if schema.names.count(column) != 1 or schema.field(column).type != kind:
                    yield f"{name}/{path.name} has no column {column!r} of type {kind}"


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
    rows = yield from _ascending(folder, "documents", copies)
    if rows != content["documents"]["kept"]:
        yield f"documents/ has {rows} rows, the report counts {content['documents']['kept']} kept"


def _drawn_copies(content: dict[str, Any]) -> int:
    """The largest number of times that another copy of an input may begin after a `mix`."""
    groups = [group for stage in content["stages"] if stage["kind"] == "mix" for group in stage["details"]["groups"]]
    most = max((group["most_copies"] for group in groups), default=0)
    return max(most - 1, 0) * len(content["recipe"]["input"])


def _removed(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    rows = yield from _ascending(folder, "removed")
    if rows != content["documents"]["removed"]:
        yield f"removed/ has {rows} rows, the report counts {content['documents']['removed']} removed"


def _ascending(folder: Path, name: str, copies: int = 0) -> Generator[str, None, int]:
    """Check that `doc` ascends over all files of a folder, and return the number of rows.

    `doc` may fall `copies` times, at the start of a file: another copy of an input begins there.
    """
    rows, last = 0, -1
    for path in each(part_files(folder / name), f"checking the order of {name}/", "file"):
        try:
            doc = pq.read_table(path, columns=["doc"]).column("doc").combine_chunks()
        except (OSError, ValueError) as error:
            yield f"{name}/{path.name} cannot be read: {error}"
            continue
        rows += len(doc)
        if doc.null_count:
            yield f"{name}/{path.name} has rows without doc"
        elif len(doc):
            ascends = len(doc) == 1 or bool(pc.all(pc.greater(doc[1:], doc[:-1])).as_py())
            copies -= ascends and doc[0].as_py() <= last
            if not ascends or copies < 0:
                yield f"{name}/{path.name} is not in the order of doc"
            last = doc[-1].as_py()
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
            yield f"tokens/{path.name}: {error}"
            continue
        count, documents = count + pair.tokens, documents + pair.documents
    if (count, documents) != (tokens["count"], tokens["documents"]):
        yield (
            f"tokens/ has {count} tokens in {documents} documents, the report counts {tokens['count']} in "
            f"{tokens['documents']}"
        )


class _Split(msgspec.Struct):
    documents: int


class _Manifest(msgspec.Struct):
    """The fields of a form's manifest that the checks read."""

    splits: dict[str, _Split]


def split_leaks(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Yield a message for every document found in more than one split, and for wrong counts of documents per split.

    `content` is the run's `report.json`. All its outputs must exist.
    """
    yield from _kept_and_removed(folder)
    recipe, tokens = with_new_names(content["recipe"]), content["tokens"]
    output = recipe["output"]
    if not output["splits"]:
        return
    if "megatron" in output["formats"] and tokens["tokenizer"]["kind"] in REVERSIBLE:
        yield from _shared_between_splits(folder, content)
    if not has_documents(content):
        return
    expected = _expected(folder, output["splits"], recipe["seed"])
    empty = tokens["empty_documents"]  # they have a split by their texts, and are in no form
    if "megatron" in output["formats"]:
        yield from _miscounted(_in_pairs(folder, content), expected, empty)
    per_split = Counter[str]()
    for (_, split), count in expected.items():
        per_split[split] += count
    for form in (name for name in output["formats"] if name != "megatron"):
        try:
            counts = _in_form(folder / form, form, split_names(output["splits"]))
        except (IntegrityError, msgspec.ValidationError) as error:
            yield f"{form}/{MANIFEST} is not what a run writes: {error}"
            continue
        yield from _miscounted(counts, {key: per_split[key[1]] for key in counts}, empty)
        if sum(counts.values()) != tokens["documents"]:
            yield f"{form}: {sum(counts.values())} documents in all splits, the report counts {tokens['documents']}"


def _kept_and_removed(folder: Path) -> Iterator[str]:
    """Yield a message if documents are both kept and removed.

    A group of duplicates has one kept document, the others are in `removed/`. So each group is in one split if no
    document is in both folders.
    """
    both = np.intersect1d(_docs(folder / "documents"), _docs(folder / "removed"))  # copies repeat kept documents
    if len(both):
        yield f"{len(both)} documents are both kept and removed, the first is doc {both[0]}"


def _docs(folder: Path) -> np.ndarray:
    docs = [pq.read_table(path, columns=["doc"]).column("doc").to_numpy() for path in folder.glob("*.parquet")]
    return np.concatenate([np.empty(0, np.int64), *docs])


def _prefixes(folder: Path, content: dict[str, Any], source: str, split: str) -> list[Path]:
    """The prefixes of the pairs of a source's split."""
    recipe = content["recipe"]
    naming = recipe["output"]["megatron"].get("names", "text")  # reports up to 0.2.0 lack it
    stem = Path("tokens", stem_name(source, split, naming, len(recipe["input"])))
    names = [name.removesuffix(".idx") for name in content["outputs"] if name.endswith(".idx")]
    return [folder / name for name in names if is_of_stem(stem, Path(name).name)]


def _sources(content: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(file["source"] for file in content["files"]))


def _expected(folder: Path, shares: Mapping[str, float], seed: int) -> Counts:
    """Count documents per source and split, assigned by the texts in `documents/`."""
    names, expected = split_names(shares), Counter[tuple[str, str]]()
    for path in each(part_files(folder / "documents"), "assigning splits", "file"):
        for batch in pq.ParquetFile(path).iter_batches(BATCH_DOCUMENTS, columns=["source", "text"]):
            texts = batch.column("text").cast(pa.large_binary()).to_pylist()
            numbers = assign_splits(texts, shares, seed)
            expected.update(zip(batch.column("source").to_pylist(), (names[n] for n in numbers.tolist()), strict=True))
    return expected


def _in_pairs(folder: Path, content: dict[str, Any]) -> Counts:
    return {
        (source, split): sum(len(IndexedReader(prefix)) for prefix in _prefixes(folder, content, source, split))
        for source in _sources(content)
        for split in split_names(content["recipe"]["output"]["splits"])
    }


def _in_form(folder: Path, form: str, names: Sequence[str]) -> Counts:
    splits = msgspec.convert(read_json(folder / MANIFEST), _Manifest).splits
    return {(form, split): splits[split].documents if split in splits else 0 for split in names}


def _miscounted(counts: Counts, expected: Counts, empty: int) -> Iterator[str]:
    for (name, split), count in counts.items():
        assigned = expected.get((name, split), 0)
        if not assigned - empty <= count <= assigned:
            yield f"{name}: split {split} has {count} documents, their texts assign {assigned} to it"


def _shared_between_splits(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Compare 128-bit hashes of the tokens of all documents between splits."""
    names = split_names(content["recipe"]["output"]["splits"])
    hashes = {
        split: _token_hashes([p for source in _sources(content) for p in _prefixes(folder, content, source, split)])
        for split in names
    }
    for first, second in combinations(names, 2):
        shared = np.intersect1d(hashes[first], hashes[second], assume_unique=True)
        if len(shared):
            yield f"{len(shared)} documents have the same tokens in {first} and in {second}"


def _token_hashes(prefixes: list[Path]) -> np.ndarray:
    hashed = bytearray()
    for prefix in prefixes:
        reader = IndexedReader(prefix)
        for ids in each(reader, f"comparing {prefix.name}", "document", total=len(reader)):
            hashed += hashlib.blake2b(ids, digest_size=16).digest()
    return np.unique(np.frombuffer(bytes(hashed), "S16"))
