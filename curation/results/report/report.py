# SPDX-License-Identifier: Apache-2.0
"""Makes `report.json` and `tokens/_meta/`: the counts of a run, its inputs and outputs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from curation.base import errors
from curation.base.system.files import commit, write_json
from curation.reading.inputs import AnyInput, Budget, FilesInput, HubInput, entries_by_name
from curation.reading.minima import check_fewest, check_minimum
from curation.reading.other_records import OtherCounts, add_counts, not_pages, reported
from curation.reading.source_files import Slice
from curation.recipes.doubts import recipe_warnings
from curation.recipes.recipe import Output, as_builtins
from curation.record.documents import document_schema
from curation.record.finished_report import digest
from curation.record.ledger import SliceRecord, SliceTotals, as_report
from curation.results.report.card import write_card
from curation.results.report.html import as_html
from curation.results.report.input_warnings import by_input, emptiness, warn_of_inputs
from curation.results.report.lost_by_input import report_unlabelled
from curation.results.report.text import funnel_line, numbers
from curation.rules.grammar import Rule
from curation.rules.tallies import SHARES, Tally
from curation.stages import RowStage, Stage
from curation.stages.base import counts_line
from curation.stages.outcome import StageCount
from curation.stages.rows.scripts import UNLISTED_COUNT
from curation.tokens.blend_phases import phase_rows, phase_warnings
from curation.tokens.blends import blend_phases, meta_files, small_pairs, train_sizes, weigh, write_meta
from curation.tokens.forms.writing import digests as form_digests
from curation.tokens.forms.writing import summaries
from curation.tokens.megatron import TrainingPair
from curation.tokens.samples import unwritten_sample
from curation.tokens.tokenization import Tokenizer, load_tokenizer
from curation.tokens.tokenizer_notes import losses_of, special_tokens_line

if TYPE_CHECKING:
    from curation.record.context import RunContext
    from curation.record.stored_plan import Plan

HTML = "report.html"
MAX_UNSPACED_SHARE = 0.1  # above this share, the report warns
MAX_UNLISTED_SHARE = 0.01
LIMITS = ("max_documents", "max_bytes")


def build(
    context: RunContext,
    documents: dict[str, int],
    stages: Sequence[StageCount],
    totals: SliceTotals,
    output_records: dict[str, Any],
    digests: dict[str, str],
) -> dict[str, Any]:
    """Write `tokens/_meta/` and `README.md`, and return the content of `report.json`, which has the digests of these
    files.

    documents       counts of the whole run: read, copies, kept, removed, rejected, edited, repaired
    stages          the counts of the stages, in recipe order
    totals          the done-records of the slices in the first segment
    output_records  `parts`, the done-records of `documents/`; `tokens`, the pairs and the other forms;
                    `untokenised`, documents without tokens; `texts`, samples; `measured`, of each filter; `lost`,
                    warnings about groups of documents; `largest`, the reasons that remove most documents of each
                    input and language; `unlabelled`, stage and reason -> removed documents without a language
    digests         path -> SHA-256 of the outputs that are already written
    """
    plan, folder = context.plan, context.folder
    slices, records = totals.slices, totals.records
    parts = output_records["parts"]
    digests = digests | {f"documents/{part['file']}": part["sha256"] for part in parts if "file" in part}
    tokens = _token_report(plan, parts)
    if untokenised := output_records["untokenised"]:
        tokens["untokenised"] = untokenised
    pairs, forms = output_records["tokens"]
    tokenizer = load_tokenizer(plan.recipe.tokenizer) if plan.recipe.output.formats else None
    if "megatron" in plan.recipe.output.formats:
        digests |= _pair_digests(pairs, folder) | _write_meta(plan, tokens, pairs, folder)
    digests |= form_digests(forms, folder)
    for count in stages:
        count.tokens_per_byte = tokens.get("per_byte")
    pairs_of = zip(plan.recipe.stages, stages, strict=True)
    shown = [[*stage.report_lines(count), *_reused_line(count, context.reused.folder)] for stage, count in pairs_of]
    unlabelled = report_unlabelled(plan.recipe.stages, stages, shown, parts, output_records["unlabelled"])
    rejected = folder / "rejected.jsonl"
    blend, sizes = plan.recipe.output.blend, train_sizes(pairs)
    draws = blend_phases(pairs, _blend_weights(plan), blend)
    content = {
        "versions": {"gpu-pipeline": plan.version} | context.engine.describe(),
        "recipe": as_builtins(plan.recipe),
        "files": msgspec.to_builtins(plan.files),
        "stage_files": plan.stage_files,
        "stage_revisions": plan.stage_revisions,
        "computed_with": plan.computed_with,
        "tokenizer": plan.tokenizer,
        "documents": documents,
        "bytes": {"read": sum(record.bytes_read for record in records), "kept": sum(part["bytes"] for part in parts)},
        "documents_digest": hashlib.sha256("".join(part["digest"] for part in parts).encode()).hexdigest(),
        "stages": [
            as_report(count, own, *_rules(stage)) | {"share": _share(count.documents_out, documents["read"])}
            for stage, count, own in zip(plan.recipe.stages, stages, shown, strict=True)
        ],
        "sources": contributions(
            plan.recipe.input,
            slices,
            records,
            parts,
            _blend_shares(plan, pairs),
            plan.slices.ended_by(),
            output_records["largest"]["sources"],
        ),
        "warnings": [
            *warn_of_inputs(documents, plan.recipe.input, slices, records, rejected),
            *emptiness(documents, stages, slices, records, rejected),
            *output_records["lost"],
            *unlabelled,
            *recipe_warnings(plan.recipe),
            *warnings(stages),
            *(line for stage, count in zip(plan.recipe.stages, stages, strict=True) for line in stage.warnings(count)),
            *([tokenizer_warning(tokenizer)] if tokenizer and tokenizer.note else []),
            *(tokenless_warning(tokenizer, parts) if tokenizer else []),
            *(losses_of(parts).warning(tokenizer.name) if tokenizer else []),
            *(untokenised_warning(tokenizer, parts, output_records["untokenised"]) if tokenizer else []),
            *(small_pairs(pairs, plan.recipe.output.megatron) if "megatron" in plan.recipe.output.formats else []),
            *phase_warnings(draws, sizes, blend.max_epochs),
            *unwritten_sample(plan.recipe.output.sample, forms),
            *unreached_budgets(plan.recipe.input, plan.recipe.budget, slices, records),
        ],
        "tokens": tokens,
        **({"phases": phase_rows(draws, sizes)} if draws else {}),
        "forms": summaries(forms),
        "values": _values(stages, records, parts) | {"most_removed": output_records["largest"]["languages"]},
        "texts": output_records["texts"],
        "measured": output_records["measured"],
        "work_seconds": {
            "read": round(sum(record.read_seconds for record in records), 3),
            "write_work": round(sum(record.write_seconds for record in records), 3),
            "outputs": round(sum(part.get("seconds", 0.0) for part in parts), 3),
        },
        "outputs": digests,
    }
    schema = document_schema(
        plan.slices.carried, plan.recipe.stages, splits=bool(plan.recipe.output.splits), types=plan.recipe.column_types
    )
    content["outputs"] = dict(sorted((digests | write_card(folder, content, schema.names)).items()))
    return content


def _share(part: int, whole: int) -> float:
    return round(part / max(whole, 1), 6)


def _rules(stage: Stage) -> tuple[Sequence[Rule], Sequence[Rule]]:
    """Return the rules whose values the report shows, and the rules of groups."""
    if not isinstance(stage, RowStage):
        return (), ()
    return stage.shown_rules()[:2]


def _values(
    stages: Sequence[StageCount], records: Sequence[SliceRecord], parts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return counts of documents by value: bytes of their text as read and as kept, tokens per byte, and language
    before and after the run."""
    read, kept = Tally(), Tally()
    for record in records:
        read.add(record.lengths or Tally())
    for part in parts:
        kept.add(msgspec.convert(part.get("lengths", {}), Tally))
    shares = sum((np.array(part["per_byte"]) for part in parts if "per_byte" in part), np.zeros(SHARES + 1, np.int64))
    bins = np.flatnonzero(shares)
    before = [stage.details for stage in stages if stage.kind == "language"][-1:]
    after: Counter[str] = sum((Counter(part.get("languages", {})) for part in parts), Counter())
    tallies = {"read_bytes": read, "kept_bytes": kept}
    tallies["tokens_per_byte"] = Tally(share=True, bins=bins.tolist(), counts=shares[bins].tolist())
    languages = {"read": before[0], "kept": dict(after)} if before else {}
    return dict(msgspec.to_builtins(tallies)) | {"languages": languages}


def tokenizer_warning(tokenizer: Tokenizer) -> str:
    """Return the warning for a tokenizer that runs without its fast library."""
    return f"tokenizer {tokenizer.name} runs at a tenth of its speed: {tokenizer.note}"


def tokenizer_notes(tokenizer: Tokenizer, engine: str) -> list[str]:
    """Return the lines that a run of an engine logs about its tokenizer."""
    unused = f"tokenizer {tokenizer.name} does not use the GPU: {tokenizer.device_note}"
    return [
        special_tokens_line(tokenizer),
        *([tokenizer_warning(tokenizer)] if tokenizer.note else []),
        *([unused] if engine == "gpu" and tokenizer.device_note else []),
    ]


def output_notes(output: Output, engine: str) -> list[str]:
    """Return the lines that a run of an engine logs about what encodes its Parquet files."""
    if output.parquet == "gpu":
        return [
            "the GPU encodes documents/ and removed/: the same rows as Arrow, in other bytes (output.parquet: gpu)"
            if engine == "gpu"
            else "output.parquet: gpu is for the GPU engine; the CPU engine encodes documents/ and removed/ with "
            "Arrow, the same rows"
        ]
    if engine == "gpu":
        return [
            "the processors encode documents/ and removed/; output.parquet: gpu lets the GPU encode the same rows, in "
            "other bytes"
        ]
    return []


def tokenless_warning(tokenizer: Tokenizer, parts: Sequence[dict[str, Any]]) -> list[str]:
    """Return the warning that some documents with text have no tokens; an empty list if there are none."""
    tokenless, documents = sum(part.get("tokenless", 0) for part in parts), sum(part["documents"] for part in parts)
    if not tokenless:
        return []
    return [
        f"tokenizer {tokenizer.name} has no token for the text of {tokenless:,} of {documents:,} documents: the token "
        "outputs leave them out. Choose a tokenizer made for such text"
    ]


def warnings(stages: Sequence[StageCount]) -> list[str]:
    """Return warnings about stages whose rules on words do not suit the text. Each stage gets a warning if
    more than 10 % of its texts' characters are of scripts without spaces. The first stage for which more than 1 % of
    documents have no list of words gets another."""
    messages = []
    for stage in stages:
        share = stage.details.get("unspaced_characters", 0) / max(stage.details.get("characters", 0), 1)
        if share > MAX_UNSPACED_SHARE:
            messages.append(
                f"{stage.name}: {share:.0%} of the characters are of scripts written without spaces; rules on words, "
                "and n-grams of words, mean little for such text. Set words: scripts, as in the recipe default"
            )
    for stage in stages:
        counts = {
            name.removeprefix(UNLISTED_COUNT): number
            for name, number in stage.details.items()
            if name.startswith(UNLISTED_COUNT)
        }
        unlisted = sum(counts.values())
        if unlisted > MAX_UNLISTED_SHARE * stage.documents_in:
            messages.append(
                f"{stage.name}: {unlisted:,} of {stage.documents_in:,} documents are mainly in scripts or languages "
                f"without spaces that have no list of words ({counts_line(counts)}); rules on words, and n-grams of "
                "words, mean little for them. Give them rules of their own, or remove them, by the column script of "
                "the stage measure"
            )
            break
    return messages


def untokenised_warning(
    tokenizer: Tokenizer, parts: Sequence[dict[str, Any]], named: Sequence[dict[str, Any]]
) -> list[str]:
    """Return the warning that documents have no tokens because their text contains a special token; an empty list
    without such documents. `named` has the first of them."""
    if not named:
        return []
    first = named[0]
    place = first["file"] if first["line"] is None else f"{first['file']}, line {first['line']}"
    documents = errors.counted(sum(part.get("untokenised", 0) for part in parts), "document")
    return [
        f"{documents} got no tokens, since tokenizer {tokenizer.name} gives the id of a special token inside the text: "
        f"{first['token']!r} in document {first['doc']} ({place}), for example. report.json names them under "
        "tokens.untokenised. Remove the token from the texts, or use another tokenizer"
    ]


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
        "decoded": msgspec.to_builtins(losses_of(parts)),
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


def _reused_line(count: StageCount, folder: str) -> list[str]:
    if "reused" not in count.details:
        return []
    return [
        f"{count.details['reused']:,} of {errors.counted(count.documents_in, 'score')} reused from {folder or 'a run'}"
    ]


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


def _blend_shares(plan: Plan, pairs: Sequence[TrainingPair]) -> dict[str, float]:
    """Return input -> its weight in `blend.txt`; empty if the run has no pairs."""
    train = [pair for pair in pairs if pair.split in ("", "train")]
    weights = dict.fromkeys((pair.source for pair in train), 0.0)
    for pair, weighted in zip(train, weigh(train, _blend_weights(plan), plan.recipe.output.blend), strict=True):
        weights[pair.source] += float(weighted.weight)
    return weights


def write_report(folder: Path, content: dict[str, Any]) -> None:
    """Write `report.html`, then `report.json`, which marks the run as complete. Adds numbers, funnel and digests to
    `content`."""
    content["numbers"] = numbers(content)
    content["funnel"] = funnel_line(content)
    page = as_html(content).encode()
    with commit(folder / HTML) as path:
        path.write_bytes(page)
    content["report_html"] = hashlib.sha256(page).hexdigest()
    content["digest"] = digest(content)
    write_json(folder / "report.json", content, indent=True)


def contributions(
    entries: Sequence[AnyInput], slices: Sequence[Slice], records: Sequence[SliceRecord],
    parts: Sequence[dict[str, Any]], blend_weights: Mapping[str, float], ended_by: Mapping[str, str],
    most_removed: Mapping[str, dict[str, Any]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return one entry per input, in the order of the recipe: documents, bytes, tokens and shares.

    Each of `records` has the sums of some slices, of which `slices` has one. `share_before` is the share of the bytes
    read, and `share_after` that of the tokens written, or of the bytes written without tokens. `share_drawn` is the
    share of the weights in `blend_weights`, by which training draws. `ended_by` is input -> the setting because of
    which the rest of the input is not read. `most_removed` is input -> the reason that removes the most of its
    documents.
    """
    rows = []
    read = by_input(slices, records)
    written_of: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        written_of.setdefault(part.get("source", ""), []).append(part)
    for name, entry in entries_by_name(entries).items():
        pairs = read.get(name, [])
        own = [record for _, record in pairs]
        commit = next((input_slice.ranges[0].file.commit for input_slice, _ in pairs), "")
        written = written_of.get(name, [])
        documents = sum(part["documents"] for part in written)
        rows.append(
            {
                "name": name,
                "documents_read": sum(record.documents_read for record in own),
                "not_sampled": sum(record.unsampled for record in own),
                **_limited(entry, own, ended_by.get(name, "")),
                **_other_records(own),
                "rejected": sum(record.rejected for record in own),
                "bytes_read": sum(record.bytes_read for record in own),
                "documents_kept": documents,
                "copies": sum(part["documents"] for part in written if part["copy"]),
                "bytes_kept": sum(part["bytes"] for part in written),
                "tokens": sum(part["tokens"] for part in written),
                **({} if entry.blend_weight is msgspec.UNSET else {"blend_weight": entry.blend_weight}),
                **({"commit": commit} if commit else {}),
                **({"licence": entry.licence} if entry.licence else {}),
                **({"most_removed": most_removed[name]} if name in most_removed else {}),
            }
        )
    after = "tokens" if any(row["tokens"] for row in rows) else "bytes_kept"
    for share, counted in (("share_before", "bytes_read"), ("share_after", after)):
        total = max(sum(row[counted] for row in rows), 1)
        for row in rows:
            row[share] = round(row[counted] / total, 6)
    total = sum(blend_weights.values())
    for row in rows if blend_weights else ():
        row["share_drawn"] = round(blend_weights.get(row["name"], 0.0) / total, 6)
    return rows


def _limited(entry: AnyInput, own: Sequence[SliceRecord], ended_by: str) -> dict[str, Any]:
    """Return the fields of an entry of `contributions` that depend on settings: those that skip records, split
    documents or end the input."""
    whole = sum(record.whole_documents for record in own)
    found = {"skipped": sum(record.skipped for record in own)} if entry.skip and isinstance(entry, FilesInput) else {}
    found |= {"documents_split": whole} if entry.parts else {}
    return found | ({"ended_by": ended_by} if ended_by else {})


def _other_records(own: Sequence[SliceRecord]) -> dict[str, Any]:
    """Return the counts of web-archive records that are no documents; empty without any. `not_pages` of them have a
    `doc`."""
    others: OtherCounts = {}
    for record in own:
        add_counts(others, record.others)
    return {"not_pages": not_pages(others), "other_records": reported(others)} if reported(others) else {}


def unreached_budgets(
    entries: Sequence[AnyInput], budget: Budget, slices: Sequence[Slice], records: Sequence[SliceRecord]
) -> list[str]:
    """Return a warning for each input that ended before its budget was reached, and one for the common budget."""
    read: dict[str, tuple[int, int]] = {}
    for input_slice, record in zip(slices, records, strict=True):
        documents, size = read.get(input_slice.source, (0, 0))
        # In collected files, rejected records count in the budget
        is_collected = bool(input_slice.ranges[0].file.label)
        documents += record.documents_read - record.split if is_collected else record.whole_documents
        read[input_slice.source] = documents, size + record.bytes_read
    named = entries_by_name(entries)
    shared = [name for name, entry in named.items() if isinstance(entry, HubInput)] or list(named)
    label = "all data sets" if any(isinstance(entry, HubInput) for entry in entries) else "all inputs"
    together = sum(read[name][0] for name in shared), sum(read[name][1] for name in shared)
    if _is_reached(budget, together):
        return []
    limits: list[tuple[str, AnyInput | Budget, tuple[int, int]]] = [
        (f"input {name!r}", entry, read[name]) for name, entry in named.items() if not isinstance(entry.limit, int)
    ]
    return [
        f"{inputs} ended after {documents:,} documents and {size:,} bytes of text, before the budget "
        f"({', '.join(f'{field} {getattr(limit, field):,}' for field in LIMITS if getattr(limit, field))}) was reached"
        for inputs, limit, (documents, size) in [*limits, (label, budget, together)]
        if any(getattr(limit, field) for field in LIMITS) and not _is_reached(limit, (documents, size))
    ]


def _is_reached(limit: AnyInput | Budget, counts: tuple[int, int]) -> bool:
    pairs = zip((limit.max_documents, limit.max_bytes), counts, strict=True)
    return any(maximum and count >= maximum for maximum, count in pairs)


def check_minima(
    entries: Sequence[AnyInput], budget: Budget, slices: Sequence[Slice], records: Sequence[SliceRecord]
) -> None:
    """Raise InputError if an input, or all inputs together, have less text than `min_bytes`, or fewer documents than
    `min_documents`."""
    sizes, documents = Counter[str](), Counter[str]()
    for input_slice, record in zip(slices, records, strict=True):
        sizes[input_slice.source] += record.bytes_read
        documents[input_slice.source] += record.whole_documents
    for name, entry in entries_by_name(entries).items():
        check_minimum(f"input {name!r}", sizes[name], entry.min_bytes)
        check_fewest(f"input {name!r}", documents[name], entry.min_documents)
    check_minimum("the input", sizes.total(), budget.min_bytes, advice=": --set budget.min_bytes=0")
    check_fewest("the input", documents.total(), budget.min_documents, advice=": --set budget.min_documents=0")
