# SPDX-License-Identifier: Apache-2.0
"""Tracebacks in IPython: the lines of the user's cells, and the message."""

import subprocess
import sys
from pathlib import Path

from tests.needs import needs

CELLS = '''
import signal
from IPython.core.interactiveshell import InteractiveShell
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
shell = InteractiveShell.instance()
shell.run_line_magic("colors", "NoColor")
for cell in (
    """import curation, pandas
frame = pandas.DataFrame({"id": ["a", "b", "c"], "text": ["one two", "three", "four five"]})
@curation.stage
def first_word(texts) -> str:
    return [text.split()[1] for text in texts.to_pylist()]""",
    """recipe = {"stages": [first_word()], "output": {"formats": []}}
curation.run(recipe, "out", input=frame, engine="cpu", progress=False)""",
    "print('=== all'); get_ipython().run_line_magic('tb', 'Verbose')",
    "print('=== other'); curation.run({'output': {'formats': []}}, '.', input=frame, engine='cpu', progress=False)",
    "print('=== list'); curation.filter(['one'], 'gopher')",
    """print('=== stop')
import os, signal, time
@curation.stage
def slow(texts) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(2)
    return texts
curation.run({"stages": [slow()], "output": {"formats": []}}, "stopped", input=frame, engine="cpu", progress=False)""",
):
    shell.run_cell(cell, store_history=True)
'''


def test_errors_show_the_lines_of_cells_and_the_message(tmp_path: Path):
    needs("IPython")
    command = [sys.executable, "-c", CELLS]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    short, all_frames, other, of_list, stopped = (part.strip().split("\n") for part in shown.split("\n=== "))
    assert short == [
        "Cell In[2], line 2",
        '    curation.run(recipe, "out", input=frame, engine="cpu", progress=False)',
        "Cell In[1], line 5, in first_word",
        "    return [text.split()[1] for text in texts.to_pylist()]",
        "StageError: the stage __main__:first_word (__main__.first_word): IndexError: list index out of range "
        "(line 5 of its cell, document 'b')",
        "%tb Verbose shows all frames",
    ]
    assert len(all_frames) > 100 and "IndexError" in "".join(all_frames)
    assert of_list[1:3] == ["Cell In[5], line 1", "    print('=== list'); curation.filter(['one'], 'gopher')"]
    assert "give a new output" in other[-2] and "--" not in other[-2]
    assert of_list[3].startswith("ArgumentError: expected a DataFrame") and len(of_list) == 5
    assert stopped[-2:] == ["Interrupted: stopped; the same call resumes the run", "%tb Verbose shows all frames"]
