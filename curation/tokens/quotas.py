# SPDX-License-Identifier: Apache-2.0
"""Exact amounts for groups with given shares, within the size of each group."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

MAX_USEFUL_EPOCHS = 4  # more repeats of a text teach a model little (Muennighoff et al. 2023)


def apportion(shares: Sequence[Fraction], sizes: Sequence[int], total: int, max_epochs: int = 0) -> list[int]:
    """Return how many of `total` each group gets, by the method of largest remainders; of equal remainders, earlier
    groups come first. With a total of 0, return the largest quotas in these shares that exceed no size.

    A group gets at most `max_epochs` (0: any number) times its size. The excess is given to the other groups by their
    shares, as in UniMax (Chung et al. 2023). If all groups reach their maximum, the sum is below `total`.
    """
    if not total:
        most = min(size / share for size, share in zip(sizes, shares, strict=True) if share)
        return [int(most * share) for share in shares]
    quotas, open_groups = [0] * len(shares), [k for k, share in enumerate(shares) if share]
    while open_groups:
        whole = sum(shares[k] for k in open_groups)
        exact = {k: total * shares[k] / whole for k in open_groups}
        full = [k for k in open_groups if max_epochs and exact[k] >= max_epochs * sizes[k]]
        if not full:
            break
        for k in full:
            quotas[k] = max_epochs * sizes[k]
            total -= quotas[k]
            open_groups.remove(k)
    for k in open_groups:
        quotas[k] = int(exact[k])
        total -= quotas[k]
    order = sorted(open_groups, key=lambda k: (quotas[k] - exact[k], k))
    for k in order[:total]:
        quotas[k] += 1
    return quotas
