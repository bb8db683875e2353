# SPDX-License-Identifier: Apache-2.0
"""`curation.pca`: projections of vectors on their principal components, as a column."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.base.contract import Frame
from curation.base.engine import engine_of
from curation.base.errors import InputError, RecipeError, counted
from curation.frames.close_vectors import frame_vectors, npz_file
from curation.frames.tables import in_memory, with_column
from curation.recipes.keywords import check_types
from curation.stages.vectors.principal_components import PrincipalComponents

NOTE = "curation.pca"  # in frame.attrs: the share of the variance on each component


def pca(
    frame: Frame, column: str = "embedding", *, components: int = 2, to: str = "pca",
    model: str | os.PathLike[str] = "", save: str | os.PathLike[str] = "",
) -> Frame:  # fmt: skip
    """Return the frame with a new column: the projection of each row's vector on the principal components of all
    vectors, a list of float32; null without a vector.

    frame       as in `curation.neighbours`
    column      column of the vectors: lists of numbers, or JSON arrays of numbers in strings
    components  number of components, at most the dimensions of the vectors
    to          name of the new column, which replaces one of this name
    model       file that `save` wrote, in place of fitting; `components` is ignored
    save        write the components to this `.npz` file, for `model`; "": do not

    Components are the directions of the most variance of the vectors scaled to length 1, in falling order. The number
    of largest size in each component is positive; a component without variance has only zeros. Components are fitted to
    all vectors, or to 65,536 vectors chosen by a hash. The order of rows does not change them. `attrs["curation.pca"]`
    of a DataFrame of pandas, and `shares` in the file, have the share of the variance on each component.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"embedding": [[1.0, 0.0], [0.8, 0.6], [0.8, -0.6], None]})
        >>> found = curation.pca(frame, components=1)
        >>> [None if row is pandas.NA else round(row[0], 2) for row in found["pca"]]
        [0.0, 0.6, -0.6, None]

    Raises RecipeError for a wrong setting; InputError for a column that is missing or has no vectors, for more
    components than dimensions, and for a model that does not fit; OutputError for a wrong name of the file.
    """
    check_types("pca", {"column": (column, str), "components": (components, int), "to": (to, str)})
    if components < 1:
        raise RecipeError(f"components must be at least 1, not {components}")
    if to in ("", column):
        raise RecipeError(f"to is {to!r}, expected the name of a column other than that of the vectors")
    target = npz_file(save) if save else None
    given, frame = frame, in_memory(frame, column)
    engine = engine_of(frame)
    vectors, rows = frame_vectors(engine, frame, column)
    found = _components_of(vectors, column, components, os.fspath(model))
    if target:
        found.save(target)
    width = len(found.components)
    places = np.zeros((len(frame), width), np.float32)
    is_missing = np.ones(len(frame), bool)
    places[rows], is_missing[rows] = found.projected(vectors), False
    kind, values = pa.list_(pa.float32(), width), pa.array(places.reshape(-1))
    column_of = pa.FixedSizeListArray.from_arrays(values, type=kind, mask=pa.array(is_missing))
    result = with_column(engine, given, frame, to, column_of)
    if hasattr(result, "attrs"):
        result.attrs[NOTE] = {"shares": found.shares.tolist()}
    return result


def _components_of(vectors: np.ndarray, column: str, count: int, model: str) -> PrincipalComponents:
    """Return the components of the file `model`, or fit them."""
    number, dimensions = vectors.shape
    if model:
        found = PrincipalComponents.given(Path(model))
        if number and found.components.shape[1] != dimensions:
            raise InputError(
                f"model: {model} has {counted(found.components.shape[1], 'dimension')}, but the vectors in column "
                f"{column!r} have {dimensions:,}. Use vectors and components of one model"
            )
        return found
    if number and count > dimensions:
        raise InputError(
            f"components: {count:,} are more than the {counted(dimensions, 'dimension')} of the vectors in column "
            f"{column!r}. Set at most {dimensions:,}"
        )
    return PrincipalComponents.fitted(vectors, count)
