/** Zoom for the drawings of a page: matplotlib's curves are moved, and new ticks replace its own while zoomed in. */

import { scaleLinear, scaleLog, type ScaleContinuousNumeric } from "d3-scale";
import { select, type Selection } from "d3-selection";
import { zoom, zoomIdentity, type D3ZoomEvent, type ZoomTransform } from "d3-zoom";

type Axis = ["linear" | "log", number, number];
interface Panel { box: [number, number, number, number]; x: Axis; y: Axis }
interface Place { x: number; y: number; axes: number }
/** What the hover script asks: where a point of the static drawing is now; far away if it is not shown. */
type Drawing = SVGSVGElement & { zoomed?: (place: Place) => Place };

const DEEPEST = 1000;
const TICKS = { x: 5, y: 4 };

function scaleOf([kind, low, high]: Axis, from: number, to: number): ScaleContinuousNumeric<number, number> {
  const scale = kind === "log" ? scaleLog() : scaleLinear();
  return scale.domain([low, high]).range([from, to]);
}

/** One pair of axes. */
class View {
  transform: ZoomTransform = zoomIdentity;
  private readonly moved: SVGGElement[] = [];
  private readonly markers: SVGUseElement[];
  private readonly ownTicks: Element[];
  private readonly ticks: Selection<SVGGElement, unknown, null, undefined>;
  readonly area: Selection<SVGRectElement, unknown, null, undefined>;
  private readonly fontSize: number;
  private readonly behaviour = zoom<SVGRectElement, unknown>();

  constructor(group: Element, private readonly panel: Panel) {
    const [left, top, right, bottom] = panel.box;
    this.fontSize = Number(group.closest("svg")!.getAttribute("font-size") ?? 7);
    // a clipped part is moved inside of its clip path
    const parts = [...group.children].filter((child) => !child.id.includes("matplotlib.axis") && child.querySelector("[clip-path]") !== null);
    for (const part of parts) {
      const clip = part.querySelector("[clip-path]")!.getAttribute("clip-path")!;
      for (const clipped of part.querySelectorAll("[clip-path]")) clipped.removeAttribute("clip-path");
      const frame = document.createElementNS("http://www.w3.org/2000/svg", "g");
      const inner = document.createElementNS("http://www.w3.org/2000/svg", "g");
      frame.setAttribute("clip-path", clip);
      part.replaceWith(frame);
      frame.append(inner);
      inner.append(part);
      for (const path of part.querySelectorAll("path")) path.setAttribute("vector-effect", "non-scaling-stroke");
      this.moved.push(inner);
    }
    this.markers = this.moved.flatMap((inner) => [...inner.querySelectorAll("use")]);
    this.ownTicks = [...group.querySelectorAll('[id*="xtick_"], [id*="ytick_"]')];
    this.ticks = select(group as SVGGElement).insert<SVGGElement>("g", () => this.moved[0]?.parentNode as Element | null)
      .attr("font-size", this.fontSize).attr("font-family", "ui-sans-serif, system-ui, sans-serif").attr("fill", "currentColor");
    this.area = select(group as SVGGElement).append("rect").attr("class", "zoom")
      .attr("x", left).attr("y", top).attr("width", right - left).attr("height", bottom - top).attr("fill", "none");
    this.behaviour.extent([[left, top], [right, bottom]]).translateExtent([[left, top], [right, bottom]]).scaleExtent([1, DEEPEST])
      // the wheel alone and one finger scroll the page
      .filter((event: MouseEvent | TouchEvent) => {
        if (event.type === "wheel") return event.ctrlKey || event.metaKey || event.shiftKey;
        if ("touches" in event) return event.touches.length > 1 || this.transform.k > 1;
        return event.button === 0 && (this.transform.k > 1 || event.type === "dblclick");
      })
      .on("zoom", (event: D3ZoomEvent<SVGRectElement, unknown>) => this.draw(event.transform));
    this.area.call(this.behaviour);
  }

  by(factor: number): void {
    if (factor === 0) this.area.call(this.behaviour.transform, zoomIdentity);
    else this.area.call(this.behaviour.scaleBy, factor);
  }

  has(place: Place): boolean {
    const [left, top, right, bottom] = this.panel.box;
    const [x, y] = this.transform.apply([place.x, place.y]);
    return x >= left - 1 && x <= right + 1 && y >= top - 1 && y <= bottom + 1;
  }

  private draw(transform: ZoomTransform): void {
    this.transform = transform;
    const { k } = transform;
    const near = k > 1;
    for (const inner of this.moved) inner.setAttribute("transform", transform.toString());
    for (const marker of this.markers) {
      const [x, y] = [Number(marker.getAttribute("x")), Number(marker.getAttribute("y"))];
      marker.setAttribute("transform", `translate(${x * (1 - 1 / k)},${y * (1 - 1 / k)}) scale(${1 / k})`);
    }
    for (const own of this.ownTicks) (own as SVGElement).style.display = near ? "none" : "";
    this.area.classed("near", near);
    this.ticks.selectAll("*").remove();
    if (!near) return;
    const [left, top, right, bottom] = this.panel.box;
    const x = transform.rescaleX(scaleOf(this.panel.x, left, right));
    const y = transform.rescaleY(scaleOf(this.panel.y, bottom, top));
    for (const { value, text } of ticksOf(x, TICKS.x)) {
      this.ticks.append("path").attr("d", `M${x(value)},${top}V${bottom}`).attr("stroke", "#808080").attr("stroke-opacity", 0.22).attr("stroke-width", 0.5);
      this.ticks.append("text").attr("x", x(value)).attr("y", bottom + 3 + this.fontSize).attr("text-anchor", "middle").text(text);
    }
    for (const { value, text } of ticksOf(y, TICKS.y)) {
      this.ticks.append("path").attr("d", `M${left},${y(value)}H${right}`).attr("stroke", "#808080").attr("stroke-opacity", 0.22).attr("stroke-width", 0.5);
      this.ticks.append("text").attr("x", left - 4).attr("y", y(value) + this.fontSize / 3).attr("text-anchor", "end").text(text);
    }
  }
}

/** Round numbers: on a logarithmic scale powers of ten, with 2 and 5 if it shows few, and linear ones within a decade. */
function ticksOf(scale: ScaleContinuousNumeric<number, number>, count: number): { value: number; text: string }[] {
  const [low, high] = scale.domain();
  const decades = "base" in scale ? Math.abs(Math.log10(high / low)) : 0;
  if (decades < 1) {
    const values = scaleLinear().domain([low, high]).ticks(count);
    const step = values.length > 1 ? Math.abs(values[1] - values[0]) : 1;
    return values.map((value) => ({ value, text: tickText(value, step) }));
  }
  const leading = decades < 2.5 ? ["1", "2", "5"] : ["1"];
  const values = scale.ticks(10 * count).filter((value) => leading.includes(value.toExponential(6)[0]) && /^.\.0+e/.test(value.toExponential(6)));
  const every = Math.ceil(values.length / (2 * count));
  return values.filter((_, k) => k % every === 0).map((value) => ({ value, text: tickText(value, 0) }));
}

/** As many digits as neighbouring ticks need to differ. */
function tickText(value: number, step: number): string {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)) + 1e-12);
  const digits = step === 0 ? 1 : Math.max(1, size - Math.floor(Math.log10(step) + 1e-12) + 1);
  if (size < 5 && size >= -3) return value.toPrecision(Math.min(Math.max(digits, size + 1), 21));
  const [mantissa, exponent] = value.toExponential(Math.min(digits - 1, 20)).split("e");
  const raised = [...exponent.replace("+", "")].map((one) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(one)]).join("");
  return `${Number(mantissa) === 1 ? "" : `${mantissa}·`}10${raised}`;
}

function button(text: string, label: string, click: () => void): HTMLButtonElement {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.title = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", click);
  return made;
}

for (const link of document.querySelectorAll<HTMLAnchorElement>("a.csv[data-panels]")) {
  const line = link.closest("p.data")!;
  const svg = line.previousElementSibling as Drawing;
  const panels = JSON.parse(link.dataset["panels"]!) as Record<string, Panel>;
  const views = new Map<number, View>();
  for (const [number, panel] of Object.entries(panels)) {
    const group = svg.querySelector(`[id$="-axes_${number}"]`);
    if (group !== null) views.set(Number(number), new View(group, panel));
  }
  svg.zoomed = (place) => {
    const view = views.get(place.axes);
    if (view === undefined) return place;
    const [x, y] = view.has(place) ? view.transform.apply([place.x, place.y]) : [-1e9, -1e9];
    return { ...place, x, y };
  };
  const every = (factor: number): void => views.forEach((view) => view.by(factor));
  const tools = document.createElement("span");
  tools.className = "zooms";
  tools.append(" · zoom ", button("+", "Zoom in; or double-click, Ctrl and wheel, two fingers. Drag to move", () => every(2)),
    button("−", "Zoom out", () => every(1 / 2)), button("reset", "Reset to the whole range", () => every(0)));
  line.append(tools);
}
