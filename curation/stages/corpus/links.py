# SPDX-License-Identifier: Apache-2.0
"""The Jaccard similarity of two texts, and the links of a group, to show pairs of duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings, joined_text

VECTOR_STAGE = "semantic_dedup"  # the kind of stage whose values are cosines
CHAIN_STAGE = "fuzzy_dedup"  # the kind of stage whose groups may hold chains
MAX_LINKED, MAX_LINKED_BYTES = 500, 8 << 20  # most documents of a group with links, and most characters of their texts


class GroupLink(NamedTuple):
    """The text through which another text joined a group: its position in the group, and the similarity of the two
    texts."""

    position: int
    similarity: float


def jaccard(engine: Engine, settings: Mapping[str, Any], left: str, right: str) -> float:
    """Return the similarity of two texts by the n-grams of a `fuzzy_dedup` stage, or by n-grams of five words.

    settings   those of the stage; empty for another kind of stage
    """
    similarity = float(_similarities(engine, settings, [left, right], np.array([0]), np.array([1]))[0])
    return float(left == right) if np.isnan(similarity) else similarity


def _similarities(
    engine: Engine, settings: Mapping[str, Any], texts: Sequence[str], left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Return the similarity of pairs of texts, given by their positions; NaN for two texts without n-grams."""
    text = engine.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))[TEXT]
    steps, by_character = COMPARISONS[settings.get("compare", "lowercase")], settings.get("unit") == "character"
    ngrams = ShingleSettings(steps, settings.get("ngram", 5), by_character, settings.get("words", ""))
    hashes, offsets = engine.shingles(joined_text(engine, text, ngrams), ngrams.ngram, by_character)
    shared, sizes = engine.intersection_sizes(hashes, offsets, left, right), np.diff(offsets)
    with np.errstate(invalid="ignore"):
        return np.asarray(shared / (sizes[left] + sizes[right] - shared))


def has_chains(settings: Mapping[str, Any]) -> bool:
    """Return whether a stage joins groups by exact similarities, so that `find_links` can find the links."""
    whole = not settings.get("contained") and settings.get("skip_prefix", "none") == "none"
    return settings.get("kind") == CHAIN_STAGE and settings.get("verify", "exact") == "exact" and whole


def find_links(engine: Engine, settings: Mapping[str, Any], texts: Sequence[str]) -> list[GroupLink | None]:
    """Return for each text of a group the text through which it is linked to the kept text, which is the first. Of the
    texts that are one step closer to the kept text, this is the most similar one.

    The link is None if the text itself reaches `threshold` with the kept text. It is also None if no chain is found:
    the group has more than MAX_LINKED texts, or texts were rewritten after the stage.
    """
    links: list[GroupLink | None] = [None] * len(texts)
    if len(texts) > MAX_LINKED or sum(map(len, texts)) > MAX_LINKED_BYTES:
        return links
    similarity = np.zeros((len(texts), len(texts)))
    left, right = np.triu_indices(len(texts), 1)
    similarity[left, right] = similarity[right, left] = _similarities(engine, settings, texts, left, right)
    is_near = similarity >= settings.get("threshold", 0.8)
    step, found = np.array([0]), np.zeros(len(texts), bool)
    found[0] = True
    while len(step):
        following = np.flatnonzero(is_near[step].any(axis=0) & ~found)
        for position in following.tolist() if step[0] else ():  # texts near the kept text need no link
            closest = int(step[np.argmax(similarity[position, step])])
            links[position] = GroupLink(closest, float(similarity[position, closest]))
        found[following] = True
        step = following
    return links
