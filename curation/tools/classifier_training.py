# SPDX-License-Identifier: Apache-2.0
"""Train a fastText classifier on labelled documents, and measure it on held-out ones."""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.errors import InputError, OutputError, RecipeError, counted, installation
from curation.base.system.files import as_json, commit_all, file_sha256, local_output, prepare_output, training_folder
from curation.base.system.html_table import html_table
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.steps import Count, each, watching
from curation.kernels.fasttext import SCORE_UNITS
from curation.models.fasttext import END_OF_TEXT, LABEL_PREFIX, load_classifier
from curation.reading.inputs import AnyInput
from curation.reading.texts import InputTexts, list_whole_inputs
from curation.tools.scoring_metrics import CalibrationBin, LabelMetrics, calibration, label_metrics

REPAIR = "pip install --force-reinstall --no-deps fasttext-modern"  # fasttext-predict has a module of this name
MIN_TEXTS = 10  # distinct texts per label
SCORED_TEXTS = 10_000  # at once
MAPPED_BYTES, POLL_SECONDS, PIECE = 1024, 0.05, 1 << 20
TRAINER = """
import ctypes, json, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it would write after its parent was killed
parent, task = json.load(sys.stdin)
if parent != os.getppid():
    sys.exit()
try:
    import fasttext
    if not hasattr(fasttext, "train_supervised"):
        sys.exit(print("cannot train"))
    if task:
        model = fasttext.train_supervised(**task["arguments"])
        if task["quantize"]:
            model.quantize(input=task["arguments"]["input"], thread=1, verbose=0)
        model.save_model(f"/dev/fd/{task['output']}")
except Exception as error:
    print(" ".join(str(error).split()) or type(error).__name__)
"""
SPACES = re.compile("[ \n\r\t\v\f\0]+")  # fastText's white space
SPECIAL = re.compile(rf"(?:^| )(?:{LABEL_PREFIX}|{END_OF_TEXT.decode()}(?: |$))")

Inputs = str | os.PathLike[str] | AnyInput | Sequence[str | os.PathLike[str] | AnyInput | dict[str, Any]]


class TrainedClassifier(NamedTuple):
    """A trained model and its quality on texts that the training did not see.

    path         the model, for `classify` and `curation.classify`
    report_path  a JSON file next to it, with all fields below
    labels       the labels, in the given order
    trained      texts per label in training
    held_out     metrics per label on held-out texts
    calibration  probability of the first label against its share, on held-out texts
    duplicates   documents left out because an earlier document of their label has the same text
    conflicts    different texts left out because documents of several labels have them
    empty        documents left out because they have no text
    """

    path: Path
    report_path: Path
    labels: tuple[str, ...]
    trained: dict[str, int]
    held_out: dict[str, LabelMetrics]
    calibration: list[CalibrationBin]
    duplicates: int
    conflicts: int
    empty: int

    def __repr__(self) -> str:
        held_out = sum(each.texts for each in self.held_out.values())
        labels = "; ".join(
            f"{name} precision {each.precision:.2f}, recall {each.recall:.2f}" for name, each in self.held_out.items()
        )
        return f"<trained classifier {str(self.path)!r}: on {counted(held_out, 'held-out text')}: {labels}>"

    def _repr_html_(self) -> str:
        header = ("label", "trained", *LabelMetrics._fields)
        rows = [(name, self.trained[name], *self.held_out[name]) for name in self.labels]
        return html_table(f"trained classifier {self.path}", header, rows)


class ClassifierSettings(NamedTuple):
    """Settings of fastText (`dim`, `wordNgrams`, `bucket`, `minn`, `maxn`, `epoch`, `lr`, `minCount`)."""

    dimensions: int = 16
    word_ngrams: int = 2
    buckets: int = 200_000
    min_characters: int = 0
    max_characters: int = 0
    epochs: int = 20
    learning_rate: float = 0.5
    min_count: int = 1


def train_classifier(
    labels: Mapping[str, Inputs],
    output: str | os.PathLike[str],
    *,
    settings: ClassifierSettings | None = None,
    held_out: float = 0.1,
    quantize: bool = False,
    seed: int = 0,
    force: bool = False,
) -> TrainedClassifier:
    """Train a classifier on documents of two or more labels, and write it as a model for `classify`.

    labels    label -> paths, or inputs as in a recipe; all of them are read. Metrics name the first label first
    output    path of a `.bin` file, or with `quantize` of an `.ftz` file. A `.json` file beside it has the metrics,
              settings and counts. Both files are written, or neither
    settings  of fastText. The defaults of `ClassifierSettings` suit a quality filter: words and pairs of words
    held_out  share of the different texts that are not trained on, from 0.01 to 0.5; chosen by a hash of the text
    quantize  compress the model about ten times (Joulin et al. 2016, FastText.zip)
    seed      of the training and of the choice of held-out texts
    force     replace existing files. Default: False

    Texts are used as they are: white space separates words, and punctuation is part of words. The trainer is the
    package `fasttext` (Joulin et al. 2017) on one thread: equal inputs and settings give the same bytes. Memory: the
    model, and about 60 bytes per document. Disk: the texts twice, in the folder of `output`, during the training.

        >>> import curation, pandas
        >>> for label in ("good", "bad"):
        ...     texts = pandas.DataFrame({"text": [f"a {label} text, number {number}" for number in range(60)]})
        ...     texts.to_json(f"{label}.jsonl", orient="records", lines=True)
        >>> trained = curation.train_classifier({"good": "good.jsonl", "bad": "bad.jsonl"}, "quality.bin")
        >>> trained.path.name
        'quality.bin'

    RecipeError: wrong settings, or settings with which the training diverges. InputError: inputs that cannot be read,
    or fewer than ten different texts of a label. OutputError: an `output` with another suffix, or that exists without
    `force`.
    """
    settings = settings or ClassifierSettings()
    path, report_path = _check(labels, output, settings, held_out, quantize, force)
    _check_trainer()
    names = tuple(labels)
    inputs = [list_whole_inputs(labels[name], f"label {name}") for name in names]
    with commit_all(report_path, path) as (report_file, model_file):
        with training_folder(path) as folder:
            texts = _write_texts(folder, names, inputs, held_out, seed)
            _train(folder, model_file, settings, quantize, seed)
            tested = [_scores(model_file, names, batch) for batch in _read_held_out(folder)]
        truth = np.concatenate([batch for batch, _ in tested])
        scores = np.concatenate([batch for _, batch in tested])
        result = TrainedClassifier(
            path,
            report_path,
            names,
            dict(zip(names, texts.trained, strict=True)),
            dict(zip(names, label_metrics(truth, scores), strict=True)),
            calibration(truth == 0, scores[:, 0]),
            texts.duplicates,
            texts.conflicts,
            texts.empty,
        )
        facts = {"settings": settings._asdict() | {"held_out": held_out, "quantize": quantize, "seed": seed}}
        report_file.write_bytes(as_json(_report(result, file_sha256(model_file)) | facts, indent=True))
    return result


def _check(
    labels: Mapping[str, Inputs], output: str | os.PathLike[str], settings: ClassifierSettings, held_out: float,
    quantize: bool, force: bool,
) -> tuple[Path, Path]:  # fmt: skip
    """Return the paths of the model and of its report."""
    if len(labels) < 2:
        raise RecipeError(f"a classifier needs at least two labels, not {counted(len(labels), 'label')}")
    for name in labels:
        if not name or SPACES.search(name) or name.startswith(LABEL_PREFIX):
            raise RecipeError(f"label {name!r} must be one word that does not start with {LABEL_PREFIX}")
    if not 0.01 <= held_out <= 0.5:
        raise RecipeError(f"held_out must be from 0.01 to 0.5, not {held_out:g}")
    for name, value in settings._asdict().items():
        least = 0 if name in ("min_characters", "max_characters", "buckets") else 1
        if name == "learning_rate":
            if not 0 < value <= 10:
                raise RecipeError(f"learning_rate must be above 0 and at most 10, not {value:g}")
        elif value < least:
            raise RecipeError(f"{name} must be at least {least}, not {value}")
    if not settings.buckets and (settings.word_ngrams > 1 or settings.max_characters):
        raise RecipeError("buckets must be above 0 for n-grams of words or characters")
    path = local_output(output).expanduser()
    suffix = ".ftz" if quantize else ".bin"
    if path.suffix != suffix:
        kind = "a quantized model" if quantize else "a model"
        raise OutputError(f"the output is {path}, expected {kind} with the suffix {suffix}")
    report_path = path.with_suffix(".json")
    is_left = not path.exists() and _is_report(report_path)  # a killed training renames the report first
    prepare_output(path, force)
    prepare_output(report_path, force or is_left)
    return path, report_path


def _is_report(path: Path) -> bool:
    """Return whether a file is the report of a training."""
    try:
        report = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(report, dict) and {"model", "sha256", "calibration", "settings"} <= report.keys()


def _check_trainer() -> None:
    """Raise RecipeError without the package fasttext, or with a package of that name that cannot train."""
    answer = _run_trainer({}, io.BytesIO())
    if answer == "cannot train":
        raise RecipeError(
            f"the installed fasttext can predict but not train. Run: {installation('fasttext')}. If fasttext-modern is "
            f"there already: {REPAIR}"
        )
    if answer:
        raise RecipeError(
            f"training a classifier needs the package fasttext-modern ({answer}). Run: {installation('fasttext')}"
        )


# Texts, in a format of fastText: a line per text, its label first


class _Written(NamedTuple):
    trained: list[int]  # texts per label
    duplicates: int
    conflicts: int
    empty: int


def _write_texts(
    folder: Path, names: Sequence[str], inputs: Sequence[list[AnyInput]], held_out: float, seed: int
) -> _Written:
    """Write the different texts to `train.txt` and `held_out.txt`."""
    hashes, empty = bytearray(), 0
    label_of: list[np.ndarray] = []
    with open(folder / "all.txt", "wb") as file:
        for number, (name, entries) in enumerate(zip(names, inputs, strict=True)):
            before = len(hashes)
            for text in _texts_of(name, entries):
                line = _as_line(text)
                if not line:
                    empty += 1
                    continue
                data = line.encode()
                hashes += hashlib.blake2b(data, digest_size=16, key=seed.to_bytes(8, "little")).digest()
                file.write(f"{LABEL_PREFIX}{name} ".encode() + data + b"\n")
            label_of.append(np.full((len(hashes) - before) // 16, number, np.int32))
    keys = np.frombuffer(bytes(hashes), [("high", "<u8"), ("low", "<u8")])
    labels = np.concatenate(label_of)
    is_first, conflicts = _distinct(keys, labels)
    is_held = keys["high"] < np.uint64(held_out * 2**64)
    for number, name in enumerate(names):
        of_label = is_first & (labels == number)
        for is_wanted, purpose in ((of_label & ~is_held, "train"), (of_label & is_held, "hold out")):
            count = int(np.count_nonzero(is_wanted))
            least = MIN_TEXTS if purpose == "train" else 1
            if count < least:
                total = counted(int(np.count_nonzero(of_label)), "different text")
                raise InputError(f"label {name} has {total}, of which {count} to {purpose}; expected at least {least}")
    with (
        open(folder / "all.txt", "rb") as lines,
        open(folder / "train.txt", "wb") as train,
        open(folder / "held_out.txt", "wb") as held,
    ):
        for written, first, holds in zip(lines, is_first.tolist(), is_held.tolist(), strict=True):
            if first:
                (held if holds else train).write(written)
    trained = np.bincount(labels[is_first & ~is_held], minlength=len(names)).tolist()
    in_conflict = int(np.count_nonzero(conflicts))
    duplicates = len(labels) - int(np.count_nonzero(is_first)) - in_conflict
    return _Written(trained, duplicates, len(np.unique(keys[conflicts])), empty)


def _distinct(keys: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two bool arrays. The first marks the first document of each text that has only one label. The second marks
    all documents whose text occurs with several labels."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    lowest, highest = np.full(len(first), len(labels)), np.full(len(first), -1)
    np.minimum.at(lowest, inverse, labels)
    np.maximum.at(highest, inverse, labels)
    conflicts = (lowest != highest)[inverse]
    is_first = np.zeros(len(labels), bool)
    is_first[first] = True
    return is_first & ~conflicts, conflicts


def _texts_of(label: str, inputs: list[AnyInput]) -> Iterator[str]:
    texts = InputTexts(inputs)
    with watching(f"reading {label}", len(texts.slices), texts.count, "slice"):
        for batch in texts:
            yield from (text or "" for text in batch)


def _as_line(text: str) -> str:
    """Return a text as one line that fastText reads as the kernels do: `</s>` ends the text, and it has no labels."""
    line = SPACES.sub(" ", text).strip(" ")
    if not SPECIAL.search(line):
        return line
    words = line.split(" ")
    end = words.index(END_OF_TEXT.decode()) if END_OF_TEXT.decode() in words else len(words)
    return " ".join(word for word in words[:end] if not word.startswith(LABEL_PREFIX))


def _train(folder: Path, output: Path, settings: ClassifierSettings, quantize: bool, seed: int) -> None:
    data = folder / "train.txt"
    arguments = {
        "input": str(data), "dim": settings.dimensions, "wordNgrams": settings.word_ngrams, "bucket": settings.buckets,
        "minn": settings.min_characters, "maxn": settings.max_characters, "epoch": settings.epochs,
        "lr": settings.learning_rate, "minCount": settings.min_count, "loss": "softmax", "thread": 1, "seed": seed,
        "verbose": 0,
    }  # fmt: skip
    with watching("training", 0, lambda: Count(0, None, data.stat().st_size), ""), open(output, "wb") as model:
        fault = _run_trainer({"arguments": arguments, "quantize": quantize}, model)
    if fault:
        raise RecipeError(_explain(fault, settings))


def _run_trainer(task: dict[str, Any], output: BinaryIO) -> str:
    """Train in a separate process, write the model to `output`, and return the error of fastText; "" if it succeeded.
    An empty task only loads the package.

    The model comes through a pipe: fastText does not notice that the system refuses a write.

    On one thread, fastText 0.9.3 sets only the first tenth of its weights and takes the others from fresh memory. In a
    process that has freed memory before, this memory has old data: trainings differ, or end with NaN. With
    MALLOC_MMAP_THRESHOLD_, the C library gets every array from the system, which fills new memory with zeros.
    """
    environment = os.environ | {
        "MALLOC_MMAP_THRESHOLD_": str(MAPPED_BYTES),
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    reading, writing = os.pipe()
    with (
        open(reading, "rb", buffering=0) as model, open(writing, "wb", buffering=0) as end,
        subprocess.Popen(
            [sys.executable, "-c", TRAINER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=[writing],
        ) as process,
    ):  # fmt: skip
        assert process.stdin and process.stdout
        try:
            end.close()
            with process.stdin:
                process.stdin.write(as_json([os.getpid(), task and task | {"output": writing}]))
            while True:
                check_interrupts()
                if select.select([model], [], [], POLL_SECONDS)[0]:
                    if not (piece := model.read(PIECE)):
                        break
                    output.write(piece)
                elif process.poll() is not None:  # a forked child may hold the other end of the pipe
                    break
            answer = process.stdout.read().decode()
            process.wait()
        finally:
            process.kill()
    return answer.strip() or (f"its process ended with {process.returncode}" if process.returncode else "")


def _explain(error: str, settings: ClassifierSettings) -> str:
    if "NaN" in error:
        return (
            f"the training diverged with learning_rate {settings.learning_rate:g}: weights are not finite. Give a "
            f"lower one, such as {settings.learning_rate / 4:g}"
        )
    if "256" in error or "Matrix too small" in error:
        return f"the model is too small to quantize ({error.strip()}). Leave out quantize"
    return f"fastText cannot train: {error.strip()}"


def _read_held_out(folder: Path) -> Iterator[list[str]]:
    with open(folder / "held_out.txt", "rb") as lines:
        batch: list[str] = []
        for line in each(lines, "testing", "text"):
            batch.append(line.decode())
            if len(batch) == SCORED_TEXTS:
                yield batch
                batch = []
        if batch:
            yield batch


def _scores(path: Path, names: Sequence[str], lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of each held-out text and the probability of all labels."""
    pairs = [line.removeprefix(LABEL_PREFIX).split(" ", 1) for line in lines]
    engine = load_engine("cpu")
    frame = engine.from_arrow(pa.table({TEXT: pa.array([text for _, text in pairs], pa.large_string())}))
    model = load_classifier(str(path))
    scores = [engine.classify(frame[TEXT], model.scoring(name), 0)[1] for name in names]
    return np.array([names.index(name) for name, _ in pairs]), np.stack(scores, axis=1) / SCORE_UNITS


def _report(result: TrainedClassifier, digest: str) -> dict[str, Any]:
    """Return the content of the report beside a model. Metrics that are not defined are null."""

    def plain(row: tuple[Any, ...]) -> dict[str, Any]:
        values = row._asdict()  # type: ignore[attr-defined]
        return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}

    return {
        "model": result.path.name,
        "sha256": digest,
        "labels": {
            name: {"trained": result.trained[name], "held_out": plain(result.held_out[name])} for name in result.labels
        },
        "calibration": {"label": result.labels[0], "bins": [plain(row) for row in result.calibration]},
        "duplicates": result.duplicates,
        "conflicts": result.conflicts,
        "empty": result.empty,
    }
