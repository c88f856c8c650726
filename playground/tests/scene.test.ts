/** Scenes survive links and files, and those of others are refused where they are damaged. */

import { expect, test } from "vitest";
import { PRESETS } from "../src/page/presets";
import { checked, emptyScene, fromFile, fromLink, toFile, toLink, toPython, type Scene } from "../src/page/scene";
import type { Hypothesis } from "../src/math/theory";
import { State } from "../src/page/state";

const scenes = PRESETS.flatMap((group) => group.scenes);

test.each(scenes.map((scene) => [scene.name, scene] as const))("%s: through a link and a file", (_, scene) => {
  expect(fromLink(`#${toLink(scene)}`)).toEqual(scene);
  expect(fromFile(toFile(scene))).toEqual(scene);
});

test("a problem file without the page's part is read too", () => {
  const { playground: _, ...problem } = JSON.parse(toFile(scenes[4])) as Record<string, unknown>;
  expect(fromFile(JSON.stringify(problem)).sequences.map((of) => of.tokens)).toEqual(scenes[4].sequences.map((of) => of.tokens));
});

test("damaged scenes are refused", () => {
  const scene = structuredClone(scenes[0]);
  expect(() => checked({ ...scene, loss: "hinge" })).toThrow("loss");
  expect(() => checked({ ...scene, head: [Infinity, 0] })).toThrow("head");
  expect(() => checked({ ...scene, sequences: [null] })).toThrow("sequences: expected");
  expect(() => checked({ ...scene, sequences: [{ ...scene.sequences[0], tokens: [null] }] })).toThrow("tokens: expected");
  expect(() => checked({ ...scene, optimizers: [null] })).toThrow("optimizers: expected");
});

test.each([["#scene=%7B", "scene="], [`#${toLink(scenes[0]).slice(0, -20)}`, "cut off"], ["#else", "scene="], [`#scene=${btoa("{}")}`, "sequences: expected"]])("the link %s is refused", (link, said) => {
  expect(() => fromLink(link)).toThrow(said);
  expect(fromLink("")).toBeNull();
});

test.each([
  ["null", "tokens: expected shape (n, T, 2), got none"],
  ["no JSON", "expected a problem file in JSON, got something else"],
  ['{"tokens": []}', "tokens: expected shape (n, T, 2) without empty axes, got (0)"],
  ['{"tokens": 5}', "tokens: expected shape (n, T, 2) without empty axes, got ()"],
  ['{"tokens": [[[1, 2, 3]]]}', "tokens: expected 2 entries each"],
  ['{"tokens": [[[1, 2], [null, 1]]]}', "tokens: expected nested lists of numbers, got null"],
  ['{"tokens": [[[1, 2], [2, 1]], [[1, 2]]]}', "tokens: expected nested lists of equal lengths"],
  ['{"tokens": [[[1, 2], [2, 1]]], "mask": []}', "mask: expected shape (1, 2), to fit tokens of shape (1, 2, 2), got (0)"],
  ['{"tokens": [[[1, 2], [2, 1]]], "mask": [[false, false]]}', "tokens: expected one that is not masked"],
  ['{"tokens": [[[1, 2], [2, 1]]], "keys": 5}', "keys: expected shape (1, 2, 2), to fit tokens of shape (1, 2, 2), got ()"],
  ['{"tokens": [[[1, 2], [2, 1]]], "labels": []}', "labels: expected shape (1), to fit tokens of shape (1, 2, 2), got (0)"],
  ['{"tokens": [[[1, 2], [2, 1]]], "labels": [3]}', "labels: expected -1 or 1, got 3"],
  ['{"tokens": [[[1, 2], [2, 1]]], "head": [1]}', "head: expected shape (2), to fit tokens of shape (1, 2, 2), got (1)"],
  ['{"tokens": [[[1, 2]]], "playground": {"sequences": 5}}', "sequences: expected 1 to 20"],
])("the file %s is refused in one line", (text, said) => {
  expect(() => fromFile(text)).toThrow(said);
});

test.each(["mirror_descent", "sign", "coordinate"] as const)("the Att-SVM of 780 constraints is optimal with %s", (name) => {
  const sequences = Array.from({ length: 20 }, (_, i): Scene["sequences"][number] => ({
    label: i % 2 === 0 ? 1 : -1,
    query: [1, 0],
    tokens: Array.from({ length: 40 }, (_, t) => ({ at: [1.5 * Math.sin(7.1 * i + 2.3 * t), 1.5 * Math.cos(3.7 * i + 5.9 * t)] })),
  }));
  const [run] = new State({ ...emptyScene(), sequences, optimizers: [{ name, rate: 0.1, schedule: "constant", p: 1.5 }] }).runs;
  expect(run.solution.rows.length).toBe(780);
  expect(run.solution.status).toBe("optimal");
  expect(run.solution.gap).toBeLessThan(1e-12);
});

test("the gradient as it is written turns away from the Att-SVM, the exact one does not", () => {
  const scene = scenes.find((one) => one.written)!;
  const errorOf = (written: boolean): number => {
    const state = new State({ ...structuredClone(scene), written });
    while (!state.complete && state.runs[0].history.last.step < 20_000) state.advance(50);
    return state.runs[0].errors.at(-1)!;
  };
  const [asWritten, exact] = [errorOf(true), errorOf(false)];
  console.log({ asWritten, exact });
  expect(exact).toBeLessThan(1e-7);
  expect(asWritten).toBeGreaterThan(1e-3);
}, 60_000);

test("nothing is called proved where a hypothesis fails, and no error is shown where a label has slack", () => {
  const plainScene = (): Scene => structuredClone(scenes.find((scene) => scene.name.includes("Plain"))!);
  const state = (name: string): State => new State(structuredClone(scenes.find((scene) => scene.name.includes(name))!));
  const hypothesesOf = (of: State): Hypothesis[] => of.verdictOn(of.runs[0]).hypotheses;
  const written = hypothesesOf(state("usually written"));
  expect(written.find((one) => one.name === "the gradient is exact")?.holds).toBe(false);
  expect(state("Two optimisers").runs.map((run) => run.theorem.standing)).toEqual(["measured", "measured"]);
  const stalling = state("Plain gradient descent stalls");
  const [plain] = stalling.runs;
  expect(plain.theorem.standing).toBe("proved");
  expect(hypothesesOf(stalling).find((one) => one.name.includes("cone"))?.holds).toBeNull(); // so the page says "if:"
  for (const [rate, schedule, holds] of [[1e-3, "constant", true], [1e3, "constant", false], [1e-3, "growing", false]] as const) {
    const hypotheses = hypothesesOf(new State({ ...plainScene(), optimizers: [{ ...plain.history.settings.optimizer, rate, schedule }] }));
    expect(hypotheses.find((one) => one.name.startsWith("the steps"))?.holds).toBe(holds);
  }
  const joint = state("figure 3").runs[0];
  expect(joint.slack).toEqual([2]);
  expect(joint.errors.every(Number.isNaN)).toBe(true);
  expect(state("joint training").runs[0].slack).toEqual([]);
});

test("equal scores are sufficient for one sequence alone", () => {
  // differences of keys (1, 0) and (-2, 0.5) with score gaps 5 and 0.05: the run ends elsewhere, docs/notes/global_conditions.md
  const of = (x: [number, number], height: number): Scene["sequences"][number] => ({ label: 1, query: [1, 0], tokens: [{ at: x, height }, { at: [0, 0], height: 0 }] });
  const both = [of([1, 0], 5), of([-2, 0.5], 0.05)];
  const favoured = (sequences: Scene["sequences"]): boolean => {
    const state = new State({ ...emptyScene(), head: [0, 0], heightHead: 1, sequences });
    return state.verdictOn(state.runs[0]).hypotheses.at(-1)!.holds === true;
  };
  expect(favoured(both)).toBe(false);
  expect(favoured([both[1]])).toBe(true);
});

test("the Python code names a norm where the library knows no limit of the factors", () => {
  const code = (name: "mirror_descent" | "normalized_gradient_descent"): string =>
    toPython({ ...structuredClone(scenes[0]), attention: "factored", optimizers: [{ name, rate: 0.01, schedule: "constant", p: 1.5 }] }, 10);
  expect(code("mirror_descent")).toContain('predict_direction(problem, run, norm="nuclear")');
  expect(code("normalized_gradient_descent")).toContain("predict_direction(problem, run)");
});

test("the kind of convergence and the hypotheses are those of the displayed step", () => {
  for (const scene of scenes.slice(0, 2)) {
    const state = new State(structuredClone(scene));
    while (state.runs[0].history.last.step < 1000) state.advance(20);
    const [run] = state.runs;
    const seen = [0, 12, 1000].map((step) => {
      state.step = step;
      const largest = state.probabilitiesAt(run).map((of) => Math.max(...of));
      const { kind, hypotheses } = state.verdictOn(run);
      const saturated = hypotheses.find((one) => one.name.includes("saturated"))!.holds;
      expect(saturated).toBe(Math.min(...largest) > 1 - 1e-6);
      return kind;
    });
    expect(seen).toEqual(["undecided", "undecided", "global"]);
  }
});

test("the kinds of convergence of the scenes", () => {
  const state = (name: string): State => new State(structuredClone(scenes.find((scene) => scene.name.startsWith(name))!));
  const kindAt = (name: string): string => {
    const found = state(name);
    for (let k = 0; k < 300 && !found.complete && found.runs[0].history.last.step < 5000; k++) found.advance(20);
    found.step = found.runs[0].history.last.step;
    return found.verdictOn(found.runs[0]).kind;
  };
  expect(kindAt("Two optimisers")).toBe("global");
  expect(kindAt("A wrong token")).toBe("local");
  expect(state("No weights").runs[0].solution.status).toBe("infeasible");
}, 60_000);
