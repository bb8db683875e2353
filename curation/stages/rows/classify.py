# SPDX-License-Identifier: Apache-2.0
"""`classify`: write the probability of a label, or the output of a regressor, into a column."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from curation.base.arrays import as_one_array
from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import counted, nearest
from curation.kernels.fasttext import SCORE_UNITS
from curation.models import scores
from curation.models.encoder_files import is_encoder_path
from curation.models.fasttext import describe_model, label_names, load_classifier
from curation.models.transformers import load_transformer, transformer_digests, transformer_facts
from curation.stages.base import PATH, Function, ScoringStage
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.language import check_new_column
from curation.stages.rows.windows import (
    WINDOW_VALUES,
    check_windows,
    describe_windows,
    sums_of,
    texts_of,
    window_columns,
    window_line,
)

SHOWN_LABELS = 10
BINS = 10  # equal ranges of the probability in the report
LOWEST, HIGHEST = -1, 10  # the report counts outputs of a regressor by whole number: below 0, 0 to 9, 10 or more


class Classify(ScoringStage, frozen=True, kw_only=True, tag="classify"):
    """Write the probability of one label of a model into a column. No document is removed; `filter` and `select` can
    use the column.

    model           path of a supervised fastText model, `.bin` or `.ftz`, such as one of `curate train classifier`; or
                    a local folder with a classifier or regressor such as BERT, DeBERTa or ModernBERT: `config.json`,
                    `model.safetensors`, `tokenizer.json`; or a transformer in ONNX (`model.onnx` or
                    `onnx/model.onnx`) that gives `logits`
    label           label of the model, without `__label__`; required, except for a regressor, which has one output
    column          name of the new column in `documents/`: float64, null for a text without anything the model knows
    max_characters  number of characters (code points) classified, from the start; 0: all. For fastText, line ends count
                    as spaces, and ASCII white space and NUL at the start do not count
    windows         transformers only: parts of a text that the model reads, from its start; 0: the whole text
    pooling         transformers only: `mean` (by tokens) or `max` of the windows, or only the `first` window

    Probabilities of fastText are computed in integers, with a resolution of 0.000001. The probabilities equal those of
    the package fasttext within 0.00001. Scores of transformers are rounded to 0.0001 and stored. Their last digits
    depend on the device and on libraries, so a run cannot be resumed on another device. Raises ValueError for a label
    that the model does not have, InputError for a model that cannot be used, and EngineError if the packages of the
    extra `models` (for ONNX: `embeddings`) are missing.
    """

    removes: ClassVar[bool] = False
    function: ClassVar[Function] = Function(
        """Return the frame with a new column: the probability of a label, or the output of a regressor; null where the
        model knows nothing in the text.

            >>> import curation, pandas, pathlib
            >>> model = pathlib.Path(curation.__file__).parent / "models" / "lid.176.ftz"
            >>> frame = pandas.DataFrame({"text": ["The weather is fine today.", "Das Wetter bleibt heute sehr warm."]})
            >>> curation.classify(frame, model, label="de", column="german")["german"].round(2).tolist()
            [0.0, 1.0]

        Raises InputError for a model that cannot be used, EngineError for a missing package.
        """,
        types={"model": PATH},
    )

    model: str
    label: str = ""
    column: str = "quality"
    max_characters: int = 0
    windows: int = 1
    pooling: Literal["first", "mean", "max"] = "mean"

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        check_new_column(self.column)
        check_windows(self.windows, self.pooling)
        if not self.model:
            raise ValueError("model is empty; give the path of a fastText model, or the folder of a transformer")
        if self._is_encoder:
            scores.check_label(self.model, self.label)
            return
        if (self.windows, self.pooling) != (1, "mean"):
            raise ValueError("windows and pooling are settings of transformers; a fastText model reads the whole text")
        labels = label_names(self.model)
        if not self.label:
            raise ValueError(f"label is missing; the model has {', '.join(labels[:SHOWN_LABELS])}")
        if self.label not in labels:
            raise ValueError(f"label: no label {self.label!r} in the model{nearest(self.label, labels)}")

    @property
    def _is_encoder(self) -> bool:
        return is_encoder_path(self.model)

    def kernels(self) -> tuple[str, ...]:
        return () if self._is_encoder else ("language",)

    def writes(self) -> dict[str, str]:
        return {self.column: "double"}

    def files(self) -> dict[str, str]:
        if self._is_encoder:
            return transformer_digests(self.model)
        model = describe_model(self.model)
        return {model["file"]: model["sha256"]}

    def computed_with(self) -> dict[str, str]:
        return transformer_facts(self.model) if self._is_encoder else {}

    def prepare(self, folder: Path) -> Classify:
        if self._is_encoder:
            load_transformer(self.model, True)  # a model that cannot be used ends the run before its tasks
        return self

    def values(self) -> dict[str, str]:
        return {"units": "int64", **(WINDOW_VALUES if self._is_encoder else {})}

    def score(self, engine: Engine, frame: Frame) -> pa.Table:
        if self._is_encoder:
            texts = texts_of(engine, frame, self.max_characters)
            units, known, windows = scores.score_texts(texts, self.model, self.label, self.windows, self.pooling)
            return pa.table({"units": pa.array(units, mask=~known), **window_columns(windows)})
        model = load_classifier(self.model).scoring(self.label)
        label, units = engine.classify(frame[TEXT], model, self.max_characters)
        return pa.table({"units": pa.array(units, mask=label < 0)})

    def outcome(self, values: pa.Table) -> Outcome:
        scale = scores.SCORE_UNITS if self._is_encoder else SCORE_UNITS
        column = as_one_array(values.column("units"))
        units, unknown = column.drop_null().to_numpy(), column.null_count
        if self._is_encoder and self._is_regressor:
            whole = np.clip(units // scale, LOWEST, HIGHEST)
            details = {f"whole_{number}": int(np.count_nonzero(whole == number)) for number in np.unique(whole)}
        else:
            details = _tenths(units * BINS // scale, BINS - 1)
        details |= {"unknown": unknown} | sums_of(values, WINDOW_VALUES if self._is_encoder else ())
        known = column.is_valid().to_numpy(zero_copy_only=False)
        quotients = column.fill_null(0).to_numpy() / scale
        return Outcome(columns={self.column: pa.array(quotients, mask=~known)}, details=details)

    @property
    def _is_regressor(self) -> bool:
        return scores.head_of(self.model).is_regressor

    def explain(self) -> list[str]:
        what = f"probability of {self.label!r}"
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the whole text"
        if self._is_encoder:
            what = "number of the regressor" if self._is_regressor else what
            text = describe_windows(self.windows, self.pooling) + (f" of {text}" if self.max_characters else "")
        return [f"{self.column}: {what} by {self.model}; classify {text}"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return lines: the number of documents per tenth of the probability, or per whole number of a regressor's
        output; the documents without known words; the share of the text that a transformer read."""
        wholes = {int(name[6:]): number for name, number in count.details.items() if name.startswith("whole_")}
        bins = [count.details.get(f"bin_{number}", 0) for number in range(BINS)]
        line = f"{self.column} in tenths from 0: {', '.join(f'{number:,}' for number in bins)} documents"
        if wholes:
            line = f"{self.column} by whole numbers: " + ", ".join(
                f"{_range_of(whole)} {counted(wholes[whole], 'document')}" for whole in sorted(wholes)
            )
        unknown = count.details.get("unknown", 0)
        lines = [line, *([f"{counted(unknown, 'document')} without words of the model"] if unknown else [])]
        return lines + window_line(count)


def _tenths(place: np.ndarray, last: int) -> dict[str, int]:
    bins = np.bincount(np.minimum(place, last), minlength=last + 1)
    return {f"bin_{number}": int(count) for number, count in enumerate(bins.tolist())}


def _range_of(whole: int) -> str:
    return "below 0:" if whole == LOWEST else f"{HIGHEST} or more:" if whole == HIGHEST else f"{whole}:"
