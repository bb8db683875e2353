# SPDX-License-Identifier: Apache-2.0
"""The main script of each text, and the shares of its letters that are of some scripts; on the host of both engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from curation.arrays import text_buffers
from curation.contract import TEXT, Engine, Frame
from curation.errors import nearest
from curation.kernels.scripts import (
    CODES,
    JOINED,
    MAIN,
    NO_SCRIPTS,
    letter_counts,
    letters_of,
    main_scripts,
)

SCRIPT = "script"
SCRIPT_CODES = MAIN  # all values of the column
SUFFIX = "_share"
COUNT = "script/"  # in the details of a stage, before a code
CODES_TAKEN = (*CODES[NO_SCRIPTS:], *JOINED)
ONE_SCRIPT = {"Hans": "Hani", "Hant": "Hani"}  # letters do not tell simplified from traditional
BLOCK_ROWS = 1 << 12  # the counts of so many texts take 2.9 MB


def check_scripts(codes: Sequence[str]) -> None:
    """Raise ValueError for something other than codes of scripts that letters have, each once."""
    for number, code in enumerate(codes):
        if code in ONE_SCRIPT:
            raise ValueError(f"script_shares: letters do not tell Hans from Hant. Give {ONE_SCRIPT[code]}, not {code}")
        if code not in CODES_TAKEN:
            hint = nearest(code, CODES_TAKEN)
            raise ValueError(f"script_shares takes codes of ISO 15924, such as Latn or Cyrl, not {code!r}{hint}")
        if code in codes[:number]:
            raise ValueError(f"script_shares has {code} twice. List it once")


def columns_of(main: bool, codes: Sequence[str]) -> dict[str, str]:
    """Return the columns of `script_columns`: name -> Arrow type."""
    return ({SCRIPT: "large_string"} if main else {}) | dict.fromkeys((f"{code}{SUFFIX}" for code in codes), "double")


def script_columns(engine: Engine, frame: Frame, main: bool, codes: Sequence[str]) -> dict[str, Any]:
    """Return the columns: `script`, with the main script of each text, null without letters, and for each of `codes`
    the share of the letters that are of this script, float64; 0 without letters."""
    names, shares = [np.zeros(0, np.int16)], {code: [np.zeros(0)] for code in codes}
    for counts in _counts(engine.to_arrow(frame[[TEXT]]).column(TEXT)):
        letters = np.maximum(counts.sum(axis=1), 1)
        for code in codes:
            shares[code].append(letters_of(counts, code) / letters)
        if main:
            names.append(main_scripts(counts))
    columns: dict[str, Any] = {f"{code}{SUFFIX}": np.concatenate(parts) for code, parts in shares.items()}
    if main:
        number = np.concatenate(names)
        columns[SCRIPT] = pa.array(MAIN, pa.large_string()).take(pa.array(number, mask=number < 0))
    return columns


def counts_of(scripts: pa.Array) -> dict[str, int]:
    """Return the number of texts of each main script, for the details of a stage; `none` for those without letters."""
    found = scripts.value_counts().to_pylist()
    return {f"{COUNT}{entry['values'] or 'none'}": entry["counts"] for entry in found}


def _counts(texts: pa.ChunkedArray) -> Iterator[np.ndarray]:
    """Yield the letters of texts by script, block by block."""
    for chunk in texts.chunks:
        data, offsets = text_buffers(chunk.fill_null(""))
        for start in range(0, len(chunk), BLOCK_ROWS):
            yield letter_counts(data, offsets[start : start + BLOCK_ROWS + 1])
