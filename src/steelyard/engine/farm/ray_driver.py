"""Ray's half of the Ray launcher, run by an interpreter that has Ray: an actor on each node, which exchanges bytes with its station.

Orders come as lines of JSON on standard input; replies and the stations' output are written as such lines. An order with `bytes` is
followed by that many bytes for a station. The end of the input ends everything. Ray repeats no call of an actor, and every wait has
a time limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

CONNECT = 60.0
CALL, QUICK, SLOW = 30.0, 0.2, 2.0
FAREWELL = 20.0
LAST = 2000


class Keeper:
    """An actor: one process on its node, and a pipe to it."""

    def open(self, python: str, program: str) -> str:
        """Start the process; return the name of the node."""
        self.said: queue.Queue[str | None] = queue.Queue()
        self.last = b""
        self.process = subprocess.Popen(
            [python or sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        for take in (self._hear, self._listen):
            threading.Thread(target=take, daemon=True).start()
        return os.uname().nodename

    def _hear(self) -> None:
        for line in self.process.stdout:  # type: ignore[union-attr]
            self.said.put(line.decode(errors="replace"))
        self.said.put(None)

    def _listen(self) -> None:
        for line in self.process.stderr:  # type: ignore[union-attr]
            self.last = line.strip() or self.last

    def exchange(self, data: bytes, seconds: float) -> tuple[list[str], str | None]:
        """Send the process some bytes; return the lines it printed within some seconds and, once it has ended, its last error."""
        if data:
            with contextlib.suppress(OSError):
                self.process.stdin.write(data)  # type: ignore[union-attr]
                self.process.stdin.flush()  # type: ignore[union-attr]
        lines: list[str] = []
        with contextlib.suppress(queue.Empty):
            line = self.said.get(timeout=seconds)
            while line is not None:
                lines.append(line)
                line = self.said.get_nowait()
            return lines, self.last.decode(errors="replace")[-LAST:]
        return lines, None

    def close(self, patience: float) -> None:
        """Close the process's input, which ends it; kill it if it does not end."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Driver:
    """The connection to a cluster, and the stations on it."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        self.writing, self.placing = threading.Lock(), threading.Lock()
        self.placed: dict[str, tuple[Any, queue.Queue[bytes], threading.Thread, str]] = {}
        self.over = threading.Event()
        self.dropped: set[str] = set()
        """Stations that were lost and must end."""

    def say(self, **words: object) -> None:
        """Send one line to the launcher."""
        with self.writing:
            sys.stdout.write(json.dumps(words) + "\n")
            sys.stdout.flush()

    def give_up(self) -> None:
        """Report a failed connection and exit; Ray itself tries for minutes, and has no setting for that."""
        self.say(error=f"Ray did not connect to {self.orders['address']} within {CONNECT:.0f} s")
        os._exit(2)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that have the requested resources, whether free or not."""
        import ray

        found = []
        for node in ray.nodes():
            has, labels = node["Resources"], node.get("Labels") or {}
            asked = {**self.orders["resources"], **({"GPU": self.orders["gpus"]} if self.orders["gpus"] else {})}
            fits = all(has.get(name, 0) >= amount for name, amount in asked.items())
            fits = fits and all(labels.get(name) == value for name, value in self.orders["labels"].items())
            if node["Alive"] and has.get("CPU", 0) >= (self.orders["cpus"] or 1) and fits:
                found.append(node)
        return found

    def place(self, name: str) -> None:
        """Start an actor on a node that has none of ours; wait for such a node for a limited time."""
        deadline = time.monotonic() + self.orders["patience"]
        while not self.over.is_set():
            with self.placing:
                used = [node for _, _, thread, node in self.placed.values() if thread.is_alive()]
                free = [node for node in self.nodes() if node["NodeID"] not in used]
                if free:
                    return self.start(name, free[0])
            if time.monotonic() > deadline:
                break
            self.over.wait(1.0)
        return self.say(station=name, gone=f"no node with {self.orders['told']} became free within {self.orders['patience']:.0f} s")

    def start(self, name: str, node: dict[str, Any]) -> None:
        """Start an actor that takes the whole node, so that Ray runs nothing beside a measurement, unless a part was requested."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        has = node["Resources"]
        wanted = {
            "num_cpus": self.orders["cpus"] or has.get("CPU", 0), "num_gpus": self.orders["gpus"] or has.get("GPU", 0),
            "resources": self.orders["resources"], "max_restarts": 0, "max_task_retries": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False),
        }  # fmt: skip
        actor = ray.remote(Keeper).options(**wanted).remote()
        said: queue.Queue[bytes] = queue.Queue()
        thread = threading.Thread(target=self.serve, args=(name, actor, said, node["NodeManagerHostname"]), daemon=True)
        self.placed[name] = actor, said, thread, node["NodeID"]
        thread.start()

    def serve(self, name: str, actor: Any, said: queue.Queue[bytes], host: str) -> None:
        """Pass bytes to a station and lines back until it ends."""
        import ray

        try:
            opened = actor.open.remote(self.orders["python"], self.orders["program"])
            if not ray.wait([opened], timeout=self.orders["patience"])[0]:
                return self.say(station=name, gone=f"{host} did not provide {self.orders['told']} within {self.orders['patience']:.0f} s")
            self.say(station=name, host=ray.get(opened, timeout=CALL))
            begun = False
            while not self.over.is_set():
                if name in self.dropped:
                    ray.wait([actor.close.remote(FAREWELL - 5)], timeout=FAREWELL)
                    return self.say(station=name, gone="it was lost, and ended")
                data = b""
                with contextlib.suppress(queue.Empty):
                    data = said.get_nowait()
                lines, last = ray.get(actor.exchange.remote(data, SLOW if begun else QUICK), timeout=CALL + SLOW)
                for line in lines:
                    begun = begun or '"started"' in line
                    self.say(station=name, line=line)
                if last is not None:
                    return self.say(station=name, gone=last or "it ended")
        except Exception as error:  # what Ray raises when a node, an actor or the cluster is gone
            self.say(station=name, gone=f"Ray lost it: {' '.join(str(error).split())[:300]}")
        finally:
            if not self.over.is_set():
                ray.kill(actor, no_restart=True)
        return None

    def end(self) -> None:
        """End every station, with a time limit."""
        import ray

        self.over.set()
        alive = [(actor, thread) for actor, _, thread, _ in self.placed.values() if thread.is_alive()]
        for _, thread in alive:
            thread.join(SLOW + 1)
        with contextlib.suppress(Exception):
            ray.wait([actor.close.remote(FAREWELL - 5) for actor, _ in alive], num_returns=len(alive), timeout=FAREWELL)
        for actor, _ in alive:
            with contextlib.suppress(Exception):
                ray.kill(actor, no_restart=True)
        ray.shutdown()


def main() -> int:
    """Connect, and follow the launcher's orders until its input ends."""
    source = sys.stdin.buffer
    orders = json.loads(source.readline())
    driver = Driver(orders)
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    if orders["address"].startswith(("127.", "localhost")):
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    connecting = threading.Timer(CONNECT, driver.give_up)
    connecting.daemon = True
    connecting.start()
    try:
        import ray

        ray.init(address=orders["address"], log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except Exception as error:
        driver.say(error=" ".join(str(error).split())[:500])
        return 2
    finally:
        connecting.cancel()
    deadline = time.monotonic() + orders["patience"]
    while not (found := driver.nodes()) and orders["waits"] and time.monotonic() < deadline:
        time.sleep(0.5)
    has = sorted({name for node in ray.nodes() if node["Alive"] for name in node["Resources"]})
    driver.say(nodes=[node["NodeManagerHostname"] for node in found], has=has, here=ray.util.get_node_ip_address())
    try:
        for line in source:
            words = json.loads(line)
            if "place" in words:
                threading.Thread(target=driver.place, args=(words["place"],), daemon=True).start()
            elif "drop" in words:
                driver.dropped.add(words["drop"])
            elif "bytes" in words:
                data = source.read(words["bytes"])
                if words["station"] in driver.placed:
                    driver.placed[words["station"]][1].put(data)
    finally:
        driver.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
