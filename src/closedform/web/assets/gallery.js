// The page of all schedules: a card each, its curve computed by its own graph.

import { follow } from "./chart.js";
import { Curve, REMEDY, initial } from "./curve.js";
import { at, element, fail, fit, loadJson, loadRuntime, putIntoAddress } from "./page.js";

// Read by tests: the values that each card shows.
window.gallery = { curves: {}, failed: [] };

function card(parent, entry) {
  const box = element(parent, "article", { class: "card", id: `card-${entry.name}` });
  const title = element(box, "h2");
  element(title, "a", { href: `schedule.html?schedule=${entry.name}` }, entry.name);
  element(box, "p", {}, entry.summary);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `curve of ${entry.name}`);
  box.append(svg);
  const error = element(box, "p", { class: "error", hidden: "" });
  element(box, "code", {}, entry.code);
  const formula = element(box, "div", { class: "formula" });
  window.katex.render(entry.latex, formula, { throwOnError: false, displayMode: false });
  const words = [entry.name, entry.family, entry.summary, ...entry.systems].join(" ").toLowerCase();
  const names = [entry.name, ...entry.systems.map((name) => name.split(":").pop())]
    .flatMap((name) => [name.toLowerCase(), name.toLowerCase().replaceAll("_", "")]);
  return { entry, box, error, formula, words, names, show: follow(svg), state: "waiting" };
}

function tell(cards) {
  const shown = cards.filter(({ box }) => !box.hidden).length;
  const waiting = cards.filter(({ state }) => state === "waiting").length;
  const failed = cards.filter(({ state }) => state === "failed").length;
  const parts = [shown === cards.length ? `${shown} schedules` : `${shown} of ${cards.length} schedules`];
  if (waiting) parts.push(`${waiting} curves are loading`);
  if (failed) parts.push(`${failed} could not be drawn`);
  at("status").textContent = shown
    ? parts.join(", ")
    : "No schedule matches. Search for a part of a name (cosine), a family (restarts) or a framework (torch).";
}

function search(cards) {
  const text = at("find").value.trim();
  const words = text.toLowerCase().split(/\s+/);
  for (const one of cards) {
    one.box.hidden = !words.every((word) => one.words.includes(word));
    // A schedule of this name, or in this framework, comes before those that only mention it.
    const isNamed = words.every((word) => one.names.some((name) => name.startsWith(word)));
    one.box.style.order = text && !isNamed ? 1 : 0;
  }
  putIntoAddress(text ? { search: text } : {});
  tell(cards);
}

async function draw(ort, one) {
  const curve = new Curve(one.entry);
  await curve.open(ort);
  const values = await curve.compute(initial(one.entry));
  window.gallery.curves[one.entry.name] = values;
  one.show(curve.steps, values);
  one.state = "drawn";
  one.error.hidden = true;
}

function refuse(one, error, retry) {
  one.state = "failed";
  window.gallery.failed.push(one.entry.name);
  one.error.hidden = false;
  one.error.textContent = `${error.message} `;
  element(one.error, "button", { type: "button" }, "Retry").addEventListener("click", retry);
}

// Cards that the search shows come first. A graph that fails leaves the others as they are.
async function drawAll(cards) {
  let ort;
  const attempt = async (one) => {
    try {
      ort ??= await loadRuntime(REMEDY);
      await draw(ort, one);
    } catch (error) {
      refuse(one, error, () => attempt(one));
    }
    tell(cards);
  };
  for (;;) {
    const waiting = cards.filter(({ state }) => state === "waiting");
    if (!waiting.length) return;
    await attempt(waiting.find(({ box }) => !box.hidden) ?? waiting[0]);
  }
}

async function begin() {
  const { entries } = await loadJson("manifest.json", REMEDY);
  const cards = entries.map((entry) => card(at("cards"), entry));
  const find = at("find");
  find.value ||= new URLSearchParams(location.search).get("search") ?? "";
  if (find.value) search(cards);
  tell(cards);
  find.addEventListener("input", () => search(cards));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== find) {
      event.preventDefault();
      find.focus();
    }
  });
  document.fonts.ready.then(() => cards.forEach(({ formula }) => fit(formula)));
  await drawAll(cards);
}

begin().catch((error) => {
  at("status").textContent = "";
  fail(error);
});
