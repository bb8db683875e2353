# SPDX-License-Identifier: Apache-2.0
"""`curate import-config`: configurations of other tools become recipes; what is left out has a line; nothing is run."""

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import yaml

from curation import Filter
from curation.base.errors import RecipeError
from curation.cli import main
from curation.recipes.imported import curator, datajuicer, datatrove, dolma
from curation.recipes.imported.config import MAX_BYTES, Imported, _as_stages, _translated, import_config
from curation.recipes.imported.entries import Entry, Made, NotTranslated, Settings, Translation, Unread
from curation.recipes.recipe import convert_recipe, load_recipe, shipped_recipes
from curation.rules.decide import RULE_SETS

TOOLS = {tool.NAME: tool for tool in (curator, datajuicer, datatrove, dolma)}
ENTRIES = [(name, entry) for name, tool in TOOLS.items() for entry in tool.TABLE]

# The settings of NeMo Curator's heuristics for English, in the order of its own configuration.
HEURISTICS: list[tuple[str, dict[str, Any]]] = [
    ("string.NonAlphaNumericFilter", {"max_non_alpha_numeric_to_text_ratio": 0.25}),
    ("string.SymbolsToWordsFilter", {"max_symbol_to_word_ratio": 0.1}),
    ("string.NumbersFilter", {"max_number_to_text_ratio": 0.15}),
    ("string.UrlsFilter", {"max_url_to_text_ratio": 0.2}),
    ("string.WhiteSpaceFilter", {"max_white_space_ratio": 0.25}),
    ("string.ParenthesesFilter", {"max_parentheses_ratio": 0.1}),
    ("repetition.RepeatedLinesFilter", {"max_repeated_line_fraction": 0.7}),
    ("repetition.RepeatedParagraphsFilter", {"max_repeated_paragraphs_ratio": 0.7}),
    ("repetition.RepeatedLinesByCharFilter", {"max_repeated_lines_char_ratio": 0.8}),
    ("repetition.RepeatedParagraphsByCharFilter", {"max_repeated_paragraphs_char_ratio": 0.8}),
    ("string.WordCountFilter", {"min_words": 50, "max_words": 100000}),
    ("string.PunctuationFilter", {"max_num_sentences_without_endmark_ratio": 0.85}),
    ("string.WordsWithoutAlphabetsFilter", {"min_words_with_alphabets": 0.8}),
    ("string.CommonEnglishWordsFilter", {"min_num_common_words": 2, "stop_at_false": True}),
    ("string.MeanWordLengthFilter", {"max_mean_word_length": 10, "min_mean_word_length": 3}),
    ("string.LongWordFilter", {"max_word_length": 1000}),
    ("string.EllipsisFilter", {"max_num_lines_ending_with_ellipsis_ratio": 0.3}),
    *(
        ("repetition.RepeatingTopNGramsFilter", {"n": n, "max_repeating_ngram_ratio": bound})
        for n, bound in ((2, 0.2), (3, 0.18), (4, 0.16))
    ),
    *(
        ("repetition.RepeatingDuplicateNGramsFilter", {"n": n, "max_repeating_duplicate_ngram_ratio": bound})
        for n, bound in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    ),
    ("string.BulletsFilter", {"max_bullet_lines_ratio": 0.9}),
]
SCORE = "nemo_curator.stages.text.filters.score_filter.ScoreFilter"
HEURISTIC = "nemo_curator.stages.text.filters.heuristic."


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(content: Any, name: str = "config.yaml") -> Imported:
    Path(name).write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), "utf-8")
    return import_config(name)


def recipe_of(found: Imported) -> dict[str, Any]:
    """The content of a recipe, which loads."""
    Path("recipe.yaml").write_text(found.text, "utf-8")
    load_recipe("recipe.yaml")
    return dict(yaml.safe_load(found.text))


def bounds_of(rules: Any) -> list[tuple[Any, ...]]:
    """What rules decide, without their reasons."""
    found = [convert_recipe({"stages": [{"filter": {"rules": [rule]}}]}).stages[0] for rule in rules if rule]
    return [decided for stage in found if isinstance(stage, Filter) for decided in map(_decided, stage.rules)]


def _decided(rule: Any) -> tuple[Any, ...]:
    return (rule.measure, rule.ratio, rule.matches, rule.per, rule.min, rule.max)


# Whole configurations, which are those of shipped recipes


def new_form() -> dict[str, Any]:
    stages: list[dict[str, Any]] = [
        {"_target_": SCORE, "filter_obj": {"_target_": HEURISTIC + name} | settings, "text_field": "${text_field}"}
        for name, settings in HEURISTICS
    ]
    reader = {"_target_": "nemo_curator.stages.text.io.reader.JsonlReader", "file_paths": "${input_path}"}
    writer = {"_target_": "nemo_curator.stages.text.io.writer.JsonlWriter", "path": "${output_path}", "fields": None}
    paths = {"input_path": "data", "output_path": "???", "text_field": "text"}
    return {"hydra": {"run": {"dir": "."}}, **paths, "stages": [reader, *stages, writer]}


def old_form() -> dict[str, Any]:
    module = "nemo_curator.filters.heuristic_filter."
    filters = [{"name": module + name.partition(".")[2], "params": settings} for name, settings in HEURISTICS]
    return {"input_field": "text", "filters": filters}


@pytest.mark.parametrize("form", [new_form, old_form])
def test_heuristics_of_curator_are_the_shipped_rules(form: Callable[[], dict[str, Any]]):
    found = imported(form())
    content = recipe_of(found)
    [stage] = content["stages"]
    assert [*map(_decided, RULE_SETS["curator_english"])] == bounds_of(stage["rules"])
    assert (found.tool, found.translated, found.entries) == ("NeMo Curator", found.entries, len(form().popitem()[1]))
    assert found.not_translated == []
    if form is new_form:
        assert content["input"] == [{"path": "data"}] and content["output"] == {"formats": [], "cleaned": "jsonl"}


GOPHER = [
    ("word_count", "< 50"), ("word_count", "> 100000"), ("median_word_length", "< 3"), ("median_word_length", "> 10"),
    ("symbol_to_word_ratio", "> 0.1"), ("fraction_of_words_with_alpha_character", "< 0.8"),
    ("required_word_count", "< 2"), ("fraction_of_lines_starting_with_bullet_point", "> 0.9"),
    ("fraction_of_lines_ending_with_ellipsis", "> 0.3"), ("fraction_of_duplicate_lines", "> 0.3"),
    ("fraction_of_characters_in_duplicate_lines", "> 0.3"),
    *((f"fraction_of_characters_in_most_common_{n}gram", f"> {b}") for n, b in ((2, 0.2), (3, 0.18), (4, 0.16))),
    *(
        (f"fraction_of_characters_in_duplicate_{n}grams", f"> {bound}")
        for n, bound in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    ),
]  # fmt: skip


def excluded(name: str, comparison: str) -> str:
    return f"$.attributes[?(@.{name} && @.{name}[0]\n  && @.{name}[0][2] {comparison})]"


def mixer(exclude: list[str], **stream: Any) -> dict[str, Any]:
    return {"streams": [{"name": "a", "documents": ["a/*.gz"], "filter": {"include": [], "exclude": exclude}} | stream]}


def test_a_mixer_of_dolma_has_the_shipped_rules():
    found = imported(mixer([excluded(f"rules__gopher_v1__{name}", bound) for name, bound in GOPHER]))
    [stage] = recipe_of(found)["stages"]
    expected = [
        rule
        for decided in map(_decided, RULE_SETS["dolma"])
        for rule in (
            [(*decided[:4], 3, math.inf), (*decided[:4], -math.inf, 10)] if decided[0].startswith("med") else [decided]
        )
    ]
    assert bounds_of(stage["rules"]) == expected and not found.not_translated


REDPAJAMA = """
dataset_path: data/c4.jsonl
export_path: out.jsonl
np: 50
process:
  - clean_email_mapper:
  - clean_links_mapper:
  - punctuation_normalization_mapper:
  - whitespace_normalization_mapper:
  - alphanumeric_filter: {tokenization: false, min_ratio: 0.65, max_ratio: 0.9}
  - average_line_length_filter: {max_len: 3000}
  - character_repetition_filter: {rep_len: 10, max_ratio: 0.3}
  - maximum_line_length_filter: {max_len: 4000}
  - special_characters_filter: {max_ratio: 0.4}
  - words_num_filter: {tokenization: true, min_num: 20, max_num: 10000}
  - word_repetition_filter: {lang: en, tokenization: true, rep_len: 10, max_ratio: 0.231}
  - document_simhash_deduplicator:
      {tokenization: space, window_size: 6, ignore_pattern: '\\p{P}', num_blocks: 6, hamming_distance: 4}
"""


def test_operators_of_data_juicer_are_the_shipped_stages():
    found = imported(REDPAJAMA)
    content, shipped = recipe_of(found), yaml.safe_load(shipped_recipes()["datajuicer_redpajama"])["stages"]
    by_name = {stage.get("name", stage["kind"]): stage for stage in shipped}
    email, links, punctuation, white_space, rules, fuzzy = content["stages"]
    assert email["replace"] + links["replace"] == by_name["links"]["replace"]
    assert (punctuation, white_space) == (by_name["punctuation"], by_name["white_space"])
    assert bounds_of(rules["rules"]) == [*map(_decided, RULE_SETS["datajuicer_redpajama"])]
    assert fuzzy == by_name["fuzzy_dedup"]
    assert content["input"] == [{"path": "data/c4.jsonl"}] and not found.not_translated


FINEWEB = """
import os
os.makedirs("made_by_the_script")
from datatrove.executor.slurm import SlurmPipelineExecutor
BASE = "out"
DUMP: str = "CC-1"
CONFIG = MinhashConfig(hash_config=HashConfig(precision=64), num_buckets=14, hashes_per_bucket=8, n_grams=5)
READER = JsonlReader(f"{BASE}/kept/{DUMP}")
first = SlurmPipelineExecutor(
    pipeline=[
        WarcReader(f"crawl/{DUMP}/", glob_pattern="*/warc/*", default_metadata={"dump": DUMP}),
        URLFilter(exclusion_writer=JsonlWriter(f"{BASE}/removed")),
        Trafilatura(favour_precision=True),
        LanguageFilter(languages=["en"]),
        GopherRepetitionFilter(),
        GopherQualityFilter(exclusion_writer=JsonlWriter("x")),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
        JsonlWriter(BASE + "/kept/" + DUMP),
    ],
    tasks=8000,
)
steps = [READER, MinhashDedupSignature(output_folder="s", config=CONFIG)]
second = SlurmPipelineExecutor(pipeline=steps, tasks=10)
third = SlurmPipelineExecutor(pipeline=[MinhashDedupBuckets("s", "b", config=CONFIG)])
fourth = SlurmPipelineExecutor(pipeline=[READER, MinhashDedupFilter("r"), PIIFormatter(), JsonlWriter("end")])
raise SystemExit("never run")
"""


def test_a_script_of_datatrove_has_the_shipped_stages(here: Path):
    found = imported(FINEWEB, "script.py")
    content, shipped = recipe_of(found), yaml.safe_load(shipped_recipes()["fineweb"])["stages"]
    stages = {stage.get("name", stage["kind"]): stage for stage in content["stages"]}
    for stage in shipped:
        name = stage.get("name", stage["kind"])
        if name in ("urls", "language", "long_words", "citations", "c4", "sentences", "redact"):
            assert {"min_probability": 0.65} | stages[name] == {"min_probability": 0.65} | stage
    unnamed = [stage["rules"] for stage in content["stages"] if stage["kind"] == "filter" and "name" not in stage]
    assert unnamed == [["gopher_repetition", "gopher_quality"], ["fineweb"]]
    fuzzy = {"ngram": 5, "compare": "folded", "permutations": 112, "bands": 14, "rows": 8}
    assert stages["fuzzy_dedup"].items() >= fuzzy.items()
    assert content["input"] == [
        {"path": "crawl/CC-1/*/warc/*", "format": "warc", "columns": ["url"], "extract": "trafilatura"}
    ]
    assert found.not_translated == ["WarcReader (line 11): not translated of it: default_metadata"]
    assert "Its 4 pipelines are one recipe" in found.text
    assert sorted(path.name for path in here.iterdir()) == ["recipe.yaml", "script.py"], "the script has run"


# Single entries


class Case(NamedTuple):
    """An entry and its steps.

    tool, name, settings   of the entry
    steps                  of the recipe
    """

    tool: ModuleType
    name: str
    settings: dict[str, Any]
    steps: list[Any]


def rule(measure: str, **bound: Any) -> dict[str, Any]:
    above, _, below = measure.partition("/")
    return ({"ratio": [above, below]} if below else {"measure": above}) | bound


CASES = [
    Case(curator, "WordCountFilter", {}, [rule("words", min=50, max=100000)]),
    Case(curator, "WordCountFilter", {"min_words": 0, "max_words": "inf"}, []),
    Case(curator, "RepeatingTopNGramsFilter", {"n": 3, "max_repeating_ngram_ratio": "2.5e-1"}, [
        rule("top_3gram_characters/characters", max=0.25),
    ]),
    Case(curator, "SubstringFilter", {"substring": ".", "position": "suffix"}, [{"matches": r"\.\z", "min_count": 1}]),
    Case(curator, "LineRemover", {"patterns": ["x"]}, [
        {"kind": "lines", "rules": [{"matches": "^(?:x)$", "max_count": 0}]},
    ]),
    Case(
        curator,
        "FastTextLangId",
        {"model_path": "lid.bin", "min_langid_score": 0.3, "lang": "EN"},
        [{"kind": "language", "normalize": False, "keep": ["en"], "min_probability": 0.3, "max_characters": 0}],
    ),
    Case(
        curator,
        "FuzzyDeduplicationWorkflow",
        {"char_ngrams": 24, "num_bands": 20, "minhashes_per_band": 13, "input_path": Unread("???")},
        [{"kind": "fuzzy_dedup", "unit": "character", "ngram": 24, "compare": "exact", "bands": 20, "rows": 13,
          "permutations": 260, "seed": 42, "verify": "none"}],
    ),
    Case(curator, "TokenizerFertilityFilter", {"path_to_tokenizer": Unread("???")}, [
        rule("characters/tokens", min=2.5),
    ]),
    Case(datajuicer, "average_line_length_filter", {"max_len": 1500}, [rule("characters/lines", min=10, max=1500)]),
    Case(datajuicer, "words_num_filter", {"min_num": 5}, [rule("words", min=5)]),
    Case(datajuicer, "special_characters_filter", {"min_ratio": 0.1}, [
        rule("alphabetic_characters/characters", min=0.75, max=0.9),
    ]),
    Case(datajuicer, "specified_numeric_field_filter", {"field_key": "meta.stars", "min_value": 9}, [
        {"column": "stars", "min": 9},
    ]),
    Case(datajuicer, "document_deduplicator", {"lowercase": True}, [{"kind": "exact_dedup", "compare": "lowercase"}]),
    Case(
        datajuicer,
        "clean_ip_mapper",
        {"pattern": ["r'a+'", "b"], "repl": ["\\", "c"]},
        [{"kind": "rewrite", "replace": [{"matches": "a+", "by": "\\\\"}, {"matches": "b", "by": "c"}]}],
    ),
    Case(datajuicer, "random_selector", {"select_num": 7}, [{"kind": "select", "max_documents": 7}]),
    Case(dolma, "exclude", {"text": "e__gopher_v1__word_count >= 9"}, [rule("words", max=8)]),
    Case(dolma, "include", {"text": "e__char_length_strip_ws_v1__document > 9"}, [rule("characters", min=10)]),
    Case(dolma, "exclude", {"text": "c__c4_v2__has_curly_brace > 0.5"}, [{"matches": r"\{", "max_count": 0}]),
    Case(
        dolma,
        "exclude",
        {"text": "x__ft_lang_id_en_doc_v2__en < 0.5"},
        [{"kind": "language", "normalize": False, "keep": ["en"], "min_probability": 0.5, "max_characters": 0}],
    ),
    Case(dolma, "dedupe.documents", {"key": "$.metadata.url"}, [{"kind": "exact_dedup", "column": "url"}]),
    Case(datatrove, "GopherQualityFilter", {"min_stop_words": 0, "max_doc_words": None, "min_doc_words": 9}, [
        {"set": "gopher_quality", "override": {
            "too_few_words": {"min": 9}, "too_many_words": "off", "too_few_stop_words": "off",
        }},
    ]),
    Case(datatrove, "GopherQualityFilter", {"stop_words": ["der", "und"], "min_stop_words": 1}, [
        {"set": "gopher_quality", "override": {"too_few_stop_words": "off"}},
        {"listed": {"words": ["der", "und"], "as": "stop_word"}, "min_count": 1, "reason": "too_few_stop_words"},
    ]),
    Case(datatrove, "GopherRepetitionFilter", {"top_n_grams": [[2, 0.1]], "dup_n_grams": [], "dup_line_frac": None}, [
        {"set": "gopher_repetition", "override": {
            "duplicate_lines": "off", "top_2gram": {"max": 0.1}, "top_3gram": "off", "top_4gram": "off",
            **{f"duplicate_{n}grams": "off" for n in range(5, 11)},
        }},
    ]),
    Case(datatrove, "RegexFilter", {"regex_exp": "(?i)copyright"}, [{"matches": "(?i)copyright", "max_count": 0}]),
    Case(datatrove, "LanguageFilter", {"label_only": True}, [
        {"kind": "language", "normalize": False, "max_characters": 0},
    ]),
    Case(datatrove, "SentenceDedupSignature", {"config": Made("SentDedupConfig", {"split_sentences": False}, [], 1)}, [
        {"kind": "line_dedup", "unit": "line", "window": 3}, rule("words", min=50),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} {case.settings}"[:60])
def test_entries(case: Case):
    part = _translated(Entry(case.name, "", case.settings), settings := Settings(case.settings), case.tool.TABLE)
    assert [*part.steps] == case.steps and settings.unasked(case.tool.VOID) == []


def translated(tool: str, name: str, settings: dict[str, Any]) -> Translation | str:
    """Return the translation of an entry, or the reason why it has none."""
    try:
        return _translated(Entry(name, "", {}), Settings(settings), TOOLS[tool].TABLE)
    except NotTranslated as error:
        return str(error)


@pytest.mark.parametrize(("tool", "name"), ENTRIES, ids=lambda value: str(value))
def test_every_entry_with_its_defaults_loads_or_says_what_is_nearest(tool: str, name: str):
    part = translated(tool, name, {})
    assert isinstance(part, Translation) or (part and "unexpected" not in part)
    for stage in (
        _as_stages(part.steps) if isinstance(part, Translation) else ()
    ):  # rules of a filter that `when` leaves out are not checked yet
        if stage["kind"] == "filter" and "rules" in stage:
            convert_recipe({"stages": [{key: value for key, value in stage.items() if key != "when"}]})


class Strange(dict[str, Any]):
    """Settings that all have one value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get(self, name: str, default: Any = None) -> Any:
        return self.value


STRANGE = [None, True, -1, 2.5, math.nan, "", "(", "2", [1], ["x"], [["x", 1]], {"a": 1}, Unread("f()")]


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_no_value_of_a_setting_ends_the_command(value: Any):
    assert all(translated(tool, name, Strange(value)) for tool, name in ENTRIES)


# Options

NEEDED: dict[str, dict[str, Any]] = {  # settings without which an entry has no translation
    **{name: {"data_folder": "d", "file_paths": "d"} for name in ("JsonlReader", "ParquetReader")},
    "CsvReader": {"data_folder": "d"}, "WarcReader": {"data_folder": "d"},
    "RegexFilter": {"regex_exp": "x"}, "FastTextClassifierFilter": {"keep_labels": [["hq", 0.5]]},
    "SubstringFilter": {"substring": "x"}, "LineRemover": {"patterns": ["x"]}, "dataset": {"path": "d"},
    "dataset_path": {"path": "d"}, "documents": {"path": "d"},
    "include": {"text": "a__gopher_v1__word_count < 9"}, "exclude": {"text": "a__gopher_v1__word_count < 9"},
    "span_replacement": {"span": "$.attributes.a__pii_regex_v1__EMAIL_ADDRESS", "replacement": "x"},
    "input_field": {"text_field": "x"}, "tokens": {"name_or_path": "gpt2"}, "export_path": {"path": "x.jsonl"},
    "TokenCountFilter": {"min_tokens": 9}, "topk_specified_field_selector": {"field_key": "x", "topk": 5},
    "specified_numeric_field_filter": {"field_key": "x", "min_value": 2}, "min_text_length": {"min_text_length": 5},
    "HuggingFaceDatasetReader": {"dataset": "d"},
}  # fmt: skip
OTHERS: list[Any] = [  # some of them differ from any default
    True, False, 0.25, 1.5, 2, 3, 4, 5, 7, 11, 9_999, "x", "nfkc", "prefix", "huggingface", "character", "glotlid",
    "out.parquet", ".jsonl", "$.a", "1 of 2", ["x"], ["x", "y"], [["x", 0.25]], [[2, 0.11]], [[5, 0.11]],
    "a__gopher_v1__word_count > 5", "$.attributes.a__duplicate_paragraph", r"\p{P}",
]  # fmt: skip


def outcome_of(tool: str, name: str, settings: dict[str, Any]) -> tuple[str, Settings]:
    """What a person sees of an entry: the parts of the recipe, and the lines about it."""
    found = Settings(settings, name)
    try:
        part = _translated(Entry(name, "x", settings), found, TOOLS[tool].TABLE)
    except NotTranslated as error:
        return str(error), found
    return repr((part, found.unasked(TOOLS[tool].VOID))), found


@pytest.mark.parametrize(("tool", "name"), ENTRIES, ids=lambda value: str(value))
def test_every_option_changes_the_recipe_or_has_a_line(tool: str, name: str):
    """Options that change no document are in `VOID`, each below its reason."""
    base = NEEDED.get(name, {})
    plain, found = outcome_of(tool, name, base)
    nothing, _ = outcome_of(tool, name, base | {"an_unknown_option": 1})
    assert nothing != plain or nothing in NEAREST, "an option that nothing knows is dropped"
    for option in found.asked:
        assert any(outcome_of(tool, name, base | {option: value})[0] != plain for value in OTHERS), option
    for inner in found.inner:
        config = next(
            option for option in found.asked if outcome_of(tool, name, {option: 5})[0].startswith(f"{option} is 5")
        )
        for option in inner.asked:
            changed = (outcome_of(tool, name, base | {config: {option: value}})[0] for value in OTHERS)
            assert any(each != plain for each in changed), f"{config}.{option}"
        assert outcome_of(tool, name, base | {config: {"an_unknown_option": 1}})[0] != plain


NEAREST = {str(text) for tool, name in ENTRIES if isinstance(text := translated(tool, name, {}), str)}


def test_options_without_effect_have_a_reason_and_are_of_an_entry():
    for tool in TOOLS.values():
        for reason, listed in tool.VOID.items():
            assert len(reason) > 5 and listed
            owners = {name.rpartition(".")[0] for name in listed} - {"", *tool.TABLE}
            assert all(owner.endswith("Config") or owner in ("Trafilatura", "dedupe") for owner in owners), owners


WHOLE: list[tuple[Any, list[str]]] = [  # a configuration, and settings outside of its entries that have a line
    ({"dedupe": {"name": "d", "min_length": 9, "documents": {"key": "$.text"}}}, ["min_length"]),
    ({"tokenizer": {"name_or_path": "gpt2", "bos_token_id": 1}, "max_size": 9}, ["bos_token_id", "max_size"]),
    ({"stages": [
        {"_target_": "x.JsonlReader", "file_paths": "d", "text_field": "body"},
        {"_target_": SCORE, "filter_obj": {"_target_": HEURISTIC + "string.WordCountFilter"}, "text_field": "body"},
        {"_target_": SCORE, "filter_obj": {"_target_": HEURISTIC + "string.UrlsFilter"}, "text_field": "summary"},
    ]}, ["text_field"]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "named"), WHOLE, ids=lambda value: str(value)[:20])
def test_settings_around_an_entry_belong_to_it(content: Any, named: list[str]):
    lines = imported(content).not_translated
    assert sorted(", ".join(line.partition("of it: ")[2] for line in lines).split(", ")) == named


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("", "d"), ('glob_pattern=".jsonl"', "d/*.jsonl"), ('glob_pattern="sub/x.gz"', "d/*sub/x.gz"),
        ('glob_pattern="*.jsonl"', "d/*.jsonl"), ('glob_pattern="**/a?.gz"', "d/**/a?.gz"),
        ('glob_pattern="[ab].gz"', "d/[ab].gz"), ("recursive=False", "d/*"),
        ('glob_pattern=".gz", recursive=False', "d/*.gz"), ('glob_pattern="**/*", recursive=False', "d/**/*"),
    ],
)  # fmt: skip
def test_patterns_of_datatrove_are_translated_by_its_rules(options: str, path: str):
    found = imported(f'Executor(pipeline=[JsonlReader("d", {options}), RegexFilter("x")])', "script.py")
    assert recipe_of(found)["input"] == [{"path": path}]
    lines = (
        ["JsonlReader (line 1): not translated of it: recursive"] if "**" in options and "recursive" in options else []
    )
    assert found.not_translated == lines


# What is left out


def test_what_is_not_translated_is_named_with_the_nearest():
    content = (
        "process: [{words_num_filter: {min_num: 3, shade: red}}, {text_chunk_mapper: {}}, {image_blur_mapper: {}}]"
    )
    found = imported(content)
    assert found.not_translated == [
        "words_num_filter (process[0]): not translated of it: shade",
        "text_chunk_mapper (process[1]): nearest: input.split, without parts that overlap",
        "image_blur_mapper (process[2]): no counterpart is known",
    ]
    assert found.text.endswith("# Not translated:\n" + "".join(f"# - {line}\n" for line in found.not_translated))
    assert (found.translated, found.entries) == (1, 3)


def test_a_rule_that_removes_everything_is_left_out():
    found = imported("process: [{words_num_filter: {min_num: 3}}, {text_length_filter: {min_len: 9, max_len: 2}}]")
    assert "removes everything" in found.not_translated[0] or "min" in found.not_translated[0]
    assert recipe_of(found)["stages"] == [{"kind": "filter", "rules": [rule("words", min=3)]}]


def test_values_that_only_a_run_knows_are_named():
    script = """
def main(args, limit=3):
    words = 5
    words = 6
    Executor(pipeline=[
        JsonlReader(args.folder), GopherQualityFilter(min_doc_words=words, max_doc_words=900),
        RegexFilter("x" * 3), SamplerFilter(rate=float("1")), FineWebQualityFilter(line_punct_thr=-1), *more,
        LambdaFilter(str), RegexFilter("fine", None, 7),
    ])
"""
    found = imported(script, "script.py")
    assert [line.partition(":")[2] for line in found.not_translated] == [
        " data_folder is args.folder, and only values in the file are read: write it there, or here",
        " min_doc_words is words, and only values in the file are read: write it there, or here",
        " regex_exp is 'x' * 3, and only values in the file are read: write it there, or here",
        " rate is float(...), and only values in the file are read: write it there, or here",
        " no list of steps and no step in this file",
        " its function is code; nearest: rules, or a stage of your own (docs/extending.md)",
        " not translated of it: argument 3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "is_read"),
    [
        ('"a", limit=9', '"a/"', False),
        ('"a"', '"./a/b", text_key="t"', False),
        ('"a", glob_pattern="*.json"', '"a", glob_pattern="x.json"', False),
        ('"a/b"', '"a"', False),
        ('"a", glob_pattern="*.jsonl"', '"a", glob_pattern="*.csv"', True),
        ('"a"', '"ab"', True),
    ],
)
def test_files_that_two_readers_have_are_read_once(first: str, second: str, is_read: bool):
    found = imported(
        f"""
Executor(pipeline=[JsonlReader({first}), RegexFilter("x"), JsonlWriter("out")])
Executor(pipeline=[JsonlReader("out/en"), JsonlReader({second})])
Executor(pipeline=[HuggingFaceDatasetReader("b", {{"split": "c"}}), HuggingFaceDatasetReader("b", {{"split": "d"}})])
""",
        "script.py",
    )
    told = "JsonlReader (line 3): JsonlReader (line 2) reads some of its files, and a run reads a file once. Edit input"
    assert found.not_translated == ([] if is_read else [told])
    assert len(recipe_of(found)["input"]) == 3 + is_read


def test_a_pipeline_that_is_no_list_is_found_or_named():
    steps = "[GopherQualityFilter(), *common]"
    script = f"""
common = [URLFilter()]
def build():
    return {steps}
steps = build()
LocalPipelineExecutor(pipeline=steps)
SlurmPipelineExecutor(pipeline=load(7))
LocalPipelineExecutor(pipeline=None)
"""
    found = imported(script, "script.py")
    assert found.entries == 3 and found.translated == 2
    assert found.not_translated == ["load (line 7): no counterpart is known"]


def test_lists_that_are_joined_and_names_that_are_changed_are_read():
    found = imported(
        """
from datatrove.pipeline.filters import RegexFilter as R, SamplerFilter
FIRST = [R("a")]
Executor(pipeline=FIRST + [R(regex_exp="b")] + more(FIRST))
Executor(FIRST)
""",
        "script.py",
    )
    [stage] = recipe_of(found)["stages"]
    assert [rule["matches"] for rule in stage["rules"]] == ["a", "b", "a"]
    assert found.not_translated == ["more (line 4): no counterpart is known"] * 1


def test_settings_of_some_streams_are_told():
    both = mixer([excluded("a__gopher_v1__word_count", "< 50")])
    both["streams"] += mixer([])["streams"]
    found = imported(both)
    assert any("1 of 2 streams" in line for line in found.differences)


def test_names_that_are_taken_get_a_number():
    stages = recipe_of(imported("process: [{perplexity_filter: {max_ppl: 9}}, {perplexity_filter: {max_ppl: 7}}]"))[
        "stages"
    ]
    assert [(stage["name"], stage["when"]) for stage in stages] == [
        ("perplexity", "stages.perplexity.model"),
        ("fluent", "stages.perplexity.model"),
        ("perplexity_2", "stages.perplexity_2.model"),
        ("fluent_2", "stages.perplexity_2.model"),
    ]


def test_text_of_a_configuration_stays_in_comments():
    """Names and values with line ends cannot become lines of the recipe."""
    strange = "x\n\nstages: []\u2028\x85# y"
    found = imported(
        {"process": [{"words_num_filter": {"min_num": 3, strange: 1}}, {strange: {}}], "dataset_path": strange}
    )
    content = recipe_of(found)
    assert content["stages"] == [{"kind": "filter", "rules": [rule("words", min=3)]}]
    assert content["input"] == [{"path": strange}]


def test_secrets_are_in_no_comment():
    found = imported("""
dataset:
  configs:
    - {type: remote, source: s3, path: "s3://me:passw0rd@bucket/x.jsonl", aws_secret_access_key: s3cret}
process: [{words_num_filter: }]
""")
    assert found.text.count("passw0rd") == 1 and "s3cret" not in found.text  # the path of the input
    assert found.not_translated == ["dataset (dataset.configs[0]): not translated of it: aws_secret_access_key"]


def test_json_is_read_too():
    found = imported(json.dumps(mixer([excluded("a__gopher_v1__word_count", "< 50")])), "mixer.json")
    assert (found.tool, found.not_translated) == ("dolma", [])


# The command


def test_the_command_writes_the_recipe_and_prints_what_is_left_out(capsys: pytest.CaptureFixture[str]):
    Path("c.yaml").write_text("process: [{words_num_filter: {tokenization: true}}, {image_blur_mapper: {}}]")
    assert main(["import-config", "c.yaml", "-o", "mine.yaml"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("mine.yaml: 1 of 2 entries of a configuration of data-juicer\nNot the same here:\n")
    assert "Not translated:\n  image_blur_mapper (process[1])" in printed and printed.endswith(
        "Next: curate plan mine.yaml\n"
    )
    assert main(["import-config", "c.yaml", "-o", "mine.yaml"]) == 2, "it replaces a file"
    assert main(["import-config", "c.yaml", "-o", "mine.yaml", "--force", "--log", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["entries"], result["translated"], len(result["not_translated"])) == (2, 1, 1)


BAD: dict[str, tuple[str, str | bytes | None, str]] = {  # file, content, part of the message
    "missing": ("gone.yaml", None, "gone.yaml does not exist; expected a configuration of NeMo Curator"),
    "kind": ("data.parquet", "PAR1", "'.parquet', expected a configuration of NeMo Curator, data-juicer or dolma"),
    "folder": ("folder.yaml/x", "x", "folder.yaml is a folder, a pipe or a device, expected a configuration"),
    "not YAML": ("c.yaml", "a: [1", "c.yaml is not valid YAML: "),
    "not UTF-8": ("c.yaml", b"a: \xff", "Save the recipe as UTF-8"),
    "not JSON": ("c.json", "{'a': 1", "c.json is not valid YAML: "),
    "objects": ("c.yaml", "process: !!python/object/apply:os.mkdir [made]", "Remove the tag"),
    "a list": ("c.yaml", "[1, 2]", "c.yaml holds no mapping at its top"),
    "unknown": ("c.yaml", "model: x\nepochs: 3", "c.yaml has model, epochs at its top, none of process, streams, "),
    "a recipe": ("c.yaml", "stages: [exact_dedup]", "c.yaml is a recipe of this package, or has stages without"),
    "kinds": ("c.yaml", "streams: [{filter: 3}]", "a configuration of dolma, and values of other kinds"),
    "nothing": ("c.yaml", "process: [{image_blur_mapper: }]", "data-juicer can be translated: image_blur"),
    "huge": ("c.yaml", "a" * (MAX_BYTES + 1), "more than 4,000,000 bytes, too many for a configuration"),
    "not Python": ("c.py", "def f(:\n", "c.py is not Python: invalid syntax (line 1)"),
    "no pipeline": ("c.py", "x = [1]\n", "no pipeline of datatrove: expected pipeline=[JsonlReader(...), ...]"),
    "NUL": ("c.py", "x = 1\0", "c.py is not Python: source code string cannot contain null bytes"),
    "deep": ("c.py", "x = " + "(" * 5000, "c.py is not Python: too many nested parentheses"),
    "deep names": ("c.py", f"Executor(pipeline=[{'-' * 5000}1])", "nested too deeply"),
    "bytes": ("c.py", b"x = '\xff'", "c.py is not UTF-8 text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_message(name: str, here: Path, capsys: pytest.CaptureFixture[str]):
    file, content, part = BAD[name]
    path = Path(file)
    path.parent.mkdir(exist_ok=True)
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["import-config", file.removesuffix("/x")]) == 2
    message = capsys.readouterr().err
    assert part in message and message.count("\n") == 1 and not Path("recipe.yaml").exists()
    assert not Path("made").exists(), "an object of the file was made"


def test_a_pipe_is_not_opened(capsys: pytest.CaptureFixture[str]):
    os.mkfifo("pipe.yaml")
    assert main(["import-config", "pipe.yaml"]) == 2
    assert "pipe.yaml is a folder, a pipe or a device" in capsys.readouterr().err


def test_parts_that_make_no_recipe_are_told():
    content = {"dataset": {"configs": [{"type": "local", "path": "a", "weight": 1}, {"type": "local", "path": "b"}]}}
    with pytest.raises(RecipeError, match=r"config.yaml: its parts make no recipe: blend_weight is the share"):
        imported(content | {"process": [{"words_num_filter": None}]})


def test_the_output_is_a_yaml_file(capsys: pytest.CaptureFixture[str]):
    Path("c.yaml").write_text("process: [{words_num_filter: }]")
    assert main(["import-config", "c.yaml", "-o", "recipe.txt"]) == 2
    assert "expected a name ending in .yaml or .yml" in capsys.readouterr().err


# The page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming_from.md"
BLOCKS = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^\$ curate import-config (\S+) -o (from_\S+)$", PAGE.read_text("utf-8"), re.MULTILINE)


def test_the_page_has_a_configuration_and_a_recipe_of_each_tool():
    assert len(COMMANDS) == len(TOOLS) and {*BLOCKS} == {name for command in COMMANDS for name in command}


@pytest.mark.parametrize(("config", "recipe"), COMMANDS)
def test_the_recipes_of_the_page_are_those_of_the_command(config: str, recipe: str):
    Path(config).write_text(BLOCKS[config])
    assert main(["import-config", config, "-o", recipe, "--quiet"]) == 0
    assert Path(recipe).read_text() == BLOCKS[recipe]


@pytest.mark.parametrize("tool", TOOLS)
def test_classes_of_the_page_are_in_the_tables(tool: str):
    """Those in the left column of the table of a tool."""
    section = PAGE.read_text("utf-8").partition(f"\n## {tool}\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| ")]
    named = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)", "".join(cells)))
    assert named <= {*TOOLS[tool].TABLE} | {"ScoreFilter"}
    assert not named or tool in ("NeMo Curator", "datatrove")
