# SPDX-License-Identifier: Apache-2.0
"""The recipe: inputs, stages and outputs of a run. A recipe is one YAML file, or the same structures in Python."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from curation.base.contract import ID
from curation.base.engine import PACKAGES
from curation.base.errors import RecipeError, nearest
from curation.base.system.html_table import html_table
from curation.base.system.os_errors import explain
from curation.base.system.path_advice import advice
from curation.kernels.word_breaks import SPACES
from curation.reading.inputs import AnyInput, Budget, entries_by_name, list_inputs, with_kinds
from curation.reading.paths import split_suffix
from curation.reading.source_files import CarriedColumn
from curation.reading.split_settings import SEPARATOR
from curation.reading.urls import shown
from curation.recipes.advice import advice_for, refuse_hydra
from curation.recipes.exports import check_columns, check_export, export_format
from curation.recipes.form_settings import formats_of_settings
from curation.recipes.mixing import check_mix
from curation.recipes.optional import leave_out
from curation.recipes.settings import apply_settings, expand_shorthands
from curation.recipes.yaml_text import MAX_BYTES, parse_yaml
from curation.stages import Stage
from curation.stages.base import added_columns, stage_names
from curation.stages.invoke import saves_index
from curation.stages.own_code import as_json, convert_stage, stage_from_job
from curation.stages.rows.token_counts import with_tokenizer
from curation.stages.words import check_words, with_words
from curation.tokens.blends import Blend, Megatron
from curation.tokens.forms import Forms
from curation.tokens.forms.shards import SPLIT as SHARD_SPLIT
from curation.tokens.joining import DEFAULT_MAX_BYTES
from curation.tokens.ordering import SPLIT, SPLITS, check_shares
from curation.tokens.samples import Sample
from curation.tokens.tokenization import TokenizerSpec

if TYPE_CHECKING:
    Stages = list[Stage]
else:
    Stages = list[Any]  # msgspec would convert to the base class; `convert_stage` knows all stages

REMOVED = ("text", "ids")
MAX_SAMPLES = 20
SHOWN_INPUTS, SHOWN_STAGES, SHOWN_CHARS = 2, 6, 90  # in a notebook: ten lines, with the title and the tokenizer
DEFAULT_RECIPE = "default"
AMBIGUOUS_SUFFIXES = (".json", ".txt")  # of data and of recipes
MAX_AMBIGUOUS_BYTES = 1 << 20  # a larger file with such a suffix is data
SURROGATE = re.compile(r"[\ud800-\udfff]")


class ShuffledDocuments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `documents/` is written.

    shuffle   in the order of `output.shuffle`, in shards of about 250 million characters with row groups of 1,024
              documents; the last file is the split `valid`
    """

    shuffle: bool


class Output(Forms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outputs of a run besides `documents/` and `removed/`.

    formats              `megatron` (`tokens/*.bin`, `.idx`), `token_shards`, `blocks`, `chunks`, `packed`, `mds`,
                         `litdata` (one folder each); an empty list writes no tokens
    shuffle              shuffle documents by `seed` before packing: in `tokens/` within each input, in the other forms
                         across all inputs
    splits               shares of `train`, `valid`, `test`; a hash of the text chooses a document's split. Empty: no
                         splits. `documents/` has it in the column `split`
    blend, megatron      weights and settings in `tokens/_meta/`
    token_shards, blocks, chunks, packed, mds, litdata   settings of the forms
    pad_id               token that fills up rows; -1: the padding token of the tokenizer, or else the
                         end-of-document token
    max_file_bytes       size limit of a `.bin` file; the document that would exceed it starts the next file
    part_bytes, part_documents   text bytes and documents per file in `documents/`
    documents            `true`: write `documents/`. `false`, for tokens alone: `show`, `verify` and `compare` cannot
                         read the kept documents. `{shuffle: true}`, for nanochat: in the order of `shuffle`, in shards
                         of which the last is the split `valid`
    parquet              what encodes `documents/` and `removed/`: `cpu`; or `gpu`, the device of the GPU engine, with
                         the same rows and other bytes. The CPU engine writes the same bytes for both
    index                write `index/`: the keys of documents kept by `exact_dedup` and `fuzzy_dedup`, of their lines
                         by `line_dedup`, the vectors of those kept by `semantic_dedup`. A later run that names the
                         folder as the `index` of such a stage removes duplicates of them
    keep_work            keep `_work/` after success
    removed              `text`: `removed/` has each text as it reached the stage that removed it, and the bound that
                         its value broke; `ids`: it has neither
    measures             write `measures/`: the measures that filters computed, for every document that reached one
    scores               write `scores/`: scores and vectors of models, for every text that reached the stage, so that a
                         later run can take them (`curate run --reuse`)
    raw, cleaned         `jsonl`, `jsonl.gz`, `jsonl.zst`, `csv` or `parquet`: documents as read in `raw/`, as kept in
                         `cleaned/`; "" for none. A file name, such as `clean_dataset.jsonl`: one file of that name in
                         the folder
    join                 `id`: a row of `cleaned/` is a document again, the text of its kept parts in their order. For
                         inputs with `split`
    join_separator       text between two parts of a joined document; left out: what was there in the document
    export_columns       columns of `raw/` and `cleaned/`, such as `[text]`; empty: all
    sample               sample batches of the chunks for inspection, in `sample_dataset.pt`
    """

    shuffle: bool = False
    max_file_bytes: int = DEFAULT_MAX_BYTES
    part_bytes: int = 32_000_000
    part_documents: int = 100_000
    documents: bool | ShuffledDocuments = True
    parquet: str = "cpu"
    index: bool = False
    keep_work: bool = False
    removed: str = "text"
    measures: bool = False
    scores: bool = True
    splits: dict[str, float] = msgspec.field(default_factory=dict)
    blend: Blend = Blend()
    megatron: Megatron = Megatron()
    raw: str = ""
    cleaned: str = ""
    join: str = ""
    join_separator: str | msgspec.UnsetType = msgspec.UNSET
    export_columns: tuple[str, ...] = ()
    sample: Sample = Sample()

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("raw", "cleaned"):
            check_export(field, getattr(self, field))
        if self.export_columns and not (self.raw or self.cleaned):
            raise ValueError("export_columns is set, but neither raw nor cleaned is. Leave it out, or set one of them")
        if self.join not in ("", ID):
            raise ValueError(f"join must be {ID}, not {self.join!r}")
        if self.join and not self.cleaned:
            raise ValueError("join is how cleaned/ is written, and cleaned is not set. Set cleaned: jsonl")
        if self.join_separator is not msgspec.UNSET and not self.join:
            raise ValueError(f"join_separator needs join: {ID}. Set it, or leave join_separator out")
        for name in (SEPARATOR, SPLIT):
            if self.join and name in self.export_columns:
                raise ValueError(f"export_columns has {name!r}, which joined documents lack. Leave it out")
        if self.removed not in REMOVED:
            raise ValueError(f"removed must be {' or '.join(REMOVED)}, not {self.removed!r}")
        if self.parquet not in PACKAGES:
            raise ValueError(f"parquet must be {' or '.join(PACKAGES)}, not {self.parquet!r}")
        check_shares(self.splits)
        self._check_void()
        if isinstance(self.documents, ShuffledDocuments) and not self.documents.shuffle:
            msgspec.structs.force_setattr(self, "documents", True)
        self._check_shuffled_documents()
        for form in self.chosen() if len(self.splits) > 1 else ():
            if SHARD_SPLIT not in form.shard_name and not form.nested:
                raise ValueError(
                    f"{form.name}.shard_name must have {SHARD_SPLIT} where output has splits, not {form.shard_name!r}"
                )
        if not self.documents and not self.formats:
            raise ValueError(
                "documents is false and formats is empty, so the run would write neither documents nor tokens. Name a "
                "format, or leave documents out"
            )
        if not self.documents and self.cleaned:
            raise ValueError("cleaned has the rows of documents/, and documents is false. Leave one of them out")
        for field, low in (
            ("max_file_bytes", 1),
            ("part_bytes", 1),
            ("part_documents", 1),
        ):
            if getattr(self, field) < low:
                raise ValueError(f"{field} must be at least {low}, not {getattr(self, field)}")

    @property
    def keeps_removed_text(self) -> bool:
        """Whether `removed/` has the texts of the documents."""
        return self.removed == "text"

    @property
    def shuffles_documents(self) -> bool:
        """Whether `documents/` is in the order of `shuffle`."""
        return isinstance(self.documents, ShuffledDocuments)  # `{shuffle: false}` became true

    def _check_shuffled_documents(self) -> None:
        """Raise ValueError for settings that do not fit `documents: {shuffle: true}`."""
        if not self.shuffles_documents:
            return
        if not self.shuffle:
            raise ValueError(
                "documents.shuffle takes the order of output.shuffle, and shuffle is false. Set shuffle: true"
            )
        if {*self.splits} != {*SPLITS[:2]}:
            raise ValueError(
                "documents.shuffle writes the split valid to the last file and train to the others, so splits must be "
                f"train and valid, such as {{train: 0.99, valid: 0.01}}, not {self.splits}"
            )
        for field, wrong in (("cleaned", self.cleaned), ("parquet: gpu", self.parquet == "gpu")):
            if wrong:
                raise ValueError(f"documents.shuffle cannot be combined with {field}. Leave one of them out")

    def _check_void(self) -> None:
        """Raise ValueError for a setting that has no effect with these formats."""
        for field, wanted in formats_of_settings().items():
            in_documents = field == "splits" and self.documents
            if getattr(self, field) != _default(field) and not in_documents and not {*wanted} & {*self.formats}:
                raise ValueError(f"{field} is set, but formats has no {' or '.join(wanted)}")
        if self.splits and self.megatron.splits_string != Megatron().splits_string:
            raise ValueError("megatron.splits_string has no meaning with splits; leave one of them out")


@cache
def _default(field: str) -> Any:
    entry = {entry.name: entry for entry in msgspec.structs.fields(Output)}[field]
    return entry.default_factory() if entry.default is msgspec.NODEFAULT else entry.default


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of `report.html` and `report.json`, and of what a run prints at its end.

    samples   removed documents to show for each reason, kept documents, and pairs of duplicates; 0 keeps all texts out
    summary   print the totals and the saved files at the end of a run, as `--verbose` does
    """

    samples: int = 5
    summary: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.samples <= MAX_SAMPLES:
            raise ValueError(f"samples must be from 0 (no texts in the report) to {MAX_SAMPLES}, not {self.samples}")


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run: inputs, stages and outputs.

    input, budget   inputs to read; the budget limits all inputs together
    columns         fields to copy to `documents/` of every input that has no `columns` of its own, such as `[url]`
    stages          stages that each document passes, in this order; `[]` keeps all documents as they are
    words           what a word is, for all stages that speak of words: `spaces`, `scripts` or `table`
    seed            seed of the `sample` of inputs, of `output.splits` and of `output.shuffle`
    report          contents of the report
    left_out        optional stages that a `when` has left out, and the settings that they need; the program writes it
    """

    input: list[AnyInput] = []
    columns: list[str] | dict[str, str | CarriedColumn] = []
    name: str = ""
    stages: Stages = []
    tokenizer: TokenizerSpec = TokenizerSpec()
    words: str = SPACES
    output: Output = Output()
    seed: int = 1234
    budget: Budget = Budget()
    report: Report = Report()
    left_out: list[str] = []

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")
        self.check_entries()
        if self.columns:
            given = [entry if entry.columns else replace(entry, columns=self.columns) for entry in self.input]
            msgspec.structs.force_setattr(self, "input", given)
        check_words(self.words)
        stages = [with_words(with_tokenizer(s, self.tokenizer.name), self.words) for s in self.stages]
        msgspec.structs.force_setattr(self, "stages", stages)
        if twice := [name for name, count in Counter(self.stage_names).items() if count > 1]:
            raise ValueError(f"two stages are named {twice[0]!r}; set name: of each to a different value")
        self._check_columns()
        self._check_weights()
        check_mix(self.stages, self.stage_names, self.input, self.tokenizer, bool(self.output.formats))
        for wrong in _wrong_values(msgspec.to_builtins(self), ""):
            raise ValueError(wrong)
        if self.output.index and not [stage for stage in self.stages if saves_index(stage)]:  # each may refuse
            raise ValueError(
                "output.index needs exact_dedup, line_dedup, substring_dedup, fuzzy_dedup or semantic_dedup, and no "
                "stage is one. Add a stage"
            )

    def check_entries(self) -> None:
        """Raise RecipeError for entries of `input` that are no inputs and of `stages` that are no stages, also if the
        lists were changed."""
        if not isinstance(self.input, list) or not all(isinstance(entry, AnyInput) for entry in self.input):
            raise RecipeError(
                f"input takes a list of inputs, not {self.input!r}. Write input=[curation.Input(PATH)], or give the "
                "path to curation.run(recipe, output, input=PATH)"
            )
        if not isinstance(self.stages, list | tuple):
            raise RecipeError(f"stages takes a list of stages, not {self.stages!r}")
        for stage in self.stages:
            if not isinstance(stage, Stage):
                raise RecipeError(f"stages takes stages, such as curation.ExactDedup(), not {_shown_entry(stage)}")

    @property
    def column_types(self) -> dict[str, str]:
        """Carried column -> its declared type in `documents/`; other columns are strings."""
        return {name: kind for entry in self.input for name, kind in entry.types.items()}

    def _check_columns(self) -> None:
        """Raise ValueError for an input with a column that a stage writes, and for a column with two types."""
        types = self.column_types
        for entry in self.input if types else ():
            own_types = entry.types
            for name in entry.carried:
                if (own := own_types.get(name, "string")) != types.get(name, "string"):
                    raise ValueError(
                        f"columns of {shown(entry.path)} has {name!r} with the type {own}, and another input with the "
                        f"type {types[name]}. Declare the same type"
                    )
        written = {name: stage.kind for stage in reversed(self.stages) for name in stage.writes()}
        for entry in self.input if written else ():
            for name, field in entry.carried.items():
                if name in written:
                    raise ValueError(
                        f"columns of {shown(entry.path)} has {name!r}, which the stage {written[name]} writes; leave "
                        f"it out, give it another name, such as columns: {{input_{name}: {field}}}, or change the "
                        "settings of the stage"
                    )
        for entry in self.input if self.output.splits else ():
            if SPLIT in entry.carried:
                raise ValueError(
                    f"columns of {shown(entry.path)} has {SPLIT!r}, which output.splits writes; leave one of them out, "
                    f"or give the column another name: columns: {{input_{SPLIT}: {entry.carried[SPLIT]}}}"
                )
        for stage in self.stages if self.output.splits else ():
            if SPLIT in stage.writes():
                raise ValueError(
                    f"the stage {stage.kind} writes the column {SPLIT!r}, and so does output.splits. Give the column "
                    "of the stage another name, or leave splits out"
                )
        for name, kind in added_columns(self.stages).items():
            if self.output.parquet == "gpu" and "[" in kind:
                raise ValueError(
                    f"output.parquet: gpu cannot write {name!r}, a column of vectors. Leave parquet out, which encodes "
                    "documents/ on the processors"
                )
            is_exported = name in (self.output.export_columns or [name])
            if self.output.cleaned and export_format(self.output.cleaned) == "csv" and "[" in kind and is_exported:
                raise ValueError(
                    f"output.cleaned: csv cannot hold {name!r}, a column of vectors. Give cleaned: jsonl or parquet, "
                    "or export_columns without it"
                )
        if self.output.join and self.input and not self.split_inputs:
            raise ValueError(
                "output.join joins the parts of documents, and no input has split. Set split of an input, such as "
                'split: {at: "\\n\\n"}, or leave join out'
            )
        if self.input:
            carried = [name for entry in self.input for name in entry.output_columns]
            added = [*added_columns(self.stages), *([SPLIT] if self.output.splits else [])]
            check_columns(self.output.export_columns, bool(self.output.raw), carried, added)

    def _check_weights(self) -> None:
        """Raise ValueError if some inputs have a `blend_weight` and others have none, and for unknown inputs in phases
        of a blend."""
        names = [*entries_by_name(self.input)]
        for phase in self.output.blend.phases if self.input else ():
            for name in (name for name in phase.weights if name not in names):
                raise ValueError(
                    f"output.blend.phases: phase {phase.name} has a weight for {name!r}, but no input has that name"
                    f"{nearest(name, names)}"
                )
        bare = [shown(entry.path) for entry in self.input if entry.blend_weight is msgspec.UNSET]
        if self.output.blend.by == "given" and 0 < len(bare) < len(self.input):
            raise ValueError(
                f"blend_weight is the share of an input in training: {bare[0]} has none, other inputs have one. Give "
                "every input one, or set output.blend.by: tokens, which multiplies tokens by blend_weight (default 1)"
            )

    def __repr__(self) -> str:
        inputs = f"{len(self.input)} input{'' if len(self.input) == 1 else 's'}"
        stages = ", ".join(name for name, _ in self._shown_stages()) or "no stages"
        return f"<recipe {self.name or 'without name'}: {inputs}; {stages}; tokenizer {self.tokenizer.name}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of at most ten lines: the title, inputs, stages and the tokenizer."""
        paths = ", ".join(shown(entry.path) for entry in self.input[:SHOWN_INPUTS])
        more = f" and {len(self.input) - SHOWN_INPUTS:,} more" if len(self.input) > SHOWN_INPUTS else ""
        rows = [("input", f"{paths}{more}" or "none")]
        stages = self._shown_stages()
        rows += stages
        if left := [name for name, _ in stages[SHOWN_STAGES:]] if len(stages) > SHOWN_STAGES + 1 else []:
            rows[SHOWN_STAGES + 1 :] = [(f"and {len(left)} more", ", ".join(left))]
        formats = ", ".join(self.output.formats) or "no tokens are written"
        rows.append(("tokenizer", f"{self.tokenizer.name}: {formats}"))
        lines = [(name, text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…") for name, text in rows]
        return html_table(f"recipe {self.name}", (), lines)

    def _shown_stages(self) -> list[tuple[str, str]]:
        """Return names and settings of the stages. If the list was changed and has other entries, these are shown
        too."""
        names = iter(stage_names([(stage.name, stage.kind) for stage in self.stages if isinstance(stage, Stage)]))
        return [
            (next(names), repr(stage).partition("(")[2].removesuffix(")") or (stage.explain() or [""])[0])
            if isinstance(stage, Stage)
            else (_shown_entry(stage), "not a stage")
            for stage in self.stages
        ]

    @property
    def split_inputs(self) -> list[str]:
        """The names of the inputs whose documents are split."""
        return [name for name, entry in entries_by_name(self.input).items() if entry.parts]

    @property
    def stage_names(self) -> list[str]:
        """One name per stage, from `curation.stages.base.stage_names`."""
        return stage_names([(stage.name, stage.kind) for stage in self.stages])


def _shown_entry(entry: object) -> str:
    """Return the text for an entry that is no stage, with the remedy if it is a class or a function."""
    name = getattr(entry, "__name__", "")
    if isinstance(entry, type) and issubclass(entry, Stage):
        return f"the class {name}. Write {name}()"
    return f"the function {name}. Write @curation.stage before def {name}, and {name}()" if name else repr(entry)


def _wrong_values(value: Any, path: str) -> Iterator[str]:
    """Yield messages for values that 64-bit integers or JSON cannot hold. Only a rule's bound may be infinite."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _wrong_values(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            yield from _wrong_values(entry, f"{path}[{number}]")
    elif isinstance(value, int) and not -(2**63) <= value < 2 ** (64 if path.endswith("seed") else 63):
        yield f"{path} must fit 64 bits, not {value}"
    elif isinstance(value, str) and not value.isascii() and SURROGATE.search(value):
        yield f"{path} must be text that UTF-8 can hold, not {value!r}"
    elif isinstance(value, float) and not math.isfinite(value) and not path.startswith("stages"):
        yield f"{path} must be finite, not {value}"


def as_builtins(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON values with all defaults, for comparison, storage and reports; readable as a recipe again.

    Infinite bounds are left out, since JSON has no infinity. Secrets in URLs are left out too.
    """
    content = dict(as_json(recipe))
    for entry in content["input"]:
        for field in {"path", "base", "data_files"} & entry.keys():
            entry[field] = shown(entry[field])
    return content


def parse_recipe(
    text: str | bytes, where: str = "recipe", *, allow_code: Sequence[str] = (), settings: Sequence[str] = ()
) -> Recipe:
    """A recipe from YAML text.

    where                  name of the text in messages
    allow_code, settings   as in `load_recipe`

        >>> import curation
        >>> curation.parse_recipe("stages: [{filter: {rules: gopher}}, exact_dedup]").stage_names
        ['filter', 'exact_dedup']

    Raises RecipeError with the path of the wrong value (`$.stages[2].num_band`).
    """
    content = parse_yaml(text, where)
    if content is None:
        raise RecipeError(f"{where} is empty, expected a recipe. Write `stages: []` to keep all documents as they are")
    changed = apply_settings(content, settings, Recipe) if settings else content
    return convert_recipe(changed, where, allow_code=allow_code)


def _written_out(content: object, allow_code: Sequence[str]) -> object:
    """Return the content of a recipe with converted stages and the kind of each input."""
    if not isinstance(content, dict):
        return content
    written_out = dict(content)
    if isinstance(content.get("input"), list | tuple):
        written_out["input"] = with_kinds(content["input"], "$.input")
    if isinstance(content.get("stages"), list | tuple):
        entries = enumerate(content["stages"])
        written_out["stages"] = [convert_stage(entry, f"$.stages[{number}]", allow_code) for number, entry in entries]
    return written_out


def recipe_from_job(content: dict[str, Any]) -> Recipe:
    """Return the recipe in the plan that a task reads. The driver has already chosen the stages."""
    return msgspec.convert(content | {"stages": [stage_from_job(entry) for entry in content["stages"]]}, Recipe)


def convert_recipe(content: object, where: str = "recipe", *, allow_code: Sequence[str] = ()) -> Recipe:
    """A recipe from dictionaries, which may use shorthands.

    where        name of the recipe in messages
    allow_code   as in `load_recipe`

        >>> import curation
        >>> curation.convert_recipe({"stages": [{"exact_dedup": {"column": "url"}}]}).stage_names
        ['exact_dedup']

    Raises RecipeError with the path of the wrong value.
    """
    try:
        refuse_hydra(content)
        content = leave_out(expand_shorthands(content))
        return msgspec.convert(_written_out(content, allow_code), Recipe)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error.__cause__
    except UnicodeEncodeError as error:
        raise RecipeError(f"{where}: {error.object!r} is not text that UTF-8 can hold") from None
    except ValueError as error:  # msgspec's own errors too
        message = str(error)
        raise RecipeError(f"{where}: {message}{advice_for(message, content, Recipe)}") from None


def shipped_recipes() -> dict[str, str]:
    """The recipes of the package: name -> YAML text."""
    folder = resources.files("curation") / "recipes"
    return {
        Path(entry.name).stem: entry.read_text("utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    }


def load_recipe(
    name: str | os.PathLike[str], input: object = None, *, allow_code: Sequence[str] = (), settings: Sequence[str] = ()
) -> Recipe:
    """A recipe from a YAML file, or a shipped recipe by its name.

    input        replaces `input` of the recipe: a path (file, folder, glob, URL), an `Input`, or a list of them. None
                 (default) keeps the recipe's own; shipped recipes have none
    allow_code   modules, or packages of modules, from which the recipe may name stages
                 (`kind: mypackage.stages:BlockUrls`). They are imported, which runs their code. Default: none
    settings     `PATH=VALUE` strings, applied before the recipe is checked: `output.formats=[blocks]`,
                 `stages.filter.words.min=100` (`curation.recipes.settings.apply_settings`). With `input`, settings of
                 `input.` apply to it

        >>> import curation
        >>> curation.load_recipe("default", input="data/*.jsonl", settings=["stages.filter.words.min=100"])
        <recipe default: 1 input; rewrite, language, filter, exact_dedup, fuzzy_dedup; tokenizer gpt2>

    Raises RecipeError for a missing or wrong recipe, setting or input.
    """
    of_input = [setting for setting in settings if input is not None and setting.startswith("input.")]
    recipe = _find_recipe(os.fspath(name), allow_code, [setting for setting in settings if setting not in of_input])
    return recipe if input is None else with_inputs(recipe, input, of_input, os.fspath(name))


def with_inputs(recipe: Recipe, input: object, settings: Sequence[str] = (), name: str = "") -> Recipe:
    """Return a recipe with other inputs.

    input, settings   as in `load_recipe`
    name              of the recipe in messages; "" (default): its own

    Raises RecipeError for a wrong input or setting.
    """
    try:
        entries = list_inputs(input)
        if settings:
            content = apply_settings({"input": msgspec.to_builtins(entries)}, settings, Recipe)
            entries = list_inputs(content["input"])
        return msgspec.structs.replace(recipe, input=entries)
    except ValueError as error:  # msgspec's own errors too
        message = str(error).replace("`$[", "`$.input[")
        content = {"input": list(input) if isinstance(input, list | tuple) else [input]}
        advice = advice_for(message, content, Recipe)
        raise RecipeError(f"{name or recipe.name or 'the recipe'} with another input: {message}{advice}") from None


def check_readable(recipe: object) -> None:
    """Raise RecipeError if `recipe` is not a Recipe, or has no input."""
    if not isinstance(recipe, Recipe):
        raise RecipeError(
            f"expected a recipe, got {type(recipe).__name__}. Give a Recipe, the name or path of one, or its dictionary"
        )
    recipe.check_entries()
    if not recipe.input:
        raise RecipeError("nothing to read: give --input PATH, or input: in the recipe; in Python input=PATH or FRAME")


def _find_recipe(name: str, allow_code: Sequence[str], settings: Sequence[str]) -> Recipe:
    path, shown_name = Path(name).expanduser() if name.startswith("~/") else Path(name), shown(name)
    if split_suffix(name)[0] and not (path.suffix.lower() in AMBIGUOUS_SUFFIXES and _may_be_recipe(path)):
        raise RecipeError(f"{shown_name} looks like data: give it with --input. A recipe is a YAML file, NAME.yaml")
    try:
        if path.is_file():
            with path.open("rb") as file:
                return parse_recipe(file.read(MAX_BYTES + 1), name, allow_code=allow_code, settings=settings)
        is_folder = path.is_dir()
    except OSError as error:
        raise RecipeError(f"recipe {explain(error)}") from None
    shipped = shipped_recipes()
    if name in shipped:
        return parse_recipe(shipped[name], name, allow_code=allow_code, settings=settings)
    if path.suffix in (".yaml", ".yml", *AMBIGUOUS_SUFFIXES) or path.parent != Path():
        hint = advice(str(path)) or f"; give a YAML file or one of {', '.join(shipped)}"
        raise RecipeError(f"recipe {shown_name} does not exist{hint}")
    if is_folder:
        raise RecipeError(f"{shown_name} is a folder, expected a recipe. Give a folder of data with --input")
    raise RecipeError(f"no recipe named {shown_name!r}{nearest(shown_name, shipped)}")


def _may_be_recipe(path: Path) -> bool:
    """Whether a file is missing or holds a YAML mapping."""
    import yaml

    if not path.is_file():
        return True
    try:
        small = path.stat().st_size <= MAX_AMBIGUOUS_BYTES
        return small and isinstance(yaml.compose(path.read_bytes(), yaml.SafeLoader), yaml.MappingNode)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
