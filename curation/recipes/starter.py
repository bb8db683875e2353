# SPDX-License-Identifier: Apache-2.0
"""The recipe that `curate init` writes for your files: the stages of the default recipe, with hints in comments.

`curation.recipes.survey` finds the inputs: their format, text column and encoding. If files of an input have different
text columns, the recipe names none: a run finds the column of each file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from curation.base.errors import counted, shown_size
from curation.base.system.terminal import printable_line
from curation.reading.formats import FORMATS
from curation.reading.formats.base import Format
from curation.reading.inputs import LIST_MARK
from curation.reading.source_files import RESERVED
from curation.recipes.recipe import DEFAULT_RECIPE, shipped_recipes
from curation.recipes.survey import InputSurvey, OtherForm, SuggestedInput
from curation.recipes.text_kinds import CODE_SUFFIXES
from curation.recipes.yaml_text import flow
from curation.stages import FuzzyDedup

EXAMPLE = "data/*.jsonl.gz"
ADDRESS = "url"  # field of archives with the URL of a page
HTML = [  # patterns of a stage before `rewrite`
    {"matches": r"(?is)<(script|style)\b.*?</(script|style)\s*>|<!--.*?-->", "by": ""},
    {"matches": r"(?i)<(br|hr|li|/p|/div|/[uo]l|/h[1-6]|/tr|/blockquote|/pre|/title)\b[^<>]*>", "by": "\n"},
    {"matches": r"(?i)</t[dh]\b[^<>]*>", "by": " "},
    {"matches": r"</?[A-Za-z][^<>]*>", "by": ""},
]
JOIN = {"kind": "rewrite", "name": "join_lines", "replace": [{"matches": r"([^\n])\n([^\n])", "by": r"\1 \2"}]}
CODE_COMMENT = "source code: lines of at most 1,000 characters, and 100 on average; at least 25 % letters or digits"
MAX_SHOWN = 4  # columns
MAX_SHOWN_UNUSED = 20  # reasons, and paths of each
MANY_FOREIGN = 0.3  # share of bytes: up to 6 % in manuals in French and Spanish, 72 to 81 % in Chinese and Russian

HEAD = """\
# A recipe to start from. Run it: curate run {name} -o out
# Estimate its run: curate plan {name}. Explain each stage: curate plan {name} --full
# List all settings: curate recipes --schema
"""
COMMENTS = {
    "input": "files, folders, globs or URLs, one input each, from the working directory; name: is its name in outputs",
    "words": "words of Chinese, Japanese, Thai, Lao, Khmer and Burmese end where a table of words says",
    "rewrite": "Unicode form; also markup: strip (tags), whitespace: collapse, lowercase: true",
    "language": "labels documents, if their language is clear; keep: [en, de] removes those in other languages",
    "filter": "bounds and stop words by language; und: texts whose language is not known",
    "exact_dedup": "keeps the first of equal texts; compare: lowercase ignores case and outer white space",
    "fuzzy_dedup": f"near-duplicates; threshold: {FuzzyDedup().threshold} is Jaccard similarity; lower removes more",
    "tokenizer": "gpt2 is for English: others need fewer tokens in other languages. cl100k_base, o200k_base, a "
    "tokenizer.json, a SentencePiece .model or hub:ORG/NAME",
    "output": "also token_shards, blocks, chunks, packed, mds, litdata; splits: {train: 0.99, valid: 0.01} splits the "
    "documents",
}


def starting_recipe(survey: InputSurvey, name: str) -> str:
    """YAML text of a recipe for the inputs of a survey.

    survey   from `curation.recipes.survey.survey`; without inputs: one example to change
    name     file name of the recipe, for the commands in its comments
    """
    content = yaml.safe_load(shipped_recipes()[DEFAULT_RECIPE])
    lines = [HEAD.format(name=printable_line(name))]
    lines += [*_listed(survey.unused, "Not read"), *_listed(survey.faults, "Read in part")]
    lines += [f"# {COMMENTS['input']}", "input:"]
    for suggested in survey.inputs or [SuggestedInput({"path": EXAMPLE})]:
        found = _format_of(suggested)
        carried = {"columns": [ADDRESS]} if found and ADDRESS in found.fields else {}
        lines += [*(f"  # {printable_line(line)}" for line in describe(suggested))]
        lines += [f"  - {flow(suggested.settings | carried)}"]
    for other in survey.others:
        lines += _other_form(other)
    lines += _unread_code(survey)
    lines += [f"# {COMMENTS['words']}", f"words: {content['words']}", "stages:"]
    stages = _code_stages() if is_all_code(survey) else content["stages"]
    lines += _html_stage(survey, stages)
    for stage in stages:
        lines += [
            *(_wrapped(survey) if stage["kind"] == "filter" else ()),
            f"  # {_comment(stage)}",
            f"  - {flow(stage)}",
        ]
    for key in ("tokenizer", "output"):
        lines += [
            f"# {COMMENTS[key]}",
            *(_foreign(survey) if key == "tokenizer" else ()),
            f"{key}: {flow(content[key])}",
        ]
    return "\n".join(lines) + "\n"


def _foreign(survey: InputSurvey) -> Iterator[str]:
    """Yield a comment with the share of text in scripts other than Latin, for which gpt2 needs the most tokens."""
    facts = [each for suggested in survey.inputs for each in suggested.facts]
    size, foreign = sum(each.bytes for each in facts), sum(each.foreign for each in facts)
    if foreign > MANY_FOREIGN * size:
        yield (
            f"# {foreign / size:.0%} of the bytes of the probed texts are not ASCII. In Chinese, gpt2 needs 1.6 to 2.4 "
            "times as many tokens as o200k_base"
        )


def lists_of(survey: InputSurvey) -> dict[str, str]:
    """Return the lists of files that are named by inputs of the recipe and of its comments: path -> content."""
    shown = [each for other in survey.others for each in other.inputs[:MAX_SHOWN_UNUSED]]
    return {
        each.settings["path"].removeprefix(LIST_MARK): "\n".join([*each.listed, ""])
        for each in (*survey.inputs, *shown)
        if each.listed
    }


def _other_form(other: OtherForm) -> Iterator[str]:
    """Yield comments with other inputs that read the same files."""
    yield f"  # {other.reason}."
    yield f"  # {other.title}:"
    yield from (f"  # - {printable_line(flow(each.settings))}" for each in other.inputs[:MAX_SHOWN_UNUSED])
    if len(other.inputs) > MAX_SHOWN_UNUSED:
        yield f"  # and {len(other.inputs) - MAX_SHOWN_UNUSED:,} more"


def _unread_code(survey: InputSurvey) -> Iterator[str]:
    """A comment on files of source code that no input reads."""
    if survey.code:
        pattern, files = next(iter(survey.code.items()))
        total = counted(sum(survey.code.values()), "file")
        yield f"  # {total} of source code not read, {files:,} of them {printable_line(pattern)}. Write a recipe of"
        yield f"  # their own, without rules for prose: curate init {shlex.quote(printable_line(pattern))} -o code.yaml"


def is_all_code(survey: InputSurvey) -> bool:
    """Return whether all inputs are source code."""
    return bool(survey.inputs) and all(each.is_code or _is_code_file(each) for each in survey.inputs)


def _is_code_file(suggested: SuggestedInput) -> bool:
    return os.path.splitext(suggested.settings["path"])[1].lower() in CODE_SUFFIXES


def _code_stages() -> list[dict[str, Any]]:
    """Stages for source code. The bounds are those of StarCoder (Li et al. 2023, section 3.1), after Codex."""
    rules = [
        {"measure": "max_line_characters", "max": 1000},
        {"ratio": ["line_characters", "lines"], "max": 100},
        {"ratio": ["alphanumeric_characters", "characters"], "min": 0.25},
    ]
    return [{"kind": "filter", "rules": rules}, {"kind": "exact_dedup"}, {"kind": "fuzzy_dedup"}]


def _comment(stage: Mapping[str, Any]) -> str:
    is_code = stage["kind"] == "filter" and "set" not in stage["rules"][0]
    return CODE_COMMENT if is_code else COMMENTS[stage["kind"]]


def _wrapped(survey: InputSurvey) -> Iterator[str]:
    """Yield a stage as a comment if most texts of an input seem to have wrapped lines, since no rule can detect this
    for certain."""
    inputs = [each for each in survey.inputs if each.is_wrapped]
    if inputs:
        wrapped, texts = sum(each.wrapped for each in inputs), sum(each.texts for each in inputs)
        yield f"  # {wrapped:,} of {counted(texts, 'probed text')} may have wrapped lines. To join the"
        yield "  # lines of each paragraph of all inputs, also those of lists, tables and poems, add this stage:"
        yield f"  # - {flow(JOIN)}"


def _html_stage(survey: InputSurvey, stages: list[dict[str, Any]]) -> list[str]:
    """Return a stage that deletes tags, if texts have many of them; the stage `rewrite` then decodes entities."""
    inputs = [suggested for suggested in survey.inputs if suggested.is_html]
    if not inputs:
        return []
    if any(facts.entities for suggested in inputs for facts in suggested.facts):
        next(stage for stage in stages if stage["kind"] == "rewrite")["entities"] = "decode"
    tagged, texts = sum(each.tagged for each in inputs), sum(each.texts for each in inputs)
    verb = "has" if tagged == 1 else "have"
    return [
        f"  # {tagged:,} of {counted(texts, 'probed text')} {verb} tags of HTML: deletes tags of all inputs, ends",
        "  # lines where blocks end. Delete this stage to keep tags, as for source code",
        f"  - {flow({'kind': 'rewrite', 'name': 'html', 'replace': HTML})}",
    ]


def describe(suggested: SuggestedInput) -> Iterator[str]:
    """Yield lines on an input: its files, the other columns with text or numbers, and a guessed encoding."""
    if suggested.files:
        size = f"{suggested.bytes / 1e6:,.1f} MB" if suggested.bytes >= 1e5 else counted(suggested.bytes, "byte")
        yield f"{counted(suggested.files, 'file')}, {size}{_lengths(suggested)}"
    numbers = list(dict.fromkeys(name for facts in suggested.facts for name in facts.numbers if name))
    if numbers:
        columns = {f"input_{numbers[0]}": numbers[0]} if numbers[0] in RESERVED else [numbers[0]]
        named = ", ".join([*numbers[:MAX_SHOWN], "..."] if len(numbers) > MAX_SHOWN else numbers)
        yield f"columns with numbers: {named}; carry one with columns: {flow(columns)} for rules, select or mix"
    encoding = suggested.settings.get("encoding", "")
    if encoding and not encoding.startswith(("utf-16", "utf-32")):
        yield f"encoding: {encoding} is a guess, since the files are not UTF-8: look at the text of accented letters"
    probed = counted(suggested.texts, "probed text")
    if suggested.is_code:
        verb = "looks" if suggested.code == 1 else "look"
        yield f"{suggested.code:,} of {probed} {verb} like source code, of which rules for prose keep little"
    if suggested.is_wrapped:
        yield f"{suggested.wrapped:,} of {probed} may have wrapped lines"
    if suggested.tagged:
        yield f"{suggested.tagged:,} of {probed} {'has' if suggested.tagged == 1 else 'have'} tags of HTML"
    found = _format_of(suggested)
    if found and found.hint:
        yield found.hint


def _format_of(suggested: SuggestedInput) -> Format | None:
    return FORMATS.get(suggested.settings.get("format") or suggested.format)


def _lengths(suggested: SuggestedInput) -> str:
    """Mean bytes of the text column and of other columns in the first records of a file."""
    columns = {facts.column for facts in suggested.facts if facts.column}
    if len(columns) > 1:
        return f"; text columns by file: {', '.join(sorted(columns))}"
    others = dict(next((facts.others for facts in suggested.facts if facts.others), ()))
    [column] = columns or [""]
    if column not in others:
        return ""
    rest = [f"{name} ({size:,.0f} bytes)" for name, size in others.items() if name != column][:MAX_SHOWN]
    alternatives = f"; other columns: {', '.join(rest)}" if rest else ""
    return f"; {column} has {others[column]:,.0f} bytes on average{alternatives}"


def left_out_lines(paths: Mapping[str, str], title: str) -> Iterator[str]:
    """Yield a line for each reason why files are not read, or only in part: their number, bytes, names and the reason.

    paths   path -> reason
    """
    groups: dict[str, list[str]] = {}
    for path, reason in paths.items():
        groups.setdefault(reason.replace(os.path.abspath(path), "it").replace(path, "it"), []).append(path)
    for reason, group in groups.items():
        size = sum(os.stat(path).st_size for path in group if os.path.isfile(path))
        suffixes = list(dict.fromkeys(os.path.splitext(path)[1] for path in group if os.path.splitext(path)[1]))
        kinds = f" {', '.join(suffixes[:MAX_SHOWN])}" if suffixes else ""
        named = group[0] + (" and others" if len(group) > 1 else "")
        yield f"{title}: {counted(len(group), 'file')}{kinds} ({shown_size(size)}), {named}: {reason}"


def _listed(paths: Mapping[str, str], title: str) -> Iterator[str]:
    """Comments on files that no input reads, or reads in part: each reason once, with its files."""
    if not paths:
        return
    yield f"# {title}: {counted(len(paths), 'path')}"
    groups: dict[str, list[str]] = {}
    for path, reason in paths.items():
        groups.setdefault(reason, []).append(path)
    for reason, group in list(groups.items())[:MAX_SHOWN_UNUSED]:
        names = ", ".join(map(printable_line, group[:MAX_SHOWN_UNUSED]))
        more = len(group) - MAX_SHOWN_UNUSED
        yield f"#   {names}{f' and {more:,} more' if more > 0 else ''}: {printable_line(reason)}"
    if len(groups) > MAX_SHOWN_UNUSED:
        yield f"#   and {counted(len(groups) - MAX_SHOWN_UNUSED, 'more reason')}"
