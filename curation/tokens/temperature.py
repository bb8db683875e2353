# SPDX-License-Identifier: Apache-2.0
"""Weights of groups by the power 1/T of their sizes, as in multilingual BERT, XLM-R (T = 3.33) and mT5.

Powers of floats differ between libraries in their last digit. So this module computes integers, with the logarithms and
exponentials of `decimal` at a fixed precision. Every machine rounds these correctly.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

UNITS = 10**40  # the weight of the largest group; a weight of less than half a unit is 0
_CONTEXT = Context(prec=60, Emin=-999_999, Emax=999_999, traps=[])


def check_temperature(name: str, temperature: float) -> None:
    """Raise ValueError for a temperature that is not above 0."""
    if not temperature > 0:
        raise ValueError(f"{name} must be above 0, not {temperature}")


def tempered(sizes: Sequence[int], temperature: float) -> list[int]:
    """Return the weight of each size: size^(1/temperature), scaled so that the largest weight is UNITS.

    The temperature is taken as the decimal number that the user wrote. A size of 0 has the weight 0."""
    context, written = _CONTEXT.copy(), Decimal(repr(float(temperature)))
    largest = context.ln(Decimal(max([1, *sizes])))

    def weight_of(size: int) -> int:
        power = context.divide(context.subtract(context.ln(Decimal(size)), largest), written)
        return int(context.multiply(context.exp(power), Decimal(UNITS)).to_integral_value(context=context))

    return [weight_of(size) if size else 0 for size in sizes]
