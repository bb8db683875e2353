# SPDX-License-Identifier: Apache-2.0
"""The numbers of a survey, and functions that add the numbers of several samples."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from curation.record.lost_groups import SampledDocument
from curation.tokens.tokenization import Tokenizer
from curation.tokens.tokenizer_notes import Losses

ASSUMED_PARQUET, ASSUMED_TOKENS = 0.5, 0.3  # per byte of text


class FileKind(msgspec.Struct, kw_only=True):
    """Files of one input with the same format, compression and text column.

    files, bytes           number of files and their stored size, exact
    text_column            column of the text; "" for formats without columns
    id_column              column of the ids; "" if the first file has none, so that the run makes ids
    columns                further columns of the first file
    note                   how the texts of the first file are found, for formats with several ways
    documents, text_bytes  estimates, for all files
    documents_between      lower and upper bound of the number of documents
    read_in_part           files of which the estimate reads only the beginning
    rejected               estimate of the records that are no documents
    """

    input: str
    format: str
    compression: str
    files: int = 0
    bytes: int = 0
    text_column: str
    id_column: str
    columns: list[str]
    note: str = ""
    documents: int = 0
    text_bytes: int = 0
    documents_between: tuple[int, int] = (0, 0)
    read_in_part: int = 0
    rejected: int = 0


class StageSurvey(msgspec.Struct, kw_only=True):
    """The estimated effect of a stage on all documents, from the sample. Counts of corpus stages are zero.

    documents_in, documents_out, edited, reasons   estimates of documents
    seconds                                        estimated processor time; for a corpus stage only that of its keys
    groups                                         group -> documents, for a corpus stage that has groups
    by_group                                       (column, group) with rules of its own -> documents, and how many of
                                                   them are removed
    unlabelled, lost                               documents without a label of a language, and how many of them are
                                                   removed by stage and reason; only of the last `language` stage
    cuts                                           input -> bytes that a row stage cuts from kept documents, and bytes
                            of these documents before the stage
    units                                          () for all documents, and each key of by_group -> unit of the sample
                                                   -> its documents, and how many of them are removed
    between                                        each key of `units` -> bounds of the share of documents that is
                            removed
    reached, equal                                 for a corpus stage: input -> documents; (input, key, value) ->
                            documents with this value, if it is the most frequent value of the key in a chunk
    """

    name: str
    kind: str
    documents_in: float = 0
    documents_out: float = 0
    edited: float = 0
    reasons: dict[str, float] = {}
    seconds: float = 0
    groups: dict[str, float] = {}
    by_group: dict[tuple[str, str], tuple[float, float]] = {}
    units: dict[tuple[str, ...], dict[int, tuple[float, float]]] = {}
    between: dict[tuple[str, ...], tuple[float, float]] = {}
    unlabelled: float = 0
    lost: dict[tuple[str, str], float] = {}
    cuts: dict[str, tuple[float, float]] = {}
    reached: dict[str, float] = {}
    equal: dict[tuple[str, str, int], float] = {}


class Sampled(msgspec.Struct, kw_only=True):
    """The size of a sample. `is_whole`: whether the sample has all documents."""

    documents: int = 0
    bytes: int = 0
    files: int = 0
    seed: int = 0
    is_whole: bool = False


class Survey(msgspec.Struct, kw_only=True):
    """Estimates for all inputs.

    kinds              kinds of files, the largest first
    sampled            size of the sample
    documents          documents read, after `sample` of their inputs
    text_bytes         bytes of their text
    rejected           records that are no documents
    removed_bytes      bytes of the texts that row stages remove
    stages             the stages of the recipe, in order
    segments           bytes of the partitions of each segment, with their keys
    kept_documents     documents of the output with all copies, if corpus stages remove none
    kept_bytes         bytes of their text
    documents_bytes    bytes of `documents/`
    id_bytes           bytes of an id, on average
    tokens             tokens of the output; 0 without a tokenizer
    seconds            processor time: "read", "stages", "keys", "write", "tokenize"
    processor_share    share of a processor that the sample got while it was read and measured
    copied_bytes       stored bytes of URLs that are copied before they are read
    not_counted        inputs and URLs that were not sampled, since they are streamed or have an unknown size
    warnings           columns and groups that the sample lacks, and groups of documents that row stages remove
    documents_seen     the sampled documents, from which the warnings about groups are made
    unit_tokens        excerpt -> tokens of its kept documents
    token_variance     variance of the sum of `unit_tokens`, since not all documents are tokenised
    documents_between, tokens_between   bounds of documents and of tokens
    losses             characters of the tokenised documents that decoding loses
    """

    kinds: list[FileKind]
    sampled: Sampled
    stages: list[StageSurvey]
    segments: list[float]
    documents: float = 0
    text_bytes: float = 0
    rejected: float = 0
    removed_bytes: float = 0
    kept_documents: float = 0
    kept_bytes: float = 0
    documents_bytes: float = 0
    id_bytes: float = 0
    tokens: float = 0
    seconds: dict[str, float]
    processor_share: float = 1.0
    copied_bytes: int = 0
    not_counted: list[str] = []
    warnings: list[str] = []
    documents_seen: list[SampledDocument] = []
    unit_tokens: dict[int, float] = {}
    token_variance: float = 0
    documents_between: tuple[int, int] = (0, 0)
    tokens_between: tuple[int, int] = (0, 0)
    losses: Losses = msgspec.field(default_factory=Losses)


def empty_survey(like: Survey) -> Survey:
    """Return a survey with zero counts, with the stages and segments of another survey."""
    return Survey(
        kinds=[], sampled=Sampled(), seconds=dict.fromkeys(like.seconds, 0.0), segments=[0.0] * len(like.segments),
        stages=[StageSurvey(name=stage.name, kind=stage.kind) for stage in like.stages],
    )  # fmt: skip


def like_others(mean: Survey, kind: FileKind, by_input: Sequence[bool]) -> Survey:
    """Return the numbers of a small kind of files that is not measured. They are those of the measured kinds, scaled to
    its bytes of text.

    by_input  for each stage: whether its groups are the inputs
    """
    found, share = empty_survey(mean), kind.text_bytes / max(mean.text_bytes, 1)
    add_survey(found, msgspec.structs.replace(mean, losses=Losses(), documents_seen=[]), share, 1)
    found.documents, found.text_bytes = kind.documents, kind.text_bytes
    for stage, is_input in zip(found.stages, by_input, strict=True):
        if is_input:
            stage.groups = {kind.input: sum(stage.groups.values())} if share else {}
    return found


def assumed(kind: FileKind, like: Survey, tokenizer: Tokenizer | None) -> Survey:
    """Return the numbers of a kind of files of which no document was sampled. All text is assumed to be kept."""
    return Survey(
        kinds=[], sampled=Sampled(), stages=[], segments=[1.1 * kind.text_bytes] * len(like.segments),
        documents=kind.documents, text_bytes=kind.text_bytes, kept_documents=kind.documents,
        kept_bytes=kind.text_bytes, documents_bytes=ASSUMED_PARQUET * kind.text_bytes,
        tokens=ASSUMED_TOKENS * kind.text_bytes if tokenizer else 0, seconds={},
    )  # fmt: skip


def add_units(stages: Sequence[StageSurvey], others: Sequence[StageSurvey]) -> None:
    """Add the numbers of documents per unit that stages read and remove to those in `stages`."""
    for stage, other in zip(stages, others, strict=True):
        for key, units in other.units.items():
            own = stage.units.setdefault(key, {})
            for unit, (documents, removed) in units.items():
                before, gone = own.get(unit, (0.0, 0.0))
                own[unit] = before + documents, gone + removed


def add_survey(survey: Survey, measured: Survey, scale: float, copies: int, counts: float | None = None) -> None:
    """Add the numbers of another survey times `scale` and, for outputs, times `copies`.

    counts   replaces `scale` for numbers of documents; None: use `scale`
    """
    counts = scale if counts is None else counts
    survey.documents += measured.documents * counts
    survey.text_bytes += measured.text_bytes * scale
    survey.removed_bytes += measured.removed_bytes * scale
    survey.losses.merge(measured.losses)
    survey.documents_seen += [document._replace(weight=counts) for document in measured.documents_seen]
    survey.segments = [size + more * scale for size, more in zip(survey.segments, measured.segments, strict=True)]
    survey.kept_documents += measured.kept_documents * counts * copies
    for name in ("kept_bytes", "documents_bytes", "tokens"):
        setattr(survey, name, getattr(survey, name) + getattr(measured, name) * scale * copies)
    survey.token_variance += measured.token_variance * scale**2
    for unit, tokens in measured.unit_tokens.items():
        survey.unit_tokens[unit] = survey.unit_tokens.get(unit, 0.0) + tokens * scale
    for name, seconds in measured.seconds.items():
        survey.seconds[name] += seconds * scale * (copies if name in ("write", "tokenize") else 1)
    for stage, more in zip(survey.stages, measured.stages, strict=False):
        for name in ("documents_in", "documents_out", "edited", "seconds", "unlabelled"):
            setattr(stage, name, getattr(stage, name) + getattr(more, name) * (scale if name == "seconds" else counts))
        for name in ("reasons", "lost", "groups", "reached", "equal"):
            sums = getattr(stage, name)
            for key, count in getattr(more, name).items():
                sums[key] = sums.get(key, 0) + count * counts
        for name, (cut, kept) in more.cuts.items():
            cut_before, kept_before = stage.cuts.get(name, (0.0, 0.0))
            stage.cuts[name] = cut_before + cut * scale, kept_before + kept * scale
        for key, (documents, removed) in more.by_group.items():
            before, gone = stage.by_group.get(key, (0.0, 0.0))
            stage.by_group[key] = before + documents * counts, gone + removed * counts
