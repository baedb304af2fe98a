"""Draw the picture of the README: what matters, how, and how sure."""

import argparse

import matplotlib
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from btnkm import BTNRegressor
from btnkm.explain import plot_effects, plot_importances

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

NAMES = {
    "bmi": "body mass index",
    "bp": "blood pressure",
    "s1": "cholesterol",
    "s2": "LDL",
    "s3": "HDL",
    "s4": "cholesterol / HDL",
    "s5": "log triglycerides",
    "s6": "blood sugar",
}


def main():
    """Fit the diabetes data of scikit-learn at the defaults and draw three panels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="docs/picture.png", help="where the picture goes")
    arguments = parser.parse_args()
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X, X_new, y, y_new = train_test_split(X.rename(columns=NAMES), y, random_state=0)
    model = BTNRegressor(random_state=0).fit(X, y)
    figure, axes = plt.subplots(
        1, 4, figsize=(13, 3.4), layout="constrained", width_ratios=(1.25, 1, 1, 1.15)
    )
    plot_importances(model, ax=axes[0])
    axes[0].set_title("what matters", fontsize="medium", pad=22)
    plot_effects(model, ["body mass index", "log triglycerides"], axes=axes[1:3])
    axes[1].set_ylabel("effect on progression, 95% band")
    mean = model.predict(X_new)
    low, high = model.predict_interval(X_new, 0.9).T
    held = np.mean((low <= y_new) & (y_new <= high))
    order = np.argsort(mean)
    place = np.arange(len(mean))
    axes[3].fill_between(
        place,
        low[order],
        high[order],
        color="#2f6fb3",
        alpha=0.2,
        linewidth=0,
        label="90% interval",
    )
    axes[3].plot(place, mean[order], color="#2f6fb3", label="prediction")
    axes[3].plot(place, y_new.to_numpy()[order], ".", color="0.25", markersize=4, label="observed")
    axes[3].set_title(f"new patients: the intervals hold {held:.0%}", fontsize="medium")
    axes[3].set(xlabel="patient, by prediction", ylabel="progression")
    axes[3].legend(frameon=False, loc="upper left", fontsize="small")
    axes[3].spines[["top", "right"]].set_visible(False)
    figure.savefig(arguments.output, dpi=110)


if __name__ == "__main__":
    main()
