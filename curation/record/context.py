# SPDX-License-Identifier: Apache-2.0
"""The facts that all phases of a run share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from curation.base.contract import Engine, Session
from curation.base.system.progress import Progress
from curation.record.folder import WORK
from curation.record.scores import StoredScores
from curation.record.stored_plan import Plan, Stored


class Reused(NamedTuple):
    """What a run takes from an earlier one: the folder of that run, and its scores by the number of the stage."""

    folder: str = ""
    stages: Mapping[int, list[StoredScores]] = MappingProxyType({})


class RunContext(NamedTuple):
    """The facts that all phases of a run share.

    stored_plan  the file of `plan`, which tasks load
    folder       the output folder, an absolute path
    workers      number of tasks that run at once
    batch_bytes  input bytes of a batch
    """

    plan: Plan
    stored_plan: Stored
    folder: Path
    engine: Engine
    engine_name: str
    session: Session
    progress: Progress
    workers: int
    batch_bytes: int
    reused: Reused = Reused()

    @property
    def work(self) -> Path:
        """The folder of intermediate files, `_work/`."""
        return self.folder / WORK
