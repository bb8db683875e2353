# SPDX-License-Identifier: Apache-2.0
"""Write the forms of a recipe, each into its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from curation import __version__
from curation.base.errors import TokenizerError
from curation.base.system.files import commit_folder, file_sha256, write_json
from curation.tokens.forms import FORMS, Form, Forms
from curation.tokens.forms.documents import TokenizedDocuments
from curation.tokens.forms.shards import MANIFEST
from curation.tokens.tokenization import Tokenizer

if TYPE_CHECKING:
    from curation.recipes.recipe import Output

TokenParts = Sequence[tuple[Path, Path]]  # paths (ids, lengths)


def pad_id(forms: Forms, tokenizer: Tokenizer) -> int:
    """Return the id that pads rows: `output.pad_id`, else the tokenizer's padding token, else its end-of-document
    token, else -1."""
    known = (forms.pad_id if forms.pad_id >= 0 else None, tokenizer.pad, tokenizer.eod)
    return next((token for token in known if token is not None), -1)


def check_forms(output: Output, tokenizer: Tokenizer) -> None:
    """Raise, before a run, the errors that the forms would raise at the end of the run.

    TokenizerError: a vocabulary too large for a dtype, or a missing padding id. OutputError: `pt` without PyTorch.
    """
    forms, fill = output.chosen(), pad_id(output, tokenizer)
    if fill >= tokenizer.vocabulary and any(form.pads for form in forms):
        name = "output.pad_id" if output.pad_id >= 0 else f"the padding token of tokenizer {tokenizer.name!r}"
        raise TokenizerError(
            f"{name} is {fill}, expected at most {tokenizer.vocabulary - 1}, the largest id. Set output.pad_id"
        )
    if fill < 0 and (any(form.needs_pad_id() for form in forms) or output.sample.batches):
        raise TokenizerError(
            f"rows are padded with the padding token or the end-of-document token, tokenizer {tokenizer.name!r} names "
            "none. Set output.pad_id"
        )
    for form in forms:
        form.check(tokenizer)


def write_forms(
    forms: Forms,
    tokenizer: Tokenizer,
    token_parts: Mapping[str, TokenParts],
    folder: Path,
    seed: int | None = None,
    only: str = "",
) -> dict[str, dict[str, Any]]:
    """Write `<folder>/<form>/` for each form and return form -> manifest.

    token_parts  split -> token files; the key is "" in a run without splits
    seed         seed of an order over the documents of all inputs. None: the order of the run, input after input
    only         name of the one form to write; "" writes all

    A folder that exists is kept. RecipeError: a split too small for a form.
    """
    chosen = [form for form in forms.chosen() if only in ("", form.name)]
    if not chosen:  # without a form, do not map the token files
        return {}
    documents = {split: TokenizedDocuments(files, tokenizer.dtype, seed) for split, files in token_parts.items()}
    documents = {split: content for split, content in documents.items() if content.count}
    fill = pad_id(forms, tokenizer)
    return {form.name: _write_form(form, tokenizer, documents, folder / form.name, fill) for form in chosen}


def _write_form(
    form: Form, tokenizer: Tokenizer, documents: Mapping[str, TokenizedDocuments], folder: Path, fill: int
) -> dict[str, Any]:
    """Write the folder of a form as a whole and return its manifest. A folder of an earlier attempt is kept."""
    dtype = form.file_dtype(tokenizer)
    with commit_folder(folder) as temporary:
        manifest = _write_files(form, tokenizer, documents, temporary, dtype, fill)
    return manifest


def _write_files(
    form: Form,
    tokenizer: Tokenizer,
    documents: Mapping[str, TokenizedDocuments],
    folder: Path,
    dtype: np.dtype,
    fill: int,
) -> dict[str, Any]:
    manifest = {
        "form": form.name,
        "version": __version__,
        "dtype": dtype.name,
        "vocabulary": tokenizer.vocabulary,
        "tokenizer": {"name": tokenizer.name, "sha256": tokenizer.digest},
        "pad_id": fill,
        "settings": msgspec.to_builtins(form),
        "splits": {
            split or "train": form.write(content, folder, split, dtype, fill) for split, content in documents.items()
        },
    }
    write_json(folder / MANIFEST, manifest, indent=True)
    return manifest


def digests(manifests: Mapping[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """Return path in the run's folder -> SHA-256, for every file of every form."""
    hashes = {f"{form}/{MANIFEST}": file_sha256(folder / form / MANIFEST) for form in manifests}
    for form, manifest in manifests.items():
        for split in manifest["splits"].values():
            hashes |= {f"{form}/{file['file']}": file["sha256"] for file in split["files"]}
    return hashes


def summaries(manifests: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return form -> split -> summary for `report.json`: the manifest's entries, with the number of files, and the
    count of each shard by its name."""
    return {
        form: {
            split: content | {"files": len(content["files"]), "shards": shards(FORMS[form], content)}
            for split, content in manifest["splits"].items()
        }
        for form, manifest in manifests.items()
    }


def shards(form: type[Form], content: Mapping[str, Any]) -> dict[str, int]:
    """Return the shards of a split, by its entry of the manifest: name -> count of the form's `unit`."""
    return {file["file"]: file[form.unit] for file in content["files"] if form.unit in file}
