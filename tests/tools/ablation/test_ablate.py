# SPDX-License-Identifier: Apache-2.0
"""`curation.ablate` and `curate ablate`: verdicts on texts whose worth is known, outputs, exit codes and messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import curation
from curation.base.errors import InputError, RecipeError
from curation.cli import main
from curation.tools.ablation import held_out as parts
from curation.tools.ablation.documents import Pair, read_pair
from curation.tools.ablation.draws import Documents, shuffled
from curation.tools.ablation.efficiency import Curve, fit_curve, slope_weights, worth_of
from curation.tools.ablation.experiment import Row, is_shift
from tests.corpus import real_pieces
from tests.menus import write_ablation
from tests.scripts.ablate_truth import Pool, table_of, verdict_of

SIZE = 350_000  # bytes of a curated text


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool([{"text": text} for text in real_pieces()], 400)


@pytest.mark.parametrize(
    ("kind", "verdicts"),
    [("boilerplate", {"better"}), ("swapped", {"worse"}), ("half", {"undecided", "no difference"})],
)
def test_verdicts_are_true(pool: Pool, kind: str, verdicts: set[str]):
    assert verdict_of(pool.experiment(kind, 0, SIZE))[0] in verdicts


def test_each_placebo_removes_other_documents(pool: Pool):
    experiment = pool.experiment("half", 0, SIZE)
    left = [experiment.larger.take(experiment._drawn(k), experiment.budget).to_pylist() for k in range(4)]
    assert all(len({*one} & {*other}) < 0.8 * len(one) for one in left for other in left if one is not other)
    experiment.score_placebos()
    assert experiment.bits is not None and len({*experiment.bits.sum(axis=1).tolist()}) == 16


def test_swapped_arms_have_the_opposite_rows(pool: Pool):
    one = pool.experiment("boilerplate", 1, SIZE)
    other = pool.experiment("boilerplate", 1, SIZE)
    other.__init__(  # type: ignore[misc]
        Pair(one.pair.curated, one.pair.raw, {}), pool.held_out, tier="seconds", budget=150_000, placebos=8,
        smallest=0.005, seed=1,
    )  # fmt: skip
    one.__init__(one.pair, pool.held_out, tier="seconds", budget=150_000, placebos=8, smallest=0.005, seed=1)  # type: ignore[misc]
    assert one.score_placebos() == other.score_placebos()
    found, turned = one.judge(), other.judge()
    assert [-row.value for row in found["sources"]] == [row.value for row in turned["sources"]]
    assert (found["curated"].low, found["curated"].high) == (-turned["curated"].high, -turned["curated"].low)
    budgets, others = one.measure_budgets(), other.measure_budgets()
    assert budgets.trend.value == -others.trend.value
    assert budgets.worth.factor == pytest.approx(1 / others.worth.factor)
    assert budgets.worth.low == pytest.approx(1 / others.worth.high)


# Whole ablations


def write(path: Path, texts: list[str], **more: Any) -> Path:
    lines = [json.dumps({"id": f"d{number}", "text": text} | more) for number, text in enumerate(texts)]
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `write_ablation`, and the finished run `run`, which removes the menus."""
    folder = tmp_path_factory.mktemp("ablate")
    write_ablation(folder)
    stages = [
        {"kind": "rewrite", "unicode": "nfc"},
        {"kind": "filter", "rules": ["gopher_repetition"]},
        {"kind": "exact_dedup"},
    ]
    recipe = curation.convert_recipe(
        {"input": [{"path": str(folder / "crawl.jsonl"), "name": "mine"}], "stages": stages, "output": {"formats": []}}
    )
    curation.run(recipe, folder / "run", engine="cpu")
    return folder


def held(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("target/*.jsonl")))


def test_an_ablation_of_a_run(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [
        "ablate", str(files / "crawl.jsonl"), str(files / "run"), "--held-out", *held(files), "-o",
        str(tmp_path / "out"),
    ]  # fmt: skip
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("plan: ") and lines[2].startswith("minimum detectable effect: ")
    assert lines[-1].startswith("better: curated text -")
    content = json.loads((tmp_path / "out/ablation.json").read_text())
    assert content["plan"] == json.loads((tmp_path / "out/plan.json").read_text())
    assert [row["name"] for row in content["stages"]] == ["filter"] and content["stages"][0]["verdict"] == "better"
    assert [row["name"] for row in content["sources"]] == list("abcdef")
    assert content["budgets"]["worth"]["factor"] > 1
    page = (tmp_path / "out/ablation.html").read_text()
    assert (
        "<script" not in page and content["line"].partition(": ")[2][:60] in page and page.count('class="interval"') > 8
    )
    assert "…" not in page  # a drawing that is cut
    before = (tmp_path / "out/ablation.json").read_bytes()
    assert main(words) == 0 and (tmp_path / "out/ablation.json").read_bytes() == before
    capsys.readouterr()
    assert main([*words, "--seed", "1"]) == 2
    assert "plan.json exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdict", "code"), [("better", 0), ("no difference", 0), ("undecided", 4), ("blind", 4), ("worse", 5)]
)
def test_exit_codes(verdict: str, code: int):
    from curation.cli.ablating import exit_code

    assert exit_code(verdict) == code


def ablate(files: Path, raw: Any = None, curated: Any = None, held_out: Any = None, **settings: Any) -> Any:
    return curation.ablate(
        files / "crawl.jsonl" if raw is None else raw, files / "run" if curated is None else curated,
        held_out=held(files) if held_out is None else held_out, **settings,
    )  # fmt: skip


def test_wrong_settings(files: Path):
    for settings, message in (
        ({"tier": "second"}, "did you mean seconds"),
        ({"placebos": 7}, "at least 8, not 7"),
        ({"smallest_effect": 0.0}, "above 0 and below 1, not 0"),
        ({"seed": -1}, "0 or more, not -1"),
    ):
        with pytest.raises(RecipeError, match=message):
            ablate(files, **settings)


def test_wrong_inputs(files: Path, tmp_path: Path):
    other = write(tmp_path / "other.jsonl", ["another text"])
    other.write_text(other.read_text().replace("d0", "x0"))
    small = write(tmp_path / "small.jsonl", ["a document of raw"])
    for arguments, message in (
        ({"curated": other}, "raw and curated have no document in common, compared by id$"),
        ({"raw": other}, "is a run over another input: its document 0 is 'd0', and 'x0' in raw"),
        ({"curated": small}, r"the curated arm has [\d,]+ bytes of text, expected 100,000 or more"),
        ({"held_out": held(files)[:1]}, "expected 300 of 5 or more"),
        ({"held_out": files / "crawl.jsonl"}, "in the training text or near-duplicates"),
    ):
        with pytest.raises(InputError, match=message):
            ablate(files, **arguments)


# Parts


@pytest.mark.filterwarnings("ignore:1 of 5 records")
def test_documents_of_several_files_are_numbered_as_in_a_run(tmp_path: Path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    paths[0].write_text('{"text": "one"}\n{"text": " "}\n{"text": "two"}\n')
    paths[1].write_text('{"text": "one"}\n{"text": "three"}\n')
    recipe = {"stages": ["exact_dedup"], "output": {"formats": []}}
    run = curation.run(recipe, tmp_path / "run", input=paths, engine="cpu")
    pair = read_pair(paths, run, 1_000_000, 0)
    assert pair.raw.column("text").to_pylist() == ["one", "two", "one", "three"]
    assert pair.curated.to_pylist() == [pair.raw.to_pylist()[k] for k in (0, 1, 3)]
    assert {name: keys.tolist() for name, keys in pair.removed.items()} == {
        "exact_dedup": pair.raw.column("key").to_pylist()[2:3]
    }


def test_leaks_and_near_duplicates_are_taken_out():
    words = [f"{a}{b}word" for a in "abcdef" for b in "ghijklmnop"]
    arms = table_of([" ".join(words), "other text " * 5], [1, 2])
    texts = [
        "It begins " + " ".join(words[20:33]), " ".join(words[20:32]), "nothing of it here", "Other text. " * 5,
        "nothing of it here", " ".join(words[:10] + words[11:]),
    ]  # fmt: skip
    table = table_of(texts, [*range(6)])
    assert parts.has_leak(table, arms).tolist() == [True, False, False, True, False, True]
    assert parts.is_near_duplicate(table, arms).tolist() == [False, True, False, True, True, True]


def test_held_out_texts_have_no_leaks(monkeypatch: pytest.MonkeyPatch):
    """A near-duplicate that shares no 13 words in a row, one that does, and a raw-like one with its curated copy."""
    monkeypatch.setattr(parts, "MIN_DOCUMENTS", 1)
    monkeypatch.setattr(parts, "MIN_SOURCES", 1)
    words = [f"{letter}word" for letter in "abcdefghijklmnopqrstuvwxy"]
    near = [*words[:12], "other", *words[13:]]
    arm = table_of([" ".join(words)], [7])
    target = table_of(["not in an arm", " ".join(near), " ".join(words[:13])], [1, 2, 3])
    raw_like = table_of([" ".join(near[::-1]), " ".join(near[1:])], [4, 5])
    assert not parts.has_leak(target.slice(1, 1), arm).any()
    found = parts.clean(target, raw_like, raw_like, Pair(arm, arm, {}))
    texts = {kind: held_out.texts.to_pylist() for kind, held_out in found.items()}
    assert texts["target"] == ["not in an arm"] and found["target"].leaked == 2
    assert texts["raw-like"] == texts["curated-like"] == [" ".join(near[::-1])]


def test_the_split_takes_the_same_documents_out_of_both_arms():
    numbers = [*range(2000)]
    raw = table_of([f"text {number}" for number in numbers], numbers)
    pair, raw_like, curated_like = parts.split_off(Pair(raw, raw.slice(0, 1000), {}))
    assert 60 < len(raw_like) < 140 and len(pair.raw) == 2000 - len(raw_like)
    assert curated_like.to_pylist() == [row for row in raw_like.to_pylist() if row["key"] < 1000]


def test_a_draw_removes_as_much_of_each_source():
    texts = ["x" * (10 + number % 7) for number in range(400)]
    documents = Documents(table_of(texts, [*range(400)], ["a"] * 300 + ["b"] * 100))
    order = documents.draw(3, {"a": 1000, "b": 50})
    assert sorted(order.tolist()) == [*range(400)]
    first = order[: np.searchsorted(np.cumsum(documents.sizes[order]), 1050)]
    left = {name: documents.sizes[first[documents.sources[first] == name]].sum() for name in "ab"}
    assert 983 < left["a"] <= 1016 and 33 < left["b"] <= 66
    taken = documents.take(order, 1001)
    assert sum(len(text) for text in taken.to_pylist()) == 1001
    assert documents.draw(3).tolist()[:5] == [350, 62, 355, 214, 281]  # on every machine


def test_the_control_shuffles_a_third_of_the_words():
    text = " ".join(map(str, range(1000)))
    [found] = shuffled(pa.array([text], pa.large_string())).to_pylist()
    assert sorted(found.split()) == sorted(text.split())
    assert 250 < sum(a != b for a, b in zip(found.split(), text.split(), strict=True)) < 350


def test_a_fitted_curve_is_read_inside_of_its_sizes_only():
    truth = Curve(1.5, 30.0, 0.3, 1e5, 2e6)
    sizes = [125_000, 250_000, 500_000, 1_000_000, 2_000_000]
    curve = fit_curve(sizes, [truth.at(size) for size in sizes])
    assert curve[:3] == pytest.approx(truth[:3])
    gains = [truth.at(size * 500_000) - truth.at(500_000) for size in (2, 3, 1.5)]
    assert worth_of(curve, 500_000, tuple(gains), False)[1:] == pytest.approx((2, 1.5, 3))
    assert worth_of(curve, 500_000, tuple(gains), True)[1:] == pytest.approx((1 / 2, 1 / 3, 1 / 1.5))
    assert worth_of(curve, 500_000, (0.0, -10.0, 10.0), False)[1:] == (pytest.approx(1), None, None)
    assert (slope_weights(sizes) * [3, 5, 7, 9, 11]).sum() == pytest.approx(2)


def test_a_shift_is_a_gain_on_curated_like_text_alone():
    def rows(target: float, raw: float, curated: float) -> list[Row]:
        ends = zip(parts.KINDS, (target, raw, curated), strict=True)
        return [Row(kind, high - 1, high - 2, high, "", 50) for kind, high in ends]

    assert is_shift(rows(1, 1, -1))
    assert not is_shift(rows(-1, 1, -1)) and not is_shift(rows(1, -1, -1)) and not is_shift(rows(1, 1, 1))
