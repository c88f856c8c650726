/** What the theory says of a selection and of an optimizer: local optimality, kinds of convergence, theorems. */

import { dot, length } from "./linear";
import { Objective, emptyGradient, type Attention } from "./gradient";
import { LOSSES, type LossName } from "./losses";
import { L2, NUCLEAR, normOf, normOfOptimizerName, type Norm } from "./norms";
import type { OptimizerSettings } from "./optimizers";
import { optimalTokens, scores, type Problem } from "./problem";
import { solveRows, solveSvm, type Solution } from "./svm";

export type Kind = "global" | "local" | "not local" | "undecided";

/** A softmax is saturated if the probability of every other token is at most this. */
export const SATURATED = 1e-6;

/** The norm of the Att-SVM to compare with: for K and Q the spectral norm for spectral steps, otherwise the nuclear norm. */
export function limitNorm(attention: Attention, optimizer: OptimizerSettings): Norm {
  const own = normOfOptimizerName(optimizer.name, optimizer.p);
  if (attention !== "factored") return own;
  return optimizer.name === "spectral" ? { kind: "spectral" } : NUCLEAR;
}

/** The support tokens that score at least as much as the selected token of their sequence. */
export function breaking(problem: Problem, selected: number[], solution: Solution): [number, number][] {
  const gamma = scores(problem);
  return solution.rows.flatMap(({ sequence, token }, r): [number, number][] =>
    solution.support[r] && gamma[sequence][token] >= gamma[sequence][selected[sequence]] ? [[sequence, token]] : [],
  );
}

export function isOptimal(problem: Problem, selected: number[]): boolean {
  const gamma = scores(problem);
  return selected.every((t, i) => gamma[i].every((score, u) => !problem.allowed[i][u] || score <= gamma[i][t]));
}

export function isSaturated(probabilities: number[][], selected: number[]): boolean {
  return probabilities.every((of, i) => of.every((a, t) => t === selected[i] || a <= SATURATED));
}

export function kindOf(problem: Problem, selected: number[], probabilities: number[][], norm: Norm): Kind {
  if (!isSaturated(probabilities, selected)) return "undecided";
  if (isOptimal(problem, selected)) return "global";
  return breaking(problem, selected, solveSvm(problem, selected, norm)).length === 0 ? "local" : "not local";
}

export interface LocalSelection {
  selected: number[];
  direction: number[];
  global: boolean;
}

/** More selections than this are not searched one by one. */
export const MOST_SELECTIONS = 1500;
/** With queries each selection takes solves for four numbers instead of two. */
const MOST_WITH_QUERIES = 100;

/** The locally optimal selections, in a norm; null where there are too many selections to try. */
export function locallyOptimal(problem: Problem, norm: Norm): LocalSelection[] | null {
  const choices = problem.allowed.map((of) => of.flatMap((allowed, t) => (allowed ? [t] : [])));
  const most = problem.queries === null ? MOST_SELECTIONS : MOST_WITH_QUERIES;
  if (choices.reduce((product, of) => product * of.length, 1) > most) return null;
  let selections: number[][] = [[]];
  for (const of of choices) selections = selections.flatMap((first) => of.map((t) => [...first, t]));
  return selections.flatMap((selected): LocalSelection[] => {
    if (solveSvm(problem, selected, L2).status === "infeasible") return [];
    const solution = solveSvm(problem, selected, norm);
    if (breaking(problem, selected, solution).length > 0) return [];
    return [{ selected, direction: solution.direction, global: isOptimal(problem, selected) }];
  });
}

export interface Hypothesis {
  name: string;
  /** null: this page does not check it. */
  holds: boolean | null;
  /** Whether it is one of those under which the run ends at the tokens of highest score. */
  global: boolean;
}

export interface Theorem {
  standing: "proved" | "measured" | "conjecture";
  statement: string;
  source: string;
  link: string;
}

const SELECTION = { source: "Tarzanagh, Li, Zhang, Oymak (2023)", link: "https://arxiv.org/abs/2306.13596" };
const TRANSFORMERS = { source: "Tarzanagh, Li, Thrampoulidis, Oymak (2023)", link: "https://arxiv.org/abs/2308.16898" };
const MIRROR = { source: "Julistiono, Tarzanagh, Azizan (2025)", link: "https://arxiv.org/abs/2410.14581" };
const LINEAR = { source: "by analogy with linear models: Gunasekar, Lee, Soudry, Srebro (2018)", link: "https://arxiv.org/abs/1802.08246" };
const MEASURED = { ...LINEAR, source: `measured with attsvm; ${LINEAR.source}` };

/** The steps that the theorems are about are not divided by the length of the gradient. */
const SMALL_STEPS = "Proved for small constant steps that are not normalised.";

/** The statement that covers a run; {@link hypothesesOf} has its hypotheses. */
export function theoremOf(attention: Attention, optimizer: OptimizerSettings, trainHead: boolean): Theorem {
  const euclidean = ["gradient_descent", "normalized_gradient_descent"].includes(optimizer.name)
    || (optimizer.name === "mirror_descent" && optimizer.p === 2);
  const weights = { prompt: "p", combined: "W", factored: "KQ′" }[attention];
  if (trainHead) {
    const proved = optimizer.name === "mirror_descent" || euclidean;
    return {
      standing: proved ? "measured" : "conjecture",
      statement: `v and ${weights} are trained together. v converges in direction to the max-margin head of the selected tokens, ${weights} to an Att-SVM. If v grows faster, the Att-SVM has margin 0 instead of 1 for labels with slack. Proved for the regularisation path.`,
      ...(optimizer.name === "mirror_descent" && !euclidean ? MIRROR : proved ? SELECTION : LINEAR),
    };
  }
  if (attention === "factored") {
    return ofFactors(optimizer);
  }
  if (euclidean) {
    const norm = attention === "prompt" ? "ℓ2" : "Frobenius";
    const limit = `${weights} converges in direction to the ${norm} Att-SVM of a locally optimal selection.`;
    return { ...(optimizer.name === "gradient_descent" ? { standing: "proved", statement: limit } : { standing: "measured", statement: `${limit} ${SMALL_STEPS}` }), ...(attention === "prompt" ? SELECTION : TRANSFORMERS) };
  }
  if (optimizer.name === "mirror_descent") {
    return { standing: "measured", statement: `${weights} converges in direction to the ℓp Att-SVM, with p = ${optimizer.p}, of a locally optimal selection. ${SMALL_STEPS}`, ...MIRROR };
  }
  const norms = { sign: "ℓ∞", adam: "ℓ∞", coordinate: "ℓ1", spectral: "spectral-norm", momentum: "ℓ2" } as Record<string, string>;
  return { standing: "conjecture", statement: `${weights} is expected to approach the largest ${norms[optimizer.name]} margin when steps are short.`, ...LINEAR };
}

/** As `optimizer.limit("factored")` of the library says it. */
function ofFactors({ name, p }: OptimizerSettings): Theorem {
  const compared = "The picture compares it with the nuclear-norm Att-SVM.";
  const short = "if no step changes a logit by more than about 1";
  if (name === "gradient_descent" || name === "normalized_gradient_descent") {
    return { standing: "measured", statement: "KQ′ converges in direction to the nuclear-norm Att-SVM. Proved for the regularisation path.", ...TRANSFORMERS };
  }
  if (name === "spectral") {
    return { standing: "measured", statement: `KQ′ converges in direction to the spectral-norm Att-SVM ${short}. With long steps it converges to the nuclear one. No theorem.`, ...MEASURED };
  }
  if (name === "sign") {
    return { standing: "measured", statement: `KQ′ tends to the Att-SVM in the norm ν ${short}. No theorem. This page does not compute it. ${compared}`, ...MEASURED };
  }
  const expected = name === "adam" ? "KQ′ is expected to approach the Att-SVM in the norm ν when steps are short. This page does not compute it."
    : name === "momentum" || (name === "mirror_descent" && p === 2) ? "KQ′ is expected to approach the nuclear-norm Att-SVM. No theorem."
    : "No limit of KQ′ is known for these steps on K and Q.";
  const other = expected.includes("nuclear") ? "" : ` ${compared}`;
  return { standing: "conjecture", statement: `${expected}${other}`, ...LINEAR };
}

/** The sequences whose labels have slack: they are no support vectors of the max-margin head of the selected tokens. */
export function labelsWithSlack(problem: Problem, selected: number[], optimizer: OptimizerSettings): number[] {
  const rows = problem.values.map((of, i) => ({ sequence: i, token: selected[i], entries: of[selected[i]].map((x) => problem.labels[i] * x) }));
  const head = solveRows(rows, problem.head.length, normOfOptimizerName(optimizer.name, optimizer.p));
  return head.status === "infeasible" ? [] : rows.flatMap((row, r) => (head.support[r] ? [] : [row.sequence]));
}

/** Hypotheses of convergence to a selection: local, for the selection and the displayed step, and global, from the start. */
export function hypothesesOf(
  problem: Problem,
  attention: Attention,
  loss: LossName,
  selected: number[],
  solution: Solution,
  saturated: boolean,
  start: number[][],
  written: boolean,
  optimizer: OptimizerSettings,
): Hypothesis[] {
  const best = optimalTokens(problem);
  const feasible = solveSvm(problem, best, L2).status !== "infeasible";
  const separable = solution.status !== "infeasible";
  const local = separable && breaking(problem, selected, solution).length === 0;
  // with equal scores one sequence converges globally; several need not (docs/notes/global_conditions.md)
  const one = problem.keys.length === 1;
  const favoured = feasible && ((one && equalScores(problem, best)) || favourable(problem, attention, loss, best, start));
  return [
    { name: "the selected tokens are separable", holds: separable, global: false },
    { name: "the selection is locally optimal", holds: local, global: false },
    { name: "the softmax is saturated on these tokens at this step", holds: saturated, global: false },
    ...(optimizer.name === "gradient_descent" && attention !== "factored" ? [shortSteps(problem, loss, optimizer), IN_CONE] : []),
    ...(written ? [{ name: "the gradient is exact", holds: false, global: false }] : []),
    { name: "the tokens with the highest score are separable", holds: feasible, global: true },
    { name: one ? "the other tokens score equally, or the first gradient favours the best one" : "the first gradient favours the best tokens", holds: favoured, global: true },
  ];
}

/** `attsvm.predict_direction` checks it, by attsvm.theory.local_convergence_conditions. */
const IN_CONE: Hypothesis = { name: "the weights are in a cone that the steps do not leave (not checked here)", holds: null, global: false };

function shortSteps(problem: Problem, loss: LossName, { rate, schedule }: OptimizerSettings): Hypothesis {
  const longest = 1 / lipschitzConstant(problem, loss);
  return { name: `the steps are constant and at most 1/L = ${longest.toPrecision(2)}`, holds: schedule === "constant" && rate <= longest, global: false };
}

/** A bound of the largest eigenvalue of the Hessian of the loss in W or p, at all weights: attsvm.theory.lipschitz_constant. */
export function lipschitzConstant(problem: Problem, loss: LossName): number {
  const gamma = scores(problem);
  const { logSlope, curvature } = LOSSES[loss];
  let [a, b, c] = [0, 0, 0]; // the symmetric matrix of the queries
  problem.keys.forEach((keys, i) => {
    const allowed = keys.flatMap((_, t) => (problem.allowed[i][t] ? [t] : []));
    const own = allowed.map((t) => gamma[i][t]);
    const [low, best] = [Math.min(...own), Math.max(...own)];
    const spread = best - low;
    const diameter = Math.max(...allowed.flatMap((s) => allowed.map((t) => Math.hypot(...keys[s].map((x, k) => x - keys[t][k])))));
    const steepest = Math.exp(Math.max(logSlope(low), logSlope(best)));
    const bend = Math.max(...[low, best, Math.min(Math.max(0, low), best)].map(curvature));
    const weight = (diameter ** 2 * ((bend * spread ** 2) / 16 + (Math.sqrt(3) / 18) * steepest * spread)) / problem.keys.length;
    const [x, y] = problem.queries?.[i] ?? [1, 0];
    a += weight * x * x;
    b += weight * x * y;
    c += weight * y * y;
  });
  return (a + c) / 2 + Math.hypot((a - c) / 2, b);
}

function equalScores(problem: Problem, best: number[]): boolean {
  return scores(problem).every((of, i) => {
    const others = of.filter((_, t) => t !== best[i] && problem.allowed[i][t]);
    return Math.max(...others) - Math.min(...others) <= 1e-12 * Math.max(1, ...others.map(Math.abs)) || others.length < 2;
  });
}

/** min −(x_opt − x_t)'∇L(W_0) z > 0. For K and Q the gradient in W = KQ' is used. */
function favourable(problem: Problem, attention: Attention, loss: LossName, best: number[], start: number[][]): boolean {
  if (attention === "factored") return false;
  const parameters = { attention: start.map((x) => Float64Array.from(x)), head: null };
  const gradient = emptyGradient(parameters);
  new Objective(problem, attention, loss).evaluate(parameters, gradient);
  const g = Array.from(gradient.attention[0]);
  if (length(g) === 0) return false;
  return solveSvm(problem, best, L2).rows.every((row) => row.entries.reduce((sum, x, k) => sum - x * g[k], 0) > 0);
}

/** 1 − cos, as half the squared distance of the unit vectors. */
export function directionError(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const [la, lb] = [length(Array.from(a)), length(Array.from(b))];
  let total = 0;
  for (let k = 0; k < a.length; k++) total += (a[k] / la - b[k] / lb) ** 2;
  return total / 2;
}

/** The margin of weights over the best one in the norm; 1 at the Att-SVM, and negative where another token is ahead. */
export function marginRatio(solution: Solution, weights: number[], norm: Norm): number {
  const size = normOf(norm, weights);
  if (!(size > 0)) return NaN;
  const unit = weights.map((x) => x / size);
  return Math.min(...solution.rows.map((row) => dot(row.entries, unit))) * solution.value;
}
