"use strict";

// From a raw value to the functions of its column: what data/columns.py and bases/ do in Python.
const Features = (() => {
  const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

  // The coordinate of a raw value: NaN where it is missing, -1 for a category that is not known.
  // A category may also be given as {code}.
  function coordinate(column, value) {
    if (isMissing(value)) return NaN;
    if (column.categories && typeof value === "object") return value.code;
    if (column.categories) return column.categories.has(value) ? column.categories.get(value) : -1;
    if (!column.knots.length) return NaN;
    return interpolated(value, column.knots, column.positions) + excess(column, value);
  }

  // How far a number is beyond the range of the training rows, in units of the range.
  function excess({ knots, farthest }, value) {
    const [first, last] = [knots[0], knots[knots.length - 1]];
    if (knots.length < 2 || (value >= first && value <= last)) return 0;
    const half = Math.max(0.5 * last - 0.5 * first, 2.2250738585072014e-308);
    const beyond = (0.5 * value - 0.5 * (value > last ? last : first)) / half;
    return Math.min(Math.max(beyond, -farthest), farthest);
  }

  // The function with these values at some places, linear between them and constant beyond.
  function interpolated(x, at, values) {
    const last = at.length - 1;
    if (x >= at[last]) return values[last];
    if (x <= at[0]) return values[0];
    let low = 0;
    let high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (at[middle] <= x) low = middle;
      else high = middle;
    }
    if (at[low] === x) return values[low];
    const slope = (values[low + 1] - values[low]) / (at[low + 1] - at[low]);
    return slope * (x - at[low]) + values[low];
  }

  const indicator = (count, place) =>
    Array.from({ length: count }, (_, k) => (k === place ? 1 : 0));
  const clipped = (x) => Math.min(Math.max(x, -1), 1);

  // phi and psi of each kind of basis at a coordinate, which may be NaN for the first three.
  const FEATURES = {
    constant: () => [[1], [1]],

    many_categories(basis, x) {
      const never = basis.n_functions - 1;
      const missing = basis.missing === null ? never : basis.missing;
      const row = indicator(never + 1, Number.isNaN(x) ? missing : x < 0 ? never : x);
      return [row, row];
    },

    with_missing(basis, x) {
      const missing = Number.isNaN(x);
      const never = basis.basis.kind === "categorical" && x < 0;
      if (never || (missing && !basis.saw_missing)) return [basis.average_phi, basis.average_psi];
      const inner = features(basis.basis, missing ? basis.typical : x);
      const flag = missing ? 1 : 0;
      if (basis.indicator === "first") return inner.map((part) => [flag, ...part]);
      if (basis.indicator === "last") return inner.map((part) => [...part, flag]);
      return inner;
    },

    categorical(basis, x) {
      const row = indicator(basis.n_functions, x);
      return [row, row];
    },

    formula(basis, x) {
      const known = new Formulas.Evaluation(basis, { x: clipped(x) });
      return [known.output("phi"), known.output("psi")];
    },
  };

  const features = (basis, x) => FEATURES[basis.kind](basis, x);

  // All functions of a main effect at a coordinate, less their means.
  function effect(terms, column, x) {
    const missing = Number.isNaN(x);
    const unknown = missing || (column.categories && x < 0);
    const values = unknown ? [] : knownEffect(terms, column, x);
    const known = terms.center.length - (terms.missing ? 1 : 0);
    const out = Array.from({ length: known }, (_, k) => (unknown ? 0 : values[k] - terms.center[k]));
    if (terms.missing) out.push((missing ? 1 : 0) - terms.center[known]);
    return out;
  }

  function knownEffect(terms, column, x) {
    const equal = (places, at) => Array.from(places, (place) => (at === place ? 1 : 0));
    if (column.categories) return equal(terms.codes, x);
    if (terms.line === null) return [];
    const at = clipped(x);
    const { line } = terms;
    const further = terms.runs_on ? (x - at) * (line[line.length - 1] - line[0]) : 0;
    const values = [interpolated(at, column.positions, line) + further];
    let [before, now] = [1, at];
    for (let k = 0; k < terms.degree; k++) {
      values.push(now);
      [before, now] = [now, 2 * at * now - before];
    }
    const steps = Array.from(terms.steps, (step) => (at > step ? 1 : 0));
    return values.concat(steps, equal(terms.spikes, at));
  }

  // What stands for a missing value in copy q of a row.
  function filled(columns, j, row, q) {
    const { fills, categories, knots, positions } = columns[j];
    const value = fills.values[q];
    if (Number.isNaN(value)) return null;
    if (categories) return { code: value };
    if (!fills.inputs.length) return value;
    const place = interpolated(value, knots, positions);
    let alone = place;
    let told = fills.center + fills.spread * (place - fills.center); // NaN if any is missing
    fills.inputs.forEach((k, i) => {
      const x = clipped(coordinate(columns[k], row[k]));
      const own = columns[k].fills ? coordinate(columns[k], columns[k].fills.values[q]) : NaN;
      told += fills.slopes[i] * (x - fills.centers[i]);
      if (!Number.isNaN(x - own)) alone += fills.slopes[i] * (x - own);
    });
    return interpolated(clipped(Number.isNaN(told) ? alone : told), positions, knots);
  }

  // A row, or its copies with other values where some are missing.
  function copiesOf(columns, row) {
    const missing = columns.flatMap(({ fills, active }, j) =>
      active && fills && isMissing(row[j]) ? [j] : [],
    );
    if (!missing.length) return [row];
    return Array.from(columns[missing[0]].fills.values, (_, q) => {
      const copy = Array.from(row);
      for (const j of missing) copy[j] = filled(columns, j, row, q);
      return copy;
    });
  }

  return { coordinate, copiesOf, effect, features, interpolated };
})();
