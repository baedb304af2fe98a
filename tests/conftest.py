"""What every test starts from."""

import pytest


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
