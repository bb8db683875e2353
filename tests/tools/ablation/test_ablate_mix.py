# SPDX-License-Identifier: Apache-2.0
"""`curation.ablate_mix` and `curate ablate --mix`: weights of domains with planted noise, outputs and messages."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import curation
from curation.base.errors import EngineError, InputError, RecipeError
from curation.cli import main
from curation.stages.shares.mix import apportion
from curation.tools.ablation import swarm
from curation.tools.ablation.byte_model import HeldOut
from curation.tools.ablation.mixture import DomainRow, Mixture, WeightsRow
from curation.tools.ablation.mixtures import Mixtures, capped
from curation.tools.ablation.reweighting import SMOOTHING, reweighed
from tests.needs import needs
from tests.scripts.ablate_truth import table_of
from tests.scripts.mixture_truth import choose, cut, is_true, noise_of, own_domains, write, write_case

SIZE = 400_000  # bytes of a case


@pytest.fixture(scope="module")
def domains() -> dict[str, list[str]]:
    return own_domains()


@pytest.mark.parametrize(
    "kind",
    [
        "characters",
        *(
            pytest.param(kind, marks=pytest.mark.slow("weights by regression, and of equal domains, are true"))
            for kind in ("regmix", "equal")
        ),
    ],
)
def test_weights_are_true(domains: dict[str, list[str]], kind: str, tmp_path: Path):
    write_case(tmp_path / "case", domains, kind, 0, SIZE if kind != "equal" else 2 * SIZE)
    assert is_true(kind, choose(tmp_path / "case", kind, 0))


@pytest.fixture(scope="module")
def files(domains: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three domains, and `all.jsonl` with the same documents and the column `kind`."""
    folder = tmp_path_factory.mktemp("mix")
    chance = random.Random(3)
    texts = {
        "python": cut(domains["python"], 150_000), "latin": cut(domains["latin"], 100_000),
        "noise": noise_of("characters", chance, 150_000, []),
    }  # fmt: skip
    for name, own in texts.items():
        write(folder / f"{name}.jsonl", own)
    rows = [{"text": text, "kind": name} for name, own in texts.items() for text in own] + [{"text": "without a kind"}]
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def inputs(folder: Path) -> list[str]:
    return [str(folder / f"{name}.jsonl") for name in ("python", "latin", "noise")]


def test_the_command(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    words = ["ablate", "--mix", *inputs(files), "-o", str(out), "--method", "doremi"]
    code = main(words)
    lines = capsys.readouterr().out.splitlines()
    content = json.loads((out / "mixture.json").read_text())
    assert code == {"better": 0, "no difference": 0, "undecided": 4, "worse": 5}[content["verdict"]]
    assert lines[-1] == content["line"] and lines[-3].startswith("  - {kind: mix, weights: {latin: ")
    assert yaml.safe_load("\n".join(lines[-4:-2]))["stages"] == [content["stage"]]
    proportional, uniform, chosen = content["weights"]
    assert proportional["value"] == proportional["low"] == 0 and uniform["verdict"] and chosen["name"] == "chosen"
    assert uniform["weights"] == {name: pytest.approx(1 / 3, abs=1e-6) for name in ("latin", "noise", "python")}
    assert all(row["bits_low"] < row["bits"] < row["bits_high"] for row in content["weights"])
    assert chosen["weights"]["noise"] < min(uniform["weights"]["noise"], proportional["weights"]["noise"]) / 2
    assert [len(row) for row in content["history"]] == [3] * 16
    assert np.mean(content["history"], axis=0) == pytest.approx([*chosen["weights"].values()], abs=1e-5)
    first = (out / "mixture.json").read_bytes()
    assert main(words) == 2 and "mixture.json exists already" in capsys.readouterr().err
    assert main([*words, "--force"]) == code and (out / "mixture.json").read_bytes() == first


def test_the_stage_draws_the_mixture(files: Path, tmp_path: Path):
    """Bytes have the chosen shares, although the stage counts documents."""
    found = curation.ablate_mix(inputs(files), method="doremi", mixture_bytes=250_000)
    recipe = {"input": [{"path": path} for path in inputs(files)], "stages": [found.stage], "output": {"formats": []}}
    curation.run(curation.convert_recipe(recipe), tmp_path / "run", engine="cpu", progress=False)
    sizes = dict.fromkeys(found.chosen.weights, 0)
    for path in sorted((tmp_path / "run" / "documents").rglob("*.parquet")):
        table = pq.read_table(path, columns=["source", "text"])
        for name, text in zip(table.column("source").to_pylist(), table.column("text").to_pylist(), strict=True):
            sizes[name] += len(text.encode())
    total = sum(sizes.values())
    assert total == pytest.approx(250_000, rel=0.03)
    assert {name: size / total for name, size in sizes.items()} == pytest.approx(found.chosen.weights, abs=0.02)


def test_domains_may_be_the_values_of_a_column(files: Path):
    of_files = curation.ablate_mix(inputs(files), method="doremi", seed=2)
    of_column = curation.ablate_mix(files / "all.jsonl", by="kind", method="doremi", seed=2)
    assert of_column.stage == {**of_files.stage, "by": "kind"} and "by" not in of_files.stage
    assert of_column.rows == of_files.rows


def test_no_weight_needs_more_epochs(files: Path):
    found = curation.ablate_mix(inputs(files), max_epochs=1, method="regmix", held_out=())
    for row in found.rows:
        assert [*row.weights.values()] == pytest.approx([*found.rows[0].weights.values()], abs=2e-6)
    assert found.chosen.value == pytest.approx(0, abs=1e-4)
    assert all(row.epochs == pytest.approx(1, abs=1e-4) for row in found.domains)


def test_wrong_settings(files: Path):
    for settings, message in (
        ({"method": "doremy"}, "did you mean doremi"),
        ({"tier": "second"}, "did you mean seconds"),
        ({"tier": "gpu"}, "method regmix has no tier gpu"),
        ({"max_epochs": 0}, "max_epochs must be 1 or more, not 0"),
        ({"mixture_bytes": -1}, "mixture_bytes must be 0 or more, not -1"),
        ({"smallest_effect": 1.0}, "above 0 and below 1, not 1"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
        ({"by": ""}, "by is empty"),
    ):
        with pytest.raises(RecipeError, match=message):
            curation.ablate_mix(inputs(files), **settings)


def test_wrong_inputs(files: Path, tmp_path: Path):
    few = tmp_path / "few.jsonl"
    write(few, ["a text", "another text"] * 30)
    copies = tmp_path / "copies.jsonl"
    write(copies, [" ".join(f"word{k}" for k in range(40)) + f" end{number}" for number in range(60)])
    blank = tmp_path / "blank.jsonl"
    write(blank, [])
    many = tmp_path / "many.jsonl"
    many.write_text("".join(json.dumps({"text": f"text {k}", "kind": f"k{k}"}) + "\n" for k in range(40)))
    python, latin, noise = inputs(files)
    for paths, settings, message in (
        ([python], {}, "expected 2 or more domains, found 'python'"),
        ([python, blank], {}, "input 'blank' has no document|blank.jsonl"),
        ([python, noise, few], {}, "domain 'few' has 2 different texts, expected 20 or more"),
        ([python, noise, copies], {}, "domain 'copies' has 0 held-out documents without leaks, expected 10 or more"),
        ([many], {"by": "kind"}, "column kind has more than 32 domains"),
        ([python, noise], {"by": "colour"}, "no document has a value in column 'colour'"),
        ([python, tmp_path / "none.jsonl"], {}, "none.jsonl"),
        (
            [python, latin],
            {"mixture_bytes": 2_000_000},
            r"mixture_bytes is 2,000,000, more than 4 epochs of the 2\d\d,",
        ),
        ([python, latin], {"mixture_bytes": 150_000}, "has 150,000 bytes of text, expected 200,000 or more"),
        ([python, latin], {"held_out": latin}, "in the training text or near-duplicates"),
    ):
        with pytest.raises(InputError, match=message):
            curation.ablate_mix([str(path) for path in paths], **settings)


def test_arms_and_domains_exclude_each_other(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = ["-o", str(tmp_path / "out")]
    assert main(["ablate", *inputs(files)[:2], *out]) == 2
    assert "--held-out is missing" in capsys.readouterr().err
    assert main(["ablate", inputs(files)[0], "--held-out", inputs(files)[1], *out]) == 2
    assert "CURATED is missing" in capsys.readouterr().err
    assert main(["ablate", *inputs(files)[:2], *out, "--mix", inputs(files)[2]]) == 2
    assert "give --mix, or RAW and CURATED, not both" in capsys.readouterr().err


# Parts


def test_the_excess_over_a_cap_is_given_to_the_others():
    caps = np.array([0.2, 0.5, 1.0])
    assert capped(np.array([6.0, 3.0, 1.0]), caps) == pytest.approx([0.2, 0.5, 0.3])
    rows = np.array([[1.0, 1.0, 2.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    expected = [[0.2, 0.8 / 3, 1.6 / 3], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
    found = capped(rows, caps)
    assert found[[0, 2]] == pytest.approx(np.array(expected)[[0, 2]], abs=2e-6)
    assert found[1].sum() == pytest.approx(1, abs=2e-6) and (found <= caps + 1e-6).all()


def test_caps_are_those_of_mix():
    chance = np.random.default_rng(4)
    for _ in range(50):
        sizes, weights = chance.integers(50, 2000, 5), chance.uniform(0.01, 1, 5)
        total = int(sizes.sum() * 1.7)
        quotas = apportion([Fraction(weight) for weight in weights.tolist()], sizes.tolist(), total, 3)
        found = capped(weights / weights.sum(), np.minimum(1, 3 * sizes / total)) * total
        assert found == pytest.approx(quotas, abs=1.01)


def test_weights_follow_the_formula_of_doremi():
    weights, excess = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.0, 1.2])
    scaled = weights * np.exp(excess)
    expected = (1 - SMOOTHING) * scaled / scaled.sum() + SMOOTHING / 3
    assert reweighed(weights, excess, 1.0) == pytest.approx(expected, abs=1e-6)
    assert reweighed(weights, excess * 1000, 1.0) == pytest.approx([SMOOTHING / 3, SMOOTHING / 3, 1], abs=1e-3)


def mixtures(final: int, max_epochs: int = 4) -> Mixtures:
    texts = [[f"{name}{number:09}" for number in range(count)] for name, count in (("a", 40), ("b", 10))]
    tables = [table_of(own, [*range(len(own))]) for own in texts]
    return Mixtures(
        tables, np.array([400, 100]), budget=100, final=final, max_epochs=max_epochs, seed=0,
        held_out=HeldOut.of(pa.array(["a"], pa.large_string())),
    )  # fmt: skip


def test_a_model_sees_a_domain_as_often_as_the_mixture_does():
    own = mixtures(500)
    assert own.proportional == pytest.approx([0.8, 0.2]) and own.uniform == pytest.approx([0.5, 0.5])
    weights = np.array([0.4, 0.6])
    assert own.epochs(weights) == pytest.approx([0.5, 3])
    texts = [text for text in own.text(own.amounts(weights), 7).to_pylist() if text]
    assert [text[0] for text in texts] == ["a"] * 4 + ["b"] * 6
    assert sorted(texts.count(text) for text in {*texts}) == [1] * 4 + [3] * 2
    assert own.text(own.amounts(weights), 8).to_pylist() != texts
    assert mixtures(2000).caps == pytest.approx([0.8, 0.2])


def test_predictions_without_a_row_are_those_of_a_regression_without_it():
    chance = np.random.default_rng(5)
    rows = swarm.features(chance.dirichlet(np.ones(4), 30), np.full(4, 0.3))
    values = rows @ chance.normal(size=rows.shape[1]) + chance.normal(0, 0.01, 30)
    predict, without = swarm.fit(rows, values)
    assert predict(rows) == pytest.approx(values, abs=0.1)
    assert swarm.rank_correlation(without, values) > 0.95
    noise = chance.normal(size=30)
    assert abs(swarm.rank_correlation(swarm.fit(rows, noise)[1], noise)) < 0.5
    assert swarm.rank_correlation(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.8)
    assert swarm.rank_correlation(np.ones(4), np.arange(4.0)) == 0


def test_a_regression_that_predicts_nothing_decides_nothing():
    row = WeightsRow("chosen", {"a": 0.25, "b": 0.75}, 2.0, 1.9, 2.1, -0.05, -0.06, -0.04, "better")
    domains = [DomainRow("a", 10, 1000, 10, 0.5), DomainRow("b", 10, 3000, 10, 0.5)]
    plan = {"smallest_effect": 0.005, "mixture_bytes": 2000, "by": "kind", "max_epochs": 4}
    found = Mixture("undecided", domains, [row], 0.21, [], plan)
    assert found.line.endswith("with a correlation of 0.21, too little to choose by")
    assert found.stage == {
        "kind": "mix", "by": "kind", "weights": {"a": 0.5, "b": 0.5}, "documents": 10, "max_epochs": 4,
    }  # fmt: skip


# DoReMi as published, with tiny models on a CPU


def test_weights_follow_the_excess_losses_of_tokens(monkeypatch: pytest.MonkeyPatch):
    """Models whose losses are known: that of a byte b is scale (b / 100 - 1), 1 for the reference and 1.5 for the
    proxy, and no step changes them. So the excess of `z` is 0.11, and that of `A` is below 0 and counts as 0."""
    torch = needs("torch")
    from curation.tools.ablation import proxy_training
    from curation.tools.ablation.transformer import Size

    class Model(torch.nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(scale))

    scales = iter((1.0, 1.5))
    monkeypatch.setattr(proxy_training, "make", lambda size, seed, device: Model(next(scales)))
    monkeypatch.setattr(proxy_training, "losses", lambda model, ids: model.scale * (ids[:, 1:] / 100 - 1))
    texts = {
        name: pa.array([letters * 500], pa.large_string()) for name, letters in (("a", "A"), ("m", "zA"), ("z", "z"))
    }
    training = proxy_training.Training(Size(1, 2, 1, 10), steps=4, rows=3, rate=0.0)
    found = proxy_training.train(texts, np.full(3, 1 / 3), training, seed=0, device="cpu")
    weights = np.full(3, 1 / 3)
    for step in range(4):
        scaled = weights * np.exp([0, 0.055, 0.11])
        weights = (1 - SMOOTHING) * scaled / scaled.sum() + SMOOTHING / 3
        assert found[step] == pytest.approx(weights, abs=1e-5)


def test_a_domain_needs_a_context_of_text():
    needs("torch")
    from curation.tools.ablation.proxy_training import Training, train

    texts = {"short": pa.array(["x"], pa.large_string())}
    with pytest.raises(InputError, match="domain 'short' has less text than a context of 1,024 bytes"):
        train(texts, np.ones(1), Training(), seed=0, device="cpu")


def test_the_tier_gpu_needs_a_gpu(files: Path):
    torch = needs("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(EngineError, match="needs a GPU that PyTorch can use"):
        curation.ablate_mix(inputs(files), tier="gpu", method="doremi")


def test_the_tier_gpu_with_a_tiny_model_on_a_cpu(files: Path, monkeypatch: pytest.MonkeyPatch):
    needs("torch")
    from curation.tools.ablation import ablate_mix as own_module
    from curation.tools.ablation import proxy_training
    from curation.tools.ablation.transformer import Size

    training = proxy_training.Training(Size(1, 32, 2, 64), steps=3, rows=2)
    monkeypatch.setattr(own_module, "_need_gpu", lambda: "cpu")
    monkeypatch.setattr(proxy_training, "Training", lambda: training)
    found = curation.ablate_mix(inputs(files), tier="gpu", method="doremi")
    assert len(found.history) == 3 and found.plan["tier"] == "gpu"
    assert np.mean(found.history, axis=0) == pytest.approx([*found.chosen.weights.values()], abs=1e-5)
