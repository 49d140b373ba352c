"""A program's files while it is traced: it reads what there is, and what it writes goes to a temporary folder, where it
finds it again. No network.

The folder has the changed files at the paths of the originals. Knows Python's functions for files, and no tracer.
"""

import builtins
import contextlib
import errno
import importlib.machinery
import io
import os
import pathlib
import shutil
import socket
import stat
import sys
import tempfile

from .errors import NO_NETWORK
from .overlay import Overlay
from .standin.patch import patch

_MOST_COPIED = 256 << 20  # larger files are not copied to be changed
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Devices, and the kernel's own files.
_THROUGH = ("/dev", "/proc", "/sys")
_LOCAL = ("localhost", "127.0.0.1", "::1", "", None)

# For libraries that would send or ask something, or draw on a screen.
ENVIRONMENT = {
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_MODE": "disabled",
    "DO_NOT_TRACK": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "MPLBACKEND": "Agg",
    "NEPTUNE_MODE": "debug",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
}


# Functions of os for files: changed ones, and those that only need another path to read or to write.
_CHANGED = "open mkdir rename replace remove unlink rmdir symlink link listdir scandir getcwd chdir".split()
_READ = "stat lstat access readlink statvfs".split()
_WRITTEN = "chmod chown lchown utime truncate setxattr mkfifo".split()


class _Modules:
    """Finds modules that the program wrote itself, as libraries do with code that comes beside a model."""

    def __init__(self, files):
        self.files = files

    def find_spec(self, name, path=None, target=None):
        places = [self.files + os.path.abspath(folder) for folder in (sys.path if path is None else path)]
        return importlib.machinery.PathFinder.find_spec(name, places)


class Sandbox:
    """`folder` is a new one. Python's functions are as before once the stack of `install` is closed."""

    def __init__(self, folder):
        self.folder = os.path.realpath(folder)
        self._files = os.path.join(self.folder, "files")
        self._removed = set()  # originals that the program removed
        names = _CHANGED + _READ + _WRITTEN
        self._os = {name: getattr(os, name) for name in names if hasattr(os, name)}
        self._python_open = builtins.open
        self._python_rmtree = shutil.rmtree
        os.mkdir(self._files)

    def install(self, stack):
        temporary = os.path.join(self.folder, "tmp")
        os.mkdir(temporary)
        patch(stack, tempfile, "tempdir", temporary)
        functions = {
            "open": self._open_descriptor,
            "mkdir": self._mkdir,
            "rename": self._rename,
            "replace": self._rename,
            "remove": self._unlink,
            "unlink": self._unlink,
            "rmdir": self._rmdir,
            "symlink": self._link,
            "link": self._link,
            "listdir": self._listdir,
            "scandir": self._scandir,
            "getcwd": self._getcwd,
            "chdir": self._chdir,
        }
        stack.callback(self._os["chdir"], os.getcwd())
        functions.update((name, self._at(name, self.to_read)) for name in _READ)
        functions.update((name, self._at(name, self.to_change)) for name in _WRITTEN)
        accessor = getattr(pathlib, "_NormalAccessor", None)  # up to Python 3.10
        for name, function in functions.items():
            if name in self._os:
                patch(stack, os, name, function)
                if hasattr(accessor, name):
                    patch(stack, accessor, name, staticmethod(function))
        patch(stack, builtins, "open", self._open)
        patch(stack, io, "open", self._open)
        patch(stack, shutil, "rmtree", self._rmtree)
        modules = _Modules(self._files)
        sys.meta_path.append(modules)
        stack.callback(sys.meta_path.remove, modules)
        start, work = self._getcwd(), os.path.join(self.folder, "work")
        self._os["mkdir"](work)
        self._copy_folder(start)
        Overlay(start, self._files + start, work).install(stack, self._folder_of)
        _refuse_network(stack)

    # Paths.

    def _folder_of(self, path):
        """The path and the place of a folder; of the current one for None."""
        full = self._full("." if path is None else path)
        return full, self.to_read(full)

    def _getcwd(self):
        """The folder that the program is in; it may be one that it made."""
        return self._os["getcwd"]().removeprefix(self._files)

    def _chdir(self, path):
        full = path if self._passes(path) else self._full(path)
        is_original = self._passes(path) or (self._exists(full) and not self._is_removed(full))
        self._os["chdir"](full if is_original else self._files + full)

    def _full(self, path):
        return os.path.normpath(os.path.join(self._getcwd(), os.fsdecode(path)))

    def _passes(self, path):
        """Returns true for what is left as it is: files without a path, the folder itself, devices."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return True
        full = self._full(path)
        return any(full == top or full.startswith(top + "/") for top in (self.folder, *_THROUGH))

    def _exists(self, place):
        try:
            found = self._os["lstat"](place)
        except OSError:
            return False
        return not _is_whiteout(found)

    def _is_removed(self, full):
        with contextlib.suppress(OSError):
            if _is_whiteout(self._os["lstat"](self._files + full)):  # a process removed it
                self._os["unlink"](self._files + full)
                self._removed.add(full)
        return any(full == path or full.startswith(path + "/") for path in self._removed)

    def to_read(self, path):
        """Returns the place of the file of a path: its copy, or the original."""
        if self._passes(path):
            return path
        full = self._full(path)
        copy = self._files + full
        if self._exists(copy) or self._is_removed(full):
            return copy
        return full if self._os["getcwd"]().startswith(self._files) else path

    def to_write(self, path):
        """Returns the place of a new file of that path."""
        if self._passes(path):
            return path
        full = self._full(path)
        self._copy_folder(os.path.dirname(full))
        self._is_removed(full)  # a whiteout is no file to write
        return self._files + full

    def to_change(self, path):
        """Returns the place to change the file of a path, with what it has."""
        copy = self.to_write(path)
        full = self._full(path)
        if copy is not path and not self._exists(copy) and not self._is_removed(full):
            if os.path.isdir(full):
                self._copy_folder(full)
            elif self._exists(full):
                self._copy_file(full, copy)
        return copy

    def _copy_folder(self, full):
        """Makes the copy of a folder, without its files."""
        copy = self._files + full
        if self._exists(copy):
            return
        if self._is_removed(full) or not self._exists(full):
            raise _missing(full)
        missing = []
        while not self._exists(copy):
            missing.append(copy)
            copy = os.path.dirname(copy)
        for folder in reversed(missing):
            self._os["mkdir"](folder)

    def _copy_file(self, source, target):
        if self._os["stat"](source).st_size > _MOST_COPIED:
            raise OSError(errno.EFBIG, "too large to be changed by a traced program", source)
        with self._python_open(source, "rb") as read, self._python_open(target, "wb") as written:
            shutil.copyfileobj(read, written)

    # Replacements of Python's functions.

    def _at(self, name, find):
        def function(path, *args, **kwargs):
            found = path if kwargs.get("dir_fd") is not None else find(path)
            return self._os[name](found, *args, **kwargs)

        return function

    def _open(self, file, mode="r", *args, **kwargs):
        if "w" in mode or "x" in mode:
            if "x" in mode and self._exists(self.to_read(file)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)
            file = self.to_write(file)
        else:
            file = self.to_change(file) if "a" in mode or "+" in mode else self.to_read(file)
        return self._python_open(file, mode, *args, **kwargs)

    def _open_descriptor(self, path, flags, mode=0o777, *, dir_fd=None):
        if dir_fd is None:
            path = self.to_change(path) if flags & _WRITES else self.to_read(path)
        return self._os["open"](path, flags, mode, dir_fd=dir_fd)

    def _mkdir(self, path, mode=0o777, *, dir_fd=None):
        if dir_fd is None:
            if self._exists(self.to_read(path)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            path = self.to_write(path)
        self._os["mkdir"](path, mode, dir_fd=dir_fd)

    def _rename(self, source, target, **_):
        found, made = self.to_read(source), self.to_write(target)
        if self._passes(source) and self._passes(target):
            return self._os["replace"](found, made)
        if not self._exists(found):
            raise _missing(source)
        if os.path.isdir(found):
            shutil.copytree(found, made, dirs_exist_ok=True)
        else:
            self._copy_file(found, made)
        self._remove(source)

    def _unlink(self, path, *, dir_fd=None):
        self._drop("unlink", path, dir_fd)

    def _rmdir(self, path, *, dir_fd=None):
        if dir_fd is None and self._listdir(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._drop("rmdir", path, dir_fd)

    def _rmtree(self, path, ignore_errors=False, *args, **kwargs):
        if self._passes(path):
            return self._python_rmtree(path, ignore_errors, *args, **kwargs)
        if self._exists(self.to_read(path)):
            self._remove(path)
        elif not ignore_errors:
            raise _missing(path)

    def _drop(self, name, path, dir_fd):
        if dir_fd is not None or self._passes(path):
            return self._os[name](path, dir_fd=dir_fd)
        if not self._exists(self.to_read(path)):
            raise _missing(path)
        self._remove(path)

    def _remove(self, path):
        if self._passes(path):
            return self._python_rmtree(path) if os.path.isdir(path) else self._os["unlink"](path)
        full = self._full(path)
        copy = self._files + full
        if os.path.isdir(copy) and not os.path.islink(copy):
            self._python_rmtree(copy)
        elif self._exists(copy):
            self._os["unlink"](copy)
        self._removed.add(full)

    def _link(self, source, target, *args, **kwargs):
        """A link, which is one of symlink here."""
        if self._exists(self.to_read(target)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        origin = os.path.join(os.path.dirname(self._full(target)), os.fsdecode(source))
        self._os["symlink"](self.to_read(origin), self.to_write(target))

    def _listdir(self, path="."):
        if self._passes(path):
            return self._os["listdir"](path)
        with self._scandir(path) as entries:
            return [entry.name for entry in entries]

    def _scandir(self, path="."):
        if self._passes(path):
            return self._os["scandir"](path)
        full = self._full(path)
        copy = self._files + full
        is_changed = os.path.isdir(copy)
        if not is_changed and not self._removed:
            return self._os["scandir"](path)
        entries = {}
        if not self._is_removed(full) and (self._exists(full) or not is_changed):
            with self._os["scandir"](path) as found:
                for entry in found:
                    if not self._is_removed(os.path.join(full, os.fsdecode(entry.name))):
                        entries[entry.name] = entry
        if is_changed:
            with self._os["scandir"](copy) as found:
                entries.update((entry.name, _Entry(entry, path)) for entry in found if self._exists(entry.path))
        elif self._is_removed(full):
            raise _missing(path)
        return _Entries(entries.values())


class _Entry:
    """An entry of a folder's copy, with the path that it has for the program."""

    def __init__(self, entry, folder):
        self.name = entry.name
        self.path = os.path.join(folder, entry.name)
        for name in ("is_dir", "is_file", "is_symlink", "stat", "inode"):
            setattr(self, name, getattr(entry, name))

    def __fspath__(self):
        return self.path


class _Entries:
    def __init__(self, entries):
        self._left = iter(entries)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._left)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def close(self):
        pass


def _is_whiteout(found):
    """Returns true for what an overlay has in the place of a file that a process removed."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _missing(path):
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _refuse_network(stack):
    original = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}
    find = socket.getaddrinfo

    def is_local(address):
        return not isinstance(address, tuple) or address[0] in _LOCAL

    def connecting(name):
        def connect(self, address):
            if is_local(address):
                return original[name](self, address)
            raise OSError(errno.ENETUNREACH, NO_NETWORK.format(address[0]))

        return connect

    def getaddrinfo(host, *args, **kwargs):
        if host in _LOCAL:
            return find(host, *args, **kwargs)
        text = host.decode() if isinstance(host, bytes) else host
        raise socket.gaierror(socket.EAI_AGAIN, NO_NETWORK.format(text))

    for name in original:
        patch(stack, socket.socket, name, connecting(name))
    patch(stack, socket, "getaddrinfo", getaddrinfo)
