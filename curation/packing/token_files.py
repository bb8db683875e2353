# SPDX-License-Identifier: Apache-2.0
"""Tokens of a run: raw ids and lengths per output part and split, from which pairs and all other forms are made by
copying. Nothing is tokenised twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from curation.arrays import write_array
from curation.errors import IntegrityError, RecipeError
from curation.files import begin_sync, commit_all, make_folder, piece_path
from curation.packing.forms.writing import write_forms
from curation.packing.megatron import PairInfo, TrainingPair, join_parts, remove_stale_cache
from curation.packing.ordering import assign_splits, seeded_order, split_names
from curation.packing.tokenization import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

    from curation.recipe import Recipe


class Written(NamedTuple):
    """What a run made of its tokens: Megatron pairs, and the manifests of the other forms."""

    pairs: list[TrainingPair]
    forms: dict[str, dict[str, Any]]


def token_paths(work: Path, number: int, split: str = "") -> tuple[Path, Path]:
    """(ids, lengths) of an output part."""
    dotted = f".{split}" if split else ""
    return piece_path(work, number, f"{dotted}.ids"), piece_path(work, number, f"{dotted}.lengths")


@contextmanager
def token_files(recipe: Recipe, work: Path, number: int) -> Iterator[TokenFiles]:
    """For writing the tokens of one output part; its files are there when the block has ended well."""
    splits = split_names(recipe.output.splits)
    paths = [path for split in splits for path in token_paths(work, number, split)]
    with commit_all(*paths) as temporaries, ExitStack() as stack:
        # Kept open: opened anew, a file that another run has swept away would go on without its beginning.
        files = [stack.enter_context(open(path, "wb")) for path in temporaries]
        yield TokenFiles(recipe, files)


class TokenFiles:
    """The open files of one output part; `token_files` makes one."""

    def __init__(self, recipe: Recipe, files: Sequence[BinaryIO]) -> None:
        self.shares, self.seed = recipe.output.splits, recipe.seed
        self.tokenizer = load_tokenizer(recipe.tokenizer)
        self.splits = split_names(self.shares)
        self.files = files  # ids and lengths of the first split, of the second, ...
        self.tokens = dict.fromkeys(self.splits, 0)
        self.special_hits = self.tokenised = self.tokenless = 0

    def write(self, text: pa.ChunkedArray) -> None:
        for chunk in text.chunks:
            packed = self.tokenizer.pack(chunk)
            self.special_hits += packed.special_hits
            self.tokenised += int(np.count_nonzero(packed.lengths))
            self.tokenless += _with_text(chunk, packed.lengths == 0)
            side = self._sides(chunk)
            for number, split in enumerate(self.splits):
                ids, lengths = packed.ids, packed.lengths
                if len(self.splits) > 1:
                    ids, lengths = ids[np.repeat(side == number, lengths)], lengths[side == number]
                for file, values in zip(self.files[2 * number :], (ids, lengths.astype("<i4")), strict=False):
                    write_array(file, values)
                    begin_sync(file.fileno())
                self.tokens[split] += len(ids)

    def _sides(self, chunk: pa.Array) -> np.ndarray:
        import pyarrow as pa

        if len(self.splits) == 1:
            return np.zeros(len(chunk), np.uint8)
        return assign_splits(chunk.cast(pa.large_binary()).to_pylist(), self.shares, self.seed)

    def counts(self) -> dict[str, Any]:
        """For the part's record: tokens, documents that have any, documents with text that have none, special tokens
        spelled out, tokens per split, and which tokenizer it was."""
        return {
            "tokens": sum(self.tokens.values()),
            "tokenised": self.tokenised,
            "tokenless": self.tokenless,
            "special_hits": self.special_hits,
            "split_tokens": self.tokens,
            "tokenizer": self.tokenizer.identity,
        }


def _with_text(chunk: pa.Array, chosen: np.ndarray) -> int:
    """How many of the chosen documents have more than white space, which some tokenizers have no tokens for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not chosen.any():
        return 0
    lengths = pc.binary_length(pc.utf8_trim_whitespace(chunk.filter(pa.array(chosen))))
    return int(np.count_nonzero(lengths.to_numpy(zero_copy_only=False)))


def write_tokens(
    recipe: Recipe, work: Path, parts: Sequence[tuple[int, str]], records: Sequence[dict[str, Any]], folder: Path
) -> Written:
    """All that is made of the tokens of a run's parts, given as (number, source) with their done-records.

    IntegrityError where a part's tokens are not those that its record counts, or are of another tokenizer."""
    if not recipe.output.formats:
        return Written([], {})
    splits, tokenizer = split_names(recipe.output.splits), load_tokenizer(recipe.tokenizer)
    _check_parts(tokenizer, work, parts, records)
    _refuse_empty_splits(recipe, splits, records)
    pairs = []
    if "megatron" in recipe.output.formats:
        make_folder(folder / "tokens")
        sources = dict.fromkeys(source for _, source in parts)
        for source in sources:
            numbers = [number for number, name in parts if name == source]
            for split in splits:
                paths = [token_paths(work, number, split) for number in numbers]
                pairs += [TrainingPair(source, split, info) for info in _join(recipe, paths, source, split, folder)]
    by_split = {split: [token_paths(work, number, split) for number, _ in parts] for split in splits}
    seed = recipe.seed if recipe.output.shuffle else None
    return Written(pairs, write_forms(recipe.output, tokenizer, by_split, folder, seed))


def _join(
    recipe: Recipe, paths: Sequence[tuple[Path, Path]], source: str, split: str, folder: Path
) -> Iterable[PairInfo]:
    """`tokens/<source>[_<split>]_00000_text_document.bin/.idx`, ..."""
    order = None
    if recipe.output.shuffle:
        count = sum(int(np.count_nonzero(np.fromfile(lengths, "<i4"))) for _, lengths in paths)
        order = seeded_order(count, recipe.seed)
    stem = folder / "tokens" / (f"{source}_{split}" if split else source)
    dtype = load_tokenizer(recipe.tokenizer).dtype
    pairs = join_parts(paths, stem, dtype, recipe.output.max_file_bytes, order=order, force=True)
    for pair in pairs:
        remove_stale_cache(pair.prefix)
    return pairs


def _check_parts(
    tokenizer: Tokenizer, work: Path, parts: Sequence[tuple[int, str]], records: Sequence[dict[str, Any]]
) -> None:
    """A run is resumed where it was left: its tokenizer's file may be another one by then."""
    for (number, _), record in zip(parts, records, strict=False):  # where nothing was kept: a record without a part
        if record["tokenizer"] != tokenizer.identity:
            raise IntegrityError(
                f"part {number} was tokenised with another {tokenizer.name} than the one that is there now. Put the "
                "other one back, or begin anew with --force"
            )
        for split, tokens in record["split_tokens"].items():
            ids, _ = token_paths(work, number, split)
            if ids.stat().st_size != tokens * tokenizer.dtype.itemsize:
                raise IntegrityError(
                    f"{ids} has {ids.stat().st_size} bytes, its record counts {tokens} tokens of "
                    f"{tokenizer.dtype.itemsize} bytes. Something else wrote to it: begin anew with --force"
                )


def _refuse_empty_splits(recipe: Recipe, splits: Sequence[str], records: Sequence[dict[str, Any]]) -> None:
    """Training on a split without tokens never ends: Megatron looks for its samples for ever. A run that keeps nothing
    has no pairs to train on."""
    documents = sum(record["documents"] for record in records)
    for split in splits if len(splits) > 1 and documents else []:
        if not sum(record.get("split_tokens", {}).get(split, 0) for record in records):
            raise RecipeError(
                f"split {split} has a share of {recipe.output.splits[split]:g} and got no token out of {documents} "
                "documents; Megatron would wait for it for ever. Give it a larger share, or leave it out of "
                "output.splits"
            )
