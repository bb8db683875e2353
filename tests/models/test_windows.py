# SPDX-License-Identifier: Apache-2.0
"""Pieces of long texts have the tokens of the whole text, and a piece has a largest size."""

from pydoc_data.topics import topics
from typing import Any

import pytest

from curation.models import windows

tokenizers = pytest.importorskip("tokenizers")
ENGLISH = " ".join(topics[name] for name in sorted(topics)[:12])
CHINESE = "".join(chr(0x4E00 + number * number % 97) + "，。" * (number % 17 == 0) for number in range(9_000))
TEXTS = {
    "a word": "so " + "x" * 5_000 + " it is",
    "words": " ".join("ab" * size for size in (3, 40, 2_000, 5, 1_024, 3_000)) + " end",
    "english": ENGLISH,
    "chinese": CHINESE,
    "lines": "。\n\n".join(CHINESE[at : at + 150] for at in range(0, 6_000, 150)),
    "blanks": "a" + " " * 3_000 + "b\n" * 2_500 + "!\n\n" * 1_000,
    "no word": "-=" * 4_000,
    "genome": "".join("ACGT"[number * number % 67 % 4] for number in range(6_000)),
}


def made(kind: str) -> Any:
    """A small tokenizer as encoders have them."""
    models, normalizers, split = tokenizers.models, tokenizers.normalizers, tokenizers.pre_tokenizers
    corpus, special = [ENGLISH, CHINESE], {"special_tokens": ["[UNK]"], "show_progress": False, "vocab_size": 600}
    if kind == "wordpiece":
        tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), split.BertPreTokenizer()
        trainer = tokenizers.trainers.WordPieceTrainer(**special)
    elif kind == "unigram":
        tokenizer = tokenizers.Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = split.Metaspace()
        trainer = tokenizers.trainers.UnigramTrainer(unk_token="[UNK]", **special)
    else:
        tokenizer = tokenizers.Tokenizer(models.BPE())
        pattern = tokenizers.Regex(r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        tokenizer.pre_tokenizer = split.Sequence([split.Split(pattern, "isolated"), split.ByteLevel(False, False)])
        trainer = tokenizers.trainers.BpeTrainer(initial_alphabet=split.ByteLevel.alphabet(), **special)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


@pytest.fixture(scope="module", params=["wordpiece", "unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return made(request.param)


@pytest.mark.parametrize("name", TEXTS)
def test_ids_of_pieces_are_those_of_the_whole_text(tokenizer: Any, name: str):
    text = TEXTS[name]
    cut = windows.cut_windows(tokenizer, [text], 100, 0, ([], []))
    assert [id_ for window in cut.ids for id_ in window.tolist()] == tokenizer.encode(text).ids
    first = windows.cut_windows(tokenizer, [text], 64, 2, ([], []))
    assert [id_ for window in first.ids for id_ in window.tolist()] == tokenizer.encode(text).ids[:128]


@pytest.mark.parametrize("name", ["english", "chinese", "lines"])
def test_texts_of_any_script_are_read_in_small_pieces(tokenizer: Any, name: str):
    if name != "english" and isinstance(tokenizer.model, tokenizers.models.Unigram):
        pytest.skip("Metaspace begins each piece with a mark, so it is cut at spaces alone")
    pieces = [piece for _, piece in windows._pieces(tokenizer, TEXTS[name])]
    assert "".join(pieces) == TEXTS[name] and max(map(len, pieces)) <= 2 * windows.PIECE


def test_a_word_without_an_end_is_cut_at_the_limit(tokenizer: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(windows, "LIMIT", 3 * windows.PIECE)
    assert max(len(piece) for _, piece in windows._pieces(tokenizer, "x" * 20_000)) <= windows.LIMIT
