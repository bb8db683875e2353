# SPDX-License-Identifier: Apache-2.0
"""Writes the forms that a recipe asks for, each into a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from curation import __version__
from curation.errors import TokenizerError
from curation.files import file_sha256, make_folder, remove, write_json
from curation.packing.forms import Form, Forms
from curation.packing.forms.documents import Documents
from curation.packing.forms.shards import MANIFEST
from curation.packing.tokenization import Tokenizer

if TYPE_CHECKING:
    from curation.recipe import Output

TokenParts = Sequence[tuple[Path, Path]]


def pad_id(forms: Forms, tokenizer: Tokenizer) -> int:
    """The id that fills up rows: `output.pad_id`, or the tokenizer's end-of-document; -1 where there is none."""
    if forms.pad_id >= 0:
        return forms.pad_id
    return -1 if tokenizer.eod is None else tokenizer.eod


def check_forms(output: Output, tokenizer: Tokenizer) -> None:
    """Raises, before a run begins, what the forms would meet at its end: a vocabulary too large for a dtype, a padding
    id that is not there, PyTorch missing for a `.pt` file."""
    vocabulary, forms = tokenizer.vocabulary, output.chosen()
    if output.pad_id >= vocabulary:
        raise TokenizerError(f"output.pad_id is {output.pad_id}, the vocabulary ends at {vocabulary - 1}")
    needed = any(form.needs_pad_id() for form in forms) or output.sample.batches
    if needed and pad_id(output, tokenizer) < 0:
        raise TokenizerError(
            f"rows are filled up with the end-of-document token, tokenizer {tokenizer.name!r} names none. Set "
            "output.pad_id"
        )
    for form in forms:
        form.check(tokenizer)


def write_forms(
    forms: Forms, tokenizer: Tokenizer, parts: Mapping[str, TokenParts], folder: Path, seed: int | None = None
) -> dict[str, dict[str, Any]]:
    """Writes `DIR/<form>/` for each form; `parts` are the token parts of every split ("" without splits).

    Documents come in the order of the run, source after source; with a `seed` in a seeded order over all
    sources. Gives the manifest of each form. Whatever an earlier attempt left in a form's folder is deleted first.
    """
    chosen = forms.chosen()
    if not chosen:  # the tokens are not mapped for nothing
        return {}
    documents = {split: Documents(found, tokenizer.dtype, seed) for split, found in parts.items()}
    documents = {split: found for split, found in documents.items() if found.count}
    fill = pad_id(forms, tokenizer)
    return {form.name: _write(form, tokenizer, documents, folder / form.name, fill) for form in chosen}


def _write(
    form: Form, tokenizer: Tokenizer, documents: Mapping[str, Documents], folder: Path, fill: int
) -> dict[str, Any]:
    """The folder of a form; gives its manifest, which is written last: without it the form is not there."""
    remove(folder)
    make_folder(folder)
    dtype = form.file_dtype(tokenizer)
    manifest = {
        "form": form.name,
        "version": __version__,
        "dtype": dtype.name,
        "vocabulary": tokenizer.vocabulary,
        "tokenizer": {"name": tokenizer.name, "sha256": tokenizer.digest},
        "pad_id": fill,
        "settings": msgspec.to_builtins(form),
        "splits": {
            split or "train": form.write(found, folder, split, dtype, fill) for split, found in documents.items()
        },
    }
    write_json(folder / MANIFEST, manifest, indent=True)
    return manifest


def digests(manifests: Mapping[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """Path in the run's folder -> SHA-256 of every file of every form."""
    found = {f"{form}/{MANIFEST}": file_sha256(folder / form / MANIFEST) for form in manifests}
    for form, manifest in manifests.items():
        for split in manifest["splits"].values():
            found |= {f"{form}/{file['file']}": file["sha256"] for file in split["files"]}
    return found


def summaries(manifests: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What `report.json` says of each form: its splits without the names of files."""
    return {
        form: {
            split: {key: value for key, value in content.items() if key != "files"} | {"files": len(content["files"])}
            for split, content in manifest["splits"].items()
        }
        for form, manifest in manifests.items()
    }
