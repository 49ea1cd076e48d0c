// The search page: the sections that have all the words, best first, each with the place where they stand.
const SHOWN = 30;

// A word is found at the start of words, in any case, and with or without the s of a plural.
const pattern = (word) => {
  const stem = word.length > 3 ? word.replace(/s$/i, "") : word;
  return new RegExp("(?<![\\p{L}\\p{N}])" + stem.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
};

const add = (parent, tag, text = "") => {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = text;
  return element;
};

// How well a section fits: a word in its title counts most. 0 if a word is missing.
const score = (patterns, title, text) => {
  const each = patterns.map((p) => (title.match(p) ? 20 : 0) + Math.min((text.match(p) ?? []).length, 5));
  return Math.min(...each) && each.reduce((a, b) => a + b);
};

const addMarked = (parent, text, any) => {
  let end = 0;
  for (const match of text.matchAll(any)) {
    parent.append(text.slice(end, match.index));
    add(parent, "mark", match[0]);
    end = match.index + match[0].length;
  }
  parent.append(text.slice(end));
};

// Some words before and after the first place.
const excerpt = (text, any) => {
  const place = Math.max(0, text.search(any));
  const start = place < 80 ? 0 : text.indexOf(" ", place - 80) + 1;
  const end = text.length - start < 220 ? text.length : text.lastIndexOf(" ", start + 220);
  return (start ? "… " : "") + text.slice(start, end) + (end < text.length ? " …" : "");
};

window.addEventListener("DOMContentLoaded", () => {
  const query = (new URLSearchParams(location.search).get("q") ?? "").trim().slice(0, 200);
  const results = document.getElementById("search-results");
  if (!query) return;
  document.querySelector(".bd-search-container input").value = query;
  // The quotes, brackets and dots around a word are not searched for, nor is the package in front of a name.
  const bare = (word) => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "").replace(/^d2lpar\.(?=.)/, "") || word;
  const patterns = [...new Set(query.split(/\s+/).map(bare))].map(pattern);
  const any = new RegExp(patterns.map((p) => p.source).join("|"), "giu");
  const found = [];
  for (const [page, pageTitle, parts] of SEARCH_TEXTS)
    for (const [anchor, title, text] of parts) {
      const points = score(patterns, title, text);
      if (points) found.push({ points, address: `${page}#${anchor}`, pageTitle, title, text });
    }
  found.sort((a, b) => b.points - a.points);
  const shown = found.slice(0, SHOWN);
  const many = found.length > SHOWN ? `The best ${SHOWN} of ${found.length} places` : `${found.length} places`;
  add(results, "p", !found.length ? `Nothing found for “${query}”. Try fewer or shorter words: all of them must be in one section.`
    : found.length == 1 ? `One place has “${query}”:` : `${many} that have “${query}”:`).setAttribute("role", "status");
  const list = add(results, "ol");
  for (const { address, pageTitle, title, text } of shown) {
    const item = add(list, "li");
    add(item, "a", title).href = address;
    if (!pageTitle.endsWith(title)) add(item, "span", pageTitle);
    addMarked(add(item, "p"), excerpt(text, any), any);
  }
  list.addEventListener("click", (event) => {
    try {
      if (event.target.closest("a")) sessionStorage.setItem("searched", any.source); // book.js marks it there
    } catch {} // a browser may keep nothing
  });
});
