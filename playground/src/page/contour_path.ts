/** A contour of a grid as a path. */

import type { ContourMultiPolygon } from "d3-contour";

export function contourPath(band: ContourMultiPolygon, cell: number): string {
  const point = ([x, y]: number[]): string => `${(x * cell).toFixed(1)},${(y * cell).toFixed(1)}`;
  return band.coordinates.flat().map((ring) => `M${ring.map(point).join("L")}Z`).join("");
}
