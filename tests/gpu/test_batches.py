# SPDX-License-Identifier: Apache-2.0
"""How many batches the device gets for an amount of text: batches have a size in bytes, not in lines."""

import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.base import engine as selector
from curation.reading import lines
from curation.running.phases import write_phase
from curation.running.run import run
from tests.gpu import stand_ins
from tests.runs import kept_rows, recipe_of, records_of

BATCH = 64 << 10  # in place of 256 MB
LINES = 8  # in place of 65,536, so that a batch of documents of 4 kB has twice as many
STAGES = [{"kind": "filter", "rules": [{"measure": "words", "min": 4}]}, {"kind": "exact_dedup"}]
TEXTS = [f"document {k} " + "and more words " * 255 for k in range(32)]


@pytest.fixture
def calls(monkeypatch):
    """The names of the functions that a run calls, once per call."""
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    made, calls = stand_ins.install_engine(monkeypatch), []
    monkeypatch.setattr(made, "batch_bytes", lambda workers: BATCH)
    monkeypatch.setattr(made, "tokens_at_once", lambda: BATCH // 2)

    def counted(name):
        def work(*arguments):
            calls.append(name)
            return getattr(cpu_fallback, name)(*arguments)

        return work

    for name in ("measure", "hash_text", "tokenize"):  # kernels are slow here
        monkeypatch.setattr(made, name, counted(name))
    json_lines = made.read_slice.__globals__["parse_block"].__globals__
    monkeypatch.setitem(json_lines, "MIN_BYTES", 1)

    def parse_lines(data, text, *arguments, parse=json_lines["parse_lines"]):
        calls.append("parse")
        found = lines.parse_lines(data, lines.jsonl.count_lines(data, 0, len(data)), *arguments)
        return found._replace(table=sys.modules["gpu_pipeline.io"].from_arrow(found.table))

    monkeypatch.setitem(json_lines, "parse_lines", parse_lines)
    monkeypatch.setattr(lines, "LINES_AT_ONCE", LINES)
    monkeypatch.setitem(json_lines, "LINES_AT_ONCE", LINES)
    monkeypatch.setattr(lines, "LAST_STEP", 4 << 10)
    # Row groups of 16 MB, and files of 32 MB
    monkeypatch.setattr("curation.record.documents.ROW_GROUP_BYTES", BATCH // 16)
    monkeypatch.setattr(write_phase, "SHARED_BYTES", BATCH // 2)
    return calls


def made_run(tmp_path, name, texts, **settings):
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(texts))
    recipe = recipe_of(path, stages=STAGES, output={"part_bytes": BATCH // 8})
    run(recipe, tmp_path / name, workers=1, **settings)
    return tmp_path / name


def test_a_batch_per_256_mb_and_two_calls_for_its_tokens(calls, tmp_path, monkeypatch):
    size = len(records_of(TEXTS))
    assert 1.8 * BATCH < size <= 2 * BATCH
    folder = made_run(tmp_path, "gpu", TEXTS, engine="gpu")
    assert [calls.count(name) for name in ("parse", "measure", "hash_text", "tokenize")] == [2, 2, 2, 4]
    monkeypatch.undo()
    expected = made_run(tmp_path, "cpu", TEXTS, engine="cpu")
    assert kept_rows(folder) == kept_rows(expected) and len(kept_rows(folder)) == len(TEXTS)
    pairs = [path.relative_to(expected) for path in expected.glob("tokens/*.*")]
    assert len(pairs) > 1 and all((folder / path).read_bytes() == (expected / path).read_bytes() for path in pairs)


def test_short_documents_have_a_bound_of_their_own(calls, tmp_path, monkeypatch):
    texts = [f"{k} and three more" for k in range(200)]
    size = len(records_of(texts))
    monkeypatch.setitem(sys.modules["gpu_pipeline.io"].parse_block.__globals__, "LINE_BYTES", 4 * size // len(texts))
    made_run(tmp_path, "gpu", texts, engine="gpu")
    assert calls.count("parse") == calls.count("measure") == 4 and size < BATCH


def test_the_host_encodes_only_part_of_a_batch_with_the_text_of_a_special_token(monkeypatch):
    tokens = stand_ins.install(monkeypatch)("tokens")
    monkeypatch.setattr(tokens, "HOST_BYTES", 40)
    texts = [f"text {k:05}" for k in range(20)]  # 10 bytes, 4 of them for the host at a time
    special, on_host = 9, []

    def of_device(data, offsets, tokenizer):
        rows = [int(start) // 10 for start in offsets[:-1]]
        return None if special in rows else (np.array(rows, np.uint16), np.ones(len(rows), np.int32))

    def of_host(text, tokenizer):
        rows = [int(each.split()[1]) for each in text]
        on_host.extend(rows)
        return np.array(rows, np.uint16), np.ones(len(rows), np.int32)

    monkeypatch.setattr(tokens, "_tokenize_batch", of_device)
    monkeypatch.setattr(tokens, "_tokenize_on_host", of_host)
    column = stand_ins.Series.from_arrow(pa.array(texts, pa.large_string()))
    ids, lengths = tokens._in_batches(column, SimpleNamespace(dtype=np.dtype(np.uint16)))
    assert ids.tolist() == [*range(20)] and lengths.tolist() == [1] * 20
    assert on_host == [8, 9, 10, 11]
