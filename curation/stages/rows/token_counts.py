# SPDX-License-Identifier: Apache-2.0
"""The measure `tokens`: the number of tokens of each text. `measured` returns it with other measures."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from curation.base.contract import Engine, Text
from curation.base.errors import RecipeError
from curation.base.measures import TOKENS
from curation.base.system.files import known_sha256
from curation.stages.base import Stage
from curation.stages.words import Split, measure_words

if TYPE_CHECKING:
    from curation.tokens.tokenization import Tokenizer

AnyStage = TypeVar("AnyStage", bound=Stage)


def measured(
    engine: Engine, text: Text, names: Collection[str], tokenizer: str, words: str = "", split: Split | None = None
) -> dict[str, np.ndarray]:
    """Return the measures `names` of each text, int64. `words` says what a word is. `tokenizer` counts tokens; a null
    text has none. `split` is the result of `Engine.split_words`, if it is known."""
    measures = measure_words(engine, text, tuple(name for name in names if name != TOKENS), words, split)
    if TOKENS in names:
        measures[TOKENS] = engine.tokenize(text, _loaded(tokenizer))[1].astype(np.int64)
    return {name: measures[name] for name in names}


def _loaded(name: str) -> Tokenizer:
    """Return a tokenizer that adds no special tokens. Raises RecipeError if no tokenizer is set."""
    from curation.tokens.tokenization import TokenizerSpec, load_tokenizer

    if not name:
        raise RecipeError(
            "the measure tokens needs a tokenizer, and none is set. Set the tokenizer of the recipe, or in a call "
            "give tokenizer: a tiktoken encoding such as gpt2, a path, or hub:ORG/NAME"
        )
    return load_tokenizer(TokenizerSpec(name=name, append_eod=False))


def check_tokenizer(names: Iterable[str], tokenizer: str) -> None:
    """Load the tokenizer if `names` has `tokens`. Raises RecipeError if no tokenizer is set, or if the tokenizer cannot
    be loaded."""
    if TOKENS in names:
        _loaded(tokenizer)


def check_use(names: Iterable[str], tokenizer: str) -> None:
    """Raise ValueError if a tokenizer is set, but `names` lacks `tokens`."""
    if tokenizer and TOKENS not in names:
        raise ValueError(f"tokenizer {tokenizer!r} has no use: nothing here measures {TOKENS}. Leave it out")


def tokenizer_files(names: Iterable[str], tokenizer: str) -> dict[str, str]:
    """Return the files of the tokenizer that counts `tokens`, with their SHA-256; none if no tokens are counted."""
    from curation.tokens.vocabularies import vocabulary_files

    if TOKENS not in names or not tokenizer:
        return {}
    return {str(path): known_sha256(str(path)) for path in vocabulary_files(tokenizer) if path.is_file()}


def with_tokenizer(stage: AnyStage, tokenizer: str) -> AnyStage:
    """Return a stage of a recipe, with the recipe's tokenizer if the stage counts tokens and sets no tokenizer."""
    if getattr(stage, "tokenizer", None) == "" and TOKENS in getattr(stage, "measures", ()):
        return msgspec.structs.replace(stage, tokenizer=tokenizer)
    return stage
