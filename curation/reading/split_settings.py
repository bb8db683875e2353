# SPDX-License-Identifier: Apache-2.0
"""The settings by which an input splits its documents into parts."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.patterns import pattern_problem

SEPARATOR = "separator"
PROBES = ("", "a", " a1_-.\n\nb c\r\n")  # a pattern that can match an empty text does so in one of these
MARKED = b"\xfe\\0\xff"  # a separator between two bytes that UTF-8 does not have


class Split(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a part ends. Exactly one setting is given.

    at          pattern (RE2) of the separator of parts, such as "\\n\\n"; parts do not contain it
    sentences   number of sentences of a part; the white space between two parts is in neither part
    tokens      number of tokens of a part, by the recipe's tokenizer
    """

    at: str | msgspec.UnsetType = msgspec.UNSET
    sentences: int | msgspec.UnsetType = msgspec.UNSET
    tokens: int | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not msgspec.UNSET]
        if len(given) != 1:
            fault = f"has {' and '.join(given)}" if given else "is empty"
            raise ValueError(f'split {fault}; expected one of at: "\\n\\n", sentences: 5 and tokens: 512')
        if isinstance(self.at, str):
            if problem := pattern_problem(self.at):
                raise ValueError(f"split.at: {self.at!r} {problem}")
            if any(_matches_empty(self.at, text) for text in PROBES):
                raise ValueError(
                    f"split.at: {self.at!r} matches an empty text, so it has no bytes to split at. Write a pattern "
                    'that needs a character, such as "\\n+"'
                )
        for name in ("sentences", "tokens"):
            value = getattr(self, name)
            if value is not msgspec.UNSET and value < 1:
                raise ValueError(
                    f"split.{name} must be at least 1, not {value}. To read whole documents, leave split out"
                )


def ids_of_records(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids of parts, with null for parts of records without an id. Until their `doc` is known, such parts have
    the id `#k`."""
    return pc.if_else(pc.match_substring_regex(ids, r"^#\d+$"), None, ids)


def _matches_empty(pattern: str, text: str) -> bool:
    column = pa.array([text], pa.large_string())
    marked = pc.replace_substring_regex(column, pattern=f"(?:{pattern})", replacement=MARKED)
    return b"\xfe\xff" in marked.cast(pa.large_binary())[0].as_py()
