# SPDX-License-Identifier: Apache-2.0
"""Unicode normal forms, for the few documents that `needs_normalising` selects. Both engines call this module on the
CPU."""

from collections.abc import Iterable

import pyarrow as pa
import unicodedata2

from curation.base.errors import EngineError
from curation.kernels.tables import UNICODE_VERSION


def normalize(documents: pa.LargeStringArray | Iterable[str], form: str) -> pa.LargeStringArray:
    """Return documents without nulls in the form "nfc" or "nfkc" of Unicode 17. Raise EngineError if unicodedata2 has
    another version."""
    if unicodedata2.unidata_version != UNICODE_VERSION:
        raise EngineError(
            f"unicodedata2 has Unicode {unicodedata2.unidata_version}, expected {UNICODE_VERSION}. "
            "Install it: pip install 'unicodedata2==17.0.1'"
        )
    texts = documents.to_pylist() if isinstance(documents, pa.Array) else documents
    return pa.array([unicodedata2.normalize(form.upper(), text) for text in texts], pa.large_string())
