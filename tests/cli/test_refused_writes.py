# SPDX-License-Identifier: Apache-2.0
"""What the system refuses to write: each command names the user's output, the error and its remedy, in one line."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from curation.errors import InputError, TokenizerError
from curation.packing import tokenizer_training
from curation.running.array_tasks import ArrayTask, Member
from curation.system import os_errors
from curation.system.os_errors import explain

# Inside the output folder `m`: how it refuses, and the name of its error.
REFUSALS = {
    "full": ("mount -t tmpfs -o size=4k tmpfs m && head -c 4096 /dev/zero > m/fill", "ENOSPC"),
    "no inodes": ("mount -t tmpfs -o nr_inodes=1 tmpfs m", "ENOSPC"),
    "read-only": ("mount -t tmpfs -o ro tmpfs m", "EROFS"),
    "size limit": ("ulimit -f 0", "EFBIG"),
}
COMMANDS = {
    "train tokenizer d.jsonl -o m/t.json --vocabulary 500": "m/t",
    "train tokenizer d.jsonl -o m/t.model --vocabulary 500": "m/t.model",
    "train lm d.jsonl -o m/lm.arpa": "m/lm.arpa",
    "train classifier --label a d.jsonl --label b e.jsonl -o m/c.bin": "m/c.",
    "run r.yaml -o m/o --engine cpu --force-disk": "m/o",
    "tokenize d.jsonl -o m/o --tokenizer gpt2 --engine cpu --force-disk": "m/o",
    "merge PAIR -o m/s": "m/s",
    "split PAIR -o m/s --max-bytes 4000": "m/s",
    "check-overlap --train d.jsonl --test e.jsonl -o m/o.json": "m/o.json",
    "init d.jsonl -o m/r.yaml": "m/r.yaml",
    "compare o copy --html m/c.html": "m/c.html",
}
ADVICE = {"full": "Free disk space", "no inodes": "Delete files", "read-only": "Choose", "size limit": "ulimit -f"}


@pytest.mark.slow("each command that writes, on a disk without space, without inodes, read-only, and at a size limit")
@pytest.mark.parametrize("name", REFUSALS)
def test_each_command_names_its_output_and_the_error(command_files: Path, name: str) -> None:
    refusal, error = REFUSALS[name]
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no mount name space: run as root, or allow unprivileged user name spaces")
    (pair,) = (command_files / "o" / "tokens").glob("*.bin")
    (command_files / "m").mkdir(exist_ok=True)
    for command, output in COMMANDS.items():
        words = command.replace("PAIR", str(pair.with_suffix("")))
        script = f'{refusal} && exec "{sys.executable}" -m curation {words}'
        done = subprocess.run(
            ["unshare", "-rm", "bash", "-c", script],
            cwd=command_files,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode in (1, 2), (command, done.returncode, last)
        assert output in last and f"({error})" in last and ADVICE[name] in last, (command, last)
        assert "Traceback" not in done.stderr and ".tmp" not in last, (command, last)


def test_names_of_own_folders_are_not_shown() -> None:
    for hidden in (
        f"m/lm.arpa.training.{os.uname().nodename}-3-4.tmp/5.ngrams",
        "m/_repack.ab12/0.lengths",
        "/x/_repack.ab12",
    ):
        refused = OSError(errno.EACCES, "Permission denied", hidden)
        assert explain(refused, where="m/out").startswith("m/out: permission denied (EACCES)")
        assert explain(OSError(errno.EACCES, "", "m/other"), where="m/out").startswith("m/other: ")


def test_a_file_system_without_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "none" / "x"))
    assert explain(full).startswith(f"{tmp_path}/none/x: the disk is full (ENOSPC). Free disk space")
    found = os.statvfs(tmp_path)
    values = [*found[:5], 1000, 3, 3, *found[8:]]
    statvfs = os.statvfs_result(values)
    monkeypatch.setattr(os_errors.os, "statvfs", lambda path: statvfs)
    assert "no inodes left for new files (ENOSPC). Delete files" in explain(full)
    assert "no inodes" in explain(OSError(errno.ENOSPC, "No space left"), where=str(tmp_path))


def test_a_refused_write_is_no_fault_of_the_vocabulary(command_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tokenizer_training, "train_model", refuse)
    with pytest.raises(OSError, match="No space left"):
        tokenizer_training.train_tokenizer(command_files / "d.jsonl", command_files / "t.model", vocabulary=500)
    monkeypatch.setattr(tokenizer_training, "train_model", lambda *_: (_ for _ in ()).throw(RuntimeError("too high")))
    with pytest.raises(TokenizerError, match="bpe with 500 tokens is not possible: too high"):
        tokenizer_training.train_tokenizer(command_files / "d.jsonl", command_files / "t.model", vocabulary=500)
    assert not (command_files / "t.model").exists()


@pytest.mark.parametrize("path", [None, "out/x"])
def test_other_processes_of_an_array_get_the_same_error(tmp_path: Path, path: str | None) -> None:
    member = object.__new__(Member)
    member.folder, member.task = tmp_path, ArrayTask(1, 2)
    member._note_failure(0, OSError(errno.ENOSPC, "Error writing bytes to file", path))
    with pytest.raises(OSError, match="No space left") as caught:
        member._raise_failure(0)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, path)
    member._note_failure(1, InputError("the file is gone"))
    with pytest.raises(InputError, match="the file is gone"):
        member._raise_failure(1)
