/** The mathematics of the page against answers of attsvm that are kept here; `npm run proof` compares many more. */

import { expect, test } from "vitest";
import { readCases } from "../proof/cases";
import { comparePaths, compareSteps, compareSvm } from "../proof/compare";
import type { LossName } from "../src/math/losses";
import { lipschitzConstant } from "../src/math/theory";

const cases = readCases(new URL("cases.json", import.meta.url).pathname);

test("Att-SVMs are the library's", () => {
  const found = compareSvm(cases.svm);
  expect(found.statuses).toEqual([]);
  expect(found.feasible).toBeGreaterThan(10);
  expect(Math.max(found.value, found.gap, found.lowerBound)).toBeLessThan(1e-9);
  expect(found.distance).toBeLessThan(1);
});

test("steps and paths are the library's", () => {
  const steps = Object.values(compareSteps(cases.steps));
  expect(steps).toHaveLength(10);
  for (const { error } of steps) expect(error).toBeLessThan(1e-12);
  const paths = comparePaths(cases.paths);
  expect(paths.stable).toBeGreaterThan(10);
  expect(paths.error).toBeLessThan(1e-9);
});

test("the Lipschitz constant is attsvm.theory.lipschitz_constant", () => {
  const keys = [[[1, 0.2], [-0.5, 0.8], [-0.6, -0.7]], [[0.3, -1.1], [0.9, 0.4], [1.5, 1]]];
  const problem = { keys, values: keys, allowed: [[true, true, true], [true, true, false]], queries: null, labels: [1, -1], head: [0.9, -0.4] };
  const expected = { logistic: [0.24788997989100, 0.2168380586695], exponential: [1.14773010239299, 1.00967935489663], linear: [0.26533574996282, 0.23059230901604] };
  for (const [loss, [prompt, matrix]] of Object.entries(expected)) {
    expect(lipschitzConstant(problem, loss as LossName)).toBeCloseTo(prompt, 11);
    expect(lipschitzConstant({ ...problem, queries: [[0.8, 0.5], [-0.3, 1.2]] }, loss as LossName)).toBeCloseTo(matrix, 11);
  }
});
