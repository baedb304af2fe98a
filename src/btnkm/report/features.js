"use strict";

// From a raw value to the functions of its column: what columns.py and bases/ do in Python.
const Features = (() => {
  const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

  // The coordinate of a raw value: NaN where it is missing, -1 for a level that is not known.
  function coordinate(column, value) {
    if (isMissing(value)) return NaN;
    if (column.levels) return column.levels.has(value) ? column.levels.get(value) : -1;
    return column.knots.length ? interpolated(value, column.knots, column.positions) : NaN;
  }

  // The function with these values at some places, linear between them and flat beyond.
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
  const held = (x) => Math.min(Math.max(x, -1), 1);

  // phi and psi of each kind of basis at a coordinate; NaN only comes to those that know gaps.
  const FEATURES = {
    constant: () => [[1], [1]],

    levels(basis, x) {
      const never = basis.n_functions - 1;
      const missing = basis.missing === null ? never : basis.missing;
      const row = indicator(never + 1, Number.isNaN(x) ? missing : x < 0 ? never : x);
      return [row, row];
    },

    gapped(basis, x) {
      const missing = Number.isNaN(x);
      const never = basis.basis.kind === "categorical" && x < 0;
      if (never || (missing && !basis.saw_missing)) return [basis.average_phi, basis.average_psi];
      const inner = features(basis.basis, missing ? basis.typical : x);
      const gap = missing ? 1 : 0;
      if (basis.indicator === "first") return inner.map((part) => [gap, ...part]);
      if (basis.indicator === "last") return inner.map((part) => [...part, gap]);
      return inner;
    },

    categorical(basis, x) {
      const row = indicator(basis.n_functions, x);
      return [row, row];
    },

    spiked(basis, x) {
      const here = Array.from(basis.spikes, (spike) => (held(x) === spike ? 1 : 0));
      return features(basis.basis, x).map((part) => [...part, ...here]);
    },

    chebyshev(basis, x) {
      const psi = [1, held(x)];
      // T_{k+j} = 2 T_k T_j - T_{k-j}, with k the greatest power of two below the index
      for (let index = 2, k = 1; index < basis.n_products; index++) {
        if (index > 2 * k) k *= 2;
        psi.push(psi[index - k] * (2 * psi[k]) - psi[2 * k - index]);
      }
      return [psi.slice(0, basis.n_functions), psi.slice(0, basis.n_products)];
    },

    polynomial(basis, x) {
      const m = basis.n_functions;
      const value = held(x);
      let total = 1;
      for (let k = 1; k < m; k++) total = total * value * value + 1;
      const scale = 1 / Math.sqrt(total);
      const powers = (first, count) => {
        const out = [first];
        while (out.length < count) out.push(out[out.length - 1] * value);
        return out;
      };
      const phi = powers(scale, m);
      const psi = powers(scale * scale, 2 * m - 1);
      if (basis.offset !== 0) psi.push(...phi, 1);
      return [phi.map((f) => f + basis.offset), psi];
    },

    fourier(basis, x) {
      const angle = (held(x) + basis.boundary) * (Math.PI / (2 * basis.boundary));
      const phi = Array.from(basis.weights, (weight, k) => weight * Math.sin((k + 1) * angle));
      return [phi, Array.from({ length: basis.n_products }, (_, k) => Math.cos(k * angle))];
    },

    bspline(basis, x) {
      const m = basis.n_functions;
      const local = bSplines(held(x), m, basis.degree);
      const phi = Array.from({ length: m }, (_, k) => {
        let sum = 0;
        for (let i = 0; i < m; i++) sum += local[i] * basis.coefficients.data[i * m + k];
        return sum;
      });
      const psi = [];
      for (let d = 0; d <= basis.degree; d++) {
        for (let i = 0; i + d < m; i++) psi.push(local[i] * local[i + d]);
      }
      return [phi, psi];
    },
  };

  const features = (basis, x) => FEATURES[basis.kind](basis, x);

  // All functions of a main effect at a coordinate, less their means.
  function effect(own, column, x) {
    const missing = Number.isNaN(x);
    const unknown = missing || (column.levels && x < 0);
    const values = unknown ? [] : knownEffect(own, column, x);
    const known = own.center.length - (own.missing ? 1 : 0);
    const out = Array.from({ length: known }, (_, k) => (unknown ? 0 : values[k] - own.center[k]));
    if (own.missing) out.push((missing ? 1 : 0) - own.center[known]);
    return out;
  }

  function knownEffect(own, column, x) {
    const equal = (places, at) => Array.from(places, (place) => (at === place ? 1 : 0));
    if (column.levels) return equal(own.codes, x);
    if (own.line === null) return [];
    const at = held(x);
    const values = [interpolated(at, column.positions, own.line)];
    let [before, now] = [1, at];
    for (let k = 0; k < own.degree; k++) {
      values.push(now);
      [before, now] = [now, 2 * at * now - before];
    }
    const steps = Array.from(own.steps, (step) => (at > step ? 1 : 0));
    return values.concat(steps, equal(own.spikes, at));
  }

  // The m clamped B-splines on equally spaced knots, by the recursion of Cox and de Boor.
  function bSplines(x, m, degree) {
    const pieces = m - degree;
    const u = (x + 1) * (0.5 * pieces);
    const piece = Math.min(Math.max(Math.floor(u), 0), pieces - 1);
    const knot = (k) => Math.min(Math.max(k, 0), pieces);
    let values = [1];
    for (let q = 1; q <= degree; q++) {
      const raised = new Array(q + 1).fill(0);
      values.forEach((value, r) => {
        const [start, end] = [knot(piece + r - q + 1), knot(piece + r + 1)];
        const rise = value * ((u - start) / (end - start));
        raised[r] += value - rise;
        raised[r + 1] += rise;
      });
      values = raised;
    }
    const local = new Array(m).fill(0);
    values.forEach((value, r) => (local[piece + r] = value));
    return local;
  }

  return { coordinate, effect, features };
})();
