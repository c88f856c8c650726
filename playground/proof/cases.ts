/** The scenes and answers that make_cases.py wrote. */

import { readFileSync } from "node:fs";
import type { Problem } from "../src/math/problem";
import type { TrainingSettings } from "../src/math/train";

export interface WrittenProblem {
  tokens: number[][][];
  labels: number[];
  head: number[];
  queries?: number[][];
}

export interface SvmCase {
  problem: WrittenProblem;
  selected: number[];
  norm: number | "l1" | "linf" | "frobenius" | "nuclear" | "spectral";
  status: "optimal" | "infeasible";
  value: number | null;
  gap: number | null;
  direction: number[] | null;
  dual: number[][];
  support: boolean[][];
}

export interface StepCase {
  problem: WrittenProblem;
  training: TrainingSettings;
  start: number[][];
  status: string;
  end: { attention: number[][]; head?: number[] };
  /** How far one unit in the last place of the tokens moves the library's step. */
  change: number;
}

export interface PathCase {
  problem: WrittenProblem;
  training: TrainingSettings;
  start: number[][];
  steps: number[];
  weights: number[][];
  change: number;
}

export interface Cases {
  svm: SvmCase[];
  steps: StepCase[];
  paths: PathCase[];
}

export function readCases(path = process.env["CASES"]): Cases {
  if (path === undefined) throw new Error("CASES: expected the file that make_cases.py wrote, got none");
  return JSON.parse(readFileSync(path, "utf8")) as Cases;
}

export function asProblem(written: WrittenProblem): Problem {
  return {
    keys: written.tokens,
    values: written.tokens,
    allowed: written.tokens.map((of) => of.map(() => true)),
    queries: written.queries ?? null,
    labels: written.labels,
    head: written.head,
  };
}
