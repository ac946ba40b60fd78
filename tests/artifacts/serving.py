"""A server of a folder, with ranges or without, that can cut its answers short and counts what it was asked for."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Served:
    """What a server did: every GET with its range; `cut` is after how many bytes of a file's answer its connection breaks, once."""

    folder: Path
    ranges: bool = True
    cut: dict[str, int] = field(default_factory=dict)
    stall: str = ""
    stalled: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def serving(folder: Path, *, ranges: bool = True, cut: dict[str, int] | None = None, stall: str = "") -> Iterator[Served]:
    """A server for as long as it is needed; one that is to stall at a range says that it does, and answers when it is told to go on."""
    held = Served(folder, ranges, dict(cut or {}), stall)

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            held.asked.append((self.path, self.headers.get("Range", "")))
            if held.stall and self.headers.get("Range", "").startswith(held.stall):
                held.stalled.set()
                held.go.wait(60)
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = held.folder / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            content, whole = path.read_bytes(), path.stat().st_size
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if held.ranges else None
            if found:
                begin, end = int(found[1]), min(int(found[2] or whole - 1), whole - 1)
                content = content[begin : end + 1]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{end}/{whole}")
            else:
                self.send_response(200)
            self.send_header("Accept-Ranges", "bytes" if held.ranges else "none")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not body:
                return
            if (limit := held.cut.get(path.name)) is not None and len(content) > limit:
                del held.cut[path.name]
                self.wfile.write(content[:limit])
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()
                return
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    held.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield held
    finally:
        held.go.set()
        server.shutdown()
        server.server_close()
        thread.join()
