/** What is trained on: sequences of tokens with labels, a head and, for a matrix W, one query each. */

import { dot, type Vector } from "./linear";

export interface Problem {
  /** (n, T_i, d_k): what the logits read. */
  keys: number[][][];
  /** (n, T_i, d): what the attention averages and the head reads. Often the keys themselves. */
  values: number[][][];
  /** (n, T_i): false for masked tokens. */
  allowed: boolean[][];
  /** (n, d_q), or null for a prompt. */
  queries: number[][] | null;
  /** (n,), ±1. */
  labels: number[];
  /** (d,) */
  head: number[];
}

/** A constraint (x_α − x_t)'W z ≥ 1 as a row of numbers: ⟨row, W⟩ with W in row-major order. */
export interface Row {
  sequence: number;
  token: number;
  entries: number[];
}

/** γ_it = y_i v'x_it. */
export function scores(problem: Problem): number[][] {
  return problem.values.map((sequence, i) => sequence.map((x) => problem.labels[i] * dot(problem.head, x)));
}

/** The token of highest score of each sequence, the first one on ties. */
export function optimalTokens(problem: Problem): number[] {
  return scores(problem).map((of, i) => {
    let best = -1;
    of.forEach((score, t) => {
      if (problem.allowed[i][t] && (best < 0 || score > of[best])) best = t;
    });
    return best;
  });
}

/** The constraints of a selection: one row for each allowed token that is not selected. */
export function rowsOf(problem: Problem, selected: number[]): Row[] {
  const rows: Row[] = [];
  problem.keys.forEach((keys, i) => {
    keys.forEach((key, t) => {
      if (t === selected[i] || !problem.allowed[i][t]) return;
      const difference = keys[selected[i]].map((x, k) => x - key[k]);
      rows.push({ sequence: i, token: t, entries: outer(difference, problem.queries?.[i] ?? null) });
    });
  });
  return rows;
}

function outer(a: number[], z: number[] | null): number[] {
  return z === null ? a : a.flatMap((x) => z.map((y) => x * y));
}

/** The direction in key space that a sequence's query reads: W z_i, or p itself. */
export function keyDirection(problem: Problem, weights: Vector, sequence: number): number[] {
  const z = problem.queries?.[sequence];
  if (z === undefined) return Array.from(weights);
  const rows = weights.length / z.length;
  return Array.from({ length: rows }, (_, k) => dot(Array.from(weights).slice(k * z.length, (k + 1) * z.length), z));
}

/** (n, T_i): logits; −∞ where the mask excludes a token. */
export function logitsOf(problem: Problem, weights: Vector): number[][] {
  return problem.keys.map((keys, i) => {
    const u = keyDirection(problem, weights, i);
    return keys.map((key, t) => (problem.allowed[i][t] ? dot(key, u) : -Infinity));
  });
}

/** The token of largest logit of each sequence, the first one on ties. */
export function selectedTokens(logits: number[][]): number[] {
  return logits.map((of) => of.reduce((best, s, t) => (s > of[best] ? t : best), 0));
}

export function softmax(logits: number[]): number[] {
  const largest = Math.max(...logits);
  const weights = logits.map((s) => Math.exp(s - largest));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => w / total);
}
