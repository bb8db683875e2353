# SPDX-License-Identifier: Apache-2.0
"""Parts of texts in plain Python: (part, what follows it) of each; joined they are the text."""

import re

from tests.oracle.units import units_of


def parts_of(text: str, *, at: str = "", sentences: int = 0, tokens: list[bytes] | None = None, size: int = 0):
    """The parts of a text between matches of `at`, of so many sentences, or of `size` of its `tokens`."""
    if at:
        found = list(re.finditer(at, text))
        starts, stops = [0, *(match.end() for match in found)], [*(match.start() for match in found), len(text)]
    elif sentences:
        contents, place = [], 0
        for before, content, after in units_of(text, "sentence"):
            contents.append((place + len(before), place + len(before) + len(content)))
            place += len(before + content + after)
        groups = [contents[first : first + sentences] for first in range(0, len(contents), sentences)]
        starts = [0, *(group[0][0] for group in groups[1:])]
        stops = [*(group[-1][1] for group in groups[:-1]), len(text)]
    else:
        data, place, cuts = text.encode(), 0, []
        for number, token in enumerate(tokens or []):
            if number and number % size == 0:
                cut = next(cut for cut in range(place, place + 5) if (data[cut : cut + 1] or b"a")[0] & 0xC0 != 0x80)
                cuts += [len(data[:cut].decode())] * (cut < len(data))
            place += len(token)
        cuts = sorted({*cuts} - {0})
        starts, stops = [0, *cuts], [*cuts, len(text)]
    following = [*starts[1:], len(text)]
    return [(text[a:b], text[b:c]) for a, b, c in zip(starts, stops, following, strict=True)]
