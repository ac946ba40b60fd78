"""Finds the address by which stations elsewhere reach this machine."""

from __future__ import annotations

import socket

from steelyard.errors import UsageError


def toward(host: str) -> str:
    """Return our address towards a host; nothing is sent."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        why, do = str(error), 'set it in a profile: bind = "10.0.0.5"'
        raise UsageError(f"cannot determine by which address {host} reaches this machine", why=why, do=do) from None


def check_ours(address: str) -> None:
    """Raise UsageError if we cannot listen on this address; the system chooses a free port for the test."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except OSError as error:
        do = 'name an address of this machine in a profile: bind = "10.0.0.5"'
        raise UsageError(f"cannot listen on {address}", why=str(error), do=do) from None
