/** The Euclidean Att-SVM by a dual active set (Goldfarb and Idnani, 1983). */

import { dot, length, project, solveRefined } from "./linear";

export interface LeastDistance {
  feasible: boolean;
  /** The weights; zeros where infeasible. */
  weights: number[];
  /** Multipliers of the rows; Farkas multipliers where infeasible. */
  multipliers: number[];
}

const DEPENDENT = 1e-12; // of unit rows: what is left of one after projection on the others, where it depends on them
const VIOLATED = 1e-13;

/** min ½‖w‖² subject to ⟨rows_r, w⟩ ≥ 1. */
export function leastDistance(rows: number[][], dimension: number): LeastDistance {
  const lengths = rows.map(length);
  const zero = lengths.findIndex((size) => size === 0);
  if (zero >= 0) return infeasible(rows, dimension, [[zero, 1]]);
  const unit = rows.map((row, r) => row.map((x) => x / lengths[r]));
  const right = lengths.map((size) => 1 / size);
  let w = new Array<number>(dimension).fill(0);
  let active: number[] = [];
  let lambda: number[] = [];
  for (let step = 0; step < 50 * (rows.length + 1); step++) {
    const r = mostViolated(unit, right, w, active);
    if (r < 0) return polished(unit, right, lengths, active, lambda, dimension);
    let added = 0;
    for (;;) {
      const { coefficients, rest } = project(active.map((j) => unit[j]), unit[r]);
      const size = dot(rest, rest);
      const moves = size > DEPENDENT ** 2;
      const full = moves ? (right[r] - dot(unit[r], w)) / size : Infinity;
      let blocking = -1;
      let partial = Infinity;
      coefficients.forEach((c, j) => {
        if (c > DEPENDENT && lambda[j] / c < partial) [partial, blocking] = [lambda[j] / c, j];
      });
      const t = Math.min(full, partial);
      if (t === Infinity) {
        const found: [number, number][] = active.map((j, k) => [j, Math.max(-coefficients[k], 0) / lengths[j]]);
        return infeasible(rows, dimension, [...found, [r, 1 / lengths[r]]]);
      }
      lambda = lambda.map((x, j) => x - t * coefficients[j]);
      added += t;
      if (moves) w = w.map((x, k) => x + t * rest[k]);
      if (t === full) {
        active = [...active, r];
        lambda = [...lambda, added];
        break;
      }
      active = active.filter((_, j) => j !== blocking);
      lambda = lambda.filter((_, j) => j !== blocking);
    }
  }
  return polished(unit, right, lengths, active, lambda, dimension);
}

function mostViolated(unit: number[][], right: number[], w: number[], active: number[]): number {
  const size = length(w);
  let worst = -1;
  let most = 0;
  unit.forEach((row, r) => {
    const missing = right[r] - dot(row, w);
    if (missing > VIOLATED * (right[r] + size) && missing > most && !active.includes(r)) [worst, most] = [r, missing];
  });
  return worst;
}

/** The multipliers of the active set computed anew, from its Gram matrix. */
function polished(
  unit: number[][],
  right: number[],
  lengths: number[],
  active: number[],
  lambda: number[],
  dimension: number,
): LeastDistance {
  const gram = active.map((i) => active.map((j) => dot(unit[i], unit[j])));
  const found = active.length > 0 ? solveRefined(gram, active.map((j) => right[j])) : [];
  const used = found !== null && found.every((x) => x >= 0) ? found : lambda;
  const weights = new Array<number>(dimension).fill(0);
  const multipliers = new Array<number>(unit.length).fill(0);
  active.forEach((j, k) => {
    unit[j].forEach((x, i) => (weights[i] += used[k] * x));
    multipliers[j] = used[k] / lengths[j];
  });
  return { feasible: true, weights, multipliers };
}

function infeasible(rows: number[][], dimension: number, found: [number, number][]): LeastDistance {
  const total = found.reduce((sum, [, x]) => sum + x, 0);
  const multipliers = new Array<number>(rows.length).fill(0);
  for (const [r, x] of found) multipliers[r] = x / total;
  return { feasible: false, weights: new Array<number>(dimension).fill(0), multipliers };
}
