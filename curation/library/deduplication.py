# SPDX-License-Identifier: Apache-2.0
"""The stages that remove duplicates as functions on frames, with the groups and pairs on request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, overload

from curation.library.duplicates import Duplicates, find_duplicates
from curation.library.frames import AnyFrame, apply
from curation.library.keywords import stage_of, takes
from curation.stages import ExactDedup, FuzzyDedup, NgramDedup, SemanticDedup


@overload
def exact_dedup(
    frame: AnyFrame, stage: ExactDedup | None = None, *, max_characters: int = 0, compare: str = "exact",
    index: str | os.PathLike[str] = "", details: Literal[False] = False, text_column: str = "text",
) -> AnyFrame: ...  # fmt: skip
@overload
def exact_dedup(
    frame: AnyFrame, stage: ExactDedup | None = None, *, max_characters: int = 0, compare: str = "exact",
    index: str | os.PathLike[str] = "", details: Literal[True], text_column: str = "text",
) -> Duplicates: ...  # fmt: skip
@takes(ExactDedup)
def exact_dedup(
    frame: AnyFrame,
    stage: ExactDedup | None = None,
    *,
    max_characters: int = 0,
    compare: str = "exact",
    index: str | os.PathLike[str] = "",
    details: bool = False,
    text_column: str = "text",
) -> AnyFrame | Duplicates:
    """Return the first row of each distinct text.

    stage                a whole `curation.ExactDedup` in place of the keywords, which are its fields
    details              True: return `curation.Duplicates`, with the groups and the pairs, instead of the frame alone
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text once, for 24 bytes of keys per document. The rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one", "two", "one"]})
        >>> curation.exact_dedup(frame)["text"].tolist()
        ['one', 'two']
        >>> curation.exact_dedup(frame, details=True).pairs[["row", "kept_row"]].values.tolist()
        [[2, 0]]

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    chosen = stage_of(ExactDedup, stage, locals())
    return find_duplicates(frame, chosen, text_column) if details else apply(frame, chosen, text_column=text_column)


@overload
def fuzzy_dedup(
    frame: AnyFrame, stage: FuzzyDedup | None = None, *, ngram: int = 5, unit: str = "word", compare: str = "lowercase",
    permutations: int = 128, seed: int = 1, threshold: float = 0.8, bands: int = 0, rows: int = 0,
    verify: str = "exact", keep: str | Sequence[str] = "first", index: str | os.PathLike[str] = "",
    details: Literal[False] = False, text_column: str = "text",
) -> AnyFrame: ...  # fmt: skip
@overload
def fuzzy_dedup(
    frame: AnyFrame, stage: FuzzyDedup | None = None, *, ngram: int = 5, unit: str = "word", compare: str = "lowercase",
    permutations: int = 128, seed: int = 1, threshold: float = 0.8, bands: int = 0, rows: int = 0,
    verify: str = "exact", keep: str | Sequence[str] = "first", index: str | os.PathLike[str] = "",
    details: Literal[True], text_column: str = "text",
) -> Duplicates: ...  # fmt: skip
@takes(FuzzyDedup)
def fuzzy_dedup(
    frame: AnyFrame,
    stage: FuzzyDedup | None = None,
    *,
    ngram: int = 5,
    unit: str = "word",
    compare: str = "lowercase",
    permutations: int = 128,
    seed: int = 1,
    threshold: float = 0.8,
    bands: int = 0,
    rows: int = 0,
    verify: str = "exact",
    keep: str | Sequence[str] = "first",
    index: str | os.PathLike[str] = "",
    details: bool = False,
    text_column: str = "text",
) -> AnyFrame | Duplicates:
    """Return one row of each group of near-duplicates.

    stage                a whole `curation.FuzzyDedup` in place of the keywords, which are its fields; a list in `keep`
                         has values of the column `source`
    details              True: return `curation.Duplicates`, with the groups and the pairs, instead of the frame alone
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text once, for 8 bytes of keys per band and document, plus 8 per document.
    It computes partitions with candidates a second time, one by one. The rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one two three four", "One two three four", "five"]})
        >>> curation.fuzzy_dedup(frame, ngram=2)["text"].tolist()
        ['one two three four', 'five']
        >>> curation.fuzzy_dedup(frame, ngram=2, details=True).pairs[["kept_text", "similarity"]].values.tolist()
        [['one two three four', 1.0]]

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    chosen = stage_of(FuzzyDedup, stage, locals())
    return find_duplicates(frame, chosen, text_column) if details else apply(frame, chosen, text_column=text_column)


@takes(NgramDedup)
def ngram_dedup(
    frame: AnyFrame,
    stage: NgramDedup | None = None,
    *,
    ngram: int = 5,
    min_seen: float = 0.9,
    compare: str = "exact",
    max_memory_bytes: int = 8_000_000_000,
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows with less than the share `min_seen` of their distinct word n-grams in rows kept before them.

    stage                a whole `curation.NgramDedup` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text twice. The first pass computes 16 bytes of keys per document, the
    second decides, partition after partition. The rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one two three", "two three", "three four"]})
        >>> curation.ngram_dedup(frame, ngram=2)["text"].tolist()
        ['one two three', 'three four']

    Raises RecipeError for a wrong setting and for a table larger than `max_memory_bytes`, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(NgramDedup, stage, locals()), text_column=text_column)


@overload
def semantic_dedup(
    frame: AnyFrame, stage: SemanticDedup | None = None, *, column: str = "embedding", threshold: float = 0.95,
    clusters: int | str = "auto", probe: int = 4, keep: str | Sequence[str] = "first",
    centroids: str | os.PathLike[str] = "", seed: int = 1, index: str | os.PathLike[str] = "",
    details: Literal[False] = False, text_column: str = "text",
) -> AnyFrame: ...  # fmt: skip
@overload
def semantic_dedup(
    frame: AnyFrame, stage: SemanticDedup | None = None, *, column: str = "embedding", threshold: float = 0.95,
    clusters: int | str = "auto", probe: int = 4, keep: str | Sequence[str] = "first",
    centroids: str | os.PathLike[str] = "", seed: int = 1, index: str | os.PathLike[str] = "",
    details: Literal[True], text_column: str = "text",
) -> Duplicates: ...  # fmt: skip
@takes(SemanticDedup)
def semantic_dedup(
    frame: AnyFrame,
    stage: SemanticDedup | None = None,
    *,
    column: str = "embedding",
    threshold: float = 0.95,
    clusters: int | str = "auto",
    probe: int = 4,
    keep: str | Sequence[str] = "first",
    centroids: str | os.PathLike[str] = "",
    seed: int = 1,
    index: str | os.PathLike[str] = "",
    details: bool = False,
    text_column: str = "text",
) -> AnyFrame | Duplicates:
    """Return one row of each group of rows with close vectors.

    stage                a whole `curation.SemanticDedup` in place of the keywords, which are its fields; a list in
                         `keep` has values of the column `source`
    details              True: return `curation.Duplicates`, with the groups and the pairs, instead of the frame alone
    frame, text_column   as in `curation.apply`

    The column has lists of numbers, or JSON arrays of numbers in strings. On a Dask frame the call itself computes all
    partitions twice. The rows stay lazy.

        >>> import curation, pandas
        >>> vectors = [[1.0, 0.0], [0.99, 0.01], [0.0, 1.0], None]
        >>> frame = pandas.DataFrame({"text": ["one", "uno", "two", ""], "embedding": vectors})
        >>> curation.semantic_dedup(frame)["text"].tolist()
        ['one', 'two', '']
        >>> curation.semantic_dedup(frame, details=True).pairs[["kept_text", "similarity"]].values.tolist()
        [['one', 0.9999]]

    Raises InputError for a column without vectors, and if more than one cluster is wanted and scikit-learn (on the GPU
    engine cuML) is not installed; RecipeError for a wrong setting; and the errors of `curation.apply`. A frame does not
    tell the model of its vectors: with `index` only their dimensions are compared.
    """
    chosen = stage_of(SemanticDedup, stage, locals())
    return find_duplicates(frame, chosen, text_column) if details else apply(frame, chosen, text_column=text_column)


__all__ = ["exact_dedup", "fuzzy_dedup", "ngram_dedup", "semantic_dedup"]
