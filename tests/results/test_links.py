# SPDX-License-Identifier: Apache-2.0
"""A chain of near-duplicates: `show`, the report and the library name the document that joins the two ends."""

from pathlib import Path

import pandas as pd
import pytest

import curation
from curation.base.engine import load_engine
from curation.cli import main
from curation.stages.corpus.links import GroupLink, find_links
from tests.runs import recipe_of, records_of, report_of

STAGE = {"kind": "fuzzy_dedup", "ngram": 1, "threshold": 0.8}


def text_of(changed: int, start: int = 0) -> str:
    """100 words, of which so many are others than in the first text."""
    return " ".join(f"other{k}" if start <= k < start + changed else f"word{k}" for k in range(100))


def similarity(left: str, right: str) -> float:
    one, other = set(left.split()), set(right.split())
    return len(one & other) / len(one | other)


# The first is kept; the others change 10 words more each: only neighbours are near-duplicates.
CHAIN = [text_of(0), text_of(10), text_of(20), text_of(30)]
LINKS = [None, GroupLink(1, similarity(CHAIN[1], CHAIN[2])), GroupLink(2, similarity(CHAIN[2], CHAIN[3]))]


def test_links_lead_to_the_kept_document():
    engine = load_engine("cpu")
    assert find_links(engine, STAGE, CHAIN) == [None, *LINKS]
    closer = text_of(11)  # as near to the kept one, and nearer to the third
    assert find_links(engine, STAGE, [*CHAIN, closer])[2] == GroupLink(4, similarity(closer, CHAIN[2]))
    assert find_links(engine, STAGE, [CHAIN[0], CHAIN[2]]) == [None, None]  # what joined them is not there
    assert find_links(engine, STAGE, CHAIN * 126) == [None] * 504  # too many


def test_a_run_names_the_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.jsonl").write_bytes(records_of([*CHAIN, "another text"]))
    recipe = recipe_of(tmp_path / "a.jsonl", stages=[STAGE], output={"formats": []})
    curation.run(recipe, tmp_path / "out", engine="cpu", progress=False)
    rows = curation.run_documents(tmp_path / "out", "pairs").to_pylist()
    ids = ["a/0", *(row["id"] for row in rows)]
    expected = [None if link is None else (ids[link.position], link.similarity) for link in LINKS]
    assert [row["link"] and (row["link"], row["link_jaccard"]) for row in rows] == expected
    [pairs] = report_of(tmp_path / "out")["texts"]["pairs"]
    reported = {pair["id"]: pair["link"] for pair in pairs["pairs"]}
    assert reported[ids[2]] == {"id": ids[1], "jaccard": round(LINKS[1].similarity, 6)} and reported[ids[1]] is None
    assert f"joined through <b>{ids[1]}</b>, Jaccard 0.818" in (tmp_path / "out/report.html").read_text()
    assert main(["show", str(tmp_path / "out"), "--what", "pairs"]) == 0
    assert f"Jaccard 0.6667; joined through {ids[1]}, Jaccard 0.8182" in capsys.readouterr().out


def test_a_frame_names_the_link():
    frame = pd.DataFrame({"text": ["another text", *CHAIN]})
    pairs = curation.fuzzy_dedup(frame, ngram=1, details=True).pairs
    assert pairs["link_row"].tolist() == [-1, 2, 3]
    assert pairs["link_similarity"].tolist()[1:] == [link.similarity for link in LINKS[1:]]
