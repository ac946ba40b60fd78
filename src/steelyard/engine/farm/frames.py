"""Frames between a conductor and its stations: each of a bounded length, counted, and signed with a secret made for the run.

Both sides draw a nonce first, and each direction has a key made from both, so that a frame of another connection, a repeated one, or one
sent back to its sender has a wrong signature. Data from an uninvited peer is never decoded.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

from steelyard.errors import SteelyardError

MAGIC = b"SYFARM1\n"
NONCE, MAC = 32, 32
LARGEST = 64 << 20
"""Most bytes of one frame; attachments are sent in pieces."""
GREETING, REPLY, CONFIRMATION = len(MAGIC) + NONCE, NONCE + MAC, MAC
_HEAD = struct.Struct(">IQ")
HEAD = _HEAD.size + MAC


class Refused(SteelyardError):
    """An invalid peer; the connection ends."""


def greet() -> bytes:
    """Return the conductor's first bytes: a fixed mark, and its nonce."""
    return MAGIC + secrets.token_bytes(NONCE)


def reply_to(greeting: bytes, secret: bytes) -> tuple[bytes, FrameKeys]:
    """Return a station's reply, which proves that it has the secret, and the keys of the connection."""
    if len(greeting) != GREETING or not greeting.startswith(MAGIC):
        raise Refused("this is not a conductor of a farm", why="its greeting is not that of a conductor", do="check the address")
    nonce = secrets.token_bytes(NONCE)
    keys = FrameKeys.of(secret, greeting[len(MAGIC) :], nonce)
    return nonce + keys.proof(b"station"), keys


def admit(greeting: bytes, reply: bytes, secret: bytes) -> tuple[bytes, FrameKeys]:
    """Check a station's reply; return the conductor's confirmation, and the keys of the connection."""
    keys = FrameKeys.of(secret, greeting[len(MAGIC) :], reply[:NONCE])
    if len(reply) != REPLY or not hmac.compare_digest(reply[NONCE:], keys.proof(b"station")):
        raise Refused("a peer does not have the secret of this run")
    return keys.proof(b"conductor"), keys


def confirm(confirmation: bytes, keys: FrameKeys) -> None:
    """Refuse a conductor that does not have the secret; a station sends it nothing."""
    if not hmac.compare_digest(confirmation, keys.proof(b"conductor")):
        raise Refused("the conductor does not have the secret of this run")


class FrameKeys:
    """The keys of one connection, made from the secret and both nonces."""

    def __init__(self, whole: bytes) -> None:
        self._whole = whole

    @classmethod
    def of(cls, secret: bytes, conductors: bytes, stations: bytes) -> FrameKeys:
        """Derive keys that no other connection has."""
        return cls(_sign(secret, b"connection", conductors, stations))

    def proof(self, of: bytes) -> bytes:
        """Return a proof that needs the secret, different for each side."""
        return _sign(self._whole, b"proof", of)

    def seal(self, of: bytes) -> FrameSeal:
        """Return what signs the frames of one side, or checks them at the other."""
        return FrameSeal(_sign(self._whole, b"frames", of))


class FrameSeal:
    """One direction of a connection: its key, and the counter that both ends keep."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def close(self, body: bytes) -> bytes:
        """Return a frame: length, counter, signature, body."""
        if len(body) > LARGEST:
            raise Refused(f"a message of {len(body)} bytes is too large", why=f"a frame holds {LARGEST}")
        head = _HEAD.pack(len(body), self._count)
        self._count += 1
        return head + _sign(self._key, head, body) + body

    def length(self, head: bytes) -> int:
        """Return the length of the body; a frame that is too large or out of order is refused before it is read."""
        length, count = _HEAD.unpack_from(head)
        if length > LARGEST:
            raise Refused(f"a frame of {length} bytes is too large", why=f"it may have {LARGEST}")
        if count != self._count:
            raise Refused(f"frame {count} came in place of {self._count}", why="it was repeated, or one was lost")
        return int(length)

    def open(self, head: bytes, body: bytes) -> bytes:
        """Return the body; a wrong signature is refused."""
        if not hmac.compare_digest(head[_HEAD.size :], _sign(self._key, head[: _HEAD.size], body)):
            raise Refused("a frame has a wrong signature", why="it was changed, or was meant for another connection")
        self._count += 1
        return body


def _sign(key: bytes, *parts: bytes) -> bytes:
    found = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        found.update(part)
    return found.digest()
