# SPDX-License-Identifier: Apache-2.0
"""The memory of a long list of domains, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import re, sys
from pathlib import Path
import pyarrow as pa
from curation.rules.listed import Listed, count_listed, store

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def found(name):
    return count_listed(pa.chunked_array([["http://www.1f.example7.com"]]), Listed(file=name, as_="domain")).tolist()

found(sys.argv[1])
before = peak()
assert found(sys.argv[2]) == [1.0]
print(peak() - before)
"""


@pytest.mark.slow("two million domains take at most 64 MB of memory")
def test_two_million_domains_take_at_most_64_mb(tmp_path: Path):
    for name, count in (("short", 1), ("long", 2_000_000)):
        (tmp_path / name).write_text("".join(f"{number:x}.example{number % 8}.com\n" for number in range(count)))
    command = [sys.executable, "-c", CODE, str(tmp_path / "short"), str(tmp_path / "long")]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert 16 < peak <= 64
