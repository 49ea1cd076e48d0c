// After the theme's own scripts, which write some of what is mended here.
window.addEventListener("load", () => {
  // A name that differs from the text on the control cannot be spoken to a browser (WCAG 2.5.3).
  document.querySelectorAll("summary, .search-button-field").forEach((e) => e.removeAttribute("aria-label"));
  const sidebar = document.querySelector(".bd-sidebar-primary");
  sidebar.setAttribute("role", "region");
  sidebar.setAttribute("aria-label", "Book");
  // Without this a browser shows the notebook or the script as text, as it still does with a page from the disk.
  document.querySelectorAll(".btn-download-source-button, .btn-download-script-button")
    .forEach((e) => e.setAttribute("download", ""));
});
