"""Beyond this machine everything is encrypted, by a certificate that belongs to one run."""

from __future__ import annotations

import asyncio
import shutil
import ssl

import pytest

from steelyard.engine.farm.certificates import made_for
from steelyard.engine.farm.channel import Channel, serving
from steelyard.engine.farm.wire import Beat, FarmMessage
from steelyard.errors import UsageError
from tests.engine.farm.fleet import SECRET, play


def test_a_connection_by_the_runs_own_certificate_is_open_and_by_another_one_is_not() -> None:
    assert shutil.which("openssl")
    certificate, key = made_for("127.0.0.1")
    other, _ = made_for("127.0.0.1")
    heard: list[FarmMessage] = []

    async def scene() -> None:
        done = asyncio.Event()

        async def conductor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            channel = await Channel.admit(reader, writer, SECRET)
            heard.append(await channel.receive())
            channel.send(Beat("back"))
            writer.close()
            done.set()

        server = await asyncio.start_server(conductor, "127.0.0.1", 0, ssl=serving(certificate, key))
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLError):
            await Channel.join("127.0.0.1", port, SECRET, other)
        channel = await Channel.join("127.0.0.1", port, SECRET, certificate)
        assert channel.writer.get_extra_info("cipher")[1] == "TLSv1.3"
        channel.send(Beat("there"))
        assert await channel.receive() == Beat("back")
        await done.wait()
        channel.close()
        server.close()
        await server.wait_closed()

    play(scene)
    assert heard == [Beat("there")]


def test_without_openssl_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="apt-get install openssl"):
        made_for("10.0.0.1")
