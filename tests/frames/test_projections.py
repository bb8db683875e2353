# SPDX-License-Identifier: Apache-2.0
"""`curation.pca` writes the coordinates of a planted plane, in frames and tables, and by saved components."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base.errors import CurationError

RNG = np.random.default_rng(2)
ANGLES = RNG.random(60) * 2 * np.pi
PLANE = np.linalg.qr(RNG.standard_normal((16, 2)))[0].T
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
VECTORS = (CIRCLE * RNG.uniform(1, 9, (60, 1))) @ PLANE  # of any length
FRAME = pd.DataFrame({"v": [None, *VECTORS.tolist()], "name": range(61)}, index=range(100, 161))


def test_a_planted_plane_is_found(tmp_path: Path):
    found = curation.pca(FRAME, "v", to="place", save=tmp_path / "pca.npz")
    assert [*found.columns] == ["v", "name", "place"] and found.index.equals(FRAME.index)
    assert found["place"].isna().tolist() == [True] + [False] * 60
    places = np.stack(found["place"].tolist()[1:])
    centred = CIRCLE - CIRCLE.mean(axis=0)
    np.testing.assert_allclose(places @ places.T, centred @ centred.T, atol=0.02)  # the same but for a rotation
    assert sum(found.attrs["curation.pca"]["shares"]) == pytest.approx(1, abs=1e-4)
    other = FRAME.iloc[[0, 30, 3, 3]]  # a second data set
    again = curation.pca(other, "v", to="place", model=tmp_path / "pca.npz", components=9)
    assert again["place"].tolist()[1:] == [found["place"].tolist()[row] for row in (30, 3, 3)]
    assert again.attrs == found.attrs and "curation.pca" not in FRAME.attrs


def test_tables_and_columns_have_the_same_places():
    expected = curation.pca(FRAME, "v", components=3)["pca"].tolist()[1:]
    table = pa.table({"pca": range(61), "v": FRAME["v"].tolist()})
    for given in (table, table["v"], table["v"].combine_chunks()):
        found = curation.pca(given, "v", components=3)
        assert isinstance(found, pa.Table) and found.column_names == ["v", "pca"]
        assert found["pca"].type == pa.list_(pa.float32(), 3) and found["pca"].to_pylist() == [None, *expected]
    assert curation.pca(FRAME["v"], "v", components=3)["pca"].tolist()[1:] == expected
    shuffled = FRAME.sample(frac=1, random_state=1)
    assert curation.pca(shuffled, "v", components=3)["pca"].loc[FRAME.index[1:]].tolist() == expected
    assert curation.pca(table[:0], "v")["pca"].type == pa.list_(pa.float32(), 2)


ONE = pd.DataFrame({"embedding": [[1.0, 2.0]]})
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"components": 0}, "components must be at least 1, not 0"),
    "many": (
        {"components": 3},
        "components: 3 are more than the 2 dimensions of the vectors in column 'embedding'.",
    ),
    "half": ({"components": 1.5}, "pca: Expected `int`, got `float` - at `$.components`"),
    "same": ({"to": "embedding"}, "to is 'embedding', expected the name of a column other than that of the vectors"),
    "unnamed": ({"to": ""}, "to is '', expected the name of a column"),
    "column": ({"column": "v"}, "column 'v' not found in the frame; it has ['embedding']"),
    "save": ({"save": "x"}, "save is x, expected a name that ends in .npz"),
    "no model": ({"model": "no.npz"}, "model: no.npz does not exist. Give a file that curation.pca saved"),
    "other model": ({"model": "c.npz"}, "model: c.npz is not a file of components, or is damaged. Give a file"),
    "bad model": ({"model": "nan.npz"}, "model: nan.npz does not hold finite components with a mean. Give a file"),
    "empty model": ({"model": "empty.npz"}, "model: empty.npz does not hold finite components with a mean. Give"),
    "dimensions": (
        {"model": "one.npz"},
        "model: one.npz has 1 dimension, but the vectors in column 'embedding' have 2",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_calls_end_in_one_message(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    one, of = np.ones(1, np.float32), {"mean": np.ones(1, np.float32), "shares": np.ones(1)}
    np.savez("c.npz", centroids=one)
    np.savez("one.npz", components=one[None], **of)
    np.savez("nan.npz", components=one[None] * np.nan, **of)
    curation.pca(ONE[:0], save="empty.npz")
    keywords, message = BAD[case]
    with pytest.raises(CurationError) as error:
        curation.pca(ONE, **keywords)
    assert message in str(error.value)
