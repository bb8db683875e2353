# SPDX-License-Identifier: Apache-2.0
"""`perplexity`: write the perplexity of each text by a language model into a column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import InputError, counted, nearest
from curation.base.system.files import known_sha256
from curation.kernels.language_model import LINES, TOTAL, UNITS, UNKNOWN_WORDS, WORDS
from curation.models import causal
from curation.models.encoder_files import encoder_digests, is_encoder_path, open_causal
from curation.models.encoders import device_facts
from curation.models.ngrams import BYTE, KenlmModel, LanguageModel, load_language_model
from curation.stages.base import PATH, Function, ScoringStage
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.language import check_new_column
from curation.stages.rows.windows import sums_of, texts_of

UNITS_OF = ("token", "word", "byte")
DECIMALS = 4  # of a perplexity
DECADES = 6  # ranges in the report: below 10, below 100, ...; the last has no upper bound


class Perplexity(ScoringStage, frozen=True, kw_only=True, tag="perplexity"):
    """Write the perplexity of a text by a language model into a column. No document is removed; `filter` and `select`
    can use the column.

    model    path of an ARPA file, such as one of `curate train lm`, also compressed with gzip; or of a binary file of
             KenLM, which needs the package kenlm and is computed on the host; or a local folder with a causal language
             model, such as GPT-2 or Llama: `config.json`, `model.safetensors`, `tokenizer.json`
    per      `token`: per word and end of a line, as KenLM and CCNet count, or per token of a causal model; `word`: per
             word, not for models of bytes; `byte`: per byte of UTF-8
    column   name of the new column in `documents/`: float64, null for a text without words
    context  causal models only: tokens of a window; 0: the positions of the model, at most 1,024
    stride   causal models only: tokens by which the windows of a long text advance; 0: half of the context
    formula  causal models only. `windows`: of the whole text. `truncated`: of its first 512 tokens, or `context`,
             without a begin token and per token, as the usual call of transformers gives it:
             exp(model(input_ids, labels=input_ids).loss)

    The perplexity is 10^(-s / n): s is the sum of the log probabilities (base 10) of all words and ends of lines, n the
    number of units. Each line with words is a sentence. Words are runs of bytes without ASCII white space; those of a
    model of bytes (`train lm --unit byte`) are the bytes of a line. If the model was trained on text in another form,
    put a `rewrite` that makes this form before the stage. Sums by ARPA files are exact integers, the same on both
    engines; values are rounded once, to 0.0001. The last digits of causal models depend on the device and on libraries,
    so a run cannot be resumed on another device. If the configuration has a begin token, it is put before the text,
    except with `truncated`. Raises InputError for a model that cannot be used, and EngineError if the packages of the
    extra `models` are missing.
    """

    removes: ClassVar[bool] = False
    function: ClassVar[Function] = Function(
        r"""Return the frame with a column: the perplexity of each text by a language model, null without words.

            >>> import curation, pandas, pathlib
            >>> _ = pathlib.Path("tiny.arpa").write_text(
            ...     "\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <unk>\n-99 <s>\n-0.5 </s>\n\n\\end\\\n"
            ... )
            >>> frame = pandas.DataFrame({"text": ["one word", "a\nb", " "]})
            >>> curation.perplexity(frame, "tiny.arpa", per="word")["perplexity"].tolist()
            [17.7828, 31.6228, nan]

        Raises InputError for a model that cannot be used.
        """,
        types={"model": PATH},
    )

    model: str
    per: str = "token"
    column: str = "perplexity"
    context: int = 0
    stride: int = 0
    formula: str = causal.WINDOWS

    def __post_init__(self) -> None:
        check_new_column(self.column)
        if not self.model:
            raise ValueError("model is empty; give the path of an ARPA file")
        if self.per not in UNITS_OF:
            raise ValueError(f"per: no unit {self.per!r}{nearest(self.per, UNITS_OF)}")
        if self.formula not in causal.FORMULAS:
            raise ValueError(f"formula: no formula {self.formula!r}{nearest(self.formula, causal.FORMULAS)}")
        if min(self.context, self.stride) < 0:
            raise ValueError(f"context and stride must be 0 or more, not {self.context} and {self.stride}")
        if self._is_truncated and (self.stride or self.per != UNITS_OF[0]):
            raise ValueError(
                "formula: truncated reads the first tokens of a text, per token. Leave out stride and per, or write "
                "formula: windows"
            )
        if self._is_causal:
            causal.window_of(open_causal(self.model), self.context, self.stride, self.formula)
        elif self.context or self.stride or self._is_truncated:
            raise ValueError(
                "context, stride and formula are settings of causal models; an n-gram model reads the whole text"
            )

    @property
    def _is_truncated(self) -> bool:
        return self.formula == causal.TRUNCATED

    @property
    def _is_causal(self) -> bool:
        return is_encoder_path(self.model)

    def kernels(self) -> tuple[str, ...]:
        return () if self._is_causal else ("language_model",)

    def writes(self) -> dict[str, str]:
        return {self.column: "double"}

    def files(self) -> dict[str, str]:
        return encoder_digests(self.model) if self._is_causal else {self.model: known_sha256(self.model)}

    def computed_with(self) -> dict[str, str]:
        return device_facts() if self._is_causal else {}

    def prepare(self, folder: Path) -> Perplexity:
        if self._is_causal:
            causal.load_causal(self.model)  # a model that cannot be used ends the run before its tasks
        return self

    def check(self, inputs: Sequence[str]) -> None:
        if not self._is_causal:
            self._load()

    def _load(self) -> LanguageModel | KenlmModel:
        model = load_language_model(self.model)
        if model.unit == BYTE and self.per == "word":
            raise InputError(
                f"per: word needs a model of words, and {self.model} is a model of bytes. Write per: byte or per: token"
            )
        return model

    def values(self) -> dict[str, str]:
        return {"perplexity": "double", **dict.fromkeys(self._counts, "int64")}

    @property
    def _counts(self) -> tuple[str, str]:
        return ("words", "tokens") if self._is_causal else ("words", "unknown_words")

    def score(self, engine: Engine, frame: Frame) -> pa.Table:
        if self._is_causal:
            return self._by_transformer(engine, frame)
        model = self._load()
        if isinstance(model, KenlmModel):
            scores = model.score_texts(engine.to_arrow(frame[[TEXT]]).column(TEXT).to_pylist())
        else:
            scores = engine.score_text(frame[TEXT], model)
        words = scores[:, WORDS]
        if self.per == "byte":
            units = engine.byte_lengths(frame[TEXT])
        else:
            units = words + scores[:, LINES] if self.per == "token" else words
        values = perplexities(scores[:, TOTAL], np.maximum(units, 1))
        columns = {"perplexity": pa.array(values, mask=words == 0)}
        return pa.table(columns | {"words": words, "unknown_words": scores[:, UNKNOWN_WORDS]})

    def _by_transformer(self, engine: Engine, frame: Frame) -> pa.Table:
        texts = texts_of(engine, frame)
        scores = causal.score_texts(texts, self.model, self.context, self.stride, self.formula)
        words = np.array([len((text or "").encode().split()) for text in texts], np.int64)
        units = {"token": scores.tokens, "word": words}.get(self.per)
        if units is None:
            units = np.array([len((text or "").encode()) for text in texts], np.int64)
        unknown = (words == 0) | (scores.tokens == 0)
        values = np.round(np.power(10.0, -scores.total / np.maximum(units, 1)), DECIMALS)
        return pa.table({"perplexity": pa.array(values, mask=unknown), "words": words, "tokens": scores.tokens})

    def outcome(self, values: pa.Table) -> Outcome:
        column = values.column("perplexity")
        decade = np.minimum(np.floor(np.log10(column.drop_null().to_numpy())).astype(np.int64), DECADES - 1)
        bins = np.bincount(np.maximum(decade, 0), minlength=DECADES)
        details = sums_of(values, self._counts)
        details |= {f"decade_{number}": int(count) for number, count in enumerate(bins.tolist())}
        details["empty"] = column.null_count
        return Outcome(columns={self.column: column}, details=details)

    def explain(self) -> list[str]:
        tokens = f" of the first {self._truncated_at:,} tokens" if self._is_truncated else ""
        return [f"{self.column}: perplexity per {self.per}{tokens} by {self.model}"]

    @property
    def _truncated_at(self) -> int:
        return causal.window_of(open_causal(self.model), self.context, 0, self.formula)[0]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return the number of documents per power of ten of the perplexity, and the share of unknown words or the
        number of tokens."""
        bins = [count.details.get(f"decade_{number}", 0) for number in range(DECADES)]
        names = [f"below {10 ** (number + 1):,}" for number in range(DECADES - 1)] + ["above"]
        shown = ", ".join(f"{name} {number:,}" for name, number in zip(names, bins, strict=True) if number)
        words, unknown = count.details.get("words", 0), count.details.get("unknown_words", 0)
        empty = count.details.get("empty", 0)
        rest = f"{unknown / max(words, 1):.2%} of the words unknown"
        if self._is_causal:
            rest = f"{counted(count.details.get('tokens', 0), 'token')} predicted"
        return [
            f"{self.column} {shown or 'of no document'}; {rest}",
            *([f"{counted(empty, 'document')} without words"] if empty else []),
        ]


def perplexities(totals: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return 10^(-total / units), rounded to DECIMALS. `totals`: sums of logarithms, int64, in steps of 1 / UNITS;
    `units`: above 0."""
    return np.round(np.power(10.0, -totals / (UNITS * units.astype(np.float64))), DECIMALS)
