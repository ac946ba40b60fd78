"""`steelyard as v3` and every command that reads its files, through the command line."""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

from steelyard.analyze.foreign import read_file
from steelyard.analyze.history import histories
from steelyard.cli.main import main
from steelyard.codec.torchao import COLUMNS
from steelyard.dialects.v3 import schema, upload
from steelyard.errors import UsageError
from steelyard.store.runs import Store
from tests.analyze.saved import case, save
from tests.dialects.v3.made import METADATA, row, write

ROOT = Path(__file__).parents[3]
Said = Callable[..., tuple[str, str]]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Type a command in a folder of its own; gives stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".steelyard").mkdir()
    for name in ("BENCHMARK_NAME", "UPLOADER_URL", upload.USERNAME, upload.PASSWORD, "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)

    def typed(*words: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        found = main(list(words))
        told = capsys.readouterr()
        assert found == code, told
        return told.out, told.err

    return typed


def results(folder: Path, file: str = "results.json", time: float = 1.0, **more: Any) -> Path:
    rows = [row("latency", [time * (1 + number)], model=f"{number}", extra={"unit": "ms"}, **more) for number in range(3)]
    return write(folder / file, rows)


# The commands that read results


def test_a_saved_run_goes_out_and_comes_back(said: Said, tmp_path: Path) -> None:
    store = Store(tmp_path / ".steelyard")
    for time in (1e-3, 1.5e-3):
        save(store, {case("a"): time, case("b"): 2e-3, case("c"): "oom"})
    said("export", "latest~1", "--to", "v3", "-o", "old.json")
    said("export", "latest", "--to", "v3", "-o", "new.json")
    assert "✓ old.json 3 records" in said("as", "v3", "check", "old.json")[0]
    native = json.loads(said("compare", "latest~1", "latest", "--json")[0])
    exported = json.loads(said("compare", "old.json", "new.json", "--json")[0])
    mixed = json.loads(said("compare", "old.json", "latest", "--json")[0])
    for found in (exported, mixed):
        assert [delta["head"] for delta in found["deltas"]] == [delta["head"] for delta in native["deltas"]]
        assert [delta["time_ratio"] for delta in found["deltas"]] == pytest.approx([delta["time_ratio"] for delta in native["deltas"]])
        assert [delta["verdict"] for delta in found["deltas"]] == [delta["verdict"] for delta in native["deltas"]]
    series = histories(store, imported=[*read_file(tmp_path / "old.json"), *read_file(tmp_path / "new.json")])
    assert len(series[case("a")].points) == 2
    shown = said("show", "new.json")[0]
    assert "1.5000 ± 0.0015 ms" in shown and "oom" in shown


def test_files_and_folders_are_compared_gated_shown_and_reported(said: Said, tmp_path: Path) -> None:
    for number, time in enumerate((1.0, 1.0, 1.4)):
        folder = tmp_path / ("base" if number < 2 else "head")
        folder.mkdir(exist_ok=True)
        more = {**METADATA, "timestamp": METADATA["timestamp"] + 86400 * number, "workflow_id": number + 1}
        results(folder, f"{number}.json", time, **more)
    assert "6 results in 2 runs" in said("check", "base")[0]
    assert "3 cases" in said("compare", "base", "head")[0]
    assert "commit 64c1ce36e0" in said("compare", "base", "head")[0]
    assert said("gate", "base", "head")[0].startswith("? inconclusive")
    (tmp_path / "hud.toml").write_text('[hud.ratio."latency"]\nbad = 1.3\ngood = 0.7\n')
    assert said("gate", "base", "head", "--policy", "hud.toml", code=4)[0].startswith("▼ regression: 3 worse by HUD's rules")
    assert said("gate", "head", "base", "--policy", "hud.toml")[0].startswith("✓ pass")
    shutil.copytree("base", "all")
    shutil.copy("head/2.json", "all")
    assert "the last of 3 runs" in said("show", "all")[1]
    assert "3 runs on machine" in said("show", "all/1", "--history")[0]
    assert "1.000 ms to 1.400 ms" in said("show", "all/1", "--history")[0]
    said("report", "base", "head", "-o", "r.html", "-o", "r.csv")
    assert (tmp_path / "r.html").stat().st_size > 10_000 and "foreign/v3" in (tmp_path / "r.csv").read_text()


def test_the_hint_below_a_table_can_be_typed_and_a_table_without_times_has_a_head(said: Said, tmp_path: Path) -> None:
    (tmp_path / "some where").mkdir()
    write(tmp_path / "some where" / "r.json", [row("throughput", [100.0])])
    out = said("show", "some where")[0]
    assert "throughput" in out and "1 ok · read from 'some where'" in out
    hint = out.partition("next: ")[2].strip()
    assert "throughput  100" in said(*shlex.split(hint)[1:])[0]


def test_files_without_a_time_are_compared_by_what_they_have(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "a.json", [row("throughput", [100.0]), row("frobnication", [3.0])])
    write(tmp_path / "b.json", [row("throughput", [50.0]), row("frobnication", [9.0])])
    found = json.loads(said("compare", "a.json", "b.json", "--json")[0])
    assert [(delta["metric"], delta["ratio"]) for delta in found["deltas"]] == [("throughput", pytest.approx(0.5))]
    (tmp_path / "hud.toml").write_text('[hud.ratio."*"]\n')
    told = said("gate", "a.json", "b.json", "--policy", "hud.toml", code=4)[0]
    assert "0.5 of base, and below 0.9 is bad" in told
    said("report", "a.json", "b.json", "-o", "r.html")


def test_bad_lines_are_told_where_results_are_read(said: Said, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(f"{json.dumps(row())}\n{{oops\n", encoding="utf-8")
    assert "warning: r.json:2 was skipped: not JSON" in said("show", "r.json")[1]


# check, schema, merge


def test_check_names_every_mistake_with_file_and_path(said: Said, tmp_path: Path) -> None:
    bad = row(values=["fast", float("nan")])
    bad["benchmark"]["extra_info"]["threads"] = 4
    (tmp_path / "bad.json").write_text(f"{json.dumps(row())}\n{json.dumps(bad)}\nnonsense\n")
    out, _ = said("as", "v3", "check", "bad.json", code=2)
    assert "✗ bad.json 2 records · 4 mistakes" in out
    assert "bad.json:3 not JSON" in out
    assert 'bad.json:2 metric.benchmark_values[0]: expected a number, not "fast"' in out
    assert "bad.json:2 metric.benchmark_values[1]: expected a finite number, not nan" in out
    assert "bad.json:2 benchmark.extra_info.threads: expected a text, not 4" in out
    data = json.loads(said("as", "v3", "check", "bad.json", "--json", code=2)[0])
    assert len(data["files"][0]["mistakes"]) == 4
    assert "repo: is missing; it comes with the metadata" in said("as", "v3", "check", str(results(tmp_path)), "--complete", code=2)[0]


def test_check_shows_the_first_of_very_many_mistakes(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "bad.json", [row(values=["x"])] * 80)
    out = said("as", "v3", "check", "bad.json", code=2)[0]
    assert "80 records · 80 mistakes" in out and out.count("expected a number") == 50 and "… and 30 more: --json has them all" in out
    assert len(json.loads(said("as", "v3", "check", "bad.json", "--json", code=2)[0])["files"][0]["mistakes"]) == 80


def test_check_of_nothing_is_never_green(said: Said, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no files found" in said("as", "v3", "check", "empty", code=5)[1]
    write(tmp_path / "none.json", [])
    assert "no records found" in said("as", "v3", "check", "none.json", code=5)[1]
    assert "no such file: 'gone.json'" in said("as", "v3", "check", "gone.json", code=2)[1]


def test_the_schema_is_printed(said: Said) -> None:
    assert json.loads(said("as", "v3", "schema")[0]) == schema.schema()
    assert "repo" in json.loads(said("as", "v3", "schema", "--complete")[0])["required"]


def test_merging_fills_only_what_is_absent(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = row(timestamp=5, runners=[], dependencies={"own": {"version": "1"}})
    write(tmp_path / "r.json", [row(), own])
    write(tmp_path / "m.json", METADATA)
    words = ("--metadata", "m.json", "--runners", '[{"name": "cpu"}]', "--dependencies", '{"torch": {"version": "2"}}')
    first, second = json.loads(said("as", "v3", "merge", "r.json", *words)[0])
    assert first["runners"] == [{"name": "cpu"}] and first["dependencies"] == {"torch": {"version": "2"}}
    assert second["runners"] == [] and second["dependencies"] == {"own": {"version": "1"}}
    assert (first["timestamp"], second["timestamp"], second["repo"]) == (METADATA["timestamp"], 5, "pytorch/ao")
    monkeypatch.setenv("BENCHMARK_NAME", "nightly")
    assert "2 records · saved out.json" in said("as", "v3", "merge", "r.json", *words, "-o", "out.json")[1]
    renamed = json.loads((tmp_path / "out.json").read_text())
    assert [item["benchmark"]["name"] for item in renamed] == ["nightly", "nightly"] and renamed[0]["benchmark"]["mode"] == "inference"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--metadata", "{}"], "timestamp: is missing"),
        (["--metadata", "{nope"], "--metadata  not JSON"),
        (["--metadata", "gone.json"], "no such file"),
        (["--metadata", json.dumps({**METADATA, "job_id": "2"})], 'job_id: expected a whole number, not "2"'),
        (["--metadata", json.dumps({**METADATA, "schema_version": "v2"})], "schema_version: expected 'v3'"),
        (["--metadata", json.dumps({**METADATA, "job": 2})], "job: unknown key"),
        (["--runners", "{}"], "--runners  expected a list"),
        (["--dependencies", '{"torch": "2"}'], "--dependencies  torch: expected an object"),
    ],
)
def test_wrong_metadata_is_refused(said: Said, tmp_path: Path, words: list[str], told: str) -> None:
    results(tmp_path)
    assert told in said("as", "v3", "merge", "results.json", *words, code=2)[1]


def test_merge_refuses_wrong_types_and_strict_refuses_bad_lines(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "wrong.json", [row(values=["x"])])
    assert "wrong.json[0]  metric.benchmark_values[0]: expected a number" in said("as", "v3", "merge", "wrong.json", code=2)[1]
    (tmp_path / "torn.json").write_text(f"{json.dumps(row())}\n{{")
    assert "torn.json:2 was skipped" in said("as", "v3", "merge", "torn.json")[1]
    assert "error: torn.json:2  not JSON" in said("as", "v3", "merge", "torn.json", "--strict", code=2)[1]


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
    assert "there is a file at this path already" in said(*words, service, code=3)[0]
    assert "could not read the request" in said(*words, f"{service}/picky", code=3)[0]
    assert "it said: Missing required parameter" in said(*words, f"{service}/picky", code=3)[0]
    assert "the service answered 500" in said(*words, f"{service}/broken", code=3)[0]
    before = len(Service.seen)
    assert "the service answered 302" in said(*words, f"{service}/moved", code=3)[0]
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
    assert not out and "results.json was skipped: its records say no repository" in err and "nothing to upload" in err
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


# convert

SEED = f"""{",".join(COLUMNS["seed"])}
bench_a,int8wo,None,1024,1024,1024,torch.bfloat16,True,default,cuda,linear,results,False,False,0.41,0.3,1.37,,,,
bench_a,int8wo,semi,1024,1024,1024,torch.bfloat16,False,,cuda,linear,results,False,False,0.41,0.6,0.68,trace.json,,,"peak 3, now 1"
bench_b,baseline,None,2048,1024,512,torch.bfloat16,False,,cpu,ln_linear_relu,results,True,False,5.5,5.5,1.0,,,,
"""
LAST = f"""{",".join(COLUMNS["last"])}
bench_a,int8wo,None,1024,1024,1024,torch.bfloat16,default,cuda,linear,results,False,False,0.41,0.6,0.39,0.3,0.68,1.3,2.0,,,,
bench_a,float8wo,None,1024,1024,1024,torch.bfloat16,default,cuda,linear,results,False,False,0.41,0.5,0.39,,0.82,,,,,,
"""


def test_the_columns_are_torchaos() -> None:
    assert COLUMNS["seed"][:4] == ("name", "quantization", "sparsity", "m") and COLUMNS["seed"][7] == "use_torch_compile"
    assert COLUMNS["seed"][14:17] == ("baseline_inference_time_in_ms", "model_inference_time_in_ms", "speedup")
    assert len(COLUMNS["seed"]) == 21
    assert COLUMNS["last"][17:20] == ("eager speedup on baseline", "compile speedup on baseline", "eager vs compile speedup")
    assert "use_torch_compile" not in COLUMNS["last"] and len(COLUMNS["last"]) == 24


@pytest.mark.parametrize("text", [SEED, LAST], ids=["seed", "last"])
def test_torchaos_csv_becomes_records_and_a_csv_again(said: Said, tmp_path: Path, text: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    said("as", "v3", "convert", "r.csv", "-o", "r.json")
    assert "✓" in said("as", "v3", "check", "r.json")[0]
    assert said("as", "v3", "convert", "r.json", "--to", "torchao")[0] == text
    rows = json.loads((tmp_path / "r.json").read_text())
    assert rows[0]["benchmark"]["dtype"] == "int8wo" and rows[0]["model"]["name"] == "1024-1024-1024"
    assert {item["metric"]["name"] for item in rows} >= {"Quantized Fwd Time (ms)", "Fwd Speedup (x)", "Bfloat16 Fwd Time (ms)"}
    assert "ok" in said("show", "r.json")[0]


def test_sparse_and_compiled_rows_do_not_collide(said: Said, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(SEED)
    said("as", "v3", "convert", "r.csv", "-o", "r.json")
    runs = read_file(tmp_path / "r.json")
    assert [len(run.records) for run in runs] == [2, 1] and not any(run.warnings for run in runs)


def test_torchaos_own_ci_records_become_rows(said: Said, tmp_path: Path) -> None:
    records = [row("Fwd Speedup (x)", [1.3], model="int8wo-64-32-16"), row("Quantized Fwd Time (ms)", [0.3], model="int8wo-64-32-16")]
    write(tmp_path / "ci.json", records)
    head, line = said("as", "v3", "convert", "ci.json", "--to", "torchao-seed")[0].splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["m"], cells["k"], cells["n"], cells["speedup"], cells["model_inference_time_in_ms"]) == ("64", "32", "16", "1.3", "0.3")


def test_convert_to_v3_is_the_same_by_both_commands(said: Said, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(SEED)
    assert said("convert", "r.csv", "--to", "v3")[0] == said("as", "v3", "convert", "r.csv")[0]
    assert "r.csv · saved r.json" in said("convert", "r.csv", "--to", "v3", "-o", "r.json")[1]
    assert "r.json exists" in said("convert", "r.csv", "--to", "v3", "-o", "r.json", code=2)[1]
    assert "a CSV file holds results" in said("convert", "r.csv", code=2)[1]
    assert "no dialect that results can be written in named 'v4'" in said("convert", "r.csv", "--to", "v4", code=2)[1]


def test_every_number_of_tritonbench_is_a_record(said: Said, tmp_path: Path) -> None:
    point = "tritonbench_softmax_fwd[x_256-triton]_"
    write(tmp_path / "t.json", {f"{point}latency": 0.02, f"{point}speedup": 2.0, f"{point}accuracy": 1, f"{point}best_config": "BLOCK 4"})
    rows = json.loads(said("convert", "t.json", "--to", "v3")[0])
    told = {item["metric"]["name"]: item["metric"] for item in rows}
    assert set(told) == {"latency (ms)", "speedup (x)"} and told["speedup (x)"]["extra_info"]["direction"] == "higher"
    assert told["speedup (x)"]["benchmark_values"] == [2.0]


def test_tritonbenchs_results_become_records_and_failures_stay_failures(said: Said, tmp_path: Path) -> None:
    data = {
        "tritonbench_softmax_fwd[x_(256,)-triton]_latency": 0.02, "tritonbench_softmax_fwd[x_(256,)-triton]_tflops": 1.5,
        "tritonbench_softmax_fwd[x_(256,)-eager]_latency": "CUDA OOM",
    }  # fmt: skip
    write(tmp_path / "t.json", data)
    rows = json.loads(said("as", "v3", "convert", "t.json")[0])
    told = {(item["model"]["backend"], item["metric"]["name"]): item for item in rows}
    assert set(told) == {("triton", "latency (ms)"), ("triton", "tflops"), ("eager", "latency (ms)")}
    assert told["triton", "tflops"]["metric"]["benchmark_values"] == [1.5]
    failed = told["eager", "latency (ms)"]
    assert failed["metric"]["benchmark_values"] == [] and failed["metric"]["extra_info"]["reason"] == "CUDA OOM"
    assert failed["benchmark"]["mode"] == "fwd" and failed["inputs"]["x"]["extra_info"] == {"x_val": "(256,)"} and "runners" not in failed
    write(tmp_path / "v3.json", rows)
    assert "1 failed" in said("show", "v3.json")[0]
    assert "is a file of the database already" in said("as", "v3", "convert", "v3.json", code=2)[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n", "not a results file of TorchAO"),
        ("", "not a results file of TorchAO"),
        (SEED.splitlines()[0] + "\n", "no row has a figure"),
        (SEED.replace("0.41,0.3", "0.41,fast"), "r.csv:2  model_inference_time_in_ms: expected a number, not 'fast'"),
        (SEED.replace("0.41,0.3", "0.41,inf"), "expected a number, not 'inf'"),
        (SEED.replace("bench_b,", "bench_b,1,2,3,4,5,"), "r.csv:4  a row has more cells"),
    ],
)
def test_wrong_csv_is_refused_with_its_line(said: Said, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    assert told in said("as", "v3", "convert", "r.csv", code=2)[1]


def test_what_cannot_be_converted_is_told(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "r.json", [row()])
    assert "no record can be a row of TorchAO's" in said("as", "v3", "convert", "r.json", "--to", "torchao", code=2)[1]
    write(tmp_path / "x.json", {"a": 1})
    assert "not a file of results" in said("as", "v3", "convert", "x.json", code=2)[1]
    said("as", "v3", "convert", "gone.json", code=2)


# policy


def test_the_example_of_six_nights(said: Said, tmp_path: Path) -> None:
    for name in ("database", "hud-torchao.toml"):
        (shutil.copytree if name == "database" else shutil.copy)(ROOT / "examples" / name, tmp_path / name)
    words = ("as", "v3", "policy", "hud-torchao.toml", "database")
    out, _ = said(*words, "--at", "newest", "--markdown", "r.md", code=4)
    assert (
        out.startswith("▼ regression: 2 regression, 4 no_regression\n")
        and "▼ regression: Quantized Fwd Time (ms) on refs/heads/main, lower is better" in out
    )
    assert "▼ regression: Fwd Speedup (x) on refs/heads/main, higher is better" in out
    assert "less_equal 1.2 x min 303 µs; values 304 µs 397 µs! 403 µs!" in out and max(map(len, out.splitlines())) <= 100
    assert "| regression | `foreign/v3/" in (tmp_path / "r.md").read_text()
    assert said(*words, "--at", "2025-07-13")[0].startswith("✓ no_regression")
    assert said(*words, "--at", "2025-07-10", code=5)[0].startswith("– insufficient_data")
    assert "– no report: the newest result is of 2025-07-15" in said(*words, code=5)[0]
    data = json.loads(said(*words, "--at", "newest", "--json", code=4)[0])
    assert data["status"] == "regression" and len(data["series"]) == 6
    assert "not a date: 'soon'" in said(*words, "--at", "soon", code=2)[1]


def test_a_suspicious_series_counts_where_it_is_strict_and_runs_of_the_store_are_judged_too(said: Said, tmp_path: Path) -> None:
    store = Store(tmp_path / ".steelyard")
    for number, time in enumerate((1, 1, 1, 2, 2, 2, 1)):
        save(store, {case("a"): time * 1e-3}, created=f"2026-01-01T{number:02d}:00:00Z")
    window = "[hud.window]\nbaseline_days = 0.125\ncomparison_days = 0.17\n"
    rule = '[hud.window.metrics."time"]\nbaseline = "median"\ncondition = "less_equal"\nthreshold = 1.1\n'
    (tmp_path / "p.toml").write_text(window + rule)
    words = ("as", "v3", "policy", "p.toml", "latest~6..latest", "--at", "newest")
    assert said(*words)[0].startswith("? suspicious: 1 suspicious")
    said(*words, "--strict", code=6)
    (tmp_path / "q.toml").write_text('[hud.ratio."*"]\n')
    assert "q.toml has no [hud.window]" in said("as", "v3", "policy", "q.toml", "latest", code=2)[1]


def test_names_that_are_wrong_are_told_with_the_nearest(said: Said) -> None:
    assert "did you mean upload" in said("as", "v3", "uplod", code=2)[1]
    assert "upload" in said("as", "v3", code=2)[1]
    assert "reads its result files" in said("list", "dialects", "v3")[0].replace("\n", " ")
