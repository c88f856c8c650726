/** A barrier method for the Att-SVMs of ℓp (1 < p < ∞) and of the nuclear and the spectral norm of 2×2 matrices. */

import { dot, length, solve } from "./linear";
import type { Norm, Pair } from "./norms";

/** A convex barrier: its value (∞ outside), and its derivatives added to those of the whole. */
interface Barrier {
  value(x: number[]): number;
  differentiate(x: number[], gradient: number[], hessian: number[][]): void;
  /** The barrier's parameter: the gap of a centre is the sum of them times μ. */
  parameter: number;
}

interface Program {
  costs: number[];
  start: number[];
  barriers: Barrier[];
}

const REDUCTION = 0.15;
const GAP = 1e-11;
const MOST_STEPS = 60;

/**
 * Weights and multipliers along the central path, from weights inside the constraints (margins above 1). The gap of the
 * last is about 1e-11 up to rounding, which the multipliers μ/slack feel first: an earlier pair may be better.
 */
export function barrierMethod(norm: Norm, rows: number[][], inside: number[]): Pair[] {
  const program = norm.kind === "lp" ? ofPowers(norm.p, inside) : ofCones(norm.kind, inside);
  const margins = marginBarrier(rows);
  const barriers = [margins, ...program.barriers];
  const parameter = barriers.reduce((sum, one) => sum + one.parameter, 0);
  let x = program.start;
  let mu = Math.abs(dot(program.costs, x)) / parameter;
  const least = (GAP * Math.abs(dot(program.costs, x))) / parameter;
  const pairs: Pair[] = [];
  for (; mu > least; mu *= REDUCTION) {
    x = centre(program.costs, barriers, x, mu);
    const weights = x.slice(0, inside.length);
    pairs.push({ weights, multipliers: rows.map((row) => mu / (dot(row, weights) - 1)) });
  }
  return pairs;
}

/** Newton's method on costs'x + μ Σ barriers. */
function centre(costs: number[], barriers: Barrier[], start: number[], mu: number): number[] {
  const value = (x: number[]): number => {
    let total = dot(costs, x) / mu;
    for (const one of barriers) total += one.value(x);
    return total;
  };
  let x = start;
  let current = value(x);
  for (let step = 0; step < MOST_STEPS; step++) {
    const gradient = costs.map((c) => c / mu);
    const hessian = costs.map(() => new Array<number>(costs.length).fill(0));
    for (const one of barriers) one.differentiate(x, gradient, hessian);
    const direction = solve(hessian, gradient.map((g) => -g));
    if (direction === null) return x;
    const decrement = -dot(gradient, direction);
    if (!(decrement > 1e-9)) return x;
    let t = decrement > 0.25 ? 1 / (1 + Math.sqrt(decrement)) : 1;
    let moved = x;
    for (let halving = 0; ; halving++, t /= 2) {
      if (halving > 40) return x;
      moved = x.map((value, i) => value + t * direction[i]);
      const next = value(moved);
      if (next < Infinity && next <= current - 1e-4 * t * decrement + 1e-12 * Math.abs(current)) {
        current = next;
        break;
      }
    }
    x = moved;
  }
  return x;
}

function marginBarrier(rows: number[][]): Barrier {
  return {
    parameter: rows.length,
    value(x) {
      let total = 0;
      for (const row of rows) total += minusLog(dot(row, x) - 1);
      return total;
    },
    differentiate(x, gradient, hessian) {
      for (const row of rows) {
        const slack = dot(row, x) - 1;
        row.forEach((a, i) => {
          gradient[i] -= a / slack;
          row.forEach((b, j) => (hessian[i][j] += (a * b) / slack ** 2));
        });
      }
    },
  };
}

function minusLog(x: number): number {
  return x > 0 ? -Math.log(x) : Infinity;
}

/** min Σ t_k subject to |w_k|^p ≤ t_k, with the barriers −log(t^(2/p) − w²) − 2 log t. */
function ofPowers(p: number, inside: number[]): Program {
  const d = inside.length;
  const power = (t: number): number => Math.pow(t, 2 / p);
  const barriers = inside.map((_, k): Barrier => ({
    parameter: 4,
    value: (x) => (x[d + k] > 0 ? minusLog(power(x[d + k]) - x[k] ** 2) - 2 * Math.log(x[d + k]) : Infinity),
    differentiate(x, gradient, hessian) {
      const [w, t] = [x[k], x[d + k]];
      const room = power(t) - w * w;
      const first = ((2 / p) * power(t)) / t;
      const second = (first * (2 / p - 1)) / t;
      gradient[k] += (2 * w) / room;
      gradient[d + k] += -first / room - 2 / t;
      hessian[k][k] += 2 / room + (4 * w * w) / room ** 2;
      hessian[k][d + k] -= (2 * w * first) / room ** 2;
      hessian[d + k][k] -= (2 * w * first) / room ** 2;
      hessian[d + k][d + k] += -second / room + first ** 2 / room ** 2 + 2 / t ** 2;
    },
  }));
  const size = length(inside);
  const start = inside.map((w) => 2 * Math.pow(Math.abs(w) + 0.1 * size, p));
  return { costs: [...inside.map(() => 0), ...inside.map(() => 1)], start: [...inside, ...start], barriers };
}

/** [w_k] to a half of the matrix: (w_0 ± w_3, w_1 ∓ w_2). */
const ROTATION = [[1, 0, 0, 1], [0, 1, -1, 0]];
const REFLECTION = [[1, 0, 0, -1], [0, 1, 1, 0]];

/** Nuclear: min t subject to |u|, |v| ≤ t. Spectral: min (t_1 + t_2)/2 subject to |u| ≤ t_1, |v| ≤ t_2. */
function ofCones(kind: "nuclear" | "spectral", inside: number[]): Program {
  const size = [ROTATION, REFLECTION].map((half) => length(half.map((row) => dot(row, inside))));
  const pad = 0.2 * (size[0] + size[1]);
  if (kind === "nuclear") {
    const barriers = [coneBarrier(ROTATION, 4), coneBarrier(REFLECTION, 4)];
    return { costs: [0, 0, 0, 0, 1], start: [...inside, Math.max(...size) + pad], barriers };
  }
  const barriers = [coneBarrier(ROTATION, 4), coneBarrier(REFLECTION, 5)];
  return { costs: [0, 0, 0, 0, 0.5, 0.5], start: [...inside, size[0] + pad, size[1] + pad], barriers };
}

/** −log(t² − |half · w|²), where t is the entry at an index. */
function coneBarrier(half: number[][], index: number): Barrier {
  const roomOf = (x: number[]): number => {
    const [a, b] = half.map((row) => row.reduce((sum, c, k) => sum + c * x[k], 0));
    const size = Math.hypot(a, b);
    return x[index] > 0 ? (x[index] - size) * (x[index] + size) : -1;
  };
  return {
    parameter: 2,
    value: (x) => minusLog(roomOf(x)),
    differentiate(x, gradient, hessian) {
      const room = roomOf(x);
      const slope = x.map(() => 0); // of the room
      for (const row of half) {
        const part = row.reduce((sum, c, k) => sum + c * x[k], 0);
        row.forEach((c, k) => {
          slope[k] -= 2 * c * part;
          row.forEach((e, j) => (hessian[k][j] += (2 * c * e) / room));
        });
      }
      slope[index] += 2 * x[index];
      hessian[index][index] -= 2 / room;
      slope.forEach((a, i) => {
        gradient[i] -= a / room;
        slope.forEach((b, j) => (hessian[i][j] += (a * b) / room ** 2));
      });
    },
  };
}
