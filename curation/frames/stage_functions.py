# SPDX-License-Identifier: Apache-2.0
# Written by `make functions`. Do not edit.
# fmt: off
# ruff: noqa: B006, E501
"""The stages as functions on frames: lazy on Dask frames, immediate on pandas and cuDF frames."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from curation.base.measures import Measure
from curation.frames.duplicates import Duplicates, find_duplicates
from curation.frames.frames import AnyFrame, apply
from curation.reading.inputs import FilesInput
from curation.recipes.keywords import stage_of, takes
from curation.rules.decide import Rule
from curation.stages import (
    AssignClusters,
    Classify,
    Decontaminate,
    Embed,
    ExactDedup,
    Filter,
    FuzzyDedup,
    Language,
    LineDedup,
    Lines,
    MeasureStage,
    Mix,
    NgramDedup,
    Perplexity,
    Redact,
    Rewrite,
    Select,
    SemanticDedup,
    SubstringDedup,
)


@takes(Rewrite)
def rewrite(
    frame: AnyFrame,
    stage: Rewrite | None = None,
    *,
    unicode: str = "keep",
    markup: str = "keep",
    control: str = "keep",
    characters: str = "keep",
    lowercase: bool = False,
    whitespace: str = "keep",
    entities: str = "keep",
    repair: str = "keep",
    invisible: str = "keep",
    sentences: str = "keep",
    replace: Mapping[str, str] | Sequence[Mapping[str, str]] = (),
    text_column: str = "text",
) -> AnyFrame:
    r"""Return the frame with its text rewritten.

    stage                a whole `curation.Rewrite` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["One  two ", "three [1]"]})
        >>> notes = {"matches": r" ?\[\d+\]", "by": ""}
        >>> curation.rewrite(frame, whitespace="collapse", lowercase=True, replace=notes)["text"].tolist()
        ['one two', 'three']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Rewrite, stage, locals()), text_column=text_column)


@takes(Redact)
def redact(
    frame: AnyFrame,
    stage: Redact | None = None,
    *,
    patterns: str = "checked",
    types: str | Sequence[str] = ("email", "ip_address", "credit_card", "ssn", "phone"),
    replacement: str = "[REDACTED]_{type}",
    entities: str | Sequence[str] = (),
    model: str | os.PathLike[str] = "",
    private: str = "keep",
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with personal data in its text replaced.

    stage                a whole `curation.Redact` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["write to a@b.example"]})
        >>> curation.redact(frame, types="email")["text"].tolist()
        ['write to [REDACTED]_EMAIL']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Redact, stage, locals()), text_column=text_column)


@takes(MeasureStage)
def measure(
    frame: AnyFrame,
    names: str | Measure | Sequence[str | Measure] | MeasureStage = (),
    *,
    listed_words: str | Sequence[str] = "",
    personal_data: str | Sequence[str] = (),
    patterns: str = "checked",
    private: str = "keep",
    script: bool = False,
    script_shares: str | Sequence[str] = (),
    tokenizer: str = "",
    words: str = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with one int64 column per measure.

    names                names of measures (`curation.Measure`), or `tokens`; empty: all of `Measure`, or none with
                         `listed_words`, `personal_data`, `script` or `script_shares`. Or a whole
                         `curation.MeasureStage` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["two words", ""]})
        >>> curation.measure(frame, ["words", "bytes"])["words"].tolist()
        [2, 0]

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(MeasureStage, names, locals()), text_column=text_column)


@takes(Filter)
def filter(
    frame: AnyFrame,
    rules: str | Rule | Mapping[str, Any] | Sequence[str | Rule | Mapping[str, Any]] | Filter,
    *,
    tokenizer: str = "",
    words: str = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows that break none of `rules`.

    rules                name of a rule set, or a list of names and rules; a document's first broken rule is its reason.
                         Or a whole `curation.Filter` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    `rules` may also be one `curation.Rule`, or a dictionary of its fields; `curation.RULE_SETS` has the sets.

    Measures that `curation.measure` or `curation.explain` wrote to the frame are not computed again, unless a stage
    has changed the text since. If you change the text yourself, measure it again.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one", "one two three"]})
        >>> curation.filter(frame, curation.Rule(measure="words", min=2))["text"].tolist()
        ['one two three']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Filter, rules, locals()), text_column=text_column)


@takes(Lines)
def lines(
    frame: AnyFrame,
    rules: str | Rule | Mapping[str, Any] | Sequence[str | Rule | Mapping[str, Any]] | Lines,
    *,
    unit: str = "line",
    max_removed: Mapping[str, float] = {},
    strip: bool = False,
    cut: bool = True,
    tokenizer: str = "",
    words: str = "",
    model: str = "",
    text_column: str = "text",
) -> AnyFrame:
    r"""Return the frame without the lines, paragraphs or sentences that break one of `rules`.

    rules                rules as in `filter`, on each unit; the first one that a unit breaks cuts the unit. With
                         `removes: document` the rule removes the document. `repeats` counts equal units before it.
                         `language` lists languages, as `keep` of the stage `language` does; `min_probability` bounds
                         the probability. Or a whole `curation.Lines` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["Home | Menu\nA sentence with some words.\nHome"]})
        >>> curation.lines(frame, {"words": {"min": 4}})["text"].tolist()
        ['A sentence with some words.\n']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Lines, rules, locals()), text_column=text_column)


@takes(Language)
def language(
    frame: AnyFrame,
    keep: str | Sequence[str] | Language = (),
    *,
    min_probability: float = 0.65,
    label_probability: float = 0.0,
    model: str | os.PathLike[str] = "",
    max_characters: int = 1000,
    windows: int = 1,
    normalize: bool = True,
    column: str = "language",
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows in one of the languages `keep`, with the columns `language` and `language_probability`
    (float64).

    keep                 languages, in any form: `zh`, `zho`, `cmn_Hani`, `ZHO_Hans`. A label of the model is allowed,
                         too; a language without a script means all its scripts. Default, and `any`: the stage only adds
                         the columns, and keeps all documents. Or a whole `curation.Language` in place of the keywords,
                         which are its fields
    frame, text_column   as in `curation.apply`

    Existing columns of these two names are replaced.

        >>> import curation, pandas
        >>> texts = ["Nobody knows for sure why it does that.", "Niemand weiß so recht, warum er das tut."]
        >>> curation.language(pandas.DataFrame({"text": texts}), keep="de")["text"].tolist()
        ['Niemand weiß so recht, warum er das tut.']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Language, keep, locals()), text_column=text_column)


@takes(Classify)
def classify(
    frame: AnyFrame,
    model: str | os.PathLike[str] | Classify,
    *,
    label: str = "",
    column: str = "quality",
    max_characters: int = 0,
    windows: int = 1,
    pooling: Literal['first', 'mean', 'max'] = "mean",
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with a new column: the probability of a label, or the output of a regressor; null where the
    model knows nothing in the text.

    model                path of a supervised fastText model, `.bin` or `.ftz`, such as one of `curate train
                         classifier`; or a local folder with a classifier or regressor such as BERT, DeBERTa or
                         ModernBERT: `config.json`, `model.safetensors`, `tokenizer.json`; or a transformer in ONNX
                         (`model.onnx` or `onnx/model.onnx`) that gives `logits`. Or a whole `curation.Classify` in
                         place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas, pathlib
        >>> model = pathlib.Path(curation.__file__).parent / "models" / "lid.176.ftz"
        >>> frame = pandas.DataFrame({"text": ["The weather is fine today.", "Das Wetter bleibt heute sehr warm."]})
        >>> curation.classify(frame, model, label="de", column="german")["german"].round(2).tolist()
        [0.0, 1.0]

    Raises RecipeError for a wrong setting, InputError for a model that cannot be used, EngineError for a missing
    package, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Classify, model, locals()), text_column=text_column)


@takes(Perplexity)
def perplexity(
    frame: AnyFrame,
    model: str | os.PathLike[str] | Perplexity,
    *,
    per: str = "token",
    column: str = "perplexity",
    context: int = 0,
    stride: int = 0,
    formula: str = "windows",
    text_column: str = "text",
) -> AnyFrame:
    r"""Return the frame with a column: the perplexity of each text by a language model, null without words.

    model                path of an ARPA file, such as one of `curate train lm`, also compressed with gzip; or of a
                         binary file of KenLM, which needs the package kenlm and is computed on the host; or a local
                         folder with a causal language model, such as GPT-2 or Llama: `config.json`,
                         `model.safetensors`, `tokenizer.json`. Or a whole `curation.Perplexity` in place of the
                         keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas, pathlib
        >>> _ = pathlib.Path("tiny.arpa").write_text(
        ...     "\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <unk>\n-99 <s>\n-0.5 </s>\n\n\\end\\\n"
        ... )
        >>> frame = pandas.DataFrame({"text": ["one word", "a\nb", " "]})
        >>> curation.perplexity(frame, "tiny.arpa", per="word")["perplexity"].tolist()
        [17.7828, 31.6228, nan]

    Raises RecipeError for a wrong setting, InputError for a model that cannot be used, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(Perplexity, model, locals()), text_column=text_column)


@takes(Embed)
def embed(
    frame: AnyFrame,
    model: str | os.PathLike[str] | Embed,
    *,
    column: str = "embedding",
    windows: int = 4,
    pooling: Literal['first', 'mean', 'max'] = "mean",
    max_characters: int = 0,
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with a column of vectors (lists of int8 of fixed size), null for a text without known
    tokens.

    model                local folder with an encoder such as BERT (`config.json`, `model.safetensors`,
                         `tokenizer.json`), with a transformer in ONNX (`model.onnx` or `onnx/model.onnx`), or with
                         static embeddings in the form of model2vec, which need no GPU; or an `.onnx` file in such a
                         folder; or `package:NAME`, such a folder in an installed package. Or a whole `curation.Embed`
                         in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = curation.embed(pandas.DataFrame({"text": ["a good text", ""]}), "vectors")
        >>> frame["embedding"].isna().tolist()
        [False, True]

    Raises RecipeError for a wrong setting, InputError for a model that cannot be used, EngineError for a missing
    package, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Embed, model, locals()), text_column=text_column)


@takes(AssignClusters)
def assign_clusters(
    frame: AnyFrame,
    centroids: str | os.PathLike[str] | AssignClusters,
    *,
    vectors: str = "embedding",
    column: str = "cluster",
    names: str | Sequence[str] = (),
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with a new column: the cluster of each row, which has the nearest centroid; null without a
    vector.

    centroids            file of centroids: `centroids/stage-N.npz` of a run with `semantic_dedup`, or one by
                         `curation.clusters`. Or a whole `curation.AssignClusters` in place of the keywords, which are
                         its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["a", "b", "c"], "embedding": [[1.0, 0.1], [1.0, -0.1], None]})
        >>> _ = curation.clusters(frame, clusters=1, save="topics.npz")
        >>> curation.assign_clusters(frame, "topics.npz", names=["law"])["cluster"].tolist()
        ['law', 'law', nan]

    Raises RecipeError for a wrong setting, InputError for centroids or vectors that cannot be used, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(AssignClusters, centroids, locals()), text_column=text_column)


@takes(Decontaminate)
def decontaminate(
    frame: AnyFrame,
    evaluation_files: str | os.PathLike[str] | FilesInput | Sequence[str | os.PathLike[str] | FilesInput] | Decontaminate,
    *,
    ngram: int = 13,
    min_ngrams: int = 1,
    max_documents: int = 10,
    compare: str = "visible",
    words: str = "",
    answer_column: str = "",
    removes_question: bool = True,
    removes: str = "document",
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows that contain no item of the evaluation texts.

    evaluation_files     evaluation texts: local paths, or inputs as in a recipe, whose `name` the report shows. A
                         record that cannot be read is an InputError. Or a whole `curation.Decontaminate` in place of
                         the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text. It reads partitions with candidates, which are documents with a
    known n-gram, twice more. The rows stay lazy.

        >>> import curation, pandas, pathlib
        >>> _ = pathlib.Path("quiz.txt").write_text("two three")
        >>> frame = pandas.DataFrame({"text": ["one two three", "three two"]})
        >>> curation.decontaminate(frame, "quiz.txt", ngram=2)["text"].tolist()
        ['three two']

    Raises RecipeError for a wrong setting, InputError for evaluation texts that cannot be read, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(Decontaminate, evaluation_files, locals()), text_column=text_column)


@overload
def exact_dedup(
    frame: AnyFrame,
    stage: ExactDedup | None = None,
    *,
    max_characters: int = 0,
    compare: str = "exact",
    index: str | os.PathLike[str] = "",
    column: str | Sequence[str] = "",
    keep: str | Mapping[str, str] = "first",
    drop_parameters: str | Sequence[str] = "tracking",
    writes: str = "",
    details: Literal[False] = False,
    text_column: str = "text",
) -> AnyFrame: ...
@overload
def exact_dedup(
    frame: AnyFrame,
    stage: ExactDedup | None = None,
    *,
    max_characters: int = 0,
    compare: str = "exact",
    index: str | os.PathLike[str] = "",
    column: str | Sequence[str] = "",
    keep: str | Mapping[str, str] = "first",
    drop_parameters: str | Sequence[str] = "tracking",
    writes: str = "",
    details: Literal[True],
    text_column: str = "text",
) -> Duplicates: ...
@takes(ExactDedup)
def exact_dedup(
    frame: AnyFrame,
    stage: ExactDedup | None = None,
    *,
    max_characters: int = 0,
    compare: str = "exact",
    index: str | os.PathLike[str] = "",
    column: str | Sequence[str] = "",
    keep: str | Mapping[str, str] = "first",
    drop_parameters: str | Sequence[str] = "tracking",
    writes: str = "",
    details: bool = False,
    text_column: str = "text",
) -> AnyFrame | Duplicates:
    """Return one row of each distinct text, or of each distinct value of columns.

    stage                a whole `curation.ExactDedup` in place of the keywords, which are its fields
    details              True: return `curation.Duplicates`, with the groups and the pairs, instead of the frame alone
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text once, for 24 bytes of keys per document. The rows stay lazy.

        >>> import curation, pandas
        >>> urls = ["http://a.org/", "https://www.a.org", None]
        >>> frame = pandas.DataFrame({"text": ["one", "two", "one"], "url": urls})
        >>> curation.exact_dedup(frame)["text"].tolist()
        ['one', 'two']
        >>> curation.exact_dedup(frame, column="url", compare="url", writes="copies")["copies"].tolist()
        [2, 1]
        >>> curation.exact_dedup(frame, details=True).pairs[["row", "kept_row"]].values.tolist()
        [[2, 0]]

    Raises RecipeError for a wrong setting, InputError for a column that cannot be a key, or has no number or date, and
    the errors of `curation.apply`.
    """
    chosen = stage_of(ExactDedup, stage, locals())
    return find_duplicates(frame, chosen, text_column) if details else apply(frame, chosen, text_column=text_column)


@takes(LineDedup)
def line_dedup(
    frame: AnyFrame,
    stage: LineDedup | None = None,
    *,
    unit: str = "line",
    window: int = 1,
    compare: str = "exact",
    min_characters: int = 0,
    documents: int = 2,
    keep: str = "first",
    index: str | os.PathLike[str] = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return all rows, without lines (paragraphs, sentences) that occurred before.

    stage                a whole `curation.LineDedup` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text twice, and a third time where it cuts. The rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["Home. News. One story.", "Home. News. Another one."]})
        >>> curation.line_dedup(frame, unit="sentence")["text"].tolist()
        ['Home. News. One story.', 'Another one.']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(LineDedup, stage, locals()), text_column=text_column)


@takes(SubstringDedup)
def substring_dedup(
    frame: AnyFrame,
    stage: SubstringDedup | None = None,
    *,
    length: int = 200,
    bounds: str = "characters",
    join: int = 0,
    min_kept: int = 0,
    verify: str = "hash",
    index: str | os.PathLike[str] = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return all rows, without spans of text that occurred before; with `min_kept`, fewer rows.

    stage                a whole `curation.SubstringDedup` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text twice, and parts of it twice more. The rows stay lazy.

        >>> import curation, pandas
        >>> licence = "Copies of this text are permitted if they are complete."
        >>> frame = pandas.DataFrame({"text": [licence + " One.", "Two. " + licence]})
        >>> curation.substring_dedup(frame, length=32)["text"].tolist()
        ['Copies of this text are permitted if they are complete. One.', 'Two. ']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(SubstringDedup, stage, locals()), text_column=text_column)


@overload
def fuzzy_dedup(
    frame: AnyFrame,
    stage: FuzzyDedup | None = None,
    *,
    ngram: int = 5,
    unit: str = "word",
    words: str = "",
    compare: str = "lowercase",
    permutations: int = 128,
    seed: int = 1,
    threshold: float = 0.8,
    bands: int = 0,
    rows: int = 0,
    verify: str = "exact",
    keep: str | Sequence[str] | Mapping[str, str] = "first",
    contained: float = 0,
    skip_prefix: str = "none",
    index: str | os.PathLike[str] = "",
    details: Literal[False] = False,
    text_column: str = "text",
) -> AnyFrame: ...
@overload
def fuzzy_dedup(
    frame: AnyFrame,
    stage: FuzzyDedup | None = None,
    *,
    ngram: int = 5,
    unit: str = "word",
    words: str = "",
    compare: str = "lowercase",
    permutations: int = 128,
    seed: int = 1,
    threshold: float = 0.8,
    bands: int = 0,
    rows: int = 0,
    verify: str = "exact",
    keep: str | Sequence[str] | Mapping[str, str] = "first",
    contained: float = 0,
    skip_prefix: str = "none",
    index: str | os.PathLike[str] = "",
    details: Literal[True],
    text_column: str = "text",
) -> Duplicates: ...
@takes(FuzzyDedup)
def fuzzy_dedup(
    frame: AnyFrame,
    stage: FuzzyDedup | None = None,
    *,
    ngram: int = 5,
    unit: str = "word",
    words: str = "",
    compare: str = "lowercase",
    permutations: int = 128,
    seed: int = 1,
    threshold: float = 0.8,
    bands: int = 0,
    rows: int = 0,
    verify: str = "exact",
    keep: str | Sequence[str] | Mapping[str, str] = "first",
    contained: float = 0,
    skip_prefix: str = "none",
    index: str | os.PathLike[str] = "",
    details: bool = False,
    text_column: str = "text",
) -> AnyFrame | Duplicates:
    """Return one row of each group of near-duplicates.

    stage                a whole `curation.FuzzyDedup` in place of the keywords, which are its fields
    details              True: return `curation.Duplicates`, with the groups and the pairs, instead of the frame alone
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text once, for 8 bytes of keys per band and document, plus 8 per
    document. It computes partitions with candidates a second time, one by one. The rows stay lazy. A list in `keep`
    has values of the column `source`.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one two three four", "One two three four", "five"]})
        >>> curation.fuzzy_dedup(frame, ngram=2)["text"].tolist()
        ['one two three four', 'five']
        >>> curation.fuzzy_dedup(frame, ngram=2, details=True).pairs[["kept_text", "similarity"]].values.tolist()
        [['one two three four', 1.0]]

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    chosen = stage_of(FuzzyDedup, stage, locals())
    return find_duplicates(frame, chosen, text_column) if details else apply(frame, chosen, text_column=text_column)


@takes(NgramDedup)
def ngram_dedup(
    frame: AnyFrame,
    stage: NgramDedup | None = None,
    *,
    ngram: int = 5,
    min_seen: float = 0.9,
    compare: str = "exact",
    words: str = "",
    max_memory_bytes: int = 8000000000,
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows with less than the share `min_seen` of their distinct word n-grams in rows kept before them.

    stage                a whole `curation.NgramDedup` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    On a Dask frame the call itself reads all text twice. The first pass computes 16 bytes of keys per document, the
    second decides, partition after partition. The rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one two three", "two three", "three four"]})
        >>> curation.ngram_dedup(frame, ngram=2)["text"].tolist()
        ['one two three', 'three four']

    Raises RecipeError for a wrong setting, RecipeError for a table larger than `max_memory_bytes`, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(NgramDedup, stage, locals()), text_column=text_column)


@overload
def semantic_dedup(
    frame: AnyFrame,
    stage: SemanticDedup | None = None,
    *,
    column: str = "embedding",
    threshold: float = 0.95,
    clusters: int | str = "auto",
    probe: int = 4,
    keep: str | Sequence[str] | Mapping[str, str] = "first",
    centroids: str | os.PathLike[str] = "",
    seed: int = 1,
    index: str | os.PathLike[str] = "",
    details: Literal[False] = False,
    text_column: str = "text",
) -> AnyFrame: ...
@overload
def semantic_dedup(
    frame: AnyFrame,
    stage: SemanticDedup | None = None,
    *,
    column: str = "embedding",
    threshold: float = 0.95,
    clusters: int | str = "auto",
    probe: int = 4,
    keep: str | Sequence[str] | Mapping[str, str] = "first",
    centroids: str | os.PathLike[str] = "",
    seed: int = 1,
    index: str | os.PathLike[str] = "",
    details: Literal[True],
    text_column: str = "text",
) -> Duplicates: ...
@takes(SemanticDedup)
def semantic_dedup(
    frame: AnyFrame,
    stage: SemanticDedup | None = None,
    *,
    column: str = "embedding",
    threshold: float = 0.95,
    clusters: int | str = "auto",
    probe: int = 4,
    keep: str | Sequence[str] | Mapping[str, str] = "first",
    centroids: str | os.PathLike[str] = "",
    seed: int = 1,
    index: str | os.PathLike[str] = "",
    details: bool = False,
    text_column: str = "text",
) -> AnyFrame | Duplicates:
    """Return one row of each group of rows with close vectors.

    stage                a whole `curation.SemanticDedup` in place of the keywords, which are its fields
    details              True: return `curation.Duplicates`, with the groups and the pairs, instead of the frame alone
    frame, text_column   as in `curation.apply`

    The column has lists of numbers, or JSON arrays of numbers in strings. On a Dask frame the call itself computes
    all partitions twice. The rows stay lazy. A frame does not tell the model of its vectors: with `index` only
    their dimensions are compared. A list in `keep` has values of the column `source`.

        >>> import curation, pandas
        >>> vectors = [[1.0, 0.0], [0.99, 0.01], [0.0, 1.0], None]
        >>> frame = pandas.DataFrame({"text": ["one", "uno", "two", ""], "embedding": vectors})
        >>> curation.semantic_dedup(frame)["text"].tolist()
        ['one', 'two', '']
        >>> curation.semantic_dedup(frame, details=True).pairs[["kept_text", "similarity"]].values.tolist()
        [['one', 0.9999]]

    Raises RecipeError for a wrong setting, InputError for a column without vectors, and if more than one cluster is
    wanted and scikit-learn (on the GPU engine cuML) is not installed, and the errors of `curation.apply`.
    """
    chosen = stage_of(SemanticDedup, stage, locals())
    return find_duplicates(frame, chosen, text_column) if details else apply(frame, chosen, text_column=text_column)


@takes(Select)
def select(
    frame: AnyFrame,
    column: str | Select = "",
    *,
    drop_lowest: float = 0,
    drop_highest: float = 0,
    keep_lowest: float = 0,
    keep_highest: float = 0,
    max_documents: int = 0,
    max_bytes: int = 0,
    keep: str = "highest",
    per: str = "",
    per_domain: str = "",
    seed: int = 1234,
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows without an exact share of rows that have the lowest or highest numbers in a column.

    column               column with the numbers, compared as float64. Default: none, only with max_documents. Or a
                         whole `curation.Select` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    Of n rows, floor(share * n) are removed; if numbers are equal, later rows are removed first. On a Dask frame the
    call itself computes 16 bytes per row; the rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["low", "high", "middle"], "score": [0.1, 0.9, 0.5]})
        >>> curation.select(frame, "score", drop_lowest=0.4)["text"].tolist()
        ['high', 'middle']

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["a", "b", "c"], "url": ["x.org/1", "www.x.org", "y.org"]})
        >>> len(curation.select(frame, max_documents=1, per_domain="url"))
        2

    Raises RecipeError for a wrong setting, InputError if no row has a number in the column, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(Select, column, locals()), text_column=text_column)


@takes(Mix)
def mix(
    frame: AnyFrame,
    weights: Mapping[str, float] | Mix = {},
    *,
    temperature: float = 0,
    max_epochs: int = 0,
    by: str = "source",
    documents: int = 0,
    tokens: int = 0,
    tokenizer: str = "gpt2",
    append_eod: bool = True,
    seed: int = 1234,
    curve: Sequence[Sequence[float]] = (),
    column: str = "",
    per: str = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return rows drawn by weights: some rows of large groups, and rows of small groups several times. With
    `curve`, return rows as often as their rank in `column` says.

    weights              name of a group -> its share of the result; divided by their sum. Documents of other groups are
                         removed. Or a whole `curation.Mix` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

    Copies of a row follow it. On a Dask frame the call itself computes 16 to 24 bytes per row; the rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["a", "b", "c", "d"], "kind": ["web", "web", "web", "wiki"]})
        >>> curation.mix(frame, {"web": 0.5, "wiki": 0.5}, by="kind", documents=4)["kind"].tolist()
        ['web', 'web', 'wiki', 'wiki']

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["a", "b", "c", "d"], "quality": [0.2, 0.9, 0.1, 0.5]})
        >>> curation.mix(frame, curve=[[0.5, 0], [0.75, 1], [1, 2]], column="quality")["text"].tolist()
        ['b', 'b', 'd']

    Raises RecipeError for a wrong setting, InputError for a group without rows, and for a curve over a column without
    numbers, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Mix, weights, locals()), text_column=text_column)


__all__ = [
    "assign_clusters",
    "classify",
    "decontaminate",
    "embed",
    "exact_dedup",
    "filter",
    "fuzzy_dedup",
    "language",
    "line_dedup",
    "lines",
    "measure",
    "mix",
    "ngram_dedup",
    "perplexity",
    "redact",
    "rewrite",
    "select",
    "semantic_dedup",
    "substring_dedup",
]
