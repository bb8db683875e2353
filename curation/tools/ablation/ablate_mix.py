# SPDX-License-Identifier: Apache-2.0
"""`curation.ablate_mix`: weights of domains for `mix`, by small models on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from curation import __version__
from curation.base.arrays import split_mix
from curation.base.errors import EngineError, InputError, RecipeError, counted, installation, nearest
from curation.base.system.steps import each
from curation.recipes.keywords import check_types
from curation.tools.ablation import swarm
from curation.tools.ablation.byte_model import HeldOut
from curation.tools.ablation.documents import KEY, Domain, Pair, concat, digest_of, read_domains, read_texts, texts_of
from curation.tools.ablation.draws import Documents
from curation.tools.ablation.experiment import MIN_BYTES
from curation.tools.ablation.held_out import RAW_LIKE, SPLIT, TARGET, HeldOutTexts, clean
from curation.tools.ablation.mixture import DomainRow, Mixture, WeightsRow
from curation.tools.ablation.mixtures import Mixtures
from curation.tools.ablation.reweighting import reweigh
from curation.tools.ablation.statistics import LEVEL, Difference, compare_pairs

TIERS = {"seconds": 2_000_000, "minutes": 20_000_000, "gpu": 20_000_000}  # bytes of training text of a model of bytes
DOREMI, REGMIX = METHODS = ("doremi", "regmix")
GPU = "gpu"
PROPORTIONAL, UNIFORM, CHOSEN = "proportional", "uniform", "chosen"
MIN_DIFFERENT, MIN_HELD_OUT = 20, 10  # texts of a domain, and held-out ones without leaks
FEWEST = 50  # texts of a domain that are held out, if it has twice as many
POOL = 4  # times as much of each domain as one draw takes
PAIRS = 8  # draws that judge the weights
BY_INPUT = "source"


def ablate_mix(
    inputs: Any,
    *,
    held_out: Any = (),
    by: str = BY_INPUT,
    method: str = REGMIX,
    tier: str = "seconds",
    mixture_bytes: int = 0,
    max_epochs: int = 4,
    source_column: str = "",
    smallest_effect: float = 0.005,
    seed: int = 0,
) -> Mixture:
    """Return weights of domains for the stage `mix`, and whether they are better than weights by size, by the bits per
    byte of held-out text under small models (docs/mixture_weights.md).

    inputs     paths, or inputs as in a recipe: 2 to 32 domains
    held_out   paths or inputs with texts like those that the model is for; 300 documents of 5 sources must be left
               after leaks are taken out. (): texts of all domains, about as many of each
    by         `source`: each input is a domain; or the column with the domain of a document
    method     `regmix`: weights with the fewest predicted bits of `held_out`, by a regression over random mixtures
               (Liu et al. 2024); `doremi`: weights that leave no domain far behind what it can reach (Xie et al. 2023),
               adapted to models of bytes
    tier       `seconds`: models of bytes on at most 2 MB of text; `minutes`: on 20 MB; `gpu`, of `doremi`: as
               published, with transformers in PyTorch, judged by models of bytes on 20 MB. It has not run on a GPU yet
    mixture_bytes    bytes of text of the mixture that the weights are for; 0: as much as there is
    max_epochs       no domain is repeated more often in this mixture
    source_column    column of `held_out` with the source of a document; "": each file is a source
    smallest_effect  smallest difference of interest, as a share of the bits
    seed       of all random choices, 0 or more

        >>> import curation
        >>> found = curation.ablate_mix(["crawl.jsonl", "clean.jsonl"], held_out="target/*.jsonl")
        >>> found.stage["weights"].keys()
        dict_keys(['clean', 'crawl'])

    RecipeError: wrong settings. InputError: fewer than 2 domains, or more than 32; a domain with fewer than 20
    different texts; a mixture that needs more epochs; too few held-out texts; less than 200,000 bytes of text.
    EngineError: the tier `gpu` without PyTorch or a GPU.
    """
    return conclude(prepare(
        inputs, held_out, by=by, method=method, tier=tier, mixture_bytes=mixture_bytes, max_epochs=max_epochs,
        source_column=source_column, smallest_effect=smallest_effect, seed=seed,
    ))  # fmt: skip


class Choice:
    """A choice of weights before it is made. One half of the held-out texts chooses, the other half judges."""

    def __init__(
        self, domains: dict[str, Domain], tables: list[pa.Table], target: HeldOutTexts, own: HeldOutTexts,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.domains, self.tables, self.target, self.own, self.settings = domains, tables, target, own, settings
        self.own_start = 0 if own is target else len(target.texts)
        held_out = HeldOut.of(target.texts if own is target else pa.concat_arrays([target.texts, own.texts]))
        self.mixtures = Mixtures(
            tables, np.array([domain.bytes for domain in domains.values()]), held_out=held_out,
            budget=settings["budget_bytes"], final=settings["mixture_bytes"], max_epochs=settings["max_epochs"],
            seed=settings["seed"],
        )  # fmt: skip
        self.plan: dict[str, Any] = {
            "version": __version__, "metric": "bits per byte of the held-out target",
            "model": "modified Kneser-Ney over bytes, order 8", "pairs": PAIRS, "level": LEVEL, **settings,
            "held_out": {"documents": len(target.texts), "sources": len(target.names), "read": target.read,
                         "leaked": target.leaked, "own": own is target},
            "sha256": {"target": digest_of(target.texts)} | {
                name: digest_of(texts_of(table)) for name, table in zip(domains, tables, strict=True)
            },
        }  # fmt: skip

    def losses(self, bits: np.ndarray) -> np.ndarray:
        """Return the bits per byte of the held-out texts of each domain that choose (float64[domains])."""
        part = slice(self.own_start, self.own_start + len(self.own.texts))
        chosen = ~_judges(self.own.sources)
        of, sizes = self.own.sources[chosen], self.mixtures.held_out.sizes[part][chosen]
        return np.asarray(np.bincount(of, bits[part][chosen]) / np.bincount(of, sizes))

    def loss(self, bits: np.ndarray) -> float:
        """Return the bits per byte of the texts of the target that choose."""
        chosen = np.flatnonzero(~_judges(self.target.sources))
        return float(bits[chosen].sum() / self.mixtures.held_out.sizes[chosen].sum())

    def judge(self, weights: dict[str, np.ndarray]) -> list[WeightsRow]:
        """Return a row for each of the weights, compared with the first, by the other half of the target."""
        judging = np.flatnonzero(_judges(self.target.sources))
        sizes, sources = self.mixtures.held_out.sizes[judging], self.target.sources[judging]
        bits: dict[str, list[np.ndarray]] = {name: [] for name in weights}
        for draw in each(range(PAIRS), "training models of mixtures", "draw"):
            for name, own in weights.items():
                bits[name].append(self.mixtures.bits(self.mixtures.amounts(own), draw)[judging])
        found = {name: np.array(rows) for name, rows in bits.items()}
        first = next(iter(found.values()))
        base = float(first.mean(axis=0).sum() / sizes.sum())
        smallest = self.settings["smallest_effect"] * base
        rows = []
        for name, own in found.items():
            level = compare_pairs(own, sizes, sources)
            difference = compare_pairs(own - first, sizes, sources) if own is not first else Difference(0, 0, PAIRS - 1)
            low, high = difference.interval()
            shares = {domain: float(share) for domain, share in zip(self.domains, weights[name], strict=True)}
            verdict = "" if own is first else difference.verdict(smallest)
            rows.append(WeightsRow(
                name, shares, level.value, *level.interval(), difference.value / base, low / base, high / base, verdict,
            ))  # fmt: skip
        return rows


def prepare(
    inputs: Any, held_out: Any, *, by: str, method: str, tier: str, mixture_bytes: int, max_epochs: int,
    source_column: str, smallest_effect: float, seed: int,
) -> Choice:  # fmt: skip
    """Check the arguments of `ablate_mix`, read the texts, and return the choice with its plan."""
    check_types(
        "ablate_mix",
        {
            "by": (by, str), "method": (method, str), "tier": (tier, str), "mixture_bytes": (mixture_bytes, int),
            "max_epochs": (max_epochs, int), "source_column": (source_column, str),
            "smallest_effect": (smallest_effect, float), "seed": (seed, int),
        },
    )  # fmt: skip
    for name, value, known in (("tier", tier, TIERS), ("method", method, METHODS)):
        if value not in known:
            raise RecipeError(f"{name}: no {name} {value!r}{nearest(value, known)}")
    if tier == GPU:
        if method != DOREMI:
            raise RecipeError(f"method {method} has no tier {GPU}; write tier seconds or minutes, or method {DOREMI}")
        _need_gpu()
    for name, number, least in (("mixture_bytes", mixture_bytes, 0), ("max_epochs", max_epochs, 1), ("seed", seed, 0)):
        if number < least:
            raise RecipeError(f"{name} must be {least} or more, not {number}")
    if not 0 < smallest_effect < 1:
        raise RecipeError(f"smallest_effect must be above 0 and below 1, not {smallest_effect:g}")
    if not by:
        raise RecipeError(f"by is empty; expected {BY_INPUT} or the name of a column")
    domains = read_domains(inputs, "" if by == BY_INPUT else by, POOL * TIERS[tier], seed)
    if len(domains) < 2:
        names = ", ".join(map(repr, domains)) or "none"
        raise InputError(
            f"mix: expected 2 or more domains, found {names}. Give more inputs, or the column with domains"
        )
    total = sum(domain.bytes for domain in domains.values())
    final = mixture_bytes or total
    if final > max_epochs * total:
        raise InputError(
            f"mix: mixture_bytes is {final:,}, more than {counted(max_epochs, 'epoch')} of the {total:,} bytes "
            "there are. Lower it, or raise max_epochs"
        )
    budget = min(TIERS[tier], final // 2)
    if budget < MIN_BYTES:
        raise InputError(f"mix: the mixture has {final:,} bytes of text, expected {2 * MIN_BYTES:,} or more. Give more")
    tables, held = _split(domains, budget / final)
    pool, none = concat(tables), held.slice(0, 0)
    pool = pool.append_column(KEY, pa.array(np.arange(len(pool), dtype=np.uint64)))
    pair = Pair(pool, pool.slice(0, 0), {})
    if held_out:
        found = clean(read_texts(held_out, "held_out", source_column), held, none, pair)
        target, own = found[TARGET], found[RAW_LIKE]
    else:
        target = own = clean(held, none, none, pair, few=True)[TARGET]
    for name, domain in domains.items():
        left = int((own.sources == own.names.index(name)).sum()) if name in own.names else 0
        if left < MIN_HELD_OUT:
            raise InputError(
                f"mix: domain {name!r} has {counted(left, 'held-out document')} without leaks, expected "
                f"{MIN_HELD_OUT} or more: its {domain.documents:,} documents are few, copies or near-duplicates. "
                "Give more, remove duplicates, or leave it out"
            )
    return Choice(
        domains, tables, target, own, by=by, method=method, tier=tier, budget_bytes=budget, mixture_bytes=final,
        max_epochs=max_epochs, smallest_effect=smallest_effect, seed=seed,
    )  # fmt: skip


def conclude(choice: Choice) -> Mixture:
    """Choose weights, compare them, and return the result."""
    mixtures, history, correlation = choice.mixtures, np.empty((0, 0)), 1.0
    if choice.settings["method"] == REGMIX:
        weights, correlation = swarm.choose(mixtures, choice.loss)
    else:
        history = _by_transformers(choice) if choice.settings["tier"] == GPU else reweigh(mixtures, choice.losses)
        weights = mixtures.within_caps(history.mean(axis=0))
    rows = choice.judge({PROPORTIONAL: mixtures.proportional, UNIFORM: mixtures.uniform, CHOSEN: weights})
    verdict = rows[-1].verdict if correlation >= swarm.MIN_CORRELATION else "undecided"
    epochs = mixtures.epochs(weights).tolist()
    names, counts = choice.own.names, np.bincount(choice.own.sources)
    domains = [
        DomainRow(name, domain.documents, domain.bytes, int(counts[names.index(name)]), epochs[number])
        for number, (name, domain) in enumerate(choice.domains.items())
    ]
    return Mixture(verdict, domains, rows, correlation, history.tolist(), choice.plan)


def _need_gpu() -> str:
    """Return the device of the tier `gpu`. EngineError: no PyTorch or GPU."""
    try:
        import torch
    except ImportError as error:
        raise EngineError(f"the tier gpu needs PyTorch ({error}); {installation('torch')}") from None
    if not torch.cuda.is_available():
        raise EngineError(
            "the tier gpu needs a GPU that PyTorch can use, and found none. Write tier seconds or minutes"
        )
    return "cuda"


def _by_transformers(choice: Choice) -> np.ndarray:
    """Return the weights after each step of DoReMi as published."""
    from curation.tools.ablation.proxy_training import Training, train

    texts = dict(zip(choice.domains, map(texts_of, choice.tables), strict=True))
    seed, device = choice.settings["seed"], _need_gpu()
    return train(texts, choice.mixtures.proportional, Training(), seed=seed, device=device)


def _split(domains: dict[str, Domain], share: float) -> tuple[list[pa.Table], pa.Table]:
    """Return the documents of each domain for training texts, POOL times the share of it that a draw takes, and those
    that are held out. Hashes of texts decide, so copies are held out together."""
    tables, held = [], []
    for name, domain in domains.items():
        keys = domain.table.column(KEY).to_numpy()
        known = np.unique(keys)
        if len(known) < MIN_DIFFERENT:
            raise InputError(
                f"mix: domain {name!r} has {counted(len(known), 'different text')}, expected {MIN_DIFFERENT} or more. "
                "Give more, or leave it out"
            )
        count = min(max(len(known) // SPLIT, FEWEST), len(known) // 2)
        is_held = np.isin(keys, known[np.argsort(split_mix(known), kind="stable")[:count]])
        held.append(domain.table.filter(pa.array(is_held)))
        rest = domain.table.filter(pa.array(~is_held))
        documents = Documents(rest)
        order = np.argsort(split_mix(rest.column(KEY).to_numpy()), kind="stable")
        before = np.cumsum(documents.sizes[order]) - documents.sizes[order]
        tables.append(rest.take(pa.array(np.sort(order[before < POOL * share * domain.bytes]))))
    return tables, pa.concat_tables(held).combine_chunks()


def _judges(sources: np.ndarray) -> np.ndarray:
    """Return for each held-out text whether it judges (bool): every second of each source."""
    order = np.argsort(sources, kind="stable")
    ordered = sources[order]
    found = np.empty(len(sources), bool)
    found[order] = (np.arange(len(sources)) - np.searchsorted(ordered, ordered)) % 2 == 1
    return found
