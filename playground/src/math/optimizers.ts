/** Optimizers on gradients whose scale is taken out. Each is that of the same name in attsvm.optimizers. */

import type { Gradient, Parameters } from "./gradient";
import { conjugate, type OptimizerName } from "./norms";

export type Schedule = "constant" | "growing" | "decaying";

export interface OptimizerSettings {
  name: OptimizerName;
  rate: number;
  schedule: Schedule;
  /** Of mirror descent. */
  p: number;
}

/** After so many steps a growing rate has doubled, and a decaying one has halved. */
export const SCHEDULE_STEPS = 100;

export function rateAt(settings: OptimizerSettings, step: number): number {
  if (settings.schedule === "growing") return settings.rate * (1 + step / SCHEDULE_STEPS);
  if (settings.schedule === "decaying") return settings.rate / (1 + step / SCHEDULE_STEPS);
  return settings.rate;
}

export interface Optimizer {
  /** Changes the parameters. The gradient's largest entry is 1 in each group, or 0. */
  step(parameters: Parameters, gradient: Gradient, rate: number): void;
}

/** The gradients of all parameters, the head's last, with the logarithm of the factor that each lacks. */
interface Entry {
  parameter: Float64Array;
  gradient: Float64Array;
  log: number;
}

function entriesOf(parameters: Parameters, gradient: Gradient): Entry[] {
  const entries = parameters.attention.map((parameter, j) => ({ parameter, gradient: gradient.attention[j], log: gradient.logAttention }));
  if (parameters.head !== null) entries.push({ parameter: parameters.head, gradient: gradient.head!, log: gradient.logHead });
  return entries;
}

/** Divides each group by its largest entry, and adds the logarithm of it to the scale. False where all are zero. */
export function rescale(gradient: Gradient): boolean {
  const ofAttention = divideByLargest(gradient.attention);
  gradient.logAttention += Math.log(ofAttention);
  if (gradient.head === null) return ofAttention > 0;
  const ofHead = divideByLargest([gradient.head]);
  gradient.logHead += Math.log(ofHead);
  return ofAttention > 0 || ofHead > 0;
}

function divideByLargest(group: Float64Array[]): number {
  let largest = 0;
  for (const of of group) for (const x of of) largest = Math.max(largest, Math.abs(x));
  if (largest > 0) for (const of of group) for (let k = 0; k < of.length; k++) of[k] /= largest;
  return largest;
}

/** All gradients on the largest of their scales. */
function align(entries: Entry[]): number {
  let common = -Infinity;
  for (const one of entries) common = Math.max(common, one.log);
  for (const one of entries) {
    if (one.log === common) continue;
    const factor = Math.exp(one.log - common);
    for (let k = 0; k < one.gradient.length; k++) one.gradient[k] *= factor;
  }
  return common;
}

/** The ℓq norm of all gradients, on a common scale. */
function sizeOf(entries: Entry[], q: number): number {
  let total = 0;
  for (const { gradient } of entries) {
    for (const x of gradient) total += q === 2 ? x * x : Math.pow(Math.abs(x), q);
  }
  return q === 2 ? Math.sqrt(total) : Math.pow(total, 1 / q);
}

class Descent implements Optimizer {
  constructor(private readonly normalized: boolean) {}

  step(parameters: Parameters, gradient: Gradient, rate: number): void {
    const entries = entriesOf(parameters, gradient);
    if (this.normalized) align(entries);
    const size = this.normalized ? sizeOf(entries, 2) : 1;
    for (const one of entries) {
      const factor = this.normalized ? rate / size : rate * Math.exp(one.log);
      for (let k = 0; k < one.gradient.length; k++) one.parameter[k] -= factor * one.gradient[k];
    }
  }
}

/** sign(θ⁺)|θ⁺|^(p−1) = sign(θ)|θ|^(p−1) − η g/‖g‖_q. */
class Mirror implements Optimizer {
  private readonly mirror: Float64Array[];

  constructor(parameters: Parameters, private readonly p: number) {
    const all = parameters.head === null ? parameters.attention : [...parameters.attention, parameters.head];
    this.mirror = all.map((x) => x.map((value) => signedPower(value, p - 1)));
  }

  step(parameters: Parameters, gradient: Gradient, rate: number): void {
    const entries = entriesOf(parameters, gradient);
    align(entries);
    const q = conjugate(this.p);
    const factor = rate / sizeOf(entries, q);
    entries.forEach(({ parameter, gradient: g }, j) => {
      const mirror = this.mirror[j];
      for (let k = 0; k < g.length; k++) {
        mirror[k] -= factor * g[k];
        parameter[k] = signedPower(mirror[k], q - 1);
      }
    });
  }
}

function signedPower(x: number, exponent: number): number {
  return exponent === 1 ? x : Math.sign(x) * Math.pow(Math.abs(x), exponent);
}

/** A step of length η in a norm, on each parameter by itself. */
class Steepest implements Optimizer {
  constructor(private readonly direction: (g: Float64Array) => Float64Array) {}

  step(parameters: Parameters, gradient: Gradient, rate: number): void {
    for (const one of entriesOf(parameters, gradient)) {
      if (divideByLargest([one.gradient]) === 0) continue;
      const D = this.direction(one.gradient);
      for (let k = 0; k < D.length; k++) one.parameter[k] -= rate * D[k];
    }
  }
}

function largestCoordinate(g: Float64Array): Float64Array {
  let first = 0;
  g.forEach((x, k) => {
    if (Math.abs(x) > Math.abs(g[first])) first = k;
  });
  return g.map((x, k) => (k === first ? Math.sign(x) : 0));
}

/** U V' of G = U Σ V', for a 2×2 matrix; the direction of a vector. */
function polarFactor(g: Float64Array): Float64Array {
  if (g.length !== 4) {
    const size = Math.hypot(...g);
    return g.map((x) => x / size);
  }
  const [u0, u1, v0, v1] = [g[0] + g[3], g[1] - g[2], g[0] - g[3], g[1] + g[2]];
  const [u, v] = [Math.hypot(u0, u1), Math.hypot(v0, v1)];
  // a matrix of rank one keeps its rank
  if (Math.abs(u - v) <= 2 * Number.EPSILON * (u + v)) return g.map((x) => (2 * x) / (u + v));
  return u > v ? Float64Array.of(u0 / u, u1 / u, -u1 / u, u0 / u) : Float64Array.of(v0 / v, v1 / v, v1 / v, -v0 / v);
}

export const DECAY = 0.9;

/** Normalized steps along m⁺ = 0.9 m + ∇L, whose scale is taken out. */
class Momentum implements Optimizer {
  private readonly inner = new Descent(true);
  private readonly sums: Float64Array[];
  private readonly logs: number[];

  constructor(parameters: Parameters) {
    const all = parameters.head === null ? parameters.attention : [...parameters.attention, parameters.head];
    this.sums = all.map((x) => new Float64Array(x.length));
    this.logs = all.map(() => -Infinity);
  }

  step(parameters: Parameters, gradient: Gradient, rate: number): void {
    entriesOf(parameters, gradient).forEach((one, j) => {
      const common = Math.max(one.log, this.logs[j]);
      if (common === -Infinity) return;
      const [before, added] = [DECAY * Math.exp(this.logs[j] - common), Math.exp(one.log - common)];
      for (let k = 0; k < one.gradient.length; k++) one.gradient[k] = before * this.sums[j][k] + added * one.gradient[k];
      if (j < gradient.attention.length) gradient.logAttention = common;
      else gradient.logHead = common;
    });
    rescale(gradient);
    entriesOf(parameters, gradient).forEach((one, j) => {
      this.sums[j].set(one.gradient);
      this.logs[j] = one.log;
    });
    this.inner.step(parameters, gradient, rate);
  }
}

/** Optax's Adam on the gradient divided by its ℓ2 norm. */
class Adam implements Optimizer {
  private readonly first: Float64Array[];
  private readonly second: Float64Array[];
  private count = 0;

  constructor(parameters: Parameters) {
    const all = parameters.head === null ? parameters.attention : [...parameters.attention, parameters.head];
    this.first = all.map((x) => new Float64Array(x.length));
    this.second = all.map((x) => new Float64Array(x.length));
  }

  step(parameters: Parameters, gradient: Gradient, rate: number): void {
    const entries = entriesOf(parameters, gradient);
    align(entries);
    const size = sizeOf(entries, 2);
    this.count++;
    const [a, b] = [1 - Math.pow(0.9, this.count), 1 - Math.pow(0.999, this.count)];
    entries.forEach(({ parameter, gradient: g }, j) => {
      const [first, second] = [this.first[j], this.second[j]];
      for (let k = 0; k < g.length; k++) {
        const x = g[k] / size;
        first[k] = 0.9 * first[k] + (1 - 0.9) * x;
        second[k] = 0.999 * second[k] + (1 - 0.999) * x * x;
        parameter[k] -= (rate * (first[k] / a)) / (Math.sqrt(second[k] / b) + 1e-8);
      }
    });
  }
}

export function makeOptimizer(settings: OptimizerSettings, parameters: Parameters): Optimizer {
  switch (settings.name) {
    case "gradient_descent": return new Descent(false);
    case "normalized_gradient_descent": return new Descent(true);
    case "mirror_descent": return new Mirror(parameters, settings.p);
    case "sign": return new Steepest((g) => g.map(Math.sign));
    case "coordinate": return new Steepest(largestCoordinate);
    case "spectral": return new Steepest(polarFactor);
    case "momentum": return new Momentum(parameters);
    case "adam": return new Adam(parameters);
  }
}
