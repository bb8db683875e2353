# SPDX-License-Identifier: Apache-2.0
"""The letters that `visible` takes for others keep the rules by which they were chosen."""

from itertools import chain

import unicodedata2

from curation.kernels import tables
from curation.kernels.look_alikes import APOSTROPHES, KEPT_IGNORABLE, LETTERS, SPELLINGS, TATWEEL, load_look_alikes


def record(char: str, unicode: tables.UnicodeTables) -> int:
    return int(unicode.records[int(unicode.pages[ord(char) >> 8]) * 256 + (ord(char) & 255)])


def test_letters_keep_their_rules():
    base, shown = tables.load_tables(), load_look_alikes()
    groups = LETTERS.split()
    letters = [*chain.from_iterable(groups)]
    assert len({*letters}) == len(letters) and not {*letters} & {*"σςь"}
    for letter in letters:
        flags = base.flags[record(letter, base)]
        assert flags & tables.CASED and not base.lower[record(letter, base)], letter  # cased, in lower case
        assert unicodedata2.normalize("NFKC", letter) == letter < "\U00010000"
    for group in groups:
        scripts = {base.script[record(letter, base)] for letter in group}
        assert len(group) > 1 and len(scripts) == len(group), group  # no two letters of one alphabet
    for group in (*groups, *SPELLINGS.split()):
        assert min(len(letter.encode()) for letter in group) == len(group[0].encode())  # texts do not grow
        assert {chr(ord(letter) + int(shown.lower[record(letter, shown)])) for letter in group} == {group[0]}
    for chars, flag in (
        (APOSTROPHES, tables.PUNCTUATION),
        (TATWEEL, tables.INVISIBLE),
        (map(chr, KEPT_IGNORABLE), tables.INVISIBLE),
    ):
        assert all(shown.flags[record(char, shown)] & flag for char in chars)
