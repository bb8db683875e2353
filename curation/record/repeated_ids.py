# SPDX-License-Identifier: Apache-2.0
"""The number of ids that name several documents. The number is exact for up to MOST documents, else estimated from a
sample of ids.

The sample has the ids whose hash is 0 modulo a power of two, at most MODULUS. The sample does not depend on the order
in which slices are added up. The hash of an id is in the sample once, or twice if several documents have the id.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import ID, TEXT, Engine, Frame
from curation.reading.split_settings import ids_of_records

MOST = 256  # most distinct hashes of a sample, except with MODULUS. The error with 128 to 256 of them is 6 to 9 %
MODULUS = 1024


class IdSample(msgspec.Struct, kw_only=True):
    """A sample of the ids of documents: their sorted hashes (uint64) that are 0 modulo `modulus`. If several documents
    have an id, the hash of the id is in the sample twice."""

    modulus: int = 1
    hashes: list[int] = []

    def add(self, hashes: np.ndarray, modulus: int = 1) -> None:
        """Add hashes (uint64) that are 0 modulo `modulus`."""
        self.modulus = max(self.modulus, modulus)
        found, counts = np.unique(
            np.concatenate([np.array(self.hashes, np.uint64), hashes.astype(np.uint64)]), return_counts=True
        )
        while self.modulus < MODULUS and np.count_nonzero(found % np.uint64(self.modulus) == 0) > MOST:
            self.modulus *= 2
        is_in = found % np.uint64(self.modulus) == 0
        self.hashes = np.repeat(found[is_in], np.minimum(counts[is_in], 2)).tolist()

    def add_frame(self, engine: Engine, frame: Frame) -> None:
        """Add the ids of a frame's documents that come from the input."""
        ids = ids_of_records(engine.to_arrow(frame[[ID]]).column(0)).drop_null()
        if len(ids):
            self.add(engine.hash_text(engine.from_arrow(pa.table({TEXT: ids.cast(pa.large_string())}))[TEXT])[:, 0])

    def warning(self) -> str:
        """Return a warning about ids that several documents have; "" if there are no such ids."""
        _, counts = np.unique(np.array(self.hashes, np.uint64), return_counts=True)
        repeated, different = (self._shown(number) for number in (int(np.count_nonzero(counts > 1)), len(counts)))
        if not np.any(counts > 1):
            return ""
        return (
            f"ids repeat: {repeated} of {different} different ids name several documents. The "
            "column doc tells them apart, and duplicate_of_doc in removed/ is the doc of the kept duplicate. Or set "
            "id_column: of the input to a field whose values differ"
        )

    def _shown(self, number: int) -> str:
        """Return a number of ids as text, estimated from `number` in the sample and rounded to two digits."""
        return f"{number:,}" if self.modulus == 1 else f"about {int(float(f'{number * self.modulus:.2g}')):,}"
