# SPDX-License-Identifier: Apache-2.0
"""Best-fit bin packing, for `curation.tokens.forms.packed`."""

import numpy as np

from curation.kernels.cache import kernel


@kernel
def best_fit(lengths, capacity):
    """Return the bin (int32) of each item; bins are numbered in the order in which they are opened.

    lengths    integers, at most `capacity`

    An item goes into the fullest bin with enough room; among ties, into the bin that reached this level last. Bins with
    equal free room form a linked list, and a tree over 0..capacity counts them, so a search takes log2(capacity) steps.
    Host only, since it allocates.
    """
    leaves = 1
    while leaves <= capacity:
        leaves *= 2
    tree = np.zeros(2 * leaves, np.int64)
    newest = np.full(capacity + 1, -1, np.int64)
    older = np.empty(len(lengths), np.int32)
    chosen = np.empty(len(lengths), np.int32)
    bins = 0
    for item in range(len(lengths)):
        room = _smallest_room(tree, leaves, lengths[item])
        if room > capacity:
            bin_, room = bins, capacity
            bins += 1
        else:
            bin_ = newest[room]
            newest[room] = older[bin_]
            _add(tree, leaves + room, -1)
        remaining = room - lengths[item]
        older[bin_] = newest[remaining]
        newest[remaining] = bin_
        _add(tree, leaves + remaining, 1)
        chosen[item] = bin_
    return chosen


@kernel
def _add(tree, node, change):
    while node:
        tree[node] += change
        node //= 2


@kernel
def _smallest_room(tree, leaves, min_room):
    """Return the smallest free room of a bin that is at least `min_room`; `leaves` if no bin has enough."""
    node = leaves + min_room
    while tree[node] == 0:
        while node % 2:  # a right child: the next leaf belongs to an ancestor
            node //= 2
        if node == 0:
            return leaves
        node += 1
    while node < leaves:
        node *= 2
        if tree[node] == 0:
            node += 1
    return node - leaves
