/** The page: it holds the state, draws it, and trains between two frames. */

import { Chart } from "./chart";
import { save, toPng } from "./files";
import { LAST_STEP, MARKS } from "./history";
import { drawAnswer, drawEditor, drawRuns, element, mask, remove, runNames, type Actions } from "./panels";
import { PRESETS } from "./presets";
import { fromFile, fromLink, toFile, toLink, toPython, type Scene } from "./scene";
import { State } from "./state";
import "./style.css";
import { explainTerms } from "./terms";
import { TokenPlane, type Edits } from "./token_plane";
import { WeightPlane } from "./weight_plane";

const DECADES_A_SECOND = 0.55;
const TRAINING_MS = 4;
const TRAINING_MS_AT_REST = 11;

function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

const scrub = byId<HTMLInputElement>("scrub");
const play = byId<HTMLButtonElement>("play");

class Page {
  private state: State;
  private token: number | null = null;
  private playing = false;
  private dirty = true;
  private before = 0;
  private readonly tokens: TokenPlane;
  private readonly weights: WeightPlane;
  private readonly chart = new Chart();
  /** As it was opened; the button "Reset" opens it again. */
  private opened: Scene;
  private drawnAnswer = "";
  private restAt = 0;
  /** Milliseconds of script and drawing of each frame while playing, for measurements. */
  readonly frames: number[] = [];

  constructor(scene: Scene) {
    this.opened = structuredClone(scene);
    this.state = new State(scene);
    const edits: Edits = {
      changed: () => this.edited(false),
      redraw: () => this.touch(),
      choose: (sequence, token) => this.choose(sequence, token),
      key: (i, t, key) => this.key(i, t, key),
    };
    this.tokens = new TokenPlane(edits);
    this.weights = new WeightPlane(edits);
    this.tokens.fit(this.state);
    this.panels();
    this.listen();
    this.begin();
    this.frame(performance.now());
  }

  open(scene: Scene): void {
    this.opened = structuredClone(scene);
    byId<HTMLSelectElement>("preset").value = presetName(scene);
    this.state = new State(scene);
    this.token = null;
    this.tokens.fit(this.state);
    this.edited(true);
    this.begin();
  }

  /** Plays from step 0, where the system does not ask for less motion. */
  private begin(): void {
    this.moveTo(0);
    this.playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.before = performance.now();
  }

  private readonly actions: Actions = {
    edited: () => this.edited(true),
    activate: (run) => {
      this.state.active = run;
      this.restAt = 0;
      this.panels();
    },
    choose: (sequence, token) => this.choose(sequence, token),
  };

  /** Begins the runs anew. While something is dragged the panels keep their controls. */
  private edited(panels: boolean): void {
    const { step } = this.state;
    this.state.restart();
    this.state.step = step;
    this.restAt = performance.now() + 150;
    if (panels) this.panels();
    this.touch();
  }

  private panels(): void {
    const { scene } = this.state;
    byId("note").replaceChildren(element("strong", {}, scene.name), scene.note);
    byId("plane-of").textContent = scene.attention === "prompt" ? "the space of the prompt p" : `${this.state.runs[this.state.active].history.settings.attention === "factored" ? "KQ′z" : "Wz"} for the query of sequence ${this.state.chosen}`;
    byId("paths").replaceChildren(...runNames(scene).map((name, index) => element("span", {}, element("i", { class: `path${index > 0 ? " second" : ""}` }), name)));
    drawRuns(byId("runs"), this.state, this.actions);
    this.editor();
    this.touch();
  }

  private editor(): void {
    drawEditor(byId("editor"), this.state, this.token, this.actions);
  }

  private choose(sequence: number, token: number | null): void {
    if (this.state.chosen === sequence && this.token === token) return;
    this.state.chosen = sequence;
    this.token = token;
    this.panels();
  }

  private key(i: number, t: number, key: string): boolean {
    const { scene } = this.state;
    if (key === "m" || key === "M") mask(scene, i, t);
    else if (key === "Delete" || key === "Backspace") remove(scene, i, t);
    else return false;
    this.token = null;
    this.edited(true);
    return true;
  }

  private touch(): void {
    this.dirty = true;
  }

  private moveTo(step: number): void {
    this.state.step = step;
    if (this.state.scene.trainHead) {
      this.state.local = null; // of the head of another step
      this.restAt = performance.now() + 150;
    }
    this.touch();
  }

  private toggle(): void {
    this.playing = !this.playing;
    if (this.playing && this.state.step >= LAST_STEP) this.moveTo(0);
    this.before = performance.now();
    this.touch();
  }

  private listen(): void {
    const sliderStep = (): number => {
      const value = Number(scrub.value);
      return value >= 6.3 ? LAST_STEP : value < 0.3 ? 0 : Math.round(10 ** (value - 0.3));
    };
    scrub.addEventListener("input", () => {
      this.playing = false;
      this.moveTo(sliderStep());
    });
    play.addEventListener("click", () => this.toggle());
    byId("next").addEventListener("click", () => {
      this.playing = false;
      this.moveTo(MARKS.find((mark) => mark > this.state.step) ?? LAST_STEP);
    });
    byId("rewind").addEventListener("click", () => {
      this.playing = false;
      this.moveTo(0);
    });
    const preset = byId<HTMLSelectElement>("preset");
    preset.append(element("option", { value: "", disabled: "", hidden: "" }, "own scene"));
    for (const group of PRESETS) {
      const options = element("optgroup", { label: group.title });
      for (const scene of group.scenes) options.append(element("option", { value: scene.name }, scene.name));
      preset.append(options);
    }
    preset.addEventListener("change", () => this.open(structuredClone(PRESETS.flatMap((group) => group.scenes).find((scene) => scene.name === preset.value)!)));
    preset.value = presetName(this.opened);
    byId("reset").addEventListener("click", () => this.open(structuredClone(this.opened)));
    byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset["theme"] === "dark" ? "light" : "dark"));
    byId("share").addEventListener("click", () => void this.share());
    byId("json").addEventListener("click", () => save("attsvm_scene.json", toFile(this.state.scene), "application/json"));
    byId("python").addEventListener("click", () => save("attsvm_scene.py", toPython(this.state.scene, 20000)));
    byId("png").addEventListener("click", () => void toPng([...document.querySelectorAll<SVGSVGElement>(".plane svg")]).then((blob) => save("attsvm_scene.png", blob)));
    byId<HTMLInputElement>("import").addEventListener("change", (event) => void this.read(event.target as HTMLInputElement));
    window.addEventListener("hashchange", () => this.follow());
    document.addEventListener("keydown", (event) => {
      if (event.key === " " && !(event.target as Element).matches("input, select, button, textarea, summary, a")) {
        event.preventDefault();
        this.toggle(); // not by a click: d3-drag swallows the one that follows a drag
      }
    });
  }

  private follow(): void {
    try {
      const scene = fromLink(location.hash);
      if (scene !== null && JSON.stringify(scene) !== JSON.stringify(this.state.scene)) this.open(scene);
    } catch (error) {
      toast(`${(error as Error).message} The scene stays as it was.`, true);
    }
  }

  private async share(): Promise<void> {
    history.replaceState(null, "", `#${toLink(this.state.scene)}`);
    try {
      await navigator.clipboard.writeText(location.href);
      toast("The link is copied. It contains the whole scene.");
    } catch {
      toast("The address bar has the link to this scene.");
    }
  }

  private async read(input: HTMLInputElement): Promise<void> {
    const file = input.files?.[0];
    if (file === undefined) return;
    try {
      this.open(fromFile(await file.text()));
      toast(`${file.name} is open.`);
    } catch (error) {
      toast(`${file.name}: ${(error as Error).message}`, true);
    }
    input.value = "";
  }

  private readonly frame = (now: number): void => {
    requestAnimationFrame(this.frame);
    const begin = performance.now();
    if (!this.state.complete) {
      this.state.advance(this.playing ? TRAINING_MS : TRAINING_MS_AT_REST);
      this.dirty = true;
    }
    if (this.playing) this.play(now);
    if (now > this.restAt) {
      this.restAt = Infinity;
      this.state.searchLocal();
      this.dirty = true;
    }
    if (!this.dirty) return;
    this.dirty = false;
    this.draw();
    if (this.playing) this.frames.push(performance.now() - begin);
  };

  private play(now: number): void {
    const seconds = Math.min((now - this.before) / 1000, 0.1);
    this.before = now;
    const next = Math.max(this.state.step + 1, this.state.step * 10 ** (DECADES_A_SECOND * seconds));
    const step = Math.min(next, this.state.reached, LAST_STEP);
    if (step >= LAST_STEP) this.playing = false;
    this.moveTo(step);
  }

  private draw(): void {
    const { state } = this;
    this.tokens.draw(state);
    this.weights.draw(state);
    this.dirty = this.weights.late;
    this.chart.draw(state);
    this.answer();
    const latest = Math.max(...state.runs.map((run) => run.history.at(state.step).step));
    if (document.activeElement !== scrub || this.playing) scrub.value = String(state.step < 1 ? 0 : Math.log10(state.step) + 0.3);
    const text = `step ${latest.toLocaleString("en")}`;
    byId("step").textContent = text;
    scrub.setAttribute("aria-valuetext", text);
    play.textContent = this.playing ? "❚❚" : "▶";
    play.setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }

  /** The panel with the answer changes at most ten times a second. */
  private lastAnswer = 0;

  private answer(): void {
    const { state } = this;
    const now = performance.now();
    if (this.playing && now - this.lastAnswer < 100) return;
    const run = state.runs[state.active];
    const key = JSON.stringify([state.step, run.solution.value, run.kept, run.history.records.length, state.active, state.local?.length]);
    if (key === this.drawnAnswer) return;
    this.drawnAnswer = key;
    this.lastAnswer = now;
    drawAnswer(byId("answer"), state);
    if (!this.playing && state.complete) {
      byId("status").textContent = `${state.verdictOn(run).kind}; Att-SVM ${run.solution.status}; ${run.kept.map((t, i) => `sequence ${i} keeps token ${t}`).join(", ")}`;
    }
  }
}

/** The name of the scene in the list; empty for a scene of a link or a file that is not in it. */
function presetName(scene: Scene): string {
  const text = JSON.stringify(scene);
  return PRESETS.flatMap((group) => group.scenes).some((one) => JSON.stringify(one) === text) ? scene.name : "";
}

let hideToast = 0;

/** Shows a text for four seconds; an error until the next click or key. */
function toast(text: string, error = false): void {
  const box = byId("toast");
  const hide = (): void => { box.hidden = true; };
  box.textContent = text;
  box.hidden = false;
  clearTimeout(hideToast);
  if (!error) hideToast = window.setTimeout(hide, 4000);
  else for (const name of ["pointerdown", "keydown"]) document.addEventListener(name, hide, { once: true });
}

function setTheme(theme: string): void {
  document.documentElement.dataset["theme"] = theme;
}

function firstScene(): Scene {
  try {
    const linked = fromLink(location.hash);
    if (linked !== null) return linked;
  } catch (error) {
    toast(`${(error as Error).message} This is the first scene of the page.`, true);
  }
  return structuredClone(PRESETS[0].scenes[0]);
}

explainTerms(byId("tip"), document.querySelectorAll(".lead, .legend span, section > h3"));
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
// the tests and the measurement of frames read it
Object.assign(window, { playground: new Page(firstScene()) });
