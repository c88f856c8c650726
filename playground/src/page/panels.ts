/** The panels below the planes: settings of the runs, the answer, and the editor of the scene. */

import type { Attention } from "../math/gradient";
import type { LossName } from "../math/losses";
import { normName, type OptimizerName } from "../math/norms";
import type { Schedule } from "../math/optimizers";
import { scores } from "../math/problem";
import type { Hypothesis } from "../math/theory";
import { MOST_SEQUENCES, MOST_TOKENS, attentionOf, type Scene } from "./scene";
import type { State } from "./state";
import { withTerms } from "./terms";

export const OPTIMIZER_NAMES: Record<OptimizerName, string> = {
  normalized_gradient_descent: "normalised gradient descent",
  gradient_descent: "gradient descent",
  mirror_descent: "ℓp mirror descent",
  sign: "sign descent",
  coordinate: "coordinate descent",
  spectral: "spectral descent",
  momentum: "momentum 0.9, normalised",
  adam: "Adam",
};

/** What tells the runs of a scene apart, for the legend of their paths. */
export function runNames(scene: Scene): string[] {
  const mixed = new Set(scene.optimizers.map((one) => attentionOf(scene, one))).size > 1;
  const names = scene.optimizers.map((one) => OPTIMIZER_NAMES[one.name].replace("ℓp", `ℓ${one.p}`)
    + (mixed ? { prompt: "", combined: " on W", factored: " on K, Q" }[attentionOf(scene, one)] : ""));
  return names[0] === names[1] ? names.map((name, k) => `${name}, step ${scene.optimizers[k].rate}`) : names;
}

type Children = (Node | string)[];

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Record<string, string>,
  ...children: Children
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function field(name: string, control: HTMLElement): HTMLElement {
  return element("label", { class: "field" }, element("span", {}, name), control);
}

function choice<T extends string>(options: Record<T, string>, value: T, change: (value: T) => void): HTMLSelectElement {
  const made = element("select", {});
  for (const [key, name] of Object.entries<string>(options)) made.append(element("option", { value: key }, name));
  made.value = value;
  made.addEventListener("change", () => change(made.value as T));
  return made;
}

function number(value: number, least: number, step: string, change: (value: number) => void): HTMLInputElement {
  const made = element("input", { type: "number", step, min: String(least), value: String(value) });
  made.addEventListener("change", () => {
    const read = Number(made.value);
    if (Number.isFinite(read) && read >= least) change(read);
    else made.value = String(value);
  });
  return made;
}

function button(text: string, click: () => void, properties: Record<string, string> = {}): HTMLButtonElement {
  const made = element("button", { type: "button", ...properties }, text);
  made.addEventListener("click", click);
  return made;
}

/** Replaces the content of a panel, and keeps the focus on the control at the same place. */
function refill(panel: HTMLElement, children: Children): void {
  const controls = (): HTMLElement[] => [...panel.querySelectorAll<HTMLElement>("button, select, input, a")];
  const focused = controls().indexOf(document.activeElement as HTMLElement);
  panel.replaceChildren(...children);
  if (focused >= 0) controls()[Math.min(focused, controls().length - 1)]?.focus();
}

export interface Actions {
  /** The scene was edited: panels and planes are drawn anew, and the runs begin again. */
  edited(): void;
  activate(run: number): void;
  choose(sequence: number, token: number | null): void;
}

export function drawRuns(panel: HTMLElement, state: State, actions: Actions): void {
  const { scene } = state;
  const set = (change: () => void) => (): void => { change(); actions.edited(); };
  const attention: Record<Attention, string> = { prompt: "prompt p", combined: "matrix W", factored: "factors K, Q" };
  const loss: Record<LossName, string> = { logistic: "logistic", exponential: "exponential", linear: "linear" };
  const schedule: Record<Schedule, string> = { constant: "constant", growing: "growing, 1 + k/100", decaying: "decaying, 1/(1 + k/100)" };
  const runs = scene.optimizers.map((optimizer, index) => element("div", { class: `run${index > 0 ? " second" : ""}` },
    field(index === 0 ? "optimiser" : "second", choice(OPTIMIZER_NAMES, optimizer.name, (name) => set(() => { optimizer.name = name; })())),
    ...(optimizer.name === "mirror_descent" ? [pField(optimizer.p, (p) => set(() => { optimizer.p = p; })())] : []),
    ...(scene.attention !== "prompt" && scene.optimizers.length > 1
      ? [field("trains", choice({ combined: "W", factored: "K and Q" }, attentionOf(scene, optimizer) as "combined" | "factored", (value) => set(() => { optimizer.attention = value; })()))]
      : []),
    field("step", number(optimizer.rate, 1e-6, "any", (rate) => set(() => { optimizer.rate = rate; })())),
    field("schedule", choice(schedule, optimizer.schedule, (kind) => set(() => { optimizer.schedule = kind; })())),
    ...(scene.optimizers.length > 1
      ? [element("div", { class: "row" },
        button("Show its Att-SVM", () => actions.activate(index), { "aria-pressed": String(state.active === index) }),
        ...(index === 1 ? [button("Remove", set(() => { scene.optimizers.pop(); }))] : []))]
      : []),
  ));
  const second = button("Compare with a second optimiser", set(() => {
    scene.optimizers.push({ name: scene.optimizers[0].name === "sign" ? "normalized_gradient_descent" : "sign", rate: 0.02, schedule: "constant", p: 1.5 });
  }));
  const trainHead = element("input", { type: "checkbox", style: "width:auto;justify-self:start" });
  trainHead.checked = scene.trainHead;
  trainHead.addEventListener("change", () => set(() => { scene.trainHead = trainHead.checked; })());
  refill(panel, [
    element("h3", {}, "Training"),
    field("weights", choice(attention, scene.attention, (value) => set(() => {
      scene.attention = value;
      for (const one of scene.optimizers) delete one.attention;
    })())),
    ...runs,
    ...(scene.optimizers.length < 2 ? [second] : []),
    field("Att-SVM of", choice({ selected: "tokens selected last", optimal: "best tokens" }, scene.keep, (value) => set(() => { scene.keep = value; })())),
    field("loss", choice(loss, scene.loss, (value) => set(() => { scene.loss = value; })())),
    field("also train v", trainHead),
    field("gradient", choice({ exact: "exact", written: "usual formula, float32" }, scene.written ? "written" : "exact", (value) => set(() => { scene.written = value === "written"; })())),
  ]);
}

function pField(p: number, change: (p: number) => void): HTMLElement {
  // the slider is uniform in log(p − 1)
  const slider = element("input", { type: "range", min: "-3", max: "2.2", step: "0.05", value: String(Math.log(p - 1)), "aria-label": "p" });
  const shown = element("output", {}, `p = ${p}`);
  slider.addEventListener("input", () => { shown.textContent = `p = ${read()}`; });
  const read = (): number => Number((1 + Math.exp(Number(slider.value))).toPrecision(3));
  slider.addEventListener("change", () => change(read()));
  return element("label", { class: "field" }, shown, slider);
}

export function drawAnswer(panel: HTMLElement, state: State): void {
  const { scene } = state;
  const known = new Set<string>();
  const text = (words: string): Children => withTerms(words, known);
  const hint = (words: string): HTMLElement => element("p", { class: "hint" }, ...text(words));
  const run = state.runs[state.active];
  const { solution, theorem } = run;
  const infeasible = solution.status === "infeasible";
  const matrix = scene.attention !== "prompt";
  const { kind, hypotheses } = state.verdictOn(run);
  const k = run.history.indexAt(state.step);
  const support = solution.rows.filter((_, r) => solution.support[r]).map((row) => `${row.token} of sequence ${row.sequence}`);
  const facts: [string, string][] = infeasible
    ? [["certificate", solution.bound === Infinity
      ? `Farkas: a positive combination of the constraints is 0 ≥ 1, so no ${matrix ? "W" : "p"} satisfies them`
      : `Farkas: every such ${matrix ? "W" : "p"} is longer than ${solution.bound.toExponential(1)} (with rows scaled to length 1)`]]
    : [
      ["value", `${solution.value.toPrecision(6)}, with a duality gap of ${solution.gap === 0 ? "0" : solution.gap.toExponential(0)}`],
      [matrix ? "W" : "p", `(${solution.direction.map((x) => x.toFixed(4)).join(", ")})`],
      ["support tokens", support.length > 0 ? support.join("; ") : "none"],
      ["direction error now", Number.isFinite(run.errors[k]) ? run.errors[k].toExponential(1) : "–"],
      ["margin ratio now", Number.isFinite(run.ratios[k]) ? run.ratios[k].toFixed(6) : "–"],
    ];
  const { step } = run.history.at(state.step);
  const weights = state.probabilitiesAt(run).map((of, i) => `${i}: ${Math.max(...of).toFixed(4)} on token ${of.indexOf(Math.max(...of))}`).join(" · ");
  const kinds = { global: "good", local: "warn", "not local": "bad", undecided: "warn" } as const;
  const standing = { proved: "good", measured: "warn", conjecture: "warn" } as const;
  // a theorem says nothing of a run that does not meet its hypotheses
  const open = theorem.standing === "proved" && hypotheses.some((one) => !one.global && !one.holds);
  refill(panel, [
    element("h3", {}, ...text(`Att-SVM in the ${normName(run.norm, matrix)} norm `), element("span", { class: `tag ${infeasible ? "bad" : solution.status === "optimal" ? "good" : "warn"}` }, solution.status)),
    element("dl", {}, ...[...facts, ["softmax weights", weights] as [string, string]].flatMap(([name, value]) => [element("dt", {}, ...text(name)), element("dd", {}, ...text(value))])),
    ...(run.slack.length === 0 ? [] : [hint(`The label of sequence ${run.slack.join(", ")} has slack. If v grows faster than the attention, the path converges to the Att-SVM with margin 0 there. This page solves it with margin 1, so it shows no star, direction error or margin ratio.`)]),
    element("h3", {}, ...text("Convergence: "), element("span", { class: `tag ${kinds[kind]}` }, { global: "globally", local: "locally", "not local": "not to a locally optimal selection", undecided: "undecided: not saturated" }[kind]), ` at step ${step.toLocaleString("en")}`),
    ...(state.local === null ? [] : [hint(`${state.local.length} locally optimal selection${state.local.length === 1 ? "" : "s"}, shown as cones at the rim; green marks the best.`)]),
    element("p", { class: "theorem" }, element("span", { class: `tag ${open ? "open" : standing[theorem.standing]}` }, ...(open ? ["if:"] : text(theorem.standing))), ...text(` ${theorem.statement} `), element("a", { href: theorem.link, target: "_blank", rel: "noreferrer" }, theorem.source)),
    listOf(hypotheses.filter((one) => !one.global), text),
    hint(state.problem.keys.length === 1 ? "From a start near 0, a run usually ends at the token with the highest score if these conditions hold. For gradient descent, equal scores of the other tokens are sufficient:" : "From a start near 0, a run usually ends at the tokens with the highest score if these conditions hold:"),
    listOf(hypotheses.filter((one) => one.global), text),
    ...(run.history.status === "stalled" && step === run.history.last.step ? [hint(`The gradient is zero after ${run.history.last.step.toLocaleString("en")} steps, so the run has stopped.`)] : []),
  ]);
}

function listOf(hypotheses: Hypothesis[], text: (words: string) => Children): HTMLElement {
  const shown = (one: Hypothesis): [string, string] => one.holds === null ? ["open", ""] : one.holds ? ["yes", " holds"] : ["no", " does not hold"];
  return element("ul", { class: "hypotheses" }, ...hypotheses.map((one) => element("li", { class: shown(one)[0] },
    ...text(one.name), element("span", { class: "visually-hidden" }, shown(one)[1]))));
}

export function drawEditor(panel: HTMLElement, state: State, token: number | null, actions: Actions): void {
  const { scene } = state;
  const i = state.chosen;
  const sequence = scene.sequences[i];
  const edit = (change: () => void) => (): void => { change(); actions.edited(); };
  const row = (...children: Children): HTMLElement => element("div", { class: "row" }, ...children);
  const chosen = token === null ? undefined : sequence.tokens[token];
  refill(panel, [
    element("h3", {}, "Scene"),
    // the colours alone are too light for letters on a light page
    row(...scene.sequences.map((_, j) => button(`sequence ${j}`, () => actions.choose(j, null), { "aria-pressed": String(j === i), style: j === i ? "" : `color: color-mix(in srgb, var(--s${j % 6}) 70%, var(--ink))` }))),
    row(
      button(`label ${sequence.label > 0 ? "+1" : "−1"}`, edit(() => { sequence.label = sequence.label > 0 ? -1 : 1; })),
      ...(sequence.tokens.length < MOST_TOKENS ? [button("Add a token", edit(() => addToken(scene, i)))] : []),
      ...(scene.sequences.length < MOST_SEQUENCES ? [button("Add a sequence", edit(() => { addSequence(scene); }))] : []),
      ...(scene.sequences.length > 1 ? [button("Remove this sequence", edit(() => { scene.sequences.splice(i, 1); }))] : []),
    ),
    ...(chosen === undefined || token === null ? [element("p", { class: "hint" }, "Choose a token to mask or remove it. Keys: arrows move the token, M masks it, Delete removes it.")] : [
      element("p", { class: "hint" }, `Token ${token} at (${chosen.at.map((x) => x.toFixed(2)).join(", ")}), score ${scores(state.problem)[i][token].toFixed(3)}`),
      row(
        button(chosen.masked ? "Unmask" : "Mask", edit(() => mask(scene, i, token))),
        ...(sequence.tokens.length > 1 ? [button("Remove the token", edit(() => remove(scene, i, token)))] : []),
      ),
    ]),
    ...(chosen === undefined || scene.heightHead === 0 ? [] : [field("own score", number(chosen.height ?? 0, -1e6, "any", (value) => edit(() => { chosen.height = value; })()))]),
  ]);
}

export function mask(scene: Scene, i: number, t: number): void {
  const token = scene.sequences[i].tokens[t];
  const others = scene.sequences[i].tokens.some((one, u) => u !== t && one.masked !== true);
  if (token.masked === true) delete token.masked;
  else if (others) token.masked = true;
}

export function remove(scene: Scene, i: number, t: number): void {
  const { tokens } = scene.sequences[i];
  if (tokens.some((one, u) => u !== t && one.masked !== true)) tokens.splice(t, 1);
}

function addToken(scene: Scene, i: number): void {
  const { tokens } = scene.sequences[i];
  const angle = 2.4 * (tokens.length + 1 + i);
  const far = Math.max(0.5, ...tokens.map((token) => Math.hypot(...token.at)));
  tokens.push({ at: [0.7 * far * Math.cos(angle), 0.7 * far * Math.sin(angle)], ...(scene.heightHead === 0 ? {} : { height: 0 }) });
}

function addSequence(scene: Scene): void {
  scene.sequences.push({ label: 1, query: [0.8, 0.6], tokens: [] });
  for (let t = 0; t < 3; t++) addToken(scene, scene.sequences.length - 1);
}
