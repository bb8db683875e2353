"""A text cut at points gives the ids of the whole text, for every kind of tokenizer that has them."""

import io
import random
import re
import unicodedata
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from curation.tokens import cut_points, tokenization
from curation.tokens.cut_points import EXPRESSIONS, LETTERS, SIGNS
from curation.tokens.tokenization import load_tokenizer

SPACES = normalizers.Replace(" ", "▁")
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
CHARACTERS = [
    *"abstdlmrevlABZ '’-_019.,;:!?()[]{}<>/\"#",
    *"  \n\n\r\t\u00a0\u3000\u0301é▁ß中文字。，、！かがカ가각дйЙαάאبकथกİΣς²½٣\u200b",
    "👩‍👩‍👧", "'s", "'LL", " the ", "  ", "\r\n", "<tool>", "</s>", " <tool> ", "\n/",
]  # fmt: skip


def text_of(seed: int, length: int = 400) -> str:
    return "".join(random.Random(seed).choices(CHARACTERS, k=length))


def byte_level(expression: str) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"), BYTES])


def trained(model: Any, trainer: Any, before: Any = None, normalizer: Any = None, added: tuple[Any, ...] = ()) -> str:
    tokenizer = Tokenizer(model)
    if before:
        tokenizer.pre_tokenizer = before
    if normalizer:
        tokenizer.normalizer = normalizer
    lines = [text_of(seed, 40).replace("▁", "") for seed in range(100, 120)] + ["the same words of the text " * 3] * 3
    split = lines if before else [word for line in lines for word in line.replace(" ", "| ").split("|")]
    tokenizer.train_from_iterator(split, trainer)
    tokenizer.add_tokens(list(added))
    return str(tokenizer.to_str())


def bpe(before: Any = None, normalizer: Any = None, **settings: Any) -> str:
    added = settings.pop("added", ())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", "</s>"], initial_alphabet=[*alphabet, "▁"], show_progress=False
    )
    return trained(models.BPE(unk_token="<unk>", **settings), trainer, before, normalizer, added)


def wordpiece(before: Any, normalizer: Any = None) -> str:
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=["<unk>", "</s>"], show_progress=False)
    return trained(models.WordPiece(unk_token="<unk>"), trainer, before, normalizer)


def unigram(before: Any, normalizer: Any = None) -> str:
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    return trained(models.Unigram(), trainer, before, normalizer)


def sentencepiece_model(**settings: Any) -> bytes:
    model = io.BytesIO()
    lines = [text_of(seed, 40).replace("\n", " ") for seed in range(100, 140)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=400, hard_vocab_limit=False, byte_fallback=True,
        minloglevel=2, num_threads=1, **{"model_type": "bpe", "normalization_rule_name": "identity"} | settings,
    )  # fmt: skip
    return model.getvalue()


NEVER = pre_tokenizers.Metaspace(prepend_scheme="never")
ALWAYS = pre_tokenizers.Metaspace(prepend_scheme="always")
LLAMA_2 = normalizers.Sequence([normalizers.Prepend("▁"), SPACES])
EXACT = {"remove_extra_whitespaces": False, "add_dummy_prefix": False}
CUT = {
    **{f"expression {number}": lambda e=e: bpe(byte_level(e)) for number, e in enumerate(sorted(EXPRESSIONS))},
    "byte level": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "byte level, prefix": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "NFC": lambda: bpe(byte_level(sorted(EXPRESSIONS)[0]), normalizers.NFC()),
    "NFKD": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFKD()),
    "added tokens": lambda: bpe(byte_level(sorted(EXPRESSIONS)[1]), added=("<tool>", "</tool>", "the")),
    "whole texts": lambda: bpe(normalizer=SPACES, fuse_unk=True),
    "whole texts, prefix": lambda: bpe(normalizer=LLAMA_2, fuse_unk=True),
    "unigram": lambda: unigram(NEVER),
    "unigram, prefix": lambda: unigram(ALWAYS, normalizers.NFKC()),
    "unigram, white space": lambda: unigram(pre_tokenizers.WhitespaceSplit()),
    "wordpiece": lambda: wordpiece(pre_tokenizers.Whitespace()),
    "BERT": lambda: wordpiece(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer()),
    "SentencePiece": lambda: sentencepiece_model(**EXACT),
    "SentencePiece, prefix": lambda: sentencepiece_model(),
    "SentencePiece, all spaces": lambda: sentencepiece_model(remove_extra_whitespaces=False),
}
WHOLE = {
    "unknown expression": lambda: bpe(byte_level(r"\p{L}+ ?")),
    "stripped": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Strip()),
    "token with a space": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), added=("the same",)),
    "token with rules": lambda: bpe(
        pre_tokenizers.ByteLevel(add_prefix_space=False), added=(AddedToken("<tool>", rstrip=True),)
    ),
    "added tokens and a prefix": lambda: bpe(normalizer=LLAMA_2, added=("<tool>",)),
    "SentencePiece unigram": lambda: sentencepiece_model(model_type="unigram", **EXACT),
    "SentencePiece, other characters": lambda: sentencepiece_model(normalization_rule_name="nfkc"),
    "SentencePiece, no spaces": lambda: sentencepiece_model(add_dummy_prefix=False),
}


def loaded(tmp_path: Any, content: str | bytes) -> Any:
    path = tmp_path / ("tokenizer.json" if isinstance(content, str) else "tokenizer.model")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_tokenizer(tokenization.TokenizerSpec(name=str(path), append_eod=False))


def assert_same(tokenizer: Any, texts: list[str]) -> int:
    """Compare the ids of pieces with those of whole texts; return the number of pieces."""
    for text in texts:
        (expected,) = tokenizer._source.encode([text])
        (found,) = tokenizer._encode_pieces([text])
        assert found.tolist() == list(expected), repr(text)
    return len(list(tokenizer._pieces(texts)))


@pytest.fixture
def shortest_pieces(monkeypatch):
    for module in (cut_points, tokenization):
        monkeypatch.setattr(module, "PIECE_CHARACTERS", 1)


@pytest.mark.usefixtures("shortest_pieces")
@pytest.mark.parametrize("name", CUT)
def test_pieces_give_the_ids_of_whole_texts(name, tmp_path):
    tokenizer = loaded(tmp_path, CUT[name]())
    assert tokenizer.memory_note == ""
    assert assert_same(tokenizer, [text_of(seed) for seed in range(3)]) > 50


@pytest.mark.slow("pieces of a long text give its ids")
@pytest.mark.usefixtures("shortest_pieces")
@pytest.mark.parametrize("name", CUT)
def test_pieces_of_many_texts(name, tmp_path):
    assert_same(loaded(tmp_path, CUT[name]()), [text_of(seed, 4000) for seed in range(40)])


@pytest.mark.usefixtures("shortest_pieces")
@pytest.mark.parametrize("name", WHOLE)
def test_other_tokenizers_encode_whole_texts_and_say_so(name, tmp_path):
    tokenizer = loaded(tmp_path, WHOLE[name]())
    assert assert_same(tokenizer, [text_of(0)]) == 1
    factor = 100 if name.startswith("SentencePiece") else 250
    assert f"encodes each document whole: the longest one needs {factor} times its bytes" in tokenizer.memory_note


def test_letters_stay_letters_under_every_normaliser():
    characters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x10000))))
    letters = re.findall(f"[{LETTERS}]", characters)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normalised = unicodedata.normalize(form, "".join(letters))
        assert {unicodedata.category(character)[0] for character in normalised} == {"L"}
        assert len(normalised) >= len(letters)
    signs = re.findall(f"[{SIGNS}]", characters)
    assert not any(map(str.isalnum, signs)) and not {*"'’-_"} & {*signs}


def test_calls_of_the_reference_are_bounded(monkeypatch):
    tokenizer = load_tokenizer("gpt2")
    sizes: list[int] = []
    source = tokenizer._source
    spy = source._replace(encode=lambda texts: (sizes.append(sum(map(len, texts))), source.encode(texts))[1])
    monkeypatch.setattr(tokenizer, "_source", spy)
    monkeypatch.setattr(tokenizer, "_cut_points", cut_points.AFTER_LETTERS)
    text = "some words " * 20_000
    (ids,) = tokenizer._encode_pieces([text])
    assert max(sizes) <= tokenization.REFERENCE_CHARACTERS and ids.tolist() == list(source.encode([text])[0])
    tokenizer._encode_pieces(["some words"] * 1000 + [text[:50_000]] * 4)
    assert max(sizes) <= tokenization.REFERENCE_CHARACTERS


def test_a_text_without_cut_points_is_searched_once(monkeypatch):
    calls: list[int] = []

    class Pattern:
        def search(self, text: str, start: int) -> None:
            calls.append(start)

    monkeypatch.setattr(cut_points, "re", SimpleNamespace(compile=lambda pattern: Pattern()))
    assert [*cut_points.AFTER_LETTERS.pieces("x" * 1_000_000)] == ["x" * 1_000_000]
    assert len(calls) == 1
