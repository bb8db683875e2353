# SPDX-License-Identifier: Apache-2.0
"""Base class of output forms. A form is a class of settings, with methods that write the form; `Forms` has a field for
each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import msgspec
import numpy as np

from curation.base.errors import counted
from curation.tokens.forms.documents import TokenizedDocuments
from curation.tokens.forms.shards import NUMBER, has_torch, require_torch

if TYPE_CHECKING:
    from curation.tokens.tokenization import Tokenizer

Count = Annotated[int, msgspec.Meta(ge=0)]


class SplitSummary(msgspec.Struct, kw_only=True):
    """Fields of a split in `report.json` that every form has."""

    shards: dict[str, Count] = {}  # name -> count of the form's unit; reports up to 0.3 lack it


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a form, with methods to check, write and report the form.

    A subclass may have a setting `file_type`: `npy`, `pt` or `auto`. `pt` files are int64 and need PyTorch.

    name        key of the settings in `output`, and name of the folder
    unit        the items of a shard, such as `blocks`; also the key of their count in the manifest
    pads        whether the form uses `output.pad_id`. Default: False
    nested      whether each split has a folder. Default: False
    summary     fields that `report.json` has for each split; `numbers` and `lines` read them
    shard_name  name of shards without suffix. `{split}` is the split, and `{number}` (`{number:05}` with zeros) the
                number of the shard. Without it, the first shard has the plain name, and later shards add `_1`, `_2`
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    pads: ClassVar[bool] = False
    nested: ClassVar[bool] = False
    summary: ClassVar[type[SplitSummary]]

    shard_name: str = "{split}_{number:05}"

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
        """Raise, before a run, the errors that `write` would raise at the end of the run.

        TokenizerError: the vocabulary does not fit. OutputError: `file_type: pt` without PyTorch.
        """
        if getattr(self, "file_type", "") == "pt":
            require_torch(f"output.{self.name}.file_type: pt")
        self.file_dtype(tokenizer)

    def shard_path(self, folder: Path, split: str, number: int, suffix: str) -> Path:
        """Return the path of a shard, such as `train_00000.npy`. A run without splits is named `train`."""
        name = self.shard_name.format(split=split or "train", number=number)
        return folder / f"{name}{f'_{number}' if number and NUMBER not in self.shard_name else ''}{suffix}"

    def shown_size(self, file: str, count: int) -> str:
        """Return the size of a shard with `count` of `unit` as text. The base class returns the count itself."""
        return counted(count, self.unit.removesuffix("s"))

    def open_shard(self, path: Path, dtype: np.dtype, count: int) -> Sequence[np.ndarray]:
        """Return the rows of a shard, memory-mapped: ids of shape (tokens,).

        dtype  of the ids, from the manifest
        count  of `unit` in the shard, from the manifest

        OutputError: a `.pt` file without PyTorch. IntegrityError: a damaged file, or another count.
        """
        raise NotImplementedError

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
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
