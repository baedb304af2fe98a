"""The report in a real browser: values as in Python, keyboards, phones, dark and light."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from btnkm import BTNClassifier, BTNRegressor
from tests.browser import browser, opened
from tests.models import SMALL, fitted
from tests.test_report import NASTY, nasty_table

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PANELS = [
    "gaussian",
    "mixed",
    "no gaps in training",
    "many levels",
    "twelve inputs",
    "student t",
    "counts",
    "two classes",
    "least squares",
    "three classes",
    "train of a mixed table",
]


@pytest.fixture(scope="module")
def chromium():
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def desktop(chromium):
    with opened(chromium, viewport=DESKTOP) as page:
        yield page


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the address of a model's report, written once."""
    folder = tmp_path_factory.mktemp("reports")
    known = {}

    def address(name):
        if name not in known:
            known[name] = f"file://{fitted(name)[0].report(folder / f'{len(known)}.html')}"
        return known[name]

    return address


def figures(page):
    """Return all digits that the panel tells, in their order."""
    after = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(after)  # what changed is told in the next frame
    return [float(text) for text in page.locator("#what-if-exact dd").all_text_contents()]


def asked_row(page, model):
    """Return the row that the panel is about, as a table."""
    values = json.loads(page.locator("#what-if-panel").get_attribute("data-row"))
    columns = {}
    for column, value in zip(model.columns_, values, strict=True):
        if isinstance(value, dict):
            value = "a level that is in no table"
        if column.kind in "mM":
            value = np.array(["NaT" if value is None else round(value)], f"{column.kind}8[us]")[0]
        columns[column.name] = [np.nan if value is None and column.kind == "f" else value]
    frame = pd.DataFrame(columns)
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy(dtype=float)


def expected(model, X):
    if not hasattr(model, "classes_"):
        distribution = model.predict_dist(X)
        return [distribution.mean[0], *distribution.interval()[0]]
    probability, interval = model.predict_proba(X)[0], model.predict_proba_interval(X)[0]
    if len(probability) == 2:
        interval = np.array([1.0 - interval[::-1], interval])
    return [v for p, ends in zip(probability, interval, strict=True) for v in (p, *ends)]


def agree(page, model):
    actual = figures(page)
    scale = model._y_scale if not hasattr(model, "classes_") else 1.0
    right = np.array(expected(model, asked_row(page, model)))
    np.testing.assert_allclose(np.array(actual) / scale, right / scale, rtol=0.0, atol=1e-9)
    return actual


MOVE = """(shares) => {
    document.querySelectorAll("[data-column]").forEach((control, k) => {
        const at = shares[k];
        const tell = (element, kind) => element.dispatchEvent(new Event(kind, { bubbles: true }));
        const menu = control.querySelector("select");
        const slider = control.querySelector("input[type=range]");
        const gap = control.querySelector("input[type=checkbox]");
        if (menu) {
            menu.selectedIndex = Math.floor(at * menu.options.length);
            tell(menu, "change");
        } else if (at < 0.2) {
            gap.checked = true;
            tell(gap, "change");
        } else {
            slider.value = Number(slider.min) + (at - 0.2) / 0.8 * (slider.max - slider.min);
            tell(slider, "input");
        }
    });
}"""


@pytest.mark.parametrize("name", PANELS)
def test_the_panel_says_what_python_says(desktop, written, name):
    model, _ = fitted(name)
    rng = np.random.default_rng(0)
    desktop.goto(written(name))
    seen = [agree(desktop, model)]
    for _ in range(5):
        desktop.evaluate(MOVE, rng.random(100).tolist())
        seen.append(agree(desktop, model))
    assert len({tuple(item) for item in seen}) > 4
    desktop.locator("#what-if-reset").click()
    assert agree(desktop, model) == seen[0]
    assert not desktop.locator("#what-if-beyond").is_visible()


def test_it_can_be_used_by_keyboard(chromium, written):
    model, _ = fitted("mixed")
    with opened(chromium, viewport=DESKTOP) as page:
        page.goto(written("mixed"))
        tab(page)
        assert focused(page) == "Skip to the report"
        assert page.locator(".skip").bounding_box()["x"] >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        order = []
        for _ in range(40):
            tab(page)
            order.append(page.evaluate(
                "[document.activeElement.closest('[data-column]')?.dataset.column, "
                "document.activeElement.dataset.part]"
            ))  # fmt: skip
            if order[-1][1] == "missing":
                break
        assert [part for _, part in order[-3:]] == ["slider", "field", "missing"]
        assert len({column for column, _ in order[-3:]}) == 1
        before = agree(page, model)
        page.keyboard.press("Space")  # missing
        missing = agree(page, model)
        assert missing != before
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        moved = agree(page, model)
        assert moved not in (before, missing)
        assert not page.locator("[data-part=missing]").first.is_checked()  # a value was given again
        page.keyboard.press("End")
        assert agree(page, model) != moved
        page.keyboard.press("Tab")
        page.keyboard.press("Control+a")
        page.keyboard.type("1000")
        agree(page, model)
        assert page.locator("#what-if-beyond").is_visible()
        assert page.locator(".hint:visible").count() == 2  # beside the input, and the prediction
        page.wait_for_timeout(600)
        assert page.locator("#what-if-live").text_content().startswith("Prediction ")
        page.locator("#what-if-reset").focus()
        page.keyboard.press("Enter")
        assert agree(page, model) == before


def tab(page):
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def focused(page):
    return page.evaluate("document.activeElement.textContent").strip()


def test_nothing_sticks_out_sideways(chromium, tmp_path):
    X, y = nasty_table()
    X[NASTY[3]] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(X)), "D")
    model = BTNRegressor(**SMALL).fit(X[:120], y[:120])
    path = model.report(tmp_path / "model.html", X[120:], y[120:], title="y" * 150)
    with opened(chromium, viewport=DESKTOP) as page:
        page.goto(f"file://{path}")
        # what is seen is the name, not what it would do: a dialog would fail the test
        assert page.locator("text=<script>alert(1)</script>").count() > 0
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        for width in (320, 360, 390, 768, 1024, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_of_classes_are_inert(chromium, tmp_path):
    X, y = nasty_table()
    labels = np.array(NASTY, dtype=object)[np.digitize(y, [-0.5, 0.5, 1.5])]
    model = BTNClassifier(**SMALL).fit(X[:120], labels[:120])
    path = model.report(tmp_path / "model.html", X[120:], labels[120:])
    with opened(chromium, viewport=DESKTOP) as page:
        page.goto(f"file://{path}")
        assert page.locator("#what-if-mean").text_content() in NASTY
        agree(page, model)


CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return Array.from(canvas.getImageData(0, 0, 1, 1).data);
    };
    const behind = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const color = getComputedStyle(e).backgroundColor;
            if (rgba(color)[3] === 255) return rgba(color);
        }
        return [255, 255, 255, 255];
    };
    const light = (c) => {
        const part = c.slice(0, 3).map((v) => v / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    };
    const found = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = Array.from(element.childNodes)
            .some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.getClientRects().length || element.closest(".is-missing")) continue;
        const style = getComputedStyle(element);
        const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
        const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
        found.push([(a + 0.05) / (b + 0.05), element.outerHTML.slice(0, 80)]);
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_text_stands_out_in_both_schemes(chromium, written, scheme, viewport):
    with opened(chromium, viewport=viewport, color_scheme=scheme) as page:
        page.goto(written("mixed"))
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        page.locator("input[type=number]").first.fill("12345")
        chosen = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for _ in range(2):
            low = [pair for pair in page.evaluate(CONTRASTS) if pair[0] < 4.5]
            assert low == []
            page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == chosen
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != chosen


NAME = """(e) => {
    const named = (e.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
    const text = named.map((id) => document.getElementById(id).textContent).join(" ");
    return e.getAttribute("aria-label") || text || (e.closest("label") || e).textContent.trim();
}"""


def test_every_control_has_a_name_and_headings_do_not_jump(desktop, written):
    desktop.goto(written("mixed"))
    for role in ("slider", "spinbutton", "combobox", "checkbox", "button", "link", "img"):
        names = desktop.get_by_role(role).evaluate_all(f"(all) => all.map({NAME})")
        assert names
        assert all(names), role
    levels = desktop.locator("h1, h2, h3").evaluate_all("all => all.map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_it_can_be_printed(chromium, written):
    with opened(chromium, viewport=DESKTOP) as page:
        page.goto(written("gaussian"))
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert page.locator("#effects").is_visible()
        assert len(page.pdf()) > 10_000
