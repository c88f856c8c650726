/** Losses ℓ(m) of the margin m = y f. The logarithm of the slope does not underflow when the slope itself does. */

export type LossName = "logistic" | "exponential" | "linear";

export interface Loss {
  value(margin: number): number;
  /** log|ℓ'(m)|. */
  logSlope(margin: number): number;
  /** |ℓ''(m)|; largest at an end of an interval of margins, or at 0. */
  curvature(margin: number): number;
}

/** log(1 + e^x). */
function softplus(x: number): number {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}

export const LOSSES: Record<LossName, Loss> = {
  logistic: { value: (m) => softplus(-m), logSlope: (m) => -softplus(m), curvature: (m) => Math.exp(-softplus(m) - softplus(-m)) },
  exponential: { value: (m) => Math.exp(-m), logSlope: (m) => -m, curvature: (m) => Math.exp(-m) },
  linear: { value: (m) => -m, logSlope: () => 0, curvature: () => 0 },
};
