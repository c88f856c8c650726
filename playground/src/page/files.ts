/** Saving and copying. */

export function save(name: string, content: Blob | string, type = "text/plain"): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "opacity", "font", "font-style", "font-weight", "paint-order", "text-anchor"];

/** The drawings side by side, as they look now. */
export async function toPng(drawings: SVGSVGElement[], scale = 2): Promise<Blob> {
  const canvas = document.createElement("canvas");
  const sizes = drawings.map((svg) => svg.viewBox.baseVal);
  canvas.width = scale * sizes.reduce((sum, box) => sum + box.width, 0);
  canvas.height = scale * Math.max(...sizes.map((box) => box.height));
  const context = canvas.getContext("2d")!;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--card");
  context.fillRect(0, 0, canvas.width, canvas.height);
  let left = 0;
  for (const [index, svg] of drawings.entries()) {
    const copy = svg.cloneNode(true) as SVGSVGElement;
    const [from, to] = [svg, copy].map((one) => [...one.querySelectorAll<SVGElement>("*")]);
    from.forEach((element, k) => {
      const style = getComputedStyle(element);
      for (const name of STYLES) to[k].style.setProperty(name, style.getPropertyValue(name));
    });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", String(scale * sizes[index].width));
    copy.setAttribute("height", String(scale * sizes[index].height));
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    await image.decode();
    context.drawImage(image, left, 0);
    left += scale * sizes[index].width;
  }
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob === null ? reject(new Error("no picture")) : resolve(blob))));
}
