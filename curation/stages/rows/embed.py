# SPDX-License-Identifier: Apache-2.0
"""`embed`: write a vector of the meaning of each text into a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from curation.base.contract import Engine, Frame
from curation.base.errors import counted
from curation.models.embeddings import digest_of_model, dimensions_of, embed_texts, facts_of, is_static, load_model
from curation.models.packages import model_folder, named_in
from curation.models.transformers import transformer_digests
from curation.models.vectors import to_column, type_name
from curation.stages.base import PATH, ColumnFacts, Function, ScoringStage
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


class Embed(ScoringStage, frozen=True, kw_only=True, tag="embed"):
    """Write a vector of the meaning of each text into a column. No document is removed.

    model           local folder with an encoder such as BERT (`config.json`, `model.safetensors`, `tokenizer.json`),
                    with a transformer in ONNX (`model.onnx` or `onnx/model.onnx`), or with static embeddings in the
                    form of model2vec, which need no GPU; or an `.onnx` file in such a folder; or `package:NAME`, such a
                    folder in an installed package
    column          name of the new column in `documents/`: a list of int8 of fixed size, null for a text without
                    anything the model knows
    windows         parts of a text that an encoder reads, from its start; 0: the whole text. Static embeddings always
                    read the whole text
    pooling         `mean` (by tokens) or `max` of the windows, or only the `first` window
    max_characters  number of characters (code points) read, from the start; 0: all

    A vector is the mean of the tokens' vectors, or the first token's vector if the model's folder says so. It is scaled
    to a largest absolute value of 127 and rounded (`curation.models.vectors`). The last digits of an encoder depend on
    the device and on libraries, so a run cannot be resumed on another device. Raises InputError for a model that cannot
    be used, and EngineError if the packages of the extra `models` (for ONNX: `embeddings`) are missing.
    """

    removes: ClassVar[bool] = False
    revision: ClassVar[int] = 2  # 2: pieces of a long text have the tokens of the whole text
    function: ClassVar[Function] = Function(
        """Return the frame with a column of vectors (lists of int8 of fixed size), null for a text without known
        tokens.

            >>> frame = curation.embed(pandas.DataFrame({"text": ["a good text", ""]}), "vectors")
            >>> frame["embedding"].isna().tolist()
            [False, True]

        Raises InputError for a model that cannot be used, EngineError for a missing package.
        """,
        types={"model": PATH},
    )

    model: str
    column: str = "embedding"
    windows: int = 4
    pooling: Literal["first", "mean", "max"] = "mean"
    max_characters: int = 0

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        check_new_column(self.column)
        if not self.model:
            raise ValueError("model is empty; give the folder of an encoder or of static embeddings")
        check_windows(self.windows, self.pooling)
        dimensions_of(self._folder)

    @property
    def _folder(self) -> str:
        return model_folder(self.model)

    def writes(self) -> dict[str, str]:
        return {self.column: type_name(dimensions_of(self._folder))}

    def files(self) -> dict[str, str]:
        return named_in(self.model, transformer_digests(self._folder))

    def computed_with(self) -> dict[str, str]:
        return facts_of(self._folder)

    def column_facts(self, column: str) -> ColumnFacts:
        facts: dict[str, Any] = {
            "model": digest_of_model(self._folder),
            "dimensions": dimensions_of(self._folder),
            "max_characters": self.max_characters,
        }
        if is_static(self._folder):
            return ColumnFacts(origin=facts)
        return ColumnFacts(origin=facts | {"windows": self.windows, "pooling": self.pooling})

    def prepare(self, folder: Path) -> Embed:
        load_model(self._folder)  # a model that cannot be used ends the run before its tasks
        return self

    def values(self) -> dict[str, str]:
        return {"vector": type_name(dimensions_of(self._folder)), **WINDOW_VALUES}

    def score(self, engine: Engine, frame: Frame) -> pa.Table:
        texts = texts_of(engine, frame, self.max_characters)
        vectors, present, windows = embed_texts(texts, self._folder, self.windows, self.pooling)
        return pa.table({"vector": to_column(vectors, present), **window_columns(windows)})

    def outcome(self, values: pa.Table) -> Outcome:
        vectors = values.column("vector")
        details = {"unknown": vectors.null_count} | sums_of(values, WINDOW_VALUES)
        return Outcome(columns={self.column: vectors}, details=details)

    def explain(self) -> list[str]:
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the text"
        return [
            f"{self.column}: {dimensions_of(self._folder)} dimensions by {self.model}; read "
            f"{describe_windows(self.windows, self.pooling)} of {text}"
        ]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return a line with the number of vectors, and one with the share of the text that the model read."""
        unknown = count.details.get("unknown", 0)
        without = f"; {counted(unknown, 'document')} without words of the model" if unknown else ""
        vectors = f"{counted(count.documents_in - unknown, 'vector')} of {dimensions_of(self._folder)} dimensions"
        return [f"{self.column}: {vectors}{without}", *window_line(count)]
