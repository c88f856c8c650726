// Numbers under the pointer, and the drawings as files; without this script the figures are static.
const tip = document.body.appendChild(document.createElement("div"));
tip.className = "tip"; tip.setAttribute("role", "status"); tip.hidden = true;
const show = (text, event) => {
  tip.textContent = text;
  tip.hidden = false;
  const wide = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, wide - tip.offsetWidth - 4))}px`;
  tip.style.top = `${event.clientY + (event.clientY > innerHeight - 80 ? -14 - tip.offsetHeight : 16)}px`;
};
// Cells, words and marks have their numbers as a title, and terms their definition; it appears at once, and at a touch.
let titled = null;
const untitle = () => { titled?.restore(); titled = null; tip.hidden = true; };
addEventListener("pointerover", (event) => {
  const part = event.target.closest?.("td[title], mark[title], a.term[title], circle:has(> title)");
  if (part === titled?.part && part) return;
  if (titled) untitle();
  if (!part) return;
  const title = part.querySelector(":scope > title"), text = title ? title.textContent : part.title;
  // the browser's own tip would cover this one
  if (title) title.remove(); else part.removeAttribute("title");
  titled = { part, restore: () => { if (title) part.append(title); else part.title = text; } };
  show(text, event);
});
// Terms that are reached by the keyboard, too
addEventListener("focusin", ({ target }) => {
  const box = target.getBoundingClientRect();
  if (target.matches("a.term[title]:focus-visible")) show(target.title, { clientX: box.left, clientY: box.bottom });
});
addEventListener("focusout", () => { if (!titled) tip.hidden = true; });
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
const plain = (text) => text.replaceAll("currentColor", "#1b1b1f").replaceAll(/var\(--\w+, (#\w+)\)/g, "$1");
const svgText = (drawing) => {
  const copy = drawing.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.querySelector("circle.at")?.remove();
  return plain(copy.outerHTML);
};
// Tables of cells as SVG: a rectangle and a text for each cell, where the browser has put them.
const tableText = (drawing) => {
  const from = drawing.getBoundingClientRect(), wide = Math.ceil(drawing.scrollWidth), high = Math.ceil(from.height);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const add = (name, given, text) => {
    const part = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
    for (const [key, value] of Object.entries(given)) part.setAttribute(key, value);
    if (text) part.textContent = text;
  };
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--card");
  add("rect", { width: wide, height: high, fill: paper });
  for (const part of drawing.querySelectorAll("td, th, h4, p.axis")) {
    const box = part.getBoundingClientRect(), look = getComputedStyle(part);
    const x = box.left - from.left, y = box.top - from.top;
    if (part.tagName === "TD")
      add("rect", { x, y, width: box.width, height: box.height, fill: look.backgroundColor,
        ...(look.outlineStyle !== "none" && { stroke: look.outlineColor }) });
    const text = part.textContent.trim(), upright = look.writingMode.startsWith("vertical") || part.querySelector("span");
    const middle = [x + box.width / 2, y + box.height / 2];
    const side = { center: "middle", right: "end" }[look.textAlign] ?? "start";
    const at = { start: x, middle: middle[0], end: x + box.width - parseFloat(look.paddingRight) }[side];
    if (text && upright) add("text", { x: 0, y: 0, transform: `translate(${middle[0]},${y + box.height}) rotate(-90)`,
      fill: look.color, "font-family": look.fontFamily, "font-size": look.fontSize, "dominant-baseline": "central" }, text);
    else if (text) add("text", { x: at, y: middle[1], fill: look.color, "font-family": look.fontFamily,
      "font-size": look.fontSize, "text-anchor": side, "dominant-baseline": "central" }, text);
  }
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return svg.outerHTML;
};
// The rows of a CSV file without its header. A text that could be a formula has an apostrophe before it.
const parsed = (text) => {
  const rows = [[]];
  for (const [, quoted, bare, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n)/g)) {
    rows.at(-1).push((quoted?.replaceAll('""', '"') ?? bare).replace(/^'/, ""));
    if (end === "\n") rows.push([]);
  }
  return rows.slice(1, -1);
};
const short = (text) => text === "" || isNaN(text) ? text : String(+(+text).toPrecision(5));
for (const file of document.querySelectorAll("p.data a.svg")) {
  const drawing = file.closest("p.data").previousElementSibling;
  file.parentElement.hidden = false;
  file.href = "#";
  file.addEventListener("click", () => {
    const text = drawing.tagName === "svg" ? svgText(drawing) : tableText(drawing);
    file.href = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  });
}
const said = ({ row: [panel, series, first, second, value], labels, cell }) => {
  const where = `${labels[0]} ${short(first)}, ${labels[1]} ${short(second)}`;
  if (cell) return `${panel && `${panel} · `}${where}: ${/^cells( \d+)?$/.test(series) ? "" : `${series} `}${short(value)}`;
  return [panel, series === labels[1] ? "" : series, where].filter(Boolean).join(" · ");
};
for (const link of document.querySelectorAll("a.csv[data-places]")) {
  const svg = link.closest("p.data").previousElementSibling;
  let points;
  const read = () => {
    const rows = parsed(decodeURIComponent(link.href.slice(link.href.indexOf(",") + 1)));
    let row = 0;
    return JSON.parse(link.dataset.places).flatMap(({ labels, cell, axes, at, texts }) =>
      Array.from({ length: at.length / 2 }, (_, k) => ({ x: at[2 * k], y: at[2 * k + 1], cell, labels, axes, row: rows[row++], text: texts?.[k] })));
  };
  const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  ring.setAttribute("class", "at"); ring.setAttribute("r", "3");
  const leave = (event) => { if (event?.pointerType !== "touch") { tip.hidden = true; ring.remove(); } };
  svg.addEventListener("pointerleave", leave);
  const near = (event) => {
    points ??= read();
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let best = null, least = 12;
    for (const one of points) {
      const point = svg.zoomed?.(one) ?? one;  // where it is now
      const dx = Math.abs(point.x - x), dy = Math.abs(point.y - y);
      const inside = point.cell && dx <= point.cell[0] && dy <= point.cell[1];
      // a mark on top of a cell is preferred to the cell
      const far = point.cell ? (inside ? 6 : Infinity) : Math.hypot(dx, dy);
      if (far < least) { least = far; best = point; }
    }
    if (!best) return leave();
    // the data of the figure are those of the last step
    const slider = best.cell && svg.parentElement.querySelector(".over-steps input");
    show((best.text ?? said(best)) + (slider && slider.value !== slider.max ? " (at the last step)" : ""), event);
    if (best.cell) return ring.remove();
    ring.setAttribute("cx", best.x); ring.setAttribute("cy", best.y);
    svg.append(ring);
  };
  svg.addEventListener("pointermove", near);
  svg.addEventListener("pointerdown", near);
}
