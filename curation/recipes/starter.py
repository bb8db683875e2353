# SPDX-License-Identifier: Apache-2.0
"""The recipe that `curate init` writes for your files: the stages of the default recipe, with hints in comments.

`curation.recipes.survey` finds the inputs: their format, text column and encoding. If files of an input have different
text columns, the recipe names none: a run finds the column of each file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from curation.errors import counted
from curation.reading.formats import FORMATS
from curation.reading.formats.base import Format
from curation.reading.paths import split_suffix
from curation.reading.source_files import RESERVED
from curation.recipes.recipe import DEFAULT_RECIPE, shipped_recipes
from curation.recipes.survey import SuggestedInput, Survey
from curation.recipes.yaml_text import flow
from curation.stages import FuzzyDedup
from curation.system.terminal import printable_line

EXAMPLE = "data/*.jsonl.gz"
HTML = [  # patterns of a stage before `rewrite`
    {"matches": r"(?is)<(script|style)\b.*?</(script|style)\s*>|<!--.*?-->", "by": ""},
    {"matches": r"(?i)<(br|hr|li|/p|/div|/[uo]l|/h[1-6]|/tr|/blockquote|/pre|/title)\b[^<>]*>", "by": "\n"},
    {"matches": r"(?i)</t[dh]\b[^<>]*>", "by": " "},
    {"matches": r"</?[A-Za-z][^<>]*>", "by": ""},
]
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
    "output": "also token_shards, blocks, chunks, packed, mds; splits: {train: 0.99, valid: 0.01} splits the documents",
}


def starting_recipe(survey: Survey, name: str) -> str:
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
        carried = {"columns": [found.address]} if found and found.address else {}
        lines += [*(f"  # {printable_line(line)}" for line in describe(suggested))]
        lines += [f"  - {flow(suggested.settings | carried)}"]
    lines += [f"# {COMMENTS['words']}", f"words: {content['words']}", "stages:"]
    lines += _html_stage(survey, content["stages"])
    for stage in content["stages"]:
        lines += [f"  # {COMMENTS[stage['kind']]}", f"  - {flow(stage)}"]
    for key in ("tokenizer", "output"):
        lines += [
            f"# {COMMENTS[key]}",
            *(_foreign(survey) if key == "tokenizer" else ()),
            f"{key}: {flow(content[key])}",
        ]
    return "\n".join(lines) + "\n"


def _foreign(survey: Survey) -> Iterator[str]:
    """A comment with the share of text in other scripts than Latin, for which gpt2 needs the most tokens."""
    facts = [each for suggested in survey.inputs for each in suggested.facts]
    size, foreign = sum(each.bytes for each in facts), sum(each.foreign for each in facts)
    if foreign > MANY_FOREIGN * size:
        yield (
            f"# {foreign / size:.0%} of the bytes of the probed texts are not ASCII. In Chinese, gpt2 needs 1.6 to 2.4 "
            "times as many tokens as o200k_base"
        )


def _html_stage(survey: Survey, stages: list[dict[str, Any]]) -> list[str]:
    """A stage that deletes tags, where texts are full of them; `rewrite` of the stages then decodes their entities."""
    inputs = [suggested for suggested in survey.inputs if suggested.is_html]
    if not inputs:
        return []
    if any(facts.entities for suggested in inputs for facts in suggested.facts):
        next(stage for stage in stages if stage["kind"] == "rewrite")["entities"] = "decode"
    tagged, texts = sum(each.tagged for each in inputs), sum(each.texts for each in inputs)
    return [
        f"  # {tagged:,} of {counted(texts, 'probed text')} have tags of HTML: deletes tags of all inputs, ends",
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
    if suggested.tagged:
        yield f"{suggested.tagged:,} of {counted(suggested.texts, 'probed text')} have tags of HTML"
    found = _format_of(suggested)
    if found and found.hint:
        yield found.hint


def _format_of(suggested: SuggestedInput) -> Format | None:
    return FORMATS.get(suggested.settings.get("format", split_suffix(suggested.settings["path"])[0]))


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
