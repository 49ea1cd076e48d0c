"""Files that a watched run changes are put back afterwards, because the run is cut short.

Before an existing file is overwritten, moved or deleted, a copy of it is kept; Python's audit events tell when. A new
file stays, unless `torch.save` has written it. Changes made without Python's knowledge, such as by safetensors, are not
seen.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock

EVENTS = frozenset("open os.remove os.rename os.truncate shutil.copyfile shutil.rmtree".split())
WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC
MARK = ".before-"  # in the name of a copy


class KeptFiles:
    """Keeps files as they were before a run changed them; `put_back` of d2lpar._reaper is its other half.

    `folder` has a mark for each of them, with its path and the copy's, so that all ranks and the reaper know it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.is_on = False
        self._known: set[str] = set()
        self._new: set[str] = set()  # did not exist before they were opened
        self._thread = threading.local()

    def start(self) -> None:
        """Listen from now on, to the end of the process: an audit hook cannot be removed."""
        self.is_on = True
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple) -> None:
        if event not in EVENTS or not self.is_on or getattr(self._thread, "is_busy", False):
            return
        self._thread.is_busy = True
        try:
            if event == "open":
                path, mode, flags = args
                if any(letter in mode for letter in "wax+") if isinstance(mode, str) else flags & WRITING:
                    self._keep(path, follow=True)
            elif event == "os.rename":
                self._look_at_move(*args[:2])
            elif event == "shutil.copyfile":
                self._keep(args[1], follow=True, is_saved=self._is_saved(args[0]))
            elif event == "shutil.rmtree":
                for file in _files_in(_full(args[0])):
                    self._keep(file, near=_full(args[0]), may_link=True)
            elif args[-1] in (-1, None) or event == "os.truncate":
                self._keep(args[0], follow=event == "os.truncate", may_link=event == "os.remove")
        finally:
            self._thread.is_busy = False

    def will_save(self, file: Any) -> None:
        """Before `torch.save` writes a file, which may be new."""
        path = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
        if isinstance(path, (str, os.PathLike)) and self.is_on:
            self._thread.is_busy = True
            try:
                self._keep(path, follow=True, is_saved=path is file or os.path.realpath(path) in self._new)
            finally:
                self._thread.is_busy = False

    def _look_at_move(self, old: Any, new: Any) -> None:
        old, new = _full(old), _full(new)
        files = list(_files_in(old)) if os.path.isdir(old) and not os.path.islink(old) else [old]
        for file in files:
            stays = file in self._new and not self._is_saved(file)  # such as a download that is now complete
            self._keep(file, near=old)
            self._keep(new + file[len(old):], is_saved=not stays, may_link=True)
            if stays:
                self._new.add(new + file[len(old):])

    def _keep(self, path: Any, follow: bool = False, is_saved: bool = False, near: str = "",
              may_link: bool = False) -> None:
        if isinstance(path, int):
            return
        path = os.path.realpath(_full(path)) if follow else _full(path)
        if path in self._known or MARK in path or path.startswith((f"{self.folder}{os.sep}", "/dev/", "/proc/")):
            return
        if not os.path.lexists(path):
            self._new.add(path)
            if not is_saved:
                return
        elif path in self._new and is_saved:
            pass  # opened by this run, and now saved to
        elif path in self._new or not (os.path.isfile(path) or os.path.islink(path)):
            return
        self._known.add(path)
        mark = self._mark(path)
        with filelock.FileLock(f"{mark}.lock"):  # all ranks may be about to change it
            if not mark.exists():
                copy = "" if path in self._new else f"{near or path}{MARK}{self.folder.name}-{mark.stem}"
                if copy:
                    _copy(path, copy, may_link)
                whole = mark.with_suffix(".part")
                whole.write_text(f"{path}\n{copy}", "utf8")
                whole.replace(mark)

    def _mark(self, path: str) -> Path:
        return self.folder / f"{hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()}.file"

    def _is_saved(self, path: Any) -> bool:
        return self._mark(os.path.realpath(_full(path))).exists()


def _full(path: Any) -> str:
    """Without symbolic links on the way to it; it may be one itself."""
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    return os.path.join(os.path.realpath(folder), name)


def _files_in(folder: str) -> Iterator[str]:
    for top, _, names in os.walk(folder):
        yield from (os.path.join(top, name) for name in names)


def _copy(path: str, copy: str, may_link: bool) -> None:
    """A hard link is enough for a file that is deleted, but not for one that may be written to, even after a move."""
    if may_link and not os.path.islink(path):
        with suppress(OSError):
            os.link(path, copy)
            return
    try:
        shutil.copy2(path, copy, follow_symlinks=False)
    except OSError as error:
        with suppress(OSError):
            os.unlink(copy)
        raise OSError(f"watch keeps a copy of {path} before the script changes it, and could not: {error}. Run it in a "
                      "copy of the folder, or with --to-the-end") from error
