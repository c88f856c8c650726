// The table of heads is sorted by the column whose title is clicked.
for (const table of document.querySelectorAll("table.heads")) {
  const number = (cell) => {
    const [first, second] = cell.textContent.replaceAll(",", "").split(".");
    return cell.tagName === "TH" ? 1e4 * first + +second : parseFloat(cell.textContent.replaceAll(",", ""));
  };
  [...table.tHead.rows[0].cells].forEach((title, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = title.textContent;
    button.title = title.querySelector("a")?.title ?? "";  // the definition of a term; a link in a button cannot be clicked
    title.replaceChildren(button);
    button.onclick = () => {
      const down = title.getAttribute("aria-sort") !== "descending";
      for (const other of title.parentElement.cells) other.removeAttribute("aria-sort");
      title.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => { const found = number(row.cells[k]); return isNaN(found) ? (down ? -Infinity : Infinity) : found; };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => (down ? value(b) - value(a) : value(a) - value(b))));
    };
  });
}
