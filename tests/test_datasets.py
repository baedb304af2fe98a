"""The paper's data sets, from a folder or from a substitute for OpenML, and simulated data."""

from __future__ import annotations

import os
from urllib.error import URLError

import numpy as np
import pytest
from sklearn.utils import Bunch

from btnkm import datasets

NUMBERS = {"yacht": 7, "energy": 10, "concrete": 9, "airfoil": 6, "spambase": 58}
LOADERS = {
    "yacht": datasets.load_yacht,
    "energy": datasets.load_energy,
    "concrete": datasets.load_concrete,
    "airfoil": datasets.load_airfoil,
    "spambase": datasets.load_spambase,
    "adult": datasets.load_adult,
}


def table_of(name, n=12):
    table = np.random.default_rng(0).normal(size=(n, NUMBERS[name])).round(3)
    table[:, -1] = np.arange(n) % 2
    return table


def write_adult(folder):
    row = (
        "39, {work}, 77516, Bachelors, 13, Never-married, {job}, Own-child, White, {sex}, 0, 0, "
        "40, {land}, {income}"
    )
    first = [
        row.format(work="Private", job="Sales", sex="Male", land="Peru", income="<=50K"),
        row.format(work="?", job="?", sex="Male", land="Peru", income=">50K"),
        row.format(work="State-gov", job="Sales", sex="Female", land="Cuba", income=">50K"),
    ]
    second = [row.format(work="Private", job="Tech", sex="Male", land="Peru", income=">50K.")]
    (folder / "adult.data").write_text("\n".join(first) + "\n\n")
    (folder / "adult.test").write_text("\n".join(["|1x3 Cross validator", *second]) + "\n\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in NUMBERS:
        header = [] if name == "energy" else [",".join(f"c{j}" for j in range(NUMBERS[name]))]
        lines = [",".join(str(v) for v in row) for row in table_of(name)]
        (tmp_path / f"{name}.csv").write_text("\n".join(header + lines) + "\n")
    write_adult(tmp_path)
    monkeypatch.delenv("BTNKM_DATA", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["yacht", "concrete", "airfoil", "spambase"])
def test_tables_with_the_target_last(folder, name):
    table = table_of(name)
    X, y = LOADERS[name](data_dir=folder, return_X_y=True)
    np.testing.assert_array_equal(X, table[:, :-1])
    np.testing.assert_array_equal(y, table[:, -1])
    bunch = LOADERS[name](data_dir=folder, as_frame=True)
    assert bunch.frame.shape == table.shape
    assert list(bunch.data.columns) == bunch.feature_names == [f"c{j}" for j in range(X.shape[1])]
    assert bunch.target.name == bunch.target_names[0]
    assert "UCI" in bunch.DESCR


def test_the_folder_may_be_given_by_the_environment(folder, monkeypatch):
    monkeypatch.setenv("BTNKM_DATA", str(folder))
    X, _ = datasets.load_yacht(return_X_y=True)
    np.testing.assert_array_equal(X, table_of("yacht")[:, :-1])


def test_energy_has_the_standard_task_and_the_papers(folder):
    table = table_of("energy")
    X, y = datasets.load_energy(data_dir=folder, return_X_y=True)
    np.testing.assert_array_equal(X, table[:, :8])
    np.testing.assert_array_equal(y, table[:, 8])
    paper = datasets.load_energy(variant="paper", data_dir=folder)
    np.testing.assert_array_equal(paper.data, table[1:, :9])
    np.testing.assert_array_equal(paper.target, table[1:, 9])
    assert paper.feature_names[-1] == "heating_load"
    assert paper.target_names == ["cooling_load"]


def test_adult_has_native_columns_and_the_papers(folder):
    bunch = datasets.load_adult(data_dir=folder)
    assert bunch.data.shape == (3, 14)  # one row has missing values
    assert bunch.data["workclass"].tolist() == ["Private", "State-gov", "Private"]
    assert bunch.data["workclass"].dtype == "category"
    assert bunch.data["age"].dtype == float
    assert bunch.target.tolist() == [0, 1, 1]
    paper = datasets.load_adult(form="paper96", data_dir=folder)
    expected = [*datasets.ADULT_NUMBERS, "workclass=State-gov", "occupation=Tech", "sex=Male"]
    assert paper.feature_names == [*expected, "native-country=Peru"]
    np.testing.assert_array_equal(paper.data[:, 6:], [[0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1]])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda d: datasets.load_energy(variant="x", data_dir=d), "variant must be"),
        (lambda d: datasets.load_adult(form="x", data_dir=d), "form must be"),
        (lambda d: datasets.load_adult(as_frame=False, data_dir=d), "as_frame must be True"),
    ],
)
def test_options_that_do_not_exist(folder, call, match):
    with pytest.raises(ValueError, match=match):
        call(folder)


def test_a_file_that_is_missing_or_not_a_table(folder):
    for body in (b"a,b\n1,x\n", b"a,b\n1,2\n3\n", b"", b"garbage", b"a,b\n", b"a,b\n\xff,2\n"):
        (folder / "yacht.csv").write_bytes(body)
        with pytest.raises(ValueError, match=r"yacht.csv must contain .*; put the original file"):
            datasets.load_yacht(data_dir=folder)
    (folder / "yacht.csv").write_text("a,b\n1,x\n")
    with pytest.raises(ValueError, match=r"yacht.csv must contain rows of numbers"):
        datasets.load_yacht(data_dir=folder)
    (folder / "airfoil.csv").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"airfoil.csv must be in.*does not contain it; put the orig"
    ):
        datasets.load_airfoil(data_dir=folder)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        datasets.load_airfoil(data_dir=folder / "nowhere")
    (folder / "adult.test").write_text("comment\n1, 2\n")
    with pytest.raises(ValueError, match="every row of Adult must have 15 fields"):
        datasets.load_adult(data_dir=folder)


@pytest.fixture
def openml(monkeypatch, folder):
    """Return the tables of the folder in place of OpenML; record the ids that are fetched."""
    fetched = []

    def fetch(*, data_id, target_column, as_frame, parser, n_retries):
        fetched.append(data_id)
        name = next(k for k, source in datasets.SOURCES.items() if source.openml == data_id)
        if name == "adult":
            columns = datasets._adult_columns(folder)
            categories, data = {}, []
            for j, (column, values) in enumerate(columns.items()):
                if column in datasets.ADULT_NUMBERS:
                    data.append(values)
                    continue
                names = sorted(set(values))
                categories[f"V{j}"] = names
                data.append(np.array([names.index(v) for v in values], dtype=float))
            data[1][0] = np.nan  # a missing value
            names = [f"V{j}" for j in range(15)]
            return Bunch(data=np.column_stack(data), feature_names=names, categories=categories)
        names = [f"c{j}" for j in range(NUMBERS[name])]
        return Bunch(data=table_of(name), feature_names=names, categories={})

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    return fetched


@pytest.mark.parametrize("name", LOADERS)
def test_without_a_folder_data_are_fetched_from_openml(openml, monkeypatch, name, folder):
    source = datasets.SOURCES[name]
    with pytest.raises(ValueError, match=f"rows of {name} must be those of the paper"):
        LOADERS[name]()
    assert openml == [source.openml]
    if name == "adult":
        columns = datasets._adult_columns(folder)
        table = np.column_stack([columns[c] for c in datasets.ADULT_NUMBERS])
    else:
        table = table_of(name)
    right = source._replace(rows=len(table), fingerprint=datasets.fingerprint(table))
    monkeypatch.setitem(datasets.SOURCES, name, right)
    bunch = LOADERS[name]()
    if name == "adult":
        assert bunch.data.shape == (2, 14)  # without the row of the missing value
        assert bunch.data["workclass"].tolist() == ["State-gov", "Private"]
        assert bunch.target.tolist() == [1, 1]
    else:
        np.testing.assert_array_equal(bunch.data, LOADERS[name](data_dir=folder).data)


def test_if_openml_is_not_available_the_error_is_one_sentence(monkeypatch):
    def fetch(**_):
        raise URLError("no route to host")

    monkeypatch.delenv("BTNKM_DATA", raising=False)
    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    with pytest.raises(FileNotFoundError, match=r"yacht.csv must be in.*no route.*download https"):
        datasets.load_yacht()


def test_a_fingerprint_depends_on_values_and_order():
    table = table_of("airfoil", 200)
    first = datasets.fingerprint(table)
    assert not np.allclose(first, datasets.fingerprint(table[::-1]), atol=2e-3)
    changed = table.copy()
    changed[:100, 2] += 0.5
    assert not np.allclose(first, datasets.fingerprint(changed), atol=2e-3)
    assert np.allclose(first, datasets.fingerprint(table + 1e-4 * np.sin(table)), atol=2e-3)


def test_splits_are_the_papers():
    train, test = datasets.paper_splits(308, 3)
    assert (len(train), len(test)) == (277, 31)
    order = np.random.RandomState(3).permutation(308)
    np.testing.assert_array_equal(np.concatenate([train, test]), order)


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("BTNKM_DATA"), reason="BTNKM_DATA is not set")
@pytest.mark.parametrize("name", LOADERS)
def test_real_tables_have_the_fingerprints(name):
    source = datasets.SOURCES[name]
    if name == "adult":
        assert LOADERS[name]().data.shape == (45222, 14)
        assert LOADERS[name](form="paper96").data.shape == (45222, 96)
        return
    names = datasets.ENERGY_COLUMNS if name == "energy" else None
    _, table = datasets._numbers(name, None, names)
    assert len(table) == source.rows
    np.testing.assert_allclose(datasets.fingerprint(table), source.fingerprint, atol=1e-4)


def test_simulated_homes_have_categories_missing_values_and_the_noise_they_were_given():
    columns, energy = datasets.make_heating(3000, as_frame=False)
    assert {columns[name].dtype.kind for name in ("home", "system")} == {"O"}
    for name in ("indoor", "people"):
        assert 0.08 < np.isnan(columns[name]).mean() < 0.12
    assert not any(np.isnan(columns[name]).any() for name in ("area", "built", "outdoor", "wind"))
    exact = datasets.make_heating(3000, noise=0.0, as_frame=False)[1]
    assert exact.min() > 12  # what appliances use
    np.testing.assert_allclose(np.std(energy - exact), 5.0, rtol=0.05)
    frame, series = datasets.make_heating(3000)
    assert list(frame.columns) == list(columns)
    assert series.name == "energy"
    np.testing.assert_array_equal(series, energy)
    assert not np.array_equal(datasets.make_heating(3000, random_state=1)[1], energy)


def test_simulated_homes_interact_as_described():
    def energy(**change):
        home = {
            "area": 100.0, "built": 1950.0, "home": "terraced", "system": "gas boiler",
            "outdoor": 0.0, "indoor": 20.0, "wind": 3.0, "people": 2.0,
        } | change  # fmt: skip
        return datasets._energy_of_homes({name: np.array([v]) for name, v in home.items()})[0]

    def effect_of_cold(**change):
        return energy(outdoor=-5.0, **change) - energy(outdoor=5.0, **change)

    # area, insulation and temperature multiply: the ratio of effects is that of the factor
    np.testing.assert_allclose(effect_of_cold(area=200.0) / effect_of_cold(), 2.0)
    ratios = [
        effect_of_cold(built=2015.0, area=area) / effect_of_cold(area=area) for area in (60, 180)
    ]
    np.testing.assert_allclose(*ratios)
    assert 0.3 < ratios[0] < 0.6
    # a heat pump uses less, and the more so the warmer it is outside
    cold, warm = (
        (energy(system="heat pump", outdoor=t) - 12) / (energy(outdoor=t) - 12) for t in (-15, 15)
    )
    assert warm < cold < 1
