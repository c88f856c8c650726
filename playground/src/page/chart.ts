/** Direction error and one minus the margin ratio against steps, both logarithmic. */

import { scaleLog } from "d3-scale";
import { line } from "d3-shape";
import { layer, svgOf } from "./plane";
import type { State } from "./state";

const [LEFT, RIGHT, TOP, BOTTOM] = [40, 508, 12, 212];
const LEAST = 1e-12;

export class Chart {
  private readonly svg = svgOf("chart");
  private readonly axes = layer(this.svg, "axes");
  private readonly curves = layer(this.svg, "curves");
  private readonly key = layer(this.svg, "key");
  private readonly cursor = layer(this.svg, "cursor");

  draw(state: State): void {
    const x = scaleLog([1, 1e6], [LEFT, RIGHT]).clamp(true);
    const y = scaleLog([LEAST, 2], [BOTTOM, TOP]).clamp(true);
    const steps = [0, 2, 4, 6].map((k) => 10 ** k);
    const errors = [0, -3, -6, -9, -12].map((k) => 10 ** k);
    this.axes.selectAll("path").data([0]).join("path").attr("class", "grid")
      .attr("d", errors.map((e) => `M${LEFT},${y(e)}H${RIGHT}`).join("") + steps.map((s) => `M${x(s)},${TOP}V${BOTTOM}`).join(""));
    const labels = [
      ...errors.map((e) => ({ x: LEFT - 6, y: y(e) + 4, text: power(e), anchor: "end" })),
      ...steps.map((s) => ({ x: x(s), y: BOTTOM + 16, text: power(s), anchor: "middle" })),
      { x: (LEFT + RIGHT) / 2, y: BOTTOM + 32, text: "steps", anchor: "middle" },
    ];
    this.axes.selectAll<SVGTextElement, (typeof labels)[number]>("text").data(labels).join("text").attr("class", "soft")
      .attr("x", (d) => d.x).attr("y", (d) => d.y).attr("text-anchor", (d) => d.anchor).text((d) => d.text);
    const curves = state.runs.flatMap((run, index) => [
      { index, dash: "none", values: run.errors, records: run.history.records },
      { index, dash: "5 4", values: run.ratios.map((ratio) => Math.max(1 - ratio, LEAST)), records: run.history.records },
    ]);
    this.curves.selectAll<SVGPathElement, (typeof curves)[number]>("path").data(curves).join("path")
      .attr("d", (curve) => line<number>().defined((_, k) => curve.records[k].step > 0 && curve.values[k] >= 0)
        .x((_, k) => x(curve.records[k].step)).y((value) => y(Math.max(value, LEAST)))(curve.values))
      .attr("fill", "none").attr("stroke", (curve) => `var(--run${curve.index})`).attr("stroke-width", 2).attr("stroke-dasharray", (curve) => curve.dash);
    const key = [{ dash: "none", text: "direction error" }, { dash: "5 4", text: "1 − margin ratio" }];
    const entries = this.key.selectAll<SVGGElement, (typeof key)[number]>("g").data(key).join("g").attr("transform", (_, k) => `translate(${LEFT + 8},${BOTTOM - 28 + 16 * k})`);
    entries.selectAll("path").data((d) => [d]).join("path").attr("d", "M0,-4H24").attr("stroke", "var(--soft)").attr("stroke-width", 2).attr("stroke-dasharray", (d) => d.dash);
    entries.selectAll("text").data((d) => [d]).join("text").attr("class", "soft halo").attr("x", 30).text((d) => d.text);
    this.cursor.selectAll("path").data([0]).join("path").attr("d", `M${x(Math.max(state.step, 1))},${TOP}V${BOTTOM}`).attr("stroke", "var(--ink)").attr("stroke-opacity", 0.5);
  }
}

function power(x: number): string {
  const digits: Record<string, string> = { "-": "⁻", "0": "⁰", "1": "¹", "2": "²", "3": "³", "6": "⁶", "4": "⁴", "9": "⁹" };
  const exponent = Math.round(Math.log10(x));
  return exponent === 0 ? "1" : `10${[...String(exponent)].map((c) => digits[c]).join("")}`;
}
