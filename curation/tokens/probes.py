# SPDX-License-Identifier: Apache-2.0
"""Compares a fast library with a tokenizer's reference library, on short texts and on each piece that is no plain text.

Such pieces are special and other added tokens, user-defined symbols, and the names of bytes and of unknown text. Each
piece is tried in CONTEXTS. If the libraries differ on a piece, the reference encodes all texts with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

SPELLED = "<s> </s> <unk> <pad> [CLS] [SEP] <|im_start|> <|endoftext|> <0x0A> ▁under▁score"
PROBES = (
    "",
    " ",
    "\n",
    "\t \r\n \u00a0 \u2003 \u3000x  y   z    ",
    "Hello world, it's THE end; we'll can't I'M don’t __init__ a1b22c333 4444 55555.66 -7e-8",
    "naïve café e\u0301 \u1e9b\u0323 İstanbul ß ŒUVRE ﬁ Ⅷ ² ½ ٣٤ ०१",
    "👩‍👩‍👧‍👦👍🏽🇫🇷❤️ \ufeff\u200b\u200d zero\x00width \x1f",
    "中文沒有空格。ひらがなカタカナ 한국어 ภาษาไทย العربية עברית हिन्दी Ελληνικός русский",
    "def f(x):\n    return {'a': [1, 2]}  # <b>http://example.org/?q=%20&r=1</b>\n\n\n\tif x:\n\t\tpass\n",
    "a" * 300 + " " * 300 + "\n" * 50 + "!" * 100 + "1" * 100 + "ab" * 100,
    SPELLED,
)
CONTEXTS = (
    "{0}",
    "{0}{0}",
    "{0}{0}{0}{0}{0}",
    " {0}",
    "{0} ",
    "  {0}  {0}  ",
    "\n{0}\n",
    "a{0}b",
    "{0}a {0}",
    "a {0} b",
    "A{0}\t{0}1.{0}é{0}中{0}'s ▁{0}▁",
)
MAX_PROBES = 100_000  # with more pieces, the reference encodes: to compare a million takes about 20 seconds
MAX_CHARACTERS = 200  # the reference encodes texts with a longer piece
SHOWN_CHARACTERS = 60
# Other characters that a normaliser may turn into a character: a space into U+2581, and three characters by NFC.
SAME = {" ": "▁", "▁": " ", "K": "\u212a", ";": "\u037e", "`": "\u1fef"}

Encode = Callable[[list[str]], Iterable[Any]]


class ProbeResults(NamedTuple):
    """The results of a comparison.

    note     reason why only the reference encodes, "" if there is none
    pattern  regular expression of RE2: the reference encodes texts that match; "" for none
    """

    note: str
    pattern: str = ""


def compare(
    fast: Encode, reference: Encode, pieces: Sequence[str], differing: Iterable[str], name: str
) -> ProbeResults:
    """Compare two libraries.

    pieces     the pieces that are no plain text
    differing  pieces on which the libraries are known to differ
    name       name of the reference, for messages
    """
    unequal = {*differing, *(piece for piece in pieces if len(piece) > MAX_CHARACTERS)} - {""}
    for make in (_alone, _together):  # a piece that differs alone says nothing about its neighbours
        probes = list(islice(make(sorted({*pieces} - {"", *unequal})), MAX_PROBES + 1))
        if len(probes) > MAX_PROBES:
            return ProbeResults(
                f"its {len(pieces):,} added tokens are too many to compare gigatoken with {name} on each"
            )
        texts = [text for text, _ in probes]
        for (_, blamed), ours, theirs in zip(probes, fast(texts), reference(texts), strict=True):
            if _differ(ours, theirs):
                unequal.update(blamed)
    if everywhere := unequal & {"▁"}:
        return ProbeResults(f"gigatoken differs from {name} on {everywhere.pop()!r}, which every space becomes")
    pattern = pattern_of(unequal)
    plain = [text for text in PROBES if text is not SPELLED or not (pattern and re.search(pattern, text))]
    for text, ours, theirs in zip(plain, fast(plain), reference(plain), strict=True):
        if _differ(ours, theirs):
            return ProbeResults(f"gigatoken differs from {name} on {text[:SHOWN_CHARACTERS]!r}")
    return ProbeResults("", pattern)


def _differ(ours: Any, theirs: Any) -> bool:
    """Return whether the ids of two libraries differ; False if the reference cannot encode the text (None)."""
    return theirs is not None and not np.array_equal(ours, theirs)


def _alone(pieces: Sequence[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield (text, pieces in it): every piece in every context, also in forms that a normaliser turns into the
    piece."""
    same = str.maketrans(SAME)
    for piece in pieces:
        for text, context in product(dict.fromkeys((piece, piece.translate(same))), CONTEXTS):
            yield context.format(text), (piece,)


def _together(pieces: Sequence[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield (text, pieces in it): two pieces next to each other, and texts in which the end of one piece is the
    beginning of another."""
    for piece, other in pairwise([*pieces, *pieces[:1]]):
        yield f"{piece}{other} {piece} {other}a{piece}", (piece, other)
    starts: dict[str, list[str]] = {}
    for piece in pieces:
        for end in range(1, len(piece)):
            starts.setdefault(piece[:end], []).append(piece)
    for piece in pieces:
        for start in range(1, len(piece)):
            for other in starts.get(piece[start:], ()):
                yield piece[:start] + other, (piece, other)


def pattern_of(pieces: Iterable[str]) -> str:
    """Return a regular expression that finds pieces in texts that are not yet normalised, "" without pieces.

    A piece may begin with the space that a model puts before a text.
    """
    bare = {piece.removeprefix("▁") for piece in pieces}
    return "|".join(
        "".join(f"[{sign}{SAME[sign]}]" if sign in SAME else re.escape(sign) for sign in piece)
        for piece in sorted(bare)
    )


def documents_like(texts: pa.LargeStringArray, pattern: str) -> np.ndarray:
    """Return the indexes of the texts that match a pattern of `compare`."""
    import pyarrow.compute as pc

    return np.flatnonzero(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False))
