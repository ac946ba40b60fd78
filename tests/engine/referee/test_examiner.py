"""What is drawn, what counts as an answer, and what a question is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steelyard.engine.referee import expecting  # noqa: E402
from steelyard.engine.referee.examiner import Examiner, seed_of  # noqa: E402
from steelyard.engine.referee.posed import Posed  # noqa: E402
from steelyard.model.judging import Contract, Problem  # noqa: E402
from tests.engine.referee.posing import NONCE, examiner, normal, uniform  # noqa: E402

pytestmark = pytest.mark.torch


def checked(exam: Examiner, change: Any, number: int = 0) -> Any:
    """What is said of the reference's answer after a change."""
    inputs = exam.draw(NONCE, number)
    return exam.check(inputs, change(exam.answer(inputs)))


def put(value: float, *place: int) -> Any:
    def change(answer: Any) -> Any:
        made = answer.clone()
        made[place] = value
        return made

    return change


def test_draws_follow_from_the_nonce_and_the_number_alone() -> None:
    exam = examiner(torch.relu, normal((8, 8)))
    first = exam.draw(NONCE, 3)[0]
    assert torch.equal(first, exam.draw(NONCE, 3)[0])
    assert not torch.equal(first, exam.draw(NONCE, 4)[0]) and not torch.equal(first, exam.draw(b"another", 3)[0])
    assert len({seed_of(NONCE, number) for number in range(1000)}) == 1000


def test_persistent_inputs_are_those_of_the_first_draw() -> None:
    exam = examiner(torch.matmul, normal((4, 4), (4, 4)), contract=Contract(persistent=(1,)))
    (a, w), (b, v), (wide, u) = exam.draw(NONCE, 0), exam.draw(NONCE, 5), exam.draw(NONCE, 5, "scale")
    assert torch.equal(w, v) and torch.equal(w, u) and not torch.equal(a, b) and torch.equal(wide, 8 * b)


@pytest.mark.parametrize(
    "change,words,code",
    [
        (lambda y: (y,), "an array at out[0] instead of out", "structure"),
        (lambda y: [y, y], "2 output arrays instead of 1", "structure"),
        (lambda y: None, "no output array instead of 1", "structure"),
        (lambda y: y[:4], "out: shape (4, 8) instead of (8, 8)", "shape"),
        (lambda y: y.double(), "out: dtype float64 instead of float32", "dtype"),
        (put(float("nan"), 2, 3), "1 of 64 values are nan, first at (2, 3)", ""),
        (put(float("inf"), 2, 3), "1 of 64 values are inf, first at (2, 3)", ""),
        (put(9.0, 7, 7), "1 of 64 values are further off than fp32 arithmetic explains; worst at (7, 7): 9 instead of", ""),
    ],
)
def test_each_kind_of_wrong_answer_has_its_words(change: Any, words: str, code: str) -> None:
    found = checked(examiner(torch.tanh, normal((8, 8))), change)
    assert found.status == "failed" and words in found.message and found.code == code


def test_one_wrong_element_in_a_million_is_wrong_and_no_matter_of_precision() -> None:
    found = checked(examiner(torch.tanh, normal((1000, 1000))), put(0.5, 999, 999))
    assert found.status == "failed" and found.message.startswith("out: 1 of 1000000") and found.code == ""


def test_a_small_row_beside_large_ones_is_not_let_off() -> None:
    scales = torch.logspace(0, -4, 64)[:, None]
    exam = examiner(lambda x: x * scales, normal((64, 256)))

    def without_the_last(answer: Any) -> Any:
        return torch.cat([answer[:-1], torch.zeros(1, 256)])

    assert checked(exam, without_the_last).status == "failed"
    assert checked(exam, lambda answer: answer).status == "passed"


def masked(x: Any) -> Any:
    return x.masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), -torch.inf)


@pytest.mark.parametrize(
    "value,status", [(-torch.inf, "passed"), (torch.inf, "failed"), (torch.nan, "failed"), (-1e30, "failed"), (0.0, "failed")]
)
def test_infinity_is_the_reference_s_own_with_its_sign(value: float, status: str) -> None:
    assert checked(examiner(masked, normal((8, 8))), put(value, 0, 7)).status == status


def test_nan_is_no_joker_where_the_reference_has_it() -> None:
    exam = examiner(lambda x: torch.sqrt(x), normal((64,)))
    assert checked(exam, lambda y: y).status == "passed"
    assert checked(exam, lambda y: torch.nan_to_num(y)).status == "failed"
    assert checked(exam, lambda y: y * torch.nan).status == "failed"


def test_what_overflows_in_its_own_format_alone_may_be_either() -> None:
    """The square overflows in fp16 and the root brings it back: a kernel that computes in single precision is not wrong."""
    exam = examiner(lambda x: torch.sqrt(x * x), lambda source: [torch.full((4,), 1000.0, dtype=torch.float16)])
    assert checked(exam, lambda y: y).status == "passed"
    assert checked(exam, lambda y: torch.full_like(y, 1000.0)).status == "passed"
    assert checked(exam, lambda y: torch.full_like(y, 900.0)).status == "failed"
    assert checked(exam, lambda y: y * torch.nan).status == "failed"


def test_whole_numbers_and_truths_are_exact() -> None:
    exam = examiner(lambda x: (x.argmax(-1), x > 0), normal((16, 64)))
    assert checked(exam, lambda y: y).identical
    assert "1 of 16 values differ, first at (3,)" in checked(exam, lambda y: (put(99, 3)(y[0]), y[1])).message
    assert checked(exam, lambda y: (y[0], ~y[1])).status == "failed"


def test_a_tie_that_rounding_decides_may_go_either_way() -> None:
    """Two columns of a product are equal but for rounding; which of them is the largest says nothing of a candidate."""

    def inputs(source: Any) -> Any:
        w = torch.randn(64, 1, generator=source)
        return [torch.rand(256, 64, generator=source), torch.cat([w, w * (1 + 2e-8)], 1)]

    exam = examiner(lambda a, b: (a @ torch.cat([b, -b], 1)).argmax(-1), inputs)
    drawn = exam.draw(NONCE, 0)
    ties = exam.oracle.expect(drawn).wanted[0]
    moved = (ties.answer.array != ties.exact) | (ties.answer.array != ties.stirs[0])
    assert moved.any()
    assert exam.check(drawn, ties.exact).status == "passed"
    assert exam.check(drawn, (ties.answer.array + 2) % 4).status == "failed"


def test_nested_answers_and_plain_numbers_are_looked_at() -> None:
    exam = examiner(lambda x: {"a": x * 2, "b": [x.sum(), float(x.mean())]}, normal((8,)))
    assert checked(exam, lambda y: y).status == "passed"
    assert "out.b[1]: 1 of 1" in checked(exam, lambda y: {**y, "b": [y["b"][0], 7.0]}).message
    assert checked(exam, lambda y: {"a": y["a"]}).status == "failed"


def test_arrays_of_numpy_are_examined_without_torch() -> None:
    posed = Posed(lambda a, b: a @ b, lambda seed: [np.random.default_rng(seed).normal(size=(32, 32)).astype(np.float32) for _ in "ab"])
    exam = Examiner(Problem("by hand", ""), "cpu", 1, posed)
    inputs = exam.draw(NONCE, 0)
    assert exam.be.name == "numpy" and exam.weakness(NONCE) == [] and exam.least_bytes(NONCE) == 3 * 4096
    assert exam.check(inputs, np.einsum("ik,kj->ij", *inputs)).status == "passed"
    assert exam.check(inputs, (inputs[0].astype(np.float16) @ inputs[1].astype(np.float16)).astype(np.float32)).code == "precision"
    assert exam.widenings(NONCE) == ["signs", "scale", "outliers", "shuffled", "tails"]


def test_a_reference_that_changes_its_inputs_is_asked_with_copies() -> None:
    exam = examiner(lambda x: x.mul_(2), normal((8, 8)))
    inputs = exam.draw(NONCE, 0)
    kept = inputs[0].clone()
    assert exam.check(inputs, 2 * kept).status == "passed" and torch.equal(inputs[0], kept)


def test_a_reference_that_draws_numbers_draws_the_same_each_time() -> None:
    exam = examiner(lambda x: x + torch.rand(8, dtype=x.dtype), normal((8,)))
    assert exam.draw(NONCE, 0) and torch.equal(exam.answer(exam.draw(NONCE, 0)), exam.answer(exam.draw(NONCE, 0)))


def test_the_problem_s_own_check_is_asked_besides() -> None:
    def own(inputs: Any, output: Any) -> str:
        return "not what I meant" if output.sum() > 0 else ""

    exam = examiner(lambda x: -x.abs(), normal((8,)), check=own)
    assert checked(exam, lambda y: y).status == "passed"
    never = examiner(lambda x: x.abs(), normal((8,)), check=own)
    assert (checked(never, lambda y: y).status, checked(never, lambda y: y).message) == ("failed", "not what I meant")
    assert checked(exam, lambda y: -y).status == "failed"


def test_tolerances_of_the_problem_take_the_place_of_ours() -> None:
    loose = examiner(torch.tanh, normal((8, 8)), rtol=0.1, atol=0.0)
    assert checked(loose, lambda y: y * 1.05).status == "passed" and checked(loose, lambda y: y * 1.2).status == "failed"
    assert checked(examiner(torch.tanh, normal((8, 8))), lambda y: y * 1.05).status == "failed"


WEAK = [
    ("relu of positive numbers", torch.relu, uniform((64, 64)), "weak", "input 1 itself passes for the answer; with wider inputs (signs)"),
    ("mean of a softmax", lambda x: torch.softmax(x, -1).mean(-1), normal((64, 64)), "trivial", "the same for all inputs"),
    ("nothing", lambda x: (x * 0).sum(-1), normal((64, 64)), "trivial", "the same for all inputs"),
    ("clipped away", lambda x: torch.relu(x - 2).sum(-1), uniform((64, 64)), "weak", "all inputs of the problem, but not for wider ones"),
    ("identity", lambda x: x.clone(), normal((64, 64)), "trivial", "input 1 itself passes for the answer, with wider inputs"),
]


@pytest.mark.parametrize("name,reference,draw,kind,words", WEAK, ids=[row[0] for row in WEAK])
def test_a_question_that_takes_nothing_for_an_answer_is_called_weak(name: str, reference: Any, draw: Any, kind: str, words: str) -> None:
    (found,) = examiner(reference, draw).weakness(NONCE)
    assert found.kind == kind and words in found.words and not found.voids


@pytest.mark.parametrize(
    "reference,draw",
    [
        (torch.relu, normal((64, 64))), (torch.matmul, normal((64, 64), (64, 64))), (torch.mean, uniform((1_000_000,))),
        (lambda x: x.amax(1), uniform((64, 1000))), (lambda x: torch.softmax(x, -1), normal((64, 4096))),
        (lambda x: torch.linalg.norm(x), uniform((512, 512))),
    ],
)  # fmt: skip
def test_a_good_question_is_not(reference: Any, draw: Any) -> None:
    assert examiner(reference, draw).weakness(NONCE) == []


def test_a_loose_tolerance_makes_a_question_weak() -> None:
    """A hundredth of a mean is what a sample of a hundredth gives too."""
    (found, *_) = examiner(torch.mean, uniform((1_000_000,)), rtol=1e-2, atol=0.0).weakness(NONCE)
    assert found.kind in ("weak", "trivial")


def test_a_candidate_is_told_from_a_null_one_by_wider_inputs() -> None:
    exam = examiner(torch.relu, uniform((64, 64)))
    exam.weakness(NONCE)
    plain, wide = exam.draw(NONCE, 0), exam.draw(NONCE, 0, "signs")
    assert exam.equals_null(plain, plain[0]) == "" and exam.check(plain, plain[0]).status == "passed"
    assert exam.equals_null(wide, wide[0]) == "input 1 itself" and exam.check(wide, wide[0]).status == "failed"
    assert exam.equals_null(wide, torch.relu(wide[0])) == "" and exam.equals_null(wide, torch.zeros(64, 64)) == ""


def test_only_widenings_that_the_reference_survives_are_used() -> None:
    assert "signs" not in examiner(torch.log, uniform((64, 64))).widenings(NONCE)
    assert "scale" in examiner(torch.log, uniform((64, 64))).widenings(NONCE)
    whole = examiner(lambda i: i * 2, lambda source: [torch.randint(0, 9, (64,), generator=source)])
    assert whole.widenings(NONCE) == []
    held = examiner(torch.matmul, normal((8, 8), (8, 8)), contract=Contract(persistent=(0, 1)))
    assert held.widenings(NONCE) == []


def test_masks_stay_masks_when_inputs_are_widened() -> None:
    def inputs(source: Any) -> Any:
        return [torch.randn(16, 16, generator=source), torch.full((16, 16), -torch.inf).triu(1)]

    exam = examiner(lambda x, mask: torch.softmax(x + mask, -1), inputs)
    assert "signs" in exam.widenings(NONCE) and torch.equal(exam.draw(NONCE, 1, "signs")[1].isinf(), inputs(torch.Generator())[1].isinf())


@pytest.mark.parametrize(
    "reference,draw,expected",
    [
        (torch.matmul, normal((64, 32), (32, 16)), 4 * (64 * 32 + 32 * 16 + 64 * 16)),
        (lambda x: x[:8] * 2, normal((64, 64)), 4 * 8 * 64),
        (lambda x: x.amax(), normal((64, 64)), 4 * (64 * 64 + 1)),
        (lambda x, unused: x + 1, normal((64,), (4096,)), 2 * 4 * 64),
        (lambda x, keep: x[keep], lambda source: [torch.randn(100, 4, generator=source), torch.randperm(100, generator=source)], 4000),
    ],
    ids=["product", "part", "largest", "unused", "gather"],
)
def test_bytes_count_where_every_element_was_seen_to_matter(reference: Any, draw: Any, expected: int) -> None:
    assert examiner(reference, draw).least_bytes(NONCE) == expected


def test_the_scale_of_answers_is_told() -> None:
    ((mean, spread), (size, none)) = examiner(lambda x: (x + 5, x.numel() + 0 * x.sum()), normal((1000,))).scale(NONCE)
    assert mean == pytest.approx(5, abs=0.2) and spread == pytest.approx(1, abs=0.1) and (size, none) == (1000, 0)


def test_memory_for_the_answer_is_no_input() -> None:
    def fill(x: Any, out: Any) -> Any:
        return out.copy_(2 * x)

    contract = Contract(fills_outputs=True)
    exam = examiner(fill, lambda source: [torch.randn(64, generator=source), torch.zeros(64)], contract=contract)
    assert exam.least_bytes(NONCE) == 512 and exam.weakness(NONCE) == []


def test_checking_uses_all_cpus_and_the_references_own_answer_its_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expecting, "affinity", lambda: [0, 1, 2])
    seen: set[tuple[str, int]] = set()  # a list would be copied with the function's other variables, for fp64

    def reference(x: Any) -> Any:
        seen.add((str(x.dtype), torch.get_num_threads()))
        return x + 1

    exam = examiner(reference, normal((8, 8)))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert checked(exam, lambda answer: answer).status == "passed"
        assert seen == {("torch.float32", 1), ("torch.float64", 2)} and torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
