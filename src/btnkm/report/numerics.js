"use strict";

// The functions of mathematics that predictions in a browser need, to about 1e-13.
const Numerics = (() => {
  const LOG_2PI = Math.log(2 * Math.PI);

  // log Gamma(z), z > 0: Stirling's series from z + 12 on.
  function logGamma(z) {
    let product = z;
    for (let k = 1; k < 12; k++) product *= z + k;
    const x = z + 12;
    const t = 1 / (x * x);
    const end = 1 / 1680 - t * (1 / 1188 - (691 * t) / 360360);
    const series = (1 / 12 - t * (1 / 360 - t * (1 / 1260 - t * end))) / x;
    return (x - 0.5) * Math.log(x) - x + 0.5 * LOG_2PI + series - Math.log(product);
  }

  // log Gamma(a + 1/2) - log Gamma(a), without the digits that a difference of both would lose.
  function logGammaHalf(a) {
    let shift = 0;
    while (a < 16) {
      shift += Math.log(a) - Math.log(a + 0.5);
      a += 1;
    }
    const t = 1 / (a * a);
    const series = 1 / 8 - t * (1 / 192 - t * (1 / 640 - t * (17 / 14336 - (31 * t) / 18432)));
    return shift + 0.5 * Math.log(a) - series / a;
  }

  const normalPdf = (x) => Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);

  // P(Z <= x): a series of positive terms near zero, a continued fraction in the tails.
  function normalCdf(x) {
    const a = Math.abs(x);
    if (a > 38.6) return x < 0 ? 0 : 1;
    if (a < 1.5) {
      let term = a;
      let sum = a;
      for (let k = 3; Math.abs(term) > 1e-17 * sum; k += 2) sum += term *= (a * a) / k;
      const within = sum * normalPdf(a);
      return x < 0 ? 0.5 - within : 0.5 + within;
    }
    let fraction = a;
    for (let k = 120; k > 0; k--) fraction = a + k / fraction;
    const tail = normalPdf(a) / fraction;
    return x < 0 ? tail : 1 - tail;
  }

  // x with P(Z <= x) = p: Newton's method in the logarithm of the nearer tail, which is concave.
  function normalQuantile(p) {
    if (p === 0.5) return 0;
    const tail = Math.min(p, 1 - p);
    let x = -Math.sqrt(-2 * Math.log(tail)); // left of the solution
    for (let k = 0; k < 60; k++) {
      const below = normalCdf(x);
      const step = ((Math.log(tail) - Math.log(below)) * below) / normalPdf(x);
      x += step;
      if (Math.abs(step) < 1e-9) break; // the next step would be the square of it
    }
    return p < 0.5 ? x : -x;
  }

  // The continued fraction of the incomplete beta function, by Lentz's method.
  function betaFraction(a, b, x) {
    const nonzero = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);
    let c = 1;
    let d = 1 / nonzero(1 - ((a + b) * x) / (a + 1));
    let fraction = d;
    for (let m = 1; m < 100000; m++) {
      const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 / nonzero(1 + even * d);
      c = nonzero(1 + even / c);
      fraction *= d * c;
      const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 / nonzero(1 + odd * d);
      c = nonzero(1 + odd / c);
      fraction *= d * c;
      if (Math.abs(d * c - 1) < 1e-15) break;
    }
    return fraction;
  }

  // The regularised incomplete beta function I_x(a, b), given x and y = 1 - x.
  function incompleteBeta(a, b, x, y) {
    if (x <= 0 || y <= 0) return x <= 0 ? 0 : 1;
    const logBeta = logGamma(a) + logGamma(b) - logGamma(a + b);
    const front = Math.exp(a * Math.log(x) + b * Math.log(y) - logBeta);
    if (x < (a + 1) / (a + b + 2)) return (front * betaFraction(a, b, x)) / a;
    return 1 - (front * betaFraction(b, a, y)) / b;
  }

  // P(X > x) for X ~ Gamma(a, 1): one minus a series below the mean, a continued fraction above.
  function gammaSf(a, x) {
    if (x <= 0) return 1;
    const front = Math.exp(a * Math.log(x) - x - logGamma(a));
    if (x < a + 1) {
      let term = 1 / a;
      let sum = term;
      for (let k = 1; term > 1e-17 * sum; k++) sum += term *= x / (a + k);
      return 1 - front * sum;
    }
    let b = x + 1 - a;
    let c = 1e300;
    let d = 1 / b;
    let fraction = d;
    for (let k = 1; k < 100000; k++) {
      b += 2;
      d = 1 / (k * (a - k) * d + b);
      c = b + (k * (a - k)) / c;
      fraction *= c * d;
      if (Math.abs(c * d - 1) < 1e-15) break;
    }
    return front * fraction;
  }

  const LARGE_DOF = 1e5;

  // P(T <= t) of Student's distribution.
  function studentCdf(dof, t) {
    if (dof > LARGE_DOF) {
      // Fisher's expansion around the normal distribution
      const s = t * t;
      const first = (t * (s + 1)) / (4 * dof);
      const second = (t * (((3 * s - 7) * s - 5) * s - 3)) / (96 * dof * dof);
      return normalCdf(t) - normalPdf(t) * (first + second);
    }
    const half = 0.5 * dof;
    const x = dof / (dof + t * t);
    const y = (t * t) / (dof + t * t);
    // x^(dof / 2) y^(1 / 2) / B(dof / 2, 1 / 2)
    const power = Math.exp(logGammaHalf(half) - half * Math.log1p((t * t) / dof));
    const front = power * Math.sqrt(y / Math.PI);
    if (y < 1.5 / (half + 2.5)) {
      const within = front * betaFraction(0.5, half, y); // half of what lies between -t and t
      return t < 0 ? 0.5 - within : 0.5 + within;
    }
    const tail = (0.5 * front * betaFraction(half, 0.5, x)) / half;
    return t < 0 ? tail : 1 - tail;
  }

  function studentLogPdf(dof, t) {
    const constant = logGammaHalf(0.5 * dof) - 0.5 * Math.log(Math.PI * dof);
    return constant - 0.5 * (dof + 1) * Math.log1p((t * t) / dof);
  }

  const sigmoid = (x) => (x < 0 ? Math.exp(x) / (1 + Math.exp(x)) : 1 / (1 + Math.exp(-x)));
  const logSigmoid = (x) => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));

  // Nodes and weights of the trapezoid rule for a standard normal variable.
  function normalGrid(end, step) {
    const count = Math.ceil((2 * end + 0.5 * step) / step);
    const nodes = Array.from({ length: count }, (_, k) => -end + k * step);
    const density = nodes.map((z) => Math.exp(-0.5 * z * z));
    const total = density.reduce((a, b) => a + b, 0);
    return nodes.map((z, k) => [z, density[k] / total]);
  }

  // The symmetric square root of a positive semidefinite matrix (an array of rows), by Jacobi's
  // rotations of its eigenvectors.
  function squareRoot(matrix) {
    const n = matrix.length;
    const a = matrix.map((row) => Float64Array.from(row));
    const v = a.map((_, i) => Float64Array.from({ length: n }, (_, j) => (i === j ? 1 : 0)));
    for (let sweep = 0; sweep < 60; sweep++) {
      let off = 0;
      let on = 0;
      for (let i = 0; i < n; i++) {
        on += a[i][i] ** 2;
        for (let j = 0; j < i; j++) off += a[i][j] ** 2;
      }
      if (off <= 1e-34 * on) break;
      for (let p = 0; p < n; p++) {
        for (let q = p + 1; q < n; q++) {
          if (a[p][q] === 0) continue;
          const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
          const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
          const c = 1 / Math.hypot(t, 1);
          const s = t * c;
          for (let k = 0; k < n; k++) {
            const [x, y] = [a[k][p], a[k][q]];
            a[k][p] = c * x - s * y;
            a[k][q] = s * x + c * y;
          }
          for (let k = 0; k < n; k++) {
            const [x, y] = [a[p][k], a[q][k]];
            a[p][k] = c * x - s * y;
            a[q][k] = s * x + c * y;
            const [f, g] = [v[k][p], v[k][q]];
            v[k][p] = c * f - s * g;
            v[k][q] = s * f + c * g;
          }
        }
      }
    }
    return a.map((_, i) =>
      Float64Array.from({ length: n }, (_, j) => {
        let sum = 0;
        for (let k = 0; k < n; k++) sum += v[i][k] * v[j][k] * Math.sqrt(Math.max(a[k][k], 0));
        return sum;
      }),
    );
  }

  return {
    gammaSf,
    incompleteBeta,
    logGamma,
    logSigmoid,
    normalCdf,
    normalGrid,
    normalPdf,
    normalQuantile,
    sigmoid,
    squareRoot,
    studentCdf,
    studentLogPdf,
  };
})();
