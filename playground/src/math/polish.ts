/** The last digits of an Att-SVM: Newton's method on its optimality conditions, with the active rows as equations. */

import { dot, length, solveRefined } from "./linear";
import { leastDistance } from "./least_distance";
import { conjugate, halves, normOf, type Norm, type Pair } from "./norms";

const STEPS = 40;

/** Candidates that are better than a nearly optimal pair, if the guess of the active rows is right. */
export function polished(norm: Norm, rows: number[][], near: Pair): Pair[] {
  const d = near.weights.length;
  const guesses = new Set<string>();
  const candidates: Pair[] = [];
  for (const threshold of [1e-2, 1e-4, 1e-6]) {
    const most = Math.max(...near.multipliers);
    const active = rows.flatMap((_, r) => (near.multipliers[r] > threshold * most ? [r] : []));
    active.sort((a, b) => near.multipliers[b] - near.multipliers[a]);
    const used = active.slice(0, d);
    if (used.length === 0 || guesses.has(used.join())) continue;
    guesses.add(used.join());
    const own = used.map((r) => rows[r]);
    const found = norm.kind === "lp" ? ofPower(norm.p, own, near, used) : ofMatrix(norm.kind, own, near, used);
    for (const { weights, multipliers } of found) {
      const all = new Array<number>(rows.length).fill(0);
      used.forEach((r, k) => (all[r] = multipliers[k]));
      candidates.push({ weights, multipliers: all });
    }
  }
  if (norm.kind === "spectral") candidates.push(...orthogonal(rows));
  return candidates;
}

/** |w|^(p−1) sign(w) = A'λ and A w = 1, by Newton's method in λ for p ≤ 2, otherwise in (w, λ). */
function ofPower(p: number, rows: number[][], near: Pair, used: number[]): Pair[] {
  const scale = normOf({ kind: "lp", p }, near.weights); // solved for weights of norm about 1
  const right = rows.map(() => 1 / scale);
  let w = near.weights.map((x) => x / scale);
  const power = (x: number, e: number): number => Math.sign(x) * Math.pow(Math.abs(x), e);
  // the multipliers of ψ: those that fit its gradient best
  let lambda = fitted(rows, w.map((x) => power(x, p - 1))) ?? used.map((r) => near.multipliers[r]);
  const q = conjugate(p);
  for (let step = 0; step < STEPS; step++) {
    if (p <= 2) {
      const g = w.map((_, k) => rows.reduce((sum, row, r) => sum + lambda[r] * row[k], 0));
      w = g.map((x) => power(x, q - 1));
      const slopes = g.map((x) => (q - 1) * Math.pow(Math.abs(x), q - 2));
      const jacobian = rows.map((a) => rows.map((b) => a.reduce((sum, x, k) => sum + x * slopes[k] * b[k], 0)));
      const change = solveRefined(jacobian, rows.map((row, r) => right[r] - dot(row, w)));
      if (change === null) return [];
      lambda = lambda.map((x, r) => x + change[r]);
      if (length(change) <= 1e-15 * length(lambda)) break;
    } else {
      const jacobian = w.map((x, k) => [
        ...w.map((_, j) => (j === k ? (p - 1) * Math.pow(Math.max(Math.abs(x), 1e-12), p - 2) : 0)),
        ...rows.map((row) => -row[k]),
      ]);
      rows.forEach((row) => jacobian.push([...row, ...rows.map(() => 0)]));
      const rest = w.map((x, k) => -power(x, p - 1) + rows.reduce((sum, row, r) => sum + lambda[r] * row[k], 0));
      rows.forEach((row, r) => rest.push(right[r] - dot(row, w)));
      const change = solveRefined(jacobian, rest);
      if (change === null) return [];
      w = w.map((x, k) => x + change[k]);
      lambda = lambda.map((x, r) => x + change[w.length + r]);
      if (length(change.slice(0, w.length)) <= 1e-16) break;
    }
  }
  return [{ weights: w.map((x) => x * scale), multipliers: lambda }];
}

/** The least-squares solution of A'λ = g. */
function fitted(rows: number[][], g: number[]): number[] | null {
  const gram = rows.map((a) => rows.map((b) => dot(a, b)));
  return solveRefined(gram, rows.map((row) => dot(row, g)));
}

/**
 * min t of norm cones: θ_1 U w + θ_2 V w = A'λ, |u|² = t_1², |v|² = t_2², A w = 1, where U and V are the matrices of
 * |u|² and |v|². Nuclear: t_1 = t_2 = t or one cone alone; spectral: both.
 */
function ofMatrix(kind: "nuclear" | "spectral", rows: number[][], near: Pair, used: number[]): Pair[] {
  const scale = normOf({ kind }, near.weights);
  const w = near.weights.map((x) => x / scale);
  const lambda = used.map((r) => near.multipliers[r] * scale);
  const right = rows.map(() => 1 / scale);
  const results = kind === "nuclear" ? nuclearPairs(rows, right, w, lambda) : smooth(rows, right, w, lambda);
  // active rows of one sequence have multipliers of rank one, for which all norms agree; the weights are not unique then
  const ofOne = { weights: near.weights, multipliers: leastDistance(rows, near.weights.length).multipliers };
  return [...results.map((pair) => ({ ...pair, weights: pair.weights.map((x) => x * scale) })), ofOne];
}

/** Both halves are nonzero: the spectral norm is differentiable there, with the gradient (U w/|u| + V w/|v|)/2. */
function smooth(rows: number[][], right: number[], start: number[], multipliers: number[]): Pair[] {
  let [w, lambda] = [start, multipliers];
  for (let step = 0; step < STEPS; step++) {
    const { u, v } = halves(w);
    const [a, b] = [length(u), length(v)];
    if (a < 1e-8 || b < 1e-8) return [];
    const [alongU, alongV] = [symmetric("u", w), symmetric("v", w)];
    const gradient = w.map((_, k) => (alongU[k] / a + alongV[k] / b) / 2);
    const hessian = w.map((_, k) =>
      w.map((_, j) => (MATRIX.u[k][j] / a + MATRIX.v[k][j] / b) / 2 - (alongU[k] * alongU[j]) / a ** 3 / 2
        - (alongV[k] * alongV[j]) / b ** 3 / 2),
    );
    const change = newton(hessian, gradient, rows, right, w, lambda);
    if (change === null) return [];
    w = w.map((x, k) => x + change[k]);
    lambda = lambda.map((x, r) => x + change[w.length + r]);
    if (length(change.slice(0, w.length)) <= 1e-16) break;
  }
  return [{ weights: w, multipliers: lambda }];
}

function newton(
  hessian: number[][],
  gradient: number[],
  rows: number[][],
  right: number[],
  w: number[],
  lambda: number[],
): number[] | null {
  const jacobian = hessian.map((row, k) => [...row, ...rows.map((one) => -one[k])]);
  rows.forEach((row) => jacobian.push([...row, ...rows.map(() => 0)]));
  const rest = gradient.map((g, k) => -g + rows.reduce((sum, row, r) => sum + lambda[r] * row[k], 0));
  rows.forEach((row, r) => rest.push(right[r] - dot(row, w)));
  return solveRefined(jacobian, rest);
}

const MATRIX = {
  u: [[1, 0, 0, 1], [0, 1, -1, 0], [0, -1, 1, 0], [1, 0, 0, 1]],
  v: [[1, 0, 0, -1], [0, 1, 1, 0], [0, 1, 1, 0], [-1, 0, 0, 1]],
};

function symmetric(half: "u" | "v", w: number[]): number[] {
  return MATRIX[half].map((row) => dot(row, w));
}

/** Both cones active, or one of them. The unknowns: w, λ, θ of each active cone, t. */
function nuclearPairs(rows: number[][], right: number[], start: number[], multipliers: number[]): Pair[] {
  const found: Pair[] = [];
  for (const cones of [["u", "v"], ["u"], ["v"]] as ("u" | "v")[][]) {
    const pair = onCones(cones, rows, right, start, multipliers);
    if (pair !== null) found.push(pair);
  }
  return found;
}

function onCones(cones: ("u" | "v")[], rows: number[][], right: number[], start: number[], multipliers: number[]): Pair | null {
  const [d, k, c] = [start.length, rows.length, cones.length];
  let x = [...start, ...multipliers, ...cones.map(() => 1 / c), 1];
  for (let step = 0; step < STEPS; step++) {
    const [w, lambda, theta, t] = [x.slice(0, d), x.slice(d, d + k), x.slice(d + k, d + k + c), x[d + k + c]];
    const along = cones.map((half) => symmetric(half, w));
    const jacobian: number[][] = [];
    const rest: number[] = [];
    for (let i = 0; i < d; i++) {
      jacobian.push([
        ...w.map((_, j) => cones.reduce((sum, half, a) => sum + theta[a] * MATRIX[half][i][j], 0)),
        ...rows.map((row) => -row[i]),
        ...along.map((one) => one[i]),
        0,
      ]);
      rest.push(-along.reduce((sum, one, a) => sum + theta[a] * one[i], 0)
        + rows.reduce((sum, row, r) => sum + lambda[r] * row[i], 0));
    }
    rows.forEach((row, r) => {
      jacobian.push([...row, ...new Array<number>(k + c + 1).fill(0)]);
      rest.push(right[r] - dot(row, w));
    });
    along.forEach((one) => {
      jacobian.push([...one, ...new Array<number>(k + c).fill(0), -t]);
      rest.push((t * t - dot(one, w)) / 2);
    });
    jacobian.push([...new Array<number>(d + k).fill(0), ...cones.map(() => t), theta.reduce((a, b) => a + b, 0)]);
    rest.push(1 - t * theta.reduce((a, b) => a + b, 0));
    const change = solveRefined(jacobian, rest);
    if (change === null) return null;
    x = x.map((value, i) => value + change[i]);
    if (length(change.slice(0, d)) <= 1e-16) break;
  }
  return { weights: x.slice(0, d), multipliers: x.slice(d, d + k) };
}

/** The candidates of the spectral norm where one half is zero: a multiple of a rotation, or of a reflection. */
function orthogonal(rows: number[][]): Pair[] {
  return (["u", "v"] as const).flatMap((half) => {
    // W of one half alone: w = (u_0, u_1, ∓u_1, ±u_0)/2, and |W| = |u|/2
    const reduced = rows.map((row) => halves(row)[half].map((x) => x / 2));
    const answer = leastDistance(reduced, 2);
    if (!answer.feasible) return [];
    const [a, b] = answer.weights;
    return [{ weights: half === "u" ? [a, b, -b, a].map((x) => x / 2) : [a, b, b, -a].map((x) => x / 2), multipliers: answer.multipliers }];
  });
}
