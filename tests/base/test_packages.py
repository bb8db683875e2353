# SPDX-License-Identifier: Apache-2.0
"""Versions of packages are those of `importlib.metadata`."""

from importlib import metadata

import pytest

from curation.base.errors import EngineError
from curation.base.system import packages
from curation.base.system.packages import check_torch, package_version


@pytest.mark.parametrize("name", ["pandas", "pyarrow", "numba", "dask", "tiktoken", "gigatoken", "tokenizers"])
def test_versions_are_those_of_the_metadata(name: str):
    assert package_version(name) == metadata.version(name)


def test_a_package_that_is_not_installed_is_an_error():
    with pytest.raises(metadata.PackageNotFoundError, match="no-such-package"):
        package_version("no-such-package")


def test_the_version_is_that_of_the_header(monkeypatch: pytest.MonkeyPatch):
    text = "Metadata-Version: 2.4\nName: made\nVersion: 1.2.post3\n\nText that has\nVersion: 9\n"
    monkeypatch.setattr(metadata, "distribution", lambda name: type("Made", (), {"read_text": lambda self, _: text})())
    assert package_version("made-by-this-test") == "1.2.post3"


@pytest.mark.parametrize("version", ["1.13.1", "2.5.1+cu121", "2.6.0", "2.13.0+cpu", "10.0.0a0+git1"])
def test_a_pytorch_that_can_run_code_of_files_is_refused(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packages, "package_version", lambda _: version)
    if version[:3] in ("1.1", "2.5"):
        with pytest.raises(EngineError, match=r"can run code of a file that it loads, expected 2\.6 or newer"):
            check_torch()
    else:
        check_torch()
