"""Leave files as they were before a watched run, whatever has changed them; the other half of `kept_files`.

The reaper does so too, if the watching process was killed, so this module imports only the standard library, and
nothing of the package. What differs from the list is put back from a copy. Whose doing it was decides about the rest:
what is new goes only if a rank named it, and what somebody else may have edited is left and reported.
"""

import filecmp
import glob
import json
import os
import shutil
import stat
import tempfile
from collections import deque
from contextlib import suppress

MARK, RUN, LOCK = ".before-", "d2lpar-watch-", "d2lpar-lock-"  # in the names of copies, runs' folders, and locks
LIST, PACK, NAMES = "files.json", "files.pack", ".names"  # in a run's folder: the files, contents, and what ranks named
SKIPPED = {".git", "site-packages", "node_modules", "__pycache__"}
SOURCES = tuple(".py .pyi .ipynb .sh .md .rst .toml .yaml .yml .cfg .ini .c .cc .cpp .cu .h".split())  # of editors
MOST = 300_000  # files and folders that are looked at
LOST, NEW, COPIES = "not put back", "new", "copies of what was not put back"  # kinds of what there is to say of files
PARTLY = "put back, except for owner, mode or time"
OTHER, ASIDE, LEFT = "changed by an unknown program, and put back", "as it had changed them", "left by a killed watch"
MODE, SIZE, MTIME, INODE, LINKS, OWNER, GROUP, LINK = range(8)  # in what `describe` returns


def scan(roots, wide=()):
    """The folders that were looked at, and all that is in them with what `describe` says of it.

    A wide folder, such as the home folder, is looked at without those below it.
    """
    folders, found, waiting = [], {}, deque([*roots, *wide])
    for root in roots:
        with suppress(OSError):
            found[root] = describe(root)
    while waiting and len(found) < MOST:
        folder = waiting.popleft()
        try:
            with os.scandir(folder) as entries:
                inside = [entry for entry in entries if not entry.name.startswith((RUN, LOCK))]
        except OSError:
            continue
        if any(entry.name == "pyvenv.cfg" for entry in inside):
            continue
        folders.append(folder)
        for entry in inside:
            with suppress(OSError):
                found[entry.path] = describe(entry.path, entry.stat(follow_symlinks=False))
                if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED and folder not in wide:
                    waiting.append(entry.path)
    return folders, found


def describe(path, now=None) -> list:
    """What is known of a file, folder or link without reading it."""
    now = now or os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(now.st_mode) else None
    return [now.st_mode, now.st_size, now.st_mtime_ns, now.st_ino, now.st_nlink, now.st_uid, now.st_gid, link]


def put_back(folder):
    """Leave the files that `kept_files` noted in this folder as they were before the run.

    Returns what there is to say about files, by kind.
    """
    marks = glob.glob(os.path.join(glob.escape(folder), "*.file"))
    if not marks and not os.path.exists(os.path.join(folder, LIST)):
        return {}
    import fcntl  # not on Windows

    with open(os.path.join(folder, "put_back.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # under torchrun, each rank has a reaper
        report = _Before(folder).put_back()
    return {kind: sorted(_shown(path) for path in paths) for kind, paths in report.items() if paths}


def _shown(path):
    """A path as it can be printed, whatever is in it."""
    near = os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
    return near.encode("utf8", "backslashreplace").decode().replace("\n", "\\n")


class _Before:
    """The files as they were before a run."""

    def __init__(self, folder):
        self.folder = folder
        known = {"roots": [], "wide": [], "folders": [], "found": {}, "packed": {}, "report": {}}
        with suppress(OSError), open(os.path.join(folder, LIST)) as file:
            known = json.load(file)
        self.roots, self.wide, self.found, self.packed, self.report = (
            known[name] for name in ("roots", "wide", "found", "packed", "report"))
        self.folders, self.marks, self.twins = set(known["folders"]), {}, {}
        marks = glob.glob(os.path.join(glob.escape(folder), "*.file"))
        for mark in sorted(marks, key=lambda mark: -os.stat(mark).st_mtime_ns):  # what is older counts
            with open(mark) as file:
                one = json.load(file)
            self.marks.setdefault(one["path"], {}).update(one)
        for path, was in self.found.items():
            self.twins.setdefault(was[INODE], []).append(path)
        self._named, self._ends = set(), set()
        self._open, self._aside = set(), ""

    def put_back(self):
        """Do so, and return what there is to say."""
        _, now = scan(self.roots, self.wide)
        inside, new = set(self.folders), []
        for path, is_now in now.items():  # a folder before what is in it
            if path not in self.found and os.path.dirname(path) in inside:
                new.append(path)
                inside |= {path} if stat.S_ISDIR(is_now[MODE]) else set()
        self._learn_names(now)
        self._move_back(new, now)
        self._remove(new)
        elsewhere = {path: mark.get("was") for path, mark in self.marks.items()
                     if path not in self.found and os.path.dirname(path) not in inside}
        changed = {path for path, was in self.found.items() if now.get(path) != was or path in self._named}
        changed |= {os.path.dirname(path) for path in [*changed, *new]} & self.found.keys()
        every = sorted([*((path, self.found[path]) for path in changed | self.marks.keys() & self.found.keys()),
                        *elsewhere.items()])
        for path, was in every:  # a folder before what is in it
            self._try(self._restore, path, was)
        for copy in {mark.get("copy") or "" for mark in self.marks.values()} - set(self.report.get(COPIES, [])):
            _delete(copy)
        places = [*self.roots, *self.wide, os.path.dirname(os.path.abspath(self.folder))]
        for folder in (os.path.join(place, MARK + os.path.basename(self.folder)) for place in places):
            with suppress(OSError):  # there is none, or a copy is still needed
                copies = {os.path.join(folder, name) for name in os.listdir(folder)}
                for copy in copies - set(self.report.get(COPIES, [])):
                    os.unlink(copy)
                os.rmdir(folder)
        left = {path for kind in (LOST, NEW) for path in self.report.get(kind, [])}
        left |= set(map(os.path.dirname, left))
        for path, was in reversed(every):  # a folder after what is in it
            if was and path not in left and not self._is_of_others(path):
                self._try(self._restore_attributes, path, was, PARTLY)
        for file in [*glob.glob(os.path.join(glob.escape(self.folder), "*.file")), os.path.join(self.folder, LIST)]:
            _delete(file)
        return self.report

    def _try(self, do, path, was, kind=LOST):
        try:
            do(path, was)
        except OSError:
            self._say(kind, path)

    def _say(self, kind, path):
        if path not in self.report.setdefault(kind, []):
            self.report[kind].append(path)

    # whose doing it is

    def _learn_names(self, now):
        """What the ranks named: paths, and words that may be the ends of paths, as in a command."""
        for file in glob.glob(os.path.join(glob.escape(self.folder), f"*{NAMES}")):
            with open(file) as lines:
                for line in lines:
                    with suppress(ValueError):  # the last one may be cut off
                        path, word = json.loads(line)
                        self._named.add(path)
                        if path not in self.found and path not in now:
                            self._ends.add(word)

    def _is_named(self, path):
        parts = path.split(os.sep)
        return path in self.marks or path in self._named or any(
            os.sep.join(parts[i:]) in self._ends for i in range(1, len(parts)))

    def _is_of_others(self, path):
        return os.path.dirname(path) in self.wide and not self._is_named(path)

    def _is_open(self, path):
        """Whether a program has it open, as far as Linux says so."""
        if not self._open:
            for opened in glob.iglob("/proc/[0-9]*/fd/*"):
                with suppress(OSError):
                    self._open.add(os.readlink(opened))
        return path in self._open

    # files

    def _move_back(self, new, now):
        """Files that a program has moved, and not written to."""
        by_inode = {now[path][INODE]: path for path in new}
        for path, was in self.found.items():
            place = by_inode.get(was[INODE])
            if place and stat.S_ISREG(was[MODE]) and now[place][SIZE:INODE] == was[SIZE:INODE] and (
                    not os.path.lexists(path)):
                with suppress(OSError):
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    os.rename(place, path)

    def _remove(self, new):
        """Remove what is new, if a rank named it, or the new folder in which it is."""
        gone, stays = set(), set()
        for path in new:
            folder = os.path.dirname(path)
            if folder in gone or self._is_named(path):
                gone.add(path)
                self._try(lambda path, _: _delete(path), path, None)
            else:
                stays.add(path)
                if folder not in stays and folder not in self.wide and MARK + RUN not in path:
                    self._say(NEW, path)

    def _restore(self, path, was):
        """A file's content, or a folder or link; None if it was not there."""
        if was is None or self._is_of_others(path):
            return None if was else _delete(path)
        now = describe(path) if os.path.lexists(path) else None
        kind = stat.S_IFMT(was[MODE])
        if now and kind == stat.S_IFDIR and stat.S_ISDIR(now[MODE]) and now[MODE] != was[MODE]:
            os.chmod(path, stat.S_IMODE(was[MODE]) | 0o700)  # to write in it
        is_like = now and stat.S_IFMT(now[MODE]) == kind
        is_same = is_like and (kind == stat.S_IFDIR or (now[SIZE:INODE], now[LINK]) == (was[SIZE:INODE], was[LINK]))
        if is_same and not (kind == stat.S_IFREG and self._is_named(path)):
            return None
        if not self._is_named(path) and (path.endswith(SOURCES) or self._is_open(path)):
            return self._say(LOST, path)
        if kind == stat.S_IFREG:
            return self._restore_file(path, was, now, is_same)
        if now:
            _delete(path)
        if kind == stat.S_IFLNK:
            os.symlink(was[LINK], path)
        elif kind == stat.S_IFDIR:
            os.mkdir(path)
        return None

    def _restore_file(self, path, was, now, is_same):
        if is_same and self._is_as_packed(path):
            return
        mark = self.marks.get(path, {})
        copy = mark.get("copy", "")
        copy = copy if os.path.lexists(copy) else self._unpacked(path)
        if not copy:
            if not (is_same or ("xattrs" in mark and now and now[INODE:LINKS] + now[SIZE:MTIME] == was[
                    INODE:LINKS] + was[SIZE:MTIME])):
                self._say(LOST, path)
            return
        try:
            self._write(path, was, now, copy)
        except OSError:
            self._say(COPIES, copy)
            raise
        _delete(copy)

    def _write(self, path, was, now, copy):
        """Write in place, if the file has other names or a different owner, may be open in a different program, or
        cannot be replaced.
        """
        is_file = now and stat.S_ISREG(now[MODE])
        if is_file and not os.path.samefile(path, copy) and filecmp.cmp(path, copy, shallow=False):
            return
        if not self._is_named(path):
            self._say(OTHER, path)
            if is_file:
                self._aside = self._aside or tempfile.mkdtemp(prefix="d2lpar-changed-")
                self.report[ASIDE] = [self._aside]
                shutil.copy2(path, tempfile.mkdtemp(dir=self._aside))
        twins = [other for other in [path, *self.twins.get(was[INODE], [])] if os.path.lexists(other)
                 and os.lstat(other).st_ino == was[INODE]]
        if twins and (was[LINKS] > 1 or not self._is_named(path) or was[OWNER] != os.geteuid()
                      or not os.access(os.path.dirname(path), os.W_OK)):
            if not filecmp.cmp(twins[0], copy, shallow=False):
                if not os.access(twins[0], os.W_OK):
                    os.chmod(twins[0], 0o600)
                shutil.copyfile(copy, twins[0])
            if path in twins:
                return
            os.link(twins[0], f"{copy}.link")
            copy = f"{copy}.link"
        if now and stat.S_ISDIR(now[MODE]):
            _delete(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.replace(copy, path)
        except OSError:  # it is on a different file system
            shutil.copy2(copy, path, follow_symlinks=False)

    def _unpacked(self, path):
        """A copy next to it of what was kept beforehand, or where temporary files go; "" if nothing was."""
        if isinstance(self.packed.get(path, ""), str):  # a copy of its own, in a file system that shares blocks
            return self.packed.get(path, "")
        content, problem = self._content(path), OSError()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for folder in (os.path.dirname(path), tempfile.gettempdir()):  # the first may be full, or not writable
            copy = ""
            try:
                number, copy = tempfile.mkstemp(prefix=f"{RUN}back-", dir=folder)
                with open(number, "wb") as file:
                    file.write(content)
                return copy
            except OSError as error:
                _delete(copy)
                problem = error
        raise problem

    def _content(self, path):
        """What was kept of it beforehand."""
        begin, size = self.packed[path]
        with open(os.path.join(self.folder, PACK), "rb") as pack:
            pack.seek(begin)
            return pack.read(size)

    def _is_as_packed(self, path):
        """Whether it still has the content that was kept of it, so that there is nothing to do."""
        if not isinstance(self.packed.get(path, ""), str):
            with suppress(OSError), open(path, "rb") as file:
                return file.read() == self._content(path)
        return False

    def _restore_attributes(self, path, was):
        now = describe(path)
        is_link = stat.S_ISLNK(was[MODE])
        if now[OWNER:LINK] != was[OWNER:LINK]:
            try:
                os.chown(path, was[OWNER], was[GROUP], follow_symlinks=False)
            except PermissionError:  # only root may give a file away
                self._say(PARTLY, path)
        if now[MODE] != was[MODE] and not is_link:
            os.chmod(path, stat.S_IMODE(was[MODE]))
        xattrs = self.marks.get(path, {}).get("xattrs")
        if xattrs is not None and hasattr(os, "listxattr"):
            for name in {*os.listxattr(path), *xattrs}:
                if name in xattrs:
                    os.setxattr(path, name, bytes.fromhex(xattrs[name]))
                else:
                    os.removexattr(path, name)
        if now[MTIME] != was[MTIME]:
            os.utime(path, ns=(os.lstat(path).st_atime_ns, was[MTIME]), follow_symlinks=not is_link)


def _delete(path):
    """A file, link or folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
