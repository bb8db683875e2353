# SPDX-License-Identifier: Apache-2.0
"""Parts of documents against plain Python, and the settings of splits."""

from types import ModuleType

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from curation import load_tokenizer
from curation.base.contract import Batch, Rejected
from curation.base.errors import InputError, RecipeError
from curation.reading.documents import schema_of
from curation.reading.inputs import Input, refuse_streamed
from curation.reading.split_settings import SEPARATOR, Split
from curation.reading.splitting import Parts, find_spans
from curation.recipes.recipe import convert_recipe
from curation.tokens.token_spans import token_sizes
from tests.corpus import NASTY
from tests.oracle.splitting import parts_of

TEXTS = [text for text in NASTY if len(text) < 200] + [
    "",
    "\n\n",
    "a\n\n\n\nb",
    "a--b",
    "One. Two! “Three.” x",
    "🙂漢字" * 9,
]
SPLITS = [
    ({"at": "\n\n"}, {"at": "\n\n"}),
    ({"at": r"(?i)[a-c]+|\n\s*\n"}, {"at": r"(?i)[a-c]+|\n[\t\n\f\r ]*\n"}),
    ({"sentences": 3}, {"sentences": 3}),
    ({"tokens": 2}, {"size": 2}),
]


@pytest.mark.parametrize(("settings", "expected"), SPLITS, ids=lambda value: str(value)[:20])
def test_parts_equal_plain_python(settings: dict, expected: dict, engine: ModuleType):
    tokenizer = load_tokenizer("gpt2")
    names = {number: token for token, number in tokenizer.byte_pairs.ranks.items()}
    found_ids, counts = tokenizer.encode(pa.array(TEXTS, pa.large_string()))
    encoded = iter(np.split(found_ids, np.cumsum(counts)[:-1]))
    wanted = []
    for row, text in enumerate(TEXTS):
        tokens = {"tokens": [names[int(number)] for number in next(encoded)]} if "size" in expected else {}
        wanted += [(f"x{row}#{k}", *part, f"u{row}") for k, part in enumerate(parts_of(text, **expected, **tokens))]
    ids = [f"x{row}" for row in range(len(TEXTS))]
    urls = [f"u{row}" for row in range(len(TEXTS))]
    rows = pa.table([range(len(TEXTS)), ids, TEXTS, urls], schema=schema_of(["url"]))
    for batch_bytes, size in ((3000, 200), (1 << 20, len(TEXTS))):
        parts = Parts(Split(**settings), batch_bytes, lambda texts: token_sizes(tokenizer, texts))
        found, places = [], []
        for start in range(0, len(TEXTS), size):
            batch = Batch(rows.slice(start, size), [], min(size, len(TEXTS) - start), 0)
            for part, _ in parts.batches(engine, batch):
                table = engine.to_arrow(part.frame)
                places += table.column("row").to_pylist()
                found += zip(
                    *(table.column(name).to_pylist() for name in ("id", "text", SEPARATOR, "url")), strict=True
                )
        assert found == wanted
        assert places == list(range(len(wanted))) and parts.positions == parts.parts == len(wanted)


def test_a_record_that_is_no_document_has_one_position(engine: ModuleType):
    rows = pa.table([[1, 3], [None, "a#b"], ["a,b", "c,d,e"]], schema=schema_of([]))
    rejected = [Rejected(row, row, -1, "bad") for row in (0, 2, 4)]
    parts = Parts(Split(at=","), 1)
    batches = list(parts.batches(engine, Batch(rows, rejected, 5, 5)))
    tables = pa.concat_tables([engine.to_arrow(part.frame) for part, _ in batches])
    assert tables.column("row").to_pylist() == [1, 2, 4, 5, 6]
    assert tables.column("id").to_pylist() == ["#0", "#1", "a#b#0", "a#b#1", "a#b#2"]
    assert [entry.row for part, _ in batches for entry in part.rejected] == [0, 3, 7]
    assert sum(part.rows for part, _ in batches) == 8 and sum(added for _, added in batches) == 3
    assert [firsts.tolist() for firsts in parts.firsts] == [[0, 1, 3, 4, 7]]


WRONG = {
    r"split.at: 'x\*' matches an empty text": {"at": "x*"},
    r"split.at: '\\\\b' matches an empty text": {"at": r"\b"},
    r"split.at: '\(\?m\)\^' matches an empty text": {"at": "(?m)^"},
    "split.at: '' is empty": {"at": ""},
    "split.at: 'a.*' is not a regular expression of RE2": {"at": "a(?=b)"},
    "split.sentences must be at least 1, not 0. To read whole documents": {"sentences": 0},
    "split.tokens must be at least 1, not -1": {"tokens": -1},
    "split is empty; expected one of at:": {},
    "split has at and tokens; expected one of": {"at": "x", "tokens": 5},
    "unknown field `words`": {"words": 5},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_splits(message: str):
    with pytest.raises(RecipeError, match=message):
        convert_recipe({"input": [{"path": "a.jsonl", "split": WRONG[message]}], "stages": []})


WRONG_OUTPUTS = {
    "join is how cleaned/ is written, and cleaned is not set": {"join": "id"},
    "join must be id, not 'url'": {"join": "url", "cleaned": "jsonl"},
    "join_separator needs join: id": {"join_separator": "", "cleaned": "jsonl"},
    "export_columns has 'separator', which joined": {"join": "id", "cleaned": "csv", "export_columns": ["separator"]},
    "export_columns has 'split', which joined": {"join": "id", "cleaned": "csv", "export_columns": ["split"]},
    "output.join joins the parts of documents, and no input has split": {"join": "id", "cleaned": "jsonl"},
}


@pytest.mark.parametrize("message", WRONG_OUTPUTS)
def test_wrong_joins(message: str):
    with pytest.raises(RecipeError, match=message):
        convert_recipe({"input": [{"path": "a.jsonl"}], "stages": [], "output": WRONG_OUTPUTS[message]})


def test_a_pattern_that_matches_empty_in_a_document_alone_is_an_error():
    split = Split(at="7")
    msgspec.structs.force_setattr(split, "at", "7?")  # no known pattern passes the probes
    with pytest.raises(InputError, match="matches an empty text in a document"):
        find_spans(pa.array(["xy"], pa.large_string()), split)


def test_a_mapping_in_python_is_a_split():
    assert Input(path="a.jsonl", split={"sentences": 2}) == Input(path="a.jsonl", split=Split(sentences=2))
    with pytest.raises(ValueError, match=r"split\.sentences must be at least 1, not 0"):
        Input(path="a.jsonl", split={"sentences": 0})
    with pytest.raises(ValueError, match="columns may not name 'separator' with split"):
        Input(path="a.jsonl", columns=["separator"], split={"sentences": 2})


def test_tokens_need_the_tokenizer_of_a_recipe():
    with pytest.raises(InputError, match="split: tokens needs the tokenizer of a recipe"):
        find_spans(pa.array(["a"], pa.large_string()), Split(tokens=2))


@pytest.mark.parametrize("setting", [{"skip": 1}, {"limit": 1}, {"max_bytes": 1}, {"split": Split(at="x")}])
def test_only_runs_follow_limits(setting: dict):
    with pytest.raises(InputError, match=f"a.jsonl has {next(iter(setting))}, which only runs use"):
        refuse_streamed([Input(path="a.jsonl", **setting)])
