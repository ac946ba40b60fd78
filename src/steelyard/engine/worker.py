"""The worker: reads jobs as JSON lines, answers on a pipe of its own, and cannot be corrupted by what a framework prints.

`python -m steelyard.engine.worker EVENTS_FD` runs in the backend's interpreter with this package, numpy and the framework.
"""

from __future__ import annotations

import base64
import gc
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

from steelyard import registry
from steelyard.engine.modules import user_modules
from steelyard.engine.process import die_with_parent, keep_orphans, settle_allocator, volunteer_for_oom
from steelyard.errors import SteelyardError
from steelyard.model.case import Case
from steelyard.model.experiment import Settings

Send = Callable[[Mapping[str, Any]], None]


def main(argv: list[str]) -> None:
    """Entry point of a fresh interpreter."""
    die_with_parent()
    serve(sys.stdin.fileno(), int(argv[1]))


def serve(commands: int, events: int) -> None:
    """Answer jobs until told to quit or the conductor goes away."""
    keep_orphans()
    volunteer_for_oom()
    settle_allocator()
    os.set_inheritable(events, False)
    jobs = os.fdopen(os.dup(commands), "r", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    with os.fdopen(events, "w", encoding="utf-8", buffering=1) as pipe:
        send = sender(pipe)
        loaded: dict[str, registry.Loaded] = {}
        for line in jobs:
            job = json.loads(line)
            if job["do"] == "quit":
                break
            answer(job, loaded, send, lambda: wait_for_go(send, jobs))
    sys.stderr.flush()
    os._exit(0)


def wait_for_go(send: Send, jobs: IO[str]) -> None:
    """Before anything is timed the conductor finishes what it does beside us, such as seeing off the last worker."""
    send({"ready": True})
    jobs.readline()


def sender(pipe: IO[str]) -> Send:
    """Write one message per line; numbers JSON cannot hold become null."""

    encode = json.JSONEncoder(separators=(",", ":"), default=str, allow_nan=False).encode

    def send(message: Mapping[str, Any]) -> None:
        try:
            line = encode(message)
        except ValueError:
            line = encode(finite(message))
        pipe.write(line + "\n")
        pipe.flush()

    return send


def finite(value: Any) -> Any:
    """JSON has no NaN; null says as much."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def answer(job: Mapping[str, Any], cache: dict[str, registry.Loaded], send: Send, gate: Callable[[], None]) -> None:
    """Do one job; an error in the user's own files is an answer too."""
    try:
        loaded = definitions(job, cache)
        if job["do"] == "describe":
            send({"described": {**loaded.describe(), "modules": user_modules()}})
        elif job["do"] == "case":
            measure(job, loaded, send, gate)
        elif job["do"] == "weigh":
            compare(job, [Case.from_plain(head) for head in job["heads"]], loaded, send, time.monotonic())
            send({"done": job["case"]})
        elif job["do"] == "check":
            shapes = importlib.import_module("steelyard.engine.shapes")
            for fit in shapes.perform(job["cases"], loaded):
                send({"checked": asdict(fit)})
            send({"done": "check"})
        elif job["do"] == "shim":
            shim = importlib.import_module(job["shim"])
            shim.perform(job, loaded, send, gate)
        elif job["do"] == "arm":
            from steelyard.engine import arm

            arm.perform(job, loaded, send, gate)
        else:
            from steelyard.engine import passes

            passes.perform(job, loaded, send)
    except SteelyardError as error:
        send({"error": {"what": error.what, "why": error.why, "do": error.do, "where": error.where}})
    except Exception as error:
        send({"error": explained(error)})


def explained(error: Exception) -> dict[str, str]:
    """What a job ended with: a framework that is missing with how to get it, anything else with where it was raised."""
    if isinstance(error, ModuleNotFoundError) and (about := registry.backend_of(error.name or "")):
        return {"what": f"{error.name} is not installed here", "why": "", "do": about.remedy, "where": ""}
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return {"what": f"{type(error).__name__}: {error}", "why": f"raised in {last.filename}:{last.lineno}", "do": "", "where": ""}


def definitions(job: Mapping[str, Any], cache: dict[str, registry.Loaded]) -> registry.Loaded:
    """Built-ins with the user's files and packages laid over them; loaded once per worker."""
    registry.look_first(job.get("paths", []))
    files, entries = job.get("files", []), job.get("entries", [])
    key = json.dumps([files, entries])
    if key not in cache:
        found = registry.Loaded() if job["do"] == "describe" else registry.built_ins()
        for kind, name in entries:
            found.add(registry.load_entry(kind, name))
        for path in files:
            found.add(registry.load_file(path))
        gc.freeze()
        cache[key] = found
    return cache[key]


def measure(job: Mapping[str, Any], loaded: registry.Loaded, send: Send, gate: Callable[[], None]) -> None:
    """One case, and where asked its comparison, and that of cases before it, with another variant of the same point."""
    from steelyard.engine import weigh

    case, settings, began = Case.from_plain(job["case"]), Settings(**job["settings"]), time.monotonic()
    tell = teller(send)
    record, arrays = weigh.weigh_case(case, loaded, settings, tell, gate, job)
    send({"record": asdict(record), "arrays": encoded(arrays), "modules": user_modules()})
    heads = [*map(Case.from_plain, job.get("heads", [])), *([case] if record.status == "ok" else [])]
    if job.get("vs") and heads:
        compare(job, heads, loaded, send, began)
    send({"done": case.id})


def compare(job: Mapping[str, Any], heads: Sequence[Case], loaded: registry.Loaded, send: Send, began: float) -> None:
    """Weigh variants of one point against their base, all at once; if that cannot be done, the reason is the answer.

    The conductor's patience runs from when the job `began`.
    """
    from steelyard.engine import pairs

    try:
        base, settings = Case.from_plain(job["vs"]), Settings(**job["settings"])
        left = settings.timeout - (time.monotonic() - began)
        for pair, rounds in pairs.weigh_heads(base, heads, loaded, settings, teller(send), job, job.get("suite", 1), left):
            send({"pair": asdict(pair), "arrays": encoded(rounds)})
    except Exception as error:
        send({"unweighed": f"{type(error).__name__}: {error}"})


def teller(send: Send) -> Callable[[str, float | None], None]:
    """Progress goes out between blocks, as the sampler allows."""
    return lambda phase, fraction: send({"phase": phase, "fraction": fraction})


def encoded(arrays: Mapping[str, tuple[str, str, bytes]]) -> dict[str, list[str]]:
    """Raw samples travel as base64; the conductor writes them to the sidecar."""
    return {name: [unit, dtype, base64.b64encode(data).decode()] for name, (unit, dtype, data) in arrays.items()}


if __name__ == "__main__":
    main(sys.argv)
