/** The weight plane: half-planes, their polygon, the norm's ball that grows until it touches it, and the paths. */

import { blur2, pairs } from "d3-array";
import { contours } from "d3-contour";
import { contourPath } from "./contour_path";
import { dot, length } from "../math/linear";
import { LOSSES } from "../math/losses";
import { conjugate, normOf, type Norm } from "../math/norms";
import { rowsOf, scores } from "../math/problem";
import { weightsOf } from "../math/train";
import { MIDDLE, SIZE, drawHandles, layer, svgOf, type Handle } from "./plane";
import { startOf, type Point } from "./scene";
import type { RunView, State } from "./state";
import type { Edits } from "./token_plane";

/** Lengths are true up to this multiple of the Att-SVM's, and logarithmic beyond. */
const LINEAR = 1.7;
const LINEAR_SHARE = 0.56;
const FARTHEST = 1e7;
const EDGE = 205; // of the drawing, from its middle
const ANGLES = 720;
/** Along a side of the landscape: fewer where there are many tokens, each of which costs an exponential in every cell. */
const cellsOf = (tokens: number): number => Math.min(110, Math.round(Math.sqrt(6e5 / tokens)));

export class WeightPlane {
  private readonly svg = svgOf("weights");
  private readonly back = layer(this.svg, "back");
  private readonly landscape = layer(this.svg, "landscape");
  private readonly area = layer(this.svg, "area");
  private readonly edges = layer(this.svg, "edges");
  private readonly rim = layer(this.svg, "rim");
  private readonly ball = layer(this.svg, "ball");
  private readonly paths = layer(this.svg, "paths");
  private readonly marks = layer(this.svg, "marks");
  private readonly handles = layer(this.svg, "handles");
  private unit = 1;
  private landscapeOf = "";
  /** With many tokens a landscape takes longer than a frame, so it may lag: it gets a tenth of the time. */
  private landscapeRest = 0;
  late = false;
  private areaOf = "";
  private rimOf: State["local"] = [];
  private rimFor = "";

  constructor(private readonly edits: Edits) {
    const clips = [["whole", EDGE], ["linear", EDGE * LINEAR_SHARE]] as const;
    this.svg.append("defs").selectAll("clipPath").data(clips).join("clipPath").attr("id", ([name]) => `clip-${name}`)
      .append("circle").attr("cx", MIDDLE).attr("cy", MIDDLE).attr("r", ([, r]) => r);
    this.landscape.attr("clip-path", "url(#clip-whole)");
    this.edges.attr("clip-path", "url(#clip-linear)");
  }

  draw(state: State): void {
    const run = state.runs[state.active];
    this.unit = this.unitOf(state);
    this.drawBack();
    this.drawLandscape(state);
    this.drawArea(state, run);
    this.drawRim(state);
    this.drawBall(state, run);
    this.drawPaths(state);
    this.drawMarks(state, run);
  }

  /** The length that is drawn at a fixed distance: that of the Att-SVM. */
  private unitOf(state: State): number {
    const sizes = state.runs.flatMap((run) => (run.solution.status === "infeasible" ? [] : [length(state.inPlane(run.solution.direction))]));
    return sizes.length > 0 && Math.max(...sizes) > 0 ? Math.max(...sizes) : 1;
  }

  private radius(r: number): number {
    const u = r / this.unit;
    if (u <= LINEAR) return (EDGE * LINEAR_SHARE * u) / LINEAR;
    return EDGE * (LINEAR_SHARE + (1 - LINEAR_SHARE) * Math.min(Math.log(u / LINEAR) / Math.log(FARTHEST / LINEAR), 1));
  }

  private readonly at = ([x, y]: Point): Point => {
    const size = Math.hypot(x, y);
    if (size === 0) return [MIDDLE, MIDDLE];
    const r = this.radius(size);
    return [MIDDLE + (r * x) / size, MIDDLE - (r * y) / size];
  };

  /** The same without the logarithm. */
  private straight([x, y]: Point): Point {
    const scale = (EDGE * LINEAR_SHARE) / (LINEAR * this.unit);
    return [MIDDLE + scale * x, MIDDLE - scale * y];
  }

  private readonly data = ([x, y]: Point): Point => {
    const [a, b] = [x - MIDDLE, MIDDLE - y];
    const share = Math.hypot(a, b) / EDGE;
    const u = share <= LINEAR_SHARE
      ? (LINEAR * share) / LINEAR_SHARE
      : LINEAR * Math.exp(((Math.min(share, 1) - LINEAR_SHARE) / (1 - LINEAR_SHARE)) * Math.log(FARTHEST / LINEAR));
    const angle = Math.atan2(b, a);
    return [this.unit * u * Math.cos(angle), this.unit * u * Math.sin(angle)];
  };

  private drawBack(): void {
    this.back.selectAll("circle").data([EDGE, EDGE * LINEAR_SHARE]).join("circle").attr("cx", MIDDLE).attr("cy", MIDDLE)
      .attr("r", (r) => r).attr("fill", "none").attr("stroke", "var(--line)").attr("stroke-dasharray", (r) => (r === EDGE ? "none" : "1 4"));
    this.back.selectAll("path").data([0]).join("path").attr("class", "axis").attr("fill", "none")
      .attr("d", `M${MIDDLE - EDGE},${MIDDLE}H${MIDDLE + EDGE}M${MIDDLE},${MIDDLE - EDGE}V${MIDDLE + EDGE}`);
    const radii = [1e2, 1e4, 1e6].map((u) => ({ u, y: MIDDLE - this.radius(u * this.unit) }));
    this.back.selectAll<SVGTextElement, (typeof radii)[number]>("text").data(radii).join("text").attr("class", "soft halo")
      .attr("x", MIDDLE + 3).attr("y", (d) => d.y + 4).text((d) => `10${{ 100: "²", 10000: "⁴", 1000000: "⁶" }[d.u]}×`);
  }

  /** The loss of every prompt of the plane; with a query z that of uz'/‖z‖², the smallest W with W z = u. */
  private drawLandscape(state: State): void {
    const { scene } = state;
    const problem = state.problemAt(state.runs[state.active], state.step);
    const z = problem.queries?.[state.chosen] ?? [1];
    const size = dot(z, z);
    const key = JSON.stringify([problem, scene.loss, this.unit, z]);
    const begin = performance.now();
    this.late = key !== this.landscapeOf && begin < this.landscapeRest;
    if (key === this.landscapeOf || this.late) return;
    this.landscapeOf = key;
    const bands: string[] = [];
    if (size > 0) {
      const cells = cellsOf(problem.keys.flat().length);
      const cell = SIZE / cells;
      const gamma = scores(problem);
      const shares = problem.queries?.map((one) => dot(one, z) / size) ?? problem.labels.map(() => 1);
      const raw = Array.from({ length: cells * cells }, (_, k) => {
        const u = this.data([((k % cells) + 0.5) * cell, (Math.floor(k / cells) + 0.5) * cell]);
        let total = 0;
        problem.keys.forEach((keys, i) => {
          const margin = expected(keys, problem.allowed[i], gamma[i], [shares[i] * u[0], shares[i] * u[1]]);
          total += LOSSES[scene.loss].value(margin) / gamma.length;
        });
        return total;
      });
      // Far out the loss is a step function, whose contours would be staircases of cells; rounding keeps plateaus level.
      const values = Array.from(blur2({ data: raw, width: cells }, (1.5 * cells) / 110).data, Math.fround);
      const sorted = [...values].sort((a, b) => a - b);
      const quantiles = [0.02, 0.08, 0.17, 0.28, 0.4, 0.52, 0.64, 0.76, 0.87, 0.97].map((q) => sorted[Math.floor(q * (sorted.length - 1))]);
      const levels = pairs(quantiles, (low, high) => (low + high) / 2).filter((level) => !quantiles.includes(level));
      bands.push(...contours().size([cells, cells]).thresholds(levels)(values).map((band) => contourPath(band, cell)));
    }
    this.landscape.selectAll("path").data(bands).join("path").attr("d", String)
      .attr("fill", "var(--contour)").attr("fill-opacity", 0.05).attr("stroke", "var(--contour)").attr("stroke-width", 0.5);
    const end = performance.now();
    this.landscapeRest = end + 9 * (end - begin);
  }

  /** The nearest allowed radius in each direction; ∞ where the whole ray is forbidden. */
  private radii(rows: number[][]): number[] {
    return Array.from({ length: ANGLES + 1 }, (_, k) => {
      const angle = (2 * Math.PI * k) / ANGLES;
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      let farthest = 0;
      for (const row of rows) {
        const along = row[0] * cos + row[1] * sin;
        farthest = Math.max(farthest, along > 0 ? 1 / along : Infinity);
      }
      return farthest;
    });
  }

  private onRay(k: number, r: number): Point {
    const angle = (2 * Math.PI * k) / ANGLES;
    return this.at([r * Math.cos(angle), r * Math.sin(angle)]);
  }

  private drawArea(state: State, run: RunView): void {
    const { problem, chosen } = state;
    const key = JSON.stringify([problem.keys, problem.allowed, problem.queries, run.kept, run.solution.support, chosen, this.unit]);
    if (key === this.areaOf) return;
    this.areaOf = key;
    const prompt = problem.queries === null;
    const rows = rowsOf({ ...problem, queries: null }, run.kept).filter((row) => prompt || row.sequence === chosen);
    const limit = FARTHEST * this.unit;
    const all = this.radii(rows.map((row) => row.entries));
    const inside = all.flatMap((r, k) => (r < limit ? [k] : []));
    // the directions of the polygon are one interval of angles, which may pass 0
    const gap = inside.findIndex((k, j) => j > 0 && k > inside[j - 1] + 1);
    const order = gap > 0 ? [...inside.slice(gap), ...inside.slice(0, gap)] : inside;
    const shape = order.length < 2 || rows.length === 0 ? "" : `M${order.map((k) => this.onRay(k, all[k])).join("L")}L${[...order].reverse().map((k) => this.onRay(k, limit)).join("L")}Z`;
    this.area.selectAll("path.polygon").data([shape]).join("path").attr("class", "polygon").attr("d", shape)
      .attr("fill", "var(--area)").attr("stroke", "none");
    const reach = 2 * LINEAR * this.unit;
    // one path for the edges that look the same: hundreds of paths take longer than the solution
    const edges = new Map<string, { sequence: number; touching: boolean; d: string }>();
    rows.forEach((row, r) => {
      // a straight line where lengths are true, which is all that is drawn of it
      const [a, b] = row.entries;
      const size = a * a + b * b;
      if (size === 0) return;
      const along = reach / Math.sqrt(size);
      const end = (side: number): Point => this.straight([a / size + side * along * -b, b / size + side * along * a]);
      const index = prompt ? r : run.solution.rows.findIndex((one) => one.sequence === row.sequence && one.token === row.token);
      const touching = run.solution.support[index] === true;
      const look = `${row.sequence} ${touching}`;
      edges.set(look, { sequence: row.sequence, touching, d: `${edges.get(look)?.d ?? ""}M${end(-1)}L${end(1)}` });
    });
    this.edges.selectAll<SVGPathElement, { sequence: number; touching: boolean; d: string }>("path.edge").data([...edges.values()]).join("path").attr("class", "edge")
      .attr("d", (edge) => edge.d).attr("fill", "none").attr("stroke", (edge) => `var(--s${edge.sequence % 6})`)
      .attr("stroke-width", (edge) => (edge.touching ? 2.4 : 0.9)).attr("stroke-opacity", (edge) => (edge.touching ? 1 : 0.4));
  }

  /** The directions of the locally optimal selections, and the cones of directions that select them, at the edge. */
  private drawRim(state: State): void {
    const key = `${state.chosen}`;
    if (state.local === this.rimOf && key === this.rimFor) return;
    this.rimOf = state.local;
    this.rimFor = key;
    const { problem, chosen } = state;
    const prompt = problem.queries === null;
    const cones = (state.local ?? []).map((one) => {
      // the plane of a query shows what its own sequence asks for
      const rows = rowsOf({ ...problem, queries: null }, one.selected).filter((row) => prompt || row.sequence === chosen).map((row) => row.entries);
      const ks = this.radii(rows).flatMap((r, k) => (r < Infinity ? [k] : []));
      const cut = ks.findIndex((k, j) => j > 0 && k > ks[j - 1] + 1);
      const order = cut > 0 ? [...ks.slice(cut), ...ks.slice(0, cut)] : ks;
      const points = order.map((k) => [MIDDLE + (EDGE + 6) * Math.cos((2 * Math.PI * k) / ANGLES), MIDDLE - (EDGE + 6) * Math.sin((2 * Math.PI * k) / ANGLES)]);
      const direction = state.inPlane(one.direction);
      const size = length(direction) || 1;
      const tip = direction.map((x) => x / size);
      return { ...one, d: points.length > 1 ? `M${points.join("L")}` : "", tip, tokens: one.selected.join(", ") };
    });
    this.rim.selectAll<SVGPathElement, (typeof cones)[number]>("path").data(cones).join("path").attr("d", (cone) => cone.d)
      .attr("fill", "none").attr("stroke-width", 6).attr("stroke-opacity", 0.75).attr("stroke", (cone) => (cone.global ? "var(--good)" : "var(--warn)"))
      .selectAll("title").data((cone) => [cone]).join("title")
      .text((cone) => `${cone.global ? "Globally" : "Locally"} optimal: directions that select token ${cone.tokens} of the sequences`);
    this.rim.selectAll<SVGCircleElement, (typeof cones)[number]>("circle").data(cones).join("circle").attr("r", 4.5)
      .attr("cx", (cone) => MIDDLE + (EDGE + 6) * cone.tip[0]).attr("cy", (cone) => MIDDLE - (EDGE + 6) * cone.tip[1])
      .attr("fill", (cone) => (cone.global ? "var(--good)" : "var(--warn)")).attr("stroke", "var(--card)").attr("stroke-width", 1.5);
  }

  private drawBall(state: State, run: RunView): void {
    const radius = state.ballRadius(run);
    const z = state.problem.queries?.[state.chosen] ?? null;
    const points = Array.from({ length: 181 }, (_, k): Point => {
      const unit: Point = [Math.cos((Math.PI * k) / 90), Math.sin((Math.PI * k) / 90)];
      const r = radius / normInPlane(run.norm, unit, z);
      return this.at([r * unit[0], r * unit[1]]);
    });
    this.ball.selectAll("path").data([0]).join("path").attr("d", `M${points.join("L")}Z`).attr("fill", "var(--ball)").attr("stroke", "var(--ball-edge)").attr("stroke-width", 1.6);
  }

  private drawPaths(state: State): void {
    const runs = state.runs.map((run, index) => {
      const end = run.history.indexAt(state.step);
      const points = run.history.records.map((record) => this.at(state.inPlane(record.weights) as Point));
      return { index, made: points.slice(0, end + 1), rest: points.slice(end), now: points[end] };
    });
    const line = (points: Point[]): string => `M${points.map((p) => p.map((x) => x.toFixed(2)).join(",")).join("L")}`;
    this.paths.selectAll<SVGPathElement, (typeof runs)[number]>("path.rest").data(runs).join("path").attr("class", "rest").attr("d", (run) => line(run.rest))
      .attr("fill", "none").attr("stroke", (run) => `var(--run${run.index})`).attr("stroke-opacity", 0.28).attr("stroke-width", 1.5);
    this.paths.selectAll<SVGPathElement, (typeof runs)[number]>("path.made").data(runs).join("path").attr("class", "made").attr("d", (run) => line(run.made))
      .attr("fill", "none").attr("stroke", (run) => `var(--run${run.index})`).attr("stroke-width", 2.8).attr("stroke-linejoin", "round");
    this.paths.selectAll<SVGCircleElement, (typeof runs)[number]>("circle").data(runs).join("circle").attr("r", 6)
      .attr("cx", (run) => run.now[0]).attr("cy", (run) => run.now[1]).attr("fill", (run) => `var(--run${run.index})`).attr("stroke", "var(--card)").attr("stroke-width", 2);
  }

  private drawMarks(state: State, run: RunView): void {
    const infeasible = run.solution.status === "infeasible";
    const prompt = state.scene.attention === "prompt";
    const stars = state.runs.flatMap((one, index) => (one.solution.status === "infeasible" || one.solution.value === 0 || one.slack.length > 0 ? [] : [{ index, u: state.inPlane(one.solution.direction) as Point }]));
    this.marks.selectAll<SVGLineElement, (typeof stars)[number]>("line").data(stars).join("line")
      .attr("x1", MIDDLE).attr("y1", MIDDLE).attr("x2", (d) => this.at([1e9 * d.u[0], 1e9 * d.u[1]])[0]).attr("y2", (d) => this.at([1e9 * d.u[0], 1e9 * d.u[1]])[1])
      .attr("stroke", (d) => `var(--run${d.index})`).attr("stroke-dasharray", "2 5").attr("stroke-width", 1.2);
    this.marks.selectAll<SVGPathElement, (typeof stars)[number]>("path.star").data(stars).join("path").attr("class", "star")
      .attr("d", "M0,-8L2.2,-2.4L8,0L2.2,2.4L0,8L-2.2,2.4L-8,0L-2.2,-2.4Z").attr("transform", (d) => `translate(${this.at(d.u)})`)
      .attr("fill", (d) => `var(--run${d.index})`).attr("stroke", "var(--card)");
    const own = infeasible && prompt ? farkas(run) : [];
    const largest = Math.max(...own.map((one) => length(one)), 1e-300);
    const drawn = own.map((one): Point => [MIDDLE + (80 * one[0]) / largest, MIDDLE - (80 * one[1]) / largest]);
    this.marks.selectAll("path.farkas").data(drawn.length > 0 ? [drawn] : []).join("path").attr("class", "farkas")
      .attr("d", (points) => `M${points.join("L")}Z`).attr("fill", "var(--bad)").attr("fill-opacity", 0.16).attr("stroke", "var(--bad)").attr("stroke-width", 1.6);
    this.marks.selectAll<SVGCircleElement, Point>("circle.farkas").data(drawn).join("circle").attr("class", "farkas")
      .attr("cx", (p) => p[0]).attr("cy", (p) => p[1]).attr("r", 4).attr("fill", "var(--bad)");
    this.marks.selectAll("text").data(infeasible ? [0] : []).join("text").attr("class", "halo").attr("x", MIDDLE).attr("y", 428).attr("text-anchor", "middle")
      .style("fill", "var(--bad)").text(prompt ? "infeasible: these differences average to 0" : "infeasible");
    const reads = startInPlane(state, run);
    const start: Handle = {
      id: "start", label: prompt ? "Start p(0)" : "Start", at: reads.at, radius: 8,
      move: (to) => { state.scene.start = reads.startOf(to) ?? state.scene.start; this.edits.changed(); },
    };
    const shown = reads.startOf(reads.at) === null ? [] : [start];
    const group = drawHandles(this.handles, shown, this.at, this.data, () => this.unit / 50);
    group.selectAll("circle.start").data([0]).join("circle").attr("class", "start").attr("r", 6).attr("fill", "var(--card)").attr("stroke", "var(--ink)").attr("stroke-width", 2);
    group.selectAll("text").data(state.step > 0 || length(state.scene.start) > 0 ? [0] : []).join("text").attr("class", "soft halo").attr("x", 9).attr("y", 14).text(prompt ? "p(0)" : "start");
  }
}

/** The score that softmax attention with logits ⟨key, u⟩ averages. */
function expected(keys: number[][], allowed: boolean[], gamma: number[], u: Point): number {
  let largest = -Infinity;
  let [total, sum] = [0, 0];
  // one pass: when a larger logit comes, what was summed is scaled to it
  for (let t = 0; t < keys.length; t++) {
    if (!allowed[t]) continue;
    const logit = keys[t][0] * u[0] + keys[t][1] * u[1];
    if (logit > largest) {
      const scale = Math.exp(largest - logit);
      [largest, total, sum] = [logit, total * scale, sum * scale];
    }
    const weight = Math.exp(logit - largest);
    total += weight;
    sum += weight * gamma[t];
  }
  return sum / total;
}

/** Where the plane shows the start, and the start for another place; null where the query does not reach every place. */
function startInPlane(state: State, run: RunView): { at: Point; startOf(to: Point): Point | null } {
  const { attention } = run.history.settings;
  const dk = state.problem.keys[0][0].length;
  const read = (start: Point): Point =>
    state.inPlane(weightsOf(startOf({ ...state.scene, start }, attention).map((x) => Float64Array.from(x)), dk)) as Point;
  // what is read is an affine function of the two numbers of the start
  const [origin, first, second] = [read([0, 0]), read([1, 0]), read([0, 1])];
  const [a, c] = [first[0] - origin[0], first[1] - origin[1]];
  const [b, d] = [second[0] - origin[0], second[1] - origin[1]];
  const determinant = a * d - b * c;
  return {
    at: read(state.scene.start),
    startOf: (to) => {
      if (Math.abs(determinant) < 1e-6) return null;
      const [x, y] = [to[0] - origin[0], to[1] - origin[1]];
      return [(d * x - b * y) / determinant, (a * y - c * x) / determinant];
    },
  };
}

/** The least norm of the W with W z = u; N(u) itself for a prompt. */
function normInPlane(norm: Norm, u: Point, z: number[] | null): number {
  if (z === null) return normOf(norm, u);
  if (norm.kind === "lp") return normOf(norm, u) / normOf({ kind: "lp", p: conjugate(norm.p) }, z);
  return length(u) / length(z);
}

/** The differences x_α − x_t that a convex combination of passes through 0. */
function farkas(run: RunView): number[][] {
  const largest = Math.max(...run.solution.multipliers);
  const own = run.solution.rows.flatMap((row, r) => (run.solution.multipliers[r] > 1e-9 * largest ? [row.entries] : []));
  return own.sort((a, b) => Math.atan2(a[1], a[0]) - Math.atan2(b[1], b[0])).filter((row) => dot(row, row) > 0);
}
