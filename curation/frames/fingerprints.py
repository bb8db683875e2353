# SPDX-License-Identifier: Apache-2.0
"""`curation.hash` and `curation.minhash`: what `exact_dedup` and `fuzzy_dedup` compare, as columns of a frame."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Frame
from curation.frames.frames import AnyFrame, apply
from curation.kernels.permutations import constants
from curation.recipes.keywords import stage_of, takes
from curation.stages import ExactDedup, FuzzyDedup, RowStage
from curation.stages.corpus.similarity import joined_text
from curation.stages.exact.exact_dedup import COMPARISONS
from curation.stages.outcome import Outcome

HEX_DIGITS = 32  # of 128 bits


class Hash(RowStage, frozen=True, kw_only=True, tag="hash"):
    """Add the hash by which `exact_dedup` compares texts."""

    removes: ClassVar[bool] = False

    max_characters: int = 0
    compare: str = "exact"

    def __post_init__(self) -> None:
        if self.compare not in COMPARISONS:
            raise ValueError(f"compare must be one of {', '.join(COMPARISONS)}, not {self.compare!r}")
        _ = self.compared

    @property
    def compared(self) -> ExactDedup:
        """The stage that compares these hashes."""
        return ExactDedup(max_characters=self.max_characters, compare=self.compare)

    def writes(self) -> dict[str, str]:
        return {"hash": "large_string"}

    def kernels(self) -> tuple[str, ...]:
        return tuple(name for name in self.compared.kernels() if name != "leaders")

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        keys = self.compared.keys(engine, frame[[TEXT]])
        digests = np.stack([keys["high"], keys["low"]], axis=1).astype("<u8")
        ends = np.arange(len(digests) + 1, dtype=np.int64) * HEX_DIGITS
        digits = pa.py_buffer(digests.tobytes().hex().encode())
        return Outcome(columns={"hash": pa.LargeStringArray.from_buffers(len(digests), pa.py_buffer(ends), digits)})


class MinHash(RowStage, frozen=True, kw_only=True, tag="minhash"):
    """Add the MinHash signature by which `fuzzy_dedup` estimates similarities."""

    removes: ClassVar[bool] = False

    ngram: int = 5
    unit: str = "word"
    words: str = ""
    compare: str = "lowercase"
    permutations: int = 128
    seed: int = 1

    def __post_init__(self) -> None:
        _ = self.compared

    @property
    def compared(self) -> FuzzyDedup:
        """The stage that compares these signatures. The stage has one band, because one band fits any number of
        permutations."""
        return FuzzyDedup(
            ngram=self.ngram, unit=self.unit, words=self.words, compare=self.compare, permutations=self.permutations,
            seed=self.seed, bands=1, verify="signature",
        )  # fmt: skip

    def writes(self) -> dict[str, str]:
        return {"minhash": f"uint32[{self.permutations}]"}

    def kernels(self) -> tuple[str, ...]:
        return tuple(name for name in self.compared.kernels() if name in ("words", "measures", "rewrite", "signatures"))

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        settings = self.compared.settings
        text = joined_text(engine, frame[TEXT], settings)
        signed = engine.signatures(
            text, settings.ngram, settings.by_character, *constants(self.permutations, self.seed)
        )
        flat = pa.array(np.ascontiguousarray(signed).reshape(-1))
        return Outcome(columns={"minhash": pa.FixedSizeListArray.from_arrays(flat, self.permutations)})


@takes()
def hash(frame: AnyFrame, *, max_characters: int = 0, compare: str = "exact", text_column: str = "text") -> AnyFrame:
    """Return the frame with a column `hash`, by which `curation.exact_dedup` compares texts.

    frame, text_column   as in `curation.apply`
    max_characters       number of characters (code points) hashed, from the start; 0 (default): all
    compare              `exact` (default): hash the text unchanged; `lowercase`: hash `text.strip().lower()`

    `hash` is a string of 32 hexadecimal digits, never null: the digest of murmur3_x64_128 (Appleby 2011) with seed 0
    over UTF-8, its two 64-bit words in little-endian order, as `mmh3.mmh3_x64_128_digest` and Guava's `murmur3_128`
    write it. A null text counts as an empty one. Both engines write the same digits.

        >>> import curation, pandas
        >>> curation.hash(pandas.DataFrame({"text": ["hello", "Hello"]}), compare="lowercase")["hash"].tolist()
        ['029bbd41b3a7d8cb191dae486a901e5b', '029bbd41b3a7d8cb191dae486a901e5b']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Hash, None, locals()), text_column=text_column)


@takes()
def minhash(
    frame: AnyFrame,
    *,
    ngram: int = 5,
    unit: str = "word",
    words: str = "",
    compare: str = "lowercase",
    permutations: int = 128,
    seed: int = 1,
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with a column `minhash`, by which `curation.fuzzy_dedup` estimates similarities.

    frame, text_column   as in `curation.apply`
    ngram                number of units in an n-gram, default 5
    unit                 `word` (default) or `character`
    words                what a word is: `spaces` (default), `scripts` or `table` (docs/languages.md)
    compare              how texts are compared, as in `curation.fuzzy_dedup`; default `lowercase`
    permutations         number of components of a signature, default 128
    seed                 seed of the permutations, default 1

    `minhash` is a list of `permutations` components (uint32) per row, never null: in pandas of the Arrow type
    `fixed_size_list<uint32>`, in cuDF a list. The share of equal components of two rows estimates the Jaccard
    similarity of their sets of n-grams (Broder 1997). All components of a text without words are 2^32 - 1. A null text
    counts as an empty one. Both engines write the same numbers; settings have the defaults of `fuzzy_dedup`.

        >>> import curation, numpy, pandas
        >>> frame = pandas.DataFrame({"text": ["one two three", "One two three", "four"]})
        >>> signatures = numpy.vstack(curation.minhash(frame, ngram=2)["minhash"])
        >>> signatures.shape, (signatures[0] == signatures[1]).mean(), (signatures[0] == signatures[2]).mean()
        ((3, 128), np.float64(1.0), np.float64(0.0))

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(MinHash, None, locals()), text_column=text_column)
