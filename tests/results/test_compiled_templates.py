# SPDX-License-Identifier: Apache-2.0
"""Templates of pages are compiled once per machine, beside the kernels."""

import pytest

from curation.results.report.page import rendering


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(rendering, "FOLDER", tmp_path / "cache")
    yield tmp_path / "cache"
    rendering._environment.cache_clear()


def compiled(monkeypatch) -> list[str]:
    """Render a page in a new environment, and return the templates that Jinja compiled for it."""
    rendering._environment.cache_clear()
    made, names = rendering._environment(), []
    compile_ = made.compile

    def compile_one(source, name, *rest):
        names.append(name)
        return compile_(source, name, *rest)

    monkeypatch.setattr(made, "compile", compile_one)
    made.get_template("card.html")
    return names


def test_a_second_process_compiles_nothing(folder, monkeypatch):
    assert len(compiled(monkeypatch)) == 1
    assert [path.name.split("-")[0] for path in folder.iterdir()] == ["template"]
    assert compiled(monkeypatch) == []


def test_damaged_files_are_compiled_again(folder, monkeypatch):
    compiled(monkeypatch)
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    assert len(compiled(monkeypatch)) == 1
    assert compiled(monkeypatch) == []


def test_a_folder_that_cannot_be_written_costs_only_time(folder, monkeypatch):
    folder.write_text("a file, not a folder")
    assert len(compiled(monkeypatch)) == len(compiled(monkeypatch)) == 1
