/** The Att-SVM: the weights of least norm that select given tokens with margin 1, with a certificate. */

import { barrierMethod } from "./barrier";
import { dot, length, solveRefined } from "./linear";
import { leastDistance } from "./least_distance";
import { conjugate, dualOf, normOf, type Norm, type Pair } from "./norms";
import { polished } from "./polish";
import { rowsOf, type Problem, type Row } from "./problem";
import { linearProgram } from "./simplex";

export interface Solution {
  status: "optimal" | "inaccurate" | "infeasible";
  /** The constraints, in the order of the multipliers. */
  rows: Row[];
  /** The optimum itself; empty where infeasible. */
  direction: number[];
  /** N(direction); NaN where infeasible. */
  value: number;
  /** λ with N*(A'λ) = 1; the Farkas multipliers, with sum 1, where infeasible. */
  multipliers: number[];
  /** The relative distance of N(direction) to the lower bound Σλ. */
  gap: number;
  /** Which rows hold with equality. */
  support: boolean[];
  /** Every feasible W would have a Euclidean norm of at least this on rows of unit length; 0 where feasible. */
  bound: number;
}

const TOLERANCE = 1e-8;
const SUPPORT_SLACK = 1e-6;

/** Every answer is checked by the gap between its norm and the bound of its multipliers. */
export function solveSvm(problem: Problem, selected: number[], norm: Norm): Solution {
  const rows = rowsOf(problem, selected);
  const size = problem.keys[0][0].length * (problem.queries?.[0].length ?? 1);
  return solveRows(rows, size, norm);
}

export function solveRows(rows: Row[], size: number, norm: Norm): Solution {
  const entries = rows.map((row) => row.entries);
  if (rows.length === 0) {
    const zeros = new Array<number>(size).fill(0);
    return { status: "optimal", rows, direction: zeros, value: 0, multipliers: [], gap: 0, support: [], bound: 0 };
  }
  const euclidean = leastDistance(entries, size);
  if (!euclidean.feasible) return infeasible(rows, size, euclidean.multipliers);
  // the optimum depends on few rows: begin with those of the Euclidean one, and add the row that is violated most
  const active = entries.flatMap((_, r) => (euclidean.multipliers[r] > 0 ? [r] : []));
  for (;;) {
    const [pair, found] = ofRows(norm, active.map((r) => rows[r]), { ...euclidean, multipliers: active.map((r) => euclidean.multipliers[r]) });
    const margins = entries.map((row) => dot(row, found.direction));
    const least = margins.indexOf(Math.min(...margins));
    if (margins[least] < 1 - 1e-12 && !active.includes(least)) {
      active.push(least);
      continue;
    }
    const multipliers = new Array<number>(rows.length).fill(0);
    active.forEach((r, k) => (multipliers[r] = pair.multipliers[k]));
    return certified(norm, rows, { ...pair, multipliers }, size);
  }
}

function ofRows(norm: Norm, rows: Row[], euclidean: Pair): [Pair, Solution] {
  let best: [Pair, Solution] | null = null;
  for (const pair of candidates(norm, rows.map((row) => row.entries), euclidean)) {
    const found = certified(norm, rows, pair, euclidean.weights.length);
    if (best === null || found.gap < best[1].gap) best = [pair, found];
    if (best[1].gap <= 1e-13) break;
  }
  return best!;
}

function* candidates(norm: Norm, rows: number[][], euclidean: Pair): Generator<Pair> {
  const d = euclidean.weights.length;
  const vector = norm.kind !== "lp" && d !== 4;
  if (vector || (norm.kind === "lp" && norm.p === 2)) return yield euclidean;
  // solved for an optimum of about 1
  const scale = normOf(norm, euclidean.weights);
  const scaled = rows.map((row) => row.map((x) => x * scale));
  const back = (pair: Pair): Pair => ({ ...pair, weights: pair.weights.map((x) => x * scale) });
  if (norm.kind === "lp" && (norm.p === 1 || norm.p === Infinity)) {
    return yield back(linearProgram(scaled, d, norm.p));
  }
  if (norm.kind === "lp" && d === 2) return yield back(inThePlane(norm.p, scaled));
  const path = barrierMethod(norm, scaled, euclidean.weights.map((x) => (1.5 * x) / scale)).reverse();
  for (const near of path.slice(0, 6)) {
    for (const pair of polished(norm, scaled, near)) yield back(pair);
    yield back(near);
  }
}

/** In the plane, the least point of an ℓp norm is the nearest one of an edge of the polygon, or a vertex. */
function inThePlane(p: number, rows: number[][]): Pair {
  const norm: Norm = { kind: "lp", p };
  const q = conjugate(p);
  const power = (x: number, e: number): number => Math.sign(x) * Math.pow(Math.abs(x), e);
  const feasible = (w: number[], active: number[]): boolean =>
    rows.every((row, r) => active.includes(r) || dot(row, w) >= 1 - 1e-12);
  let best: { weights: number[]; active: number[]; value: number } | null = null;
  const offer = (weights: number[], active: number[]): void => {
    const value = normOf(norm, weights);
    if ((best === null || value < best.value) && feasible(weights, active)) best = { weights, active, value };
  };
  rows.forEach((row, r) => {
    const size = Math.max(...row.map(Math.abs));
    const unit = row.map((x) => power(x / size, q - 1));
    offer(unit.map((x) => x / dot(row, unit)), [r]);
    for (let s = 0; s < r; s++) {
      const vertex = solveRefined([row, rows[s]], [1, 1]);
      if (vertex !== null) offer(vertex, [r, s]);
    }
  });
  const { weights, active, value } = best!;
  const gradient = weights.map((x) => power(x / value, p - 1));
  const own = active.map((r) => rows[r]);
  const multipliers = new Array<number>(rows.length).fill(0);
  const lambda = own.length === 1
    ? [1 / dot(own[0], weights)]
    : solveRefined([[own[0][0], own[1][0]], [own[0][1], own[1][1]]], gradient) ?? [0, 0];
  active.forEach((r, k) => (multipliers[r] = lambda[k]));
  return { weights, multipliers };
}

/** Makes weights and multipliers feasible, and bounds the optimum by them from both sides. */
function certified(norm: Norm, rows: Row[], pair: Pair, size: number): Solution {
  const clipped = pair.multipliers.map((x) => Math.max(x, 0));
  const total = normOf(dualOf(norm), combination(rows, clipped, size));
  const multipliers = clipped.map((x) => (total > 0 ? x / total : 0));
  const smallest = Math.min(...rows.map((row) => dot(row.entries, pair.weights)));
  const direction = pair.weights.map((x) => x / smallest);
  const value = normOf(norm, direction);
  const lower = multipliers.reduce((a, b) => a + b, 0);
  const gap = smallest > 0 && Number.isFinite(value) ? Math.max((value - lower) / value, 0) : Infinity;
  const span = length(direction);
  const support = rows.map((row) => dot(row.entries, direction) - 1 <= SUPPORT_SLACK * length(row.entries) * span);
  const status = gap <= TOLERANCE ? "optimal" : "inaccurate";
  return { status, rows, direction, value, multipliers, gap, support, bound: 0 };
}

function infeasible(rows: Row[], size: number, multipliers: number[]): Solution {
  const lengths = rows.map((row) => length(row.entries) || 1);
  const unit = rows.map((row, r) => ({ ...row, entries: row.entries.map((x) => x / lengths[r]) }));
  const ofUnit = multipliers.map((x, r) => x * lengths[r]);
  const bound = ofUnit.reduce((a, b) => a + b, 0) / length(combination(unit, ofUnit, size));
  const none = rows.map(() => false);
  return { status: "infeasible", rows, direction: [], value: NaN, multipliers, gap: NaN, support: none, bound };
}

/** A'λ. */
export function combination(rows: Row[], multipliers: number[], size: number): number[] {
  const total = new Array<number>(size).fill(0);
  rows.forEach((row, r) => row.entries.forEach((x, k) => (total[k] += multipliers[r] * x)));
  return total;
}
