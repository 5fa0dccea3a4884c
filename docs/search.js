// How the search of the site ranks pages: by how many words of the search are in the title, and in one heading, of the page.
// Sphinx puts this file into the site; without it, pages with any of the words in any heading are in the order of the alphabet.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score: ([page, title, , , score, , kind]) => {
    if (kind !== "text") return score;
    const searched = Scorer.searched();
    const share = (heading) => {
      const words = Scorer.stems(heading);
      const shared = [...searched].filter((word) => words.has(word)).length;
      return (shared / searched.size) ** 2 * (1 + shared / Math.max(1, words.size) / 4);
    };
    // Guides for those who come from another system are later, and pages for those who change StreamRT are last.
    const base = !page.startsWith("docs/") || page === "docs/extending" ? 1 : page.startsWith("docs/coming-from-") ? 3 : 5;
    return base + 8 * share(title) + 6 * Math.max(0, ...Scorer.headings(page).map(share));
  },

  stems: (text) => {
    const stemmer = new Stemmer();
    const words = splitQuery(text.toLowerCase()).filter((word) => !stopwords.has(word));
    return new Set(words.map((word) => stemmer.stemWord(word)));
  },

  searched: () => Search._parseQuery(new URLSearchParams(window.location.search).get("q"))[1],

  headings: (page) => {
    const number = Search._index.docnames.indexOf(page);
    const all = Object.entries(Search._index.alltitles);
    return all.filter(([, places]) => places.some(([place]) => place === number)).map(([heading]) => heading);
  },
};
