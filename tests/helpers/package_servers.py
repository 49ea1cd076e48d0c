"""A network for the tests of the installation: wheels without content, the reader's index, and PyTorch's server."""

from __future__ import annotations

import hashlib
import ssl
import threading
import time
import zipfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme


def make_wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel that contains nothing but its name and its version."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in files.items():
            wheel.writestr(inside, text)
    return path


class Server(ThreadingHTTPServer):
    """An index of packages, a page of links, and a proxy behind which every host with TLS is this server."""

    def __init__(self, wheels: Iterable[Path], hangs: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheels, self.hangs = {wheel.name: wheel for wheel in wheels}, hangs
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
        if last in self.server.wheels:
            self.answer(self.server.wheels[last].read_bytes(), "application/octet-stream")
        elif last == "links.html" or any(name.startswith(f"{last}-") for name in self.server.wheels):
            wanted = [name for name in self.server.wheels if last == "links.html" or name.startswith(f"{last}-")]
            links = [f'<a href="/{name.replace("+", "%2B")}#sha256={digest(self.server.wheels[name])}">{name}</a><br>' for name in wanted]
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


def digest(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


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
