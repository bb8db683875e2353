# SPDX-License-Identifier: Apache-2.0
"""`token_shards`: token ids of all documents back to back, without an index, or with one that a reader wants.

raw        `.bin`: ids
datatrove  `.ds`: ids. `.ds.index`: where each document ends, in tokens of the file, uint64; the file's end is the
           last. `datatrove.utils.dataset` reads both, and nanotron through it
nanogpt    `.bin`: 256 int32, then ids. The int32 are a magic number, the version 1, the number of ids, zeros. For
           uint16 the magic number is 20240520, which llm.c, modded-nanogpt and AutoModel read; for uint32 278895051 and
           after the number the bytes of an id, 4, which AutoModel reads. `.bos.idx`: where each document begins, in
           tokens of the file, int32

Sources of `nanogpt`: `llmc/dataloader.h` of llm.c at 077f9bd, `train_gpt.py` of modded-nanogpt at 0016a3c, and
`nanogpt_dataset.py` of nemo-automodel 0.7.0. Its description has bytes as the unit of `.bos.idx`, its reader tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from curation.base.errors import TokenizerError
from curation.base.system.damage import damaged, reading
from curation.base.system.files import commit, commit_all
from curation.base.system.steps import each
from curation.tokens.forms import base
from curation.tokens.forms.base import Count, Form
from curation.tokens.forms.documents import BoundedStream, TokenizedDocuments, TokenStream
from curation.tokens.forms.shards import WRITE_TOKENS, check_counts, entry, open_array, open_ids

if TYPE_CHECKING:
    from curation.tokens.tokenization import Tokenizer

DTYPES = ("auto", "uint16", "uint32")
UINT16_IDS = 2**16
WINDOW = 1024  # tokens shown at once


class Layout(NamedTuple):
    """Suffixes of a shard and of its index, "" for none; the dtype of the index, and what is the bound of a document in
    it: ends or starts."""

    suffix: str
    index_suffix: str = ""
    index_dtype: str = ""
    bounds: str = ""


NANOGPT = "nanogpt"
LAYOUTS = {
    "raw": Layout(".bin"),
    "datatrove": Layout(".ds", ".ds.index", "<u8", "ends"),
    NANOGPT: Layout(".bin", ".bos.idx", "<i4", "starts"),
}
HEADER = np.dtype(("<i4", 256))
MAGIC_OF_UINT16, MAGIC_OF_UINT32, VERSION = 20240520, 278895051, 1
MAX_COUNT = (1 << 31) - 1


class ShardsSummary(base.SplitSummary, kw_only=True):
    """Fields of a split in `report.json`."""

    files: Count


class TokenShards(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`token_shards/<split>_NNNNN.bin`: little-endian ids, read by `np.memmap(path, np.uint16)`.

    shard_name    name of shards without suffix, as of `blocks`
    shard_tokens  tokens of a shard; the last shard of a split may have fewer. A document may span shards
    dtype         `uint16`, `uint32`, or `auto`: uint16 for a vocabulary of at most 65,536 entries, else uint32
    layout        `raw`: ids only. `datatrove`: the files are `.ds`, each with a `.ds.index` of the ends of documents,
                  for datatrove and nanotron. `nanogpt`: a header of 1,024 bytes before the ids, and a `.bos.idx` of
                  the starts of documents, for llm.c, modded-nanogpt and AutoModel

    TokenizerError: `uint16` for a larger vocabulary.
    """

    name, unit = "token_shards", "tokens"
    summary = ShardsSummary

    shard_tokens: int = 100_000_000
    dtype: str = "auto"
    layout: str = "raw"

    def __post_init__(self) -> None:
        check_counts(self, "shard_tokens")
        for field, known in (("dtype", DTYPES), ("layout", LAYOUTS)):
            if getattr(self, field) not in known:
                raise ValueError(f"{field} must be one of {', '.join(known)}, not {getattr(self, field)!r}")
        if self.layout == NANOGPT and self.shard_tokens > MAX_COUNT:
            raise ValueError(f"shard_tokens must be at most {MAX_COUNT} with layout: nanogpt, not {self.shard_tokens}")

    def file_dtype(self, tokenizer: Tokenizer) -> np.dtype:
        vocabulary = tokenizer.vocabulary
        if self.dtype == "uint16" and vocabulary > UINT16_IDS:
            raise TokenizerError(
                f"a vocabulary of {vocabulary} does not fit uint16, whose largest id is {UINT16_IDS - 1}. "
                "Set output.token_shards.dtype: uint32"
            )
        narrow = self.dtype == "uint16" or (self.dtype == "auto" and vocabulary <= UINT16_IDS)
        return np.dtype("<u2" if narrow else "<u4")

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
        layout = LAYOUTS[self.layout]
        stream = (BoundedStream if layout.index_suffix else TokenStream)(documents)
        files = []
        for number, first in enumerate(
            each(range(0, documents.tokens, self.shard_tokens), "writing token shards", "file")
        ):
            path = self.shard_path(folder, split, number, layout.suffix)
            tokens = min(self.shard_tokens, documents.tokens - first)
            if isinstance(stream, BoundedStream):
                self._write_indexed(path, stream, tokens, dtype)
            else:
                with commit(path) as temporary, open(temporary, "wb") as file:
                    for taken in _steps(tokens):
                        file.write(stream.take(taken).astype(dtype).data)
            files.append(entry(path, tokens=tokens))
            if layout.index_suffix:
                files.append(entry(path.with_suffix(layout.index_suffix)))
        return {"files": files, "documents": documents.count, "tokens": documents.tokens}

    def _write_indexed(self, path: Path, stream: BoundedStream, tokens: int, dtype: np.dtype) -> None:
        layout = LAYOUTS[self.layout]
        with (
            commit_all(path, path.with_suffix(layout.index_suffix)) as temporaries,
            open(temporaries[0], "wb") as file,
            open(temporaries[1], "wb") as index,
        ):
            file.write(self._header(tokens, dtype))
            if layout.bounds == "starts" and stream.begins:
                index.write(np.zeros(1, layout.index_dtype).data)
            position = 0
            for taken in _steps(tokens):
                ids, ends = stream.take_bounded(taken)
                file.write(ids.astype(dtype).data)
                inner = ends + position
                index.write(inner[inner < tokens].astype(layout.index_dtype).data)
                position += taken
            if layout.bounds == "ends":
                index.write(np.array([tokens], layout.index_dtype).data)

    def _header(self, tokens: int, dtype: np.dtype) -> bytes:
        """Return the bytes of a shard before its ids."""
        if self.layout != NANOGPT:
            return b""
        header = np.zeros((), HEADER)
        wide = (MAGIC_OF_UINT32, VERSION, tokens, dtype.itemsize)
        header[: len(wide)] = wide if dtype.itemsize > 2 else (MAGIC_OF_UINT16, VERSION, tokens, 0)
        return header.tobytes()

    def open_ids(self, path: Path, dtype: np.dtype, count: int) -> np.ndarray:
        """Return the `count` ids of a shard, memory-mapped. IntegrityError: a damaged file, index or another count."""
        header, layout = self._header(count, dtype), LAYOUTS[self.layout]
        if layout.index_suffix:
            _check_index(path.with_suffix(layout.index_suffix), layout, count)
        if not header:
            return open_ids(path, dtype, count)
        data = open_array(path, np.dtype(np.uint8))
        if bytes(data[: len(header)]) != header or len(data) - len(header) != count * dtype.itemsize:
            raise damaged(path, f"expected a header of {len(header):,} bytes for {count:,} ids, and these ids after it")
        return data[len(header) :].view(dtype)

    def open_shard(self, path: Path, dtype: np.dtype, count: int) -> Sequence[np.ndarray]:
        """Return the ids in windows of WINDOW tokens; the last one may have fewer."""
        ids = self.open_ids(path, dtype, count)
        return [ids[first : first + WINDOW] for first in range(0, len(ids), WINDOW)]

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"shards": sum(len(split.get("shards", ())) or split["files"] for split in splits)}


def _check_index(path: Path, layout: Layout, count: int) -> None:
    """Raise IntegrityError if the index of a shard of `count` tokens cannot be one."""
    with reading(path):
        bounds = np.fromfile(path, layout.index_dtype)
    rising = not (bounds[1:] <= bounds[:-1]).any()
    if layout.bounds == "ends" and not (rising and len(bounds) and bounds[0] and bounds[-1] == count):
        raise damaged(path, f"expected ends of documents in ascending order, the last at {count:,} tokens")
    if layout.bounds == "starts" and len(bounds) and not (rising and bounds[0] >= 0 and bounds[-1] < count):
        raise damaged(path, f"expected starts of documents in ascending order, all below {count:,} tokens")


def _steps(tokens: int) -> Iterator[int]:
    """Yield the tokens of each write of a shard."""
    for first in range(0, tokens, WRITE_TOKENS):
        yield min(WRITE_TOKENS, tokens - first)
