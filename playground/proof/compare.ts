/** How far the page's mathematics is from the library's; in Node and in the browser. */

import { length, largestEntry } from "../src/math/linear";
import { L1, L2, LINF, NUCLEAR, SPECTRAL, normOf, dualOf, type Norm } from "../src/math/norms";
import { combination, solveSvm } from "../src/math/svm";
import { Training } from "../src/math/train";
import { asProblem, type Cases, type PathCase, type StepCase, type SvmCase } from "./cases";

export interface SvmReport {
  statuses: string[];
  value: number;
  gap: number;
  lowerBound: number;
  /** The library's direction error: half the squared distance of the unit vectors. */
  direction: number;
  /** The distance of the directions over max(1e-7, 4 √gap), with the library's own gap: its answer is no closer. */
  distance: number;
  within: number;
  byNorm: Record<string, number>;
  unique: number;
  feasible: number;
}

function normOfCase(norm: SvmCase["norm"]): Norm {
  const named: Record<string, Norm> = { l1: L1, linf: LINF, frobenius: L2, nuclear: NUCLEAR, spectral: SPECTRAL };
  return typeof norm === "number" ? { kind: "lp", p: norm } : named[norm];
}

/**
 * Whether the optimum is unique, by the library's dual: N(W) is attained at one point of N*(A'λ) = 1 alone. Always for
 * strictly convex norms; for ℓ∞ where no entry of A'λ is 0; for the spectral norm where A'λ is regular; for ℓ1 where the
 * active rows fix the entries that are not 0; for the nuclear norm where A'λ has one singular value 1.
 */
function isUnique(norm: Norm, solved: ReturnType<typeof solveSvm>, dual: number[], size: number): boolean {
  if (norm.kind === "lp" && norm.p > 1 && norm.p < Infinity) return true;
  const image = combination(solved.rows, dual, size);
  const largest = largestEntry(image);
  if (norm.kind === "lp" && norm.p === Infinity) return image.every((x) => Math.abs(x) > 1e-6 * largest);
  if (norm.kind === "lp") {
    const face = image.filter((x) => Math.abs(x) > (1 - 1e-6) * largest).length;
    return face <= dual.filter((x) => x > 1e-7 * largestEntry(dual)).length;
  }
  if (size !== 4) return true;
  const nuclear = normOf(NUCLEAR, image);
  const second = nuclear - normOf(SPECTRAL, image);
  const first = nuclear - second;
  return norm.kind === "spectral" ? second > 1e-6 * first : second < (1 - 1e-6) * first;
}

export function compareSvm(cases: SvmCase[]): SvmReport {
  const report: SvmReport = { statuses: [], value: 0, gap: 0, lowerBound: 0, direction: 0, distance: 0, within: 0, byNorm: {}, unique: 0, feasible: 0 };
  cases.forEach((one, index) => {
    const norm = normOfCase(one.norm);
    const found = solveSvm(asProblem(one.problem), one.selected, norm);
    const label = `${index}: ${String(one.norm)}, ${one.problem.queries === undefined ? "p" : "W"}`;
    if (found.status !== one.status) {
      report.statuses.push(`${label}: expected ${one.status}, got ${found.status} (gap ${found.gap})`);
      return;
    }
    if (one.status === "infeasible") return;
    report.feasible++;
    report.value = Math.max(report.value, Math.abs(found.value / one.value! - 1));
    report.gap = Math.max(report.gap, found.gap);
    const dual = found.rows.map((row) => one.dual[row.sequence][row.token]);
    const bound = dual.reduce((a, b) => a + b, 0) / normOf(dualOf(norm), combination(found.rows, dual, found.direction.length));
    report.lowerBound = Math.max(report.lowerBound, bound / found.value - 1);
    if (!isUnique(norm, found, dual, found.direction.length)) return;
    report.unique++;
    const difference = found.direction.map((x, k) => x - one.direction![k]);
    const error = length(difference) / length(one.direction!);
    report.direction = Math.max(report.direction, error ** 2 / 2);
    report.distance = Math.max(report.distance, error / Math.max(1e-7, 4 * Math.sqrt(one.gap!)));
    if (error <= 1e-7) report.within++;
    const name = `${String(one.norm)} of ${one.problem.queries === undefined ? "p" : "W"}`;
    report.byNorm[name] = Math.max(report.byNorm[name] ?? 0, error);
  });
  return report;
}

export interface StepReport {
  /** Largest distance of a parameter, relative to the largest entry, over the states that rounding does not decide. */
  error: number;
  states: number;
  /** States in which one unit in the last place moves the library's own step by more than 1e-13. */
  sensitive: number;
}

/** By optimizer. */
export function compareSteps(cases: StepCase[]): Record<string, StepReport> {
  const reports: Record<string, StepReport> = {};
  for (const one of cases) {
    const training = new Training(asProblem(one.problem), one.training, one.start);
    training.step();
    const { attention, head } = training.parameters;
    const expected = [...one.end.attention, ...(one.end.head === undefined ? [] : [one.end.head])];
    const found = head === null ? attention : [...attention, head];
    const { name, p } = one.training.optimizer;
    const own = (reports[name === "mirror_descent" ? `${name} ${p}` : name] ??= { error: 0, states: 0, sensitive: 0 });
    const error = (one.status === "stalled") === (training.status === "stalled") ? distance(found, expected) : Infinity;
    own.states++;
    if (one.change <= 1e-13) own.error = Math.max(own.error, error);
    else own.sensitive++;
  }
  return reports;
}

function distance(found: ArrayLike<number>[], expected: number[][]): number {
  return Math.max(...expected.map((of, j) => largestEntry(of.map((x, k) => x - found[j][k])) / largestEntry(of)));
}

export interface PathReport {
  stable: number;
  total: number;
  error: number;
  /** By optimizer: paths on which one unit in the last place matters less than 1e-12, all paths, largest error. */
  byOptimizer: Record<string, { stable: number; total: number; error: number }>;
}

export function comparePaths(cases: PathCase[]): PathReport {
  const report: PathReport = { stable: 0, total: 0, error: 0, byOptimizer: {} };
  for (const one of cases) {
    const { name, p } = one.training.optimizer;
    const own = (report.byOptimizer[name === "mirror_descent" ? `${name} ${p}` : name] ??= { stable: 0, total: 0, error: 0 });
    report.total++;
    own.total++;
    if (!(one.change < 1e-12)) continue;
    report.stable++;
    own.stable++;
    const training = new Training(asProblem(one.problem), one.training, one.start);
    one.steps.forEach((step, k) => {
      while (training.steps < step && training.status === "running") training.step();
      own.error = Math.max(own.error, distance([training.weights()], [one.weights[k]]));
    });
    report.error = Math.max(report.error, own.error);
  }
  return report;
}

export function compareAll(cases: Cases): { svm: SvmReport; steps: Record<string, StepReport>; paths: PathReport } {
  return { svm: compareSvm(cases.svm), steps: compareSteps(cases.steps), paths: comparePaths(cases.paths) };
}
