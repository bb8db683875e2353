# SPDX-License-Identifier: Apache-2.0
"""Checks of the minimum amounts that an input must have: `min_bytes` and `min_documents`."""

from __future__ import annotations

from curation.base.errors import InputError, counted


def check_minimum(label: str, size: int, min_bytes: int, max_bytes: int = 0, advice: str = "") -> None:
    """Raise InputError if the input `label` gave `size` bytes of text, less than `min_bytes`.

    `max_bytes` is the budget of the input; 0 for none. `advice` ends the message.
    """
    if size < min_bytes:
        budget = " and the budget ends there" if max_bytes and max_bytes < min_bytes else ""
        raise InputError(
            f"{label} gave {size:,} bytes of text{budget}, min_bytes asks for {min_bytes:,}. Add inputs, or lower "
            f"min_bytes{advice}"
        )


def check_fewest(label: str, documents: int, min_documents: int, advice: str = "") -> None:
    """Raise InputError if the input `label` gave fewer documents than `min_documents`. `advice` ends the message."""
    if documents < min_documents:
        raise InputError(
            f"{label} gave {counted(documents, 'document')}, min_documents asks for {min_documents:,}. Add inputs, or "
            f"lower min_documents{advice}"
        )
