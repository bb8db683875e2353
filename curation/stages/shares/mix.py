# SPDX-License-Identifier: Apache-2.0
"""`mix`: draw documents by weights or by a temperature, and repeat documents of groups that have too few. Or write
documents by a curve over their ranks in a column of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import save_array
from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.errors import InputError, RecipeError, counted, nearest
from curation.base.system.files import commit
from curation.base.system.terminal import aligned
from curation.stages.base import CorpusStage, Forecast, Function, Phase, Stage, StageSample
from curation.stages.corpus.keep_orders import as_strings
from curation.stages.corpus.key_ranges import read_cell, slice_group, slice_group_count, write_cells
from curation.stages.outcome import Corpus, Decision, Drops, StageCount
from curation.stages.shares.curve import check_curve, ends_of, names_of, size_of, steps_of
from curation.stages.shares.rank_bounds import GroupBounds, bounds_of, dropped_by, phases, reducers_of
from curation.stages.shares.select import (
    MISSING,
    NO_GROUP,
    SOURCE,
    numbers_at,
    numbers_in,
    order_of,
    seeded,
    source_numbers,
)
from curation.tokens.quotas import MAX_USEFUL_EPOCHS, apportion
from curation.tokens.temperature import check_temperature, tempered

if TYPE_CHECKING:
    from curation.tokens.tokenization import Tokenizer

ORDER, GROUP, TOKENS = "order", "group", "tokens"  # keys
COPIES = "copies"  # phase
REASONS = ("not_drawn", "no_weight")
MAX_COPIES = np.iinfo(np.uint16).max
MAX_GROUPS = 10_000  # with a temperature, since each task has a table of groups
COUNTED = ("documents", "tokens", "drawn_documents", "drawn_tokens", "copies", "most_copies")


class Mix(CorpusStage, frozen=True, kw_only=True, tag="mix"):
    """Draw documents by weights. If a group has too many documents, some are removed; if it has too few, its documents
    are repeated. With a curve, the rank of a document in a column determines how often it is written. It must be the
    last stage of a recipe.

    weights     name of a group -> its share of the result; divided by their sum. Documents of other groups are removed
    temperature in place of weights: the weight of every group is n^(1/temperature), n its number of documents, or of
                tokens with `tokens`. 1 draws by size, larger values make small and large groups more equal
    max_epochs  draw no document more often than this; what a group then lacks is drawn from the others, by their
                weights. 0: no limit
    by          the groups: `source` (inputs), or a column of strings or integers, such as `language`
    documents   number of documents to draw
    tokens      number of tokens to draw
    tokenizer   tokenizer that counts `tokens`, as in `tokenizer.name` of the recipe
    append_eod  count an end-of-document token per document
    seed        seed of the draw
    curve       in place of weights: `[[0.4, 0], [0.95, 1], [1.0, 7]]` removes the 40 % of the documents with the lowest
                numbers in `column`, and writes the highest 5 % seven times, the others once
    column      with a curve: column with the numbers, compared as float64
    per         with a curve: rank the documents of each `source` (input), or of each value of a column, such as
                `language`, separately; default: all documents together

    Give `documents` or `tokens`. Without both, as many documents are drawn as the weights allow without repeats. A
    group of n documents with a quota of q documents has each document floor(q / n) times. The q mod n documents with
    the highest hash of text and seed are drawn once more. With `tokens`, each group has its quota, or exceeds it by
    less than one document. Removed documents have the reason `not_drawn`, or `no_weight` if they have no group or their
    group has no weight. Raises InputError for a group of `weights` without documents.

    A piece of a curve ends at floor(share * n) of n ranked documents. If numbers are equal, later documents have lower
    ranks; documents without a number have the lowest. With 2.5 copies, m documents are written floor(2.5 m) times in
    all: each twice, and those of the highest ranks once more.
    """

    finds_duplicates: ClassVar[bool] = False
    function: ClassVar[Function] = Function(
        """Return rows drawn by weights: some rows of large groups, and rows of small groups several times. With
        `curve`, return rows as often as their rank in `column` says.

        Copies of a row follow it. On a Dask frame the call itself computes 16 to 24 bytes per row; the rows stay lazy.

            >>> frame = pandas.DataFrame({"text": ["a", "b", "c", "d"], "kind": ["web", "web", "web", "wiki"]})
            >>> curation.mix(frame, {"web": 0.5, "wiki": 0.5}, by="kind", documents=4)["kind"].tolist()
            ['web', 'web', 'wiki', 'wiki']

            >>> frame = pandas.DataFrame({"text": ["a", "b", "c", "d"], "quality": [0.2, 0.9, 0.1, 0.5]})
            >>> curation.mix(frame, curve=[[0.5, 0], [0.75, 1], [1, 2]], column="quality")["text"].tolist()
            ['b', 'b', 'd']

        Raises InputError for a group without rows, and for a curve over a column without numbers.
        """,
        second="weights",
        types={"curve": "Sequence[Sequence[float]]"},
    )

    weights: dict[str, float] = msgspec.field(default_factory=dict)
    temperature: float = 0
    max_epochs: int = 0
    by: str = SOURCE
    documents: int = 0
    tokens: int = 0
    tokenizer: str = "gpt2"
    append_eod: bool = True
    seed: int = 1234
    curve: tuple[tuple[float, float], ...] = ()
    column: str = ""
    per: str = ""

    def __post_init__(self) -> None:
        self._check_curve()
        if self.temperature:
            check_temperature("temperature", self.temperature)
        if not math.isfinite(self.temperature):
            raise ValueError(f"temperature must be finite, not {self.temperature}")
        if self.weights and self.temperature:
            raise ValueError("give weights or temperature, not both")
        if not (self.weights or self.temperature or self.curve):
            raise ValueError(
                "weights is empty; name groups, such as {wiki: 0.3, web: 0.7}, or give temperature or curve"
            )
        for name, weight in self.weights.items():
            if not (weight > 0 and math.isfinite(weight)):
                raise ValueError(
                    f"the weight of {name!r} must be above 0, not {weight}. To remove a group, leave it out"
                )
        if self.by in ("", TEXT, ID):
            raise ValueError(f"by must be source, or a column whose values repeat, not {self.by!r}")
        if not self.tokenizer:
            raise ValueError("tokenizer is empty; name one, such as gpt2")
        for field in ("documents", "tokens", "seed", "max_epochs"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must be 0 or more, not {getattr(self, field)}")
        if self.documents and self.tokens:
            raise ValueError(f"give documents or tokens, not both ({self.documents:,} and {self.tokens:,})")
        if self.max_epochs and not (self.documents or self.tokens):
            raise ValueError("max_epochs needs documents or tokens: without them no document is repeated")

    def _check_curve(self) -> None:
        """Raise ValueError for a wrong curve, and for settings that only go with a curve or never with one."""
        if not self.curve:
            for name in ("column", "per"):
                if getattr(self, name):
                    raise ValueError(f"{name} is for curve. Give curve, or leave {name} out")
            return
        check_curve(self.curve, MAX_COPIES)
        for name in ("weights", "temperature", "documents", "tokens", "max_epochs"):
            if getattr(self, name):
                raise ValueError(f"curve determines how often documents are written. Leave {name} out, or curve")
        if self.by != SOURCE:
            raise ValueError(f"by is for weights. To rank the documents of each {self.by}, give per: {self.by}")
        if self.column in ("", TEXT, ID):
            raise ValueError(f"curve needs column, the name of a column of numbers, not {self.column!r}")
        if self.per in (TEXT, ID, self.column):
            raise ValueError(f"per must be source, or a column other than {self.per!r} whose values repeat")

    @property
    def _names(self) -> list[str]:
        return list(self.weights)

    @property
    def _is_divided(self) -> bool:
        """Whether the documents of each value of a column are ranked separately, which may be many."""
        return self.per not in ("", SOURCE)

    @property
    def _bounds(self) -> int:
        """The number of ranks, in each group, that divide documents with different copies."""
        return max(len(steps_of(self.curve)) - 1, 1)

    @property
    def _is_found(self) -> bool:
        """Whether no setting names the groups, because they are all values of a column. The number of a group is then a
        hash of its value."""
        return bool(self.temperature) and self.by != SOURCE

    @property
    def unit(self) -> str:
        """The unit of the shares: `documents` or `tokens`."""
        return "tokens" if self.tokens else "documents"

    def reads(self) -> tuple[str, ...]:
        if self.curve:
            return (self.column, self.per) if self._is_divided else (self.column,)
        return () if self.by == SOURCE else (self.by,)

    def forecast(self, sample: StageSample) -> Forecast:
        if self.curve:
            return Forecast(size_of(self.curve))
        share = self._kept_share(sample.documents, sample.tokens, sample.groups)
        groups = self._group_sizes(sample.keys, sample.source) if sample.keys else {}
        return Forecast(kept_share=share, groups=groups, warnings=self._missing_groups(sample.groups))

    def _kept_share(self, documents: float, tokens: float, groups: Mapping[str, float]) -> float:
        found, wanted = (tokens, self.tokens) if self.tokens else (documents, self.documents)
        if not wanted and groups:
            scale = documents / sum(groups.values())
            names = self._names or groups
            sizes = [max(round(groups.get(name, 0) * scale), 1) for name in names]  # a sample may lack a group
            wanted = sum(apportion(self._shares_of(sizes), sizes, 0))
        share = wanted / found if wanted and found else 1.0
        return min(share, self.max_epochs or share)

    def _group_sizes(self, keys: Mapping[str, np.ndarray], source: str) -> dict[str, int]:
        if self.by == SOURCE:
            return {source: len(keys[ORDER])}
        if self._is_found:
            found, sizes = np.unique(keys[GROUP][keys[GROUP] != NO_GROUP], return_counts=True)
            return dict(zip(map(str, found.tolist()), sizes.tolist(), strict=True))
        counts = np.bincount(keys[GROUP].astype(np.int64), minlength=len(self.weights) + 1)
        return dict(zip([*self._names, ""], counts.tolist(), strict=True))

    def _missing_groups(self, groups: Mapping[str, float]) -> list[str]:
        """Return a warning about weights of groups that the sample lacks. Names of inputs need none, since `check` has
        tested them."""
        missing = [repr(name) for name in self._names if groups and self.by != SOURCE and not groups.get(name)]
        if not missing:
            return []
        return [
            f"{self.name or self.kind}: no sampled document has the {self.by} {' or '.join(missing)} of weights. A run "
            "that finds none is refused"
        ]

    def kernels(self) -> tuple[str, ...]:
        return ("hashes",) if self._is_divided or not self.curve else ()

    def files(self) -> dict[str, str]:
        if not self.tokens:
            return {}
        from curation.base.system.files import known_sha256
        from curation.tokens.vocabularies import vocabulary_files

        return {str(path): known_sha256(str(path)) for path in vocabulary_files(self.tokenizer) if path.is_file()}

    def check(self, inputs: Sequence[str]) -> None:
        if self.by == SOURCE and self._names:
            known = {*inputs}
            for name in self._names:
                if name not in known:
                    raise RecipeError(f"mix: weights has {name!r}, but no input has that name{nearest(name, inputs)}")
        if self.tokens:
            self._load_tokenizer()

    def check_order(self, earlier: Sequence[Stage]) -> None:
        """Raise RecipeError if `weights` names a value that the stage which writes the column `by` never writes."""
        values = next(
            (stage.column_facts(self.by).values for stage in reversed(earlier) if self.by in stage.writes()), ()
        )
        known = {*values}
        for name in self._names if values else ():
            if name not in known:
                raise RecipeError(f"mix: weights has {name!r}, but no {self.by} has that name{nearest(name, values)}")

    def _load_tokenizer(self) -> Tokenizer:
        from curation.tokens.tokenization import TokenizerSpec, load_tokenizer

        return load_tokenizer(TokenizerSpec(name=self.tokenizer, append_eod=self.append_eod))

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        if self.curve:
            return self._ranked_keys(engine, frame)
        keys = {ORDER: seeded(engine.hash_text(frame[TEXT])[:, 0], self.seed)}
        if self._is_found:
            keys[GROUP] = _hashes(engine, frame, self.by)
        elif self.by != SOURCE:
            values = as_strings(engine.to_arrow(frame[[self.by]]).column(0), self.by)
            places = pc.index_in(values, value_set=pa.array(self._names, pa.large_string()))
            keys[GROUP] = pc.fill_null(places, len(self.weights)).to_numpy().astype(np.uint64)
        if self.tokens:
            keys[TOKENS] = engine.tokenize(frame[TEXT], self._load_tokenizer())[1].astype(np.int64)
        return keys

    def _ranked_keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        numbers = numbers_in(engine.to_arrow(frame[[self.column]]).column(0), self.column, self.kind)
        keys = {ORDER: order_of(numbers, descending=False)}
        return keys | ({GROUP: _hashes(engine, frame, self.per)} if self._is_divided else {})

    def phases(self) -> Sequence[Phase]:
        if self.curve:
            *steps, _ = phases(self._keys_of, self._ends, self._is_divided, self._bounds)
        else:
            *steps, _ = phases(self._keys_of, self._lowest, divided=False)
        return (*steps, Phase(COPIES, slice_group_count, self._count_copies, durable=True))

    def _keys_of(self, part: Corpus) -> tuple[np.ndarray, ...]:
        """Return for each row of a corpus its group, its order and, with `tokens`, its number of tokens."""
        return self._groups_of(part), part.column(ORDER), *([part.column(TOKENS)] if self.tokens else [])

    def _groups_of(self, part: Corpus) -> np.ndarray:
        if self.curve and not self.per:
            return np.zeros(len(part.rows), np.uint64)
        if self._is_divided:
            return part.column(GROUP)
        return source_numbers(part, self._names_in(part)) if self.by == SOURCE else part.column(GROUP)

    def _names_in(self, corpus: Corpus) -> list[str]:
        """Return the names of the groups: of `weights`, or of the inputs."""
        return self._names or list(dict.fromkeys(name for name, _, _ in corpus.sources))

    def _without_weight(self, group: np.ndarray) -> np.ndarray:
        """Return whether each of `group` has no weight (bool), so that its rows are never drawn."""
        if self.curve:
            return np.zeros(len(group), bool)
        if self.temperature:
            return (group == NO_GROUP) & self._is_found
        return group == len(self.weights)

    def _lowest(self, groups: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return for each group how many of its documents or tokens are drawn floor(q / n) times, not once more. q is
        its quota, n its size."""
        quotas = self._quotas(groups, sizes)
        return np.array(
            [size - quota % max(size, 1) for size, quota in zip(sizes.tolist(), quotas, strict=True)], np.int64
        )

    def _ends(self, groups: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return for each group the ranks at which other copies begin, shape (groups, bounds)."""
        ends = [ends_of(self.curve, size)[: self._bounds] for size in sizes.tolist()]
        return np.array(ends, np.int64).reshape(len(sizes), self._bounds)

    def _quotas(self, groups: np.ndarray, sizes: np.ndarray) -> list[int]:
        """Return the number of documents or tokens to draw from each group. Raises InputError for a group of `weights`
        without documents, for too many groups, and for too many repeats."""
        found = dict(zip(groups.tolist(), sizes.tolist(), strict=True))
        if not found:
            return []
        for number, name in enumerate(self._names):
            if not found.get(number):
                what = "input" if self.by == SOURCE else self.by
                raise InputError(
                    f"mix: no {self.unit} of {what} {name!r} reach the stage. Correct weights, or leave the group out"
                )
        if self.temperature and len(found) > MAX_GROUPS:
            raise InputError(
                f"mix: {self.by} has {len(found):,} different values, and a temperature is for at most {MAX_GROUPS:,} "
                "groups, such as languages. Give weights, or another column"
            )
        drawn = np.flatnonzero(~self._without_weight(groups)).tolist()
        counts = [int(sizes[place]) for place in drawn]
        shares, total = self._shares_of(counts), getattr(self, self.unit)
        quotas = apportion(shares, counts, total, self.max_epochs) if any(shares) else [0] * len(drawn)
        for place, quota, count in zip(drawn, quotas, counts, strict=True):
            if quota > MAX_COPIES * count:
                name = repr(self._names[place]) if self.weights else "a group"
                raise InputError(
                    f"mix: {name} has {count:,} {self.unit} for a quota of {quota:,}, which repeats each more than "
                    f"{MAX_COPIES:,} times. Lower its weight, or {self.unit}, or set max_epochs"
                )
        of = dict(zip(drawn, quotas, strict=True))
        return [of.get(place, 0) for place in range(len(groups))]

    def _shares_of(self, sizes: Sequence[int]) -> list[Fraction]:
        """Return the weights of groups with these sizes, as exact numbers."""
        if self.temperature:
            return [Fraction(weight) for weight in tempered(sizes, self.temperature)]
        return [Fraction(repr(float(weight))) for weight in self.weights.values()]

    def _count_copies(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write how often each row of a group of slices is drawn (uint16), the counts of each group, or of each piece
        of a curve, and for a curve the number of rows without a number."""
        found = self._keys_of(slice_group(corpus, task))
        rows, place, copies = self._ranked(corpus, task, found) if self.curve else self._drawn(corpus, task, found)
        tokens = found[2] if self.tokens else np.zeros(len(place), np.int64)
        table = np.zeros((rows, len(COUNTED)), np.int64)
        drawn = (copies > 0).astype(np.int64)
        for index, values in enumerate((np.ones_like(tokens), tokens, copies, copies * tokens, copies - drawn)):
            np.add.at(table[:, index], place, values)
        np.maximum.at(table[:, -1], place, copies)
        missing = np.array([np.count_nonzero(found[1] == MISSING) if self.curve else 0], np.int64)
        write_cells(corpus.scratch / COPIES / f"{task:06d}.bin", [[copies.astype(np.uint16)], [table], [missing]], 3)

    def _drawn(self, corpus: Corpus, task: int, found: tuple[np.ndarray, ...]) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the number of groups, and the group and the copies of each row of a group of slices."""
        bounds = bounds_of(corpus, divided=False)
        place = np.searchsorted(bounds.group, found[0])
        quotas = self._quotas(bounds.group, bounds.documents)
        pairs = zip(quotas, bounds.documents.tolist(), strict=True)
        full = np.array([quota // max(size, 1) for quota, size in pairs], np.int64)
        high = (dropped_by(corpus, task, found) == 0) & ~self._without_weight(found[0])
        if self.tokens:
            high &= found[2] > 0
        return len(full), place, full[place] + high

    def _ranked(self, corpus: Corpus, task: int, found: tuple[np.ndarray, ...]) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the number of pieces, and the piece and the copies of each row of a group of slices."""
        steps = np.array(steps_of(self.curve), np.int64)
        above = dropped_by(corpus, task, found, reducers_of(self._is_divided), self._bounds)
        piece, copies = steps[len(steps) - 1 - np.minimum(above, len(steps) - 1)].T
        return len(self.curve), piece, copies

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        tables, dropped = [], []
        path = corpus.scratch / "copies.npy"
        pieces = [corpus.scratch / COPIES / f"{task:06d}.bin" for task in range(slice_group_count(corpus))]
        copies = np.concatenate([np.frombuffer(read_cell(piece, 0), np.uint16) for piece in pieces])
        with commit(path) as temporary:
            save_array(temporary, copies)
        tables = [np.frombuffer(read_cell(piece, 1), np.int64).reshape(-1, len(COUNTED)) for piece in pieces]
        total = np.sum(tables, axis=0)
        total[:, -1] = np.max([table[:, -1] for table in tables], axis=0)
        out = np.flatnonzero(copies == 0)
        if self.curve:
            missing = sum(int(np.frombuffer(read_cell(piece, 2), np.int64)[0]) for piece in pieces)
            if missing and missing == len(copies):
                raise InputError(f"column {self.column!r} has no number in any of {counted(missing, 'document')}")
            numbers = numbers_at(corpus.column(ORDER, out), descending=False)
            drops = Drops(corpus.rows[out], REASONS[0], numbers, -1)
            return Decision((drops,), details=self._pieces(corpus, total, missing), copies=copies)
        weightless = self._without_weight(self._groups_of(corpus.select(out)))
        for reason, rows in zip(REASONS, (out[~weightless], out[weightless]), strict=True):
            dropped.append(Drops(corpus.rows[rows], reason, math.nan, -1))
        return Decision(tuple(dropped), details=self._details(corpus, total), copies=copies)

    def _pieces(self, corpus: Corpus, table: np.ndarray, missing: int) -> dict[str, Any]:
        """Return the counts of the pieces of the curve and, if all documents are ranked together, the highest number of
        each piece but the last."""
        pieces: list[dict[str, Any]] = [
            {"name": name, **dict(zip(COUNTED, row, strict=True))}
            for name, row in zip(names_of(self.curve), table.tolist(), strict=True)
        ]
        bounds = bounds_of(corpus, self._is_divided, self._bounds)
        if not self.per and len(bounds.group):
            limits = numbers_at(bounds.bound[0], descending=False).tolist()
            last = [step.piece for step in steps_of(self.curve)]
            for step, (limit, dropped) in enumerate(zip(limits, bounds.dropped[0].tolist(), strict=True)):
                if dropped and math.isfinite(limit) and last[step] < len(pieces) - 1:
                    pieces[last[step]]["bound"] = limit
        return {"by": self.column, "unit": "documents", "groups": pieces, "missing": 0, "without_number": missing}

    def _details(self, corpus: Corpus, table: np.ndarray) -> dict[str, Any]:
        bounds = bounds_of(corpus, divided=False)
        groups = [
            {"name": name, **dict(zip(COUNTED, row, strict=True))}
            for name, row in zip(self._group_names(corpus, bounds), table.tolist(), strict=True)
        ]
        if self.temperature:
            groups.sort(key=lambda group: (-group[self.unit], group["name"]))
        missing = getattr(self, self.unit) - sum(self._quotas(bounds.group, bounds.documents)) if groups else 0
        return {"by": self.by, "unit": self.unit, "groups": groups, "missing": max(missing, 0)}

    def _group_names(self, corpus: Corpus, bounds: GroupBounds) -> list[str]:
        """Return the name of each group that has documents; "" for groups without a weight."""
        if not self._is_found:
            names = [*self._names_in(corpus), ""]
            return [names[number] for number in bounds.group.tolist()]
        order = np.argsort(bounds.first)
        places = np.searchsorted(corpus.rows, bounds.first[order].astype(corpus.rows.dtype))
        values = [value for read in corpus.texts(places, self.by) for value in as_strings(read(), self.by).to_pylist()]
        return [value or "" for _, value in sorted(zip(order.tolist(), values, strict=True))]

    def explain(self) -> list[str]:
        if self.curve:
            copies = [
                f"{name} {number:g} times" for name, (_, number) in zip(names_of(self.curve), self.curve, strict=True)
            ]
            of_each = f" of each {'input' if self.per == SOURCE else self.per}" if self.per else ""
            return [f"documents{of_each} from the lowest to the highest {self.column}: {', '.join(copies)}"]
        total = sum(self.weights.values())
        size = f"{getattr(self, self.unit):,} {self.unit}" if self.documents or self.tokens else "as many as possible"
        shares = ", ".join(f"{name} {weight / total:.2%}" for name, weight in self.weights.items())
        epochs = f"; each at most {self.max_epochs} times" if self.max_epochs else ""
        return [f"{size} by {self.by}: {shares or f'{self.unit}^(1/{self.temperature:g}) of each group'}{epochs}"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return a table of the groups: documents, or tokens, and their shares before and after."""
        unit = count.details["unit"]
        drawn = f"drawn_{unit}"
        groups = count.details["groups"]
        before, after = (max(sum(group[key] for group in groups), 1) for key in (unit, drawn))
        rows: list[tuple[str, ...]] = [(count.details["by"], unit, "share", "drawn", "share", "copies", "at most")]
        for group in groups:
            shares = [f"{group[unit] / before:.2%}", f"{group[drawn] / after:.2%}"]
            name = group["name"] or "(no weight)"
            name += f", <= {group['bound']:.6g}" if "bound" in group else ""
            row = [name, f"{group[unit]:,}", shares[0], f"{group[drawn]:,}", shares[1]]
            rows.append((*row, f"{group['copies']:,}", f"{group['most_copies']}x"))
        missing = count.details.get("without_number", 0)
        return [
            *aligned(rows),
            *([f"{counted(missing, 'document')} without a number ranked lowest"] if missing else []),
        ]

    def warnings(self, count: StageCount) -> list[str]:
        """Return a warning for each group whose documents are repeated more than 4 times, and one if the mixture is
        smaller than asked for."""
        unit, missing = count.details["unit"], count.details["missing"]
        remedy = "its copies in curve" if self.curve else f"its weight, or the number of {unit}"
        repeated = [
            f"{count.name}: documents of {group['name']!r} are repeated up to {group['most_copies']} times. Above "
            f"{MAX_USEFUL_EPOCHS} repeats teach a model little (Muennighoff et al. 2023). Lower {remedy}"
            for group in count.details["groups"]
            if group["most_copies"] > MAX_USEFUL_EPOCHS
        ]
        smaller = f"{count.name}: the mixture has {missing:,} {unit} fewer than asked for: all groups are repeated "
        return repeated + (
            [f"{smaller}max_epochs ({self.max_epochs}) times. Raise it, or lower {unit}"] if missing else []
        )


def _hashes(engine: Engine, frame: Frame, column: str) -> np.ndarray:
    """Return a hash of each value of a column, which is the number of its group (uint64)."""
    values = as_strings(engine.to_arrow(frame[[column]]).column(0), column)
    return engine.hash_text(engine.from_arrow(pa.table({TEXT: values}))[TEXT])[:, 0]
