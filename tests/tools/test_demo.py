# SPDX-License-Identifier: Apache-2.0
"""The corpus of `curate demo`: enough of it, the same each time, with duplicates, from files of any kind."""

import json
import sysconfig
from pathlib import Path

import pytest

from curation.tools.demo import collect_documents, write_corpus


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, int]]:
    """The file of this machine's corpus, and what is said of it."""
    path = tmp_path_factory.mktemp("written") / "corpus.jsonl"
    return path, write_corpus(path)


@pytest.fixture(scope="module")
def documents(written: tuple[Path, tuple[int, int]]) -> list[dict[str, str]]:
    return [json.loads(line) for line in written[0].read_bytes().splitlines()]


def size_of(documents: list[dict[str, str]]) -> int:
    return sum(len(document["text"].encode()) for document in documents)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Python installation: folders `lib` and `site`."""
    folders = {"stdlib": tmp_path / "lib", "purelib": tmp_path / "site", "platlib": tmp_path / "site"}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folders[name]))
    return tmp_path


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.slow("the demo finds enough text on this machine")
def test_there_is_enough(documents: list[dict[str, str]]):
    assert sum(len(document["text"]) >= 300 for document in documents) > 1_000
    assert 3_000_000 < size_of(documents) <= 12_000_000


@pytest.mark.slow("documents of the demo have unique relative ids")
def test_documents_have_unique_relative_ids(documents: list[dict[str, str]]):
    assert all(list(document) == ["id", "text", "source"] for document in documents)
    ids = [document["id"] for document in documents]
    assert len(set(ids)) == len(ids)
    assert {name.partition("/")[0] for name in ids} == {"stdlib", "packages"}
    assert all(document["text"].strip() for document in documents)


@pytest.mark.slow("the demo contains known documents of the standard library")
def test_known_documents(documents: list[dict[str, str]]):
    texts = {document["id"]: document["text"] for document in documents}
    assert texts["stdlib/json/decoder.py:JSONDecoder"].startswith("Simple JSON <https://json.org> decoder\n\nPerforms")
    assert "with" in texts["stdlib/pydoc_data/topics.py:with"]


@pytest.mark.slow("the demo's corpus has duplicates")
def test_there_are_duplicates(documents: list[dict[str, str]]):
    assert len({document["text"] for document in documents}) < len(documents)


@pytest.mark.slow("the demo's corpus is the same each time")
def test_order_and_content_are_the_same_each_time(documents: list[dict[str, str]]):
    again = list(collect_documents(max_bytes=300_000))
    assert again == documents[: len(again)]
    assert 250_000 < size_of(again) <= 300_000


def test_packages_are_read_only_until_there_is_enough(machine: Path):
    for name in ("a", "b", "c"):
        put(machine / f"site/{name}/__init__.py", f'"""{name * 400}"""')
    assert [document["id"] for document in collect_documents(min_bytes=700)] == [
        "packages/a/__init__.py",
        "packages/b/__init__.py",
    ]
    assert len(list(collect_documents(min_bytes=0))) == 0
    assert len(list(collect_documents(min_bytes=9_999))) == 3
    assert len(list(collect_documents(min_bytes=9_999, max_bytes=1_000))) == 2


def test_short_docstrings_join_their_module_and_long_definitions_stand_alone(machine: Path):
    put(
        machine / "lib/shapes.py",
        f'''"""Shapes."""
class Square:
    """{"s" * 300}"""
    def area(self):
        """Side times side."""
def small():
    """Short."""
def Square():
    """{"t" * 300}"""
def bare(): ...
''',
    )
    assert list(collect_documents()) == [
        {"id": "stdlib/shapes.py", "text": "Shapes.\n\nShort.", "source": "stdlib"},
        {"id": "stdlib/shapes.py:Square", "text": "s" * 300 + "\n\nSide times side.", "source": "stdlib"},
        {"id": "stdlib/shapes.py:Square#2", "text": "t" * 300, "source": "stdlib"},
    ]


def test_licences_and_descriptions_of_packages(machine: Path):
    put(machine / "site/a-1.0.dist-info/METADATA", "Name: a\nVersion: 1.0\n\nWhat a does.\n\nMore.")
    put(machine / "site/a-1.0.dist-info/RECORD", "a/__init__.py,,")
    put(machine / "site/a-1.0.dist-info/licenses/LICENSE.txt", "Do what you like.")
    put(machine / "site/b-1.0.dist-info/METADATA", "Name: b\nVersion: 1.0\n")
    put(machine / "site/c/_vendor/COPYING", "Do what you like.")
    put(machine / "site/c/licenses.json", "{}")
    assert list(collect_documents()) == [
        {"id": "packages/a-1.0.dist-info/METADATA", "text": "What a does.\n\nMore.", "source": "distributions"},
        {"id": "packages/a-1.0.dist-info/licenses/LICENSE.txt", "text": "Do what you like.", "source": "distributions"},
        {"id": "packages/c/_vendor/COPYING", "text": "Do what you like.", "source": "distributions"},
    ]


def test_help_topics_are_documents(machine: Path):
    put(machine / "lib/pydoc_data/topics.py", "topics = {'while': 'Again.', 'if': 'Once.'}")
    assert [(document["id"], document["text"]) for document in collect_documents()] == [
        ("stdlib/pydoc_data/topics.py:if", "Once."),
        ("stdlib/pydoc_data/topics.py:while", "Again."),
    ]


def test_unreadable_files_are_passed_over(machine: Path):
    put(machine / "lib/a_syntax.py", '"""Lost."""\ndef (')
    put(machine / "lib/b_nul.py", b'"""Lost."""\0')
    put(machine / "lib/c_bytes.py", b'"""Lost \xff."""')
    put(machine / "lib/d_escape.py", '"""Kept \\d."""')  # warns when parsed; warnings are errors here
    put(machine / "lib/e_surrogate.py", '"""Kept \\ud800."""')
    put(machine / "lib/tests/f.py", '"""Left out."""')
    put(machine / "site/LICENSE", b"Lost \xff.")
    (machine / "lib/g_gone.py").symlink_to("nowhere")
    assert [document["text"] for document in collect_documents()] == ["Kept \\d.", "Kept ?."]


@pytest.mark.slow("the demo writes its corpus as JSON Lines")
def test_written_corpus_is_json_lines(written: tuple[Path, tuple[int, int]], documents: list[dict[str, str]]):
    path, said = written
    assert said == (len(documents), size_of(documents))
    assert list(path.parent.iterdir()) == [path]
