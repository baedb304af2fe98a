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
  const clipped = (x, low, high) => Math.min(Math.max(x, low), high);

  // What the kernel needs of a raw value with this coordinate.
  function ofValue(input, column, value, x) {
    const known = Number.isNaN(x) ? 0 : 1;
    if (column.categories) return { t: 0, u: known ? x : 0, known };
    const { knots } = column;
    const line = known && input.line > 0;
    const span = knots[knots.length - 1] - knots[0];
    let away = line ? clipped(value, knots[0], knots[knots.length - 1]) - knots[0] : 0;
    if (line && input.runs_on) away += (x - clipped(x, -1, 1)) * span;
    const u = known ? (clipped(x, -1, 1) - input.center) / input.scale : 0;
    return { t: line ? input.begin + input.slope * away : 0, u, known };
  }

  // The same for a training row.
  const ofTrainingRow = ({ t, u, known }, row) => ({
    t: t ? t[row] : 0,
    u: u ? u[row] : 0,
    known: known ? known[row] : 1,
  });

  // The correlation of a value with those of the first training rows, into ``out``.
  function correlate(out, input, categorical, at, length) {
    const { u, known } = input.rows;
    if (!at.known) {
      out.fill(0);
      return;
    }
    if (categorical) {
      for (let k = 0; k < out.length; k++) out[k] = at.u === u[k] && at.u >= 0 ? 1 : 0;
    } else {
      compare(out, u, at.u, length, input.rough);
    }
    if (known) for (let k = 0; k < out.length; k++) out[k] *= known[k];
  }

  // k between a row and the first ``count`` training rows.
  function covariances(kernel, columns, row, count) {
    const total = new Float64Array(count).fill(kernel.constant);
    const product = new Float64Array(count).fill(kernel.product);
    const kappa = new Float64Array(count);
    kernel.inputs.forEach((input, d) => {
      const at = row[d];
      const categorical = Boolean(columns[input.column].categories);
      if (input.line > 0 && at.t !== 0) {
        const slope = input.line * at.t;
        const { t } = input.rows;
        for (let k = 0; k < count; k++) total[k] += slope * t[k];
      }
      if (input.missing > 0 && !at.known && input.rows.known) {
        const { known } = input.rows;
        for (let k = 0; k < count; k++) total[k] += input.missing * (1 - known[k]);
      }
      if (input.curve > 0) {
        correlate(kappa, input, categorical, at, input.curve_length);
        const size = input.curve;
        for (let k = 0; k < count; k++) total[k] += size * kappa[k];
      }
      if (input.factor > 0) {
        correlate(kappa, input, categorical, at, input.factor_length);
        const [least, varying] = [1 / (1 + input.factor), input.factor / (1 + input.factor)];
        for (let k = 0; k < count; k++) product[k] *= least + varying * kappa[k];
      }
    });
    for (let k = 0; k < count; k++) total[k] += product[k];
    return total;
  }

  // k of a row with itself.
  function variance(kernel, row) {
    let [total, product] = [kernel.constant, kernel.product];
    kernel.inputs.forEach((input, d) => {
      const { t, known } = row[d];
      total += input.line * t * t + input.curve * known + input.missing * (1 - known);
      product *= (1 + input.factor * known) / (1 + input.factor);
    });
    return total + product;
  }

  const begin = (row) => (row * (row + 1)) / 2; // where a row of a packed triangle begins

  // The lower Cholesky factor of the triangle of a matrix, in place.
  function factorise(lower, size) {
    for (let i = 0; i < size; i++) {
      const start = begin(i);
      for (let j = 0; j < i; j++) {
        const other = begin(j);
        let [first, second, third, fourth] = [0, 0, 0, 0];
        let k = 0;
        for (; k + 3 < j; k += 4) {
          first += lower[start + k] * lower[other + k];
          second += lower[start + k + 1] * lower[other + k + 1];
          third += lower[start + k + 2] * lower[other + k + 2];
          fourth += lower[start + k + 3] * lower[other + k + 3];
        }
        for (; k < j; k++) first += lower[start + k] * lower[other + k];
        const known = first + second + (third + fourth);
        lower[start + j] = (lower[start + j] - known) / lower[other + j];
      }
      let pivot = lower[start + i];
      for (let k = 0; k < i; k++) pivot -= lower[start + k] ** 2;
      lower[start + i] = Math.sqrt(Math.max(pivot, 1e-14 * lower[start + i]));
    }
    return lower;
  }

  // Cholesky factors of the covariance of the training targets, for each output.
  function factors(kernel, columns) {
    const { data, rows: outputs, columns: size } = kernel.noise;
    const matrix = new Float64Array(begin(size));
    for (let i = 0; i < size; i++) {
      const row = kernel.inputs.map((input) => ofTrainingRow(input.rows, i));
      matrix.set(covariances(kernel, columns, row, i + 1), begin(i));
    }
    return Array.from({ length: outputs }, (_, k) => {
      const triangle = k + 1 < outputs ? matrix.slice() : matrix;
      for (let i = 0; i < size; i++) triangle[begin(i) + i] += data[k * size + i];
      return factorise(triangle, size);
    });
  }

  // |L^-1 v|^2 for a lower triangle L.
  function explained(lower, vector) {
    const solved = new Float64Array(vector.length);
    let total = 0;
    for (let i = 0; i < solved.length; i++) {
      const start = begin(i);
      let rest = vector[i];
      for (let k = 0; k < i; k++) rest -= lower[start + k] * solved[k];
      solved[i] = rest / lower[start + i];
      total += solved[i] ** 2;
    }
    return total;
  }

  const made = new WeakMap(); // factors of each kernel

  // E[f] and Var[f] of every output at a row of raw values with these coordinates.
  function moments(kernel, columns, values, coordinateOf) {
    if (!made.has(kernel)) made.set(kernel, factors(kernel, columns));
    const row = kernel.inputs.map((input) => {
      return ofValue(input, columns[input.column], values[input.column], coordinateOf(input.column));
    });
    const { data, rows: outputs, columns: size } = kernel.alpha;
    const v = covariances(kernel, columns, row, size);
    const prior = variance(kernel, row);
    const out = { mean: [], variance: [] };
    for (let k = 0; k < outputs; k++) {
      let mean = 0;
      for (let i = 0; i < size; i++) mean += v[i] * data[k * size + i];
      out.mean.push(mean);
      const unexplained = prior - explained(made.get(kernel)[k], v);
      out.variance.push(Math.max(unexplained, 1e-12 * prior));
    }
    return out;
  }

  return { moments };
})();
