"""book/tools/install.py installs the right build of PyTorch on every network, with the reader's own settings.

pip and uv run here as they are. Only the packages are empty, and the servers are on this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Generator
from pathlib import Path

import pip
import pytest

import install
from helpers.package_servers import Server, make_wheel, serving

UV = f"import os, sys\nos.execv({sys.executable!r}, [{sys.executable!r}, '-I', '-m', 'uv', *sys.argv[1:]])"  # starts the real one
ORDINARY, SMALL = ("2.15.0", "0.29.2"), ("2.15.0+cpu", "0.29.2+cpu")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two builds of PyTorch")


def builds(folder: Path, torch: str, torchvision: str) -> list[Path]:
    return [make_wheel(folder, "torch", torch), make_wheel(folder, "torchvision", torchvision)]


@pytest.fixture
def index(tmp_path: Path) -> Generator[Server]:
    """The reader's own index, with the default build of PyTorch, one more package, and uv."""
    with serving([*builds(tmp_path / "index", *ORDINARY), make_wheel(tmp_path / "index", "more", "1.0"),
                  make_wheel(tmp_path / "index", "uv", "0.9", UV)]) as server:
        yield server


@pytest.fixture
def pytorch(tmp_path: Path) -> Generator[Server]:
    """PyTorch's own server, with the small build, and the proxy on the way to it."""
    with serving(builds(tmp_path / "small", *SMALL)) as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, root: Path, index: Server) -> Callable[..., tuple[int, str, dict[str, str]]]:
    """Run install.py in an empty environment: its exit code, what it printed, and what is installed then."""
    book, packages = tmp_path / "a book", tmp_path / "packages"
    (book / "book" / "tools").mkdir(parents=True)
    shutil.copy(root / "book" / "tools" / "install.py", book / "book" / "tools")
    (book / "requirements.txt").write_text("torch==2.15.0\ntorchvision==0.29.2\nmore\n")
    venv.create(book / ".venv")
    programs = book / ".venv" / "bin"
    (packages / "uv").mkdir(parents=True)
    (packages / "uv" / "__main__.py").write_text(UV)
    (packages / "pip").symlink_to(Path(pip.__file__).parent)  # to install pip takes some seconds
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "SSL_", "PYTHON"))}
    plain |= {"PYTHONPATH": str(packages), "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{index.address}/simple",
              "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_CACHE_DIR": "1",
              "UV_CACHE_DIR": str(tmp_path / "cache"), "PATH": f"{tmp_path}/programs:/usr/bin:/bin"}

    def run(*words: str, **settings: str) -> tuple[int, str, dict[str, str]]:
        done = subprocess.run([programs / "python", book / "book" / "tools" / "install.py", *words], cwd=book, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=plain | settings, timeout=120)
        [libraries] = (book / ".venv" / "lib").glob("python*/site-packages")
        there = dict(re.findall(r"(\w+)-([^/]+)\.dist-info", "\n".join(map(str, libraries.iterdir()))))
        there.pop("uv", None)
        return done.returncode, done.stdout, there

    return run


@pytest.fixture
def through(pytorch: Server, tmp_path: Path) -> Callable[[Server], dict[str, str]]:
    """The settings with which PyTorch's server is reached through this one."""
    def through(server: Server) -> dict[str, str]:
        certificate = tmp_path / "certificate.pem"
        server.authority.cert_pem.write_to_path(certificate)
        return {"HTTPS_PROXY": server.address, "SSL_CERT_FILE": str(certificate)}

    return through


SMALL_ONE = {"torch": SMALL[0], "torchvision": SMALL[1], "more": "1.0"}
ORDINARY_ONE = {"torch": ORDINARY[0], "torchvision": ORDINARY[1], "more": "1.0"}


def test_uv_comes_from_the_readers_index_and_without_it_the_ordinary_build_is_taken(run: Callable, through: Callable, pytorch: Server,
                                                                                  index: Server, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "packages" / "uv")
    uv = index.wheels.pop("uv-0.9-py3-none-any.whl")
    code, said, there = run(**through(pytorch))
    assert code == 0 and there == ORDINARY_ONE and "No NVIDIA GPU found, but pip could not install uv" in said, said
    index.wheels[uv.name] = uv
    assert run("--torch=cpu", **through(pytorch))[2] == SMALL_ONE


@pytest.mark.parametrize("choice", [(), ("--torch=cpu",)], ids=["nothing chosen", "TORCH=cpu"])
def test_a_server_that_answers_gives_the_small_build(choice: tuple[str, ...], run: Callable, through: Callable, pytorch: Server) -> None:
    code, said, there = run(*choice, **through(pytorch))
    assert code == 0 and there == SMALL_ONE, said
    assert "installing the CPU-only build of PyTorch (1.8 GB in total)" in said


def test_with_the_newest_versions_of_the_weekly_run_it_is_the_small_build_too(run: Callable, through: Callable, pytorch: Server,
                                                                              tmp_path: Path) -> None:
    (tmp_path / "a book" / "requirements.txt").write_text("torch\ntorchvision\nmore\n")
    code, said, there = run(**through(pytorch))
    assert code == 0 and there == SMALL_ONE, said


@pytest.mark.parametrize("network, why", [("refuses", "Connection refused"), ("hangs", "operation timed out)"),
                                          ("lacks", "gives no such build for your Python and system")])
@pytest.mark.parametrize("choice", [(), ("--torch=cpu",)], ids=["nothing chosen", "TORCH=cpu"])
def test_a_server_that_does_not_answer_is_named_and_the_ordinary_build_taken_unless_the_small_one_was_demanded(
        network: str, why: str, choice: tuple[str, ...], run: Callable, through: Callable, tmp_path: Path) -> None:
    wheels = builds(tmp_path / "old", "2.14.0+cpu", "0.29.0+cpu")
    with serving(wheels, hangs=network == "hangs") as server:
        settings = through(server)
        if network == "refuses":
            server.server_close()
        code, said, there = run(*choice, **settings)
    assert why in said and ("from PyTorch's own server (https://" in said) == (network != "lacks")
    if choice:
        assert code == 1 and there == {}, said
        assert "TORCH= (with nothing after it)" in said and "TORCH=cuda" in said and "TORCH=ADDRESS" in said and "PIP_PROXY" in said
    else:
        assert code == 0 and there == ORDINARY_ONE, said
        assert "from PyPI or your mirror instead, usually the CUDA build (6.6 GB in total)" in said


def test_where_the_wheels_are_blocked_the_ordinary_build_is_taken(run: Callable, through: Callable, pytorch: Server) -> None:
    pytorch.blocks_wheels = True
    code, said, there = run(**through(pytorch))
    assert code == 0 and there == ORDINARY_ONE and "No NVIDIA GPU found, but the download of the CPU-only build failed" in said, said
    code, said, _ = run("--torch=cpu", **through(pytorch))
    assert code == 1 and "the download failed (see above). Try again, or:\n- TORCH= (with nothing" in said


@pytest.mark.parametrize("broken", ["a file is cut short", pytest.param("a file is missing", marks=pytest.mark.weekly),
                                    pytest.param("torchvision is missing", marks=pytest.mark.weekly)])
def test_an_installation_that_was_cut_short_is_done_again(broken: str, run: Callable, through: Callable, pytorch: Server,
                                                          tmp_path: Path) -> None:
    assert run(**through(pytorch))[2] == SMALL_ONE
    [libraries] = (tmp_path / "a book" / ".venv" / "lib").glob("python*/site-packages")
    file = libraries / "torch" / "__init__.py"
    if broken == "torchvision is missing":
        for folder in libraries.glob("torchvision*"):
            shutil.rmtree(folder)
    elif broken == "a file is missing":
        file.unlink()
    else:
        os.truncate(file, 3)
    code, said, there = run(**through(pytorch))
    assert code == 0 and there == SMALL_ONE and "2.15.0+cpu" in file.read_text() and "Keeping" not in said


def test_pytorch_that_is_there_stays_unless_a_different_build_is_demanded(run: Callable, through: Callable, pytorch: Server) -> None:
    assert run("--torch=cpu", **through(pytorch))[2] == SMALL_ONE
    pytorch.asked.clear()
    for choice in ((), ("--torch=cpu",)):
        _, said, there = run(*choice, **through(pytorch))
        assert there == SMALL_ONE and "Keeping PyTorch 2.15.0+cpu" in said and pytorch.asked == []
    _, said, there = run("--torch=cuda")
    assert there == ORDINARY_ONE and "TORCH=cuda: installing the CUDA build" in said
    assert run(**through(pytorch))[2] == ORDINARY_ONE
    assert run("--torch=cpu", **through(pytorch))[2] == SMALL_ONE


@pytest.mark.parametrize("shows, wanted", [("GPU 0: NVIDIA T4", ORDINARY_ONE), ("No devices were found", SMALL_ONE),
                                           ("Failed to initialize NVML: GPU access blocked by the operating system", SMALL_ONE)])
def test_with_an_nvidia_gpu_the_ordinary_build_is_taken(shows: str, wanted: dict[str, str], run: Callable, through: Callable,
                                                        pytorch: Server, tmp_path: Path) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")) and wanted == SMALL_ONE:
        pytest.skip("there is a GPU")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "nvidia-smi").write_text(f"#!/bin/sh\necho '{shows}'\n")
    (tmp_path / "programs" / "nvidia-smi").chmod(0o755)
    _, said, there = run(**through(pytorch))
    assert there == wanted and ("NVIDIA GPU found: installing the CUDA build" in said) == (wanted == ORDINARY_ONE) == (pytorch.asked == []), said


@pytest.mark.parametrize("kind", ["an index", "a page of links", "a folder of wheels", "a folder that is an index"])
def test_a_mirror_of_any_kind_gives_pytorch_and_the_readers_index_the_rest(kind: str, run: Callable, index: Server, tmp_path: Path) -> None:
    folder = tmp_path / "a mirror"
    wheels = builds(folder, *SMALL)
    if kind == "a folder that is an index":
        for wheel in wheels:
            (folder / wheel.name.partition("-")[0]).mkdir()
            wheel.rename(folder / wheel.name.partition("-")[0] / wheel.name)
            (folder / wheel.name.partition("-")[0] / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>')
        wheels = []
    with serving(wheels) as mirror:
        where = {"an index": f"{mirror.address}/whl/cpu", "a page of links": f"{mirror.address}/links.html"}.get(kind, str(folder))
        code, said, there = run(f"--torch={where}")
    assert code == 0 and there == SMALL_ONE, said
    assert f"Installing PyTorch from {where}" in said and not [path for path in index.asked if "torch-" in path]


def test_a_folder_of_all_wheels_is_enough_without_a_network(run: Callable, index: Server, tmp_path: Path) -> None:
    builds(tmp_path / "wheels", *SMALL)
    make_wheel(tmp_path / "wheels", "more", "1.0")
    code, said, there = run("--torch=../wheels", "--no-index", "--find-links", "../wheels")
    assert code == 0 and there == SMALL_ONE and index.asked == [], said


def test_a_mirror_without_this_version_and_one_that_is_not_there_are_named(run: Callable, tmp_path: Path) -> None:
    builds(tmp_path / "old", "2.14.0+cpu", "0.29.0+cpu")
    code, said, there = run(f"--torch={tmp_path / 'old'}")
    assert code == 1 and there == {} and f"torch==2.15.0 and torchvision==0.29.2 from {tmp_path / 'old'}" in said
    code, said, there = run("--torch=cpuu")
    assert code == 1 and there == {} and said.startswith("TORCH must be cpu, cuda, an address") and said.count("\n") == 1


@pytest.mark.parametrize("words, variables, file", [
    (["--cert=CERT", "--proxy", "PROXY"], {}, ""), pytest.param(["--proxy=PROXY"], {"PIP_CERT": "CERT"}, "", marks=pytest.mark.weekly),
    pytest.param(["--proxy=PROXY"], {"SSL_CERT_FILE": "CERT"}, "", marks=pytest.mark.weekly),
    ([], {"PIP_PROXY": "PROXY", "REQUESTS_CA_BUNDLE": "CERT", "PIP_QUIET": "1"}, ""),
    ([], {}, "[global]\nproxy = http://127.0.0.1:9\ncert = CERT\n[install]\nproxy = PROXY")],
    ids=["options", "an option and a variable", "an option and the certificate for uv", "variables", "a file"])
def test_pips_proxy_and_certificate_hold_for_the_small_build_too(words: list[str], variables: dict[str, str], file: str, run: Callable,
                                                                 through: Callable, pytorch: Server, index: Server, tmp_path: Path) -> None:
    with serving([*pytorch.wheels.values(), *index.wheels.values()]) as both:
        proxy, certificate = through(both).values()

        def fill(text: str) -> str:
            return text.replace("PROXY", proxy).replace("CERT", certificate)

        settings = {name: fill(value) for name, value in variables.items()}
        if file:  # otherwise, pip reads no file
            (tmp_path / "pip.conf").write_text(fill(file))
            settings["PIP_CONFIG_FILE"] = str(tmp_path / "pip.conf")
        code, said, there = run(*map(fill, words), **settings)
    assert code == 0 and there == SMALL_ONE and "installing the CPU-only build" in said, said
    assert [path for path in both.asked if path.endswith(":443")] and index.asked == []  # all of it came through the proxy


def test_without_an_index_pip_says_what_helps(run: Callable) -> None:
    code, said, there = run("--torch=cuda", "--no-index")
    assert code == 1 and there == {}
    assert "pip could not install" in said and "PIP_INDEX_URL" in said and "PIP_EXTRA" in said and "6.6 GB" in said


@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize("choice", [(), ("--torch=cpu",), ("--torch=cuda",)], ids=["nothing", "cpu", "cuda"])
def test_other_systems_have_a_single_build_on_the_index(system: str, choice: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture) -> None:
    called: list = []
    monkeypatch.setattr(install.sys, "platform", system)
    monkeypatch.setattr(install, "installed", lambda: "")
    monkeypatch.setattr(install, "pip", lambda options, *words, **_: called.append(words))
    if choice == ("--torch=cuda",):
        with pytest.raises(SystemExit, match="TORCH=ADDRESS"):
            install.main(list(choice))
        assert called == []
    else:
        install.main([*choice])
        assert called[0][:2] == ("--no-deps", "--force-reinstall") and called[1:] == [("-r", str(install.REQUIREMENTS))] and "which has no CUDA" in capsys.readouterr().out
