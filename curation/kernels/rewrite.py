# SPDX-License-Identifier: Apache-2.0
"""The steps of a rewrite, and their plan for kernels.

The order inside a stage is fixed: Unicode form, markup, control, characters, lower case, white space. A step does not
see characters that an earlier step deleted. The Unicode form comes first: engines find the spans that can change, and
`curation.kernels.normalization` normalises these on the host.
"""

from typing import NamedTuple

import numpy as np

from curation.base.errors import RecipeError
from curation.kernels import tables
from curation.kernels.look_alikes import load_look_alikes

CHOICES = {
    "unicode": ("keep", "nfc", "nfkc"),
    "markup": ("keep", "brackets", "brackets_line"),
    "control": ("keep", "strip", "strip_all"),
    "characters": ("keep", "basic", "folded", "visible"),
    "whitespace": ("keep", "collapse", "strip", "lines"),
}
KEEP = 0
BRACKETS, BRACKETS_LINE = 1, 2
COLLAPSE, STRIP, LINES = 1, 2, 3
FORM_FLAGS = {"nfc": tables.NFC_MAYBE, "nfkc": tables.NFKC_MAYBE}

# Positions in the plan of `plan_steps`.
STOP, DROP, MARKUP, WHITESPACE, LOWERCASE, FOLD, BLOCKS = 0, 1, 2, 3, 4, 5, 6

NEWLINE, BLANK, ZERO, TAG_BEGIN, TAG_END = 10, 32, 48, 60, 62


class RewriteSteps(NamedTuple):
    """The steps of a rewrite. The defaults change nothing.

    - `unicode`: `nfc` or `nfkc` normalises to this form of Unicode 17.
    - `markup`: `brackets` deletes every match of the regular expression `<[^>]+>`; `brackets_line` every match of
      `<.*?>`, which stays within one line and includes `<>`.
    - `control`: `strip` deletes category Cc except TAB, LF and CR; `strip_all` deletes all of Cc.
    - `characters`: `basic` deletes what is outside `[\\w\\s.,!?]`; `folded` makes each decimal digit 0 and each
      punctuation character (categories P*) a space; `visible` deletes `tables.INVISIBLE` and makes each punctuation
      character and sign (P*, S*) a space.
    - `lowercase`: as `str.lower`, including final sigma and U+0130.
    - `look_alikes`: with `lowercase` and `visible`, one letter is written for those that look the same (`look_alikes`).
    - `spaceless`: deletes white space (`str.isspace`) of the normalised text, before `characters` writes spaces.
    - `whitespace`: `strip` removes white space at both ends; `collapse` also replaces each run of it by one space;
      `lines` removes white space before LF (CR LF becomes LF), keeps at most two LF in a row, and strips both ends.
    """

    unicode: str = "keep"
    markup: str = "keep"
    control: str = "keep"
    characters: str = "keep"
    lowercase: bool = False
    whitespace: str = "keep"
    look_alikes: bool = False
    spaceless: bool = False


# The steps of `compare: visible`; digits count. An index stores the version; 2: NFKC and letters that look the same.
VISIBLE_VERSION = 2
VISIBLE = RewriteSteps(unicode="nfkc", characters="visible", lowercase=True, look_alikes=True)


def tables_of(steps: RewriteSteps) -> tables.UnicodeTables:
    """Return the Unicode tables; with look-alikes only for the step that uses these."""
    return load_look_alikes() if steps.look_alikes else tables.load_tables()


def plan_steps(steps: RewriteSteps) -> np.ndarray:
    """The steps as the int64 array for kernels; RecipeError for an unknown choice."""
    for name, choices in CHOICES.items():
        if getattr(steps, name) not in choices:
            raise RecipeError(f"{name}: expected one of {', '.join(choices)}, got {getattr(steps, name)!r}")
    drop = {"keep": 0, "strip": tables.OTHER_CONTROL, "strip_all": tables.CONTROL}[steps.control]
    deleted = {"basic": tables.SYMBOL, "visible": tables.INVISIBLE}
    replaced = {"folded": tables.DIGIT | tables.PUNCTUATION, "visible": tables.PUNCTUATION | tables.SIGN}
    drop |= deleted.get(steps.characters, 0) | (tables.SPACE if steps.spaceless else 0)
    fold = replaced.get(steps.characters, 0)
    stop = drop | fold
    stop |= tables.TAG_START if steps.markup != "keep" else 0
    stop |= tables.SPACE if steps.whitespace != "keep" else 0
    markup, whitespace = (CHOICES[name].index(getattr(steps, name)) for name in ("markup", "whitespace"))
    # Only control characters, "<" and white space that is not a single blank interrupt a block.
    blocks = steps.characters == "keep" and not steps.spaceless
    return np.array([stop, drop, markup, whitespace, steps.lowercase, fold, blocks], np.int64)


def output_bound(num_bytes, steps: RewriteSteps):
    """Maximum size of the result of `num_bytes` bytes (a number or an array) of normalised text.

    Lower case turns two bytes into at most three (U+0130, U+023A, U+023E). A document at bytes [a, b) of a column may
    be written at `output_bound(a)`: the bounds of neighbours do not overlap.
    """
    return num_bytes + num_bytes // 2 if steps.lowercase else num_bytes
