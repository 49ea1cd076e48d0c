const inChinese = document.documentElement.lang === "zh-CN";

// When the formulas are typeset, some moments after the page is there. The button for paper waits for them.
const typeset = new Promise((loaded) => window.addEventListener("load", loaded))
  .then(() => window.MathJax?.startup?.promise).then(() => document.fonts.ready);
const toPaper = window.print.bind(window);
window.print = () => typeset.then(toPaper);

// After the theme's own scripts, which write some of what is mended here.
window.addEventListener("load", async () => {
  // A name that differs from the text on the control cannot be spoken to a browser (WCAG 2.5.3).
  document.querySelectorAll("summary, .search-button-field").forEach((e) => e.removeAttribute("aria-label"));
  const sidebar = document.querySelector(".bd-sidebar-primary");
  sidebar.querySelectorAll("summary").forEach((e) =>
    e.setAttribute("aria-label", `Pages of ${e.closest("li").querySelector("a").textContent}`));
  sidebar.setAttribute("role", "region");
  sidebar.setAttribute("aria-label", inChinese ? "全书" : "Book");
  if (inChinese) { // the theme has these in English
    document.querySelectorAll("nav[aria-label]").forEach((e) => e.setAttribute("aria-label", e.closest(".bd-sidebar-primary") ? "章节" : "本页"));
    document.querySelectorAll(".primary-toggle").forEach((e) => { e.title = "显示或隐藏目录"; });
    document.querySelectorAll(".secondary-toggle").forEach((e) => { e.title = "显示或隐藏本页目录"; });
  }
  // The letters of the font that draws the icons are no words.
  document.querySelectorAll("i[class*='fa-']").forEach((e) => e.setAttribute("aria-hidden", "true"));
  // Without this a browser shows the notebook or the script as text, as it still does with a page from the disk.
  document.querySelectorAll(".btn-download-source-button, .btn-download-script-button")
    .forEach((e) => e.setAttribute("download", ""));
  // A formula is read, and has nothing to press: the Tab key need not stop at each of them, but where one scrolls.
  await typeset;
  document.querySelectorAll("mjx-container").forEach((e) =>
    e.matches("[display]") && e.scrollWidth > e.clientWidth || e.removeAttribute("tabindex"));
  // Shrunk to a phone, these would have words too small to read.
  document.querySelectorAll("figure img").forEach((e) => e.classList.toggle("wide-figure", e.naturalWidth > 620));
  document.querySelectorAll("figure").forEach((e) => { if (e.scrollWidth > e.clientWidth) e.tabIndex = 0; });
  markSearched(); // last: an odd address, or a browser that keeps nothing, ends it with an error
});

// What was searched for is marked in the section that was found.
const markSearched = () => {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const searched = sessionStorage.getItem("searched");
  sessionStorage.removeItem("searched");
  if (place && searched && window.Highlight) {
    const ranges = [];
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (texts.nextNode())
      for (const match of texts.currentNode.data.matchAll(new RegExp(searched, "giu"))) {
        const range = new Range();
        range.setStart(texts.currentNode, match.index);
        range.setEnd(texts.currentNode, match.index + match[0].length);
        ranges.push(range);
      }
    CSS.highlights.set("searched", new Highlight(...ranges));
  }
};

// Paper is white, also where the screen is dark.
window.addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; });
window.addEventListener("afterprint", () => {
  const mode = document.documentElement.dataset.mode;
  const dark = mode === "dark" || (mode === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
});
