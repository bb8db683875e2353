# SPDX-License-Identifier: Apache-2.0
"""The tier `gpu` with tiny models on a CPU: the model, its training, its resumption and whole ablations."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import curation
from curation.base.errors import EngineError, IntegrityError
from curation.tools.ablation.ablate import conclude, plan_of, verdict_of
from curation.tools.ablation.documents import Pair
from curation.tools.ablation.experiment import Experiment, plan_lines
from curation.tools.ablation.held_out import KINDS, HeldOutTexts
from curation.tools.ablation.store import Store
from tests.needs import needs
from tests.scripts.ablate_truth import table_of

torch = needs("torch")

from curation.tools.ablation import transformer_training as training
from curation.tools.ablation.transformer import SIZES, START, Size, bits, losses, make, windows
from curation.tools.ablation.transformer_training import LADDER, Settings, TransformerLearner, rate_at

TINY = Settings(Size(1, 32, 2, 32), 0.01, batch=8)
SENTENCE = "the cat sat on the mat while a dog ran by; "


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The model


def test_sizes_count_all_parameters():
    for name, size in {**SIZES, "tiny": TINY.size}.items():
        assert sum(weights.numel() for weights in make(size, 0, "meta" if name in SIZES else "cpu").parameters()) == (
            size.parameters
        )
    assert [round(size.parameters / 1e6) for size in SIZES.values()] == [4, 10, 19]
    assert [settings.rate for settings in LADDER.values()] == [0.0018, 0.0013, 0.001]


def test_no_token_sees_a_later_one():
    model, ids = make(TINY.size, 3), torch.randint(0, 256, (2, 20), generator=torch.Generator().manual_seed(1))
    other = ids.clone()
    other[:, 12] = 255 - other[:, 12]
    assert torch.equal(model(ids)[:, :12], model(other)[:, :12])
    assert (model(ids)[:, 12:] != model(other)[:, 12:]).any(-1).all()


def test_positions_matter():
    model = make(TINY.size, 3)
    one, other = (model(torch.tensor([ids])) for ids in ([65, 66, 67], [66, 65, 67]))
    assert not torch.allclose(one[0, 2], other[0, 2])


def test_an_untrained_model_needs_eight_bits_per_byte():
    texts = strings([SENTENCE * 9, "", "häß", "x"])
    found = bits(make(TINY.size, 0), texts)
    assert found[1] == 0
    np.testing.assert_allclose(found[[0, 2, 3]] / [len(SENTENCE) * 9, 5, 1], math.log2(257), atol=0.3)


def test_bits_are_those_of_each_text_alone():
    texts = ["abc", SENTENCE, "y" * 100, "äö"]
    model = make(TINY.size, 5)
    alone = [bits(model, strings([text]))[0] for text in texts]
    np.testing.assert_allclose(bits(model, strings(texts).slice(1)), alone[1:], rtol=1e-5)
    parts = [bits(model, strings([part]))[0] for part in ("y" * 32, "y" * 32, "y" * 32, "y" * 4)]
    assert alone[2] == pytest.approx(sum(parts), rel=1e-5)
    ids = torch.tensor([[START, *b"abc"]])
    by_hand = -model(ids[:, :-1]).log_softmax(-1)[0, [0, 1, 2], ids[0, 1:]].sum().item() / math.log(2)
    assert alone[0] == pytest.approx(by_hand, rel=1e-5)


def test_windows_overlap_by_one_token_and_begin_texts_with_start():
    found = windows(strings(["abcd", "", "efghi"]), 3)
    assert found.tolist() == [[START, 97, 98, 99], [99, 100, START, START], [START, 101, 102, 103]]
    assert windows(strings(["ab"]), 3).shape == (0, 4)
    assert losses(make(TINY.size, 0), torch.tensor([[97, START, 98]])).tolist()[0][0] == 0  # START is not predicted


def test_losses_in_bfloat16_are_about_the_same():
    model, ids = make(TINY.size, 3), torch.from_numpy(windows(strings([SENTENCE * 9]), 32).astype(np.int64))
    with torch.autocast("cpu", torch.bfloat16):
        found = losses(model, ids)
    assert found.dtype == torch.float32 and not torch.equal(found, losses(model, ids))
    torch.testing.assert_close(found, losses(model, ids), atol=0.02, rtol=0.01)


# Training


def trained(texts: list[str], seed: int = 0, state: Path | None = None) -> Any:
    return training.train(strings(texts), TINY, seed, "cpu", state)


def test_a_trained_model_prefers_what_it_read_to_the_same_words_shuffled():
    model = trained([SENTENCE * 10] * 70)
    words = SENTENCE.split()
    random.Random(3).shuffle(words)
    right, shuffled = bits(model, strings([SENTENCE, " ".join(words) + " "]))
    assert right / len(SENTENCE) < 3
    assert shuffled > 1.3 * right


def test_seeds_give_other_models_and_one_seed_the_same():
    texts, held = [SENTENCE * 20], strings([SENTENCE])
    one, same, other = (bits(trained(texts, seed), held)[0] for seed in (1, 1, 2))
    assert one == same != other


def test_the_learning_rate_rises_and_falls():
    rates = [rate_at(step, 200) for step in range(200)]
    assert rates[:10] == pytest.approx([k / 10 for k in range(1, 11)])
    assert rates[10] == 1 and all(a >= b for a, b in pairwise(rates[10:]))
    assert 0.1 <= rates[-1] < 0.101
    assert rate_at(0, 1) == 1


def test_the_mean_of_the_last_checkpoints_is_scored():
    assert training._chosen_steps(1000) == [919, 939, 959, 979, 999]
    assert training._chosen_steps(3) == [0, 1, 2]


KILLED_AT = 12
CHILD = f"""
import os, sys, torch
from pathlib import Path
from curation.tools.ablation import transformer_training as training
from tests.tools.ablation.test_transformer import SENTENCE, TINY, strings
torch.set_num_threads(1)
training.SAVE_SECONDS = 0.0
save, saved = torch.save, []
def save_or_die(content, path):
    save(content, path)
    saved.append(1)
    if len(saved) == {KILLED_AT}:
        os.kill(os.getpid(), 9)
torch.save = save_or_die
training.train(strings([SENTENCE * 500]), TINY, 7, "cpu", Path(sys.argv[1]))
"""


@pytest.mark.slow("a training that is killed while it stores its state goes on, and ends with the same weights")
def test_a_killed_training_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state, texts = tmp_path / "bits-1.pt", [SENTENCE * 500]
    assert subprocess.run([sys.executable, "-c", CHILD, str(state)], check=False).returncode == -9
    assert len([*tmp_path.iterdir()]) == 2  # the last state, and a temporary file
    seen: list[int] = []
    monkeypatch.setattr(training, "rate_at", lambda step, steps: (seen.append(step), rate_at(step, steps))[1])
    resumed = trained(texts, 7, state)
    assert seen[0] == KILLED_AT - 1 and seen[-1] > 2 * KILLED_AT
    assert [*tmp_path.iterdir()] == [state]
    whole = trained(texts, 7)
    for one, other in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_training_goes_on_from_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts, state = [SENTENCE * 18], tmp_path / "bits-1.pt"
    held = strings([SENTENCE, "another text"])
    learner = TransformerLearner(held, "tiny", TINY, "cpu")
    whole = learner.bits(strings(texts), 4, None)
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    save, kept = torch.save, []

    def keep(content: Any, path: Path) -> None:
        save(content, path)
        kept.append(path.read_bytes())

    monkeypatch.setattr(torch, "save", keep)
    assert learner.bits(strings(texts), 4, state).tolist() == whole.tolist()
    assert not state.exists() and len(kept) == 3
    for content in [*kept]:
        state.write_bytes(content)
        assert learner.bits(strings(texts), 4, state).tolist() == whole.tolist()
    for broken in (kept[2][:500], kept[2][:-300], b"", b"no state"):
        state.write_bytes(broken)
        with pytest.raises(IntegrityError, match=r"is damaged: .*Delete it"):
            learner.bits(strings(texts), 4, state)


# Whole ablations


def target(texts: list[str]) -> dict[str, HeldOutTexts]:
    sources = np.arange(len(texts)) % 5
    found = HeldOutTexts(strings(texts), sources, list("abcde"), len(texts), 0)
    none = HeldOutTexts(strings([]), sources[:0], [], 0, 0)
    return dict(zip(KINDS, (found, none, none), strict=True))


def experiments(store: Store) -> list[Experiment]:
    """Curated text without the nine tenths that are noise."""
    chance = random.Random(0)
    good = [" ".join(chance.choices(SENTENCE.split(), k=60)) for _ in range(500)]
    bad = ["".join(chance.choices("0123456789#+-", k=250)) for _ in range(4500)]
    raw = table_of(good + bad, [*range(5000)])
    held_out = target([" ".join(chance.choices(SENTENCE.split(), k=20)) for _ in range(40)])
    return [
        Experiment(
            Pair(raw, raw.slice(0, 500), {"a stage": np.arange(500, 5000).astype(np.uint64)}), held_out, tier="gpu",
            budget=budget, placebos=8, smallest=0.005, seed=0, store=store,
            learner=partial(TransformerLearner, name=name, settings=TINY, device="cpu"),
        )
        for name, budget in (("small", 12_000), ("large", 13_000))
    ]  # fmt: skip


@pytest.mark.slow("the tier `gpu` finds planted noise with models of two sizes, and goes on after a stop")
def test_an_ablation_of_two_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def planned() -> Any:
        store = Store(tmp_path / "out")
        return plan_of(experiments(store), store)

    monkeypatch.setattr("curation.tools.ablation.experiment.MIN_BYTES", 12_000)
    monkeypatch.setattr("curation.tools.ablation.experiment.shuffled", lambda texts: pa.array(
        ["".join(sorted(text)) for text in texts.to_pylist()], pa.large_string()))  # fmt: skip  # words are too hard
    notes: list[str] = []
    plan = planned()
    assert plan.store.begin(plan.plan) == 0
    assert plan_lines(plan.plan)[-1] == "this tier has not run on a GPU yet"
    assert plan_lines(plan.plan)[0].startswith("plan: models small of 0.01 MB, large of 0.01 MB, 8 placebos")
    found = conclude(plan, notes.append)
    assert [note.partition(":")[0] for note in notes] == [
        "minimum detectable effect of small", "minimum detectable effect of large",
    ]  # fmt: skip
    assert found.verdict == "better" and found.budgets is None and found.stages == [] and found.needed == 0
    assert [(row.name, row.verdict) for row in found.models] == [("small", "better"), ("large", "better")]
    assert found.models[1][1:] == found.curated[1:] and found.control.value > 0.005
    found.save(tmp_path / "out")
    page = (tmp_path / "out/ablation.html").read_text()
    assert "Sizes of models" in page and "More text" not in page and "has not run on a GPU" in page
    content = json.loads((tmp_path / "out/ablation.json").read_bytes())
    assert content["budgets"] is None and [row["name"] for row in content["models"]] == ["small", "large"]
    assert content["plan"]["verdicts"][-1] == "unstable" and content["plan"]["stages"] == []
    models = sorted((tmp_path / "out/models").iterdir())
    assert [path.suffix for path in models] == [".npz"] * 30  # of each size: 8 placebos, 3 and 3 of the arms, a control
    for path in models[::2]:
        path.unlink()
    again = planned()
    assert again.store.begin(again.plan) == 15
    assert conclude(again).content() == found.content()


def test_opposite_verdicts_of_sizes_are_unstable():
    for verdicts, expected in (
        (["better", "undecided", "better"], "better"),
        (["worse", "undecided", "undecided"], "undecided"),
        (["worse", "undecided", "better"], "unstable"),
        (["better", "worse", "no difference"], "unstable"),
        (["better", "worse", "blind"], "blind"),
        (["blind", "blind", "worse"], "worse"),
    ):
        assert verdict_of(verdicts) == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_there_is_one_message():
    with pytest.raises(EngineError, match=r"^the tier gpu needs a GPU that PyTorch can use; it finds none\. Take"):
        curation.ablate("a.jsonl", "b.jsonl", held_out="c.jsonl", tier="gpu")
