/** Pieces that both planes share: the SVG's groups, dragging and the keyboard. */

import { drag } from "d3-drag";
import { pointer, select, type Selection } from "d3-selection";
import type { Point } from "./scene";

export const SIZE = 440;
export const MIDDLE = SIZE / 2;

export type Svg = Selection<SVGSVGElement, unknown, null, undefined>;
export type Layer = Selection<SVGGElement, unknown, null, undefined>;

export function layer(svg: Svg, name: string): Layer {
  return svg.append("g").attr("class", name);
}

export interface Handle {
  id: string;
  label: string;
  at: Point;
  radius: number;
  move(to: Point): void;
  select?(): void;
  key?(key: string): boolean;
}

/** Focusable things that are dragged with the mouse, a finger or the arrow keys. Coordinates are those of the data. */
export function drawHandles(
  group: Layer,
  handles: Handle[],
  toScreen: (p: Point) => Point,
  toData: (p: Point) => Point,
  nudge: () => number,
): Selection<SVGGElement, Handle, SVGGElement, unknown> {
  const svg = group.node()!.ownerSVGElement!;
  const all = group
    .selectAll<SVGGElement, Handle>("g.handle")
    .data(handles, (handle) => handle.id)
    .join((enter) => {
      const added = enter.append("g").attr("class", "handle").attr("id", (handle) => handle.id).attr("tabindex", 0).attr("role", "button");
      added.append("circle").attr("class", "focus").attr("r", (handle) => handle.radius + 4);
      added.append("circle").attr("class", "touch").attr("r", (handle) => Math.max(handle.radius + 4, 15)).attr("fill", "none").attr("pointer-events", "all");
      listen(added, svg, toData, nudge);
      return added;
    });
  all.each((handle, k, nodes) => {
    const place = `translate(${toScreen(handle.at).join(",")})`;
    const label = `${handle.label}, at ${handle.at.map((x) => x.toFixed(2)).join(", ")}`;
    if (!placed.changes(nodes[k], place + label)) return;
    nodes[k].setAttribute("transform", place);
    nodes[k].setAttribute("aria-label", label);
  });
  return all;
}

/** What was drawn last of each element, so that hundreds of them cost nothing where they stay as they are. */
export class Drawn {
  private readonly looks = new WeakMap<Element, string>();

  changes(element: Element, look: string): boolean {
    if (this.looks.get(element) === look) return false;
    this.looks.set(element, look);
    return true;
  }
}

const placed = new Drawn();

/** The data of an element, when something happens to it, is the handle that was drawn last. */
function listen(
  all: Selection<SVGGElement, Handle, SVGGElement, unknown>,
  svg: SVGSVGElement,
  toData: (p: Point) => Point,
  nudge: () => number,
): void {
  all.on("keydown", (event: KeyboardEvent, handle) => {
    const arrows: Record<string, Point> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const direction = arrows[event.key];
    if (direction === undefined && handle.key?.(event.key) !== true) return;
    event.preventDefault();
    if (direction === undefined) return;
    const by = nudge() * (event.shiftKey ? 10 : 1);
    handle.move([handle.at[0] + by * direction[0], handle.at[1] + by * direction[1]]);
  });
  all.on("focus", (_, handle) => handle.select?.());
  all.on("pointerenter", function (_, handle) {
    select(this).selectAll("title").data([handle.label]).join("title").text(String);
  });
  all.call(
    drag<SVGGElement, Handle>()
      .container(() => svg)
      // d3-drag prevents the focus of a click, and the keys would go on to what had it before
      .on("start", function (_, handle) {
        this.focus({ preventScroll: true });
        handle.select?.();
      })
      .on("drag", (event: { sourceEvent: Event }, handle) => {
        const source = event.sourceEvent;
        const touch = "touches" in source ? (source as TouchEvent).touches[0] : source;
        const [x, y] = pointer(touch, svg);
        const inside = (value: number): number => Math.min(Math.max(value, 6), SIZE - 6);
        handle.move(toData([inside(x), inside(y)]));
      }),
  );
}

export function arrow(from: Point, to: Point, head = 8): string {
  const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
  const side = (turn: number): string => `${to[0] - head * Math.cos(angle + turn)},${to[1] - head * Math.sin(angle + turn)}`;
  return `M${from}L${to}M${side(0.45)}L${to}L${side(-0.45)}`;
}

export function svgOf(id: string): Svg {
  return select<SVGSVGElement, unknown>(`#${id}`) as unknown as Svg;
}
