# SPDX-License-Identifier: Apache-2.0
"""A wrong recipe is refused with the place of what is wrong; a right one comes back from what a run stores of it."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import yaml

from curation.base.errors import RecipeError
from curation.reading.inputs import Input
from curation.recipes import yaml_text
from curation.recipes.changes import changed_keys
from curation.recipes.doubts import order_advice
from curation.recipes.imported.config import import_config
from curation.recipes.recipe import (
    DEFAULT_RECIPE,
    Output,
    Recipe,
    as_builtins,
    convert_recipe,
    load_recipe,
    parse_recipe,
    shipped_recipes,
)
from curation.recipes.yaml_text import parse_yaml
from curation.rules.decide import Rule
from curation.stages import ExactDedup, Filter, Rewrite
from curation.tools.synthesis.task import load_task

WHOLE = """
name: news
input:
  - {path: "data/*.jsonl", name: news, blend_weight: 0.7}
  - {path: books, text_column: body, id_column: key, blend_weight: 0.3}
stages:
  - {kind: rewrite, unicode: nfc, whitespace: collapse}
  - {kind: filter, rules: gopher}
  - kind: filter
    rules: [nemo, {measure: words, min: 50, max: 1000}, {ratio: [symbols, words], max: 0.1, reason: s}]
  - {kind: exact_dedup, max_characters: 300, compare: lowercase}
tokenizer: {name: gpt2, append_eod: false}
seed: 5
output: {shuffle: true, part_documents: 10}
"""


def test_a_recipe_in_yaml_and_in_python_are_one():
    recipe = parse_recipe(WHOLE)
    assert recipe.input[0] == Input(path="data/*.jsonl", name="news", blend_weight=0.7)
    words = Rule(measure="words", min=50, max=1000)
    symbols = Rule(ratio=("symbols", "words"), max=0.1, reason="s")
    assert recipe.stages == [
        Rewrite(unicode="nfc", whitespace="collapse"),
        Filter(rules="gopher"),
        Filter(rules=["nemo", words, symbols]),
        ExactDedup(max_characters=300, compare="lowercase"),
    ]
    assert recipe.output == Output(shuffle=True, part_documents=10) and recipe.seed == 5
    assert recipe.stage_names == ["rewrite", "filter_1", "filter_2", "exact_dedup"]


def test_nothing_is_a_recipe_too():
    assert parse_recipe("{}") == parse_recipe("stages: []") == Recipe()


@pytest.mark.parametrize("text", ["", "\n\n", "# stages: []\n", "---\n", "null"])
def test_an_empty_file_is_no_recipe(tmp_path: Path, text: str):
    (tmp_path / "mine.yaml").write_text(text)
    message = r"mine\.yaml is empty, expected a recipe\. Write `stages: \[\]` to keep all documents as they are$"
    with pytest.raises(RecipeError, match=message):
        load_recipe(tmp_path / "mine.yaml")


def test_what_a_run_stores_of_a_recipe_is_the_recipe():
    recipe = parse_recipe(WHOLE)
    stored = as_builtins(recipe)
    assert convert_recipe(stored) == recipe
    assert parse_recipe(yaml.safe_dump(stored)) == recipe
    assert stored["stages"][2]["rules"][2] == {
        "measure": "",
        "ratio": ["symbols", "words"],
        "max": 0.1,
        "reason": "s",
    }
    assert changed_keys(stored, as_builtins(convert_recipe(stored))) == []


def test_the_largest_seed_and_a_bound_without_end_are_stored():
    recipe = parse_recipe(
        "seed: 18446744073709551615\nstages: [{kind: filter, rules: [{measure: words, min: 5, max: .inf}]}]"
    )
    assert convert_recipe(orjson.loads(orjson.dumps(as_builtins(recipe)))) == recipe


def test_own_names_of_stages():
    stages = [{"kind": "filter", "rules": "nemo", "name": "mine"}, {"kind": "filter", "rules": "nemo"}]
    assert convert_recipe({"stages": stages}).stage_names == ["mine", "filter_2"]


WRONG = {
    "stagse: []": ("`stagse`", "did you mean stages"),
    "stages: {}": ("$.stages", "array"),
    "[1, 2]": ("Expected `object`", "array"),
    "name: 5": ("$.name", "Expected `str`"),
    "input: [{pth: x}]": ("$.input[0]", "`pth`", "did you mean path"),
    "input: [{path: x, text_field: body}]": ("$.input[0]", "`text_field`", "did you mean text_column"),
    "input: [{path: x}, {path: y, format: xml}]": ("$.input[1]", "format must be one of"),
    "input: [{path: x, blend_weight: '2'}]": ("$.input[0].blend_weight", "Expected `float`"),
    "input: [{name: x}]": ("$.input[0]", "missing required field `path`"),
    "stages: [{rules: gopher}]": ("$.stages[0]", "missing required field `kind`"),
    "stages: [{kind: filtre, rules: gopher}]": ("$.stages[0].kind", "Invalid value 'filtre'"),
    "stages: [{kind: filter}]": ("$.stages[0]", "missing required field `rules`"),
    "stages: [{kind: filter, rules: gofer}]": ("$.stages[0]", "no rule set named 'gofer'; did you mean gopher"),
    "stages: [{kind: filter, rules: []}]": ("$.stages[0]", "rules is empty"),
    "stages: [{kind: filter, rules: [{measure: word, min: 1}]}]": ("$.stages[0].rules[0]", "did you mean words"),
    "stages: [{kind: filter, rules: [{measure: words}]}]": ("$.stages[0].rules[0]", "without min and max"),
    "stages: [{kind: filter, rules: [{min: 1}]}]": ("$.stages[0].rules[0]", "give one of measure: NAME, ratio:"),
    "stages: [{kind: filter, rules: [{ratio: [words], min: 1}]}]": ("$.stages[0].rules[0]", "two measures"),
    "stages: [{kind: filter, rules: [{measure: words, min: 2, max: 1}]}]": ("$.stages[0].rules[0]", "min 2.0 is above"),
    "stages: [{kind: filter, rules: [{measure: words, mni: 2}]}]": ("$.stages[0].rules[0]", "`mni`"),
    "stages: [{kind: exact_dedup}, {kind: rewrite, unicode: nfc}, {kind: exact_dedup, max_character: 3}]": (
        "$.stages[2]", "`max_character`", "did you mean max_characters",
    ),
    "stages: [{kind: exact_dedup, max_characters: -1}]": ("$.stages[0]", "max_characters must be 0 (all) or more"),
    "stages: [{kind: exact_dedup, compare: fuzzy}]": ("$.stages[0]", "compare must be one of exact, lowercase"),
    "stages: [{kind: rewrite}]": ("$.stages[0]", "this rewrite changes nothing"),
    "stages: [{kind: rewrite, unicode: nfx}]": ("$.stages[0]", "unicode must be one of"),
    "stages: [{kind: rewrite, lowercase: 1}]": ("$.stages[0].lowercase", "Expected `bool`"),
    "stages: [{kind: lines, rules: fineweb, max_removed: 0.3}]": ("Write max_removed: {words: 0.3}",),
    "stages: [{kind: filter, rules: [{listed: a.txt, max_count: 0}]}]": ("Write listed: {file: a.txt, as: domain}",),
    "stages: [{kind: line_dedup, unit: word}]": ("unit must be one of line, paragraph, sentence, not 'word' - at",),
    "tokenizer: gpt2": ("$.tokenizer", "Expected `object`"),
    "tokenizer: {naame: gpt2}": ("$.tokenizer", "`naame`", "did you mean name"),
    "tokenizer: {name: ''}": ("$.tokenizer", "tokenizer name must be"),
    "output: {formats: [megaton]}": ("$.output", "no output format 'megaton'; did you mean megatron"),
    "output: {seed: 5}": ("mine.yaml: Object contains unknown field `seed` - at `$.output`",),
    "output: {part_bytes: 0}": ("$.output", "part_bytes must be at least 1, not 0"),
    "output: {part_byte: 10}": ("$.output", "`part_byte`", "did you mean part_bytes"),
    "stages: [{kind: filter, rules: nemo, name: x}, {kind: exact_dedup, name: x}]": ("two stages are named 'x'",),
    "stages: []\nname: x\nstages: []": ("duplicate key 'stages'", "line 3"),
    "input: [{path: x, path: y}]": ("duplicate key 'path'",),
    "seed: -1": ("seed must be at least 0, not -1"),
    "seed: 99999999999999999999": ("seed must fit 64 bits, not 99999999999999999999",),
    "input: [{path: x, max_bytes: 9223372036854775808}]": ("input[0].max_bytes must fit 64 bits",),
    "input: [{path: x, max_document_bytes: 2147483648}]": (
        "max_document_bytes must be at most 2,147,483,647, the longest string of a Parquet file, not 2147483648",
    ),
    "input: [{path: x, columns: [split]}]\noutput: {splits: {train: 0.9, test: 0.1}}": (
        "columns of x has 'split', which output.splits writes; leave one of them out, or give the column another name: "
        "columns: {input_split: split}",
    ),
    "output: {formats: [blocks], pad_id: -2}": ("$.output", "pad_id must be at least -1, not -2"),
    "stages: [{kind: exact_dedup, max_characters: 99999999999999999999}]": ("stages[0].max_characters must fit 64",),
    "input: [{path: x, blend_weight: .inf}]": ("input[0].blend_weight must be finite, not inf",),
    "input: [{path: a, blend_weight: 1}, {path: b}]": (
        "share of an input in training: b has none", "Give every input one, or set output.blend.by: tokens",
    ),
    "output: {blend: {by: temperature, temperature: .inf}}": ("output.blend.temperature must be finite, not inf",),
    "seed: 1.5": ("$.seed", "Expected `int`"),
    "output: {part_bytes: 1e6}": ("$.output.part_bytes", "Expected `int`", "; 1e6 is text in YAML, write 1_000_000"),
    "input: [{path: x, blend_weight: 1e-3}]": ("[0].blend_weight", "; 1e-3 is text in YAML, write it with a dot"),
    "input: [{path: x, max_document_bytes: 2.5E3}]": ("; 2.5E3 is text in YAML, write 2_500",),
    "seed: 1e-3": ("Expected `int`, got `str` - at `$.seed`$",),
    "stages: [{kind: decontaminate, evaluation_files: [{path: x, ngram: 3}]}]": (
        "unknown field `ngram`",
        ".evaluation_files[0]`; it is a setting of a stage: {kind: decontaminate, ngram: ...}",
    ),
}  # fmt: skip


# What YAML takes for a number, a date or a truth value, and Python does not.
NO_VALUES = {
    "name: 2001-13-45": "'2001-13-45' is not a valid timestamp",
    "name: " + "9" * 5000: f"'{'9' * 40}...' is not a valid int",
    "seed: -" + "9" * 5000: f"'-{'9' * 39}...' is not a valid int",
    "budget: {max_bytes: 0x" + "f" * 5000 + "}": f"'0x{'f' * 38}...' is not a valid int",
    "name: " + ":".join(["59"] * 300) + ".5": f"'{'59:' * 13}5...' is not a valid float",
    "? " + "9" * 5000 + "\n: 1": f"'{'9' * 40}...' is not a valid int",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_recipes_name_the_place(text: str):
    with pytest.raises(RecipeError) as error:
        parse_recipe(text, "mine.yaml")
    message = str(error.value)
    assert message.startswith("mine.yaml")
    assert [part for part in WRONG[text] if part not in f"{message}$"] == [], message


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t- x", "\x00", b"\xff\xfe\xff"])
def test_what_is_no_yaml(text: str):
    with pytest.raises(RecipeError, match=r"mine\.yaml is not valid YAML"):
        parse_recipe(text, "mine.yaml")


TAGS = {
    "name: !!binary aGVsbG8=": "'!!binary' is not allowed (line 1, column 7)",
    "stages: []\ninput: !!set {a, b}": "'!!set' is not allowed (line 2, column 8)",
    "seed: !!int '3'": "'!!int' is not",
    "name: !!timestamp 2001-01-01": "'!!timestamp' is not",
    "!!omap [a: 1]": "'!!omap' is not",
    "? !!str stages\n: []": "'!!str' is not",
    "stages: [!!merge <<]": "'!!merge' is not",
    "name: !!python/name:os.system x": "'!!python/name:os.system' is not",
    "name: !<tag:yaml.org,2002:binary> x": "'!!binary' is not",
    "%TAG ! tag:x.example,2000:\n---\nname: !y 1": "'tag:x.example,2000:y' is not",
    "name: !local x": "'!local' is not",
    "name: ! x": "'!' is not",
    "name: !u!x 1": "handle '!u!'",
    "name: !" + "x" * 5000: "'!" + "x" * 39 + "' is not",
}


@pytest.mark.parametrize("text", TAGS)
def test_tags_are_refused(text: str):
    with pytest.raises(RecipeError) as error:
        parse_recipe(text, "mine.yaml")
    message = str(error.value)
    assert message.startswith("mine.yaml is not valid YAML: ") and TAGS[text] in message and len(message) < 250
    assert message.endswith(
        ". Remove the tag: a value is text, a number, a list or a mapping. Quote text that begins with !"
    )


@pytest.mark.parametrize("read", [
    load_recipe, load_task, import_config, lambda path: load_recipe("default", settings=[f"name={path.read_text()}"]),
], ids=["recipe", "task", "import-config", "--set"])  # fmt: skip
def test_tags_are_refused_wherever_yaml_is_read(tmp_path: Path, read: Callable[[Path], object]):
    (tmp_path / "mine.yaml").write_text("!!binary aGVsbG8=")
    with pytest.raises(RecipeError, match="tag '!!binary' is not allowed"):
        read(tmp_path / "mine.yaml")


NINE_TIMES = "".join(
    f"{name}: &{name} [{', '.join([before] * 9)}]\n"
    for before, name in zip(("x", "*a", "*b", "*c", "*d", "*e", "*f"), "abcdefg", strict=True)
)
NO_RECIPES = {
    'name: "\\uD800"': r"name must be text that UTF-8 can hold, not '\\ud800'",
    'stages: [{kind: filter, rules: [{measure: words, min: 5, reason: "\\uDC00"}]}]': "reason must be text",
    '"\\uD800": 1': r"'\\ud800' is not text that UTF-8 can hold",
    "[" * 1500: "nested too deeply",
    "- " * 1500 + "x": "nested too deeply",
    "a: " + "[" * 900 + "]" * 900: "nested too deeply",
    "a: &a [*a]": "nested too deeply",
    "#" * 4_000_001: "has more than 4,000,000 bytes, too many for a recipe. Put long lists into files",
    NINE_TIMES: r"expands to 6,053,444 values through aliases",
}


@pytest.mark.parametrize("text", NO_RECIPES)
def test_what_cannot_be_a_recipe_ends_in_one_message(text: str):
    with pytest.raises(RecipeError, match=NO_RECIPES[text]):
        parse_recipe(text)


def test_text_that_is_nested_too_deeply_is_no_recipe(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("[" * 3000)
    with pytest.raises(RecipeError, match="looks like data: give it with --input"):
        load_recipe(tmp_path / "mine.txt")


def test_merged_values_are_bounded(monkeypatch: pytest.MonkeyPatch):
    chain = "".join(f"a{k}: &a{k} {{<<: *a{k - 1}, x{k}: {k}}}\n" for k in range(1, 9))
    assert parse_yaml(f"a0: &a0 {{x: 0}}\n{chain}", "mine.yaml")["a8"] == {"x": 0, **{f"x{k}": k for k in range(1, 9)}}
    monkeypatch.setattr(yaml_text, "MAX_VALUES", 20)
    with pytest.raises(RecipeError, match=r"merges \(<<\) make more than 20 values \(line 8, column 5\)\. Write the"):
        parse_yaml(f"a0: &a0 {{x: 0}}\n{chain}", "mine.yaml")


@pytest.mark.parametrize("text", NO_VALUES)
def test_scalars_that_are_no_values_name_the_line(tmp_path: Path, text: str):
    (tmp_path / "mine.txt").write_text(text)
    with pytest.raises(RecipeError) as error:
        load_recipe(tmp_path / "mine.txt")
    message = str(error.value)
    assert f"{NO_VALUES[text]}; quote it if it is text" in message and "line 1" in message and len(message) < 400


def test_shipped_recipes_load_and_can_be_listed():
    shipped = shipped_recipes()
    assert DEFAULT_RECIPE in shipped
    for name, text in shipped.items():
        recipe = load_recipe(name)
        assert recipe == parse_recipe(text) and recipe.stages and not recipe.input
        assert text.startswith("# "), "the first line is what the list of recipes shows"


def test_a_recipe_by_path_or_by_name(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("name: mine")
    assert load_recipe(str(tmp_path / "mine.yaml")).name == "mine"
    with pytest.raises(RecipeError, match=r"recipe .*none\.yaml does not exist; give a YAML file or one of .*default"):
        load_recipe(str(tmp_path / "none.yaml"))
    with pytest.raises(RecipeError, match="no recipe named 'defaultt'; did you mean default"):
        load_recipe("defaultt")
    (tmp_path / "data.jsonl.gz").write_bytes(b"")
    for name in (tmp_path / "data.jsonl.gz", "none.parquet"):
        with pytest.raises(RecipeError, match=rf"{name} looks like data: give it with --input"):
            load_recipe(str(name))


@pytest.mark.parametrize("name", ["recipe.json", "recipe.txt", "recipe.JSON"])
def test_a_recipe_may_have_a_name_that_data_may_have(tmp_path: Path, name: str):
    path = tmp_path / name
    with pytest.raises(RecipeError, match=r"does not exist; give a YAML file"):
        load_recipe(path)
    path.write_text('{"name": "mine"}')
    assert load_recipe(path).name == "mine"
    path.write_text('{"nam": "mine"}')
    with pytest.raises(RecipeError, match="unknown field `nam`"):
        load_recipe(path)
    for text in ('{"text": "a"}\n{"text": "b"}', "[1, 2]", "Some words.", "", '{"name": "%s"}' % ("x" * (1 << 20))):
        path.write_text(text)
        with pytest.raises(RecipeError, match=rf"{name} looks like data: give it with --input"):
            load_recipe(path)


def test_a_shipped_recipe_takes_inputs(tmp_path: Path):
    news = Input(path="b.jsonl", name="news")
    for given, expected in (
        ("a.jsonl", [Input(path="a.jsonl")]),
        (tmp_path, [Input(path=str(tmp_path))]),
        (news, [news]),
        (["a.jsonl", tmp_path / "x", news], [Input(path="a.jsonl"), Input(path=str(tmp_path / "x")), news]),
    ):
        recipe = load_recipe("default", input=given)
        assert recipe.input == expected and recipe.stages == load_recipe("default").stages
    (tmp_path / "mine.yaml").write_text("input: [{path: other}]")
    assert load_recipe(tmp_path / "mine.yaml").input == [Input(path="other")]
    assert load_recipe(tmp_path / "mine.yaml", input=["a"]).input == [Input(path="a")]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (5, r"Expected `object`, got `int` - at `\$\.input\[0\]`"),
        (["a", None], r"Expected `object`, got `null` - at `\$\.input\[1\]`"),
        (b"a", "got `bytes`"),
        ("", "path is empty"),
        ({"path": "a", "nam": "b"}, "unknown field `nam`"),
        (Input(path="a", columns=["language"]), "a has 'language', which the stage language writes"),
    ],
    ids=repr,
)
def test_inputs_that_are_none(tmp_path: Path, given: object, told: str):
    (tmp_path / "mine.yaml").write_text("stages: [{kind: language, keep: [en]}]")
    with pytest.raises(RecipeError, match=rf"mine\.yaml with another input: .*{told}"):
        load_recipe(tmp_path / "mine.yaml", input=given)


def test_changed_keys():
    before = as_builtins(parse_recipe(WHOLE))
    assert changed_keys(before, before) == []
    edits = {
        "seed: 5": ("seed: 6", ["seed"]),
        "name: news\ninput": ("name: other\ninput", ["name"]),
        "min: 50, ": ("", ["stages[2].rules[1].min"]),
        "max_characters: 300": ("max_characters: 301", ["stages[3].max_characters"]),
        "{kind: filter, rules: gopher}": (
            "{kind: filter, rules: nemo, name: x}",
            ["stages[1].name", "stages[1].rules"],
        ),
        "  - {kind: filter, rules: gopher}\n": ("", ["stages"]),
        "blend_weight: 0.7": ("blend_weight: 0.5", ["input[0].blend_weight"]),
    }
    for old, (new, expected) in edits.items():
        assert WHOLE.count(old) == 1
        assert changed_keys(before, as_builtins(parse_recipe(WHOLE.replace(old, new)))) == expected, old
    assert changed_keys(1, 2) == ["recipe"]


FEW = {"kind": "filter", "rules": {"words": {"min": 5}}}
ADVICE = "{0} compares documents that {1} may remove later. Put {1} before {0}: the run "
ORDERS: dict[str, tuple[list[object], tuple[str, ...]]] = {
    "near-duplicates first": (["fuzzy_dedup", FEW], ("fuzzy_dedup", "filter")),
    "two filters": (["fuzzy_dedup", "exact_dedup", {"kind": "language", "keep": "en"}, FEW | {"name": "short"}],
                    ("fuzzy_dedup", "language and short")),
    "rules by language": (["fuzzy_dedup", "language", FEW], ("fuzzy_dedup", "language and filter")),
    "vectors": ([{"kind": "semantic_dedup", "column": "v"}, "measure", FEW], ("semantic_dedup", "filter")),
    "near-duplicates last": ([FEW, "fuzzy_dedup"], ()),
    "exact duplicates first": (["exact_dedup", FEW], ()),
    "labels remove nothing": (["fuzzy_dedup", "language"], ()),
    "edited before it is judged": (["fuzzy_dedup", {"kind": "rewrite", "lowercase": True}, FEW], ()),
    "a share": (["fuzzy_dedup", {"kind": "select", "column": "n", "max_documents": 9}, FEW], ()),
    "a column of a measure": (["fuzzy_dedup", {"kind": "measure", "script": True},
                               {"kind": "filter", "rules": [{"column": "script", "in": ["Latn"]}]}], ()),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_a_plan_advises_filters_before_near_duplicates(name: str):
    stages, named = ORDERS[name]
    advice = order_advice(convert_recipe({"stages": stages}))
    assert [line.partition("compares fewer")[0] for line in advice] == ([ADVICE.format(*named)] if named else [])


def test_no_shipped_recipe_is_advised_another_order():
    """Also with the stages that need files, which `load_recipe` leaves out."""
    for name, text in shipped_recipes().items():
        assert order_advice(load_recipe(name)) == [], name
        stages = yaml.safe_load(text)["stages"]
        kinds = [stage if isinstance(stage, str) else stage["kind"] for stage in stages]
        near = kinds.index("fuzzy_dedup") if "fuzzy_dedup" in kinds else len(kinds)
        assert not {"filter", "language"} & {*kinds[near:]}, name
