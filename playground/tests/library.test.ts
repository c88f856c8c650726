/** The mathematics of the page against answers of attsvm that are kept here; `npm run proof` compares many more. */

import { expect, test } from "vitest";
import { readCases } from "../proof/cases";
import { comparePaths, compareSteps, compareSvm } from "../proof/compare";

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
