// Sliders over the steps of training; without this script the last step is shown.
for (const box of document.querySelectorAll("p.over-steps")) {
  const input = box.querySelector("input"), steps = JSON.parse(input.dataset.steps);
  const parts = [...box.parentElement.querySelectorAll("[data-over]")]
    .map((part) => [part, part.dataset.over.split(" ").map(Number), part.dataset.said?.split(" ")]);
  const layers = [...box.parentElement.querySelectorAll("[data-at]")];
  const show = (k) => {
    for (const layer of layers) layer.setAttribute("display", +layer.dataset.at === k ? "inline" : "none");
    for (const [part, shares, said] of parts)
      if (part.ownerSVGElement) part.firstElementChild.style.opacity = shares[k];
      else {
        part.style.setProperty("--a", shares[k]);
        part.title = part.title.replace(/[\d.e-]+(?=%?$)/, said?.[k] ?? shares[k].toFixed(3));
      }
    box.querySelector("output").textContent = steps[k].toLocaleString("en");
    input.setAttribute("aria-valuetext", `step ${steps[k]}`);
  };
  input.addEventListener("input", () => show(+input.value));
  show(+input.value);
  box.hidden = false;
}
