"""A right script that first changes files in every way that the tests know, each in a folder of its own.

    operations.py FOLDER [NAMES]

`make` makes the folders, and rank 0 does what OPERATIONS says in each: the files that are there, and the code. In place
of a file's content, None is an empty folder, a number is a sparse file, "-> f" is a symbolic link, and "= f" is another name of f.
"""

# ruff: noqa: F401
import csv
import gzip
import io
import json
import logging
import mmap
import multiprocessing
import os
import pathlib
import pickle
import shelve
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import traceback
import zipfile
from pathlib import Path

OLD, NEW, SQLITE, ZIP, ATTRIBUTE = "original", b"changed", "a database", "an archive", "with an attribute"
LARGE = 300_000_000  # more than is kept before a run
OPERATIONS: dict[str, tuple[dict, str]] = {
    "overwritten": ({"f": OLD}, "write('f')"),
    "appended": ({"f": OLD}, "[open('f', 'ab').write(NEW) for _ in range(3)]"),
    "in place": ({"f": OLD}, "open('f', 'r+b').write(NEW)"),
    "by os open": ({"f": OLD}, "fd = os.open('f', os.O_WRONLY | os.O_TRUNC); os.write(fd, NEW); os.close(fd)"),
    "by pathlib": ({"f": OLD}, "pathlib.Path('f').write_bytes(NEW)"),
    "renamed": ({"f": OLD}, "os.rename('f', 'g')"),
    "replaced": ({"f": OLD}, "write('tmp'); os.replace('tmp', 'f')"),
    "deleted": ({"f": OLD}, "os.remove('f')"),
    "moved": ({"f": OLD, "to": None}, "shutil.move('f', 'to/f')"),
    "copyfile": ({"f": OLD, "g": "another"}, "shutil.copyfile('g', 'f')"),
    "copy2": ({"f": OLD, "g": "another"}, "shutil.copy2('g', 'f')"),
    "rmtree": ({"d/f": OLD, "d/e/g": OLD}, "shutil.rmtree('d')"),
    "np save": ({"f.npy": OLD}, "np.save('f.npy', np.arange(3))"),
    "np tofile": ({"f": OLD}, "np.arange(3).tofile('f')"),
    "memmap": ({"f": OLD}, "m = np.memmap('f', dtype=np.uint8, mode='r+'); m[:3] = 7; m.flush()"),
    "by mmap": ({"f": OLD}, """
with open('f', 'r+b') as file, mmap.mmap(file.fileno(), 0) as m:
    m[:3] = b'ccc'
"""),
    "pickled": ({"f": OLD}, "pickle.dump([1], open('f', 'wb'))"),
    "sqlite": ({"f.db": SQLITE},
        "c = sqlite3.connect('f.db'); c.execute('insert into t values (99)'); c.commit(); c.close()"),
    "shell": ({"f": OLD}, "subprocess.run('echo changed > f', shell=True, check=True)"),
    "os system": ({"f": OLD}, "os.system('echo changed > f')"),
    "child": ({"f": OLD}, """subprocess.run([sys.executable, '-c', "open('f', 'w').write('changed')"], check=True)"""),
    "cp": ({"f": OLD, "g": "another"}, "subprocess.run(['cp', 'g', 'f'], check=True)"),
    "mv": ({"d/f": OLD}, "subprocess.run(['mv', 'd', 'e'], check=True)"),
    "mv and write": ({"d/f": OLD}, "subprocess.run(['mv', 'd/f', 'd/g'], check=True); write('d/g')"),
    "cp in a folder": ({"d/f": OLD, "d/g": "another"}, "subprocess.run(['cp', 'g', 'f'], check=True, cwd='d')"),
    "cd and cp": ({"d/cd1": OLD, "d/cd2": "another"}, "os.system('cd d && cp cd2 cd1')"),
    "chdir": ({"d/f": OLD}, "os.chdir('d'); write('f')"),
    "torch save": ({"f.pt": OLD}, "torch.save({'a': 1}, 'f.pt')"),
    "torch save to a file": ({"f.pt": OLD}, """
with open('f.pt', 'wb') as file:
    torch.save({'a': 1}, file)
"""),
    "jit save": ({"f.pt": OLD}, "torch.jit.save(script(), 'f.pt')"),
    "jit save of module": ({"f.pt": OLD}, "script().save('f.pt')"),
    "jit save new": ({}, "torch.jit.save(script(), 'f.pt')"),
    "in Cpp": ({"cpp.pt": OLD}, "script()._c.save('cpp.pt')"),
    "torch save new": ({}, "torch.save({'a': 1}, 'f.pt')"),
    "torch save in new folder": ({}, "os.makedirs('d/e'); torch.save({'a': 1}, 'd/e/f.pt')"),
    "torch save to bytes": ({}, "b = io.BytesIO(); torch.save({'a': 1}, b); open('f.pt', 'wb').write(b.getbuffer())"),
    "from file": ({"f": OLD}, "t = torch.from_file('f', shared=True, size=4, dtype=torch.uint8); t[:] = 9"),
    "hard link": ({"f": OLD, "g": "= f"}, "write('f')"),
    "hard link replaced": ({"f": OLD, "g": "= f"}, "write('tmp'); os.replace('tmp', 'f')"),
    "hard link in place and replaced": ({"f": OLD, "g": "= f"}, "write('f'); os.remove('f'); write('f')"),
    "hard link deleted": ({"f": OLD, "g": "= f"}, "os.remove('f')"),
    "through a link": ({"f": OLD, "link": "-> f"}, "write('link')"),
    "link deleted": ({"f": OLD, "link": "-> f"}, "os.remove('link')"),
    "link replaced": ({"f": OLD, "g": "another", "link": "-> f"}, "os.remove('link'); os.symlink('g', 'link')"),
    "link in the folder": ({"d/f": OLD, "link": "-> d"}, "write('link/f')"),
    "chmod": ({"f": OLD}, "os.chmod('f', 384)"),
    "chmod of a folder": ({"d/f": OLD}, "os.chmod('d', 448)"),
    "utime": ({"f": OLD}, "os.utime('f', (1, 1))"),
    "touch": ({"f": OLD}, "subprocess.run(['touch', 'f'], check=True)"),
    "setxattr": ({"f": OLD}, "os.setxattr('f', 'user.a', b'2')"),
    "setxattr again": ({"f": ATTRIBUTE}, "os.setxattr('f', 'user.a', b'2')"),
    "truncated": ({"f": OLD}, "os.truncate('f', 1)"),
    "name of a copy": ({"f.before-fine.pt": LARGE}, "os.remove('f.before-fine.pt'); write('f.before-fine.pt')"),
    "name with a line break": ({"f\nf": OLD}, "write('f\\nf')"),
    "name that is not utf8": ({"f_\udcff": OLD}, "write(b'f_\\xff')"),
    "read only": ({"f": OLD}, "os.chmod('f', 256); os.remove('f')"),
    "rmdir": ({"d": None}, "os.rmdir('d')"),
    "rmdir of a full one": ({"d/f": OLD}, "os.remove('d/f'); os.rmdir('d')"),
    "folder renamed": ({"d/f": OLD, "d/e/g": OLD}, "os.rename('d', 'e'); write('e/f')"),
    "folders renamed": ({"d/e/f": OLD}, "os.renames('d/e/f', 'g/e/f')"),
    "new folder": ({}, "os.mkdir('d'); os.makedirs('e/f')"),
    "dir fd": ({"d/fd": OLD},
        "d = os.open('d', os.O_RDONLY); fd = os.open('fd', os.O_WRONLY | os.O_TRUNC, dir_fd=d); os.write(fd, NEW); os.close(fd)"),
    "dir fd new": ({"d/f": OLD},
        "d = os.open('d', os.O_RDONLY); os.close(os.open('fd', os.O_WRONLY | os.O_CREAT, dir_fd=d))"),
    "dir fd deleted": ({"d/f": OLD}, "d = os.open('d', os.O_RDONLY); os.unlink('f', dir_fd=d)"),
    "dir fd renamed": ({"d/f": OLD}, "d = os.open('d', os.O_RDONLY); os.rename('f', 'g', src_dir_fd=d, dst_dir_fd=d)"),
    "dir fd renamed over": ({"d/f": OLD, "d/large": LARGE},
        "d = os.open('d', os.O_RDONLY); os.rename('f', 'large', src_dir_fd=d, dst_dir_fd=d)"),
    "large": ({"f": 30000000}, "open('f', 'r+b').write(NEW)"),
    "zipped": ({"f.zip": ZIP}, """
with zipfile.ZipFile('f.zip', 'a') as z:
    z.writestr('b', 'b')
"""),
    "tarred": ({"f.tar": OLD}, """
with tarfile.open('f.tar', 'w') as t:
    t.add('f.tar', 'a', filter=lambda info: None)
"""),
    "gzipped": ({"f.gz": OLD}, """
with gzip.open('f.gz', 'wb') as file:
    file.write(NEW)
"""),
    "csv written": ({"f.csv": OLD}, "csv.writer(open('f.csv', 'w')).writerow('ab')"),
    "forked": ({"f": OLD}, """
if (pid := os.fork()) == 0:
    (write('f'), os._exit(0))
os.waitpid(pid, 0)
"""),
    "in a thread": ({"f": OLD}, "t = threading.Thread(target=write, args=('f',)); t.start(); t.join()"),
    "child by spawn": ({"spawned": OLD},
        "p = multiprocessing.get_context('spawn').Process(target=Path('spawned').write_text, args=('changed',), daemon=True); p.start(); p.join()"),
    "named temporary": ({"f.json": OLD}, """
with tempfile.NamedTemporaryFile('w', dir='.', delete=False) as file:
    json.dump([1], file)
os.replace(file.name, 'f.json')
"""),
    "logged": ({"f": OLD},
        "h = logging.FileHandler('f'); h.emit(logging.makeLogRecord({'msg': 'changed'})); h.close()"),
    "shelved": ({}, """
with shelve.open('f') as s:
    s['a'] = 2
"""),
    "copied checkpoint": ({"best.pt": OLD}, "torch.save({'a': 2}, 'last.pt'); shutil.copyfile('last.pt', 'best.pt')"),
    "copied new checkpoint": ({}, "torch.save({'a': 2}, 'last.pt'); shutil.copyfile('last.pt', 'best.pt')"),
    "linked new checkpoint": ({},
        "torch.save({'a': 2}, 'last.pt'); os.link('last.pt', 'best.pt'); os.symlink('last.pt', 'latest.pt')"),
    "copytree": ({"d/f": "another", "e/f": OLD}, "shutil.copytree('d', 'e', dirs_exist_ok=True)"),
    "copyfileobj": ({"f": OLD, "g": "another"}, "shutil.copyfileobj(open('g', 'rb'), open('f', 'wb'))"),
    "new file": ({}, "write('f')"),
    "swapped": ({"f": OLD, "g": "another"}, "os.rename('f', 'h'); os.rename('g', 'f'); os.rename('h', 'g')"),
    "deleted and written": ({"f": OLD}, "os.remove('f'); write('f')"),
    "renamed over": ({"f": OLD, "g": "another"}, "os.rename('f', 'g')"),
    "file to folder": ({"f": OLD}, "os.remove('f'); os.mkdir('f'); write('f/g')"),
    "folder to file": ({"d/f": OLD}, "shutil.rmtree('d'); write('d')"),
    "file to link": ({"f": OLD}, "os.remove('f'); os.symlink('nowhere', 'f')"),
    "unpacked": ({"d/f": OLD, "g.zip": ZIP}, "shutil.unpack_archive('g.zip', 'd')"),
    "written and time set back": ({"f": OLD},
        "s = os.stat('f'); write('f'); os.truncate('f', 8); os.utime('f', ns=(s.st_atime_ns, s.st_mtime_ns))"),
    "several renames of a new file": ({}, "write('a'); os.rename('a', 'b'); os.rename('b', 'c')"),
    "hidden": ({"by_hidden": OLD}, "run_hidden('echo changed > by_hidden')"),
    "hidden new": ({}, "run_hidden('echo new > by_hidden')"),
    "hidden delete": ({"by_hidden": OLD}, "run_hidden('rm by_hidden')"),
    "hidden source": ({"by_hidden.py": OLD}, "run_hidden('echo changed > by_hidden.py')"),
    "hidden touch": ({"by_hidden": OLD}, "run_hidden('touch by_hidden')"),
    "hidden large": ({"by_hidden": LARGE}, "run_hidden('truncate -s 10 by_hidden')"),
    "hidden large move": ({"d/by_hidden": LARGE}, "run_hidden('mv d e')"),
}


def write(name):
    """Write over a file."""
    with open(name, "wb") as file:
        file.write(NEW)


def script():
    """A network as TorchScript."""
    return torch.jit.script(nn.Linear(2, 2))


def run_hidden(command):
    """Run a command that is not in the arguments of any program."""
    subprocess.run(["sh"], input=command, text=True, check=True)


def make(top):
    """Make the folders, with their files."""
    for name, (files, _) in OPERATIONS.items():
        for path, content in files.items():
            file = Path(top, name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                file.mkdir()
            elif content == SQLITE:
                sqlite3.connect(file).executescript("create table t (a)").close()
            elif content == ZIP:
                with zipfile.ZipFile(file, "w") as archive:
                    archive.writestr("f", NEW)
            elif isinstance(content, int):
                file.touch()
                os.truncate(file, content)
            elif content.startswith("-> "):
                file.symlink_to(content[3:])
            elif content.startswith("= "):
                file.hardlink_to(file.parent / content[2:])
            else:
                file.write_text(content)
                if content == ATTRIBUTE and hasattr(os, "setxattr"):
                    os.setxattr(file, "user.a", b"1")
        Path(top, name).mkdir(exist_ok=True)


def change(top, names=()):
    """Do everything; return what raised an error."""
    failed = []
    for name, (_, code) in OPERATIONS.items():
        if not names or name in names:
            os.chdir(Path(top, name))
            try:
                exec(code, globals())
            except Exception:
                failed.append(f"{name}: {traceback.format_exc()}")
            os.chdir(top)
    return failed


if __name__ == "__main__":
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    dist.init_process_group("gloo")
    failed = change(*sys.argv[1:2], sys.argv[2:]) if dist.get_rank() == 0 else []
    if failed:
        sys.exit("\n".join(failed))
    dist.barrier()
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    data = TensorDataset(torch.randn(32, 3))
    sampler = DistributedSampler(data)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for X, in DataLoader(data, 4, sampler=sampler):
            optimizer.zero_grad()
            net(X).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()
