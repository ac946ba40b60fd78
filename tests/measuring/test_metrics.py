"""What a task declares becomes a rate, or is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from steelyard.errors import SteelyardError
from steelyard.measuring.metrics import check_amounts
from steelyard.model.task import Task


@pytest.mark.parametrize("amount", [-1, math.nan, math.inf, "many", 10**400, [1]])
@pytest.mark.parametrize("name", ["flops", "bytes", "items"])
def test_what_is_no_amount_is_refused_by_name(name: str, amount: Any) -> None:
    with pytest.raises(SteelyardError, match=f"declares {name}="):
        check_amounts(Task(**{name: amount}))


@pytest.mark.parametrize("amount", [None, 0, 1.5, 10**30, np.int64(3), np.float32(2)])
def test_amounts_pass(amount: Any) -> None:
    check_amounts(Task(flops=amount, bytes=amount, items=amount))
