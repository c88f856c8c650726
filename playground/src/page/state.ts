/** What the page shows now, computed from the scene, the runs and the displayed step. */

import { length } from "../math/linear";
import { normOf, type Norm } from "../math/norms";
import { keyDirection, logitsOf, optimalTokens, selectedTokens, softmax, type Problem } from "../math/problem";
import { solveSvm, type Solution } from "../math/svm";
import {
  directionError, hypothesesOf, isSaturated, kindOf, labelsWithSlack, limitNorm, locallyOptimal, marginRatio, theoremOf,
  type Hypothesis, type Kind, type LocalSelection, type Theorem,
} from "../math/theory";
import { History } from "./history";
import { attentionOf, startOf, toProblem, type Scene } from "./scene";

export interface RunView {
  history: History;
  norm: Norm;
  /** Of the tokens that are kept: those selected at the latest record, or the optimal ones. */
  solution: Solution;
  kept: number[];
  theorem: Theorem;
  /** Where the head is trained too, the sequences whose labels have slack. The Att-SVM may then have margin 0 there. */
  slack: number[];
  /** Direction error and margin ratio of each record, for this solution. */
  errors: number[];
  ratios: number[];
}

export class State {
  problem: Problem;
  runs: RunView[] = [];
  /** The run whose norm and Att-SVM the planes show. */
  active = 0;
  step = 0;
  chosen = 0;
  local: LocalSelection[] | null = null;
  private histories: History[] = [];
  private measuredTo: string[] = [];

  constructor(public scene: Scene) {
    this.problem = toProblem(scene);
    this.restart();
  }

  /** Trains anew after the scene has changed. */
  restart(): void {
    const { scene } = this;
    this.problem = toProblem(scene);
    this.active = Math.min(this.active, scene.optimizers.length - 1);
    this.chosen = Math.min(this.chosen, scene.sequences.length - 1);
    this.histories = scene.optimizers.map((optimizer) => new History(
      this.problem,
      { attention: attentionOf(scene, optimizer), loss: scene.loss, trainHead: scene.trainHead, written: scene.written, optimizer },
      startOf(scene, attentionOf(scene, optimizer)),
    ));
    this.measuredTo = [];
    this.local = null;
    this.localFor = "";
    this.advance(6);
  }

  get complete(): boolean {
    return this.histories.every((one) => one.complete);
  }

  /** The farthest step to which all runs are known. */
  get reached(): number {
    return Math.min(...this.histories.map((one) => (one.complete ? Infinity : one.last.step)));
  }

  /** Trains for some milliseconds, then measures. */
  advance(milliseconds: number): void {
    const share = milliseconds / this.histories.length;
    for (const one of this.histories) one.advance(performance.now() + share);
    this.measure();
  }

  /** The problem with the trained head of a run. */
  problemAt(run: RunView, step: number): Problem {
    const { head } = run.history.at(step);
    return head === null ? this.problem : { ...this.problem, head };
  }

  weightsAt(run: RunView): number[] {
    return run.history.at(this.step).weights;
  }

  /** p, or W z of the chosen sequence. */
  inPlane(weights: number[]): number[] {
    return keyDirection(this.problem, weights, this.chosen);
  }

  probabilitiesAt(run: RunView): number[][] {
    return logitsOf(this.problem, this.weightsAt(run)).map(softmax);
  }

  /** The kind of convergence and the hypotheses of the theorem at the displayed step. */
  verdictOn(run: RunView): { kind: Kind; hypotheses: Hypothesis[] } {
    const { attention, loss, written = false, optimizer } = run.history.settings;
    const problem = this.problemAt(run, this.step);
    const logits = logitsOf(problem, this.weightsAt(run));
    const probabilities = logits.map(softmax);
    const saturated = isSaturated(probabilities, run.kept);
    return {
      kind: kindOf(problem, selectedTokens(logits), probabilities, run.norm),
      hypotheses: hypothesesOf(problem, attention, loss, run.kept, run.solution, saturated, startOf(this.scene, attention), written, optimizer),
    };
  }

  private measure(): void {
    this.runs = this.histories.map((history, index) => {
      const before = this.runs[index];
      const { attention } = history.settings;
      const norm = limitNorm(attention, history.settings.optimizer);
      const { weights, head } = history.last;
      const kept = this.scene.keep === "optimal" ? optimalTokens({ ...this.problem, head: head ?? this.problem.head }) : selectedTokens(logitsOf(this.problem, weights));
      const key = JSON.stringify([kept, norm]);
      const known = before !== undefined && this.measuredTo[index] === key && before.history === history;
      const solution = known ? before.solution : solveSvm(this.problem, kept, norm);
      const theorem = theoremOf(attention, history.settings.optimizer, this.scene.trainHead);
      const slack = !this.scene.trainHead ? [] : known ? before.slack : labelsWithSlack(this.problem, kept, history.settings.optimizer);
      const errors = known ? before.errors : [];
      const ratios = known ? before.ratios : [];
      for (let k = errors.length; k < history.records.length; k++) {
        const { weights } = history.records[k];
        const feasible = solution.status !== "infeasible" && length(weights) > 0 && slack.length === 0;
        errors.push(feasible ? directionError(weights, solution.direction) : NaN);
        ratios.push(feasible ? marginRatio(solution, weights, norm) : NaN);
      }
      this.measuredTo[index] = key;
      return { history, norm, solution, kept, theorem, slack, errors, ratios };
    });
  }

  private localFor = "";

  /** The locally optimal selections in the norm of the active run; searched for once the scene is at rest. */
  searchLocal(): void {
    const run = this.runs[this.active];
    const problem = this.problemAt(run, this.step);
    const key = JSON.stringify([run.norm, this.active, problem.head]);
    if (this.localFor === key) return;
    this.localFor = key;
    this.local = locallyOptimal(problem, run.norm);
  }

  /** The radius of the norm's ball that has grown to the weights, at most to the Att-SVM. */
  ballRadius(run: RunView): number {
    const size = normOf(run.norm, this.weightsAt(run));
    return run.solution.status === "infeasible" ? size : Math.min(size, run.solution.value);
  }
}
