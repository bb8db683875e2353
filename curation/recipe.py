# SPDX-License-Identifier: Apache-2.0
"""The recipe: what is read, what is done to it, what is written. One YAML file, or the same in Python."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from curation.errors import RecipeError, nearest
from curation.packing.blends import Blend, Megatron
from curation.packing.forms import FORMS, MEGATRON, OUTPUT_FORMATS, Forms
from curation.packing.megatron import DEFAULT_MAX_BYTES
from curation.packing.ordering import check_shares
from curation.packing.samples import Sample
from curation.packing.tokenization import TokenizerSpec
from curation.reading.inputs import AnyInput, Budget, FilesInput, HubInput, list_inputs, with_kinds
from curation.reading.paths import split_suffix
from curation.reading.urls import shown
from curation.renamed import renamed_keys
from curation.rules import Bounds, Rule
from curation.settings import apply_settings, expand_shorthands
from curation.stages import STAGES, CorpusStage, Stage
from curation.stages.base import stage_names
from curation.stages.own_code import as_json, convert_stage, stage_from_job

if TYPE_CHECKING:
    Stages = list[Stage]
else:
    Stages = list[Any]  # msgspec would take a stage for the base class; `convert_stage` knows all of them

EXPORT_FORMATS = ("", "jsonl", "csv", "parquet")
DEFAULT_RECIPE = "default"
EITHER = (".json", ".txt")  # suffixes of data that a recipe may have
SHOWN_CHARACTERS = 40  # of a wrong value in a message
LARGEST_BYTES = 1 << 20  # of a recipe of such a name
MAX_VALUES = 1_000_000  # of a recipe
SURROGATE = re.compile(r"[\ud800-\udfff]")
EXPONENT = re.compile(r"[-+]?\d+\.?\d*[eE][-+]?\d{1,2}")


class Output(Forms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is written beside `documents/` and `removed/`.

    formats              `megatron` (`tokens/*.bin`, `.idx`), `token_shards`, `blocks`, `chunks`, `packed` (each in its
                         own folder); an empty list writes no tokens
    shuffle              documents get a seeded order before packing: in `tokens/` inside each input, in the other forms
                         over all inputs
    splits               shares of `train`, `valid`, `test`; a document's side is a hash of its text. Empty: no split
    blend, megatron      weights and settings in `tokens/_meta/`
    token_shards, blocks, chunks, packed   settings of the forms
    pad_id               what fills up rows; -1: the end-of-document token
    max_file_bytes       a `.bin` is cut before the document that would make it larger
    part_bytes, part_documents   text bytes and documents of one file in `documents/`
    index                write `index/`: what a later run needs to remove near-duplicates of what the last `fuzzy_dedup`
                         of this one kept (its `index`)
    keep_work            keep `_work/` after success
    raw, cleaned         `jsonl`, `csv` or `parquet`: documents as read in `raw/`, as kept in `cleaned/`; "" for none
    sample               batches of the chunks to look at, in `sample_dataset.pt`
    """

    shuffle: bool = False
    max_file_bytes: int = DEFAULT_MAX_BYTES
    part_bytes: int = 32_000_000
    part_documents: int = 100_000
    index: bool = False
    keep_work: bool = False
    splits: dict[str, float] = msgspec.field(default_factory=dict)
    blend: Blend = Blend()
    megatron: Megatron = Megatron()
    raw: str = ""
    cleaned: str = ""
    sample: Sample = Sample()

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("raw", "cleaned"):
            if getattr(self, field) not in EXPORT_FORMATS:
                raise ValueError(
                    f"no {field} format {getattr(self, field)!r}{nearest(getattr(self, field), EXPORT_FORMATS[1:])}"
                )
        check_shares(self.splits)
        self._check_void()
        for field, low in (
            ("max_file_bytes", 1),
            ("part_bytes", 1),
            ("part_documents", 1),
        ):
            if getattr(self, field) < low:
                raise ValueError(f"{field} must be at least {low}, not {getattr(self, field)}")

    def _check_void(self) -> None:
        """ValueError for a setting that nothing would read."""
        padded = [name for name, form in FORMS.items() if form.pads]
        readers = {"blend": [MEGATRON], "splits": OUTPUT_FORMATS, "pad_id": padded, "sample": ["chunks"]}
        for field in (*OUTPUT_FORMATS, *readers):
            wanted = readers.get(field, (field,))
            if getattr(self, field) != _default(field) and not {*wanted} & {*self.formats}:
                raise ValueError(f"{field} is set, but formats has no {' or '.join(wanted)}")
        if self.splits and self.megatron.splits_string != Megatron().splits_string:
            raise ValueError("megatron.splits_string has no meaning with splits; leave one of them out")


def _default(field: str) -> Any:
    fields = {entry.name: entry for entry in msgspec.structs.fields(Output)}
    entry = fields[field]
    return entry.default_factory() if entry.default is msgspec.NODEFAULT else entry.default


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run.

    input, budget   what is read; the budget is of all inputs together
    stages          what is done to each document, in this order; `[]`: documents pass as they are
    seed            of all that looks random: the `sample` of inputs, the sides of `output.splits`, `output.shuffle`
    """

    input: list[AnyInput] = []
    name: str = ""
    stages: Stages = []
    tokenizer: TokenizerSpec = TokenizerSpec()
    output: Output = Output()
    seed: int = 1234
    budget: Budget = Budget()

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")
        limited = self.budget.max_documents or self.budget.max_bytes
        if limited and self.input and not any(isinstance(entry, HubInput) for entry in self.input):
            raise ValueError("budget ends hf: inputs only; files are read whole, or set their sample")
        for stage in self.stages:
            if not isinstance(stage, Stage):
                raise ValueError(f"stages takes stages, such as curation.ExactDedup(), not {stage!r}")
        for name in self.stage_names:
            if self.stage_names.count(name) > 1:
                raise ValueError(f"two stages are named {name!r}; give each its own name:")
        self._check_columns()
        self._check_weights()
        for wrong in _wrong_values(msgspec.to_builtins(self), ""):
            raise ValueError(wrong)
        if self.output.index and not any(map(saves_index, self.stages)):
            raise ValueError("output.index is set, but no stage is fuzzy_dedup, whose keys an index holds; add one")

    def _check_columns(self) -> None:
        """ValueError for an input that carries a column which a stage writes."""
        for entry, stage in itertools.product(self.input, self.stages):
            for name in entry.columns:
                if name in stage.writes():
                    raise ValueError(
                        f"columns of {shown(entry.path)} has {name!r}, which a {stage.kind} stage writes; leave it "
                        "out, or change the settings of the stage"
                    )

    def _check_weights(self) -> None:
        """ValueError for shares that some inputs have and others have not."""
        bare = [shown(entry.path) for entry in self.input if entry.blend_weight is msgspec.UNSET]
        if self.output.blend.by == "given" and 0 < len(bare) < len(self.input):
            raise ValueError(
                f"blend_weight is the share of an input in training, and {bare[0]} has none while others do. Give "
                "every input one; or set output.blend.by: tokens, which multiplies the tokens by it, and by 1 there"
            )

    @property
    def stage_names(self) -> list[str]:
        """A name per stage: `curation.stages.base.stage_names`."""
        return stage_names([(stage.name, stage.kind) for stage in self.stages])


def saves_index(stage: Stage) -> bool:
    """Whether `output.index` means something to a stage."""
    return isinstance(stage, CorpusStage) and stage.indexes


def _wrong_values(value: Any, path: str) -> Iterator[str]:
    """What neither the engines' 64 bits nor the plan, which is JSON, can hold. A rule's bound may be infinite."""
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
    """The recipe as JSON has it, with all defaults: what is compared, stored and reported. JSON has no infinity, so
    that a bound which a rule does not set is left out; it can be read as a recipe again. Secrets in URLs
    are left out."""
    content = dict(as_json(recipe))
    for entry in content["input"]:
        for field in {"path", "base", "data_files"} & entry.keys():
            entry[field] = shown(entry[field])
    return content


def parse_recipe(
    text: str | bytes, where: str = "recipe", allow_code: Sequence[str] = (), settings: Sequence[str] = ()
) -> Recipe:
    """A recipe from YAML. RecipeError names the place of whatever is wrong (`$.stages[2].num_band`). `allow_code`,
    `settings`: as in `load_recipe`."""
    content = parse_yaml(text, where)
    if content is None:
        raise RecipeError(f"{where} is empty, expected a recipe. Write `stages: []` to keep all documents as they are")
    return convert_recipe(apply_settings(content, settings) if settings else content, where, allow_code)


def parse_yaml(text: str | bytes, where: str) -> Any:
    """What YAML holds; RecipeError for what is none, or has too many values."""
    import yaml

    try:
        content = yaml.load(text, _strict_loader())
        size = _expanded_size(content, {})
    except yaml.YAMLError as error:
        raise RecipeError(f"{where} is not valid YAML: {_yaml_problem(error)}") from None
    except RecursionError:
        raise RecipeError(f"{where} is nested too deeply; a recipe has at most six levels") from None
    if size > MAX_VALUES:
        raise RecipeError(f"{where} has {size:,} values with those that its aliases (*name) repeat; write it out")
    return content


def _written_out(content: object, allow_code: Sequence[str]) -> object:
    """The content of a recipe with its stages converted, and the kind of each input."""
    if not isinstance(content, dict):
        return content
    found = dict(content)
    if isinstance(content.get("input"), list | tuple):
        found["input"] = with_kinds(content["input"], "$.input")
    if isinstance(content.get("stages"), list | tuple):
        entries = enumerate(content["stages"])
        found["stages"] = [convert_stage(entry, f"$.stages[{number}]", allow_code) for number, entry in entries]
    return found


def recipe_from_job(content: dict[str, Any]) -> Recipe:
    """The recipe in a plan that a task reads: the driver has chosen its stages."""
    return msgspec.convert(content | {"stages": [stage_from_job(entry) for entry in content["stages"]]}, Recipe)


def _expanded_size(value: object, known: dict[int, int]) -> int:
    """Values with all that aliases repeat, each counted once per place where it is; RecursionError for one that
    contains itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = -1
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_expanded_size(entry, known) for entry in inner)
    if known[id(value)] < 0:
        raise RecursionError
    return known[id(value)]


def _yaml_problem(error: Any) -> str:
    """What is wrong and where, without the line itself, which may hold the password of an URL."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark else str(problem)


def _strict_loader() -> Any:
    """PyYAML's safe loader, but two equal keys in a mapping are an error, and what Python cannot make a
    value of (`2001-13-45`, a number of 5,000 digits) is a YAMLError as well."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML carries no types
        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                found = super().construct_object(node, deep)
                if isinstance(found, int):
                    float(found)  # OverflowError for one that messages could not show
            except (ValueError, ArithmeticError, LookupError, AttributeError):  # as PyYAML's constructors end
                kind, value = node.tag.rpartition(":")[2], str(node.value)
                value = value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}..."
                problem = f"{value!r} is not a valid {kind}; quote it if it is text"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
            return found

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if str(key.value) in seen:
                    problem = f"key {key.value!r} comes twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    return Loader


def convert_recipe(content: object, where: str = "recipe", allow_code: Sequence[str] = ()) -> Recipe:
    """A recipe from dictionaries, in which shorthands may stand; RecipeError as `parse_recipe`. `allow_code`: as in
    `load_recipe`."""
    try:
        content = expand_shorthands(content)
        if old := renamed_keys(content):
            raise RecipeError("; ".join(old))
        return msgspec.convert(_written_out(content, allow_code), Recipe)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error.__cause__
    except UnicodeEncodeError as error:
        raise RecipeError(f"{where}: {error.object!r} is not text that UTF-8 can hold") from None
    except ValueError as error:  # msgspec's own errors too
        told = str(error)
        hint = _unknown_key_hint(told) + _exponent_hint(told, content)
        raise RecipeError(f"{where}: {told}{hint}") from None


def _unknown_key_hint(message: str) -> str:
    """The allowed keys near to an unknown one; msgspec names the key and the path, not what would be right."""
    if "unknown field" not in message:
        return ""
    unknown = message.split("`")[1]
    parts = (FilesInput, HubInput, Output, TokenizerSpec, Rule, Bounds, Budget, Sample, Blend, Megatron)
    structures: tuple[type[msgspec.Struct], ...] = (Recipe, *parts, *FORMS.values(), *STAGES.values())
    known = {name for structure in structures for name in structure.__struct_encode_fields__} | {"kind"}
    hint = nearest(unknown, sorted(known))
    return hint if hint.startswith("; did") and unknown not in known else ""  # one that is known stands elsewhere


def _exponent_hint(message: str, content: Any) -> str:
    """How to write `1e6`, which is text in YAML 1.1."""
    found = re.match(r"Expected `(int|float)`, got `str` - at `\$(.*)`", message)
    if not found:
        return ""
    for key, number in re.findall(r"\.(\w+)|\[(\d+)\]", found[2]):
        content = content[key] if key else content[int(number)]
    if not isinstance(content, str) or not EXPONENT.fullmatch(content):
        return ""
    if found[1] == "int" and not float(content).is_integer():
        return ""
    written = f"{float(content):_.0f}" if found[1] == "int" else "it with a dot and a sign, as 1.0e-3"
    return f"; {content} is text in YAML, write {written}"


def shipped_recipes() -> dict[str, str]:
    """The recipes in the package: name -> YAML."""
    folder = resources.files("curation") / "recipes"
    return {
        Path(entry.name).stem: entry.read_text("utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    }


def load_recipe(
    name: str | os.PathLike[str], input: object = None, *, allow_code: Sequence[str] = (), settings: Sequence[str] = ()
) -> Recipe:
    """A recipe from a file, or a shipped one by its name.

    input   what is read, in place of `input` of the recipe: a path (file, folder, glob, URL), an `Input`, or a list of
            them; None leaves the recipe's own, which shipped ones do not have
    allow_code   names of modules, or of packages above them, that the recipe may name stages of
            (`kind: mypackage.stages:BlockUrls`); they are imported, which runs their code
    settings     `PATH=VALUE` each, put into the recipe before it is checked: `output.formats=[blocks]`,
            `stages.filter.words.min=100` (`curation.settings.apply_settings`); those of `input.` into what is read

    Raises RecipeError.
    """
    of_input = [setting for setting in settings if input is not None and setting.startswith("input.")]
    recipe = _find_recipe(os.fspath(name), allow_code, [setting for setting in settings if setting not in of_input])
    if input is None:
        return recipe
    try:
        entries = list_inputs(input)
        if of_input:
            content = apply_settings({"input": msgspec.to_builtins(entries)}, of_input)
            entries = list_inputs(content["input"])
        return msgspec.structs.replace(recipe, input=entries)
    except ValueError as error:  # msgspec's own errors too
        raise RecipeError(f"{name} with another input: {error}") from None


def check_readable(recipe: object) -> None:
    """RecipeError for what is no recipe, and for one without input."""
    if not isinstance(recipe, Recipe):
        raise RecipeError(
            f"expected a Recipe, got {type(recipe).__name__}: load_recipe makes one of a name or a path, "
            "convert_recipe of a dictionary"
        )
    if not recipe.input:
        raise RecipeError(
            "nothing to read: give --input PATH, or input: in the recipe; in Python load_recipe(NAME, input=PATH)"
        )


def _find_recipe(name: str, allow_code: Sequence[str], settings: Sequence[str]) -> Recipe:
    path, told = Path(name), shown(name)
    if split_suffix(name)[0] and not (path.suffix.lower() in EITHER and _may_be_recipe(path)):
        raise RecipeError(f"{told} looks like data: give it with --input. A recipe is YAML, NAME.yaml")
    if path.is_file():
        return parse_recipe(path.read_bytes(), name, allow_code, settings)
    shipped = shipped_recipes()
    if name in shipped:
        return parse_recipe(shipped[name], name, allow_code, settings)
    if path.suffix in (".yaml", ".yml", *EITHER) or path.parent != Path():
        raise RecipeError(f"recipe {told} does not exist; give a YAML file or one of {', '.join(shipped)}")
    raise RecipeError(f"no recipe named {told!r}{nearest(told, shipped)}")


def _may_be_recipe(path: Path) -> bool:
    """Whether a file, unless it is missing, holds a mapping."""
    import yaml

    if not path.is_file():
        return True
    try:
        small = path.stat().st_size <= LARGEST_BYTES
        return small and isinstance(yaml.compose(path.read_bytes(), yaml.SafeLoader), yaml.MappingNode)
    except (yaml.YAMLError, ValueError):
        return False


def changed_keys(before: object, after: object, path: str = "") -> list[str]:
    """The paths at which two recipes (as builtins) differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        return [
            change
            for key in keys
            for change in changed_keys(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [change for k, (old, new) in pairs for change in changed_keys(old, new, f"{path}[{k}]")]
    return [] if before == after else [path or "recipe"]
