"use strict";

// Kernel machines: what core/full.py does in Python. A row is compared with the
// training rows; variances need a Cholesky factor, which is computed when it is first used.
const Kernels = (() => {
  // A separate loop, which browsers optimise: there may be millions of pairs of rows.
  function compare(out, u, at, length, rough) {
    const [scale, smooth] = [Math.sqrt(3) / length, 1 - rough];
    for (let k = 0; k < out.length; k++) {
      const r = scale * Math.abs(u[k] - at);
      out[k] = smooth * Math.exp((-r * r) / 6) + rough * (1 + r) * Math.exp(-r);
    }
  }
  const held = (x, low, high) => Math.min(Math.max(x, low), high);

  // The numbers of the kernel for a raw value with this coordinate.
  function seen(own, column, value, x) {
    const known = Number.isNaN(x) ? 0 : 1;
    if (column.levels) return { t: 0, u: known ? x : 0, known };
    const { knots } = column;
    const line = known && own.line > 0;
    const away = line ? held(value, knots[0], knots[knots.length - 1]) - knots[0] : 0;
    const u = known ? (held(x, -1, 1) - own.center) / own.scale : 0;
    return { t: line ? own.begin + own.slope * away : 0, u, known };
  }

  // The same for a training row.
  const seenThen = ({ t, u, known }, row) => ({
    t: t ? t[row] : 0,
    u: u ? u[row] : 0,
    known: known ? known[row] : 1,
  });

  // The correlation of a value with those of the first training rows, into ``out``.
  function correlate(out, own, categorical, at, length) {
    const { u, known } = own.rows;
    if (!at.known) {
      out.fill(0);
      return;
    }
    if (categorical) {
      for (let k = 0; k < out.length; k++) out[k] = at.u === u[k] && at.u >= 0 ? 1 : 0;
    } else {
      compare(out, u, at.u, length, own.rough);
    }
    if (known) for (let k = 0; k < out.length; k++) out[k] *= known[k];
  }

  // k between a row and the first ``count`` training rows.
  function covariances(kernel, columns, row, count) {
    const total = new Float64Array(count).fill(kernel.constant);
    const product = new Float64Array(count).fill(kernel.product);
    const kappa = new Float64Array(count);
    kernel.inputs.forEach((own, d) => {
      const at = row[d];
      const categorical = Boolean(columns[own.column].levels);
      if (own.line > 0 && at.t !== 0) {
        const slope = own.line * at.t;
        const { t } = own.rows;
        for (let k = 0; k < count; k++) total[k] += slope * t[k];
      }
      if (own.missing > 0 && !at.known && own.rows.known) {
        const { known } = own.rows;
        for (let k = 0; k < count; k++) total[k] += own.missing * (1 - known[k]);
      }
      if (own.curve > 0) {
        correlate(kappa, own, categorical, at, own.curve_length);
        const size = own.curve;
        for (let k = 0; k < count; k++) total[k] += size * kappa[k];
      }
      if (own.factor > 0) {
        correlate(kappa, own, categorical, at, own.factor_length);
        const [least, share] = [1 / (1 + own.factor), own.factor / (1 + own.factor)];
        for (let k = 0; k < count; k++) product[k] *= least + share * kappa[k];
      }
    });
    for (let k = 0; k < count; k++) total[k] += product[k];
    return total;
  }

  // k of a row with itself.
  function variance(kernel, row) {
    let [total, product] = [kernel.constant, kernel.product];
    kernel.inputs.forEach((own, d) => {
      const { t, known } = row[d];
      total += own.line * t * t + own.curve * known + own.missing * (1 - known);
      product *= (1 + own.factor * known) / (1 + own.factor);
    });
    return total + product;
  }

  const begin = (row) => (row * (row + 1)) / 2; // where a row of a packed triangle begins

  // The lower Cholesky factor of the triangle of a matrix, in place.
  function factorise(lower, size) {
    for (let i = 0; i < size; i++) {
      const own = begin(i);
      for (let j = 0; j < i; j++) {
        const other = begin(j);
        let [first, second, third, fourth] = [0, 0, 0, 0];
        let k = 0;
        for (; k + 3 < j; k += 4) {
          first += lower[own + k] * lower[other + k];
          second += lower[own + k + 1] * lower[other + k + 1];
          third += lower[own + k + 2] * lower[other + k + 2];
          fourth += lower[own + k + 3] * lower[other + k + 3];
        }
        for (; k < j; k++) first += lower[own + k] * lower[other + k];
        const known = first + second + (third + fourth);
        lower[own + j] = (lower[own + j] - known) / lower[other + j];
      }
      let left = lower[own + i];
      for (let k = 0; k < i; k++) left -= lower[own + k] ** 2;
      lower[own + i] = Math.sqrt(Math.max(left, 1e-14 * lower[own + i]));
    }
    return lower;
  }

  // Cholesky factors of the covariance of the training targets, for each output.
  function factors(kernel, columns) {
    const { data, rows: outputs, columns: size } = kernel.noise;
    const matrix = new Float64Array(begin(size));
    for (let i = 0; i < size; i++) {
      const row = kernel.inputs.map((own) => seenThen(own.rows, i));
      matrix.set(covariances(kernel, columns, row, i + 1), begin(i));
    }
    return Array.from({ length: outputs }, (_, k) => {
      const own = k + 1 < outputs ? matrix.slice() : matrix;
      for (let i = 0; i < size; i++) own[begin(i) + i] += data[k * size + i];
      return factorise(own, size);
    });
  }

  // |L^-1 v|^2 for a lower triangle L.
  function explained(lower, vector) {
    const solved = new Float64Array(vector.length);
    let total = 0;
    for (let i = 0; i < solved.length; i++) {
      const own = begin(i);
      let left = vector[i];
      for (let k = 0; k < i; k++) left -= lower[own + k] * solved[k];
      solved[i] = left / lower[own + i];
      total += solved[i] ** 2;
    }
    return total;
  }

  const made = new WeakMap(); // factors of each kernel

  // E[f] and Var[f] of every output at a row of raw values with these coordinates.
  function moments(kernel, columns, values, coordinateOf) {
    if (!made.has(kernel)) made.set(kernel, factors(kernel, columns));
    const row = kernel.inputs.map((own) => {
      return seen(own, columns[own.column], values[own.column], coordinateOf(own.column));
    });
    const { data, rows: outputs, columns: size } = kernel.alpha;
    const v = covariances(kernel, columns, row, size);
    const prior = variance(kernel, row);
    const out = { mean: [], variance: [] };
    for (let k = 0; k < outputs; k++) {
      let mean = 0;
      for (let i = 0; i < size; i++) mean += v[i] * data[k * size + i];
      out.mean.push(mean);
      const left = prior - explained(made.get(kernel)[k], v);
      out.variance.push(Math.max(left, 1e-12 * prior));
    }
    return out;
  }

  return { moments };
})();
