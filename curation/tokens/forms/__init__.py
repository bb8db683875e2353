# SPDX-License-Identifier: Apache-2.0
"""Output forms other than Megatron pairs. Each form is a folder of shards with a manifest; all are made from the same
token files."""

import msgspec

from curation.base.errors import nearest
from curation.tokens.forms.base import Form
from curation.tokens.forms.blocks import Blocks
from curation.tokens.forms.chunks import Chunks
from curation.tokens.forms.litdata import Litdata
from curation.tokens.forms.mds import Mds
from curation.tokens.forms.packed import Packed
from curation.tokens.forms.token_shards import TokenShards

MEGATRON = "megatron"


class Forms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """The token forms of a run and their settings: a part of `output`."""

    formats: tuple[str, ...] = (MEGATRON,)
    token_shards: TokenShards = TokenShards()
    blocks: Blocks = Blocks()
    chunks: Chunks = Chunks()
    packed: Packed = Packed()
    mds: Mds = Mds()
    litdata: Litdata = Litdata()
    pad_id: int = -1

    def __post_init__(self) -> None:
        for name in self.formats:
            if name not in OUTPUT_FORMATS:
                raise ValueError(f"no output format {name!r}{nearest(name, OUTPUT_FORMATS)}")
        if self.pad_id < -1:
            raise ValueError(f"pad_id must be at least -1, not {self.pad_id}")

    def chosen(self) -> list[Form]:
        """Return the settings of the forms in `formats`, in the order of FORMS, with defaults filled in."""
        return [getattr(self, name).with_defaults() for name in FORMS if name in self.formats]


FORMS: dict[str, type[Form]] = {
    form.name: form
    for form in (field.type for field in msgspec.structs.fields(Forms))
    if isinstance(form, type) and issubclass(form, Form)
}
OUTPUT_FORMATS = (MEGATRON, *FORMS)

__all__ = [
    "FORMS", "MEGATRON", "OUTPUT_FORMATS", "Blocks", "Chunks", "Form", "Forms", "Litdata", "Mds", "Packed",
    "TokenShards",
]  # fmt: skip
