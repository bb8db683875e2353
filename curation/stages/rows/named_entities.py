# SPDX-License-Identifier: Apache-2.0
"""Names and places for `redact`, found by a spaCy model in a local folder. Nothing is downloaded.

Each document is searched separately, in pieces of fixed size, so results do not depend on how documents are divided
into frames. Results may depend on the version of spaCy, so the version is part of the identity of a run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from curation.base.engine import give_threads_streams
from curation.base.errors import InputError, RecipeError, installation, near_or_nothing
from curation.base.system.files import known_sha256, read_json
from curation.base.system.packages import check_torch

CONFIG, META, FINDER = "config.cfg", "meta.json", "ner"
UNUSED = ("tagger", "parser", "senter", "attribute_ruler", "lemmatizer", "morphologizer", "textcat")
LABELS = {  # labels of spaCy's models, as Presidio maps them, with buildings as places
    "person": ("PERSON", "PER"),
    "location": ("GPE", "LOC", "FAC"),
    "organisation": ("ORG",),
}
MAX_CHARACTERS = 100_000  # of a piece: the model needs about 1 GB of memory for a million characters
LONG_WORD = re.compile(r"\S{200}(?=\S)")  # spaCy's rules take quadratic time: 32 s for 10,000 brackets
_LOCK = Lock()  # spaCy's vocabulary grows while a text is read


def model_files(folder: str) -> dict[str, str]:
    """Return the files of a model: path -> SHA-256. Raises InputError for a folder without a spaCy model."""
    root = Path(folder)
    if not os.path.isdir(root):  # is_dir raises an error for a name that is too long
        raise InputError(f"model {folder!r} is not a folder, expected the folder of a spaCy model with {CONFIG}")
    if not (root / CONFIG).is_file():
        inside = [path.parent for path in sorted(root.glob(f"*/{CONFIG}"))]
        hint = f"; did you mean {inside[0]}?" if inside else ". Give the folder of a spaCy model"
        raise InputError(f"the folder {folder} has no {CONFIG}{hint}")
    return {str(path): known_sha256(str(path)) for path in sorted(root.rglob("*")) if path.is_file()}


def check_entities(entities: Sequence[str], model: str) -> None:
    """Raise ValueError for wrong settings."""
    for name in entities:
        if name not in LABELS:
            hint = near_or_nothing(name, LABELS) or f"; it is one of {', '.join(LABELS)}"
            raise ValueError(f"entities: no entity {name!r}{hint}")
    if entities and not model:
        raise ValueError("entities need a model: set model to the folder of a spaCy model. None is downloaded")
    if model and not entities:
        raise ValueError(f"model is set, but entities is empty; list one or more of {', '.join(LABELS)}")


def facts(folder: str) -> dict[str, str]:
    """Return the versions of spaCy and of the model."""
    meta = read_json(Path(folder) / META) or {}
    installed = version("spacy") if find_spec("spacy") else "missing"
    return {"spacy": installed, "model": f"{meta.get('lang')}_{meta.get('name')} {meta.get('version')}"}


@lru_cache(maxsize=2)
def _load(folder: str) -> Any:
    model_files(folder)
    check_torch()  # spaCy loads its networks with PyTorch
    give_threads_streams()
    try:
        import spacy
    except ImportError as error:
        raise RecipeError(
            f"entities need the package spacy, which cannot be imported ({error}). Run: {installation('pii')}"
        ) from None
    try:
        nlp = spacy.load(Path(folder), exclude=list(UNUSED))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"the model in {folder} cannot be loaded: {reason}. Give a model of spaCy 3") from None
    if FINDER not in nlp.pipe_names:
        raise InputError(
            f"the model in {folder} finds no names: it has {', '.join(nlp.pipe_names) or 'no parts'}, expected {FINDER}"
        )
    return nlp


def check_model(folder: str, entities: Sequence[str]) -> None:
    """Raise RecipeError if spaCy is missing, InputError if the model cannot find the entities."""
    known = {*_load(folder).pipe_labels[FINDER]}
    for name in entities:
        if not known & {*LABELS[name]}:
            raise InputError(f"the model in {folder} has no label for {name}; it has {', '.join(sorted(known))}")


def find_entities(text: str, folder: str, entities: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the entities in a text: position of the first character, position after the last, and the entity's name."""
    names = {label: name for name in entities for label in LABELS[name]}
    with _LOCK:
        nlp = _load(folder)
        for start, piece in _pieces(text):
            with nlp.memory_zone():  # frees the words that the vocabulary has learnt
                found = [(span.start_char, span.end_char, span.label_) for span in nlp(_tokens(nlp, piece)).ents]
            yield from ((start + low, start + high, names[label]) for low, high, label in found if label in names)


def _tokens(nlp: Any, piece: str) -> Any:
    """Return the tokens of a piece. Long words are cut, so that spaCy's rules for the ends of words read at most 200
    characters."""
    from spacy.tokenizer import Tokenizer
    from spacy.tokens import Doc

    cuts = [match.end() for match in LONG_WORD.finditer(piece)]
    if not (cuts and isinstance(nlp.tokenizer, Tokenizer)):
        return nlp.make_doc(piece)
    parts = [piece[low:high] for low, high in zip([0, *cuts], [*cuts, len(piece)], strict=True)]
    return Doc.from_docs([nlp.make_doc(part) for part in parts], ensure_whitespace=False)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a text, each with the position of its first character. If possible, a piece ends after a line
    end or a space."""
    start = 0
    while start < len(text):
        stop = start + MAX_CHARACTERS
        if stop < len(text):
            cut = max(text.rfind("\n", start, stop), text.rfind(" ", start + MAX_CHARACTERS // 2, stop))
            stop = cut + 1 if cut > start else stop
        yield start, text[start:stop]
        start = stop
