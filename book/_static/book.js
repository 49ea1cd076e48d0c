// After the theme's own scripts, which write some of what is mended here.
window.addEventListener("load", async () => {
  // A name that differs from the text on the control cannot be spoken to a browser (WCAG 2.5.3).
  document.querySelectorAll("summary, .search-button-field").forEach((e) => e.removeAttribute("aria-label"));
  const sidebar = document.querySelector(".bd-sidebar-primary");
  sidebar.setAttribute("role", "region");
  sidebar.setAttribute("aria-label", "Book");
  // Without this a browser shows the notebook or the script as text, as it still does with a page from the disk.
  document.querySelectorAll(".btn-download-source-button, .btn-download-script-button")
    .forEach((e) => e.setAttribute("download", ""));
  // A formula is read, and has nothing to press: the Tab key need not stop at each of them.
  await window.MathJax?.startup?.promise;
  document.querySelectorAll("mjx-container").forEach((e) => e.removeAttribute("tabindex"));
});

// Paper is white, also where the screen is dark.
window.addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; });
window.addEventListener("afterprint", () => {
  const mode = document.documentElement.dataset.mode;
  const dark = mode === "dark" || (mode === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
});
