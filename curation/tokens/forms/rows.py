# SPDX-License-Identifier: Apache-2.0
"""Base class of `blocks` and `mds`: all documents form one stream of tokens, which is cut into rows of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from curation.base.errors import RecipeError, counted
from curation.base.system.steps import each
from curation.tokens.forms.base import Form
from curation.tokens.forms.documents import TokenizedDocuments, TokenStream
from curation.tokens.forms.shards import WRITE_TOKENS


class RowForm(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that both forms have. A row may have tokens of several documents, and a document may span rows.

    row  the form's word for a row, also the name of its count
    """

    row: ClassVar[str]
    pads = True

    length: int = 1024
    keep_last: bool = False

    def needs_pad_id(self) -> bool:
        return self.keep_last

    def shard_rows(self) -> int:
        """Return how many rows a shard has; the last one may have fewer."""
        raise NotImplementedError

    def write_shard(
        self, folder: Path, split: str, number: int, rows: int, batches: Iterable[np.ndarray], dtype: np.dtype
    ) -> dict[str, Any]:
        """Write `rows` rows, whose ids come in `batches`, and return the entry of the file in the manifest."""
        raise NotImplementedError

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
        length, name = self.length, f"{self.row}s"
        full, rest = divmod(documents.tokens, length)
        count = full + (self.keep_last and rest > 0)
        if not count:
            raise RecipeError(
                f"{split or 'the run'} has {documents.tokens} tokens, expected at least one {self.row} of {length}. "
                f"Set a smaller output.{self.name}.length, or keep_last: true"
            )
        stream = TokenStream(documents)
        files = []
        for number, first in enumerate(each(range(0, count, self.shard_rows()), f"writing {name}", "file")):
            rows = min(self.shard_rows(), count - first)
            batches = _row_batches(stream, rows, length, pad_id)
            files.append(self.write_shard(folder, split, number, rows, batches, dtype) | {name: rows})
        padding = count * length - documents.tokens if count > full else 0
        return {
            "files": files,
            "documents": documents.count,
            name: count,
            "tokens": count * length - padding,
            "dropped_tokens": 0 if count > full else rest,
            "padding": padding,
        }

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return counts summed over splits. `tail_tokens` counts the tokens of incomplete last rows, which are
        dropped."""
        counts = {f"{cls.row}s": f"{cls.row}s", "tail_tokens": "dropped_tokens"}
        return {name: sum(split.get(key, 0) for split in splits) for name, key in counts.items()} if splits else {}

    @classmethod
    def lines(cls, splits: Sequence[Mapping[str, Any]]) -> list[str]:
        if not splits:
            return []
        numbers = cls.numbers(splits)
        tail = f"; {counted(numbers['tail_tokens'], 'tail token')} dropped" if numbers["tail_tokens"] else ""
        return [f"{counted(numbers[f'{cls.row}s'], cls.row)}{tail}"]


def _row_batches(stream: TokenStream, rows: int, length: int, pad_id: int) -> Iterator[np.ndarray]:
    """Yield the next rows in batches; an incomplete last row is padded."""
    step = max(1, WRITE_TOKENS // length)
    for first in range(0, rows, step):
        size = min(step, rows - first) * length
        ids = stream.take(size)
        yield np.pad(ids, (0, size - len(ids)), constant_values=pad_id) if len(ids) < size else ids
