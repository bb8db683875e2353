# SPDX-License-Identifier: Apache-2.0
"""The funnel in three forms: `report.json`, a table in the terminal, `report.html`. And `tokens/_meta/`."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from curation.errors import counted
from curation.files import commit, write_json
from curation.packing.blends import meta_files, weigh, write_meta
from curation.packing.forms.writing import digests as form_digests
from curation.packing.forms.writing import summaries
from curation.packing.megatron import TrainingPair
from curation.packing.samples import unwritten_sample
from curation.packing.tokenization import Tokenizer, load_tokenizer
from curation.reading.inputs import entries_by_name
from curation.recipe import as_builtins
from curation.running.emptiness import emptiness
from curation.running.ledger import SliceRecord, as_report
from curation.running.shortfalls import shortfalls
from curation.running.sources import contributions, source_rows, unreached_budgets
from curation.running.summary import funnel_line, numbers, shown_numbers, stage_lines
from curation.stages.outcome import StageCount
from curation.terminal import printable_line

if TYPE_CHECKING:
    from curation.running.jobs import Plan

HTML = "report.html"
UNSPACED_SHARE = 0.1  # above it the report warns


def build(
    plan: Plan,
    versions: dict[str, str],
    documents: dict[str, int],
    counted_stages: tuple[Sequence[StageCount], Sequence[Sequence[str]]],
    records: Sequence[SliceRecord],
    written: dict[str, Any],
    digests: dict[str, str],
    folder: Path,
) -> dict[str, Any]:
    """The content of `report.json`; writes `tokens/_meta/` on the way, since its digests are part of it."""
    stages, lines = counted_stages
    parts = written["records"]
    digests = digests | {f"documents/{part['file']}": part["sha256"] for part in parts}
    tokens = _token_report(plan, parts)
    pairs, forms = written["tokens"]
    tokenizer = load_tokenizer(plan.recipe.tokenizer) if plan.recipe.output.formats else None
    if "megatron" in plan.recipe.output.formats:
        digests |= _pair_digests(pairs, folder) | _write_meta(plan, tokens, pairs, folder)
    digests |= form_digests(forms, folder)
    return {
        "versions": {"gpu-pipeline": plan.version} | versions,
        "recipe": as_builtins(plan.recipe),
        "files": msgspec.to_builtins(plan.files),
        "stage_files": plan.stage_files,
        "tokenizer": plan.tokenizer,
        "documents": documents,
        "bytes": {"read": sum(record.bytes_read for record in records), "kept": sum(part["bytes"] for part in parts)},
        "documents_digest": hashlib.sha256("".join(part["digest"] for part in parts).encode()).hexdigest(),
        "stages": [as_report(*stage) for stage in zip(stages, lines, strict=True)],
        "sources": contributions(plan.recipe.input, plan.slices, records, parts, _drawn(plan, pairs)),
        "warnings": [
            *shortfalls(documents, plan.recipe.input, plan.slices, records),
            *emptiness(documents, stages, plan.slices, records, folder / "rejected.jsonl"),
            *warnings(stages),
            *([tokenizer_warning(tokenizer)] if tokenizer and tokenizer.note else []),
            *(tokenless_warning(tokenizer, parts) if tokenizer else []),
            *unwritten_sample(plan.recipe.output.sample, forms),
            *unreached_budgets(plan.recipe.input, plan.recipe.budget, plan.slices, records),
        ],
        "tokens": tokens,
        "forms": summaries(forms),
        "work_seconds": {
            "read": round(sum(record.read_seconds for record in records), 3),
            "write_work": round(sum(record.write_seconds for record in records), 3),
            "outputs": round(sum(part.get("seconds", 0.0) for part in parts), 3),
        },
        "outputs": dict(sorted(digests.items())),
    }


def tokenizer_warning(tokenizer: Tokenizer) -> str:
    return f"tokenizer {tokenizer.name} goes at a tenth of its speed: {tokenizer.note}"


def tokenless_warning(tokenizer: Tokenizer, parts: Sequence[dict[str, Any]]) -> list[str]:
    """That documents with text are in no pair and no other form of the tokens."""
    tokenless, documents = sum(part.get("tokenless", 0) for part in parts), sum(part["documents"] for part in parts)
    if not tokenless:
        return []
    return [
        f"tokenizer {tokenizer.name} has no token for {tokenless:,} of {documents:,} documents, which have text: the "
        "output of tokens is without them. Take a tokenizer that was made for such text"
    ]


def warnings(stages: Sequence[StageCount]) -> list[str]:
    """What a reader of the counts has to know: where the rules of a stage mean little for much of the text."""
    found = []
    for stage in stages:
        share = stage.details.get("unspaced_characters", 0) / max(stage.details.get("characters", 0), 1)
        if share > UNSPACED_SHARE:
            found.append(
                f"{stage.name}: {share:.0%} of the characters are of scripts written without spaces; rules on words, "
                "and n-grams of words, mean little for such text"
            )
    return found


def _token_report(plan: Plan, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not plan.recipe.output.formats:
        return {}
    tokenizer = load_tokenizer(plan.recipe.tokenizer)
    count, documents = sum(part["tokens"] for part in parts), sum(part.get("tokenised", 0) for part in parts)
    size = sum(part["bytes"] for part in parts)
    return {
        "count": count,
        "documents": documents,
        "empty_documents": sum(part["documents"] for part in parts) - documents,
        "per_byte": round(count / size, 6) if size else 0.0,
        "special_token_texts": sum(part.get("special_hits", 0) for part in parts),
        "vocabulary": tokenizer.vocabulary,
        "dtype": tokenizer.dtype.name,
        "tokenizer": {
            "name": tokenizer.name,
            "kind": tokenizer.kind,
            "sha256": tokenizer.digest,
            "fast": tokenizer.fast,
            "eod": tokenizer.eod if plan.recipe.tokenizer.append_eod else None,
            "bos": tokenizer.bos if plan.recipe.tokenizer.prepend_bos else None,
            "versions": tokenizer.versions,
        },
    }


def _pair_digests(pairs: Sequence[TrainingPair], folder: Path) -> dict[str, str]:
    digests: dict[str, str] = {}
    for pair in (pair.info for pair in pairs):
        prefix = Path(pair.prefix).relative_to(folder)
        digests |= {f"{prefix}.bin": pair.sha256_bin, f"{prefix}.idx": pair.sha256_idx}
    return digests


def _write_meta(plan: Plan, tokens: dict[str, Any], pairs: Sequence[TrainingPair], folder: Path) -> dict[str, str]:
    shown = [
        {"source": pair.source}
        | ({"split": pair.split} if pair.split else {})
        | {**msgspec.to_builtins(pair.info), "prefix": Path(pair.info.prefix).name}
        for pair in pairs
    ]
    manifest = {"version": plan.version, "tokens": tokens, "pairs": shown}
    output = plan.recipe.output
    return write_meta(
        folder, meta_files(folder, manifest, pairs, _blend_weights(plan), (output.blend, output.megatron))
    )


def _blend_weights(plan: Plan) -> dict[str, float]:
    entries = entries_by_name(plan.recipe.input)
    return {name: entry.blend_weight for name, entry in entries.items() if entry.blend_weight is not msgspec.UNSET}


def _drawn(plan: Plan, pairs: Sequence[TrainingPair]) -> dict[str, float]:
    """Each input's weight in `blend.txt`; nothing where no pairs were written."""
    train = [pair for pair in pairs if pair.split in ("", "train")]
    drawn = dict.fromkeys((pair.source for pair in train), 0.0)
    for pair, weighted in zip(train, weigh(train, _blend_weights(plan), plan.recipe.output.blend), strict=True):
        drawn[pair.source] += float(weighted.weight)
    return drawn


def write(folder: Path, content: dict[str, Any]) -> None:
    """`report.html`, then `report.json`, whose presence says that the run is complete; `content` gets its digest."""
    content["numbers"] = numbers(content)
    content["funnel"] = funnel_line(content)
    page = as_html(content).encode()
    with commit(folder / HTML) as path:
        path.write_bytes(page)
    content["report_html"] = hashlib.sha256(page).hexdigest()
    content["digest"] = digest(content)
    write_json(folder / "report.json", content, indent=True)


def digest(content: dict[str, Any]) -> str:
    """SHA-256 of the report's content without the digest itself, by which `verify` knows that nobody changed it."""
    signed = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(orjson.dumps(signed, option=orjson.OPT_SORT_KEYS)).hexdigest()


# The funnel as rows


def funnel(content: dict[str, Any]) -> list[tuple[str, str, int, float, int]]:
    """(step, reason, documents, share of all read, bytes after the step); removed documents are negative. What a
    `sample` passed over is no part of what was read: its share is that of all records found."""
    documents = content["documents"]
    total = max(documents["read"], 1)
    rows: list[tuple[str, str, int, float, int]] = []
    if unsampled := sum(source["not_sampled"] for source in content["sources"]):
        rows.append(("", "not sampled", -unsampled, unsampled / (unsampled + documents["read"]), 0))
    rows.append(("read", "", documents["read"], 1.0, content["bytes"]["read"]))
    if documents["rejected"]:
        rows.append(("", "rejected", -documents["rejected"], documents["rejected"] / total, 0))
    for stage in content["stages"]:
        rows.append((stage["name"], "", stage["documents_out"], stage["documents_out"] / total, stage["bytes_out"]))
        rows += [("", reason, -number, number / total, 0) for reason, number in stage["reasons"].items()]
    if documents["copies"]:
        rows.append(("", "copies", documents["copies"], documents["copies"] / total, 0))
    rows.append(("kept", "", documents["kept"], documents["kept"] / total, content["bytes"]["kept"]))
    return rows


def _signed(number: int, reason: str) -> str:
    """With a sign where it is no count of what is left but a change of it."""
    return f"{number:+,}" if reason else f"{number:,}"


def print_funnel(content: dict[str, Any]) -> None:
    """The table that ends a run, on standard output."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading, side in (
        ("step", "left"),
        ("reason", "left"),
        ("documents", "right"),
        ("share", "right"),
        ("MB", "right"),
    ):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for step, reason, number, share, size in funnel(content):
        style = "dim" if reason else ""
        shown = f"{size / 1e6:,.2f}" if not reason else ""
        names = (Text(printable_line(name)) for name in (step, reason))
        table.add_row(*names, _signed(number, reason), f"{share:.2%}", shown, style=style)
    console = Console(soft_wrap=True)
    console.print(table)
    for line in _shown_lines(content):
        console.print(printable_line(line), highlight=False, markup=False)
    for line in _warning_lines(content):
        console.print(printable_line(line), style="bold", highlight=False, markup=False)
    if content["tokens"]:
        tokens = content["tokens"]
        console.print(
            f"{tokens['count']:,} tokens ({printable_line(tokens['tokenizer']['name'])}, {tokens['dtype']}) in "
            f"{counted(tokens['documents'], 'document')}, {tokens['per_byte']:.3f} per byte",
            highlight=False,
            markup=False,
        )


def as_html(content: dict[str, Any]) -> str:
    """The funnel as a page of its own, without scripts."""
    rows = "\n".join(
        f'<tr class="{"r" if reason else "s"}"><td>{html.escape(step)}</td><td>{html.escape(reason)}</td>'
        f"<td>{_signed(number, reason)}</td><td>{share:.2%}</td><td>{f'{size / 1e6:,.2f}' if not reason else ''}</td>"
        f'<td><div style="width:{min(share, 1) * 100:.2f}%"></div></td></tr>'
        for step, reason, number, share, size in funnel(content)
    )
    tokens = content["tokens"]
    told = f"{tokens['count']:,} tokens ({html.escape(tokens['tokenizer']['name'])})" if tokens else "no tokens"
    name = html.escape(content["recipe"]["name"] or "run")
    return f"""<!doctype html>
<meta charset="utf-8"><title>{name}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse; width: 100% }} td, th {{ padding: .15em .6em; text-align: left }}
td:nth-child(n+3):nth-child(-n+5) {{ text-align: right; font-variant-numeric: tabular-nums }}
td:last-child {{ width: 40% }} td div {{ background: #76b900; height: .8em }}
.r {{ color: #777 }} .r div {{ background: #ccc }} .s {{ font-weight: 600 }}
</style>
<h1>{name}</h1>
<p>{counted(content["documents"]["read"], "document")} read, {content["documents"]["kept"]:,} kept, {told};
engine {html.escape(content["engine"])} ({html.escape(content["engine_reason"])}), {content["seconds"]:.1f} s.</p>
<table><tr><th>step<th>reason<th>documents<th>share<th>MB<th></tr>
{rows}
</table>
<pre>{html.escape(chr(10).join((*_shown_lines(content), *_warning_lines(content))))}</pre>
"""


def _warning_lines(content: dict[str, Any]) -> list[str]:
    return [f"warning: {warning}" for warning in content["warnings"]]


def _shown_lines(content: dict[str, Any]) -> list[str]:
    """What stands below the funnel, in the terminal and on the page."""
    told = (*shown_numbers(content), *stage_lines(content))
    return [*told, *source_rows(content["sources"]), content["funnel"]]
