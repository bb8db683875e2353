# SPDX-License-Identifier: Apache-2.0
"""Write `curation/kernels/word_lists.xz`.

    pip install icu4py==1.2.0 unicodedata2==17.0.1
    python -m tests.scripts.make_word_lists .venv/lib/python3.11/site-packages/icu4py.libs/libicudata-*.so.78.3

The argument is a library or file of data of ICU 78, which has five lists in `brkitr/`. The format of a list is that of
ICU's `dictionarydata.h`, `ucharstrie.h` and `bytestrie.h`. Classes of characters are those of Unicode 17.
"""

import argparse
import lzma
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import unicodedata2

from curation.kernels import tables
from curation.kernels.word_lists import (
    HAN,
    INNER,
    KATAKANA,
    LEADING,
    LETTER,
    LIST_PATH,
    NO_WORD,
    OPENING,
    OTHER,
    SIGN,
    SOUTHEAST,
    SPACE,
)  # fmt: skip

INNER_MARKS = "-.'’,:"
LISTS = ("cj", "thai", "lao", "khmer", "burmese")
HEADER = b"\xda\x27", b"CmnD"  # of the data of ICU: magic bytes, and the format of a package
MOST_BYTES = 1 << 23  # of a list
JOINERS = {0xFF: "\u200d", 0xFE: "\u200c"}  # bytes of the four lists of bytes
# Letters and signs of these ranges are cut by the lists of Thai, Lao, Khmer and Burmese.
SOUTHEAST_RANGES = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F))
LEADING_RANGES = ((0x0E40, 0x0E44), (0x0EC0, 0x0EC4))  # vowels that are written before their consonant
FOLLOWING = (0x0E30, 0x0E32, 0x0E33, 0x0E45, 0x0EB0, 0x0EB2, 0x0EB3)  # vowels that are letters after their consonant
HAN_RANGES = ((0x3005, 0x3005), (0x3041, 0x309F), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
KATAKANA_RANGES = ((0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF))


class Trie:
    """A list of ICU as a trie in serialised form: `data` are bytes, or units of 16 bits."""

    def __init__(self, data: bytes, wide: bool) -> None:
        self.wide = wide
        self.data = struct.unpack(f"<{len(data) // 2}H", data[: len(data) & ~1]) if wide else data
        self.linear, self.final = (0x30, 0x40) if wide else (0x10, 0x20)

    def words(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the units of each word, and its value."""
        waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        while waiting:
            at, word = waiting.pop()
            lead, at = self.data[at], at + 1
            if lead >= self.final:
                value, at, following = self._value(lead, at)
                yield word, value
                if following < 0:
                    continue
                lead = following
            if lead >= self.linear:
                stop = at + lead - self.linear + 1
                waiting.append((stop, (*word, *self.data[at:stop])))
            else:
                if lead == 0:
                    lead, at = self.data[at], at + 1
                for unit, value, target in self._branches(at, lead + 1):
                    if target < 0:
                        yield (*word, unit), value
                    else:
                        waiting.append((target, (*word, unit)))

    def _branches(self, at: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield (unit, value, -1) of words that end, and (unit, 0, position) of longer ones."""
        halves = [(at, count)]
        while halves:
            at, count = halves.pop()
            while count > 5:
                target, at = self._jump(at + 1)
                halves.append((target, count // 2))
                count -= count // 2
            for _ in range(count - 1):
                unit, lead = self.data[at], self.data[at + 1]
                ends = bool(lead & 0x8000) if self.wide else bool(lead & 1)
                value, at = self._number(lead & 0x7FFF if self.wide else lead >> 1, at + 2)
                yield unit, value if ends else 0, -1 if ends else at + value
            yield self.data[at], 0, at + 1

    def _value(self, lead: int, at: int) -> tuple[int, int, int]:
        """(value, position after it, what follows: -1 for nothing)."""
        if not self.wide:
            value, at = self._number(lead >> 1, at)
            return (value, at, -1) if lead & 1 else (value, at + 1, self.data[at])
        if lead & 0x8000:
            return *self._number(lead & 0x7FFF, at), -1
        if lead < 0x4040:
            return (lead >> 6) - 1, at, lead & 0x3F
        if lead < 0x7FC0:
            return ((lead & 0x7FC0) - 0x4040) << 10 | self.data[at], at + 1, lead & 0x3F
        return self.data[at] << 16 | self.data[at + 1], at + 2, lead & 0x3F

    def _number(self, lead: int, at: int) -> tuple[int, int]:
        data = self.data
        if self.wide:
            if lead < 0x4000:
                return lead, at
            if lead < 0x7FFF:
                return (lead - 0x4000) << 16 | data[at], at + 1
            return data[at] << 16 | data[at + 1], at + 2
        for limit, base, width in ((0x51, 0x10, 0), (0x6C, 0x51, 1), (0x7E, 0x6C, 2)):
            if lead < limit:
                return (lead - base) << 8 * width | int.from_bytes(data[at : at + width], "big"), at + width
        width = lead - 0x7E + 3
        return int.from_bytes(data[at : at + width], "big"), at + width

    def _jump(self, at: int) -> tuple[int, int]:
        step, data = self.data[at], self.data
        if self.wide:
            if step < 0xFC00:
                return at + 1 + step, at + 1
            if step < 0xFFFF:
                return at + 2 + ((step - 0xFC00) << 16 | data[at + 1]), at + 2
            return at + 3 + (data[at + 1] << 16 | data[at + 2]), at + 3
        for limit, base, width in ((0xC0, 0, 0), (0xF0, 0xC0, 1), (0xFE, 0xF0, 2), (0xFF, 0xFE, 3), (0x100, 0xFF, 4)):
            if step < limit:
                after = at + 1 + width
                return after + ((step - base) << 8 * width | int.from_bytes(data[at + 1 : after], "big")), after
        raise AssertionError(step)


def read_list(data: bytes) -> dict[str, int]:
    """Return the words of a list of ICU and their costs; 1 in a list without costs."""
    start = struct.unpack_from("<H", data)[0]
    trie, _, _, end, kind, transform = struct.unpack_from("<6i", data, start)
    if kind & 7:
        pairs = Trie(data[start + trie : start + end], wide=True).words()
        return {struct.pack(f"<{len(word)}H", *word).decode("utf-16-le"): cost for word, cost in pairs}
    first = transform & 0x1FFFFF
    words = Trie(data[start + trie : start + end], wide=False).words()
    return {"".join(JOINERS.get(unit) or chr(first + unit) for unit in word): 1 for word, _ in words}


def entries_of(content: bytes) -> dict[str, memoryview]:
    """Return the files in a library or file of data of ICU by name, each with all that follows it."""
    at = content.index(HEADER[1]) - 12
    assert content[at + 2 : at + 4] == HEADER[0]
    base = at + struct.unpack_from("<H", content, at)[0]
    entries = struct.unpack_from(f"<{2 * struct.unpack_from('<I', content, base)[0]}I", content, base + 4)
    found = {}
    for name, first in zip(entries[::2], entries[1::2], strict=True):
        path = content[base + name : content.index(b"\0", base + name)].decode()
        found[path.rpartition("/")[2]] = memoryview(content)[base + first :]
    return found


def find_lists(content: bytes) -> dict[str, int]:
    """Return the words of all lists in a library or file of data of ICU, and their costs."""
    words: dict[str, int] = {}
    found = entries_of(content)
    for name in (f"{list_name}dict.dict" for list_name in LISTS):
        words |= read_list(bytes(found[name][:MOST_BYTES]))
    return words


def inside(code_point: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code_point <= last for first, last in ranges)


def class_of(code_point: int, is_space: bool) -> int:
    """The class of a character; `curation.kernels.word_lists` describes the classes."""
    category = unicodedata2.category(chr(code_point))
    if is_space:
        return SPACE
    if inside(code_point, SOUTHEAST_RANGES) and category[0] in "LM":
        if inside(code_point, LEADING_RANGES):
            return LEADING
        return SIGN if category[0] == "M" or code_point in FOLLOWING else SOUTHEAST
    if inside(code_point, HAN_RANGES) and category[0] in "LN":
        return HAN
    if inside(code_point, KATAKANA_RANGES):
        return KATAKANA
    if category[0] in "LMN" or code_point == ord("_"):
        return LETTER
    if chr(code_point) in INNER_MARKS:
        return INNER
    return OPENING if category in ("Ps", "Pi") else OTHER


def classes() -> np.ndarray:
    """The class of each code point, uint8."""
    unicode = tables.load_tables()
    code_points = np.arange(0x110000)
    records = unicode.records[unicode.pages[code_points >> 8].astype(np.int64) * 256 + (code_points & 255)]
    spaces = (unicode.flags[records] & tables.SPACE) != 0
    return np.array([class_of(*pair) for pair in enumerate(spaces.tolist())], np.uint8)


def store(words: dict[str, int], classes: np.ndarray) -> bytes:
    """Return the content of the file before compression, as `curation.kernels.word_lists.unpack` reads it.

    classes  uint8[0x110000]
    """
    ordered = sorted(words)
    shared, own, text = bytearray(), bytearray(), []
    before = ""
    for word in ordered:
        count = next((k for k in range(len(word)) if word[k] != before[k : k + 1]), len(word))
        shared.append(count)
        own.append(len(word) - count)
        text.append(word[count:])
        before = word
    units = "".join(text).encode("utf-16-le")
    costs = bytes(words[word] for word in ordered)
    assert NO_WORD not in costs
    return np.int64(len(ordered)).tobytes() + classes.tobytes() + bytes(shared) + bytes(own) + costs + units


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("icu", type=Path)
    words = find_lists(parser.parse_args().icu.read_bytes())
    LIST_PATH.write_bytes(lzma.compress(store(words, classes()), preset=9 | lzma.PRESET_EXTREME))
    sys.stdout.write(f"{len(words):,} words, {LIST_PATH.stat().st_size:,} bytes\n")


assert OTHER == 0

if __name__ == "__main__":
    main()
