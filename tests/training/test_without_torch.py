# SPDX-License-Identifier: Apache-2.0
"""PyTorch is optional: nothing else loads it, and what needs it says so."""

import subprocess
import sys

import pytest


def test_a_run_with_forms_loads_no_torch():
    modules = "curation.running.run, curation.tokens.forms.writing, curation.cli"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "False\n"


def test_the_data_sets_say_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("curation.training")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"curation.training needs PyTorch .*; .*gpu-pipeline\[torch\]'.*in a clone$"):
        import curation.training  # noqa: F401
