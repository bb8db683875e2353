# SPDX-License-Identifier: Apache-2.0
"""Copies outputs of a finished run to a data set of the Hugging Face hub, with the library `huggingface_hub`.

Files are sent over HTTP. If `hf_xet` is installed, the library would use the storage Xet instead, whose time limits
cannot be set: hf_xet 1.8 waits 300 s for a silent server, several times.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

from curation.base.errors import IntegrityError, OutputError, counted, installation
from curation.reading.hub_errors import broken_connection, on_one_line, status_of
from curation.reading.urls import is_remote, scrubbed, shown
from curation.record.folder import CARD_BEGINS, REPORT
from curation.record.report_schema import CARD
from curation.record.tables import TablePart
from curation.results.finished.hub_client import LATER, open_client
from curation.results.finished.object_store import is_local
from curation.results.finished.results import open_finished
from curation.results.finished.verify import no_run, verify
from curation.results.report.card import PUSHED_BEGINS, as_card
from curation.results.report.report import HTML
from curation.tokens.forms import FORMS
from curation.tokens.samples import SAMPLE_FILES

KIND = "dataset"
TOKENS = frozenset({"tokens", *FORMS, *SAMPLE_FILES})
LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN"


class PushedFiles(NamedTuple):
    """Outputs of a run for a data set.

    folder  folder of the run
    names   names of files and folders in this folder that are sent unchanged
    card    bytes of a new `README.md`, if that of the run does not describe the sent files; else b""
    sizes   path in the data set -> bytes
    """

    folder: Path
    names: list[str]
    card: bytes
    sizes: dict[str, int]

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(self.sizes.values())


class Pushed(NamedTuple):
    """The state of a data set after a push.

    url         page of the data set
    commit      SHA of the last commit
    is_new      whether the push made a commit; False: the data set already had all files
    is_private  whether only its owner can read it
    keeps_card  whether its `README.md` was kept, because a person wrote it
    """

    url: str
    commit: str
    is_new: bool
    is_private: bool
    keeps_card: bool


def checked_content(folder: str, what: str, repo: str) -> PushedFiles:
    """Check a run as `verify` does, and return the files that a push sends.

    Raises OutputError for a folder without a finished run, or for a run without these outputs. Raises IntegrityError if
    `verify` finds a problem.
    """
    if is_remote(folder):
        raise OutputError(no_run(folder))
    if problems := verify(folder):
        more = f" ({counted(len(problems) - 1, 'more problem')})" if problems[1:] else ""
        raise IntegrityError(f"{problems[0]}{more}. Nothing was sent. `curate verify {folder}` lists all problems")
    run = open_finished(folder)
    root, content = run
    outputs = content["outputs"] | {REPORT: "", HTML: ""}
    chosen = [name for name in outputs if _is_wanted(name, what)]
    if not chosen:
        other = "tokens" if what == "documents" else "documents"
        raise OutputError(f"{folder} has no {what}: its recipe does not write them. Give --what {other}")
    sizes = {name: (root / name).stat().st_size for name in chosen}
    card = b""
    if what != "all":
        parts = run.parts("documents")
        columns = TablePart(parts[0]).schema.names if parts else []
        sent = content | {"outputs": {name: content["outputs"][name] for name in chosen}}
        card = as_card(sent, columns, repo).encode()
        sizes |= {CARD: len(card)}
    return PushedFiles(root, list(dict.fromkeys(name.partition("/")[0] for name in chosen)), card, sizes)


def _is_wanted(name: str, what: str) -> bool:
    top = name.partition("/")[0]
    return what == "all" or top == what or (what == "tokens" and top in TOKENS)


def check_repo(repo: str) -> None:
    """Raise OutputError if a name is not one of a data set: OWNER/NAME."""
    from huggingface_hub import utils

    library: Any = utils
    try:
        library.validate_repo_id(repo)
        is_name = "/" in repo
    except ValueError:
        is_name = False
    if not is_name:
        raise OutputError(
            f"{scrubbed(repo)!r} is no name of a data set, expected OWNER/NAME of letters, digits, `-`, `_` and `.`, "
            "such as acme/news"
        )


def import_library() -> None:
    """Raise OutputError if `huggingface_hub` cannot be imported."""
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # the library reads both variables when it is imported
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # telemetry would send further requests to the hub
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise OutputError(f"push needs huggingface_hub ({error}). Run: {installation('hub')}") from None


def push(content: PushedFiles, repo: str, *, revision: str = "", public: bool = False) -> Pushed:
    """Send the files that the data set lacks or has with other bytes. In the sent folders, delete all other files.

    content   from `checked_content`
    repo      OWNER/NAME; a data set that does not exist is created
    revision  branch, created if it does not exist. Default: the main one
    public    create, or send to, a data set that everyone can read. Default: False

    Raises OutputError if there is no token, no permission or no connection, if the data set is public and `public` is
    false, or for any other error of the hub.
    """
    import huggingface_hub

    if huggingface_hub.get_token() is None:
        raise OutputError(f"push needs a token of the hub with write access, and found none. {LOG_IN}")
    api = huggingface_hub.HfApi(library_name="gpu-pipeline")
    at: dict[str, Any] = {"repo_id": repo, "repo_type": KIND, "revision": revision or None}
    message = "Upload the outputs of a run"
    with _explained(api.endpoint, repo):
        open_client(huggingface_hub, api.endpoint)
        api.create_repo(repo, repo_type=KIND, private=not public, exist_ok=True)
        is_private = api.repo_info(repo, repo_type=KIND).private
        if not isinstance(is_private, bool):
            raise TypeError(f"private is {is_private!r}")
        if not is_private and not public:
            raise OutputError(f"{repo} is public: everyone could read the documents. Give --public to send them")
        if revision and not revision.startswith("refs/"):
            api.create_branch(repo, repo_type=KIND, branch=revision, exist_ok=True)
        before = _commit_of(api, at)
        keeps_card = CARD in content.sizes and _has_other_card(api, at)
        names = [name for name in content.names if name != CARD or not keeps_card]
        patterns = [part for name in map(glob.escape, names) for part in (name, f"{name}/*")]
        api.upload_folder(
            **at, folder_path=content.folder, allow_patterns=patterns, delete_patterns=patterns,
            ignore_patterns=["tokens/*/cache/*"], commit_message=message,
        )  # fmt: skip
        if content.card and not keeps_card:
            api.upload_file(**at, path_or_fileobj=content.card, path_in_repo=CARD, commit_message=message)
        commit = _commit_of(api, at)
    return Pushed(f"{shown(api.endpoint)}/datasets/{repo}", commit, commit != before, is_private, keeps_card)


def _commit_of(api: Any, at: dict[str, Any]) -> str:
    commit = api.repo_info(**at).sha
    if not isinstance(commit, str):
        raise TypeError(f"sha is {commit!r}")
    return commit


def _has_other_card(api: Any, at: dict[str, Any]) -> bool:
    """Return whether the data set has a `README.md` that was written by neither a run nor a push."""
    import huggingface_hub

    if not api.file_exists(filename=CARD, **at):
        return False
    library: Any = huggingface_hub.utils
    url = huggingface_hub.hf_hub_url(filename=CARD, endpoint=api.endpoint, **at)
    answer = library.http_backoff("GET", url, headers=library.build_hf_headers())
    library.hf_raise_for_status(answer)
    return not answer.content.decode("utf-8", "replace").startswith((CARD_BEGINS, PUSHED_BEGINS))


@contextmanager
def _explained(endpoint: str, repo: str) -> Iterator[None]:
    """Turn errors of the hub and broken connections into an OutputError with a remedy."""
    try:
        yield
    except OutputError:
        raise
    except Exception as error:  # the library raises its own errors, those of HTTP clients, and errors of missing fields
        for cause in _causes(error):
            if isinstance(cause, OutputError) or is_local(cause):
                raise cause from None
        raise OutputError(_message(error, shown(endpoint), repo)) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _message(error: Exception, endpoint: str, repo: str) -> str:
    status = status_of(error)
    if status == 401:
        return f"{endpoint} refuses the token (401). {LOG_IN} to one that is valid"
    if status == 403:
        return (
            f"the token may not write to {repo} (403). Give a data set of your own or of an organisation of yours, or "
            "a token with write access"
        )
    if status == 429 or status >= 500:
        return f"{endpoint} answers {status}, an error on its side. {LATER}"
    if isinstance(error, JSONDecodeError | TypeError | LookupError | AttributeError):  # the page of a proxy, or a list
        return f"{endpoint} does not answer as the hub does ({on_one_line(error)}). Check HF_ENDPOINT, if it is set"
    broken = next((cause for cause in _causes(error) if isinstance(cause, broken_connection())), None)
    if broken and not status:
        return f"{endpoint} cannot be reached ({on_one_line(broken)}). {LATER}"
    return f"{endpoint} refuses the push to {repo}: {on_one_line(error)}"
