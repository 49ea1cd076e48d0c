"""Tests of d2lpar.data.batches, official_files, download and standin: the images are the official ones, a broken file is named, a broken download leaves nothing.

No test reaches the network: small files in the official format are written here and declared the official ones, and a
server on this machine stands in for the mirror that torchvision downloads from. The one test that needs the real data
skips where they are not.
"""

import gc
import gzip
import hashlib
import http.server
import os
import re
import struct
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torchvision.datasets import FashionMNIST, utils
from torchvision.transforms import ToTensor

from d2lpar import load_data_fashion_mnist
from d2lpar.data import batches as data
from d2lpar.data import download, official_files, standin
from d2lpar.data.batches import Batches
from d2lpar.data.download import download_fashion_mnist
from d2lpar.data.official_files import DataError

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
NAMES = [TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS]
REAL = os.environ.get("D2LPAR_DATA")  # as it is before the tests take it away


def image_file(count, seed=0):
    pixels = torch.randint(256, (count * 28 * 28,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return struct.pack(">4i", 2051, count, 28, 28) + pixels.numpy().tobytes()


def label_file(count):
    return struct.pack(">2i", 2049, count) + bytes(i * 7 % 10 for i in range(count))


def small_files(seed=0):
    return {TRAIN_IMAGES: image_file(20, seed), TRAIN_LABELS: label_file(20),
            TEST_IMAGES: image_file(10, seed + 1), TEST_LABELS: label_file(10)}


def declared_official(content, num_official):
    """Entries of the table of known files, by name, for which these files are the official ones."""
    return {name: official_files.File(name, 2051 if "images" in name else 2049, (28, 28) if "images" in name else (),
                             struct.unpack_from(">i", file, 4)[0], num_official,
                             hashlib.sha256(file[16 if "images" in name else 8:]).hexdigest())
            for name, file in content.items()}


def write(root, files):
    raw = Path(root) / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in files.items():
        (raw / name).write_bytes(content)
    return raw


def everything_in(root):
    """Every path below root, with the bytes of the files and None for the folders."""
    paths = Path(root).rglob("*")
    return {path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path, tmp_path_factory):
    """No data of this machine, no network, and the size of the book not changed from outside; locks go with the tests."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("D2LPAR_DATA", "D2LPAR_FULL", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for module in (official_files, download):
        monkeypatch.setattr(module, "own_roots", lambda: [tmp_path / "project", tmp_path / "cache"])
    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(data, "_standin_in_use", False)
    known = declared_official(small_files(), 30)
    monkeypatch.setattr(official_files, "FILES", {True: (known[TRAIN_IMAGES], known[TRAIN_LABELS]),
                                         False: (known[TEST_IMAGES], known[TEST_LABELS])})


@pytest.fixture
def real(tmp_path, monkeypatch):
    """A folder with small files in the official format, named in D2LPAR_DATA; gives the folder of the four files."""
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / "mine"))
    monkeypatch.setattr(official_files, "NUM_TRAIN", 20)
    monkeypatch.setattr(official_files, "NUM_TEST", 10)
    return write(tmp_path / "mine", small_files())


# The same images as torchvision's


def test_batches_are_the_images_and_labels_of_torchvision_to_the_bit(real):
    train_iter, test_iter = load_data_fashion_mnist(6, seed=3)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3)).tolist()
    for batches, is_train, chosen in ((train_iter, True, order), (test_iter, False, range(10))):
        theirs = FashionMNIST(real.parents[1], train=is_train, transform=ToTensor())
        X, y = (torch.cat(parts) for parts in zip(*batches))
        assert X.dtype is torch.float32 and y.dtype is torch.int64
        assert torch.equal(X, torch.stack([theirs[i][0] for i in chosen]))
        assert y.tolist() == [theirs[i][1] for i in chosen]


def test_every_example_comes_once_and_the_last_batch_may_be_smaller(real):
    train_iter, test_iter = load_data_fashion_mnist(6)
    assert len(train_iter) == 4 and [len(y) for _, y in train_iter] == [6, 6, 6, 2]
    assert len(test_iter) == 2 and [tuple(X.shape) for X, _ in test_iter] == [(6, 1, 28, 28), (4, 1, 28, 28)]
    assert Counter(torch.cat([y for _, y in train_iter]).tolist()) == {label: 2 for label in range(10)}
    assert len(load_data_fashion_mnist(5)[0]) == 4


def test_training_order_is_new_each_epoch_and_the_same_for_the_same_seed(real):
    def two_epochs(seed):
        train_iter, test_iter = load_data_fashion_mnist(20, seed=seed)
        assert torch.equal(next(iter(test_iter))[1], next(iter(test_iter))[1]), "test images keep their order"
        return [next(iter(train_iter))[0] for _ in range(2)]

    first, second = two_epochs(1)
    assert not torch.equal(first, second)
    again = two_epochs(1)
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    assert not torch.equal(first, two_epochs(2)[0])


def test_the_order_neither_depends_on_the_global_random_generator_nor_moves_it(real):
    torch.manual_seed(1)
    first = next(iter(load_data_fashion_mnist(20)[0]))[1]
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert torch.equal(next(iter(load_data_fashion_mnist(20)[0]))[1], first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_is_a_copy_that_the_reader_may_change(real):
    test_iter = load_data_fashion_mnist(10)[1]
    X, y = next(iter(test_iter))
    before = X.clone(), y.clone()
    X.zero_(), y.zero_()
    X, y = next(iter(test_iter))
    assert torch.equal(X, before[0]) and torch.equal(y, before[1])


def test_fewer_images_are_the_front_of_the_official_files(real, capsys):
    all_images = torch.cat([X for X, _ in load_data_fashion_mnist(5)[1]])
    train_iter, test_iter = load_data_fashion_mnist(5, num_train=7, num_test=4)
    assert torch.equal(torch.cat([X for X, _ in test_iter]), all_images[:4])
    assert sorted(torch.cat([y for _, y in train_iter]).tolist()) == sorted(i * 7 % 10 for i in range(7))
    assert capsys.readouterr().out.splitlines()[1] == "Fashion-MNIST, 7 training and 4 test images"


def test_every_byte_becomes_the_float_that_the_division_by_255_gives():
    images = torch.arange(256, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    X, y = next(iter(Batches(images, torch.full((256,), 9, dtype=torch.uint8), 256)))
    assert torch.equal(X, images.float() / 255) and torch.equal(y, torch.full((256,), 9))
    assert X.data_ptr() % 64 == 0, "kernels may sum in another order at other addresses"


@pytest.mark.parametrize("source", ["real", "none"])
def test_more_images_than_fashion_mnist_has_are_refused(real, monkeypatch, source, capsys):
    if source == "none":
        monkeypatch.setenv("D2LPAR_DATA", "none")
    with pytest.raises(ValueError, match="num_train is 60,001, but Fashion-MNIST has only 60,000 such images"):
        load_data_fashion_mnist(4, num_train=60_001)
    with pytest.raises(ValueError, match="num_test is 10,001, but Fashion-MNIST has only 10,000 such images"):
        load_data_fashion_mnist(4, num_test=10_001)
    assert capsys.readouterr().out == ""


def test_more_images_than_the_files_hold_are_refused(real, monkeypatch):
    with pytest.raises(DataError, match=f"{TRAIN_IMAGES} holds 20 images, 21 are asked for. `D2LPAR_FULL=1 make data`"):
        load_data_fashion_mnist(4, num_train=21)
    monkeypatch.setenv("D2LPAR_FULL", "1")
    with pytest.raises(DataError, match="holds 20 images, 60,000 are asked for"):
        load_data_fashion_mnist(4)


# Which data


def test_the_named_folder_comes_before_the_projects_and_that_before_the_cache(tmp_path, monkeypatch):
    for name in ("cache", "project", "named"):
        write(tmp_path / name, small_files())
        if name == "named":
            monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / name))
        assert official_files.find_data() == tmp_path / name
    monkeypatch.setenv("D2LPAR_DATA", "")
    assert official_files.find_data() == tmp_path / "project"


def test_none_asks_for_the_stand_in_even_where_there_is_data(tmp_path, monkeypatch, capsys):
    write(tmp_path / "project", small_files())
    assert official_files.find_data() is not None
    monkeypatch.setenv("D2LPAR_DATA", "none")
    assert official_files.find_data() is None
    load_data_fashion_mnist(4, 8, 8)
    assert capsys.readouterr().out.startswith("STAND-IN images, not Fashion-MNIST, 8 training and 8 test images")


def test_a_named_folder_without_the_data_is_an_error_and_not_the_stand_in(tmp_path, monkeypatch):
    write(tmp_path / "project", small_files())
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"D2LPAR_DATA is .*typo, but there is no folder .*typo.FashionMNIST.raw"):
        load_data_fashion_mnist(4)


def test_own_folders_are_the_projects_data_in_a_checkout_and_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(official_files, "__file__", str(tmp_path / "d2lpar" / "data" / "official_files.py"))
    assert official_files.own_roots() == [tmp_path / "cache" / "d2lpar"]
    (tmp_path / "_toc.yml").touch()
    assert official_files.own_roots() == [tmp_path / "data", tmp_path / "cache" / "d2lpar"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert official_files.own_roots()[1] == tmp_path / "home" / ".cache" / "d2lpar"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of the book without its data, with the working folder somewhere else."""
    monkeypatch.undo()
    monkeypatch.delenv("D2LPAR_DATA", raising=False)
    project = tmp_path / "project"
    (project / "notebooks").mkdir(parents=True)
    (project / "_toc.yml").touch()
    monkeypatch.setattr(official_files, "__file__", str(project / "d2lpar" / "data" / "official_files.py"))
    monkeypatch.chdir(project / "notebooks")
    return project


@pytest.mark.parametrize("named, place", [("images", "images"), ("./a b/ü", "a b/ü"), ("~/images", "home/images")])
def test_a_relative_name_is_one_place_for_make_and_for_the_notebooks(checkout, monkeypatch, named, place):
    monkeypatch.setenv("HOME", str(checkout / "home"))
    monkeypatch.setenv("D2LPAR_DATA", named)
    with pytest.raises(DataError) as error:
        official_files.find_data()
    assert f"D2LPAR_DATA is {named}, but there is no folder {checkout / place / 'FashionMNIST' / 'raw'} " in str(error.value)
    write(checkout / place, small_files())
    for folder in (checkout, checkout / "notebooks"):
        monkeypatch.chdir(folder)
        assert official_files.find_data() == checkout / place == download._place_for_download(None)


@pytest.mark.parametrize("value, sizes", [(None, (3584, 2048)), ("", (3584, 2048)), ("1", (60_000, 10_000)),
                                          *((off, (3584, 2048)) for off in ("0", "false", "No", "off", " 0 ")),
                                          *((on, (60_000, 10_000)) for on in ("true", "YES", "on"))])
def test_one_setting_turns_the_book_to_the_full_set(monkeypatch, value, sizes):
    if value is not None:
        monkeypatch.setenv("D2LPAR_FULL", value)
    assert official_files.book_sizes() == sizes


@pytest.mark.parametrize("value", ["2", "flase", "full"])
def test_a_setting_that_is_neither_on_nor_off_is_named(monkeypatch, value, capsys):
    monkeypatch.setenv("D2LPAR_FULL", value)
    for call in (official_files.book_sizes, lambda: load_data_fashion_mnist(4), download_fashion_mnist):
        with pytest.raises(DataError, match=f"D2LPAR_FULL is {value!r}, it must be 1 or 0"):
            call()
    assert capsys.readouterr().out == ""


def test_provenance_says_which_data_and_changes_with_any_byte(real, tmp_path, monkeypatch):
    first = data.provenance(20, 10)
    assert first == data.provenance(20, 10)
    assert {key: first[key] for key in first if key != "sha256"} == {
        "source": "Fashion-MNIST", "num_train": 20, "num_test": 10}
    images, labels = (real / TRAIN_IMAGES).read_bytes(), (real / TEST_LABELS).read_bytes()
    expected = hashlib.sha256(b"".join((images[16:], (real / TRAIN_LABELS).read_bytes()[8:],
                                        (real / TEST_IMAGES).read_bytes()[16:], labels[8:])))
    assert first["sha256"] == expected.hexdigest()
    seen = [first["sha256"]]
    for more in (0, 1):
        (real / TEST_IMAGES).write_bytes(image_file(11, seed=1)[:-1] + bytes([more]))
        (real / TEST_LABELS).write_bytes(label_file(11))
        assert data.provenance(20, 10) == first
        assert data.provenance(20, 11)["sha256"] not in seen
        seen.append(data.provenance(20, 11)["sha256"])
    monkeypatch.setenv("D2LPAR_DATA", "none")
    assert data.provenance(20, 10)["source"] == "stand-in"


# Faults of files


def faults():
    images, labels = image_file(20), label_file(20)
    return {
        "empty": (TRAIN_IMAGES, b"", "is truncated: 0 bytes, not even a header"),
        "cut in the header": (TRAIN_LABELS, labels[:5], "is truncated: 5 bytes, not even a header"),
        "truncated": (TRAIN_IMAGES, images[:-1], "is truncated: 15,695 bytes, its header promises 15,696"),
        "truncated labels": (TEST_LABELS, label_file(10)[:-3], "is truncated: 15 bytes, its header promises 18"),
        "too long": (TRAIN_IMAGES, images + b"x", "is corrupt: 15,697 bytes, its header promises 15,696"),
        "labels for images": (TEST_IMAGES, labels + bytes(100), r"its header is \(2049, 20, .*expected \(2051"),
        "other size": (TRAIN_IMAGES, struct.pack(">4i", 2051, 20, 32, 32) + bytes(20480), r"\(2051, 20, 32, 32\)"),
        "no examples": (TRAIN_LABELS, label_file(0), r"header is \(2049, 0\), expected \(2049, '20 to 30'\)"),
        "fewer than the book's": (TRAIN_IMAGES, image_file(19), r"header is \(2051, 19, 28, 28\), expected .*'20 to 30'"),
        "more than there are": (TEST_LABELS, label_file(31), r"header is \(2049, 31\)"),
        "negative count": (TRAIN_LABELS, struct.pack(">2i", 2049, -1), r"header is \(2049, -1\)"),
        "an HTML page": (TRAIN_LABELS, b"<html>Please log in</html>", "is corrupt: its header is"),
        "a gzip file": (TRAIN_IMAGES, gzip.compress(images), "is corrupt: its header is"),
        "label 10": (TRAIN_LABELS, label_file(21)[:-1] + bytes([10]), "it holds the label 10, labels go from 0 to 9"),
        "counts": (TRAIN_LABELS, label_file(22), "holds 21 images, .* 22 labels"),
        "zeroed": (TRAIN_IMAGES, images[:16] + bytes(20 * 784), "not Fashion-MNIST: the SHA-256 of its first 20 images"),
        "other images": (TEST_IMAGES, image_file(10, seed=9), "not Fashion-MNIST: the SHA-256 of its first 10 images"),
        "shifted labels": (TRAIN_LABELS, labels[:8] + labels[9:] + labels[8:9], "not Fashion-MNIST: .* first 20 labels"),
        **{f"bit {at}": (TEST_LABELS, flipped(label_file(10), at), "not Fashion-MNIST: .* first 10 labels")
           for at in (8, 13, -1)},
    }


def flipped(content, at):
    changed = bytearray(content)
    changed[at] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("what", faults())
def test_a_broken_file_is_named_with_what_is_wrong_and_what_to_do(real, what):
    name, content, message = faults()[what]
    if what in ("label 10", "counts"):  # in a part that the book does not use
        (real / TRAIN_IMAGES).write_bytes(image_file(21))
    (real / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        load_data_fashion_mnist(4)
    assert str(real / name) in str(error.value) and "`make data` replaces it" in str(error.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("instead, words", [(None, "is missing. `make data` replaces it"), (Path.mkdir, "cannot be read: ")], ids=["missing", "a folder"])
def test_a_file_that_is_missing_or_cannot_be_read_is_named(real, name, instead, words):
    (real / name).unlink()
    if instead:
        instead(real / name)
    with pytest.raises(DataError, match=f"{name} {words}"):
        load_data_fashion_mnist(4)


@pytest.mark.skipif(REAL in (None, "", "none"), reason="D2LPAR_DATA names no real data")
def test_the_official_images_are_known_and_one_changed_pixel_is_enough(tmp_path, monkeypatch):
    monkeypatch.undo()
    assert data.provenance(official_files.NUM_TRAIN, official_files.NUM_TEST)["source"] == "Fashion-MNIST"
    files = {name: (official_files.find_data() / "FashionMNIST" / "raw" / name).read_bytes() for name in NAMES}
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path))
    raw = write(tmp_path, files)
    for name in NAMES:
        (raw / name).write_bytes(flipped(files[name], 1000))
        with pytest.raises(DataError, match=f"{name} is not Fashion-MNIST: .* `make data` replaces it"):
            load_data_fashion_mnist(256)
        (raw / name).write_bytes(files[name])


# The download


class Mirror(http.server.ThreadingHTTPServer):
    """Serves the four files; `faults` maps the name of a file to a function that answers instead."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in small_files().items()}
        self.faults, self.asked, self.closing = {}, Counter(), threading.Event()

    def handle_error(self, request, client_address):
        pass  # a client that goes away


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.asked[name] += 1
        self.server.faults.get(name, Answer.whole)(self, self.server.files[name])

    def whole(self, content):
        self.begin(len(content))
        self.wfile.write(content)

    def begin(self, length):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def not_found(self, content):
        self.send_error(404)

    def cut(self, content):
        self.begin(len(content))
        self.wfile.write(content[: len(content) // 2])

    def cut_in_a_chunk(self, content):
        self.protocol_version = "HTTP/1.1"
        self.close_connection = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s" % (len(content), content[: len(content) // 2]))

    def stall(self, content):
        self.begin(len(content))
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self.server.closing.wait(20)

    def log_message(self, *args):
        pass


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setattr(official_files, "NUM_TRAIN", 20)
    monkeypatch.setattr(official_files, "NUM_TEST", 10)
    server = Mirror()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(FashionMNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
    monkeypatch.setattr(FashionMNIST, "resources", [(name, hashlib.md5(content).hexdigest())
                                                    for name, content in server.files.items()])
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


BROKEN_SERVERS = {
    "404": (Answer.not_found, "404"),
    "cut": (Answer.cut, "corrupted"),
    "cut in a chunk": (Answer.cut_in_a_chunk, "IncompleteRead"),
    "stall": (Answer.stall, "timed out"),
}


def test_a_download_puts_the_four_files_in_place_and_leaves_nothing_else(mirror, tmp_path, capsys):
    assert download_fashion_mnist(tmp_path / "new" / "folder") == tmp_path / "new" / "folder"
    found = everything_in(tmp_path / "new" / "folder")
    assert {Path(path).name: content for path, content in found.items() if content is not None} == small_files()
    assert set(found) == {"FashionMNIST", "FashionMNIST/raw", *(f"FashionMNIST/raw/{name}" for name in NAMES)}
    assert capsys.readouterr().out == f"Fashion-MNIST is in {tmp_path / 'new' / 'folder'}\n"


def test_files_that_are_there_and_whole_are_not_downloaded_again(mirror, tmp_path, capsys):
    download_fashion_mnist(tmp_path)
    mirror.asked.clear()
    before = everything_in(tmp_path)
    capsys.readouterr()
    assert download_fashion_mnist(tmp_path) == tmp_path
    assert everything_in(tmp_path) == before and not mirror.asked
    assert capsys.readouterr().out == f"Fashion-MNIST is in {tmp_path} already\n"


def test_a_broken_file_is_named_and_replaced_and_what_a_killed_download_left_goes(mirror, tmp_path, capsys):
    raw = write(tmp_path, small_files())
    (raw / TEST_LABELS).write_bytes(b"")
    (tmp_path / f"{download._PART}killed").mkdir()
    download_fashion_mnist(tmp_path)
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == small_files()
    assert os.listdir(tmp_path) == ["FashionMNIST"]
    out = capsys.readouterr().out
    assert out.startswith(f"{raw / TEST_LABELS} is truncated") and "Downloading it again." in out


@pytest.mark.filterwarnings("ignore:.*_TemporaryFileCloser:pytest.PytestUnraisableExceptionWarning")  # torchvision's, on 3.14
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("what", BROKEN_SERVERS)
@pytest.mark.parametrize("before", [{}, {**small_files(seed=5), TEST_IMAGES: b"broken"}], ids=["new", "over a set"])
def test_a_download_that_fails_leaves_what_was_there(mirror, tmp_path, monkeypatch, what, before):
    answer, message = BROKEN_SERVERS[what]
    mirror.faults[f"{TEST_LABELS}.gz"] = answer
    if before:
        write(tmp_path, before)
    found = everything_in(tmp_path)
    with monkeypatch.context() as patch:
        if what == "stall":
            patch.setattr(download, "_timeout", lambda seconds, real=download._timeout: real(0.3))
        with pytest.raises(DataError, match=f"could not be downloaded: .*{message}.*Nothing was kept"):
            download_fashion_mnist(tmp_path)
    if what == "404":
        gc.collect()  # torchvision leaves this answer unclosed, and Python would complain in the middle of a later test
    assert everything_in(tmp_path) == found
    mirror.faults.clear()
    download_fashion_mnist(tmp_path)
    assert (tmp_path / "FashionMNIST" / "raw" / TRAIN_IMAGES).read_bytes() == small_files()[TRAIN_IMAGES]


def test_files_with_the_right_checksum_and_wrong_content_are_not_put_in_place(mirror, tmp_path, monkeypatch):
    name = f"{TRAIN_LABELS}.gz"
    mirror.files[name] = gzip.compress(label_file(21))
    sums = dict(FashionMNIST.resources) | {name: hashlib.md5(mirror.files[name]).hexdigest()}
    monkeypatch.setattr(FashionMNIST, "resources", list(sums.items()))
    with pytest.raises(DataError, match="20 images, .* 21 labels"):
        download_fashion_mnist(tmp_path)
    assert everything_in(tmp_path) == {}


@pytest.mark.parametrize("before", [{}, {TRAIN_IMAGES: b"broken"}], ids=["new", "over a set"])
def test_an_interrupted_download_leaves_what_was_there(mirror, tmp_path, monkeypatch, before):
    def interrupted(url, filename, real=utils._urlretrieve):
        real(url, filename)
        if TEST_IMAGES in url:
            raise KeyboardInterrupt

    monkeypatch.setattr(utils, "_urlretrieve", interrupted)
    write(tmp_path, before)
    found = everything_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        download_fashion_mnist(tmp_path)
    assert mirror.asked[f"{TEST_IMAGES}.gz"] and everything_in(tmp_path) == found


def test_a_download_that_is_interrupted_between_old_and_new_leaves_the_old(mirror, tmp_path, monkeypatch):
    moved = []

    def interrupted(source, target, real=os.replace):
        moved.append(target)
        if len(moved) == 2:
            raise KeyboardInterrupt
        real(source, target)

    write(tmp_path, {TRAIN_IMAGES: b"mine"})
    found = everything_in(tmp_path)
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download_fashion_mnist(tmp_path)
    assert len(moved) == 3 and everything_in(tmp_path) == found


@pytest.mark.parametrize("root", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path, root):
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path / root))} cannot be written: .*D2LPAR_DATA"):
        download_fashion_mnist(tmp_path / root)
    assert everything_in(tmp_path) == {"file": b"mine"}


def test_the_download_goes_where_the_data_is_looked_for(mirror, tmp_path, monkeypatch):
    assert download_fashion_mnist() == tmp_path / "project" == official_files.find_data()
    monkeypatch.setenv("D2LPAR_DATA", "none")
    assert download_fashion_mnist() == tmp_path / "project"
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / "named"))
    assert download_fashion_mnist() == tmp_path / "named" == official_files.find_data()


def test_of_four_downloads_at_once_one_downloads(mirror, tmp_path, monkeypatch):
    arrived = threading.Barrier(4)

    def together(place=download._place_for_download):
        arrived.wait(10)
        return place(tmp_path / "new")

    monkeypatch.setattr(download, "_place_for_download", lambda root: together())
    with ThreadPoolExecutor(4) as pool:
        downloads = [pool.submit(download_fashion_mnist) for _ in range(4)]
    assert [download.result() for download in downloads] == [tmp_path / "new"] * 4
    assert os.listdir(tmp_path / "new") == ["FashionMNIST"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "new" / "FashionMNIST" / "raw").iterdir()} == small_files()
    assert set(mirror.asked.values()) == {2}, "one downloads, with two requests for each file"


# The stand-in


def test_the_stand_in_has_the_form_of_the_data_and_says_what_it_is(capsys):
    train_iter, test_iter = load_data_fashion_mnist(256)
    assert (len(train_iter), len(test_iter)) == (14, 8)
    X, y = next(iter(train_iter))
    assert X.shape == (256, 1, 28, 28) and X.dtype is torch.float32 and 0 <= X.min() < X.max() <= 1
    assert y.dtype is torch.int64 and set(y.tolist()) == set(range(10))
    assert data.standin_in_use()
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("STAND-IN images, not Fashion-MNIST, 3,584 training and 2,048 test images")


def test_real_images_take_the_mark_of_the_stand_in_away(real, monkeypatch, capsys):
    monkeypatch.setenv("D2LPAR_DATA", "none")
    load_data_fashion_mnist(4, 8, 8)
    assert data.standin_in_use()
    monkeypatch.setenv("D2LPAR_DATA", str(real.parents[1]))
    load_data_fashion_mnist(4)
    assert not data.standin_in_use()
    assert capsys.readouterr().out.splitlines()[1] == "Fashion-MNIST, 20 training and 10 test images"


@pytest.mark.parametrize("is_train", [True, False])
def test_a_smaller_stand_in_is_the_front_of_a_larger_one_and_the_same_each_time(is_train):
    images, labels = standin.standin(is_train, 2500)
    for count in (1, 1000, 1001, 2500):
        standin._made.cache_clear()
        fewer_images, fewer_labels = standin.standin(is_train, count)
        assert torch.equal(fewer_images, images[:count]) and torch.equal(fewer_labels, labels[:count])


def test_training_and_test_images_of_the_stand_in_are_different_ones():
    train_images, test_images = standin.standin(True, 100)[0], standin.standin(False, 100)[0]
    assert not any(torch.equal(a, b) for a, b in zip(train_images, test_images))
    assert len({image.numpy().tobytes() for image in train_images}) == 100
