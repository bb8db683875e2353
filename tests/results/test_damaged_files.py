# SPDX-License-Identifier: Apache-2.0
"""Damaged files of a run: every command that reads one gives its result, or one message that names a file of the run.

The commands come from `GROUPS`, the files from a run with every kind of output: a new one of either must be added here.
A changed value inside a page of Parquet may fit everything that readers check. `verify` alone must find it.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson
import pytest
import yaml

from curation.base.system.files import as_json
from curation.base.system.sealed import sealed, unsealed
from curation.cli.groups import GROUPS
from curation.cli.main import main
from curation.recipes.recipe import as_builtins
from curation.record.finished_report import digest
from curation.record.report_schema import OUTPUT_NAMES
from curation.running.run import run
from curation.tokens.samples import SAMPLE_FILES
from tests.models.tiny_files import WORDS, write_static
from tests.runs import STAGES, files_below, made_texts, recipe_of, records_of

LINE = "It is a line of a page."
WRITTEN_AGAIN = ("report.json", "report.html", *(f"tokens/_meta/{name}" for name in
                 ("README.txt", "blend.txt", "manifest.json", "nemo.yaml")))  # fmt: skip
SHARES = 4  # of the walk over all files
FAILED = 1  # the exit code for damage; `check-overlap` has it for items that it finds, too


class Place(NamedTuple):
    """The folder of a sound run, and a copy for damage."""

    folder: Path

    @property
    def sound(self) -> Path:
        return self.folder / "sound"

    @property
    def copy(self) -> Path:
        return self.folder / "copy"

    def recipe(self, name: str, stages: list[Any], **rest: Any) -> Any:
        """A recipe on the input, which is also written to `<name>.yaml`."""
        recipe = recipe_of({"path": str(self.folder / "in.jsonl"), "name": "web"}, stages=stages, **rest)
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(as_builtins(recipe)))
        return recipe


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A run with every kind of output, and recipes that read its indexes, centroids and scores."""
    made = Place(tmp_path_factory.mktemp("damaged"))
    model = str(write_static(made.folder / "model"))
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS[14:], k=chance.randrange(40, 60))) + f" {k}." for k in range(12)]
    texts += [texts[0], f"{texts[1]} more", "short", f"{LINE}\n{texts[2]}\n{LINE}", f"{LINE}\n{texts[3].upper()}"]
    (made.folder / "in.jsonl").write_bytes(records_of(texts) + b"no json\n")
    (made.folder / "quiz.jsonl").write_bytes(records_of([texts[5]]))
    embed = {"kind": "embed", "model": model}
    first = [{"kind": "rewrite", "lowercase": True}, {"kind": "filter", "rules": [{"measure": "words", "min": 5}]}]
    indexed = [
        {"kind": "exact_dedup"}, {"kind": "line_dedup"}, {"kind": "substring_dedup"},
        {"kind": "fuzzy_dedup", "threshold": 0.6, "bands": 4, "rows": 2}, embed,
        {"kind": "semantic_dedup", "threshold": 0.999, "clusters": "auto" if find_spec("sklearn") else 1},
    ]  # fmt: skip
    output = {
        "formats": ["megatron", "token_shards", "blocks", "chunks", "packed", "mds", "litdata"],
        "token_shards": {"layout": "datatrove"}, "blocks": {"length": 16, "file_type": "auto"},
        "chunks": {"length": 32, "min_tokens": 2}, "packed": {"length": 64}, "mds": {"length": 16},
        "litdata": {"length": 16}, "measures": True, "index": True, "raw": "jsonl", "cleaned": "csv",
        "export_columns": ["id", "text"], "sample": {"batches": 1, "batch_size": 2}, "part_documents": 8,
        "shuffle": True,
    }  # fmt: skip
    run(made.recipe("all", [*first, *indexed], output=output), made.sound, engine="cpu", workers=1, progress=False)
    none = {"output": {"formats": []}}
    for stage in indexed:
        if stage is not embed:
            own = [*([embed] if stage["kind"] == "semantic_dedup" else []), stage | {"index": str(made.copy / "index")}]
            made.recipe(f"index-{stage['kind']}", [first[0], *own], **none)
    centroids = {"kind": "assign_clusters", "centroids": str(made.copy / "centroids" / "stage-8.npz")}
    made.recipe("centroids", [first[0], embed, centroids], **none)
    made.recipe("reuse", [*first, embed], **none)
    shutil.copytree(made.sound, made.copy)
    return made


def commands(place: Place) -> Iterator[list[str]]:
    """All ways in which a command reads a run."""
    folder, sound, base = str(place.copy), str(place.sound), place.folder
    cpu = ["--engine", "cpu", "--workers", "1"]
    for what in ("removed", "kept", "rejected", "edited", "pairs"):
        yield ["show", folder, "--what", what]
    yield ["show", folder, "--what", "kept", "--where", "source=web"]
    yield ["show", folder, "--where", "words: {min: 1}", "--log", "json"]
    yield ["compare", folder, sound]
    yield ["compare", sound, folder, "--log", "json"]
    yield ["verify", folder]
    yield ["check-loader", folder, "--length", "16"]
    yield ["tokens", folder]
    yield ["plan", f"{base}/all.yaml", "--measures", folder]
    pair = f"{folder}/tokens/web_00000_text_document"
    quiz = ["--test", f"{base}/quiz.jsonl"]
    for train in (["--train", folder], ["--train", folder, "--model", f"{base}/model"], ["--train", pair]):
        yield ["check-overlap", *train, *quiz, *cpu]
    yield ["check-overlap", "--spans", f"{folder}/index", *quiz, *cpu]
    yield ["inspect", pair, "--source-of", "0"]
    yield ["merge", pair, "--output", f"{base}/new/merged"]
    yield ["split", pair, "--output", f"{base}/new/part", "--max-bytes", "500"]
    yield ["run", f"{base}/all.yaml", "--output", folder, *cpu]
    yield ["run", f"{base}/reuse.yaml", "--output", f"{base}/new", "--reuse", folder, *cpu]
    for path in sorted(base.glob("index-*.yaml")):
        yield ["run", str(path), "--output", f"{base}/new", *cpu]
    yield ["run", f"{base}/centroids.yaml", "--output", f"{base}/new", *cpu]
    if find_spec("huggingface_hub"):
        for what in ("documents", "tokens", "all"):
            yield ["push", "--dry-run", folder, "owner/name", "--what", what]
    for name in files_below(place.sound):
        has_tokens = name.endswith((".idx", ".mds", "_00000.npy", "_00000.pt", ".ids.npy", "-0.bin", ".ds"))
        if (has_tokens and not name.startswith("index/")) or name.startswith(("documents/", "removed/")):
            yield ["inspect", f"{folder}/{name}"]


# Commands that read no file of a run, or read its `documents/` as any input. `ablate` needs more text than this run
# has.
OTHERS = {
    "ablate",
    "demo", "init", "import-config", "measure", "embed", "generate", "tokenize", "align", "train tokenizer",
    "train classifier", "train lm", "doctor", "warmup", "recipes", "completion",
}  # fmt: skip


def test_every_command_and_every_output_is_tried(place: Place):
    tried = {words[0] for words in commands(place)} | ({"push"} if not find_spec("huggingface_hub") else set())
    assert tried | OTHERS == {command.name for group in GROUPS for command in group.commands}
    assert {name.partition("/")[0] for name in files_below(place.sound)} | {*SAMPLE_FILES} == {
        *OUTPUT_NAMES, "report.json", "report.html",
    }  # fmt: skip


# Damage


def changed_bytes(data: bytes, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    if data:
        yield "half", data[: len(data) // 2]
        yield "empty", b""
    yield "random", chance.randbytes(len(data) or 100)
    for number in range(3 if data else 0):
        place = chance.randrange(len(data))
        yield f"flip {number}", data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """The container and the key of every entry of a JSON value."""
    for key, entry in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(entry, dict | list):
            yield from places_in(entry)


def changed_json(data: bytes, chance: random.Random, count: int) -> Iterator[tuple[str, Any]]:
    """Copies of a JSON object with a renamed key, without a key, or with a value of another type."""
    for number in range(count):
        content = orjson.loads(data)
        container, key = chance.choice([*places_in(content)])
        if isinstance(key, str) and number % 3 < 2:
            value = container.pop(key)
            if number % 3:
                container[f"{key}x"] = value
        else:
            container[key] = chance.choice([None, 3, "x", -1, 1.5, True, [], {}, [{}], {"x": "y"}])
        yield f"json {number}", content


def signed(content: Any) -> bytes:
    """A report with a digest that fits."""
    return as_json(content | {"digest": digest(content)}, indent=True)


def damages(place: Place, name: str) -> Iterator[tuple[str, bytes | None]]:
    """The kinds of damage of a file; None: a folder in its place."""
    data, chance = (place.sound / name).read_bytes(), random.Random(name)
    yield from changed_bytes(data, chance)
    if name.endswith(".json"):
        is_report = name == "report.json"
        for kind, content in changed_json(data, chance, 12 if is_report else 4):
            yield kind, signed(content) if is_report else as_json(content)
        yield "a list", b"[1]\n"
        yield "deep", b"[" * 100_000
    yield "a folder", None


def put(path: Path, data: bytes | None) -> None:
    """Write a file, or a folder in its place (None)."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)


def called(place: Place, words: list[str], capsys: pytest.CaptureFixture[str], kept: str = "") -> tuple[int, str]:
    """The exit code and the last line of standard error of a command. What it writes is removed, but for the file
    `kept`."""
    try:
        code = main(words)
    finally:
        shutil.rmtree(place.folder / "new", ignore_errors=True)
        if words[0] == "run" and words[3] == str(place.copy):
            for name in {*WRITTEN_AGAIN} - {kept}:
                shutil.copy(place.sound / name, place.copy / name)
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line]
    return code, lines[-1] if lines else printed.out


def check(place: Place, name: str, kind: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Call a command while a file is damaged, and return its exit code."""
    shown = f"{words} with {kind} of {name}"
    try:
        code, told = called(place, words, capsys, name)
    except BaseException as error:
        raise AssertionError(shown) from error
    assert code in (0, FAILED, 2, 3), (shown, code, told)
    if code in (FAILED, 2) and words[0] not in ("check-overlap", "verify"):
        file, folder = Path(name), str((place.copy / name).parent)
        assert told.startswith(("curate: ", '{"event": "error"')), (shown, told)
        assert file.name in told or folder in told or file.stem in told, (shown, told)
    is_signed = name == "report.json" and kind.startswith("json")  # it may lack what earlier versions did not write
    assert words[0] != "verify" or code == FAILED or is_signed, (shown, told)
    return code


SAMPLED = {  # file -> how the commands that read it begin
    "documents/part-00000.parquet": ("show", "compare", "verify", "tokens", "inspect"),
    "removed/part-00000.parquet": ("show", "compare", "verify"),
    "measures/part-00000.parquet": ("plan", "verify"),
    "rejected.jsonl": ("show", "verify"),
    "tokens/_meta/manifest.json": ("check-loader", "merge", "check-overlap"),
    "tokens/_meta/web_00000_text_document.rows": ("inspect",),
    "tokens/web_00000_text_document.idx": ("check-loader", "merge", "split", "inspect", "check-overlap"),
    "chunks/manifest.json": ("check-loader", "inspect"),
    "mds/train/shard.00000.mds": ("check-loader", "inspect"),
    "scores/stage-7/00000.arrow": ("run",),
    "index/index.json": ("run",),
    "report.json": ("show", "compare", "tokens", "plan", "run", "verify"),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_a_damaged_file_is_one_message(name: str, place: Place, capsys: pytest.CaptureFixture[str]):
    """A sample: every third kind of damage, or every seventh for runs, each with the next of the commands."""
    own = [words for words in commands(place) if words[0] in SAMPLED[name]]
    random.Random(name).shuffle(own)
    chosen = [*damages(place, name)][:: 7 if "run" in SAMPLED[name] else 3]
    try:
        for number, (kind, data) in enumerate(chosen):
            put(place.copy / name, data)
            check(place, name, kind, own[number % len(own)], capsys)
    finally:
        put(place.copy / name, (place.sound / name).read_bytes())


def test_half_of_a_table_is_never_read_as_a_whole_one(place: Place, capsys: pytest.CaptureFixture[str]):
    for name, starts in SAMPLED.items():
        put(place.copy / name, (place.sound / name).read_bytes()[:-9])
        codes = {
            check(place, name, "a part", words, capsys)
            for words in commands(place)
            if words[0] in starts and name.endswith(".parquet") and _reads(name, words)
        }
        put(place.copy / name, (place.sound / name).read_bytes())
        assert codes <= {FAILED}, name


def _reads(name: str, words: list[str]) -> bool:
    """Whether a command reads a file of a table."""
    top = name.partition("/")[0]
    if words[0] == "inspect":
        return words[1].endswith(name)
    if words[0] == "show":
        kept = {"kept": "documents", "edited": "documents", "rejected": ""}
        what = words[words.index("--what") + 1] if "--what" in words else "removed"
        return kept.get(what, "removed") == top
    return True


def test_a_pipe_in_place_of_a_report_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    os.mkfifo(tmp_path / "report.json")
    for words in (["show", str(tmp_path)], ["compare", str(tmp_path), str(tmp_path)], ["tokens", str(tmp_path)]):
        assert (
            main(words) == FAILED and "report.json is damaged: it is a pipe, expected a file" in capsys.readouterr().err
        )


@pytest.mark.slow("no damage of any file of a run ends any command in a traceback")
@pytest.mark.parametrize("share", range(SHARES))
def test_all_commands_with_all_files(share: int, place: Place, capsys: pytest.CaptureFixture[str]):
    tried = [*commands(place)]
    sound = {tuple(words): _without_numbers(called(place, words, capsys)) for words in tried}
    names = files_below(place.sound)[share::SHARES]
    refused_pairs = 0
    for name in names:
        path, data = place.copy / name, (place.sound / name).read_bytes()
        path.unlink()
        readers = [  # a command that gives the same without a file does not read it
            words
            for words in tried
            if _is_given(words, name) and _without_numbers(called(place, words, capsys, name)) != sound[tuple(words)]
        ]
        try:
            for kind, damaged in damages(place, name):
                codes: dict[str, int] = {}
                for words in readers:
                    put(path, damaged)
                    codes[words[0]] = check(place, name, kind, words, capsys)
                if codes.get("merge"):
                    refused_pairs += 1
                    assert codes["check-loader"] == FAILED, (name, kind)
        finally:
            put(path, data)
    assert refused_pairs >= 4 * any(name.endswith(".idx") for name in names)


def _is_given(words: list[str], name: str) -> bool:
    """Whether a command is given a folder with this file: runs over an index or over centroids are given that alone."""
    recipe = Path(words[1]).stem.partition("-")[0]
    return words[0] != "run" or recipe not in ("index", "centroids") or name.startswith(f"{recipe}/")


def _without_numbers(result: tuple[int, str]) -> tuple[int, str]:
    return result[0], re.sub(r"[\d.,]+", "", result[1])


# Finished again


def test_a_report_is_not_signed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Neither after a move, by which `tokens/_meta/` is written again, nor without one."""
    (tmp_path / "in.jsonl").write_bytes(records_of(made_texts(20)))
    recipe = recipe_of(tmp_path / "in.jsonl")
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(as_builtins(recipe)))
    run(recipe, tmp_path / "out", engine="cpu", progress=False)
    for name in ("out", "moved"):
        if name == "moved":
            shutil.copytree(tmp_path / "out", tmp_path / "moved")
        path = tmp_path / name / "report.json"
        sound = path.read_bytes()
        path.write_bytes(changed := re.sub(rb'"bytes_read": \d+', b'"bytes_read": 4711', sound))
        assert changed != sound
        assert main(["run", str(tmp_path / "r.yaml"), "-o", str(path.parent), "--engine", "cpu"]) == FAILED
        assert "report.json has changed: its content does not match its digest" in capsys.readouterr().err
        assert path.read_bytes() == changed and main(["verify", str(path.parent)]) == FAILED
        path.write_bytes(sound)
    assert main(["run", str(tmp_path / "r.yaml"), "-o", str(tmp_path / "moved"), "--engine", "cpu"]) == 0
    assert main(["verify", str(tmp_path / "moved")]) == 0


# Unfinished runs


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A run whose report is not yet written: every task has its done-record."""
    made = Place(tmp_path_factory.mktemp("unfinished"))
    (made.folder / "in.jsonl").write_bytes(records_of(made_texts(40)))
    recipe = made.recipe("all", STAGES, output={"keep_work": True, "formats": ["megatron", "blocks"],
                         "blocks": {"length": 16}, "measures": True})  # fmt: skip
    run(recipe, made.sound, engine="cpu", workers=1, progress=False)
    for name in ("report.json", "report.html"):
        (made.sound / name).unlink()
    (made.folder / "victim.txt").write_text("mine")
    return made


def resumed(place: Place, name: str, data: bytes | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Resume a copy of the run in which a file has other content; return the exit code and the last line."""
    shutil.rmtree(place.copy, ignore_errors=True)
    shutil.copytree(place.sound, place.copy)
    put(place.copy / name, data)
    words = ["run", f"{place.folder}/all.yaml", "--output", str(place.copy), "--engine", "cpu", "--workers", "1"]
    try:
        code = main(words)
    except BaseException as error:
        raise AssertionError((name, data)) from error
    lines = capsys.readouterr().err.splitlines()
    assert (place.folder / "victim.txt").read_text() == "mine"
    return code, lines[-1] if lines else ""


def records_in(place: Place) -> list[str]:
    """The plan and the records of a run: JSON with a digest."""
    names = [name for name in files_below(place.sound) if name.startswith("_work/") and name.endswith(".json")]
    return [name for name in names if "/job-" not in name]


RECORDS = ("_work/plan.json", "_work/segment-0/000000.json", "_work/outputs/000000.json", "_work/decision-2.json")


def test_a_damaged_record_of_an_unfinished_run_is_one_message(unfinished: Place, capsys: pytest.CaptureFixture[str]):
    assert {*RECORDS} < {*records_in(unfinished)}
    sound = resumed(unfinished, RECORDS[0], (unfinished.sound / RECORDS[0]).read_bytes(), capsys)
    assert sound[0] == main(["verify", str(unfinished.copy)]) == 0  # though the folder has moved
    for number, name in enumerate(RECORDS):
        data, chance = (unfinished.sound / name).read_bytes(), random.Random(name)
        kinds = [data for _, data in changed_bytes(data, chance)]
        kinds += [msgspec.json.encode(content) for _, content in changed_json(data, chance, 3)]
        for damaged in kinds[number % 2 :: 4]:
            code, told = resumed(unfinished, name, damaged, capsys)
            assert code == FAILED and f"{name} is damaged" in told and "Start over with --force" in told, told


@pytest.mark.slow("no damage of a file of an unfinished run ends its command in a traceback")
def test_all_files_of_an_unfinished_run(unfinished: Place, capsys: pytest.CaptureFixture[str]):
    """Records are found to be damaged. Tables and arrays have no digest: a changed value in one may be used."""
    sealed_files = {*records_in(unfinished)}
    for name in files_below(unfinished.sound):
        if name.startswith("_work/"):
            data = (unfinished.sound / name).read_bytes()
            for kind, damaged in [*changed_bytes(data, random.Random(name)), ("a folder", None)]:
                if name in sealed_files or not kind.startswith("flip"):
                    code, told = resumed(unfinished, name, damaged, capsys)
                    assert code in (0, FAILED, 2), (name, kind, told)
                    assert name not in sealed_files or (code == FAILED and name in told), (name, kind, told)


OUTSIDE: dict[str, tuple[Callable[[Any, Place], None], str]] = {
    "an input": (
        lambda plan, place: plan["read"][0].update(path=f"{place.folder}/victim.txt"), "names files that are not inputs"
    ),
    "a file of an input": (
        lambda plan, place: plan["files"][0].update(path="../victim.txt"), "belongs to another recipe or input"
    ),
    "a collected file": (
        lambda plan, place: plan["read"].append(
            plan["read"][0] | {"label": "hf:x", "path": f"{place.copy}/_work/collected/x/../../../../victim.txt"}
        ),
        "names files that are not inputs",
    ),
    "the output": (lambda plan, place: plan["recipe"].update(name="../victim"), "changed: name"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_plan_that_somebody_signed_leads_to_no_other_file(
    kind: str, unfinished: Place, capsys: pytest.CaptureFixture[str]
):
    change, message = OUTSIDE[kind]
    content = json.loads(unsealed((unfinished.sound / "_work/plan.json").read_bytes()))
    change(content, unfinished)
    code, told = resumed(unfinished, "_work/plan.json", sealed(msgspec.json.encode(content)), capsys)
    assert code in (FAILED, 2) and message in told, told
