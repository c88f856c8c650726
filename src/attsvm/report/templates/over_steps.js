// Sliders over the steps of training; without this script the last step is shown.
for (const box of document.querySelectorAll("p.over-steps")) {
  const input = box.querySelector("input"), steps = JSON.parse(input.dataset.steps);
  const parts = [...box.parentElement.querySelectorAll("[data-over]")]
    .map((part) => [part, part.dataset.over.split(" ").map(Number)]);
  const show = (k) => {
    for (const [part, shares] of parts)
      if (part.tagName === "TD") {
        part.style.setProperty("--a", shares[k]);
        part.title = part.title.replace(/[\d.e-]+$/, shares[k].toFixed(3));
      } else part.firstElementChild.style.opacity = shares[k];
    box.querySelector("output").textContent = steps[k].toLocaleString("en");
    input.setAttribute("aria-valuetext", `step ${steps[k]}`);
  };
  input.addEventListener("input", () => show(+input.value));
  show(+input.value);
  box.hidden = false;
}
