// One last word at a time, and the lines of its graph; without this script all words are shown.
{
  document.documentElement.classList.add("scripted");
  const sections = [...document.querySelectorAll("section.word")];
  const draw = (graph) => {
    const svg = graph.querySelector("svg"), frame = graph.getBoundingClientRect();
    const boxes = new Map([...graph.querySelectorAll(".component")].map((box) => [+box.dataset.id, box]));
    svg.replaceChildren(...JSON.parse(graph.dataset.links).map(([above, below]) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      const from = boxes.get(above).getBoundingClientRect(), to = boxes.get(below).getBoundingClientRect();
      const middle = to.left + to.width / 2;
      const start = Math.min(Math.max(middle, from.left + 6), from.right - 6);
      for (const [name, value] of Object.entries({
        x1: start - frame.left, y1: from.bottom - frame.top, x2: middle - frame.left, y2: to.top - frame.top,
      })) line.setAttribute(name, value);
      line.ends = [boxes.get(above), boxes.get(below)];
      return line;
    }));
  };
  for (const graph of document.querySelectorAll(".graph")) {
    const light = (box, on) => {
      for (const line of graph.querySelectorAll("line")) if (line.ends.includes(box)) {
        line.classList.toggle("at", on);
        for (const end of line.ends) end.classList.toggle("at", on);
      }
    };
    for (const box of graph.querySelectorAll(".component")) {
      box.addEventListener("pointerenter", () => light(box, true));
      box.addEventListener("pointerleave", () => light(box, false));
      box.addEventListener("focus", () => light(box, true));
      box.addEventListener("blur", () => light(box, false));
    }
  }
  const redraw = () => document.querySelectorAll(".picked .graph").forEach(draw);
  document.querySelector("p.words select").addEventListener("change", (event) => {
    sections.forEach((section, place) => section.classList.toggle("picked", place === +event.target.value));
    redraw();
  });
  addEventListener("resize", redraw);
  redraw();
}
