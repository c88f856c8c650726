// A head, a sequence and a token picked by the reader; without this script the page shows one head on one sequence.
for (const section of document.querySelectorAll(".picker")) {
  const data = JSON.parse(section.querySelector("script").textContent);
  const [layerBox, headBox, sortBox, sequenceBox] = section.querySelectorAll("select");
  const [text, said] = section.querySelectorAll(".text, .said");
  const option = (box, value, label) => box.append(new Option(label, value));
  const name = (one) => `${one.layer}.${one.head}`;
  const bytes = (packed) => Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  // the tokens whose bits are set in the row of a query
  const supporting = (q) => tokens.map((_, t) => t).filter((t) => {
    const at = q * tokens.length + t;
    return (support[at >> 3] >> (7 - (at & 7))) & 1;
  });
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  data.measures.forEach((title, k) => option(sortBox, k, title));
  data.sequences.forEach(({ number, tokens }, k) => option(sequenceBox, k, `${number}: ${tokens.slice(0, 8).join(" ")}`));
  option(layerBox, "", "all");
  for (const layer of new Set(data.heads.map((one) => one.layer))) option(layerBox, layer, data.layers[layer]);
  const listed = () => {
    const k = sortBox.value, kept = headBox.value || data.first.join(".");
    const some = data.heads.filter((one) => layerBox.value === "" || one.layer === +layerBox.value);
    // what is not defined comes last
    if (k !== "") some.sort((a, b) => (b.values[k] ?? -Infinity) - (a.values[k] ?? -Infinity));
    headBox.replaceChildren();
    for (const one of some) option(headBox, name(one), name(one) + (k === "" ? "" : `  (${one.values[k] === null ? "-" : +one.values[k].toPrecision(3)})`));
    headBox.value = some.some((one) => name(one) === kept) && k === "" ? kept : name(some[0]);
    draw();
  };
  let head, tokens, queries, map, support, selected;
  const draw = () => {
    head = data.heads.find((one) => name(one) === headBox.value);
    const at = +sequenceBox.value;
    tokens = data.sequences[at].tokens;
    queries = data.queries[head.layer][at];
    map = bytes(head.maps[at]);
    support = head.support && bytes(head.support[at]);
    selected = head.selected[at];
    text.replaceChildren(...tokens.flatMap((token, t) => {
      const mark = document.createElement("button");
      mark.type = "button";
      mark.textContent = token;
      mark.onpointerenter = mark.onfocus = mark.onclick = () => attend(t);
      return [mark, " "];
    }));
    text.onpointerleave = (event) => { if (event.pointerType !== "touch") attend(null); };
    attend(null);
  };
  // the attention of one token, or the mean over the tokens
  const attend = (from) => {
    const q = from === null ? null : queries.indexOf(from);
    const row = tokens.map((_, t) => (q === null
      ? queries.reduce((sum, _, k) => sum + map[k * tokens.length + t], 0) / queries.length
      : q < 0 ? 0 : map[q * tokens.length + t]) / data.levels);
    const largest = Math.max(...row), average = row.reduce((a, b) => a + b, 0) / row.length;
    const supported = q !== null && q >= 0 && support ? supporting(q) : [];
    [...text.children].forEach((mark, t) => {
      // what is not above average stays white, and so does nearly uniform attention
      const shade = largest > 0 ? Math.max(0, row[t] - average) / largest : 0;
      mark.style.setProperty("--a", shade.toFixed(3));
      mark.classList.toggle("strong", shade > 0.69);
      mark.classList.toggle("from", t === from);
      mark.classList.toggle("chosen", q !== null && q >= 0 && t === selected[q]);
      mark.classList.toggle("support", supported.includes(t));
    });
    const most = row.map((share, t) => [share, t]).sort((a, b) => b[0] - a[0]).slice(0, 5).filter(([share]) => share > 0)
      .map(([share, t]) => `${tokens[t]} ${percent(share)}`).join(", ");
    said.textContent = q === null ? `Head ${name(head)}, mean over the queries: ${most}.`
      : q < 0 ? `${tokens[from]} is not one of the inspected queries.`
      : `${tokens[from]} attends to ${most}. Selected: ${tokens[selected[q]]}. ` + (support
        ? `Support tokens: ${supported.map((t) => tokens[t]).join(" ") || "none"}.`
        : `Its support tokens are not known, because its margin is not solved.`);
  };
  layerBox.onchange = sortBox.onchange = listed;
  headBox.onchange = sequenceBox.onchange = draw;
  headBox.replaceChildren();
  listed();
  section.hidden = false;
  // a row of the table of heads picks its head
  for (const row of document.querySelectorAll("table.heads tbody tr")) row.addEventListener("click", () => {
    layerBox.value = sortBox.value = "";
    listed();
    headBox.value = row.cells[0].textContent;
    draw();
    section.scrollIntoView({ behavior: "smooth" });
  });
}
