"use strict";

// The page: its colours, and the what-if panel. Text from the data is in the page already or is set
// as text, never as HTML.
(() => {
  const byId = (id) => document.getElementById(id);

  // ---- dark and light ---------------------------------------------------------------------------

  const theme = byId("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : prefersDark.matches;
  };
  const showTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);
  showTheme();

  // A folded section opens when a link leads to it; all of them open before printing.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.more")) details.open = true;
  });

  // ---- numbers as text, by the rules of format.py ------------------------------------------------

  function decimalsFor(width) {
    if (!(Number.isFinite(width) && width > 0)) return 2;
    return Math.min(Math.max(2 - Math.floor(Math.log10(width)), 0), 12);
  }

  function numberText(value, decimals) {
    if (Number.isNaN(value)) return "–";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    if (Math.abs(value) >= 1e15 || decimals > 6) {
      return String(Number(value.toPrecision(4))).replace(/-/g, "−");
    }
    const rounded = value.toFixed(decimals);
    const [whole, part] = rounded.replace("-", "").split(".");
    const long = whole.length > 4; // no separator in 1900, which may be a year
    const grouped = (long ? whole.replace(/\B(?=(\d{3})+$)/g, ",") : whole) + (part ? `.${part}` : "");
    return Number(rounded) < 0 ? `−${grouped}` : grouped;
  }

  function compactText(value, decimals) {
    const size = Math.abs(value);
    for (const [unit, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= Math.max(unit, 1e5) && size < 1e15) {
        return `${Number((value / unit).toPrecision(7))}${letter}`.replace("-", "−");
      }
    }
    return size < 1e12 ? numberText(value, decimals) : String(Number(value.toPrecision(7)));
  }

  // Texts of marks, and the number they are to be added to where they would be too long.
  function marked(values, step) {
    const places = (width) => Math.max(0, -Math.floor(Math.log10(width) + 1e-9));
    const [first, last] = [values[0], values[values.length - 1]];
    if (!(Math.max(...values.map(Math.abs)) > 1e5 * step)) {
      return [values.map((value) => compactText(value, places(step))), ""];
    }
    const roundTo = 10 ** Math.ceil(Math.log10(Math.max(last - first, step)) + 1e-9);
    const base = Math.round((0.5 * (first + last)) / roundTo) * roundTo;
    const texts = values.map((value) => {
      const steps = Math.round((value - base) / step) * step;
      return `${steps > 0 ? "+" : ""}${compactText(steps, places(step))}`;
    });
    const plain = Math.abs(base) < 1e15 && places(roundTo) <= 6;
    return [texts, plain ? numberText(base, places(roundTo)) : String(Number(base.toPrecision(12)))];
  }

  // 1, 2 or 5 times a power of ten, with at most so many steps in the span.
  function niceStep(span, most) {
    const rough = span / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((m) => m * power >= rough * (1 - 1e-9));
  }

  const percentText = (fraction) => {
    const value = 100 * fraction;
    if (value > 0 && value < 0.05) return "<0.1%";
    if (value < 100 && value > 99.95) return ">99.9%";
    return `${value.toFixed(1)}%`;
  };

  // ---- controls ---------------------------------------------------------------------------------

  // One input: a slider with a field, or a menu. ``value`` is raw, as the model needs it.
  class Control {
    constructor(element, categories, changed) {
      this.element = element;
      this.column = Number(element.dataset.column);
      this.kind = element.dataset.kind;
      this.categories = categories;
      this.part = (name) => element.querySelector(`[data-part="${name}"]`);
      for (const name of ["low", "high", "factor", "typical", "decimals"]) {
        this[name] = Number(element.dataset[name]);
      }
      if (this.kind === "menu") {
        this.menu = this.part("menu");
        this.first = this.menu.value;
        this.menu.addEventListener("change", changed);
      } else {
        this.slider = this.part("slider");
        this.field = this.part("field");
        this.missing = this.part("missing");
        this.slider.addEventListener("input", () => {
          const raw = Number(this.slider.value) * this.factor;
          this.set(Math.min(Math.max(raw, this.low), this.high), this.slider);
          changed();
        });
        this.field.addEventListener("input", () => {
          const raw = this.fromField();
          if (Number.isFinite(raw)) {
            this.set(raw, this.field);
            changed();
          }
        });
        this.field.addEventListener("change", () => this.set(this.number, null));
        this.missing.addEventListener("change", () => {
          this.describe();
          changed();
        });
      }
      this.reset();
    }

    get value() {
      if (this.kind !== "menu") return this.missing.checked ? null : this.number;
      const chosen = this.menu.value;
      if (chosen === "missing") return null;
      if (chosen === "unseen") return WhatIf.UNSEEN;
      return "numbers" in this.menu.dataset ? Number(chosen) : this.categories[Number(chosen)];
    }

    reset() {
      if (this.kind === "menu") {
        this.menu.value = this.first;
        return;
      }
      this.missing.checked = false;
      this.set(this.typical * this.factor, null);
    }

    // Take a raw number; ``from`` is the input that the user moved, which is left alone.
    set(raw, from) {
      this.number = raw;
      if (from !== null) this.missing.checked = false;
      if (from !== this.slider) this.slider.value = String(raw / this.factor);
      if (from !== this.field) this.field.value = this.toField(raw);
      this.describe();
    }

    toField(raw) {
      if (this.kind !== "date") {
        const shown = raw / this.factor;
        const rounded = Number(shown.toFixed(this.decimals + 1));
        const close = Math.abs(rounded - shown) <= 1e-12 * Math.abs(shown);
        return String(close ? rounded : shown);
      }
      const moment = new Date(raw / 1000).toISOString();
      return this.field.type === "date" ? moment.slice(0, 10) : moment.slice(0, 19);
    }

    fromField() {
      if (this.field.value === "") return NaN;
      if (this.kind !== "date") return Number(this.field.value) * this.factor;
      const time = this.field.type === "date" ? "T00:00:00" : "";
      return new Date(`${this.field.value}${time}Z`) * 1000;
    }

    // Warn beyond the range of the fit, and describe the slider's value to a screen reader.
    describe() {
      const missing = this.missing.checked;
      this.element.classList.toggle("is-missing", missing);
      // a date is shown in days, so its ends may be half a day inside
      const slack = this.kind === "date" ? this.factor : 0;
      const beyond =
        !missing && (this.number < this.low - slack || this.number > this.high + slack);
      const hint = this.part("hint");
      hint.hidden = !beyond;
      hint.textContent = beyond
        ? "Outside the range of the training rows: the prediction is an extrapolation."
        : "";
      this.slider.setAttribute("aria-valuetext", missing ? "missing" : this.field.value);
      this.beyond = beyond;
    }
  }

  // ---- pictures ---------------------------------------------------------------------------------

  const draw = (parent, kind, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };

  const WIDTH = 340;
  const HEIGHT = 128;
  const FLOOR = 100;

  // The distribution of y: its density, what its 95% interval, its mean, and the typical case.
  function drawDensity(svg, prediction, axis, typical) {
    const { mixture, mean, interval } = prediction;
    const wide = interval[1] - interval[0];
    const low = Math.min(axis[0], interval[0] - 0.25 * wide);
    const high = Math.max(axis[1], interval[1] + 0.25 * wide);
    const at = (y) => {
      const part = (Math.min(Math.max(y, low), high) - low) / (high - low || 1);
      return 8 + part * (WIDTH - 16);
    };
    svg.replaceChildren();
    const first = mixture.discrete ? Math.max(Math.ceil(low), 0) : low;
    const step = mixture.discrete ? Math.max(1, Math.ceil((high - first) / 80)) : (high - low) / 80;
    const grid = [];
    for (let y = first; y <= high; y += step) grid.push(y);
    if (!mixture.discrete) {
      // closer where the density is; the ends of the interval are among these
      for (let k = -30; k <= 130; k++) grid.push(interval[0] + (k / 100) * wide);
      grid.push(high);
      grid.sort((a, b) => a - b);
    }
    const heights = grid.map((y) => mixture.pdf(y));
    const top = Math.max(...heights) || 1;
    const up = (height) => FLOOR - (height / top) * (FLOOR - 14);
    const slack = 1e-9 * wide;
    const inside = (y) => y >= interval[0] - slack && y <= interval[1] + slack;
    if (mixture.discrete) {
      const thick = Math.max(1, Math.min(14, at(first + step) - at(first) - 1));
      grid.forEach((y, k) => {
        const place = { x: at(y) - thick / 2, y: up(heights[k]), width: thick };
        const kind = inside(y) ? "bar c0" : "bar c0 outside";
        draw(svg, "rect", { ...place, height: FLOOR - place.y, class: kind });
      });
    } else {
      const area = (chosen) => {
        const line = chosen.map((k) => `${at(grid[k]).toFixed(2)},${up(heights[k]).toFixed(2)}`);
        const [a, b] = [chosen[0], chosen[chosen.length - 1]];
        const [start, end] = [a, b].map((k) => `${at(grid[k]).toFixed(2)},${FLOOR}`);
        return `${start} ${line.join(" ")} ${end}`;
      };
      const all = grid.map((_, k) => k);
      draw(svg, "polygon", { points: area(all), class: "band c0" });
      const shaded = all.filter((k) => inside(grid[k]));
      draw(svg, "polygon", { points: area(shaded), class: "middle95 c0" });
    }
    draw(svg, "line", { x1: 8, x2: WIDTH - 8, y1: FLOOR, y2: FLOOR, class: "base" });
    if (typical !== null) {
      draw(svg, "line", { x1: at(typical), x2: at(typical), y1: 8, y2: FLOOR, class: "ideal" });
    }
    draw(svg, "line", { x1: at(mean), x2: at(mean), y1: 4, y2: FLOOR, class: "now" });
    const round = niceStep(high - low, 4);
    const marks = [];
    for (let k = Math.ceil(low / round); k * round <= high; k++) marks.push(k * round);
    const [texts, base] = marked(marks, round);
    marks.forEach((y, k) => {
      draw(svg, "line", { x1: at(y), x2: at(y), y1: FLOOR, y2: FLOOR + 4, class: "base" });
      draw(svg, "text", { x: at(y), y: FLOOR + 17, class: "middle" }, texts[k]);
    });
    const more = base ? 16 : 0;
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT + more}`);
    if (more) draw(svg, "text", { x: WIDTH / 2, y: FLOOR + 33, class: "middle" }, `${base} + …`);
  }

  function drawProbabilities(list, prediction) {
    const best = prediction.probabilities.indexOf(Math.max(...prediction.probabilities));
    prediction.probabilities.forEach((p, k) => {
      const item = list.children[k];
      const [low, high] = prediction.intervals[k];
      item.classList.toggle("most-probable", k === best);
      item.querySelector("span").textContent = percentText(p);
      const svg = item.querySelector("svg");
      svg.replaceChildren();
      const bar = { y: 2, height: 8, rx: 2 };
      draw(svg, "rect", { ...bar, x: 0, width: 100, class: "track" });
      draw(svg, "rect", { ...bar, x: 0, width: 100 * p, class: "bar c0" });
      draw(svg, "line", { x1: 100 * low, x2: 100 * high, y1: 6, y2: 6, class: "std" });
      const ends = `${percentText(low)} to ${percentText(high)}`;
      item.querySelector("small").textContent = `95% interval ${ends}`;
    });
    return best;
  }

  // ---- the panel --------------------------------------------------------------------------------

  const source = byId("what-if-data");
  if (source === null) return;
  const { model: packed, page } = JSON.parse(source.textContent);
  const model = new WhatIf.Model(packed, byId("what-if-numbers").textContent.trim());
  const { columns, classes } = model.data;
  const panel = byId("what-if-panel");
  let typical = null;
  let announcement = 0;

  const row = () => {
    const values = columns.map(() => null);
    for (const control of controls) values[control.column] = control.value;
    return values;
  };

  function exact(pairs) {
    const list = byId("what-if-exact");
    list.replaceChildren();
    for (const [name, value] of pairs) {
      const term = document.createElement("dt");
      const digits = document.createElement("dd");
      term.textContent = name;
      digits.textContent = String(value);
      list.append(term, digits);
    }
  }

  function announce(text) {
    clearTimeout(announcement);
    announcement = setTimeout(() => (byId("what-if-live").textContent = text), 400);
  }

  function showNumber(prediction) {
    const decimals = prediction.mixture.discrete ? 0 : decimalsFor(prediction.interval[1] - prediction.interval[0]);
    const [low, high] = prediction.interval.map((end) => numberText(end, decimals));
    const mean = numberText(prediction.mean, prediction.mixture.discrete ? 1 : decimals);
    byId("what-if-mean").textContent = mean;
    byId("what-if-mean").classList.toggle("long", mean.length > 14);
    byId("what-if-interval").textContent = `${low} to ${high}`;
    if (typical === null) typical = prediction.mean;
    byId("what-if-typical").textContent = numberText(typical, prediction.mixture.discrete ? 1 : decimals);
    drawDensity(byId("what-if-picture"), prediction, page.axis, typical);
    exact([["mean", prediction.mean], ["2.5%", prediction.interval[0]], ["97.5%", prediction.interval[1]]]);
    announce(`Prediction ${mean}, 95% interval ${low} to ${high}.`);
  }

  function showClasses(prediction) {
    const best = drawProbabilities(byId("what-if-probabilities"), prediction);
    byId("what-if-mean").textContent = classes[best];
    exact(classes.flatMap((label, k) => [
      [`P(${label})`, prediction.probabilities[k]],
      [`${label}, 2.5%`, prediction.intervals[k][0]],
      [`${label}, 97.5%`, prediction.intervals[k][1]],
    ]));
    announce(`Most probable: ${classes[best]}, ${percentText(prediction.probabilities[best])}.`);
  }

  function update() {
    const values = row();
    const prediction = model.predict(values);
    (classes === null ? showNumber : showClasses)(prediction);
    panel.dataset.row = JSON.stringify(
      values.map((value) => (value === WhatIf.UNSEEN ? { unseen: true } : value)),
    );
    const beyond = controls.filter((control) => control.beyond).length;
    byId("what-if-beyond").hidden = beyond === 0;
  }

  // many movements of a slider within one frame are one update
  let waiting = false;
  const changed = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      update();
    });
  };

  const controls = Array.from(panel.querySelectorAll("[data-column]"), (element) => {
    const { categories } = columns[Number(element.dataset.column)];
    return new Control(element, categories ? Array.from(categories.keys()) : null, changed);
  });
  byId("what-if-form").addEventListener("submit", (event) => event.preventDefault());
  byId("what-if-reset").addEventListener("click", () => {
    controls.forEach((control) => control.reset());
    update();
  });
  panel.hidden = false;
  update();
})();
