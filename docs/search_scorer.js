// Order of the search of the site: guides come before notes and before the API, unless a name of the API is typed in full.
var Scorer = {
  score: ([docname, , , , score, , kind]) => {
    const guide = /^(guide\/|howto|index|generated\/tutorials\/)/.test(docname);
    const wholeName = kind === "object" && score >= 16; // the name matches (11) an object of normal priority (5)
    return score + (guide ? 20 : wholeName ? 10 : 0);
  },
  // the rest are the values of Sphinx
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
