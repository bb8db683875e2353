# SPDX-License-Identifier: Apache-2.0
"""Writes the forms that a recipe asks for. A form's manifest is written last: without it the form is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from curation import __version__
from curation.errors import TokenizerError
from curation.files import file_sha256, make_folder, remove, write_json
from curation.packing.forms import FORMS, blocks, chunks, packed, token_shards
from curation.packing.forms.documents import Documents
from curation.packing.forms.shards import MANIFEST, require_torch, settled
from curation.packing.tokenization import Tokenizer

if TYPE_CHECKING:
    from curation.recipe import Output

WRITERS: dict[str, Callable[..., dict[str, Any]]] = {
    "blocks": blocks.write, "chunks": chunks.write, "packed": packed.write,
}  # fmt: skip
TokenParts = Sequence[tuple[Path, Path]]


def chosen_forms(output: Output) -> list[str]:
    return [form for form in FORMS if form in output.formats]


def pad_id(output: Output, tokenizer: Tokenizer) -> int:
    """The id that fills up rows: `output.pad_id`, or the tokenizer's end-of-document; -1 where there is none."""
    if output.pad_id >= 0:
        return output.pad_id
    return -1 if tokenizer.eod is None else tokenizer.eod


def check_forms(output: Output, tokenizer: Tokenizer) -> None:
    """Raises, before a run begins, what the forms would stumble over at its end: a vocabulary too large for a dtype, a
    padding id that is not there, PyTorch missing for a `.pt` file."""
    vocabulary, forms = tokenizer.vocabulary, chosen_forms(output)
    if "token_shards" in forms:
        output.token_shards.chosen_dtype(vocabulary)
    if output.pad_id >= vocabulary:
        raise TokenizerError(f"output.pad_id is {output.pad_id}, the vocabulary ends at {vocabulary - 1}")
    pads = "packed" in forms or ("blocks" in forms and output.blocks.keep_last) or output.sample.batches
    if pads and pad_id(output, tokenizer) < 0:
        raise TokenizerError(
            f"rows are filled up with the end-of-document token, tokenizer {tokenizer.name!r} names none. Set "
            "output.pad_id"
        )
    for form in forms:
        if getattr(getattr(output, form), "file_type", "") == "pt":
            require_torch(f"output.{form}.file_type: pt")


def write_forms(
    output: Output, tokenizer: Tokenizer, parts: Mapping[str, TokenParts], folder: Path, seed: int | None = None
) -> dict[str, dict[str, Any]]:
    """Writes `DIR/<form>/` for each form; `parts` are the token parts of every split ("" without splits).

    Documents come in the order of the run, source after source; with a `seed` in a seeded order over all
    sources. Gives the manifest of each form. Whatever an earlier attempt left in a form's folder is deleted first.
    """
    forms = chosen_forms(output)
    if not forms:  # the tokens are not mapped for nothing
        return {}
    documents = {split: Documents(found, tokenizer.dtype, seed) for split, found in parts.items()}
    documents = {split: found for split, found in documents.items() if found.count}
    manifests = {}
    for form in forms:
        remove(folder / form)
        make_folder(folder / form)
        written = {name: _write(output, tokenizer, form, found, folder, name) for name, found in documents.items()}
        splits = {name or "train": content for name, content in written.items()}
        manifests[form] = _manifest(output, tokenizer, form) | {"splits": splits}
        write_json(folder / form / MANIFEST, manifests[form], indent=True)
    return manifests


def _write(
    output: Output, tokenizer: Tokenizer, form: str, documents: Documents, folder: Path, split: str
) -> dict[str, Any]:
    settings = settled(getattr(output, form))
    if form == "token_shards":
        dtype = settings.chosen_dtype(tokenizer.vocabulary)
        return token_shards.write(settings, documents, folder / form, split, dtype)
    return WRITERS[form](settings, documents, folder / form, split, pad_id(output, tokenizer))


def _manifest(output: Output, tokenizer: Tokenizer, form: str) -> dict[str, Any]:
    settings = settled(getattr(output, form))
    if form == "token_shards":
        dtype = settings.chosen_dtype(tokenizer.vocabulary).name
    else:
        dtype = "int64" if getattr(settings, "file_type", "npy") == "pt" else tokenizer.dtype.name
    return {
        "form": form,
        "version": __version__,
        "dtype": dtype,
        "vocabulary": tokenizer.vocabulary,
        "tokenizer": {"name": tokenizer.name, "sha256": tokenizer.digest},
        "pad_id": pad_id(output, tokenizer),
        "settings": msgspec.to_builtins(settings),
    }


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
