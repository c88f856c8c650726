/** A training run that can be continued in slices. */

import { Objective, emptyGradient, type Attention, type Gradient, type Parameters } from "./gradient";
import type { LossName } from "./losses";
import { makeOptimizer, rateAt, rescale, type Optimizer, type OptimizerSettings } from "./optimizers";
import type { Problem } from "./problem";

export interface TrainingSettings {
  attention: Attention;
  loss: LossName;
  trainHead: boolean;
  /** Whether the softmax gradient is computed as it is usually written, in float32. */
  written?: boolean;
  optimizer: OptimizerSettings;
}

export type TrainingStatus = "running" | "stalled" | "non_finite";

export class Training {
  readonly parameters: Parameters;
  steps = 0;
  status: TrainingStatus = "running";
  private readonly objective: Objective;
  private readonly optimizer: Optimizer;
  private readonly gradient: Gradient;

  constructor(problem: Problem, private readonly settings: TrainingSettings, start: number[][]) {
    this.parameters = {
      attention: start.map((x) => Float64Array.from(x)),
      head: settings.trainHead ? Float64Array.from(problem.head) : null,
    };
    this.objective = new Objective(problem, settings.attention, settings.loss, settings.written);
    this.optimizer = makeOptimizer(settings.optimizer, this.parameters);
    this.gradient = emptyGradient(this.parameters);
  }

  /** Makes one step, unless the gradient is zero or the parameters leave the floats. */
  step(): void {
    if (this.status !== "running") return;
    this.objective.evaluate(this.parameters, this.gradient);
    if (!rescale(this.gradient) || this.underflows()) {
      this.status = "stalled";
      return;
    }
    this.optimizer.step(this.parameters, this.gradient, rateAt(this.settings.optimizer, this.steps));
    this.steps++;
    if (!this.parameters.attention.every((x) => x.every(Number.isFinite))) this.status = "non_finite";
  }

  /** The gradient itself, for plain gradient descent, which has no normalized steps. */
  private underflows(): boolean {
    if (this.settings.optimizer.name !== "gradient_descent") return false;
    return Math.exp(Math.max(this.gradient.logAttention, this.gradient.head === null ? -Infinity : this.gradient.logHead)) === 0;
  }

  /** The loss at the current parameters. */
  loss(): number {
    const scratch = emptyGradient(this.parameters);
    this.objective.evaluate(this.parameters, scratch);
    return scratch.loss;
  }

  /** p, W or KQ', in row-major order. */
  weights(): number[] {
    return weightsOf(this.parameters.attention, this.objective.dk);
  }
}

/** p, W or KQ', in row-major order. */
export function weightsOf(attention: Float64Array[], dk: number): number[] {
  const [K, Q] = attention;
  if (Q === undefined) return Array.from(K);
  const rank = K.length / dk;
  const rows = Array.from({ length: dk }, (_, k) => Array.from(K.slice(k * rank, (k + 1) * rank)));
  const columns = Array.from({ length: Q.length / rank }, (_, e) => Array.from(Q.slice(e * rank, (e + 1) * rank)));
  return rows.flatMap((row) => columns.map((column) => row.reduce((sum, x, m) => sum + x * column[m], 0)));
}
