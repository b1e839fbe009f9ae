// The page that trains: controls, the loop, and the two curves.

import * as ort from "./ort/ort.wasm.min.mjs";
import { draw, short } from "./chart.js";
import { Trainer, readSafetensors, shuffled } from "./trainer.js";

ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
ort.env.wasm.numThreads = 1;

const at = (id) => document.getElementById(id);
const number = (id) => Number(at(id).value);
let trainer = null;
let data = null;
let results = [];
let isRunning = false;
// Read by tests: what has happened so far.
window.training = { results: () => results, isRunning: () => isRunning };

function fail(error) {
  at("error").textContent = error.message ?? String(error);
}

function show() {
  const steps = results.map((result) => result.step);
  draw(at("loss"), steps, results.map((result) => result.loss), { label: "loss" });
  const rates = results.map((result) => result.learningRate);
  if (rates.some((rate) => rate !== null)) {
    draw(at("rate"), steps, rates, { label: "learning rate" });
  }
  const last = results.at(-1);
  if (!last) return;
  const rate = last.learningRate === null ? "" : `, learning rate ${short(last.learningRate)}`;
  at("status").textContent = `step ${last.step}: loss ${short(last.loss)}${rate}`;
}

function hyperValues() {
  const inputs = [...at("hypers").querySelectorAll("input")];
  const values = Object.fromEntries(inputs.map((input) => [input.name, Number(input.value)]));
  for (const [name, value] of Object.entries(values)) {
    if (!Number.isFinite(value)) throw new Error(`${name} must be a number`);
  }
  return values;
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
  at("error").textContent = "";
  const size = Math.min(number("batch"), data.rows);
  const perEpoch = Math.floor(data.rows / size);
  let order = null;
  let epochOf = -1;
  try {
    while (isRunning && trainer.step < number("steps")) {
      const { step } = trainer;
      const epoch = Math.floor(step / perEpoch);
      if (epoch !== epochOf) {
        order = at("shuffle").checked
          ? shuffled(data.rows, number("seed"), epoch)
          : Uint32Array.from({ length: data.rows }, (_, i) => i);
        epochOf = epoch;
      }
      const start = (step % perEpoch) * size;
      const rows = order.subarray(start, start + size);
      const options = { hyper: hyperValues(), seed: number("seed") };
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
    const label = document.createElement("label");
    label.textContent = name;
    const input = document.createElement("input");
    Object.assign(input, { type: "text", name, value: "0.01" });
    label.append(input);
    at("hypers").append(label);
  }
}

async function begin() {
  const manifest = await (await fetch("manifest.json")).json();
  at("title").textContent = `Train ${manifest.title} in the browser`;
  document.title = at("title").textContent;
  const [train, init] = await Promise.all(
    ["train.onnx", "init.onnx"].map((file) => ort.InferenceSession.create(file)),
  );
  trainer = await new Trainer(ort, manifest, train, init).reset();
  offerHypers(manifest);
  const wanted = trainer.batch.map(({ name, dtype, dims }) =>
    `${name.slice(6)} ${dtype}[${dims.map((size) => size ?? "n")}]`);
  at("status").textContent = `Ready. The data file holds ${wanted.join(" and ")}.`;
  if (manifest.data) await use(await (await fetch(manifest.data)).arrayBuffer(), manifest.data);
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
  for (const id of ["loss", "rate"]) at(id).replaceChildren();
  at("status").textContent = "Back at the first step.";
});
at("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(trainer.save());
  link.download = `step-${trainer.step}.safetensors`;
  link.click();
  URL.revokeObjectURL(link.href);
});
begin().catch(fail);
