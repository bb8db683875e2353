# SPDX-License-Identifier: Apache-2.0
"""Letters that look the same, as Unicode tables. With these, `rewrite` writes one letter for all of a group
(`RewriteSteps.look_alikes`).

Two letters of one alphabet are never treated as the same, except those of SPELLINGS, so no text loses a distinction:

    LETTERS    cased letters of different scripts, in lower case, by the data of UTS #39 (Unicode 17), which
               `tests/scripts/make_look_alikes.py` reads
    SPELLINGS  letters of one script for which languages have one or the other: Arabic and Persian kaf and yeh, heh of
               Urdu; cedilla and comma of Romanian

Letters that are drawn as apostrophes count as punctuation. The stroke that lengthens Arabic words counts as invisible,
and so do code points that Unicode reserves for ignorable characters.
"""

from functools import cache
from itertools import groupby

import numpy as np

from curation.kernels import tables

LETTERS = (
    "aαа bβв cсⲥꮯ dԁꮷ eεе fϝք gցꮐ hηнհꮒ iιіւⲓꭵ jϳј kκк lӏ mμм nո oοϭоօჿ pρрⲣ qԛգ rгᴦⲅꮁ sѕտꮪ tτт uυս vνѵꮩ "
    "wшաⲽꮃ xχхⲭ yγуყⲩꭹ zζꮓ ßᏸ þϸ ĸⲕꮶ ƅꮟ ƕԋ ƨϩꙅ ƫꮏ ǝә ȝӡჳⳅ ȷյ ɂꭾ ɔͻ ɛԑ ɜз ɢԍᏻ ɰպ ɴⲛ ɸφфփⲫ ʀꭱ ʌлᴧⲗ ʍⲙꮇ ʓⲝ ʘꙩ "
    "ʙᏼⲃ ʜⲏꮋ ʟⳑꮮ ͱⱶꮀ ͷиᴎ ͽꜿ δծẟⳝ λꟛ ξⲷ πпⲡ ψѱⲯ ωⲱꙍꞷ ϗⳤ ϥч ϼⳁ яᴙ єⲉꞓꮛ љꭠ ѡꮗ ᴀꭺ ᴅꭰ ᴇꭼ ᴊꭻ ᴘᴩꮲ ᴛⲧꭲ ῶꮿ ⱬⲍ ⴀꞇ"
)  # codespell:ignore
SPELLINGS = "كک يی هہ şș ţț"
APOSTROPHES = "".join(map(chr, (*range(0x2B9, 0x2C0), 0x2C8, 0x2EE)))
TATWEEL = "\u0640"
# Code points that Unicode reserves for ignorable characters: Default_Ignorable_Code_Point of the category Cn.
KEPT_IGNORABLE = (
    0x2065, *range(0xFFF0, 0xFFF9), 0xE0000, *range(0xE0002, 0xE0020), *range(0xE0080, 0xE0100),
    *range(0xE01F0, 0xE1000),
)  # fmt: skip
# Characters that `compare: visible` ignores, although they are drawn, such as the end of a verse, or lay out
# hieroglyphs and annotations.
DRAWN = (
    ord(TATWEEL),
    *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, *range(0xFFF9, 0xFFFC), 0x110BD, 0x110CD,
    *range(0x13430, 0x13440),
)  # fmt: skip


def blank_characters() -> np.ndarray:
    """Return for each code point (bool, 0x110000) whether nothing is drawn. That is so for white space, control
    characters, and characters that `compare: visible` ignores, except DRAWN."""
    base = tables.load_tables()
    is_blank = (base.flags & (tables.INVISIBLE | tables.SPACE) != 0)[base.all_records()]
    is_blank[[*KEPT_IGNORABLE]] = True
    is_blank[[*DRAWN]] = False
    return np.asarray(is_blank)


def ranges_of(members: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and last code points of the ranges of members (bool, one per code point)."""
    ranges = [
        [*each] for _, each in groupby(enumerate(np.flatnonzero(members).tolist()), lambda pair: pair[1] - pair[0])
    ]
    return [(each[0][1], each[-1][1]) for each in ranges]


def class_of(members: np.ndarray) -> str:
    """Return the members as ranges for a class of characters of RE2."""
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ranges_of(members))


@cache
def load_look_alikes() -> tables.UnicodeTables:
    """Return read-only tables in which `lower` leads to the first letter of each group, after lower case.  In these
    tables, white space counts as punctuation, which becomes a space. A character of NFKC_MAYBE loses this flag if its
    normal form is one character, and both become a space.
    """
    import unicodedata2

    base = tables.load_tables()
    points = np.arange(0x110000)
    records = base.all_records()
    flags, lower = base.flags[records], base.lower[records]
    target = points.copy()
    for letters in f"{LETTERS} {SPELLINGS}".split():
        target[[*map(ord, letters[1:])]] = ord(letters[0])
    lower += (target[points + lower] - points - lower).astype(np.int32)
    flags[[*map(ord, APOSTROPHES)]] |= tables.PUNCTUATION
    flags[[ord(TATWEEL), *KEPT_IGNORABLE]] |= tables.INVISIBLE
    is_blank = flags & (tables.PUNCTUATION | tables.SIGN | tables.SPACE) != 0
    flags[(flags & tables.SPACE != 0) & (points > 0x7F)] |= tables.PUNCTUATION
    for point in np.flatnonzero(is_blank & (flags & tables.NFKC_MAYBE != 0)).tolist():
        form = unicodedata2.normalize("NFKC", chr(point))
        if len(form) == 1 and is_blank[ord(form)]:
            flags[point] &= ~np.uint32(tables.NFKC_MAYBE)
    return _with(base, records, flags, lower)


def _with(
    base: tables.UnicodeTables, records: np.ndarray, flags: np.ndarray, lower: np.ndarray
) -> tables.UnicodeTables:
    """Return the tables with new flags and distances, given by code point. Each code point that changes gets its own
    record."""
    changed = np.flatnonzero((flags != base.flags[records]) | (lower != base.lower[records]))
    numbers = records.copy()
    numbers[changed] = len(base.flags) + np.arange(len(changed))
    rows = [row.tobytes() for row in numbers.reshape(-1, 256)]
    unique = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    extended = tables.UnicodeTables(
        np.array([unique[row] for row in rows], base.pages.dtype),
        np.frombuffer(b"".join(unique), numbers.dtype).copy(),
        np.append(base.flags, flags[changed]),
        np.append(base.lower, lower[changed]),
        np.append(base.script, base.script[records[changed]]),
        np.append(base.combining, base.combining[records[changed]]),
    )
    for array in extended:
        array.setflags(write=False)
    return extended
