"""Shows processes that a traced program starts its files as the program sees them, by an overlay of its folder: they find
what it wrote there, and it finds what they write. Where Linux allows no overlay they see the folder itself.

Knows mounts of Linux, and no sandbox.
"""

import ctypes
import os
import subprocess
import sys

from .standin.patch import patch

_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_PRIVATE = 0x4000 | 0x40000  # MS_REC, MS_PRIVATE


class Overlay:
    """Shows `folder` with the files of `changes` on top of it; `work` is an empty folder that Linux needs for that."""

    def __init__(self, folder, changes, work):
        self._folder = folder
        options = f"lowerdir={folder},upperdir={changes},workdir={work},userxattr"
        is_possible = sys.platform == "linux" and not set(":,\\") & set(folder + changes)
        self._options = options.encode() if is_possible else None
        self._libc = ctypes.CDLL(None, use_errno=True) if self._options else None
        self._ids = os.getuid(), os.getgid()

    def install(self, stack, place_of):
        """`place_of` gives the path and the real place of a process's folder, or of the program's own for None."""
        start = subprocess.Popen.__init__

        def popen(process, *args, cwd=None, preexec_fn=None, **kwargs):
            path, place = place_of(cwd)

            def prepare():
                os.chdir(path if self._mount() else place)
                if preexec_fn is not None:
                    preexec_fn()

            start(process, *args, preexec_fn=prepare, **kwargs)

        def system(command):
            ended = subprocess.call(command, shell=True)
            return ended << 8 if ended >= 0 else -ended

        if self._options:
            patch(stack, subprocess.Popen, "__init__", popen)
            patch(stack, os, "system", system)

    def _mount(self):
        """Mounts it for this process alone. Returns true if that is done."""
        libc, folder = self._libc, self._folder.encode()
        if libc.unshare(_NEW_MOUNTS):
            if libc.unshare(_NEW_MOUNTS | _NEW_USER):
                return False
            for name, text in zip(("setgroups", "uid_map", "gid_map"), ("deny", *(f"{i} {i} 1" for i in self._ids))):
                file = os.open(f"/proc/self/{name}", os.O_WRONLY)
                os.write(file, text.encode())
                os.close(file)
        is_private = libc.mount(None, b"/", None, _PRIVATE, None) == 0
        return is_private and libc.mount(b"overlay", folder, b"overlay", 0, self._options) == 0
