/** The norms of the Att-SVMs: ℓp of all entries, nuclear and spectral of 2×2 matrices. */

import { largestEntry, length, type Vector } from "./linear";

export type Norm = { kind: "lp"; p: number } | { kind: "nuclear" } | { kind: "spectral" };

/** Weights and the multipliers of the rows: a candidate for an Att-SVM. */
export interface Pair {
  weights: number[];
  multipliers: number[];
}

export const L1: Norm = { kind: "lp", p: 1 };
export const L2: Norm = { kind: "lp", p: 2 };
export const LINF: Norm = { kind: "lp", p: Infinity };
export const NUCLEAR: Norm = { kind: "nuclear" };
export const SPECTRAL: Norm = { kind: "spectral" };

/**
 * The two halves of a 2×2 matrix [[a, b], [c, d]]: u of its rotation part, v of its reflection part. Its singular
 * values are (|u| + |v|)/2 and ||u| − |v||/2, so both norms are those of a second-order cone.
 */
export function halves(w: Vector): { u: [number, number]; v: [number, number] } {
  return { u: [w[0] + w[3], w[1] - w[2]], v: [w[0] - w[3], w[1] + w[2]] };
}

/** The norm of a matrix in row-major order, or of a vector, for which nuclear and spectral norm are the length. */
export function normOf(norm: Norm, w: Vector): number {
  if (norm.kind === "lp") return lp(norm.p, w);
  if (w.length !== 4) return length(w);
  const { u, v } = halves(w);
  const [a, b] = [length(u), length(v)];
  return norm.kind === "nuclear" ? Math.max(a, b) : (a + b) / 2;
}

export function dualOf(norm: Norm): Norm {
  if (norm.kind === "nuclear") return SPECTRAL;
  if (norm.kind === "spectral") return NUCLEAR;
  return { kind: "lp", p: conjugate(norm.p) };
}

/** q with 1/p + 1/q = 1. */
export function conjugate(p: number): number {
  if (p === 1) return Infinity;
  return p === Infinity ? 1 : p / (p - 1);
}

function lp(p: number, w: Vector): number {
  if (p === 2) return length(w);
  const largest = largestEntry(w);
  if (p === Infinity || largest === 0) return largest;
  let total = 0;
  for (let i = 0; i < w.length; i++) total += Math.pow(Math.abs(w[i]) / largest, p);
  return largest * Math.pow(total, 1 / p);
}

export function normName(norm: Norm, matrix: boolean): string {
  if (norm.kind !== "lp") return norm.kind;
  if (norm.p === Infinity) return "ℓ∞";
  if (norm.p === 2 && matrix) return "Frobenius";
  return `ℓ${Number(norm.p.toFixed(3))}`;
}

export type OptimizerName =
  | "gradient_descent"
  | "normalized_gradient_descent"
  | "mirror_descent"
  | "sign"
  | "coordinate"
  | "spectral"
  | "momentum"
  | "adam";

/** The norm whose Att-SVM an optimizer of p or W is compared with. */
export function normOfOptimizerName(name: OptimizerName, p: number): Norm {
  const norms: Record<OptimizerName, Norm> = {
    gradient_descent: L2,
    normalized_gradient_descent: L2,
    mirror_descent: { kind: "lp", p },
    sign: LINF,
    coordinate: L1,
    spectral: SPECTRAL,
    momentum: L2,
    adam: LINF,
  };
  return norms[name];
}
