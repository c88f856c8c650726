/** The token plane: tokens, queries, head, and the direction that the chosen sequence reads. */

import { scaleLinear } from "d3-scale";
import { length } from "../math/linear";
import { optimalTokens, scores } from "../math/problem";
import { Drawn, MIDDLE, SIZE, arrow, drawHandles, layer, svgOf, type Handle } from "./plane";
import type { Point } from "./scene";
import type { State } from "./state";

export interface Edits {
  /** The scene was changed: train anew. */
  changed(): void;
  /** Only the picture was. */
  redraw(): void;
  choose(sequence: number, token: number | null): void;
  key(sequence: number, token: number, key: string): boolean;
}

const LARGEST_RADIUS = 17;

export class TokenPlane {
  private readonly svg = svgOf("tokens");
  private readonly grid = layer(this.svg, "grid-lines");
  private readonly strip = layer(this.svg, "strip");
  private readonly arrows = layer(this.svg, "arrows");
  private readonly handles = layer(this.svg, "handles");
  private readonly names = layer(this.svg, "names");
  private readonly drawn = new Drawn();
  private extent = 2;

  constructor(private readonly edits: Edits) {}

  /** Fits the scale to the scene. */
  fit(state: State): void {
    const { scene } = state;
    const all: number[] = scene.sequences.flatMap((of) => [
      ...of.tokens.flatMap((token) => token.at.map(Math.abs)),
      ...(scene.attention === "prompt" ? [] : of.query.map(Math.abs)),
    ]);
    this.extent = 1.22 * Math.max(0.5, ...all, ...scene.head.map(Math.abs));
  }

  draw(state: State): void {
    const { scene, problem } = state;
    const scale = scaleLinear([-this.extent, this.extent], [0, SIZE]);
    const at = ([x, y]: Point): Point => [scale(x), SIZE - scale(y)];
    // called later, with the extent of that time
    const back = ([x, y]: Point): Point => [((2 * x) / SIZE - 1) * this.extent, (1 - (2 * y) / SIZE) * this.extent];
    const ticks = scale.ticks(6);
    this.grid.selectAll("path").data([ticks]).join("path").attr("class", "grid")
      .attr("d", ticks.map((t) => `M${scale(t)},0V${SIZE}M0,${scale(t)}H${SIZE}`).join(""));
    this.grid.selectAll("line").data([0, 1]).join("line").attr("class", "axis")
      .attr("x1", (k) => (k === 0 ? 0 : MIDDLE)).attr("x2", (k) => (k === 0 ? SIZE : MIDDLE))
      .attr("y1", (k) => (k === 0 ? MIDDLE : 0)).attr("y2", (k) => (k === 0 ? MIDDLE : SIZE));

    const run = state.runs[state.active];
    const shown = state.problemAt(run, state.step);
    const probabilities = state.probabilitiesAt(run);
    const best = optimalTokens(shown);
    const gamma = scores(shown);
    const support = new Set(run.solution.rows.flatMap((row, r) => (run.solution.support[r] ? [`${row.sequence},${row.token}`] : [])));
    const u = state.inPlane(state.weightsAt(run));

    this.drawStrip(state, at);
    this.drawArrows(state, at, u);

    const tokens = scene.sequences.flatMap((of, i) => of.tokens.map((token, t) => ({ token, i, t })));
    const handles: (Handle & { i: number; t: number })[] = tokens.map(({ token, i, t }) => ({
      id: `token-${i}-${t}`, i, t, at: token.at, radius: LARGEST_RADIUS,
      label: `Token ${t} of sequence ${i}, weight ${probabilities[i][t].toFixed(3)}, score ${gamma[i][t].toFixed(2)}${token.masked ? ", masked" : ""}`,
      move: (to) => { token.at = to; this.edits.changed(); },
      select: () => this.edits.choose(i, t),
      key: (key) => this.edits.key(i, t, key),
    }));
    const drawn = drawHandles(this.handles, [...handles, ...this.otherHandles(state)], at, back, () => this.extent / 100);
    drawn.each((handle, index, nodes) => {
      const { i, t } = handle as Partial<(typeof handles)[number]>;
      const group = nodes[index];
      if (i === undefined || t === undefined) return;
      const { masked } = scene.sequences[i].tokens[t];
      const radius = masked ? 0 : LARGEST_RADIUS * Math.sqrt(probabilities[i][t]);
      const supports = support.has(`${i},${t}`);
      const [area, rim, ring] = ["area", "rim", "ring"].map((name) => circle(group, name));
      const color = `var(--s${i % 6})`;
      if (this.drawn.changes(area, radius.toFixed(1))) area.setAttribute("r", radius.toFixed(1)); // a tenth of a pixel
      if (!this.drawn.changes(ring, `${masked} ${best[i] === t} ${supports} ${i === state.chosen}`)) return;
      set(area, { fill: color, "fill-opacity": 0.8 });
      set(rim, { r: 4.5, fill: masked ? "none" : color, stroke: color, "stroke-width": 1.5, "stroke-dasharray": masked ? "2 2" : "none" });
      set(ring, {
        r: best[i] === t || supports ? LARGEST_RADIUS + 1.5 : 0, fill: "none", stroke: best[i] === t ? "var(--ink)" : color,
        "stroke-width": best[i] === t ? 2.2 : 1.6, "stroke-dasharray": best[i] === t ? "none" : "3.5 3", opacity: i === state.chosen ? 1 : 0.75,
      });
    });
    this.names.selectAll<SVGTextElement, { i: number; at: Point }>("text")
      .data(scene.sequences.map((of, i) => ({ i, at: of.tokens[best[i]].at })))
      .join("text").attr("class", "halo").attr("text-anchor", "middle").attr("pointer-events", "none")
      .attr("x", (d) => at(d.at)[0]).attr("y", (d) => at(d.at)[1] - 24)
      .attr("fill", (d) => `var(--s${d.i % 6})`).style("fill", (d) => `var(--s${d.i % 6})`)
      .style("font-weight", (d) => (d.i === state.chosen ? 700 : 400))
      .text((d) => `${d.i} (${problem.labels[d.i] > 0 ? "+" : "−"})`);
  }

  private otherHandles(state: State): Handle[] {
    const { scene } = state;
    const head: Handle = {
      id: "head", label: "Head v", at: scene.head, radius: 8,
      move: (to) => { scene.head = to; this.edits.changed(); },
    };
    const queries = scene.sequences.map((of, i): Handle => ({
      id: `query-${i}`, label: `Query of sequence ${i}`, at: of.query, radius: 8,
      move: (to) => { of.query = to; this.edits.changed(); },
      select: () => this.edits.choose(i, null),
    }));
    return [...(scene.heightHead === 0 ? [head] : []), ...(scene.attention === "prompt" ? [] : queries)];
  }

  private drawArrows(state: State, at: (p: Point) => Point, u: number[]): void {
    const { scene } = state;
    const size = length(u);
    const reach = 0.8 * this.extent;
    const head = (state.runs[state.active].history.at(state.step).head ?? scene.head).slice(0, 2) as Point;
    const reads = scene.attention === "prompt" ? "p" : `${state.runs[state.active].history.settings.attention === "factored" ? "KQ′" : "W"}z${subscript(state.chosen)}`;
    const arrows = [
      ...(scene.heightHead === 0 ? [{ to: head, color: "var(--ink)", name: "v", width: 1.8 }] : []),
      ...(size > 0 ? [{ to: [(reach * u[0]) / size, (reach * u[1]) / size] as Point, color: `var(--run${state.active})`, name: reads, width: 2.6 }] : []),
    ];
    this.arrows.selectAll<SVGPathElement, (typeof arrows)[number]>("path.arrow").data(arrows).join("path").attr("class", "arrow")
      .attr("d", (d) => arrow(at([0, 0]), at(d.to))).attr("fill", "none").attr("stroke-linejoin", "round")
      .attr("stroke", (d) => d.color).attr("stroke-width", (d) => d.width);
    this.arrows.selectAll<SVGTextElement, (typeof arrows)[number]>("text").data(arrows).join("text").attr("class", "halo")
      .attr("x", (d) => at(d.to)[0] + 9).attr("y", (d) => at(d.to)[1] + 14).style("fill", (d) => d.color).style("font-style", "italic").style("font-weight", 600)
      .text((d) => d.name);
    const queries = scene.attention === "prompt" ? [] : scene.sequences.map((of, i) => ({ at: of.query, i }));
    this.arrows.selectAll<SVGPathElement, (typeof queries)[number]>("path.query").data(queries).join("path").attr("class", "query")
      .attr("d", "M0,-7L7,0L0,7L-7,0Z").attr("transform", (d) => `translate(${at(d.at)})`)
      .attr("fill", "var(--card)").attr("stroke", (d) => `var(--s${d.i % 6})`).attr("stroke-width", 2);
  }

  /** Between the kept token of the chosen sequence and its support tokens, perpendicular to the Att-SVM. */
  private drawStrip(state: State, at: (p: Point) => Point): void {
    const { solution, kept } = state.runs[state.active];
    const feasible = solution.status !== "infeasible" && solution.value > 0;
    const u = feasible ? state.inPlane(solution.direction) : [0, 0];
    const size = length(u);
    const token = state.scene.sequences[state.chosen].tokens[kept[state.chosen]];
    const bands = size > 0 ? [0] : [];
    const far = 3 * this.extent;
    const unit: Point = [u[0] / size, u[1] / size];
    const point = (along: number, across: number): Point => at([
      token.at[0] - along * unit[0] - across * unit[1], token.at[1] - along * unit[1] + across * unit[0],
    ]);
    this.strip.selectAll("path").data(bands).join("path")
      .attr("d", `M${point(0, -far)}L${point(0, far)}L${point(1 / size, far)}L${point(1 / size, -far)}Z`)
      .attr("fill", `var(--s${state.chosen % 6})`).attr("fill-opacity", 0.09).attr("stroke", `var(--s${state.chosen % 6})`).attr("stroke-opacity", 0.5).attr("stroke-dasharray", "5 4");
  }
}

function subscript(number: number): string {
  return [...String(number)].map((digit) => String.fromCharCode(0x2080 + Number(digit))).join("");
}

const SVG = "http://www.w3.org/2000/svg";

function circle(group: SVGGElement, name: string): SVGElement {
  const found = group.querySelector<SVGElement>(`circle.${name}`);
  if (found !== null) return found;
  const made = document.createElementNS(SVG, "circle");
  made.setAttribute("class", name);
  made.setAttribute("pointer-events", "none");
  group.append(made);
  return made;
}

function set(element: SVGElement, attributes: Record<string, string | number>): void {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, String(value));
  }
}
