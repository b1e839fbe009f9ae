// The page of schedules: a card each, its curve computed by its own graph.

import * as ort from "./ort/ort.wasm.min.mjs";
import { draw, short } from "./chart.js";
import { makeTensor } from "./trainer.js";

ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
ort.env.wasm.numThreads = 1;

// Read by tests: the values that each card shows.
window.gallery = { curves: {} };

function element(parent, tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

// A formula wider than its card is made smaller, down to where it is still read; the rest scrolls.
function fit(formula) {
  const share = formula.clientWidth / formula.scrollWidth;
  if (share < 1) formula.style.fontSize = `${Math.max(0.65, share * 0.98)}em`;
}

function card(parent, entry) {
  const box = element(parent, "article", { class: "card", id: `card-${entry.name}` });
  element(box, "h2", {}, entry.name);
  element(box, "p", {}, entry.summary);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 360 190");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `curve of ${entry.name}`);
  box.append(svg);
  const called = element(box, "code", {}, entry.code);
  const formula = element(box, "div", { class: "formula" });
  window.katex.render(entry.latex, formula, { throwOnError: false, displayMode: false });
  const sliders = element(box, "div", { class: "sliders" });
  const inputs = entry.inputs.map((input) => {
    element(sliders, "label", { for: `${entry.name}-${input.name}` }, input.name);
    const slider = element(sliders, "input", {
      type: "range", id: `${entry.name}-${input.name}`, name: input.name,
      min: input.low, max: input.high, step: input.step, value: input.value,
    });
    slider.value = input.value;
    const shown = element(sliders, "output", {}, short(Number(input.value)));
    return { ...input, slider, shown };
  });
  const foot = element(box, "div", { class: "foot" });
  const verdicts = element(foot, "div");
  for (const { claim, verdict, sentence } of entry.verdicts) {
    const kind = verdict.toLowerCase();
    element(verdicts, "span", { class: `verdict ${kind}`, title: `${sentence}: ${verdict}` },
      `${{ proved: "✓", refuted: "✗", no: "–" }[kind] ?? "?"} ${claim.replaceAll("_", " ")}`);
  }
  element(foot, "a", { class: "button", href: entry.file, download: "" }, "ONNX");
  if (entry.systems.length) element(box, "p", { class: "verdict" }, entry.systems.join(", "));
  return { entry, svg, inputs, box, called };
}

async function begin() {
  const { entries } = await (await fetch("manifest.json")).json();
  const parent = document.getElementById("cards");
  const cards = entries.map((entry) => card(parent, entry));
  await document.fonts.ready;
  parent.querySelectorAll(".formula").forEach(fit);
  for (const { entry, svg, inputs, called } of cards) {
    const session = await ort.InferenceSession.create(entry.file);
    const steps = Array.from({ length: entry.steps + 1 }, (_, step) => step);
    const clock = makeTensor(ort, entry.clock, steps, [steps.length]);
    let wanted = 0;
    let last = Promise.resolve();
    const show = async () => {
      const feeds = { step: clock };
      for (const { name, dtype, slider, shown } of inputs) {
        shown.textContent = short(Number(slider.value));
        feeds[name] = makeTensor(ort, dtype, [Number(slider.value)], []);
      }
      const { value } = await session.run(feeds);
      const ys = Array.from(value.data, Number);
      window.gallery.curves[entry.name] = ys;
      const isMoved = inputs.some(({ slider, value: first }) => Number(slider.value) !== first);
      const gap = ys.some((y) => !Number.isFinite(y)) ? ": not defined everywhere" : "";
      called.textContent = entry.code + (isMoved ? ", moved" : "") + gap;
      draw(svg, steps, ys);
    };
    // A session runs one thing at a time: the newest wish waits, older ones are dropped.
    const ask = () => {
      wanted += 1;
      const mine = wanted;
      last = last.then(() => (mine === wanted ? show() : null)).catch((error) => {
        document.getElementById("error").textContent = `${entry.name}: ${error.message}`;
      });
      return last;
    };
    inputs.forEach(({ slider }) => slider.addEventListener("input", ask));
    await ask();
  }
  document.getElementById("status").textContent = `${cards.length} schedules`;
  document.getElementById("find").addEventListener("input", (event) => {
    const word = event.target.value.trim().toLowerCase();
    let count = 0;
    for (const { entry, box } of cards) {
      const text = `${entry.name} ${entry.family} ${entry.systems.join(" ")}`.toLowerCase();
      box.hidden = !text.includes(word);
      count += box.hidden ? 0 : 1;
    }
    document.getElementById("status").textContent = `${count} schedules`;
  });
}

begin().catch((error) => {
  document.getElementById("error").textContent = error.message ?? String(error);
});
