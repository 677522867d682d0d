"""The ranks that all tests share."""

from collections.abc import Iterator

import pytest

from ranks import Ranks


_started: dict[int, Ranks] = {}


def _ranks(size: int) -> Ranks:
    """Returns the running ranks, or new ones after a failed test."""
    if size not in _started or _started[size].broken:
        if size in _started:
            _started[size].close()
        _started[size] = Ranks(size)
    return _started[size]


@pytest.fixture
def two() -> Ranks:
    return _ranks(2)


@pytest.fixture
def four() -> Ranks:
    return _ranks(4)


@pytest.fixture
def eight() -> Ranks:
    return _ranks(8)


@pytest.fixture(scope="session", autouse=True)
def ended() -> Iterator[None]:
    yield
    for ranks in _started.values():
        ranks.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A skipped test would be an unnoticed gap, so none may be skipped."""
    for item in items:
        assert not [mark for mark in item.iter_markers() if mark.name.startswith("skip")], f"{item.nodeid} may be skipped"
