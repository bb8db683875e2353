# SPDX-License-Identifier: Apache-2.0
"""Weights of the pairs of a run, and the files in `tokens/_meta/` that give them to Megatron and NeMo.

The files have a separate folder, since Megatron's merge tool and AutoModel's glob fail on any other file next to the
pairs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from curation.base.errors import OutputError, counted
from curation.base.system.files import as_json, commit
from curation.tokens.blend_phases import BlendPhase, PhaseDraw, check_phases, draw_phases, epochs_of, phase_rows
from curation.tokens.megatron import TrainingPair
from curation.tokens.ordering import SPLITS
from curation.tokens.temperature import UNITS, check_temperature, tempered

WAYS = ("given", "tokens", "temperature")
NAMES = ("text", "document")
META = "tokens/_meta"
DEFAULT_SEED = 1234  # --seed of Megatron
INDEX_FOLDER = "index_mapping"  # in the run's folder, not in tokens/: the manifest names every file there


class Blend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weight of each input in training. The pairs of an input divide its weight by their tokens.

    by           rule for an input's weight. `given`: its `blend_weight`; its tokens if no input has one. `tokens`:
                 tokens x `blend_weight`. `temperature`: tokens^(1/temperature) x `blend_weight`. The last two take 1
                 for a missing `blend_weight`. Megatron divides weights by their sum
    temperature  above 0. With 1, weights are proportional to size; larger values make small and large inputs more
                 equal. Only with `by: temperature`
    phases       phases of training, in their order: each has a blend file of its own
    max_epochs   draw no input more often than this over all phases; what a phase then lacks is drawn from its other
                 inputs, by their weights. The last phase is filled first. 0: no limit
    """

    by: str = "given"
    temperature: float = 1.0
    phases: tuple[BlendPhase, ...] = ()
    max_epochs: int = 0

    def __post_init__(self) -> None:
        if self.by not in WAYS:
            raise ValueError(f"blend.by must be one of {', '.join(WAYS)}, not {self.by!r}")
        check_temperature("blend.temperature", self.temperature)
        if self.temperature != 1 and self.by != "temperature":
            raise ValueError(
                f"blend.temperature is {self.temperature}, but blend.by is {self.by}. Set blend.by: temperature, or "
                "leave temperature out"
            )
        check_phases(self.phases, self.max_epochs)


class Megatron(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `nemo.yaml`, of the lines to paste, and of the names of the pairs. The content of the pairs does not
    depend on these settings.

    seq_length     tokens of a training sample
    splits_string  shares of train, valid and test in Megatron's own split, which cuts the documents into ranges in file
                   order. Ignored with `output.splits`
    names          names of the pairs. `text`: `INPUT_SPLIT_00000_text_document`. `document`: `train_document`,
                   `valid_document`, with INPUT before it in a run with several inputs or without `output.splits`; a
                   second pair is `train_00001_document`
    """

    seq_length: int = 4096
    splits_string: str = "98,1,1"
    names: str = NAMES[0]

    def __post_init__(self) -> None:
        if self.seq_length < 1:
            raise ValueError(f"megatron.seq_length must be at least 1, not {self.seq_length}")
        if self.names not in NAMES:
            raise ValueError(f"megatron.names must be {' or '.join(NAMES)}, not {self.names!r}")
        try:
            shares = [float(share) for share in self.splits_string.split(",")]
        except ValueError:
            shares = []
        if len(shares) != 3 or not all(map(math.isfinite, shares)) or min(shares) < 0 or not shares[0]:
            raise ValueError(f"megatron.splits_string must be three numbers as in 98,1,1, not {self.splits_string!r}")


class Weighted(msgspec.Struct, frozen=True):
    """A pair's prefix and its weight (six significant digits), as the files in `tokens/_meta/` spell them."""

    weight: str
    prefix: str


def check_folder(folder: Path) -> None:
    """Raise OutputError for white space in the output path: Megatron splits `blend.txt` at white space."""
    if any(character.isspace() for character in str(folder)):
        raise OutputError(
            f"the path {str(folder)!r} has white space, at which Megatron splits blend.txt (--data-args-path). Give an "
            "--output without white space"
        )


def weigh(pairs: Sequence[TrainingPair], weights: Mapping[str, float], blend: Blend) -> list[Weighted]:
    """Return the pairs of one split with their weights. Megatron divides weights by their sum.

    weights  input name -> `blend_weight`, for each input that has one
    blend    rule for the weights
    """
    sizes: dict[str, int] = {}
    for pair in pairs:
        sizes[pair.source] = sizes.get(pair.source, 0) + pair.info.tokens
    by_tokens = {"given": not weights, "tokens": True, "temperature": blend.temperature == 1}[blend.by]
    powers = tempered([*sizes.values()], blend.temperature) if blend.by == "temperature" else [UNITS] * len(sizes)
    of_token = {
        source: 1.0 if by_tokens else power / (UNITS * size)
        for (source, size), power in zip(sizes.items(), powers, strict=True)
    }
    pair_weights = [pair.info.tokens * weights.get(pair.source, 1.0) * of_token[pair.source] for pair in pairs]
    scale = 1.0 if by_tokens else sum(pair_weights)
    return [
        Weighted(f"{weight / scale:.6g}", pair.info.prefix) for weight, pair in zip(pair_weights, pairs, strict=True)
    ]


def train_sizes(pairs: Sequence[TrainingPair]) -> dict[str, int]:
    """Return input -> tokens of its pairs of the split train, or of all pairs without splits."""
    sizes: dict[str, int] = {}
    for pair in pairs:
        if pair.split in ("", SPLITS[0]):
            sizes[pair.source] = sizes.get(pair.source, 0) + pair.info.tokens
    return sizes


def blend_phases(pairs: Sequence[TrainingPair], weights: Mapping[str, float], blend: Blend) -> list[PhaseDraw]:
    """Return the tokens that each phase of `blend` draws from the split train, or from all pairs without splits.

    weights  input name -> `blend_weight`, for each input that has one
    """
    train = [pair for pair in pairs if pair.split in ("", SPLITS[0])]
    given: dict[str, Fraction] = {}
    for pair, weighted in zip(train, weigh(train, weights, blend), strict=True):
        given[pair.source] = given.get(pair.source, Fraction(0)) + Fraction(weighted.weight)
    return draw_phases(blend.phases, blend.max_epochs, train_sizes(pairs), given)


def flat(weighted: Sequence[Weighted]) -> list[str]:
    """Return [weight, prefix, weight, prefix, ...], the form of a blend in Megatron and NeMo."""
    return [text for pair in weighted for text in (pair.weight, pair.prefix)]


def meta_files(
    folder: Path, manifest: dict[str, Any], pairs: Sequence[TrainingPair], weights: Mapping[str, float],
    settings: tuple[Blend, Megatron],
) -> dict[str, bytes]:  # fmt: skip
    """Return name -> content of the files in `tokens/_meta/`.

    `manifest.json`, `blend.txt` (with splits: the train split), `nemo.yaml`, `README.txt` with the lines to paste, and
    with splits `per_split.json`. With phases, `phases.json`, and the blend of each phase in files of the same forms.

    folder   absolute path of the run
    weights  input name -> `blend_weight`, for each input that has one
    """
    blend, megatron = settings
    names = [name for name in SPLITS if any(pair.split == name for pair in pairs)] or [""]
    by_split = {name: weigh([pair for pair in pairs if pair.split == name], weights, blend) for name in names}
    files = {"manifest.json": as_json(manifest, indent=True)}
    texts = {
        "blend.txt": "".join(f"{pair.weight} {pair.prefix}\n" for pair in by_split[names[0]]),
        "nemo.yaml": _nemo_yaml(folder, by_split, megatron),
        "README.txt": _readme(folder, by_split, pairs, megatron),
    }
    if names != [""]:
        files["per_split.json"] = _per_split(by_split)
    draws, sizes = blend_phases(pairs, weights, blend), train_sizes(pairs)
    for number, draw in enumerate(draws, 1):
        train = _weighted_by(draw, [pair for pair in pairs if pair.split == names[0]], sizes)
        texts[f"{_phase_stem('blend', number, draw)}.txt"] = "".join(f"{pair.weight} {pair.prefix}\n" for pair in train)
        if names != [""]:
            files[f"{_phase_stem('per_split', number, draw)}.json"] = _per_split(by_split | {names[0]: train})
    if draws:
        shown = {"max_epochs": blend.max_epochs, "epochs": epochs_of(draws, sizes), "phases": phase_rows(draws, sizes)}
        files["phases.json"] = as_json(shown, indent=True)
        texts["README.txt"] += _phase_lines(folder, draws, names != [""], megatron)
    return files | {name: text.encode() for name, text in texts.items()}


def _per_split(by_split: Mapping[str, Sequence[Weighted]]) -> bytes:
    content = {name: flat(by_split[name]) if name in by_split else None for name in SPLITS}
    return as_json(content, indent=True)


def _phase_stem(kind: str, number: int, draw: PhaseDraw) -> str:
    return f"{kind}_{number}_{draw.phase.name}"


def _weighted_by(draw: PhaseDraw, pairs: Sequence[TrainingPair], sizes: Mapping[str, int]) -> list[Weighted]:
    """Return the pairs of the inputs that a phase draws, with their shares of its tokens."""
    total = sum(draw.tokens.values())
    drawn = [(pair, draw.tokens.get(pair.source, 0)) for pair in pairs]
    return [
        Weighted(f"{tokens * pair.info.tokens / (sizes[pair.source] * total):.6g}", pair.info.prefix)
        for pair, tokens in drawn
        if tokens
    ]


def _phase_lines(folder: Path, draws: Sequence[PhaseDraw], has_splits: bool, megatron: Megatron) -> str:
    """Return the lines of `README.txt` about phases: what to give Megatron-LM for each."""
    lines = ["", "Megatron-LM, phase by phase. Another --seed for each phase: with the same one, phases may begin with"]
    lines += ["the same documents of an input."]
    for number, draw in enumerate(draws, 1):
        length, tokens = draw.phase.seq_length or megatron.seq_length, sum(draw.tokens.values())
        stem = _phase_stem("per_split" if has_splits else "blend", number, draw)
        files = (
            f"--per-split-data-args-path {folder / META / stem}.json"
            if has_splits
            else f"--data-args-path {folder / META / stem}.txt --split {megatron.splits_string}"
        )
        lines += [
            f"  {draw.phase.name}: {counted(tokens, 'token')}, {counted(tokens // length, 'sample')}",
            f"  {files} --seq-length {length} --seed {DEFAULT_SEED + number - 1} "
            f"--data-cache-path {folder / INDEX_FOLDER}",
        ]
    return "\n".join(lines) + "\n"


def write_meta(folder: Path, files: Mapping[str, bytes]) -> dict[str, str]:
    """Write the files of `meta_files` into a run's folder and return path -> SHA-256."""
    for name, data in files.items():
        with commit(folder / META / name) as path:
            path.write_bytes(data)
    return {f"{META}/{name}": hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _three_splits(by_split: Mapping[str, list[Weighted]]) -> dict[str, list[str]]:
    """Return train, validation and test: NeMo needs all three. If valid or test is missing, the other of the two is
    used for both."""
    held_out = {"validation": by_split.get("valid"), "test": by_split.get("test")}
    present = [split for split in held_out.values() if split]
    return {"train": flat(by_split["train"])} | {name: flat(split or present[0]) for name, split in held_out.items()}


def _nemo_yaml(folder: Path, by_split: Mapping[str, list[Weighted]], megatron: Megatron) -> str:
    import yaml

    prefix: Any
    if "" in by_split:
        prefix = _with_numbers(flat(by_split[""]))
    else:
        prefix = {name: _with_numbers(blend) for name, blend in _three_splits(by_split).items()}
    data = {
        "data_impl": "mmap",
        "data_prefix": prefix,
        "index_mapping_dir": str(folder / INDEX_FOLDER),
        "splits_string": megatron.splits_string if "" in by_split else None,
        "seq_length": megatron.seq_length,
        "skip_warmup": True,
    }
    return yaml.safe_dump({"model": {"data": data}}, sort_keys=False, allow_unicode=True, width=10_000)


def _with_numbers(blend: list[str]) -> list[str | float]:
    return [text if number % 2 else float(text) for number, text in enumerate(blend)]


def _readme(
    folder: Path, by_split: Mapping[str, list[Weighted]], pairs: Sequence[TrainingPair], megatron: Megatron
) -> str:
    """Return `README.txt`: the lines to paste for each trainer."""
    meta, cache, length = folder / META, folder / INDEX_FOLDER, megatron.seq_length
    if "" in by_split:
        core = f"--data-args-path {meta / 'blend.txt'} --split {megatron.splits_string}"
        bridge = f"blend={_tuple(by_split[''])}, split={megatron.splits_string!r}"
        nemo = f"paths={flat(by_split[''])!r}, split={megatron.splits_string!r}"
    else:
        core = f"--per-split-data-args-path {meta / 'per_split.json'}"
        splits = ", ".join(_tuple(by_split[name]) if name in by_split else "None" for name in SPLITS)
        bridge = f"blend_per_split=[{splits}]"
        nemo = f"paths={_three_splits(by_split)!r}"
    lines = [
        "Megatron-LM",
        f"  {core} --seq-length {length} --data-cache-path {cache}",
        "",
        "Megatron Bridge",
        f"  GPTDatasetConfig({bridge}, sequence_length={length}, path_to_cache={str(cache)!r}, ...)",
        "",
        "NeMo 2.0",
        f"  PreTrainingDataModule({nemo}, seq_length={length}, index_mapping_dir={str(cache)!r}, ...)",
        "",
        "NeMo 1",
        f"  the section model.data of {meta / 'nemo.yaml'}",
        "",
        *(
            f"The lines for NeMo have the pairs of {other} twice: NeMo needs three splits, and there is no {name}.\n"
            for name, other in (("valid", "test"), ("test", "valid"))
            if other in by_split and name not in by_split
        ),
        *(f"{warning}.\n" for warning in small_pairs(pairs, megatron)),
    ]
    return "\n".join(lines)


def _tuple(weighted: Sequence[Weighted]) -> str:
    weights = ", ".join(pair.weight for pair in weighted)
    return f"({[pair.prefix for pair in weighted]!r}, [{weights}])"


def small_pairs(pairs: Sequence[TrainingPair], megatron: Megatron) -> list[str]:
    """Return a warning, at most one, about pairs with too few documents for `megatron.splits_string`.

    Pairs of `output.splits` get no warning: Megatron does not split them.
    """
    shares = [float(share) for share in megatron.splits_string.split(",")]
    small = [pair for pair in pairs if not pair.split and not all(documents_per_split(pair.info.documents, shares))]
    if not small:
        return []
    named = f"{Path(small[0].info.prefix).name} has {counted(small[0].info.documents, 'document')}"
    others = f", and {len(small) - 1:,} more pairs have too few" if len(small) > 1 else ""
    return [
        f"{named}{others}: with --split {megatron.splits_string} a split gets none, and Megatron waits forever. Set "
        'output.splits, or megatron.splits_string: "1,0,0"'
    ]


def documents_per_split(documents: int, shares: Sequence[float]) -> list[int]:
    """Return the documents that Megatron's own split gives to each split with a share above 0.

    Megatron rounds the ends of the ranges. Source: `blended_megatron_dataset_builder.py` in megatron-core.
    """
    ends = [round(sum(shares[: number + 1]) / sum(shares) * documents) for number in range(len(shares))]
    counts = [high - low for low, high in zip([0, *ends], ends, strict=False)]
    return [count for count, share in zip(counts, shares, strict=True) if share]
