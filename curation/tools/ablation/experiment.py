# SPDX-License-Identifier: Apache-2.0
"""One ablation: the plan, the models of placebos, then the models of the arms.

Documents for placebos are drawn from the larger arm, and the smaller arm is compared with them. If the larger one is
the curated arm, the sign of each difference changes at the end. So the verdict on swapped arms is the opposite one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation import __version__
from curation.base.errors import InputError, counted
from curation.base.system.files import as_json
from curation.base.system.steps import each
from curation.tools.ablation.documents import Pair, digest_of
from curation.tools.ablation.draws import SHUFFLED, Documents, shuffled
from curation.tools.ablation.efficiency import PARTS, Curve, Worth, fit_curve, slope_weights, worth_of
from curation.tools.ablation.held_out import (
    CURATED_LIKE,
    JACCARD,
    KINDS,
    NGRAM,
    RAW_LIKE,
    TARGET,
    HeldOutTexts,
)
from curation.tools.ablation.learner import ByteLearner, Learner
from curation.tools.ablation.statistics import LEVEL, POWER, Difference, compare, compare_placebos, holm
from curation.tools.ablation.store import Store

VERDICTS = ("better", "worse", "no difference", "undecided", "blind")
MIN_BYTES = 100_000  # of the training text of a model
MIN_OF_SOURCE = 5  # held-out documents of a source with a row of its own
MIN_OF_KIND = 20  # and of a kind that is judged
OPPOSITE = {"better": "worse", "worse": "better"}


class Row(NamedTuple):
    """A comparison, in shares of the bits per byte of raw text: -0.01 are 1 % fewer bits, which is better.

    name       the arm, the source or the kind of held-out text
    value      the difference
    low, high  ends of its interval of 95 %
    verdict    "" for a part of the held-out text, which decides nothing
    documents  held-out documents
    p          adjusted for the number of stages by Holm's method; 1 for other rows
    placebos   the difference of each placebo from the mean of the others
    """

    name: str
    value: float
    low: float
    high: float
    verdict: str
    documents: int
    p: float = 1.0
    placebos: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """The difference with its interval, in percent."""
        return f"{self.value:+.2%} [{self.low:+.2%}, {self.high:+.2%}]"


class Budgets(NamedTuple):
    """The comparison over parts of the budget.

    sizes     bytes of training text
    bits      bits per byte of the target under placebos of each size
    rows      the difference at each size
    curve     fitted to `bits`
    worth     of curated text, at the largest size with both ends of the interval inside of the curve
    trend     change of the difference per doubling of the text
    """

    sizes: list[int]
    bits: list[float]
    rows: list[Row]
    curve: Curve
    worth: Worth
    trend: Row

    @property
    def shrinks(self) -> bool:
        """Whether the difference certainly becomes smaller with more text."""
        return self.trend.value * self.rows[-1].value < 0 < self.trend.low * self.trend.high


class Experiment:
    """An ablation before its arms are read. `plan` says all that it will do. The held-out texts have no leaks, and
    their documents are in no arm (`curation.tools.ablation.held_out`).

    budget   most bytes of training text of a model
    learner  makes what trains and scores models, from the held-out texts
    store    of the bits of trained models
    """

    def __init__(
        self, pair: Pair, held_out: dict[str, HeldOutTexts], *, tier: str, budget: int, placebos: int, smallest: float,
        seed: int, learner: Callable[[pa.LargeStringArray], Learner] = ByteLearner, store: Store | None = None,
    ) -> None:  # fmt: skip
        self.pair, self.held_out, self.count, self.smallest, self.seed = pair, held_out, placebos, smallest, seed
        self.raw, self.curated = Documents(pair.raw), Documents(pair.curated)
        self.swapped = self.curated.bytes > self.raw.bytes
        self.larger, self.smaller = (self.curated, self.raw) if self.swapped else (self.raw, self.curated)
        self.budget = min(budget, self.smaller.bytes)
        if self.budget < MIN_BYTES:
            name = "raw" if self.swapped else "curated"
            raise InputError(
                f"the {name} arm has {self.smaller.bytes:,} bytes of text, expected {MIN_BYTES:,} or more. Give more"
            )
        scored = pa.concat_arrays([self.held_out[kind].texts for kind in KINDS])
        self._sizes = np.asarray(pc.binary_length(scored).to_numpy(), np.int64)
        self.learner, self._store = learner(scored), store or Store()
        self._shares = self.smaller.bytes_by_source
        self.bits: np.ndarray | None = None  # of placebos
        self.plan: dict[str, Any] = {
            "version": __version__, "metric": "bits per byte of the held-out target", "tier": tier,
            **self.learner.plan, "budget_bytes": self.budget, "placebos": placebos,
            "arm_draws": self.learner.arm_draws, "smallest_effect": smallest, "level": LEVEL, "power": POWER,
            "seed": seed, "shuffled_words": SHUFFLED, "leak_ngram": NGRAM, "leak_jaccard": JACCARD,
            "verdicts": list(VERDICTS), "stages": list(pair.removed) if self.learner.has_stages else [],
            "stop_rule": "one comparison; another seed, budget or target is another experiment",
            "held_out": {kind: _counts(texts) for kind, texts in self.held_out.items()},
            "sha256": {
                "raw": digest_of(self.raw.texts), "curated": digest_of(self.curated.texts),
                "target": digest_of(held_out[TARGET].texts),
            },
        }  # fmt: skip
        self._key = as_json([self.learner.plan, seed, digest_of(scored)])

    def score_placebos(self) -> float:
        """Train and score the models of placebos. Return the minimum detectable effect, as a share of their bits."""
        draws = each(range(self.count), "training models of placebos", "model")
        self.bits = np.array([self._score(self._placebo(k), k) for k in draws])
        placebos, sizes, sources = self._of(TARGET, self.bits)
        found = compare_placebos(placebos, sizes, sources)
        return found.detectable(self.smallest * self.base) / self.base

    @property
    def base(self) -> float:
        """The mean bits per byte of the target under the placebos."""
        placebos, sizes, _ = self._of(TARGET, self._placebos)
        return float(placebos.sum() / (len(placebos) * sizes.sum()))

    def judge(self) -> dict[str, Any]:
        """Train and score the models of the arms. Return the rows and the verdict."""
        arm = self._arm
        control = self._row("shuffled words", TARGET, self._control(), flip=False)
        decides = self._row("curated", TARGET, arm)
        verdict = "blind" if control.value <= self.smallest else decides.verdict
        name = "curated, all sources" if self.swapped else "raw, all sources"
        everything = self._row(
            name, TARGET, self._mean(self._whole(k) for k in range(self.learner.whole_draws)), flip=False
        )
        kinds = [self._row(kind, kind, arm) for kind in KINDS if len(self.held_out[kind].texts) >= MIN_OF_KIND]
        return {
            "verdict": verdict, "curated": decides, "control": control, "everything": everything, "kinds": kinds,
            "shift": is_shift(kinds), "sources": self._sources(arm), "stages": self._stages(),
            "needed": self._needed(decides) if verdict == "undecided" and self.learner.has_stages else 0.0,
        }  # fmt: skip

    def measure_budgets(self) -> Budgets:
        """Train and score models on parts of the budget."""
        sizes = [int(self.budget * part) for part in PARTS]
        orders = [self._drawn(k) for k in range(self.count)]
        own = [self._own(k) for k in range(self.learner.arm_draws)]
        placebos, arms = [], []
        for size in each(sizes[:-1], "training models of parts of the budget", "size"):
            placebos.append(np.array([self._score(self.larger.take(order, size), k) for k, order in enumerate(orders)]))
            arms.append(self._mean(self._score(self.smaller.take(order, size), k) for k, order in enumerate(own)))
        placebos.append(self._placebos)
        arms.append(self._arm)
        _, lengths, sources = self._of(TARGET, arms[0])
        bits, own_bits = ([self._of(TARGET, found)[0] for found in models] for models in (placebos, arms))
        bases = [float(found.mean(axis=0).sum() / lengths.sum()) for found in bits]
        found = [compare(arm, others, lengths, sources) for arm, others in zip(own_bits, bits, strict=True)]
        curve = fit_curve(sizes, bases)
        worths = [
            worth_of(curve, size, (difference.value, *difference.interval()), self.swapped)
            for size, difference in zip(sizes[1:-1], found[1:-1], strict=True)
        ]
        inside = [worth for worth in worths if None not in worth]
        weights = slope_weights(sizes) / np.array(bases)
        slope, slopes = (np.tensordot(weights, np.array(models), 1) for models in (own_bits, bits))
        rows = [
            self._shown(f"{size}", difference, base, len(lengths))
            for size, difference, base in zip(sizes, found, bases, strict=True)
        ]
        trend = self._shown("trend", compare(slope, slopes, lengths, sources), 1.0, len(lengths))
        return Budgets(sizes, bases, rows, curve, inside[-1] if inside else worths[1], trend._replace(verdict=""))

    def _shown(self, name: str, found: Difference, base: float, documents: int, flip: bool = True) -> Row:
        """Return the row of a difference, in shares of `base`, from raw to curated text."""
        if flip and self.swapped:
            found = found._replace(value=-found.value)
        low, high = found.interval()
        verdict = found.verdict(self.smallest * base)
        return Row(name, found.value / base, low / base, high / base, verdict, documents, found.p_value())

    @property
    def _placebos(self) -> np.ndarray:
        assert self.bits is not None, "score_placebos comes first"
        return self.bits

    @cached_property
    def _arm(self) -> np.ndarray:
        """The bits under models of the smaller arm, the mean of its draws."""
        draws = each(range(self.learner.arm_draws), "training models of the arm", "model")
        first = self.count + self.learner.whole_draws
        return self._mean(self._score(self.smaller.take(self._own(k), self.budget), first + k) for k in draws)

    def _score(self, texts: pa.LargeStringArray, number: int) -> np.ndarray:
        """Return the bits of all held-out texts under a model of `texts`. `number` selects the seed of the model."""
        seed = self.seed * 1000 + number
        key = b"%s %s %d" % (self._key, digest_of(texts).encode(), seed)
        return self._store.get("bits", key, lambda state: self.learner.bits(texts, seed, state))

    def _mean(self, bits: Iterable[np.ndarray]) -> np.ndarray:
        return np.asarray(np.mean([*bits], axis=0))

    def _placebo(self, number: int) -> pa.LargeStringArray:
        return self.larger.take(self._drawn(number), self.budget)

    def _whole(self, number: int) -> np.ndarray:
        """Return the bits under a model of the larger arm without a removal."""
        number += self.count
        return self._score(self.larger.take(self._drawn(number, shares=False), self.budget), number)

    def _drawn(self, number: int, shares: bool = True, without: np.ndarray | None = None) -> np.ndarray:
        """Return a draw from the larger arm. The numbers of the draws of the smaller arm are others."""
        return self.larger.draw(2 * (self.seed * 1000 + number), self._shares if shares else None, without)

    def _own(self, number: int) -> np.ndarray:
        return self.smaller.draw(2 * (self.seed * 1000 + number) + 1)

    def _control(self) -> np.ndarray:
        """Return the bits of a mean placebo whose words are shuffled. The cost of shuffling is that in one placebo, so
        that chance hardly changes it."""
        return np.asarray(self._placebos.mean(axis=0) + self._score(shuffled(self._placebo(0)), 0) - self._placebos[0])

    def _stages(self) -> list[Row]:
        """Return a row per stage: raw text without the documents that this stage removed."""
        if self.swapped or not self.learner.has_stages:
            return []
        keys, rows = self.pair.raw.column("key").to_numpy(), []
        for name in each(list(self.pair.removed), "training models of stages", "model"):
            without = np.isin(keys, self.pair.removed[name])
            order = self._drawn(self.count + 2, without=without)
            rows.append(self._row(name, TARGET, self._score(self.larger.take(order, self.budget), 0)))
        return [
            row._replace(p=p, verdict="undecided" if row.verdict in OPPOSITE and p >= 1 - LEVEL else row.verdict)
            for row, p in zip(rows, holm([row.p for row in rows]), strict=True)
        ]

    def _sources(self, arm: np.ndarray) -> list[Row]:
        names, sources = self.held_out[TARGET].names, self.held_out[TARGET].sources
        return [
            self._row(name, TARGET, arm, only=sources == number)._replace(verdict="")
            for number, name in enumerate(names)
            if (sources == number).sum() >= MIN_OF_SOURCE
        ]

    def _row(self, name: str, kind: str, bits: np.ndarray, *, flip: bool = True, only: Any = slice(None)) -> Row:
        """Return the row of a model by its bits of all held-out texts."""
        placebos, sizes, sources = self._of(kind, self._placebos)
        placebos, sizes, sources = placebos[:, only], sizes[only], sources[only]
        found = compare(self._of(kind, bits)[0][only], placebos, sizes, sources)
        totals = placebos.sum(axis=1) / sizes.sum()
        base = float(totals.mean())
        others = (totals - (totals.sum() - totals) / (len(totals) - 1)) / base
        return self._shown(name, found, base, len(sizes), flip)._replace(placebos=tuple(others.tolist()))

    def _of(self, kind: str, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the bits, sizes and sources of one kind of held-out texts."""
        lengths = [len(self.held_out[each].texts) for each in KINDS]
        start = sum(lengths[: KINDS.index(kind)])
        part = slice(start, start + lengths[KINDS.index(kind)])
        return bits[..., part], self._sizes[part], self.held_out[kind].sources

    def _needed(self, row: Row) -> float:
        """Return how many times as much text would decide, if the difference stays: errors shrink with its root."""
        distance = abs(abs(row.value) - self.smallest)
        half = (row.high - row.low) / 2
        return (half / distance) ** 2 if distance else float("inf")


def _counts(texts: HeldOutTexts) -> dict[str, Any]:
    return {
        "documents": len(texts.texts), "sources": len(texts.names), "read": texts.read, "leaked": texts.leaked,
    }  # fmt: skip


def is_shift(kinds: list[Row]) -> bool:
    """Return whether only curated-like text is predicted better."""
    better = {row.name: row.high < 0 for row in kinds}
    return better.get(CURATED_LIKE, False) and not better[TARGET] and not better.get(RAW_LIKE, False)


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """Return lines for people about a plan."""
    held_out = plan["held_out"][TARGET]
    documents = f"{counted(held_out['documents'], 'document')} of {counted(held_out['sources'], 'source')}"
    leaked = f"{held_out['leaked']:,} of {held_out['read']:,} taken out as leaks"
    size = f"{plan['budget_bytes'] / 1e6:.2f} MB"
    models = [f"{entry['name']} of {entry['budget_bytes'] / 1e6:.2f} MB" for entry in plan.get("models", ())]
    return [
        f"plan: models {', '.join(models) or f'of {size}'}, {plan['placebos']} placebos, smallest effect of "
        f"interest {plan['smallest_effect']:.1%}",
        f"held-out target: {documents}, {leaked}",
        *([plan["note"]] if "note" in plan else []),
    ]
