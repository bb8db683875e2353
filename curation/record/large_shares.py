# SPDX-License-Identifier: Apache-2.0
"""Warnings about stages that cut most of the text of an input, or put most of its documents into one group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from curation.stages import Lines, Rewrite, Stage

MAX_CUT_SHARE = 0.5  # of the bytes of the documents that a stage keeps
MAX_GROUP_SHARE = 0.5  # of the documents of an input that reach a stage
MIN_DOCUMENTS = 10  # least number of documents in the group
EQUAL_KEYS = ("high", "band_")  # prefixes of the names of keys of exact_dedup and fuzzy_dedup
MIN_BYTES = 2_000  # least bytes of the kept documents; less text says nothing about an input
JOIN = ". If their paragraphs are wrapped into lines, join the lines before this stage, as docs/how_to/texts.md shows"


# (stage, inputs) -> bytes that are cut, and bytes of the kept documents before
Cuts = dict[tuple[str, str], tuple[float, float]]


def add_cut(cuts: Cuts, stage: str, inputs: str, cut: float, before: float) -> None:
    """Add the bytes of some documents to the cuts. `inputs` names the input of these documents for messages: `input
    'a'`."""
    earlier = cuts.get((stage, inputs), (0, 0))
    cuts[stage, inputs] = earlier[0] + cut, earlier[1] + before


def warn_of_cuts(cuts: Cuts, stages: Mapping[str, Stage], is_plan: bool = False) -> Iterator[str]:
    """Yield a warning for each stage that cuts more than MAX_CUT_SHARE of an input.

    stages   name -> stage of the recipe. Most of a web page is markup, so stages that delete it are left out
    is_plan  the counts are estimates, and there is no run yet that `curate show` could show
    """
    for (name, inputs), (cut, before) in cuts.items():
        if before >= MIN_BYTES and cut > MAX_CUT_SHARE * before and not _deletes_markup(stages[name]):
            look = "" if is_plan else ". See curate show DIR --what edited"
            yield (
                f"{name} cuts {'about ' if is_plan else ''}{cut:,.0f} of {before:,.0f} bytes ({cut / before:.0%}) from "
                f"the texts of {inputs} that it keeps{JOIN if isinstance(stages[name], Lines) else look}"
            )


def warn_of_group(stage: str, name: str, size: int, documents: int) -> Iterator[str]:
    """Yield a warning if `size` of the `documents` of an input that reach a stage are in one group of duplicates."""
    if _is_large(size, documents):
        yield (
            f"{stage}: one group of duplicates has {size:,} of {documents:,} documents of input {name!r} "
            f"({size / documents:.0%}), and one document of it stays. To see whether they share only a template: "
            "curate show DIR --what pairs"
        )


def most_equal(name: str, keys: Mapping[str, np.ndarray]) -> Iterator[tuple[tuple[str, str, int], float]]:
    """Yield for each key that duplicates share the most frequent value, as (input, key, value), and how many documents
    have it.

    name  input of the documents
    keys  name of a key -> its values (uint64), 0 for none
    """
    for key, values in keys.items():
        if key.startswith(EQUAL_KEYS) and (values := values[values != 0]).size:
            found, counts = np.unique(values, return_counts=True)
            most = int(counts.argmax())
            yield (name, key, int(found[most])), float(counts[most])


def warn_of_equal(
    stage: str, reached: Mapping[str, float], equal: Mapping[tuple[str, str, int], float]
) -> Iterator[str]:
    """Yield a warning for each input of which most documents have an equal key. `reached` has the documents of each
    input that reach the stage."""
    for name, documents in reached.items():
        size = max((count for (own, *_), count in equal.items() if own == name), default=0)
        if _is_large(size, documents):
            yield (
                f"{stage}: about {size:,.0f} of {documents:,.0f} documents of input {name!r} ({size / documents:.0%}) "
                "seem to be duplicates of one. Look whether they share only a template"
            )


def _is_large(size: float, documents: float) -> bool:
    return size >= MIN_DOCUMENTS and size > MAX_GROUP_SHARE * documents


def _deletes_markup(stage: Stage) -> bool:
    return isinstance(stage, Rewrite) and (stage.markup != "keep" or any("<" in each.matches for each in stage.replace))
