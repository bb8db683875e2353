# SPDX-License-Identifier: Apache-2.0
"""Phases of training: a blend file each, and no input more often than `max_epochs` over all of them."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.errors import RecipeError
from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.results.report.text import print_funnel
from curation.running.run import run
from curation.tokens.blend_phases import BlendPhase, draw_phases, epochs_of, phase_warnings
from tests.needs import needs
from tests.runs import recipe_of, records_of

META = "tokens/_meta"
SIZES = {"web": 10_000, "wiki": 1000, "math": 500}
THREE = [
    {"name": "pretraining", "share": 0.9, "weights": {"web": 0.9, "wiki": 0.1}},
    {"name": "midtraining", "tokens": 2000, "weights": {"wiki": 1, "math": 1}},
    {"name": "long", "tokens": 500, "seq_length": 65_536},
]


def drawn(phases: list[dict[str, Any]], limit: int, sizes: dict[str, int] = SIZES) -> list[dict[str, int]]:
    found = msgspec.convert(phases, list[BlendPhase])
    return [draw.tokens for draw in draw_phases(found, limit, sizes, {n: Fraction(size) for n, size in sizes.items()})]


@pytest.mark.parametrize(
    ("phases", "limit", "expected"),
    [
        (THREE, 0, [{"web": 9315, "wiki": 1035}, {"wiki": 1000, "math": 1000},
                    {"web": 435, "wiki": 43, "math": 22}]),  # the last by tokens: 434.8, 43.5, 21.7
        # Math 2 times is 1000, of which the last phase has 22; wiki 2 times is 2000, of which 43 and 1022 are taken.
        (THREE, 2, [{"web": 9415, "wiki": 935}, {"wiki": 1022, "math": 978}, {"web": 435, "wiki": 43, "math": 22}]),
        # An earlier phase loses, and its other input gives the rest.
        ([{"name": "a", "tokens": 600, "weights": {"web": 1, "math": 1}},
          {"name": "b", "tokens": 400, "weights": {"math": 1}}], 1, [{"web": 500, "math": 100}, {"math": 400}]),
        # No input is left: fewer tokens than asked for.
        ([{"name": "a", "tokens": 600, "weights": {"math": 1}},
          {"name": "b", "tokens": 400, "weights": {"math": 1}}], 1, [{"math": 100}, {"math": 400}]),
        ([{"name": "a", "share": 2}], 2, [{"web": 20_000, "wiki": 2000, "math": 1000}]),
        ([{"name": "a", "tokens": 10, "weights": {"web": 1, "none": 4}}], 0, [{"web": 10}]),
        ([{"name": "a", "tokens": 10, "weights": {"none": 4}}], 3, [{}]),
    ],
)  # fmt: skip
def test_tokens_of_phases(phases: list[dict[str, Any]], limit: int, expected: list[dict[str, int]]):
    assert drawn(phases, limit) == expected


@given(st.data())
def test_no_limit_is_exceeded_and_no_token_is_lost(data: st.DataObject):
    names = st.sampled_from(["a", "b", "c", "d"])
    sizes = data.draw(st.dictionaries(names, st.integers(1, 99), min_size=1))
    limit = data.draw(st.integers(0, 3))
    weights = st.dictionaries(names, st.sampled_from([0.1, 1, 7]))
    phases = [
        {"name": f"p{number}", "tokens": tokens, "weights": given}
        for number, (tokens, given) in enumerate(data.draw(st.lists(st.tuples(st.integers(1, 400), weights))))
    ]
    found = drawn(phases, limit, sizes)
    for name, size in sizes.items():
        assert not limit or sum(tokens.get(name, 0) for tokens in found) <= limit * size
    left = {name: limit * size for name, size in sizes.items()}
    for phase, tokens in [*zip(phases, found, strict=True)][::-1]:
        usable = {name: w for name, w in (phase["weights"] or sizes).items() if name in sizes}
        most = sum(left[name] for name in usable) if limit else phase["tokens"] * bool(usable)
        assert sum(tokens.values()) == min(phase["tokens"], most) and tokens.keys() == usable.keys()
        for name, number in tokens.items():
            whole = sum(Fraction(str(weight)) for weight in usable.values())
            exact = phase["tokens"] * Fraction(str(usable[name])) / whole
            assert number > exact - 1 or number == left[name]  # less than its weight only at the limit
            left[name] -= number


def test_warnings_name_the_inputs():
    phases = msgspec.convert(
        [*THREE, {"name": "other", "tokens": 10, "weights": {"none": 1, "math": 1}}], list[BlendPhase]
    )
    weights = {name: Fraction(size) for name, size in SIZES.items()}

    def lines(limit: int) -> list[str]:
        return phase_warnings(draw_phases(phases, limit, SIZES, weights), SIZES, limit)

    assert lines(3) == ["phase other: input 'none' has no tokens; the other inputs get its share"]
    reason = "because max_epochs (2) limits all phases together"
    assert lines(2)[:2] == [
        f"phase pretraining: wiki 8.94% of the tokens instead of 10.00%, {reason}",
        f"phase midtraining: math 48.40% of the tokens instead of 50.00%, {reason}",
    ]
    short = lines(1)
    assert "phase midtraining: 575 tokens fewer than asked for, because its inputs have no more" in " ".join(short)
    many = msgspec.convert([{"name": "a", "tokens": 2500, "weights": {"math": 1}}], list[BlendPhase])
    [line] = phase_warnings(draw_phases(many, 0, SIZES, {}), SIZES, 0)
    assert line.startswith("the phases draw input 'math' 5.0 times. Above 4 repeats teach a model little")


def run_phases(folder: Path, splits: dict[str, float], **blend: Any) -> dict[str, Any]:
    inputs = []
    for name, count in (("web", 300), ("wiki", 40), ("math", 60)):
        path = folder / f"{name}.jsonl"
        path.write_bytes(records_of([f"{name} {k} " + "word " * (k % 40) for k in range(count)]))
        inputs.append({"path": str(path), "name": name})
    output = {"splits": splits, "max_file_bytes": 4000, "blend": {"phases": THREE, **blend}}
    report = run(recipe_of(*inputs, output=output), folder / "out", engine="cpu").report
    assert verify(folder / "out") == []
    return report


@pytest.mark.parametrize("splits", [{}, {"train": 0.8, "valid": 0.2}], ids=["no splits", "splits"])
def test_a_run_writes_a_blend_per_phase(splits: dict[str, float], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = run_phases(tmp_path, splits, max_epochs=2)
    meta = tmp_path / "out" / META
    pairs = orjson.loads((meta / "manifest.json").read_bytes())["pairs"]
    train = {str(tmp_path / "out/tokens" / pair["prefix"]): pair for pair in pairs if pair.get("split") != "valid"}
    sizes: dict[str, int] = {}
    for pair in train.values():
        sizes[pair["source"]] = sizes.get(pair["source"], 0) + pair["tokens"]
    expected = drawn(THREE, 2, sizes)
    assert len(train) > 3  # an input has several pairs
    stored = orjson.loads((meta / "phases.json").read_bytes())
    assert stored["phases"] == report["phases"] and stored["max_epochs"] == 2
    assert stored["epochs"] == {n: round(sum(t.get(n, 0) for t in expected) / size, 6) for n, size in sizes.items()}
    readme = (meta / "README.txt").read_text()
    for number, (phase, tokens) in enumerate(zip(THREE, expected, strict=True), 1):
        stem = f"{number}_{phase['name']}"
        words = (meta / f"blend_{stem}.txt").read_text().split()
        shares = dict(zip(words[1::2], map(float, words[::2]), strict=True))
        total = sum(tokens.values())
        for prefix, pair in train.items():
            share = tokens.get(pair["source"], 0) / total * pair["tokens"] / sizes[pair["source"]]
            assert shares.get(prefix, 0) == pytest.approx(share, rel=1e-5)
        length = phase.get("seq_length", 4096)
        name = f"blend_{stem}.txt --split 98,1,1" if not splits else f"per_split_{stem}.json"
        assert f"{meta / name} --seq-length {length} --seed {1233 + number} " in readme
        if splits:
            content = orjson.loads((meta / f"per_split_{stem}.json").read_bytes())
            assert content == orjson.loads((meta / "per_split.json").read_bytes()) | {"train": words}
    print_funnel(report)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["epochs", "of", "pretraining", "midtraining", "long", "all", "phases"] in shown
    for name in sizes:
        row = next(line for line in shown if line[:1] == [name] and len(line) == 5)
        assert row[-1] == f"{stored['epochs'][name]:.2f}"
    page = (tmp_path / "out/report.html").read_text()
    assert "<h3>Phases of training</h3>" in page and f"<td>{stored['epochs']['web']:.2f}</td></tr>" in page


def test_the_files_of_a_moved_run_are_rewritten(tmp_path: Path):
    report = run_phases(tmp_path, {}, max_epochs=2)
    (tmp_path / "out").rename(tmp_path / "moved")
    run(convert_recipe(report["recipe"]), tmp_path / "moved", engine="cpu")
    assert str(tmp_path / "moved/tokens/web") in (tmp_path / "moved" / META / "blend_1_pretraining.txt").read_text()
    assert verify(tmp_path / "moved") == []


def test_without_phases_nothing_is_added(tmp_path: Path):
    report = run_phases(tmp_path, {}, phases=[])
    assert "phases" not in report
    assert "Phases of training" not in (tmp_path / "out/report.html").read_text()
    assert {path.name for path in (tmp_path / "out" / META).iterdir()} == {
        "manifest.json", "blend.txt", "nemo.yaml", "README.txt",
    }  # fmt: skip


def test_epochs_are_sums():
    phases = msgspec.convert(THREE, list[BlendPhase])
    draws = draw_phases(phases, 0, SIZES, {name: Fraction(1) for name in SIZES})
    assert epochs_of(draws, SIZES) == {"web": 0.9482, "wiki": 2.202, "math": 2.332}  # 167, 167 and 166 in the last


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ({"name": "a b"}, "the name of a phase has 1 to 64 letters, digits, - and _, not 'a b'"),
        ({"name": ""}, "the name of a phase has 1 to 64 letters"),
        ({"name": "../a"}, "the name of a phase has 1 to 64 letters"),
        ({"tokens": 0}, "phase a: give tokens or share, one of them"),
        ({"share": 0.5}, "phase a: give tokens or share, not both"),
        ({"tokens": -1}, "phase a: tokens must be 0 or more, not -1"),
        ({"tokens": 0, "share": -0.5}, "phase a: share must be 0 or more, not -0.5"),
        ({"tokens": 0, "share": float("nan")}, "phase a: share must be 0 or more, not nan"),
        ({"seq_length": -1}, "phase a: seq_length must be 0 or more, not -1"),
        ({"weights": {"web": 0}}, "phase a: the weight of 'web' must be above 0, not 0"),
        ({"weights": {"wbe": 1}}, "phase a has a weight for 'wbe', but no input has that name; did you mean web?"),
        ({"weight": {"web": 1}}, "unknown field `weight`"),
        ({"name": "b"}, "two phases are named 'b'. Give each phase another name"),
    ],
)
def test_wrong_phases_are_one_message(phase: dict[str, Any], message: str):
    phases = [{"name": "b", "tokens": 5}, {"name": "a", "tokens": 5} | phase]
    recipe = {"input": [{"path": "web.jsonl"}], "output": {"blend": {"phases": phases}}}
    with pytest.raises(RecipeError, match=re.escape(message)) as caught:
        convert_recipe(recipe)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"blend": {"max_epochs": 4}}, "blend.max_epochs is a limit over blend.phases. Give phases, or leave it out"),
        ({"blend": {"max_epochs": -1}}, "blend.max_epochs must be 0 or more, not -1"),
        ({"formats": [], "blend": {"phases": THREE}}, "blend is set, but formats has no megatron"),
    ],
)
def test_settings_that_phases_need(output: dict[str, Any], message: str):
    with pytest.raises(RecipeError, match=re.escape(message)):
        convert_recipe({"output": output})


def test_the_loader_reads_the_blend_of_each_phase(tmp_path: Path):
    needs("torch")
    from curation.training import MegatronDataset

    run_phases(tmp_path, {}, max_epochs=2)
    for number, phase in enumerate(THREE, 1):
        data = MegatronDataset.from_blend(
            tmp_path / "out" / META / f"blend_{number}_{phase['name']}.txt", 16, samples=9
        )
        assert len(data) == 9
