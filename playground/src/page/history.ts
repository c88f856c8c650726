/** A run and what is kept of it: parameters at logarithmically spaced steps. */

import type { Problem } from "../math/problem";
import { Training, weightsOf, type TrainingSettings } from "../math/train";

export const LAST_STEP = 1_000_000;
const PER_DECADE = 60;

export interface RunRecord {
  step: number;
  weights: number[];
  head: number[] | null;
}

/** 0, 1, 2, ..., then about 60 steps a decade. */
export const MARKS: number[] = [
  0,
  ...new Set(Array.from({ length: 6 * PER_DECADE + 1 }, (_, k) => Math.round(10 ** (k / PER_DECADE)))),
];

export class History {
  readonly records: RunRecord[] = [];
  private readonly training: Training;
  private readonly dk: number;

  constructor(problem: Problem, readonly settings: TrainingSettings, start: number[][]) {
    this.training = new Training(problem, settings, start);
    this.dk = problem.keys[0][0].length;
    this.record();
  }

  get last(): RunRecord {
    return this.records[this.records.length - 1];
  }

  get status(): Training["status"] {
    return this.training.status;
  }

  get complete(): boolean {
    return this.records.length >= MARKS.length || this.training.status !== "running";
  }

  /** Trains until a time (of performance.now) or until every mark is recorded. */
  advance(until: number): void {
    while (!this.complete) {
      const mark = MARKS[this.records.length];
      for (let made = 0; this.training.steps < mark && this.training.status === "running"; made++) {
        this.training.step();
        if (made % 16 === 15 && performance.now() > until) return;
      }
      if (this.training.status !== "running") return;
      this.record();
      if (performance.now() > until) return;
    }
  }

  /** The last record that is not after a step. */
  at(step: number): RunRecord {
    return this.records[this.indexAt(step)];
  }

  indexAt(step: number): number {
    let low = 0;
    let high = this.records.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.records[middle].step <= step) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  private record(): void {
    const { attention, head } = this.training.parameters;
    this.records.push({
      step: this.training.steps,
      weights: weightsOf(attention, this.dk),
      head: head === null ? null : Array.from(head),
    });
  }
}
