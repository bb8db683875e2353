# SPDX-License-Identifier: Apache-2.0
"""Warnings about rules for prose on inputs that are mostly source code, by a sample of their documents.

A line counts as code by its form, such as a brace or a semicolon at its end, a call, an assignment or an import. So no
list of programming languages is needed. Comments count only if there is little else, because many files begin with a
licence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from curation.record.lost_groups import SampledDocument
from curation.stages import Filter, Lines, Stage

MIN_CODE_DOCUMENTS, MIN_SHARE = 5, 0.5  # least number of sampled documents of an input, and share of code among them
MIN_LINES, MIN_CODE = 3, 0.5  # least lines of a document without comments, and share of code among them
BLOCKS = {"/*": "*/", '"""': '"""', "'''": "'''", "<!--": "-->"}  # comments of several lines
COMMENT = re.compile(r"#(?!\#|include|define|if|else|endif|pragma|undef)|//|--|;|%")
ENDS = (*";{}[(\\", *["],", "),", "},", "',", '",'], *["]:", "):", "}:"])
SIGNS = "(", "=", "->", "::", "&&", "||"  # each match of INSIDE has one: most lines of prose have none
INSIDE = re.compile(
    r"""\w\((?!e?s\)|\d+\))[^()\s]*\)  # a call, but neither `file(s)` nor `open(2)`
    | (?<![<>=!])=(?![=>])\s*[^\s=] | [=!]= | [-=]> | :: | && | \|\| | \+= | :=""",
    re.VERBOSE,
)
START = re.compile(
    r"""[])}\#@]
    | from\s+[\w.]+\s+import\b | (?:import|using|use|package|require|include|module|namespace)\s+[\w.:"'<]+$
    | (?:def|class|fn|func|function|struct|enum|sub|interface|impl|trait)\s+\w+\s*[({:<]
    | (?:if|for|while|switch|elif|else\ if|catch)\s*[(\[] | (?:else|try|do|begin|end|fi|done|then|return|break)$
    | (?:return|const|let|var|static|public|private|typedef|extern)\s+\w+""",
    re.VERBOSE,
)
PROSE = {  # measures of rules for prose
    "stop_words", "stop_word_count", "function_words", "words_with_letter", "sentences", "punctuated_lines",
    "word_characters", "median_word_characters", "bullet_lines", "bullet_or_star_lines", "ellipsis_lines",
}  # fmt: skip


def is_code(text: str) -> bool:
    """Return whether the start of a document is source code. Tags of HTML do not count as code."""
    code = others = comments = 0
    end = ""  # end mark of the comment that a line is in
    for line in filter(None, map(str.strip, text.split("\n"))):
        start = "" if end else next((mark for mark in BLOCKS if line.startswith(mark)), "")
        if end or start:
            comments += 1
            end = end or BLOCKS[start]
            end = "" if end in line[len(start) :] else end
        elif COMMENT.match(line):
            comments += 1
        elif not line.startswith("<") and _is_code_line(line):
            code += 1
        else:
            others += 1
    if code + others < MIN_LINES:
        return comments > code + others
    return code >= MIN_CODE * (code + others)


def _is_code_line(line: str) -> bool:
    has_sign = any(sign in line for sign in SIGNS)
    return line.endswith(ENDS) or bool(START.match(line) or (has_sign and INSIDE.search(line)))


def prose_stages(stages: Mapping[str, Stage]) -> list[str]:
    """Return the names of the stages with rules for prose. `stages`: name -> stage."""
    return [name for name, stage in stages.items() if PROSE & {*_measures(stage)}]


def _measures(stage: Stage) -> Iterator[str]:
    if isinstance(stage, Filter):
        for rule in stage.expanded:
            yield from rule.measures
    elif isinstance(stage, Lines):
        for unit_rule in stage.expanded:
            yield from unit_rule.measures


def warn_of_code(sample: Sequence[SampledDocument], stages: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each input that is mostly source code. `stages` has the names of the stages with rules for
    prose."""
    found: dict[str, list[tuple[bool, float, bool]]] = {}
    for document in sample if stages else ():
        is_lost = document.lost is not None and document.lost[0] in stages
        found.setdefault(document.source, []).append((is_code(document.text), document.weight, is_lost))
    for name, own in found.items():
        documents, code = sum(weight for _, weight, _ in own), sum(weight for kind, weight, _ in own if kind)
        if len(own) >= MIN_CODE_DOCUMENTS and code > MIN_SHARE * documents:
            lost = sum(weight for kind, weight, is_lost in own if kind and is_lost)
            yield (
                f"input {name!r}: about {code:,.0f} of {documents:,.0f} documents look like source code, by a sample. "
                f"The rules of {', '.join(stages)} are for prose, and remove about {lost:,.0f} of them. Read this "
                "input in a recipe of its own, without such rules"
            )
