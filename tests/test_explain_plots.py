"""Pictures: every one is drawn for every kind of model, with names for labels and axes returned."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from btnkm import BTNClassifier, BTNRegressor, TensorTrain, explain

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SMALL = {"n_init": 2, "random_state": 0, "max_iter": 8, "max_rank": 3, "structure": "sums+tensor"}


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


def mixed(n=240):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a $b$ of a name that goes on and on and on": rng.normal(size=n)})
    X["pay"] = np.where(rng.random(n) < 0.3, 0.0, rng.lognormal(size=n))
    X.loc[rng.random(n) < 0.1, "pay"] = np.nan
    X["when"] = np.datetime64("2024-01-01") + rng.integers(0, 300, n).astype("m8[D]")
    X["town"] = np.array(["Aa", "Bremen", "Castrop-Rauxel"])[rng.integers(0, 3, n)]
    X["shop"] = [f"shop {k}" for k in rng.integers(0, 30, n)]
    X["same"] = 1.0
    y = X.iloc[:, 0] * (X["town"] == "Aa") + (X["pay"] == 0) + 0.1 * rng.standard_normal(n)
    return X, y


def one(n=120):
    X = pd.DataFrame({"x": np.linspace(-1, 1, n)})
    return X, np.sin(3 * X["x"]) + 0.1 * np.cos(np.arange(n))


def hundred(n=200):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 100))
    return X, X[:, 0] + 0.1 * rng.standard_normal(n)


def fits():
    X, y = mixed()
    labels = np.array(["p", "q", "r"])[np.digitize(y, [0.0, 0.5])]
    return {
        "mixed": (BTNRegressor(**SMALL), X, y),
        "one": (BTNRegressor(structure="full", random_state=0), *one()),
        "hundred": (BTNRegressor(**{**SMALL, "n_init": 1, "max_iter": 3}), *hundred()),
        "two": (BTNClassifier(**SMALL), X, y > 0.2),
        "three": (BTNClassifier(**SMALL), X, labels),
        "train": (
            BTNRegressor(**SMALL, network=TensorTrain(cores="full", order="given")),
            *mixed(),
        ),
    }


@pytest.fixture(scope="module", params=["mixed", "one", "hundred", "two", "three", "train"])
def fitted(request):
    model, X, y = fits()[request.param]
    return model.fit(X, y), X, y


def drawn(axes):
    """Draw the figure, as saving it would, and return its axes in a row."""
    flat = np.ravel(axes)
    flat[0].figure.canvas.draw()
    return flat


def test_all_pictures(fitted):
    model, X, y = fitted
    names = [c.name for c in model.columns_]
    axes = drawn(explain.plot_effects(model))
    assert 1 <= len(axes) <= 12
    drawn(explain.plot_effects(model, names[:5]))
    bars = drawn(explain.plot_importances(model))[0]
    assert 1 <= len(bars.get_yticks()) <= 30
    drawn(explain.plot_local(model, X, row=3))
    drawn(explain.plot_functions(model))
    drawn(explain.plot_history(model))
    drawn(explain.plot_partial_dependence(model, X[:50], names[-1]))
    if len(names) > 1:
        drawn(explain.plot_interactions(model))
        drawn(explain.plot_interaction(model, names[0], names[3]))
    if model.network == "cp":
        drawn(explain.plot_components(model))
    assert len(drawn(explain.plot_calibration(model, X, y))) == (
        1 if hasattr(model, "classes_") else 2
    )
    if not hasattr(model, "classes_"):
        drawn(explain.plot_residuals(model, X, y))


def test_labels_are_names_and_bands_are_those_of_the_data():
    X, y = mixed()
    model = BTNRegressor(**SMALL).fit(X, y)
    axes = drawn(explain.plot_effects(model, ["town", "pay"]))
    assert [ax.get_title() for ax in axes] == ["town", "pay"]
    labels = [label.get_text() for label in axes[0].get_xticklabels()]
    assert labels == ["Aa", "Bremen", "Castrop-Rauxel"]
    effect = explain.effects(model, ["pay"])[0]
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), effect.mean)
    band = axes[1].collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(effect.high.max())
    assert band.min() == pytest.approx(effect.low.min())


def test_axes_of_ones_own():
    X, y = mixed()
    model = BTNRegressor(**SMALL).fit(X, y)
    figure, axes = plt.subplots(1, 3)
    used = explain.plot_effects(model, [0, 1], axes=axes)
    assert used.tolist() == axes[:2].tolist()
    assert explain.plot_importances(model, ax=axes[2]) is axes[2]
    with pytest.raises(ValueError, match="at least 2"):
        explain.plot_history(model, axes=axes[0])
    assert plt.get_fignums() == [figure.number]


def test_contributions_begin_at_the_average_and_end_at_the_prediction():
    X, y = mixed()
    model = BTNRegressor(**SMALL).fit(X, y)
    ax = explain.plot_local(model, X, row=7, most=2)
    local = explain.explain_local(model, X.iloc[[7]])
    bars = ax.patches
    assert len(bars) == 3  # two inputs, and all others
    assert bars[0].get_x() == pytest.approx(local.base)
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(model.predict(X.iloc[[7]])[0])
    assert "4 other inputs" in [label.get_text() for label in ax.get_yticklabels()]


def test_arguments_that_cannot_be(tmp_path):
    X, y = mixed()
    model = BTNRegressor(**SMALL).fit(X, y)
    calls = {
        "most": lambda: explain.plot_effects(model, most=0),
        "at least one input": lambda: explain.plot_effects(model, []),
        "below the 3 rows": lambda: explain.plot_local(model, X[:3], row=9),
        "row must": lambda: explain.plot_local(model, X, row=1.5),
        "most must": lambda: explain.plot_components(model, most=-1),
        "two inputs": lambda: explain.plot_interactions(BTNRegressor(**SMALL).fit(*one())),
        "at least one row": lambda: explain.partial_dependence(model, X[:0], "pay"),
        "name or position": lambda: explain.partial_dependence(model, "pay", X),
    }
    for match, call in calls.items():
        with pytest.raises((ValueError, TypeError), match=match):
            call()
    with pytest.raises(TypeError, match=r"pipeline\[-1\]"):
        explain.plot_effects(make_pipeline(model))
    X.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match="table in memory"):
        explain.calibration(model, tmp_path / "rows.parquet", "y")


def test_durations_have_a_unit_and_categories_names_of_their_own():
    rng = np.random.default_rng(0)
    days = rng.integers(1, 400, 200)
    X = pd.DataFrame({"wait": days.astype("m8[D]"), "g": [["", "z" * 300][k % 2] for k in days]})
    model = BTNRegressor(**SMALL).fit(X, pd.Series(days / 100 + days % 2, name="price"))
    wait, level = drawn(explain.plot_effects(model, ["wait", "g"], sharey=False))
    assert wait.get_title() == "wait (days)"
    assert wait.lines[0].get_xdata()[-1] == pytest.approx(days.max())
    assert [label.get_text() for label in level.get_xticklabels()] == ["(empty)", "z" * 17 + "…"]
    assert wait.get_ylim() != level.get_ylim()
    bars = explain.plot_local(model, X)
    assert bars.get_xlabel() == "price"
    assert any("day" in label.get_text() for label in bars.get_yticklabels())


def test_a_constant_model_has_nothing_to_show():
    X, _ = mixed()
    model = BTNRegressor(**SMALL | {"structure": "auto"}).fit(X, np.ones(len(X)))
    indices = explain.sobol_indices(model)
    assert np.all(indices.total == 0.0)
    assert indices.interactions == 0.0
    assert all(pair.importance == 0.0 for pair in explain.interactions(model))
    assert "0.0%" in str(explain.summary(model))
    drawn(explain.plot_importances(model))
    drawn(explain.plot_effects(model))
