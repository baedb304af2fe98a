"use strict";

// Predictions of a fitted model, made in the browser from the data that portable.py describes:
// for one row of raw values the mean and the exact interval of y, or the probability of each class.
// Every function agrees with its counterpart in Python to about 1e-12.
const WhatIf = (() => {
  const { normalCdf, normalGrid, normalPdf, normalQuantile, sigmoid, squareRoot } = Numerics;
  const { coordinate, copiesOf, effect, features, interpolated } = Features;

  // ---- moments of f ---------------------------------------------------------------------------

  // A vector times as many leading rows of a matrix as there are.
  function times(vector, matrix) {
    const { data, rows, columns } = matrix;
    const out = new Float64Array(columns);
    for (let i = 0; i < rows; i++) {
      const v = vector[i];
      if (v === 0) continue;
      for (let j = 0, at = i * columns; j < columns; j++, at++) out[j] += v * data[at];
    }
    return out;
  }

  // How often each pair r <= s stands in a matrix.
  function pairCounts(rank) {
    const counts = [];
    for (let r = 0; r < rank; r++) for (let s = r; s < rank; s++) counts.push(r === s ? 1 : 2);
    return counts;
  }

  // A row vector times the matrix of one more mode of a tensor train.
  function apply(vector, matrix, counts) {
    const width = matrix.length / vector.length;
    const out = new Float64Array(width);
    for (let p = 0; p < vector.length; p++) {
      const v = vector[p] * (counts ? counts[p] : 1);
      for (let q = 0; q < width; q++) out[q] += v * matrix[p * width + q];
    }
    return out;
  }

  // Divide by powers of two, which are exact, so that hundreds of modes stay within a double's
  // range: each component by its own, or all entries by the same (a tensor train). ``power`` keeps them.
  function rescale(product) {
    const { mean, second, power } = product;
    const rank = mean.length;
    const sizes = [];
    for (let r = 0, at = 0; r < rank; at += rank - r, r++) {
      sizes.push(Math.max(Math.abs(mean[r]), Math.sqrt(Math.abs(second[at]))));
    }
    const some = power.length === 1 ? [Math.max(...sizes)] : sizes;
    const shifts = some.map((size) => (size > 1e-307 ? Math.round(Math.log2(size)) : 0));
    scale(product, shifts.map((shift) => -shift));
    product.power = power.map((before, k) => before + shifts[k]);
  }

  function scale({ mean, second }, power) {
    const factor = (r) => 2 ** power[power.length === 1 ? 0 : r];
    for (let r = 0, at = 0; r < mean.length; r++) {
      mean[r] *= factor(r);
      for (let s = r; s < mean.length; s++, at++) second[at] *= factor(r) * factor(s);
    }
  }

  const RESCALE_EVERY = 16;

  // Means and packed second moments of the product of all modes of one restart.
  function productOf(restart, row) {
    let product = null;
    restart.modes.forEach((mode, d) => {
      const [phi, psi] = mode.column === null ? [[1], [1]] : row.features(mode.column, mode.basis);
      const mean = times(phi, mode.mean);
      const second = times(psi, mode.second);
      if (product === null) {
        product = { mean, second, power: restart.network === "cp" ? Array.from(mean, () => 0) : [0] };
      } else if (restart.network === "cp") {
        mean.forEach((value, r) => (product.mean[r] *= value));
        second.forEach((value, p) => (product.second[p] *= value));
      } else {
        product.mean = apply(product.mean, mean, null);
        product.second = apply(product.second, second, pairCounts(mode.shape[0]));
      }
      if ((d + 1) % RESCALE_EVERY === 0) rescale(product);
    });
    scale(product, product.power.map((power) => Math.min(Math.max(power, -1000), 500)));
    return product;
  }

  const dot = (a, b) => {
    let sum = 0;
    for (let k = 0; k < a.length; k++) sum += a[k] * b[k];
    return sum;
  };

  // E[a] and Var[a] of a sum of main effects, for each output; zeros if there is none.
  function mainEffects(sums, row, count) {
    const none = Array.from({ length: count }, () => 0);
    if (sums === null) return { mean: none, variance: none };
    const { inputs, mean, cov } = sums;
    const g = [1];
    for (const input of inputs) {
      const values = row.effect(input.column, input.effect);
      for (const place of input.functions) g.push(values[place]);
    }
    return {
      mean: none.map((_, k) => dot(g, mean.data.subarray(k * mean.columns))),
      variance: none.map((_, k) => quadratic(g, cov.data.subarray(k * cov.columns))),
    };
  }

  // g^T C g, given the upper triangle of C.
  function quadratic(g, upper) {
    let sum = 0;
    for (let p = 0, at = 0; p < g.length; p++) {
      let line = 0.5 * upper[at++] * g[p];
      for (let q = p + 1; q < g.length; q++, at++) line += upper[at] * g[q];
      sum += 2 * g[p] * line;
    }
    return sum;
  }

  // What is added to Var[f] of each of so many outputs beyond the range of the training rows.
  function widening(restart, row, count) {
    const added = Array.from({ length: count }, () => 0);
    for (const { column, below, above } of restart.widening) {
      const x = row.coordinate(column);
      const e = Number.isNaN(x) ? 0 : Math.max(Math.abs(x) - 1, 0);
      if (e === 0) continue;
      const { data, rows, columns } = x < 0 ? below : above;
      const places = Array.from({ length: rows }, (_, k) => k / (rows - 1));
      for (let k = 0; k < count; k++) {
        const values = places.map((_, i) => data[i * columns + k]);
        added[k] += interpolated(e, places, values) * Math.max(e, 1) ** 2;
      }
    }
    const most = restart.widest ?? Infinity;
    return added.map((value) => Math.min(value, most));
  }

  // E[f] and Var[f] of one restart.
  function moments(restart, row) {
    const wider = widening(restart, row, 1);
    if (restart.kernel !== null) {
      const { mean, variance } = row.kernel(restart.kernel);
      return { mean: mean[0], variance: variance[0] + wider[0] };
    }
    const added = mainEffects(restart.sums, row, 1);
    let [first, variance] = [0, 0];
    if (restart.modes.length) {
      const { mean, second } = productOf(restart, row);
      first = mean.reduce((a, b) => a + b, 0);
      variance = Math.max(dot(second, restart.multiplicity) - first * first, 0);
    }
    variance = Math.max(variance + added.variance[0], restart.least);
    return { mean: added.mean[0] + first, variance: variance + wider[0] };
  }

  // E[f] and Cov[f] = root root^T + diag(diagonal) of the K outputs of one restart.
  function joint(restart, row) {
    const wider = widening(restart, row, restart.least.length);
    if (restart.kernel !== null) {
      const { mean, variance } = row.kernel(restart.kernel);
      const diagonal = variance.map((value, k) => value + wider[k]);
      return { mean, diagonal, root: mean.map(() => []) };
    }
    const added = mainEffects(restart.sums, row, restart.least.length);
    if (!restart.modes.length) {
      const diagonal = added.variance.map(
        (value, k) => Math.max(value, restart.least[k]) + wider[k],
      );
      return { mean: added.mean, diagonal, root: diagonal.map(() => []) };
    }
    const product = productOf(restart, row);
    const rank = product.mean.length;
    const covariance = Array.from({ length: rank }, () => new Float64Array(rank));
    for (let r = 0, at = 0; r < rank; r++) {
      for (let s = r; s < rank; s++, at++) {
        const spread = product.second[at] - product.mean[r] * product.mean[s];
        covariance[r][s] = covariance[s][r] = spread;
      }
    }
    const half = squareRoot(covariance);
    const { mean: weights, second: squares } = restart.output;
    const counted = product.second.map((value, p) => value * restart.multiplicity[p]);
    const out = { mean: [], diagonal: [], root: [] };
    for (let k = 0; k < weights.rows; k++) {
      const w = weights.data.subarray(k * rank, (k + 1) * rank);
      const mean = dot(w, product.mean);
      const second = dot(counted, squares.data.subarray(k * counted.length));
      const root = half.map((column) => dot(w, column));
      const variance = Math.max(second - mean * mean + added.variance[k], restart.least[k]);
      out.mean.push(mean + added.mean[k]);
      out.root.push(root);
      out.diagonal.push(Math.max(variance - dot(root, root), 0) + wider[k]);
    }
    return out;
  }

  // ---- distributions of y ---------------------------------------------------------------------

  // The moments of the log precision of noise that varies, as inputs of a formula.
  function noiseMoments(restart, row) {
    const { mean, variance } = mainEffects(restart.noise, row, 1);
    return { g_mean: mean[0], g_variance: variance[0] };
  }

  // The distribution of y for f ~ N(mean, variance), by the formula of a likelihood: its mean, cdf,
  // pdf (the probability of a count) and the width on which it changes.
  function density(likelihood, mean, variance, noise) {
    const { discrete } = likelihood;
    const known = new Formulas.Evaluation(likelihood, { mean, variance, y: 0, ...noise });
    const at = (y, name) => known.with("y", y).output(name)[0];
    const central = "central_variance" in likelihood.outputs ? "central_variance" : "noise_variance";
    return {
      discrete,
      mean: known.output("mean")[0],
      // that of noise with heavy tails as if it were normal
      variance: () => known.output("model_variance")[0] + known.output(central)[0],
      width: known.output("width")[0],
      pdf: (y) => at(y, "pdf"),
      cdf: (y) => (discrete && y < 0 ? 0 : Math.min(at(discrete ? Math.floor(y) : y, "cdf"), 1)),
    };
  }

  const normal = (mean, variance) => {
    const scale = Math.sqrt(variance);
    return {
      mean,
      width: scale,
      cdf: (x) => normalCdf((x - mean) / scale),
      pdf: (x) => normalPdf((x - mean) / scale) / scale,
    };
  };

  // What held-out rows make of a distribution, or of probabilities; see portable.py.
  class Calibration {
    constructor(data) {
      Object.assign(this, data);
      this.first = data.lower[0];
      this.last = data.lower[data.lower.length - 1];
    }

    // T(z), and its slope.
    forward(z) {
      const inside = Math.min(Math.max(z, this.first), this.last);
      const w = (inside - this.shift) / this.scale;
      const t = Math.sinh(this.tails * Math.asinh(w) - this.skew);
      const slope = (this.tails / this.scale) * Math.sqrt((1 + t * t) / (1 + w * w));
      return [t + slope * (z - inside), slope];
    }

    inverse(t) {
      const ends = [this.forward(this.first)[0], this.forward(this.last)[0]];
      const inside = Math.min(Math.max(t, ends[0]), ends[1]);
      const w = Math.sinh((Math.asinh(inside) + this.skew) / this.tails);
      const z = this.shift + this.scale * w;
      return z + (t - inside) / this.forward(z)[1];
    }

    // The score of the end of a central interval, given the probability below it.
    end(level) {
      const count = this.lower.length;
      const rank = Math.floor((count + 1) * Math.min(level, 1 - level) * (1 + 1e-9));
      if (rank >= 1) return level < 0.5 ? this.lower[rank - 1] : this.upper[count - rank];
      const z = this.inverse(normalQuantile(level));
      return level < 0.5 ? Math.min(z, this.first) : Math.max(z, this.upper[count - 1]);
    }
  }

  // Probabilities of classes after temperature scaling; an offset is that of the second of two.
  function scaledProbabilities(calibration, probabilities) {
    if (calibration === null) return probabilities;
    const { slope, offset } = calibration;
    const x = probabilities.map((p, k) => slope * Math.log(Math.max(p, TINY)) + (k ? offset : 0));
    const top = Math.max(...x);
    const total = x.reduce((sum, value) => sum + Math.exp(value - top), 0);
    return x.map((value) => Math.max(Math.exp(value - top) / total, TINY));
  }

  // A function h with h(y) = shift + scale * target, from its formula; see Transformed.portable.
  class Transformation {
    constructor(formula) {
      this.formula = formula;
      [this.low, this.high] = formula.support.map((end, k) => end ?? [-Infinity, Infinity][k]);
    }

    output(name, inputs) {
      return new Formulas.Evaluation(this.formula, inputs).output(name)[0];
    }

    inverse(z) {
      return this.output("y", { z });
    }

    // The mean of y for a normal h(y).
    mean(mean, variance) {
      return this.output("y_mean", { mean, variance });
    }

    // h(y) and its slope; infinite and zero where y is impossible.
    forward(y) {
      if (y <= this.low) return { z: -Infinity, slope: 0 };
      if (y >= this.high) return { z: Infinity, slope: 0 };
      return { z: this.output("z", { y }), slope: this.output("slope", { y }) };
    }
  }

  // The mixture over restarts, in units of y.
  class Mixture {
    constructor(parts, weights, shift, scale, transformation = null, calibration = null) {
      this.calibration = calibration && new Calibration(calibration);
      Object.assign(this, { parts, weights, shift, scale, discrete: Boolean(parts[0].discrete) });
      this.transformation = transformation && new Transformation(transformation);
      this.mean = this.transformation
        ? this.average((part) =>
            this.transformation.mean(shift + scale * part.mean, scale * scale * part.variance()),
          )
        : shift + scale * this.average((part) => part.mean);
    }

    average(of) {
      return this.parts.reduce((total, part, s) => total + this.weights[s] * of(part), 0);
    }

    pdf(y) {
      const density = this.plainPdf(y);
      if (!this.calibration) return density;
      if (this.discrete) return this.cdf(y) - this.cdf(y - 1);
      const z = normalQuantile(this.plainCdf(y));
      if (!Number.isFinite(z)) return 0;
      const [t, slope] = this.calibration.forward(z);
      return density * slope * Math.exp(0.5 * (z * z - t * t));
    }

    // The same without recalibration.
    plainPdf(y) {
      if (this.transformation) {
        const { z, slope } = this.transformation.forward(y);
        if (slope === 0) return 0;
        const at = (z - this.shift) / this.scale;
        return (slope * this.average((part) => part.pdf(at))) / this.scale;
      }
      const at = (y - this.shift) / this.scale;
      return this.average((part) => part.pdf(at)) / this.scale;
    }

    cdf(y) {
      const p = this.plainCdf(y);
      if (!this.calibration || p <= 0 || p >= 1) return p;
      return normalCdf(this.calibration.forward(normalQuantile(p))[0]);
    }

    // The same without recalibration.
    plainCdf(y) {
      if (this.transformation) {
        const { z } = this.transformation.forward(y);
        if (!Number.isFinite(z)) return z < 0 ? 0 : 1;
        return this.standardCdf((z - this.shift) / this.scale);
      }
      return this.standardCdf((y - this.shift) / this.scale);
    }

    // The end of the central interval that is below or above y with a probability.
    end(level) {
      if (!this.calibration) return this.quantile(level);
      const outward = level < 0.5 ? -1e-9 : 1e-9; // whatever the rounding
      return this.quantile(normalCdf(this.calibration.end(level) + (this.discrete ? outward : 0)));
    }

    standardCdf(y) {
      return this.average((part) => part.cdf(y));
    }

    // Newton steps where they converge fast; elsewhere the bracket is halved.
    quantile(level) {
      if (this.discrete) return this.integerQuantile(level);
      let [low, high] = this.bracket(level);
      let x = 0.5 * (low + high);
      let last = high - low;
      const narrowest = Math.min(...this.parts.map((part) => part.width));
      for (let k = 0; k < 300; k++) {
        const excess = this.standardCdf(x) - level;
        if (excess < 0) low = x;
        else high = x;
        const newton = x - excess / this.average((part) => part.pdf(x));
        const fast = newton > low && newton < high && Math.abs(newton - x) < 0.5 * last;
        const next = fast ? newton : low + 0.5 * (high - low);
        last = Math.abs(next - x);
        x = next;
        if (last <= 1e-14 * narrowest + 1e-16 * Math.abs(x)) break;
      }
      const z = this.shift + this.scale * x;
      return this.transformation ? this.transformation.inverse(z) : z;
    }

    // Lower and upper bounds of the quantile, increasingly far from the means.
    bracket(level) {
      for (let reach = 4; ; reach *= 2) {
        const low = Math.min(...this.parts.map((part) => part.mean - reach * part.width));
        const high = Math.max(...this.parts.map((part) => part.mean + reach * part.width));
        const within = this.standardCdf(low) < level && this.standardCdf(high) > level;
        if (within || reach > 1e15) return [low, high];
      }
    }

    // The smallest count whose distribution function reaches the level.
    integerQuantile(level) {
      let low = -1;
      let high = Math.ceil(Math.min(Math.max(...this.parts.map((part) => part.mean)), 1e15)) + 1;
      for (let k = 0; k < 60 && this.standardCdf(high) < level; k++) high *= 2;
      for (;;) {
        const middle = Math.floor(0.5 * (low + high));
        if (middle <= low || middle >= high) return high;
        if (this.standardCdf(middle) >= level) high = middle;
        else low = middle;
      }
    }
  }

  // ---- classes --------------------------------------------------------------------------------

  const TINY = 2 ** -1022; // the smallest probability
  const FINE_GRID = normalGrid(8.5, 0.1);

  // E[sigma(f)] for f ~ N(mean, variance).
  function expectedSigmoid(mean, variance) {
    const std = Math.sqrt(variance);
    return FINE_GRID.reduce((sum, [z, weight]) => sum + weight * sigmoid(mean + std * z), 0);
  }

  // Probabilities of two classes, and the interval of that of the second.
  function ofTwo(data, parts, levels) {
    const { threshold, weights } = data;
    const least = threshold !== null;
    const each = parts.map(({ restart, mean, variance }) => {
      const { likelihood } = restart;
      return [-1, 1].map((sign) => {
        if (!least) return expectedSigmoid(sign * (mean + likelihood.offset), variance);
        return density(likelihood, -sign * mean, variance).cdf(-sign * threshold);
      });
    });
    const probabilities = [0, 1].map((k) =>
      Math.max(each.reduce((sum, p, s) => sum + weights[s] * p[k], 0), TINY),
    );
    const f = parts.map(({ restart, mean, variance }) =>
      normal(mean + (least ? 0 : restart.likelihood.offset), Math.max(variance, 1e-300)),
    );
    const mixture = new Mixture(f, weights, 0, 1);
    const { calibration } = data;
    const ends = levels.map((level) => {
      const end = mixture.quantile(level);
      const p = least ? normalCdf((end - threshold) / data.noise_std) : sigmoid(end);
      return scaledProbabilities(calibration, [1 - p, p])[1];
    });
    return {
      probabilities: scaledProbabilities(calibration, probabilities),
      intervals: [ends.map((end) => 1 - end).reverse(), ends],
    };
  }

  // Points of a scrambled Sobol sequence, as normal variables, from its directions: the integers
  // of point 0, and those by which points with a single bit in their Gray code differ from it.
  function normalPoints(directions, count) {
    const { data, rows: bits, columns: dimension } = directions;
    const points = [];
    const integers = Array.from(data.subarray(0, dimension));
    for (let n = 0; n < count; n++) {
      if (n > 0) {
        const bit = 31 - Math.clz32(n & -n); // by which the Gray codes of n - 1 and n differ
        for (let k = 0; k < dimension; k++) integers[k] ^= data[(bit + 1) * dimension + k];
      }
      points.push(
        Float64Array.from(integers, (value) =>
          normalQuantile(Math.min(Math.max(value * 2 ** -30, 1e-9), 1 - 1e-9)),
        ),
      );
    }
    if (2 ** (bits - 1) < count) throw new Error("too few directions for so many points");
    return points;
  }

  // Probabilities of three classes or more, and the interval of each.
  function ofMany(data, joints, levels) {
    const n = data.classes.length;
    const sums = new Float64Array(n);
    const samples = Array.from({ length: n }, () => []);
    joints.forEach(({ restart, mean, diagonal, root }, s) => {
      const shared = root[0].length;
      const { probability, interval } = data.n_points;
      const weight = data.weights[s] / probability;
      const points = data.points(n + shared).slice(0, Math.max(probability, interval));
      const deviation = diagonal.map(Math.sqrt);
      points.forEach((z, index) => {
        const x = mean.map((m, k) => {
          const across = dot(root[k], z.subarray(n));
          return m + restart.likelihood.offsets[k] + deviation[k] * z[k] + across;
        });
        const top = Math.max(...x);
        const weights = x.map((value) => Math.exp(value - top));
        const total = weights.reduce((a, b) => a + b, 0);
        const p = weights.map((unscaled) => unscaled / total);
        scaledProbabilities(data.calibration, p).forEach((scaled, k) => {
          if (index < interval) samples[k].push([scaled, data.weights[s] / interval]);
          if (index < probability) sums[k] += weight * p[k];
        });
      });
    });
    return {
      probabilities: scaledProbabilities(
        data.calibration,
        Array.from(sums, (sum) => Math.max(sum, TINY)),
      ),
      intervals: samples.map((pairs) => weightedQuantiles(pairs, levels)),
    };
  }

  // Weighted quantiles, interpolated at the middle of each weight.
  function weightedQuantiles(pairs, levels) {
    const sorted = pairs.slice().sort((a, b) => a[0] - b[0]);
    let total = 0;
    const reached = sorted.map(([, weight]) => (total += weight) - 0.5 * weight);
    return levels.map((level) => {
      const first = reached.findIndex((value) => value >= level);
      const last = sorted.length - 1;
      const above = Math.min(Math.max(first < 0 ? last : first, 1), last);
      const width = Math.max(reached[above] - reached[above - 1], 1e-300);
      const part = Math.min(Math.max((level - reached[above - 1]) / width, 0), 1);
      const [low, high] = [sorted[above - 1][0], sorted[above][0]];
      return low + part * (high - low);
    });
  }

  // ---- the data in the page -------------------------------------------------------------------

  // Arrays in the data are {"array": [place, rows, columns]}, or without columns, of float64
  // numbers that are stored consecutively in ``base64``.
  function unpack(data, base64) {
    const text = atob(base64);
    const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const numbers = new Float64Array(bytes.length / 8);
    for (let k = 0; k < numbers.length; k++) numbers[k] = view.getFloat64(8 * k, true);
    const unpacked = (value) => {
      if (Array.isArray(value)) return value.map(unpacked);
      if (value === null || typeof value !== "object") return value;
      if (!Array.isArray(value.array)) {
        return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, unpacked(v)]));
      }
      const [place, rows, columns] = value.array;
      if (columns === undefined) return numbers.subarray(place, place + rows);
      return { data: numbers.subarray(place, place + rows * columns), rows, columns };
    };
    return unpacked(data);
  }

  // A model whose ``predict(row, levels)`` takes one raw value for every column: a number (dates
  // and durations in microseconds), text, or null where it is missing. It returns the mean, the
  // ends of the interval and the mixture itself, or the probabilities of the classes with theirs.
  class Model {
    constructor(packed, base64) {
      this.data = unpack(packed, base64);
      for (const column of this.data.columns) {
        if (column.categories) column.categories = new Map(column.categories);
      }
      const known = new Map();
      this.data.points = (dimension) => {
        if (!known.has(dimension)) {
          const directions = this.data.directions[String(dimension)];
          known.set(dimension, normalPoints(directions, this.data.n_points.interval));
        }
        return known.get(dimension);
      };
    }

    // The functions of a row's values: those of one of a column's bases, and of a main effect; and
    // the moments of a kernel machine.
    functionsOf(row) {
      const made = new Map();
      const once = (j, kind, place, make) => {
        const key = `${kind} ${j} ${place}`;
        if (!made.has(key)) {
          const column = this.data.columns[j];
          made.set(key, make(column[kind][place], column, coordinate(column, row[j])));
        }
        return made.get(key);
      };
      return {
        features: (j, place) => once(j, "bases", place, (basis, _, x) => features(basis, x)),
        effect: (j, place) => once(j, "effects", place, effect),
        coordinate: (j) => coordinate(this.data.columns[j], row[j]),
        kernel: (kernel) => {
          const { columns } = this.data;
          return Kernels.moments(kernel, columns, row, (j) => coordinate(columns[j], row[j]));
        },
      };
    }

    // The data with a weight for each restart in each of so many copies of a row.
    forCopies(count) {
      if (count === 1) return this.data;
      const { weights, n_points: points } = this.data;
      const each = Array.from(weights, (weight) => weight / count);
      return {
        ...this.data,
        weights: Array.from({ length: count }, () => each).flat(),
        n_points: { ...points, interval: points.copy },
      };
    }

    predict(row, levels = [0.025, 0.975]) {
      const copies = copiesOf(this.data.columns, row).map((copy) => this.functionsOf(copy));
      const data = this.forCopies(copies.length);
      const { restarts, weights, classes, shift, scale, transformation, calibration } = data;
      const everywhere = (make) =>
        copies.flatMap((at) => restarts.map((restart) => ({ restart, at, ...make(restart, at) })));
      if (classes !== null && classes.length > 2) return ofMany(data, everywhere(joint), levels);
      const parts = everywhere(moments);
      if (classes !== null) return ofTwo(data, parts, levels);
      const mixture = new Mixture(
        parts.map(({ restart, at, mean, variance }) =>
          density(restart.likelihood, mean, variance, noiseMoments(restart, at)),
        ),
        weights,
        shift,
        scale,
        transformation,
        calibration,
      );
      const interval = levels.map((level) => mixture.end(level));
      return { mean: mixture.mean, interval, mixture };
    }
  }

  return { Model, UNSEEN: Symbol("a category never seen") };
})();
