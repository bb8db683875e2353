# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of RE2."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

NO_LOOKAROUND = "; RE2 has no lookaround and no backreferences"


def pattern_problem(pattern: object) -> str:
    """Return the reason that RE2 rejects a pattern; "" for a valid one."""
    if not isinstance(pattern, str):
        return "must be a string"
    if not pattern:
        return "is empty, and matches every text"
    try:
        pc.match_substring_regex(pa.array([""], pa.large_string()), pattern=pattern)
    except pa.ArrowInvalid as error:
        cause = str(error).removeprefix("Invalid regular expression: ")
        hint = NO_LOOKAROUND if "perl operator" in cause or "escape sequence" in cause else ""
        return f"is not a regular expression of RE2: {cause}{hint}"
    except UnicodeEncodeError:
        return "must be text that UTF-8 can hold"
    return ""
