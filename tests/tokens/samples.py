# SPDX-License-Identifier: Apache-2.0
"""Tokenised documents as a run leaves them, and a small tokenizer of its own."""

from itertools import chain
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curation.tokens.forms.documents import TokenizedDocuments
from curation.tokens.indexed import IndexedReader
from curation.tokens.tokenization import Tokenizer


def make_documents(count: int, seed: int = 0, longest: int = 40) -> list[list[int]]:
    """Lists of ids, every fifth of them empty."""
    rng = np.random.default_rng(seed)
    return [[] if i % 5 == 3 else rng.integers(0, 500, rng.integers(1, longest)).tolist() for i in range(count)]


def write_parts(
    folder: Path, documents: list[list[int]], cuts: list[int], dtype: str = "<u2"
) -> list[tuple[Path, Path]]:
    """The documents in parts that end at `cuts`."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(documents)], strict=True)):
        paths = folder / f"{number}.ids", folder / f"{number}.lengths"
        np.array(list(chain.from_iterable(documents[low:high])), dtype).tofile(paths[0])
        np.array([len(ids) for ids in documents[low:high]], "<i4").tofile(paths[1])
        parts.append(paths)
    return parts


def opened(folder: Path, documents: list[list[int]], seed: int | None = None, dtype: str = "<u2") -> TokenizedDocuments:
    third = len(documents) // 3
    return TokenizedDocuments(write_parts(folder, documents, [third, third, 2 * third], dtype), np.dtype(dtype), seed)


def flat(documents: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(documents))


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))
    return path


WORDS = (
    "the", "a", "of", "to", "and", "in", "is", "that", "it", "was", "for", "on", "are", "as", "with", "his", "they",
    "at", "be", "this", "from", "have", "or", "by", "one", "had", "not", "but",
)  # fmt: skip


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Different texts of common words, 5 to 80 words long."""
    rng = np.random.default_rng(seed)
    return [
        f"{i} " + " ".join(WORDS[k] for k in rng.integers(0, len(WORDS), rng.integers(5, 80))) for i in range(count)
    ]


def train_tokenizer(path: Path, texts: list[str], vocabulary: int = 512, eod: bool = True) -> Path:
    """A byte-level BPE of few tokens, which a tiny model can learn in seconds."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    special = ["<|endoftext|>"] if eod else []
    tokenizer.train_from_iterator(texts, vocab_size=vocabulary, special_tokens=special, show_progress=False)
    tokenizer.save(str(path))
    return path


def check_rows(folder: Path, tokenizer: Tokenizer, splits: dict[str, float]) -> None:
    """Every document of every pair has the tokens of its row, and every row with tokens is used once."""
    tables = [pq.read_table(path) for path in sorted((folder / "documents").glob("*.parquet"))]
    seen: set[tuple[int, int]] = set()
    for index in sorted((folder / "tokens").glob("*.idx")):
        reader, data = IndexedReader(index), (folder / "tokens" / "_meta" / f"{index.stem}.rows").read_bytes()
        assert len(data) == 12 * len(reader)
        for number, ids in enumerate(reader):
            entry = data[12 * number : 12 * number + 12]
            part, row = int.from_bytes(entry[:4], "little"), int.from_bytes(entry[4:], "little")
            found = tables[part].slice(row, 1).to_pylist()[0]
            assert ids.tolist() == tokenizer.encode(pa.array([found["text"]]))[0].tolist(), (index, number)
            assert index.stem.startswith(f"{found['source']}_{found['split']}_" if splits else f"{found['source']}_")
            seen.add((part, row))
    with_text = {
        (part, row) for part, table in enumerate(tables)
        for row, text in enumerate(table.column("text").to_pylist()) if text
    }  # fmt: skip
    assert seen == with_text
