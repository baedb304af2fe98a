"""What every test starts from."""

import pytest

from btnkm import BTNClassifier, BTNRegressor
from btnkm.plan import Comparing

# Structures are compared on one fold, with few sweeps and without splines: what follows does not
# depend on which of them wins. Tests of the comparison itself ask for ``thorough_comparisons``;
# examples in docstrings are not below this folder, and run as they do for users.
THOROUGH = {kind: kind._defaults for kind in (BTNRegressor, BTNClassifier)}
QUICK = {
    kind: defaults._replace(comparing=Comparing(enough_rows=1, sweeps=3, variants=False))
    for kind, defaults in THOROUGH.items()
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Compare structures quickly, in fixtures of any scope too."""
    for kind, defaults in QUICK.items():
        kind._defaults = defaults


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Leave nothing behind for what is outside of this folder."""
    for kind, defaults in THOROUGH.items():
        kind._defaults = defaults


@pytest.fixture
def thorough_comparisons(monkeypatch):
    """Compare structures as thoroughly as outside of tests."""
    for kind, defaults in THOROUGH.items():
        monkeypatch.setattr(kind, "_defaults", defaults)


@pytest.fixture
def waiting_helper(tmp_path):
    """A helper process that waits from an earlier fit: even the smallest fit calls it."""
    from btnkm.execution import processes
    from tests.test_processes import Patient, run_with_helpers, silent

    folder = tmp_path / "helper"
    folder.mkdir()
    run_with_helpers(Patient(folder), 4, 1, silent)
    return processes._idle[-1]


@pytest.fixture(scope="session")
def sold_houses(tmp_path_factory):
    """A folder with tables, and two models that the program has fitted to them."""
    from tests.cli_data import QUICK, ROWS, houses, run, write, write_parquet

    folder = tmp_path_factory.mktemp("houses")
    rows = houses(ROWS)
    write(folder / "houses.csv", rows)
    write_parquet(folder / "houses.parquet", rows)
    new = houses(30, seed=1)
    write(folder / "new.csv", new)
    write(folder / "test.csv", new)
    fit = ("fit", "houses.csv", *QUICK, "--text", "zip", "--target")
    price = run(*fit, "price", "--drop", "id,sold", "-o", "houses.btn", cwd=folder)
    sold = run(*fit, "sold", "--drop", "id", "-o", "sold.btn", cwd=folder)
    assert (price[0], price[2], sold[0], sold[2]) == (0, "", 0, "")
    return folder
