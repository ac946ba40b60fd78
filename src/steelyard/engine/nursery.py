"""The nursery: one process that has imported the framework and forks a worker in milliseconds.

It runs no operation, opens no device and loads no user file: a forked child of a process that did any of these can
hang or fail. So it serves eager CPU cases only. Missing packages are left to the worker, which reports them in its record.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from steelyard import registry
from steelyard.engine import worker
from steelyard.engine.process import die_with_parent, keep_orphans
from steelyard.model.define import fingerprint


def main(argv: list[str]) -> None:
    """`python -m steelyard.engine.nursery CONTROL_FD[,CONTROL_FD] MODULE…`: with two, the process becomes two nurseries."""
    die_with_parent()
    keep_orphans()
    control = twin([socket.socket(fileno=int(fd)) for fd in argv[1].split(",")])
    control.set_inheritable(False)
    told = first_words(control)
    if told["folder"]:
        os.chdir(told["folder"])
    registry.look_first(told["paths"])
    for name in argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    warm_up()
    alarm_out, alarm_in = os.pipe()
    os.set_blocking(alarm_in, False)
    signal.set_wakeup_fd(alarm_in, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    say(control, {"ready": os.getpid()})
    serve(control, alarm_out)


def warm_up() -> None:
    """Do what each child would otherwise repeat for its case, as far as that runs no operation of a framework."""
    from steelyard.engine.bench import forget_garbage
    from steelyard.measuring.stats import t_quantile

    for workload in registry.built_ins().workloads.values():
        for body in workload.bodies.values():
            fingerprint(body)
    for freedom in range(3, 16):
        t_quantile(0.975, freedom)
    forget_garbage()


def twin(controls: list[socket.socket]) -> socket.socket:
    """Return the socket that this process serves; if there are two, fork a child at once that serves the second."""
    if len(controls) == 1 or os.fork():
        mine, others = controls[0], controls[1:]
    else:
        mine, others = controls[1], controls[:1]
        os.setsid()
        die_with_parent()
        keep_orphans()
    for other in others:
        other.close()
    return mine


def first_words(control: socket.socket) -> dict[str, Any]:
    """Read the settings that are needed before imports; they are not arguments, so that the command line is the same everywhere."""
    line = b""
    while not line.endswith(b"\n"):
        data = control.recv(65536)
        if not data:
            sys.exit(1)
        line += data
    found: dict[str, Any] = json.loads(line)
    return found


def say(control: socket.socket, message: dict[str, int]) -> None:
    """Send one JSON line to the conductor."""
    control.sendall(json.dumps(message).encode() + b"\n")


def serve(control: socket.socket, alarm: int) -> None:
    """Fork on request, report every death, exit when the conductor does."""
    while True:
        ready, _, _ = select.select([control.fileno(), alarm], [], [])
        if alarm in ready:
            os.read(alarm, 4096)
            reap(control)
        if control.fileno() in ready:
            message, fds = receive(control)
            if not message:
                return
            pid = fork(control, fds)
            for fd in fds:
                os.close(fd)
            say(control, {"forked": pid})


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a request with the worker's three descriptors: commands, events, standard error."""
    message, ancillary, _, _ = control.recvmsg(64, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, list(fds)


def fork(control: socket.socket, fds: list[int]) -> int:
    """Fork a child that becomes a worker in a session of its own; returns its pid to the parent."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        os.setsid()
        die_with_parent()
        commands, events, errors = fds
        os.dup2(errors, 2)
        worker.serve(commands, events)
    finally:
        os._exit(70)


def reap(control: socket.socket) -> None:
    """Report to the conductor how each child ended, since it is not their parent."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        say(control, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main(sys.argv)
