# SPDX-License-Identifier: Apache-2.0
"""Checks of a recipe with the stage `mix`."""

from __future__ import annotations

from collections.abc import Sequence

from curation.reading.inputs import AnyInput
from curation.reading.urls import shown
from curation.stages import Mix, Stage
from curation.tokens.tokenization import TokenizerSpec


def check_mix(
    stages: Sequence[Stage], names: Sequence[str], inputs: Sequence[AnyInput], tokenizer: TokenizerSpec, packs: bool
) -> None:
    """Raise ValueError for a `mix` that does not fit the other parts of a recipe. `packs`: whether the recipe writes
    tokens."""
    numbers = [number for number, stage in enumerate(stages) if isinstance(stage, Mix)]
    if not numbers:
        return
    name, last, mix = names[numbers[0]], names[-1], stages[-1]
    if numbers[0] != len(stages) - 1 or not isinstance(mix, Mix):
        raise ValueError(f"mix must be the last stage, but {last} comes after {name}. Move {name} to the end")
    for entry in inputs:
        if entry.copies > 1:
            raise ValueError(
                f"copies of {shown(entry.path)} and mix both repeat documents. Leave copies out, and raise its weight"
            )
    counted, packed = (mix.tokenizer, mix.append_eod), (tokenizer.name, tokenizer.append_eod)
    if mix.tokens and packs and (counted != packed or tokenizer.prepend_bos):
        raise ValueError(
            f"mix counts tokens of {counted[0]} (append_eod: {str(counted[1]).lower()}), but the recipe packs "
            f"{packed[0]} (append_eod: {str(packed[1]).lower()}, prepend_bos: "
            f"{str(tokenizer.prepend_bos).lower()}). Set the same in both, without prepend_bos"
        )
