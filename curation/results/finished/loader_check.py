# SPDX-License-Identifier: Apache-2.0
"""Reads the token forms of a finished run through their loaders, as training does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from curation.base.errors import InputError, IntegrityError
from curation.base.system.damage import damaged
from curation.tokens.blends import META
from curation.tokens.forms import FORMS, MEGATRON, Form, TokenShards
from curation.tokens.forms.chunks import pad
from curation.tokens.forms.samples import SampleForm
from curation.tokens.forms.shards import MANIFEST, has_torch
from curation.tokens.forms.shards import log as opening
from curation.tokens.forms.stored import open_form, read_manifest
from curation.tokens.forms.writing import shards
from curation.tokens.indexed import IndexedReader, check_ids, check_pair
from curation.tokens.megatron import suffixed
from curation.tokens.repack import read_manifest as read_pairs

IDS, TRAIN = "input_ids", "train"


class LoadedForm(NamedTuple):
    """The result of loading a form: the split, its numbers of samples and batches, and the shapes of its first
    batches."""

    form: str
    split: str
    samples: int
    batches: int
    shapes: list[tuple[int, ...]]


def check_loader(
    folder: str | Path, *, batches: int = 3, batch_size: int = 8, length: int = 1024,
    say: Callable[[str], object] = lambda line: None,
) -> list[LoadedForm]:  # fmt: skip
    """Read the first batches of each form and split of a run, and check their shapes and ids. `.bin/.idx` pairs are
    checked completely, as `merge` does.

    folder      folder of a finished run, or of one of its forms
    batches     number of batches to read of each form. Default: 3
    batch_size  samples of a batch. Default: 8
    length      tokens of a sample of `token_shards` and `megatron`. Default: 1024
    say         function that gets each line of progress

    With PyTorch, the data sets of `curation.training` and their `Loader` read all forms but `mds` and `litdata`.
    Without it, and for these two, NumPy reads the samples in the order of the files. Raises InputError for a folder
    without a form; IntegrityError for a form that cannot be read, or ids that the vocabulary lacks; OutputError for
    `.pt` files without PyTorch.
    """
    for name, value in (("batches", batches), ("batch_size", batch_size), ("length", length)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}")
    forms = [*_forms_of(Path(folder))]
    if not forms:
        raise InputError(f"{folder} has no token form to load. Give the folder of a finished run that wrote tokens")
    found = []
    for name, path, vocabulary, splits in forms:
        for split in splits:
            say(f"{name}, {split}")
            try:
                with _loading_said(say):
                    found.append(_load(name, path, split, vocabulary, (batches, batch_size, length), say))
            except InputError as error:  # a file that the manifest names is missing, or the form is too small
                raise IntegrityError(str(error)) from None
    return found


def _forms_of(folder: Path) -> Iterator[tuple[str, Path, int, list[str]]]:
    """Yield (form, its folder, vocabulary, splits) of a run, or of the folder of one form."""
    for path in (folder, *(folder / name for name in FORMS)):
        if manifest := read_manifest(path):
            yield manifest["form"], path, manifest["vocabulary"], [*manifest["splits"]]
    if manifest := read_pairs(folder / META):
        _check_pairs(folder, manifest)
        splits = dict.fromkeys(pair.get("split", TRAIN) for pair in manifest["pairs"])
        yield MEGATRON, folder, manifest["tokens"]["vocabulary"], [*splits]


def _check_pairs(folder: Path, manifest: dict[str, Any]) -> None:
    """Check every pair completely, since loaders only see the ids of the first batches, and not all fields of the
    index."""
    named = {pair["prefix"] for pair in manifest["pairs"]}
    present = {path.stem for path in (folder / META).parent.glob("*.idx")}
    if foreign := sorted(present - named):
        raise damaged(folder / META / MANIFEST, f"it does not name the pair {foreign[0]}")
    for name in sorted(named):
        check_pair((folder / META).parent / name, manifest["tokens"]["vocabulary"])


def _load(
    name: str, path: Path, split: str, vocabulary: int, sizes: tuple[int, int, int], say: Callable[[str], object]
) -> LoadedForm:
    batches, batch_size, length = sizes
    through_torch = has_torch() and not issubclass(FORMS.get(name, Form), SampleForm)
    samples, loaded = (_through_torch if through_torch else _through_numpy)(name, path, split, batch_size, length)
    if not samples:
        raise InputError(f"{path}, {split} has no sample of {length} tokens. Give a smaller length")
    shapes = []
    for number, batch in enumerate(islice(loaded, batches)):
        ids = np.asarray(batch[IDS] if isinstance(batch, dict) else batch)
        if not ((ids >= 0) & (ids < vocabulary)).all():
            for file, _, open_rows in _stored(name, path, split, length):
                for row in open_rows():
                    check_ids(file, row, vocabulary)
            raise damaged(path / MANIFEST, f"split {split} is padded with an id outside of the vocabulary")
        shapes.append(ids.shape)
        shape = f"torch.Size({[*ids.shape]})" if through_torch else str(ids.shape)
        say(f"Batch {number} shape: {shape}")
    return LoadedForm(name, split, samples, -(-samples // batch_size), shapes)


def _through_torch(name: str, path: Path, split: str, batch_size: int, length: int) -> tuple[int, Iterator[Any]]:
    from curation import training

    datasets: dict[str, Callable[[], Any]] = {
        "blocks": lambda: training.BlockDataset(path, split),
        "chunks": lambda: training.ChunkDataset(path, split),
        "packed": lambda: training.PackedDataset(path, split),
        "token_shards": lambda: training.TokenDataset(path, length, split),
        MEGATRON: lambda: training.MegatronDataset(_prefixes(path, split), length),
    }
    loader = training.Loader(datasets[name](), batch_size)
    return loader.total, iter(loader)


def _through_numpy(name: str, path: Path, split: str, batch_size: int, length: int) -> tuple[int, Iterator[Any]]:
    stored = [*_stored(name, path, split, length)]
    rows = (row for *_, open_rows in stored for row in open_rows())

    def batches() -> Iterator[np.ndarray]:
        while chosen := [*islice(rows, batch_size)]:
            yield pad(chosen, 0)[IDS]

    return sum(count for _, count, _ in stored), batches()


def _stored(
    name: str, path: Path, split: str, length: int
) -> Iterator[tuple[Path, int, Callable[[], Iterable[np.ndarray]]]]:
    """Yield each file of a form and split, the number of its samples, and a function that opens these samples."""
    if name == MEGATRON:
        for prefix in _prefixes(path, split):
            tokens = IndexedReader(prefix).tokens
            yield suffixed(prefix, ".bin"), len(tokens) // length, partial(_windows, tokens, length)
        return
    manifest, content = open_form(path, name, split)
    form, dtype = msgspec.convert(manifest["settings"], FORMS[name]), np.dtype(manifest["dtype"]).newbyteorder("<")
    for file, count in shards(FORMS[name], content).items():
        if isinstance(form, TokenShards):
            yield path / file, count // length, partial(_windows_of_file, form, path / file, dtype, count, length)
        else:
            yield path / file, count, partial(form.open_shard, path / file, dtype, count)


def _windows_of_file(form: TokenShards, path: Path, dtype: np.dtype, count: int, length: int) -> Iterable[np.ndarray]:
    return _windows(form.open_ids(path, dtype, count), length)


def _windows(tokens: np.ndarray, length: int) -> Iterable[np.ndarray]:
    whole = len(tokens) // length
    return tokens[: whole * length].reshape(whole, length)


def _prefixes(path: Path, split: str) -> list[Path]:
    pairs = read_pairs(path / META)["pairs"]
    return [(path / META).parent / pair["prefix"] for pair in pairs if pair.get("split", TRAIN) == split]


class _Said(logging.Handler):
    """A log handler that passes messages to a function."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__()
        self.say = say

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())


@contextmanager
def _loading_said(say: Callable[[str], object]) -> Iterator[None]:
    """Pass the log messages of the functions that open shards to `say`."""
    handler, level, propagates = _Said(say), opening.level, opening.propagate
    opening.addHandler(handler)
    opening.setLevel(logging.INFO)
    opening.propagate = False
    try:
        yield
    finally:
        opening.removeHandler(handler)
        opening.setLevel(level)
        opening.propagate = propagates
