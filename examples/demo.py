"""Fit a Bayesian tensor-network kernel machine at its defaults and show what it found.

Run ``python examples/demo.py``; needs matplotlib for the picture, and no download.
"""

import argparse
import sys
import time

import matplotlib
import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from btnkm import BTNRegressor

matplotlib.use("Agg")  # the picture goes to a file, so no display is needed
import matplotlib.pyplot as plt  # noqa: E402

DIABETES_INPUTS = (
    "age",
    "sex",
    "body mass index",
    "blood pressure",
    "total cholesterol",
    "LDL cholesterol",
    "HDL cholesterol",
    "cholesterol / HDL",
    "log triglycerides",
    "blood sugar",
)


def load(name):
    """Return inputs, targets, names of the inputs and of the target, and a title."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True, scaled=False)
        title = "diabetes: progression after one year from ten measurements (real data)"
        return X, y, DIABETES_INPUTS, "progression after one year", title
    X, y = make_friedman1(n_samples=1000, noise=1.0, random_state=0)
    inputs = [f"x{d + 1}" for d in range(X.shape[1])]
    title = "Friedman's first function: y depends on x1 to x5, not on x6 to x10 (made-up data)"
    return X, y, inputs, "y", title


def rmse(prediction, y):
    """Return the root mean square error."""
    return float(np.sqrt(np.mean((prediction - y) ** 2)))


def report(model, dist, X_train, y_train, X_test, y_test, inputs, seconds):
    """Print error, calibration and structure of a fitted model."""
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    linear = rmse(ridge.fit(X_train, y_train).predict(X_test), y_test)
    print("Error on the test rows (root mean square)")
    print(f"  btnkm                       {rmse(np.asarray(dist.mean), y_test):8.3f}")
    print(f"  linear ridge                {linear:8.3f}")
    print(f"  standard deviation of y     {np.std(y_test):8.3f}")
    print()
    print("How honest are the predicted distributions?")
    print(f"  mean negative log density   {-np.mean(dist.logpdf(y_test)):8.3f}")
    for level in (0.50, 0.90, 0.95):
        low, high = np.asarray(dist.interval(level)).T
        share = np.mean((low <= y_test) & (y_test <= high))
        print(f"  {level:.0%} intervals hold         {share:8.1%}  of the test rows")
    print()
    n_basis = np.asarray(model.n_basis_)
    print("What the fit decided by itself")
    print(f"  rank                        {np.mean(model.rank_):8.3g}")
    print(f"  basis functions kept        {n_basis.sum():8.4g}  over {n_basis.size} inputs")
    print(f"  noise standard deviation    {model.noise_std_:8.3f}")
    print(f"  sweeps                      {model.n_iter_:8d}  ({model.stop_reason_})")
    print(f"  seconds                     {seconds:8.2f}")
    print()
    print("Relevance of the inputs (share of the total, ± one standard deviation)")
    relevance = np.asarray(model.feature_relevance_)
    spread = np.asarray(model.feature_relevance_std_)
    width = max(map(len, inputs))
    for d in np.argsort(relevance)[::-1]:
        bar = "█" * round(30 * relevance[d] / relevance.max())
        print(f"  {inputs[d]:{width}}  {relevance[d]:6.1%} ± {spread[d]:5.1%}  {bar}")


def draw(model, dist, X_train, y_train, y_test, inputs, target, path):
    """Draw predictions against truth, and the prediction along the most relevant input."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    mean = np.asarray(dist.mean)
    low, high = np.asarray(dist.interval(0.90)).T
    left.errorbar(
        mean,
        y_test,
        xerr=(mean - low, high - mean),
        fmt="o",
        markersize=4,
        color="tab:blue",
        ecolor="lightsteelblue",
        elinewidth=1,
        label="test rows with 90% intervals",
    )
    ends = (min(low.min(), y_test.min()), max(high.max(), y_test.max()))
    left.plot(ends, ends, color="black", linewidth=1, label="prediction = truth")
    left.set(xlabel=f"predicted {target}", ylabel=f"observed {target}")
    left.set_title("Predictions on rows the model has not seen")
    left.legend(frameon=False, loc="upper left")

    # A curve needs an input that varies; a two-valued one would make a poor axis.
    order = np.argsort(np.asarray(model.feature_relevance_))[::-1]
    along = next((d for d in order if np.unique(X_train[:, d]).size > 10), order[0])
    grid = np.linspace(*np.quantile(X_train[:, along], (0.01, 0.99)), 200)
    X_line = np.tile(np.median(X_train, axis=0), (grid.size, 1))
    X_line[:, along] = grid
    line = model.predict_dist(X_line)
    mean, model_std = np.asarray(line.mean), np.asarray(line.model_std)
    low, high = np.asarray(line.interval(0.90)).T
    right.plot(X_train[:, along], y_train, ".", markersize=3, color="silver", label="training rows")
    right.fill_between(
        grid, low, high, color="tab:blue", alpha=0.15, linewidth=0, label="90% of new observations"
    )
    band = 1.645 * model_std
    right.fill_between(
        grid,
        mean - band,
        mean + band,
        color="tab:blue",
        alpha=0.35,
        linewidth=0,
        label="90% for the curve itself",
    )
    right.plot(grid, mean, color="tab:blue", label="prediction")
    right.set(xlabel=inputs[along], ylabel=target)
    right.set_title(f"Moving {inputs[along]}, other inputs at their medians")
    right.legend(frameon=False, loc="upper left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main():
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=("diabetes", "friedman1"), default="diabetes")
    parser.add_argument("--output", default="demo.png", help="where the picture goes")
    arguments = parser.parse_args()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ± or █ still gets the rest

    X, y, inputs, target, title = load(arguments.data)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    print(title)
    print(f"{len(y_train)} rows to learn from, {len(y_test)} to test on, {X.shape[1]} inputs")
    print("Fitting BTNRegressor() at its defaults ...", flush=True)
    print()
    start = time.perf_counter()
    model = BTNRegressor(random_state=0).fit(X_train, y_train)
    seconds = time.perf_counter() - start
    dist = model.predict_dist(X_test)
    report(model, dist, X_train, y_train, X_test, y_test, inputs, seconds)
    draw(model, dist, X_train, y_train, y_test, inputs, target, arguments.output)
    print()
    print(f"Picture: {arguments.output}")


if __name__ == "__main__":
    main()
