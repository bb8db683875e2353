# SPDX-License-Identifier: Apache-2.0
"""`curation.tokenize`: a frame as Megatron pairs, by the code that writes the tokens of a run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from curation import __version__
from curation.base.contract import TEXT, Frame
from curation.base.engine import engine_of
from curation.base.errors import ArgumentError, OutputError, RecipeError
from curation.base.system.damage import reading
from curation.base.system.files import commit, local_output, make_folder, remove, temporary_folder
from curation.base.system.sealed import sealed, unsealed
from curation.frames.frames import HasColumns, as_stages_see, check_frame, of_partitions, row_batches
from curation.frames.functions import read
from curation.frames.tables import as_frame, framed, is_column, is_table, table_of
from curation.recipes.keywords import check_types, takes
from curation.recipes.recipe import Output, Recipe, as_builtins
from curation.tokens.joining import join_parts, stem_name
from curation.tokens.megatron import PairInfo
from curation.tokens.ordering import assign_splits, split_names
from curation.tokens.token_files import token_files, token_paths
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer

RECORD = "tokenize.json"
OWN = ("tokens", RECORD)  # what a call writes
NAME = "documents"  # name of the pairs; those of a run have the name of an input


@takes()
def tokenize(
    frame: HasColumns | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] = "gpt2",
    splits: Mapping[str, float] | None = None,
    append_eod: bool = True,
    prepend_bos: bool = False,
    text_column: str = "text",
    force: bool = False,
) -> list[PairInfo]:
    """Write the tokens of a frame or of files as Megatron pairs, and return the pairs.

    frame, text_column   as in `curation.apply`; or a file, a folder or a glob, which `curation.read` reads. Its text is
                         then, by default, the first of the columns text, content, body and others
    output               a folder that is new or empty, made if it is missing; or that of an earlier call: with equal
                         texts, settings, tokenizer and version, its pairs are returned, and nothing is written
    tokenizer            as `name` in the `tokenizer` of a recipe: a tiktoken encoding, a path, or `hub:ORG/NAME`;
                         default `gpt2`
    splits               shares of `train`, `valid` and `test`, such as {"train": 0.9, "valid": 0.1}: a hash of the text
                         chooses the split of a document, as in a run. None (default): no splits
    append_eod           put the end-of-document token after every document that has tokens, default True
    prepend_bos          put the begin-of-sequence token before every document that has tokens, default False
    force                True: replace the pairs of an earlier call in `output`; default False

    Files: `output/tokens/documents_00000_text_document.bin` and `.idx`, and a further pair after each 10 GB. The `.bin`
    has the ids of all rows back to back, in their order: uint16 for a vocabulary below 65,500, else int32,
    little-endian. The `.idx` has for each document its length in tokens and the position of its first byte. Both equal,
    byte for byte, the files of a run without stages over these texts, with this tokenizer. With splits, the pairs of
    each split are `documents_train_00000_text_document` and so on. A row without tokens is counted in `empty_documents`
    and not written; a frame without any token gives no pair. Each pair has `prefix`, `documents`, `empty_documents`,
    `tokens`, `bytes`, `dtype`, `sha256_bin` and `sha256_idx`.

    `output/tokenize.json` has a hash of the texts and the settings. A repeated call reads and hashes the texts again to
    find whether they are the same. If they are divided into other partitions, they count as different texts.

    A Dask frame is computed once, partition by partition. Its workers write to `output`, so those on other machines
    need a shared folder.

        >>> import curation, pandas
        >>> [pair] = curation.tokenize(pandas.DataFrame({"text": ["one two", ""]}), "tokenized")
        >>> pair.prefix, pair.documents, pair.empty_documents, pair.tokens, pair.dtype
        ('tokenized/tokens/documents_00000_text_document', 1, 1, 3, 'uint16')
        >>> curation.IndexedReader(pair.prefix)[0].tolist()
        [505, 734, 50256]
        >>> pairs = curation.tokenize("data/*.jsonl", "split", splits={"train": 0.5, "valid": 0.5})
        >>> sum(pair.documents for pair in pairs)
        6

    Raises OutputError for a folder with other files or other pairs, TokenizerError or RecipeError for a wrong tokenizer
    or wrong splits, and the errors of `curation.apply` for a wrong frame, or of `curation.read` for wrong files.
    """
    settings = {"tokenizer": (tokenizer, str), "append_eod": (append_eod, bool), "prepend_bos": (prepend_bos, bool)}
    settings["force"] = force, bool
    if not isinstance(splits, Mapping | None):
        raise ArgumentError(f'splits must be shares by name, such as {{"train": 0.9, "valid": 0.1}}, not {splits!r}')
    check_types("tokenize", {**settings, "output": (output, str), "text_column": (text_column, str)})
    spec = TokenizerSpec(name=os.fspath(tokenizer), append_eod=append_eod, prepend_bos=prepend_bos)
    try:
        recipe = Recipe(tokenizer=spec, output=Output(splits=dict(splits or {})))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"tokenize: {error}") from None
    seen: Any = frame
    if isinstance(frame, str | os.PathLike):
        seen, text_column = read(frame, text_column="" if text_column == TEXT else text_column), TEXT
    seen = framed(seen, text_column) if is_column(seen) else seen
    seen = as_frame(table_of(seen)) if is_table(seen) else seen
    check_frame(seen, text_column)
    loaded, folder = load_tokenizer(spec), _own_folder(output)
    facts = {"version": __version__, "settings": as_builtins(recipe), "tokenizer": loaded.identity}
    done = _read_record(folder)
    if done and not force:
        texts = of_partitions(seen[[text_column]], _hash_part, text_column)
        if facts | {"texts": texts} == done.facts and _are_complete(folder, done.pairs):
            return [replace(pair, prefix=str(folder / pair.prefix)) for pair in done.pairs]
        raise OutputError(
            f"{folder} has tokens of other texts, settings or another tokenizer, or its pairs have changed. Give a new "
            "folder as output, or force=True, which replaces them"
        )
    if done:
        _write_record(folder, _Record({}, done.pairs))  # no call has empty facts, so none reuses these pairs
        for pair in done.pairs:
            for suffix in (".bin", ".idx"):
                remove(folder / f"{pair.prefix}{suffix}")
    with temporary_folder(folder / NAME) as work:
        parts, hashes = zip(*of_partitions(seen[[text_column]], _write_part, recipe, text_column, work), strict=True)
        pairs = [
            pair
            for number, split in enumerate(split_names(recipe.output.splits))
            for stem in [folder / "tokens" / stem_name(NAME, split, recipe.output.megatron.names, 1)]
            for pair in join_parts([part[number] for part in parts], stem, loaded.dtype, recipe.output.max_file_bytes)
        ]
    relative = [replace(pair, prefix=os.path.relpath(pair.prefix, folder)) for pair in pairs]
    _write_record(folder, _Record(facts | {"texts": [*hashes]}, relative))
    return pairs


class _Record(msgspec.Struct):
    """The facts that a later call must share to reuse the pairs, and the pairs, whose prefixes are relative to the
    folder."""

    facts: dict[str, Any]
    pairs: list[PairInfo]


def _own_folder(output: str | os.PathLike[str]) -> Path:
    """Return the folder of the pairs. Raises OutputError if it has files that no known call of `tokenize` has
    written."""
    folder = local_output(output)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file, expected a folder. Give another output")
    make_folder(folder)
    names = sorted(entry.name for entry in folder.iterdir())
    foreign = [name for name in names if name not in OWN] if (folder / RECORD).is_file() else names
    if foreign:
        raise OutputError(f"{folder} is not empty (it has {', '.join(foreign[:5])}). Give a new folder as output")
    return folder


def _write_record(folder: Path, record: _Record) -> None:
    with commit(folder / RECORD) as path:
        path.write_bytes(sealed(msgspec.json.encode(record)))


def _read_record(folder: Path) -> _Record | None:
    path = folder / RECORD
    if not path.exists():
        return None
    with reading(path):
        return msgspec.json.decode(unsealed(path.read_bytes()), type=_Record)


def _are_complete(folder: Path, pairs: Sequence[PairInfo]) -> bool:
    """Return whether the files of the pairs have the right sizes. Digests are not compared, so that the call returns
    soon."""
    files = {folder / f"{pair.prefix}.bin": pair.bytes for pair in pairs}
    return all(path.is_file() and path.stat().st_size == size for path, size in files.items())


def _hash_part(frame: Frame, text_column: str) -> str:
    """Return the SHA-256 of the hashes of the texts of one partition, in their order."""
    engine, seen, digest = engine_of(frame), as_stages_see(frame, text_column), hashlib.sha256()
    for rows in row_batches(engine, seen):
        digest.update(engine.hash_text(seen.iloc[rows][TEXT]).tobytes())
    return digest.hexdigest()


def _write_part(frame: Frame, recipe: Recipe, text_column: str, work: Path) -> tuple[list[tuple[Path, Path]], str]:
    """Write the token files of one partition. Return the paths of these files by split, and the hash of the texts."""
    engine, seen, shares = engine_of(frame), as_stages_see(frame, text_column), recipe.output.splits
    own = Path(mkdtemp(dir=work))  # a folder of this attempt only, because a cluster may run a task twice
    with token_files(recipe, engine, own, 0) as files:
        for rows in row_batches(engine, seen):
            batch = seen.iloc[rows]
            texts = pc.fill_null(engine.to_arrow(batch).column(TEXT), "")
            data = texts.cast(pa.large_binary()).to_pylist() if shares else []
            splits = assign_splits(data, shares, recipe.seed) if shares else None
            files.write(texts, splits, batch[TEXT])
    return [token_paths(own, 0, split) for split in split_names(shares)], _hash_part(frame, text_column)
