"""A connection between a conductor and a station: both sides prove that they have the secret, then messages are sent in frames."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from steelyard.engine.farm import frames
from steelyard.engine.farm.frames import CONFIRMATION, GREETING, HEAD, REPLY, FrameSeal, Refused
from steelyard.engine.farm.wire import FarmMessage, pack, unpack

OPENING = 10.0
"""Time limit in seconds for the proofs of both sides."""


@dataclass
class Channel:
    """An open connection; an invalid message raises Refused, the end of the connection EOFError."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sealing: FrameSeal
    opening: FrameSeal

    @classmethod
    async def admit(cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> Channel:
        """Open the conductor's end of a connection that a peer has made."""
        greeting = frames.greet()
        writer.write(greeting)
        async with asyncio.timeout(OPENING):
            reply = await _exactly(reader, REPLY)
        confirmation, keys = frames.admit(greeting, reply, secret)
        writer.write(confirmation)
        return cls(reader, writer, keys.seal(b"conductor"), keys.seal(b"station"))

    @classmethod
    async def join(cls, host: str, port: int, secret: bytes, certificate: str = "") -> Channel:
        """Connect a station to the conductor of its ticket."""
        reader, writer = await asyncio.open_connection(host, port, ssl=_trusting(certificate) if certificate else None)
        try:
            async with asyncio.timeout(OPENING):
                reply, keys = frames.reply_to(await _exactly(reader, GREETING), secret)
                writer.write(reply)
                frames.confirm(await _exactly(reader, CONFIRMATION), keys)
        except BaseException:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            raise
        return cls(reader, writer, keys.seal(b"station"), keys.seal(b"conductor"))

    def send(self, message: FarmMessage) -> None:
        """Queue a message for sending; a lost connection is noticed when it is read."""
        if not self.writer.is_closing():
            self.writer.write(self.sealing.close(pack(message)))

    async def drained(self) -> None:
        """Wait until most of the queued messages are sent."""
        await self.writer.drain()

    async def receive(self) -> FarmMessage:
        """Return the next message."""
        head = await _exactly(self.reader, HEAD)
        return unpack(self.opening.open(head, await _exactly(self.reader, self.opening.length(head))))

    def close(self) -> None:
        """Close the connection; queued messages are still sent."""
        self.writer.close()


@dataclass
class Door:
    """Limits how many peers without a proof may be connected at once: each costs a file descriptor, and saving results needs some."""

    most: int
    waiting: int = 0

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> Channel:
        """Open the conductor's end once the peer has proved that it has the secret; a peer that sends nothing is refused too."""
        if self.waiting >= self.most:
            raise Refused("too many connections at once that have not proved that they have the secret")
        self.waiting += 1
        try:
            return await Channel.admit(reader, writer, secret)
        except TimeoutError:
            raise Refused(f"a peer did not prove within {OPENING:.0f} s that it has the secret") from None
        finally:
            self.waiting -= 1


async def _exactly(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError as error:
        raise EOFError("the connection has ended") from error


def _trusting(certificate: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only the conductor's certificate for this run; the secret authenticates the station."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


def serving(certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS context of the conductor's end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.TemporaryDirectory(prefix="steelyard-") as folder:
        file = Path(folder) / "pair.pem"
        file.touch(0o600)
        file.write_text(key + certificate, encoding="ascii")
        context.load_cert_chain(file)
    return context


__all__ = ["Channel", "Door", "Refused", "serving"]
