// A field above a table with the class "filtered" hides the rows without its words.
document$.subscribe(() => {
  for (const box of document.querySelectorAll(".filtered")) {
    const table = box.querySelector("table");
    if (!table || box.querySelector("input")) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.className = "filter";
    field.placeholder = "Filter, for example: megatron";
    field.setAttribute("aria-label", "Filter the rows of the table");
    const count = document.createElement("p");
    count.setAttribute("role", "status");
    const rows = [...table.tBodies[0].rows];
    const update = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    };
    field.addEventListener("input", update);
    box.prepend(field, count);
  }
});

// Names for a screen reader that the theme leaves out, and scrolling by keyboard.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => {
    nav.setAttribute("aria-label", `Code ${index + 1}`);
  });
  for (const nav of document.querySelectorAll(".md-nav--secondary")) {
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", nav.closest(".md-sidebar--primary") ? "On this page" : "Table of contents");
  }
  // The label of a section with a page is a link next to it, so that its nav has no name.
  for (const nav of document.querySelectorAll("nav[aria-labelledby]")) {
    if (document.getElementById(nav.getAttribute("aria-labelledby"))?.textContent.trim()) continue;
    const link = nav.parentElement.querySelector(":scope > .md-nav__container > a, :scope > .md-nav__link a");
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", link?.textContent.trim() ?? "Section");
  }
  makeScrollable();
});

function makeScrollable() {
  const regions = ".md-typeset__scrollwrap, .output, .arithmatex, .highlight code";
  for (const element of document.querySelectorAll(regions)) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
  }
}
window.addEventListener("load", () => setTimeout(makeScrollable, 200)); // after the formulas
