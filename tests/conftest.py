"""What every test starts from."""

import pytest

from btnkm import fitting


@pytest.fixture(autouse=True)
def small_problems_use_threads(monkeypatch):
    """Give small problems the threads they ask for, or no test would see two at work."""
    monkeypatch.setattr(fitting, "WORTH_A_THREAD", 0)
