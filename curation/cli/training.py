# SPDX-License-Identifier: Apache-2.0
"""Commands that train on your own documents."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from curation.base.errors import counted
from curation.base.system import interrupts
from curation.base.system.steps import shown_by
from curation.cli.execution import prepare_memory
from curation.cli.options import LOGGING, READING, add_inputs, inputs_of, share, split_names
from curation.cli.parsing import Command, Parser, UsageError, add, whole_number

if TYPE_CHECKING:
    from curation.tools.classifier_training import TrainedClassifier
    from curation.tools.lm_training import TrainedLM

KINDS = ("bpe", "unigram", "wordpiece")  # of tokenizers
UNITS = ("word", "byte")  # of language models


def _add_train_tokenizer(parser: Parser) -> None:
    add_inputs(parser)
    share(parser, "output", metavar="FILE", help="write a tokenizer.json, or a .model of SentencePiece, to FILE")
    parser.add_argument(
        "--vocabulary",
        type=whole_number,
        default=32_000,
        metavar="N",
        help="limit the vocabulary to N tokens (default: 32000)",
    )
    add(
        parser, "--kind", choices=KINDS, noun="kind of tokenizer", default="bpe", metavar="KIND",
        help="train this kind: bpe (of bytes; default), unigram or wordpiece",
    )  # fmt: skip
    parser.add_argument(
        "--special",
        default="",
        metavar="A,B",
        help="use these special tokens (default: `<bos>,<eos>,<pad>,<unk>,<mask>`)",
    )
    share(parser, "force", help="replace FILE and the tokenizer_config.json in its folder")
    share(parser, *LOGGING)


def train_tokenizer(options: argparse.Namespace) -> int:
    """Train byte-pair merges on a sample of the inputs, and warn of a tokenizer that loses characters."""
    inputs, console = inputs_of(options), options.console
    prepare_memory()
    from curation.base.errors import counted
    from curation.results.report.report import tokenizer_warning
    from curation.tokens import tokenizer_training

    interrupts.begin_writing()
    with shown_by(console.progress()):
        trained = tokenizer_training.train_tokenizer(
            inputs,
            options.output,
            vocabulary=options.vocabulary,
            kind=options.kind,
            special=split_names(options.special) if options.special else tokenizer_training.SPECIAL,
            force=options.force,
        )
    tokenizer, size = trained.tokenizer, f"{trained.bytes / 1e6:,.2f} MB"
    console.info(
        f"{trained.path}: {counted(tokenizer.vocabulary, 'token')} from {counted(trained.texts, 'text')}, {size}"
    )
    console.info(f"{trained.tokens_per_byte:.3f} tokens per byte on a sample of the texts")
    if tokenizer.note:
        console.warn(tokenizer_warning(tokenizer))
    counts = {name: getattr(trained, name) for name in ("texts", "bytes", "rejected", "tokens_per_byte")}
    return int(console.result("train tokenizer", output=str(trained.path), vocabulary=tokenizer.vocabulary, **counts))


TRAIN_TOKENIZER = Command(
    "train tokenizer",
    "train a tokenizer on your documents",
    _add_train_tokenizer,
    train_tokenizer,
    ("train-tokenizer",),
)


def _add_train_classifier(parser: Parser) -> None:
    parser.add_argument(
        "--label",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME PATH",
        help="train on these files, folders and globs as documents of the label NAME; give two labels or more",
    )
    share(parser, *READING)
    share(parser, "output", metavar="FILE", help="write a model to FILE, a .bin, or with --quantize a .ftz")
    for name, metavar, kind, text in (
        ("--word-ngrams", "N", whole_number, "use n-grams of up to N words (default: 2)"),
        ("--dimensions", "N", whole_number, "use vectors of N weights (default: 16)"),
        ("--epochs", "N", whole_number, "read the documents N times (default: 20)"),
        ("--learning-rate", "X", float, "start with this learning rate (default: 0.5)"),
        ("--held-out", "SHARE", float, "test on this share of the documents (default: 0.1)"),
        ("--seed", "N", whole_number, "use another seed (default: 0)"),
    ):
        parser.add_argument(name, type=kind, default=None, metavar=metavar, help=text)
    parser.add_argument("--quantize", action="store_true", help="compress the model about ten times, to a .ftz")
    share(parser, "force", help="replace FILE and the .json beside it")
    share(parser, *LOGGING)


def train_classifier(options: argparse.Namespace) -> int:
    """Train fastText on inputs with labels, and print its precision and recall on documents held out."""
    labels = _labels_of(options)
    console = options.console
    prepare_memory()
    from curation.base.errors import counted
    from curation.tools import classifier_training as training

    given = {name: getattr(options, name) for name in ("word_ngrams", "dimensions", "epochs", "learning_rate")}
    settings = training.ClassifierSettings(**{name: value for name, value in given.items() if value is not None})
    others = {name: getattr(options, name) for name in ("held_out", "seed") if getattr(options, name) is not None}
    interrupts.begin_writing()
    with shown_by(console.progress()):
        trained = training.train_classifier(
            labels, options.output, settings=settings, quantize=options.quantize, force=options.force, **others
        )
    for line in _quality_lines(trained):
        console.info(line)
    counts = {name: getattr(trained, name) for name in ("duplicates", "conflicts", "empty")}
    if trained.conflicts:
        console.warn(f"left out {counted(trained.conflicts, 'text')} that documents of several labels have")
    held_out = {name: metrics._asdict() for name, metrics in trained.held_out.items()}
    result = console.result(
        "train classifier", output=str(trained.path), report=str(trained.report_path), trained=trained.trained,
        held_out=held_out, **counts,
    )  # fmt: skip
    return int(result)


def _labels_of(options: argparse.Namespace) -> dict[str, list[dict[str, str]]]:
    """Return the inputs by label. Raises UsageError for a label without inputs, or for fewer than two labels."""
    labels: dict[str, list[dict[str, str]]] = {}
    for name, *paths in options.label:
        if not paths:
            raise UsageError(f"train classifier --label {name}: PATH is missing; write --label {name} PATH")
        labels.setdefault(name, []).extend({"path": path, "text_column": options.text_column} for path in paths)
    if len(labels) < 2:
        raise UsageError(
            f"train classifier needs two labels or more, not {len(labels)}: --label good PATH --label bad PATH"
        )
    return labels


def _quality_lines(trained: TrainedClassifier) -> list[str]:
    """Return the table of labels, the calibration of the first label, and the stage that uses the model."""
    first = trained.labels[0]
    width = max(map(len, ("label", *trained.labels)))
    lines = [f"{trained.path}: {counted(len(trained.labels), 'label')}; metrics on texts held out of the training"]
    lines.append(f"{'label':{width}}  trained  held out  precision  recall    AUC")
    for name in trained.labels:
        metrics = trained.held_out[name]
        shares = (f"{metrics.precision:9.3f}", f"{metrics.recall:6.3f}", f"{metrics.auc:5.3f}")
        lines.append(f"{name:{width}}  {trained.trained[name]:7,}  {metrics.texts:8,}  {'  '.join(shares)}")
    lines.append(f"probability of {first}   held out   share of {first}")
    for row in trained.calibration:
        if row.texts:
            lines.append(f"  {row.low:.1f} to {row.high:.1f}{row.texts:{len(first) + 16},}   {row.share:9.3f}")
    lines.append(f"stage: {{kind: classify, model: {trained.path}, label: {first}}}")
    return lines


TRAIN_CLASSIFIER = Command(
    "train classifier",
    "train a quality filter on labelled documents",
    _add_train_classifier,
    train_classifier,
)


def _add_train_lm(parser: Parser) -> None:
    add_inputs(parser)
    share(parser, "output", metavar="FILE", help="write a model to FILE, an .arpa")
    add(
        parser, "--unit", choices=UNITS, noun="unit", default="word", metavar="UNIT",
        help="use this unit: word (default) or byte",
    )  # fmt: skip
    parser.add_argument(
        "--order", type=whole_number, default=5, metavar="N", help="use n-grams of up to N words (default: 5)"
    )
    parser.add_argument(
        "--prune", type=whole_numbers, default=[], metavar="A,B",
        help="per order, leave out n-grams that occur at most so often, as in 0,0,1 (default: none)",
    )  # fmt: skip
    share(parser, "force", help="replace FILE")
    share(parser, *LOGGING)


def whole_numbers(text: str) -> list[int]:
    """Return a comma-separated list of whole numbers; argparse reports anything else."""
    return [whole_number(number) for number in split_names(text)]


def train_lm(options: argparse.Namespace) -> int:
    """Count n-grams and write an ARPA file that the stage `perplexity` reads."""
    inputs, console = inputs_of(options), options.console
    prepare_memory()
    from curation.tools import lm_training

    interrupts.begin_writing()
    with shown_by(console.progress()):
        trained = lm_training.train_lm(
            inputs, options.output, unit=options.unit, order=options.order, prune=options.prune, force=options.force
        )
    for line in _model_lines(trained):
        console.info(line)
    for order in trained.fallback:
        if trained.unit == "word" or order > 1:  # too few of 256 bytes are rare, whatever the texts
            console.warn(f"too few texts to estimate the discounts of {order}-grams; they are 0.5, 1 and 1.5")
    names = ("ngrams", "pruned", "discounts", "fallback", "documents", "sentences", "words", "rejected", "unit")
    content = {name: getattr(trained, name) for name in names}
    return int(console.result("train lm", output=str(trained.path), **content))


def _model_lines(trained: TrainedLM) -> list[str]:
    """Return the size of the texts, the n-grams and discounts per order, and the stage that uses the model."""
    from curation.base.errors import counted

    words = f"{counted(trained.words, trained.unit)} in {counted(trained.sentences, 'line')}"
    lines = [f"{trained.path}: {words} of {counted(trained.documents, 'document')}"]
    for n, discounts in enumerate(trained.discounts):
        left_out = f", {trained.pruned[n]:,} left out" if trained.pruned[n] else ""
        shown = ", ".join(f"{taken:.3f}" for taken in discounts)
        lines.append(f"{n + 1}-grams: {trained.ngrams[n]:,}{left_out}; discounts {shown}")
    per = ", per: byte" if trained.unit == "byte" else ""
    return [*lines, f"stage: {{kind: perplexity, model: {trained.path}{per}}}"]


TRAIN_LM = Command("train lm", "train an n-gram language model on your documents", _add_train_lm, train_lm)
