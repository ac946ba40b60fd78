"""The conductor of a farm: gives groups to stations, stores their answers, and repeats lost groups as numbered attempts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from steelyard import codec
from steelyard.engine.farm import intake
from steelyard.engine.farm.attempts import MOST_DEATHS, AttemptLedger, GroupState
from steelyard.engine.farm.channel import Channel, Door, Refused
from steelyard.engine.farm.dispatching import Dispatcher
from steelyard.engine.farm.fleet import Fleet, StationView
from steelyard.engine.farm.groups import JobGroup
from steelyard.engine.farm.kinds import HostSpeed, MachineKinds, unfit
from steelyard.engine.farm.launchers import Launcher
from steelyard.engine.farm.placing import misfit
from steelyard.engine.farm.roster import Roster
from steelyard.engine.farm.terms import FarmRun, FarmTerms
from steelyard.engine.farm.wire import (
    PIECE,
    VERSION,
    AttachmentPiece,
    AttemptMark,
    Beat,
    Calibrated,
    CaseBegun,
    Delayed,
    Farewell,
    FarmMessage,
    GoodsPiece,
    GoodsWanted,
    GroupAnswer,
    GroupDone,
    Joining,
    Kept,
    Offer,
    StationWord,
    Withdrawal,
)
from steelyard.engine.run import failure
from steelyard.errors import HostsLost, told
from steelyard.model.record import Record, Status

TICK, GATHER = 0.1, 0.005
"""Seconds between two rounds, and how long to wait for further messages, so that one disk sync serves several."""
PARTING = 5.0
LOOK_EVERY = 1.0
"""Seconds between two queries of the launcher."""
MOST_MESSAGES = 500
MOST_UNPROVED = 64
"""Most connections without a proof at once, in addition to the number of requested stations."""
MOST_UNINVITED = 20
"""Most refused peers without the secret that are logged one by one; anyone who reaches the port can cause them."""


class Conductor:
    """The conductor's side of all connections."""

    def __init__(self, run: FarmRun, groups: list[JobGroup], launcher: Launcher, terms: FarmTerms) -> None:
        self.run, self.launcher, self.terms = run, launcher, terms
        self.fleet = Fleet()
        self.ledger = AttemptLedger(groups, run.journal.attempts())
        envs = {python: env for python, env in run.welcome.interpreters.items() if env}
        self.dispatcher = Dispatcher(groups, self.ledger, self.fleet, run.plan.settings.memory, envs)
        self.clock = time.monotonic
        self.door = Door(MOST_UNPROVED + launcher.count)
        self.roster, self.kinds = Roster(launcher), MachineKinds.kept()
        self._unkept: dict[AttemptMark, tuple[str, int]] = {}
        """Answers that are written but perhaps not on the disk yet: the station to acknowledge them to, and the last number."""
        self._looked = self._fitted = self._beaten = self.clock()
        self._dropped: set[AttemptMark] = set()
        self._refused: Counter[str] = Counter()
        """How often each process of a station was refused; peers that are not stations count under an empty name."""
        self._wake = asyncio.Event()
        self._failure: Exception | None = None
        self._talks: set[asyncio.Task[Any]] = set()

    @property
    def over(self) -> bool:
        """Whether nothing is left to do, or can be done."""
        return self.run.stopped or not self.ledger.left or self._failure is not None

    async def conduct(self) -> None:
        """Run until every group is done; errors while handling a station's messages are raised here."""
        while not self.over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._wake.wait()
                await asyncio.sleep(GATHER)
            self._wake.clear()
            self.tick()
        if self._failure:
            raise self._failure
        self._acknowledge()

    async def part(self) -> None:
        """Send every station the end of the run, and wait a while until they have disconnected."""
        for view in self.fleet:
            self._send(view, Farewell("the run is over"))
        if self._talks:
            await asyncio.wait(self._talks, timeout=PARTING)
        for view in self.fleet:
            if view.channel:
                view.channel.close()

    def tick(self) -> None:
        """Do everything that is due now."""
        now = self.clock()
        self._acknowledge()
        self._cut_silent(now)
        if now - self._beaten >= self.terms.beat:
            self._beaten = now
            for view in self.fleet:
                self._send(view, Beat())
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._look(now)
        self.dispatch()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
        """Serve a peer: its messages are ignored until it has proved that it knows the secret."""
        if task := asyncio.current_task():
            self._talks.add(task)
            task.add_done_callback(self._talks.discard)
        peer = str((writer.get_extra_info("peername") or ("unknown",))[0])
        name, channel = "", None
        try:
            channel = await self.door.admit(reader, writer, secret)
            joining = await channel.receive()
            if not isinstance(joining, Joining):
                raise Refused("a station did not say who it is")
            name = joining.name
            with self._minding():
                view = self._welcome(joining, channel)
            await self._hear(view, channel)
        except Refused as error:
            self._refuse(peer, name, channel, told(error))
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            known = self.fleet.get(name)
            if known and channel and known.channel is channel:
                known.channel, known.cut = None, self.clock()
            self._wake.set()
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    @contextlib.contextmanager
    def _minding(self) -> Iterator[None]:
        """Errors that the peer did not cause, such as a full disk, end the run, not only one connection."""
        try:
            yield
        except Refused:
            raise
        except Exception as error:
            self._failure = self._failure or error
            self._wake.set()
            raise EOFError("the run ends") from error

    def _refuse(self, peer: str, name: str, channel: Channel | None, why: str) -> None:
        """Refuse an uninvited peer, or a station that sends something invalid; many uninvited ones are logged as one."""
        view = self.fleet.get(name)
        self._refused[view.joining.life if view and view.channel is channel else name] += 1
        if name or self._refused[""] <= MOST_UNINVITED:
            who = f"station {name}" if name else f"a connection from {peer}"
            more = "; further ones are not listed" if not name and self._refused[""] == MOST_UNINVITED else ""
            self.run.journal.note("refused", peer=peer, station=name, reason=why)
            self.run.warn(f"refused: {who}: {' '.join(why.split())}{more}")
        if view and view.channel is channel:
            self._set_aside(view, f"it was refused: {why}")
            self.lose(view, "it was refused")

    async def _hear(self, view: StationView, channel: Channel) -> None:
        while True:
            for _ in range(MOST_MESSAGES):
                message = await channel.receive()
                if view.channel is not channel:
                    return
                view.heard = self.clock()
                with self._minding():
                    self.take(view, message)
            await asyncio.sleep(0)

    def _welcome(self, joining: Joining, channel: Channel) -> StationView:
        """Take in a station that is new or has come back."""
        if joining.version != VERSION or joining.steelyard != self.run.writer.header.version:
            channel.send(Farewell("it has another version"))
            raise Refused(f"it has Steelyard {joining.steelyard[:40]}", why=f"this run uses {self.run.writer.header.version}")
        if self._refused[joining.life] >= MOST_DEATHS:
            channel.send(Farewell("it was refused before"))
            raise Refused("it reconnected", why=f"it was refused {self._refused[joining.life]} times")
        view, now = self.fleet.get(joining.name), self.clock()
        if view and view.joining.life != joining.life:
            self.lose(view, "its process was started again")
            view = None
        if view is None:
            view = StationView(joining, intake.offer_of(joining), channel, now, ready=not self.run.welcome.calibrate)
            self.fleet.add(view)
            self.dispatcher.feed(view.name)
            self._fitted = now
            self.run.journal.note("joined", station=view.name, host=joining.host, pid=joining.pid, machine=joining.key)
        else:
            if view.channel:
                view.channel.close()
            view.channel, view.cut, view.heard = channel, None, now
            view.files.clear()
        self._send(view, self.run.welcome)
        for mark in self.ledger.stale(joining.at, view.name):
            self._send(view, Withdrawal(mark))
        for state in list(self.ledger.of(view.name)):
            if AttemptMark(state.group.number, state.attempt) not in joining.at:
                self.dispatcher.requeue(state.group.number)
        return view

    def take(self, view: StationView, message: FarmMessage) -> None:
        """Handle one message of a station."""
        if isinstance(message, (CaseBegun, StationWord, AttachmentPiece, GroupAnswer, GroupDone)):
            mark = message.mark
            if not self.ledger.counts(mark, view.name):
                self._drop(view, message)
            elif isinstance(message, CaseBegun):
                self.ledger.states[mark.group].begun, view.case = True, message.case[:1000]
                self.run.journal.note("case", station=view.name, group=mark.group, case=view.case)
                self.run.watch.started(view.case)
            elif isinstance(message, StationWord):
                self._hear_word(view, message)
            elif isinstance(message, AttachmentPiece):
                if message.number > self.ledger.states[mark.group].received:
                    intake.take_piece(message, view)
            else:
                self._take_answer(view, message)
        elif isinstance(message, GoodsWanted) and view.channel:
            task = asyncio.create_task(self._send_goods(view.channel))
            self._talks.add(task)
            task.add_done_callback(self._talks.discard)
        elif isinstance(message, Calibrated):
            self._calibrated(view, message)
        elif isinstance(message, Delayed):
            self._wait(view, message.reason)
        elif not isinstance(message, Beat):
            raise Refused(f"a station sent a {type(message).__name__}")

    def _alike(self, view: StationView) -> list[HostSpeed]:
        """Return the speeds of the other hosts of its description."""
        key = view.joining.key
        return [other.speed for other in self.fleet if other is not view and other.joining.key == key and other.speed]

    async def _send_goods(self, channel: Channel) -> None:
        """Send the users' files, no faster than they are received."""
        data = self.run.goods
        with contextlib.suppress(OSError):
            for begin in range(0, len(data) or 1, PIECE):
                channel.send(GoodsPiece(data[begin : begin + PIECE], begin + PIECE >= len(data)))
                await channel.drained()

    def _calibrated(self, view: StationView, found: Calibrated) -> None:
        """Take in a host's calibration: find its kind, or set it aside."""
        try:
            view.speed = HostSpeed.of(found)
        except ValueError as error:
            raise Refused("a calibration cannot be read", why=str(error)) from None
        kind = self.kinds.of(view.joining.key, view.speed)
        view.offer, view.kind_speed = replace(view.offer, machine=kind.name), kind.speed
        if reason := unfit(view.speed, self._alike(view)):
            self._set_aside(view, reason, noisy=True)
        elif kind.differing:
            self.run.warn(f"{view.host} is kind {kind.name}: {kind.differing} than on the first machine of its description")
        self.run.journal.note("kind", station=view.name, machine=view.offer.machine, spread=view.speed.spread, waited=view.speed.waited)
        for other in self.fleet:
            if other.noisy and not other.loads and other.speed and not unfit(other.speed, self._alike(other)):
                self._take_again(other, "other hosts of its kind are like that")
        view.ready = True
        self.dispatcher.feed(view.name)
        self._wake.set()

    def _hear_word(self, view: StationView, word: StationWord) -> None:
        text = f"{view.host}: {word.text[:1000]}"
        if word.kind == "phase":
            self.run.watch.phase(word.text[:100], word.fraction)
        elif word.kind == "waiting":
            self._wait(view, word.text)
        else:
            self.run.watch.note(text)

    def _wait(self, view: StationView, why: str) -> None:
        """Report that a station cannot begin for now, here and in `steelyard farm`."""
        self.run.journal.note("waits", station=view.name, reason=why[:1000])
        self.run.watch.waiting(f"{view.host}: {why[:1000]}")

    def _take_answer(self, view: StationView, answer: GroupAnswer | GroupDone) -> None:
        """Store an answer that counts, if it is a new one."""
        mark = answer.mark
        state = self.ledger.states[mark.group]
        try:
            fresh = self.ledger.take(mark, answer.number)
        except ValueError as error:
            raise Refused("an answer is missing", why=str(error)) from None
        self._unkept[mark] = (view.name, state.received)
        if not fresh:
            return
        if isinstance(answer, GroupDone):
            self._finish(view, state, answer.trouble)
        elif answer.kind == "record":
            record, arrays = intake.record_of(answer, state.group, view, self.run.writer)
            self._keep(view, state, record, arrays)
        elif answer.kind == "pair":
            pair, arrays = intake.pair_of(answer, state.group)
            if not any((held.head.id, held.base.id) == (pair.head.id, pair.base.id) for held in self.run.writer.pairs):
                self.run.writer.append_pair(pair, arrays)
                self.run.sink.weighed(pair)
        else:
            for job in state.group.pairs:
                if job.vs and (job.case.id, job.vs.id) == (answer.case, answer.base):
                    self.run.sink.unweighed(job, answer.reason[:1000])

    def _keep(self, view: StationView, state: GroupState, record: Record, arrays: Any) -> None:
        if record.id in self.run.writer.done:
            return
        record, state.begun = self.run.writer.append(record, arrays), True
        state.machine, view.case, view.done = view.offer.machine, "", view.done + 1
        job = next(job for job in state.group.jobs if job.case.id == record.id)
        self.run.journal.note("kept", station=view.name, group=state.group.number, case=record.id, status=record.status)
        self.run.sink.take(job, record, arrays)
        self.run.watch.finished(record)
        self.roster.worked()
        if not view.lenient and not view.aside:
            view.learn(record)
            if reason := view.disturbance(other for other in self.fleet if other is not view):
                self._set_aside(view, reason, noisy=True)
        if self.run.stop(record):
            self.run.stopped = True
            self._wake.set()

    def _finish(self, view: StationView, state: GroupState, trouble: str) -> None:
        """Close an attempt: its group is done, or could not be measured there."""
        number = state.group.number
        intake.forget_files(view, AttemptMark(number, state.attempt))
        missing = [job for job in state.group.jobs if job.case.id not in self.run.writer.done]
        if not trouble and not missing:
            self.ledger.finish(number)
            self.run.journal.note("done", station=view.name, group=number, attempt=state.attempt)
            self.dispatcher.feed(view.name)
        else:
            trouble = trouble or "it ended without all of its answers"
            self.run.journal.note("undone", station=view.name, group=number, attempt=state.attempt, reason=trouble)
            self.run.warn(f"{view.host} could not measure {state.group.named}: {trouble}")
            state.troubles.append(trouble)
            self.dispatcher.requeue(number, avoid=True)
            if len(state.troubles) >= MOST_DEATHS or not any(other.name not in state.avoid for other in self.fleet.useful):
                self._give_up(state, "crashed", f"no host could measure it: {trouble}")
        self._wake.set()

    def _drop(self, view: StationView, message: CaseBegun | StationWord | AttachmentPiece | GroupAnswer | GroupDone) -> None:
        """Drop answers to an attempt that no longer counts; repeated answers to a finished one are ignored."""
        mark = message.mark
        state = self.ledger.states.get(mark.group)
        if isinstance(message, (GroupAnswer, GroupDone)):
            self._send(view, Kept(mark, message.number))
        if state is not None and state.over and (state.attempt, state.last_holder) == (mark.attempt, view.name):
            return
        self._send(view, Withdrawal(mark))
        if mark not in self._dropped and isinstance(message, (GroupAnswer, GroupDone)):
            self._dropped.add(mark)
            self.run.journal.note("dropped", station=view.name, group=mark.group, attempt=mark.attempt)
            now = f"attempt {state.attempt}" if state else "no such group"
            self.run.warn(f"dropped answers of {view.host} to attempt {mark.attempt} at group {mark.group}, which no longer counts ({now})")

    def lose(self, view: StationView, reason: str) -> None:
        """Handle a lost station: its groups go elsewhere."""
        if self.fleet.get(view.name) is not view:
            return
        self.fleet.remove(view.name)
        if view.channel:
            view.channel.close()
        freed = self.ledger.lose(view.name, f"{view.host}: {reason}")
        self.run.journal.note("lost", station=view.name, reason=reason, groups=[state.group.number for state in freed])
        again = f", {len(freed)} of its groups go elsewhere" if freed else ""
        self.run.warn(f"lost: {view.host}: {reason}{again}")
        for state in freed:
            if len(state.deaths) >= MOST_DEATHS:
                self._give_up(state, "crashed", f"{len(state.deaths)} stations were lost while measuring it: {'; '.join(state.deaths)}")
            else:
                self.dispatcher.queue(state.group.number, first=True)
        if (not view.aside or view.noisy) and not self.over:
            self.roster.follow(view.name)

    def _set_aside(self, view: StationView, reason: str, *, noisy: bool = False) -> None:
        """Set a station aside: it gets no more groups, and those not begun go elsewhere."""
        view.aside, view.noisy = reason, noisy
        self.run.journal.note("aside", station=view.name, host=view.joining.host, reason=reason)
        for state in list(self.ledger.of(view.name)):
            if not state.begun:
                self._send(view, Withdrawal(AttemptMark(state.group.number, state.attempt)))
                self.dispatcher.requeue(state.group.number)
        if noisy:
            self.run.warn(f"set aside: {view.host}: {reason}; its cases go elsewhere")

    def _give_up(self, state: GroupState, status: Status, reason: str) -> None:
        """Write failure records for the rest of a group, since no station will send any."""
        self.dispatcher.waiting.remove(state.group.number)
        for job in state.group.jobs:
            if job.case.id not in self.run.writer.done:
                record = self.run.writer.append(failure(job, self.run.plan.settings, status, reason))
                self.run.journal.note("kept", station="", group=state.group.number, case=record.id, status=status)
                self.run.sink.take(job, record, {})
                self.run.watch.finished(record)
        self.ledger.finish(state.group.number)

    def dispatch(self) -> None:
        """Give every station that has room the groups that fit it; each attempt is on the disk before it is offered."""
        for view, mark in self.dispatcher.take_back():
            self._send(view, Withdrawal(mark))
        if offered := self.dispatcher.due():
            words = [("begun", {"group": mark.group, "attempt": mark.attempt, "station": view.name}) for view, mark in offered]
            self.run.journal.write(words, sync=True)
        for view, mark in offered:
            self._send(view, self._offer(mark))

    def _take_again(self, view: StationView, why: str) -> None:
        """Use a noisy host after all: its results are better than none, and they record the load."""
        self.run.warn(f"{view.host} measures anyway because {why}: {view.aside}")
        self.run.journal.note("back", station=view.name, reason=why)
        view.aside, view.noisy, view.lenient = "", False, True
        self.dispatcher.feed(view.name)

    def _offer(self, mark: AttemptMark) -> Offer:
        group = self.ledger.states[mark.group].group
        cases = {job.case.id for job in group.jobs}
        held = [record for id in cases if (record := self.run.writer.done.get(id))]
        pairs = [pair for pair in self.run.writer.pairs if held and pair.head.id in cases]
        encoded = tuple(map(codec.encode, held)), tuple(map(codec.encode, pairs))
        return Offer(mark, group.jobs, group.pairs, group.rows, *encoded)

    def _send(self, view: StationView, message: FarmMessage) -> None:
        if view.channel:
            view.channel.send(message)

    def _acknowledge(self) -> None:
        """Sync the disk once for all new answers, and acknowledge them to their stations."""
        if self._unkept:
            self.run.writer.sync()
        for mark, (name, number) in self._unkept.items():
            if view := self.fleet.get(name):
                self._send(view, Kept(mark, number))
        self._unkept.clear()

    def _cut_silent(self, now: float) -> None:
        """Close silent connections, and count stations that do not come back as lost."""
        for view in self.fleet:
            if view.channel and now - view.heard > self.terms.silence:
                view.channel.close()
                view.channel, view.cut = None, now
            if view.cut is not None and view.channel is None and now - view.cut > self.terms.grace:
                self.lose(view, "it stopped answering")
                self.launcher.drop(view.name)

    def _look(self, now: float) -> None:
        """Handle the launcher's reports, and give up groups that no host can measure."""
        for state in self.roster.look(now):
            if state.phase == "waiting" and state.reason:
                self.run.watch.waiting(f"{state.name} waits: {state.reason}")
            elif state.phase == "gone" and self.fleet.get(state.name) is None and not self.roster.settled(state.name):
                self.run.journal.note("gone", station=state.name, reason=state.reason)
                self.roster.follow(state.name)
        for state in self.roster.states.values():
            known = self.fleet.get(state.name)
            if state.phase == "gone" and known and known.channel is None:
                self.lose(known, state.reason or "it ended")
        self._refuse_hopeless(now)

    def _refuse_hopeless(self, now: float) -> None:
        """Give up groups that fit no host, once all hosts are there; raise HostsLost if no host is left."""
        coming = self.roster.coming([view.name for view in self.fleet], now)
        sound = [view for view in self.fleet if not view.aside]
        if not sound and (not coming or now - self._fitted >= self.terms.fit):
            sound = [view for view in self.fleet if view.noisy and view.channel]
            for view in sound:
                self._take_again(view, "no quieter host is left")
        if not (coming or sound or any(view.noisy for view in self.fleet)):
            last = [view.aside for view in self.fleet] or self.roster.reasons()
            why = last[-1] if last else "none could be started"
            raise HostsLost("no station is left", why=why, do="continue: the same command with --resume")
        if coming or not sound or now - self._fitted < self.terms.fit:
            return
        for needs, numbers in list(self.dispatcher.waiting.needs()):
            reasons = {misfit(needs, view.offer) for view in sound}
            if "" not in reasons:
                for number in numbers:
                    self._give_up(self.ledger.states[number], "unsupported", f"no host can run it: {'; '.join(sorted(reasons))}")
