"""Records on their way to the database: what is sent where, what is written instead, and that no password is told."""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

from steelyard.dialects.v3 import schema, upload
from steelyard.errors import UsageError
from tests.dialects.v3.made import METADATA, Said, results, row, write

ROOT = Path(__file__).parents[3]


# upload


class Service(http.server.BaseHTTPRequestHandler):
    """The upload service, as far as its answers go."""

    held: ClassVar[dict[str, str]] = {}
    seen: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        self._answer(*self._judge(body))

    def _judge(self, body: dict[str, Any]) -> tuple[int, str]:
        if self.path == "/moved":
            return 302, ""
        if self.path == "/broken":
            return 500, "boom"
        if self.path.startswith("/echo"):
            user, word = body["username"], body["password"]
            return 400, f"{self.path} {user} {word} {json.dumps(word)} {quote(word)} {base64.b64encode(f'{user}:{word}'.encode()).decode()}"
        if self.path.startswith("/short"):
            return 599, "x" * 100
        if self.path == "/picky":
            return 400, "Missing required parameter"
        if "username" not in body or "password" not in body:
            return 401, "Authentication credentials are required"
        if body["password"] != "secret":
            return 403, f"Invalid: {body['password']}"
        if body["s3_path"] in self.held:
            return 409, "Path exists"
        self.held[body["s3_path"]] = body["content"]
        return 200, "File uploaded"

    def _answer(self, code: int, message: str) -> None:
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/")
        if code == 599:
            self.send_header("Content-Length", "100000")
        self.end_headers()
        self.wfile.write(json.dumps({"message": message}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


@pytest.fixture
def service() -> Iterator[str]:
    Service.held, Service.seen = {}, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_dry_run_is_the_default_and_sends_nothing(said: Said, service: str, tmp_path: Path) -> None:
    results(tmp_path)
    out, err = said("as", "v3", "upload", "results.json", "--metadata", json.dumps(METADATA), "--url", service)
    assert "would upload 3 records to v3/pytorch/ao/1/2/results.json" in out and "dry run: nothing was sent" in err
    assert Service.seen == []


def test_uploads_are_answered_in_plain_words(said: Said, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results(tmp_path)
    words = ("as", "v3", "upload", "results.json", "--metadata", json.dumps(METADATA), "--no-dry-run", "--url")
    assert "the service got no user name and password; set UPLOADER_USERNAME" in said(*words, service, code=3)[0]
    monkeypatch.setenv(upload.USERNAME, "me")
    monkeypatch.setenv(upload.PASSWORD, "hunter2-no")
    out, err = said(*words, service, code=3)
    assert "does not know this user name and password" in out and "hunter2-no" not in out + err
    monkeypatch.setenv(upload.PASSWORD, "secret")
    assert "✓ v3/pytorch/ao/1/2/results.json 3 records · stored" in said(*words, service)[0]
    lines = [json.loads(line) for line in Service.held["v3/pytorch/ao/1/2/results.json"].splitlines()]
    assert [line["repo"] for line in lines] == ["pytorch/ao"] * 3
    assert "there is already a file at this path" in said(*words, service, code=3)[0]
    assert "could not read the request" in said(*words, f"{service}/picky", code=3)[0]
    assert "it said: Missing required parameter" in said(*words, f"{service}/picky", code=3)[0]
    assert "the service returned the unknown status 500" in said(*words, f"{service}/broken", code=3)[0]
    before = len(Service.seen)
    assert "the service returned the unknown status 302" in said(*words, f"{service}/moved", code=3)[0]
    assert len(Service.seen) == before + 1


@pytest.mark.parametrize("url", ["http://example.com/x", "ftp://x", "nonsense", "https://", "http://localhost.evil.com", "http://[::1"])
def test_a_password_travels_nowhere_in_the_open(url: str) -> None:
    with pytest.raises(UsageError, match="not an address to upload to"):
        upload.check_address(url)
    upload.check_address("https://example.com/x")


SECRETS = ("the-user", 'p w/ü"1', "tok3n", "p%20w", "dGhlLXVzZXI6")


@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://the-user:tok3n@example.com/x", 2), ("https://the-user:tok3n@example.com/x", 2), ("https://the-user:tok3n@", 2),
        ("https://the-user:tok3n@example.com:port/x", 2), ("the-user:tok3n@example.com", 2), ("http://[the-user:tok3n", 2),
        ("http://example.com/tok3n?key=tok3n#tok3n", 2), ("ftp://the-user:tok3n@x", 2), ("https:/the-user:tok3n", 2),
        ("http://127.0.0.1:9/tok3n?key=tok3n", 2), ("http://127.0.0.1:9/x y?key=tok3n", 2), ("http://127.0.0.1:9/\u00fc?key=tok3n", 2),
        ("http://127.0.0.1:99999/?key=tok3n", 2), ("HERE/echo?key=tok3n", 3), ("HERE/short?tok3n", 3),
    ],
)  # fmt: skip
def test_credentials_are_never_told(
    said: Said, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, code: int, debug: tuple[str, ...]
) -> None:
    results(tmp_path)
    monkeypatch.setenv(upload.USERNAME, SECRETS[0])
    monkeypatch.setenv(upload.PASSWORD, SECRETS[1])
    words = ("as", "v3", "upload", "results.json", "--metadata", json.dumps(METADATA), "--url", url.replace("HERE", service))
    for told in (said(*debug, *words, "--no-dry-run", code=code), said(*debug, *words)):
        assert not [secret for secret in SECRETS if secret in "".join(told)], told


def test_a_user_name_within_a_word_is_left_and_long_answers_are_cut_after_hiding() -> None:
    assert upload._safe("me: some message for me", "https://x", "me", "") == "…: some message for …"
    assert upload._safe("a\x1b[31m\n b", "https://x", "", "") == "a [31m b"


def test_a_service_that_is_not_there_is_told(said: Said, tmp_path: Path) -> None:
    results(tmp_path)
    words = ("as", "v3", "upload", "results.json", "--metadata", json.dumps(METADATA), "--no-dry-run")
    assert "could not reach the upload service" in said(*words, "--url", "http://127.0.0.1:9", code=2)[1]
    assert "there is no address to upload to" in said(*words, code=2)[1]


def test_files_are_written_packed_by_the_path_rule(said: Said, tmp_path: Path) -> None:
    results(tmp_path)
    metadata = {key: value for key, value in METADATA.items() if key not in schema.STAND_INS}
    stand_in = json.dumps({**metadata, "servicelab_experiment_id": 7, "servicelab_trial_id": 8})
    said("as", "v3", "upload", "results.json", "--metadata", stand_in, "--no-dry-run", "--to", "out")
    assert "cannot make the folder" in said(
        "as", "v3", "upload", "results.json", "--metadata", stand_in, "--no-dry-run", "--to", "results.json", code=2
    )[1]  # fmt: skip
    content = (tmp_path / "out" / "v3" / "pytorch" / "ao" / "7" / "8" / "results.json").read_bytes()
    assert len(gzip.decompress(content).splitlines()) == 3
    assert "3 cases" in said("show", "out/v3/pytorch/ao/7/8/results.json")[0]


def test_what_has_no_job_is_skipped_and_no_files_are_an_error_where_asked(said: Said, tmp_path: Path) -> None:
    results(tmp_path)
    (tmp_path / "empty").mkdir()
    out, err = said("as", "v3", "upload", "results.json")
    assert not out and "results.json was skipped: its records have no repository" in err and "nothing to upload" in err
    assert "nothing to upload" in said("as", "v3", "upload", "empty")[1]
    said("as", "v3", "upload", "empty", "--if-no-files-found", "error", code=5)


def test_mixed_jobs_equal_names_and_strange_repositories_are_refused(said: Said, tmp_path: Path) -> None:
    half = {key: value for key, value in METADATA.items() if key != "head_sha"}
    write(tmp_path / "half.json", [row(**half)])
    assert "half.json  head_sha: is missing" in said("as", "v3", "upload", "half.json", code=2)[1]
    write(tmp_path / "mixed.json", [row(**METADATA), row(**{**METADATA, "job_id": 3})])
    assert "are of 2 jobs" in said("as", "v3", "upload", "mixed.json", code=2)[1]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        results(tmp_path / name, **METADATA)
    assert "two files would go to" in said("as", "v3", "upload", "a", "b", code=2)[1]
    for repo in ("../../etc", "../..", "./x", "x/..", "../x"):
        assert upload.path_of({**METADATA, "repo": repo}, "r.json") == ""
    assert upload.path_of({**METADATA, "repo": "pytorch/ao/x"}, "r.json") == ""
