/** The ℓ1 and the ℓ∞ Att-SVM by the simplex method on their duals, whose bases are active sets of constraints. */

export interface Linear {
  weights: number[];
  multipliers: number[];
}

const ZERO = 1e-12;

/**
 * The Att-SVM of a feasible set of rows.
 *
 * ℓ1: maximise Σλ subject to −1 ≤ A'λ ≤ 1. ℓ∞: maximise Σλ subject to A'λ = s − t, Σ(s + t) ≤ 1, with s, t ≥ 0. Both
 * begin at λ = 0. The weights are the multipliers of the dual's constraints.
 */
export function linearProgram(rows: number[][], dimension: number, p: 1 | typeof Infinity): Linear {
  const m = rows.length;
  const columns = Array.from({ length: dimension }, (_, k) => rows.map((row) => row[k]));
  const identity = (k: number, size: number, x = 1): number[] =>
    Array.from({ length: size }, (_, j) => (j === k ? x : 0));
  if (p === 1) {
    const body = [...columns, ...columns.map((column) => column.map((x) => -x))];
    const { primal, dual } = simplex(body, new Array<number>(2 * dimension).fill(1), new Array<number>(m).fill(1));
    return { multipliers: primal, weights: columns.map((_, k) => dual[k] - dual[k + dimension]) };
  }
  // rows: A'λ − s + t = 0 as ≤ 0 from both sides is degenerate; with t eliminated by t = s − A'λ ≥ 0 there are
  // the constraints A'λ − s ≤ 0 and Σ(2s − A'λ) ≤ 1
  const body = columns.map((column, k) => [...column, ...identity(k, dimension, -1)]);
  const last = [...rows.map((row) => -row.reduce((a, b) => a + b, 0)), ...new Array<number>(dimension).fill(2)];
  const costs = [...new Array<number>(m).fill(1), ...new Array<number>(dimension).fill(0)];
  const { primal, dual } = simplex([...body, last], [...new Array<number>(dimension).fill(0), 1], costs);
  return { multipliers: primal.slice(0, m), weights: columns.map((_, k) => dual[k] - dual[dimension]) };
}

/** max c'x subject to Bx ≤ b, x ≥ 0, with b ≥ 0 and a finite maximum. Dantzig's rule, then Bland's against cycles. */
function simplex(B: number[][], b: number[], c: number[]): { primal: number[]; dual: number[] } {
  const [m, n] = [b.length, c.length];
  const table = B.map((row, i) => [...row, ...Array.from({ length: m }, (_, j) => (i === j ? 1 : 0)), b[i]]);
  const cost = [...c.map((x) => -x), ...new Array<number>(m + 1).fill(0)];
  const basis = Array.from({ length: m }, (_, i) => n + i);
  const width = n + m;
  for (let step = 0; step < 400 + 40 * width; step++) {
    const entering = step < 40 + 4 * width ? smallest(cost, width) : firstNegative(cost, width);
    if (entering < 0) break;
    let leaving = -1;
    let least = Infinity;
    for (let i = 0; i < m; i++) {
      if (table[i][entering] <= ZERO) continue;
      const ratio = table[i][width] / table[i][entering];
      if (ratio < least - ZERO || (ratio <= least + ZERO && leaving >= 0 && basis[i] < basis[leaving])) {
        [least, leaving] = [Math.min(least, ratio), i];
      }
    }
    if (leaving < 0) break;
    const pivot = table[leaving];
    const scale = pivot[entering];
    for (let j = 0; j <= width; j++) pivot[j] /= scale;
    for (const row of [...table.filter((_, i) => i !== leaving), cost]) {
      const factor = row[entering];
      if (factor === 0) continue;
      for (let j = 0; j <= width; j++) row[j] -= factor * pivot[j];
      row[entering] = 0;
    }
    basis[leaving] = entering;
  }
  const primal = new Array<number>(n).fill(0);
  basis.forEach((j, i) => {
    if (j < n) primal[j] = table[i][width];
  });
  return { primal, dual: cost.slice(n, n + m) };
}

function smallest(cost: number[], width: number): number {
  let found = -1;
  for (let j = 0; j < width; j++) if (cost[j] < -ZERO && (found < 0 || cost[j] < cost[found])) found = j;
  return found;
}

function firstNegative(cost: number[], width: number): number {
  return cost.findIndex((x, j) => j < width && x < -ZERO);
}
