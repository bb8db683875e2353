# SPDX-License-Identifier: Apache-2.0
"""The functions of an engine on its frames are those of `curation`; a Series keeps the contract of engines."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import cpu_fallback
import curation
import gpu_pipeline
from curation.base.contract import TEXT
from curation.base.engine import FRAME_LIBRARIES
from curation.base.errors import InputError, OutputError, RecipeError
from curation.frames.engine_functions import FUNCTIONS
from curation.kernels.permutations import constants
from curation.kernels.rewrite import RewriteSteps
from curation.tokens.indexed import check_pair
from tests.needs import needs
from tests.runs import made_texts, recipe_of, records_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "engine_functions.md").read_text("utf-8")
TEXTS = [*made_texts(10, 1), "", None, "Caf\u0065\u0301 \uff21", *made_texts(5, 1), "hello"]

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "rewrite": lambda engine, frame: engine.rewrite(frame, unicode="nfc"),
    "filter": lambda engine, frame: engine.filter(frame, {"measure": "words", "min": 5}),
    "measure": lambda engine, frame: engine.measure(frame, ["words", "bytes"]),
    "explain": lambda engine, frame: engine.explain(frame, "gopher"),
    "apply": lambda engine, frame: engine.apply(frame, curation.ExactDedup()),
    "hash": lambda engine, frame: engine.hash(frame),
    "minhash": lambda engine, frame: engine.minhash(frame, permutations=16),
    "exact_dedup": lambda engine, frame: engine.exact_dedup(frame, compare="lowercase"),
    "fuzzy_dedup": lambda engine, frame: engine.fuzzy_dedup(frame, threshold=0.5),
}


@pytest.fixture
def gpu_on_numpy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package of the GPU engine, whose modules are over NumPy and pandas."""
    stand_ins = pytest.importorskip("tests.gpu.stand_ins")
    stand_ins.install_engine(monkeypatch)
    monkeypatch.setitem(FRAME_LIBRARIES, "tests", "gpu")  # of `stand_ins.DataFrame`
    return gpu_pipeline


def frames_of(engine: ModuleType) -> dict[str, Any]:
    """The same documents in memory and as a Dask frame of several partitions, one of them empty."""
    whole = engine.from_arrow(pa.table({"id": [str(n) for n in range(len(TEXTS))], TEXT: TEXTS}))
    parts = [whole.iloc[rows] for rows in (slice(0, 7), slice(7, 7), slice(7, None))]
    return {"memory": whole, "dask": dd.from_map(lambda part: part, parts, meta=whole.iloc[:0])}


def table_of(engine: ModuleType, frame: Any) -> pa.Table:
    return engine.to_arrow(frame.compute() if hasattr(frame, "compute") else frame)


def assert_as_curation_on_pandas(engine: ModuleType, name: str) -> None:
    frame = pd.DataFrame({"id": [str(n) for n in range(len(TEXTS))], TEXT: pd.Series(TEXTS, dtype="str")})
    expected = cpu_fallback.to_arrow(CALLS[name](curation, frame))
    for kind, given in frames_of(engine).items():
        found = CALLS[name](engine, given)
        assert hasattr(found, "compute") == (kind == "dask")
        assert table_of(engine, found).to_pydict() == expected.to_pydict()


@pytest.mark.parametrize("name", CALLS)
def test_frames_give_what_curation_gives(name: str):
    assert_as_curation_on_pandas(cpu_fallback, name)


@pytest.mark.slow(
    "functions of the package of the GPU engine, over NumPy, give the CPU engine's frames, tokens and texts"
)
def test_frames_of_the_gpu_engine(gpu_on_numpy: ModuleType, tmp_path: Path):
    for name in CALLS:
        assert_as_curation_on_pandas(gpu_on_numpy, name)
    assert_tokens_of_a_run(gpu_on_numpy, tmp_path, {})
    assert_series_keep_the_contract(gpu_on_numpy)


@pytest.mark.parametrize("package", [cpu_fallback, gpu_pipeline], ids=lambda package: package.__name__)
def test_every_function_is_there_and_found_by_pickle(package: ModuleType):
    assert {*CALLS} <= FUNCTIONS <= {*dir(package)}
    for name in FUNCTIONS - ({*gpu_pipeline.__all__} if package is gpu_pipeline else set()):  # these need cuDF
        function = getattr(package, name)
        assert pickle.loads(pickle.dumps(function)) is function
        assert function.__doc__ and function.__module__ == package.__name__
    with pytest.raises(AttributeError, match="has no attribute 'rewrit'"):
        _ = package.rewrit


def assert_series_keep_the_contract(engine: ModuleType) -> None:
    text = frames_of(engine)["memory"][TEXT]
    _, edited = engine.rewrite(text, RewriteSteps(lowercase=True))
    assert edited.tolist() == [each is not None and each.lower() != each for each in TEXTS]
    words = [0 if each is None else len(each.split()) for each in TEXTS]
    assert engine.measure(text, names=("words",))["words"].tolist() == words
    ids, lengths = engine.tokenize(text, curation.load_tokenizer(curation.TokenizerSpec(name="gpt2")))
    assert len(ids) == lengths.sum()


def test_a_series_keeps_the_contract():
    assert_series_keep_the_contract(cpu_fallback)


# The columns of `hash` and `minhash`


def test_hash_is_the_digest_by_which_exact_dedup_compares():
    frame = pd.DataFrame({TEXT: pd.Series(TEXTS, dtype="str")})
    found = curation.hash(frame)["hash"]
    expected = [row.astype("<u8").tobytes().hex() for row in cpu_fallback.hash_text(frame[TEXT])]
    assert found.tolist() == expected and found.dtype == "str"
    assert found.iloc[-1] == "029bbd41b3a7d8cb191dae486a901e5b"  # "hello" in Guava's Hashing.murmur3_128
    for settings in ({}, {"compare": "lowercase"}, {"max_characters": 9}):
        kept = curation.exact_dedup(frame, **settings)
        first = ~curation.hash(frame, **settings)["hash"].duplicated()
        assert kept.index.tolist() == frame.index[first].tolist()


def test_minhash_is_the_signature_of_the_contract():
    frame = pd.DataFrame({TEXT: pd.Series(TEXTS, dtype="str")})
    signed = curation.minhash(frame, permutations=32, ngram=2, compare="exact", seed=7)["minhash"]
    assert signed.dtype == pd.ArrowDtype(pa.list_(pa.uint32(), 32))
    expected = cpu_fallback.signatures(frame[TEXT], 2, False, *constants(32, 7))
    assert np.vstack(signed).tolist() == expected.tolist()
    assert list(signed.iloc[TEXTS.index("")]) == [2**32 - 1] * 32


@pytest.mark.parametrize("size", [0, 1])
def test_frames_without_documents_have_the_columns(size: int):
    frame = pd.DataFrame({TEXT: pd.Series([""] * size, dtype="str")})
    for lazy in (False, True):
        given = dd.from_pandas(frame, npartitions=1) if lazy else frame
        for name in ("hash", "minhash"):
            found = getattr(cpu_fallback, name)(given)
            assert [*found.columns] == [TEXT, name]
            assert len(found) == size and found[name].dtype == getattr(curation, name)(frame)[name].dtype


# The files of `tokenize`


def assert_tokens_of_a_run(engine: ModuleType, folder: Path, settings: dict[str, Any]) -> None:
    texts = [text for text in TEXTS if text]
    (folder / "a.jsonl").write_bytes(records_of(texts))
    spec = {"name": "gpt2", **settings}
    recipe = recipe_of(folder / "a.jsonl", stages=[], tokenizer=spec, output={"documents": False})
    curation.run(recipe, folder / "run", engine="cpu", progress=False)
    for kind, frame in frames_of(engine).items():
        [pair] = engine.tokenize(frame, folder / kind, **settings)
        assert Path(pair.prefix) == folder / kind / "tokens" / "documents_00000_text_document"
        assert (pair.documents, pair.empty_documents) == (len(texts), len(TEXTS) - len(texts))
        assert check_pair(pair.prefix).tokens == pair.tokens
        for suffix in (".bin", ".idx"):
            of_run = folder / "run" / "tokens" / f"a_00000_text_document{suffix}"
            assert Path(pair.prefix + suffix).read_bytes() == of_run.read_bytes()
        assert {path.name for path in (folder / kind).iterdir()} == {"tokens", "tokenize.json"}


@pytest.mark.parametrize("settings", [{}, {"append_eod": False}], ids=str)
def test_tokens_are_those_of_a_run(settings: dict[str, Any], tmp_path: Path):
    assert_tokens_of_a_run(cpu_fallback, tmp_path, settings)


@pytest.mark.slow("the splits of curation.tokenize, of frames and of files, have the bytes of a run")
def test_splits_and_files_give_the_pairs_of_a_run(tmp_path: Path):
    shares, texts = {"train": 0.5, "valid": 0.5}, [text for text in TEXTS if text and any(map(str.isalnum, text))]
    (tmp_path / "documents.jsonl").write_bytes(records_of(texts))
    output = {"documents": False, "splits": shares}
    recipe = recipe_of(tmp_path / "documents.jsonl", stages=[], tokenizer={"name": "gpt2"}, output=output)
    curation.run(recipe, tmp_path / "run", engine="cpu", progress=False)
    names = [f"documents_{split}_00000_text_document{end}" for split in shares for end in (".bin", ".idx")]
    for name, given in (("frame", pd.DataFrame({TEXT: texts})), ("files", tmp_path / "*.jsonl")):
        pairs = curation.tokenize(given, tmp_path / name, splits=shares)
        assert [Path(pair.prefix).name for pair in pairs] == [entry.removesuffix(".bin") for entry in names[::2]]
        for entry in names:
            found, of_run = (tmp_path / place / "tokens" / entry for place in (name, "run"))
            assert found.read_bytes() == of_run.read_bytes() and found.stat().st_size, (name, entry)


def test_tables_columns_and_frames_without_tokens(tmp_path: Path):
    table = needs("polars").DataFrame({"body": ["one", None, "two three"]})
    [pair] = curation.tokenize(table, tmp_path / "table", text_column="body")
    [other] = curation.tokenize(table["body"], tmp_path / "column")
    assert pair.sha256_bin == other.sha256_bin and pair.documents == 2
    assert cpu_fallback.tokenize(pd.DataFrame({TEXT: ["", None]}), tmp_path / "none") == []


# Mistakes, with the messages of the page

FRAME = pd.DataFrame({TEXT: ["one"]})
LAZY = dd.from_pandas(FRAME, npartitions=1)
OF_CUDF = type("DataFrame", (), {"__module__": "cudf.core.dataframe", "columns": [TEXT]})()
OF_DASK_CUDF = type("DataFrame", (), {"__module__": "dask_cudf", "_meta": OF_CUDF})()
MISTAKES: dict[str, Callable[[], Any]] = {
    "a list": lambda: cpu_fallback.rewrite(["one"], unicode="nfc"),
    "a path": lambda: cpu_fallback.filter("data/a.jsonl", "gopher"),
    "a frame without columns": lambda: cpu_fallback.hash(pd.DataFrame()),
    "an empty frame": lambda: cpu_fallback.fuzzy_dedup(pd.DataFrame({TEXT: []})),
    "no column `text`": lambda: cpu_fallback.minhash(pd.DataFrame({"body": ["one"]})),
    "numbers as texts": lambda: cpu_fallback.hash(pd.DataFrame({TEXT: [1]})),
    "a Series": lambda: cpu_fallback.hash(FRAME[TEXT]),
    "a Dask Series": lambda: cpu_fallback.rewrite(LAZY[TEXT], unicode="nfc"),
    "settings with a Series": lambda: cpu_fallback.rewrite(FRAME[TEXT], unicode="nfc"),
    "a frame of polars": lambda: cpu_fallback.filter(needs("polars").DataFrame({TEXT: ["one"]}), "gopher"),
    "a table of pyarrow": lambda: cpu_fallback.fuzzy_dedup(pa.table({TEXT: ["one"]})),
    "a cuDF frame": lambda: cpu_fallback.filter(OF_CUDF, "gopher"),
    "a Dask-cuDF frame": lambda: cpu_fallback.filter(OF_DASK_CUDF, "gopher"),
    "a pandas frame": lambda: gpu_pipeline.filter(FRAME, "gopher"),
    "a Dask frame of pandas": lambda: gpu_pipeline.filter(LAZY, "gopher"),
    "an unknown setting": lambda: cpu_fallback.hash(FRAME, compares="exact"),
    "a wrong value": lambda: cpu_fallback.minhash(FRAME, permutations=0),
    "an unknown tokenizer setting": lambda: cpu_fallback.tokenize(FRAME, "out", append_eos=True),
    "a folder with files": lambda: cpu_fallback.tokenize(FRAME, "full"),
    "splits without `train`": lambda: cpu_fallback.tokenize(FRAME, "out", splits={"valid": 1.0}),
    "a frame for a function of texts": lambda: cpu_fallback.signatures(FRAME, 5, False, *constants(8)),
}
ERRORS = (TypeError, InputError, OutputError, RecipeError)


def test_an_equal_call_returns_the_pairs_of_the_first(tmp_path: Path):
    frame, out = pd.DataFrame({TEXT: ["one two", None, "three"]}), tmp_path / "out"
    first = curation.tokenize(frame, out)
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert curation.tokenize(frame, out) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == files
    (out / "tokens" / "mine.txt").write_text("of a person")
    for changed in ({"frame": frame[:1]}, {"append_eod": False}, {"tokenizer": "r50k_base"}):
        given = {"frame": frame, **changed}
        with pytest.raises(OutputError, match=r"other texts, settings or another tokenizer.* force=True"):
            curation.tokenize(given.pop("frame"), out, **given)
    [other] = curation.tokenize(frame[:1], out, force=True)
    assert other.tokens == 3 and curation.tokenize(frame[:1], out) == [other]
    assert (out / "tokens" / "mine.txt").read_text() == "of a person"
    Path(f"{other.prefix}.bin").write_bytes(b"")
    with pytest.raises(OutputError, match="its pairs have changed"):
        curation.tokenize(frame[:1], out)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_page_has_the_message_of_a_mistake(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").touch()
    with pytest.raises(ERRORS) as error:
        MISTAKES[mistake]()
    line = f"| {mistake} | `{type(error.value).__name__}` | `{str(error.value).replace('`', '')}` |"
    assert line in PAGE.splitlines(), line


def test_the_page_has_no_other_mistakes():
    assert re.findall(r"^\| (.+?) \| `\w+Error` \|", PAGE, re.M) == [*MISTAKES]
