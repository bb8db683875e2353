# SPDX-License-Identifier: Apache-2.0
"""A corpus of real English for `curate demo`: the documentation in this Python installation.

Docstrings and help topics of the standard library come first, then the licences and descriptions of the installed
packages (licence texts repeat across packages: real duplicates), then the packages' docstrings until the text is long
enough. Source files are parsed, never imported. Parsing the standard library takes about two seconds on one core. The
tests of the standard library are skipped: they would add a fifth more text, and take ten more seconds.
"""

import ast
import os
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from curation.base.errors import OutputError

CORPUS = "corpus.jsonl"
MIN_CHARACTERS = 300  # shorter docstrings are added to the document of their module
SKIPPED_FOLDERS = {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
LEGAL_SUFFIXES = ("", ".md", ".rst", ".txt")  # but not license.py
LEGAL_NAMES = ("authors", "copying", "licence", "license", "notice")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def collect_documents(min_bytes: int = 4_000_000, max_bytes: int = 12_000_000) -> Iterator[dict[str, str]]:
    """Yield documents with `id`, `text` and `source`, always in the same order for the same Python and packages.

    Sizes are UTF-8 bytes of text. Docstrings of packages are read until the corpus has `min_bytes`; it never exceeds
    `max_bytes`. A bare installation may have less than `min_bytes`. Files that cannot be read or parsed are skipped.
    """
    standard_library = Path(sysconfig.get_path("stdlib"))
    packages = [Path(path) for path in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})]
    size = 0
    for limit, documents in (
        (max_bytes, _documented(standard_library, "stdlib")),
        *((max_bytes, _distribution_texts(folder)) for folder in packages),
        *((min_bytes, _documented(folder, "packages")) for folder in packages),
    ):
        for document in documents:
            if size >= limit:
                break
            size += len(document["text"].encode())
            if size > max_bytes:
                return
            yield document


def prepare_corpus(folder: Path) -> tuple[Path, str]:
    """Write the corpus to a folder, unless an earlier demo did; return its path and a message about it.

    Raises OutputError if `folder` is a file, or is not empty and has no corpus.
    """
    path = folder / CORPUS
    if path.exists():
        return path, f"{path} already exists"
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; give another --output, which must be a folder")
    if folder.exists() and not all(entry == _unfinished(path) and _is_own_file(entry) for entry in folder.iterdir()):
        raise OutputError(f"{folder} is not empty and has no {CORPUS} of a demo; give another --output")
    folder.mkdir(parents=True, exist_ok=True)
    documents, size = write_corpus(path)
    return path, f"{documents:,} documents ({size / 1e6:.1f} MB): docstrings, READMEs and licences of this Python"


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".unfinished")


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def write_corpus(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Write the documents as JSON Lines; return their number and the UTF-8 bytes of their text."""
    path = Path(path)
    unfinished = _unfinished(path)
    count = size = 0
    with unfinished.open("wb") as file:
        for document in collect_documents():
            file.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
            size += len(document["text"].encode())
    unfinished.replace(path)
    return count, size


def _documented(folder: Path, source: str) -> Iterator[dict[str, str]]:
    """Yield documents with the docstrings of every module below `folder`."""
    for path in _files(folder):
        tree = _parse(path) if path.suffix == ".py" else None
        if tree is not None:
            relative = path.relative_to(folder).as_posix()
            texts = _help_topics(tree) if relative == "pydoc_data/topics.py" else _docstrings(tree)
            yield from _documents(f"{source}/{relative}", texts, source)


def _distribution_texts(folder: Path) -> Iterator[dict[str, str]]:
    """Yield documents with the licences, notices and descriptions of the distributions installed in `folder`."""
    for path in _files(folder):
        text = _legal_or_description(path)
        yield from _documents(f"packages/{path.relative_to(folder).as_posix()}", [("", text)], "distributions")


def _documents(name: str, texts: Iterable[tuple[str, str]], source: str) -> Iterator[dict[str, str]]:
    for part, text in texts:
        if text.strip():
            # A docstring may have lone surrogates as escapes; UTF-8 cannot.
            text = text.encode("utf-8", "replace").decode()
            yield {"id": f"{name}:{part}" if part else name, "text": text, "source": source}


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below `folder`, in the order of their paths, except those in folders of tests."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        yield from (Path(parent, name) for name in sorted(files))


def _parse(path: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the code of packages
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # ValueError: a NUL byte, or undecodable bytes
        return None


def _docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name, text). The first text has the docstrings of the module and of its short definitions. Each further
    text has the docstrings of one long top-level definition, nested ones included."""
    groups = [(node.name, "\n\n".join(_nested(node))) for node in tree.body if isinstance(node, Definition)]
    short = [text for _, text in groups if 0 < len(text) < MIN_CHARACTERS]
    yield "", "\n\n".join([ast.get_docstring(tree) or "", *short]).strip()
    yield from _numbered((name, text) for name, text in groups if len(text) >= MIN_CHARACTERS)


def _nested(node: Definition) -> Iterator[str]:
    text = ast.get_docstring(node)
    if text:
        yield text
    for child in node.body:
        if isinstance(child, Definition):
            yield from _nested(child)


def _numbered(groups: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs (name, text) with `#2`, `#3` ... appended to repeated names, since a module may define a name
    twice."""
    seen: dict[str, int] = {}
    for name, text in groups:
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), text


def _help_topics(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each topic of `help("topic")`, from one dictionary of strings."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from sorted(ast.literal_eval(node.value).items())


def _legal_or_description(path: Path) -> str:
    is_description = path.name == "METADATA"
    if not is_description and (path.suffix not in LEGAL_SUFFIXES or not path.name.lower().startswith(LEGAL_NAMES)):
        return ""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return ""
    return text.partition("\n\n")[2] if is_description else text  # the headers end at the first empty line
