# SPDX-License-Identifier: Apache-2.0
"""Data sets of the Hugging Face hub, and folders that its library `datasets` reads, as streams.

A new reader can resume at the checkpoint of an earlier one. No code of a data set is executed (decision 0105).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow as pa

from curation.base.contract import ID, TEXT
from curation.base.errors import CurationError, InputError, installation, is_shortage
from curation.base.system.terminal import print_once
from curation.reading.documents import as_strings, is_bytes, is_text, shown_names
from curation.reading.formats import TEXT_COLUMNS
from curation.reading.hub_errors import OUTSIDE, is_broken_connection, local_fault, message_of, on_one_line, within
from curation.reading.hub_files import read_own_files
from curation.reading.hub_requests import check_endpoint, check_environment, limited, usable_proxies
from curation.reading.inputs import HUB_MARK, HubInput, hub_label
from curation.reading.urls import REFERENCE, REFUSED, refuse_reference

BATCH_ROWS = 200  # per batch of the stream; a checkpoint is the end of a batch
OLDEST = (4, 0)  # datasets 3 still runs scripts that a user once allowed
CONTINUING = (5, 1)  # after several checkpoints, older versions lose documents or return some twice
INSTALL = installation("hub")
COMMIT = re.compile("[0-9a-f]{40}")
NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?|buckets(/\w[\w.-]*){2,}")
Value = TypeVar("Value")


class HubSource:
    """Iterates over one split of a data set, from a checkpoint on: `for table, checkpoint in source`.

    Tables have `id` (null where there is none), `text` and the carried columns, all as large_string. A text may be
    null. A HubSource of the same input with this `checkpoint` resumes there. It uses the same `commit` of the hub, even
    if the branch has moved.

    Raises InputError if the data set does not exist or cannot be read, if access is denied, or if it lacks the
    configuration, split or column. Also raises InputError if `checkpoint` belongs to another version of the data set.
    Raises ConnectionError if the connection breaks.
    """

    builder: Any = None  # until the library has found the data set
    dataset: Any = None  # until it has opened the data set
    has_documents = False  # whether its tables are those of `read_own_files`

    def __init__(self, entry: HubInput, checkpoint: dict[str, Any] | None = None) -> None:
        self.entry, self.label = entry, hub_label(entry)
        library, self.folder, name = _checked(entry, self.label)
        pinned = checkpoint["commit"] if checkpoint else ""
        if checkpoint is not None and _version(library) < CONTINUING:
            raise InputError(
                f"{self.label}: datasets {library.__version__} cannot go on after the documents that have arrived: it "
                f"would lose some. Run: {INSTALL}, then the same command again"
            )
        try:
            if not self.folder:
                check_environment()
            self._call(lambda: self._open(library, name, pinned or entry.revision))
        except Exception as error:  # many libraries raise errors, without a common base
            raise self._fault(error) from error
        data_files = self.builder.config.data_files or {}
        known = [tuple(map(str, file)) for split in data_files.values() for file in split.origin_metadata]
        self.files = hashlib.sha256(repr(known).encode()).hexdigest()
        self.commit = next((part for file in known for part in file if COMMIT.fullmatch(part)), pinned)
        if checkpoint is not None:
            if checkpoint["files"] != self.files:
                raise InputError(
                    f"{self.label} has changed since its first documents were read. Use a new --output, or --force"
                )
            self.dataset.load_state_dict(checkpoint["state"])

    def _open(self, library: Any, name: str, revision: str) -> None:
        options: dict[str, Any] = {"data_files": self.entry.data_files} if self.entry.data_files else {}
        # A temporary cache: in its own cache, the library would look for an older copy if the hub refuses a data set.
        with nullcontext() if _is_offline() else TemporaryDirectory() as cache:
            self.builder = library.load_dataset_builder(
                name, self.entry.config or None, revision=revision or None, cache_dir=cache, **options
            )
            self._check_files()
            self.builder.config.decode_num_threads = 0  # images and sounds, which are not read, stay undecoded
            self.has_documents = read_own_files(self.builder, self.entry, self._as_documents)
            self.dataset = self.builder.as_streaming_dataset(split=self.entry.split).with_format("arrow")
            if self.has_documents:
                # Otherwise the library casts all tables to the features of its first table
                self.builder.info.features = None

    def _check_files(self) -> None:
        """Raise InputError if the README.md of a data set of the hub names files outside of it, as datasets 5.2
        does."""
        files = (file for split in (self.builder.config.data_files or {}).values() for file in split)
        if not (self.folder or self.entry.data_files) and any("hf://" not in file for file in files):
            raise InputError(f"README.md {OUTSIDE}")

    def __iter__(self) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
        batches = iter(self.dataset.iter(BATCH_ROWS))
        while True:
            try:
                batch = self._call(lambda: next(batches, None))
            except Exception as error:  # many libraries raise errors, without a common base
                raise self._fault(error) from error
            if batch is None:
                return
            checkpoint = {"commit": self.commit, "files": self.files, "state": self.dataset.state_dict()}
            yield batch if self.has_documents else self._as_documents(batch), checkpoint

    def _call(self, function: Callable[[], Value]) -> Value:
        """Call a function that sends requests to the hub, with time limits. A local folder needs no limits."""
        with without_reference():
            if self.folder:
                return function()
            with usable_proxies():
                return limited(function)

    def _fault(self, error: Exception) -> Exception:
        """Return the error to raise in place of an error of the library `datasets`."""
        inner = within(error, CurationError)
        if inner is not None:
            return InputError(f"{self.label}: {inner}")
        if is_shortage(error):
            return error
        if fault := local_fault(error):
            cache = "" if self.folder else ". HF_HOME sets the folder of this cache"
            return InputError(f"{self.label}: {fault}{cache}")
        if self.dataset is not None and is_broken_connection(error):
            return ConnectionError(on_one_line(error))
        return InputError(message_of(error, self.entry, self.label, is_folder=bool(self.folder), file=self._file()))

    def _file(self) -> str:
        """Return the name of the file that `datasets` reads now; "" if it is not known."""
        files: dict[str, list[str]] = (self.builder and self.builder.config.data_files) or {}
        state: dict[str, Any] = {}
        if self.dataset is None:
            listed = next(iter(files.values()), [])[:1]  # only the first file is read to open a data set
        else:
            state, listed = self.dataset.state_dict() or {}, files.get(self.entry.split, [])
        while "examples_iterable" in state:
            state = state["examples_iterable"]
        number = state.get("shard_idx", 0) if len(listed) > 1 else 0
        file = listed[number] if number < len(listed) else ""
        return re.sub("^hf://[^@]*@[^/]*/", "", file.removeprefix(f"{self.folder}/"))

    def _as_documents(self, batch: pa.Table) -> pa.Table:
        names = batch.column_names
        text = self.entry.text_column or next((name for name in TEXT_COLUMNS if name in names), "")
        wanted = [text or " or ".join(TEXT_COLUMNS), *self.entry.carried.values()]
        for name in wanted:
            if name not in names:
                option = "text_column" if name == wanted[0] else "columns"
                raise InputError(f"{self.label} has no column {name}; it has {shown_names(names)}. Set {option}")
        kind = batch.column(text).type
        if not (is_text(kind) or is_bytes(kind) or pa.types.is_null(kind)):
            raise InputError(f"column {text!r} of {self.label} is {kind}, expected strings. Set text_column")
        columns = {ID: self._ids(batch), TEXT: as_strings(batch.column(text))}
        for name, field in self.entry.carried.items():
            try:
                columns[name] = as_strings(batch.column(field))
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                kind = batch.column(field).type
                raise InputError(f"column {field!r} of {self.label} is {kind}, which has no text form") from None
        return pa.table(columns)

    def _ids(self, batch: pa.Table) -> pa.ChunkedArray | pa.Array:
        name = self.entry.id_column
        if name not in batch.column_names:
            return pa.nulls(batch.num_rows, pa.large_string())
        column = batch.column(name)
        if not any(check(column.type) for check in (is_text, is_bytes, pa.types.is_integer, pa.types.is_null)):
            raise InputError(
                f"column {name!r} of {self.label} is {column.type}, expected strings or integers. Set id_column to "
                "another one, or to a name that is not there: ids are made then"
            )
        return as_strings(column)


def _checked(entry: HubInput, label: str) -> tuple[Any, str, str]:
    """Return the library, the folder of a local data set or "", and the name under which the library finds it.

    Raises InputError if the library is missing or too old, if settings are impossible, or if the name is not one of a
    data set. The library has readers with plain names, which are refused: before version 5.2, `pandas` loads pickles.
    """
    library, readers = _library(label)
    name = entry.path.removeprefix(HUB_MARK)
    refuse_reference(entry.data_files)
    if os.path.isdir(name):
        if entry.revision:
            raise InputError(f"{label}: revision is for data sets of the hub, not for a folder. Leave revision out")
        return library, os.path.abspath(name), os.path.abspath(name)
    if name in readers:
        raise InputError(
            f"{label}: {name} is a reader of the library datasets, no data set; some readers run code of files. Name a "
            f"data set as {HUB_MARK}ORG/NAME, a folder as {HUB_MARK}./{name}, and files without {HUB_MARK}"
        )
    if not NAME.fullmatch(name) or os.path.isfile(name):
        what = "is a file" if os.path.isfile(name) else "was not found: no folder has this name"
        raise InputError(
            f"{label} {what}. Expected {HUB_MARK}ORG/NAME, or {HUB_MARK}FOLDER; name files without {HUB_MARK}"
        )
    if entry.revision and _is_offline():
        raise InputError(
            f"{label}: HF_HUB_OFFLINE is set, and the copy in the cache can be another revision. Unset it, or leave "
            "revision out"
        )
    return library, "", name


def _library(label: str) -> tuple[Any, Any]:
    """Return the library `datasets` and the names of its readers."""
    check_endpoint(label)
    try:
        import datasets
        from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES
    except ImportError as error:
        raise InputError(f"{label} needs Hugging Face datasets ({error}); {INSTALL}") from None
    except ValueError as error:  # a variable such as HF_HUB_DOWNLOAD_TIMEOUT is wrong
        raise InputError(f"{label}: datasets refuses the environment ({error}). Correct variables HF_...") from None
    if _version(datasets) < OLDEST:
        raise InputError(f"{label}: datasets {datasets.__version__} can run scripts of a data set; {INSTALL}")
    print_once("datasets", "huggingface_hub")
    # This module raises one error in place of their messages
    logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)
    return datasets, _PACKAGED_DATASETS_MODULES


def _version(library: Any) -> tuple[int, ...]:
    return tuple(map(int, library.__version__.split(".")[:2]))


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@contextmanager
def without_reference() -> Iterator[None]:
    """Refuse `reference://` inside this context, as `refuse_reference` does, even if a README.md names it."""
    import fsspec

    class Refused(fsspec.AbstractFileSystem):  # type: ignore[misc]
        def __init__(self, *_: Any, **__: Any) -> None:
            raise InputError(REFUSED)

    before = fsspec.get_filesystem_class(REFERENCE)
    fsspec.register_implementation(REFERENCE, Refused, clobber=True)
    try:
        yield
    finally:
        fsspec.register_implementation(REFERENCE, before, clobber=True)
