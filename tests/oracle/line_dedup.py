# SPDX-License-Identifier: Apache-2.0
"""`line_dedup` in slow plain Python, straight from its settings: texts in, texts out."""

from collections.abc import Iterator, Sequence

from tests.oracle.rewriting import compared
from tests.oracle.units import units_of

Window = tuple[str, ...]


def line_dedup(
    texts: Sequence[str], unit: str = "line", window: int = 1, compare: str = "exact", min_characters: int = 0,
    documents: int = 2, keep: str = "first", old: Sequence[str] = (),
) -> tuple[list[str], int]:  # fmt: skip
    """The texts without what is cut, and the number of units that are. `old` are the documents of an index."""

    def windows(text: str) -> Iterator[tuple[int, Window]]:
        contents = [content.strip() for _, content, _ in units_of(text, unit)]
        words = contents if compare == "exact" else [" ".join(compared(each, compare).split()) for each in contents]
        for place in range(len(words) - window + 1):
            if any(words[place : place + window]) and sum(map(len, contents[place : place + window])) >= min_characters:
                yield place, tuple(words[place : place + window])

    occurrences: dict[Window, list[int]] = {}
    for number, text in enumerate([*old, *texts]):
        for _, found in windows(text):
            occurrences.setdefault(found, []).append(number)
    seen = {found for text in old for _, found in windows(text)}
    after, number = [], 0
    for text in texts:
        cut: set[int] = set()
        for place, found in windows(text):
            numbers = occurrences[found]
            often = len(numbers) > 1 if documents == 2 else len({*numbers}) >= documents
            if often and (found in seen or keep == "none"):
                cut.update(range(place, place + window))
            seen.add(found)
        number += len(cut)
        pieces = units_of(text, unit)
        after.append("".join("".join(piece) for k, piece in enumerate(pieces) if k not in cut) if cut else text)
    return after, number
