/** The loss and its gradient, which keeps its relative accuracy however saturated the softmax is. */

import { LOSSES, type LossName } from "./losses";
import type { Problem } from "./problem";

export type Attention = "prompt" | "combined" | "factored";

/** Trained parameters in row-major order: p; or W; or K and Q of W = KQ'; then the head v where it is trained. */
export interface Parameters {
  attention: Float64Array[];
  head: Float64Array | null;
}

/** Gradients times exp(−c); attention and head have factors c of their own. */
export interface Gradient {
  loss: number;
  attention: Float64Array[];
  head: Float64Array | null;
  logAttention: number;
  logHead: number;
}

/** The arrays of a problem in the form that the loop over a million steps reads. */
export class Objective {
  readonly n: number;
  readonly dk: number;
  readonly dq: number;
  readonly d: number;
  private readonly keys: Float64Array[]; // allowed tokens alone
  private readonly values: Float64Array[];
  private readonly queries: Float64Array[];
  private readonly logits: Float64Array[];
  private readonly weight: Float64Array[];
  private readonly D: Float64Array[];
  private readonly ofLogits: Float64Array[];
  private readonly winner: Int32Array;
  private readonly total: Float64Array;
  private readonly outputs: Float64Array;
  private readonly logSlopes: Float64Array;

  constructor(
    readonly problem: Problem,
    readonly attention: Attention,
    readonly loss: LossName,
    private readonly written = false,
  ) {
    const kept = <T>(of: T[], i: number): T[] => of.filter((_, t) => problem.allowed[i][t]);
    this.n = problem.keys.length;
    this.dk = problem.keys[0][0].length;
    this.d = problem.values[0][0].length;
    this.dq = problem.queries?.[0].length ?? 1;
    this.keys = problem.keys.map((of, i) => Float64Array.from(kept(of, i).flat()));
    this.values = problem.values.map((of, i) => Float64Array.from(kept(of, i).flat()));
    this.queries = problem.keys.map((_, i) => Float64Array.from(problem.queries?.[i] ?? [1]));
    const perToken = (): Float64Array[] => this.keys.map((of) => new Float64Array(of.length / this.dk));
    [this.logits, this.weight, this.D, this.ofLogits] = [perToken(), perToken(), perToken(), perToken()];
    this.winner = new Int32Array(this.n);
    this.total = new Float64Array(this.n);
    this.outputs = new Float64Array(this.n * this.d);
    this.logSlopes = new Float64Array(this.n);
  }

  /**
   * With * the largest logit, δ_t = s_t − s_*, e_t = exp(δ_t), S = Σ e_t, D_t = ⟨x_* − x_t, ∂L/∂o⟩ and
   * r = Σ_{t≠*} e_t D_t/S, the gradient is r/S for s_* and (e_t/S)(r − D_t) for the others: sums of small terms. A
   * factor exp(c), with c the largest log|ℓ'| + δ_t over the tokens with D_t ≠ 0, is taken out so that nothing
   * underflows.
   */
  evaluate(parameters: Parameters, into: Gradient): void {
    const { n, d } = this;
    const head = parameters.head ?? this.problem.head;
    const { value, logSlope } = LOSSES[this.loss];
    let c = -Infinity;
    into.loss = 0;
    for (let i = 0; i < n; i++) {
      this.pool(parameters, i);
      const label = this.problem.labels[i];
      const [values, weight, D] = [this.values[i], this.weight[i], this.D[i]];
      let output = 0;
      for (let k = 0; k < d; k++) output += this.outputs[i * d + k] * head[k];
      into.loss += value(label * output) / n;
      const slope = logSlope(label * output);
      this.logSlopes[i] = slope;
      const star = this.winner[i];
      for (let t = 0; t < weight.length; t++) {
        let difference = 0;
        for (let k = 0; k < d; k++) difference += (values[star * d + k] - values[t * d + k]) * (-label * head[k]);
        D[t] = difference;
        if (t !== star && difference !== 0) c = Math.max(c, this.logits[i][t] + slope);
      }
    }
    into.logAttention = c === -Infinity || this.written ? 0 : c;
    for (const of of into.attention) of.fill(0);
    for (let i = 0; i < n; i++) this.pull(parameters, into, i);
    if (into.head !== null) this.pullHead(into);
  }

  /** Leaves δ in `logits`, e in `weight` with 0 for the winner, the winner, S and the pooled token. */
  private pool(parameters: Parameters, i: number): void {
    const { dk, d } = this;
    const [keys, values, logits, weight] = [this.keys[i], this.values[i], this.logits[i], this.weight[i]];
    const u = this.direction(parameters, i);
    let star = 0;
    for (let t = 0; t < logits.length; t++) {
      let s = 0;
      for (let k = 0; k < dk; k++) s += keys[t * dk + k] * u[k];
      logits[t] = s;
      if (s > logits[star]) star = t;
    }
    const largest = logits[star];
    let total = 0;
    for (let t = 0; t < logits.length; t++) {
      logits[t] -= largest;
      weight[t] = t === star ? 0 : Math.exp(logits[t]);
      total += weight[t];
    }
    const share = 1 / (1 + total);
    for (let k = 0; k < d; k++) {
      let sum = 0;
      for (let t = 0; t < logits.length; t++) sum += (t === star ? share : weight[t] * share) * values[t * d + k];
      this.outputs[i * d + k] = sum;
    }
    this.winner[i] = star;
    this.total[i] = 1 + total;
  }

  private readonly scratch = { u: new Float64Array(8), m: new Float64Array(8), g: new Float64Array(8) };

  /** What the keys of a sequence are multiplied with: p, W z or K Q'z. */
  private direction(parameters: Parameters, i: number): Float64Array {
    const [A, B] = parameters.attention;
    if (this.attention === "prompt") return A;
    const z = this.queries[i];
    if (this.attention === "combined") return times(A, z, this.dk, this.dq, this.scratch.u);
    const rank = A.length / this.dk;
    transposedTimes(B, z, this.dq, rank, this.scratch.m);
    return times(A, this.scratch.m, this.dk, rank, this.scratch.u);
  }

  private pull(parameters: Parameters, into: Gradient, i: number): void {
    const { n } = this;
    const [logits, weight, D, ofLogits] = [this.logits[i], this.weight[i], this.D[i], this.ofLogits[i]];
    const [star, c, slope, share] = [this.winner[i], into.logAttention, this.logSlopes[i], 1 / this.total[i]];
    if (this.written) return this.pullThrough(parameters, into, i, this.asWritten(i));
    let r = 0;
    for (let t = 0; t < logits.length; t++) {
      const product = t === star || D[t] === 0 ? 0 : Math.exp(logits[t] + slope - c) * D[t];
      ofLogits[t] = product;
      r += product;
    }
    r *= share;
    for (let t = 0; t < logits.length; t++) ofLogits[t] = ((t === star ? r : weight[t] * r - ofLogits[t]) * share) / n;
    this.pullThrough(parameters, into, i, ofLogits);
  }

  /** a_t (g_t − Σ_u a_u g_u) in float32: once the softmax is saturated, what is left of it is rounding. */
  private asWritten(i: number): Float64Array {
    const [weight, D, ofLogits, star] = [this.weight[i], this.D[i], this.ofLogits[i], this.winner[i]];
    const float = Math.fround;
    const slope = float(Math.exp(this.logSlopes[i]) / this.n);
    const a = weight.map((e, t) => float((t === star ? 1 : e) / this.total[i]));
    const head = this.problem.head.length;
    const values = this.values[i];
    const label = this.problem.labels[i];
    // ⟨x_t, ∂L/∂o⟩ of each token, not of differences
    const g = D.map((_, t) => {
      let total = 0;
      for (let k = 0; k < head; k++) total = float(total - float(label * float(values[t * head + k]) * float(this.problem.head[k])));
      return float(total * slope);
    });
    let mean = 0;
    for (let t = 0; t < a.length; t++) mean = float(mean + float(a[t] * g[t]));
    for (let t = 0; t < a.length; t++) ofLogits[t] = float(a[t] * float(g[t] - mean));
    return ofLogits;
  }

  private pullThrough(parameters: Parameters, into: Gradient, i: number, ofLogits: Float64Array): void {
    const { dk, dq } = this;
    const keys = this.keys[i];
    const g = this.scratch.g;
    g.fill(0);
    for (let t = 0; t < ofLogits.length; t++) for (let k = 0; k < dk; k++) g[k] += ofLogits[t] * keys[t * dk + k];
    const [A, B] = into.attention;
    if (this.attention === "prompt") {
      for (let k = 0; k < dk; k++) A[k] += g[k];
      return;
    }
    const z = this.queries[i];
    if (this.attention === "combined") return addOuter(A, g, z, dk, dq);
    const [K, Q] = parameters.attention;
    const rank = K.length / dk;
    transposedTimes(Q, z, dq, rank, this.scratch.m);
    addOuter(A, g, this.scratch.m, dk, rank);
    transposedTimes(K, g, dk, rank, this.scratch.m);
    addOuter(B, z, this.scratch.m, dq, rank);
  }

  private pullHead(into: Gradient): void {
    let c = -Infinity;
    for (const slope of this.logSlopes) c = Math.max(c, slope);
    into.logHead = c === -Infinity ? 0 : c;
    into.head!.fill(0);
    for (let i = 0; i < this.n; i++) {
      const factor = (-this.problem.labels[i] * Math.exp(this.logSlopes[i] - into.logHead)) / this.n;
      for (let k = 0; k < this.d; k++) into.head![k] += factor * this.outputs[i * this.d + k];
    }
  }
}

export function emptyGradient(parameters: Parameters): Gradient {
  const zeros = (x: Float64Array): Float64Array => new Float64Array(x.length);
  const head = parameters.head === null ? null : zeros(parameters.head);
  return { loss: 0, attention: parameters.attention.map(zeros), head, logAttention: 0, logHead: 0 };
}

function times(M: Float64Array, z: Float64Array, rows: number, columns: number, into: Float64Array): Float64Array {
  for (let k = 0; k < rows; k++) {
    let sum = 0;
    for (let e = 0; e < columns; e++) sum += M[k * columns + e] * z[e];
    into[k] = sum;
  }
  return into;
}

function transposedTimes(M: Float64Array, z: Float64Array, rows: number, columns: number, into: Float64Array): void {
  for (let e = 0; e < columns; e++) {
    let sum = 0;
    for (let k = 0; k < rows; k++) sum += M[k * columns + e] * z[k];
    into[e] = sum;
  }
}

function addOuter(M: Float64Array, a: Float64Array, b: Float64Array, rows: number, columns: number): void {
  for (let k = 0; k < rows; k++) for (let e = 0; e < columns; e++) M[k * columns + e] += a[k] * b[e];
}
