# SPDX-License-Identifier: Apache-2.0
"""A task of `curate generate`: the model and the requests to it. A task is one YAML file, or a dictionary in Python."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec
import orjson

from curation.base.contract import ID, ROW, TEXT
from curation.base.errors import InputError, RecipeError, nearest
from curation.base.system.os_errors import explain
from curation.base.system.path_advice import advice
from curation.reading.inputs import AnyInput, list_inputs
from curation.reading.texts import InputTexts, list_whole_inputs
from curation.reading.urls import HTTP, check_url, shown
from curation.recipes.advice import advice_for
from curation.recipes.settings import apply_settings
from curation.recipes.yaml_text import parse_yaml

FIELD = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")  # `{{name}}` is the text `{name}`
URL = re.compile(r"(?P<scheme>[a-z]+)://[^/\s]+.*")
BYTES_PER_TOKEN = 4  # bytes per token of a prompt, until the endpoint has counted its tokens
# Settings that change no request. All others are the identity of a folder.
OPERATION = frozenset(
    ("endpoint", "key_variable", "documents", "concurrency", "requests_per_minute", "tokens_per_minute",
     "budget_tokens", "retries", "timeout_seconds", "answer", "min", "max")
)  # fmt: skip
LEAST = {
    "max_tokens": 1, "concurrency": 1, "max_characters": 0, "documents": 0, "requests_per_minute": 0,
    "tokens_per_minute": 0, "budget_tokens": 0, "retries": 0,
}  # fmt: skip

Fields: TypeAlias = dict[str, str]  # fields of a document or of a seed: name -> text


class Request(NamedTuple):
    """One request, and the key of its answer.

    key      hash of the model, the parameters, the messages and the number of the sample
    content  `model`, `messages` and the parameters, as the endpoint gets them
    """

    key: str
    content: dict[str, Any]

    @property
    def prompt_tokens(self) -> int:
        """An estimate for the budget: BYTES_PER_TOKEN bytes of the messages are a token."""
        return sum(len(message["content"].encode()) for message in self.content["messages"]) // BYTES_PER_TOKEN


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The settings that all kinds of tasks have in common.

    endpoint             URL of an OpenAI-compatible API, such as `http://localhost:8000/v1`; its query is sent too
    model                name of the model there
    key_variable         name of the environment variable with the API key; "": no key. The key is never stored
    input                documents, as `input` of a recipe
    seeds                in place of `input`: texts, or mappings of names to texts
    system               system message; "": none
    max_characters       first characters of each field that a prompt shows; 0: all
    temperature, top_p   of the sampling; left out: the endpoint's own
    max_tokens           length limit of an answer; a longer one is cut, and left out
    seed                 seed of the sampling, plus the number of the sample; left out: none is sent
    parameters           further fields of the request, such as `{stop: ["\\n"]}`
    documents            number of documents to ask for; 0: one for each document of the input
    concurrency          requests at the same time
    requests_per_minute, tokens_per_minute   limits of the endpoint; 0: no limit
    budget_tokens        tokens that all requests of the folder may use; 0: no limit
    retries              repetitions of a failed request, after 1, 2, 4, ... seconds or what the endpoint asks for
    timeout_seconds      time limit of one attempt in all
    """

    endpoint: str
    model: str
    key_variable: str = ""
    input: list[AnyInput] = []
    seeds: list[str | Fields] = []
    system: str = ""
    max_characters: int = 0
    temperature: float | msgspec.UnsetType = msgspec.UNSET
    top_p: float | msgspec.UnsetType = msgspec.UNSET
    max_tokens: int = 1024
    seed: int | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, Any] = {}
    documents: int = 0
    concurrency: int = 8
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    budget_tokens: int = 0
    retries: int = 5
    timeout_seconds: float = 600

    def __post_init__(self) -> None:
        address = URL.fullmatch(self.endpoint)
        if not address or address["scheme"] not in HTTP:
            raise ValueError("endpoint must be a URL with http:// or https://, such as http://localhost:8000/v1")
        check_url(self.endpoint)
        _check_parts(self.endpoint)
        if not self.model:
            raise ValueError("model is empty, expected the name of a model of the endpoint, such as qwen3-8b")
        if bool(self.input) == bool(self.seeds):
            fault = "both are set" if self.input else "both are empty"
            raise ValueError(f"one of input and seeds is needed, and {fault}. Give --input PATH, or seeds: [TEXT]")
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 < self.timeout_seconds <= 86_400:
            raise ValueError(f"timeout_seconds must be above 0 and at most 86400, not {self.timeout_seconds:g}")
        if reserved := sorted({"model", "messages", "stream", "n", *self._sampling()} & self.parameters.keys()):
            raise ValueError(f"parameters has {reserved[0]!r}, which generate sets itself. Leave it out of parameters")
        for name in self.names():
            for number, seed in enumerate(self.seeds):
                if name not in _fields_of(seed, number):
                    raise ValueError(_unknown(name, _fields_of(seed, number)) + f" - at `$.seeds[{number}]`")

    def names(self) -> list[str]:
        """Return the names of the placeholders that the fields of a document replace."""
        raise NotImplementedError

    def _sampling(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in ("temperature", "top_p", "max_tokens", "seed")}
        return {name: value for name, value in given.items() if value is not msgspec.UNSET}

    def request(self, prompt: str, sample: int = 0) -> Request:
        """Return the request of a prompt; `sample` distinguishes several requests of one prompt."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        messages.append({"role": "user", "content": prompt})
        content = {"model": self.model, "messages": messages, **self._sampling(), **self.parameters}
        if self.seed is not msgspec.UNSET:
            content["seed"] = self.seed + sample
        identity = orjson.dumps([content, sample], option=orjson.OPT_SORT_KEYS)
        return Request(hashlib.blake2b(identity, digest_size=16).hexdigest(), content)

    def most_tokens(self, request: Request) -> int:
        """Return the tokens that a request may use, before the endpoint has counted them."""
        return request.prompt_tokens + self.max_tokens

    def __repr__(self) -> str:  # without `endpoint` and `key_variable`, which may hold secrets
        return f"<task {self.digest} of {self.model!r}>"

    def read(self) -> Iterator[Fields]:
        """Yield the fields of each document of the input, or of each seed. Ids are `<input>/<number>` where a document
        has none. InputError: there are none, or a placeholder is no column."""
        if self.seeds:
            yield from (_fields_of(seed, number) for number, seed in enumerate(self.seeds))
            return
        names = self.names()
        entries = [_with_columns(entry, names) for entry in self.input]
        numbers: dict[str, int] = {}
        for source, table in InputTexts(list_whole_inputs(entries, "input")).tables():
            start = numbers.get(source, 0)
            numbers[source] = start + table.num_rows
            columns = [name for name in table.column_names if name != ROW]
            rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
            for number, row in enumerate(rows, start):
                fields = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
                yield {ID: f"{source}/{number}"} | dict.fromkeys(names, "") | fields
        if not numbers:
            raise InputError("input has no documents, expected at least one. Name other files")

    @property
    def identity(self) -> dict[str, Any]:
        """The kind of the task, and the settings that change requests."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        for entry in content["input"]:
            entry["path"] = shown(entry["path"])
        return {name: value for name, value in content.items() if name not in OPERATION}

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the identity."""
        return hashlib.sha256(orjson.dumps(self.identity, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


class Prompted(Task, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task with a prompt of its own.

    prompt   message to the model; `{text}`, `{id}` and `{NAME}` of a column or seed are replaced; `{{NAME}}` stays as
             `{NAME}`
    """

    prompt: str

    def names(self) -> list[str]:
        return placeholders(self.prompt)


class Template(Prompted, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="template"):
    """Documents written by a model: one per document of the input or seed, or `documents` of them in turns."""


class Score(Prompted, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="score"):
    """Whole numbers that a model gives to documents, in a column.

    The prompt has `{text}`.

    answer     what one line of the answer must be, with the name of the column in place of the number, such as
               `Educational score: {quality}`
    min, max   bounds of the number
    """

    answer: str
    min: int = 0
    max: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if TEXT not in self.names():
            raise ValueError("prompt has no {text}, so the model would not see the document. Write {text} into it")
        if len(placeholders(self.answer)) != 1:
            raise ValueError(
                f"answer must have the name of one column in braces, such as 'Score: {{quality}}', not {self.answer!r}"
            )
        if self.column in (ID, TEXT, *self.names()):
            raise ValueError(f"answer names the column {self.column!r}, which the documents have. Give another name")
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}. Swap them")

    @property
    def column(self) -> str:
        """The placeholder in `answer`, which names the column of the number."""
        return placeholders(self.answer)[0]


class SelfInstruct(Task, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="self_instruct"):
    """Instructions, inputs and outputs that a model makes from a few tasks (Wang et al. 2023, Self-Instruct).

    The input or the seeds are tasks with `instruction`, `input`, `output` and `is_classification` (`true`, `false`).

    similarity   instructions whose ROUGE-L with an earlier one is this or more are left out
    """

    documents: int
    similarity: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.documents < 1:
            raise ValueError("documents must be at least 1: self_instruct needs the number of instructions to make")
        if not 0 < self.similarity <= 1:
            raise ValueError(f"similarity must be above 0 and at most 1, not {self.similarity:g}")

    def names(self) -> list[str]:
        return ["instruction", "input", "output", "is_classification"]


AnyTask: TypeAlias = Template | Score | SelfInstruct
KINDS: dict[str, type[Task]] = {"template": Template, "score": Score, "self_instruct": SelfInstruct}


def _check_parts(endpoint: str) -> None:
    """Raise ValueError for a URL without a valid host and port, or with a fragment; it does not show the URL."""
    try:
        parts = urlsplit(endpoint)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError("endpoint is no valid URL. Check its host and its port")
    if parts.fragment:
        raise ValueError("endpoint has a fragment (#...), which no request can carry. Leave it out")


def placeholders(template: str) -> list[str]:
    """Return the names of the placeholders of a template, in their order."""
    return list(dict.fromkeys(match[2] for match in FIELD.finditer(template) if match[2]))


def filled(task: Prompted, fields: Mapping[str, str]) -> str:
    """Return the prompt of a task with its placeholders replaced. Placeholders in the fields stay as they are."""
    end = task.max_characters or None
    return FIELD.sub(lambda match: fields[match[2]][:end] if match[2] else f"{{{match[1]}}}", task.prompt)


def _fields_of(seed: str | Fields, number: int) -> Fields:
    return {ID: f"seed/{number}"} | ({TEXT: seed} if isinstance(seed, str) else seed)


def _unknown(name: str, fields: Mapping[str, str]) -> str:
    return (
        f"no field for the placeholder {{{name}}} (a text in braces is written {{{{{name}}}}}){nearest(name, fields)}"
    )


def _with_columns(entry: AnyInput, names: Sequence[str]) -> AnyInput:
    """Return an input that carries the columns of placeholders. Without the placeholder `{text}`, the text is the first
    of these columns."""
    wanted = [name for name in names if name not in (ID, TEXT)]
    columns = {**dict(zip(wanted, wanted, strict=True)), **entry.carried}
    text_column = entry.text_column or ("" if TEXT in names or not wanted else columns[wanted[0]])
    return msgspec.structs.replace(entry, columns=columns, text_column=text_column)


def shipped_tasks() -> dict[str, str]:
    """Return the tasks of the package: name -> YAML text."""
    folder = sorted((resources.files("curation") / "tools" / "synthesis").iterdir(), key=lambda entry: entry.name)
    return {Path(entry.name).stem: entry.read_text("utf-8") for entry in folder if entry.name.endswith(".yaml")}


def load_task(
    given: str | os.PathLike[str] | Mapping[str, Any], input: object = None, settings: Sequence[str] = ()
) -> AnyTask:
    """Return the task of a YAML file, of a shipped name or of a dictionary.

    input      replaces `input` of the task: paths or inputs as in a recipe. None: the task's own
    settings   `PATH=VALUE` strings, applied before the task is checked

    Raises RecipeError with the path of the wrong value.
    """
    name = "task" if isinstance(given, Mapping) else os.fspath(given)
    content = dict(given) if isinstance(given, Mapping) else parse_yaml(_text_of(name), name)
    if not isinstance(content, dict):
        raise RecipeError(f"{name} holds no settings, expected a task such as {{kind: template, prompt: ...}}")
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise RecipeError(f"{name}: kind is {kind!r}{nearest(kind, KINDS)}")
    if input is not None:
        content["input"] = input
    try:
        if "input" in content:
            content["input"] = [msgspec.to_builtins(entry) for entry in list_inputs(content["input"])]
        content = apply_settings(content, settings, KINDS[kind])
        task: AnyTask = msgspec.convert(content, Template | Score | SelfInstruct)
        return task
    except ValueError as error:  # msgspec's own errors too
        message = str(error)
        raise RecipeError(f"{name}: {message}{advice_for(message, content, KINDS[kind])}") from None


def _text_of(name: str) -> bytes | str:
    path, shipped = Path(name).expanduser(), shipped_tasks()
    names = ", ".join(shipped)
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise RecipeError(f"task {explain(error)}") from None
    if name in shipped:
        return shipped[name]
    if path.suffix in (".yaml", ".yml") or path.parent != Path():
        raise RecipeError(f"task {name} does not exist{advice(name) or f'; give a YAML file or one of {names}'}")
    raise RecipeError(f"no task named {name!r}{nearest(name, shipped)}")
