# SPDX-License-Identifier: Apache-2.0
"""Words of scripts that are written without spaces, as a trie; and classes of characters, which decide where words end.

The words are the lists of ICU 78 for Chinese and Japanese, Thai, Lao, Khmer and Burmese (`word_lists.LICENSE`). A word
of Chinese or Japanese has a cost, which is lower for a more frequent word. `tests/scripts/make_word_lists.py` writes
the file. Loading takes 0.1 to 0.2 s and 18 MB.

Classes of characters:

    SPACE      white space
    LETTER     letters, marks and numbers of scripts with spaces, and `_`
    INNER      a mark that does not end a word between two of LETTER
    OPENING    an opening bracket or quotation mark
    OTHER      every other character
    HAN        Han and hiragana
    KATAKANA   katakana
    SOUTHEAST  letters of Thai, Lao, Khmer, Burmese and other languages in these scripts
    SIGN       signs of these scripts that belong to the letter before them
    LEADING    vowels of these scripts that belong to the letter after them
"""

import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curation.kernels.cache import kernel

LIST_PATH = Path(__file__).with_name("word_lists.xz")
# The order is part of the file: from HAN on, characters of scripts without spaces.
OTHER, SPACE, LETTER, INNER, OPENING, HAN, KATAKANA, SOUTHEAST, SIGN, LEADING = range(10)
NUM_CODE_POINTS = 0x110000
NUM_BYTES = 8  # bytes of the number of words, at the start of the file
EDGE_BITS = 21  # of slots: twice the edges
CHILD_BITS = 21
NO_WORD = 255  # of `costs`: no word ends here
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class WordLists(NamedTuple):
    """Read-only arrays.

    A node of the trie is the beginning of a word; node 0 is empty. All characters of words are below U+10000.
    """

    pages: np.ndarray  # uint8[4352], indexed by code point >> 8
    classes: np.ndarray  # uint8: class of a character, at pages[code_point >> 8] * 256 + (code_point & 255)
    roots: np.ndarray  # int32[65536]: node of a first character; 0: no word begins with it
    edges: np.ndarray  # uint64[2 ** EDGE_BITS]: (node << 16 | code point) << CHILD_BITS | next node; 0: a free slot
    costs: np.ndarray  # uint8, one per node: cost of the word; NO_WORD: the node is no word


@cache
def load_word_lists() -> WordLists:
    """The lists of this package, read once per process."""
    return unpack(lzma.decompress(LIST_PATH.read_bytes()))


@cache
def load_classes() -> tuple[np.ndarray, np.ndarray]:
    """Return only the pages and classes of `WordLists`, in a hundredth of the time."""
    content = lzma.LZMADecompressor().decompress(LIST_PATH.read_bytes(), NUM_BYTES + NUM_CODE_POINTS)
    return unpack_classes(np.frombuffer(content, np.uint8, offset=NUM_BYTES))


def unpack_classes(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each code point (uint8) as pages and classes of `WordLists`."""
    rows = [row.tobytes() for row in classes.reshape(-1, 256)]
    unique = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    return np.array([unique[row] for row in rows], np.uint8), np.frombuffer(b"".join(unique), np.uint8).copy()


def unpack(content: bytes) -> WordLists:
    """Return the lists of a decompressed file. The file has the number of words (int64) and the class of each code
    point (uint8). Three arrays (uint8) follow, one item per word in order: the number of characters shared with the
    word before, the number of other characters, and the cost. The other characters of all words come last (UTF-16)."""
    count = int(np.frombuffer(content, np.int64, 1)[0])
    bytes_ = np.frombuffer(content, np.uint8, offset=NUM_BYTES)
    classes, rest = bytes_[:NUM_CODE_POINTS], bytes_[NUM_CODE_POINTS:]
    shared, others, costs = rest[: 3 * count].reshape(3, count)
    units = rest[3 * count :].view(np.uint16)
    nodes = 1 + len(units)  # each other character makes a node
    tables = WordLists(
        *unpack_classes(classes),
        np.zeros(1 << 16, np.int32),
        np.zeros(1 << EDGE_BITS, np.uint64),
        np.full(nodes, NO_WORD, np.uint8),
    )
    add_words(shared, others, costs, units, np.zeros(256, np.int64), tables.roots, tables.edges, tables.costs)
    for table in tables:
        table.setflags(write=False)
    return tables


@kernel
def edge_slot(key):
    """The first slot of an edge: key is node << 16 | code point."""
    return key * MULTIPLIER >> np.uint64(64 - EDGE_BITS)


@kernel
def next_node(edges, node, code_point):
    """The node after a character; 0 if no word continues with it."""
    key = np.uint64(node) << np.uint64(16) | np.uint64(code_point)
    slot = edge_slot(key)
    while True:
        edge = edges[slot]
        if edge >> np.uint64(CHILD_BITS) == key:
            return np.int64(edge & np.uint64((1 << CHILD_BITS) - 1))
        if edge == np.uint64(0):
            return 0
        slot = (slot + np.uint64(1)) & np.uint64((1 << EDGE_BITS) - 1)


@kernel
def add_words(shared, others, costs, units, path, roots, edges, node_costs):
    """Fill the tables with words in sorted order. path[k]: node of the first k characters of the previous word."""
    nodes, first = 1, 0
    for word in range(len(shared)):
        depth = np.int64(shared[word])
        for _ in range(others[word]):
            unit = np.int64(units[first])
            first += 1
            if depth == 0:
                roots[unit] = nodes
            else:
                key = np.uint64(path[depth]) << np.uint64(16) | np.uint64(unit)
                slot = edge_slot(key)
                while edges[slot] != np.uint64(0):
                    slot = (slot + np.uint64(1)) & np.uint64((1 << EDGE_BITS) - 1)
                edges[slot] = key << np.uint64(CHILD_BITS) | np.uint64(nodes)
            depth += 1
            path[depth] = nodes
            nodes += 1
        node_costs[path[depth]] = costs[word]
