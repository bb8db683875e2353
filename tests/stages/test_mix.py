# SPDX-License-Identifier: Apache-2.0
"""`mix` draws the documents that a plain draw by hashes takes, however the work is divided, and counts every copy."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base.errors import CurationError, RecipeError
from curation.results.finished.verify import verify
from curation.results.report.text import print_funnel
from curation.running.run import run
from curation.stages.corpus import key_ranges
from curation.stages.outcome import StageCount
from curation.stages.shares import mix
from curation.tokens.temperature import UNITS, tempered
from tests.runs import data_digests, kept_rows, recipe_of, records_of, removed_rows

WEIGHTS = {"web": 0.5, "wiki": 0.3, "books": 0.2}


def made(count: int = 600) -> tuple[list[str], list[str]]:
    """Texts, some equal and some empty, and their kinds: much web, little wiki, few books, and one without a weight."""
    rng = np.random.default_rng(5)
    kinds = rng.choice(["web", "wiki", "books", "spam"], size=count, p=[0.7, 0.17, 0.03, 0.1]).tolist()
    texts = ["word " * int(rng.integers(0, 40)) + str(int(rng.integers(0, count))) for _ in range(count)]
    return [text if rng.random() > 0.02 else "" for text in texts], kinds


def tokens_in(text: str) -> int:
    ids = curation.load_tokenizer("gpt2").encode(pa.array([text], "large_string"))[0]
    return len(ids) + 1 if len(ids) else 0


def quotas_of(weights: dict[str, float], total: int) -> dict[str, int]:
    exact = {
        name: total * Fraction(str(w)) / sum(map(Fraction, map(str, weights.values()))) for name, w in weights.items()
    }
    quotas = {name: math.floor(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: quotas[name] - exact[name])[: total - sum(quotas.values())]:
        quotas[name] += 1
    return quotas


def drawn_by_hand(texts: list[str], kinds: list[str], sizes: list[int], total: int, seed: int) -> list[int]:
    """How often each document is drawn: `sizes` are 1, or the tokens of the documents."""
    engine = curation.base.engine.load_engine("cpu")
    frame = pd.DataFrame({"text": pd.Series(texts, dtype="string[pyarrow]")})
    hashes = mix.seeded(engine.hash_text(frame["text"])[:, 0], seed).tolist()
    copies = [0] * len(texts)
    for name, quota in quotas_of(WEIGHTS, total).items():
        own = [k for k, kind in enumerate(kinds) if kind == name]
        whole = sum(sizes[k] for k in own)
        for k in own:
            copies[k] = quota // whole
        missing = quota % whole
        for k in sorted((k for k in own if sizes[k]), key=lambda k: (-hashes[k], k)):
            if missing <= 0:
                break
            copies[k] += 1
            missing -= sizes[k]
    return copies


def run_mix(folder: Path, settings: dict[str, Any], **how: Any) -> dict[str, Any]:
    texts, kinds = made()
    folder.mkdir(exist_ok=True)
    paths = []
    for name in ("a", "b"):
        half = [k for k in range(len(texts)) if (k < 250) == (name == "a")]
        lines = [records_of([texts[k]], kind=kinds[k]) for k in half]
        if not (folder / f"{name}.jsonl").exists():
            (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
        paths.append({"path": str(folder / f"{name}.jsonl"), "name": name, "columns": ["kind"]})
    stages = [{"kind": "mix", "by": "kind", "weights": WEIGHTS, **settings}]
    output = {"splits": {"train": 0.8, "valid": 0.2}, "cleaned": "jsonl", "part_documents": 40}
    report = run(recipe_of(*paths, stages=stages, output=output), folder / "out", engine="cpu", **how).report
    assert verify(folder / "out") == []
    return report


@pytest.mark.slow("a mix draws the documents that plain Python draws")
@pytest.mark.parametrize(
    "settings",
    [{"documents": 400}, {"documents": 1301, "seed": 9}, {"tokens": 3000}, {"tokens": 40_001}],
    ids=["documents", "more documents", "tokens", "more tokens"],
)
def test_documents_are_drawn_as_by_hand(tmp_path: Path, settings: dict[str, int]):
    texts, kinds = made()
    sizes = [tokens_in(text) for text in texts] if "tokens" in settings else [1] * len(texts)
    total = settings.get("tokens") or settings["documents"]
    expected = drawn_by_hand(texts, kinds, sizes, total, settings.get("seed", 1234))
    report = run_mix(tmp_path / "run", settings)
    rows = kept_rows(tmp_path / "run" / "out")
    assert Counter(row[0] for row in rows) == Counter({k: count for k, count in enumerate(expected) if count})
    firsts = [row[0] for row in rows if row[2] == "a"]
    starts = [0, *[k for k in range(1, len(firsts)) if firsts[k] <= firsts[k - 1]], len(firsts)]
    assert len(starts) - 1 == max(expected[:250])  # whole copies, one after the other
    reasons = Counter((row[0], row[4]) for row in removed_rows(tmp_path / "run" / "out"))
    gone = [(k, "no_weight" if kinds[k] == "spam" else "not_drawn") for k, count in enumerate(expected) if not count]
    assert reasons == Counter(gone)
    documents = report["documents"]
    assert documents["copies"] == sum(count - 1 for count in expected if count)
    assert documents["read"] + documents["copies"] == documents["kept"] + documents["removed"]
    groups = {group["name"]: group for group in report["stages"][0]["details"]["groups"]}
    drawn = "drawn_tokens" if "tokens" in settings else "drawn_documents"
    for name, quota in quotas_of(WEIGHTS, total).items():
        largest = max(size for size, kind in zip(sizes, kinds, strict=True) if kind == name)
        assert quota <= groups[name][drawn] < quota + largest
    if "tokens" in settings:
        assert sum(group["drawn_tokens"] for group in groups.values()) == report["tokens"]["count"]


@pytest.mark.slow("the draw of `mix` does not depend on slices, workers and groups of slices")
def test_the_draw_does_not_depend_on_slices_workers_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for settings in ({"documents": 700}, {"tokens": 9000}):
        name = str(*settings)
        whole = run_mix(tmp_path / f"{name}-one", settings, slice_bytes=1 << 20, workers=1)
        with monkeypatch.context() as changed:
            changed.setattr(key_ranges, "MIN_GROUP_ROWS", 16)
            changed.setattr(key_ranges, "MAX_GROUP_ROWS", 32)
            divided = run_mix(tmp_path / f"{name}-many", settings, slice_bytes=2000, workers=2)
        one, many = (data_digests(tmp_path / f"{name}-{how}" / "out") for how in ("one", "many"))
        assert one == many
        assert whole["stages"][0]["details"] == divided["stages"][0]["details"]
    seeds = [run_mix(tmp_path / f"seed-{seed}", {"documents": 300, "seed": seed}) for seed in (1, 2)]
    assert seeds[0]["documents_digest"] != seeds[1]["documents_digest"]


def test_without_a_number_nothing_is_repeated_and_shares_hold(tmp_path: Path):
    report = run_mix(tmp_path / "run", {})
    groups = {group["name"]: group for group in report["stages"][0]["details"]["groups"]}
    assert report["documents"]["copies"] == 0
    most = groups["books"]["documents"] / Fraction("0.2")  # books are the scarcest
    assert {name: groups[name]["drawn_documents"] for name in WEIGHTS} == {
        name: int(most * Fraction(str(weight))) for name, weight in WEIGHTS.items()
    }


def test_the_report_has_a_table_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = run_mix(tmp_path / "run", {"documents": 1000})
    print_funnel(report)
    shown = [line.removeprefix("mix: ").split() for line in capsys.readouterr().out.splitlines()]
    assert ["kind", "documents", "share", "drawn", "share", "copies", "at", "most"] in shown
    books = next(group for group in report["stages"][0]["details"]["groups"] if group["name"] == "books")
    row = next(line for line in shown if line[:1] == ["books"])
    assert row[3:] == ["200", "20.00%", str(200 - books["documents"]), f"{books['most_copies']}x"]
    assert any(line[:2] == ["(no", "weight)"] and line[4] == "0" for line in shown)
    [warning] = [line for line in report["warnings"] if "Muennighoff" in line]
    assert f"documents of 'books' are repeated up to {books['most_copies']} times" in warning


def test_inputs_are_the_groups_by_default(tmp_path: Path):
    for name, count in (("a", 50), ("b", 10)):
        (tmp_path / f"{name}.jsonl").write_bytes(records_of([f"{name} {k}" for k in range(count)]))
    inputs = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    stages = [{"kind": "mix", "weights": {"b": 3, "a": 1}, "documents": 40}]
    report = run(recipe_of(*inputs, stages=stages), tmp_path / "out", engine="cpu").report
    assert {row["name"]: (row["documents_kept"], row["copies"]) for row in report["sources"]} == {
        "a": (10, 0),
        "b": (30, 20),
    }
    assert verify(tmp_path / "out") == []


def test_a_frame_is_mixed_as_a_run_is(tmp_path: Path):
    texts, kinds = made()
    frame = pd.DataFrame({"text": texts, "kind": kinds})
    drawn = curation.mix(frame, WEIGHTS, by="kind", documents=1000)
    run_mix(tmp_path / "run", {"documents": 1000})
    rows = kept_rows(tmp_path / "run" / "out")
    assert sorted(drawn.index) == sorted(row[0] for row in rows) and drawn.index.is_monotonic_increasing


# Multilingual BERT: exponent 0.7; "English would be sampled 1000x more than Icelandic, but after smoothing it's only
# sampled 100x more" (its multilingual.md). 1000^0.7 = 10^2.1 = 125.89.
@pytest.mark.parametrize(
    ("sizes", "temperature", "weights"),
    [
        ([1000, 1], 1 / 0.7, [1, 10**-2.1]),
        ([1_000_000, 10_000, 100, 0], 2, [1, 0.1, 0.01, 0]),
        ([3, 7], 1, [3 / 7, 1]),
        ([1_000_000, 1], 1e300, [1, 1]),
        ([7, 6], 1e-9, [1, 0]),
        ([], 2, []),
    ],
)
def test_weights_are_powers_of_sizes(sizes: list[int], temperature: float, weights: list[float]):
    assert [weight / UNITS for weight in tempered(sizes, temperature)] == pytest.approx(weights, rel=1e-12)


def test_a_weight_is_the_nearest_integer_to_the_exact_root():
    weight = tempered([10, 9], 3.33)[1]  # UNITS x 0.9^(100/333)
    exact = (2 * UNITS) ** 333 * 9**100
    assert (2 * weight - 1) ** 333 * 10**100 < exact < (2 * weight + 1) ** 333 * 10**100


@pytest.mark.parametrize(
    ("weights", "sizes", "total", "epochs", "quotas"),
    [
        ([10, 1], [1000, 10], 110, 0, [100, 10]),
        ([1, 1], [1000, 10], 100, 4, [60, 40]),  # the small group 4 times, the rest from the other
        ([2, 1, 1], [100, 1, 100], 100, 2, [65, 2, 33]),  # 98 by 2 : 1 is 65.3 and 32.7
        ([1, 1], [10, 10], 100, 4, [40, 40]),  # all groups 4 times: fewer than asked for
        ([1, 1, 0], [5, 100, 7], 20, 1, [5, 15, 0]),
    ],
)
def test_what_a_group_lacks_is_given_to_the_others(
    weights: list[int], sizes: list[int], total: int, epochs: int, quotas: list[int]
):
    assert mix.apportion([*map(Fraction, weights)], sizes, total, epochs) == quotas


def test_a_temperature_finds_the_groups_and_draws_by_their_sizes(tmp_path: Path):
    texts, kinds = made()
    settings = {"weights": {}, "temperature": 2, "tokens": 9000, "max_epochs": 2}
    report = run_mix(tmp_path / "run", settings, workers=2, slice_bytes=9000)
    sizes: Counter[str] = Counter()
    for text, kind in zip(texts, kinds, strict=True):
        sizes[kind] += tokens_in(text)
    groups = report["stages"][0]["details"]["groups"]
    assert [group["name"] for group in groups] == sorted(sizes, key=lambda kind: -sizes[kind])
    quotas = {"books": 2 * sizes["books"]}  # below its share by the root of its size
    roots = {kind: math.sqrt(size) for kind, size in sizes.items() if kind != "books"}
    quotas |= {kind: (9000 - quotas["books"]) * root / sum(roots.values()) for kind, root in roots.items()}
    for group in groups:
        assert group["tokens"] == sizes[group["name"]]
        assert quotas[group["name"]] - 1 < group["drawn_tokens"] < quotas[group["name"]] + 100
    assert {row[4] for row in removed_rows(tmp_path / "run" / "out")} == {"not_drawn"}
    assert not [line for line in report["warnings"] if "fewer" in line]


@pytest.mark.parametrize("settings", [{"weights": {"a": 1, "b": 2}}, {"temperature": 2.0}], ids=str)
def test_no_documents_are_no_mixture(tmp_path: Path, settings: dict[str, Any]):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"text": "gone", "kind": "a"}\n')
    stages = [{"kind": "filter", "rules": ["gopher"]}, {"kind": "mix", "by": "kind", "documents": 5} | settings]
    report = run(recipe_of(path, columns=["kind"], stages=stages), tmp_path / "out", engine="cpu").report
    assert report["documents"]["kept"] == 0 and report["documents"]["read"] == 1


def test_documents_without_a_group_are_removed_and_a_limit_of_epochs_is_kept():
    frame = pd.DataFrame({"text": [*"abcdefgh"], "kind": ["x", "x", "x", "x", "x", "y", None, ""]})
    drawn = curation.mix(frame, temperature=1e9, by="kind", documents=8, max_epochs=2)
    assert Counter(drawn["kind"]) == {"x": 6, "y": 2}


def test_a_mixture_that_cannot_be_so_large_is_smaller_and_says_so():
    frame = pd.DataFrame({"text": [*"abc"], "kind": [*"xxy"]})
    stage = mix.Mix(temperature=5, by="kind", documents=9, max_epochs=2)
    assert len(curation.mix(frame, stage)) == 6
    details = {"unit": "documents", "groups": [], "missing": 3}
    [warning] = stage.warnings(StageCount(kind="mix", name="mix", details=details))
    assert "3 documents fewer than asked for" in warning and "max_epochs (2) times. Raise it" in warning


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"weights": {}}, "weights is empty"),
        ({"weights": {"a": 1}, "tokenizer": ""}, "tokenizer is empty"),
        ({"temperature": 2}, "give weights or temperature, not both"),
        ({"weights": {}, "temperature": -1}, "temperature must be above 0, not -1"),
        ({"weights": {}, "temperature": float("inf")}, "temperature must be finite, not inf"),
        ({"max_epochs": 4}, "max_epochs needs documents or tokens"),
        ({"max_epochs": -1, "documents": 5}, "max_epochs must be 0 or more, not -1"),
        ({"weights": {"web": 0}}, "the weight of 'web' must be above 0, not 0"),
        ({"weights": {"web": float("nan")}}, "the weight of 'web' must be above 0, not nan"),
        ({"documents": -1}, "documents must be 0 or more, not -1"),
        ({"documents": 5, "tokens": 5}, r"give documents or tokens, not both \(5 and 5\)"),
        ({"by": "text"}, "by must be source, or a column whose values repeat, not 'text'"),
        ({"weights": {"webb": 1}, "by": "source"}, "weights has 'webb', but no input has that name"),
        ({"weights": {"webb": 1}}, "no documents of kind 'webb' reach the stage"),
        ({"documents": 10**9}, "which repeats each more than 65,535 times. Lower its weight, or documents"),
        ({"tokens": 9, "tokenizer": "gpt3"}, "mix counts tokens of gpt3 .* but the recipe packs gpt2"),
        (
            {"tokens": 9, "append_eod": False},
            r"mix counts tokens of gpt2 \(append_eod: false\), but the recipe packs gpt2",
        ),
        ({"by": "missing"}, "reads the column 'missing', which the input a .* does not carry"),
    ],
)
def test_wrong_settings_and_groups_are_refused(tmp_path: Path, settings: dict[str, Any], told: str):
    with pytest.raises(CurationError, match=told):
        run_mix(tmp_path / "run", settings, force_disk=True)


def test_a_missing_column_is_added_to_the_list_or_the_mapping_of_the_input(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    for columns, remedy in (
        (["n"], r"Add columns: \[of\] to the input"),
        ({"n": "of"}, "Add of: of to the columns of"),
    ):
        recipe = recipe_of(
            {"path": str(tmp_path / "a.jsonl"), "columns": columns},
            stages=[{"kind": "mix", "by": "of", "weights": {"a": 1}}],
        )
        with pytest.raises(RecipeError, match=remedy):
            run(recipe, tmp_path / "out", engine="cpu")


def test_a_mix_that_does_not_fit_the_recipe_is_refused():
    mixed = {"kind": "mix", "weights": {"a": 1}}
    with pytest.raises(RecipeError, match="mix must be the last stage, but exact_dedup comes after mix"):
        curation.convert_recipe({"stages": [mixed, "exact_dedup"]})
    with pytest.raises(RecipeError, match=r"copies of a\.jsonl and mix both repeat documents"):
        curation.convert_recipe({"input": [{"path": "a.jsonl", "copies": 2}], "stages": [mixed]})


@pytest.mark.slow("a killed mix resumes with the same bytes")
def test_a_killed_run_continues_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = run_mix(tmp_path / "whole", {"tokens": 9000})
    counted = mix.Mix._count_copies

    def die(stage: mix.Mix, engine: Any, corpus: Any, task: int) -> None:
        counted(stage, engine, corpus, task)
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    monkeypatch.setattr(mix.Mix, "_count_copies", die)
    with pytest.raises(KeyboardInterrupt):
        run_mix(folder, {"tokens": 9000}, workers=1)
    monkeypatch.undo()
    finished = [*(folder / "out" / "_work").rglob("copies/*.bin")]
    assert run_mix(folder, {"tokens": 9000})["outputs"].keys() == expected["outputs"].keys() and finished
    assert data_digests(folder / "out") == data_digests(tmp_path / "whole" / "out")
