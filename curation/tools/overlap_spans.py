# SPDX-License-Identifier: Apache-2.0
"""`curation.check_spans`: finds evaluation text that occurs verbatim in the texts of an index of `substring_dedup`.

`check_overlap` reads all training texts and compares words. Here the index finds the positions, so the texts of the
index are not all read. Each sequence of bytes in the index is found, at its first position in the index. Memory: a
megabyte of items, and the spans found.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.arrays import batches_by_size
from curation.base.errors import RecipeError
from curation.base.system.html_table import html_table
from curation.base.system.steps import each
from curation.kernels.span_matches import all_anchors
from curation.kernels.spans import fill_spans
from curation.recipes.keywords import check_types
from curation.stages.exact.span_blocks import text_buffers
from curation.stages.exact.span_index import SpanIndex, SpanMatches
from curation.tools.overlap import check_output, contamination, read_items, save_items

AT_ONCE = 1 << 20  # bytes of items that are searched at once
SPAN = pa.struct(
    [("start", pa.int64()), ("stop", pa.int64()), ("document", pa.large_string()), ("offset", pa.int64())]
)  # fmt: skip


class SpanSet(NamedTuple):
    """The counts of one evaluation set, an input of `test`.

    items         all items
    contaminated  items with more than the threshold of their bytes in spans that the index has
    touched       items with such a span
    short         items of fewer bytes than `length`, which cannot have a span
    bytes         bytes of all items
    found         bytes of items in spans that the index has
    """

    name: str
    items: int
    contaminated: int
    touched: int
    short: int
    bytes: int
    found: int


class SpanOverlap(NamedTuple):
    """The result of `check_spans`.

    sets       counts per evaluation set
    items      a row per evaluation item, in the order of the files: `test` (the set), `file`, `item` (record, from 1),
               `id`, `bytes`, `found` (bytes in spans), `share` (null for an empty item), `contaminated`, and `spans`:
               the longest `places` ones, each with `start` and `stop` in the bytes of the item, and the id of the
               `document` that has them from its byte `offset` on. Bytes are those of UTF-8
    length, threshold  settings: bytes of the shortest span, and share of the bytes
    documents  number of documents of the index
    """

    sets: list[SpanSet]
    items: pa.Table
    length: int
    threshold: float
    documents: int

    @property
    def contaminated(self) -> int:
        """Number of contaminated items."""
        return sum(entry.contaminated for entry in self.sets)

    def __repr__(self) -> str:
        return f"<overlap: {contamination(self)}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], SpanSet._fields, self.sets)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the result to a `.json` file, or the items to an `.arrow` or `.parquet` file, and return its path.

        OutputError: another suffix, or a file that exists without `force`."""
        content = self._asdict() | {"sets": [entry._asdict() for entry in self.sets]}
        return save_items(check_output(path, force), content, self.items)


def check_spans(
    index: str | os.PathLike[str], test: Any, *, threshold: float = 0.8, places: int = 10
) -> SpanOverlap:  # fmt: skip
    """Return which evaluation items occur verbatim in the texts of an index, and where.

    index      folder `index` of a run with `substring_dedup` and `output: {index: true}`; its `length` is that of the
               shortest span. The texts are those that reached the stage
    test       paths or inputs as in a recipe; each input is a set. A record that cannot be read, and a file without a
               word, are an InputError
    threshold  an item is contaminated if more than this share of its bytes is in spans that the index has
    places     number of spans to name per item, the longest ones

    Bytes are compared unchanged. A span is as long as item and document are equal around it. Of equal sequences the
    index has the first place, so one item may have spans in several documents.

        >>> import curation, pandas
        >>> words = " ".join(f"word{number}" for number in range(20))
        >>> pandas.DataFrame({"text": [f"so {words} it is"]}).to_json("a.jsonl", orient="records", lines=True)
        >>> pandas.DataFrame({"text": [words]}).to_json("quiz.jsonl", orient="records", lines=True)
        >>> stage, output = curation.SubstringDedup(length=64), curation.Output(index=True, formats=[])
        >>> recipe = curation.Recipe(input=[curation.FilesInput(path="a.jsonl")], stages=[stage], output=output)
        >>> run = curation.run(recipe, "first", progress=False)
        >>> curation.check_spans("first/index", "quiz.jsonl").items["spans"][0].as_py()
        [{'start': 0, 'stop': 129, 'document': 'a/0', 'offset': 3}]

    RecipeError: wrong settings, or no such index. InputError: inputs that cannot be used. IntegrityError: a damaged
    index.
    """
    check_types("check_spans", {"threshold": (threshold, float), "places": (places, int)})
    if not 0 <= threshold < 1:
        raise RecipeError(f"threshold must be at least 0 and below 1, not {threshold:g}")
    if places < 1:
        raise RecipeError(f"places must be at least 1, not {places}")
    known = SpanIndex(os.fspath(index))
    items = read_items(test)
    texts = pa.array(items.texts, pa.large_string())
    sizes = np.array([len(text.encode()) for text in items.texts], np.int64)
    found_bytes, spans = np.zeros(len(sizes), np.int64), list[Any]()
    batches = list(batches_by_size(np.cumsum(sizes), AT_ONCE))
    for batch in each(batches, "searching the index", "batch"):
        matches, covered = _search(known, texts[batch])
        found_bytes[batch] = covered
        spans += _named(known, matches, len(covered), places)
    share = np.divide(found_bytes, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    contaminated = share > threshold
    columns: dict[str, Any] = {name: items.columns[name] for name in ("test", "file", "item")}
    columns |= {"id": pa.array(items.columns["id"], pa.large_string()), "bytes": sizes, "found": found_bytes}
    columns |= {"share": pa.array(share, mask=sizes == 0), "contaminated": contaminated}
    table = pa.table(columns | {"spans": pa.array(spans, pa.list_(SPAN))})
    sets, names = [], np.array(items.columns["test"], object)
    for name in dict.fromkeys(items.columns["test"]):
        mine = names == name
        counts = (mine, contaminated & mine, (found_bytes > 0) & mine, (sizes < known.length) & mine)
        sums = (sizes[mine].sum(), found_bytes[mine].sum())
        sets.append(SpanSet(name, *map(int, map(np.count_nonzero, counts)), *map(int, sums)))
    return SpanOverlap(sets, table, known.length, threshold, known.saved.documents)


def _search(known: SpanIndex, texts: pa.LargeStringArray) -> tuple[SpanMatches, np.ndarray]:
    """Return the spans of texts that an index has, each with the number of its text and its positions in that text.
    Also return how many bytes of each text are in spans."""
    data, offsets, _ = text_buffers(texts)
    hashes, anchors = all_anchors(data, offsets, known.length)
    matches = known.find(data, hashes, anchors)
    text = np.searchsorted(offsets, matches.start, side="right") - 1
    matches = known.extend(data, offsets, matches._replace(number=text))
    mask = np.zeros(int(offsets[-1] - offsets[0]), np.uint8)
    fill_spans(mask, matches.start - offsets[0], matches.stop - offsets[0])
    ends = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])[offsets - offsets[0]]
    first = offsets[matches.number]
    return matches._replace(start=matches.start - first, stop=matches.stop - first), np.diff(ends)


def _named(known: SpanIndex, matches: SpanMatches, texts: int, places: int) -> list[list[dict[str, Any]]]:
    """Return the longest `places` spans of each text, in the order of their starts."""
    order = np.lexsort((matches.offset, matches.document, matches.start, matches.start - matches.stop, matches.number))
    rank = np.arange(len(order)) - np.searchsorted(matches.number[order], matches.number[order])
    chosen = order[rank < places]
    chosen = chosen[
        np.lexsort((matches.offset[chosen], matches.document[chosen], matches.start[chosen], matches.number[chosen]))
    ]
    ids = known.saved.ids(matches.document[chosen]).to_pylist()
    named: list[list[dict[str, Any]]] = [[] for _ in range(texts)]
    columns = (values[chosen].tolist() for values in (matches.number, matches.start, matches.stop, matches.offset))
    for id_, number, start, stop, offset in zip(ids, *columns, strict=True):
        named[number].append({"start": start, "stop": stop, "document": id_, "offset": offset})
    return named
