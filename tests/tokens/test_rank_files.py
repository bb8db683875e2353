# SPDX-License-Identifier: Apache-2.0
"""Rank files, tekken.json, and vocab.json with merges.txt: ids of their libraries, or one message."""

import base64
import hashlib
import json
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tiktoken
import tokenizers

from curation.base.errors import TokenizerError
from curation.tokens import rank_files
from curation.tokens.byte_pairs import bytes_of_tokens
from curation.tokens.tokenization import Tokenizer, TokenizerSpec, load_tokenizer
from tests.needs import needs
from tests.tokens.drawn_tokenizers import SENTENCES, TEXTS
from tests.tokens.samples import train_tokenizer

NASTY = [*TEXTS, *SENTENCES, "<|endoftext|> </s> <|begin_of_text|> [INST] <|im_start|>", "e\u0301 \u212b 1234567"]
FIRST = {bytes([number]): number for number in range(256)} | {b"he": 256, b"the": 257, b" the": 258, b"12": 259}
SPLIT = r"\p{L}+|\p{N}|[^\p{L}\p{N}]+"
LONE = {"a": 0, "<|endoftext|>": 1}


def ids_of(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    ids, counts = tokenizer.encode(pa.array(texts, pa.large_string()))
    return [found.tolist() for found in np.split(ids, np.cumsum(counts)[:-1])]


def rank_file(path: Path, ranks: dict[bytes, int]) -> str:
    path.write_bytes(rank_files.rank_lines(ranks))
    return str(path)


@pytest.mark.parametrize(
    ("model", "name", "expression", "first", "size", "eod", "bos"),
    [
        ("LLAMA3", "tokenizer.model", rank_files.LLAMA3_EXPRESSION, "<|begin_of_text|>", 256, 1, 0),
        ("QWEN", "qwen.tiktoken", rank_files.QWEN_EXPRESSION, "<|endoftext|>", 208, 0, None),
    ],
)
def test_known_ranks_have_the_ids_of_tiktoken(model, name, expression, first, size, eod, bos, tmp_path, monkeypatch):
    path = rank_file(tmp_path / name, FIRST)
    monkeypatch.setattr(rank_files, model, hashlib.sha256(Path(path).read_bytes()).hexdigest())
    tokenizer = load_tokenizer(path)
    reference = tiktoken.Encoding("made", pat_str=expression, mergeable_ranks=FIRST, special_tokens={})
    form = "NFC" if model == "QWEN" else None
    expected = [reference.encode_ordinary(unicodedata.normalize(form, text) if form else text) for text in NASTY]
    assert ids_of(tokenizer, NASTY) == expected
    assert (tokenizer.kind, tokenizer.vocabulary, tokenizer.special_tokens[0]) == ("tiktoken", 260 + size, first)
    assert (tokenizer.eod, tokenizer.bos) == (260 + eod, None if bos is None else 260 + bos)


def tekken(**changes) -> bytes:
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for token, rank in FIRST.items()]
    config = {"pattern": SPLIT, "num_vocab_tokens": 260, "default_vocab_size": 288, "default_num_special_tokens": 30}
    return json.dumps({"config": config | {"version": "v3"}, "vocab": vocab} | changes).encode()


@pytest.mark.parametrize("name", ["tekken.json", "mistral.json"])
def test_tekken_puts_special_tokens_first(name, tmp_path):
    (tmp_path / name).write_bytes(tekken())  # two of 260 tokens are beyond its vocabulary
    tokenizer = load_tokenizer(str(tmp_path / name))
    kept = {token: rank for token, rank in FIRST.items() if rank < 258}
    reference = tiktoken.Encoding("made", pat_str=SPLIT, mergeable_ranks=kept, special_tokens={})
    assert ids_of(tokenizer, NASTY) == [[30 + rank for rank in reference.encode_ordinary(text)] for text in NASTY]
    assert (tokenizer.vocabulary, tokenizer.bos, tokenizer.eod) == (288, 1, 2)
    assert tokenizer.special_tokens[19:21] == ["[TOOL_CONTENT]", "<SPECIAL_20>"]


@pytest.mark.parametrize("package", ["mistral_common", "llama_models"])
def test_files_of_their_packages(package):
    folder = Path(needs(package).__file__).parent
    if package == "llama_models":
        from llama_models.llama3.tokenizer import Tokenizer as Llama3

        reference, paths = Llama3.get_instance(), [folder / "llama3" / "tokenizer.model"]
    else:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        paths = sorted((folder / "data").glob("tekken_*.json"))
        reference = Tekkenizer.from_file(paths[-1])
    tokenizer = load_tokenizer(str(paths[-1]))
    assert ids_of(tokenizer, NASTY) == [reference.encode(text, bos=False, eos=False) for text in NASTY]
    assert (tokenizer.vocabulary, tokenizer.bos, tokenizer.eod) == (
        reference.n_words,
        reference.bos_id,
        reference.eos_id,
    )


def pair(folder: Path, config: dict, prefix: str = "") -> dict[str, int]:
    """Write a byte-level BPE as vocabulary and merges, and return the vocabulary."""
    content = json.loads(train_tokenizer(folder / "trained.json", SENTENCES, 400).read_bytes())["model"]
    (folder / f"{prefix}vocab.json").write_text(json.dumps(content["vocab"]))
    lines = ["#version: 0.2", *map(" ".join, content["merges"]), ""]
    (folder / f"{prefix}merges.txt").write_text("\n".join(lines))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return content["vocab"]


@pytest.mark.parametrize("prefix", ["", "gpt2-"])
def test_vocabulary_and_merges_of_known_ranks(prefix, tmp_path, monkeypatch):
    vocab = pair(tmp_path, {}, prefix)
    ranks = bytes_of_tokens({text: rank for text, rank in vocab.items() if text != "<|endoftext|>"})
    monkeypatch.setattr(rank_files, "GPT2", hashlib.sha256(rank_files.rank_lines(ranks)).hexdigest())
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "trained.json"))
    reference.encode_special_tokens = True
    expected = [reference.encode(text).ids for text in NASTY]
    for name in (f"{prefix}vocab.json", f"{prefix}merges.txt", *([] if prefix else [""])):
        tokenizer = load_tokenizer(str(tmp_path / name))
        assert (tokenizer.kind, tokenizer.fast, tokenizer.eod) == ("huggingface", True, 0), tokenizer.note
        assert ids_of(tokenizer, NASTY) == expected


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer", "RobertaTokenizer"])
def test_classes_have_the_ids_of_transformers(name, tmp_path):
    transformers = needs("transformers")
    added = {"400": {"content": "<sep>", "special": False, "lstrip": True}}
    pair(tmp_path, {"tokenizer_class": name, "add_prefix_space": name[0] == "G", "added_tokens_decoder": added})
    (tmp_path / "trained.json").unlink()
    reference = getattr(transformers, name).from_pretrained(str(tmp_path))._tokenizer
    reference.encode_special_tokens = True
    tokenizer = load_tokenizer(TokenizerSpec(name=str(tmp_path), append_eod=False))
    texts = [*NASTY, "a <sep> b<sep>"]
    assert ids_of(tokenizer, texts) == [reference.encode(text, add_special_tokens=False).ids for text in texts]


PAGE = (Path(__file__).parents[2] / "docs" / "tokenizer_files.md").read_text("utf-8")
REFUSED = [  # file, content, a part of the message that the page has
    ("tokenizer.model", rank_files.rank_lines(FIRST), "tok is a rank file of tiktoken. It does not say how texts are "),
    ("x.tiktoken", rank_files.rank_lines(FIRST), "Set tokenizer.name to the tokenizer.json of the same model, or to"),
    ("x.tiktoken", b"hello\n", "expected lines of base64 and a rank in the rank file tok: "),
    ("x.tiktoken", b"AA== 0\nA 1\n", "expected lines of base64 and a rank in the rank file tok: "),
    ("tekken.json", tekken(vocab=[]), "expected Mistral's tekken format in tok: 0 tokens for a vocabulary of 288. "),
    ("tekken.json", tekken().replace(b'"AA=="', b'"AQ=="'), "expected Mistral's tekken format in tok: "),
    ("tekken.json", b'{"config": ' + b"[" * 100_000, "expected a Hugging Face tokenizer.json"),
    ("vocab.json", b"[" * 100_000, "tokenizer_config.json of one tokenizer at tok: "),
    ("tekken.json", b'{"config": {"pattern": "x"}, "vocab": []}', "expected Mistral's tekken format in tok: "),
    ("tekken.json", tekken(special_tokens=[{"rank": 5, "token_str": "<s>"}]), "1 special tokens, which are not ranks "),
    ("tekken.json", tekken().replace(rb"\\p{N}|", b"(|"), "tiktoken cannot load tok: "),
    ("vocab.json", json.dumps(LONE).encode(), "tokenizer_config.json of one tokenizer at tok: "),
    ("encoder.json", json.dumps(LONE).encode(), "tokenizer_config.json of one tokenizer at tok: "),
    ("merges.txt", b"a b\n", "tokenizer_config.json of one tokenizer at tok: "),
    (
        "tokenizer.bin",
        b"",
        "expected a Hugging Face tokenizer.json, a SentencePiece .model or another of .json, .model, ",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_other_files_are_one_message(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(str(tmp_path / name))
    assert message in str(caught.value).replace(str(tmp_path / name), "tok") and message in PAGE


@pytest.mark.parametrize("config", [{}, {"tokenizer_class": "CLIPTokenizer"}])
def test_a_pair_whose_split_is_not_known_asks_for_its_class(config, tmp_path):
    pair(tmp_path, config)
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(str(tmp_path))
    message = (
        "tok belongs to a vocabulary with merges (vocab.json and merges.txt). They do not say how texts are split."
    )
    assert message in str(caught.value).replace(str(tmp_path / "vocab.json"), "tok") and message in PAGE
    assert str(caught.value).endswith(f"got {config.get('tokenizer_class', '')!r}.")


def test_hash_of_gpt2_is_that_of_its_ranks():
    assert load_tokenizer("gpt2").digest == rank_files.GPT2
