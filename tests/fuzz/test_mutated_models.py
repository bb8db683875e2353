# SPDX-License-Identifier: Apache-2.0
"""Damaged files of every kind that the program loads besides inputs: each is read, or is one message.

A few of each kind in every run of the tests; `make torture` sets TORTURE to thousands.
"""

import gzip
import json
import os
import random
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import curation
from curation.base.arrays import load_mapped
from curation.base.errors import CurationError
from curation.models.fasttext import load_classifier
from curation.models.ngrams import TINY, load_language_model
from curation.models.onnx_graph import read_graph
from curation.models.static_vectors import load_static
from curation.models.tensors import read_tensors
from curation.stages.exact.exact_index import open_exact_index
from curation.stages.vectors.vector_clusters import Clusters
from curation.tokens.indexed import check_pair
from curation.tokens.vocabularies import load_vocabulary
from tests.models.tiny_files import write_static
from tests.oracle.fasttext_reference import as_bytes, model_of
from tests.tokens.test_megatron import write_pair

MUTATIONS = int(os.environ.get("TORTURE", "40"))
HEADER = 400  # bytes in which most mutations are
SLOWEST_SECONDS = 20
MOST_BYTES = 1 << 30  # that one damaged file may add to the largest memory of the process
NASTY = [b"\0", b"\xff" * 8, struct.pack("<q", 1 << 62), b"[" * 5000, b'{"a":' * 5000, b"-1", b"9" * 30, b"\n", b"1e9"]


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf of up to 127 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def onnx() -> bytes:
    shape = field(2, field(1, b"\x08\x01") + field(1, field(2, b"n")))
    value = field(1, b"input_ids") + field(2, field(1, b"\x08\x07" + shape))
    tensor = field(8, b"w") + field(13, field(1, b"location") + field(2, b"data.bin"))
    node = field(4, b"If") + field(7, b"") + field(5, field(6, field(5, tensor)))
    return field(7, field(11, value) + field(12, value) + field(5, tensor) + field(1, node))


def static(folder: Path, name: str) -> Path:
    return write_static(folder, weights=np.ones(28), mapping=np.arange(28)) / name


def clusters(folder: Path) -> Path:
    path = folder / "c.npz"
    Clusters(np.ones((3, 4), np.int8), np.zeros((0, 4), np.int8), np.zeros(0, np.int64)).save(path)
    return path


def written(name: str, data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


def array(folder: Path) -> Path:
    np.save(folder / "a.npy", np.arange(10))
    return folder / "a.npy"


def pair(folder: Path) -> Path:
    write_pair(folder / "p")
    return folder / "p.idx"


def index(folder: Path) -> Path:
    (folder / "exact").mkdir()
    (folder / "exact" / "high.bin").write_bytes(bytes(8))
    content = {"format": 1, "documents": 1, "settings": {"unit": "word"}, "files": {}}
    content["files"] = {"high.bin": {"bytes": 8, "sha256": "0" * 64}}
    (folder / "exact" / "index.json").write_text(json.dumps(content))
    return folder / "exact" / "index.json"


def sentencepiece(folder: Path) -> Path:
    pieces = b"".join(
        field(1, field(1, word.encode()) + b"\x15" + struct.pack("<f", -1.0) + bytes([3 << 3, kind]))
        for word, kind in [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("\u2581a", 1), ("b", 1)]
    )
    (folder / "s.model").write_bytes(pieces + field(2, b"\x18\x02") + field(3, b""))
    return folder / "s.model"


LOADERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "safetensors": (lambda folder: static(folder, "model.safetensors"), read_tensors),
    "tensors of a model": (lambda folder: static(folder, "model.safetensors"), lambda p: load_static(str(p.parent))),
    "tokenizer of a model": (lambda folder: static(folder, "tokenizer.json"), lambda p: load_static(str(p.parent))),
    "tokenizer.json": (lambda folder: static(folder, "tokenizer.json"), lambda p: load_vocabulary(str(p))),
    "SentencePiece": (sentencepiece, lambda p: load_vocabulary(str(p))),
    "ONNX": (written("m.onnx", onnx()), read_graph),
    "fastText": (written("m.bin", as_bytes(model_of())), lambda p: load_classifier(str(p))),
    "fastText, quantised": (
        written("m.ftz", as_bytes(model_of(), quantised=True)), lambda p: load_classifier(str(p)),
    ),
    "ARPA": (written("m.arpa", TINY), lambda p: load_language_model(str(p))),
    "ARPA, gzip": (written("m.gz", gzip.compress(TINY, mtime=0)), lambda p: load_language_model(str(p))),
    "centroids": (clusters, Clusters.given),
    "npy": (array, load_mapped),
    "index": (index, lambda p: open_exact_index(str(p.parent.parent)).check({"unit": "word"})),
    "token pair": (pair, lambda p: check_pair(p)),
    "report": (
        written("report.json", b'{"versions": {"gpu-pipeline": "1"}, "digest": "x", "outputs": {}, "recipe": {}}'),
        lambda p: (curation.open_run(p.parent), curation.verify(p.parent)),
    ),
}  # fmt: skip


def mutated(data: bytes, random_: random.Random) -> bytes:
    """The data with one to three faults, nine in ten of them in the header."""
    for _ in range(random_.randint(1, 3)):
        end = min(len(data), HEADER) if random_.random() < 0.9 else len(data)
        place, size = random_.randrange(end + 1), random_.choice((1, 1, 2, 4, 8))
        match random_.randrange(5):
            case 0:
                data = data[:place]
            case 1:
                data = data[:place] + random_.randbytes(size) + data[place + size :]
            case 2:
                data = data[:place] + random_.choice(NASTY) + data[place:]
            case 3:
                nasty = random_.choice(NASTY)
                data = data[:place] + nasty + data[place + len(nasty) :]
            case _:
                data = data[:place] + data[place + size :]
    return data


@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing")
@pytest.mark.parametrize("kind", LOADERS)
def test_a_damaged_file_is_read_or_is_one_message(kind: str, tmp_path: Path):
    write, load = LOADERS[kind]
    path, random_ = write(tmp_path), random.Random(kind)
    original = path.read_bytes()
    if kind != "report":
        load(path)  # the whole file is sound
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    for _ in range(MUTATIONS):
        path.write_bytes(data := mutated(original, random_))
        start, message = time.monotonic(), ""
        try:
            load(path)
        except CurationError as refusal:
            message = str(refusal)
        except Exception as error:
            raise AssertionError(f"{kind}: {data[:2000]!r}") from error
        assert "\n" not in message and time.monotonic() - start < SLOWEST_SECONDS, data
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < MOST_BYTES
