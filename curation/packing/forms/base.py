# SPDX-License-Identifier: Apache-2.0
"""The base of output forms. A form is a structure of settings that writes itself, and a field of `Forms`."""

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
    """The settings of a form, and how the form is checked, written and reported.

    A setting `file_type` of `npy`, `pt` or `auto` is known here: `pt` files are int64 and need PyTorch.
    """

    name: ClassVar[str]  # of its settings in `output`, and of its folder
    pads: ClassVar[bool] = False  # whether `output.pad_id` has a meaning
    summary: ClassVar[type[msgspec.Struct]]  # what `report.json` must have of a split, for `numbers` and `lines`

    def settled(self) -> Self:
        """With `file_type: auto` decided: `pt` where PyTorch is installed, else `npy`."""
        if getattr(self, "file_type", "") != "auto":
            return self
        return msgspec.structs.replace(self, file_type="pt" if has_torch() else "npy")

    def file_dtype(self, tokenizer: Tokenizer) -> np.dtype:
        """Of the ids in the files; TokenizerError where the vocabulary does not fit. For settled settings."""
        return np.dtype(np.int64) if getattr(self, "file_type", "") == "pt" else tokenizer.dtype

    def needs_pad_id(self) -> bool:
        """Whether these settings fill rows up."""
        return False

    def check(self, tokenizer: Tokenizer) -> None:
        """Before a run begins: TokenizerError, OutputError for what `write` would meet at its end."""
        if getattr(self, "file_type", "") == "pt":
            require_torch(f"output.{self.name}.file_type: pt")
        self.file_dtype(tokenizer)

    def write(self, documents: Documents, folder: Path, split: str, dtype: np.dtype, pad_id: int) -> dict[str, Any]:
        """Writes the shards of a split into `folder`, with ids of `dtype` (of `file_dtype`). Gives the split's entry
        of the manifest: `files`, `documents` and counts. For settled settings."""
        raise NotImplementedError

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What `numbers` of the report has of the form, by the `summary` of each split."""
        return {}

    @classmethod
    def lines(cls, splits: Sequence[Mapping[str, Any]]) -> list[str]:
        """What is printed of the form below the funnel."""
        return []
