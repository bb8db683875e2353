# SPDX-License-Identifier: Apache-2.0
"""Sentences for errors of the system, and advice for paths and addresses."""

import errno
import os
import re
from pathlib import Path

import pytest

from curation.base.errors import OutputError
from curation.base.system.addresses import address_fault
from curation.base.system.files import local_output
from curation.base.system.os_errors import SENTENCES, explain
from curation.base.system.path_advice import advice


@pytest.mark.parametrize("number", sorted(SENTENCES))
def test_every_error_of_the_system_has_a_sentence(number: int):
    name = errno.errorcode[number]
    told = explain(OSError(number, os.strerror(number), "out/x"))
    assert re.fullmatch(rf"out/x: [a-z][^.]+ \({name}\)\. [A-Z].+[^.]", told), told
    assert "Errno" not in told and len(told.split()) <= 25


def test_errors_without_a_sentence_have_their_name():
    number = errno.ELIBBAD
    assert number not in SENTENCES
    assert explain(OSError(number, "Damaged library", "x")) == "x: Damaged library (ELIBBAD)"
    assert explain(OSError("no number")) == "no number" and explain(OSError(-2, "no name")) == "[Errno -2] no name"
    full = OSError(errno.ENOSPC, "No space left")
    assert explain(full, where="out").startswith("out: the disk is full") and explain(full).startswith("the disk")
    temporary = f"out/t.json.{os.uname().nodename}-12-13.tmp"
    assert explain(OSError(errno.EROFS, "", temporary)).startswith("out/t.json: the file system is read-only")
    assert explain(OSError(errno.EXDEV, "", "a", None, "b")).startswith("a -> b: two paths")


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.1:8786", "host:8786", "tls://[::1]:8786", "inproc://1.2/3", "ucx://h:1"]
)
def test_addresses_of_schedulers_pass(address: str):
    assert address_fault(address) == ""


def test_unrelated_names_are_not_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.jsonl", "notes.txt"):
        Path(name).touch()
    assert advice("data.jsonl") == "" and advice("corpse.jsonl") == "; did you mean corpus.jsonl?"


def test_recipes_are_suggested_for_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Files of one stem differ by their suffixes; a list that `init` wrote is no recipe."""
    monkeypatch.chdir(tmp_path)
    for name in ("recipe.a.list", "recipe.yaml", "recipe2.z.list", "recipe2.yaml"):
        Path(name).touch()
    assert advice("recip.yaml") == "; did you mean recipe.yaml, recipe2.yaml?"
    Path("recipe.yaml").unlink()
    Path("recipe2.yaml").unlink()
    assert advice("recipe.yaml").endswith(".list?")


def test_outputs_of_python_are_below_the_home_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_output("~/out") == tmp_path / "out" and local_output("./~") == Path("~")
    with pytest.raises(OutputError, match=r"\$OUT was not replaced"):
        local_output("$OUT/x")
