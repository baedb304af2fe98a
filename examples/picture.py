"""Take the picture of the README: two sections of a model report, in a browser."""

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from sklearn.model_selection import train_test_split

from btnkm import BTNRegressor
from btnkm.datasets import make_heating

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH, HEIGHT, MARGIN = 1100, 3000, 14


def main():
    """Fit the simulated homes with default settings, write the report and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", default="docs/_static/report.png", help="where the picture goes"
    )
    arguments = parser.parse_args()
    X, y = make_heating()
    X, X_new, y, y_new = train_test_split(X, y, train_size=1200, random_state=0)
    model = BTNRegressor(random_state=0).fit(X, y)
    path = next(program for name in BROWSERS if (program := shutil.which(name)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = model.report(Path(folder) / "heating.html", X_new, y_new)
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(page.resolve().as_uri())
        tab.locator("#what-if-mean").wait_for()
        boxes = [tab.locator(name).bounding_box() for name in ("#what-if", "#importance")]
        top, bottom = boxes[0]["y"], boxes[1]["y"] + boxes[1]["height"]
        clip = {
            "x": boxes[0]["x"] - MARGIN,
            "y": top - MARGIN,
            "width": boxes[0]["width"] + 2 * MARGIN,
            "height": bottom - top + 2 * MARGIN,
        }
        tab.screenshot(path=arguments.output, clip=clip)
        browser.close()


if __name__ == "__main__":
    main()
