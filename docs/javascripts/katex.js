// Renders the formulas of a page, also of one that is loaded without a reload.
const render = () => {
  if (typeof renderMathInElement === "undefined") return;
  for (const element of document.querySelectorAll(".arithmatex")) {
    renderMathInElement(element, {
      delimiters: [
        { left: "\\(", right: "\\)", display: false },
        { left: "\\[", right: "\\]", display: true },
      ],
    });
  }
};
window.addEventListener("load", render);
if (typeof document$ !== "undefined") document$.subscribe(render);
