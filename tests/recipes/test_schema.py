# SPDX-License-Identifier: Apache-2.0
"""The schema takes every recipe that is shipped or documented, and refuses what names, types and choices rule out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from curation.base.errors import RecipeError
from curation.recipes.recipe import as_builtins, convert_recipe, load_recipe, shipped_recipes
from curation.recipes.schema import DIALECT, field_texts, recipe_schema
from curation.stages import STAGES

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
DOCUMENTED = [
    (f"{page.relative_to(ROOT)}-{number}", text)
    for page in PAGES
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S))
]
RIGHT: list[Any] = [
    {},
    {"stages": ["exact_dedup", {"fuzzy_dedup": {"threshold": 0.7}}, {"exact_dedup": None}]},
    {"stages": [{"kind": "filter", "rules": "gopher"}]},
    {"stages": [{"kind": "filter", "rules": ["gopher", {"measure": "words", "max": 50_000}]}]},
    {"stages": [{"filter": {"rules": {"gopher": {"words": {"min": 100}}, "words": {"max": 9_000}}}}]},
    {"stages": [{"filter": {"rules": [{"bullet_lines/lines": {"max": 0.5}}, {"gopher": None}]}}]},
    {"stages": [{"kind": "filter", "rules": [{"column": "language", "in": ["en", "de"]}]}]},
    {"stages": [{"kind": "filter", "rules": [{"set": "gopher", "override": {"too_few_stop_words": "off"}}]}]},
    {"stages": [{"kind": "rewrite", "unicode": "nfkc", "lowercase": True}]},
    {"output": {"formats": ["blocks", "megatron"], "raw": "csv"}},
    {"input": [{"path": "hf:a/b", "split": "test"}, {"path": "x.csv", "format": "csv", "kind": "files"}]},
]
WRONG: list[Any] = [
    [],
    {"stage": []},
    {"stages": {"exact_dedup": {}}},
    {"stages": ["exact_dedupe"]},
    {"stages": ["filter"]},
    {"stages": [{"filter": None}]},
    {"stages": [{"kind": "dedup"}]},
    {"stages": [{"exact_dedup": {"treshold": 1}}]},
    {"stages": [{"exact_dedup": {}, "fuzzy_dedup": {}}]},
    {"stages": [{"kind": "exact_dedup", "compare": "upper"}]},
    {"stages": [{"kind": "fuzzy_dedup", "threshold": "0.8"}]},
    {"stages": [{"kind": "rewrite", "unicode": "nfd"}]},
    {"stages": [{"kind": "filter"}]},
    {"stages": [{"kind": "filter", "rules": "gophr"}]},
    {"stages": [{"kind": "filter", "rules": ["gophr"]}]},
    {"stages": [{"kind": "filter", "rules": [{"measure": "words", "mim": 5}]}]},
    {"stages": [{"kind": "filter", "rules": {"words": {}}}]},
    {"stages": [{"kind": "filter", "rules": {"words": {"minimum": 5}}}]},
    {"stages": [{"kind": "filter", "rules": {"words": 5}}]},
    {"input": [{"path": "x", "format": "docx"}]},
    {"input": [{"name": "x"}]},
    {"output": {"formats": ["megatrn"]}},
    {"output": {"raw": "xlsx"}},
    {"output": {"shuffle": 1}},
    {"tokenizer": "gpt2"},
]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_are_right(validator: Any, name: str):
    validator.validate(yaml.safe_load(shipped_recipes()[name]))
    validator.validate(as_builtins(load_recipe(name)))  # all settings written out


@pytest.mark.parametrize(("place", "text"), DOCUMENTED, ids=[place for place, _ in DOCUMENTED])
def test_documented_recipes_are_right(validator: Any, place: str, text: str):
    content = yaml.safe_load(text)
    validator.validate({"stages": content} if isinstance(content, list) else content)


def test_recipes_are_documented():
    assert any(place.startswith("README.md") for place, _ in DOCUMENTED)


@pytest.mark.parametrize("content", RIGHT, ids=str)
def test_schema_and_reader_agree_on_what_is_right(validator: Any, content: Any):
    convert_recipe(content)
    validator.validate(content)


@pytest.mark.parametrize("content", WRONG, ids=str)
def test_schema_and_reader_agree_on_what_is_wrong(validator: Any, content: Any):
    with pytest.raises(RecipeError):
        convert_recipe(content)
    assert not validator.is_valid(content)


def test_every_stage_has_its_forms():
    schema = recipe_schema()
    forms = schema["$defs"]["Recipe"]["properties"]["stages"]["items"]["anyOf"]
    assert [name for form in forms for name in form.get("properties", ())] == [*STAGES, "kind", "kind", "when"]
    assert {kind for form in forms for kind in form.get("enum", ())} < {*STAGES}


def test_the_schema_is_json_and_explains_itself():
    schema = json.loads(json.dumps(recipe_schema(), allow_nan=False))
    fields = schema["$defs"]["FuzzyDedup"]["properties"]
    assert fields["threshold"]["description"] == "Jaccard similarity in (0, 1]"
    assert schema["$defs"]["FuzzyDedup"]["description"] == "Keep one document of each group of near-duplicates."


def test_field_texts_are_taken_from_a_docstring():
    text = "What it is.\n\nMore of it.\n\na, b  one\n      two\nc     three\n\nThe  end.\na  again"
    assert field_texts(text) == {"a": "one two", "b": "one two", "c": "three", "The": "end."}


def test_stages_of_other_code_are_left_to_the_reader(validator: Any):
    assert validator.is_valid({"stages": [{"kind": "mypackage.stages:BlockUrls", "domains": "blocked.txt"}]})
    assert not validator.is_valid({"stages": [{"name": "mypackage.stages:BlockUrls"}]})
