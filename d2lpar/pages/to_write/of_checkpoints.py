"""The checks of the functions of `d2lpar.checkpoints` that readers write."""

import os
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import torch

from d2lpar.checkpoints import checkpoints, save_checkpoint
from d2lpar.pages.differences import Difference, call


class Watched:
    """What is on the disk whenever a function calls `os.fsync`, or gives a file a different name."""

    def __init__(self, path, data):
        self.path, self.data, self.events = path, data, []
        self.fsync, self.names = os.fsync, {name: getattr(os, name) for name in ("replace", "rename")}

    def on_sync(self, number):
        """In place of `os.fsync`."""
        if os.path.isdir(f"/proc/self/fd/{number}") or os.fstat(number).st_mode & 0o170000 == 0o040000:
            self.events.append(("folder", 0, self.held()))
        else:
            self.events.append(("file", os.fstat(number).st_size, self.held()))
        self.fsync(number)

    def held(self):
        """What the file with the final name holds at this moment."""
        return self.path.read_bytes() if self.path.exists() else None

    def on_rename(self, how):
        """In place of `os.replace` or `os.rename`."""
        def rename(*args, **kwargs):
            self.events.append(("rename", 0, self.held()))
            return self.names[how](*args, **kwargs)
        return rename

    def __enter__(self):
        self.patches = [mock.patch.object(os, "fsync", self.on_sync),
                        *(mock.patch.object(os, how, self.on_rename(how)) for how in self.names)]
        for patch in self.patches:
            patch.start()
        return self

    def __exit__(self, *error):
        for patch in self.patches:
            patch.stop()


def check_write_whole(yours):
    data = b"new " * 25
    for words, old, remains in (("if there is no file yet", None, None),
                                ("if there is a file of this name", b"old " * 50, None),
                                ("if a run that was killed has left a longer unfinished file", b"old ", b"half " * 100)):
        with TemporaryDirectory(prefix="d2lpar-") as folder:
            path, unfinished = Path(folder, "state.pt"), Path(folder, "unfinished")
            for each, held in ((path, old), (unfinished, remains)):
                if held is not None:
                    each.write_bytes(held)
            with Watched(path, data) as watched:
                call(yours, words, data, path, unfinished)
            look_at_the_disk(words, path, unfinished, old, data)
            look_at_the_order(words, watched.events, old, data)


def look_at_the_disk(words, path, unfinished, old, data):
    """What is there at the end."""
    if not path.exists() or path.read_bytes() != data:
        found = f"a file of {path.stat().st_size} bytes, or of different ones" if path.exists() else "no file"
        raise Difference(f"{words}, at the end there should be a file with the 100 bytes, but there is {found}.")
    if unfinished.exists():
        raise Difference(f"{words}, the unfinished file is still there at the end.")


def look_at_the_order(words, events, old, data):
    """What a kill or a power failure would have left on the way."""
    kinds = [kind for kind, _, _ in events]
    if old is not None and any(held is None for _, _, held in events):
        raise Difference(f"{words}, the old file is deleted before the new one has its name: a kill in between would leave "
                         "neither of them. (`os.replace` replaces a file that is there.)")
    if "rename" not in kinds or any(held != old for kind, _, held in events[:kinds.index("rename") + 1]):
        raise Difference(f"{words}, bytes are written under the final name, so a kill on the way would leave a file that is "
                         "not whole. Write all of them under the name `unfinished`, and then rename that file.")
    at = kinds.index("rename")
    if "file" not in kinds:
        raise Difference(f"{words}, the function never waits until the disk has the bytes (`os.fsync(file.fileno())`): after a power "
                         "failure, the file might have its name, but not its bytes.")
    if "file" not in kinds[:at]:
        raise Difference(f"{words}, the file gets its name first, and its bytes reach the disk after that: after a power "
                         "failure in between, it would not be whole.")
    size = max(size for kind, size, _ in events[:at] if kind == "file")
    if size < len(data):
        raise Difference(f"{words}, when `os.fsync` is called, the file has {size} of 100 bytes: Python still holds the rest "
                         "in a buffer of its own. (`file.flush()` empties it.)")
    if os.name != "nt" and "folder" not in kinds[at:]:
        raise Difference(f"{words}, the function does not wait until the disk has the new name (`sync_folder(path.parent)`, after the file has been "
                         "renamed): after a power failure, the name might be missing.")


def whole(folder, *steps):
    """Checkpoints of these steps; the files."""
    for step in steps:
        save_checkpoint(folder, step, {"step": step, "w": torch.full((3,), float(step))})
    return checkpoints(folder)


def cut_off(path):
    """Its last byte is gone."""
    path.write_bytes(path.read_bytes()[:-1])


def of_different_bits(path):
    """It can be loaded, but it is not the state that was saved."""
    data = BytesIO()
    torch.save({"step": 20, "w": torch.full((3,), 20.5)}, data)
    path.write_bytes(data.getvalue())


def no_change(path):
    """It stays whole."""


def check_newest_checkpoint(yours):
    for words, steps, spoil, right in (
            ("for a folder without checkpoints", (), (), None),
            ("for checkpoints after 10 and 20 steps", (10, 20), (no_change, no_change), 20),
            ("if the file of step 20 is cut off, and that of step 10 is whole", (10, 20), (no_change, cut_off), 10),
            ("if the file of step 20 can be loaded, but holds a different state", (10, 20), (no_change, of_different_bits), 10),
            ("if both files are cut off", (10, 20), (cut_off, cut_off), None),
            ("for checkpoints after 99,999,999 and 100,000,000 steps", (99_999_999, 10**8), (no_change, no_change), 10**8)):
        with TemporaryDirectory(prefix="d2lpar-") as folder, redirect_stdout(StringIO()) as printed:
            files = whole(folder, *steps)
            for spoiled, path in zip(spoil, files):
                spoiled(path)
            found = call(yours, words, folder)
            look_at_what_was_found(words, found, right, files)
            look_at_the_folder(words, [p for p, spoiled in zip(files, spoil) if spoiled is no_change], files, printed.getvalue())


def look_at_what_was_found(words, found, right, files):
    """The two values that it returns."""
    if found is None:
        raise Difference(f"{words}, your function returns nothing, but should return two values"
                         + (", None and None." if right is None else "."))
    if not (isinstance(found, (list, tuple)) and len(found) == 2):
        raise Difference(f"{words}, your function should return two values, a path and a state.")
    path, state = found
    if right is None:
        if path is not None or state is not None:
            raise Difference(f"{words}, your function should return None and None, but the path is {path and Path(path).name}.")
        return
    step = state.get("step") if isinstance(state, dict) else None
    if step != right or state["w"][0] != right:
        other = f"that of step {step}" if step not in (None, right) else "a different one"
        raise Difference(f"{words}, your function should return the state of step {right}, but it returns "
                         f"{'None' if state is None else other}.")
    wanted = next(p for p in files if f"-{right:08}-" in p.name)
    if path is None or Path(path) != wanted:
        raise Difference(f"{words}, the path should be that of {wanted.name}, but it is {path and Path(path).name}.")


def look_at_the_folder(words, kept, files, printed):
    """Whole files stay, and those that are not whole were renamed and reported."""
    for path in files:
        name = f"the file of step {int(path.name.split('-')[1])}"
        if path in kept and not path.exists():
            raise Difference(f"{words}, {name} is whole, but your function has renamed or deleted it.")
        if path not in kept and path.exists():
            raise Difference(f"{words}, {name} is not whole, but it still has its name, so it will be tried again and again.")
        if path not in kept and not path.with_suffix(".broken").exists():
            raise Difference(f"{words}, {name} should be renamed, so that its name ends in .broken, but it is gone.")
        if path not in kept and path.name not in printed:
            raise Difference(f"{words}, your function does not print the name of the file that is not whole.")
