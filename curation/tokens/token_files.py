# SPDX-License-Identifier: Apache-2.0
"""Token files of a run: raw ids and lengths per output part and split.

Pairs and all other forms are copied from these files, so no text is tokenised twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from curation.base.arrays import as_large_strings, write_array
from curation.base.contract import TEXT
from curation.base.errors import IntegrityError, RecipeError
from curation.base.system.files import begin_sync, commit_all, numbered_path
from curation.tokens.document_rows import places_in_parts, places_in_shards, write_rows
from curation.tokens.forms.writing import write_forms
from curation.tokens.joining import PlannedPair, delete_pairs, join_parts, plan_pairs, stem_name
from curation.tokens.megatron import PairInfo, TrainingPair, remove_stale_cache
from curation.tokens.ordering import seeded_order, split_names
from curation.tokens.tokenization import CHECK_EVERY, Tokenizer, load_tokenizer
from curation.tokens.tokenizer_notes import FIRST_DOCUMENTS, Losses

if TYPE_CHECKING:
    import pyarrow as pa

    from curation.base.contract import Engine, Text
    from curation.recipes.recipe import Recipe

Encoded = tuple[np.ndarray, np.ndarray]  # ids of all documents, concatenated, and int32 lengths
SHARES = 100  # bins of tokens per byte, as in `curation.rules.tallies`


class Written(NamedTuple):
    """The token outputs of a run: the Megatron pairs, and the manifests of the other forms by name."""

    pairs: list[TrainingPair]
    forms: dict[str, dict[str, Any]]


def token_paths(work: Path, number: int, split: str = "") -> tuple[Path, Path]:
    """Return the paths (ids, lengths) of an output part. `split`: "" in a run without splits."""
    dotted = f".{split}" if split else ""
    return numbered_path(work, number, f"{dotted}.ids"), numbered_path(work, number, f"{dotted}.lengths")


@contextmanager
def token_files(recipe: Recipe, engine: Engine, work: Path, number: int) -> Iterator[TokenFiles]:
    """Yield the open token files of one output part, which `engine` encodes.

    The files get their final names when the block ends without an error.
    """
    splits = split_names(recipe.output.splits)
    paths = [path for split in splits for path in token_paths(work, number, split)]
    with commit_all(*paths) as temporaries, ExitStack() as stack:
        # Kept open: if another run deletes the file and this one reopens it, the beginning would be missing.
        files = [stack.enter_context(open(path, "wb")) for path in temporaries]
        yield TokenFiles(recipe, engine, files)


class TokenFiles:
    """Open token files of one output part, made by `token_files`."""

    def __init__(self, recipe: Recipe, engine: Engine, files: Sequence[BinaryIO]) -> None:
        self.engine = engine
        self.tokenizer = load_tokenizer(recipe.tokenizer)
        self.splits = split_names(recipe.output.splits)
        self.files = files  # ids and lengths of the first split, of the second, ...
        self.tokens = dict.fromkeys(self.splits, 0)
        self.shares_counted = np.zeros(SHARES + 1, np.int64)
        self.special_hits = self.tokenised = self.tokenless = self.seen = 0
        self.losses = Losses()

    def write(
        self, text: pa.ChunkedArray, splits: np.ndarray | None = None, column: Text | None = None,
        encoded: Encoded | None = None,
    ) -> list[tuple[int, str]]:  # fmt: skip
        """Tokenise documents and append their ids and lengths (int32) to the files of their splits.

        Return (position, special token) of the documents that get no tokens: see `Tokenizer.special_piece`.

        splits   the number of the split of each document, as `assign_splits` returns it; None in a run without splits
        column   the same texts in a frame of the engine; None: the texts are not in a frame yet
        encoded  what `encode` returned for the texts; None: they are not tokenised yet
        """
        done, rejected = 0, []
        for chunk in map(as_large_strings, text.chunks if column is None and encoded is None else [text]):
            all_ids, all_lengths = encoded or encode(self.engine, self.tokenizer, chunk, column)
            self.shares_counted += count_shares(chunk, all_lengths)
            self.special_hits += self.tokenizer.count_specials(chunk)
            self.losses.add_documents(self.tokenizer, chunk, all_ids, all_lengths, self._compared_rows(len(chunk)))
            self.tokenised += int(np.count_nonzero(all_lengths))
            without = _with_text(chunk, all_lengths == 0)
            pieces = [(done + row, self.tokenizer.special_piece(chunk[row].as_py())) for row in without.tolist()]
            rejected += [(row, piece) for row, piece in pieces if piece]
            self.tokenless += sum(not piece for _, piece in pieces)
            numbers = np.zeros(0, np.uint8) if splits is None else splits[done : done + len(chunk)]
            done += len(chunk)
            for number, split in enumerate(self.splits):
                ids, lengths = all_ids, all_lengths
                if len(self.splits) > 1:
                    ids, lengths = ids[np.repeat(numbers == number, lengths)], lengths[numbers == number]
                for file, values in zip(self.files[2 * number :], (ids, lengths.astype("<i4")), strict=False):
                    write_array(file, values)
                    begin_sync(file.fileno())
                self.tokens[split] += len(ids)
        return rejected

    def _compared_rows(self, count: int) -> Iterable[int]:
        """Return which of the next documents to decode. The choice depends only on their positions in the part."""
        rows = [row for row in range(count) if self.seen + row < FIRST_DOCUMENTS]
        rows += range(-self.seen % CHECK_EVERY, count, CHECK_EVERY)
        self.seen += count
        return sorted({*rows})

    def counts(self) -> dict[str, Any]:
        """Return the counts for the part's record.

        tokens        tokens written
        tokenised     documents with tokens
        tokenless     documents with text but without tokens
        special_hits  occurrences of special tokens spelled out in texts
        losses        `Losses` of the documents that were decoded
        per_byte      documents by tokens per byte, in bins of width 1 / SHARES from 0 to 1
        split_tokens  tokens of each split
        tokenizer     `Tokenizer.identity`
        """
        return {
            "tokens": sum(self.tokens.values()),
            "tokenised": self.tokenised,
            "tokenless": self.tokenless,
            "special_hits": self.special_hits,
            "losses": msgspec.to_builtins(self.losses),
            "per_byte": self.shares_counted.tolist(),
            "split_tokens": self.tokens,
            "tokenizer": self.tokenizer.identity,
        }


def encode(
    engine: Engine, tokenizer: Tokenizer, text: pa.Array | pa.ChunkedArray, column: Text | None = None
) -> Encoded:
    """Return the ids of all texts, concatenated, and their lengths, as `Engine.tokenize` does. `column` has the same
    texts in a frame of the engine."""
    import pyarrow as pa

    texts = engine.from_arrow(pa.table({TEXT: text}))[TEXT] if column is None else column
    return engine.tokenize(texts, tokenizer)


def encode_together(engine: Engine, tokenizer: Tokenizer, texts: Sequence[pa.ChunkedArray]) -> Iterator[Encoded]:
    """Yield what `encode` returns for each column of texts, from one call of the engine."""
    import pyarrow as pa

    chunks = [as_large_strings(text) for text in texts]  # which refuses nulls
    ids, lengths = encode(engine, tokenizer, pa.chunked_array(chunks, pa.large_string()))
    row = token = 0
    for chunk in chunks:
        own = lengths[row : row + len(chunk)]
        count = int(own.sum())
        yield ids[token : token + count], own
        row, token = row + len(chunk), token + count


def count_shares(text: pa.Array, lengths: np.ndarray) -> np.ndarray:
    """Return a histogram of documents by tokens per byte, in bins of width 1 / SHARES: int64."""
    import pyarrow.compute as pc

    sizes = np.maximum(pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False), 1)
    bins = np.minimum(lengths.astype(np.int64) * SHARES // sizes, SHARES)
    return np.bincount(bins, minlength=SHARES + 1)


def _with_text(chunk: pa.Array, chosen: np.ndarray) -> np.ndarray:
    """Return which of the chosen documents have more than white space. Some tokenizers give no tokens for white
    space."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = np.flatnonzero(chosen)
    lengths = pc.binary_length(pc.utf8_trim_whitespace(chunk.take(pa.array(rows))))
    return rows[lengths.fill_null(0).to_numpy(zero_copy_only=False) > 0]


Parts = Sequence[tuple[int, str]]  # number and input of each output part


def check_tokens(recipe: Recipe, work: Path, parts: Parts, records: Sequence[dict[str, Any]]) -> None:
    """Check the token files of a run before they are joined. `records` has the record of each finished part.

    IntegrityError: a part's token files contradict its record, or another tokenizer wrote them. RecipeError: a split
    without tokens.
    """
    _check_token_parts(load_tokenizer(recipe.tokenizer), work, parts, records)
    _refuse_empty_splits(recipe, split_names(recipe.output.splits), records)


class Joined(NamedTuple):
    """The pairs of an input and a split: a list of planned pairs, or None if they have a seeded order. `parts` has the
    numbers of the input's output parts."""

    source: str
    split: str
    pairs: list[PlannedPair] | None
    parts: list[int]


def plan_tokens(recipe: Recipe, work: Path, parts: Parts, folder: Path) -> Iterator[Joined]:
    """Yield the Megatron pairs to write, by input and split."""
    dtype, size = load_tokenizer(recipe.tokenizer).dtype, recipe.output.max_file_bytes
    by_source: dict[str, list[int]] = {}
    for number, source in parts if "megatron" in recipe.output.formats else ():
        by_source.setdefault(source, []).append(number)
    for source, numbers in by_source.items():
        for split in split_names(recipe.output.splits):
            stem, files = _stem(recipe, folder, source, split), _files(work, numbers, split)
            yield Joined(
                source, split, None if recipe.output.shuffle else plan_pairs(files, stem, dtype, size), numbers
            )


def remove_other_pairs(recipe: Recipe, folder: Path, source: str, split: str, count: int) -> None:
    """Delete the pairs of an input and a split from number `count` on."""
    delete_pairs(_stem(recipe, folder, source, split), count)


def _stem(recipe: Recipe, folder: Path, source: str, split: str) -> Path:
    """Return the stem of pairs, `tokens/<source>[_<split>]`, without `_00000_text_document`."""
    return folder / "tokens" / stem_name(source, split, recipe.output.megatron.names, len(recipe.input))


def _files(work: Path, parts: Iterable[int], split: str) -> list[tuple[Path, Path]]:
    return [token_paths(work, number, split) for number in parts]


def write_shuffled(
    recipe: Recipe,
    work: Path,
    parts: Sequence[int],
    source: str,
    split: str,
    folder: Path,
    all_parts: Parts,
    shards: Sequence[tuple[int, int]],
) -> tuple[list[PairInfo], dict[str, str]]:
    """Write the pairs of a split of an input in the seeded order, and their rows of `documents/`. Return the pairs, and
    path -> SHA-256 of the rows.

    parts      numbers of the input's output parts
    all_parts  the output parts of all inputs
    shards     number and first document of each file of `documents/` that has the split; empty if `documents/` is not
               shuffled
    """
    files = _files(work, parts, split)
    count = sum(int(np.count_nonzero(np.fromfile(lengths, "<i4"))) for _, lengths in files)
    order, dtype = seeded_order(count, recipe.seed), load_tokenizer(recipe.tokenizer).dtype
    stem = _stem(recipe, folder, source, split)
    pairs = join_parts(files, stem, dtype, recipe.output.max_file_bytes, order=order, force=True)
    for pair in pairs:
        remove_stale_cache(pair.prefix)
    if not recipe.output.documents:
        return pairs, {}
    if shards:
        lengths = [(number, token_paths(work, number, split)[1]) for number, _ in all_parts]
        places = places_in_shards(lengths, parts, shards, recipe.seed)
    else:
        lengths = [(number, path) for number, (_, path) in zip(parts, files, strict=True)]
        places = places_in_parts(lengths, split, folder)
    return pairs, write_rows(pairs, order, places, folder)


def write_form_of(recipe: Recipe, work: Path, parts: Parts, folder: Path, name: str) -> None:
    """Write one of the other forms of a run, with its manifest."""
    numbers = [number for number, _ in parts]
    by_split = {split: _files(work, numbers, split) for split in split_names(recipe.output.splits)}
    seed = recipe.seed if recipe.output.shuffle else None
    write_forms(recipe.output, load_tokenizer(recipe.tokenizer), by_split, folder, seed, only=name)


def _check_token_parts(
    tokenizer: Tokenizer, work: Path, parts: Sequence[tuple[int, str]], records: Sequence[dict[str, Any]]
) -> None:
    """Check token files against records. In a resumed run, the file of the tokenizer may have changed."""
    for (number, _), record in zip(parts, records, strict=False):  # a run that kept nothing has a record without a part
        if record["tokenizer"] != tokenizer.identity:
            raise IntegrityError(
                f"part {number} was tokenised with another {tokenizer.name}: its files have changed since. Restore the "
                "files, or start again with --force"
            )
        for split, tokens in record["split_tokens"].items():
            ids, _ = token_paths(work, number, split)
            if ids.stat().st_size != tokens * tokenizer.dtype.itemsize:
                raise IntegrityError(
                    f"{ids} has {ids.stat().st_size} bytes, its record counts {tokens} tokens of "
                    f"{tokenizer.dtype.itemsize} bytes. Another process wrote to it: start again with --force"
                )


def _refuse_empty_splits(recipe: Recipe, splits: Sequence[str], records: Sequence[dict[str, Any]]) -> None:
    """Raise RecipeError for a split without tokens: Megatron would search samples in it forever.

    A run that keeps nothing has no pairs, so it passes.
    """
    documents = sum(record["documents"] for record in records)
    for split in splits if len(splits) > 1 and documents else []:
        if not sum(record.get("split_tokens", {}).get(split, 0) for record in records):
            raise RecipeError(
                f"split {split} has a share of {recipe.output.splits[split]:g} and got no token out of {documents} "
                "documents: Megatron would wait forever. Give it a larger share, or leave it out of "
                "output.splits"
            )
