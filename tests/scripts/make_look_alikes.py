# SPDX-License-Identifier: Apache-2.0
"""Print LETTERS of `curation/kernels/look_alikes.py`.

    pip install icu4py==1.2.0
    python -m tests.scripts.make_look_alikes .venv/lib/python3.11/site-packages/icu4py.libs/libicudata-*.so.78.3

The argument is a library or file of data of ICU 78, whose `confusables.cfu` has the data of UTS #39; its format is that
of ICU's `uspoof_impl.h`. Pairs of the alphabets that most texts have come first, and small letters before capitals: a
group takes no second letter of a script. Letters that a Unicode form changes are left out, sigma, whose lower case
depends on its neighbours, and the soft sign, whose small letter is less like b than the capital of another one.
"""

import importlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import unicodedata2

from curation.kernels import tables

NAME = "confusables.cfu"
COMMON = ((0x61, 0x7A), (0x3B1, 0x3C9), (0x430, 0x45F))  # small letters of Latin, Greek and Cyrillic
LEFT_OUT = "σςь"


def pairs_of(data: memoryview) -> Iterator[tuple[str, str]]:
    """Yield each character that looks like one other, and that one."""
    start = struct.unpack_from("<H", data)[0]
    _, _, _, keys, count, values, _, _, _ = struct.unpack_from("<9i", data, start)
    for key, value in zip(
        struct.unpack_from(f"<{count}I", data, start + keys), struct.unpack_from(f"<{count}H", data, start + values),
        strict=True,
    ):  # fmt: skip
        if key >> 24 == 0:  # the length of the other text, less one
            yield chr(key & 0xFFFFFF), chr(value)


def groups_of(pairs: Iterator[tuple[str, str]]) -> list[str]:
    """Return the groups of letters in lower case, each with its shortest letter in UTF-8 first."""
    unicode = tables.load_tables()

    def record(char: str) -> int:
        return int(unicode.records[int(unicode.pages[ord(char) >> 8]) * 256 + (ord(char) & 255)])

    def is_letter(char: str) -> bool:
        wanted = tables.ALPHA | tables.CASED
        return unicode.flags[record(char)] & wanted == wanted and unicodedata2.normalize("NFKC", char) == char

    ranked = []
    for pair in pairs:
        small = tuple(chr(ord(char) + int(unicode.lower[record(char)])) for char in pair)
        if all(map(is_letter, pair)) and max(pair) < "\U00010000" and not {*small} & {*LEFT_OUT}:
            is_common = all(any(first <= ord(char) <= last for first, last in COMMON) for char in small)
            ranked.append((not is_common, sum(map(str.__ne__, pair, small)), small))
    groups: dict[str, frozenset[str]] = {}
    for _, _, (left, right) in sorted(ranked):
        joined = groups.get(left, frozenset(left)) | groups.get(right, frozenset(right))
        if len({unicode.script[record(char)] for char in joined}) == len(joined):
            groups |= dict.fromkeys(joined, joined)
    ordered = ["".join(sorted(group, key=lambda char: (len(char.encode()), char))) for group in {*groups.values()}]
    return sorted(group for group in ordered if len(group) > 1)


if __name__ == "__main__":
    # mypy checks the tools under two names if one imports another
    entries_of = importlib.import_module("tests.scripts.make_word_lists").entries_of
    data = entries_of(Path(sys.argv[1]).read_bytes())[NAME]
    sys.stdout.write(" ".join(groups_of(pairs_of(data))) + "\n")
