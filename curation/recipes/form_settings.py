# SPDX-License-Identifier: Apache-2.0
"""Finds the settings of `output` that only some formats have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from curation.tokens.forms import FORMS, MEGATRON, OUTPUT_FORMATS


def formats_of_settings() -> dict[str, list[str]]:
    """Return a dictionary: a setting that only some formats have -> these formats."""
    padded = [name for name, form in FORMS.items() if form.pads]
    shared = {"blend": [MEGATRON], "splits": [*OUTPUT_FORMATS], "pad_id": padded, "sample": ["chunks"]}
    return {name: [name] for name in OUTPUT_FORMATS} | shared


def with_formats(output: dict[str, Any], formats: Sequence[str]) -> dict[str, Any]:
    """Return `output` of a recipe with the given formats. Settings that none of these formats has are left out."""
    void = {name for name, wanted in formats_of_settings().items() if not {*wanted} & {*formats}}
    return {name: value for name, value in output.items() if name not in void} | {"formats": [*formats]}
