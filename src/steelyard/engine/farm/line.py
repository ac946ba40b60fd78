"""A station's connection to the conductor, in its own thread: it reconnects, and keeps answers until the conductor has stored them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from steelyard.engine.farm.channel import Channel, Refused
from steelyard.engine.farm.tickets import Ticket
from steelyard.engine.farm.wire import (
    AttachmentPiece,
    AttemptMark,
    Beat,
    Farewell,
    FarmMessage,
    GoodsPiece,
    GoodsWanted,
    GroupDone,
    Joining,
    Kept,
    Offer,
    Welcome,
    Withdrawal,
)

DONE, REFUSED, DESERTED = 0, 3, 4
PATIENCE = 60.0
"""Seconds that the conductor may be out of reach; then the station ends."""
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0
DEAF = 5
"""The connection is cut after this many beats without a message from the conductor."""
LAST_WORDS = 10.0
"""Seconds for ending the workers; then the process exits, which ends them too."""


class StationLine:
    """The conductor as the measuring thread sees it: it gives offers and takes answers."""

    def __init__(self, ticket: Ticket, joining: Joining, watched: int | None) -> None:
        self.ticket, self.joining = ticket, joining
        self.welcome = Welcome("", {}, patience=PATIENCE)
        self.over, self.code, self.reason = False, DONE, ""
        self._watched, self._main = watched, threading.get_ident()
        self._offers: queue.SimpleQueue[Offer | None] = queue.SimpleQueue()
        self._kept: dict[int, tuple[AttemptMark, int, FarmMessage]] = {}
        """Messages that the conductor has not stored yet, in order."""
        self._count, self._sent = 0, 0
        """The numbers of the last message that was kept, and of the last one sent on this connection."""
        self._last: dict[AttemptMark, int] = {}
        """The number of the last answer of every attempt that this station has."""
        self._current: AttemptMark | None = None
        self._lock = threading.RLock()
        self._goods, self._fetched = bytearray(), threading.Event()
        self._joined = threading.Event()
        self._channel: Channel | None = None
        self._welcomed, self._heard_at = False, time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._talk, name="line", daemon=True)

    def open(self) -> bool:
        """Connect, and wait for the conductor's welcome; return whether it came."""
        self._thread.start()
        self._joined.wait()
        return not self.over

    def goods(self) -> bytes:
        """Wait for the archive of users' files and return it; empty if the run is over."""
        self._fetched.wait()
        return bytes(self._goods)

    def next_offer(self) -> Offer | None:
        """Wait for the next group to measure and return it; None if the run is over."""
        with self._lock:
            left, self._current = self._current, None
        if left is not None and left in self._last:
            self.answer(left, self._last[left] + 1, GroupDone(left, self._last[left] + 1, "it was interrupted on this host"))
        while (offer := self._offers.get()) is not None:
            with self._lock:
                if offer.mark in self._last:
                    self._current = offer.mark
                    return offer
        return None

    def finished(self) -> None:
        """Note that the last group is done."""
        with self._lock:
            self._current = None

    def answer(self, mark: AttemptMark, number: int, message: FarmMessage) -> None:
        """Send a message that must not be lost, unless its attempt no longer counts."""
        with self._lock:
            if mark not in self._last:
                return
            self._last[mark] = number - isinstance(message, AttachmentPiece)
            self._count += 1
            self._kept[self._count] = (mark, number, message)
        self._soon(self._flush)

    def tell(self, message: FarmMessage) -> None:
        """Send a message that may be lost, such as progress."""
        self._soon(lambda: self._channel.send(message) if self._channel and self._welcomed else None)

    def _soon(self, act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    def _flush(self) -> None:
        """Send the kept messages that were not sent on this connection yet, in order."""
        if not self._channel or not self._welcomed:
            return
        with self._lock:
            fresh = [message for place, (_, _, message) in self._kept.items() if place > self._sent]
            self._sent = self._count
        for message in fresh:
            self._channel.send(message)

    def close(self) -> int:
        """Wait until the last messages are sent, and return the exit code."""
        self._thread.join(LAST_WORDS)
        return self.code

    def leave(self, code: int, reason: str) -> None:
        """Stop measuring and exit within seconds, whatever the measuring thread is doing."""
        if self.over:
            return
        self.over, self.code, self.reason = True, code, reason
        self._offers.put(None)
        self._fetched.set()
        self._joined.set()
        with self._lock:
            busy = self._current is not None
        if busy:
            signal.pthread_kill(self._main, signal.SIGINT)
        timer = threading.Timer(LAST_WORDS, os._exit, (code,))
        timer.daemon = True
        timer.start()

    def _talk(self) -> None:
        try:
            self._loop.run_until_complete(self._stay())
        finally:
            self.leave(DESERTED, "the connection to the conductor failed")
            self._loop.close()

    async def _stay(self) -> None:
        ticket = self.ticket
        if self._watched is not None:
            self._loop.add_reader(self._watched, self._hear_launcher)
        wait, trouble = FIRST_WAIT, ""
        while not self.over:
            try:
                await self._converse(await Channel.join(ticket.host, ticket.port, ticket.secret, ticket.certificate))
            except Refused as error:
                self.leave(REFUSED, str(error))
            except (OSError, EOFError, TimeoutError) as error:
                trouble, wait = str(error), FIRST_WAIT if self._welcomed else wait
            finally:
                if self._channel:
                    self._channel.close()
                self._channel, self._welcomed = None, False
            if not self.over and time.monotonic() - self._heard_at > self.welcome.patience:
                never = f"it cannot reach {ticket.host}, port {ticket.port}: {trouble}"
                self.leave(DESERTED, "the conductor has ended" if self._joined.is_set() else never)
            await self._pause(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.over and time.monotonic() < end:
            await asyncio.sleep(min(0.1, seconds))

    def _hear_launcher(self) -> None:
        """Leave when standard input ends, which means that the process that started us has ended."""
        assert self._watched is not None
        if not os.read(self._watched, 4096):
            self._loop.remove_reader(self._watched)
            self.leave(DESERTED, "the process that started this station has ended")
            if self._channel:
                self._channel.close()

    async def _converse(self, channel: Channel) -> None:
        """Serve one connection until it ends."""
        self._channel, self._sent = channel, 0
        with self._lock:
            at = tuple(self._last)
        channel.send(Joining(**{**vars(self.joining), "at": at}))
        beating = asyncio.create_task(self._beat(channel))
        try:
            while not self.over:
                async with asyncio.timeout(DEAF * self.welcome.beat):
                    message = await channel.receive()
                self._heard_at = time.monotonic()
                self._take(message)
        finally:
            beating.cancel()

    async def _beat(self, channel: Channel) -> None:
        while True:
            await asyncio.sleep(self.welcome.beat)
            channel.send(Beat())

    def _take(self, message: FarmMessage) -> None:
        if isinstance(message, Welcome):
            self.welcome, self._welcomed = message, True
            self._flush()
            self._joined.set()
            if message.goods and not self._fetched.is_set() and self._channel:
                self._goods.clear()
                self._channel.send(GoodsWanted())
        elif isinstance(message, GoodsPiece):
            self._goods += message.data
            if message.last:
                self._fetched.set()
        elif isinstance(message, Offer):
            with self._lock:
                known = message.mark in self._last
                self._last.setdefault(message.mark, 0)
            if not known:
                self._offers.put(message)
        elif isinstance(message, Kept):
            self._forget(message.mark, message.number)
        elif isinstance(message, Withdrawal):
            self._withdraw(message.mark)
        elif isinstance(message, Farewell):
            self.leave(DONE, message.reason)

    def _forget(self, mark: AttemptMark, number: int) -> None:
        """Drop answers that the conductor has stored; after an attempt's last answer, drop the attempt."""
        with self._lock:
            held = {place: item for place, item in self._kept.items() if item[0] == mark and item[1] <= number}
            for place in held:
                del self._kept[place]
            if any(isinstance(message, GroupDone) for _, _, message in held.values()):
                self._last.pop(mark, None)

    def _withdraw(self, mark: AttemptMark) -> None:
        with self._lock:
            self._kept = {place: item for place, item in self._kept.items() if item[0] != mark}
            self._last.pop(mark, None)
            if self._current == mark:
                signal.pthread_kill(self._main, signal.SIGINT)


def joining_of(ticket: Ticket, machine: Mapping[str, Any], key: str, **more: Any) -> Joining:
    """Return the message that introduces this station to the conductor."""
    return Joining(ticket.name, secrets.token_hex(8), socket.gethostname(), os.getpid(), machine, key, **more)
