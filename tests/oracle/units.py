# SPDX-License-Identifier: Apache-2.0
"""Lines, paragraphs and sentences in plain Python, straight from the definitions of `curation.kernels.units`."""

from tests.oracle.measures import ends_sentence


def units_of(text: str, unit: str) -> list[tuple[str, str, str]]:
    """(what precedes the content, content, what follows it) of each unit; joined they are the text."""
    pieces = {"line": _lines, "paragraph": _paragraphs, "sentence": _sentences}[unit](text)
    starts = [0, *(start for start, _, _ in pieces[1:]), len(text)] if pieces else []
    return [
        (text[start:first], text[first:stop], text[stop:end])
        for (_, first, stop), start, end in zip(pieces, starts, starts[1:], strict=False)
    ]


def _lines(text: str) -> list[tuple[int, int, int]]:
    found, place = [], 0
    for line in text.splitlines(keepends=True):
        found.append((place, place, place + len(line.splitlines()[0])))
        place += len(line)
    return found


def _paragraphs(text: str) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    inside = False
    for _, first, stop in _lines(text):
        if not text[first:stop].split():
            inside = False
            continue
        _extend(found, first, stop, inside)
        inside = True
    return found


def _sentences(text: str) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    inside = False
    place = 0
    for word in text.split():
        place = text.index(word, place)
        stop = place + len(word)
        _extend(found, place, stop, inside)
        inside = not ends_sentence(word)
        place = stop
    return found


def _extend(found: list[tuple[int, int, int]], first: int, stop: int, inside: bool) -> None:
    """Add a piece, or make the last one longer if the piece is inside it."""
    start, first = found.pop()[:2] if inside else (first, first)
    found.append((start, first, stop))
