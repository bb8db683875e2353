# SPDX-License-Identifier: Apache-2.0
"""How many ids name several documents: exact for up to MOST documents, else estimated from a sample of ids.

The sample has the ids whose hash is 0 modulo a power of two, at most MODULUS. An id is in it with all its documents or
not at all, in whatever order slices are added up.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import ID, TEXT, Engine, Frame
from curation.reading.split_settings import ids_of_records

MOST = 256  # hashes of a sample, which exceeds them only at MODULUS
MODULUS = 1024


class IdSample(msgspec.Struct, kw_only=True):
    """A sample of the ids of documents: the hashes (uint64) that are 0 modulo `modulus`, one for each document."""

    modulus: int = 1
    hashes: list[int] = []

    def add(self, hashes: np.ndarray, modulus: int = 1) -> None:
        """Add hashes (uint64) that are 0 modulo `modulus`."""
        found = np.concatenate([np.array(self.hashes, np.uint64), hashes.astype(np.uint64)])
        self.modulus = max(self.modulus, modulus)
        found = found[found % np.uint64(self.modulus) == 0]
        while len(found) > MOST and self.modulus < MODULUS:
            self.modulus *= 2
            found = found[found % np.uint64(self.modulus) == 0]
        self.hashes = found.tolist()

    def add_frame(self, engine: Engine, frame: Frame) -> None:
        """Add the ids that the documents of a frame have in the input."""
        ids = ids_of_records(engine.to_arrow(frame[[ID]]).column(0)).drop_null()
        if len(ids):
            self.add(engine.hash_text(engine.from_arrow(pa.table({TEXT: ids.cast(pa.large_string())}))[TEXT])[:, 0])

    def warning(self) -> str:
        """Return the warning of ids that several documents have; "" if there are none."""
        _, counts = np.unique(np.array(self.hashes, np.uint64), return_counts=True)
        repeated, different = int(np.count_nonzero(counts > 1)) * self.modulus, len(counts) * self.modulus
        if not repeated:
            return ""
        about = "" if self.modulus == 1 else "about "
        return (
            f"ids repeat: {about}{repeated:,} of {about}{different:,} different ids name several documents. The "
            "column doc tells them apart, and duplicate_of_doc in removed/ is the doc of the kept duplicate. Or set "
            "id_column: of the input to a field whose values differ"
        )
