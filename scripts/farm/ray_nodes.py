"""A real Ray cluster of several nodes on loopback; run by the interpreter of an environment that has Ray.

Lines on standard input are orders (`lose NUMBER`, `add`), lines on standard output their answers; the end of the input ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any


def main() -> None:
    """Start the head and the nodes, say where it is, and do what is asked until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--folder", required=True, help="for Ray's sessions; a short path, since sockets lie in it")
    options = parser.parse_args()
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "2000", "RAY_health_check_failure_threshold": "3", "RAY_TMPDIR": options.folder,
    }  # fmt: skip
    from ray.cluster_utils import Cluster

    shared = {"object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}
    head = {"num_cpus": 0, "include_dashboard": False, **shared}
    cluster = Cluster(initialize_head=True, head_node_args=head)

    def add(number: int) -> Any:
        own = {"resources": {f"kind{number % 2}": 1, "host": 1}, "labels": {"box": f"b{number}"}}
        return cluster.add_node(wait=False, num_cpus=options.cpus, **own, **shared)

    try:
        nodes = [add(number) for number in range(options.nodes)]
        cluster.wait_for_nodes()
        say(address=cluster.address, raylets=[raylet(node) for node in nodes])
        for line in sys.stdin:
            word, *values = line.split()
            if word == "lose":
                cluster.remove_node(nodes[int(values[0])], allow_graceful=False)
            elif word == "add":
                nodes.append(add(len(nodes)))
                cluster.wait_for_nodes()
            say(done=word, raylets=[raylet(node) for node in nodes])
    finally:
        cluster.shutdown()


def raylet(node: Any) -> int:
    """The process of a node's raylet; nothing where it is gone."""
    known = node.all_processes.get("raylet") or []
    return int(known[0].process.pid) if known else 0


def say(**words: object) -> None:
    """One line of answer."""
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main()
