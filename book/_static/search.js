// The search page: the sections that fit best, each with the place where they stand. A section need not have all words.
const SHOWN = 20;
const ASKED = 9; // times the points, for what is called just so
// Words that say nothing alone.
const COMMON = new Set(`a all an and are as at be but by can do does for from get has have how i if in is it its me my no not of off
  on or out so than that the their then there this to up versus vs was we what when where which who why will with you your
  的 了 是 在 和 与 吗 呢 有 把 被 也 都 不 什么 怎样 怎么 如何 为什 为什么 哪些 一个 这个 没有 可以`.split(/\s+/));

const add = (parent, tag, text = "") => {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = text;
  return element;
};

// Without the quotes, brackets and dots around a word, and without the package in front of a name. A word also begins and
// ends where Chinese does.
const HAN = /\p{Script=Han}/u;
const wordsOf = (query) => query.toLowerCase().split(/\s+|(?<=\p{Script=Han})(?!\p{Script=Han})|(?<!\p{Script=Han})(?=\p{Script=Han})/u)
  .map((word) => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "").replace(/^d2lpar\.(?=.)/, "")).filter(Boolean);

const plain = (words) => wordsOf(words).join(" ");

// With any ending, with or without hyphens, with s or z: "speedups" is in "speed-up", "initialize" in "initialisation".
const spelled = (word) => [...word.replace(/(?<=\p{L}{2}[^s])s$|(?<=\p{L}{5})(ed|ing|e)$/u, "").replace(/[-_]/g, "")]
  .map((letter) => letter.replace(/[.*+?^${}()|[\]\\]/, "\\$&").replace(/[sz]/, "[sz]")).join("[-_]?");

const BETWEEN = "(?:ed|ing|e?s?)[^\\p{L}\\p{N}]{0,2}"; // words in a row: an ending that is left out, and what is no letter

// What to look for at the start of words: each one that says something, each two neighbours of which one does, and all.
const termsOf = (words) => {
  const all = words.every((word) => COMMON.has(word));
  const says = words.map((word) => all || !COMMON.has(word));
  const pairs = words.slice(1).map((word, i) => (says[i] || says[i + 1]) && [words[i], word].map(spelled).join(BETWEEN));
  const whole = words.length > 2 ? [words.map(spelled).join(BETWEEN)] : [];
  return [...new Set([...words.flatMap(twos), ...words.filter((_, i) => says[i]).map(spelled), ...pairs.filter(Boolean), ...whole])];
};
// Chinese has no spaces: any two neighbouring characters may be a word.
const twos = (word) => !HAN.test(word) ? [] : [...word].slice(1).map((letter, i) => [...word][i] + letter).filter((two) => !COMMON.has(two));
// At the start of a word. A Chinese word may start after any character, and any word after a Chinese character.
const pattern = (source) => new RegExp(`(?<!(?!\\p{Script=Han})[\\p{L}\\p{N}](?!\\p{Script=Han}))(?:${source})`, "giu");

// A page that explains comes before a list, a summary and what is written for authors, where both fit as well; a page in
// Chinese before one in English, which is in the folder above.
const IN_ENGLISH = "（英文）";
const shareOf = (page, anchor) => (page.startsWith("../") ? 0.6 : 1) * (anchor === "further-reading" ? 0.4
  : /^(..\/)?(notebooks|book.(it_hangs|setup))/.test(page) && !/^(takeaways|summary|exercises)$/.test(anchor) ? 1 : 0.7);

// Rare terms weigh more, and the second time less than the first (BM25). In a title or a keyword they count most, the shorter
// it is. Who has half of what is looked for gets half of the points. What is called just so comes first; of the others, who has
// less than a tenth of the best is left out.
const rank = (terms, places) => {
  const patterns = terms.map(pattern);
  const usual = places.reduce((sum, { text }) => sum + text.length, 0) / places.filter(({ text }) => text).length;
  const counts = places.map(({ names, text }) => patterns.map((p) => {
    const times = (text.match(p) ?? []).length;
    const inNames = names.map((name) => (name.match(p)?.[0].length ?? 0) / name.length);
    const inName = Math.max(inNames[0], ...inNames.filter((part) => part > 0.5)); // of a keyword the larger part
    return times / (times + 1 + 0.2 * text.length / usual) + (inName && 0.3 + 0.7 * inName);
  }));
  const weights = patterns.map((_, i) => Math.log(1 + places.length / (1 + counts.filter((of) => of[i]).length)));
  const total = (of) => weights.reduce((sum, weight, i) => sum + weight * of[i], 0);
  places.forEach((place, at) => { place.points = place.share * total(counts[at]) * total(counts[at].map(Math.sign)); });
  const best = Math.max(...places.map(({ points, asked }) => asked > 1 ? 0 : points));
  return places.filter(({ points }) => points && points > best / 10).sort((one, other) => other.points * other.asked - one.points * one.asked);
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

// Some words around the place where most is found.
const excerpt = (text, any) => {
  const found = [...text.matchAll(any)];
  const lettersFrom = (at) => found.reduce((sum, { index, 0: { length } }) => sum + (index >= at && index < at + 140 ? length : 0), 0);
  const place = found.map(({ index }) => index).reduce((best, at) => lettersFrom(at) > lettersFrom(best) ? at : best, 0);
  const gaps = [...text.matchAll(/(?<=[\s\p{Script=Han}，。：；？！、）])/gu)].map(({ index }) => index); // where a line may break
  const start = place < 80 ? 0 : gaps.find((at) => at > place - 80) ?? place;
  const end = text.length - start < 220 ? text.length : gaps.findLast((at) => at <= start + 220) ?? start + 220;
  return (start ? "… " : "") + text.slice(start, end) + (end < text.length ? " …" : "");
};

window.addEventListener("DOMContentLoaded", () => {
  const query = (new URLSearchParams(location.search).get("q") ?? "").trim().slice(0, 200);
  const results = document.getElementById("search-results");
  if (!query) return;
  document.querySelector(".bd-search-container input").value = query;
  const terms = termsOf(wordsOf(query));
  const places = SEARCH_TEXTS.flatMap(([page, pageTitle, parts]) => parts.map(([anchor, title, text, keywords]) => {
    const names = [title.replace(IN_ENGLISH, "").split(".").at(-1), ...keywords]; // what it is called, of scratch.train
    if (title.includes("：")) names.push(...title.replace(/^\d+\. /, "").split("："));
    const isAsked = !page.includes("book/api/") && names.some((name) => plain(name) === plain(query));
    return { address: `${page}#${anchor}`, pageTitle, title, names, text: text || keywords.join("、"), share: shareOf(page, anchor), asked: isAsked ? ASKED : 1 };
  }));
  const found = terms.length ? rank(terms, places) : [];
  const any = pattern(terms.toReversed().join("|"));
  const news = add(results, "p", inChinese ? `“${query}”：${found.length ? `找到${found.length}处，最相关的在前` : "什么也没有找到"}。` : found.length > SHOWN ? `The best ${SHOWN} of ${found.length} places for “${query}”:`
    : found.length > 1 ? `${found.length} places for “${query}”, the best first:`
    : found.length ? `One place for “${query}”:` : `Nothing found for “${query}”. Is there another word for it in the `);
  news.setAttribute("role", "status");
  if (!found.length && !inChinese) {
    add(news, "a", "glossary").href = "book/glossary.html";
    news.append(", or the name of a function in the ");
    add(news, "a", "API").href = "book/api.html";
    news.append("?");
  }
  const list = add(results, "ol");
  for (const { address, pageTitle, title, text } of found.slice(0, SHOWN)) {
    const item = add(list, "li");
    add(item, "a", title).href = address;
    if (!pageTitle.endsWith(title)) add(item, "span", pageTitle);
    addMarked(add(item, "p"), excerpt(text, any), any);
  }
  if (inChinese) { // a way on, above all where nothing was found
    const more = add(results, "p", found.length ? "没有要找的？可以查" : "可以换一个词再搜，或者查");
    const links = [["记号", "book/notation.html"], ["输出里的英文", "book/index.html#zh-outputs"], [`在英文版里搜索“${query}”`, `../search.html?q=${encodeURIComponent(query)}`]];
    links.forEach(([words, address], i) => {
      more.append(["", "和", "，也可以"][i]);
      add(more, "a", words).href = address;
    });
    more.append("。");
  }
  list.addEventListener("click", (event) => {
    try {
      if (event.target.closest("a")) sessionStorage.setItem("searched", any.source); // book.js marks it there
    } catch {} // a browser may keep nothing
  });
});
