# SPDX-License-Identifier: Apache-2.0
"""The disk space that a run needs, and the check before its first write that this space is free.

`_work/` is deleted only after the last output is written, so the largest need is the sum of all files. The rule uses a
survey of the inputs. Its numbers are bytes per byte of text, unless the line names another unit:

    part            file                                rule
    _work           segment-N/*.arrow                   text after the row stages + 24 and the id, per document
                    segment-N/*.keys.arrow              8 + the keys of the segment's stages, per document
                    outputs/*.ids, *.lengths            2 or 4 per token (the tokenizer's dtype), 4 per document
                    segment-N/*.values.arrow            13 + 4 per measure, per document and filter
                    records of removed documents        80 + the id, per document read; the text that row stages remove
                    segment-0/*.read.bin, with `raw`    8 per document read
                    segment-N/stage-N-cuts/*.npy        CUT_SHARE of the text for each stage that cuts
                    collected/_copies/*                 the stored bytes of files that are copied from their servers
    documents       *.parquet                           the sample, compressed: 0.38 to 0.45 on English text
    tokens          *.bin, *.idx                        2 or 4 per token, 20 per document
    other forms     *.npy, *.pt                         bytes of the form's dtype per token, 16 per document
    removed         *.parquet, rejected.jsonl           30 + the id, per document read; 400 per rejected record;
                                                        the text that row stages remove, compressed as `documents`
    scores          *.arrow                             16 and the values of the stage, per document and stage; `_work`
                                                        has them once more
    raw, cleaned    *.jsonl, *.csv, *.parquet           1.05 and 60 per document; Parquet as `documents`
    index           keys, shingles, ids                 `Forecast.index_bytes` and the id, per document; `_work` has the
                                                        largest index once more, by group of slices

A corpus stage needs `Forecast.scratch_bytes` for CANDIDATES of the text during its phases. The outputs are written
later, in the same space. So the larger of the two needs counts. Every segment keeps its own copy of the text. `copies`,
and a `mix` that repeats documents, multiply documents, tokens and forms. The sum is multiplied by MARGIN for the error
of the sample, and FIXED_BYTES are added. Corpus stages are assumed to remove nothing. So inputs with many duplicates
need less than the estimate: the texts of duplicates are in `removed` instead of `documents`. With `removed: ids`,
neither `removed` nor `_work` has removed texts.

Estimate / true peak of the folder, measured every 10 ms (2026-11-22; real text of 20 MB, default recipe unless named):

    jsonl 1.23   jsonl.gz 1.23   Parquet 1.25, zstd in one row group 1.37   Arrow 1.24   CSV 1.22   1,500 txt 1.04
    wet.gz 1.27   2 MB 1.24   51,000 sentences 1.44   every text 8 times with one word changed 1.16
    all five forms 1.23   raw + cleaned + splits 1.24   index 1.26   two segments 1.24   recipe nemo 1.30
    no tokens 1.57, with every text 8 times 0.94   `blocks` as pt, no stage 1.10   copies: 3 and sample: 0.3 1.15
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from curation.base.contract import Engine
from curation.base.errors import OutputError
from curation.base.system.memory import shown_bytes
from curation.base.system.progress import Progress
from curation.reading.formats import format_of
from curation.reading.source_files import SourceFile
from curation.recipes.exports import COMPRESSED
from curation.recipes.recipe import Recipe
from curation.record.folder import bytes_of_run
from curation.record.scores import bytes_per_document
from curation.record.segments import cut_segments
from curation.running.planning.remote_copies import copied_bytes
from curation.running.planning.survey import kept_share, survey_inputs
from curation.running.planning.survey_numbers import ASSUMED_PARQUET, Survey
from curation.stages import CorpusStage, Mix
from curation.stages.base import StageSample
from curation.stages.invoke import forecast, index_of, saves_index
from curation.stages.measured_rules import values_bytes
from curation.tokens.forms import MEGATRON
from curation.tokens.tokenization import Tokenizer

MARGIN, FIXED_BYTES = 1.1, 200_000
CANDIDATES = 0.65  # share of the text that a corpus stage compares
ROW_BYTES = 80  # in `_work`, per document read: records of removed documents, decisions, masks, sums of sizes
CUT_SHARE = 0.05  # of the text: 12 bytes per span, a span per 240 bytes
READ_BYTES = 8  # in `_work`, per document read, with `raw`: the running sum of the sizes
REMOVED_BYTES, REJECTED_BYTES = 30, 400
IDX_BYTES, ROWS_BYTES, LENGTH_BYTES, FORM_BYTES = 20, 12, 4, 16  # per document
EXPORT_RATIO, EXPORT_BYTES = 1.05, 60
# For an upper bound without a sample: bytes of text per stored byte, and bytes of each kind of file per byte of text.
MAX_EXPANSION = {"": 1.0, "gzip": 10.0, "zstd": 15.0, "bzip2": 15.0, "xz": 20.0}
MAX_PER_SEGMENT, MAX_PER_COPY, MAX_PER_FORM = 4.0, 2.0, 2.0  # short documents have more bytes of keys than of text


class DiskNeed(msgspec.Struct, kw_only=True):
    """The disk of a run, in bytes.

    folder   output folder
    parts    name -> estimate, by the rule of this module
    needed   their sum with the margin
    present  bytes that an earlier, unfinished run has already written in `folder`; they are not needed again
    free     free bytes of the file system; -1 if they are not known
    """

    folder: str
    parts: dict[str, int]
    needed: int
    present: int
    free: int

    @property
    def missing(self) -> int:
        """Bytes that the disk lacks for the run; 0 if the run fits, or if the free space is not known."""
        return max(self.needed - self.present - self.free, 0) if self.free >= 0 else 0


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the file system that holds, or will hold, a folder; -1 if they cannot be found."""
    for parent in (folder, *folder.parents):
        try:
            usage = shutil.disk_usage(parent)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            return -1
        return usage.free if usage.total > 0 else -1  # some network file systems report 0 of 0
    return -1


def disk_need(recipe: Recipe, survey: Survey, tokenizer: Tokenizer | None, folder: Path) -> DiskNeed:
    """Return the disk that a run of the recipe needs in `folder`, by the rule of this module."""
    parts = {name: int(size) for name, size in _parts(recipe, survey, tokenizer).items() if size}
    needed = int(sum(parts.values()) * MARGIN) + FIXED_BYTES
    return DiskNeed(
        folder=str(folder), parts=parts, needed=needed, present=bytes_of_run(folder), free=free_bytes(folder)
    )


def _parts(recipe: Recipe, survey: Survey, tokenizer: Tokenizer | None) -> dict[str, float]:
    output, documents = recipe.output, survey.documents
    id_bytes = survey.id_bytes
    written = max(kept_share(recipe, survey), 1.0)  # of the documents after the row stages
    kept_documents, kept_bytes = written * survey.kept_documents, written * survey.kept_bytes
    parts = {
        "_work": survey.copied_bytes
        + sum(survey.segments)
        + (ROW_BYTES + values_bytes(recipe.stages) + READ_BYTES * bool(output.raw) + id_bytes) * documents,
        "documents": written * survey.documents_bytes if output.documents else 0,
        "removed": (REMOVED_BYTES + id_bytes) * documents + REJECTED_BYTES * survey.rejected,
    }
    if output.shuffles_documents:  # stored uncompressed, with their ids and offsets
        parts["_work"] += kept_bytes + (ROW_BYTES + id_bytes) * kept_documents
    if scores := bytes_per_document(recipe) * documents:
        parts["scores"] = scores
        parts["_work"] += scores
    if tokenizer:
        ids = written * survey.tokens * tokenizer.dtype.itemsize
        parts["_work"] += ids + LENGTH_BYTES * kept_documents
        if MEGATRON in output.formats:
            per_document = IDX_BYTES + ROWS_BYTES * (output.shuffle and bool(output.documents))
            parts["tokens"] = ids + per_document * kept_documents
        for form in output.chosen():
            size = written * survey.tokens * form.file_dtype(tokenizer).itemsize
            parts[form.name] = size + FORM_BYTES * kept_documents
    ratio = survey.documents_bytes / survey.kept_bytes if survey.kept_bytes else ASSUMED_PARQUET
    if output.keeps_removed_text:
        parts["_work"] += survey.removed_bytes
        parts["removed"] += ratio * survey.removed_bytes
    for name, kind, text, rows in (
        ("raw", output.raw, survey.text_bytes, documents),
        ("cleaned", output.cleaned, kept_bytes, kept_documents),
    ):
        if kind.endswith(("parquet", *COMPRESSED)):  # gzip and zstd make JSON Lines smaller than the texts in Parquet
            parts[name] = ratio * text
        elif kind:
            parts[name] = EXPORT_RATIO * text + (EXPORT_BYTES + id_bytes) * rows
    corpus_stages = [stage for stage in recipe.stages if isinstance(stage, CorpusStage)]
    if output.index:
        sizes = {}
        reaching = StageSample(documents=survey.kept_documents, text_bytes=survey.kept_bytes)
        for stage in filter(saves_index, corpus_stages):
            size = forecast(stage, reaching).index_bytes
            sizes[index_of(stage).folder] = size + id_bytes * survey.kept_documents
        parts["index"] = sum(sizes.values())
        parts["_work"] += max(sizes.values())
    parts["_work"] += CUT_SHARE * survey.text_bytes * sum(stage.cuts_text for stage in corpus_stages)
    scratch = _scratch(recipe, documents, survey.text_bytes)
    later = sum(parts.values()) - sum(survey.segments)  # these files are written after the scratch files are deleted
    parts["_work"] += max([0.0, *(size - later for size in scratch)])
    return parts


def _scratch(recipe: Recipe, documents: float, text_bytes: float) -> list[float]:
    """Return the bytes that each corpus stage writes to its scratch folder."""
    reaching = StageSample(documents=documents, text_bytes=text_bytes)
    corpus_stages = [stage for stage in recipe.stages if isinstance(stage, CorpusStage)]
    return [CANDIDATES * forecast(stage, reaching).scratch_bytes for stage in corpus_stages]


def most_needed(recipe: Recipe, files: Sequence[SourceFile]) -> float:
    """Return an upper bound of the disk space of a run, from the sizes of its input files alone. Files of unknown size
    are not counted.

    The bound is infinite for a stage that may repeat documents, since the number of repetitions depends on the number
    of documents.
    """
    if any(isinstance(stage, Mix) and (stage.documents or stage.tokens) for stage in recipe.stages):
        return math.inf
    text, copied = 0.0, copied_bytes(files)
    for file in files:
        text += max(file.bytes, 0) * max(MAX_EXPANSION[file.compression], format_of(file).expansion[1])
    output, copies = recipe.output, max((entry.copies for entry in recipe.input), default=1)
    forms = len(output.formats) + bool(output.formats) + bool(output.raw) + bool(output.cleaned) + output.index
    per_byte = MAX_PER_SEGMENT * len(cut_segments(recipe.stages)) + copies * (MAX_PER_COPY + MAX_PER_FORM * forms)
    return text * (per_byte + max([0.0, *_scratch(recipe, 0, 1.0)])) + copied + FIXED_BYTES


def check_disk(
    recipe: Recipe, files: Sequence[SourceFile], tokenizer: Tokenizer | None, engine: Engine, folder: Path,
    progress: Progress,
) -> None:  # fmt: skip
    """Raise OutputError if a run needs more disk than is free.

    Inputs are sampled, in up to 2 s, only if the bound of `most_needed` does not fit. The check passes if the
    free space cannot be found. Streamed data sets and URLs of unknown size are not counted.
    """
    free, copied = free_bytes(folder), copied_bytes(files)
    if free < 0 or (most := most_needed(recipe, files)) <= free:
        return
    why = (
        f"{shown_bytes(free)} of disk are free, which may be too little" if most < math.inf else "mix repeats documents"
    )
    copies = DiskNeed(
        folder=str(folder), parts={"_work": copied}, needed=copied, present=bytes_of_run(folder), free=free
    )
    if copies.missing:  # a sample would need the same copies
        raise OutputError(refusal(copies))
    progress.log(f"{why}: reading a sample of the inputs")
    need = disk_need(recipe, survey_inputs(recipe, files, engine, tokenizer), tokenizer, folder)
    if need.missing:
        raise OutputError(refusal(need))


def refusal(need: DiskNeed) -> str:
    """Return the message about a run that does not fit the disk."""
    there = f", of which {need.folder} has {shown_bytes(need.present)}" if need.present else ""
    largest = sorted(need.parts, key=lambda name: -need.parts[name])[:3]
    shown = ", ".join(f"{name} {shown_bytes(need.parts[name])}" for name in largest)
    return (
        f"the run needs about {shown_bytes(need.needed)} of disk ({need.needed:,} bytes: {shown}){there}, and "
        f"{need.folder} has {shown_bytes(need.free)} free ({need.free:,} bytes). Free {shown_bytes(need.missing)}, "
        "give an --output on a larger disk, or give --force-disk to start anyway"
    )


__all__ = ["DiskNeed", "check_disk", "disk_need", "free_bytes", "most_needed", "refusal"]
