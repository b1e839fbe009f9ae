// The page that trains: controls, the loop, and the two curves.

import { follow, short } from "./chart.js";
import { at, copy, element, fail, load, loadJson, loadRuntime, openGraph, putIntoAddress } from "./page.js";
import { Trainer, readSafetensors, shuffled } from "./trainer.js";

const REMEDY = "Write the page again with `closedform web`.";
const charts = { loss: follow(at("loss")), rate: follow(at("rate")) };
let trainer = null;
let data = null;
let results = [];
let isRunning = false;
// Read by tests: what has happened so far.
window.training = { results: () => results, isRunning: () => isRunning };

// The value of a field: an integer of at least `least`, or any number if it is null.
function number(id, least = null) {
  const field = at(id);
  const value = field.value.trim() === "" ? NaN : Number(field.value);
  if (least === null ? Number.isFinite(value) : Number.isInteger(value) && value >= least) return value;
  const name = field.closest("label").textContent.trim().toLowerCase();
  field.focus();
  const kind = least === null ? "a number" : `an integer of at least ${least}`;
  throw new Error(`The ${name} must be ${kind}; got "${field.value}".`);
}

// What the fields contain, by the names that the address has.
function fields() {
  return [at("batch"), at("steps"), at("seed"), ...at("hypers").querySelectorAll("input")];
}

function share() {
  const changed = fields().filter((field) => field.value !== field.defaultValue);
  const words = changed.map((field) => [field.name || field.id, field.value]);
  if (!at("shuffle").checked) words.push(["shuffle", "0"]);
  putIntoAddress(words);
  at("copied").textContent = "";
}

function readAddress() {
  const given = new URLSearchParams(location.search);
  at("shuffle").checked = given.get("shuffle") !== "0";
  for (const field of fields()) {
    const value = given.get(field.name || field.id);
    if (value !== null) field.value = value;
  }
}

function show() {
  const steps = results.map((result) => result.step);
  charts.loss(steps, results.map((result) => result.loss), { label: "loss" });
  const rates = results.map((result) => result.learningRate);
  if (rates.some((rate) => rate !== null)) {
    charts.rate(steps, rates, { label: "learning rate" });
  }
  const last = results.at(-1);
  if (!last) return;
  const rate = last.learningRate === null ? "" : `, learning rate ${short(last.learningRate)}`;
  at("status").textContent = `step ${last.step}: loss ${short(last.loss)}${rate}`;
}

function hyperValues() {
  const inputs = [...at("hypers").querySelectorAll("input")];
  return Object.fromEntries(inputs.map((input) => [input.name, number(input.id)]));
}

async function use(buffer, name) {
  const found = readSafetensors(buffer);
  const rows = trainer.rowsOf(found);
  data = { tensors: found, rows };
  at("data").textContent = `${name}, ${rows} rows`;
  at("run").disabled = false;
  at("error").textContent = "";
}

async function run() {
  isRunning = true;
  at("run").textContent = "Pause";
  for (const id of ["reset", "save"]) at(id).disabled = true;
  at("error").textContent = "";
  let order = null;
  let epochOf = -1;
  try {
    const size = Math.min(number("batch", 1), data.rows);
    const perEpoch = Math.floor(data.rows / size);
    if (trainer.step >= number("steps", 1)) {
      throw new Error(`${trainer.step} steps are done. Increase the number of steps, or start again.`);
    }
    while (isRunning && trainer.step < number("steps", 1)) {
      const { step } = trainer;
      const epoch = Math.floor(step / perEpoch);
      if (epoch !== epochOf) {
        order = at("shuffle").checked
          ? shuffled(data.rows, number("seed", 0), epoch)
          : Uint32Array.from({ length: data.rows }, (_, i) => i);
        epochOf = epoch;
      }
      const start = (step % perEpoch) * size;
      const rows = order.subarray(start, start + size);
      const options = { hyper: hyperValues(), seed: number("seed", 0) };
      results.push(await trainer.train(data.tensors, rows, options));
      if (results.length % 10 === 0) {
        show();
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
    }
  } catch (error) {
    fail(error);
  }
  isRunning = false;
  at("run").textContent = "Train";
  at("reset").disabled = results.length === 0;
  at("save").disabled = results.length === 0;
  show();
}

function offerHypers(manifest) {
  const known = ["step", "param.", "state.", "shared.", "buffer.", "batch.", "random."];
  for (const { name } of manifest.inputs) {
    if (known.some((part) => (part.endsWith(".") ? name.startsWith(part) : name === part))) continue;
    const label = element(at("hypers"), "label", {}, name);
    element(label, "input", { type: "text", id: `hyper-${name}`, name, value: "0.01", inputmode: "decimal" });
  }
}

async function begin() {
  const manifest = await loadJson("manifest.json", REMEDY);
  const ort = await loadRuntime(REMEDY);
  at("title").textContent = `Train ${manifest.title} in the browser`;
  document.title = at("title").textContent;
  const [train, init] = await Promise.all(
    ["train.onnx", "init.onnx"].map((file) => openGraph(ort, file, REMEDY)),
  );
  trainer = await new Trainer(ort, manifest, train, init).reset();
  offerHypers(manifest);
  readAddress();
  for (const field of [...fields(), at("shuffle")]) field.addEventListener("change", share);
  const wanted = trainer.batch.map(({ name, dtype, dims }) =>
    `${name.slice(6)} ${dtype}[${dims.map((size) => size ?? "n")}]`);
  at("status").textContent = `Ready. A data file is a safetensors file with the tensors ${wanted.join(" and ")}.`;
  if (manifest.data) await use(await load(manifest.data, REMEDY), manifest.data);
}

at("file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) await use(await file.arrayBuffer(), file.name).catch(fail);
});
at("run").addEventListener("click", () => {
  if (isRunning) isRunning = false;
  else run();
});
at("reset").addEventListener("click", async () => {
  isRunning = false;
  results = [];
  await trainer.reset();
  charts.loss([], []);
  charts.rate([], []);
  at("status").textContent = "Back at the first step.";
});
at("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(trainer.save());
  link.download = `step-${trainer.step}.safetensors`;
  link.click();
  URL.revokeObjectURL(link.href);
});
at("share").addEventListener("click", () => {
  share();
  copy(location.href, at("copied"));
});
begin().catch((error) => {
  at("status").textContent = "";
  fail(error);
});
