# SPDX-License-Identifier: Apache-2.0
"""Lengths near 2^31, in int32 arrays: products and sums are right. A longer document is refused, not wrapped."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.base.errors import IntegrityError
from curation.tokens.forms.chunks import cut_lengths
from curation.tokens.forms.packed import pack
from curation.tokens.megatron import PairWriter, byte_pointers, write_index
from curation.tokens.token_files import SHARES, count_shares

MOST = 2**31 - 1
LENGTHS = np.array([MOST, 1, 2**30, MOST], np.int32)
ENDS = [MOST, MOST + 1, MOST + 1 + 2**30, 2 * MOST + 1 + 2**30]
LONGEST = 1 << 24  # of a row


@pytest.mark.parametrize("length", [2**31 // SHARES + 1, 43_000_000, MOST])
def test_shares_of_long_documents(length: int) -> None:
    counts = count_shares(pa.array(["x" * 200]), np.array([length], np.int32))
    assert counts.nonzero()[0].tolist() == [SHARES]


def test_pointers_of_an_index(tmp_path: Path) -> None:
    write_index(tmp_path / "a.idx", np.int32, LENGTHS)
    content = (tmp_path / "a.idx").read_bytes()
    assert struct.unpack_from("<4i", content, 34) == tuple(LENGTHS.tolist())
    assert struct.unpack_from("<4q", content, 50) == (0, *(4 * end for end in ENDS[:-1]))
    assert [*np.concatenate([*byte_pointers([LENGTHS[:2], LENGTHS[2:]], 4)])] == [0, *(4 * end for end in ENDS[:-1])]


def test_chunks_and_rows() -> None:
    chunks = cut_lengths(LENGTHS, LONGEST)
    assert chunks.sum(dtype=np.int64) == ENDS[-1] and chunks.max() == LONGEST and chunks.min() == 1
    starts = np.array([0, *ENDS[:-1]], np.int64)
    packed = pack(starts, LENGTHS, LONGEST)
    order = np.argsort(packed.starts)
    ends = packed.starts[order] + packed.lengths[order]
    assert packed.starts[order].tolist() == [0, *ends[:-1].tolist()] and ends[-1] == ENDS[-1]


@pytest.mark.parametrize("length", [2**31, 2**32 + 5])
def test_longer_documents_are_refused(tmp_path: Path, length: int) -> None:
    message = f"sequence 1 has {length} tokens, expected 1 to {MOST}: cut the document before tokenising"
    with pytest.raises(IntegrityError, match=message):
        write_index(tmp_path / "b.idx", np.uint16, np.array([3, length]))
    ids = np.broadcast_to(np.uint16(1), 3 + length)  # one item in memory
    with PairWriter(tmp_path / "a", np.uint16) as writer, pytest.raises(IntegrityError, match=message):
        writer.append(ids, np.array([3, length]))
