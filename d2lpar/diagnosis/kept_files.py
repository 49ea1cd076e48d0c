"""Files that a watched run changes are put back afterwards, because the run is cut short.

Before the run, what is in the script's folder and in the current one is listed, and small files are kept. During the
run, Python's audit events tell a rank which file it is about to change, and a copy of that one is kept; they also say
which names it used. Afterwards `put_back` compares the folders with the list. Everything new goes, if a rank named it.
Outside of these folders only what the events tell is put back, and a new file stays unless `torch.save` has written it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import filelock

from d2lpar.diagnosis.put_back import LEFT, LIST, LOCK, MARK, MODE, MOST, NAMES, PACK, RUN, SIZE, describe, scan

WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC
ATTRIBUTES = frozenset("os.chmod os.chown os.utime os.setxattr os.removexattr".split())
COMMANDS = frozenset("subprocess.Popen os.system os.exec os.posix_spawn os.spawn".split())
NAMING = ATTRIBUTES | COMMANDS | frozenset(
    "os.remove os.rename os.truncate os.rmdir os.mkdir os.link os.symlink shutil.copyfile shutil.rmtree "
    "shutil.unpack_archive sqlite3.connect".split())
IN_FOLDERS = frozenset("os.remove os.rmdir os.mkdir os.symlink os.chmod os.chown os.utime shutil.rmtree".split())
KEPT_BYTES, KEPT_S = 200_000_000, 5.0  # of the files that are kept before a run, and for how long
MANY = 100  # files in a folder: probably data, and kept last
KEEPS = "watch keeps a copy of"  # an error that is ours, not the script's
ROOTS = "roots.json"  # in a run's folder: what is watched
CLONE = 0x40049409  # FICLONE of Linux: a copy that shares its blocks with the original


def watched_folders(words: Sequence[str]) -> list[str]:
    """The current folder and the script's, without those that are inside the other."""
    script = [] if words[0] == "-m" else [os.path.dirname(os.path.realpath(words[0]))]
    folders = sorted({os.path.realpath(os.getcwd()), *script}, key=len)
    return [one for i, one in enumerate(folders) if not any(_is_in(one, other) for other in folders[:i])
            and "site-packages" not in one.split(os.sep)]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _wide(watched: Sequence[str]) -> list[str]:
    """Those in which others work as well, so that only a few files are looked at."""
    shared = {os.path.realpath(one) for one in (os.sep, os.path.expanduser("~"), tempfile.gettempdir())}
    return [one for one in watched if one in shared]


def keep(folder: str | Path, watched: Sequence[str]) -> None:
    """List what is in the watched folders, for `put_back`, and keep the small files."""
    wide = _wide(watched)
    roots = [one for one in watched if one not in wide]
    folders, found = scan(roots, wide)
    report = {LEFT: [path for path in found if MARK + RUN in path]}
    if len(found) >= MOST:
        report["only the first files were looked at"] = [str(MOST)]
    packed = _pack(found, Path(folder, PACK))
    for root in roots:
        large = {path: found[path] for path in found.keys() - packed.keys() if _is_in(path, root)}
        packed |= _clones(large, os.path.join(root, MARK + os.path.basename(folder)))
    known = {"roots": roots, "wide": wide, "folders": folders, "found": found, "report": report,
             "packed": packed}
    Path(folder, ROOTS).write_text(json.dumps(watched), "ascii")
    whole = Path(folder, f"{LIST}.part")
    whole.write_text(json.dumps(known), "ascii")
    whole.replace(Path(folder, LIST))


def _pack(found: dict[str, list], pack: Path) -> dict[str, tuple[int, int]]:
    """Write files into a single one, as many as the limits allow; return where each of them begins, and its size."""
    until, end, packed = time.monotonic() + KEPT_S, 0, {}
    most = min(KEPT_BYTES, shutil.disk_usage(pack.parent).free // 2)  # ranks write to the same disk
    with open(pack, "wb") as file:
        for path in _in_order(found):
            if end + found[path][SIZE] > most or time.monotonic() > until:
                continue
            try:
                content = Path(path).read_bytes()
            except OSError:
                continue
            packed[path] = end, len(content)
            end += file.write(content)
    return packed


def _in_order(found: dict[str, list]) -> list[str]:
    """The files, first those that are more likely to be written to: not data, and small."""
    siblings = Counter(map(os.path.dirname, found))
    return sorted((path for path, is_now in found.items() if stat.S_ISREG(is_now[MODE])),
                  key=lambda path: (siblings[os.path.dirname(path)] > MANY, found[path][SIZE]))


def _clones(found: dict[str, list], folder: str) -> dict[str, str]:
    """Copies that share their blocks with the files, in a folder of their own; none if the file system has no such."""
    until, copies = time.monotonic() + KEPT_S, {}
    with suppress(OSError):
        os.mkdir(folder, 0o700)
        with suppress(OSError):
            for path in _in_order(found):
                if time.monotonic() < until and os.access(path, os.R_OK):
                    _clone(path, copy := os.path.join(folder, str(len(copies))))
                    copies[path] = copy
        os.rmdir(folder)
    return copies


def _clone(path: str, copy: str) -> None:
    """Raises OSError unless the file system can share the blocks of a file, and Linux says so."""
    with open(path, "rb") as old, open(copy, "xb") as new:
        try:
            fcntl.ioctl(new, CLONE, old.fileno())
        except OSError:
            os.unlink(copy)
            raise


@contextmanager
def locked(watched: Sequence[str]) -> Iterator[list[int]]:
    """Wait until no different watch is at work in these folders, above or below them, and keep others from it.

    Yields what a process must inherit to hold the locks as well.
    """
    exclusive = {one: one not in _wide(watched) for one in watched}
    wanted = {str(parent): "" for one in watched for parent in Path(one).parents}
    wanted |= {one: "only" * (not is_recursive) for one, is_recursive in exclusive.items()}
    held: list[tuple[str, int]] = []
    try:
        for path in sorted(wanted):
            held.append(_lock(path, path in exclusive, wanted[path]))
        yield [number for _, number in held]
    finally:
        for name, number in held:
            with suppress(OSError):
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody else has it
                os.unlink(name)
            fcntl.flock(number, fcntl.LOCK_UN)  # for those that have inherited it, too
            os.close(number)


def _lock(path: str, is_exclusive: bool, suffix: str) -> tuple[str, int]:
    is_now = os.stat(path)
    name = os.path.join(tempfile.gettempdir(), f"{LOCK}{os.getuid()}-{is_now.st_dev:x}-{is_now.st_ino:x}{suffix}")
    kind = fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH
    while True:
        number = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(number, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for a different watch in {path} to end", file=sys.stderr, flush=True)
            fcntl.flock(number, kind)
        with suppress(FileNotFoundError):
            if os.stat(name).st_ino == os.fstat(number).st_ino:  # it was not deleted meanwhile
                return name, number
        os.close(number)


class KeptFiles:
    """Notes in a rank what it is about to change, and keeps copies.

    `folder` has a mark for each copy, with its path and that of the file, so that all ranks and the reaper know it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.is_on = False
        self._roots: list[str] = []
        self._known: set[str] = set()
        self._named: set[str] = set()
        self._new: set[str] = set()  # did not exist before they were opened
        self._thread = threading.local()

    def start(self) -> None:
        """Listen from now on, to the end of the process: an audit hook cannot be removed."""
        self.is_on = True
        with suppress(FileNotFoundError):
            self._roots = json.loads((self.folder / ROOTS).read_text("ascii"))
        sys.addaudithook(self._hear)

    def written(self) -> list[str]:
        """The files that this process has made or changed, or was about to."""
        return sorted(self._new | self._known)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """What this thread does here is not the script's doing."""
        self._thread.is_busy = True
        try:
            yield
        finally:
            self._thread.is_busy = False

    def place(self, files: dict[str, bytes]) -> None:
        """Write files that will be put back like those of a rank."""
        self.is_on = True
        self._roots = json.loads((self.folder / ROOTS).read_text("ascii"))
        for path, content in files.items():
            for parent in Path(path).parents:
                if not parent.exists():
                    self._name(parent)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self.will_save(path)
            Path(path).write_bytes(content)

    def _hear(self, event: str, args: tuple) -> None:
        if (event != "open" and event not in NAMING) or not self.is_on or getattr(self._thread, "is_busy", False):
            return
        self._thread.is_busy = True
        try:
            if event == "open":
                path, mode, flags = args
                if any(letter in mode for letter in "wax+") if isinstance(mode, str) else flags & WRITING:
                    self._name(path)
                    self._keep(path, follow=True)
            elif event in COMMANDS:
                self._name_words(args)
            else:
                count = 2 if event in ("os.rename", "os.link") else 1 if event in IN_FOLDERS else 0
                paths = [_in_folder(one, args[-count:][i] if i < count else None) for i, one in enumerate(args[:2])]
                for path in paths:
                    self._name(path)
                self._prepare(event, paths)
        finally:
            self._thread.is_busy = False

    def _prepare(self, event: str, paths: list[Any]) -> None:
        if event == "os.rename":
            self._look_at_move(*paths)
        elif event == "shutil.copyfile":
            self._keep(paths[1], follow=True, is_saved=self._is_saved(paths[0]))
        elif event == "shutil.rmtree":
            for file in _files_in(_full(paths[0])):
                self._keep(file, near=_full(paths[0]), may_link=True)
        elif event in ATTRIBUTES:
            self._keep_attributes(paths[0])
        elif event in ("os.remove", "os.truncate"):
            self._keep(paths[0], follow=event == "os.truncate", may_link=event == "os.remove")

    def will_save(self, file: Any) -> None:
        """Before PyTorch writes a file, which may be new."""
        path = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
        if isinstance(path, (str, os.PathLike)) and self.is_on:
            self._thread.is_busy = True
            try:
                self._name(path)
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
        if path in self._known or MARK + self.folder.name in path or path.startswith(
                (f"{self.folder}{os.sep}", "/dev/", "/proc/")):
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
                copy, was = "", None
                if path not in self._new:
                    was = describe(path)
                    copy = self._copy(path, near, mark.stem, may_link)
                _write(mark, {"path": path, "copy": copy, "was": was})

    def _copy(self, path: str, near: str, stem: str, may_link: bool) -> str:
        """Copy it, and return where to: where temporary files go, if its own folder is full or cannot be written to."""
        copy = self._place(path, near, stem, [root for root in self._roots if _is_in(path, root)])
        try:
            _copy(path, copy, may_link)
        except OSError:
            if os.lstat(path).st_size > KEPT_BYTES:
                raise
            copy = self._place(path, near, stem, [str(self.folder.parent)])
            _copy(path, copy, may_link=False)
        return copy

    def _place(self, path: str, near: str, stem: str, roots: Sequence[str]) -> str:
        """Where its copy goes: into a folder of its own, because the script may remove the one that it is in."""
        for folder in (os.path.join(root, MARK + self.folder.name) for root in roots):
            with suppress(OSError):
                os.makedirs(folder, 0o700, exist_ok=True)
                return os.path.join(folder, f"{stem}-{os.path.basename(path)[-100:]}")
        return f"{near or path}{MARK}{self.folder.name}-{stem}"

    def _keep_attributes(self, path: Any) -> None:
        if isinstance(path, int) or not os.path.lexists(path) or _full(path) in self._known:
            return
        path = _full(path)
        mark = self._mark(path, "attributes")
        with suppress(OSError):
            xattrs = {name: os.getxattr(path, name).hex() for name in os.listxattr(path)} if (
                hasattr(os, "listxattr") and not os.path.islink(path)) else {}
            if not mark.exists():
                _write(mark, {"path": path, "was": describe(path), "xattrs": xattrs})

    def _name(self, path: Any, base: str = "") -> None:
        """Note that a rank used this name: what changes under it is this run's doing."""
        if not isinstance(path, (str, bytes, os.PathLike)) or not os.fspath(path):
            return  # a number of an open file
        word = os.fsdecode(path)
        for full in dict.fromkeys((_full(os.path.join(base, word)), os.path.realpath(os.path.join(base, word)))):
            if full not in self._named:
                self._named.add(full)
                with suppress(OSError), open(self.folder / f"{os.getpid()}{NAMES}", "a") as names:
                    names.write(json.dumps([full, os.path.normpath(word)]) + "\n")

    def _name_words(self, args: tuple) -> None:
        """Note whatever may be the name of a file in a command."""
        at = args[2] if len(args) > 2 and isinstance(args[2], (str, bytes, os.PathLike)) else ""  # of a Popen
        for one in args:
            for word in one if isinstance(one, (list, tuple)) else [one]:
                if isinstance(word, (str, bytes, os.PathLike)):
                    for part in {os.fsdecode(word), *re.findall(r"[^\s'\"=:;|&<>(),]+", os.fsdecode(word))}:
                        self._name(part, os.fsdecode(at))

    def _mark(self, path: str, of: str = "") -> Path:
        return self.folder / f"{hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()}{of}.file"

    def _is_saved(self, path: Any) -> bool:
        return self._mark(os.path.realpath(_full(path))).exists()


def _write(mark: Path, data: dict[str, Any]) -> None:
    whole = mark.with_suffix(f".{os.getpid()}")
    whole.write_text(json.dumps(data), "ascii")
    whole.replace(mark)


def _in_folder(path: Any, number: Any) -> Any:
    """The path, if an open folder says where it is, as far as Linux tells which folder that is."""
    if isinstance(path, (str, bytes, os.PathLike)) and isinstance(number, int) and number >= 0:
        with suppress(OSError):
            return os.path.join(os.readlink(f"/proc/self/fd/{number}"), os.fsdecode(path))
    return path


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
        with suppress(OSError):
            if not os.path.islink(path):
                _clone(path, copy)
                shutil.copystat(path, copy)
                return
        shutil.copy2(path, copy, follow_symlinks=False)
    except OSError as error:
        with suppress(OSError):
            os.unlink(copy)
        raise OSError(f"{KEEPS} {path} before the script changes it, and could not: {error}. Run it in a "
                      "copy of the folder, or with --to-the-end") from error
