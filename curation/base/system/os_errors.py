# SPDX-License-Identifier: Apache-2.0
"""One sentence for every error number of the operating system: the fault, its name, and the remedy."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

# The end of the temporary name under which `curation.base.system.files.commit` writes a file.
_TEMPORARY = re.compile(rf"\.{re.escape(os.uname().nodename)}-\d+-\d+\.tmp$")
FILLING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of writes; they name no file
# Folders that commands make next to an output and delete.
_OWN_FOLDER = re.compile(rf"(^|/)(_repack\.[^/]+(/|$)|[^/]+\.training\.{re.escape(os.uname().nodename)}-)")
NO_INODES = "the file system has no inodes left for new files", "Delete files, or choose a folder on another disk"
FEW_INODES = 64  # not 0: after a refused write, its files may have been deleted

# Number -> (fault, remedy).
SENTENCES = {
    errno.ENOSPC: ("the disk is full", "Free disk space, or choose a folder on another disk"),
    errno.EDQUOT: ("your disk quota is used up", "Free disk space, or choose a folder outside the quota"),
    errno.EFBIG: ("the file would be larger than allowed", "Raise `ulimit -f`, or choose another file system"),
    errno.EACCES: ("permission denied", "Change the permissions (ls -ld shows them), or choose another path"),
    errno.EPERM: ("the operation is not permitted", "Change the owner or the permissions, or choose another path"),
    errno.EROFS: ("the file system is read-only", "Choose a folder that can be written"),
    errno.ENOENT: ("no such file or folder", "Check the path"),
    errno.EEXIST: ("a file of that name exists", "Choose another path, or remove the file"),
    errno.ENOTDIR: ("a part of the path is a file, expected a folder", "Check the path"),
    errno.EISDIR: ("it is a folder, expected a file", "Give the path of a file"),
    errno.ENOTEMPTY: ("the folder is not empty", "Choose another folder, or empty it"),
    errno.ENAMETOOLONG: ("the name is too long", "Shorten the path; most file systems allow names of 255 bytes"),
    errno.ELOOP: ("the link points to itself", "Replace the link by a file or folder"),
    errno.EINVAL: ("the system refuses the name or the operation", "Choose another path"),
    errno.EILSEQ: ("the file system cannot hold this name", "Rename it with plain letters and digits"),
    errno.EMFILE: ("too many files are open", "Raise `ulimit -n`, or lower --workers"),
    errno.ENFILE: ("too many files are open on this machine", "End other programs, or ask who runs the machine"),
    errno.ENOMEM: ("memory is short", "Lower --workers, or free memory"),
    errno.EAGAIN: ("a resource is used up", "Raise `ulimit -u`, or lower --workers"),
    errno.EBUSY: ("it is in use", "Wait until the other program ends"),
    errno.ETXTBSY: ("the file is being executed", "Wait until the other program ends"),
    errno.EXDEV: ("two paths are on different file systems", "Choose paths on the same file system"),
    errno.EIO: ("the device failed to read or write", "Check the disk (dmesg shows its errors), or choose another"),
    errno.ENXIO: ("the device does not exist", "Check that the disk is connected"),
    errno.ENODEV: ("the device does not exist", "Check that the disk is connected"),
    errno.ESTALE: ("the network file system has lost the file", "Check the mount of the file system"),
    errno.ETIMEDOUT: ("the server did not answer in time", "Check the network and the mount of the file system"),
    errno.ENOTCONN: ("the file system is disconnected", "Mount it again"),
    errno.EHOSTDOWN: ("the server is down", "Check the network and the server"),
    errno.EHOSTUNREACH: ("the server cannot be reached", "Check the network and the address"),
    errno.ENETUNREACH: ("the network cannot be reached", "Check the network"),
    errno.ECONNREFUSED: ("the server refused the connection", "Check the address and the port"),
    errno.ECONNRESET: ("the server closed the connection", "Check the network and the server"),
    errno.EADDRINUSE: ("the address is in use", "Choose another port, or end the other program"),
    errno.EPIPE: ("the reader of the output has ended", "Write to a file, or keep the reader open"),
    errno.ENOLCK: ("the file system has no locks left", "Mount it with locks, or choose another folder"),
    errno.EOPNOTSUPP: ("the file system does not support this operation", "Choose a folder on another file system"),
    errno.ENOSYS: ("the system does not support this operation", "Choose a folder on another file system"),
}
# Temporary errors: the files of a run remain usable after them.
PASSING = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EMFILE,
    errno.ENFILE, errno.EAGAIN,
)  # fmt: skip


def is_of_system(error: BaseException) -> bool:
    """Return whether an error comes from the operating system or from lack of memory, and not from a file's content.

    Errors of the operating system have a number. Arrow's errors about content have none; its lack of memory is a
    MemoryError.
    """
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)


def explain(error: OSError, remedy: str = "", where: str = "") -> str:
    """Return "PATH: FAULT (NAME). REMEDY" for an error of the system.

    remedy   replaces the usual remedy
    where    path to show if the error names none, or names a temporary folder of this program

    For a number without an entry in SENTENCES, the fault is the text of the system. An error without a number gives
    only its text.
    """
    paths = (os.fsdecode(path) for path in (error.filename, error.filename2) if isinstance(path, str | bytes))
    named = [where if where and _OWN_FOLDER.search(path) else _TEMPORARY.sub("", path) for path in paths]
    if not named and where and error.errno in FILLING:
        named = [where]
    start = f"{' -> '.join(named)}: " if named and error.errno in errno.errorcode else ""
    return f"{start}{fault_of(error, remedy, named[0] if named else '')}"


def fault_of(error: OSError, remedy: str = "", path: str = "") -> str:
    """Return the same as `explain`, without the path. `path` shows which file system is full."""
    if error.errno is None or error.errno not in errno.errorcode:
        return str(error) or type(error).__name__
    fault, usual = SENTENCES.get(error.errno, (error.strerror or os.strerror(error.errno), ""))
    if error.errno == errno.ENOSPC and path and _lacks_inodes(Path(path).absolute()):
        fault, usual = NO_INODES
    advice = remedy or usual
    return f"{fault} ({errno.errorcode[error.errno]}){f'. {advice}' if advice else ''}"


def _lacks_inodes(path: Path) -> bool:
    """Return whether the file system of a path has few inodes left. Some file systems have no fixed number."""
    for folder in (path, *path.parents):
        try:
            stats = os.statvfs(folder)
        except OSError:
            continue
        return stats.f_files > 0 and stats.f_favail <= FEW_INODES
    return False
