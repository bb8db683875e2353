# SPDX-License-Identifier: Apache-2.0
"""The last line of a run in a notebook advises another call only where this call goes on."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.base.system.progress import NotebookLine
from curation.running import run as running

RESUMES = "the same call resumes the run"


@curation.stage
def until_late(texts: Any) -> Any:
    """Fail at a text of the last slice."""
    if "late" in texts.to_pylist():
        raise ValueError("too late")
    return texts


def shown_by(tmp_path: Path, stages: list[Any], error: type[BaseException] | None = None) -> str:
    """Run over several slices, and return all that the notebook shows."""
    path, shown = tmp_path / "a.jsonl", [""]
    if not path.exists():
        texts = [f"text {number}" for number in range(100)]
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, "late"]))

    def run() -> None:
        curation.run(
            {"stages": stages, "input": [{"path": str(path)}], "output": {"formats": []}},
            tmp_path / "out",
            engine="cpu",
            workers=1,
            slice_bytes=500,
            progress=NotebookLine(lambda data, **_: shown.append(data.get("text/html", data["text/plain"]))),
        )

    if error:
        with pytest.raises(error):
            run()
    else:
        run()
    return shown[-1]


def test_advice_follows_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    late = [until_late()]
    for _ in range(2):
        failed = shown_by(tmp_path, late, curation.StageError)
        assert "stopped after" in failed and RESUMES not in failed
    assert "resuming the run in" in failed  # finished tasks are kept
    assert "resum" not in shown_by(tmp_path, ["exact_dedup"], curation.OutputError)  # the error alone

    def fail(error: BaseException) -> None:
        def phases(context: Any) -> None:
            raise error

        monkeypatch.setattr(running, "run_phases", phases)

    fail(OSError(errno.ENOSPC, "full"))
    assert RESUMES in shown_by(tmp_path, late, OSError)
    fail(KeyboardInterrupt())
    assert RESUMES in shown_by(tmp_path, late, KeyboardInterrupt)


def test_a_finished_run_is_named(tmp_path: Path):
    assert "finished" not in shown_by(tmp_path, ["exact_dedup"])
    assert shown_by(tmp_path, ["exact_dedup"]) == "done in 0 s; the run was already finished"
