"""Records of WARC and WET that are made to be slow: the work grows with the bytes, and the records stay the same."""

import re
from typing import Any

import pytest

from curation.reading import wet
from curation.reading.streams import StreamChunk
from curation.reading.wet import read_records


class Counted:
    """A regular expression that counts the bytes that it searches."""

    def __init__(self, pattern: "re.Pattern[bytes]") -> None:
        self.pattern, self.searched = pattern, 0

    def search(self, data: bytearray, start: int, stop: int) -> Any:
        found = self.pattern.search(data, start, stop)
        self.searched += (found.end() if found else min(stop, len(data))) - start
        return found


def lengths_that_no_record_can_have(count: int) -> bytes:
    """Records whose Content-Length ends at one blank line, behind a record with all fields."""
    header = b"WARC/1.0\r\nContent-Length: %08d\r\n\r\nx\n"
    end = b"WARC/1.0\r\nWARC-Type: x\r\nContent-Length: 3\r\n\r\nabc\r\n\r\nmore"
    size, stop = len(header % 0), count * len(header % 0) + end.index(b"\r\n\r\nmore")
    return b"".join(header % (stop - (number + 1) * size + 2) for number in range(count)) + end


HOSTILE = {
    "marks": b"WARC/1.\n" * 8000,
    "lengths": lengths_that_no_record_can_have(500),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_each_byte_of_a_header_is_searched_a_few_times(name, monkeypatch):
    counted = Counted(wet.HEADER_END)
    monkeypatch.setattr(wet, "HEADER_END", counted)
    data = HOSTILE[name]
    assert list(read_records(iter([StreamChunk(data, "")]), 1 << 20))
    assert counted.searched <= 4 * len(data), counted.searched / len(data)
