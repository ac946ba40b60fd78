"""Real clusters, started when a test first asks for one and gone with the last; a program that is missing fails it, and is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripts.farm.daemons import Missing
from scripts.farm.ray import RayCluster
from scripts.farm.slurm import SlurmCluster
from scripts.farm.sshd import SshHosts

from tests.farm.places import FarmPlace, RayPlace, SlurmPlace, SshPlace

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is for `make test-farm`, and waits for real daemons."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.farm)
            item.add_marker(pytest.mark.timeout(900))


@contextmanager
def installed() -> Iterator[None]:
    """A program that is missing is an error of the machine, told as one."""
    try:
        yield
    except Missing as error:
        pytest.fail(f"{error}, or: make test-farm", pytrace=False)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmPlace]:
    with installed(), SlurmCluster.running(tmp_path_factory.mktemp("slurm"), 3) as cluster:
        yield SlurmPlace(cluster)


@pytest.fixture(scope="session")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayPlace]:
    with installed(), RayCluster.running(tmp_path_factory.mktemp("ray"), 2) as cluster:
        yield RayPlace(cluster)


@pytest.fixture(scope="session")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshPlace]:
    with installed(), SshHosts.running(tmp_path_factory.mktemp("ssh"), 2) as hosts:
        yield SshPlace(hosts)


@pytest.fixture(params=["slurm", "ray", "ssh"])
def place(request: pytest.FixtureRequest) -> FarmPlace:
    """Each of them in turn."""
    found: FarmPlace = request.getfixturevalue(request.param)
    return found
