"""Upload a benchmark's own file to the database: merge in what CI adds, check everything, and make the path and the body."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.codec.reading import shown
from steelyard.dialects.v3 import schema
from steelyard.errors import Mistakes, UsageError
from steelyard.files import read_text

USERNAME, PASSWORD = "UPLOADER_USERNAME", "UPLOADER_PASSWORD"
BENCHMARK_NAME = "BENCHMARK_NAME"
PATIENCE = 60.0
MOST_ANSWER = 10_000
LONGEST_ANSWER = 300
HIDDEN = "…"
SHAPES = {"metadata": schema.TupleOf({key: schema.COLUMNS[key] for key in (*schema.METADATA, *schema.STAND_INS.values())}),
          "runners": schema.COLUMNS["runners"], "dependencies": schema.COLUMNS["dependencies"]}  # fmt: skip
ANSWERS = {
    200: "stored",
    400: "the service could not read the request; this program has a bug or the address is wrong",
    401: f"the service got no user name and password; set {USERNAME} and {PASSWORD}",
    403: f"the service does not know this user name and password; check {USERNAME} and {PASSWORD}",
    409: "there is already a file at this path, and files are never replaced; give the file another name, or the job its own id",
}
_REPO = re.compile(r"(?!\.{1,2}/)[A-Za-z0-9_.-]+/(?!\.{1,2}\Z)[A-Za-z0-9_.-]+")
Json = dict[str, Any]


@dataclass(frozen=True)
class Merging:
    """Values that are added to every record, as by the upload action; the record's own values are kept."""

    metadata: Mapping[str, Any]
    runners: Sequence[Any] | None = None
    dependencies: Mapping[str, Any] | None = None
    benchmark_name: str = ""

    def into(self, record: Mapping[str, Any]) -> Json:
        """A record with these values; the record's own keys are kept, even an empty list of runners."""
        made: Json = {**self.metadata, **record}
        for key in ("runners", "dependencies"):
            if getattr(self, key) is not None and key not in made:
                made[key] = getattr(self, key)
        if self.benchmark_name:
            known = made.get("benchmark")
            made["benchmark"] = {**(known if isinstance(known, dict) else {}), "name": self.benchmark_name}
        return made


def given(text: str, name: str) -> Any:
    """The data of a JSON option, which is the text itself or a file's name, checked by its columns."""
    where = f"--{name}"
    if not text.lstrip().startswith(("{", "[")):
        where, text = f"--{name} {text}", read_text(Path(text))
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {str(error)[:200]}", where=where) from None
    found = [UsageError(f"{path}: {words}" if path else words, where=where) for path, words in schema.wrong(data, SHAPES[name], "")]
    if name == "metadata" and isinstance(data, dict):
        missing = [key for key in schema.METADATA if key not in data and not data.get(schema.STAND_INS.get(key, ""))]
        found += [
            UsageError(f"{key}: is missing", do=f"the database needs {', '.join(schema.METADATA)}", where=where) for key in missing[:1]
        ]
        if (version := data.get("schema_version", schema.VERSION)) != schema.VERSION:
            found.append(UsageError(f"schema_version: expected {schema.VERSION!r}, not {shown(version)}", where=where))
    if found:
        raise found[0] if len(found) == 1 else Mistakes(found, where=where)
    return data


def path_of(record: Mapping[str, Any], basename: str) -> str:
    """The upload path of a file: `v3/{repo}/{workflow_id}/{job_id}/{basename}`; empty if the repository or an id is unknown."""
    repo = record.get("repo")
    ids = [record.get(key) or record.get(other) for key, other in schema.STAND_INS.items()]
    if not isinstance(repo, str) or not _REPO.fullmatch(repo) or not all(type(id) is int and id > 0 for id in ids):
        return ""
    return f"{schema.VERSION}/{repo}/{ids[0]}/{ids[1]}/{basename}"


def lines(records: Sequence[Mapping[str, Any]]) -> str:
    """JSON lines, as the database loads them."""
    return "".join(json.dumps(record, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n" for record in records)


def packed(records: Sequence[Mapping[str, Any]]) -> bytes:
    """JSON lines compressed by gzip; equal records give equal bytes."""
    return gzip.compress(lines(records).encode(), mtime=0)


@dataclass(frozen=True)
class UploadAnswer:
    """The status of the service's reply, and its meaning in words."""

    code: int
    words: str

    @property
    def ok(self) -> bool:
        return self.code == 200


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a password is sent only to the address that was typed."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


def check_address(url: str) -> None:
    """Refuse an address to which a password would be sent unencrypted, except on this machine, or that contains one itself.

    Only its host is ever printed: a password or a token may be anywhere in what was typed.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urllib.parse.urlsplit(""), ""
    if not url.isascii() or not url.isprintable() or " " in url or not host or parts.scheme not in ("http", "https"):
        raise UsageError("not an address to upload to", why="it is not shown, because it may contain a password", do="use https://…")
    if "@" in url:
        raise UsageError("the address to upload to contains a user name", do=f"leave it out, and set {USERNAME} and {PASSWORD}")
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(f"not an address to upload to: http to {host}", why="the password would be sent unencrypted", do="use https://…")


def send(url: str, path: str, content: str, username: str, password: str) -> UploadAnswer:
    """Send a file to the service; credentials are only in the body, as it requires, and never printed."""
    check_address(url)
    body: Json = {"s3_path": path, "content": content}
    body |= {key: value for key, value in (("username", username), ("password", password)) if value}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")
    try:
        code, said = _answered(request)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        why = (reason.strerror or str(reason)) if isinstance(reason, OSError) else type(reason).__name__
        raise UsageError(
            "could not reach the upload service", why=_safe(why, url, username, password), do="check the address and the network"
        ) from None
    told = _safe(_message(said), url, username, password)[:LONGEST_ANSWER]
    words = ANSWERS.get(code, f"the service returned the unknown status {code}")
    return UploadAnswer(code, f"{words} (it said: {told})" if told and code != 200 else words)


def _answered(request: urllib.request.Request) -> tuple[int, bytes]:
    """Status and body of a reply, whatever the status."""
    try:
        answer = urllib.request.build_opener(_Stay).open(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return int(answer.status), answer.read(MOST_ANSWER)


def _message(said: bytes) -> str:
    """The service's own message; empty if it has none."""
    try:
        data = json.loads(said)
    except (ValueError, RecursionError):
        return ""
    found = data.get("message") if isinstance(data, dict) else None
    return found if isinstance(found, str) else ""


def _safe(text: str, url: str, username: str, password: str) -> str:
    """A text on one line without the credentials, in any encoding, and without query and fragment of the address."""
    for secret in sorted(_secrets(url, username, password), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    if username:
        text = re.sub(rf"(?<!\w){re.escape(username)}(?!\w)", HIDDEN, text)
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _secrets(url: str, username: str, password: str) -> set[str]:
    """The password in plain text and as encoded in addresses, JSON and basic authentication, and the tokens in an address."""
    parts = urllib.parse.urlsplit(url)
    found = {parts.query, parts.fragment, *(value for _, value in urllib.parse.parse_qsl(parts.query))}
    if password:
        raw = password.encode("utf-8", "surrogateescape")
        basic = base64.b64encode(username.encode("utf-8", "surrogateescape") + b":" + raw).decode()
        found |= {
            password,
            json.dumps(password)[1:-1],
            urllib.parse.quote(raw),
            urllib.parse.quote(raw, ""),
            urllib.parse.quote_plus(raw),
            basic,
        }
    return found - {""}
