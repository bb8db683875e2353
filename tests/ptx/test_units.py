# SPDX-License-Identifier: Apache-2.0
"""The device finds, strips and cuts units of texts as the CPU engine does, wherever a document begins."""

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.base.contract import TEXT
from curation.kernels.units import UNITS
from tests.kernels.test_units import TEXTS
from tests.ptx import workload
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import SEEDS
from tests.ptx.workload import shifted_column

PIECES = [
    "a b.\r\n",
    "",
    "\r",
    "\n\r\nc d",
    " ",
    "é\u2028\u2028f! g",
    "h\u0085\u3000",
    "no end",
    "\n",
    '"x." (y?) z',
    "\n\n p\n",
]


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_units_of_every_shape(monkeypatch, tmp_path, seed):
    engine, _ = install_engine(monkeypatch, seed)
    workload.assert_equal_results(
        "units", engine, [*PIECES * 5, *(text for text in TEXTS if len(text) < 500)], tmp_path
    )


@pytest.mark.parametrize("strip", [False, True], ids=["whole", "stripped"])
@pytest.mark.parametrize(("skipped", "shift"), [(0, 3), (3, 5)])
def test_units_of_any_column(monkeypatch, skipped, shift, strip):
    """Buffers that start anywhere, slices, bytes under nulls that are not UTF-8, and texts that end within 32 bytes."""
    engine, _ = install_engine(monkeypatch, 7)
    pieces = [text.encode() for text in PIECES]
    pieces[2:2], pieces[6:6] = [b"\xe2\x80 \x80\xf0\n"], [b"\xff\xfe\xc2"]
    column = shifted_column([*pieces, b"\n\xe2"], (2, 6, len(pieces)), shift)[skipped:]
    frame = cpu_fallback.from_arrow(pa.table({TEXT: column}))
    for unit in UNITS:
        found, wanted = (each.split_units(frame[TEXT], unit, strip) for each in (engine, cpu_fallback))
        np.testing.assert_array_equal(found.counts, wanted.counts)
        assert found.frame[TEXT].tolist() == wanted.frame[TEXT].tolist()
        kept = np.arange(len(found.frame)) % 2 > 0
        results = [
            each.join_units(frame[TEXT], units, kept) for each, units in ((engine, found), (cpu_fallback, wanted))
        ]
        assert results[0][0].fillna("null").tolist() == results[1][0].fillna("null").tolist()
        np.testing.assert_array_equal(results[0][1], results[1][1])
