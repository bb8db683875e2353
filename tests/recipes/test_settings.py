# SPDX-License-Identifier: Apache-2.0
"""Shorthands of recipes are written out; settings are put in where they say, or are refused in one message."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from curation.base.errors import RecipeError
from curation.base.measures import Measure
from curation.reading.inputs import Input
from curation.recipes.recipe import Recipe, as_builtins, convert_recipe, load_recipe, parse_recipe
from curation.recipes.settings import apply_settings, expand_shorthands, rules_setting, stages_setting
from curation.rules.decide import RULE_SETS, Bounds, expand_rules
from curation.rules.groups import GroupedRule
from tests.runs import assert_refused

# Shorthands


@pytest.mark.parametrize(
    ("short", "written"),
    [
        ("[exact_dedup, {kind: ngram_dedup}]", "[{kind: exact_dedup}, {kind: ngram_dedup}]"),
        ("[{exact_dedup: {max_characters: 9}}]", "[{kind: exact_dedup, max_characters: 9}]"),
        ("[exact_dedup: ]", "[{kind: exact_dedup}]"),
        ("[{filter: {rules: gopher}}]", "[{kind: filter, rules: gopher}]"),
        ("[{kind: filter, rules: {words: {min: 50}}}]", "[{kind: filter, rules: [{measure: words, min: 50}]}]"),
        (
            "[{filter: {rules: {symbols/words: {max: 0.1}, quality: {min: 1}, text: {matches: a, max_count: 0}}}}]",
            "[{kind: filter, rules: [{ratio: [symbols, words], max: 0.1}, {column: quality, min: 1}, "
            "{column: text, matches: a, max_count: 0}]}]",
        ),
        (
            "[{filter: {rules: [nemo, {words: {min: 5, reason: f}, url: {not_in: [a]}}, {matches: a, min_count: 1}]}}]",
            "[{kind: filter, rules: [nemo, {measure: words, min: 5, reason: f}, {column: url, not_in: [a]}, "
            "{matches: a, min_count: 1}]}]",
        ),
        (
            "[{kind: filter, rules: {fineweb: , gopher: {words: {min: 100}}}}]",
            "[{kind: filter, rules: [{set: fineweb}, {set: gopher, override: {words: {min: 100}}}]}]",
        ),
        ("[{kind: filter, rules: {measure: words, min: 5}}]", "[{kind: filter, rules: [{measure: words, min: 5}]}]"),
    ],
)
def test_a_shorthand_is_what_it_stands_for(short: str, written: str):
    content = {"stages": yaml.safe_load(short)}
    before = copy.deepcopy(content)
    expanded = expand_shorthands(content)
    assert expanded == {"stages": yaml.safe_load(written)} == expand_shorthands(expanded)
    assert content == before
    assert as_builtins(convert_recipe(content)) == as_builtins(parse_recipe(f"stages: {written}"))


def test_no_rule_set_has_the_name_of_a_measure():
    assert not {*RULE_SETS} & {*Measure.__members__}


WRONG_SHORTHANDS = {
    "[exact_dedpu]": ("Invalid value 'exact_dedpu'", "$.stages[0].kind", "did you mean exact_dedup"),
    "[{exact_dedpu: {}}]": ("Invalid value 'exact_dedpu'", "did you mean exact_dedup"),
    "[{exact_dedup: {max_character: 3}}]": ("unknown field `max_character`", "did you mean max_characters"),
    "[{exact_dedup: 5}]": ("missing required field `kind`", "$.stages[0]"),
    "[{exact_dedup: {kind: filter}}]": ("exact_dedup is the kind of the stage; leave kind: 'filter' out",),
    "[filter]": ("missing required field `rules`",),
    "exact_dedup": ("$.stages", "got `str`"),
    "[{filter: {rules: {min words}}}]": ("'min words' needs conditions, such as min words: {min: 50}, not None",),
    "[{filter: {rules: {words: 50}}}]": ("'words' needs conditions, such as words: {min: 50}, not 50", "[0].rules`"),
    "[{filter: {rules: {words: {}}}}]": ("'words' needs conditions", "not {}"),
    "[{filter: {rules: {gopher: 5}}}]": ("'gopher' needs conditions", "not 5"),
    "[{filter: {rules: {no: {in: [a]}}}}]": ("False is not the name of a measure or column. Quote it",),
    "[{filter: {rules: {words: {measure: lines, min: 1}}}}]": ("leave measure out: the key 'words' already names",),
    "[{filter: {rules: {}}}]": ("$.stages[0]", "rules is empty"),
    "[{filter: {rules: [{wrods: 5}]}}]": ("'wrods' needs conditions", "$.stages[0].rules[0]`"),
    "[{filter: {rules: {symbols/wrods: {max: 1}}}}]": ("no measure named 'wrods'; did you mean words",),
    "[{filter: {rules: {words: {mni: 1}}}}]": ("unknown field `mni`", "rules[0]`; did you mean min"),
    "[{filter: {rules: {min: 5}}}]": ("give one of measure: NAME",),
    "[{filter: {rules: {words: {at_least: 5}}}}]": ("unknown field `at_least`", "did you mean min?"),
    "[{filter: {rules: {words: {minimum: 5}}}}]": ("unknown field `minimum`", "did you mean min?"),
    "[{filter: {rules: {url: {contains: a}}}}]": ("unknown field `contains`", "did you mean matches or listed?"),
    "[{filter: {words: {min: 5}}}]": ("Expected `str`, got `object`", "Write rules: {words: ...}"),
    "[{filter: gopher}]": ("missing required field `kind`", "a mapping: {kind: filter, rules: [gopher]}"),
    "[{language: en}]": ("a mapping: {kind: language, keep: [en]}",),
    "[{language: {languages: [en]}}]": ("unknown field `languages`", "did you mean keep?"),
    "[minhash]": ("Invalid value 'minhash'", "did you mean fuzzy_dedup?"),
    "[dedup]": ("Invalid value 'dedup'", "did you mean exact_dedup or fuzzy_dedup?"),
    "[{pii: {}}]": ("did you mean redact?",),
    "[{fuzzy_dedup: {jaccard: 0.8}}]": ("unknown field `jaccard`", "did you mean threshold?"),
    "[{fuzzy_dedup: {num_perm: 128}}]": ("unknown field `num_perm`", "did you mean permutations?"),
    "[{select: {column: n, share: 0.1}}]": ("unknown field `share`", "did you mean keep_highest?"),
}


@pytest.mark.parametrize("stages", WRONG_SHORTHANDS)
def test_a_wrong_shorthand_is_refused(stages: str):
    assert_refused(f"stages: {stages}", WRONG_SHORTHANDS[stages])


# Settings

RECIPE = """
input: [{path: a.jsonl, name: news.2024}, {path: "data/books/*.jsonl"}]
stages:
  - {kind: rewrite, unicode: nfc}
  - {kind: filter, rules: gopher}
  - {kind: exact_dedup, name: exact}
  - {kind: fuzzy_dedup}
  - {kind: decontaminate, evaluation_files: [quiz.jsonl, {path: other.jsonl}]}
output: {formats: [blocks], splits: {train: 0.9, test: 0.1}}
"""


def value_at(content: Any, path: str) -> Any:
    for part in path.split("/"):
        content = content[int(part) if part.isdecimal() else part]
    return content


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("output.formats=[megatron, chunks]", "output/formats", ["megatron", "chunks"]),
        ("output.pad_id=3", "output/pad_id", 3),
        (" output . pad_id = 3 ", "output/pad_id", 3),
        ("output.blocks.length=64", "output/blocks/length", 64),
        ("output.splits.valid=0.1", "output/splits/valid", 0.1),
        ("tokenizer.name=gpt2", "tokenizer/name", "gpt2"),
        ("tokenizer.name='a=b'", "tokenizer/name", "a=b"),
        ("tokenizer.append_eod=false", "tokenizer/append_eod", False),
        ("budget={max_bytes: 5}", "budget", {"max_bytes": 5}),
        ("name=''", "name", ""),
        ("input.0.sample=0.1", "input/0/sample", 0.1),
        ("input.news.2024.sample=0.1", "input/0/sample", 0.1),
        ("input.books.columns=[url]", "input/1/columns", ["url"]),
        ("stages.rewrite.unicode=nfkc", "stages/0/unicode", "nfkc"),
        ("stages.0.unicode=nfkc", "stages/0/unicode", "nfkc"),
        ("stages.exact.max_characters=9", "stages/2/max_characters", 9),
        ("stages.exact_dedup.max_characters=9", "stages/2/max_characters", 9),
        ("stages.fuzzy_dedup.threshold=0.7", "stages/3/threshold", 0.7),
        ("stages.fuzzy_dedup.name=near", "stages/3/name", "near"),
        ("stages.decontaminate.evaluation_files.1.format=csv", "stages/4/evaluation_files/1/format", "csv"),
        ("stages.filter.rules=[nemo]", "stages/1/rules", ["nemo"]),
        ("stages.filter.rules={words: {min: 5}}", "stages/1/rules/0", {"measure": "words", "min": 5}),
        ("stages=[exact_dedup]", "stages", [{"kind": "exact_dedup"}]),
    ],
)
def test_a_setting_is_put_where_it_says(setting: str, path: str, value: Any):
    content = yaml.safe_load(RECIPE)
    before = copy.deepcopy(content)
    changed = apply_settings(content, [setting], Recipe)
    assert value_at(changed, path) == value
    assert content == before and changed != before


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        (["words.min=100"], [{"set": "gopher", "override": {"too_few_words": {"min": 100}}}]),
        (["words.min=9", "words.max=99", "too_few_words.min=7"], [
            {"set": "gopher", "override": {"too_many_words": {"max": 99}, "too_few_words": {"min": 7}}},
        ]),
        (["words={min: 9, max: 99}"], [
            {"set": "gopher", "override": {"too_few_words": {"min": 9}, "too_many_words": {"max": 99}}},
        ]),
        (["hash_signs/words.max=0.2"], [{"set": "gopher", "override": {"too_many_hash_signs": {"max": 0.2}}}]),
        (["stop_words.min=1", "stop_words.max=7"], [
            {"set": "gopher", "override": {"too_few_stop_words": {"min": 1, "max": 7}}},
        ]),
        (["too_few_stop_words=off", "words.max=9"], [
            {"set": "gopher", "override": {"too_few_stop_words": "off", "too_many_words": {"max": 9}}},
        ]),
        (["urls.max=9"], ["gopher", {"measure": "urls", "max": 9}]),
        (["urls={min: 1, max: 9}"], ["gopher", {"measure": "urls", "min": 1, "max": 9}]),
        (["urls/words.max=0.5", "urls/words.max=0.4"], ["gopher", {"ratio": ["urls", "words"], "max": 0.4}]),
        (["rules=[{url: {not_in: [a]}}, nemo]", "url.not_in=[b]"], [{"column": "url", "not_in": ["b"]}, "nemo"]),
        (["rules=[{language: {in: [a]}}]", "language.in=[b]"], [{"column": "language", "in": ["b"]}]),
        (["rules=[{matches: a, max_count: 0}]", "text_matches.max_count=3"], [
            {"matches": "a", "max_count": 3},
        ]),
        (["rules=[{words: {min: 5}}, nemo]", "words.min=7"], [{"measure": "words", "min": 7}, "nemo"]),
        (["rules=[{words: {min: 5}}, nemo]", "words=off"], ["nemo"]),
        (["rules=[{words: {min: 5, reason: few}}]", "few.min=7"], [{"measure": "words", "min": 7, "reason": "few"}]),
        (["rules=[{words: {min: 5, max: 50}}]", "words={min: 60, max: 99}"], [
            {"measure": "words", "min": 60, "max": 99},
        ]),
        (["rules={gopher: {words: {min: 9}}}", "words.max=99"], [
            {"set": "gopher", "override": {"words": {"min": 9}, "too_many_words": {"max": 99}}},
        ]),
    ],
)  # fmt: skip
def test_a_setting_of_a_filter_changes_a_rule(settings: list[str], rules: list[Any]):
    content = yaml.safe_load("stages: [{kind: filter, rules: gopher}]")
    changed = apply_settings(content, [f"stages.filter.{setting}" for setting in settings], Recipe)
    assert changed["stages"][0]["rules"] == rules
    convert_recipe(changed)


WRONG_SETTINGS = {
    "output.pad_id": "setting 'output.pad_id': expected PATH=VALUE, such as seed=3",
    "=3": "setting '': expected PATH=VALUE",
    "output..seed=3": "expected PATH=VALUE",
    "output.pad_id=": "no value. Write output.pad_id='' for an empty text",
    "output.pad_id=[": "setting 'output.pad_id': the value (quote text that has YAML syntax) is not valid YAML",
    "input.0.path=*.jsonl": "the value (quote text that has YAML syntax) is not valid YAML",
    "outptu.seed=3": "a recipe has no field 'outptu'; did you mean output",
    "output.shufle=true": "output has no field 'shufle'; did you mean shuffle",
    "output.blocks.lenght=3": "output.blocks has no field 'lenght'; did you mean length",
    "output.pad_id.x=3": "output.pad_id is a single value and has no field 'x'",
    "output.formats.0.x=3": "output.formats.0 is a single value and has no field 'x'",
    "output.formats.7=a": "output.formats has 1 entries, numbered from 0; there is no '7'",
    "input.2.sample=1": "input has 2 entries, numbered from 0; there is no '2'",
    "input.nwes.sample=1": "no input named 'nwes'; expected one of news.2024, books; or give its number, from 0",
    "input.0=a": "name a field of the input: input.0.sample",
    "input.0.smaple=1": "input.0 has no field 'smaple'; did you mean sample",
    "stages.fuzzy.threshold=1": "no stage named 'fuzzy'; did you mean fuzzy_dedup",
    "stages.9.threshold=1": "stages has 6 entries, numbered from 0; there is no '9'",
    "stages.rewrite=1": "name a field of the stage: stages.rewrite.name",
    "stages.fuzzy_dedup.treshold=1": "stages.fuzzy_dedup has no field 'treshold'; did you mean threshold",
    "stages.fuzzy_dedup.kind=filter": "stages.fuzzy_dedup has no field 'kind'",
    "stages.filter.rules=gopher": "'filter' is ambiguous: name filter_1 or filter_2",
    "stages.filter_1.wrods.min=5": "has no field or rule 'wrods', and no measure has that name; did you mean words",
    "stages.filter_1.rulse=gopher": "has no field or rule 'rulse', and no measure has that name; did you mean rules",
    "stages.filter_1.words=5": "give a bound of words: stages.filter_1.words.min=50",
    "stages.filter_1.too_many_words=5": "give a bound of too_many_words: stages.filter_1.too_many_words.max=100000",
    "stages.filter_1.words.min.x=5": "give a bound of words",
    "stages.filter_1.words=off": "'words' is ambiguous: name too_few_words or too_many_words",
    "stages.filter_1.words.at_least=5": "a rule has no condition 'at_least'; did you mean min?",
    "stages.filter_1.wrods=off": "has no field or rule 'wrods', and no measure has that name; did you mean words",
    "stages.filter_1.urls=off": "no rule named 'urls'; expected one of ",
    "stages.filter_1.too_few_words.mim=5": "a rule has no condition 'mim'; did you mean min",
    "stages.filter_1.words.min=many": "Expected `float | null`, got `str`",
    "stages.filter_2.urls=off": "stages.filter_2 would have no rules. Remove the stage instead",
    "stages.filter_2.urls.min=7": "min 7.0 is above max 5.0",
    "stages.filter_2.urls/wrods.min=1": "no measure named 'wrods'; did you mean words",
    "name.x.y=https://user:secret@host.org": "setting 'name.x.y': name is a single value and has no field 'x'",
}  # fmt: skip


@pytest.mark.parametrize("setting", WRONG_SETTINGS)
def test_a_wrong_setting_is_refused(setting: str):
    content = yaml.safe_load(RECIPE)
    content["stages"].append({"kind": "filter", "rules": [{"measure": "urls", "max": 5}]})
    with pytest.raises(RecipeError) as error:
        apply_settings(content, [setting], Recipe)
    message = str(error.value)
    assert message.startswith("setting ") and WRONG_SETTINGS[setting] in message, message
    assert "secret" not in message and "\n" not in message


@pytest.mark.parametrize("setting", ["stages.filter.words.min=1", "input.0.sample=1"])
def test_a_recipe_without_what_a_setting_changes(setting: str):
    with pytest.raises(RecipeError, match=rf"the recipe has no {setting.split('.')[0]}.* to change\. Add one first"):
        apply_settings({}, [setting], Recipe)


def test_what_two_places_share_in_yaml_is_changed_in_one():
    text = "stages: [{kind: filter, name: a, rules: &r [{measure: words, min: 5}]}, {kind: filter, name: b, rules: *r}]"
    recipe = parse_recipe(text, settings=["stages.a.words.min=9"])
    assert [stage.rules[0].min for stage in recipe.stages] == [9, 5]


def test_settings_follow_one_another():
    settings = [
        "stages=[exact_dedup, {filter: {rules: nemo}}]",
        "stages.exact_dedup.name=x",
        "stages.x.compare=lowercase",
    ]
    stages = parse_recipe(RECIPE, settings=settings).stages
    assert (stages[0].name, stages[0].compare) == ("x", "lowercase")


def test_names_of_stages_and_of_rule_sets():
    recipe = load_recipe("default", settings=[stages_setting("exact_dedup, ngram_dedup")])
    assert [stage.kind for stage in recipe.stages] == ["exact_dedup", "ngram_dedup"]
    recipe = load_recipe("default", settings=[stages_setting("[{exact_dedup: {max_characters: 9}}]")])
    assert recipe.stages[0].max_characters == 9
    assert load_recipe("default", settings=[stages_setting("[]")]).stages == []
    for text, rules in (
        ("nemo", ["nemo"]),
        ("nemo, fineweb", ["nemo", "fineweb"]),
        ("[nemo]", ["nemo"]),
        ("{words: {min: 5}}", [{"measure": "words", "min": 5}]),
    ):
        recipe = load_recipe("default", settings=[rules_setting(text)])
        written = parse_recipe(f"stages: [{{kind: filter, rules: {rules}, words: scripts}}]")
        assert recipe.stages[2] == written.stages[0]


@pytest.mark.parametrize(
    ("make", "text", "told"),
    [
        (rules_setting, "gofer", "no rule set named 'gofer'; did you mean gopher"),
        (
            rules_setting,
            "words >= 50",
            r"no rule set named 'words >= 50'.*Give names of rule sets, or rules in YAML: \{w",
        ),
        (rules_setting, "", "rules must be comma-separated names, such as gopher.*; got ''"),
        (rules_setting, "nemo,", "rules must be comma-separated names"),
        (stages_setting, "", "stages must be comma-separated names, such as exact_dedup,fuzzy_dedup; got ''"),
        (stages_setting, "exact_dedpu", "Invalid value 'exact_dedpu'.*did you mean exact_dedup"),
        (rules_setting, "[gopher", "setting 'stages.filter.rules': the value .* is not valid YAML"),
    ],
)
def test_wrong_names_of_stages_and_rule_sets(make: Any, text: str, told: str):
    with pytest.raises(RecipeError, match=told):
        load_recipe("default", settings=[make(text)])


def test_settings_of_inputs_given_beside_the_recipe(tmp_path: Path):
    news = Input(path="b.jsonl", name="news")
    settings = ["input.news.sample=0.1", "output.part_documents=3", "input.0.format=csv"]
    recipe = load_recipe("default", ["a", news], settings=settings)
    assert recipe.input == [Input(path="a", format="csv"), Input(path="b.jsonl", name="news", sample=0.1)]
    assert recipe.output.part_documents == 3
    with pytest.raises(RecipeError, match="no input named 'nwes'; did you mean news"):
        load_recipe("default", news, settings=["input.nwes.sample=1"])
    (tmp_path / "mine.yaml").write_text(RECIPE)
    assert load_recipe(tmp_path / "mine.yaml", settings=["input.books.sample=0.1"]).input[1].sample == 0.1


def test_a_setting_of_what_is_no_input_is_one_message():
    with pytest.raises(
        RecipeError, match=r"setting 'input\.0\.sample': input\.0 is a single value and has no field 'sample'"
    ):
        apply_settings({"input": [5]}, ["input.0.sample=1"], Recipe)


def test_a_setting_is_checked_as_the_recipe_is():
    with pytest.raises(RecipeError, match=r"default: Expected `int`, got `str` - at `\$.output.pad_id`"):
        load_recipe("default", settings=["output.pad_id=three"])
    with pytest.raises(RecipeError, match="1e6 is text in YAML, write 1_000_000"):
        load_recipe("default", settings=["output.part_bytes=1e6"])
    with pytest.raises(RecipeError, match=r"setting 'output\.seed': output has no field 'seed'"):
        load_recipe("default", settings=["output.seed=3"])


def test_the_default_recipe_with_other_bounds():
    recipe = load_recipe("default", settings=["stages.filter.words.min=100", "stages.filter.top_2gram=off"])
    names = {rule.name: rule for rule in expand_rules(recipe.stages[2].rules)}
    assert {*names["too_few_words"].limits[0, names["too_few_words"].member]} == {100} and "top_2gram" not in names
    assert convert_recipe(as_builtins(recipe)) == recipe


# Rules of one value of a column

PER_LANGUAGE = """
stages:
  - kind: filter
    rules:
      - {words: {max: 4000, reason: long}}
      - per: language
        rules: {en: [{words: {min: 60}}, gopher_repetition], de: en, pl: keep, other: {words: {min: 5}}}
"""


def test_a_setting_of_a_value_changes_the_rules_of_its_group_alone():
    settings = ["stages.filter.de.words.min=70", "stages.filter.de.top_4gram=off", "stages.filter.other.words.max=900"]
    recipe: Any = parse_recipe(PER_LANGUAGE, settings=settings)
    rules = {rule.name: rule for rule in expand_rules(recipe.stages[0].rules) if isinstance(rule, GroupedRule)}
    words, groups = rules["words"], rules["words"].groups
    bounds = {name: (*words.limits[:, number],) for number, name in enumerate(("en", "other"))}
    assert bounds == {"en": (70, math.inf), "other": (5, 900)} and groups.find("de") == groups.find("en") == 0
    assert "top_4gram" not in rules and "top_3gram" in rules


@pytest.mark.parametrize("rules", ["fineweb2", "[{set: fineweb2, other: keep}]", "{fineweb2: {other: keep}}"])
def test_a_setting_of_a_language_is_an_override_of_the_set(rules: str):
    settings = ["stages.filter.de.too_few_words.min=70", "stages.filter.de.too_few_words.min=80",
                "stages.filter.de.words_too_long=off"]  # fmt: skip
    recipe: Any = parse_recipe(f"stages: [{{filter: {{rules: {rules}}}}}]", settings=settings)
    (rule,) = recipe.stages[0].rules
    assert rule.group_override["de"] == {"too_few_words": Bounds(min=80), "words_too_long": "off"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("xx.words.min=70", "has no field or rule 'xx'"),
        ("en.wrods.min=70", "stages.filter.en has no field or rule 'wrods'"),
        ("en.words=70", "give a bound of words: stages.filter.en.words.min=60"),
        ("en.words.min=much", "Expected `float"),
        ("pl.words.min=70", "'pl' has no rules of its own"),
    ],
)
def test_wrong_settings_of_values_end_in_one_message(setting: str, message: str):
    with pytest.raises(RecipeError) as error:
        parse_recipe(PER_LANGUAGE, settings=[f"stages.filter.{setting}"])
    assert message in str(error.value)


def test_a_wrong_bound_of_a_language_ends_in_one_message():
    recipe = "stages: [{filter: {rules: [{set: fineweb2, other: keep}]}}]"
    for setting, message in {
        "de.too_few_words=70": "give a bound of too_few_words: stages.filter.de.too_few_words.min=50",
        "de.too_few_words.mni=70": "Object contains unknown field `mni`",
        "de.too_few_wrods.min=70": "has no rule 'too_few_wrods'",
    }.items():
        with pytest.raises(RecipeError) as error:
            parse_recipe(recipe, settings=[f"stages.filter.{setting}"])
        assert message in str(error.value), str(error.value)
