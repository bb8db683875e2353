# SPDX-License-Identifier: Apache-2.0
"""`rewrite: {invisible: remove}`: delete invisible characters. This step runs on the CPU with either engine.

These are the characters that `compare: visible` ignores, except control characters, which `control` deletes, and format
characters that fonts draw. Characters that shape their neighbours stay:

    U+200C, U+200D           beside a letter or mark of a script of SHAPED (Unicode, UAX #31, section 2.3)
    U+200D, U+FE0E, U+FE0F   in sequences of emoji (UTS #51), and the tags of flags
    U+180B to U+180F         after a character of Mongolian
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pyarrow as pa

from curation.kernels import tables
from curation.kernels.look_alikes import DRAWN, class_of, load_look_alikes, ranges_of
from curation.stages.rows.text_edits import edit_each

# Scripts whose letters join, or form conjuncts.
SHAPED = (
    "Adlam", "Arabic", "Balinese", "Bengali", "Brahmi", "Chakma", "Chorasmian", "Devanagari", "Grantha", "Gujarati",
    "Gurmukhi", "Hanifi_Rohingya", "Javanese", "Kaithi", "Kannada", "Kharoshthi", "Khmer", "Malayalam", "Mandaic",
    "Manichaean", "Meetei_Mayek", "Modi", "Mongolian", "Myanmar", "Newa", "Nko", "Old_Uyghur", "Oriya", "Phags_Pa",
    "Psalter_Pahlavi", "Saurashtra", "Sharada", "Siddham", "Sinhala", "Sogdian", "Sundanese", "Syloti_Nagri",
    "Syriac", "Tai_Tham", "Takri", "Tamil", "Telugu", "Tibetan", "Tirhuta",
)  # fmt: skip
FIRST_SIGN = 0xA9  # the first emoji; signs with smaller numbers, such as +, are no emoji
EMOJI_MARKS = "\u203c\u2049\u3030\u303d"  # emoji that are punctuation


def remove_invisible(texts: pa.Array) -> pa.Array:
    """Return the texts without invisible characters, except those that shape their neighbours; nulls stay nulls."""
    hint, pattern = _patterns()
    return edit_each(texts, hint, lambda text: pattern.sub(lambda match: match["kept"] or "", text))


@cache
def _patterns() -> tuple[str, re.Pattern[str]]:
    """Return an RE2 pattern for texts with an invisible character, and a pattern for these characters, whose group
    `kept` matches those that stay."""
    unicode = load_look_alikes()
    points, records = np.arange(0x110000), unicode.all_records()
    flags, scripts = unicode.flags[records], unicode.script[records]
    is_gone = (flags & tables.INVISIBLE != 0) & (flags & tables.CONTROL == 0) & ~np.isin(points, DRAWN)
    is_emoji = (flags & tables.SIGN != 0) & (points >= FIRST_SIGN) | np.isin(points, [*map(ord, EMOJI_MARKS)])
    shaped = np.isin(scripts, [tables.SCRIPTS.index(name) for name in SHAPED]) & ~is_gone
    mongolian = (scripts == tables.SCRIPTS.index("Mongolian")) & ~is_gone
    gone, letters, emoji, mongol = map(_characters, (is_gone, shaped, is_emoji, mongolian))
    kept = (
        "\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f",
        "(?<=[0-9#*])\ufe0f(?=\u20e3)",
        f"(?<=[{emoji}])[\ufe0e\ufe0f]",
        f"(?<=[{emoji}\ufe0f])\u200d(?=[{emoji}])",
        f"(?<=[{letters}])[\u200c\u200d]+",
        f"[\u200c\u200d]+(?=[{letters}])",
        f"(?<=[{mongol}])[\u180b-\u180f]+",
    )
    return f"[{class_of(is_gone)}]", re.compile(f"(?P<kept>{'|'.join(kept)})|[{gone}]")


def _characters(members: np.ndarray) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges_of(members))
