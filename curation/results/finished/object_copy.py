# SPDX-License-Identifier: Apache-2.0
"""The copy of a finished run in an object store. The run itself writes to a work folder in a local file system.

    PREFIX/copy.json       first: the work folder whose run this prefix holds; created before the run
    PREFIX/documents/...   each output as one object, created once, read back and compared with the report
    PREFIX/report.html     after all outputs
    PREFIX/report.json     last; if it exists, the copy is complete

`copy.json` has a random number that the work folder keeps. A run with another work folder finds a different number
there. It is refused before it reads anything, unless it is the same run: the same identity, in a new folder at the same
path. In that case it continues the copy, since it writes the same bytes, except the times in the report. If the copy is
complete, the same run from any folder without a finished run gets its report and writes nothing. No object is replaced.
Only two objects are deleted, if they have what this process wrote. One tests whether the store refuses a second write.
The other is `copy.json`, if the prefix has other objects or lies in another run.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from curation.base.errors import IntegrityError, OutputError, counted
from curation.base.system.files import as_json, commit, file_sha256, local_output, read_json, write_json
from curation.base.system.steps import each
from curation.record.finished_report import digest
from curation.record.folder import REPORT, locked
from curation.record.report_schema import wrong_in_report
from curation.results.finished.object_store import DeniedError, ObjectStore, checked_address, is_object_url
from curation.results.report.report import HTML

CLAIM = "copy.json"  # in the prefix and in the work folder
RUN = "run"  # name of the run's folder in the work folder
FILES_AT_ONCE = 4
MAX_SHOWN = 5
FORMAT = 1  # version of the format of copy.json


def work_folder(url: str, work: str | os.PathLike[str]) -> Path:
    """Return the absolute work folder of a run for a prefix. Default: a folder in the current folder, named after the
    prefix.

    Raises the errors of `local_output` and of `checked_address`.
    """
    if work:
        return Path(os.path.realpath(local_output(work)))
    address = checked_address(url)
    name = f"{address.rpartition('/')[2]}-{hashlib.sha256(address.encode()).hexdigest()[:8]}.work"
    return Path(os.path.realpath(name))


def prepare_copy(
    output: str | os.PathLike[str], work: str | os.PathLike[str], force: bool, array_task: str
) -> ObjectCopy | None:
    """Return the copy for an output, if it is the URL of an object store; None for a folder. Sends no request.

    Raises OutputError for arguments that exclude each other.
    """
    if not is_object_url(output):
        if work:
            raise OutputError(f"a work folder ({work}) needs an output such as s3://BUCKET/PREFIX, not {output}")
        return None
    address = checked_address(str(output))
    if force:
        raise OutputError(f"--force deletes no objects: give another prefix than {address}, or delete it first")
    if array_task:
        raise OutputError(
            f"array tasks share a folder, not {address}. Give them --output WORK/{RUN}; then one "
            f"`curate run RECIPE --work WORK --output {address}` copies the run"
        )
    return ObjectCopy(str(output), work_folder(str(output), work))


class ObjectCopy:
    """The copy of the run in `folder/run` to a prefix."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.continues = ""  # the work folder that began the copy, if it is another one
        self.finished: dict[str, Any] | None = None  # the report of a complete copy, if the work folder has none
        self.store = ObjectStore(url)

    @property
    def url(self) -> str:
        """The address without secrets."""
        return self.store.url

    @property
    def run_folder(self) -> Path:
        """The folder to which the run itself writes. The rest of the work folder is about the copy."""
        return self.folder / RUN

    @contextmanager
    def claimed(self, name: str, identity: str) -> Iterator[None]:
        """Claim the prefix for the work folder, and lock the work folder while the context is open. `name` is that of
        the recipe, for messages. `identity` is the digest of the run's identity, which determines the outputs. Raises
        OutputError if the prefix cannot be written, has the copy of another run or other objects, or if its store
        ignores conditions.
        """
        is_new = not os.path.lexists(self.folder)
        with locked(self.folder):
            try:
                self._claim(name, identity)
            except OutputError:
                if is_new:
                    with suppress(OSError):  # fails if the folder is not empty, since it has the number of a claim
                        self.folder.rmdir()
                raise
            self.finished = self._find_finished()
            if self.finished is None:
                self._is_complete()
            yield

    def _claim(self, name: str, identity: str) -> None:
        place = f"{self.folder} on {os.uname().nodename}"
        number = (read_json(self.folder / CLAIM, dict[str, str]) or {}).get("work") or secrets.token_hex(16)
        known = {"recipe": name, "folder": place, "path": str(self.folder), "identity": identity, "work": str(number)}
        claim = as_json({"format": FORMAT, **known})
        present = self.store.names()
        found = self.store.read(CLAIM)  # after the list: a run writes its claim first
        if found is not None:
            self._check_own(claim, found)
            self.store.check_condition()
            return
        self._check_free(present)
        self.store.check_condition()
        write_json(self.folder / CLAIM, {"work": number})
        if not self.store.create(CLAIM, claim) and (found := self.store.read(CLAIM)) != claim:
            self._check_own(claim, found or b"")  # another run was faster
            return
        try:
            # Meanwhile others may have claimed a prefix that contains this one, or is in it
            self._check_free(self.store.names())
        except OutputError as error:
            if self.store.take_back(CLAIM, claim):
                raise
            raise OutputError(f"{error}. {self.url}/{CLAIM} could not be deleted: delete it") from None

    def _check_free(self, present: Collection[str]) -> None:
        """Raise OutputError if the prefix has other objects (`present`), or is inside the prefix of another run."""
        for store in self.store.above():
            with suppress(DeniedError):  # credentials need not be allowed to read outside of the prefix
                if _is_claim(store.read(CLAIM) or b"") or _content_of(store.read(REPORT) or b"") is not None:
                    raise OutputError(
                        f"{self.url} lies in {store.url}, which holds a run. Its `curate verify` would find foreign "
                        "objects. Give a prefix that is not below it"
                    )
        with suppress(DeniedError):
            if self.store.is_object():
                raise OutputError(f"{self.url} is an object, expected a prefix. Give another one")
        if foreign := sorted({*present} - {CLAIM}):
            raise OutputError(f"{self.url} is not empty: it has {_shown(foreign)}. Give another prefix")

    def _check_own(self, claim: bytes, found: bytes) -> None:
        try:
            content, own = orjson.loads(found), orjson.loads(claim)
            if all(content[key] == own[key] for key in ("format", "recipe", "work")):  # the folder may have moved
                return
            is_same = all(content.get(key) == own[key] for key in ("format", "recipe", "identity"))
            if is_same and (content.get("path") == own["path"] or self.store.read(REPORT) is not None):
                self.continues = content["folder"]
                return
            of = f"the run of recipe {content['recipe']!r}" if content["recipe"] else "a run"
            holds = f"{of} in the work folder {content['folder']}"
            advice = f", or --work {content['path']}: it is the same run, so it continues if that folder is lost"
            advice = advice if is_same else ", or --work with the folder of that run"
        except (orjson.JSONDecodeError, KeyError, TypeError):
            holds, advice = f"a {CLAIM} that no run wrote", ""
        raise OutputError(f"{self.url} holds {holds}. Give another prefix{advice}")

    def _find_finished(self) -> dict[str, Any] | None:
        """Return the report that the prefix has; None if the prefix has no report, or if the work folder has one.

        Raises OutputError if the report is damaged, or if an object that it names is missing. Only the report is read.
        """
        if (self.run_folder / REPORT).exists() or (report := self.store.read(REPORT)) is None:
            return None
        advice = f"`curate verify {self.url}` names all faults. Give another prefix to run again"
        content = _content_of(report)
        if content is None:
            raise OutputError(f"{self.url}/{REPORT} is not the report that a run wrote. {advice}")
        if missing := sorted(content["outputs"].keys() - self.store.names().keys()):
            raise OutputError(f"missing from the finished run in {self.url}: {_shown(missing)}. {advice}")
        return content

    def _is_complete(self) -> bool:
        """Return whether the prefix has a finished run. Raises OutputError if its outputs differ from those in the work
        folder."""
        report, path = self.store.read(REPORT), self.run_folder / REPORT
        if report is None:
            return False
        own = path.read_bytes() if path.exists() else b""
        if report != own and (_outputs_in(report) or {}) != _outputs_in(own):
            raise OutputError(
                f"{self.url} holds a finished run, and {self.run_folder} holds another one or none. Give another prefix"
            )
        return True

    def copy(self, report: dict[str, Any]) -> bool:
        """Copy the files of the finished run that the prefix lacks. Return whether it lacked any.

        Objects that exist are read and compared. Raises IntegrityError if a file of the run has changed, and
        OutputError if an object has other bytes.
        """
        if self._is_complete():
            return False
        if self.continues:
            self._take_stored_page(report)
        expected = report["outputs"] | {HTML: report["report_html"]}
        self.store.check_names([*expected])
        present = self.store.names()
        if foreign := sorted(present.keys() - expected.keys() - {CLAIM}):
            raise OutputError(f"{self.url} has objects that are not part of the run: {_shown(foreign)}. Delete them")
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            copies = {
                name: pool.submit(self._copy_file, name, sha256, name in present)
                for name, sha256 in report["outputs"].items()
            }
            try:
                for name in each([*copies], f"copying to {self.url}", "file", size=self._size):
                    copies[name].result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._copy_file(HTML, expected[HTML], HTML in present)
        self.store.create_from(REPORT, self.run_folder / REPORT)
        if not self._is_complete():
            raise OutputError(f"{self.url}/{REPORT} is missing, though it was written. Run the same command again")
        self.store.end_uploads(expected.keys())
        return True

    def _take_stored_page(self, report: dict[str, Any]) -> None:
        """Replace `report.html` of the work folder by that of the store, if there is one. The same run wrote it from a
        work folder that is lost, so only its times differ. Then the report is written with its digest. After a kill in
        between, both are replaced again."""
        page = self.store.read(HTML)
        if page is None or (stored := hashlib.sha256(page).hexdigest()) == report["report_html"]:
            return
        with commit(self.run_folder / HTML) as path:
            path.write_bytes(page)
        report["report_html"] = stored
        report["digest"] = digest(report)
        write_json(self.run_folder / REPORT, report, indent=True)

    def _size(self, name: str) -> int:
        return (self.run_folder / name).stat().st_size

    def _copy_file(self, name: str, expected: str, is_present: bool) -> None:
        path = self.run_folder / name
        if file_sha256(path) != expected:
            raise IntegrityError(
                f"{path} has changed: its SHA-256 is not the one in report.json. Delete {self.folder}, give another "
                "prefix and run again"
            )
        size = self._size(name)
        if not is_present:
            self.store.create_from(name, path)
        if self.store.sha256(name, size) != expected:
            raise OutputError(
                f"{self.url}/{name} has other bytes than {path}. Delete the object, then run the same command again"
            )


def _is_claim(data: bytes) -> bool:
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(content, dict) and content.keys() >= {"format", "recipe", "work"}


def _outputs_in(report: bytes) -> Any:
    """Return the digests in a report; None if the bytes are no report, or were changed."""
    content = _content_of(report)
    return None if content is None else content["outputs"]


def _content_of(report: bytes) -> dict[str, Any] | None:
    """Return the content of a report; None if the bytes are no report, or were changed."""
    try:
        content = orjson.loads(report)
    except orjson.JSONDecodeError:
        return None
    return None if wrong_in_report(content) or content["digest"] != digest(content) else content


def _shown(names: list[str]) -> str:
    more = f" and {counted(len(names) - MAX_SHOWN, 'other')}" if len(names) > MAX_SHOWN else ""
    return ", ".join(map(repr, names[:MAX_SHOWN])) + more
