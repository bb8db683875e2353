# SPDX-License-Identifier: Apache-2.0
"""Phases of training, such as pretraining and midtraining: how many tokens each draws of each input."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from curation.tokens.quotas import MAX_USEFUL_EPOCHS, apportion

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BlendPhase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phase of training, with a blend file of its own.

    name        name in reports and files: letters, digits, `-` and `_`
    tokens      tokens that the phase trains on
    share       in place of tokens: the same as a share of the tokens of all inputs (of the split train), above 0
    weights     input -> its weight in this phase; divided by their sum. Empty: the weights of `blend.txt`
    seq_length  tokens of a sample in the lines to paste; 0: `megatron.seq_length`
    """

    name: str
    tokens: int = 0
    share: float = 0
    weights: dict[str, float] = msgspec.field(default_factory=dict)
    seq_length: int = 0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"the name of a phase has 1 to 64 letters, digits, - and _, not {self.name!r}")
        where = f"phase {self.name}"
        for field in ("tokens", "share", "seq_length"):
            if not (0 <= getattr(self, field) < math.inf):
                raise ValueError(f"{where}: {field} must be 0 or more, not {getattr(self, field)}")
        if bool(self.tokens) == bool(self.share):
            raise ValueError(f"{where}: give tokens or share, {'not both' if self.tokens else 'one of them'}")
        for name, weight in self.weights.items():
            if not 0 < weight < math.inf:
                raise ValueError(
                    f"{where}: the weight of {name!r} must be above 0, not {weight}. To leave an input out, leave it "
                    "out of weights"
                )


class PhaseDraw(NamedTuple):
    """The tokens that a phase draws.

    asked    tokens that the settings ask for
    weights  input -> its share by the settings, of the inputs with tokens
    tokens   input -> tokens that the phase draws of it
    """

    phase: BlendPhase
    asked: int
    weights: dict[str, Fraction]
    tokens: dict[str, int]


def check_phases(phases: Sequence[BlendPhase], max_epochs: int) -> None:
    """Raise ValueError for phases with the same name, and for a limit without phases."""
    names = [phase.name for phase in phases]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two phases are named {twice[0]!r}. Give each phase another name")
    if max_epochs < 0:
        raise ValueError(f"blend.max_epochs must be 0 or more, not {max_epochs}")
    if max_epochs and not phases:
        raise ValueError("blend.max_epochs is a limit over blend.phases. Give phases, or leave it out")


def draw_phases(
    phases: Sequence[BlendPhase], max_epochs: int, sizes: Mapping[str, int], weights: Mapping[str, Fraction]
) -> list[PhaseDraw]:
    """Return the tokens that each phase draws of each input.

    max_epochs  draw at most this many times the tokens of an input in all phases; 0: no limit. The last phase is filled
                first, and what an earlier one then lacks of an input is drawn from its other inputs, by their weights
    sizes       input -> its tokens; inputs without tokens are left out
    weights     input -> weight, for phases without weights
    """
    left = {name: max_epochs * size for name, size in sizes.items()}
    found = []
    for phase in reversed(phases):
        given = {name: Fraction(repr(float(weight))) for name, weight in phase.weights.items()} or weights
        shares = {name: weight for name, weight in given.items() if sizes.get(name)}
        shares = {name: weight / sum(shares.values()) for name, weight in shares.items()}
        asked = phase.tokens or max(int(Decimal(repr(float(phase.share))) * sum(sizes.values())), 1)
        quotas = apportion([*shares.values()], [left[name] for name in shares], asked, 1 if max_epochs else 0)
        tokens = dict(zip(shares, quotas, strict=True))
        left |= {name: left[name] - number for name, number in tokens.items()}
        found.append(PhaseDraw(phase, asked, shares, tokens))
    return found[::-1]


def epochs_of(draws: Sequence[PhaseDraw], sizes: Mapping[str, int]) -> dict[str, float]:
    """Return input -> how often all phases draw its tokens."""
    return {name: round(sum(draw.tokens.get(name, 0) for draw in draws) / size, 6) for name, size in sizes.items()}


def phase_rows(draws: Sequence[PhaseDraw], sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return an entry per phase for `phases.json` and the report."""
    return [
        {
            "name": draw.phase.name,
            "asked": draw.asked,
            "tokens": sum(draw.tokens.values()),
            "inputs": {
                name: {"tokens": number, "epochs": round(number / sizes[name], 6)}
                for name, number in draw.tokens.items()
            },
        }
        for draw in draws
    ]


def phase_warnings(draws: Sequence[PhaseDraw], sizes: Mapping[str, int], max_epochs: int) -> list[str]:
    """Return warnings about inputs without tokens, about shares that `max_epochs` changes, and about many epochs."""
    lines = []
    for draw in draws:
        where, total = f"phase {draw.phase.name}", sum(draw.tokens.values())
        for name in (name for name in draw.phase.weights if name not in draw.weights):
            lines.append(f"{where}: input {name!r} has no tokens; the other inputs get its share")
        short = [name for name, share in draw.weights.items() if draw.tokens[name] < int(draw.asked * share)]
        if short:
            shares = ((name, draw.tokens[name] / draw.asked, float(draw.weights[name])) for name in short)
            changes = (f"{name} {share:.2%} of the tokens instead of {given:.2%}" for name, share, given in shares)
            lines.append(f"{where}: {', '.join(changes)}, because max_epochs ({max_epochs}) limits all phases together")
        if total < draw.asked:
            lines.append(
                f"{where}: {draw.asked - total:,} tokens fewer than asked for, because its inputs have no more. Lower "
                "tokens, raise max_epochs, or name more inputs"
            )
    for name, epochs in epochs_of(draws, sizes).items():
        if epochs > MAX_USEFUL_EPOCHS:
            lines.append(
                f"the phases draw input {name!r} {epochs:.1f} times. Above {MAX_USEFUL_EPOCHS} repeats teach a model "
                "little (Muennighoff et al. 2023). Lower its weights, or set blend.max_epochs"
            )
    return lines


def phase_table(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the epochs of each input by phase and over all phases, as rows of a table."""
    names = dict.fromkeys(name for row in rows for name in row["inputs"])
    table = [("epochs of", *(row["name"] for row in rows), "all phases")]
    for name in names:
        epochs = [row["inputs"].get(name, {"epochs": 0.0})["epochs"] for row in rows]
        table.append((name, *(f"{number:.2f}" for number in epochs), f"{sum(epochs):.2f}"))
    return [*table, ("tokens", *(f"{row['tokens']:,}" for row in rows), f"{sum(row['tokens'] for row in rows):,}")]
