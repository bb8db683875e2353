# SPDX-License-Identifier: Apache-2.0
"""Large groups of close vectors in a cluster, found without a comparison of all pairs. The groups are the same.

A *star* is a leader and the vectors close to it, its members. The vectors of a star are in one group, so they are not
compared with each other. Another vector x is compared with a member y only if the two may be close by their angles to
the leader. The angle of x and y is at least the difference of these angles (triangle inequality on the sphere). Once x
has joined the group of a star, no other member of the group is compared with x. Two stars are compared only until a
close pair is found. Vectors outside of stars are compared as in small clusters.

A million near-equal vectors take about `CANDIDATES` dot products each. A group as wide as the threshold, in which
angles exclude few pairs, takes more: at most those of all pairs, and up to 1/8 of that for the search for leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.models.vectors import UNITS, dots

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.vectors.vector_store import VectorStore

LARGE_CLUSTER = 1 << 11  # stars are searched in clusters with more vectors
MIN_STAR = 1 << 8  # least number of vectors of a star
CANDIDATES = 32  # vectors among which the next leader is chosen
BLOCK = 1 << 10  # vectors compared at once, on each side
GATHERED = 1 << 12  # vectors of one side in memory at once
SLACK = 1e-6  # of angles, in radians: an error of 1e-15 in a cosine near 1 is an error of 5e-8 in its angle


class VectorPairs(NamedTuple):
    """The close pairs that a search in a cluster finds.

    left, right  vector numbers of close pairs; they join the same groups as all close pairs
    compared     number of dot products
    """

    left: np.ndarray
    right: np.ndarray
    compared: int


class Star(NamedTuple):
    """A leader and the vectors close to it.

    leader   vector number
    members  vector numbers without the leader, in the order of `angles`
    angles   of the members to the leader, falling
    """

    leader: int
    members: np.ndarray
    angles: np.ndarray


class Stars:
    """The stars of a cluster, and the vectors that are in no star. Stars with equal labels in `groups` are in one
    group."""

    def __init__(self, engine: Engine, store: VectorStore, members: np.ndarray, units: int) -> None:
        self.engine, self.store, self.units = engine, store, units
        self.bound = float(np.arccos(units / UNITS))
        self.stars: list[Star] = []
        self.groups: list[int] = []
        self.compared = 0
        self.pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self.rest = (
            self._find_stars(members) if len(members) > LARGE_CLUSTER else members
        )  # outside of stars, ascending

    def _find_stars(self, members: np.ndarray) -> np.ndarray:
        """Find stars until no candidate has enough close vectors. Return the vectors outside of stars."""
        rest = members
        while len(rest) > MIN_STAR:
            candidates = rest[np.arange(min(CANDIDATES, len(rest))) * len(rest) // min(CANDIDATES, len(rest))]
            sizes = self._close_counts(candidates, rest)
            if sizes.max() < MIN_STAR:
                break
            leader = int(candidates[sizes.argmax()])
            near, angles = self._angles(leader, rest)
            others = rest[near]
            order = np.argsort(-angles[near], kind="stable")
            order = order[others[order] != leader]
            number = len(self.stars)
            self.stars.append(Star(leader, others[order], angles[near][order]))
            self.groups.append(number)
            self._add(np.full(len(order), leader), others[order])
            for earlier in range(number):  # a member of an earlier star may be close to this leader
                if self.groups[earlier] != self.groups[number]:
                    near_earlier, _ = self._angles(leader, self.stars[earlier].members)
                    if near_earlier.any():
                        first = self.stars[earlier].members[near_earlier.argmax()]
                        self._join(earlier, number, leader, int(first))
            rest = rest[~near]
        return rest

    def _close_counts(self, candidates: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return how many of the other vectors are close to each candidate."""
        counts = np.zeros(len(candidates), np.int64)
        for block in _blocks(others, GATHERED):
            counts += np.bincount(self._close(candidates, block)[0], minlength=len(candidates))
        return counts

    def _angles(self, leader: int, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for each of `others` whether it is close to the leader of a star, and its angle to the leader."""
        self.compared += len(others)
        cosine = np.empty(len(others))
        vector, norm = self.store.at(np.array([leader]), "vectors"), self.store.at(np.array([leader]), "norms")[0]
        for start in range(0, len(others), GATHERED):
            block = others[start : start + GATHERED]
            dot = dots(self.store.at(block, "vectors"), np.broadcast_to(vector, (len(block), vector.shape[1])))
            product = self.store.at(block, "norms").astype(np.float64) * float(norm)
            cosine[start : start + GATHERED] = dot.astype(np.float64) / np.sqrt(product)
        near = np.floor(cosine * UNITS) >= self.units  # rounded as in `vectors.cosines`
        return near, np.arccos(np.clip(cosine, -1, 1))

    def _close(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.compared += len(left) * len(right)
        return self.store.close(self.engine, left, right, self.units)

    def _add(self, left: np.ndarray, right: np.ndarray) -> None:
        self.pairs.append((left, right))

    def _join(self, one: int, other: int, left: int, right: int) -> None:
        """Join the groups of the stars `one` and `other`, whose vectors `left` and `right` are close."""
        self._unite(one, other)
        self._add(np.array([left]), np.array([right]))

    def _unite(self, one: int, other: int) -> None:
        new, old = self.groups[one], self.groups[other]
        self.groups = [new if group == old else group for group in self.groups]

    def join(self, visitors: np.ndarray) -> None:
        """Find the close pairs of which one vector is in a star. The other vector of a pair is in another star, outside
        of stars, or among `visitors` (vector numbers, ascending)."""
        self._join_stars()
        self._join_others(self.rest)
        self._join_others(visitors)

    def _join_stars(self) -> None:
        """Compare each star with each earlier star, until a close pair is found."""
        for number, star in enumerate(self.stars):
            for earlier in range(number):
                if self.groups[earlier] == self.groups[number]:
                    continue
                everyone = np.append(star.leader, star.members)
                for x, y in self._near_members(everyone, self.stars[earlier]):
                    if len(x):
                        self._join(earlier, number, int(x[0]), int(y[0]))
                        break

    def _join_others(self, others: np.ndarray) -> None:
        """Compare vectors outside of stars with the members of stars, until each vector has joined all groups that it
        is close to."""
        joined = np.full(len(others), -1)  # a star whose group the vector has joined; -1: none
        for number, star in enumerate(self.stars):
            chosen = np.flatnonzero(np.append(self.groups, -1)[joined] != self.groups[number])
            for x, y in self._near_members(others[chosen], star):
                self._add(x, y)
                places = chosen[np.searchsorted(others[chosen], x)]
                for before in np.unique(joined[places]).tolist():
                    if before >= 0:  # the vector joins both groups
                        self._unite(before, number)
                joined[places] = number

    def _near_members(self, others: np.ndarray, star: Star) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of pairs (other vector, close member of the star), ascending. Each other vector is in at most
        one pair."""
        near, angles = self._angles(star.leader, others)
        yield others[near], np.full(int(near.sum()), star.leader)
        if not len(star.members):
            return
        least = angles - self.bound - SLACK  # least angle of a close member to the leader
        left = np.flatnonzero(~near & (least <= star.angles[0]))
        left = left[np.argsort(least[left], kind="stable")]
        for block in _blocks(left, BLOCK):
            count = int(np.searchsorted(-star.angles, -least[block[0]], side="right"))
            for members in _blocks(star.members[:count], BLOCK):
                i, j = self._close(others[block], members)
                i, first = np.unique(i, return_index=True)
                order = np.argsort(block[i])
                yield others[block[i[order]]], members[j[first[order]]]
                block = np.delete(block, i)
                if not len(block):
                    break

    def found(self) -> VectorPairs:
        """Return all pairs found, and the number of dot products."""
        sides = ([np.zeros(0, np.int64), *(pair[side] for pair in self.pairs)] for side in range(2))
        left, right = (np.concatenate(side) for side in sides)
        return VectorPairs(left, right, self.compared)


def _blocks(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
