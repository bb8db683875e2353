# SPDX-License-Identifier: Apache-2.0
"""NeMo Curator: configurations of Hydra (`stages:`, `workflow:`) and the older form (`filters:`).

Bounds and patterns are those of the rule set `curator_english`, which follows NeMo Curator 1.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from curation.recipes.imported.entries import (
    WHEN,
    Entry,
    NotTranslated,
    Settings,
    TheirBound,
    Translation,
    Translator,
    Unread,
    Void,
    always,
    as_in,
    bounds,
    literal,
    nearest,
    needs,
    replace,
    rest,
    rule_with,
    shipped,
    shown,
    texts,
    tokenizer_name,
)

NAME = "NeMo Curator"
TARGET = "_target_"
READERS = ("JsonlReader", "ParquetReader")
WRAPPERS = {"ScoreFilter", "Filter", "Score", "Modify"}
OF_WRAPPERS = ("name", "log_score")
FIELDS = ("text_field", "input_field", "input_fields")  # the text column; `input_fields` lists one
INTERPOLATION = re.compile(r"\$\{([^{}]*)\}")


def entries_of(content: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the stages, workflows and filters of a configuration."""
    usual = _text_columns(content)
    for entry in _all_entries(content):
        left_out = {
            name for name in FIELDS if entry.settings.get(name) in ([], *usual, *([column] for column in usual))
        }
        is_step = entry.name not in (*READERS, "input_field") and not entry.name.endswith("Workflow")
        settings = {name: value for name, value in entry.settings.items() if not (is_step and name in left_out)}
        yield entry._replace(settings=settings)


def _text_columns(content: Mapping[str, Any]) -> list[str]:
    """Return the names of the text columns that readers and `input_field` give; `text` if none of them gives a name."""
    own = [
        entry.settings.get("text_field") for entry in _all_entries(content) if entry.name in (*READERS, "input_field")
    ]
    return [str(name) for name in own if name is not None] or ["text"]


def _all_entries(content: Mapping[str, Any]) -> Iterator[Entry]:
    for key in ("stages", "workflow", "filters"):
        entries = content.get(key)
        for number, found in enumerate(entries if isinstance(entries, list) else [entries] if entries else []):
            place = f"{key}[{number}]" if isinstance(entries, list) else key
            entry = _resolved(found, content) if isinstance(found, dict) else found
            if isinstance(entry, str):
                yield Entry(_short(entry), place, {})
            elif isinstance(entry, dict) and (target := entry.get(TARGET) or entry.get("name")):
                yield _unwrapped(str(target), entry, place)
            else:
                yield Entry(str(entry), place, {})
    if "filters" in content and content.get("input_field", "text") != "text":
        yield Entry("input_field", "input_field", {"text_field": content["input_field"]})


def _unwrapped(target: str, entry: dict[str, Any], place: str) -> Entry:
    """Return the entry of the filter in `ScoreFilter`, or the entry itself."""
    settings = {name: value for name, value in entry.items() if name != TARGET}
    if "params" in entry or (TARGET not in entry and "name" in entry):  # the older form
        given = settings.pop("params", None) or {}
        return Entry(_short(target), place, given | {n: v for n, v in settings.items() if n not in OF_WRAPPERS})
    if _short(target) not in WRAPPERS:
        return Entry(_short(target), place, settings)
    inner = [value for value in settings.values() if isinstance(value, dict) and TARGET in value]
    if len(inner) != 1:
        return Entry(_short(target), place, settings)
    around = {
        n: v for n, v in settings.items() if v is not inner[0] and n not in OF_WRAPPERS and v not in (None, False)
    }
    return Entry(_short(inner[0][TARGET]), place, {n: v for n, v in inner[0].items() if n != TARGET} | around)


def _short(target: str) -> str:
    return str(target).rpartition(".")[2]


def _resolved(value: Any, content: Mapping[str, Any]) -> Any:
    """Return a value with each `${name}` replaced. `???` stands for a value from the command line."""
    if isinstance(value, dict):
        return {name: _resolved(entry, content) for name, entry in value.items()}
    if isinstance(value, list):
        return [_resolved(entry, content) for entry in value]
    if value == "???":
        return Unread("??? (a value of the command line)")
    if not isinstance(value, str) or "${" not in value:
        return value
    named = INTERPOLATION.fullmatch(value)
    if named and not isinstance(content.get(named[1]), dict | list) and named[1] in content:
        found = content[named[1]]
        return Unread(f"{value}, which is ???") if found == "???" else found
    parts = {name: content.get(name) for name in INTERPOLATION.findall(value)}
    if all(isinstance(found, str | int | float) and found != "???" for found in parts.values()):
        return INTERPOLATION.sub(lambda match: str(parts[match[1]]), value)
    return Unread(value)


def _top_ngrams(settings: Settings) -> Translation:
    n = settings.number("n", 2)
    if n not in (2, 3, 4):
        raise NotTranslated(f"n {n}: measures count the most frequent 2-, 3- and 4-gram; nearest: n 4")
    return Translation(
        rule_with(f"top_{n}gram_characters/characters", None, settings.number("max_repeating_ngram_ratio", 0.2))
    )


def _duplicate_ngrams(settings: Settings) -> Translation:
    n, name = settings.number("n", 2), "max_repeating_duplicate_ngram_ratio"
    if n not in range(2, 11):
        raise NotTranslated(f"n {n}: measures count repeated 2- to 10-grams; nearest: n 10")
    return Translation(rule_with(f"duplicate_{n}gram_characters/characters", None, settings.number(name, 0.2)))


def _boilerplate(settings: Settings) -> Translation:
    share = settings.number("max_boilerplate_string_ratio", 0.4)
    return Translation((shipped("curator_english", "boilerplate") | {"max_removed": {"lines": share}},))


def _substring(settings: Settings) -> Translation:
    position = settings.choice("position", "any", "prefix", "suffix", default="any")
    pattern = literal(str(settings.get("substring")))
    pattern = {"any": pattern, "prefix": rf"\A{pattern}", "suffix": rf"{pattern}\z"}[position]
    return Translation(({"matches": pattern, "min_count": 1},))


def _tokens(settings: Settings) -> Translation:
    name = settings.get("hf_model_name") or settings.get("tokenizer") or "gpt2"
    rules = rule_with("tokens", settings.number("min_tokens", 0), settings.number("max_tokens"))
    stage = {"kind": "filter", "rules": list(rules), "tokenizer": tokenizer_name(str(name))}
    return Translation((stage,) if rules else ())


def _fertility(settings: Settings) -> Translation:
    name = settings.values.get("path_to_tokenizer")  # `???` is a value of the command line
    settings.asked.add("path_to_tokenizer")
    rules = rule_with("characters/tokens", settings.number("min_char_to_token_ratio", 2.5), None)
    if isinstance(name, str):
        return Translation(({"kind": "filter", "rules": list(rules), "tokenizer": name},))
    return Translation(rules, differs="by the tokenizer of the recipe: --set tokenizer.name=FILE")


def _language(settings: Settings) -> Translation:
    bound, language = settings.number("min_langid_score", 0.3) or 0, settings.get("lang")
    differs = "the model is lid.176.ftz; --set stages.language.model=FILE takes another one"
    settings.asked.add("model_path")
    if isinstance(named := settings.values.get("model_path"), str):
        differs += f", such as {shown(named)}"
    if language:
        stage = {
            "kind": "language",
            "normalize": False,
            "keep": [str(language).lower()],
            "min_probability": bound,
            "max_characters": 0,
        }
        return Translation((stage,), differs=differs)
    rules = ({"column": "language_probability", "min": bound},) if bound > 0 else ()
    return Translation(({"kind": "language", "normalize": False, "max_characters": 0}, *rules), differs=differs)


def _quality(settings: Settings) -> Translation:
    settings.asked.add("model_path")
    label = str(settings.get("label", "__label__hq")).removeprefix("__label__")
    alpha = settings.number("alpha", 3)
    when = {WHEN: "stages.quality.model"}
    rules = [{"column": "quality", "min": 0.5}]
    return Translation(
        (
            {"kind": "classify", "name": "quality", **when, "label": label},
            {"kind": "filter", "name": "good", **when, "rules": rules},
        ),
        differs=f"a random draw by score (alpha {alpha}) there, a bound of 0.5 here; {needs('stages.quality.model')}"
        f", there {shown(settings.values.get('model_path'))}",
    )


def _lines(settings: Settings) -> Translation:
    listed = "|".join(map(literal, texts(settings, "patterns")))
    return Translation(({"kind": "lines", "rules": [{"matches": f"^(?:{listed})$", "max_count": 0}]},))


def _unicode(settings: Settings) -> Translation:
    form = str(settings.get("normalization") or "").lower()
    if form not in ("", "nfc", "nfkc"):
        raise NotTranslated(f"normalization {form}: `rewrite` has nfc and nfkc")
    steps = [{"kind": "rewrite", "name": "mojibake", WHEN: "stages.mojibake.repair"}]
    steps += [{"kind": "rewrite", "unicode": form}] if form else []
    advice = "--set stages.mojibake.repair=mojibake, with the extra repair"
    return Translation(tuple(steps), differs=f"ftfy repairs only mojibake, and is left out until you say so: {advice}")


def _files(settings: Settings) -> Translation:
    column = settings.get("text_field", "text")
    also = {} if column in (None, "text") else {"text_column": column}
    return _inputs(texts(settings, "file_paths"), also)


def _inputs(paths: list[str], settings: dict[str, Any]) -> Translation:
    """Return inputs with settings. If the file names no path, the settings are for the inputs of `--input`."""
    return Translation(inputs=tuple({"path": path} | settings for path in paths), of_inputs={} if paths else settings)


def _workflow(settings: Settings, stage: dict[str, Any], differs: str = "") -> Translation:
    """Translate a workflow, which reads and writes files itself."""
    column = settings.get("text_field", "text")
    also = {} if column == "text" else {"text_column": column}
    paths = settings.values.get("input_path")
    settings.asked.add("input_path")
    found = [] if paths is None or isinstance(paths, Unread) else texts(settings, "input_path")
    return _inputs(found, also)._replace(steps=(stage,), differs=differs)


def _exact(settings: Settings) -> Translation:
    compared = "lowercase" if settings.get("normalize_text", False) else "exact"
    return _workflow(settings, {"kind": "exact_dedup", "compare": compared})


def _fuzzy(settings: Settings) -> Translation:
    bands, rows = settings.number("num_bands", 20), settings.number("minhashes_per_band", 13)
    stage = {
        "kind": "fuzzy_dedup", "unit": "character", "ngram": settings.number("char_ngrams", 24), "compare": "exact",
        "bands": bands, "rows": rows, "permutations": int((bands or 0) * (rows or 0)),
        "seed": settings.number("seed", 42), "verify": "none",
    }  # fmt: skip
    return _workflow(settings, stage, "other hash functions: pairs near the threshold may differ")


def _semantic(settings: Settings) -> Translation:
    bound = round(1 - (settings.number("eps", 0.01) or 0), 12)
    clusters = settings.number("n_clusters", 100)
    when = {WHEN: "stages.embed.model"}
    part = _workflow(settings, {"kind": "semantic_dedup", "name": "close", **when, "threshold": bound})
    steps = ({"kind": "embed", "name": "embed", **when}, *part.steps)
    return part._replace(
        steps=steps, differs=f"{clusters} clusters there, as many as fit here; {needs('stages.embed.model')}"
    )


def _tokenized(settings: Settings) -> Translation:
    spec = {"name": tokenizer_name(str(settings.get("model_identifier", "gpt2")))}
    return Translation(
        tokenizer=spec | {"append_eod": bool(settings.get("append_eod", False))}, output={"formats": ["megatron"]}
    )


def _class(model: str) -> Translator:
    return nearest(f"nearest: classify with a local copy of {model}, then a rule on its column")


ENGLISH = "curator_english"
TABLE: dict[str, Translator] = {
    "NonAlphaNumericFilter": bounds(
        as_in(ENGLISH, "non_alphanumeric"), max=TheirBound("max_non_alpha_numeric_to_text_ratio", 0.25)
    ),
    "SymbolsToWordsFilter": bounds(as_in(ENGLISH, "too_many_symbols"), max=TheirBound("max_symbol_to_word_ratio", 0.1)),
    "NumbersFilter": bounds(as_in(ENGLISH, "too_many_digits"), max=TheirBound("max_number_to_text_ratio", 0.15)),
    "UrlsFilter": bounds(as_in(ENGLISH, "too_many_urls"), max=TheirBound("max_url_to_text_ratio", 0.2)),
    "WhiteSpaceFilter": bounds(as_in(ENGLISH, "too_much_white_space"), max=TheirBound("max_white_space_ratio", 0.25)),
    "ParenthesesFilter": bounds(as_in(ENGLISH, "too_many_brackets"), max=TheirBound("max_parentheses_ratio", 0.1)),
    "LongWordFilter": bounds(as_in(ENGLISH, "long_word"), max=TheirBound("max_word_length", 1000)),
    "WordCountFilter": bounds(
        as_in(ENGLISH, "word_count"), TheirBound("min_words", 50), TheirBound("max_words", 100_000)
    ),
    "MeanWordLengthFilter": bounds(
        as_in(ENGLISH, "mean_word_length"),
        TheirBound("min_mean_word_length", 3),
        TheirBound("max_mean_word_length", 10),
    ),
    "PunctuationFilter": bounds(
        as_in(ENGLISH, "too_few_end_marks"), min=rest("max_num_sentences_without_endmark_ratio", 0.85)
    ),
    "EllipsisFilter": bounds(
        as_in(ENGLISH, "too_many_ellipsis_lines"), max=TheirBound("max_num_lines_ending_with_ellipsis_ratio", 0.3)
    ),
    "BulletsFilter": bounds(as_in(ENGLISH, "too_many_bullet_lines"), max=TheirBound("max_bullet_lines_ratio", 0.9)),
    "CommonEnglishWordsFilter": bounds(as_in(ENGLISH, "too_few_stop_words"), min=TheirBound("min_num_common_words", 2)),
    "WordsWithoutAlphabetsFilter": bounds(
        as_in(ENGLISH, "too_few_words_with_letter"), min=TheirBound("min_words_with_alphabets", 0.8)
    ),
    "RepeatedLinesFilter": bounds(as_in(ENGLISH, "duplicate_lines"), max=rest("max_repeated_line_fraction", 0.7)),
    "RepeatedParagraphsFilter": bounds(
        as_in(ENGLISH, "duplicate_paragraphs"), max=rest("max_repeated_paragraphs_ratio", 0.7)
    ),
    "RepeatedLinesByCharFilter": bounds(
        as_in(ENGLISH, "duplicate_line_characters"), max=rest("max_repeated_lines_char_ratio", 0.8)
    ),
    "RepeatedParagraphsByCharFilter": bounds(
        as_in(ENGLISH, "duplicate_paragraph_characters"), max=rest("max_repeated_paragraphs_char_ratio", 0.8)
    ),
    "RepeatingTopNGramsFilter": _top_ngrams,
    "RepeatingDuplicateNGramsFilter": _duplicate_ngrams,
    "BoilerPlateStringFilter": _boilerplate,
    "SubstringFilter": _substring,
    "TokenCountFilter": _tokens,
    "FastTextLangId": _language,
    "FastTextQualityFilter": _quality,
    "NumberOfLinesOfCodeFilter": bounds("lines", TheirBound("min_lines", 10), TheirBound("max_lines", 20_000)),
    "TokenizerFertilityFilter": _fertility,
    "PythonCommentToCodeFilter": nearest("no measure of comments; nearest: a rule with matches and per: lines"),
    "UnicodeReformatter": _unicode,
    "QuotationRemover": always(replace(r'\A"([^\n]+)"\z', r"\1"), differs="of texts of one line"),
    "MarkdownRemover": always(
        {
            "kind": "rewrite",
            "replace": [
                {"matches": r"\*\*(.*?)\*\*", "by": r"\1"},
                {"matches": r"\*(.*?)\*", "by": r"\1"},
                {"matches": "_(.*?)_", "by": r"\1"},
                {"matches": r"\[.*?\]\((.*?)\)", "by": r"\1"},
            ],
        }
    ),
    "LineRemover": _lines,
    "Slicer": nearest("nearest: rewrite.replace, with a pattern of the part that stays"),
    "DocumentSplitter": nearest("nearest: input.split with at: PATTERN"),
    "DocumentJoiner": nearest("nearest: output.join: id, after input.split"),
    "JsonlReader": _files,
    "ParquetReader": _files,
    "input_field": lambda settings: Translation(of_inputs={"text_column": settings.get("text_field")}),
    "JsonlWriter": always(output={"cleaned": "jsonl"}),
    "ParquetWriter": always(output={"cleaned": "parquet"}),
    "MegatronTokenizerWriter": _tokenized,
    "AddId": always(differs="a document without id has the name of its input and its number"),
    "ExactDeduplicationWorkflow": _exact,
    "FuzzyDeduplicationWorkflow": _fuzzy,
    "TextSemanticDeduplicationWorkflow": _semantic,
    "TextDuplicatesRemovalWorkflow": always(),  # stages of deduplication remove what they find
    "QualityClassifier": _class("quality-classifier-deberta"),
    "DomainClassifier": _class("domain-classifier"),
    "MultilingualDomainClassifier": _class("multilingual-domain-classifier"),
    "ContentTypeClassifier": _class("content-type-classifier-deberta"),
    "FineWebEduClassifier": _class("fineweb-edu-classifier"),
    "FineWebMixtralEduClassifier": _class("nemocurator-fineweb-mixtral-edu-classifier"),
    "FineWebNemotronEduClassifier": _class("nemocurator-fineweb-nemotron-4-edu-classifier"),
}
VOID: Void = {
    "as here": {"lang": ("en",), "add_bos": (False,), "perform_removal": (True,)},
    "the filter or step does not use it, or only names a column of its own": dict.fromkeys(
        ("BoilerPlateStringFilter.remove_if_at_top_or_bottom", "stop_at_false", "filter_field"), ()
    ),
    "folders and names of files are those of the run": dict.fromkeys(
        (
            "output_path",
            "cache_path",
            "output_dir",
            "path",
            "TextDuplicatesRemovalWorkflow.input_path",
            "ids_to_remove_path",
            "id_generator_path",
        ),
        (),
    ),
    "workers, memory, logging and access": dict.fromkeys(
        (
            "files_per_partition",
            "blocksize",
            "input_blocksize",
            "identification_batchsize",
            "bands_per_iteration",
            "hf_token",
            "cache_dir",
            "verbose",
            "executor",
            "env_vars",
            "embedding_model_inference_batch_size",
            "transformers_batch_size",
        ),
        (),
    ),
    "a document without id has the name of its input and its number": {"_generate_ids": (), "assign_id": ()},
}
