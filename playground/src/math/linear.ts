/** Small dense linear algebra. */

export type Vector = Float64Array | number[];

export function dot(a: Vector, b: Vector): number {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}

/** The Euclidean length, without overflow or underflow of the squares. */
export function length(a: Vector): number {
  let largest = 0;
  for (let i = 0; i < a.length; i++) largest = Math.max(largest, Math.abs(a[i]));
  if (largest === 0 || !Number.isFinite(largest)) return largest;
  let total = 0;
  for (let i = 0; i < a.length; i++) total += (a[i] / largest) ** 2;
  return largest * Math.sqrt(total);
}

export function largestEntry(a: Vector): number {
  let largest = 0;
  for (let i = 0; i < a.length; i++) largest = Math.max(largest, Math.abs(a[i]));
  return largest;
}

/** The solution of M x = b by Gaussian elimination with row and column equilibration; null where M is singular. */
export function solve(M: number[][], b: Vector): number[] | null {
  const size = b.length;
  const rows = M.map((row, i) => {
    const scale = largestEntry(row);
    if (scale === 0) return null;
    return [...row.map((x) => x / scale), b[i] / scale];
  });
  if (rows.includes(null)) return null;
  const a = rows as number[][];
  for (let k = 0; k < size; k++) {
    let pivot = k;
    for (let i = k + 1; i < size; i++) if (Math.abs(a[i][k]) > Math.abs(a[pivot][k])) pivot = i;
    if (!(Math.abs(a[pivot][k]) > 1e-300)) return null;
    [a[k], a[pivot]] = [a[pivot], a[k]];
    for (let i = k + 1; i < size; i++) {
      const factor = a[i][k] / a[k][k];
      if (factor === 0) continue;
      for (let j = k; j <= size; j++) a[i][j] -= factor * a[k][j];
    }
  }
  const x = new Array<number>(size).fill(0);
  for (let i = size - 1; i >= 0; i--) {
    let total = a[i][size];
    for (let j = i + 1; j < size; j++) total -= a[i][j] * x[j];
    x[i] = total / a[i][i];
  }
  return x.every(Number.isFinite) ? x : null;
}

/** The same with one step of iterative refinement. */
export function solveRefined(M: number[][], b: Vector): number[] | null {
  const x = solve(M, b);
  if (x === null) return null;
  const rest = Array.from(b, (value, i) => value - dot(M[i], x));
  const correction = solve(M, rest);
  return correction === null ? x : x.map((value, i) => value + correction[i]);
}

/**
 * Coefficients c and rest z of the projection of a vector on rows: a = Σ c_j rows_j + z, by modified Gram-Schmidt with
 * reorthogonalisation.
 */
export function project(rows: number[][], a: Vector): { coefficients: number[]; rest: number[] } {
  const basis: number[][] = [];
  const triangle: number[][] = []; // rows_j = Σ_i triangle[j][i] basis_i
  const along = (vector: number[]): number[] => {
    const parts = new Array<number>(basis.length).fill(0);
    for (let pass = 0; pass < 2; pass++) {
      basis.forEach((unit, i) => {
        const part = dot(unit, vector);
        parts[i] += part;
        for (let k = 0; k < vector.length; k++) vector[k] -= part * unit[k];
      });
    }
    return parts;
  };
  for (const row of rows) {
    const rest = [...row];
    const parts = along(rest);
    const size = length(rest);
    triangle.push([...parts, size]);
    basis.push(rest.map((x) => (size > 0 ? x / size : 0)));
  }
  const rest = Array.from(a);
  const parts = along(rest);
  const coefficients = new Array<number>(rows.length).fill(0);
  for (let j = rows.length - 1; j >= 0; j--) {
    let total = parts[j];
    for (let l = j + 1; l < rows.length; l++) total -= coefficients[l] * triangle[l][j];
    coefficients[j] = triangle[j][j] > 0 ? total / triangle[j][j] : 0;
  }
  return { coefficients, rest };
}
