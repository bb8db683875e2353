# SPDX-License-Identifier: Apache-2.0
"""The tokens of an output part: whose files they are, and what is noticed when they are gathered."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.base.errors import InputError, IntegrityError, OutputError
from curation.recipes.recipe import convert_recipe
from curation.record.folder import sweep
from curation.record.records import TaskCounts
from curation.record.stored_plan import Plan
from curation.running import phase_loop
from curation.running import run as runner
from curation.running.phases import write_phase
from curation.tokens.token_files import check_tokens, token_files, token_paths
from curation.tokens.tokenization import load_tokenizer
from tests.tokens.samples import make_texts, train_tokenizer, write_jsonl

RECIPE = convert_recipe({"input": [{"path": "x.jsonl"}]})
ONE, TWO = "one two three", "four five"


def column(*texts: str) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def test_threads_do_not_write_into_each_others_files(tmp_path):
    """A task of a run that failed goes on in its thread, while the next run writes the same part."""
    old, new = token_files(RECIPE, cpu_fallback, tmp_path, 0), token_files(RECIPE, cpu_fallback, tmp_path, 0)
    with ThreadPoolExecutor(1) as thread:
        left = thread.submit(old.__enter__).result()
        thread.submit(left.write, column(ONE)).result()
        with new as files:
            files.write(column(ONE))
            thread.submit(left.write, column(TWO)).result()
            thread.submit(old.__exit__, None, None, None).result()
            files.write(column(TWO))
    ids, lengths = token_paths(tmp_path, 0)
    assert np.fromfile(ids, "<u2").tolist() == load_tokenizer("gpt2").pack(column(ONE, TWO)).ids.tolist()
    assert np.fromfile(lengths, "<i4").sum() == files.counts()["tokens"]
    assert sorted(os.listdir(tmp_path)) == [ids.name, lengths.name]


def write_swept(folder: Path) -> None:
    with token_files(RECIPE, cpu_fallback, folder, 0) as files:
        files.write(column(ONE))
        sweep(folder, [path.name.split(".")[0] for path in folder.iterdir()])
        files.write(column(TWO))


def write_badly(folder: Path) -> None:
    with token_files(RECIPE, cpu_fallback, folder, 0) as files:
        files.write(column(ONE))
        files.write(pa.chunked_array([pa.array([None], pa.large_string())]))


@pytest.mark.parametrize(("write", "error"), [(write_swept, FileNotFoundError), (write_badly, InputError)])
def test_a_part_that_fails_leaves_nothing(tmp_path, write, error):
    """Nor one whose files the next run has swept away: what came after would be taken for the whole part."""
    with pytest.raises(error):
        write(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that ends after some of its parts, with a tokenizer of its own; to be resumed."""
    tokenizer = train_tokenizer(tmp_path / "tokenizer.json", make_texts(100))
    source = write_jsonl(tmp_path / "news.jsonl", make_texts(100))
    recipe = convert_recipe(
        {"input": [{"path": str(source)}], "tokenizer": {"name": str(tokenizer)}, "output": {"part_documents": 30}}
    )
    write = write_phase.write_output_parts

    def fail(plan: Plan, job: write_phase.OutputJob, number: int) -> TaskCounts:
        if number == 2:
            raise KeyError("a fault")
        return write(plan, job, number)

    monkeypatch.setattr(write_phase, "SHARED_DOCUMENTS", 1)  # a task per part
    with monkeypatch.context() as patch:
        patch.setattr(phase_loop, "write_output_parts", fail)
        with pytest.raises(KeyError):
            runner.run(recipe, tmp_path / "out", workers=1)
    return recipe


def test_a_part_whose_tokens_are_not_those_of_its_record(stopped, tmp_path):
    ids, lengths = token_paths(tmp_path / "out/_work/outputs", 0)
    kept = np.fromfile(lengths, "<i4")[:-2]
    kept.tofile(lengths)
    os.truncate(ids, 2 * int(kept.sum()))  # the two still agree with each other
    with pytest.raises(IntegrityError, match=r"000000\.ids has \d+ bytes, its record counts \d+ tokens of 2 bytes"):
        runner.run(stopped, tmp_path / "out")


def test_parts_of_two_tokenizers_are_not_joined(stopped, tmp_path):
    before = (tmp_path / "tokenizer.json").read_bytes()
    train_tokenizer(tmp_path / "tokenizer.json", make_texts(100), vocabulary=280)
    with pytest.raises(OutputError, match=r"changed: tokenizer\.sha256"):
        runner.run(stopped, tmp_path / "out")
    records = [{"tokenizer": {"sha256": "another"}, "split_tokens": {}}]
    with pytest.raises(IntegrityError, match=r"part 0 was tokenised with another"):
        check_tokens(stopped, tmp_path / "out/_work/outputs", [(0, "news")], records)
    (tmp_path / "tokenizer.json").write_bytes(before)
