/** Everything that a link, a file or a preset holds. */

import type { Attention } from "../math/gradient";
import type { LossName } from "../math/losses";
import type { OptimizerName } from "../math/norms";
import type { OptimizerSettings } from "../math/optimizers";
import type { Problem } from "../math/problem";
import { limitNorm } from "../math/theory";

export type Point = [number, number];

export interface Token {
  at: Point;
  /** A third entry that the head alone reads, for the papers' examples whose scores are given. */
  height?: number;
  masked?: boolean;
}

export interface Sequence {
  label: 1 | -1;
  query: Point;
  tokens: Token[];
}

export interface Scene {
  name: string;
  note: string;
  sequences: Sequence[];
  head: Point;
  /** Of the heights; 0 where no token has one. */
  heightHead: number;
  attention: Attention;
  /** The start, see {@link startOf}. */
  start: Point;
  loss: LossName;
  trainHead: boolean;
  /** Whether the softmax gradient is computed as it is usually written, in float32, instead of exactly. */
  written: boolean;
  /** One, or two side by side. */
  optimizers: RunSettings[];
  /** The tokens that the Att-SVM keeps: those that the run selects, or those of highest score. */
  keep: "selected" | "optimal";
}

/** An optimizer, and, where there are queries, whether it trains another parametrization than the scene's. */
export interface RunSettings extends OptimizerSettings {
  attention?: "combined" | "factored";
}

export function attentionOf(scene: Scene, run: RunSettings): Attention {
  return scene.attention === "prompt" ? "prompt" : run.attention ?? scene.attention;
}

export const MOST_SEQUENCES = 6;
export const MOST_TOKENS = 8;

export function toProblem(scene: Scene): Problem {
  const tall = scene.heightHead !== 0;
  return {
    keys: scene.sequences.map((of) => of.tokens.map((token) => [...token.at])),
    values: scene.sequences.map((of) => of.tokens.map((token) => (tall ? [...token.at, token.height ?? 0] : [...token.at]))),
    allowed: scene.sequences.map((of) => of.tokens.map((token) => token.masked !== true)),
    queries: scene.attention === "prompt" ? null : scene.sequences.map((of) => [...of.query]),
    labels: scene.sequences.map((of) => of.label),
    head: tall ? [...scene.head, scene.heightHead] : [...scene.head],
  };
}

/** The initial parameters: p(0) = (x, y); W(0) = diag(x, y); K(0) near 0.3 I, and Q(0) the same plus diag(x, y). */
export function startOf(scene: Scene, attention = scene.attention): number[][] {
  const [x, y] = scene.start;
  if (attention === "prompt") return [[x, y]];
  const W = [x, 0, 0, y];
  if (attention === "combined") return [W];
  return [[0.3, 0.05, -0.05, 0.3], [0.3 + x, -0.05, 0.05, 0.3 + y]];
}

/** The scene as a problem file that attsvm.Problem.load reads; the key "playground" holds the rest. */
export function toFile(scene: Scene): string {
  const T = Math.max(...scene.sequences.map((of) => of.tokens.length));
  const problem = toProblem(scene);
  const padded = (rows: number[][]): number[][] => [...rows, ...Array.from({ length: T - rows.length }, () => rows[0].map(() => 0))];
  const mask = problem.allowed.map((of) => [...of, ...new Array<boolean>(T - of.length).fill(false)]);
  const tall = scene.heightHead !== 0;
  const file = {
    kind: "problem",
    tokens: problem.values.map(padded),
    labels: problem.labels,
    head: problem.head,
    ...(tall ? { keys: problem.keys.map(padded) } : {}),
    ...(problem.queries === null ? {} : { queries: problem.queries }),
    ...(mask.flat().every(Boolean) ? {} : { mask }),
    playground: scene,
  };
  return JSON.stringify(file, null, 1);
}

/** The lengths of nested lists of equal lengths that hold nothing but numbers, or true and false. */
function shapeOf(name: string, x: unknown): number[] {
  if (typeof x === "boolean" || (typeof x === "number" && Number.isFinite(x))) return [];
  if (!Array.isArray(x)) throw new Error(`${name}: expected nested lists of numbers, got ${JSON.stringify(x).slice(0, 20)}`);
  const shapes = x.map((one) => shapeOf(name, one));
  if (new Set(shapes.map(String)).size > 1) throw new Error(`${name}: expected nested lists of equal lengths, got different lengths`);
  return [x.length, ...(shapes[0] ?? [])];
}

/** Reads what {@link toFile} wrote, or a problem file with tokens in the plane. */
export function fromFile(text: string): Scene {
  let file: Partial<Record<string, unknown>> | null;
  try {
    file = JSON.parse(text) as typeof file;
  } catch {
    throw new Error("expected a problem file in JSON, got something else");
  }
  if (file?.["playground"] !== undefined) return checked(file["playground"]);
  if (file?.["tokens"] === undefined) throw new Error("tokens: expected shape (n, T, 2), got none");
  const shape = shapeOf("tokens", file["tokens"]);
  const [n, T, d] = shape;
  const fitting = <Kind>(name: string, ...expected: number[]): Kind | undefined => {
    const x = file[name];
    if (x === undefined) return undefined;
    const found = shapeOf(name, x);
    if (String(found) !== String(expected)) throw new Error(`${name}: expected shape (${expected.join(", ")}), to fit tokens of shape (${shape.join(", ")}), got (${found.join(", ")})`);
    return x as Kind;
  };
  if (shape.length !== 3 || shape.includes(0)) throw new Error(`tokens: expected shape (n, T, 2) without empty axes, got (${shape.join(", ")})`);
  const tokens = file["tokens"] as number[][][];
  const keys = fitting<Point[][]>("keys", n, T, 2);
  if (d !== 2 && (d !== 3 || keys === undefined)) throw new Error(`tokens: expected 2 entries each, as the page draws a plane, or 3 with keys in the plane, got ${d}`);
  const head = fitting<number[]>("head", d) ?? [1, 0, 0];
  const labels = fitting<number[]>("labels", n);
  const other = labels?.find((label) => Math.abs(label) !== 1);
  if (other !== undefined) throw new Error(`labels: expected -1 or 1, got ${other}`);
  const queries = fitting<Point[]>("queries", n, 2);
  const mask = fitting<boolean[][]>("mask", n, T);
  const base = emptyScene();
  return checked({
    ...base,
    name: "Imported",
    note: "A problem file.",
    sequences: tokens.map((of, i) => ({
      label: labels?.[i] ?? 1,
      query: queries?.[i] ?? [1, 0],
      tokens: of.map((x, t) => ({
        at: (keys?.[i][t] ?? x) as Point,
        ...(d === 3 ? { height: x[2] } : {}),
        ...(mask !== undefined && !mask[i][t] ? { masked: true } : {}),
      })),
    })),
    head: [head[0], head[1]],
    heightHead: d === 3 ? head[2] : 0,
    attention: queries === undefined ? "prompt" : "combined",
  });
}

export function emptyScene(): Scene {
  return {
    name: "", note: "", sequences: [], head: [1, 0], heightHead: 0, attention: "prompt", start: [0, 0], loss: "logistic",
    trainHead: false, written: false, optimizers: [{ name: "normalized_gradient_descent", rate: 0.1, schedule: "constant", p: 1.1 }],
    keep: "selected",
  };
}

const NAMES: Record<OptimizerName, true> = {
  gradient_descent: true, normalized_gradient_descent: true, mirror_descent: true, sign: true, coordinate: true,
  spectral: true, momentum: true, adam: true,
};

/** The scene, if links or files of others made it: every number finite, every choice known. */
export function checked(found: unknown): Scene {
  const scene = { ...emptyScene(), ...(found as Scene) };
  const expect = (condition: boolean, message: string): void => {
    if (!condition) throw new Error(message);
  };
  const finite = (...numbers: unknown[]): boolean => numbers.every((x) => typeof x === "number" && Number.isFinite(x) && Math.abs(x) <= 1e6);
  const point = (x: unknown): boolean => Array.isArray(x) && x.length === 2 && finite(...(x as unknown[]));
  expect(Array.isArray(scene.sequences) && scene.sequences.length >= 1 && scene.sequences.length <= 20, "sequences: expected 1 to 20");
  for (const of of scene.sequences as (Sequence | null)[]) {
    if (of === null) throw new Error("sequences: expected a label, a query and tokens in each, got none");
    expect(Math.abs(of.label) === 1 && point(of.query), "sequences: expected a label of ±1 and a query in the plane");
    expect(Array.isArray(of.tokens) && of.tokens.length >= 1 && of.tokens.length <= 40, "tokens: expected 1 to 40 in a sequence");
    for (const token of of.tokens as (Token | null)[]) expect(point(token?.at) && finite(token?.height ?? 0), "tokens: expected finite numbers");
    expect(of.tokens.some((token) => token.masked !== true), "tokens: expected one that is not masked in each sequence");
  }
  expect(point(scene.head) && point(scene.start) && finite(scene.heightHead), "head, start: expected points in the plane");
  expect(["prompt", "combined", "factored"].includes(scene.attention), "attention: expected prompt, combined or factored");
  expect(["logistic", "exponential", "linear"].includes(scene.loss), "loss: expected logistic, exponential or linear");
  expect(["selected", "optimal"].includes(scene.keep), "keep: expected selected or optimal");
  expect(Array.isArray(scene.optimizers) && [1, 2].includes(scene.optimizers.length), "optimizers: expected one or two");
  for (const one of scene.optimizers as (RunSettings | null)[]) {
    if (one === null) throw new Error("optimizers: expected a name, a rate and a schedule of each, got none");
    expect(one.name in NAMES && finite(one.rate, one.p) && one.rate > 0 && one.p > 1, "optimizers: expected a known one, a rate > 0 and p > 1");
    expect([undefined, "combined", "factored"].includes(one.attention), "optimizers: expected attention combined or factored");
    expect(["constant", "growing", "decaying"].includes(one.schedule), "schedule: expected constant, growing or decaying");
  }
  return { ...scene, name: String(scene.name), note: String(scene.note) };
}

/** The scene in the fragment of a link. */
export function toLink(scene: Scene): string {
  const bytes = new TextEncoder().encode(JSON.stringify(scene));
  return "scene=" + btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Reads what {@link toLink} made; null for the address of the page without a fragment. */
export function fromLink(fragment: string): Scene | null {
  if (fragment.length <= 1) return null;
  const match = /scene=([\w-]+)/.exec(fragment);
  if (match === null) throw new Error("The link cannot be read: expected an address that ends with #scene=…");
  let scene: unknown;
  try {
    const bytes = Uint8Array.from(atob(match[1].replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    scene = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new Error("The link cannot be read: it is cut off or damaged.");
  }
  try {
    return checked(scene);
  } catch (error) {
    throw new Error(`The link cannot be read: ${(error as Error).message}.`);
  }
}

const MAKERS: Record<OptimizerName, (rate: string, p: number) => string> = {
  gradient_descent: (rate) => `optimizers.gradient_descent(${rate})`,
  normalized_gradient_descent: (rate) => `optimizers.normalized_gradient_descent(${rate})`,
  mirror_descent: (rate, p) => `optimizers.mirror_descent(p=${p}, learning_rate=${rate})`,
  sign: (rate) => `optimizers.steepest_descent(norm="linf", learning_rate=${rate})`,
  coordinate: (rate) => `optimizers.steepest_descent(norm="l1", learning_rate=${rate})`,
  spectral: (rate) => `optimizers.steepest_descent(norm="spectral", learning_rate=${rate})`,
  momentum: (rate) => `optimizers.momentum(optimizers.normalized_gradient_descent(${rate}), 0.9)`,
  adam: (rate) => `optimizers.adam(${rate})`,
};

/** Python code that repeats the scene with attsvm. */
export function toPython(scene: Scene, steps: number): string {
  const file = JSON.parse(toFile(scene)) as Record<string, unknown>;
  const python = (x: unknown): string => JSON.stringify(x).replaceAll("true", "True").replaceAll("false", "False").replaceAll(",", ", ");
  const fields = ["tokens", "labels", "head", "keys", "queries", "mask"].filter((name) => file[name] !== undefined);
  const runs = scene.optimizers.map((one) => {
    const factor = { constant: "", growing: " * (1 + step / 100)", decaying: " / (1 + step / 100)" }[one.schedule];
    const rate = factor === "" ? String(one.rate) : `lambda step: ${one.rate}${factor}`;
    const attention = attentionOf(scene, one);
    const euclidean = ["gradient_descent", "normalized_gradient_descent", "momentum"].includes(one.name);
    const norm = attention === "factored" && !euclidean ? `, norm="${limitNorm(attention, one).kind}"` : "";
    const start = startOf(scene, attention).map((x) => python(attention === "prompt" ? x : [x.slice(0, 2), x.slice(2)]));
    const init = start.length === 1 ? `np.array(${start[0]})` : `(${start.map((x) => `np.array(${x})`).join(", ")})`;
    return [
      `init = ${init}`,
      "run = attsvm.train(",
      `    problem, attention="${attention}", optimizer=${MAKERS[one.name](rate, one.p)},`,
      `    loss="${scene.loss}", steps=${steps}, init=init${scene.trainHead ? ", train_head=True" : ""},`,
      ")",
      ...(norm === "" ? [] : ["# the norm that the page shows; the limit of these steps on K and Q is not known in general"]),
      `prediction = attsvm.predict_direction(problem, run${norm})`,
      "print(run.optimizer, run.selected, attsvm.direction_error(run.weights, prediction.direction))",
    ].join("\n");
  });
  return [
    "import numpy as np",
    "",
    "import attsvm",
    "from attsvm import optimizers",
    "",
    "problem = attsvm.Problem(",
    ...fields.map((name) => `    ${name}=np.array(${python(file[name])}),`),
    ")",
    ...(scene.written ? ["# attsvm computes the gradient exactly; the page showed it as it is usually written, in float32"] : []),
    ...runs,
    "",
  ].join("\n");
}
