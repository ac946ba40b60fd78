"""What a worker says arrives whole, however the pipe cuts it."""

from __future__ import annotations

import io
import json
import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine.launch import Worker


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers()), max_size=5), st.data())
def test_messages_are_whole_wherever_they_were_cut(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    out, into = os.pipe()
    os.set_blocking(out, False)
    worker, found = Worker(0, io.StringIO(), out, io.BytesIO()), list[Any]()
    text = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    try:
        while text:
            size = data.draw(st.integers(1, len(text)))
            os.write(into, text[:size])
            text = text[size:]
            found += worker.messages(0)
    finally:
        os.close(into)
        os.close(out)
    assert found == messages
