/** Terms in the texts of the page: the definition of the glossary on hover and focus, and a link to the guide. */

/** For each term as the page writes it: its entry of attsvm/pages/glossary.md, and the place in docs/guide. */
export const TERMS: Record<string, [entry: string, guide: string]> = {
  "Att-SVM": ["Att-SVM", "att_svm.html#definition"],
  "certificate": ["Certificate", "att_svm.html#solving"],
  "cone": ["Cone", "theory.html#conditions-for-local-convergence"],
  "convergence": ["Kinds of convergence", "theory.html#kinds-of-convergence"],
  "direction error": ["Direction error", "att_svm.html#how-close-are-given-weights"],
  "duality gap": ["Duality gap", "att_svm.html#solving"],
  "Farkas": ["Farkas multipliers", "att_svm.html#solving"],
  "highest score": ["Optimal token", "att_svm.html#problems"],
  "locally optimal": ["Locally optimal", "theory.html#kinds-of-convergence"],
  "margin": ["Margin", "att_svm.html#how-close-are-given-weights"],
  "margin ratio": ["Margin ratio", "att_svm.html#how-close-are-given-weights"],
  "max-margin head": ["Max-margin head", "theory.html#directions"],
  "mirror descent": ["Mirror descent", "training.html#optimisers"],
  "norm": ["Norms", "att_svm.html#norms"],
  "optimiser": ["Steepest descent in a norm", "training.html#optimisers"],
  "proved": ["Level of evidence", "theory.html"],
  "measured": ["Level of evidence", "theory.html"],
  "conjecture": ["Level of evidence", "theory.html"],
  "regularisation path": ["Regularisation path", "regularization_path.html"],
  "saturated": ["Saturated attention", "theory.html#kinds-of-convergence"],
  "separable": ["Feasible", "att_svm.html#solving"],
  "slack": ["Slack", "att_svm.html#variants"],
  "softmax weight": ["Attention", "att_svm.html#problems"],
  "support token": ["Support token", "att_svm.html#solving"],
};

/** The definitions of these entries in plain text; vite.config.ts reads them from the glossary. */
declare const DEFINITIONS: Record<string, string>;

const MENTIONS = new RegExp(`(?<![\\w-])(${Object.keys(TERMS).sort((a, b) => b.length - a.length).join("|")})s?(?![\\w-])`, "gi");
const BY_NAME = new Map(Object.entries(TERMS).map(([name, of]) => [name.toLowerCase(), of]));

/** A text whose mentions of terms show their definitions; `known` has the entries that were mentioned before. */
export function withTerms(text: string, known = new Set<string>()): (Node | string)[] {
  const parts: (Node | string)[] = [];
  let last = 0;
  for (const found of text.matchAll(MENTIONS)) {
    const [entry, guide] = BY_NAME.get(found[1].toLowerCase())!;
    if (known.has(entry)) continue;
    known.add(entry);
    parts.push(text.slice(last, found.index), termNode(found[0], entry, guide));
    last = found.index + found[0].length;
  }
  return [...parts, text.slice(last)];
}

/** The mention is a link where the page belongs to the documentation, whose build says where its guides are. */
function termNode(text: string, entry: string, guide: string): HTMLElement {
  const { guides } = document.documentElement.dataset;
  const made = document.createElement("a");
  made.className = "term";
  made.dataset["entry"] = entry;
  made.setAttribute("aria-describedby", "tip");
  made.textContent = text;
  if (guides === undefined) made.tabIndex = 0;
  else Object.assign(made, { href: guides + guide, target: "_blank", rel: "noopener" });
  return made;
}

/** Shows the definition of the term under the pointer or with the focus, and makes terms of the labels of the page. */
export function explainTerms(tip: HTMLElement, labels: Iterable<Element>): void {
  const known = new Set<string>();
  for (const label of labels) {
    for (const node of [...label.childNodes]) if (node instanceof Text) node.replaceWith(...withTerms(node.data, known));
  }
  const hide = (): void => { tip.hidden = true; };
  const show = ({ target }: Event): void => {
    const term = (target as Element).closest<HTMLElement>(".term");
    tip.hidden = term === null;
    if (term === null) return;
    tip.textContent = DEFINITIONS[term.dataset["entry"]!];
    const at = term.getBoundingClientRect();
    const above = at.bottom + tip.offsetHeight + 12 > innerHeight;
    tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${above ? at.top - tip.offsetHeight - 6 : at.bottom + 6}px`;
  };
  for (const name of ["mouseover", "focusin"]) document.addEventListener(name, show);
  for (const name of ["focusout", "scroll"]) document.addEventListener(name, hide, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}
