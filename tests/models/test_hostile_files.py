# SPDX-License-Identifier: Apache-2.0
"""Files that were made to exhaust the memory, or to fail late: each is one message, before it takes memory."""

import gzip
import io
import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import curation
from curation.base.arrays import load_arrays, load_mapped, load_writable
from curation.cli import main
from curation.models.ngrams import TINY, load_language_model
from curation.models.static_vectors import load_static
from curation.models.tensors import read_tensors
from curation.results.finished.results import open_finished
from curation.stages.exact.exact_index import open_exact_index
from curation.stages.vectors.vector_clusters import Clusters
from curation.tokens.vocabularies import load_vocabulary
from tests.models.test_tensors import entry, raw
from tests.models.tiny_files import write_static
from tests.runs import records_of

MOST_BYTES = 300 << 20


def npz(header: bytes, **more: int) -> bytes:
    """A file of one array with this header of version 1.0 and no data."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", **more) as members:
        members.writestr("centroids.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return data.getvalue()


def huge(shape: str, dtype: str = "|i1") -> bytes:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()


def bomb(arrays: int = 1) -> bytes:
    """An .npz of 64 KB with 64 MB of zeros in so many arrays."""
    data = io.BytesIO()
    np.savez_compressed(data, **{f"centroids{k or ''}": np.zeros((64 << 20) // arrays, np.int8) for k in range(arrays)})
    return data.getvalue()


def tokens(path: Path, **numbers: int) -> None:
    """Give words of the tokenizer other ids."""
    content = json.loads(path.read_bytes())
    content["model"]["vocab"] |= numbers
    path.write_text(json.dumps(content))


DEEP = b"[" * 200_000
ARPA = TINY.replace(b"ngram 1=5", b"ngram 1=1" + b"0" * 11)
LOADERS: dict[str, Callable[[Path], object]] = {
    "tensors": read_tensors,
    "arpa": lambda path: load_language_model(str(path)),
    "centroids": Clusters.given,
    "arrays": load_arrays,
    "array": load_mapped,
    "index": lambda path: open_exact_index(str(path.parent)),
    "vocabulary": lambda path: load_vocabulary(str(path)),
    "run": lambda path: open_finished(path.parent),
}
FILES: list[tuple[str, str, bytes | Callable[[], bytes], str]] = [
    ("tensors", "t.safetensors", raw(b'{"x":' + DEEP, b""), "is no file of safetensors: its header is nested too"),
    ("tensors", "t.safetensors", raw(entry(shape=[0, 1 << 70]), b""), "is damaged: the tensor x has the shape (0, 11"),
    ("tensors", "t.safetensors", raw(entry(shape=[1 << 70]), b""), "is damaged: the tensor x has the shape (11805"),
    ("tensors", "t.safetensors", raw(entry(shape=[1 << 40]), b""), "the tensor x of 4,398,046,511,104 bytes has the"),
    ("tensors", "t.safetensors", raw(entry(shape=[1] * 70), b"1234"), "is damaged: the tensor x has the shape (1, 1,"),
    ("arpa", "m.gz", lambda: gzip.compress(bytes(96 << 20), 1), "times its size, which is no language model. Deco"),
    ("arpa", "m.gz", b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 40, "its gzip stream is damaged"),
    ("arpa", "m.gz", gzip.compress(ARPA), "it announces 100,000,000,003 n-grams in"),
    ("arpa", "m.arpa", TINY.replace(b"ngram 2=3", b"ngram 2=60"), "it announces 65 n-grams in"),
    ("centroids", "c.npz", npz(huge("(4398046511104,)")), "c.npz is not a file of centroids, or is damaged. Give"),
    ("centroids", "c.npz", b"PK\x03\x04", "c.npz is not a file of centroids, or is damaged. Give centroids/stage"),
    ("arrays", "c.npz", npz(huge("(4398046511104,)")), "centroids.npy announces 4,398,046,511,104 bytes and can have"),
    ("arrays", "c.npz", npz(huge(f"({1 << 70},)")), "announces 1,180,591,620,717,411,303,424 bytes and can have"),
    ("arrays", "c.npz", bomb, "centroids.npy announces 67,108,864 bytes and can have"),
    ("arrays", "c.npz", lambda: bomb(64), ".npy announces 1,048,576 bytes and can have"),
    ("arrays", "c.npz", npz(huge("(400000000, 0)")), "centroids.npy announces 400,000,000 bytes and can have"),
    ("arrays", "c.npz", npz(huge("(1,)", "|O")), "c.npz is damaged: "),
    ("arrays", "c.npz", npz(huge("(1,)"), compression=zipfile.ZIP_LZMA), "it is compressed in a way that NumPy does"),
    ("array", "a.npy", b"\x93NUMPY\x01\x00\x76\x00" + b"[" * 118, "a.npy is damaged: "),
    ("array", "a.npy", b"", "a.npy is damaged: "),
    ("index", "exact/index.json", DEEP, "index.json is damaged (JSONDecodeError("),
    ("index", "exact/index.json", b'{"format": 1, "documents": 1, "files": {}}', "index.json is damaged (KeyError('s"),
    (
        "index", "exact/index.json", b'{"format": 1, "documents": 1, "files": {"../../x": {"bytes": 1, "sha256": ""}}}',
        """index.json is damaged (ValueError("it names the file '../../x'"))""",
    ),
    ("vocabulary", "tokenizer.json", b'{"model":' + DEEP, "expected a Hugging Face tokenizer.json in"),
    ("vocabulary", "s.model", b"\n\x06\n\x04\xff\xfe\xfd\xfc", "expected a SentencePiece model in"),
    ("run", "report.json", DEEP, "report.json is damaged: it is not valid JSON: "),
]  # fmt: skip


@pytest.mark.parametrize(("loader", "name", "content", "message"), FILES, ids=lambda value: str(value)[:12])
def test_a_hostile_file_is_one_message(
    loader: str, name: str, content: bytes | Callable[[], bytes], message: str, tmp_path: Path
):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content() if callable(content) else content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    with pytest.raises(curation.CurationError) as caught:
        LOADERS[loader](path if loader != "index" else path.parent)
    assert message in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < MOST_BYTES


@pytest.mark.parametrize(
    ("tensors", "numbers", "message"),
    [
        ({}, {"good": 28}, "tokenizer.json has 28 tokens with ids up to 28, and the model has vectors for 28. Giv"),
        ({"weights": np.ones(27)}, {}, "tokenizer.json has 28 tokens with ids up to 27, and the model has vectors for"),
        ({"mapping": np.arange(28.0)}, {}, "its mapping has float64 of (28,); expected one integer per token"),
        ({"weights": np.ones((28, 1))}, {}, "its weights has float64 of (28, 1); expected one number per token"),
        ({"embeddings": np.ones(28)}, {}, "has no tensor embeddings or embedding.weight of two axes"),
    ],
)
def test_ids_above_the_table_are_found_when_the_model_is_loaded(
    tensors: dict[str, np.ndarray], numbers: dict[str, int], message: str, tmp_path: Path
):
    """An id above the table was an IndexError at the first text that has it."""
    folder = write_static(tmp_path / "m", **tensors)
    tokens(folder / "tokenizer.json", **numbers)
    with pytest.raises(curation.InputError) as caught:
        load_static(str(folder))
    assert message in str(caught.value)


def test_a_compressed_language_model_that_repeats_itself_is_read(tmp_path: Path):
    """A model of a few MB may be more than 100 times its compressed size."""
    data = TINY.replace(b"\\end\\", b"\n" * 5_000_000 + b"\\end\\")
    (tmp_path / "m.gz").write_bytes(gzip.compress(data, 1))
    assert load_language_model(str(tmp_path / "m.gz")).counts == (5, 3)  # type: ignore[union-attr]


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("cleaned", ["csv", "all.csv"])
def test_vectors_in_csv_are_refused_before_anything_is_read(
    command: str, cleaned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    write_static(Path("m"))
    Path("a.jsonl").write_bytes(records_of(["good text"]))
    recipe = {
        "name": "mine", "input": [{"path": "a.jsonl"}], "stages": [{"kind": "embed", "model": "m"}],
        "output": {"cleaned": cleaned, "formats": []},
    }  # fmt: skip
    Path("r.yaml").write_text(json.dumps(recipe))
    assert main([command, "r.yaml", *(["--output", "out"] if command == "run" else [])]) == 2
    message = capsys.readouterr().err
    assert "output.cleaned: csv cannot hold 'embedding', a column of vectors. Give cleaned: jsonl or parq" in message
    assert not Path("out").exists()
    recipe["output"] = {"cleaned": cleaned, "formats": [], "export_columns": ["id", "text"]}
    Path("r.yaml").write_text(json.dumps(recipe))
    assert main([command, "r.yaml", *(["--output", "out"] if command == "run" else [])]) == 0


@pytest.mark.parametrize("command", [["show"], ["compare"], ["verify"]])
def test_a_run_behind_an_url_is_one_message(command: list[str], capsys: pytest.CaptureFixture[str]):
    url = "https://alice:S3CRET@host/run"
    assert main([*command, url, *([url] if command == ["compare"] else [])]) == 2
    err = capsys.readouterr().err
    assert "https://host/run is a URL. Give a local folder: DIR/run of the work folder, or one with" in err
    assert "S3CRET" not in err


def test_the_gpu_engine_names_the_packages_that_it_needs():
    code = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("cupy", "cudf"): raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import gpu_pipeline
gpu_pipeline.measure
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "EngineError: gpu_pipeline.measure needs cu" in found.stderr and "'.[cu13]' in a clone" in found.stderr


def test_threads_that_parse_headers_at_once_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Python 3.11: AST constructor recursion depth mismatch."""
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "b.npz", b=np.arange(2))
    load, failures = np.load, iter([SystemError("mismatch")] * 2)

    def fail(*arguments: object, **settings: object) -> np.ndarray:
        for error in failures:
            raise error
        return load(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(np, "load", fail)
    assert load_mapped(tmp_path / "a.npy").tolist() == [0, 1, 2]
    failures = iter([SystemError("mismatch")])
    assert load_arrays(tmp_path / "b.npz")["b"].tolist() == [0, 1]
    failures = iter([SystemError("mismatch")])
    assert load_writable(tmp_path / "a.npy").tolist() == [0, 1, 2]
