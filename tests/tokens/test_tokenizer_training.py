# SPDX-License-Identifier: Apache-2.0
"""Trained tokenizers load, give texts back, and are the same each time where that is promised; nothing is written of
what cannot be trained."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import curation
from curation.base.errors import CurationError, InputError, OutputError, TokenizerError
from curation.reading import texts as reading_texts
from curation.running.run import run
from curation.tokens.indexed import IndexedReader
from curation.tokens.sentencepiece_training import MODEL_KINDS
from curation.tokens.tokenization import PROBES, Tokenizer
from curation.tokens.tokenizer_training import KINDS, MAX_VOCABULARY, SPECIAL, Trained, train_tokenizer
from tests.corpus import NASTY
from tests.runs import files_below, kept_rows, made_texts, recipe_of, records_of

ROOT = Path(__file__).resolve().parents[2]
TEXTS = made_texts(300)
pytestmark = pytest.mark.filterwarnings("ignore::curation.base.errors.InputWarning")  # inputs have a bad line
BACK = [text for text in (*NASTY, *PROBES, *TEXTS) if len(text) < 20_000]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.jsonl"
    path.write_bytes(records_of(TEXTS) + b"no record\n")
    return path


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    folder = tmp_path_factory.mktemp("trained")
    return {
        kind: train_tokenizer(corpus, folder / kind / "tokenizer.json", vocabulary=600, kind=kind) for kind in KINDS
    }


def there_and_back(tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    ids, counts = tokenizer.encode(pa.array(texts, pa.large_string()))
    pieces = [ids[end - count : end] for end, count in zip(counts.cumsum(), counts, strict=True)]
    return [tokenizer.decode(piece) for piece in pieces]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_trained_on(trained: dict[str, Trained], kind: str):
    found = trained[kind]
    assert (found.texts, found.rejected, found.bytes) == (300, 1, sum(len(text.encode()) for text in TEXTS))
    tokenizer = found.tokenizer
    assert tokenizer.vocabulary <= 600 and tokenizer.special_tokens == [*SPECIAL]
    assert (tokenizer.bos, tokenizer.eod) == (0, 1)
    assert 0 < found.tokens_per_byte < 1
    assert curation.load_tokenizer(str(found.path.parent)).digest == tokenizer.digest
    assert files_below(found.path.parent) == ["tokenizer.json", "tokenizer_config.json"]
    config = json.loads((found.path.parent / "tokenizer_config.json").read_bytes())
    assert {name: text for name, text in config.items() if name.endswith("_token")} == {
        f"{text[1:-1]}_token": text for text in SPECIAL
    }


def test_bytes_give_every_text_back(trained: dict[str, Trained]):
    tokenizer = trained["bpe"].tokenizer
    assert tokenizer.vocabulary > 261 and tokenizer.fast
    assert there_and_back(tokenizer, BACK) == BACK


def test_unigram_has_bytes_for_what_it_has_not_seen(trained: dict[str, Trained]):
    tokenizer = trained["unigram"].tokenizer
    assert there_and_back(tokenizer, BACK) == [text.replace("\u2581", " ") for text in BACK]
    ids, _ = tokenizer.encode(pa.array(["<0x0A>ŋ"], pa.large_string()))
    assert [tokenizer.decode([token]) for token in ids[:-2]] == list("<0x0A>")
    assert (ids[-2:] - len(SPECIAL)).tolist() == [*"ŋ".encode()]


def test_wordpiece_has_words_and_signs(trained: dict[str, Trained]):
    tokenizer = trained["wordpiece"].tokenizer
    assert there_and_back(tokenizer, ["the of don't", "the ŋ of"]) == ["the of don ' t", "the <unk> of"]


@pytest.mark.slow("a tokenizer has the same bytes for any number of threads that train it")
@pytest.mark.parametrize("threads", [1, 2])
def test_bytes_are_the_same_each_time(corpus: Path, trained: dict[str, Trained], tmp_path: Path, threads: int):
    code = f"import curation; curation.train_tokenizer({str(corpus)!r}, 'tokenizer.json', vocabulary=600)"
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == trained["bpe"].path.with_name(name).read_bytes()


def test_files_slices_and_formats_change_nothing(
    corpus: Path, trained: dict[str, Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = corpus.read_bytes().splitlines(keepends=True)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[100:])))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines[:100]))
    monkeypatch.setattr(reading_texts, "SLICE_BYTES", 1000)
    monkeypatch.setattr(reading_texts, "BATCH_BYTES", 1000)
    inputs = [tmp_path / "a.jsonl.gz", curation.Input(path=str(tmp_path / "b.jsonl"), text_column="text")]
    found = train_tokenizer(inputs, tmp_path / "tokenizer.json", vocabulary=600)
    assert found.path.read_bytes() == trained["bpe"].path.read_bytes()
    assert (found.texts, found.bytes, found.rejected) == trained["bpe"][2:5]


def test_a_run_with_a_tokenizer_of_what_another_has_kept(corpus: Path, tmp_path: Path):
    run(recipe_of(corpus, output={"formats": []}), tmp_path / "kept", engine="cpu")
    found = train_tokenizer(tmp_path / "kept" / "documents", tmp_path / "tokenizer.json", vocabulary=500)
    recipe = recipe_of(corpus, tokenizer={"name": str(found.path)})
    report = run(recipe, tmp_path / "out", engine="cpu").report
    texts = [text for *_, text in kept_rows(tmp_path / "out")]
    assert len(texts) == found.texts == report["tokens"]["documents"]
    reader = IndexedReader(tmp_path / "out" / "tokens" / "made_00000_text_document")
    assert [found.tokenizer.decode(ids) for ids in reader] == [f"{text}<eos>" for text in texts]


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "bpo"}, "no kind of tokenizer 'bpo'; did you mean bpe"),
        ({"vocabulary": 260}, r"from 261 \(256 for the alphabet of bpe and 5 special tokens\) to 1,000,000, not 260"),
        ({"vocabulary": 300, "kind": "unigram"}, "vocabulary must be from 355"),
        ({"vocabulary": MAX_VOCABULARY + 1}, "not 1,000,001"),
        ({"special": ["<eos>", "<eos>"]}, "must be different, non-empty texts"),
        ({"special": ["<eos>", ""]}, "must be different, non-empty texts"),
        ({"special": ["<bos>"]}, r"one that ends documents: one of <\|endoftext\|>"),
        ({"special": ["<eos>"], "kind": "wordpiece"}, "one for unknown text: one of <unk>"),
    ],
)
def test_wrong_settings_are_told_before_anything_is_read(tmp_path: Path, settings: dict[str, Any], message: str):
    with pytest.raises(TokenizerError, match=message):
        train_tokenizer(tmp_path / "none.jsonl", tmp_path / "out" / "tokenizer.json", **settings)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("none.jsonl", "does not exist"),
        ("hf:some/set", "is streamed: run a recipe"),
        ([], "inputs is empty, expected"),
        ("", "path is empty"),
        ("empty.jsonl", "no text to train a tokenizer on: 1 document, 0 bytes"),
        ("blank.jsonl", "no text to train a tokenizer on: 0 documents"),
        ({"path": "empty.jsonl", "sample": 0.5}, "empty.jsonl has a sample, which only runs take"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_without_text_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: Any, message: str, kind: str
):
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").write_text('{"text": ""}\n')
    Path("blank.jsonl").write_text("")
    with pytest.raises(InputError, match=message):
        train_tokenizer(inputs, "tokenizer.json", kind=kind)
    assert files_below(tmp_path) == ["blank.jsonl", "empty.jsonl"]


@pytest.mark.parametrize("count", [47, 128])  # the library sees the latter itself
def test_too_many_characters_for_unigram(tmp_path: Path, count: int):
    (tmp_path / "a.txt").write_text("".join(map(chr, range(0x4E00, 0x4E00 + count))))
    with pytest.raises(TokenizerError, match=r"unigram with 400 tokens is not possible: .* Raise vocabulary"):
        train_tokenizer(tmp_path / "a.txt", tmp_path / "out.json", kind="unigram", vocabulary=400)
    assert files_below(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_what_is_there_stays_without_force(corpus: Path, tmp_path: Path, name: str):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match=f"{name} exists already"):
        train_tokenizer(corpus, tmp_path / "tokenizer.json")
    with pytest.raises(InputError):
        train_tokenizer(tmp_path / "empty.jsonl", tmp_path / "tokenizer.json", force=True)
    assert files_below(tmp_path) == ["empty.jsonl", name] and (tmp_path / name).read_text() == "mine"
    assert train_tokenizer(corpus, tmp_path / "tokenizer.json", vocabulary=300, force=True).tokenizer.vocabulary == 300


def test_what_killed_trainings_have_left_goes(corpus: Path, tmp_path: Path):
    """Of processes of this machine that are no more, for the same files; process 1 is there."""
    host, dead = os.uname().nodename, 2**22  # above all ids of Linux
    gone = [f"tokenizer.json.{host}-{dead}-7.tmp", f"tokenizer_config.json.{host}-{dead}-{dead}.tmp"]
    kept = [f"tokenizer.json.{host}-1-1.tmp", f"tokenizer.json.{host}x-{dead}-7.tmp", f"a.json.{host}-{dead}-7.tmp"]
    kept += [f"tokenizer.json.{host}-{dead}.tmp", f"tokenizer.json.{host}-{dead}-7.tmp.gz"]
    for name in (*gone, *kept):
        (tmp_path / name).touch()
    train_tokenizer(corpus, tmp_path / "tokenizer.json", vocabulary=300)
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "tokenizer.json", "tokenizer_config.json"])


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer.txt", "tokenizer_config.json"])
def test_names_that_no_tokenizer_has(corpus: Path, tmp_path: Path, name: str):
    with pytest.raises(CurationError, match=r"Call it tokenizer\.json"):
        train_tokenizer(corpus, tmp_path / name)


# SentencePiece


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_a_sentencepiece_model_gives_texts_back_and_is_the_same_each_time(corpus: Path, tmp_path: Path, kind: str):
    found = [train_tokenizer(corpus, tmp_path / f"{k}.model", vocabulary=600, kind=kind) for k in range(2)]
    assert found[0].path.read_bytes() == found[1].path.read_bytes()
    tokenizer = found[0].tokenizer
    assert tokenizer.kind == "sentencepiece" and 261 < tokenizer.vocabulary <= 600
    assert (tokenizer.bos, tokenizer.eod) == (0, 1) and {*tokenizer.special_tokens} == {
        "<bos>",
        "<eos>",
        "<pad>",
        "<mask>",
    }
    texts = [text for text in BACK if "\0" not in text and "\u2581" not in text]
    assert there_and_back(tokenizer, texts) == texts
    assert (found[0].texts, found[0].rejected) == (300, 1) and 0 < found[0].tokens_per_byte < 1
    report = run(
        recipe_of(str(corpus), stages=[], tokenizer={"name": str(found[0].path)}), tmp_path / "out", engine="cpu"
    ).report
    assert report["tokens"]["tokenizer"]["kind"] == "sentencepiece"
    assert report["numbers"]["tokens_per_document"] == round(
        report["tokens"]["count"] / report["tokens"]["documents"], 3
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kind": "wordpiece"}, r"a SentencePiece model \(\.model\) is bpe or unigram, not wordpiece"),
        ({"special": ["<eos>"]}, "special tokens must have one for unknown text"),
        ({"vocabulary": 100}, "vocabulary must be from"),
        ({"inputs": "blank.jsonl"}, "no text to train a tokenizer on"),
        ({"output": "there.model"}, "there.model exists already"),
        ({"inputs": "signs.jsonl", "vocabulary": 400}, "bpe with 400 tokens is not possible"),
    ],
)
def test_a_sentencepiece_model_that_cannot_be_trained(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], told: str
):
    monkeypatch.chdir(tmp_path)
    Path("blank.jsonl").write_bytes(records_of([""]))
    Path("signs.jsonl").write_bytes(records_of(["".join(map(chr, range(0x4E00, 0x5000)))]))
    Path("there.model").write_bytes(b"")
    given = {"inputs": str(corpus), "output": "new.model", "vocabulary": 600, "kind": "bpe"} | settings
    with pytest.raises(CurationError, match=told):
        train_tokenizer(given.pop("inputs"), given.pop("output"), **given)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blank.jsonl", "signs.jsonl", "there.model"]
