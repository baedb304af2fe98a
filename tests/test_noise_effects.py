"""Which inputs drive the noise: against the noise of rows, draws of q(g), and enumeration."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache

import matplotlib
import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import BTNClassifier, BTNRegressor, cli, explain
from btnkm.cli import explain as explain_command
from btnkm.cli import info, program
from btnkm.explain.fitted import MISSING, FittedModel
from btnkm.explain.noise import constant_noise, round_factors
from btnkm.explain.summary import likelihood_line, likelihoods
from btnkm.report.noise import factor, noise_section, sentence

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SMALL = {"n_init": 2, "max_rank": 3, "max_iter": 12, "random_state": 0, "noise": "varying"}


def numbers(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.sin(3 * X[:, 1]) + (0.05 + 0.8 * np.maximum(X[:, 0], 0)) * rng.standard_normal(n)


def mixed(n=500):
    """Return a table whose noise depends on a number, a category, a spike and a missing value."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"depth": rng.uniform(-1, 1, n), "speed": rng.normal(50, 10, n)})
    X["site"] = np.array(["harbour", "open sea", "<b>river</b>"])[rng.integers(0, 3, n)]
    X["pay"] = np.where(rng.random(n) < 0.3, 0.0, rng.lognormal(size=n))
    X["when"] = np.datetime64("2024-01-01") + rng.integers(0, 300, n).astype("m8[D]")
    y = np.sin(3 * X["depth"]) + 0.02 * X["speed"]
    std = 0.1 * np.exp(0.9 * X["depth"]) * np.where(X["site"] == "harbour", 0.5, 1.5)
    std *= np.where(X["pay"] == 0, 0.6, 1.2)
    missing = rng.random(n) < 0.15
    y += std * np.where(missing, 3.0, 1.0) * rng.standard_normal(n)
    X.loc[missing, "speed"] = np.nan
    X.loc[rng.random(n) < 0.1, "site"] = None
    return X, pd.Series(y, name="level")


KINDS = {
    "sums": {"structure": "sums"},
    "both": {"structure": "sums+tensor"},
    "full": {"structure": "full"},
    "student t": {"structure": "sums", "likelihood": "student_t"},
}


@cache
def fitted(name):
    X, y = numbers()
    return BTNRegressor(**SMALL | KINDS[name]).fit(X, y), X, y


@cache
def fitted_table():
    X, y = mixed()
    return BTNRegressor(**SMALL, structure="sums+tensor").fit(X, y), X, y


@cache
def constant():
    X, y = numbers()
    return BTNRegressor(**SMALL | {"noise": "constant", "structure": "sums"}).fit(X, y)


def of_noise(model, X):
    """Return E[g] of the best restart, in rows of a table."""
    view = FittedModel.of(model)
    return view.likelihoods_at(view.encode(X))[view.best_restart].mean


def alone(model):
    """Return the view of a model with its best restart only."""
    view = FittedModel.of(model)
    weights = np.zeros(len(view.weights))
    weights[view.best_restart] = 1.0
    return replace(view, weights=weights)


def test_factors_are_those_of_the_noise_of_rows():
    model, X, _ = fitted_table()
    effects = explain.noise_effects(alone(model))
    assert {effect.name for effect in effects} >= {"depth", "site", "speed", "pay"}
    for effect in effects:
        values = [*effect.values, *effect.spikes["values"]]
        factors = [*effect.factor, *effect.spikes["factor"]]
        if effect.missing is not None:
            values.append(np.nan)
            factors.append(effect.missing["factor"])
        rows = pd.concat([X.iloc[:1]] * len(values), ignore_index=True)
        rows[effect.name] = [None if v == MISSING else v for v in values]
        g = of_noise(model, rows.astype(X.dtypes))
        np.testing.assert_allclose(
            -0.5 * (g - g[0]), np.log(factors) - np.log(factors[0]), atol=1e-9
        )


def test_factors_have_a_geometric_mean_of_one_over_the_training_rows():
    model, X, _ = fitted_table()
    for effect in explain.noise_effects(model, points=400):
        if effect.kind == "category":
            log = dict(zip(effect.values, np.log(effect.factor), strict=True))
            each = [log[value] for value in X[effect.name].fillna(MISSING)]
        else:
            x = X[effect.name].to_numpy(dtype=float)
            each = np.interp(x, effect.values.astype(float), np.log(effect.factor))
            for value, of_spike in zip(
                *(effect.spikes[k] for k in ("values", "factor")), strict=True
            ):
                each[x == value] = np.log(of_spike)
            if effect.missing is not None:
                each[np.isnan(x)] = np.log(effect.missing["factor"])
        assert abs(np.mean(each)) < 0.01


def test_intervals_and_importances_are_those_of_draws():
    model, X, _ = fitted_table()
    view = alone(model)
    likelihood, mode_map = view.likelihoods[view.best_restart], view.mode_maps[view.best_restart]
    drawn = likelihood.sums.draw(4000, np.random.default_rng(0))[:, 0]
    columns = view.encode(X)
    variances = {}
    for effect in explain.noise_effects(view, level=0.8):
        j = view.place(effect.name)
        i = mode_map.noise_inputs.index(j)
        places, kept = likelihood.sums.places(i), likelihood.sums.modes[i]

        def curves(codes, i=i, kept=kept, places=places):
            return drawn[:, places] @ mode_map.noise_effects[i].features(codes)[0][:, kept].T

        variances[effect.name] = np.mean(np.var(curves(columns[j]), axis=1))
        if effect.kind == "number":
            codes = view.grid(j, 100).codes[[0, -1]]
            low, high = np.quantile(np.exp(-0.5 * curves(codes)), [0.1, 0.9], axis=0)
            np.testing.assert_allclose(effect.low[[0, -1]], low, rtol=0.03)
            np.testing.assert_allclose(effect.high[[0, -1]], high, rtol=0.03)
    total = sum(variances.values())
    for effect in explain.noise_effects(view):
        assert effect.importance == pytest.approx(variances[effect.name] / total, abs=0.02)


@pytest.mark.parametrize("name", KINDS)
def test_the_input_that_drives_the_noise_is_found(name):
    model, X, y = fitted(name)
    effects = explain.noise_effects(model)
    assert sum(effect.importance for effect in effects) == pytest.approx(1.0)
    assert effects[0].name == "x0"
    assert effects[0].importance > 0.9
    assert effects[0].factor[-1] > 2.0 * effects[0].factor[0]
    assert np.all((effects[0].low < effects[0].factor) & (effects[0].factor < effects[0].high))
    local = explain.explain_local(model, X[:9])
    np.testing.assert_allclose(local.prediction, model.predict(X[:9]), rtol=1e-9)
    curve = explain.partial_dependence(model, X[:20], "x1", points=4, draws=8)
    for value, mean in zip(curve.values, curve.mean, strict=True):
        moved = X[:20].copy()
        moved[:, 1] = value
        assert mean == pytest.approx(np.mean(model.predict(moved)), rel=1e-6)
    assert np.abs(explain.residuals(model, X, y).by_input["x0"]) < 0.25


def test_restarts_with_constant_noise_have_a_factor_of_one():
    X, y = numbers()
    varying = FittedModel.of(BTNRegressor(**SMALL | {"structure": "sums", "n_init": 1}).fit(X, y))
    same = FittedModel.of(constant())
    both = replace(
        varying,
        posteriors=(varying.posteriors[0], same.posteriors[0]),
        mode_maps=(varying.mode_maps[0], same.mode_maps[0]),
        averages=(varying.averages[0], same.averages[0]),
        effect_averages=(varying.effect_averages[0], same.effect_averages[0]),
        weights=np.array([0.6, 0.4]),
    )
    (before, *_), (after, *_) = explain.noise_effects(varying), explain.noise_effects(both)
    np.testing.assert_allclose(np.log(after.factor), 0.6 * np.log(before.factor))
    assert after.importance == pytest.approx(before.importance)
    assert after.high[-1] > before.factor[-1]  # the restarts disagree
    told = likelihoods(both)
    assert [entry.get("noise") for entry in told] == ["varying", None]
    line = "Gaussian with noise that varies (weight 0.60), Gaussian (0.40)"
    assert likelihood_line(told) == line


def test_constant_noise_has_no_effects():
    assert explain.noise_effects(constant()) == []
    assert "varies" not in str(explain.summary(constant()))
    X, y = numbers()
    labels = BTNClassifier(n_init=1, max_iter=3, structure="sums").fit(X, y > 0)
    assert explain.noise_effects(labels) == []
    rng = np.random.default_rng(0)
    even = X[:, 1] + 0.2 * rng.standard_normal(len(X))
    nothing = BTNRegressor(**SMALL | {"structure": "sums"}).fit(X, even)
    assert explain.noise_effects(nothing) == []
    assert likelihood_line(likelihoods(nothing)) == "Gaussian"
    assert not constant_noise(nothing.likelihood_)[1]
    for wrong, match in (({"points": 1}, "points"), ({"level": 90}, "level")):
        with pytest.raises(ValueError, match=match):
            explain.noise_effects(nothing, **wrong)


def test_results_are_plain_data():
    model, _, _ = fitted_table()
    for effect in explain.noise_effects(model):
        again = json.loads(json.dumps(effect.to_dict(), allow_nan=False))
        assert again.keys() == effect.to_dict().keys()
        assert effect.to_frame().columns.tolist() == [effect.name, "factor", "low", "high"]
    assert repr(effect).startswith("NoiseEffect(name=")


def test_the_summary_tells_what_the_noise_varies_with():
    facts = explain.summary(fitted("student t")[0]).facts
    assert re.fullmatch(r"0\.\d+ on average; varies with x0 \(\d+%\).*", facts["noise"])
    assert re.fullmatch(r"Student-t with noise that varies \(dof [\d.]+\)", facts["likelihood"])
    model, _, _ = fitted_table()
    assert " more" in explain.summary(model).facts["noise"]
    assert "varies with depth" in model._repr_html_()


def test_pictures():
    model, _, _ = fitted_table()
    axes = explain.plot_noise_effects(model)
    axes[0].figure.canvas.draw()
    assert {ax.get_title() for ax in axes} >= {"depth", "site", "speed", "pay"}
    labels = [label.get_text() for label in axes[0].get_yticklabels()]
    assert "×1" in labels
    assert len({ax.get_ylim() for ax in axes}) == 1
    depth = next(e for e in explain.noise_effects(model) if e.name == "depth")
    drawn = next(ax for ax in axes if ax.get_title() == "depth")
    np.testing.assert_allclose(np.exp2(drawn.lines[0].get_ydata()), depth.factor)
    _, given = plt.subplots(1, 3)
    assert explain.plot_noise_effects(model, most=2, axes=given).tolist() == given[:2].tolist()
    (note,) = explain.plot_noise_effects(constant())
    assert note.texts[0].get_text() == "the noise is constant"
    plt.close("all")


@pytest.mark.parametrize(("low", "high"), [(0.8, 1.3), (0.97, 1.02), (0.3, 4.0), (1e-3, 50.0)])
def test_marks_are_round_and_contain_one(low, high):
    marks = round_factors(low, high)
    assert 2 <= len(marks) <= 6
    assert min(marks) >= low
    assert max(marks) <= high
    assert 1.0 in marks
    assert all(len(f"{mark:g}") <= 5 for mark in marks)
    assert len(round_factors(1e-30, 1e30)) <= 6


def test_the_report_tells_how_large_the_noise_is(tmp_path):
    model, X, y = fitted_table()
    page = model.report(tmp_path / "r.html", X[:60], y[:60]).read_text(encoding="utf-8")
    assert "How large is the noise?" in page
    assert 'href="#noise"' in page
    assert "on average: it varies" in page
    assert re.search(r"The noise varies, most of all with\s+<strong><bdi class=\"name\">", page)
    assert "<b>river" not in page
    section = noise_section(model.fitted_)
    told = {e.name: sentence(e) for e in explain.noise_effects(model)}
    assert "smallest where it is harbour (×0." in told["site"]
    assert "at other values (×0." in told["speed"]
    assert "largest where it is missing (×" in told["speed"]
    assert "smallest where it is 0" in told["pay"]
    notes = [chart.notes for chart in [*section["charts"], *section["more"]]]
    assert [first for first, *_ in notes] == list(told.values())
    assert any(
        re.fullmatch(r"Missing: ×\d.*, from ×\d.* to ×\d.*", n) for each in notes for n in each
    )
    assert noise_section(FittedModel.of(constant())) is None
    page = constant().report(tmp_path / "c.html").read_text(encoding="utf-8")
    assert "How large is the noise?" not in page
    assert "it varies" not in page
    assert factor(0.31678) == "×0.317"


def test_the_program_tells_what_the_noise_varies_with(tmp_path, monkeypatch, capsys):
    model, _, _ = fitted_table()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.btn").write_bytes(b"")
    for module in (info, explain_command):
        monkeypatch.setattr(module, "load_model", lambda _: model)
    assert program.main(["info", "m.btn"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"noise 0\.\d+ \(standard deviation\) on average; it varies with depth \(", out
    )
    assert "Gaussian with noise that varies" in out
    assert program.main(["info", "m.btn", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["noise_varies_with"]
    effects = explain.noise_effects(model)
    assert [entry["name"] for entry in printed] == [effect.name for effect in effects]
    assert program.main(["explain", "m.btn", "--plots", "p"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  speed +\d+\.\d% +×0\.\d+ +×[1-9]\S*$", out, re.MULTILINE)
    assert (tmp_path / "p" / "noise_effects.png").exists()
    assert program.main(["explain", "m.btn", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["noise_effects"]
    np.testing.assert_allclose(told[0]["factor"], effects[0].factor)


@pytest.mark.parametrize(("noise", "varies"), [("constant", False), ("varying", True)])
def test_the_noise_is_a_parameter_of_the_program(noise, varies, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y = numbers()
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y).to_csv("t.csv", index=False)
    monkeypatch.setattr(btnkm.BTNRegressor, "save", lambda *_: None)
    options = ["--target", "y", "--structure", "sums", "--noise", noise, "-o", "m.btn", "--json"]
    assert program.main(["fit", "t.csv", *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert bool(printed["noise_varies_with"]) is varies
    wrong = ["fit", "t.csv", "--target", "y", "--noise", "loud", "-o", "m.btn"]
    assert program.main(wrong) == 2
    assert "--noise" in capsys.readouterr().err
    again = ["fit", "t.csv", *options, "--set", "noise=auto"]
    assert program.main(again) == 2
    assert "must not repeat --noise" in capsys.readouterr().err


def test_classes_have_no_parameter_of_noise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y = numbers(60)
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=np.where(y > 0, "p", "q"))
    table.to_csv("t.csv", index=False)
    options = ["--target", "y", "--noise", "varying", "-o", "m.btn"]
    assert program.main(["fit", "t.csv", *options]) == 2
    assert "--noise is for numbers, got 'varying'" in capsys.readouterr().err


def test_defaults_of_the_program_are_those_of_the_library():
    assert BTNRegressor().noise == cli.options.NOISES[0]
