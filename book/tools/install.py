"""Install requirements.txt into the Python that runs this file: `python book/tools/install.py [pip's options]`.

PyTorch is most of it, and Linux has two builds. The one in the Python registry contains CUDA and is large. The small
one, for CPUs, is on PyTorch's own server, which some networks do not reach. Without an NVIDIA GPU, that server is tried
once, for three seconds. `--torch=cpu` and `--torch=cuda` choose a build, and `--torch=ADDRESS` names a mirror. One
sentence says what is installed, and why.

uv installs the small build, because it knows PyTorch's server; it gets pip's proxy and certificate. pip installs
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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements.txt"
UV = Path(sys.executable).with_name("uv")
SMALL, LARGE = "everything takes 1.8 GB", "everything takes 6.6 GB"  # of disk space
OTHER_WAYS = """\
- Without TORCH=cpu, the same command installs whichever build it can get.
- TORCH=cuda installs the build with CUDA from your own index, and everything takes 6.6 GB.
- TORCH=ADDRESS takes PyTorch from a mirror: an index, a page of links to wheels, or a folder of wheels.
- Behind a proxy, set HTTPS_PROXY, or pip's own setting PIP_PROXY; for its certificate, set PIP_CERT."""
NOT_INSTALLED = """\
pip could not install {what} (see above).
- If the connection failed, run the same command again: pip keeps what it has downloaded.
- For a mirror, a proxy or a certificate, set PIP_INDEX_URL, PIP_PROXY or PIP_CERT.
  For this book alone: make book PIP_EXTRA="--proxy http://localhost:3128"
- If the disk is full: the build of PyTorch with CUDA takes 6.6 GB with everything else, the one for CPUs 1.8 GB.
- PyTorch does not support every system: book/setup.md lists the exceptions."""


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Install requirements.txt with pip, and the fitting build of PyTorch.",
                                     epilog="All other options are passed to pip.", allow_abbrev=False)
    parser.add_argument("--torch", default="", metavar="CHOICE",
                        help="cpu, cuda, or a mirror: the address of an index or of a page of links, or a folder")
    args, options = parser.parse_known_args(words)
    pytorch = [line for line in REQUIREMENTS.read_text().splitlines() if re.match("torch(vision)?(==|$)", line)]
    if args.torch == "cpu" and sys.platform == "linux":
        install_small_or_end(pytorch, options)
    elif args.torch == "cuda":
        install_large(pytorch, options)
    elif args.torch in ("", "cpu"):
        install_what_fits(pytorch, options)
    else:
        install_from(args.torch, pytorch, options)
    pip(options, "-r", str(REQUIREMENTS))


def install_what_fits(pytorch: list[str], options: list[str]) -> None:
    """Install the small build if it is enough and can be had; otherwise leave PyTorch to pip. Say which, and why."""
    if sys.platform != "linux":
        say("On this system, the ordinary build of PyTorch is installed, which has no CUDA.")
    elif f"torch=={installed().partition('+')[0]}" in pytorch:
        say(f"PyTorch {installed()} is installed already, and stays.")
    elif has_gpu():
        say(f"There is an NVIDIA GPU, so the build of PyTorch with CUDA is installed; {LARGE}.")
    elif problem := why_no_small_build(pytorch, options):
        say(f"There is no NVIDIA GPU, so PyTorch's build for CPUs would be enough, but {problem}. The build with CUDA "
            f"is installed from your index instead; {LARGE}. (To take PyTorch from a mirror, give TORCH=ADDRESS.)")
    else:
        say(f"There is no NVIDIA GPU, so PyTorch's build for CPUs is installed; {SMALL}.")
        install_small(pytorch, options)


def install_small_or_end(pytorch: list[str], options: list[str]) -> None:
    """Install the build for CPUs, unless it is there; end with a message if it cannot be had."""
    if [f"torch=={installed()}"] == small(pytorch)[:1]:
        say(f"PyTorch {installed()} is installed already, and stays.")
    elif problem := why_no_small_build(pytorch, options):
        sys.exit(f"PyTorch's build for CPUs cannot be installed: {problem}.\n{OTHER_WAYS}")
    else:
        say(f"TORCH=cpu: PyTorch's build for CPUs is installed; {SMALL}.")
        install_small(pytorch, options)


def install_small(pytorch: list[str], options: list[str]) -> None:
    """Install the build for CPUs, which PyTorch's server has, or end with a message."""
    if uv(small(pytorch), options).returncode:
        sys.exit("PyTorch's build for CPUs could not be installed (see above). Run the same command again.\n"
                 + OTHER_WAYS)


def install_large(pytorch: list[str], options: list[str]) -> None:
    """Replace a build for CPUs, which pip would keep; pip then installs the one with CUDA."""
    if sys.platform != "linux":
        sys.exit("On this system, your index has no build of PyTorch with CUDA. For Windows, PyTorch's page \"Get "
                 "Started\" shows the address of one, after --index-url: give it as TORCH=ADDRESS.")
    say(f"TORCH=cuda: the build of PyTorch with CUDA is installed; {LARGE}.")
    if "+cpu" in installed():
        pip(options, "--no-deps", "--force-reinstall", *pytorch)


def install_from(mirror: str, pytorch: list[str], options: list[str]) -> None:
    """Install PyTorch alone from a mirror, whatever kind it is."""
    if "://" not in mirror and not Path(mirror).is_dir():
        sys.exit(f"TORCH={mirror} is neither cpu nor cuda nor an address (https://...) nor an existing folder.")
    say(f"PyTorch is installed from {mirror}, everything else from your index.")
    pip(options, "--no-deps", "--force-reinstall", "--index-url", mirror, "--find-links", mirror, *pytorch, failed=(
        f"pip could not install {' and '.join(pytorch)} from TORCH={mirror} (see above). It must be an index that "
        "contains torch/ and torchvision/, a page of links to wheels, or a folder of wheels, with these versions for "
        "your Python and your system."))


def say(words: str) -> None:
    print(words, flush=True)


def installed() -> str:
    """The version of PyTorch in this environment, or ''."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def has_gpu() -> bool:
    """Whether NVIDIA's driver shows a GPU here."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return True
    tool = shutil.which("nvidia-smi")  # in WSL, nothing else shows it
    return tool is not None and b"GPU" in subprocess.run([tool, "-L"], capture_output=True).stdout


def small(pytorch: list[str]) -> list[str]:
    """The same requirements, but PyTorch's version, if there is one, must be of the build for CPUs."""
    return [line + "+cpu" if line.startswith("torch==") else line for line in pytorch]


def why_no_small_build(pytorch: list[str], options: list[str]) -> str:
    """Why the build for CPUs cannot be had, or '' if it can: a single try of three seconds, which downloads nothing."""
    get_uv = [sys.executable, "-m", "pip", "install", "-q", *options, "uv>=0.9"]
    if not UV.exists() and subprocess.run(get_uv).returncode:
        return "uv, which would install it, could not be installed (see above)"
    try:
        tried = uv(small(pytorch)[:1], options, "--dry-run",
                   UV_HTTP_TIMEOUT="3", UV_HTTP_CONNECT_TIMEOUT="3", UV_HTTP_RETRIES="0")
    except subprocess.TimeoutExpired:
        return "PyTorch's own server did not answer in time"
    if not tried.returncode:
        return ""
    if b"No solution found" in tried.stderr:
        return "PyTorch's own server has none of this version for your Python and your system"
    causes = re.findall(r"^(?:error|  cause): (.*)", tried.stderr.decode(errors="replace"), re.M)
    return f"PyTorch's own server cannot be reached ({causes[-1] if causes else 'no cause is known'})"


def uv(packages: list[str], options: list[str], *words: str, **settings: str) -> subprocess.CompletedProcess[bytes]:
    """Let uv install packages from PyTorch's server, over any other build; a dry run is quiet and has ten seconds."""
    quiet = "--dry-run" in words
    command = [UV, "pip", "install", "--python", sys.executable, "--torch-backend=cpu", "--no-deps", "--reinstall"]
    return subprocess.run([*command, *words, *packages], env=os.environ | settings_for_uv(options) | settings,
                          capture_output=quiet, timeout=10 if quiet else None)


def settings_for_uv(options: list[str]) -> dict[str, str]:
    """What uv reads, for what pip's options, variables and files say of the proxy and of certificates."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    settings = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    for name, variables in (("proxy", ["HTTP_PROXY", "HTTPS_PROXY"]), ("cert", ["SSL_CERT_FILE"]),
                            ("trusted-host", ["UV_INSECURE_HOST"])):
        parser.add_argument(f"--{name}", dest="value")
        if value := parser.parse_known_args(options)[0].value or settings_of_pip().get(name):
            settings |= dict.fromkeys(variables, value)
    return settings


@cache
def settings_of_pip() -> dict[str, str]:
    """pip's settings, by the names of its options: those of variables count more than those of files."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    found = re.findall(r"^(global|install|:env:)\.([a-z-]+)='(.*)'$", listed, re.M)
    return {name: value for kind in ("global", "install", ":env:") for where, name, value in found if where == kind}


def pip(options: list[str], *words: str, failed: str = "") -> None:
    """Run `pip install`, or end with a message."""
    if subprocess.run([sys.executable, "-m", "pip", "install", *options, *words]).returncode:
        sys.exit(failed or NOT_INSTALLED.format(what=words[-1]))


if __name__ == "__main__":
    main(sys.argv[1:])
