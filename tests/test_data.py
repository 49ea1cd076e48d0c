"""Tests of d2lpar.data: the images are the official ones, wrong files are named and never used, a failed download leaves nothing.

No test reaches the network: small files in the official format are written here and declared the official ones, and a
server on this machine stands in for the mirror that torchvision downloads from.
"""

import gzip
import hashlib
import http.server
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import FashionMNIST, utils
from torchvision.transforms import ToTensor

import write_images
from d2lpar import data, load_data_fashion_mnist
from d2lpar.data import Batches, DataError

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
NAMES = [TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS]


def image_file(pixels):
    return struct.pack(">4i", 2051, len(pixels), 28, 28) + pixels.tobytes()


def label_file(labels):
    return struct.pack(">2i", 2049, len(labels)) + labels.tobytes()


def small_files(seed=0):
    """Four files in the official format, with 30 training and 15 test images."""
    draw = np.random.default_rng(seed).integers
    return {name: image_file(draw(256, size=(count, 28, 28), dtype=np.uint8)) if "images" in name
            else label_file(draw(10, size=count, dtype=np.uint8)) for name, count in zip(NAMES, (30, 30, 15, 15))}


def write(folder, files, pack=lambda name: False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / (f"{name}.gz" if pack(name) else name)
        path.write_bytes(gzip.compress(content) if pack(name) else content)
    return folder


def everything_in(folder):
    """Every path below the folder, with the bytes of the files and None for the folders."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No setting of the reader's, no Debian package, an empty cache and no network."""
    for name in ("D2LPAR_DATA", "D2LPAR_FULL", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])


@pytest.fixture
def official(monkeypatch):
    """The small files count as the official ones, the book uses 20 and 10 of their images, and the full set is asked for."""
    files = small_files()
    monkeypatch.setattr(data, "FILES", {is_train: tuple(file._replace(sha256=hashlib.sha256(files[file.name]).hexdigest()) for file in pair)
                                        for is_train, pair in data.FILES.items()})
    for name, count in (("NUM_TRAIN", 20), ("NUM_TEST", 10), ("OFFICIAL_TRAIN", 30), ("OFFICIAL_TEST", 15)):
        monkeypatch.setattr(data, name, count)
    monkeypatch.setenv("D2LPAR_FULL", "1")
    return files


def raw_in_cache(tmp_path):
    return tmp_path / "cache" / "d2lpar" / "FashionMNIST" / "raw"


# The images of the book

SHA256 = {"train_images": "ebaa3539c421cfc1f8298338216b83f0fb495f33ccdd5e19a3d075f16d9a02f3",
          "train_labels": "722c34a64b8ed17fc2c81eb933c626097874c37d3297c0942481c6d500417c2b",
          "test_images": "857b72c05ba3e79276eec0ac60bba3a89d06ce58b830436e41475e104f90110f",
          "test_labels": "56ecf07f3939c9adb372cce2500286eb185b77a08ec47e807155a88e3e9b2bf9"}


def test_the_images_in_the_package_are_the_front_of_the_official_files():
    with np.load(data.BOOK_IMAGES) as arrays:
        shapes = {name: arrays[name].shape for name in arrays}
        found = {name: hashlib.sha256(arrays[name].tobytes()).hexdigest() for name in arrays}
    assert found == SHA256
    assert shapes == {"train_images": (3584, 28, 28), "train_labels": (3584,), "test_images": (2048, 28, 28), "test_labels": (2048,)}
    assert data.BOOK_IMAGES.stat().st_size < 2_500_000


def test_batches_are_the_images_and_labels_of_torchvision_to_the_bit(tmp_path):
    with np.load(data.BOOK_IMAGES) as arrays:
        content = [image_file(arrays["train_images"]), label_file(arrays["train_labels"]),
                   image_file(arrays["test_images"]), label_file(arrays["test_labels"])]
    write(tmp_path / "FashionMNIST" / "raw", dict(zip(NAMES, content)))
    train_iter, test_iter = load_data_fashion_mnist(256, 300, 100, seed=3)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(3)).tolist()
    for batches, is_train, chosen in ((train_iter, True, order), (test_iter, False, range(100))):
        theirs = FashionMNIST(tmp_path, train=is_train, transform=ToTensor())
        X, y = (torch.cat(parts) for parts in zip(*batches))
        assert X.dtype is torch.float32 and y.dtype is torch.int64
        assert torch.equal(X, torch.stack([theirs[i][0] for i in chosen]))
        assert y.tolist() == [theirs[i][1] for i in chosen]


def test_the_book_uses_all_of_its_images_unless_fewer_are_asked_for(capsys):
    train_iter, test_iter = load_data_fashion_mnist(256)
    assert (len(train_iter), len(test_iter)) == (14, 8)
    load_data_fashion_mnist(5, num_train=7, num_test=4)
    assert capsys.readouterr().out.splitlines() == [
        "Fashion-MNIST, 3,584 training and 2,048 test images", "Fashion-MNIST, 7 training and 4 test images"]


def test_every_example_comes_once_and_the_last_batch_may_be_smaller():
    train_iter, test_iter = load_data_fashion_mnist(6, 20, 10)
    assert len(train_iter) == 4 and [len(y) for _, y in train_iter] == [6, 6, 6, 2]
    assert len(test_iter) == 2 and [tuple(X.shape) for X, _ in test_iter] == [(6, 1, 28, 28), (4, 1, 28, 28)]
    assert sorted(torch.cat([y for _, y in train_iter]).tolist()) == sorted(train_iter.labels.tolist())
    assert len(load_data_fashion_mnist(5, 20, 10)[0]) == 4


def test_training_order_is_new_each_epoch_and_the_same_for_the_same_seed():
    def two_epochs(seed):
        train_iter, test_iter = load_data_fashion_mnist(20, 20, 20, seed)
        assert torch.equal(next(iter(test_iter))[1], next(iter(test_iter))[1]), "test images keep their order"
        return [next(iter(train_iter))[0] for _ in range(2)]

    first, second = two_epochs(1)
    assert not torch.equal(first, second)
    again = two_epochs(1)
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    assert not torch.equal(first, two_epochs(2)[0])


def test_the_order_neither_depends_on_the_global_random_generator_nor_moves_it():
    torch.manual_seed(1)
    first = next(iter(load_data_fashion_mnist(20, 20)[0]))[1]
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert torch.equal(next(iter(load_data_fashion_mnist(20, 20)[0]))[1], first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_and_the_images_themselves_are_copies_that_the_reader_may_change():
    test_iter = load_data_fashion_mnist(10, 10, 10)[1]
    X, y = next(iter(test_iter))
    before = X.clone(), y.clone()
    X.zero_(), y.zero_()
    X, y = next(iter(test_iter))
    assert torch.equal(X, before[0]) and torch.equal(y, before[1])
    test_iter.images.zero_()
    assert torch.equal(next(iter(load_data_fashion_mnist(10, 10, 10)[1]))[0], before[0])


def test_every_byte_becomes_the_float_that_the_division_by_255_gives():
    images = torch.arange(256, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    X, y = next(iter(Batches(images, torch.full((256,), 9, dtype=torch.uint8), 256)))
    assert torch.equal(X, images.float() / 255) and torch.equal(y, torch.full((256,), 9))
    assert X.data_ptr() % 64 == 0, "kernels may sum in a different order at other addresses"


def test_provenance_says_which_images_and_changes_with_any_of_them():
    found = data.provenance(20, 10)
    with np.load(data.BOOK_IMAGES) as arrays:
        front = [arrays[name][:20 if "train" in name else 10].tobytes() for name in SHA256]
    assert found == {"source": "Fashion-MNIST", "num_train": 20, "num_test": 10, "sha256": hashlib.sha256(b"".join(front)).hexdigest()}
    assert len({found["sha256"], data.provenance(20, 11)["sha256"], data.provenance(21, 10)["sha256"]}) == 3


def test_more_images_than_the_book_has_are_refused_with_the_way_to_get_them(capsys):
    for name, in_book, most in (("num_train", "3,584", "60,000"), ("num_test", "2,048", "10,000")):
        one_more = int(in_book.replace(",", "")) + 1
        with pytest.raises(ValueError, match=f"{name} is {one_more:,}, but the book comes with {in_book} (training|test) images. To use all {most}, .*D2LPAR_FULL=1"):
            load_data_fashion_mnist(4, **{name: one_more})
    assert capsys.readouterr().out == ""


def test_more_images_than_fashion_mnist_has_are_refused(capsys):
    with pytest.raises(ValueError, match="num_train is 60,001, but Fashion-MNIST has only 60,000 training images"):
        load_data_fashion_mnist(4, num_train=60_001)
    with pytest.raises(ValueError, match="num_test is 10,001, but Fashion-MNIST has only 10,000 test images"):
        load_data_fashion_mnist(4, num_test=10_001)
    assert capsys.readouterr().out == ""


# The full set


@pytest.mark.parametrize("value, sizes", [(None, (3584, 2048)), ("", (3584, 2048)), ("1", (60_000, 10_000)),
                                          *((off, (3584, 2048)) for off in ("0", "false", "No", "off", " 0 ")),
                                          *((on, (60_000, 10_000)) for on in ("true", "YES", "on"))])
def test_one_setting_turns_the_book_to_the_full_set(monkeypatch, value, sizes):
    if value is not None:
        monkeypatch.setenv("D2LPAR_FULL", value)
    assert data.book_sizes() == sizes


@pytest.mark.parametrize("value", ["2", "flase", "full"])
def test_a_setting_that_is_neither_on_nor_off_is_named(monkeypatch, value, capsys):
    monkeypatch.setenv("D2LPAR_FULL", value)
    for call in (data.book_sizes, lambda: load_data_fashion_mnist(4)):
        with pytest.raises(DataError, match=f"D2LPAR_FULL is {value!r}; it must be 1 or 0"):
            call()
    assert capsys.readouterr().out == ""


PACKED = {"unpacked": lambda name: False, "packed": lambda name: True, "some packed": lambda name: "images" in name}


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("place", ["mine", "mine/FashionMNIST/raw", "debian", "cache/d2lpar/FashionMNIST/raw"])
def test_the_full_set_is_found_packed_or_not_and_is_what_torchvision_reads(official, monkeypatch, tmp_path, capsys, place, pack):
    write(tmp_path / place, official, pack)
    if place.startswith("mine"):
        monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / "mine"))
    train_iter, test_iter = load_data_fashion_mnist(30)
    assert capsys.readouterr().out == "Fashion-MNIST, 30 training and 15 test images\n"
    write(tmp_path / "theirs" / "FashionMNIST" / "raw", official)
    for batches, is_train in ((train_iter, True), (test_iter, False)):
        theirs = FashionMNIST(tmp_path / "theirs", train=is_train)
        assert torch.equal(batches.images[:, 0], theirs.data) and torch.equal(batches.labels, theirs.targets.byte())


def test_the_named_folder_comes_before_debians_and_that_before_the_cache(official, monkeypatch, tmp_path):
    write(raw_in_cache(tmp_path), official)
    assert data.full_set() == raw_in_cache(tmp_path)
    write(tmp_path / "debian", official)
    assert data.full_set() == tmp_path / "debian"
    write(tmp_path / "named", official)
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / "named"))
    assert data.full_set() == tmp_path / "named"
    monkeypatch.setenv("D2LPAR_DATA", "")
    assert data.full_set() == tmp_path / "debian"


@pytest.mark.parametrize("files", [[], NAMES[:3]], ids=["empty", "one is missing"])
def test_a_named_folder_without_the_files_is_an_error_and_nothing_else_is_looked_for(official, monkeypatch, tmp_path, files):
    write(tmp_path / "debian", official)
    write(tmp_path / "typo", {name: official[name] for name in files})
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"D2LPAR_DATA is .*typo, but .*typo does not hold the four files .*unset D2LPAR_DATA"):
        load_data_fashion_mnist(4)


def test_without_the_setting_no_folder_is_read(official, monkeypatch, tmp_path):
    monkeypatch.delenv("D2LPAR_FULL")
    monkeypatch.setenv("D2LPAR_DATA", str(tmp_path / "typo"))
    assert len(load_data_fashion_mnist(20)[0].labels) == 20
    monkeypatch.setenv("D2LPAR_FULL", "1")
    assert len(load_data_fashion_mnist(20, 20, 10)[0].labels) == 20, "the front comes with the package"


FAULTS = {"empty": lambda content: b"", "truncated": lambda content: content[:-1], "too long": lambda content: content + b"x",
          "an HTML page": lambda content: b"<html>Please log in</html>",
          "one bit of the header": lambda content: content[:7] + bytes([content[7] ^ 1]) + content[8:],
          "one bit at the end": lambda content: content[:-1] + bytes([content[-1] ^ 1])}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pack", [False, True], ids=["unpacked", "packed"])
def test_wrong_bytes_are_named_and_never_used(official, tmp_path, name, pack):
    for what, fault in FAULTS.items():
        wrong = fault(official[name])
        write(tmp_path / "debian", official | {name: wrong}, lambda name: pack)
        path = tmp_path / "debian" / (f"{name}.gz" if pack else name)
        with pytest.raises(DataError) as error:
            load_data_fashion_mnist(4)
        assert str(error.value).startswith(f"{path} is not the official file: {len(wrong):,} bytes unpacked"), what
        assert "Replace it, or set D2LPAR_DATA to a different folder" in str(error.value)


def test_a_packed_file_that_cannot_be_unpacked_is_named(official, tmp_path):
    path = write(tmp_path / "debian", official, PACKED["packed"]) / f"{TEST_IMAGES}.gz"
    for broken in (path.read_bytes()[:-100], b"", b"no gzip", path.read_bytes()[:20] + bytes(200)):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=f"{TEST_IMAGES}.gz (cannot be read|is not the official file): "):
            load_data_fashion_mnist(4)


# The file in the package


def test_the_tool_writes_the_front_of_the_four_files_and_nothing_from_wrong_ones(official, tmp_path):
    files = write(tmp_path / "debian", official, PACKED["packed"])
    write_images.write(files, tmp_path / "images.npz")
    with np.load(tmp_path / "images.npz") as arrays:
        found = {name: arrays[name].tobytes() for name in arrays}
    assert found == {"train_images": official[TRAIN_IMAGES][16:][:20 * 784], "train_labels": official[TRAIN_LABELS][8:][:20],
                     "test_images": official[TEST_IMAGES][16:][:10 * 784], "test_labels": official[TEST_LABELS][8:][:10]}
    (files / f"{TEST_LABELS}.gz").write_bytes(gzip.compress(b"wrong"))
    with pytest.raises(DataError, match=f"{TEST_LABELS}.gz is not the official file"):
        write_images.write(files, tmp_path / "wrong.npz")
    (files / f"{TEST_LABELS}.gz").unlink()
    with pytest.raises(DataError, match=f"{TEST_LABELS} is missing, and so is {TEST_LABELS}.gz"):
        write_images.write(files, tmp_path / "wrong.npz")
    assert not (tmp_path / "wrong.npz").exists()


# The download


class Mirror(http.server.ThreadingHTTPServer):
    """Serves the four files; `faults` maps the name of a file to a function that answers instead."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}
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
def mirror(official, monkeypatch):
    server = Mirror(official)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(FashionMNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
    monkeypatch.setattr(FashionMNIST, "resources", [(name, hashlib.md5(content).hexdigest()) for name, content in server.files.items()])
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_download_puts_the_four_files_into_the_cache_once(mirror, tmp_path):
    for _ in range(2):
        train_iter, _ = load_data_fashion_mnist(4)
        assert train_iter.images.numpy().tobytes() == small_files()[TRAIN_IMAGES][16:]
    assert everything_in(raw_in_cache(tmp_path)) in (small_files(), small_files() | {"lock": b""})
    assert set(mirror.asked.values()) == {2}, "torchvision takes two requests for a file"
    assert socket.getdefaulttimeout() is None


@pytest.mark.filterwarnings("ignore:.*_TemporaryFileCloser:pytest.PytestUnraisableExceptionWarning")  # torchvision's, on 3.14
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("answer, message", [(Answer.cut, "corrupted"), (Answer.cut_in_a_chunk, "IncompleteRead"), (Answer.stall, "timed out")])
def test_a_download_that_fails_leaves_nothing_and_the_next_one_succeeds(mirror, tmp_path, monkeypatch, answer, message):
    mirror.faults[f"{TEST_LABELS}.gz"] = answer
    with monkeypatch.context() as patch:
        if answer is Answer.stall:
            patch.setattr(socket, "setdefaulttimeout", lambda seconds, real=socket.setdefaulttimeout: real(seconds and 0.3))
        with pytest.raises(DataError, match=f"could not be downloaded to .*: .*{message}.*put the four files into a folder.*D2LPAR_DATA"):
            load_data_fashion_mnist(4)
    assert set(everything_in(raw_in_cache(tmp_path))) <= {"lock"}
    mirror.faults.clear()
    assert len(load_data_fashion_mnist(4)[0].labels) == 30


def test_without_a_network_the_message_says_what_to_do(official, tmp_path):
    with pytest.raises(DataError, match=r"could not be downloaded to .*raw: .*\. Or put the four files"):
        load_data_fashion_mnist(4)


def test_an_interrupted_download_leaves_nothing(mirror, tmp_path, monkeypatch):
    def interrupted(url, filename, real=utils._urlretrieve):
        real(url, filename)
        if TEST_IMAGES in url:
            raise KeyboardInterrupt

    monkeypatch.setattr(utils, "_urlretrieve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_data_fashion_mnist(4)
    assert mirror.asked[f"{TEST_IMAGES}.gz"] and set(everything_in(raw_in_cache(tmp_path))) <= {"lock"}


def test_a_cache_that_cannot_be_written_is_named(mirror, tmp_path):
    (tmp_path / "cache").write_bytes(b"in the way")
    with pytest.raises(DataError, match=f"could not be downloaded to {raw_in_cache(tmp_path)}: .*D2LPAR_DATA"):
        load_data_fashion_mnist(4)


def test_of_four_downloads_at_once_one_downloads(mirror, tmp_path):
    arrived = threading.Barrier(4)

    def together(_):
        arrived.wait(10)
        return data.full_set()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(together, range(4))) == [raw_in_cache(tmp_path)] * 4
    assert set(mirror.asked.values()) == {2}


def test_without_torchvision_the_message_says_so(official, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(DataError, match=r"torchvision, which is not installed: pip install torchvision. Or put the four files"):
        load_data_fashion_mnist(4)


@pytest.mark.slow
def test_a_study_of_the_full_size_without_the_full_set_fails_in_one_line(tmp_path):
    run = subprocess.run([sys.executable, Path(__file__).parents[1] / "book" / "lab" / "study.py", "--full-size", tmp_path / "x.jsonl"], capture_output=True, text=True)
    assert run.returncode == 1 and "D2LPAR_FULL=1" in run.stderr and run.stderr.count("\n") == 1
