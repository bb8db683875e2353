# SPDX-License-Identifier: Apache-2.0
"""The credentials of an endpoint: its key, and the user name, password and query of its URL. In files and messages,
`[key]` replaces them."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, urlsplit

from curation.base.errors import InputError
from curation.reading.urls import scrubbed, shown
from curation.tools.synthesis.task import AnyTask

HIDDEN = "[key]"
MIN_CHARACTERS = 16  # of a credential that is searched for in answers: a shorter one, such as EMPTY, may be a word
MESSAGE_CHARACTERS = 2_000
SHOWN_NAME = re.compile("[A-Z_][A-Z0-9_]*")  # other texts may be a key that was written in place of a name
UNSHOWN = "the variable of key_variable"
UNSENDABLE = re.compile(r"[^\t\x20-\x7e]")  # in no header
SECRET = re.compile("key|token|sig|secret|auth|pass|cred|code", re.IGNORECASE)  # names of parameters in a query


class Credentials:
    """The credentials of a task. The environment variable may be unset, since a finished folder needs no key.

    key       value of the variable; "" for none
    variable  name of the variable in messages
    login     user name and password of the URL; ("", "") for none
    """

    def __init__(self, task: AnyTask) -> None:
        url = urlsplit(task.endpoint)
        self.key = os.environ.get(task.key_variable, "").strip(" \t\r\n") if task.key_variable else ""
        self.variable = task.key_variable if SHOWN_NAME.fullmatch(task.key_variable) else UNSHOWN
        self.login = unquote(url.username or ""), unquote(url.password or "")
        secrets = {value for name, value in parse_qsl(url.query) if SECRET.search(name)} | {self.key, self.login[1]}
        self._long = _pattern({secret for secret in secrets if len(secret) >= MIN_CHARACTERS})
        self._words = _pattern({*secrets, self.login[0]} - {""}, r"(?<!\w)", r"(?!\w)")
        self._endpoint, self._needs_key = shown(task.endpoint), bool(task.key_variable)

    def check_key(self) -> None:
        """Raise InputError if the variable is not set, or if no HTTP header can have its value."""
        if self._needs_key and not self.key:
            name = self.variable
            which, remedy = f"{name} (key_variable)", f"Set it: export {name}=..."
            if name == UNSHOWN:
                which, remedy = "of key_variable", "Write a name there, such as ENDPOINT_KEY, not the key"
            raise InputError(
                f"the environment variable {which} is not set, expected the API key of {self._endpoint}. {remedy}"
            )
        if wrong := UNSENDABLE.search(self.key):
            raise InputError(
                f"the key in {self.variable} has a character that no HTTP header can have, at position "
                f"{wrong.start() + 1}, expected printable ASCII. Set the variable again"
            )

    def hidden_in_answer(self, text: str) -> str:
        """Return a text to store, without credentials of at least MIN_CHARACTERS."""
        return self._long.sub(HIDDEN, text)

    def hidden_in_message(self, text: str) -> str:
        """Return the beginning of a text for a message. Shorter credentials are hidden as whole words."""
        hidden = self._words.sub(HIDDEN, self._long.sub(HIDDEN, text))
        return scrubbed(hidden[:MESSAGE_CHARACTERS])  # which takes long for a long text of slashes

    def are_in(self, value: object) -> bool:
        """Return whether a text in a JSON value has a credential of at least MIN_CHARACTERS."""
        if isinstance(value, dict):
            return any(self.are_in(name) or self.are_in(entry) for name, entry in value.items())
        if isinstance(value, list):
            return any(map(self.are_in, value))
        return isinstance(value, str) and self._long.search(value) is not None


def _pattern(texts: set[str], before: str = "", after: str = "") -> re.Pattern[str]:
    """Return a pattern that matches some texts, plain or with the escapes of JSON, Python or URLs. Without texts, it
    matches nothing."""
    spelled = ("".join(map(_spelled, text)) for text in sorted(texts, key=len, reverse=True))
    return re.compile(f"{before}(?:{'|'.join(spelled)}){after}" if texts else "(?!)")


def _spelled(character: str) -> str:
    code = f"{ord(character):02x}"
    return rf"(?:\\{{0,2}}{re.escape(character)}|(?i:\\{{1,2}}u{code:0>4}|%{code}))"
