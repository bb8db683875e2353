# SPDX-License-Identifier: Apache-2.0
"""Texts of special, added and user-defined tokens have the reference's ids, and never the id of a special token."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from curation.base.errors import TokenizerError
from curation.kernels.expressions import LLAMA3, O200K
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.tokens import added_tokens, probes, vocabularies
from curation.tokens.tokenization import Tokenizer, TokenizerSpec, load_tokenizer
from tests.runs import recipe_of
from tests.tokens.byte_pairs import EXPRESSIONS
from tests.tokens.samples import train_tokenizer, write_jsonl

SENTENCES = [f"the quick brown fox number {i} jumps over <the> lazy dog; {i * 7}" for i in range(60)]
SPECIAL = "<eos>"
AROUND = ("{}", "{}{}", "a {} b", "x{}y", " {} ", "\n{}\n", "{}'s", "the{} {}fox")
LETTERS = [*"abcdefghijklmnopqrstuvwxyz<>/|$▁ '"]


def ids_of(tokenizer, texts):
    ids, counts = tokenizer.encode(pa.array(texts, pa.large_string()))
    return [part.tolist() for part in np.split(ids, np.cumsum(counts)[:-1])]


def loaded(path):
    return load_tokenizer(TokenizerSpec(name=str(path), append_eod=False))


# ---- special tokens


def _numbered(tokens):
    return {token: number for number, token in enumerate(tokens)}


def _model(kind):
    tokens = ["<unk>", SPECIAL, *LETTERS, "<e", "os>", "fox"]
    if kind == "Unigram":
        scored = [(token, 0.0 if token == SPECIAL else -5.0) for token in tokens]
        return models.Unigram(scored, unk_id=0, byte_fallback=False)
    if kind == "WordPiece":
        return models.WordPiece(_numbered([*tokens, *(f"##{letter}" for letter in LETTERS)]), unk_token="<unk>")
    if kind == "WordLevel":
        return models.WordLevel(_numbered(tokens), unk_token="<unk>")
    merges = [("<", "e"), ("o", "s"), ("os", ">"), *([("<e", "os>")] if kind == "BPE with merges" else [])]
    return models.BPE(_numbered([*tokens, "os"]), merges, unk_token="<unk>", ignore_merges=kind == "BPE of whole words")


KINDS = ["Unigram", "WordPiece", "WordLevel", "BPE with merges", "BPE of whole words"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_a_special_token_never_gives_its_id(tmp_path, kind):
    made = tokenizers.Tokenizer(_model(kind))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<unk>", SPECIAL])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = loaded(tmp_path)
    texts = [context.format(text, text) for text in (SPECIAL, "＜eos＞", "＜ｅｏｓ＞", "<unk>") for context in AROUND]
    library = made.encode_batch([text.replace("＜", "<") for text in texts], add_special_tokens=False)
    assert any(1 in encoded.ids for encoded in library)
    for text, ids in zip(texts, ids_of(tokenizer, texts), strict=True):
        assert 1 not in ids and len(ids) > 0, text
    assert tokenizer.decode([1]) == SPECIAL and tokenizer.eod == 1
    plain = ["the lazy fox", "foxes"]
    made.encode_special_tokens = True
    assert ids_of(tokenizer, plain) == [encoded.ids for encoded in made.encode_batch(plain)]


def test_merges_through_a_special_token_stay(tmp_path):
    """A longer token needs it, so the text of the longer token has the ids of the library."""
    path = train_tokenizer(tmp_path / "tokenizer.json", SENTENCES, 300)
    content = json.loads(path.read_bytes())
    tokens, merges = content["model"]["vocab"], content["model"]["merges"]
    left, right = next(merge for merge in merges if "Ġ" + merge[0] + merge[1] in tokens or merge[0] in ("he", "qu"))
    special = left + right
    content["added_tokens"] += [{"id": tokens[special], "content": special, "special": True, "normalized": False}
                                | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)]  # fmt: skip
    path.write_text(json.dumps(content))
    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    texts = [*SENTENCES[:5], special, f"{special} {special}"]
    for text, found in zip(texts, ids_of(loaded(path), texts), strict=True):
        expected = reference.encode(text).ids
        assert tokens[special] not in found
        assert found == expected or tokens[special] in expected


def test_our_own_unigram_quotes_special_tokens(tmp_path):
    from curation import train_tokenizer as train

    path = tmp_path / "tokenizer.json"
    train(str(write_jsonl(tmp_path / "d.jsonl", SENTENCES)), str(path), vocabulary=400, kind="unigram")
    tokenizer = loaded(path)
    for text in ("<bos>", "<eos>", "<pad>", "<mask>", "<unk>"):
        ids = ids_of(tokenizer, [text, f"a {text} b"])
        assert not {0, 1, 2, 3, 4}.intersection(*ids)
        assert tokenizer.decode(ids[0]) == text


def bpe_json(folder, special=(), **model):
    made = tokenizers.Tokenizer(models.BPE(_numbered(LETTERS), [], **model))
    made.add_special_tokens([*special])
    made.save(str(folder / "tokenizer.json"))
    return folder


def test_tokenizers_without_other_pieces_are_refused(tmp_path):
    told = r"has no pieces for the text of its special token '\$' except the token, so documents with this text would"
    with pytest.raises(TokenizerError, match=told):
        loaded(bpe_json(tmp_path, ["$", "<eos>"]))
    assert ids_of(loaded(bpe_json(tmp_path, ["$"], unk_token="a")), ["$b"]) == [[0, 1]]


@pytest.mark.parametrize("special", ["1", "é"])
def test_special_tokens_that_are_a_byte_are_refused(tmp_path, special):
    """ "1" follows a space at the beginning of a text, and "é" spells the first byte of 64 x 64 other characters."""
    byte_level(tmp_path, special=[special])
    made = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.save(str(tmp_path / "tokenizer.json"))
    assert f"of its special token {special!r} except the token" in _refused(tmp_path)


def test_ids_of_gigatoken_are_replaced_before_a_sample_is_compared(tmp_path):
    path = train_tokenizer(tmp_path / "tokenizer.json", SENTENCES, 300)
    content = json.loads(path.read_bytes())
    tokens, merges = content["model"]["vocab"], content["model"]["merges"]
    special = next(left + right for left, right in map(tuple, merges) if (left + right).isascii())
    content["added_tokens"].append({"id": tokens[special], "content": special, "special": True, "normalized": False}
                                   | dict.fromkeys(("single_word", "lstrip", "rstrip"), False))  # fmt: skip
    path.write_text(json.dumps(content))
    tokenizer = loaded(path)
    assert tokenizer.fast and tokens[special] not in ids_of(tokenizer, [special])[0]


def test_a_document_with_a_special_id_gets_no_tokens(tmp_path, monkeypatch):
    """No file is known to lead here: the model of this one is changed after its check."""
    made = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2, SPECIAL: 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([SPECIAL])
    made.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr(added_tokens, "plain_ids", lambda *_: lambda text: [])
    monkeypatch.setattr(vocabularies, "plain_ids", lambda *_: lambda text: [])
    name = f"{added_tokens.MARK}0{added_tokens.MARK}"
    texts = ["hello world", f"hello {name}", "", "world"]
    tokenizer = load_tokenizer(TokenizerSpec(name=str(tmp_path)))
    packed = tokenizer.pack(pa.array(texts, pa.large_string()))
    assert (packed.ids.tolist(), packed.lengths.tolist()) == ([1, 2, 3, 2, 3], [3, 0, 0, 2])
    assert [tokenizer.special_piece(text) for text in texts] == ["", SPECIAL, "", ""]
    source = write_jsonl(tmp_path / "d.jsonl", texts)
    recipe = recipe_of(source, stages=[], tokenizer={"name": str(tmp_path)}, output={"formats": ["megatron"]})
    report = run(recipe, tmp_path / "out", engine="cpu", workers=1).report
    assert [*verify(tmp_path / "out")] == []
    assert report["documents"]["kept"] == 4 and report["tokens"]["documents"] == 2
    assert report["tokens"]["untokenised"] == [
        {"source": report["tokens"]["untokenised"][0]["source"], "file": str(source), "line": 2, "doc": 1,
         "token": SPECIAL}
    ]  # fmt: skip
    told = f"1 document got no tokens, since tokenizer {tmp_path} gives the id of a special token inside the text"
    assert any(warning.startswith(told) for warning in report["warnings"])


# ---- pieces that gigatoken finds otherwise


def sentencepiece_model(**options):
    import sentencepiece

    buffer = io.BytesIO()
    given = {"model_type": "bpe", "vocab_size": 340, "byte_fallback": True, "normalization_rule_name": "identity"}
    given |= {"remove_extra_whitespaces": False, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=buffer, **{**given, **options}
    )
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({}, ""),
        ({"control_symbols": ["$", "<c>"]}, ""),
        ({"user_defined_symbols": ["<tool>", "$"]}, r"\$|<tool>"),
        ({"user_defined_symbols": ["<tool>", "▁fox"]}, r"<tool>|fox"),
        ({"user_defined_symbols": ["<tool>"], "add_dummy_prefix": False}, ""),
    ],
)
def test_texts_with_user_defined_symbols_are_for_sentencepiece(tmp_path, options, pattern):
    import sentencepiece

    content = sentencepiece_model(**options)
    (tmp_path / "tokenizer.model").write_bytes(content)
    model, tokenizer = sentencepiece.SentencePieceProcessor(model_proto=content), loaded(tmp_path)
    assert tokenizer.fast and tokenizer._comparison.pattern == pattern
    pieces = ["<tool>", "$", "▁fox", "<c>", "<s>", "<unk>", "<0x0A>"]
    texts = [context.format(piece, piece) for piece in pieces for context in AROUND]
    assert ids_of(tokenizer, texts) == [model.encode(text) for text in texts]


def byte_level(folder, expression=None, normalizer=None, added=(), special=("<|user|>",)):
    """A byte-level BPE with added tokens: texts, or `AddedToken`."""
    made = tokenizers.Tokenizer.from_file(str(train_tokenizer(folder / "tokenizer.json", SENTENCES, 300)))
    if expression:
        split = pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    if normalizer:
        made.normalizer = normalizer
    made.add_special_tokens([*special])
    made.add_tokens(
        [token if isinstance(token, AddedToken) else AddedToken(token, normalized=False) for token in added]
    )
    made.save(str(folder / "tokenizer.json"))
    made.encode_special_tokens = True
    return made


QWEN = EXPRESSIONS[LLAMA3].replace(r"\p{N}{1,3}", r"\p{N}")
RUNS = [" " * width for width in range(2, 9)]
STRIPPED, WORD = AddedToken("<fim>", lstrip=True, normalized=False), AddedToken("fox", single_word=True)
NORMAL = AddedToken("<K;>", normalized=True)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({}, ""),
        ({"expression": EXPRESSIONS[LLAMA3]}, ""),
        ({"expression": EXPRESSIONS[O200K]}, ""),
        ({"expression": QWEN, "normalizer": normalizers.NFC(), "added": ["<tool>", "</tool>"]}, ""),
        ({"added": RUNS}, ""),  # GPT-NeoX
        ({"added": [*RUNS, "fox jumps", "ab", "bc"]}, ""),
        ({"added": ["<tool>", STRIPPED]}, "<fim>"),
        ({"added": [WORD]}, "fox"),
        ({"expression": QWEN, "normalizer": normalizers.NFC(), "added": [NORMAL]}, None),
    ],
)
def test_fast_tokenizers_stay_fast_and_right(tmp_path, options, pattern):
    reference, tokenizer = byte_level(tmp_path, **options), loaded(tmp_path / "tokenizer.json")
    assert tokenizer.fast, tokenizer.note
    assert pattern is None or tokenizer._comparison.pattern == pattern
    pieces = ["<|user|>", "<tool>", "  ", "     ", "fox", "<fim>", "abc", "<K;>", "<\u212a\u037e>", "fox jumps"]
    texts = [context.format(piece, piece) for piece in pieces for context in AROUND]
    assert ids_of(tokenizer, texts) == [encoded.ids for encoded in reference.encode_batch(texts)]


def test_pieces_are_blamed_for_what_they_do(monkeypatch):
    """A library that reads "ab" otherwise after a space, and "cd" before "ef"."""

    def fast(texts):
        return [text.replace(" ab", "?").replace("cdef", "?").encode() for text in texts]

    found = probes.compare(fast, lambda texts: [text.encode() for text in texts], ["ab", "cd", "ef", "x."], ["."], "it")
    assert found == probes.ProbeResults("", r"\.|ab|cd|ef")
    monkeypatch.setattr(probes, "MAX_PROBES", 20)
    assert "too many" in probes.compare(fast, fast, ["ab", "cd"], [], "it").note
    assert "which every space becomes" in probes.compare(fast, fast, [], ["▁"], "it").note


def test_ids_of_special_tokens_are_found_among_any_others():
    vocabulary = vocabularies.Vocabulary(
        kind="tiktoken", size=100, eod=0, bos=0, special_tokens=[], digest="", versions={}, decode=str,
        encode=lambda texts: [[] for _ in texts],
        build_fast=list,
    )  # fmt: skip
    for special in ([], [0], [99], [0, 99], [0, 50, 99], [3, 4, 5], [*range(100)]):
        tokenizer = Tokenizer(TokenizerSpec(append_eod=False), vocabulary._replace(special_ids=special))
        assert tokenizer.special_positions(np.arange(100, dtype=np.uint32)).tolist() == special
        assert tokenizer.special_positions(np.zeros(0, np.uint32)).tolist() == []


# ---- what is refused or said


def _refused(path):
    with pytest.raises(TokenizerError) as caught:
        loaded(path)
    return str(caught.value)


def _model_note(folder):
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(user_defined_symbols=["▁"]))
    return loaded(folder / "tokenizer.model").note


def _normalised_note(folder):
    byte_level(folder, normalizer=normalizers.Replace("(", "<"), added=[AddedToken("<x>", normalized=True)])
    return loaded(folder / "tokenizer.json").note


MESSAGES = {
    "no other pieces": lambda folder: _refused(bpe_json(folder, ["$", "<eos>"])),
    "a long special token": lambda folder: _refused(bpe_json(folder, ["x" * 10_001], unk_token="a")),
    "dropout": lambda folder: _refused(bpe_json(folder, dropout=0.5)),
    "a normalised token": _normalised_note,
    "the sign of a space": _model_note,
}


@pytest.mark.parametrize("case", MESSAGES)
def test_messages_are_those_of_the_page(tmp_path, case):
    page = (Path(__file__).parents[2] / "docs" / "special_tokens.md").read_text("utf-8")
    shown = re.findall(r"^\| .* \| `(.*)` \|$", page, re.M)
    message = re.sub(rf"{tmp_path}(/tokenizer\.(json|model))?", "tok", MESSAGES[case](tmp_path))
    assert any(message.startswith(row.removesuffix("...").strip()) for row in shown), message
