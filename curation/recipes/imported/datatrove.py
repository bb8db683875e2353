# SPDX-License-Identifier: Apache-2.0
"""datatrove: the pipelines of a script, by the names and defaults of datatrove 0.10.1.

Rules are those of the sets `gopher_quality`, `gopher_repetition` and `fineweb`, which have datatrove's bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from glob import has_magic
from typing import Any

from curation.recipes.imported.entries import (
    WHEN,
    Entry,
    Made,
    NotTranslated,
    Settings,
    Translation,
    Translator,
    Unread,
    Void,
    always,
    as_list,
    nearest,
    needs,
    rule_with,
    shipped,
    shown,
    texts,
    tokenizer_name,
)
from curation.recipes.imported.scripts import as_entry
from curation.tokens.forms import TokenShards

NAME = "datatrove"
READERS = ("JsonlReader", "ParquetReader", "CsvReader", "WarcReader")
COLUMNS = "only text and id are kept; list other metadata in input.columns"
WRITERS = {"JsonlWriter": "jsonl", "ParquetWriter": "parquet"}
PARAMETERS: dict[str, tuple[str, ...]] = {  # names of positional values, for classes that are often called with them
    **dict.fromkeys(READERS, ("data_folder", "paths_file")),
    **dict.fromkeys(WRITERS, ("output_folder",)),
    "HuggingFaceDatasetReader": ("dataset", "dataset_options"),
    "RegexFilter": ("regex_exp",),
    "SamplerFilter": ("rate", "seed"),
    "LambdaFilter": ("filter_function",),
    "LanguageFilter": ("languages", "language_threshold"),
    "GopherQualityFilter": ("min_doc_words", "max_doc_words"),
    "DocumentTokenizer": ("output_folder", "tokenizer_name_or_path"),
    "MegatronDocumentTokenizer": ("output_folder", "save_filename", "tokenizer_name_or_path"),
    "MinhashDedupSignature": ("output_folder", "config"),
    "SentenceDedupSignature": ("output_folder", "finder_workers", "config"),
    "ExactDedupSignature": ("output_folder", "config"),
    "UrlDedupSignature": ("output_folder", "config"),
    "NGramsDecontFilter": ("index_folder", "config"),
    "NGramsDecontIndexer": ("output_folder", "lighteval_tasks"),
    "MinhashDedupBuckets": ("input_folder", "output_folder", "index_folder", "config"),
    "MinhashDedupCluster": ("input_folder", "output_folder", "config"),
    "MinhashDedupFilter": ("input_folder", "exclusion_writer"),
    "MinhashBuildIndex": ("input_folder", "output_folder", "index_name", "config"),
    "SentenceFindDedups": ("data_folder", "output_folder", "index_folder", "config"),
    **dict.fromkeys(("ExactFindDedups", "UrlFindDedups"), ("data_folder", "output_folder", "config")),
    **dict.fromkeys(("SentenceDedupFilter", "ExactDedupFilter", "UrlDedupFilter"), ("data_folder", "config")),
    "ESDatasetToSequence": ("output_folder", "tokenizer_name_or_path"),
    "ESMergeSequences": ("data_folder", "tasks_stage_1"),
    "ESRangeRemover": ("sequence_folder", "tokenizer_name_or_path"),
    "DocumentTokenizerMerger": ("input_folder", "output_folder", "save_filename"),
    "HuggingFaceDatasetWriter": ("dataset",),
    "TokensCounter": ("tokenizer_name_or_path",),
    "FastTextClassifierFilter": ("model_url", "keep_labels"),
    "Trafilatura": ("favour_precision",),
    "URLFilter": ("soft_word_threshold",),
}


def entries_of(pipelines: list[list[Made | str]]) -> Iterator[Entry]:
    """Yield the steps of all pipelines of a script, one after the other.

    A reader is left out if an earlier step wrote its folder, or if an earlier reader has the same settings.
    """
    written: list[str] = []
    read: list[dict[str, Any]] = []
    for pipeline in pipelines:
        for step in pipeline:
            entry = as_entry(step, PARAMETERS)
            folder = entry.settings.get("data_folder")
            if entry.name in READERS and isinstance(folder, str) and f"{folder}/".startswith(tuple(written)):
                continue
            if entry.name in READERS and entry.settings in read:
                continue
            read += [dict(entry.settings)] if entry.name in READERS else []
            folder = entry.settings.get("output_folder")
            written += [f"{folder.rstrip('/')}/"] if entry.name in WRITERS and isinstance(folder, str) else []
            yield entry


def _reader(kind: str = "") -> Translator:
    def translate(settings: Settings) -> Translation:
        [path] = texts(settings, "data_folder") or [""]
        if not path:
            raise NotTranslated("paths_file; nearest: input.path as @FILE, a list of files")
        pattern = _pattern(settings)
        entry: dict[str, Any] = {"path": f"{path.rstrip('/')}/{pattern}" if pattern else path}
        if kind == "warc":
            entry["format"] = "wet" if "wet" in entry["path"].rpartition("segments")[2] else "warc"
        entry |= _columns_and_bounds(settings)
        counts = "; limit and skip count for the input, there for each task" if "limit" in entry else ""
        return Translation(inputs=(entry,), differs=f"{COLUMNS}{counts}")

    return translate


def _pattern(settings: Settings) -> str:
    """The glob of a reader below its folder, "" for all files of the folder, by the rules of datatrove's `list_files`:
    a pattern without wildcards is the end of a name."""
    pattern = str(settings.get("glob_pattern") or "")
    if not pattern:
        return "" if settings.get("recursive", True) else "*"
    if "**" not in pattern:  # of other patterns, `*` and `?` match within one folder
        settings.get("recursive", True)
    return pattern if has_magic(pattern) else f"*{pattern}"


def _columns_and_bounds(settings: Settings) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for name, theirs, usual in (("text_column", "text_key", "text"), ("id_column", "id_key", "id")):
        column = settings.get(theirs, usual)
        entry |= {} if column == usual else {name: column}
    limit, skip = settings.number("limit", -1), settings.number("skip", 0)
    return entry | ({"limit": limit} if limit and limit > 0 else {}) | ({"skip": skip} if skip else {})


def _hub(settings: Settings) -> Translation:
    options = settings.within("dataset_options", "dataset_options")
    entry = {"path": f"hf:{settings.get('dataset')}"}
    for theirs, name in (("split", "split"), ("name", "config"), ("revision", "revision")):
        if value := "".join(texts(options, theirs)):
            entry[name] = value
    return Translation(inputs=(entry | _columns_and_bounds(settings),), differs=COLUMNS)


def _trafilatura(settings: Settings) -> Translation:
    return Translation(
        of_inputs={"extract": "trafilatura"},
        differs="for WARC files, by input.extract and the extra trafilatura. It has the defaults of "
        "trafilatura, there favour_precision and deduplicate",
    )


def _overridden(rule_set: str, overrides: Mapping[str, tuple[str, float | None, float]]) -> tuple[Any, ...]:
    """Return a rule set with changed bounds: reason -> (side, bound, default). A bound of None switches the rule
    off."""
    changed: dict[str, Any] = {}
    for reason, (side, bound, default) in overrides.items():
        if bound is None or (side == "min" and bound <= 0):
            changed[reason] = "off"
        elif bound != default:
            changed[reason] = {side: bound}
    return ({"set": rule_set, "override": changed},) if changed else (rule_set,)


def _bounds_of(
    settings: Settings, rows: tuple[tuple[str, str, float, tuple[str, ...]], ...]
) -> dict[str, tuple[str, float | None, float]]:
    """Return the overrides of a rule set, as `_overridden` takes them. A row has (setting, side, default, reasons of
    the set)."""
    return {
        reason: (side, bound, default)
        for name, side, default, reasons in rows
        for bound in [settings.number(name, default)]
        for reason in reasons
    }


SPACES, STOP_WORDS = "words between white space, there by spaCy", "too_few_stop_words"
QUALITY = (
    ("min_doc_words", "min", 50, ("too_few_words",)),
    ("max_doc_words", "max", 100_000, ("too_many_words",)),
    ("min_avg_word_length", "min", 3, ("words_too_short",)),
    ("max_avg_word_length", "max", 10, ("words_too_long",)),
    ("max_symbol_word_ratio", "max", 0.1, ("too_many_hash_signs", "too_many_ellipses")),
    ("max_bullet_lines_ratio", "max", 0.9, ("too_many_bullet_lines",)),
    ("max_ellipsis_lines_ratio", "max", 0.3, ("too_many_ellipsis_lines",)),
    ("max_non_alpha_words_ratio", "min", 0.8, ("too_few_words_with_letter",)),
    ("min_stop_words", "min", 2, (STOP_WORDS,)),
)


def _gopher_quality(settings: Settings) -> Translation:
    words, overrides = texts(settings, "stop_words"), _bounds_of(settings, QUALITY)
    _, bound, _ = overrides[STOP_WORDS]
    rule = {"listed": {"words": words, "as": "stop_word"}, "min_count": bound, "reason": STOP_WORDS}
    if words:
        overrides[STOP_WORDS] = ("min", None, 2)
    steps = _overridden("gopher_quality", overrides)
    return Translation((*steps, rule) if words and bound else steps, differs=SPACES)


def _gopher_repetition(settings: Settings) -> Translation:
    top = settings.get("top_n_grams", [[2, 0.2], [3, 0.18], [4, 0.16]])
    duplicate = settings.get("dup_n_grams", [[5, 0.15], [6, 0.14], [7, 0.13], [8, 0.12], [9, 0.11], [10, 0.1]])
    names = (
        ("dup_para_frac", 0.3, "duplicate_paragraphs"),
        ("dup_para_char_frac", 0.2, "duplicate_paragraph_characters"),
        ("dup_line_frac", 0.3, "duplicate_lines"),
        ("dup_line_char_frac", 0.2, "duplicate_line_characters"),
    )
    overrides: dict[str, tuple[str, float | None, float]] = {
        reason: ("max", settings.number(name, default), default) for name, default, reason in names
    }
    more: list[Any] = []
    for found, defaults, reason, subject in (
        (top, {2: 0.2, 3: 0.18, 4: 0.16}, "top_{}gram", "top_{}gram_characters/characters"),
        (
            duplicate,
            {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1},
            "duplicate_{}grams",
            "duplicate_{}gram_characters/characters",
        ),
    ):
        given = _pairs(found)
        overrides |= {reason.format(n): ("max", given.get(n), default) for n, default in defaults.items()}
        for n in given.keys() - defaults.keys():
            if n not in (2, 3, 4):
                raise NotTranslated(f"n-grams of {n} words: measures count 2 to 10 words")
            more += rule_with(subject.format(n), None, given[n])
    return Translation((*_overridden("gopher_repetition", overrides), *more), differs=SPACES)


def _pairs(found: Any) -> dict[int, float]:
    pairs = [pair for pair in as_list(found) if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) != len(as_list(found)) or any(not isinstance(x, int | float) for pair in pairs for x in pair):
        raise NotTranslated("n-grams are pairs of a number and a share")
    return {int(n): share for n, share in pairs}


def _c4(settings: Settings) -> Translation:
    settings.choice("split_paragraph", True, default=True)
    lengths, cited = shipped("c4", "long_words"), shipped("c4", "citations")
    lines, enough = shipped("c4", "c4"), shipped("c4", "sentences")
    longest, fewest = settings.number("max_word_length", 1000), settings.number("min_words_per_line", 3)
    rules = {"max_word_characters": {"max": longest}} if longest and longest > 0 else {}
    rules |= {"words": {"min": fewest}} if fewest and fewest > 0 else {}
    off = {
        reason
        for name, reasons in (
            ("filter_no_terminal_punct", ("no_terminal_mark", "ellipsis")),
            ("filter_lorem_ipsum", ("lorem_ipsum",)),
            ("filter_javascript", ("javascript",)),
            ("filter_curly_bracket", ("curly_bracket",)),
            ("filter_policy", ("policy",)),
        )
        if not settings.get(name, True)
        for reason in reasons
    }
    kept = [rule for rule in lines["rules"] if rule["reason"] not in off]
    sentences = settings.number("min_num_sentences", 5)
    steps: list[Any] = [lengths | {"rules": rules}] if rules else []
    steps += [cited] if settings.get("remove_citations", True) else []
    steps += [lines | {"rules": kept}] if kept else []
    steps += [enough | {"rules": {"sentences": {"min": sentences}}}] if sentences and sentences > 0 else []
    return Translation(tuple(steps), differs="sentences of the measure sentences, there by spaCy")


FINEWEB = (
    ("line_punct_thr", "min", 0.12, ("too_few_punctuated_lines",)),
    ("short_line_thr", "max", 0.67, ("too_many_short_lines",)),
    ("char_duplicates_ratio", "max", 0.01, ("duplicate_line_characters",)),
    ("new_line_ratio", "max", 0.3, ("too_many_newlines",)),
)


def _fineweb(settings: Settings) -> Translation:
    settings.choice("short_line_length", 30, default=30)
    settings.choice("line_punct_exclude_zero", False, default=False)
    settings.choice("stop_chars", None, default=None)
    return Translation(_overridden("fineweb", _bounds_of(settings, FINEWEB)), differs="a value on the bound is kept")


def _language(settings: Settings) -> Translation:
    languages, bound = texts(settings, "languages"), settings.number("language_threshold", 0.65) or 0
    settings.choice("keep_top_pairs_threshold", -1, default=-1)
    backend = settings.choice("backend", "ft176", "glotlid", default="ft176")
    model = "GlotLID's model.bin" if backend == "glotlid" else "lid.176.bin"
    differs = f"the model is lid.176.ftz; --set stages.language.model=FILE takes {model}"
    stage: dict[str, Any] = {"kind": "language", "normalize": False, "max_characters": 0}
    if settings.get("label_only", False) or (not languages and bound <= 0):
        return Translation((stage,), differs=differs)
    if languages:
        return Translation((stage | {"keep": languages, "min_probability": bound},), differs=differs)
    return Translation((stage, {"column": "language_probability", "min": bound}), differs=differs)


def _urls(settings: Settings) -> Translation:
    differs = f"its lists of domains and words are not here; {needs('stages.urls.rules')}"
    return Translation((shipped("fineweb", "urls"),), of_inputs={"columns": ["url"]}, differs=differs)


def _regex(settings: Settings) -> Translation:
    pattern = settings.get("regex_exp")
    if not isinstance(pattern, str):
        raise NotTranslated(f"regex_exp is {shown(pattern)}, expected a pattern")
    return Translation(({"matches": pattern, "max_count": 0},))


def _sampler(settings: Settings) -> Translation:
    return Translation(of_inputs={"sample": settings.number("rate", 0.5)}, differs="a share of what is read, by a hash")


def _fasttext(settings: Settings) -> Translation:
    if settings.get("remove_labels"):
        raise NotTranslated("remove_labels; nearest: classify with label, then a rule with max")
    pairs = as_list(settings.get("keep_labels"))
    pairs = [pairs] if pairs and not isinstance(pairs[0], list) else pairs
    if len(pairs) != 1 or len(pairs[0]) != 2:
        raise NotTranslated("several labels; nearest: a stage classify for each, and a rule with any")
    [(label, bound)] = pairs
    when = {WHEN: "stages.quality.model"}
    label = str(label).removeprefix("__label__")
    steps = (
        {"kind": "classify", "name": "quality", **when, "label": label},
        {"kind": "filter", "name": "good", **when, "rules": [{"column": "quality", "min": bound}]},
    )
    return Translation(steps, differs=f"{needs('stages.quality.model')}, there {shown(settings.get('model_url'))}")


def _personal_data(settings: Settings) -> Translation:
    types = ["email"] * bool(settings.get("remove_emails", True)) + ["ip_address"] * bool(
        settings.get("remove_ips", True)
    )
    every = "ip_address" in types and not settings.get("only_remove_public_ips", True)
    stage = {"kind": "redact", "patterns": "shape", "types": types} | ({"private": "replace"} if every else {})
    return Translation(
        (stage,) if types else (), differs="by [REDACTED]_EMAIL and so on; redact.replacement is one text for all types"
    )


def _minhash(settings: Settings) -> Translation:
    config = settings.within("config", "MinhashConfig")
    bands, rows = config.number("num_buckets", 14), config.number("hashes_per_bucket", 8)
    stage = {
        "kind": "fuzzy_dedup", "ngram": config.number("n_grams", 5), "compare": "folded", "bands": bands, "rows": rows,
        "permutations": int((bands or 0) * (rows or 0)), "seed": config.number("seed", 1), "verify": "none",
    }  # fmt: skip
    return Translation((stage,), differs="other hash functions: pairs near the threshold may differ")


def _sentences(settings: Settings) -> Translation:
    config = settings.within("config", "SentDedupConfig")
    unit = "sentence" if config.get("split_sentences", True) else "line"
    words = config.number("min_doc_words", 50) or 0
    steps = (
        {"kind": "line_dedup", "unit": unit, "window": config.number("n_sentences", 3)},
        *rule_with("words", max(words, 1), None),
    )
    return Translation(steps, differs="sentences of the measure sentences, there by spaCy")


def _exact(settings: Settings) -> Translation:
    settings.within("config", "ExactDedupConfig")
    return Translation(
        ({"kind": "exact_dedup"},), differs="of equal texts; content_getter is code. column: NAME compares a column"
    )


def _by_url(settings: Settings) -> Translation:
    config = settings.within("config", "UrlDedupConfig")
    has_code = any(isinstance(value, Unread) for value in config.values.values())
    stage = {"kind": "exact_dedup", "column": "url", "compare": "url"}
    differs = (
        "of URLs in canonical form, the first; document_priority and url_normalizer are code: keep: {highest: COLUMN}"
    )
    return Translation(
        (stage,), of_inputs={"columns": ["url"]}, differs=differs if has_code else "of URLs in canonical form"
    )


def _decontaminated(settings: Settings) -> Translation:
    config = settings.within("config", "NGramsDecontConfig")
    path = "stages.decontaminate.evaluation_files"
    stage = {"kind": "decontaminate", "name": "decontaminate", WHEN: path, "ngram": config.number("n_grams", 12)}
    return Translation((stage,), differs=f"by files of evaluation texts in place of lighteval's tasks; {needs(path)}")


def _tokens(form: str, shuffles: bool) -> Translator:
    def translate(settings: Settings) -> Translation:
        spec = {"name": tokenizer_name(str(settings.get("tokenizer_name_or_path", "gpt2")))}
        end = settings.get("eos_token", "<|endoftext|>" if form == "megatron" else None)
        appended = end is not None
        shuffled = shuffles and bool(settings.get("shuffle_documents", True))
        differs = ""
        if "eos_token" in settings.values and appended:
            differs = f"the end is the tokenizer's own token, there {shown(end)}"
        layout = {form: {"layout": "datatrove"}} if form == TokenShards.name else {}
        output = {"formats": [form]} | layout | ({"shuffle": True} if shuffled else {})
        return Translation(tokenizer=spec | {"append_eod": appended}, output=output, differs=differs)

    return translate


STATISTICS = "nearest: curate measure --names A,B, or output.measures of a run"
INDEX = always(output={"index": True})
NOTHING = always()  # one stage here replaces several blocks of datatrove
TABLE: dict[str, Translator] = {
    "JsonlReader": _reader(),
    "ParquetReader": _reader(),
    "CsvReader": _reader(),
    "WarcReader": _reader("warc"),
    "HuggingFaceDatasetReader": _hub,
    "Trafilatura": _trafilatura,
    "URLFilter": _urls,
    "LanguageFilter": _language,
    "GopherQualityFilter": _gopher_quality,
    "GopherRepetitionFilter": _gopher_repetition,
    "C4QualityFilter": _c4,
    "C4BadWordsFilter": always(
        shipped("c4", "bad_words"), differs=f"its words are not here; {needs('stages.bad_words.rules')}"
    ),
    "FineWebQualityFilter": _fineweb,
    "RegexFilter": _regex,
    "SamplerFilter": _sampler,
    "FastTextClassifierFilter": _fasttext,
    "LambdaFilter": nearest("its function is code; nearest: rules, or a stage of your own (docs/extending.md)"),
    "UnigramLogProbFilter": nearest("nearest: perplexity, with a model of curate train lm"),
    "PIIFormatter": _personal_data,
    "FTFYFormatter": always(
        {"kind": "rewrite", "name": "mojibake", WHEN: "stages.mojibake.repair"},
        differs="left out until you say so: --set stages.mojibake.repair=mojibake, with the extra repair",
    ),
    "SymbolLinesFormatter": always(
        {"kind": "lines", "rules": [{"any": [{"matches": r"\w", "min_count": 1}, {"measure": "words", "max": 0}]}]},
        differs="lines without a letter or digit",
    ),
    "MinhashDedupSignature": _minhash,
    "MinhashDedupBuckets": NOTHING,
    "MinhashDedupCluster": NOTHING,
    "MinhashDedupFilter": NOTHING,
    "MinhashBuildIndex": INDEX,
    "SentenceDedupSignature": _sentences,
    "SentenceFindDedups": NOTHING,
    "SentenceDedupFilter": NOTHING,
    "ExactDedupSignature": _exact,
    "ExactFindDedups": NOTHING,
    "ExactDedupFilter": NOTHING,
    "UrlDedupSignature": _by_url,
    "UrlFindDedups": NOTHING,
    "UrlDedupFilter": NOTHING,
    "ESDatasetToSequence": always({"kind": "substring_dedup"}, differs="spans of 200 bytes; there a number of tokens"),
    "ESMergeSequences": NOTHING,
    "ESRangeRemover": NOTHING,
    "NGramsDecontIndexer": NOTHING,
    "NGramsDecontFilter": _decontaminated,
    "TokensCounter": NOTHING,  # plan and report count tokens
    "DocumentTokenizer": _tokens(TokenShards.name, shuffles=True),
    "DocumentTokenizerMerger": NOTHING,
    "MegatronDocumentTokenizer": _tokens("megatron", shuffles=False),
    **{name: always(output={"cleaned": kind}) for name, kind in WRITERS.items()},
    "HuggingFaceDatasetWriter": always(output={"cleaned": "parquet"}, differs="a folder, which `hf upload` takes"),
    **dict.fromkeys(
        ("DocStats", "LineStats", "WordStats", "ParagraphStats", "SentenceStats", "TokenStats", "LangStats",
         "StatsMerger", "WordsContaminationStats", "CCNetPerplexityStats"),
        nearest(STATISTICS),
    ),
}  # fmt: skip
DEDUPLICATION = ("Minhash", "Sentence", "Exact", "Url", "NGramsDecont", "ES")  # how names of datatrove's steps begin
VOID: Void = {
    "removed documents are in removed/": {"exclusion_writer": ()},
    "folders and names of files are those of the run": dict.fromkeys(
        ("output_folder", "input_folder", "local_working_dir", "save_filename", "output_filename", "index_name",
         "sequence_folder", "save_index", "save_final_metadata", "cleanup", "NGramsDecontFilter.index_folder",
         "HuggingFaceDatasetWriter.dataset", *(f"{step}.data_folder" for step in TABLE if step not in READERS)), (),
    ),
    "workers, buffers, logging and tasks": dict.fromkeys(
        ("file_progress", "doc_progress", "progress", "batch_size", "lines_to_buffer", "finder_workers", "streaming",
         "stream", "timeout", "tasks_stage_1", "bytes_per_batch", "skip_existing_sigs", "upload_block_size"), (),
    ),
    "the difference of the entry says so": dict.fromkeys(
        ("read_metadata", "add_file_path", "hash_config", "Trafilatura.favour_precision", "Trafilatura.deduplicate",
         "lighteval_tasks", "custom_lighteval_tasks", "ESDatasetToSequence.tokenizer_name_or_path",
         "ESRangeRemover.tokenizer_name_or_path"), (),
    ),
    "the step with the signatures has it": {
        f"{step}.config": () for step in TABLE if step.startswith(DEDUPLICATION) and TABLE[step] in (NOTHING, INDEX)
    },
    "plan and report count tokens": dict.fromkeys(
        ("TokensCounter.tokenizer_name_or_path", "TokensCounter.count_eos_token"), ()
    ),
    "as here": {
        "language": ("en", "eng"), "compression": ("infer",), "recursive": (True,), "shuffle_files": (False,),
        "load_from_disk": (False,), "only_dedup_in_index": (True,), "save_labels_in_metadata": (True,),
    },
}  # fmt: skip
