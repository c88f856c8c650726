/** The mathematics of the page against attsvm, on the scenes of make_cases.py. */

import { expect, test } from "vitest";
import { readCases } from "./cases";
import { comparePaths, compareSteps, compareSvm } from "./compare";

const cases = readCases();
const MINUTE = 60_000;

test("Att-SVMs have the library's status, value and, where unique, direction", () => {
  const found = compareSvm(cases.svm);
  console.log(`${cases.svm.length} Att-SVMs`, found);
  expect(found.statuses).toEqual([]);
  expect(found.value).toBeLessThan(1e-9);
  expect(found.gap).toBeLessThan(1e-9);
  expect(found.lowerBound).toBeLessThan(1e-9);
  expect(found.direction).toBeLessThan(1e-7);
  expect(found.distance).toBeLessThan(1);
}, MINUTE);

test("single steps are those of attsvm.train", () => {
  const worst = compareSteps(cases.steps);
  console.log(`${cases.steps.length} single steps`, worst);
  for (const [name, { error, states, sensitive }] of Object.entries(worst)) {
    expect(error, name).toBeLessThan(1e-12);
    expect(sensitive, name).toBeLessThan(0.01 * states);
  }
}, MINUTE);

test("paths of 1,000 steps are those of attsvm.train", () => {
  const found = comparePaths(cases.paths);
  console.log(`${found.stable} of ${found.total} paths are insensitive to one unit in the last place`, found);
  expect(found.stable).toBeGreaterThan(0);
  expect(found.error).toBeLessThan(1e-9);
}, MINUTE);
