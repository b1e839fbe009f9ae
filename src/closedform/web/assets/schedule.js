// The page of one schedule: ?schedule=cosine&end=0.15 names it and the values that were changed.

import { follow, short } from "./chart.js";
import { Curve, REMEDY, initial, lastStep, linear } from "./curve.js";
import { at, copy, element, fail, fit, loadJson, loadRuntime, putIntoAddress } from "./page.js";

// Read by tests: the values that are shown.
window.gallery = { curves: {}, failed: [] };

const CLAIMS = { PROVED: "proved", REFUTED: "refuted", UNKNOWN: "unknown", NO: "no" };
const SIGNS = { PROVED: "✓", REFUTED: "✗", NO: "–" };

function link(id, entry, text) {
  if (!entry) return;
  at(id).href = `schedule.html?schedule=${entry.name}`;
  at(id).textContent = text;
  at(id).hidden = false;
}

// Values by name from the address; an error says which of them is wrong.
function readAddress(entry, given) {
  const values = initial(entry);
  for (const [name, text] of given) {
    const input = entry.inputs.find((one) => one.name === name);
    if (!input) {
      const names = entry.inputs.map((one) => one.name).join(", ") || "none";
      throw new Error(`${entry.name} has no hyperparameter "${name}" that can be changed here; there are: ${names}.`);
    }
    values[name] = check(input, text);
  }
  return values;
}

function check({ name, step, value }, text) {
  const number = text.trim() === "" ? NaN : Number(text);
  if (Number.isFinite(number) && (step === "any" || Number.isInteger(number))) return number;
  const kind = step === "any" ? "a number" : "an integer";
  throw new Error(`${name} must be ${kind}, such as ${value}; got "${text}".`);
}

// The call with the changed values as its arguments, or bound where it does not have them.
function call({ name, inputs, code, arguments: given }, values) {
  const changed = inputs.filter((input) => values[input.name] !== input.value);
  if (!changed.length) return code;
  const names = (given ?? []).map(([argument]) => argument);
  if (changed.every((input) => names.includes(input.name))) {
    const isChanged = (argument) => changed.some((input) => input.name === argument);
    const texts = given.map(([argument, text]) => `${argument}=${isChanged(argument) ? values[argument] : text}`);
    return `${name}(${texts.join(", ")})`;
  }
  return `${code}.bind(${changed.map((input) => `${input.name}=${values[input.name]}`).join(", ")})`;
}

function python(entry, values) {
  return [
    "import closedform as cf",
    ...entry.imports,
    "",
    `lr = ${call(entry, values)}`,
    `cf.to_onnx(lr, "lr.onnx")`,
  ].join("\n");
}

function onnx(entry, values) {
  const { file, inputs, clock } = entry;
  const arrays = inputs.map(({ name, dtype }) => `    "${name}": np.array(${values[name]}, "${dtype}"),`);
  return [
    "import numpy as np",
    "import onnxruntime as ort",
    "",
    `session = ort.InferenceSession("${file.split("/").pop()}")`,
    "feeds = {",
    `    "step": np.arange(${lastStep(entry, values) + 1}, dtype="${clock}"),`,
    ...arrays,
    "}",
    "(values,) = session.run(None, feeds)",
  ].join("\n");
}

function describe(entry) {
  document.title = `${entry.name}: schedule`;
  at("name").textContent = entry.name;
  at("summary").textContent = entry.summary;
  at("curve").setAttribute("aria-label", `curve of ${entry.name}`);
  at("download").href = entry.file;
  const tall = entry.latex.replaceAll("{cases}", "{dcases}").replaceAll("\\\\", "\\\\[0.6em]");
  window.katex.render(tall, at("formula"), { throwOnError: false, displayMode: true });
  for (const system of entry.systems) element(element(at("names"), "li"), "code", {}, system);
  if (!entry.systems.length) element(at("names"), "li", {}, "None of those that closedform knows.");
}

function list(verdicts) {
  at("proofs").replaceChildren();
  for (const { claim, verdict, sentence, detail } of verdicts) {
    const row = element(at("proofs"), "li");
    element(row, "span", { class: `verdict ${CLAIMS[verdict]}` }, `${SIGNS[verdict] ?? "?"} ${CLAIMS[verdict]}`);
    element(row, "span", {}, ` ${claim.replaceAll("_", " ")}: ${sentence}`);
    if (detail) element(row, "span", { class: "status" }, ` (${detail})`);
  }
}

function holds({ excess, is_strict: isStrict }, values) {
  if (!excess) return false;
  const size = linear(excess, values);
  return isStrict ? size < 0 : size <= 0;
}

// The verdicts of these values: those of the initial ones, or of all values of the sliders; outside of
// their ranges, or where there is no schedule of these values, none.
function prove(entry, values) {
  const isInitial = entry.inputs.every(({ name, value }) => values[name] === value);
  const broken = entry.domain.filter((condition) => !holds(condition, values));
  const isInside = entry.inputs.every(({ name, low, high }) => low <= values[name] && values[name] <= high)
    && !broken.length;
  list(isInside && !isInitial ? entry.range_verdicts : entry.verdicts);
  at("proofs").classList.toggle("past", !isInside);
  const texts = entry.domain.map(({ text }) => text);
  const ranges = entry.inputs.map(({ name, low, high }) => `${name} from ${short(low)} to ${short(high)}`);
  const which = texts.length ? `of the sliders with ${texts.join(" and ")}` : "of the sliders";
  if (isInitial) at("scope").textContent = "For the initial values, at every step.";
  else if (isInside) at("scope").textContent = `For all values ${which}, at every step: ${ranges.join(", ")}.`;
  else {
    const reason = broken.length ? `The schedule needs ${broken.map(({ text }) => text).join(" and ")}`
      : "A value is outside of the first range of its slider";
    at("scope").textContent = `${reason}: these verdicts are for the initial values.`;
  }
}

class Page {
  constructor(entry, values) {
    this.entry = entry;
    this.values = values;
    this.curve = new Curve(entry);
    this.show = follow(at("curve"));
    this.rows = entry.inputs.map((input) => this.row(input));
    if (!this.rows.length) element(at("inputs"), "p", {}, "This example has none that its graph takes as inputs.");
    at("reset").addEventListener("click", () => this.change(initial(entry)));
    at("share").addEventListener("click", () => copy(location.href, at("copied")));
    at("at").addEventListener("input", () => this.mark());
    at("curve").addEventListener("pointermove", (event) => {
      const step = this.show.stepAt(event);
      if (step === null) return;
      at("at").value = step;
      this.mark();
    });
    this.write();
  }

  row(input) {
    const { name, low, high, step } = input;
    const label = element(at("inputs"), "label", { for: name }, name);
    const range = element(label, "span", { class: "status" });
    const slider = element(at("inputs"), "input", { type: "range", min: low, max: high, step, "aria-label": `${name}, slider` });
    const field = element(at("inputs"), "input", { type: "text", id: name, inputmode: "decimal" });
    slider.addEventListener("input", () => {
      this.change({ ...this.values, [name]: Number(Number(slider.value).toPrecision(6)) });
    });
    field.addEventListener("change", () => {
      try {
        this.change({ ...this.values, [name]: check(input, field.value) });
      } catch (error) {
        at("said").textContent = error.message;
      }
    });
    return { name, slider, field, range, low, high };
  }

  // Shows the values everywhere but in the curve.
  write() {
    for (const { name, slider, field, range, low, high } of this.rows) {
      const value = this.values[name];
      // A value that is typed extends the range of its slider.
      slider.min = Math.min(low, value);
      slider.max = Math.max(high, value);
      range.textContent = `${short(Number(slider.min))} to ${short(Number(slider.max))}, or type another`;
      slider.value = value;
      field.value = value;
    }
    prove(this.entry, this.values);
    at("python").textContent = python(this.entry, this.values);
    at("onnx").textContent = onnx(this.entry, this.values);
  }

  change(values) {
    this.values = values;
    this.write();
    const changed = this.entry.inputs.filter(({ name, value }) => values[name] !== value);
    const words = changed.map(({ name }) => [name, String(values[name])]);
    putIntoAddress([["schedule", this.entry.name], ...words]);
    at("copied").textContent = "";
    return this.draw();
  }

  async draw() {
    try {
      const ys = await this.curve.compute(this.values);
      if (ys === null) return;
      this.ys = ys;
      at("at").max = ys.length - 1;
      window.gallery.curves[this.entry.name] = ys;
      const gap = ys.findIndex((y) => !Number.isFinite(y));
      at("said").textContent = gap < 0 ? "" : `With these values it is not defined at step ${gap}. Change or reset them.`;
      this.mark();
    } catch (error) {
      at("said").textContent = `The graph does not run with these values: ${error.message}. Reset them.`;
    }
  }

  mark() {
    if (!this.ys) return;
    const step = Number(at("at").value);
    at("value").textContent = `t = ${step}: ${short(this.ys[step])}`;
    at("value").title = String(this.ys[step]);
    this.show(this.curve.steps, this.ys, { label: "value", below: "step", mark: step });
  }
}

async function begin() {
  const { entries } = await loadJson("manifest.json", REMEDY);
  const given = new URLSearchParams(location.search);
  const wanted = given.get("schedule");
  given.delete("schedule");
  const place = entries.findIndex(({ name }) => name === wanted);
  if (place < 0) {
    throw new Error(wanted
      ? `There is no schedule "${wanted}". Choose one under “All schedules”.`
      : "The address names no schedule. Choose one under “All schedules”.");
  }
  const entry = entries[place];
  link("previous", entries[place - 1], `← ${entries[place - 1]?.name}`);
  link("next", entries[place + 1], `${entries[place + 1]?.name} →`);
  describe(entry);
  at("page").hidden = false;
  document.fonts.ready.then(() => new ResizeObserver(() => fit(at("formula"))).observe(at("page")));
  let values = initial(entry);
  try {
    values = readAddress(entry, given);
  } catch (error) {
    fail(new Error(`${error.message} The initial values are shown.`));
  }
  const page = new Page(entry, values);
  for (const button of document.querySelectorAll("[data-copies]")) {
    const said = element(button.parentElement, "span", { class: "status", role: "status" });
    button.addEventListener("click", () => copy(at(button.dataset.copies).textContent, said));
  }
  const open = async () => {
    at("said").textContent = "";
    try {
      await page.curve.open(await loadRuntime(REMEDY));
    } catch (error) {
      window.gallery.failed.push(entry.name);
      at("said").textContent = `${error.message} `;
      element(at("said"), "button", { type: "button" }, "Retry").addEventListener("click", open);
      return;
    }
    await page.draw();
  };
  await open();
}

begin().catch((error) => {
  at("summary").textContent = "";
  fail(error);
});
