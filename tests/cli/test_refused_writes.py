# SPDX-License-Identifier: Apache-2.0
"""What the system refuses to write: each command names the user's output, the error and its remedy, in one line."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curation.base.errors import InputError, TokenizerError
from curation.base.system import os_errors
from curation.base.system.os_errors import explain
from curation.running.array_tasks import ArrayTask, Member
from curation.tokens import tokenizer_training

# A library that refuses writes below a folder: disk quotas need another machine.
QUOTA = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
static int is_refused(int fd) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = fd < 3 ? -1 : readlink(name, path, sizeof path - 1);
    const char *folder = getenv("REFUSED");
    if (size < 0 || !folder) return 0;
    path[size] = 0;
    errno = EDQUOT;
    return !strncmp(path, folder, strlen(folder)) && path[strlen(folder)] == '/';
}
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
ssize_t write(int fd, const void *data, size_t n) { return is_refused(fd) ? -1 : REAL(write)(fd, data, n); }
ssize_t writev(int fd, const struct iovec *data, int n) { return is_refused(fd) ? -1 : REAL(writev)(fd, data, n); }
"""
PRELOAD = "export LD_PRELOAD=$PWD/quota.so REFUSED=$PWD/{}"
NO_RIGHTS = "setpriv --bounding-set=-dac_override,-dac_read_search"  # of root over the folders of others

# Inside the output folder `m`: how it refuses, and the name of its error.
REFUSALS = {
    "quota": (PRELOAD.format("m"), "EDQUOT"),
    "no permission": (f"mount -t tmpfs -o mode=555 tmpfs m; AS='{NO_RIGHTS}'", "EACCES"),
    "full": ("mount -t tmpfs -o size=4k tmpfs m && head -c 4096 /dev/zero > m/fill", "ENOSPC"),
    "no inodes": ("mount -t tmpfs -o nr_inodes=1 tmpfs m", "ENOSPC"),
    "read-only": ("mount -t tmpfs -o ro tmpfs m", "EROFS"),
    "size limit": ("ulimit -f 0", "EFBIG"),
}
COMMANDS = {
    "train tokenizer d.jsonl -o m/t.json --vocabulary 500": "m/t.json",
    "train tokenizer d.jsonl -o m/t.model --vocabulary 500": "m/t.model",
    "train lm d.jsonl -o m/lm.arpa": "m/lm.arpa",
    "train classifier --label a d.jsonl --label b e.jsonl -o m/c.bin": "m/c.bin",
    "run r.yaml -o m/o --engine cpu --force-disk": "m/o",
    "run s.yaml -o m/o --reuse old --engine cpu --force-disk": "m/o",
    "run r.yaml -o m/o --engine cpu --force-disk --array-task 1/1": "m/o",
    "measure d.jsonl -o m/o --engine cpu --force-disk": "m/o",
    "embed d.jsonl -o m/o --model model --engine cpu --force-disk": "m/o",
    "align d.jsonl e.jsonl --model model -o m/p.parquet --engine cpu": "m/p.parquet",
    "generate task.yaml -o m/g": "m/g",
    "import-config other.yaml -o m/r.yaml": "m/r.yaml",
    "tokenize d.jsonl -o m/o --tokenizer gpt2 --engine cpu --force-disk": "m/o",
    "merge PAIR -o m/s": "m/s",
    "split PAIR -o m/s --max-bytes 4000": "m/s",
    "check-overlap --train d.jsonl --test e.jsonl -o m/o.json": "m/o.json",
    "init d.jsonl -o m/r.yaml": "m/r.yaml",
    "compare o copy --html m/c.html": "m/c.html",
}
ADVICE = {
    "quota": "outside the quota", "no permission": "Change the permissions", "full": "Free disk space",
    "no inodes": "Delete files", "read-only": "Choose", "size limit": "ulimit -f",
}  # fmt: skip
BEFORE = ("no permission", "read-only")  # the first write

# Refusals of the folder `t` for temporary files.
TEMPORARY = {
    "full": "mount -t tmpfs -o size=12k tmpfs t",  # the file by which Python chooses the folder fits in
    "quota": PRELOAD.format("t"),
    "read-only": "mount -t tmpfs -o ro tmpfs t",
    "absent": "rmdir t",
}
# Whether they need a temporary folder. Others end as they do with space.
TEMPORARY_COMMANDS = {
    "tokenize d.jsonl -o m/o --tokenizer gpt2 --engine cpu": False,
    "run r.yaml -o m/o --engine cpu": False,
    "run s.yaml -o m/o --engine cpu": False,
    "plan r.yaml": False,
    "doctor": False,
    "check-overlap --train d.jsonl --test e.jsonl -o m/o.json": False,
    "train classifier --label a d.jsonl --label b e.jsonl -o m/c.bin": False,
    "measure d.jsonl --engine cpu --force-disk": True,
}


@pytest.fixture(scope="module")
def refused(command_files: Path) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Run a command after a script that lets a folder refuse writes, in a name space of mounts."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no mount name space: run as root, or allow unprivileged user name spaces")
    if not shutil.which("cc"):
        pytest.skip("no C compiler: install gcc")
    (command_files / "quota.c").write_text(QUOTA)
    for folder in ("m", "t"):
        (command_files / folder).mkdir(exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "quota.so", "quota.c", "-ldl"], cwd=command_files, check=True)
    (pair,) = (command_files / "o" / "tokens").glob("*.bin")

    def run(refusal: str, command: str) -> subprocess.CompletedProcess[str]:
        words = command.replace("PAIR", str(pair.with_suffix("")))
        return subprocess.run(
            ["unshare", "-rm", "bash", "-c", f'{refusal}\nexec $AS "{sys.executable}" -m curation {words}'],
            cwd=command_files, capture_output=True, text=True, check=False,
            # Python cuts the bytecode of modules that it writes at a limit of the file size.
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), "PYTHONDONTWRITEBYTECODE": "1", "AS": ""},
        )  # fmt: skip

    return run


def tried(commands: dict[str, Any], refusals: dict[str, Any], name: str, step: int) -> list[tuple[str, Any]]:
    """All commands for "full", and each `step`-th for others, beginning at another one for each."""
    return [*commands.items()][slice(None) if name == "full" else slice([*refusals].index(name) % step, None, step)]


@pytest.mark.slow("trainers whose output passes the limit of the file size after it was tried")
def test_a_write_that_is_refused_later_names_the_output(refused: Any) -> None:
    for command, output in [*COMMANDS.items()][:5]:
        done = refused("ulimit -f 2", command)
        assert done.returncode == 1 and f"{output}: the file would be larger" in done.stderr, (command, done.stderr)


@pytest.mark.slow(
    "each command that writes on a full disk, and a third of them on disks that refuse writes in five other ways"
)
@pytest.mark.parametrize("name", REFUSALS)
def test_each_command_names_its_output_and_the_error(refused: Any, name: str) -> None:
    refusal, error = REFUSALS[name]
    for command, output in tried(COMMANDS, REFUSALS, name, 3):
        done = refused(refusal, command)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == (2 if name in BEFORE else 1), (command, done.returncode, last)
        assert output in last and f"({error})" in last and ADVICE[name] in last, (command, last)
        assert "Traceback" not in done.stderr and ".tmp" not in last, (command, last)


@pytest.mark.slow("commands with a folder for temporary files that is full, absent or read-only")
@pytest.mark.parametrize("name", TEMPORARY)
def test_a_temporary_folder_that_refuses_is_named_or_not_needed(refused: Any, command_files: Path, name: str) -> None:
    for command, needs_folder in tried(TEMPORARY_COMMANDS, TEMPORARY, name, 2):
        (command_files / "t").mkdir(exist_ok=True)
        shutil.rmtree(command_files / "m")
        (command_files / "m").mkdir()
        done = refused(f"{TEMPORARY[name]}; export TMPDIR=$PWD/t", command)
        assert "Traceback" not in done.stderr + done.stdout, command
        if needs_folder and done.returncode:  # Python chooses another folder than one where it cannot write at all
            last = done.stderr.strip().splitlines()[-1]
            assert done.returncode == 1 and f"{command_files}/t (TMPDIR): " in last and ADVICE[name] in last, last
        else:
            assert done.returncode in (0, 3), (command, done.returncode, done.stderr)


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
