# SPDX-License-Identifier: Apache-2.0
"""Reads tokenizer.json by the package `tokenizers`."""

from __future__ import annotations

import json
from typing import Any

from curation.base.system.panics import without_panics


@without_panics()
def parse_tokenizer(data: bytes) -> tuple[Any, Any]:
    """Return the tokenizer and the parsed JSON of the bytes of a tokenizer.json.

    Raises the errors of the package: mostly Exception itself, and PanicError.
    """
    from tokenizers import Tokenizer

    content = json.loads(data)
    if isinstance(content, dict) and isinstance(model := content.get("model"), dict):
        _check_merges(model)
    return Tokenizer.from_str(data.decode()), content


def _check_merges(model: dict[str, Any]) -> None:
    """Raise ValueError for a merge whose second part lacks the prefix of parts inside a word.

    The package removes as many bytes as the prefix has from that part. If this cuts a character, the process ends.
    """
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or () if prefix else ():
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[1]
        if not second.startswith(prefix):
            raise ValueError(f"the second part of the merge {merge!r} must begin with {prefix!r}")
