# SPDX-License-Identifier: Apache-2.0
"""dolma: configurations of the mixer (`streams:`), of taggers, of `dedupe` and of `tokens`.

A mixer filters by attributes that taggers wrote, such as `@.a__gopher_v1__word_count[0][2] < 50`. In a recipe, a rule
measures the text itself. Subjects of rules are those of the rule set `dolma`, which follows the tagger gopher_v1 of
dolma 1.2.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from curation.recipes.imported.entries import (
    WHEN,
    Entry,
    NotTranslated,
    Settings,
    Translation,
    Translator,
    Void,
    always,
    as_in,
    nearest,
    needs,
    rule_with,
    shipped,
    shown,
    tokenizer_name,
)

NAME = "dolma"
COMPARED = re.compile(r"@\.([\w.-]+)\[0\]\[2\]\s*(<=|>=|<|>|==)\s*(-?[\d.]+(?:e-?\d+)?)")
CONDENSED = re.compile(r"([\w.-]+) (\S+) ([-\d.e]+)")
PATH = re.compile(r"\$@?\.attributes\[\?\((.*)\)\]", re.DOTALL)
SPAN = re.compile(r"\$\.attributes\.([\w.-]+)")
DEDUPED = ("documents", "paragraphs")
OF_TOKENS = ("dtype", "max_size", "sample_ring_prop", "ring_size", "refresh_tokenizer_every")
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
GOPHER = {  # end of the attribute -> reason in the rule set
    "median_word_length": "median_word_length",
    "symbol_to_word_ratio": "too_many_symbols",
    "fraction_of_words_with_alpha_character": "too_few_words_with_letter",
    "required_word_count": "too_few_stop_words",
    "fraction_of_lines_starting_with_bullet_point": "too_many_bullet_lines",
    "fraction_of_lines_ending_with_ellipsis": "too_many_ellipsis_lines",
    "fraction_of_duplicate_lines": "duplicate_lines",
    "fraction_of_characters_in_duplicate_lines": "duplicate_line_characters",
    **{f"fraction_of_characters_in_most_common_{n}gram": f"top_{n}gram" for n in (2, 3, 4)},
    **{f"fraction_of_characters_in_duplicate_{n}gram": f"duplicate_{n}grams" for n in range(5, 11)},
}
MEASURES = {
    "word_count": "words",
    "char_length_strip_ws_v1__document": "characters",
    "uniseg_length_paragraphs_with_doc_length_v1__document": "words",
}
UNISEG = "words between white space, there those of Unicode"
FOUND = {  # attributes of 0 and 1
    "has_curly_brace": r"\{",
    "has_lorem_ipsum": "(?i)lorem ipsum",
    "has_javascript": "(?i)javascript",
}
ENGLISH = re.compile(r"(?:ft_lang_id|cld2|cld3|lingua|langdetect)\w*?_(?:doc_)?en$")
EMPTIED = {"kind": "filter", "name": "emptied", "rules": [{"measure": "words", "min": 1}]}
REPEATED = "nearest: a rule on repeated_10character_characters/num_10characters"
TOXIC = "nearest: classify with a fastText model, then a rule on its column; it judges documents, not sentences"


def entries_of(content: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the entries of the streams (documents, filters and replacements), the taggers, the duplicates and the
    tokens."""
    streams = [found for found in content.get("streams") or [] if isinstance(found, dict)]
    for number, stream in enumerate(streams):
        yield from _inputs(stream, f"streams[{number}].documents")
    for name, place, settings in _of_streams(streams):
        yield Entry(name, place, settings)
    yield from _inputs(content, "documents") if not streams else ()
    for number, tagger in enumerate(content.get("taggers") or []):
        yield Entry(f"tagger {tagger}", f"taggers[{number}]", {})
    dedupe = content.get("dedupe")
    for name in DEDUPED:
        if isinstance(dedupe, dict) and isinstance(dedupe.get(name), dict):
            of_both = {key: value for key, value in dedupe.items() if key not in (*DEDUPED, "name")}
            yield Entry(f"dedupe.{name}", f"dedupe.{name}", of_both | dedupe[name])
    tokenizer = content.get("tokenizer")
    named = content.get("tokenizer_name_or_path") or (tokenizer or {}).get("name_or_path")
    if named:
        own = {name: content[name] for name in OF_TOKENS if name in content}
        own |= tokenizer if isinstance(tokenizer, dict) else {}
        yield Entry("tokens", "tokenizer", own | {"name_or_path": named, "seed": content.get("seed")})


def _inputs(content: Mapping[str, Any], place: str) -> Iterator[Entry]:
    documents = content.get("documents")
    for path in documents if isinstance(documents, list) else [documents] if documents else []:
        yield Entry("documents", place, {"path": path})


def _of_streams(streams: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the steps of all streams, each once. A step that some streams lack gets the setting `streams`: how many
    streams have it."""
    found: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for number, stream in enumerate(streams):
        for step in _of_stream(stream, f"streams[{number}]"):
            found.setdefault(repr((step[0], step[2])), []).append(step)
    for steps in found.values():
        name, place, settings = steps[0]
        lacking = {"streams": f"{len(steps)} of {len(streams)}"} if len(steps) < len(streams) else {}
        yield name, place, settings | lacking


def _of_stream(stream: dict[str, Any], place: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    filters = stream.get("filter") or {}
    for side in ("include", "exclude"):
        for number, text in enumerate(filters.get(side) or []):
            yield side, f"{place}.filter.{side}[{number}]", {"text": _condensed(" ".join(str(text).split()))}
    for number, span in enumerate(stream.get("span_replacement") or []):
        if isinstance(span, dict):
            yield "span_replacement", f"{place}.span_replacement[{number}]", span
    output = stream.get("output") or {}
    if output.get("min_text_length"):
        yield "min_text_length", f"{place}.output", {"min_text_length": output["min_text_length"]}
    if output.get("path"):
        yield "output", f"{place}.output", {}


def _condensed(text: str) -> str:
    """Return the comparison of a filter that has only one, without the tests whether its attribute exists."""
    path = PATH.fullmatch(text)
    compared = [*COMPARED.finditer(path[1])] if path else []
    return " ".join(compared[0].groups()) if len(compared) == 1 else text


def _filter(side: str) -> Translator:
    """Translate a filter of the mixer: a document stays if it satisfies all rules."""

    def translate(settings: Settings) -> Translation:
        text, lacking = str(settings.get("text")), settings.get("streams")
        if not (compared := CONDENSED.fullmatch(text)):
            raise NotTranslated(f"{shown(text)}: only one comparison such as @.NAME[0][2] < 50 is read")
        name, sign, number = compared.groups()
        part = _rule(name, sign if side == "include" else OPPOSITE.get(sign, ""), float(number))
        return part._replace(differs="; ".join(filter(None, (part.differs, _lacking(lacking)))))

    return translate


def _lacking(streams: str | None) -> str:
    return f"for all inputs, there for {streams} streams: a recipe per stream keeps them apart" if streams else ""


def _rule(name: str, sign: str, bound: float) -> Translation:
    """Return the rule that a document satisfies if the comparison `sign` of its attribute with the bound is true."""
    if not sign:
        raise NotTranslated(f"{name}: == has no counterpart here")
    low, high = (_plain(bound), None) if sign.startswith(">") else (None, _plain(bound))
    is_strict = len(sign) == 1
    attribute = re.sub(r"grams$", "gram", name)
    for end, reason in GOPHER.items():
        if attribute.endswith(f"__{end}"):
            return Translation(rule_with(as_in("dolma", reason), low, high), differs=_strictness(is_strict))
    for end, measure in MEASURES.items():
        if name.endswith(f"__{end}"):
            low, high = (low + 1, None) if low is not None and is_strict else (low, high)
            low, high = (None, high - 1) if high is not None and is_strict else (low, high)
            return Translation(rule_with(measure, low, high), differs=UNISEG if "uniseg" in end else "")
    for make in (_of_c4, _of_language, _of_duplicates, _of_personal_data):
        if part := make(name, high if high is not None else low, sign):
            return part
    raise NotTranslated(f"{name}: {_hint(name)}")


def _plain(bound: float) -> float:
    return int(bound) if bound.is_integer() else bound


def _strictness(is_strict: bool) -> str:
    return "a value on the bound is kept" if is_strict else ""


def _of_c4(name: str, bound: float | None, sign: str) -> Translation | None:
    for end, pattern in FOUND.items():
        if name.endswith(f"__{end}"):
            return Translation(({"matches": pattern} | ({"max_count": 0} if "<" in sign else {"min_count": 1}),))
    if name.endswith("__has_naughty_word") and "<" in sign:
        return Translation(
            (shipped("c4", "bad_words"),), differs=f"its words are not here; {needs('stages.bad_words.rules')}"
        )
    return None


def _of_language(name: str, bound: float | None, sign: str) -> Translation | None:
    if not ENGLISH.search(name) or ">" not in sign:
        return None
    stage = {"kind": "language", "normalize": False, "keep": ["en"], "min_probability": bound, "max_characters": 0}
    return Translation((stage,), differs="the model is lid.176.ftz; --set stages.language.model=FILE takes another one")


def _of_duplicates(name: str, bound: float | None, sign: str) -> Translation | None:
    if "decontamination" in name:
        differs = f"n-grams of your evaluation texts; {needs('stages.decontaminate.evaluation_files')}"
        when = {WHEN: "stages.decontaminate.evaluation_files"}
        return Translation(({"kind": "decontaminate", "name": "decontaminate", **when},), differs=differs)
    if "duplicate_docs" in name or "duplicate_documents" in name:
        return Translation(({"kind": "exact_dedup"},), differs="of the documents that are left, there of all")
    if "duplicate_paragraph" in name:
        return Translation(
            ({"kind": "line_dedup"}, EMPTIED), differs="repeated lines are cut, there their documents removed"
        )
    return None


def _of_personal_data(name: str, bound: float | None, sign: str) -> Translation | None:
    if "__pii_regex" not in name or not name.endswith("__doc_count") or "<" not in sign:
        return None
    [rule] = [rule for rule in shipped("dolma", "dolma")["rules"] if isinstance(rule, dict)]
    return Translation((rule | {"max_count": int(bound or 0)},))


def _hint(name: str) -> str:
    if "repetition" in name:
        return REPEATED
    if "jigsaw" in name or "hatespeech" in name or "nsfw" in name:
        return TOXIC
    return "no measure of this name; nearest: a rule on a column of the input"


def _span(settings: Settings) -> Translation:
    """Translate a mixer's replacement of spans that a tagger found."""
    match = SPAN.fullmatch(str(settings.get("span")))
    by, lacking = str(settings.get("replacement") or ""), settings.get("streams")
    if not match:
        raise NotTranslated(f"{settings.get('span')}: only $.attributes.NAME is read")
    part = _span_part(match[1], by)
    return part._replace(differs="; ".join(filter(None, (part.differs, _lacking(lacking)))))


def _span_part(name: str, by: str) -> Translation:
    kinds = {"EMAIL_ADDRESS": 0, "PHONE_NUMBER": 1, "IP_ADDRESS": 2}
    if (kind := name.rpartition("__")[2]) in kinds and "pii" in name:
        found = shipped("dolma", "personal_data")["replace"][kinds[kind]]
        return Translation(({"kind": "rewrite", "replace": [found | {"by": by.replace("\\", "\\\\")}]},))
    if "duplicate_paragraph" in name and not by:
        return Translation(
            ({"kind": "line_dedup"}, EMPTIED), differs="the first copy stays; a document without text is removed"
        )
    if name.endswith("lines_with_no_ending_punctuation") and not by:
        rule = {"matches": r'[.?!"][\s\p{Z}]*$', "min_count": 1}
        return Translation(({"kind": "lines", "rules": [rule]}, EMPTIED))
    if name.endswith("lines_with_too_few_words") and not by:
        return Translation(({"kind": "lines", "rules": [{"measure": "words", "min": 3}]}, EMPTIED))
    raise NotTranslated(f"{name}: {_hint(name)}")


def _min_text(settings: Settings) -> Translation:
    steps = rule_with("characters", settings.number("min_text_length"), None)
    return Translation(steps, differs=_lacking(settings.get("streams")))


def _documents(settings: Settings) -> Translation:
    return Translation(inputs=({"path": str(settings.get("path"))},))


def _dedupe_documents(settings: Settings) -> Translation:
    key = str(settings.get("key", "$.text"))
    if key == "$.text":
        return Translation(
            ({"kind": "exact_dedup"},), differs="removed, there marked by an attribute; equal texts, by no Bloom filter"
        )
    path = key.removeprefix("$.")
    if not re.fullmatch(r"[\w.]+", path):
        raise NotTranslated(f"key {key}: only $.NAME is read; nearest: exact_dedup with column")
    name = path.rpartition(".")[2]
    return Translation(
        ({"kind": "exact_dedup", "column": name},), of_inputs={"columns": {name: path}}, differs="removed, there marked"
    )


def _dedupe_paragraphs(settings: Settings) -> Translation:
    ngrams = settings.get("by_ngram")
    if ngrams:
        raise NotTranslated("by_ngram: paragraphs by n-grams; nearest: ngram_dedup, which removes documents")
    return Translation(({"kind": "line_dedup"}, EMPTIED), differs="cut, there marked; equal lines, by no Bloom filter")


def _tokens(settings: Settings) -> Translation:
    seed = settings.get("seed")
    return Translation(
        tokenizer={"name": tokenizer_name(str(settings.get("name_or_path")))},
        output={"formats": ["token_shards"], "shuffle": seed is not None},
        differs="files of token_shards in place of .npy; docs/training.md has their form",
    )


TAGGERS: dict[str, Translator] = {
    "char_length_strip_ws_v1": always(
        {"kind": "measure", "names": ["characters"]}, differs="columns in documents/, there attributes"
    ),
    "c4_v2": nearest("nearest: the stages of `curate recipes show c4`"),
    "tokenizer_repetitions_v1": nearest(REPEATED),
    "tokenizer_repetitions_v2r2": nearest(REPEATED),
    "ft_lang_id_en_doc_v2": always(
        {"kind": "language", "normalize": False, "max_characters": 0}, differs="of documents, by lid.176.ftz"
    ),
    "pii_regex_with_counts_v2": always(
        {
            "kind": "measure", "names": ["words"], "personal_data": ["email", "phone", "ip_address"],
            "patterns": "shape", "private": "replace",  # the tagger counts shapes, wherever they are
        },
        differs="numbers by the patterns of redact",
    ),
}  # fmt: skip
TABLE: dict[str, Callable[[Settings], Translation]] = {
    "documents": _documents,
    "include": _filter("include"),
    "exclude": _filter("exclude"),
    "span_replacement": _span,
    "min_text_length": _min_text,
    "output": always(output={"cleaned": "jsonl"}),
    "dedupe.documents": _dedupe_documents,
    "dedupe.paragraphs": _dedupe_paragraphs,
    "tokens": _tokens,
    **{f"tagger {name}": translator for name, translator in TAGGERS.items()},
}
VOID: Void = {
    "the language of paths in the configuration": {"syntax": ("jsonpath",)},
    "duplicates are removed, not marked by an attribute": {"attribute_name": ()},
    "memory": {"refresh_tokenizer_every": ()},
    "as here": {"paragraph_separator": ("\n",), "dtype": ("uint16",), "encode_special_tokens": (False,)},
    "the format of shown streams": {"output.streams": ()},
}
