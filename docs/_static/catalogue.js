// Searches and sorts the table of the catalogue of optimisers.
{
  const table = document.getElementById("catalogue");
  const body = table.tBodies[0];
  const headings = Array.from(table.tHead.rows[0].cells);
  const rows = Array.from(body.rows);
  const search = document.getElementById("catalogue-search");
  const count = document.getElementById("catalogue-count");

  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };

  const sort = (column) => {
    const heading = headings[column];
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    rows.sort((a, b) => sign * key(a).localeCompare(key(b), "en", { numeric: true }));
    body.append(...rows);
  };

  search.addEventListener("input", show);
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => sort(column));
  });
  show();
}
