# SPDX-License-Identifier: Apache-2.0
"""Data sets of the Hugging Face hub, and folders that its library `datasets` reads, as streams.

A new reader can resume at the place where another one stopped.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from curation.contract import ID, TEXT
from curation.errors import InputError, nearest
from curation.reading.documents import is_text, shown_names
from curation.reading.formats import TEXT_COLUMNS
from curation.reading.inputs import HUB_MARK, HubInput, hub_label
from curation.reading.urls import scrubbed
from curation.system.terminal import print_once

BATCH_ROWS = 200  # per batch of the stream; a place is the end of a batch
HTTP_ERRORS = {
    "httpx": "HTTPError",
    "httpx2": "HTTPError",
    "aiohttp": "ClientError",
}  # connection errors that are no OSError
COMMIT = re.compile("[0-9a-f]{40}")


class HubSource:
    """One split of a data set, from a place on: `for table, place in source`.

    Tables have `id` (null where there is none), `text` and the carried columns, all as large_string. A text may be
    null. A HubSource of the same input with `place` resumes there, at the same `commit` of the hub, even if the branch
    has moved.

    Raises InputError where the data set does not exist, access is denied, it has no such configuration, split or
    column, or `place` belongs to another state of it. Raises ConnectionError where the connection breaks.
    """

    def __init__(self, entry: HubInput, place: dict[str, Any] | None = None) -> None:
        self.entry, self.label = entry, hub_label(entry)
        pinned = place["commit"] if place else ""
        loaded, files = _load(entry, self.label, pinned or entry.revision)
        self.dataset = loaded.with_format("arrow")
        self.files = hashlib.sha256(repr(files).encode()).hexdigest()
        self.commit = next((part for file in files for part in file if COMMIT.fullmatch(part)), pinned)
        if place is not None:
            if place["files"] != self.files:
                raise InputError(
                    f"{self.label} has changed since its first documents were read. Use a new --output, or --force"
                )
            self.dataset.load_state_dict(place["state"])

    def __iter__(self) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
        batches = iter(self.dataset.iter(BATCH_ROWS))
        while True:
            try:
                batch = next(batches, None)
            except broken_connection() as error:
                raise ConnectionError(on_one_line(error)) from error
            except (ValueError, RuntimeError, KeyError, TypeError) as error:
                raise InputError(f"{self.label} cannot be read: {on_one_line(error)}") from error
            if batch is None:
                return
            place = {"commit": self.commit, "files": self.files, "state": self.dataset.state_dict()}
            yield self._as_documents(batch), place

    def _as_documents(self, batch: pa.Table) -> pa.Table:
        names = batch.column_names
        text = self.entry.text_column or next((name for name in TEXT_COLUMNS if name in names), "")
        wanted = [text or " or ".join(TEXT_COLUMNS), *self.entry.carried.values()]
        for name in wanted:
            if name not in names:
                option = "text_column" if name == wanted[0] else "columns"
                raise InputError(f"{self.label} has no column {name}; it has {shown_names(names)}. Set {option}")
        kind = batch.column(text).type
        if not (is_text(kind) or pa.types.is_null(kind)):
            raise InputError(f"column {text!r} of {self.label} is {kind}, expected strings. Set text_column")
        columns = {ID: self._ids(batch), TEXT: batch.column(text).cast(pa.large_string())}
        for name, field in self.entry.carried.items():
            try:
                columns[name] = batch.column(field).cast(pa.large_string())
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                kind = batch.column(field).type
                raise InputError(f"column {field!r} of {self.label} is {kind}, which has no text form") from None
        return pa.table(columns)

    def _ids(self, batch: pa.Table) -> pa.ChunkedArray | pa.Array:
        name = self.entry.id_column
        if name not in batch.column_names:
            return pa.nulls(batch.num_rows, pa.large_string())
        column = batch.column(name)
        if not (is_text(column.type) or pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
            raise InputError(
                f"column {name!r} of {self.label} is {column.type}, expected strings or integers. Set id_column to "
                "another one, or to a name that is not there: ids are made then"
            )
        return column.cast(pa.large_string())


def _load(entry: HubInput, label: str, revision: str) -> tuple[Any, list[tuple[str, ...]]]:
    """Return the streamed split, and the identity of its files: repository and commit, or times and ETags.

    Raises InputError with one message for each error of the library.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError(f"{label} needs Hugging Face datasets ({error}); pip install 'datasets>=3'") from None

    print_once("datasets", "huggingface_hub")
    name = entry.path.removeprefix(HUB_MARK)
    options: dict[str, Any] = {"data_files": entry.data_files} if entry.data_files else {}
    try:
        builder = datasets.load_dataset_builder(
            os.path.abspath(name) if os.path.isdir(name) else name,
            entry.config or None,
            revision=revision or None,
            **options,
        )
        files = builder.config.data_files or {}
        known = [tuple(map(str, file)) for split in files.values() for file in split.origin_metadata]
        return builder.as_streaming_dataset(split=entry.split), known
    except (datasets.exceptions.DatasetsError, ValueError, RuntimeError, *broken_connection()) as error:
        raise InputError(_explained(error, entry, label)) from error


def _explained(error: Exception, entry: HubInput, label: str) -> str:
    """Return the message of an error, with its remedy: by the HTTP status of the hub, else by the type of the error."""
    message = scrubbed(" ".join(str(error).split()))
    status = status_of(error)
    if status >= 500 or status == 429:
        return f"{label}: the hub answers {status}, an error on its side. Rerun the same command later"
    if status in (401, 403) or re.search(r"\bgated\b", message) or "authenticat" in message.lower():
        return (
            f"{label}: the hub denies access ({status or 'gated'}). Check the name; if it is right, accept "
            "the terms on its page, and log in with `hf auth login` or set HF_TOKEN"
        )
    if "Bad split" in message or "BuilderConfig" in message:
        wrong, what = (entry.split, "split") if "Bad split" in message else (entry.config, "configuration")
        listed = re.search(r"[Aa]vailable[^\[]*\[([^\]]*)", message)
        offered = [name.strip(" '\"") for name in listed[1].split(",")] if listed else []
        return f"{label} has no {what} {wrong!r}{nearest(wrong, offered)}"
    if "Config name is missing" in message:
        return (
            f"{label} has several configurations; set config to one of {message.rpartition('[')[2].partition(']')[0]}"
        )
    if isinstance(error, FileNotFoundError) or status == 404 or type(error).__name__ == "DatasetNotFoundError":
        return (
            f"{label} was not found (404). Check the name and the revision; a private one needs `hf auth login` or "
            "HF_TOKEN"
        )
    if isinstance(error, broken_connection()):
        return f"{label}: the hub cannot be reached ({message}). Rerun the same command without --force to resume"
    return f"{label} cannot be opened: {message}"


def on_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {scrubbed(' '.join(str(error).split()))}"


def status_of(error: BaseException | None) -> int:
    """Return the HTTP status of an error or of its causes; 0 where there is none."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", 0) or getattr(error, "status", 0)
        if isinstance(status, int) and status:
            return status
        error = error.__cause__ or error.__context__
    return 0


def broken_connection() -> tuple[type[Exception], ...]:
    """Return the errors that a broken connection raises."""
    errors: list[type[Exception]] = [OSError, EOFError]
    for package, name in HTTP_ERRORS.items():
        errors += _error_of(package, name)
    return tuple(errors)


def _error_of(package: str, name: str) -> list[type[Exception]]:
    """Return the error class of an HTTP package that `datasets` may use; [] where it is not loaded."""
    import sys

    return [getattr(sys.modules[package], name)] if package in sys.modules else []
