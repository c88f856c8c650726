// Searches and sorts the table of the catalogue of optimisers.
const table = document.getElementById("catalogue");
const body = table.tBodies[0];
const rows = Array.from(body.rows);
const search = document.getElementById("catalogue-search");
const count = document.getElementById("catalogue-count");

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  count.value = `${shown} of ${rows.length}`;
}

function sort(column, heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  rows.sort((a, b) => key(a).localeCompare(key(b), "en", { numeric: true }) * (descending ? -1 : 1));
  body.append(...rows);
}

search.addEventListener("input", show);
Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
  heading.querySelector("button").addEventListener("click", () => sort(column, heading));
});
show();
