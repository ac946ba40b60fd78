"""What must stay together does, and nothing is lost or doubled on the way into groups."""

from __future__ import annotations

from steelyard.engine.farm.groups import MOST_SMALL, groups_of
from steelyard.model.protocol import parse_fixed
from tests.engine.farm.fleet import plan_of

SECONDS = [number * 1e-3 for number in range(1, 31)]


def test_cases_that_are_not_compared_are_groups_of_their_own() -> None:
    groups = groups_of(plan_of(SECONDS))
    assert [len(group.jobs) for group in groups] == [1] * 30
    assert [group.number for group in groups] == list(range(30))


def test_a_base_and_all_that_is_weighed_against_it_stay_together() -> None:
    plan = plan_of(SECONDS[:4], variant=("eager", "half"), settings={"vs": "eager"})
    groups = groups_of(plan)
    assert [len(group.jobs) for group in groups] == [2] * 4
    assert all(group.compared and len({job.case.params for job in group.jobs}) == 1 for group in groups)
    assert sorted(job.case.id for group in groups for job in group.jobs) == sorted(job.case.id for job in plan.jobs)


def test_cases_that_wish_to_share_a_worker_get_one_machine() -> None:
    assert [len(group.jobs) for group in groups_of(plan_of(SECONDS, settings={"isolate": "workload"}))] == [30]


def test_many_small_cases_go_in_bundles() -> None:
    fixed = groups_of(plan_of(SECONDS, settings={"fixed": parse_fixed("1+5")}))
    assert [len(group.jobs) for group in fixed] == [MOST_SMALL, 30 - MOST_SMALL]
