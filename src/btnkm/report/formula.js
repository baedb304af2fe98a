"use strict";

// Formulas of bases and likelihoods: what core/formula.py does in Python, for one row.
const Formulas = (() => {
  const {
    gammaSf,
    incompleteBeta,
    logGamma,
    logSigmoid,
    normalCdf,
    sigmoid,
    studentCdf,
    studentLogPdf,
  } = Numerics;

  // Every value is an array of numbers; one number is paired with each of a longer array.
  const each =
    (f) =>
    (...parts) => {
      const length = Math.max(...parts.map((part) => part.length));
      const at = (part, k) => part[part.length === 1 ? 0 : k];
      return Array.from({ length }, (_, k) => f(...parts.map((part) => at(part, k))));
    };

  const OPERATIONS = {
    add: each((a, b) => a + b),
    subtract: each((a, b) => a - b),
    multiply: each((a, b) => a * b),
    divide: each((a, b) => a / b),
    power: each(Math.pow),
    sqrt: each(Math.sqrt),
    exp: each(Math.exp),
    log: each(Math.log),
    sin: each(Math.sin),
    floor: each(Math.floor),
    clip: each((a, low, high) => Math.min(Math.max(a, low), high)),
    equal: each((a, b) => (a === b ? 1 : 0)),
    above: each((a, b) => (a > b ? 1 : 0)),
    sigmoid: each(sigmoid),
    log_sigmoid: each(logSigmoid),
    log_gamma: each(logGamma),
    normal_cdf: each(normalCdf),
    student_cdf: each((t, dof) => studentCdf(dof, t)),
    student_log_pdf: each((t, dof) => studentLogPdf(dof, t)),
    beta_cdf: each((x, a, b, rest) => incompleteBeta(a, b, x, rest)),
    gamma_sf: each((x, a) => gammaSf(a, x)),
    concat: (...parts) => parts.flatMap((part) => Array.from(part)),
    columns: (a, places) => Array.from(places, (place) => a[place]),
    matmul(a, { data, rows, columns }) {
      const out = new Array(columns).fill(0);
      for (let i = 0; i < rows; i++) {
        if (a[i] === 0) continue;
        for (let j = 0; j < columns; j++) out[j] += a[i] * data[i * columns + j];
      }
      return out;
    },
    sum: (a) => [a.reduce((total, value) => total + value, 0)],
    grid([step], [end]) {
      const length = Math.ceil((2 * end + 0.5 * step) / step);
      return Array.from({ length }, (_, k) => -end + k * step);
    },
  };

  // What a formula says of inputs (numbers by name), step by step as outputs are asked for.
  class Evaluation {
    constructor(formula, inputs) {
      this.formula = formula;
      this.inputs = inputs;
      this.steps = new Array(formula.steps.length);
    }

    output(name) {
      return this.value(this.formula.outputs[name]);
    }

    value(argument) {
      if (typeof argument === "number") return [argument];
      if (typeof argument !== "string") return argument;
      if (argument in this.inputs) return [this.inputs[argument]];
      const place = Number(argument);
      if (this.steps[place] === undefined) {
        const [operation, ...parts] = this.formula.steps[place];
        this.steps[place] = OPERATIONS[operation](...parts.map((part) => this.value(part)));
      }
      return this.steps[place];
    }

    // The same with another value of an input: steps that do not depend on it are kept.
    with(name, value) {
      const other = new Evaluation(this.formula, { ...this.inputs, [name]: value });
      const depends = [];
      this.formula.steps.forEach(([, ...parts], k) => {
        depends[k] = parts.some((part) => part === name || depends[part]);
        if (!depends[k]) other.steps[k] = this.value(String(k));
      });
      return other;
    }
  }

  return { Evaluation };
})();
