// A small pattern of every head, and the head, the sequence and the token that the reader picks.
for (const section of document.querySelectorAll(".picker:not(.drawn)")) (async () => {
  section.classList.add("drawn");
  const data = JSON.parse(section.querySelector("script").textContent);
  const [layerBox, headBox, sortBox, sequenceBox] = section.querySelectorAll("select");
  const [asking, text, said] = section.querySelectorAll(".text, .said"), large = section.querySelector(".seen canvas");
  const option = (box, value, label) => box.append(new Option(label, value));
  const name = ({ at }) => at.join(".");
  const bytes = (packed) => Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const inflated = async (packed) => new Uint8Array(await new Response(
    new Blob([bytes(packed)]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
  for (const [k, grid] of data.grids.entries()) {
    grid.at = 0;
    grid.heads = data.heads.filter((one) => one.grid === k);
    for (const one of grid.sequences) one.levels = await inflated(one.packed);
  }
  // the levels of a head, row by row, and the number of tokens
  const mapOf = (one) => {
    const grid = data.grids[one.grid], { levels, tokens } = grid.sequences[grid.at], size = levels.length / grid.heads.length;
    return [levels.subarray(size * grid.heads.indexOf(one), size * (1 + grid.heads.indexOf(one))), tokens.length, grid.levels];
  };
  // a pixel of a small pattern is the largest of the levels that fall on it, so that no thin line is lost
  const paint = (canvas, one, step = 1) => {
    const [map, wide, most] = mapOf(one), high = map.length / wide;
    const image = new ImageData(Math.ceil(wide / step), Math.ceil(high / step)), levels = new Uint8Array(image.width * image.height);
    map.forEach((level, k) => {
      const at = Math.floor(Math.floor(k / wide) / step) * image.width + Math.floor((k % wide) / step);
      levels[at] = Math.max(levels[at], level);
    });
    const [red, green, blue] = getComputedStyle(canvas).color.match(/\d+/g), pixels = new Uint32Array(image.data.buffer);
    levels.forEach((level, k) => { pixels[k] = (Math.round(255 * level / most) << 24) | (blue << 16) | (green << 8) | red; });
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  const buttons = [...section.querySelectorAll(".patterns button")];
  const paintGrid = (k) => {
    const grid = data.grids[k], { number, tokens } = grid.sequences[grid.at];
    section.querySelectorAll("h3 > span")[k].textContent = `sequence ${number} (0 to ${grid.total - 1}), ${tokens.length} tokens`;
    for (const one of grid.heads) paint(one.button.firstChild, one, Math.ceil(tokens.length / 64));
  };
  // roots of probabilities are rounded, so that there are no more digits
  const percent = (share, digits) => (share < 0.01 ? "<1%" : `${+(100 * share).toPrecision(digits)}%`);
  const value = (number) => (number === null ? "-" : +number.toPrecision(3));
  for (const one of data.heads) {
    one.button = buttons.find((button) => button.value === name(one));
    one.button.title = [`Head ${data.layers[one.at[0]].replace(/^\d+/, name(one))}`,
      ...data.measures.map((title, k) => `${title}: ${value(one.values[k])}`)].join("\n");
    one.button.onclick = () => { pick(name(one)); section.querySelector(".picked").scrollIntoView({ block: "nearest", behavior: "smooth" }); };
  }
  data.measures.forEach((title, k) => option(sortBox, k, title));
  option(layerBox, "", "all");
  for (const layer of new Set(data.heads.map((one) => one.at[0]))) option(layerBox, layer, data.layers[layer]);
  const listed = () => {
    const k = sortBox.value, kept = headBox.value || data.first.join(".");
    const some = data.heads.filter((one) => layerBox.value === "" || one.at[0] === +layerBox.value);
    // what is not defined comes last
    if (k !== "") some.sort((a, b) => (b.values[k] ?? -Infinity) - (a.values[k] ?? -Infinity));
    headBox.replaceChildren();
    for (const one of some) option(headBox, name(one), name(one) + (k === "" ? "" : `  (${value(one.values[k])})`));
    headBox.value = some.some((one) => name(one) === kept) && k === "" ? kept : name(some[0]);
    draw();
  };
  let head, grid, tokens, queries, places, map, most, marks, askers, usual, support, selected, patches;
  const button = (label, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = made.title = label;
    made.onpointerenter = made.onfocus = made.onclick = act;
    return made;
  };
  const draw = () => {
    head = data.heads.find((one) => name(one) === headBox.value);
    if (grid !== data.grids[head.grid]) {
      grid = data.grids[head.grid];
      sequenceBox.replaceChildren();
      grid.sequences.forEach((one, k) => option(sequenceBox, k, `${one.number}: ${one.tokens.slice(0, 8).join(" ")}`));
      sequenceBox.value = grid.at;
      sequenceBox.parentElement.hidden = grid.sequences.length < 2;
    }
    const { picture, ...seen } = grid.sequences[grid.at];
    ({ tokens, places } = seen);
    queries = seen.queries ?? places.map((t) => tokens[t]);
    [map, , most] = mapOf(head);
    support = head.support && bytes(head.support[grid.at]);
    selected = head.selected[grid.at];
    for (const one of data.heads) one.button.setAttribute("aria-pressed", one === head);
    paint(large, head);
    marks = tokens.map((token, t) => button(token, () => { if (places) attend(places.indexOf(t), t); }));
    askers = places ? [] : queries.map((query, q) => button(query, () => attend(q)));
    asking.replaceChildren(...(places ? [] : ["queries: ", ...askers.flatMap((mark) => [mark, " "])]));
    text.replaceChildren(...(places ? [] : ["tokens: "]), ...marks.flatMap((mark) => [mark, " "]));
    patches = [0, tokens.length];
    usual = null;
    if (picture) {  // the patches lie on the picture, row by row
      const [source, first, rows, columns] = picture, board = document.createElement("span"), image = new Image();
      patches = [first, first + rows * columns];
      [image.src, image.alt] = [source, "the picture as the model gets it"];
      board.className = "board";
      board.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
      marks[first].before(board);
      board.append(image, ...marks.slice(...patches));
      for (const mark of marks.slice(...patches)) { mark.ariaLabel = mark.textContent; mark.textContent = ""; }
      usual = tokens[0] === "[CLS]" && places.includes(0) ? places.indexOf(0) : null;
    }
    attend(usual);
  };
  // the attention of one query, or the mean over the queries; a token `t` need not be one of them
  const attend = (q, t = q === null ? null : places?.[q]) => {
    const share = (row, k) => (map[row * tokens.length + k] / most) ** 2;
    const row = tokens.map((_, k) => (q === null
      ? queries.reduce((sum, _, from) => sum + share(from, k), 0) / queries.length : q < 0 ? 0 : share(q, k)));
    const some = row.slice(...patches), largest = Math.max(...some), average = some.reduce((a, b) => a + b, 0) / some.length;
    const bits = q !== null && q >= 0 && support;
    const supported = marks.map((_, k) => k).filter((k) => {
      const at = q * tokens.length + k;
      return bits && (support[at >> 3] >> (7 - (at & 7))) & 1;
    });
    marks.forEach((mark, k) => {
      // what is not above average stays as it is, and so does nearly uniform attention
      const shade = largest > 0 ? Math.min(1, Math.max(0, row[k] - average) / largest) : 0;
      mark.style.setProperty("--a", shade.toFixed(3));
      mark.classList.toggle("strong", shade > 0.735);
      mark.classList.toggle("from", k === t);
      mark.classList.toggle("chosen", q !== null && q >= 0 && k === selected[q]);
      mark.classList.toggle("support", supported.includes(k));
    });
    askers.forEach((mark, k) => mark.classList.toggle("from", k === q));
    const digits = most > 100 ? 2 : 1;
    const top = row.map((share, k) => [share, k]).sort((a, b) => b[0] - a[0]).slice(0, 5).filter(([share]) => share > 0)
      .map(([share, k]) => `${tokens[k]} ${percent(share, digits)}`).join(", ");
    const whole = some.length < row.length ? ` All patches: ${percent(some.reduce((a, b) => a + b, 0), digits)}.` : "";
    said.textContent = (q === null ? `Head ${name(head)}, mean over the queries: ${top}.`
      : q < 0 ? `${tokens[t]} is not one of the inspected queries.`
      : `${queries[q]} attends to ${top}. Selected: ${tokens[selected[q]]}. ` + (support
        ? `Support tokens: ${supported.map((k) => tokens[k]).join(" ") || "none"}.`
        : "Its support tokens are not known, because its margin is not solved.")) + whole;
  };
  const leave = (event) => { if (event.pointerType !== "touch") attend(usual); };
  asking.onpointerleave = text.onpointerleave = large.onpointerleave = leave;
  large.onpointermove = large.onclick = (event) => {
    const q = Math.min(queries.length - 1, Math.max(0, Math.floor(queries.length * event.offsetY / large.clientHeight)));
    const k = Math.min(tokens.length - 1, Math.max(0, Math.floor(tokens.length * event.offsetX / large.clientWidth)));
    attend(q);
    said.textContent = `${queries[q]} → ${tokens[k]}: ${percent((map[q * tokens.length + k] / most) ** 2, most > 100 ? 2 : 1)}. ${said.textContent}`;
  };
  const pick = (label) => {
    layerBox.value = sortBox.value = "";
    listed();
    headBox.value = label;
    draw();
  };
  layerBox.onchange = sortBox.onchange = listed;
  headBox.onchange = draw;
  sequenceBox.onchange = () => { grid.at = +sequenceBox.value; paintGrid(head.grid); draw(); };
  section.classList.add("ready");
  data.grids.forEach((_, k) => paintGrid(k));
  headBox.replaceChildren();
  listed();
  // a row of the table of heads picks its head
  for (const row of document.querySelectorAll("table.heads tbody tr")) row.addEventListener("click", () => {
    pick(row.cells[0].textContent);
    section.scrollIntoView({ behavior: "smooth" });
  });
})();
