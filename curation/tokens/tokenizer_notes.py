# SPDX-License-Identifier: Apache-2.0
"""Reports the special tokens that a tokenizer writes, and the characters that it loses: those that the text decoded
from the ids lacks.

A default SentencePiece model turns line ends and consecutive spaces into one space. BERT's vocabularies lose case.
Unknown characters become `<unk>`. Ids alone do not show this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from curation.tokens.vocabularies import is_failure

if TYPE_CHECKING:
    import pyarrow as pa

    from curation.tokens.tokenization import Tokenizer

FIRST_DOCUMENTS = 32  # documents of a part that are compared, besides one in `CHECK_EVERY`
MAX_BYTES = 1_000_000  # limit of a document that is compared: decoding takes up to 170 bytes of memory per id
MIN_SHARE = 0.0001  # share of characters; smaller shares are only in the report
KEPT_NAMES, SHOWN_NAMES = 20, 3
BEFORE, AFTER = 8, 32  # characters of the example around the first difference
NAMES = {"\n": "line ends", " ": "spaces", "\t": "tabs", "\r": "carriage returns"}


class Losses(msgspec.Struct):
    """The characters that documents lose when they are tokenised and their ids are decoded.

    documents   documents that were compared
    characters  characters of their texts
    lost        characters that the decoded texts lack
    by_name     character -> number, of the most frequent ones
    example     an excerpt of a text and of the decoded text
    """

    documents: int = 0
    characters: int = 0
    lost: int = 0
    by_name: dict[str, int] = {}
    example: list[str] = []

    def add(self, text: str, decoded: str) -> None:
        """Compare a text with its decoded ids."""
        self.documents += 1
        self.characters += len(text)
        if text == decoded:
            return
        missing = Counter(text) - Counter(decoded)
        self.lost += missing.total()
        self.by_name = dict((Counter(self.by_name) + missing).most_common(KEPT_NAMES))
        if missing and not self.example:
            same = next(
                (at for at, pair in enumerate(zip(text, decoded, strict=False)) if pair[0] != pair[1]), len(decoded)
            )
            start = max(min(same, len(text)) - BEFORE, 0)
            self.example = [whole[start : start + BEFORE + AFTER] for whole in (text, decoded)]

    def merge(self, other: Losses) -> None:
        """Add the counts of other documents."""
        self.documents += other.documents
        self.characters += other.characters
        self.lost += other.lost
        self.by_name = dict((Counter(self.by_name) + Counter(other.by_name)).most_common(KEPT_NAMES))
        self.example = self.example or other.example

    def add_documents(
        self,
        tokenizer: Tokenizer,
        texts: pa.LargeStringArray,
        ids: np.ndarray,
        lengths: np.ndarray,
        rows: Iterable[int],
    ) -> None:
        """Compare the documents `rows` of packed ids, as `Tokenizer.pack` returns them, with their texts."""
        before, after = map(len, tokenizer.special_ids)
        ends = np.cumsum(lengths, dtype=np.int64)
        for row in rows:
            text = texts[int(row)]
            if lengths[row] and text.as_buffer().size <= MAX_BYTES:
                document_ids = ids[ends[row] - lengths[row] + before : ends[row] - after]
                self._add_decoded(tokenizer, text.as_py(), document_ids)

    def _add_decoded(self, tokenizer: Tokenizer, text: str, ids: np.ndarray) -> None:
        try:
            decoded = tokenizer.decode(ids)
        except Exception as error:
            if not is_failure(error):
                raise
            return  # ids that no library decodes can be right
        self.add(text, decoded)

    def warning(self, name: str) -> list[str]:
        """Return the warning that the tokenizer `name` loses characters, as a list. The list is empty if the share of
        lost characters is below MIN_SHARE."""
        if self.lost < self.characters * MIN_SHARE or not self.lost:
            return []
        ranked = sorted(self.by_name.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_NAMES]
        shown = ", ".join(f"{NAMES.get(character, repr(character))} {count:,}" for character, count in ranked)
        text, decoded = self.example
        return [
            f"tokenizer {name} loses {self.lost / self.characters:.2%} of the characters: decoded texts lack "
            f"{self.lost:,} of {self.characters:,} in {self.documents:,} compared documents (most often {shown}). "
            f"{text!r} becomes {decoded!r}. Train or choose a tokenizer that keeps them"
        ]


def losses_of(records: Iterable[dict[str, Any]]) -> Losses:
    """Return the sum of the losses in the records of parts."""
    total = Losses()
    for record in records:
        total.merge(msgspec.convert(record.get("losses", {}), Losses))
    return total


def special_tokens_line(tokenizer: Tokenizer) -> str:
    """Return the line with the names of the special tokens, and which of them a run writes."""
    before, after = tokenizer.special_ids
    tokens = ("end", tokenizer.eod, after), ("begin", tokenizer.bos, before), ("padding", tokenizer.pad, ())
    return "special tokens: " + ", ".join(
        f"no {name}"
        if token is None
        else f"{name} {tokenizer.named(token)} ({'written' if written else 'not written'})"
        for name, token, written in tokens
    )
