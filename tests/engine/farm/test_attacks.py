"""Who has no business here: refused, told in the warnings of the run, and nothing of it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from steelyard.engine.farm import channel, frames, intake
from steelyard.engine.farm.attempts import MOST_DEATHS
from steelyard.engine.farm.channel import Channel
from steelyard.engine.farm.conductor import MOST_UNINVITED
from steelyard.engine.farm.frames import FrameKeys, Refused
from steelyard.engine.farm.wire import (
    AttachmentPiece,
    AttemptMark,
    Beat,
    CaseBegun,
    Farewell,
    GroupAnswer,
    Joining,
    Kept,
    Offer,
    pack,
    unpack,
)
from steelyard.engine.run import failure
from steelyard.errors import StoreError
from steelyard.model.record import Attachment
from steelyard.store.runs import read_run
from steelyard.version import __version__
from tests.engine.farm.fleet import SECRET, Peer, Stage, answer, plan_of, play, staged

ONE = plan_of([1e-3])


async def closed(reader: asyncio.StreamReader) -> None:
    """Until the conductor has hung up."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


async def well(stage: Stage) -> None:
    """An honest station does the work all the same."""
    two = await stage.station("honest")
    two.measure(await two.offer())


def refusals(stage: Stage) -> str:
    """What the run's warnings say of it, and the journal too."""
    told = [line for line in stage.writer.warnings if line.startswith("refused: ")]
    assert len(told) == len(stage.events("refused"))
    return "\n".join(told)


def test_a_peer_without_the_secret_hears_nothing_and_is_told_of(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(ONE, tmp_path) as stage:
            with pytest.raises((EOFError, OSError)):
                await Channel.join("127.0.0.1", stage.port, b"x" * 32)
            await well(stage)
        assert refusals(stage) == "refused: a connection from 127.0.0.1: a peer does not have the secret of this run"
        assert [record.effective["host"]["station"] for record in read_run(stage.writer.path).records] == ["honest"]

    play(scene)


def test_a_station_tells_nothing_to_a_conductor_without_the_secret() -> None:
    async def scene() -> None:
        heard = bytearray()

        async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(frames.greet())
            heard.extend(await reader.readexactly(frames.REPLY))
            writer.write(bytes(frames.CONFIRMATION))
            heard.extend(await reader.read())
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        with pytest.raises(Refused, match="does not have the secret"):
            await Channel.join("127.0.0.1", server.sockets[0].getsockname()[1], b"s" * 32)
        server.close()
        await server.wait_closed()
        assert len(heard) == frames.REPLY

    play(scene)


@pytest.mark.parametrize("text", ids=["http", "zeros"], argvalues=[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64), bytes(frames.REPLY)])
def test_whatever_else_connects_is_refused(text: bytes, tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(ONE, tmp_path) as stage:
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
            writer.write(text)
            await closed(reader)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            await well(stage)
        assert "does not have the secret" in refusals(stage)

    play(scene)


Attack = Callable[[Peer, Offer], Awaitable[None]]


def sent(peer: Peer, frame: bytes) -> None:
    """Bytes behind the back of the channel."""
    peer.channel.writer.write(frame)


async def replayed(peer: Peer, offer: Offer) -> None:
    frame = peer.channel.sealing.close(pack(Beat()))
    sent(peer, frame)
    sent(peer, frame)


async def forged(peer: Peer, offer: Offer) -> None:
    frame = bytearray(peer.channel.sealing.close(pack(answer(offer, offer.jobs[0].case.id))))
    frame[-1] ^= 1
    sent(peer, bytes(frame))


async def reflected(peer: Peer, offer: Offer) -> None:
    """A frame with the right counter that was signed for the other direction, or another connection."""
    keys = FrameKeys.of(b"s" * 32, b"a" * 32, b"b" * 32)
    seal = keys.seal(b"conductor")
    seal._count = peer.channel.sealing._count
    sent(peer, seal.close(pack(Beat())))


async def oversize(peer: Peer, offer: Offer) -> None:
    sent(peer, struct.pack(">IQ", frames.LARGEST + 1, peer.channel.sealing._count) + bytes(frames.MAC))


async def out_of_turn(peer: Peer, offer: Offer) -> None:
    peer.channel.sealing._count += 1
    peer.channel.send(Beat())


async def other_case(peer: Peer, offer: Offer) -> None:
    peer.channel.send(answer(offer, "fake/work[seconds=9]@fake/eager:eval"))


async def no_record(peer: Peer, offer: Offer) -> None:
    peer.channel.send(GroupAnswer(offer.mark, 1, "record", b'{"id": 3}'))


async def deep_record(peer: Peer, offer: Offer) -> None:
    peer.channel.send(GroupAnswer(offer.mark, 1, "record", b'{"case":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


async def gap(peer: Peer, offer: Offer) -> None:
    peer.channel.send(answer(offer, offer.jobs[0].case.id, 2))


async def bad_samples(peer: Peer, offer: Offer) -> None:
    sound = answer(offer, offer.jobs[0].case.id)
    peer.channel.send(replace(sound, arrays={"time": ("s", "|O", b"12345678")}))


async def no_message(peer: Peer, offer: Offer) -> None:
    sent(peer, peer.channel.sealing.close(b"\xc1\xc1"))


async def wrong_way(peer: Peer, offer: Offer) -> None:
    peer.channel.send(Kept(offer.mark, 1))


async def leaving_piece(peer: Peer, offer: Offer) -> None:
    peer.channel.send(AttachmentPiece(offer.mark, 1, "attachments/../../../../tmp/gotcha", b"x"))


async def leaving_record(peer: Peer, offer: Offer) -> None:
    item = Attachment("stderr", "../../../etc/passwd", hashlib.sha256(b"x").hexdigest())
    peer.channel.send(answer(offer, offer.jobs[0].case.id, attachments=[item]))


async def other_contents(peer: Peer, offer: Offer) -> None:
    peer.channel.send(AttachmentPiece(offer.mark, 1, "attachments/1-log.txt", b"x"))
    peer.channel.send(answer(offer, offer.jobs[0].case.id, attachments=[Attachment("stderr", "attachments/1-log.txt", "0" * 64)]))


ATTACKS: dict[Attack, str] = {
    replayed: "frame 1 came in place of 2; it was repeated, or one was lost",
    forged: "a frame has a wrong signature",
    reflected: "a frame has a wrong signature",
    oversize: "a frame of 67108865 bytes is too large",
    out_of_turn: "came in place of",
    other_case: "it sent a record of 'fake/work[seconds=9]@fake/eager:eval'; group 0 has no such case",
    no_record: "a station sent what is not a record",
    deep_record: "a station sent what is not a record",
    gap: "an answer is missing",
    bad_samples: "samples 'time' are not '|O' values",
    no_message: "a message cannot be read",
    wrong_way: "a station sent a Kept",
    leaving_piece: "an attachment is called 'attachments/../../../../tmp/gotcha'",
    leaving_record: "a record names the attachment '../../../etc/passwd'",
    other_contents: "has another hash than its record says",
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_station_that_sends_what_it_must_not_is_refused_and_its_group_goes_elsewhere(attack: Attack, tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(ONE, tmp_path, "one", "honest") as stage:
            one = await stage.station("one", silent=True)
            offer = await one.offer()
            await attack(one, offer)
            with pytest.raises((EOFError, OSError)):
                while True:
                    await one.hear()
            await well(stage)
        assert ATTACKS[attack] in refusals(stage)
        [record] = read_run(stage.writer.path).records
        assert record.status == "ok" and record.effective["host"]["station"] == "honest"
        assert [path.name for path in stage.writer.path.iterdir() if path.name not in ("run.jsonl", "farm.jsonl", "attachments")] == []

    play(scene)


def test_a_sound_attachment_is_kept_under_a_name_of_ours_with_its_hash(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(ONE, tmp_path) as stage:
            one = await stage.station()
            offer = await one.offer()
            one.channel.send(CaseBegun(offer.mark, offer.jobs[0].case.id))
            for part in (b"first ", b"second"):
                one.channel.send(AttachmentPiece(offer.mark, 1, "attachments/1-stderr.txt", part))
            digest = hashlib.sha256(b"first second").hexdigest()
            one.channel.send(answer(offer, offer.jobs[0].case.id, attachments=[Attachment("stderr", "attachments/1-stderr.txt", digest)]))
            await one.until(lambda: bool(one.kept))
            stage.run.stopped = True
        run = read_run(stage.writer.path)
        [item] = run.records[0].attachments
        assert run.attachment(item).read_bytes() == b"first second" and item.path.startswith("attachments/1-")

    play(scene)


def test_what_a_station_says_of_a_case_is_not_believed(tmp_path: Path) -> None:
    """The case of a record is the one that was offered, whatever text came with its id."""

    async def scene() -> None:
        async with staged(ONE, tmp_path) as stage:
            one = await stage.station()
            offer = await one.offer()
            made = failure(offer.jobs[0], ONE.settings, "failed", "no")
            one.channel.send(answer(offer, made.id, case={**made.case, "params": {"seconds": 77.0}}))
            await one.until(lambda: bool(one.kept))
            stage.run.stopped = True
        [record] = read_run(stage.writer.path).records
        assert record.case["params"]["seconds"] == 1e-3

    play(scene)


def test_a_station_that_is_refused_again_and_again_is_told_to_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(ONE, tmp_path, "one", "honest") as stage:
            for _ in range(MOST_DEATHS):
                one = await stage.station("one", life="bad", silent=True)
                one.channel.send(Kept(AttemptMark(0, 1), 1))
                with pytest.raises((EOFError, OSError)):
                    while True:
                        await one.hear()
            last = await Channel.join("127.0.0.1", stage.port, SECRET)
            last.send(Joining("one", "bad", "host", 1, {}, "kind", steelyard=__version__))
            assert await last.receive() == Farewell("it was refused before")
            last.close()
            await well(stage)
        assert "station one: it reconnected; it was refused 3 times" in refusals(stage)

    play(scene)


def test_of_many_without_the_secret_some_are_told_of(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(ONE, tmp_path) as stage:
            for _ in range(MOST_UNINVITED + 5):
                reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
                writer.write(bytes(frames.REPLY))
                await closed(reader)
                writer.close()
            await well(stage)
        lines = refusals(stage).splitlines()
        assert len(lines) == MOST_UNINVITED and lines[-1].endswith("further ones are not listed")

    play(scene)


def test_connections_that_say_nothing_are_few_at_once_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs the conductor a file, and without files it can save nothing; a station comes in all the same."""
    monkeypatch.setattr(channel, "OPENING", 0.3)

    async def scene() -> None:
        async with staged(ONE, tmp_path) as stage:
            stage.conductor.door.most = 3
            silent = [await asyncio.open_connection("127.0.0.1", stage.port) for _ in range(5)]
            for reader, writer in silent:
                await closed(reader)
                writer.close()
            await well(stage)
        told = refusals(stage).splitlines()
        assert sum("too many connections at once" in line for line in told) == 2
        assert sum("a peer did not prove" in line for line in told) == 3

    play(scene)


def test_names_and_files_on_their_way_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MOST_BYTES", 3)
    with pytest.raises(ValueError, match="a name has more than 200"):
        Joining("n" * 201, "1", "host", 1, {}, "kind")
    joining = msgspec.to_builtins(Joining("n", "1", "host", 1, {}, "kind")) | {"host": "h" * 201}
    with pytest.raises(Refused, match="a name has more than 200"):
        unpack(msgspec.msgpack.encode(["Joining", joining]))

    async def scene() -> None:
        async with staged(ONE, tmp_path, "one", "honest") as stage:
            one = await stage.station("one", silent=True)
            offer = await one.offer()
            for name in "ab":
                one.channel.send(AttachmentPiece(offer.mark, 1, f"attachments/{name}", b"xx"))
            await well(stage)
        assert "of attachments are incomplete" in refusals(stage)

    play(scene)


def test_a_disk_that_is_full_ends_the_run_and_not_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: object) -> None:
        raise StoreError("cannot write results", why="No space left on device")

    async def scene() -> None:
        with pytest.raises(StoreError, match="cannot write results"):
            async with staged(ONE, tmp_path) as stage:
                one = await stage.station()
                offer = await one.offer()
                monkeypatch.setattr(stage.writer, "append", full)
                one.measure(offer)

    play(scene)
