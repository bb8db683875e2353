# SPDX-License-Identifier: Apache-2.0
"""Windows of tokens: the parts of a long document that an encoder reads one by one, and how their results are pooled.

A text is tokenised from its start only as far as its windows reach. The text is tokenised in pieces, since a tokenizer
takes about 100 bytes of memory per token. A text is cut where the tokens around the cut stay the same, so all ids are
those of the whole text. A word of more than LIMIT characters is cut at any position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from curation.base.errors import InputError, counted
from curation.base.system.panics import without_panics
from curation.base.system.steps import note_share

PIECE = 2048  # characters that are tokenised at once, if a cut is found in them
LIMIT = 1 << 18  # the most characters that are tokenised at once
CONTEXT = 32  # characters before and after a cut, whose tokens must not change
MIN_DISTINCT = 12  # distinct characters that the context of a cut needs
TRIES = 6  # cuts tried at white space; as many are tried elsewhere, for scripts without spaces


class TokenWindows(NamedTuple):
    """The windows of some documents, in order.

    ids         ids of each window with the special ones, int32
    document    the document of each window, int64
    seen        characters of each document that its windows cover, int64
    characters  characters of each document, int64
    """

    ids: list[np.ndarray]
    document: np.ndarray
    seen: np.ndarray
    characters: np.ndarray

    @property
    def is_truncated(self) -> np.ndarray:
        """Whether each document has text that no window covers, bool."""
        return (self.seen < self.characters) & (self.seen > 0)


def special_ids(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer puts before and after a text."""
    encoding = tokenizer.encode("a")
    text = [index for index, special in enumerate(encoding.special_tokens_mask) if not special]
    if not text:
        return [], []
    return encoding.ids[: text[0]], encoding.ids[text[-1] + 1 :]


@without_panics()
def cut_windows(
    tokenizer: Any, texts: Sequence[str | None], max_tokens: int, count: int, special: tuple[list[int], list[int]]
) -> TokenWindows:
    """Return the windows of texts.

    max_tokens  tokens of a window, with the special ones
    count       windows of a document; 0: as many as it has text for
    special     the ids before and after the text of a window

    A document without tokens has no window.
    """
    before, after = special
    size = max_tokens - len(before) - len(after)
    ids: list[np.ndarray] = []
    document: list[int] = []
    seen, characters = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    for number, text in enumerate(texts):
        characters[number] = len(text or "")
        tokens, seen[number] = _tokens(tokenizer, text or "", size * count)
        for first in range(0, len(tokens), size):
            ids.append(np.array([*before, *tokens[first : first + size], *after], np.int32))
            document.append(number)
    return TokenWindows(ids, np.array(document, np.int64), seen, characters)


def _tokens(tokenizer: Any, text: str, wanted: int) -> tuple[list[int], int]:
    """Return up to `wanted` tokens (0: all) of a text, and the number of characters that they cover."""
    tokens: list[int] = []
    for start, piece in _pieces(tokenizer, text):
        encoding = tokenizer.encode(piece, add_special_tokens=False)
        missing = wanted - len(tokens)
        if wanted and missing <= len(encoding.ids):
            seen = start + encoding.offsets[missing - 1][1]
            return tokens + encoding.ids[:missing], seen if text[seen:].strip() else len(text)
        tokens += encoding.ids
    return tokens, len(text) if tokens else 0


def _pieces(tokenizer: Any, text: str) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a text that are tokenised at once, with their first characters."""
    first = 0
    while first < len(text):
        last = _piece_end(tokenizer, text, first)
        yield first, text[first:last]
        first = last


def _piece_end(tokenizer: Any, text: str, first: int) -> int:
    low = first
    while (high := low + PIECE) < min(len(text), first + LIMIT):
        for cut in _cuts(text, low + 1, high):
            if _keeps_tokens(tokenizer, text[max(cut - CONTEXT, 0) : cut], text[cut : cut + CONTEXT]):
                return cut
        low = high
    return min(len(text), first + LIMIT)


def _keeps_tokens(tokenizer: Any, left: str, right: str) -> bool:
    """Return whether a cut between two texts leaves their tokens as they are. In a long run of only a few distinct
    characters, tokens depend on the start of the run, which is not in the context."""
    if len({*left, *right}) < MIN_DISTINCT:
        return False
    return _ids(tokenizer, left) + _ids(tokenizer, right) == _ids(tokenizer, left + right)


def _cuts(text: str, low: int, high: int) -> Iterator[int]:
    """Yield positions for a cut, the last ones first: before white space, then anywhere."""
    cut = high
    for _ in range(TRIES):
        cut = max(text.rfind(" ", low, cut), text.rfind("\n", low, cut))
        if cut < 0:
            break
        yield cut
    yield from range(high, high - TRIES, -1)


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


class Reader(Protocol):
    """A model that reads windows: it gives `width` numbers for each."""

    width: int

    def run(self, windows: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, per batch, the numbers of its windows and their results: floats of shape (windows, width)."""
        ...


def results_of(reader: Reader, windows: TokenWindows, model: str) -> np.ndarray:
    """Return the results of all windows: float64 of shape (windows, width). Equal windows are read once.

    `model` is its path, for messages. Raises InputError for a model that gives NaN or infinite numbers."""
    indexes: dict[bytes, int] = {}
    index = np.array([indexes.setdefault(window.tobytes(), len(indexes)) for window in windows.ids], np.int64)
    _, first = np.unique(index, return_index=True)
    distinct, done = np.zeros((len(first), reader.width)), 0
    for numbers, results in reader.run([windows.ids[number] for number in first.tolist()]):
        distinct[numbers] = results
        done += len(numbers)
        note_share(done / len(first))
    values = distinct[index]
    wrong = ~np.isfinite(values).all(axis=1)
    if wrong.any():
        documents = len(np.unique(windows.document[wrong]))
        raise InputError(
            f"{model} gives NaN or an infinite number for {counted(documents, 'document')}: its weights are damaged, "
            "or too large for its dtype. Give another model"
        )
    return values


def pool(values: np.ndarray, windows: TokenWindows, pooling: str) -> np.ndarray:
    """Return the results of documents, pooled from the results of their windows: float64 of shape (documents, width),
    NaN for a document without windows. The pooling `mean` weighs each window by its number of tokens."""
    documents = len(windows.characters)
    result = np.full((documents, values.shape[1]), np.nan)
    starts = np.flatnonzero(np.diff(windows.document, prepend=-1))
    if not len(starts):
        return result
    rows = windows.document[starts]
    if pooling == "first":
        result[rows] = values[starts]
    elif pooling == "max":
        result[rows] = np.maximum.reduceat(values.astype(np.float64), starts)
    else:
        weights = np.array([len(window) for window in windows.ids], np.float64)
        sums = np.add.reduceat(values * weights[:, None], starts)
        result[rows] = sums / np.add.reduceat(weights, starts)[:, None]
    return result
