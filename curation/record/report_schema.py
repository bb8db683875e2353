# SPDX-License-Identifier: Apache-2.0
"""The schema of `report.json`, checked before the program uses a report.

The digest alone does not protect a report, because a program that can write to the folder can forge both. Unknown keys
are allowed, so that reports of other versions pass.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from curation import __version__
from curation.reading.source_files import SourceFile
from curation.recipes.recipe import Recipe
from curation.record.report_texts_schema import AllValues, ColumnGroups, Measured, MostRemoved, ReportTexts, RuleValues
from curation.stages import STAGES
from curation.tokens.blends import Blend, Megatron
from curation.tokens.forms import FORMS, OUTPUT_FORMATS
from curation.tokens.forms.base import Count
from curation.tokens.ordering import check_shares
from curation.tokens.samples import SAMPLE_FILES

RAW: str = "raw"
CLEANED: str = "cleaned"
CARD = "README.md"
EXPORTED = (RAW, CLEANED, *SAMPLE_FILES)

OUTPUT_NAMES: tuple[str, ...] = (
    "documents", "removed", "measures", "scores", "tokens", "index", "centroids", *FORMS, "rejected.jsonl", CARD,
    *EXPORTED,
)  # fmt: skip
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Documents(msgspec.Struct):
    read: Count
    copies: Count
    kept: Count
    removed: Count
    rejected: Count
    edited: Count = 0
    repaired: Count = 0


class _Bytes(msgspec.Struct):
    read: Count
    kept: Count


class _Stage(msgspec.Struct):
    kind: str
    name: str
    documents_in: Count
    documents_out: Count
    bytes_in: Count
    bytes_out: Count
    edited: Count
    reasons: dict[str, Count]
    seconds: float
    removes: bool
    compares: bool
    finds_duplicates: bool
    lines: list[str]
    details: dict[str, Any] = {}
    rules: list[RuleValues] = []
    groups: list[ColumnGroups] = []
    unit: str = ""  # of `unit_rules`: line, paragraph or sentence
    unit_rules: list[RuleValues] = []

    def __post_init__(self) -> None:
        if self.kind == "mix":
            msgspec.convert(self.details, _Mixed)
        if self.details.get("lengths"):
            msgspec.convert(self.details, _Cut)
        if self.unit_rules:
            msgspec.convert(self.details, _Units)


class _MixedGroup(msgspec.Struct):
    most_copies: Count


class _Mixed(msgspec.Struct):
    """The `details` of a stage `mix` that `verify` reads."""

    groups: list[_MixedGroup]


class _FrequentSpan(msgspec.Struct):
    count: Count
    bytes: Count
    text: str | None = None


class _Cut(msgspec.Struct):
    """The `details` of a stage that cuts repeated spans, which the page shows."""

    bytes: Count
    lengths: dict[str, tuple[Count, Count]]
    sources: dict[str, tuple[Count, Count]]
    frequent: list[_FrequentSpan]


class _Units(msgspec.Struct):
    """The `details` of a stage with rules on units, which the page shows."""

    units: Count


class _Source(msgspec.Struct):
    name: str
    documents_read: Count
    not_sampled: Count
    bytes_read: Count
    documents_kept: Count
    copies: Count
    bytes_kept: Count
    tokens: Count
    share_before: float
    share_after: float
    share_drawn: float = 0.0
    commit: str = ""
    licence: str = ""
    skipped: Count = 0
    not_pages: Count = 0
    other_records: dict[str, dict[str, Count]] = {}
    documents_split: Count = 0
    ended_by: str = ""
    blend_weight: Annotated[float, msgspec.Meta(gt=0)] | msgspec.UnsetType = msgspec.UNSET
    most_removed: MostRemoved | msgspec.UnsetType = msgspec.UNSET


class _Tokenizer(msgspec.Struct):
    name: str
    kind: str
    sha256: Digest = "0" * 64


class _Tokens(msgspec.Struct):
    count: Count
    documents: Count
    empty_documents: Count
    vocabulary: Count
    per_byte: float
    dtype: str
    tokenizer: _Tokenizer


# output format -> split -> summary
_Forms = msgspec.defstruct(
    "_Forms",
    [(name, dict[str, form.summary], {}) for name, form in FORMS.items()],  # type: ignore[name-defined]
    forbid_unknown_fields=True,
)


class _Numbers(msgspec.Struct):
    original: Count
    duplicates_removed: Count
    kept: Count
    final_bytes: Count
    short_removed: Count = 0
    shards: Count = 0


class _Input(msgspec.Struct):
    copies: Count


class _RecipeStage(msgspec.Struct):
    kind: str
    rules: str | list[Any] = []


class _Output(msgspec.Struct):
    formats: list[Literal[OUTPUT_FORMATS]]  # type: ignore[valid-type]  # they name folders
    splits: dict[str, float]
    keep_work: bool
    blend: Blend
    megatron: Megatron
    removed: Literal["text", "ids"]
    documents: bool | dict[str, bool]

    def __post_init__(self) -> None:
        check_shares(self.splits)


class _Drawn(msgspec.Struct):
    tokens: Count
    epochs: float


class _Phase(msgspec.Struct):
    name: str
    asked: Count
    tokens: Count
    inputs: dict[str, _Drawn]


class _Recipe(msgspec.Struct):
    name: str
    input: list[_Input]
    stages: list[_RecipeStage]
    output: _Output
    seed: Count


class _Report(msgspec.Struct):
    engine: str
    engine_reason: str
    recipe: _Recipe
    files: list[SourceFile]
    documents: _Documents
    bytes: _Bytes
    documents_digest: Digest
    stages: list[_Stage]
    sources: list[_Source]
    warnings: list[str]
    tokens: dict[str, Any]
    forms: _Forms  # type: ignore[valid-type]  # made of FORMS
    outputs: dict[str, Digest]
    seconds: float
    numbers: _Numbers
    funnel: str
    work_seconds: dict[str, float]
    versions: dict[str, str]
    batch_bytes: Count  # input bytes of a batch
    peak_memory_bytes: Count
    stage_files: dict[str, dict[str, Digest]]
    stage_revisions: dict[str, int]
    computed_with: dict[str, dict[str, str]]
    report_html: Digest
    tokenizer: dict[str, Any]
    values: AllValues
    texts: ReportTexts
    phases: list[_Phase] = []
    measured: list[Measured] = []  # reports up to 0.3 lack it

    def __post_init__(self) -> None:
        if self.tokens or self.recipe.output.formats:
            msgspec.convert(self.tokens, _Tokens)
        if len(self.stages) != len(self.recipe.stages):
            raise ValueError(f"{len(self.stages)} stages are counted, the recipe has {len(self.recipe.stages)}")
        if unknown := {entry.stage for entry in self.measured} - {stage.name for stage in self.stages}:
            raise ValueError(f"measured names the stage {min(unknown)!r}, which the recipe lacks")
        if "rejected.jsonl" not in self.outputs:
            raise ValueError("outputs lacks rejected.jsonl")
        for name in self.outputs:
            if not _is_output(name):
                raise ValueError(f"outputs names {name!r}, which a run does not write")


def _is_output(name: str) -> bool:
    """Return whether a name is the relative path of an output inside the run's folder."""
    parts = name.split("/")
    return parts[0] in OUTPUT_NAMES and not {"", ".", ".."} & {*parts} and "\0" not in name


def wrong_in_report(content: object) -> str:
    """Return what is wrong with the content of a `report.json`; "" if a run may have written it."""
    try:
        report = msgspec.convert(content, _Report)
        if report.versions.get("gpu-pipeline") == __version__ and isinstance(content, dict):
            _check_recipe(content["recipe"])
    except (msgspec.ValidationError, RecursionError) as error:
        return f"report.json is not what a run writes: {error}"
    return ""


def _check_recipe(recipe: dict[str, Any]) -> None:
    """Raise ValidationError if the recipe in a report of this version is not valid. Stages of other packages are not
    checked, because no module is imported."""
    entries = recipe["stages"]
    stages = [msgspec.convert(entry, STAGES[entry["kind"]]) for entry in entries if entry["kind"] in STAGES]
    if len(stages) == len(entries):
        msgspec.convert(recipe | {"stages": stages}, Recipe)
