"""What goes through the pipe comes out as it went in, and nothing else passes for a message."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import codec
from steelyard.engine import messages
from steelyard.engine.messages import (
    Alternate,
    ArmAnswer,
    ArmFailed,
    Check,
    Describe,
    Done,
    Drive,
    Expand,
    Expanded,
    Fault,
    Fit,
    Found,
    Go,
    Measure,
    PairAnswer,
    PartnerLost,
    Pass,
    Phase,
    Prepare,
    Quit,
    Ready,
    RecordAnswer,
    Retire,
    Sources,
    Started,
    Turns,
    Unweighed,
    Waiting,
    Weigh,
)
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.pair import Arm, Pair
from steelyard.model.protocol import Fixed, Traces
from steelyard.model.record import Figure, Record

CASE = Case("op/gelu", (("dtype", "bf16"), ("n", 8)), "torch", "compile")
SOURCES = Sources(("/a.py",), (("workloads", "acme/add"),), ("/p",))
SETTINGS = Settings(budget=0.1, memory=1 << 30, fixed=Fixed(2, 3, "events"))
ARRAYS = {"block_time": ("s", "<f8", b"\x00\xff\n\x01")}
RECORD = Record(CASE.id, CASE.plain(), "ok", metrics={"time": Figure(1e-3, "s", "lower", 0.9e-3, 1.1e-3, 5)}, effective={"a": [1, None]})
PAIR = Pair(Arm(CASE.id), Arm(CASE.id), 1.0, 0.9, 1.1, 0.99, 8, 32, 7, (3, 4))
EVERY = (
    Describe(SOURCES), Check(SOURCES, (CASE, CASE)), Ready({"torch": "2"}), Started(CASE.id), Retire("broken"),
    Measure(SOURCES, SETTINGS, (CASE,), ("softmax|0|0|0",), True, Traces("s", True, False, ("c",))),
    Weigh(SOURCES, SETTINGS, CASE, (CASE,), 3), Alternate(SOURCES, SETTINGS, CASE, 1, Turns("1 0", "/t", 0.5, 0, 3, {"calls": [1, 2]})),
    Pass(SOURCES, SETTINGS, CASE, "profile", "/s"), Expand(SOURCES, "a.b", {"x": [1]}), Go(), Quit(), Phase("build", 0.5), Waiting(),
    Prepare("torch", "cuda", True, "/tmp/triton", ("/dev/shm/one", "/dev/shm/two"), ("json", "math")),
    Fit(CASE.id, "no"), RecordAnswer(RECORD, ARRAYS, {"m": "d"}), PairAnswer(PAIR, {}), Unweighed("x"),
    ArmAnswer({"calls": [1, 2]}, ARRAYS), ArmFailed("wrong", "x"), PartnerLost("x"),
    Found({"peak_memory": Figure(1.0, "B", "lower", n=1)}, {"f": 1}, (("trace", "/s/t.gz"),)),
    Drive(SOURCES, SETTINGS, "a.shim", "/f.py", ("-x",), {CASE.id: {"status": "ok"}}), Started(CASE.id, CASE),
    messages.Export(SOURCES, SETTINGS, CASE, "/f", ("onnx:protobuf",), False, 2.5), messages.Exported("arrays", "ok", {"inputs": []}),
    Expanded({"a": 1}), Fault("w", "y", "d", "h"), Done(), messages.Described({"workloads": {}}),
    messages.Converse("a.b", {"x": [1]}), messages.Step({"do": "y"}), messages.Stepped({"z": 0.5}),
)  # fmt: skip


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_every_message_comes_out_as_it_went_in(message: Any) -> None:
    line = messages.encode(message)
    assert "\n" not in line
    assert messages.decode(line, codec.decode) == message
    assert messages.decode(line.encode(), codec.decode, codec.parse) == message


def test_every_kind_of_message_is_tried_above() -> None:
    assert {type(message) for message in EVERY} == {*messages.Order.__args__, *messages.Answer.__args__}


def test_a_number_that_json_lacks_becomes_null_wherever_it_is() -> None:
    odd = replace(RECORD, metrics={"time": Figure(math.nan, "s", "lower")}, effective={"a": [math.inf, {"b": -math.inf}]})
    found = messages.decode(messages.encode(RecordAnswer(odd, ARRAYS, {})), codec.decode)
    assert isinstance(found, RecordAnswer)
    assert math.isnan(found.record.metrics["time"].value) and found.record.effective == {"a": [None, {"b": None}]}
    assert found.arrays == ARRAYS


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_what_a_library_prints_is_no_message(line: bytes) -> None:
    assert messages.decode(line, codec.decode) is None
    assert messages.decode(line, codec.decode, codec.parse) is None


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3))


@given(st.sampled_from(EVERY), st.data())
def test_a_message_with_another_value_in_it_is_sound_or_refused(message: Any, data: st.DataObject) -> None:
    plain = json.loads(messages.encode(message))
    name = data.draw(st.sampled_from([*(key for key in plain if key != "is"), "unknown"]))
    plain[name] = data.draw(json_values)
    try:
        found = messages.decode(json.dumps(plain), codec.decode)
    except ValueError:
        return
    assert type(found) is type(message)
    assert messages.decode(messages.encode(found), codec.decode) == found  # type: ignore[arg-type]


def test_a_case_that_is_sent_comes_out_with_every_field_and_its_id() -> None:
    case = Case(
        "call/torch", (("seed", 1), ("input", {"args": [1, [2.5]]})), "torch", "compile", "call", "cuda", 2, flags=(("A", "1"),), env="x"
    )
    back = messages.decode(messages.encode(Check(Sources(), (case, Case("op/add")))))
    assert isinstance(back, Check)
    assert [vars(found) for found in back.cases] == [{**vars(sent), "id": sent.id} for sent in (case, Case("op/add"))]


def test_half_of_a_surrogate_pair_in_a_message_is_read_all_the_same() -> None:
    sent = Fit("a", wrong="no file \udc80")
    assert messages.decode(messages.encode(sent).encode(), codec.decode, codec.parse) == sent
