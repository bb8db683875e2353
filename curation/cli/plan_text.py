# SPDX-License-Identifier: Apache-2.0
"""The lines of `curate plan`: an estimate as readable text, in at most LINES lines before long lines are wrapped."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from curation.base.errors import counted, shown_size
from curation.base.system.memory import document_remark
from curation.reading.source_files import RESERVED

if TYPE_CHECKING:
    from curation.running.planning.disk import DiskNeed
    from curation.running.planning.estimate import DeviceTime, Estimate, GroupEstimate, MemoryNeed, StageEstimate
    from curation.running.planning.survey_numbers import FileKind

LINES, WIDTH, INDENT = 25, 118, " " * 7
MAX_SETTINGS = 5  # lines of a stage with reasons for removal; other stages have one line
SHOWN_KINDS, SHOWN_COLUMNS = 5, 6
BUSY_SHARE = 0.9  # share of a processor: with less, the sample waited for other programs or for the disk
MOST = {  # parts of the time of the GPU engine: `curation.base.speeds.PartSeconds`
    "start": "its start, which is assumed",
    "host": "the host's work",
    "bus": "copies between host and device",
    "device": "kernels",
    "python": "Python that launches kernels",
}
ONE_BOUND = re.compile(r"in \[(\S+), (\S+)\]")  # the bounds of a rule in the explanation of a stage


def plan_lines(estimate: Estimate) -> list[str]:
    """Return the lines of an estimate. On a terminal, a long line is wrapped to the width; in a file, it is not."""
    name = estimate.recipe["name"]
    head = [
        f"{f'recipe {name}' if name else 'recipe'}: {counted(estimate.files, 'file')}, {shown_size(estimate.bytes)}",
        *_kind_lines(estimate.kinds),
        _documents_line(estimate),
        *([_not_counted(estimate.not_counted)] if estimate.not_counted else []),
    ]
    tail = [
        *([_tokens_line(estimate)] if estimate.tokens else []),
        *([estimate.special_tokens] if estimate.tokens else []),
        *_time_lines(estimate),
        _memory_line(estimate.memory, named=estimate.device_time is not None),
        _disk_line(estimate.disk),
        "All settings and bounds: add --full",
    ]
    lines = [*head, *_stage_lines(estimate.stages, LINES - len(head) - len(tail)), *tail]
    return [part for line in lines for part in _wrapped(line)]


def _kind_lines(kinds: list[FileKind]) -> list[str]:
    lines = [_kind_line(kind) for kind in kinds[:SHOWN_KINDS]]
    rest = kinds[SHOWN_KINDS:]
    files = counted(sum(kind.files for kind in rest), "file")
    formats = Counter(_format(kind) for kind in rest).most_common()
    named = ", ".join(f"{count:,} {name}" for name, count in formats)
    size = shown_size(sum(kind.bytes for kind in rest))
    return [*lines, *([f"  {len(rest)} more kinds of files: {files}, {size}: {named}"] if rest else [])]


def _format(kind: FileKind) -> str:
    return f"{kind.format}, {kind.compression}" if kind.compression else kind.format


def _kind_line(kind: FileKind) -> str:
    facts = [kind.note] if kind.note else []
    if kind.text_column:
        facts += [f"text in {kind.text_column}", f"ids in {kind.id_column}" if kind.id_column else "ids are made"]
    shown = [f"{name} (rename it)" if name in RESERVED else name for name in kind.columns[:SHOWN_COLUMNS]]
    others = ", ".join(shown) + (", ..." if len(kind.columns) > SHOWN_COLUMNS else "")
    facts += [f"`columns` can carry: {others}"] if others else []
    return (
        f"  {kind.input} ({_format(kind)}): {counted(kind.files, 'file')}, {shown_size(kind.bytes)}; {'; '.join(facts)}"
    )


def _documents_line(estimate: Estimate) -> str:
    sample = estimate.sample
    sampled = f"{counted(sample.documents, 'document')} of {counted(sample.files, 'file')}"
    how = f"estimated from {sampled} (seed {sample.seed})"
    how = "all of them read for this estimate" if sample.is_whole else how
    in_part = sum(kind.read_in_part for kind in estimate.kinds)
    start = f"; {counted(in_part, 'file')} only at the beginning" if in_part else ""
    size = shown_size(estimate.text_bytes)
    return f"documents: {_between(estimate.documents_between)} with about {size} of text; {how}{start}"


def _tokens_line(estimate: Estimate) -> str:
    """Return the line with the bounds of the tokens. A sample cannot show how much is removed by stages that compare
    documents."""
    comparing = [stage.name for stage in estimate.stages if stage.documents_in is None]
    before = f", less what {_joined(comparing, ', ', WIDTH // 2)} may remove" if comparing else ""
    return f"tokens: {_between(estimate.tokens_between)} ({estimate.recipe['tokenizer']['name']}){before}"


def _between(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _not_counted(names: list[str]) -> str:
    more = ", ..." if len(names) > 1 else ""
    return f"not counted, because their size is not known: {counted(len(names), 'input')} ({names[0]}{more})"


def _stage_lines(stages: list[StageEstimate], room: int) -> list[str]:
    """Return the settings and the effect of each stage, in at most `room` lines. Effects get more of these lines than
    settings."""
    effects = [_effects(stage) for stage in stages]
    spare = room - 1 - len(stages) - sum(map(len, effects))
    lines = []
    for number, (stage, effect) in enumerate(zip(stages, effects, strict=True), 1):
        name = stage.name if stage.name == stage.kind else f"{stage.name} ({stage.kind})"
        start = f"  {number}. {name}: "
        if spare < 0 and effect:
            lines.append(start + effect[0])
            continue
        settings = _settings(stage, start, 1 + min(max(spare, 0), MAX_SETTINGS - 1) * bool(stage.reasons))
        spare -= len(settings) - 1
        lines += [*settings, *(INDENT + line for line in effect)]
    if 1 + len(lines) > room:
        lines = [*lines[: room - 2], f"  {counted(len(lines) - room + 2, 'more stage')}"]
    return ["stages:" if stages else "stages: none", *lines]


def _settings(stage: StageEstimate, start: str, room: int) -> list[str]:
    """Return the settings of a stage in at most `room` lines. Rules that remove most documents come first."""
    parts = [ONE_BOUND.sub(_shown_bound, line.strip()) for line in stage.explained]
    parts.sort(key=lambda part: -stage.reasons.get(part.partition(":")[0], 0))
    lines: list[str] = []
    text = start + parts[0]
    for number, part in enumerate(parts[1:], 1):
        is_last = len(lines) + 1 == room
        if len(text) + len(part) + 2 + (len("; 100 more") if is_last else 0) <= WIDTH:
            text += f"; {part}"
        elif is_last:
            return [*lines, f"{text}; {len(parts) - number} more"]
        else:
            lines.append(f"{text};")
            text = INDENT + part
    return [*lines, text]


def _shown_bound(match: re.Match[str]) -> str:
    return f"<= {match[2]}" if match[1] == "-inf" else f">= {match[1]}" if match[2] == "inf" else match[0]


def _joined(parts: list[str], separator: str, width: int) -> str:
    """Return as many of the parts as fit, and the number of parts left out."""
    text = parts[0] if parts else ""
    for number, part in enumerate(parts[1:], 1):
        if len(text) + len(separator) + len(part) > width:
            return f"{text}{separator}{len(parts) - number} more"
        text += separator + part
    return text


def _effect(stage: StageEstimate) -> str:
    """Return the shares of documents that a row stage removes and edits; "" for a stage that compares documents."""
    if stage.documents_in is None or stage.documents_out is None:
        return ""
    total, removed = stage.documents_in, stage.documents_in - stage.documents_out
    ranked = sorted(stage.reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    parts = [f"edits {_share(stage.edited, total)}"] if stage.edited else []
    if removed:
        reasons = _joined([f"{name} {_share(count, total)}" for name, count in ranked], ", ", WIDTH - 40)
        parts.insert(0, f"removes {_share(removed, total)}{_shares_between(stage.removed_between)}: {reasons}")
    elif stage.removed_between[1]:
        parts.insert(0, f"removes no document of the sample{_shares_between(stage.removed_between)}")
    return "; ".join(parts) or "changes no document of the sample"


def _effects(stage: StageEstimate) -> list[str]:
    """Return the lines on the effect of a stage: on all documents, and on the groups of each column in the sample."""
    lines = [line for line in (_effect(stage), stage.unlabelled) if line]
    for column in dict.fromkeys(entry.column for entry in stage.groups):
        own = [entry for entry in stage.groups if entry.column == column]
        total = sum(entry.documents for entry in own)
        parts = [f"{entry.group} {_share(entry.documents, total)} (removes {_removed(entry)})" for entry in own]
        start = f"per {column}: "
        lines.append(start + _joined(parts, ", ", WIDTH - len(INDENT + start) - len(", 1,000 more")))
    return lines


def _removed(entry: GroupEstimate) -> str:
    low, high = entry.removed_between
    return _share(entry.removed, entry.documents) if low == high else f"{100 * low:.1f} to {high:.1%}"


def _shares_between(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return "" if low == high else f" ({100 * low:.1f} to {high:.1%})"


def _share(count: int | None, total: int) -> str:
    return f"{(count or 0) / total:.1%}" if total else "0.0%"


def _time_lines(estimate: Estimate) -> list[str]:
    """Return the measured time of the CPU engine, and below it the modelled times of both engines if the estimate has
    them."""
    cpu = f"{_range(estimate.seconds)} on {counted(estimate.workers, 'worker')}"
    if 0 < estimate.processors < estimate.workers:
        cpu += f", which share this machine's {counted(estimate.processors, 'processor')}"
    share = estimate.processor_share
    busy = f", which had {share:.0%} of a processor: the machine is busy" if share < BUSY_SHARE else ""
    if estimate.device_time is None:
        return [f"time: {cpu}" + (f"; measured on the sample{busy}" if busy else "")]
    return [f"time, cpu: {cpu}; measured on the sample{busy}", *_model_lines(estimate.device_time)]


def _model_lines(model: DeviceTime) -> list[str]:
    on = f"by rates measured on {model.device}" if model.device else "on one H200"
    verdict = f"{model.faster} is expected to be faster" if model.faster else "unclear, so auto takes cpu"
    here = f"not usable here: {model.obstacle.partition(' (')[0]}" if model.obstacle else "usable here"
    return [
        f"time, modelled for {counted(model.processors, 'processor')}, if no document is removed: cpu "
        f"{_fine(model.cpu_seconds)}, gpu {_range(model.seconds, _fine)} {on}",
        f"engine, by this model: {verdict}; most of the time of gpu is {MOST[model.most]}",
        f"gpu: a worker takes {shown_size(model.memory)} of its memory, or waits; {here}",
    ]


def _range(seconds: tuple[float, float], shown: Callable[[float], str] | None = None) -> str:
    low, high = map(shown or _time, seconds)
    return low if low == high else f"{low} to {high}"


def _memory_line(memory: MemoryNeed, named: bool) -> str:
    """Return the line with the memory of the host. `named`: with the name of the engine, for a plan of both engines."""
    engine = f", {memory.engine}" if named else ""
    free = f"; {memory.limit} leaves {shown_size(memory.free)}" if memory.free >= 0 else ""
    tasks = f" for {counted(memory.workers, 'worker')}" if named else ""
    batches = f" with batches of {shown_size(memory.device_batch)}" if memory.device_batch else ""
    size = f"{shown_size(memory.needed)}{tasks}{batches}{document_remark(memory.document)}"
    return f"memory{engine}: needs about {size}{free}"


def _disk_line(disk: DiskNeed) -> str:
    there = f", of which {shown_size(disk.present)} are there" if disk.present else ""
    free = f"; {shown_size(disk.free)} are free in {disk.folder}" if disk.free >= 0 else "; the free space is not known"
    refused = "; a run is refused without --force-disk" if disk.missing else ""
    return f"disk: needs about {shown_size(disk.needed)}{there}{refused}{free}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _fine(seconds: float) -> str:
    """Return a time with three digits, so that a reader can check the ratio of two times."""
    if seconds < 600:
        return f"{seconds:.{0 if seconds >= 100 else 1}f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def _wrapped(line: str) -> Iterator[str]:
    if not sys.stdout.isatty():
        yield line
        return
    start = " " * (len(line) - len(line.lstrip()) + 2)
    yield from textwrap.wrap(
        line,
        shutil.get_terminal_size().columns,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )
