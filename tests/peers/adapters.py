# SPDX-License-Identifier: Apache-2.0
"""What runs the cases of other tools: one function per capability, through the public functions.

An adapter takes the settings of a group and the inputs of its cases, and returns one result per case. Cases of a group
share a frame where its stages judge each row alone. `files.py` and `tokens.py` have those that need files.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pandas as pd

import curation
from curation import CorpusStage, CurationError
from curation.recipes.recipe import convert_recipe
from tests.peers.tokenizers_of import file_of

Settings = dict[str, Any]
ADAPTERS: dict[str, Callable[[Settings, list[Any]], list[Any]]] = {}
REFUSED = "refused: "


def adapter(function: Callable[[Settings, list[Any]], list[Any]]) -> Callable[[Settings, list[Any]], list[Any]]:
    """Name an adapter by its function."""
    ADAPTERS[function.__name__] = function
    return function


def results_of(name: str, settings: Settings, inputs: list[Any]) -> list[Any]:
    """One result per case. `files` of the settings are written to a folder, whose path replaces FOLDER in them.

    `tokenizer_file` describes a tokenizer, which is written to `FOLDER/tokenizer.json`.
    """
    if not {"files", "tokenizer_file"} & set(settings):
        return ADAPTERS[name](settings, inputs)
    with TemporaryDirectory() as folder:
        for file, content in settings.get("files", {}).items():
            (Path(folder) / file).write_text(content, "utf-8")
        if "tokenizer_file" in settings:
            file_of(settings["tokenizer_file"], Path(folder))
        return ADAPTERS[name](orjson.loads(orjson.dumps(settings).replace(b"FOLDER", folder.encode())), inputs)


def frame_of(rows: list[Any]) -> pd.DataFrame:
    """A frame of rows: texts, or columns by name."""
    columns = [row if isinstance(row, dict) else {"text": row} for row in rows]
    frame = pd.DataFrame(columns, index=range(len(rows)))
    if "text" not in frame:
        frame["text"] = ""
    return frame.astype({"text": "str"})


def after(stages: list[Any], frame: pd.DataFrame) -> pd.DataFrame:
    """The frame after the stages of a recipe; its index has the numbers of the rows."""
    for stage in convert_recipe({"stages": stages}).stages:
        frame = curation.apply(frame, stage)
    return frame


def stages_of(settings: Settings) -> list[Any]:
    """The stages of a group; `stages` is a list, or one stage."""
    stages = settings["stages"]
    return stages if isinstance(stages, list) else [stages]


def looks_at_others(stages: list[Any]) -> bool:
    """Whether a stage compares rows, so that cases may not share a frame."""
    return any(isinstance(stage, CorpusStage) for stage in convert_recipe({"stages": stages}).stages)


@adapter
def texts(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The text of each row after the stages; None if a stage removes the row."""
    found = after(stages_of(settings), frame_of(inputs))["text"]
    return [found.get(row) for row in range(len(inputs))]


@adapter
def kept(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether each row is kept."""
    found = after(stages_of(settings), frame_of(inputs)).index
    return [row in found for row in range(len(inputs))]


@adapter
def survivors(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Of each list of rows, the numbers of those that are kept."""
    stages = stages_of(settings)
    try:
        if looks_at_others(stages):
            return [sorted(after(stages, frame_of(rows)).index) for rows in inputs]
        found = set(after(stages, frame_of([row for rows in inputs for row in rows])).index)
    except (CurationError, ValueError) as error:
        return [REFUSED + type(error).__name__] * len(inputs)
    starts = [sum(map(len, inputs[:case])) for case in range(len(inputs))]
    return [[n for n in range(len(rows)) if start + n in found] for start, rows in zip(starts, inputs, strict=True)]


@adapter
def edited(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The texts that remain of each list of texts, which one frame holds."""
    stages = stages_of(settings)
    return [after(stages, frame_of(rows))["text"].tolist() for rows in inputs]


@adapter
def first_reason(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The first broken rule of each text, or "" for a kept one; `names` translates ours to the peer's."""
    found = curation.explain(frame_of(inputs), settings["rules"])["reason"]
    return [settings["names"].get(reason, reason) if isinstance(reason, str) else "" for reason in found]


@adapter
def columns(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Values of a column that the stages write."""
    frame = after(stages_of(settings), frame_of(inputs))
    return frame[settings["column"]].tolist()


@adapter
def measures(settings: Settings, inputs: list[Any]) -> list[Any]:
    """A formula of measures, such as `bullet_lines / lines`, of each text."""
    formula = settings["formula"]
    names = [name for name in curation.Measure.__members__ if name in _names_of(formula)]
    frame = curation.measure(frame_of(inputs), names, listed_words=settings.get("listed_words", ""))
    numbers = {name: frame[name] for name in _names_of(formula) if name in frame}
    return [float(value) for value in pd.eval(formula, local_dict=numbers)]


@cache
def _names_of(formula: str) -> frozenset[str]:
    return frozenset(compile(formula, "formula", "eval").co_names)


@adapter
def survivors_backwards(settings: Settings, inputs: list[Any]) -> list[Any]:
    """As `survivors`, of rows in reversed order."""
    return [sorted(len(rows) - 1 - row for row in survivors(settings, [rows[::-1]])[0]) for rows in inputs]


@adapter
def measures_of(settings: Settings, inputs: list[Any]) -> list[Any]:
    """As `measures`, for cases with several texts each."""
    return [measures(settings, texts) for texts in inputs]


@adapter
def columns_of(settings: Settings, inputs: list[Any]) -> list[Any]:
    """As `columns`, for cases with several rows each."""
    return [columns(settings, rows) for rows in inputs]


@adapter
def match_counts(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The number of matches of a pattern in each text."""
    rule = curation.Rule(matches=settings["matches"], max_count=0)
    return [int(count) for count in curation.explain(frame_of(inputs), rule)["text_matches"]]


@adapter
def lengths_after(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The characters of each text after the stages."""
    return [float(len(text)) for text in texts(settings, inputs)]


@adapter
def match_counts_of(settings: Settings, inputs: list[Any]) -> list[Any]:
    """As `match_counts`, for cases with several texts each."""
    return [match_counts(settings, texts) for texts in inputs]


@adapter
def duplicate_groups(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The rows of each group of near-duplicates."""
    return [_groups(curation.fuzzy_dedup(frame_of(texts), details=True, **settings)) for texts in inputs]


def _groups(found: curation.Duplicates) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for row, first in found.pairs[["row", "kept_row"]].itertuples(index=False):
        groups.setdefault(int(first), [int(first)]).append(int(row))
    return sorted(sorted(group) for group in groups.values())


@adapter
def cosines_to_earlier(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The largest cosine of each vector to an earlier one."""
    return [_to_earlier(vectors) for vectors in inputs]


def _to_earlier(vectors: list[list[float]]) -> list[float]:
    found = curation.neighbours(pd.DataFrame({"embedding": vectors}), k=len(vectors) - 1)
    earlier = found[found["neighbour"] < found["row"]].groupby("row")["cosine"].max()
    return [float(earlier.get(row, 0.0)) for row in range(len(vectors))]


@adapter
def without_close_vectors(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The vectors that are not close to an earlier one."""
    bound = settings["threshold"]
    return [[row for row, cosine in enumerate(_to_earlier(vectors)) if cosine < bound] for vectors in inputs]


@adapter
def similarities(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The Jaccard similarity of the words of each pair of texts."""
    return [_similarity(texts) for texts in inputs]


def _similarity(texts: list[str]) -> float:
    stage = {"threshold": 0.01, "ngram": 1, "permutations": 128, "bands": 128, "rows": 1}
    pairs = curation.fuzzy_dedup(frame_of(texts), details=True, **stage).pairs
    return float(pairs["similarity"].iloc[0]) if len(pairs) else 0.0


@adapter
def joined_groups(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The groups that pairs of documents join; a pair shares a word of its own."""
    return [_joined(settings, pairs) for pairs in inputs]


def _joined(settings: Settings, pairs: list[list[int]]) -> list[list[int]]:
    names = sorted({name for pair in pairs for name in pair})
    words: dict[int, set[str]] = {name: set() for name in names}
    for pair in pairs:
        for name in pair:
            words[name].add("with".join(map(str, sorted(pair))))
    texts = [" ".join(sorted(words[name])) for name in names]
    return [[names[row] for row in group] for group in duplicate_groups(settings, [texts])[0]]


@adapter
def bands_fit(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether the bands and rows for a threshold and a number of permutations need no more permutations."""
    found = [curation.FuzzyDedup(threshold=threshold, permutations=count).banding for threshold, count in inputs]
    return [
        bands > 0 and rows > 0 and bands * rows <= count
        for (bands, rows), (_, count) in zip(found, inputs, strict=True)
    ]


@adapter
def refused(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether each text is refused as the rules of a filter."""
    return [_is_refused([{"filter": {"rules": rules}}]) for rules in inputs]


def _is_refused(stages: list[Any]) -> bool:
    try:
        convert_recipe({"stages": stages})
    except CurationError:
        return True
    return False


@adapter
def duplicate_pairs(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Each removed row with the row that is kept for it."""
    found = [curation.exact_dedup(frame_of(texts), details=True).pairs for texts in inputs]
    return [pairs[["row", "kept_row"]].to_numpy().tolist() for pairs in found]


@adapter
def mixed(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The number of documents that `mix` draws from so many."""
    frames = [frame_of([{"text": f"text {row}", "source": "a"} for row in range(count)]) for count in inputs]
    return [len(after([{"mix": {"weights": {"a": 1.0}, **settings}}], frame)) for frame in frames]


@adapter
def columns_of_kept(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Columns of the rows that the stages keep, of cases with several rows each."""
    frames = [after(stages_of(settings), frame_of(rows)) for rows in inputs]
    return [{name: frame[name].tolist() for name in settings["columns"]} for frame in frames]


@adapter
def units_cut(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Of each text of a case, the share of lines, or of paragraphs, that a stage `lines` cuts."""
    return [[_share_cut(settings, text) for text in texts] for texts in inputs]


def _share_cut(settings: Settings, text: str) -> float:
    unit = settings["stages"][0]["lines"].get("unit", "line") + "s"
    before, after_ = (
        curation.measure(frame_of([found]), [unit])[unit][0] for found in (text, *texts(settings, [text]))
    )
    return float(1 - after_ / before)


@adapter
def formulas(settings: Settings, inputs: list[Any]) -> list[Any]:
    """As `measures`, for several formulas of each text."""
    found = [measures({"formula": formula}, inputs) for formula in settings["formulas"]]
    return [list(numbers) for numbers in zip(*found, strict=True)]
