"""Install requirements.txt into the Python that runs this file: `python book/tools/install.py [pip's options]`.

PyTorch is most of it, and for Linux there are two builds. The CUDA build is on PyPI, and large. The CPU-only build is
on PyTorch's own server, which some networks do not reach. Without an NVIDIA GPU, that server is tried once, with
time-outs of three seconds. `--torch=cpu` and `--torch=cuda` choose a build, and `--torch=ADDRESS` names a mirror. One
sentence says what is installed, and why.

uv installs the CPU-only build, because it knows PyTorch's server; it gets pip's proxy and certificate. pip installs
everything else.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements.txt"
SMALL, LARGE = "1.8 GB in total", "6.6 GB in total"  # of disk space
OTHER_WAYS = f"""\
- TORCH= (with nothing after it) installs whichever build is available.
- TORCH=cuda installs the CUDA build from PyPI or your mirror ({LARGE}).
- TORCH=ADDRESS installs PyTorch from a package index, a page of links to wheels, or a folder of wheels.
- Behind a proxy, set HTTPS_PROXY or PIP_PROXY, and PIP_CERT for its certificate."""
NOT_INSTALLED = f"""\
pip could not install the packages in requirements.txt (see above).
- If the connection failed, try again; completed downloads are kept.
- For a mirror, a proxy or a certificate, set PIP_INDEX_URL, PIP_PROXY or PIP_CERT, or for this book only:
  make book PIP_EXTRA="--proxy http://proxy.example.com:8080"
- If the disk is full, delete .venv. With TORCH=cpu, the book takes {SMALL}, otherwise up to {LARGE}.
- If PyTorch does not support your system, see book/setup.md."""


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Install requirements.txt, and PyTorch in the build that fits.",
                                     epilog="All other options are passed to pip.", allow_abbrev=False)
    parser.add_argument("--torch", default="", metavar="CHOICE",
                        help="cpu, cuda, or a mirror: the address of an index or of a page of links, or a folder")
    args, options = parser.parse_known_args(words)
    pytorch = [line for line in REQUIREMENTS.read_text().splitlines() if re.match("torch(vision)?(==|$)", line)]
    choice = args.torch.strip()
    if choice == "cpu" and sys.platform == "linux":
        install_small_or_end(pytorch, options)
    elif choice == "cuda":
        install_large_or_end(pytorch, options)
    elif choice in ("", "cpu"):
        install_what_fits(pytorch, options)
    else:
        install_from(choice, pytorch, options)
    pip(options, "-r", str(REQUIREMENTS))


def install_what_fits(pytorch: list[str], options: list[str]) -> None:
    """Install the CPU-only build if it is enough and can be had, otherwise the default build. Say which, and why."""
    if f"torch=={installed().partition('+')[0]}" in pytorch:
        say(f"Keeping PyTorch {installed()}, which is already installed.")
        return
    problem = ""
    if sys.platform != "linux":
        say("Installing the default build of PyTorch for this system, which has no CUDA.")
    elif has_gpu():
        say(f"NVIDIA GPU found: installing the CUDA build of PyTorch ({LARGE}).")
    elif not (problem := why_no_small_build(pytorch, options)):
        say(f"No NVIDIA GPU found: installing the CPU-only build of PyTorch ({SMALL}).")
        if not uv(small(pytorch), options).returncode:
            return
        problem = "the download of the CPU-only build failed (see above)"
    if problem:
        say(f"No NVIDIA GPU found, but {problem}. Installing PyTorch from PyPI or your mirror instead, usually the "
            f"CUDA build ({LARGE}). For a mirror of the CPU-only build, use TORCH=ADDRESS.")
    install_large(pytorch, options)


def install_small_or_end(pytorch: list[str], options: list[str]) -> None:
    """Install the CPU-only build, unless it is there; end with a message if it cannot be had."""
    if [f"torch=={installed()}"] == small(pytorch)[:1]:
        say(f"Keeping PyTorch {installed()}, which is already installed.")
        return
    problem = why_no_small_build(pytorch, options)
    if not problem:
        say(f"TORCH=cpu: installing the CPU-only build of PyTorch ({SMALL}).")
        problem = "the download failed (see above)" if uv(small(pytorch), options).returncode else ""
    if problem:
        sys.exit(f"Cannot install the CPU-only build of PyTorch: {problem}. Try again, or:\n{OTHER_WAYS}")


def install_large_or_end(pytorch: list[str], options: list[str]) -> None:
    """Install the CUDA build, which PyPI has for Linux only."""
    if sys.platform != "linux":
        sys.exit("TORCH=cuda works only on Linux. On Windows, use TORCH=ADDRESS with the address after --index-url on "
                 "PyTorch's page \"Get Started\".")
    say(f"TORCH=cuda: installing the CUDA build of PyTorch ({LARGE}).")
    install_large(pytorch, options)


def install_large(pytorch: list[str], options: list[str], *places: str, failed: str = "") -> None:
    """Install PyTorch with pip, also over a different build, which pip would keep, and over one that is not whole."""
    pip(options, "--no-deps", "--force-reinstall", *places, *pytorch, failed=failed)


def install_from(mirror: str, pytorch: list[str], options: list[str]) -> None:
    """Install PyTorch alone from a mirror, whatever kind it is."""
    if "://" not in mirror and not Path(mirror := os.path.expanduser(mirror)).is_dir():
        sys.exit(f"TORCH must be cpu, cuda, an address (https://...) or an existing folder, not {mirror}.")
    say(f"Installing PyTorch from {mirror}, and everything else from PyPI or your mirror.")
    install_large(pytorch, options, "--index-url", mirror, "--find-links", mirror, failed=(
        f"pip could not install {' and '.join(pytorch)} from {mirror} (see above). It must be a package index, a page "
        "of links to wheels, or a folder of wheels, and have these versions for your Python and system."))


def say(words: str) -> None:
    print(words, flush=True)


@cache
def installed() -> str:
    """The version of PyTorch here; '' if there is none, or if an installation of torch or torchvision was cut short."""
    try:
        files = [file for name in ("torch", "torchvision") for file in distribution(name).files or [] if file.size]
        whole = files and all(Path(file.locate()).stat().st_size == file.size for file in files)
        return distribution("torch").version if whole else ""
    except (PackageNotFoundError, OSError):
        return ""


def has_gpu() -> bool:
    """Whether NVIDIA's driver shows a GPU here."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return True
    tool = shutil.which("nvidia-smi")  # in WSL, nothing else shows it
    try:
        return tool is not None and subprocess.run([tool, "-L"], capture_output=True, timeout=20).stdout[:4] == b"GPU "
    except (OSError, subprocess.TimeoutExpired):
        return False


def small(pytorch: list[str]) -> list[str]:
    """The same requirements, but PyTorch's version, if there is one, must be of the CPU-only build."""
    return [line + "+cpu" if line.startswith("torch==") else line for line in pytorch]


def why_no_small_build(pytorch: list[str], options: list[str]) -> str:
    """Why the CPU-only build cannot be had, or '' if it can: a single quick try, which downloads no package."""
    get_uv = [sys.executable, "-m", "pip", "install", "-q", *options, "uv>=0.9"]
    if not find_spec("uv") and subprocess.run(get_uv).returncode:
        return "pip could not install uv, which is needed for the CPU-only build (see above)"
    try:
        tried = uv(small(pytorch), options, "--dry-run",
                   UV_HTTP_TIMEOUT="3", UV_HTTP_CONNECT_TIMEOUT="3", UV_HTTP_RETRIES="0")
    except subprocess.TimeoutExpired:
        return "PyTorch's own server did not answer in time"
    said = tried.stderr.decode(errors="replace")
    if not tried.returncode:
        return ""
    if "No solution found" in said:
        return "PyTorch's own server gives no such build for your Python and system (a firewall may be the reason)"
    address, causes = re.findall(r"https://[^\s)]+", said), re.findall(r"^(?:error|  cause): (.*)", said, re.M)
    return f"uv could not get the CPU-only build from PyTorch's own server ({': '.join([*address[:1], *causes[-1:]])})"


def uv(packages: list[str], options: list[str], *words: str, **settings: str) -> subprocess.CompletedProcess[bytes]:
    """Let uv install packages from PyTorch's server, over any other build; a dry run is quiet and has ten seconds."""
    quiet = "--dry-run" in words
    command = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable, "--torch-backend=cpu",
               "--no-deps", "--reinstall", *words, *packages]
    return subprocess.run(command, env=os.environ | settings_for_uv(options) | settings, capture_output=quiet,
                          timeout=10 if quiet else None)


def settings_for_uv(options: list[str]) -> dict[str, str]:
    """What uv reads, for what pip's options, variables and files say of the proxy and of certificates."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for name in ("proxy", "cert", "trusted-host"):
        parser.add_argument(f"--{name}", default=settings_of_pip().get(name))
    said = parser.parse_known_args(options)[0]
    settings = {"HTTP_PROXY": said.proxy, "HTTPS_PROXY": said.proxy, "UV_INSECURE_HOST": said.trusted_host,
                "SSL_CERT_FILE": os.environ.get("SSL_CERT_FILE") or said.cert or os.environ.get("REQUESTS_CA_BUNDLE"),
                "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    return {name: value for name, value in settings.items() if value}


@cache
def settings_of_pip() -> dict[str, str]:
    """pip's settings, by the names of its options: those of variables count more than those of files."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], env=os.environ | {"PIP_QUIET": "0"},
                            capture_output=True, text=True).stdout
    found = re.findall(r"^(global|install|:env:)\.([a-z-]+)=(['\"])(.*)\3$", listed, re.M)
    return {name: value for kind in ("global", "install", ":env:") for where, name, _, value in found if where == kind}


def pip(options: list[str], *words: str, failed: str = "") -> None:
    """Run `pip install`, or end with a message."""
    if subprocess.run([sys.executable, "-m", "pip", "install", *options, *words]).returncode:
        sys.exit(failed or NOT_INSTALLED)


if __name__ == "__main__":
    main(sys.argv[1:])
