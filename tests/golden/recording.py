# SPDX-License-Identifier: Apache-2.0
"""Results of an engine in files, so that machines without a GPU can compare with those of one."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curation.base.contract import Engine
from curation.base.engine import load_engine
from curation.base.errors import InputError
from curation.base.measures import Measure
from curation.base.system.files import commit, read_json, write_json
from curation.tools import doctor

NUM_GOLDEN_DOCUMENTS = 200  # their results are stored whole, to locate a difference
GOLDEN_ARRAYS = ("byte_lengths", "measure", "hash_text", "band_keys", "rewrite all steps")
GOLDEN_JSON, GOLDEN_NPZ = "gpu.json", "gpu.npz"


def engine_results(engine: Engine, documents: Sequence[str | None]) -> dict[str, list[np.ndarray]]:
    """Return the results of `engine_checks`: name -> arrays. Those that need a library which is not installed are left
    out."""
    results = {}
    for name, compute in doctor.engine_checks(engine, documents):
        with suppress(InputError):
            results[name] = compute()
    return results


def record_golden(folder: Path, engine_name: str = "gpu") -> None:
    """Write digests of all results and the arrays of some, with the device and the versions that computed them."""
    documents = doctor.generate_documents(doctor.NUM_DOCUMENTS)
    engine = load_engine(engine_name)
    results = engine_results(engine, documents[:NUM_GOLDEN_DOCUMENTS])
    arrays = {f"{name}/{k}": array for name in GOLDEN_ARRAYS for k, array in enumerate(results[name])}
    with commit(folder / GOLDEN_NPZ) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)
    facts = {
        "recorded_on": engine.describe(),
        "documents": doctor.digest(doctor._text_arrays(doctor._table(documents)[doctor.TEXT])),
        "measures": [measure.name for measure in Measure],
        "digests": {name: doctor.digest(result) for name, result in engine_results(engine, documents).items()},
    }
    write_json(folder / GOLDEN_JSON, facts, indent=True)


class Golden(NamedTuple):
    """Recorded results of an engine."""

    recorded_on: dict[str, str]  # `describe` of the engine
    documents: str  # digest of the generated documents
    measures: list[str]  # names of the arrays of `measure`: later versions have more
    digests: dict[str, str]  # function -> digest of its result on all documents
    arrays: dict[str, np.ndarray]  # "FUNCTION/NUMBER" -> array of the first NUM_GOLDEN_DOCUMENTS


def read_golden(folder: Path) -> Golden | None:
    """Return what `record_golden` wrote to a folder; None if nothing was recorded."""
    facts = read_json(folder / GOLDEN_JSON)
    if facts is None:
        return None
    with np.load(folder / GOLDEN_NPZ) as stored:
        return Golden(**facts, arrays={name: stored[name] for name in stored.files})
