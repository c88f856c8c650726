// Numbers under the pointer, for every figure that has a link to its data; without this script the figures are static.
const tip = document.body.appendChild(document.createElement("div"));
tip.className = "tip"; tip.setAttribute("role", "status"); tip.hidden = true;
const parsed = (text) => text.split("\n").slice(1, -1).map((line) =>
  [...("," + line).matchAll(/,(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((m) => m[1]?.replaceAll('""', '"') ?? m[2]));
const short = (text) => text === "" || isNaN(text) ? text : String(+(+text).toPrecision(5));
for (const link of document.querySelectorAll("a.csv[data-places]")) {
  const svg = link.closest("p.data").previousElementSibling;
  const file = link.parentElement.querySelector("a.svg");
  file.parentElement.hidden = false;
  file.href = "#";
  file.addEventListener("click", () => {
    const copy = svg.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.querySelector("circle.at")?.remove();
    const text = copy.outerHTML.replaceAll("currentColor", "#1b1b1f").replaceAll(/var\(--blue, (#\w+)\)/g, "$1");
    file.href = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  });
  let points;
  const read = () => {
    const rows = parsed(decodeURIComponent(link.href.slice(link.href.indexOf(",") + 1)));
    let row = 0;
    return JSON.parse(link.dataset.places).flatMap(({ labels, cell, at }) =>
      Array.from({ length: at.length / 2 }, (_, k) => ({ x: at[2 * k], y: at[2 * k + 1], cell, labels, row: rows[row++] })));
  };
  const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  ring.setAttribute("class", "at"); ring.setAttribute("r", "3");
  const leave = () => { tip.hidden = true; ring.remove(); };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", (event) => {
    points ??= read();
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let best = null, least = 12;
    for (const point of points) {
      const dx = Math.abs(point.x - x), dy = Math.abs(point.y - y);
      const inside = point.cell && dx <= point.cell[0] && dy <= point.cell[1];
      // a mark on top of a cell is preferred to the cell
      const far = point.cell ? (inside ? 6 : Infinity) : Math.hypot(dx, dy);
      if (far < least) { least = far; best = point; }
    }
    if (!best) return leave();
    const [panel, series, first, second, value] = best.row;
    const where = `${best.labels[0]} ${short(first)}, ${best.labels[1]} ${short(second)}`;
    tip.textContent = [panel, best.cell ? "" : series, where].filter(Boolean).join(" · ")
      + (value === "" ? "" : `: ${short(value)}`);
    tip.hidden = false;
    const wide = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, wide - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY + (event.clientY > innerHeight - 80 ? -14 - tip.offsetHeight : 16)}px`;
    if (best.cell) return ring.remove();
    ring.setAttribute("cx", best.x); ring.setAttribute("cy", best.y);
    svg.append(ring);
  });
}
