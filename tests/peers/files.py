# SPDX-License-Identifier: Apache-2.0
"""Adapters of cases that read files or run a whole recipe."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

import curation
from curation import CurationError
from curation.recipes.recipe import convert_recipe
from tests.peers.adapters import REFUSED, Settings, adapter, after, survivors

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def written(folder: Path, name: str, content: Any) -> str:
    """A file of text, or of a table: JSON Lines, Parquet and Arrow are written from columns."""
    path = folder / name
    if isinstance(content, str):
        codec = COMPRESSIONS.get(path.suffix)
        path.write_bytes(pa.compress(content.encode(), codec, asbytes=True) if codec else content.encode())
        return str(path)
    table = pa.table(content)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".feather":
        pa.feather.write_feather(table, path)
    else:
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    return str(path)


@adapter
def read(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Columns of the documents that an input with these settings has, of files by name; after stages, if there are."""
    return [_read(settings, files) for files in inputs]


def _read(settings: Settings, files: dict[str, Any]) -> Any:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            written(Path(folder), name, content)
        try:
            frame = curation.read(
                curation.Input(path=folder, keep_blank=True, **settings["input"]), engine="cpu"
            ).compute()
        except (CurationError, ValueError) as error:
            return REFUSED + type(error).__name__
    frame = after(settings.get("stages", []), frame)
    return {name: frame[name].tolist() for name in settings["read"]}


@adapter
def run(settings: Settings, inputs: list[Any]) -> list[Any]:
    """As `read`, by one run with an input per case, which may have settings; of `cleaned/` if the recipe has it."""
    cases = [{**settings, **case} if "files" in case else {**settings, "files": case} for case in inputs]
    with TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            (Path(folder) / f"case{number}").mkdir()
            for name, content in case["files"].items():
                written(Path(folder) / f"case{number}", name, content)
        try:
            frame = _run(settings, cases, Path(folder))
        except (CurationError, ValueError) as error:
            return [REFUSED + type(error).__name__] * len(inputs)
    rows = [frame[frame["source"] == f"case{number}"] for number in range(len(inputs))]
    return [{name: found[name].tolist() for name in case["read"]} for found, case in zip(rows, cases, strict=True)]


def _run(settings: Settings, cases: list[Settings], folder: Path) -> pd.DataFrame:
    inputs = [
        {"path": str(folder / f"case{n}"), "name": f"case{n}", "keep_blank": True, **case["input"]}
        for n, case in enumerate(cases)
    ]
    output = {"formats": [], **settings.get("output", {})}
    recipe = {"input": inputs, "stages": settings.get("stages", []), "output": output}
    curation.run(convert_recipe(recipe), folder / "out", engine="cpu", progress=False)
    if not (folder / "out" / "cleaned").exists():
        return curation.open_run(folder / "out").kept()
    paths = sorted((folder / "out" / "cleaned").glob("*"))
    return pd.DataFrame([orjson.loads(line) for path in paths for line in path.read_bytes().splitlines()])


@adapter
def sampled(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Whether a sample of so many texts has as many as the peer allows, and the same texts when it is read again."""
    return [_is_sampled(settings, count) for count in inputs]


def _is_sampled(settings: Settings, count: int) -> bool:
    content = "".join(f'{{"text": "text {number}"}}\n' for number in range(count))
    files = {"a.jsonl": content}
    first, second = (read({"input": {"sample": settings["share"]}, "read": ["text"]}, [files])[0] for _ in range(2))
    low, high = settings["between"]
    return bool(low * count < len(first["text"]) < high * count and first == second)


@adapter
def survivors_after(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Of each pair of lists, the rows of the second that a run keeps with the index of a run on the first."""
    return [_survivors_after(settings, *pair) for pair in inputs]


def _survivors_after(settings: Settings, earlier: list[Any], later: list[Any]) -> list[int]:
    with TemporaryDirectory() as folder:
        out = Path(folder) / "earlier"
        first = {"stages": settings["stages"], "output": {"formats": [], "index": True}}
        run_of(Path(folder) / "a", [earlier], first, out)
        stages = [{kind: {**values, "index": str(out / "index")}} for kind, values in map(_only, settings["stages"])]
        recipe = {"stages": stages, "output": {"formats": []}}
        result = run_of(Path(folder) / "b", [later], recipe, Path(folder) / "later")
        return sorted(int(name) for name in result)


def _only(stage: dict[str, Any]) -> tuple[str, Any]:
    ((kind, values),) = stage.items()
    return kind, values


def run_of(folder: Path, cases: list[list[Any]], recipe: dict[str, Any], out: Path) -> list[str]:
    """Run a recipe on the rows of each case, as an input; the ids of kept documents, which are the numbers of rows."""
    inputs = []
    for number, rows in enumerate(cases):
        path = folder / f"case{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        named = [
            {"id": str(row), "text": "", **(values if isinstance(values, dict) else {"text": values})}
            for row, values in enumerate(rows)
        ]
        path.write_bytes(b"".join(orjson.dumps(values) + b"\n" for values in named))
        columns = sorted({name for values in named for name in values} - {"id", "text"})
        inputs.append({"path": str(path), "name": f"case{number}", "columns": columns, "keep_blank": True})
    curation.run(convert_recipe({"input": inputs, **recipe}), out, engine="cpu", progress=False)
    return curation.open_run(out).kept()["id"].tolist()


@adapter
def decontaminated(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Of each pair of evaluation texts and documents, the numbers of the documents that stay."""
    return [_decontaminated(settings, *pair) for pair in inputs]


def _decontaminated(settings: Settings, evaluation: list[str], documents: list[str]) -> list[int]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "evaluation.jsonl"
        path.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in evaluation))
        return survivors({"stages": [{"decontaminate": {"evaluation_files": [str(path)], **settings}}]}, [documents])[0]


@adapter
def html_lines(settings: Settings, inputs: list[Any]) -> list[Any]:
    """The lines of the main text of each page that are not blank."""
    pages = [{"page.html": page} for page in inputs]
    found = [read({"input": settings.get("input", {}), "read": ["text"]}, [page])[0]["text"] for page in pages]
    return [[line.strip() for text in texts for line in text.splitlines() if line.strip()] for texts in found]


@adapter
def contaminated(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Of each pair of evaluation texts and a document, whether the document is found to hold one."""
    return [_decontaminated(settings, evaluation, [document]) == [] for evaluation, document in inputs]


@adapter
def edited_after(settings: Settings, inputs: list[Any]) -> list[Any]:
    """Of each pair of lists, the texts that remain of the second in a run with the index of a run on the first."""
    return [_edited_after(settings, *pair) for pair in inputs]


def _edited_after(settings: Settings, earlier: list[str], later: list[str]) -> list[str]:
    with TemporaryDirectory() as folder:
        out = Path(folder) / "earlier"
        first = {"stages": settings["stages"], "output": {"formats": [], "index": True}}
        run_of(Path(folder) / "a", [earlier], first, out)
        first, *others = settings["stages"]
        kind, values = _only(first)
        recipe = {"stages": [{kind: {**values, "index": str(out / "index")}}, *others], "output": {"formats": []}}
        run_of(Path(folder) / "b", [later], recipe, Path(folder) / "later")
        return curation.open_run(Path(folder) / "later").kept()["text"].tolist()
