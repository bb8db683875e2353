# SPDX-License-Identifier: Apache-2.0
"""What a tokenizer loses, and the names of the special tokens that it writes."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from curation.running.planning.estimate import estimate
from curation.running.run import run
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer
from curation.tokens.tokenizer_notes import Losses, losses_of, special_tokens_line
from tests.runs import recipe_of
from tests.tokens.samples import write_jsonl

CODE = "def f(x):\n    if x:\n\treturn 1"


@pytest.fixture(scope="module")
def default_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of `spm_train`'s defaults: its normalisation makes one space of white space."""
    path, buffer = tmp_path_factory.mktemp("model") / "m.model", io.BytesIO()
    sentences = iter([CODE.replace("\n", " "), "if def return (x): 1"] * 5)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_writer=buffer, vocab_size=60, hard_vocab_limit=False, minloglevel=2, pad_id=3
    )
    path.write_bytes(buffer.getvalue())
    return path


@pytest.mark.parametrize(
    ("text", "decoded", "lost", "told"),
    [
        ("a\n  b", "a b", 2, "line ends 1, spaces 1"),
        ("Ab" * 9, "ab" * 9, 9, "'A' 9"),
        ("snow \u2603", "snow ", 1, "'\u2603' 1"),
        ("same", "same", 0, ""),
        ("ab", "a b", 0, ""),  # a space more is no loss
        ("x" * 99_999 + "\t", "x" * 99_999, 1, ""),  # fewer than one in 10,000
    ],
)
def test_losses_are_characters_that_the_decoded_text_lacks(text, decoded, lost, told):
    found = Losses()
    found.add(text, decoded)
    assert (found.documents, found.characters, found.lost) == (1, len(text), lost)
    assert [told in line for line in found.warning("t")] == [True] * bool(told)


def test_records_are_summed():
    records = [{"losses": {"documents": 1, "characters": 4, "lost": n, "by_name": {"\n": n}}} for n in (1, 2)]
    assert losses_of([*records, {}]) == Losses(documents=2, characters=8, lost=3, by_name={"\n": 3})


def test_run_plan_and_report_say_what_is_lost(default_model, tmp_path):
    path = write_jsonl(tmp_path / "d.jsonl", [CODE, "plain", "if x:\n"])
    recipe = recipe_of(path, stages=[], tokenizer={"name": str(default_model)}, output={"formats": ["megatron"]})
    report = run(recipe, tmp_path / "out", engine="cpu").report
    counts = report["tokens"]["decoded"]
    assert (counts["documents"], counts["characters"]) == (3, len(CODE + "plain" + "if x:\n"))
    assert counts["by_name"]["\n"] == 3 and counts["by_name"]["\t"] == 1
    found = estimate(recipe, tmp_path / "other")
    for warnings in (report["warnings"], found.warnings):
        (warning,) = [line for line in warnings if " loses " in line]
        assert f"lack {counts['lost']} of {counts['characters']} in 3 compared documents" in warning
        assert r"'ef f(x):\n    if x:\n\treturn 1' becomes 'ef f(x): if x: return 1'" in warning
    expected = "end </s> 2 (written), begin <s> 1 (not written), padding <pad> 3 (not written)"
    assert found.special_tokens == f"special tokens: {expected}"


def test_the_first_documents_and_one_in_a_thousand_are_decoded(tmp_path):
    path = write_jsonl(tmp_path / "d.jsonl", [f"text {number}" for number in range(2001)])
    recipe = recipe_of(path, stages=[], output={"formats": ["megatron"]})
    assert run(recipe, tmp_path / "out", engine="cpu").report["tokens"]["decoded"]["documents"] == 32 + 2


def test_what_cannot_be_decoded_is_left_out():
    tokenizer = load_tokenizer("gpt2")
    found, texts = Losses(), ["a b", ""]
    import pyarrow as pa

    packed = tokenizer.pack(pa.array(texts, pa.large_string()))
    found.add_documents(tokenizer, pa.array(texts, pa.large_string()), packed.ids, packed.lengths, range(2))
    assert found == Losses(documents=1, characters=3)
    found.add_documents(tokenizer, pa.array(["a"], pa.large_string()), np.array([1 << 30, 0]), np.array([2]), [0])
    assert found.documents == 1


@pytest.mark.parametrize(("eod", "bos"), [(True, False), (False, True)])
def test_special_tokens_are_named(eod, bos):
    tokenizer = load_tokenizer(TokenizerSpec(name="gpt2", append_eod=eod, prepend_bos=bos))
    written = {True: "written", False: "not written"}
    expected = f"end <|endoftext|> 50256 ({written[eod]}), begin <|endoftext|> 50256 ({written[bos]}), no padding"
    assert special_tokens_line(tokenizer) == f"special tokens: {expected}"


def test_padding_is_read_from_the_config(tmp_path):
    model = {"type": "WordLevel", "vocab": {"a": 0, "<end>": 1, "<fill>": 2}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>", "pad_token": {"content": "<fill>"}}')
    assert load_tokenizer(str(tmp_path)).pad == 2
