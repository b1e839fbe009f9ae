// The page that fine-tunes a language model on a text, and writes with it.

import { download, fields, number, readAddress, share } from "./fields.js";
import { Loop } from "./loop.js";
import { at, copy, fail, load, openGraph } from "./page.js";
import { makeTensor, sample, uniform, writeSafetensors } from "./trainer.js";

const REMEDY = "Write the page again with `closedform web --text`.";
const FIELDS = ["batch", "steps", "seed", "context", "prompt", "length", "temperature"];
let manifest = null;
let ort = null;
let forward = null;
let tokens = { text: null, ids: null };
let isWriting = false;
let host = { step: null, tensors: null };

// Tokens of a text: positions in the alphabet, or bytes of UTF-8.
function encode(text) {
  if (manifest.alphabet === null) return new TextEncoder().encode(text);
  const places = new Map(Array.from(manifest.alphabet, (letter, i) => [letter, i]));
  const letters = Array.from(text);
  const unknown = letters.find((letter) => !places.has(letter));
  if (unknown !== undefined) {
    throw new Error(`The model has no token for ${JSON.stringify(unknown)}. Remove it from the text.`);
  }
  return Uint32Array.from(letters, (letter) => places.get(letter));
}

function decode(ids) {
  if (manifest.alphabet === null) return new TextDecoder().decode(Uint8Array.from(ids));
  const letters = Array.from(manifest.alphabet);
  return ids.map((id) => letters[id]).join("");
}

function contextLength() {
  return manifest.context ?? number("context", 2);
}

// The tokens of the text in its field, computed once for each text.
function textTokens() {
  const text = at("text").value;
  if (tokens.text !== text) tokens = { text, ids: encode(text) };
  return tokens.ids;
}

function batchAt(step) {
  const ids = textTokens();
  const [context, rows] = [contextLength(), number("batch", 1)];
  const { batch } = loop.trainer;
  const places = ids.length - context - (batch.length - 1) + 1;
  if (places < 1) {
    throw new Error(`The text has ${ids.length} tokens; a window takes ${context + batch.length - 1}. `
      + "Paste a longer text.");
  }
  const starts = Array.from(uniform(number("seed", 0), step, rows), (u) => Math.floor(u * places));
  window.training.starts?.push(starts); // a test asks for them
  const tensors = {};
  batch.forEach(({ name, dtype }, shift) => {
    const values = new BigInt64Array(rows * context);
    starts.forEach((start, row) => {
      for (let i = 0; i < context; i += 1) values[row * context + i] = BigInt(ids[start + shift + i]);
    });
    tensors[name.slice("batch.".length)] = { dtype, dims: [rows, context], values };
  });
  return { tensors, rows: Uint32Array.from({ length: rows }, (_, i) => i) };
}

const loop = new Loop(batchAt, () => {
  at("adapter").disabled = loop.results.length === 0;
});

// The state on the CPU, read once for each step.
async function hostState() {
  const { trainer } = loop;
  if (host.trainer !== trainer || host.step !== trainer.step) {
    host = { trainer, step: trainer.step, tensors: await trainer.host() };
  }
  return host.tensors;
}

// The logits of the token that follows the last ones.
async function logitsAfter(ids) {
  const state = await hostState();
  const context = contextLength();
  const last = ids.slice(-context);
  // The tokens behind the last one do not change its logits: the model is causal.
  const width = manifest.context ?? last.length;
  const padded = BigInt64Array.from({ length: width }, (_, i) => BigInt(last[i] ?? 0));
  const feeds = {};
  for (const { name, dtype } of manifest.forward) {
    feeds[name] = state[name] ?? makeTensor(ort, dtype, padded, [1, width]);
  }
  const { data, dims } = Object.values(await forward.run(feeds))[0];
  const place = last.length - 1;
  const count = dims[manifest.classAxis];
  const isLast = manifest.classAxis === 2;
  return Float64Array.from({ length: count }, (_, i) => data[isLast ? place * count + i : i * dims[2] + place]);
}

async function write() {
  isWriting = true;
  at("write").textContent = "Stop";
  at("error").textContent = "";
  try {
    const prompt = at("prompt").value;
    const ids = Array.from(encode(prompt));
    if (ids.length === 0) throw new Error("The prompt is empty. Enter the text that the model goes on with.");
    const begun = ids.length;
    const [count, temperature] = [number("length", 1), number("temperature")];
    if (temperature < 0) throw new Error("The temperature must be 0 or above.");
    for (let i = 0; i < count && isWriting; i += 1) {
      const [draw] = uniform(number("seed", 0) + 7, i, 1);
      ids.push(sample(await logitsAfter(ids), temperature, draw));
      at("written").textContent = prompt + decode(ids.slice(begun));
      if (i % 4 === 3) await new Promise((resolve) => requestAnimationFrame(resolve));
    }
  } catch (error) {
    fail(error);
  }
  isWriting = false;
  at("write").textContent = "Write";
}

function countTokens() {
  const unit = manifest.alphabet === null ? "bytes" : "characters";
  try {
    at("count").textContent = `${textTokens().length} ${unit}`;
    at("error").textContent = "";
  } catch (error) {
    fail(error);
  }
  at("run").disabled = at("text").value === "";
}

// The names of LoRA weights as peft stores them, which are without that of the adapter.
const stored = (name) => name.replace(/\.(lora_[A-Za-z_]+)\.default(?=\.|$)/, ".$1");

async function begin() {
  ({ manifest, ort } = await loop.begin(REMEDY));
  forward = await openGraph(ort, "eval.onnx", REMEDY, manifest.external);
  at("title").textContent = `Fine-tune ${manifest.title} on your text`;
  document.title = at("title").textContent;
  at("context").value = manifest.initialContext;
  at("context").defaultValue = manifest.initialContext;
  at("context").disabled = manifest.context !== null;
  readAddress(FIELDS);
  for (const field of fields(FIELDS)) field.addEventListener("change", () => share(FIELDS));
  if (manifest.text) at("text").value = new TextDecoder().decode(await load(manifest.text, REMEDY));
  countTokens();
  at("write").disabled = false;
  const size = (dims) => dims.reduce((a, b) => a * b, 1);
  const count = manifest.trained.reduce((sum, name) => sum + size(loop.trainer.carried[name].dims), 0);
  at("status").textContent = `Ready. ${count.toLocaleString("en")} parameters are trained.`;
}

at("text").addEventListener("input", countTokens);
at("file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  at("text").value = await file.text();
  countTokens();
});
at("write").addEventListener("click", () => {
  if (isWriting) isWriting = false;
  else write();
});
at("adapter").addEventListener("click", async () => {
  const { step } = loop.trainer;
  const state = await hostState().catch(fail);
  if (!state) return;
  const named = manifest.trained.map((name) => [stored(name.slice("param.".length)), state[name]]);
  download(writeSafetensors(Object.fromEntries(named)), `adapter-${step}.safetensors`);
});
at("share").addEventListener("click", () => {
  share(FIELDS);
  copy(location.href, at("copied"));
});
begin().catch((error) => {
  at("status").textContent = "";
  fail(error);
});
