# SPDX-License-Identifier: Apache-2.0
"""Adapters of cases on tokens, their files, and fastText's models."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

import curation
from curation import CurationError
from curation.tokens.repack import repack
from tests.oracle import fasttext_reference
from tests.peers.adapters import REFUSED, Settings, adapter, frame_of
from tests.peers.files import run_of
from tests.peers.tokenizers_of import file_of, tokenizer
from tests.tokens.byte_pairs import adversarial_texts


@adapter
def tokens(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The ids of each text."""
    with TemporaryDirectory() as folder:
        return _ids(tokenizer(settings["tokenizer"], Path(folder)), inputs)


@adapter
def tokens_of(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The ids of the texts of each case, one after the other."""
    return [[number for ids in tokens(settings, texts) for number in ids] for texts in inputs]


def _ids(loaded: Any, texts: list[str]) -> list[list[int]]:
    ids, counts = loaded.encode(pa.array(texts, pa.large_string()))
    ends = counts.cumsum()
    return [ids[end - count : end].tolist() for end, count in zip(ends, counts, strict=True)]


@adapter
def round_trips(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether each text, or each of many texts made of a pattern, is the text of its ids."""
    with TemporaryDirectory() as folder:
        loaded = tokenizer(settings["tokenizer"], Path(folder))
        texts = [made(described) for described in inputs]
        found = _ids(loaded, [text for many in texts for text in many])
        decoded = iter([loaded.decode(ids) for ids in found])
        return [[next(decoded) for _ in many] == many for many in texts]


@adapter
def plain_specials(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether special tokens spelled out in a text are no special tokens, and stay in it."""
    with TemporaryDirectory() as folder:
        loaded = tokenizer(settings["tokenizer"], Path(folder))
        found = _ids(loaded, inputs)
        return [loaded.eod not in ids and loaded.decode(ids) == text for ids, text in zip(found, inputs, strict=True)]


def made(described: Any) -> list[str]:
    """A text, one that repeats a part (`["ab", 100]`) between others (`["ab", 9, "x", "y"]`), or random texts."""
    if isinstance(described, str):
        return [described]
    if isinstance(described, list):
        part, times, first, last = [*described, "", ""][:4]
        return [first + part * times + last]
    return adversarial_texts(described["texts"], described["random"])


@adapter
def batches(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether texts have the same ids together and alone."""
    with TemporaryDirectory() as folder:
        loaded = tokenizer(settings["tokenizer"], Path(folder))
        return [_ids(loaded, texts) == [_ids(loaded, [text])[0] for text in texts] for texts in inputs]


@adapter
def decoded(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The text of each list of ids."""
    with TemporaryDirectory() as folder:
        loaded = tokenizer(settings["tokenizer"], Path(folder))
        return [loaded.decode(ids) for ids in inputs]


@adapter
def token_counts(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The number of tokens of each text of a case."""
    return [[len(ids) for ids in tokens(settings, texts)] for texts in inputs]


@adapter
def decoded_tokens(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The texts that a run's `.bin` and `.idx` hold, decoded; sorted if the run shuffles them."""
    loaded = curation.load_tokenizer(settings["tokenizer"])
    with TemporaryDirectory() as folder:
        readers = [curation.IndexedReader(index) for index in _tokenized(settings, inputs, Path(folder))]
        found = [[loaded.decode(ids) for ids in reader] for reader in readers]
    return [sorted(texts) for texts in found] if settings.get("shuffled") else found


def _tokenized(settings: Settings, cases: list[list[str]], folder: Path) -> list[Path]:
    """Run the texts of each case to tokens, as an input; the paths of their `.idx`."""
    name = settings["tokenizer"]
    recipe = {
        "stages": [],
        "tokenizer": {
            "name": name if isinstance(name, str) else str(file_of(name, folder)),
            "append_eod": settings.get("append_eod", False),
        },
        "output": {"formats": ["megatron"], "shuffle": settings.get("shuffled", False)},
    }
    run_of(folder / "in", cases, recipe, folder / "out")
    return [next((folder / "out" / "tokens").glob(f"case{number}_*.idx")) for number in range(len(cases))]


@adapter
def index_bytes(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The bytes of a run's `.idx`, in hexadecimal digits; a word is a token."""
    with TemporaryDirectory() as folder:
        return [index.read_bytes().hex() for index in _tokenized(settings, inputs, Path(folder))]


def lines_of(described: Any) -> list[str]:
    """Given lines, the numbers up to one (`{"numbers": 100}`), or their growing lists (`{"ascending": 100}`)."""
    if isinstance(described, list):
        return described
    ((kind, count),) = described.items()
    numbers = [str(number + 1) for number in range(count)]
    return numbers if kind == "numbers" else [" ".join(numbers[: last + 1]) for last in range(count)]


@adapter
def packed(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether a property holds of the `.bin` and `.idx` of a run on lines."""
    cases = [lines_of(described) for described in inputs]
    with TemporaryDirectory() as folder:
        indexes = _tokenized({"append_eod": True, **settings}, cases, Path(folder))
        return [_packed(settings, *case) for case in zip(indexes, cases, strict=True)]


def _packed(settings: Settings, index: Path, lines: list[str]) -> bool:
    loaded, reader = curation.load_tokenizer(settings["tokenizer"]), curation.IndexedReader(index)
    documents = [ids.tolist() for ids in reader]
    if settings["property"] == "decodes":
        return [loaded.decode(ids[:-1]) for ids in documents] == lines
    if settings["property"] == "ends":
        return len(documents) == len(lines) and all(ids[-1] == loaded.eod for ids in documents)
    tokens = np.fromfile(index.with_suffix(".bin"), reader.dtype)
    return tokens.tolist() == [number for ids in documents for number in ids]


@adapter
def merged(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether merged pairs have the sequences, or the documents, of their parts."""
    return [_merged(settings, [lines_of(described) for described in parts]) for parts in inputs]


def _merged(settings: Settings, parts: list[list[str]]) -> bool:
    with TemporaryDirectory() as folder:
        readers = [curation.IndexedReader(index) for index in _tokenized(settings, parts, Path(folder))]
        (pair,) = repack([str(reader.prefix) for reader in readers], Path(folder) / "merged" / "all", 10**9)
        whole = curation.IndexedReader(pair.prefix)
        if settings["property"] == "sequences":
            return [ids.tolist() for ids in whole] == [ids.tolist() for reader in readers for ids in reader]
        starts = np.concatenate([[0], np.cumsum([len(reader) for reader in readers])])
        expected = [reader.documents[:-1] + start for reader, start in zip(readers, starts[:-1], strict=True)]
        return whole.documents.tolist() == [*np.concatenate(expected).tolist(), int(starts[-1])]


@adapter
def classified(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The probability of a label by a fastText model with weights of a seed."""
    model = fasttext_reference.model_of(**settings["model"])
    with TemporaryDirectory() as folder:
        path = Path(folder) / settings["file"]
        path.write_bytes(fasttext_reference.as_bytes(model, quantised=path.suffix == ".ftz"))
        try:
            found = curation.classify(frame_of([text for text, _ in inputs]), str(path), label=inputs[0][1], column="p")
        except CurationError as error:
            return [REFUSED + type(error).__name__] * len(inputs)
        return found["p"].tolist()
