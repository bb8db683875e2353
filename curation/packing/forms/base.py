# SPDX-License-Identifier: Apache-2.0
"""Base of output forms. A form is a structure of settings with methods that write the form, and a field of `Forms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import msgspec
import numpy as np

from curation.packing.forms.documents import Documents
from curation.packing.forms.shards import has_torch, require_torch

if TYPE_CHECKING:
    from curation.packing.tokenization import Tokenizer

Count = Annotated[int, msgspec.Meta(ge=0)]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a form, with methods to check, write and report the form.

    A subclass may have a setting `file_type`: `npy`, `pt` or `auto`. `pt` files are int64 and need PyTorch.

    name     key of the settings in `output`, and name of the folder
    pads     whether the form uses `output.pad_id`. Default: False
    summary  fields that `report.json` has for each split; `numbers` and `lines` read them
    """

    name: ClassVar[str]
    pads: ClassVar[bool] = False
    summary: ClassVar[type[msgspec.Struct]]

    def with_defaults(self) -> Self:
        """Return the settings with `file_type: auto` resolved: `pt` if PyTorch is installed, else `npy`."""
        if getattr(self, "file_type", "") != "auto":
            return self
        return msgspec.structs.replace(self, file_type="pt" if has_torch() else "npy")

    def file_dtype(self, tokenizer: Tokenizer) -> np.dtype:
        """Return the dtype of the ids in the files, for settings from `with_defaults`.

        The base class returns int64 for `pt`, else the tokenizer's dtype. TokenizerError: the vocabulary does not fit.
        """
        return np.dtype(np.int64) if getattr(self, "file_type", "") == "pt" else tokenizer.dtype

    def needs_pad_id(self) -> bool:
        """Return whether these settings pad rows. Default: False."""
        return False

    def check(self, tokenizer: Tokenizer) -> None:
        """Raise before a run what `write` would raise at its end.

        TokenizerError: the vocabulary does not fit. OutputError: `file_type: pt` without PyTorch.
        """
        if getattr(self, "file_type", "") == "pt":
            require_torch(f"output.{self.name}.file_type: pt")
        self.file_dtype(tokenizer)

    def write(self, documents: Documents, folder: Path, split: str, dtype: np.dtype, pad_id: int) -> dict[str, Any]:
        """Write the shards of a split, for settings from `with_defaults`, and return its entry of the manifest.

        documents  documents with tokens of the split
        folder     folder of the form
        split      name of the split, "" in a run without splits
        dtype      dtype of the ids in the files, from `file_dtype`
        pad_id     id that fills rows up, -1 if there is none

        The entry has `files` (see `shards.entry`), `documents` and counts of the form. RecipeError: the settings leave
        nothing to write.
        """
        raise NotImplementedError

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the form's entries in `numbers` of the report, from the `summary` fields of each split."""
        return {}

    @classmethod
    def lines(cls, splits: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the lines that the console prints below the funnel."""
        return []
