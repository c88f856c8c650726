/** The scenes of the papers' figures, and scenes in which something breaks. */

import type { OptimizerSettings } from "../math/optimizers";
import { emptyScene, type Point, type Scene, type Sequence } from "./scene";

const SELECTION = "Max-Margin Token Selection";

function optimizer(name: OptimizerSettings["name"], rate: number, more: Partial<OptimizerSettings> = {}): OptimizerSettings {
  return { name, rate, schedule: "constant", p: 1.1, ...more };
}

function sequence(label: 1 | -1, tokens: ([number, number] | [number, number, number])[], query: Point = [1, 0]): Sequence {
  return {
    label,
    query,
    tokens: tokens.map(([x, y, height]) => (height === undefined ? { at: [x, y] } : { at: [x, y], height })),
  };
}

function scene(name: string, note: string, parts: Partial<Scene>): Scene {
  return { ...emptyScene(), name, note, ...parts };
}

const MIXED: Sequence[] = [
  sequence(1, [[1.6, 0.55], [-0.4, 0.9], [-0.9, -0.5], [0.2, -1.1]]),
  sequence(1, [[1.2, 1.3], [0.1, 0.5], [-0.8, 0.9], [-1.2, -0.3]]),
  sequence(-1, [[-0.7, 1.9], [0.3, 0.8], [0.9, -0.2], [0.4, -1.3]]),
];

/** Two clouds whose ℓ1.1, ℓ2, ℓ3 and ℓ∞ solutions point in clearly different directions. */
const FOUR_NORMS: Sequence[] = [
  sequence(1, [[1.3, 0.2], [-0.4, -0.5], [0.1, -1.2]]),
  sequence(1, [[1.6, 0.9], [0.5, 0.1], [-1.0, 0.8]]),
];

const LOCAL: Sequence[] = [sequence(1, [[-0.1, 1.0, 1.0], [1.0, 0.0, 0.9], [0.0, 0.0, 0.0]])];

const PLANE_W = {
  sequences: [
    sequence(1, [[-0.9814968, 0.1863952], [-1.1355718, -0.04983907], [-1.4568305, 0.11450518]], [0.84501135, 0.5347484]),
    sequence(1, [[0.6917174, -0.16891584], [0.7323128, -0.01747505], [0.9413471, -0.2896908]], [-0.63626397, -0.7714714]),
  ],
  head: [0.92731994, 0.37426966] as Point,
};

const FIGURE_2: Sequence[] = [
  [[0.774832, -0.23047204], [-1.0867758, 1.1697421], [-1.0632025, 0.57695615], [-1.252667, 1.0699966], [-0.4760317, -0.2524684], [-0.54945564, -0.77053076], [-0.38666987, -0.34129834]],
  [[0.68898094, -0.06827208], [-0.8499621, 0.8829005], [-0.9633044, 1.2778733], [-0.81074035, 0.8312646], [-0.49368146, -0.5985354], [-0.41206083, -0.47751775], [-0.41176873, -0.5204619]],
  [[0.94206643, 0.010501497], [-0.5395589, 0.7062212], [-1.1138496, 1.1839943], [-0.74202514, 0.7043652], [-0.594624, -0.23494503], [-0.60994875, -0.5959669], [-0.7133961, -0.27701208]],
].map((of) => sequence(1, of.map(([x, y], t) => [x, y, t === 0 ? 1 : 0.5])));

export interface Group {
  title: string;
  scenes: Scene[];
}

export const PRESETS: Group[] = [
  {
    title: "Start here",
    scenes: [
      scene("Gradient descent alone", "Steps of equal length along the gradient train the prompt p on two sequences. Each sequence ends up attending to one token. The path of p turns towards the star, the Att-SVM: the shortest p that gives each of these tokens a logit at least 1 above the others.", {
        sequences: FOUR_NORMS, head: [1, 0.15],
      }),
      scene("Two optimisers, two directions", "ℓ1.1 mirror descent and gradient descent see the same tokens. Each path turns towards the point where the ball of its own norm first touches the shaded polygon.", {
        sequences: FOUR_NORMS, head: [1, 0.15],
        optimizers: [optimizer("mirror_descent", 0.1), optimizer("normalized_gradient_descent", 0.1)],
      }),
      scene("Three sequences", "Each sequence keeps one token. The support tokens (dashed rings) determine the direction.", {
        sequences: MIXED, head: [0.9, 0.5], keep: "selected",
      }),
      scene("ℓ3 against sign descent", "ℓ3 mirror descent with growing steps, compared with sign descent, which maximises the ℓ∞ margin.", {
        sequences: FOUR_NORMS, head: [1, 0.15],
        optimizers: [optimizer("mirror_descent", 0.1, { p: 3, schedule: "growing" }), optimizer("sign", 0.02)],
      }),
    ],
  },
  {
    title: "Figures from the papers",
    scenes: [
      scene(`${SELECTION}: figure 1`, "One sequence of three tokens. The head reads only a third coordinate: scores 1, 0.9 and 0.9.", {
        sequences: [sequence(1, [[-0.1, 1.0, 1.0], [1.0, 0.0, 0.9], [0.0, 0.0, 0.9]])], head: [0, 0], heightHead: 1,
        optimizers: [optimizer("gradient_descent", 1, {})],
      }),
      scene(`${SELECTION}: figure 2`, "Three sequences of seven tokens. All tokens that are not optimal have equal scores, and convergence is global.", {
        sequences: FIGURE_2, head: [0, 0], heightHead: 1,
      }),
      scene(`${SELECTION}: figure 3`, "Prompt and prediction head are trained together. The third sequence's label has slack.", {
        sequences: [sequence(1, [[0, 0], [1, 1]]), sequence(-1, [[0, 0], [1, -1]]), sequence(1, [[0, 0], [0.5, 1.5]])],
        head: [0.02, 0.1], trainHead: true,
      }),
      scene(`${SELECTION}: unequal scores`, "The best scores of the two sequences differ by a factor of 8. Compare the losses.", {
        sequences: [sequence(1, [[0, 0, 0], [1, 1, 8]]), sequence(1, [[0, 0, 0], [1, -1, 1]])], head: [0, 0], heightHead: 1,
        loss: "exponential", optimizers: [optimizer("gradient_descent", 0.5)],
      }),
      scene("Transformers as SVMs: paths of W", "W is trained. The picture shows W z for one query.", {
        ...PLANE_W, attention: "combined",
      }),
      scene("Transformers as SVMs: paths of (K, Q)", "K and Q are trained: gradient descent converges to the nuclear-norm Att-SVM.", {
        ...PLANE_W, attention: "factored", optimizers: [optimizer("normalized_gradient_descent", 0.01)],
      }),
      scene("Mirror descent: joint training", "ℓ1.75 mirror descent trains W and v together.", {
        sequences: [
          sequence(1, [[-2.7, 1.2], [1.4, 2.1], [1.3, -0.1]], [-2.7, 1.2]),
          sequence(-1, [[0.4, -2.2], [-1.1, -0.4], [0.9, 0.1]], [0.4, -2.2]),
        ],
        head: [0.1, 0.1], attention: "combined", trainHead: true, optimizers: [optimizer("mirror_descent", 0.1, { p: 1.75 })],
      }),
    ],
  },
  {
    title: "Break it",
    scenes: [
      scene("A wrong token that is locally optimal", "The second token scores 0.9, the first 1. From this start the run keeps the second token forever. Drag the start up.", {
        sequences: LOCAL, head: [0, 0], heightHead: 1, start: [1.6, -0.6],
      }),
      scene("No weights select these tokens", "A convex combination of the differences is 0, so no p prefers every optimal token. The Farkas multipliers prove it.", {
        sequences: [sequence(1, [[0, 0, 1], [1.1, 0.2, 0], [-0.7, 0.9, 0], [-0.4, -1.0, 0]]), sequence(1, [[0.8, 1.1, 1], [-0.3, 0.6, 0]])],
        head: [0, 0], heightHead: 1, keep: "optimal",
      }),
      scene("Sign descent with long steps", "Steps of length 0.02 and 2: long steps miss the ℓ∞ Att-SVM, because each of them fits only one support token.", {
        sequences: MIXED, head: [0.9, 0.5], optimizers: [optimizer("sign", 0.02), optimizer("sign", 2)],
      }),
      scene("Factors against the matrix", "The same steps on W and on its factors K and Q: W converges to the Frobenius Att-SVM, KQ′ to the nuclear one.", {
        ...PLANE_W, attention: "combined",
        optimizers: [optimizer("normalized_gradient_descent", 0.1), { ...optimizer("normalized_gradient_descent", 0.01), attention: "factored" }],
      }),
      scene("The gradient as it is usually written", "a(g − Σ a g) in float32: once the softmax is saturated, only rounding errors remain, and the path leaves the Att-SVM. Choose the exact gradient to compare.", {
        sequences: FOUR_NORMS, head: [1, 0.15], written: true,
      }),
      scene("Plain gradient descent stalls", "Gradient descent slows down as the softmax saturates; normalised steps continue.", {
        sequences: FOUR_NORMS, head: [1, 0.15], optimizers: [optimizer("gradient_descent", 1), optimizer("normalized_gradient_descent", 0.1)],
      }),
    ],
  },
];
