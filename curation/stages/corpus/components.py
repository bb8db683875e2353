# SPDX-License-Identifier: Apache-2.0
"""Connected components of rows that pairs join. Memory grows with the number of rows, not with the number of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curation.base.arrays import batches_of
from curation.base.contract import position_type

if TYPE_CHECKING:
    from curation.base.contract import Engine


class Components:
    """Sets of `rows` (ascending) that chains of pairs join. The label of a component is its smallest row."""

    def __init__(self, engine: Engine, rows: np.ndarray) -> None:
        self.engine = engine
        self.rows = rows
        self.parent: np.ndarray = np.arange(len(rows), dtype=position_type(len(rows)))  # a smaller one in the component

    def join(self, left: np.ndarray, right: np.ndarray) -> None:
        """Join the components of each pair of rows."""
        for batch in batches_of(len(left)):
            labels = [self._label(self._places(side[batch])) for side in (left, right)]
            apart = labels[0] != labels[1]
            roots, place = np.unique(np.concatenate([label[apart] for label in labels]), return_inverse=True)
            count = len(place) // 2
            smallest = self.engine.connected_components(place[:count], place[count:], len(roots))
            self.parent[roots] = roots[smallest]

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """Return the position of each row in `self.rows`. Look-ups in ascending order miss the cache less often."""
        order = np.argsort(rows)
        places = np.empty(len(rows), np.int64)
        places[order] = np.searchsorted(self.rows, rows[order])
        return places

    def labels(self) -> np.ndarray:
        """Return for each row the position of the smallest row of its component."""
        for batch in batches_of(len(self.parent)):
            self.parent[batch] = self._label(self.parent[batch])
        return self.parent

    def _label(self, numbers: np.ndarray) -> np.ndarray:
        label = self.parent[numbers]
        above = self.parent[label]
        if (above != label).any():
            while (above != label).any():
                label, above = above, self.parent[above]
            self.parent[numbers] = label
        return label
