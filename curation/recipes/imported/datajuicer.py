# SPDX-License-Identifier: Apache-2.0
"""data-juicer: `process:`, a list of operators, and `dataset_path:`.

Defaults are those of py-data-juicer 1.6.1. Patterns of its mappers are those of the recipe `datajuicer_redpajama`.
"""

from __future__ import annotations

import sys
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
    Void,
    always,
    as_in,
    as_list,
    bounds,
    literal,
    nearest,
    needs,
    replace,
    rule_with,
    shipped,
    shown,
    texts,
)

NAME = "data-juicer"
RECIPE = "datajuicer_redpajama"
PUNCTUATION = r"\p{P}"
OUTPUTS = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
WORDS = "words are those between white space, there tokens of a model"
TOKENS = "tokens of gpt2, there of another tokenizer; tokenizer: of the stage takes a tokenizer.json"


def entries_of(content: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the entries of the data set, of the operators, and of the output file."""
    column = {"text_keys": content["text_keys"]} if "text_keys" in content else {}
    if content.get("dataset_path"):
        yield Entry("dataset_path", "dataset_path", {"path": content["dataset_path"]} | column)
    dataset = content.get("dataset")
    configs = dataset.get("configs") if isinstance(dataset, dict) and not content.get("dataset_path") else None
    for number, found in enumerate(configs if isinstance(configs, list) else []):
        settings = found if isinstance(found, dict) else {"path": found}
        yield Entry("dataset", f"dataset.configs[{number}]", settings | column)
    process = content.get("process")
    for number, found in enumerate(process if isinstance(process, list) else []):
        for name, given in found.items() if isinstance(found, dict) else [(found, None)]:
            yield Entry(str(name), f"process[{number}]", given if isinstance(given, dict) else {})
    if content.get("export_path"):
        yield Entry("export_path", "export_path", {"path": content["export_path"]})


def _data(settings: Settings) -> Translation:
    source, weight = settings.choice("source", None, "s3", "huggingface", default=None), settings.number("weight")
    columns = texts(settings, "text_keys", "text")
    also: dict[str, Any] = {} if columns == ["text"] else {"text_column": columns[0]}
    also |= {} if weight is None else {"blend_weight": weight}
    differs = f"one text column, {columns[0]}" if len(columns) > 1 else ""
    paths = [f"hf:{path}" if source == "huggingface" else path for path in texts(settings, "path")]
    if source == "huggingface":
        parts = {"split": settings.get("split"), "config": settings.get("name"), "revision": settings.get("revision")}
        also |= {name: value for name, value in parts.items() if value}
    return Translation(inputs=tuple({"path": path} | also for path in paths), differs=differs)


def _exported(settings: Settings) -> Translation:
    path = str(settings.get("path"))
    return Translation(output={"cleaned": next((kind for end, kind in OUTPUTS.items() if path.endswith(end)), "jsonl")})


def _alphanumeric(settings: Settings) -> Translation:
    low, high = settings.number("min_ratio", 0.25), settings.number("max_ratio")
    if not settings.get("tokenization", False):
        return Translation(rule_with("alphanumeric_characters/characters", low, high))
    return _of_tokens({"ratio": ["alphanumeric_characters", "tokens"]}, low, high)


def _of_tokens(subject: dict[str, Any], low: float | None, high: float | None, theirs: str = "") -> Translation:
    found = {name: bound for name, bound in (("min", low), ("max", high)) if bound}
    stage = {"kind": "filter", "rules": [subject | found], "tokenizer": "gpt2"}
    return Translation(
        (stage,) if found else (), differs=TOKENS.replace("another tokenizer", theirs or "another tokenizer")
    )


def _words(settings: Settings) -> Translation:
    steps = rule_with("words", settings.number("min_num", 10), settings.number("max_num"))
    return Translation(steps, differs=WORDS if settings.get("tokenization", False) else "")


def _repeated_characters(settings: Settings) -> Translation:
    n = settings.number("rep_len", 10)
    if n not in (5, 10):
        raise NotTranslated(f"rep_len {n}: measures count repeated strings of 5 and 10 characters; nearest: rep_len 10")
    low, high = settings.number("min_ratio", 0), settings.number("max_ratio", 0.5)
    return Translation(rule_with(f"repeated_{n}character_characters/num_{n}characters", low, high))


def _repeated_words(settings: Settings) -> Translation:
    n = settings.number("rep_len", 10)
    if n not in range(2, 11):
        raise NotTranslated(f"rep_len {n}: measures count repeated 2- to 10-grams; nearest: rep_len 10")
    low, high = settings.number("min_ratio", 0), settings.number("max_ratio", 0.5)
    differs = "the characters of repeated n-grams, there the share of n-grams that occur twice"
    differs += f"; {WORDS}" if settings.get("tokenization", False) else ""
    return Translation(rule_with(f"duplicate_{n}gram_characters/word_characters", low, high), differs=differs)


def _special(settings: Settings) -> Translation:
    low, high = settings.number("min_ratio", 0) or 0, settings.number("max_ratio", 0.25)
    least = None if high is None else round(1 - high, 12)
    subject = as_in(RECIPE, "special_characters")
    return Translation(
        rule_with(subject, least, round(1 - low, 12)),
        differs="all but letters, there a list with digits and white space",
    )


def _listed(name: str, min_default: float, max_default: float) -> Translator:
    """Translate a bound on the share of the words that are in the user's own list."""

    def translate(settings: Settings) -> Translation:
        low, high = settings.number("min_ratio", min_default) or 0, settings.number("max_ratio", max_default)
        rule = {"column": "listed_words"} | ({"min": low} if low > 0 else {})
        rule |= {"max": high} if high is not None and high < 1 else {}
        path = f"stages.{name}.listed_words"
        steps = (
            {"kind": "measure", "name": name, WHEN: path},
            {"kind": "filter", "name": f"few_{name}" if low > 0 else f"many_{name}", WHEN: path, "rules": [rule]},
        )
        return Translation(steps if len(rule) > 1 else (), differs=f"its list of words is not here; {needs(path)}")

    return translate


def _language(settings: Settings) -> Translation:
    languages, bound = texts(settings, "lang", ""), settings.number("min_score", 0.8) or 0
    if kept := [name for name in languages if name]:
        return Translation(
            ({"kind": "language", "normalize": False, "keep": kept, "min_probability": bound, "max_characters": 0},)
        )
    rules = ({"column": "language_probability", "min": bound},) if bound > 0 else ()
    return Translation(({"kind": "language", "normalize": False, "max_characters": 0}, *rules))


def _perplexity(settings: Settings) -> Translation:
    low, high = settings.number("min_ppl", 0) or 0, settings.number("max_ppl", 1500)
    rule = {"column": "perplexity"} | ({"min": low} if low > 0 else {}) | ({"max": high} if high else {})
    when = {WHEN: "stages.perplexity.model"}
    steps = (
        {"kind": "perplexity", "name": "perplexity", **when},
        {"kind": "filter", "name": "fluent", **when, "rules": [rule]},
    )
    return Translation(steps, differs=f"by your own model; {needs('stages.perplexity.model')}")


def _column(settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the last part of a name such as `meta.score`, and the setting of inputs that carries this column."""
    path = str(settings.get("field_key") or "")
    if not path:
        raise NotTranslated("field_key is missing; it is column: of a rule")
    name = path.rpartition(".")[2]
    return name, {"columns": {name: path}}


def _in_range(settings: Settings) -> Translation:
    name, carried = _column(settings)
    low, high = settings.number("min_value", -sys.maxsize), settings.number("max_value", sys.maxsize)
    rule = {"column": name} | ({} if low is None else {"min": low}) | ({} if high is None else {"max": high})
    return Translation((rule,) if len(rule) > 1 else (), of_inputs=carried)


def _tokens(settings: Settings) -> Translation:
    theirs = "".join(texts(settings, "hf_tokenizer"))
    return _of_tokens({"measure": "tokens"}, settings.number("min_num", 10), settings.number("max_num"), theirs)


def _replacing(pattern: str | None) -> Translator:
    """Translate a mapper that has its own default pattern, and `repl`."""

    def translate(settings: Settings) -> Translation:
        patterns, by = texts(settings, "pattern", pattern), settings.get("repl") or ""
        if not patterns:
            raise NotTranslated("it has no pattern, so it changes nothing")
        replacements = [str(text) for text in by] if isinstance(by, list) else [str(by)] * len(patterns)
        if len(replacements) != len(patterns):
            raise NotTranslated("pattern and repl have different lengths")
        pairs = [
            {"matches": _bare(found), "by": text.replace("\\", "\\\\")}
            for found, text in zip(patterns, replacements, strict=True)
        ]
        return Translation(({"kind": "rewrite", "replace": pairs},))

    return translate


def _bare(pattern: str) -> str:
    """Return a pattern without the `r` and quotes of Python around it."""
    for quote in ("'", '"'):
        if pattern.startswith(f"r{quote}") and pattern.endswith(quote):
            return pattern[2:-1]
    return pattern


def _ip_addresses(settings: Settings) -> Translation:
    if settings.get("pattern") is not None:
        return _replacing(None)(settings)
    return Translation(
        (
            {
                "kind": "redact",
                "patterns": "shape",
                "private": "replace",
                "types": ["ip_address"],
                "replacement": str(settings.get("repl") or ""),
            },
        ),
        differs="an address is not part of a longer number or a file name",
    )


def _unicode(settings: Settings) -> Translation:
    form = str(settings.get("normalization") or "nfc").lower()
    if form not in ("nfc", "nfkc"):
        raise NotTranslated(f"normalization {form}: `rewrite` has nfc and nfkc")
    advice = "--set stages.mojibake.repair=mojibake, with the extra repair"
    return Translation(
        (shipped(RECIPE, "mojibake"), {"kind": "rewrite", "unicode": form}),
        differs=f"ftfy repairs only mojibake, and is left out until you say so: {advice}",
    )


def _long_words(settings: Settings) -> Translation:
    low, high = settings.number("min_len", 1) or 1, settings.number("max_len", sys.maxsize)
    if low > 1:
        raise NotTranslated("min_len above 1; nearest: rewrite.replace with a pattern of short words")
    steps = () if high is None else (replace(rf"\S{{{int(high) + 1},}}"),)
    return Translation(steps, differs="the white space around a deleted word stays")


def _characters(settings: Settings) -> Translation:
    found = settings.get("chars_to_remove", "◆●■►▼▲▴∆▻▷❖♡□")
    characters = "".join(map(str, as_list(found)))
    return Translation((replace("|".join(dict.fromkeys(map(literal, characters)))),) if characters else ())


def _substrings(settings: Settings) -> Translation:
    found = texts(settings, "substrings", None) or ["http", "www", ".com", "href", "//"]
    return Translation((replace(rf"\S*(?:{'|'.join(map(literal, found))})\S* ?"),))


def _comments(settings: Settings) -> Translation:
    pairs = [{"matches": r"(?m)^%[^\n]*\n?", "by": ""}] if settings.get("multiline", True) else []
    pairs += [{"matches": r"(?m)([^\\])%.+$", "by": r"\1"}] if settings.get("inline", True) else []
    return Translation(({"kind": "rewrite", "replace": pairs},) if pairs else ())


def _header(settings: Settings) -> Translation:
    sections = "part|chapter|section|subsection|subsubsection|paragraph|subparagraph"
    steps: tuple[Any, ...] = (replace(rf"(?s)\A.*?(\\(?:{sections})\b)", r"\1"),)
    if settings.get("drop_no_head", True):
        steps = ({"matches": rf"\\(?:{sections})\b", "min_count": 1}, *steps)
    return Translation(steps, differs="documents without a section are removed; there, their texts become empty")


def _exact(settings: Settings) -> Translation:
    lowercase = bool(settings.get("lowercase", False))
    if settings.get("ignore_non_character", False):
        stage = {"kind": "fuzzy_dedup", "compare": "folded", "threshold": 1.0}
        return Translation((stage,), differs="texts with the same words without case, punctuation and digits' values")
    return Translation(({"kind": "exact_dedup", "compare": "lowercase" if lowercase else "exact"},))


def _compared(settings: Settings) -> dict[str, Any]:
    """Return the settings of `fuzzy_dedup` for the n-grams of a deduplicator."""
    tokenization = settings.choice("tokenization", "space", "character", "punctuation", default="space")
    ignored, lowercase = settings.get("ignore_pattern"), settings.get("lowercase", True)
    if ignored not in (None, "", PUNCTUATION):
        raise NotTranslated(rf"ignore_pattern {shown(ignored)}; nearest: \p{{P}}, or rewrite.replace before")
    compare = "folded" if ignored or tokenization == "punctuation" else "lowercase" if lowercase else "exact"
    unit = {"unit": "character"} if tokenization == "character" else {}
    return {"kind": "fuzzy_dedup", **unit, "compare": compare}


def _minhash(settings: Settings) -> Translation:
    stage = _compared(settings) | {
        "ngram": settings.number("window_size", 5),
        "permutations": settings.number("num_permutations", 256),
        "threshold": settings.number("jaccard_threshold", 0.7),
    }
    bands, rows = settings.number("num_bands"), settings.number("num_rows_per_band")
    stage |= {"bands": bands, "rows": rows} if bands and rows else {}
    return Translation((stage,), differs="pairs are checked by their exact similarity")


def _simhash(settings: Settings) -> Translation:
    distance, n = settings.number("hamming_distance", 4), settings.number("window_size", 6)
    stage = _compared(settings) | {"ngram": n, "threshold": 0.8}
    return Translation(
        (stage,), differs=f"a Jaccard similarity of 0.8, there SimHash with a Hamming distance of {distance}"
    )


def _top(settings: Settings) -> Translation:
    name, carried = _column(settings)
    share, number = settings.number("top_ratio"), settings.number("topk")
    side = "highest" if settings.get("reverse", True) else "lowest"
    stage: dict[str, Any] = {"kind": "select", "column": name}
    if share is not None:
        stage[f"keep_{side}"] = share
    elif number is not None:
        stage |= {"max_documents": number, "keep": side}
    return Translation((stage,) if len(stage) > 2 else (), of_inputs=carried)


def _random(settings: Settings) -> Translation:
    share, number = settings.number("select_ratio"), settings.number("select_num")
    if share is not None and share < 1:
        return Translation(of_inputs={"sample": share}, differs="a share of what is read, before the stages, by a hash")
    return Translation(({"kind": "select", "max_documents": number},) if number is not None else ())


LISTS = "nearest: input.path as a glob, such as data/**/*.py"
TABLE: dict[str, Translator] = {
    "dataset_path": _data,
    "dataset": _data,
    "export_path": _exported,
    "alphanumeric_filter": _alphanumeric,
    "average_line_length_filter": bounds(
        as_in(RECIPE, "mean_line_length"), TheirBound("min_len", 10), TheirBound("max_len")
    ),
    "character_repetition_filter": _repeated_characters,
    "flagged_words_filter": _listed("flagged_words", 0, 0.045),
    "language_id_score_filter": _language,
    "maximum_line_length_filter": bounds("max_line_characters", TheirBound("min_len", 10), TheirBound("max_len")),
    "perplexity_filter": _perplexity,
    "special_characters_filter": _special,
    "specified_numeric_field_filter": _in_range,
    "stopwords_filter": _listed("stop_words", 0.3, 1),
    "suffix_filter": nearest(LISTS),
    "text_length_filter": bounds("characters", TheirBound("min_len", 10), TheirBound("max_len")),
    "token_num_filter": _tokens,
    "words_num_filter": _words,
    "word_repetition_filter": _repeated_words,
    "clean_copyright_mapper": always(
        {
            "kind": "rewrite",
            "replace": [
                {"matches": r"(?i)/\*(?:[^*]|\*[^/])*copyright(?:[^*]|\*[^/])*\*/", "by": ""},
                {"matches": r"\A(?:(?://|#|--)[^\n]*(?:\n|\z))+", "by": ""},
            ],
        }
    ),
    "clean_email_mapper": _replacing(shipped(RECIPE, "links")["replace"][0]["matches"]),
    "clean_links_mapper": _replacing(shipped(RECIPE, "links")["replace"][1]["matches"]),
    "clean_ip_mapper": _ip_addresses,
    "clean_html_mapper": always({"kind": "rewrite", "markup": "brackets"}, differs="only tags, without marks of lists"),
    "fix_unicode_mapper": _unicode,
    "punctuation_normalization_mapper": always(shipped(RECIPE, "punctuation")),
    "whitespace_normalization_mapper": always(shipped(RECIPE, "white_space")),
    "remove_bibliography_mapper": always(
        replace(r"(?s)\\(?:bibliography\{|begin\{references\}|begin\{REFERENCES\}|begin\{thebibliography\}|appendix).*")
    ),
    "remove_comments_mapper": _comments,
    "remove_header_mapper": _header,
    "remove_long_words_mapper": _long_words,
    "remove_specific_chars_mapper": _characters,
    "remove_words_with_incorrect_substrings_mapper": _substrings,
    "text_chunk_mapper": nearest("nearest: input.split, without parts that overlap"),
    "chinese_convert_mapper": nearest("no conversion of Chinese scripts"),
    "expand_macro_mapper": nearest("no expansion of TeX macros"),
    "document_deduplicator": _exact,
    "ray_document_deduplicator": _exact,
    "document_minhash_deduplicator": _minhash,
    "ray_bts_minhash_deduplicator": _minhash,
    "document_simhash_deduplicator": _simhash,
    "topk_specified_field_selector": _top,
    "random_selector": _random,
    "range_specified_field_selector": nearest("nearest: two stages select, with drop_lowest and keep_lowest"),
}
VOID: Void = {
    "as here": {
        "lang": ("en",), "tokenization": (False,), "text_key": ("text",), "use_words_aug": (False,),
        "doc_type": ("tex",),
    },
    "workers, memory and errors of operators": dict.fromkeys(
        ("batch_size", "num_proc", "mem_required", "turbo", "skip_op_error", "accelerator", "cpu_required", "num_cpus",
         "backend", "redis_address", "dedup_set_num", "union_find_parallel_num", "union_threshold",
         "memory_per_sample", "document_simhash_deduplicator.num_blocks"),
        (),
    ),
    "of a tokenization that is refused, or of words that are not joined": dict.fromkeys(
        ("tokenizer_model", "words_aug_group_sizes", "words_aug_join_char"), ()
    ),
    "the path tells it": {"dataset.type": ()},
}  # fmt: skip
