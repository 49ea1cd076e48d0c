"""A network for the tests of the installation: wheels without content, the reader's index, and PyTorch's server."""

from __future__ import annotations

import ssl
import threading
import time
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme


def make_wheel(folder: Path, name: str, version: str, main: str = "") -> Path:
    """A wheel of a package that does nothing, unless it is run as a program."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {f"{name}/__init__.py": f"version = {version!r}\n", f"{name}/__main__.py": f"{main}\n",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    rows = [f"{path},sha256={digest(text.encode())},{len(text)}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in files.items():
            wheel.writestr(inside, text)
    return path


def digest(data: bytes) -> str:
    """The SHA-256 of `data`, as the list of files in a wheel has it."""
    return urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()


class Server(ThreadingHTTPServer):
    """An index of packages, a page of links, and a proxy behind which every host with TLS is this server."""

    def __init__(self, wheels: Iterable[Path], hangs: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheels, self.hangs, self.blocks_wheels = {wheel.name: wheel for wheel in wheels}, hangs, False
        self.authority = trustme.CA()
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_CONNECT(self) -> None:
        self.server.asked.append(self.path)
        if self.server.hangs:
            time.sleep(20)
        self.send_response(200)
        self.end_headers()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.authority.issue_cert(self.path.partition(":")[0]).configure_cert(context)
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.hangs:
            time.sleep(20)
        last = self.path.rstrip("/").rpartition("/")[2].replace("%2B", "+")
        if last in self.server.wheels and self.server.blocks_wheels:
            self.answer(b"", "text/plain", 403)
        elif last in self.server.wheels:
            self.answer(self.server.wheels[last].read_bytes(), "application/octet-stream")
        elif last == "links.html" or any(name.startswith(f"{last}-") for name in self.server.wheels):
            wanted = [name for name in self.server.wheels if last == "links.html" or name.startswith(f"{last}-")]
            links = [f'<a href="/{name.replace("+", "%2B")}">{name}</a><br>' for name in wanted]
            self.answer("\n".join(["<!DOCTYPE html><html><body>", *links, "</body></html>"]).encode(), "text/html")
        else:
            self.answer(b"", "text/plain", 404)

    do_HEAD = do_GET

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the server closes the one below it

    def answer(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@contextmanager
def serving(wheels: Iterable[Path], hangs: bool = False) -> Generator[Server]:
    """A server for these wheels, on a port of this machine."""
    server = Server(wheels, hangs)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
