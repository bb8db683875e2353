# SPDX-License-Identifier: Apache-2.0
"""Tokenised documents as a run leaves them, and a small tokenizer of its own."""

from itertools import chain
from pathlib import Path

import numpy as np
import orjson

from curation.tokens.forms.documents import TokenizedDocuments


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
