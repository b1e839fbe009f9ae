// The page that trains on the rows of a safetensors file.

import { fields, number, readAddress, share } from "./fields.js";
import { Loop } from "./loop.js";
import { at, copy, fail, load } from "./page.js";
import { readSafetensors, shuffled } from "./trainer.js";

const REMEDY = "Write the page again with `closedform web`.";
const FIELDS = ["batch", "steps", "seed"];
let data = null;
let epoch = { key: null, order: null };

// The order of the rows in an epoch, computed once.
function orderOf(index) {
  const seed = number("seed", 0);
  const key = `${index} ${seed} ${at("shuffle").checked}`;
  if (epoch.key !== key) {
    const order = at("shuffle").checked
      ? shuffled(data.rows, seed, index)
      : Uint32Array.from({ length: data.rows }, (_, i) => i);
    epoch = { key, order };
  }
  return epoch.order;
}

const loop = new Loop((step) => {
  const size = number("batch", 1);
  if (size > data.rows) {
    throw new Error(`The batch size must be at most ${data.rows}, the rows of the data; got ${size}.`);
  }
  const perEpoch = Math.floor(data.rows / size);
  const start = (step % perEpoch) * size;
  const order = orderOf(Math.floor(step / perEpoch));
  return { tensors: data.tensors, rows: order.subarray(start, start + size) };
});

function putFields() {
  share(FIELDS, at("shuffle").checked ? [] : [["shuffle", "0"]]);
}

async function use(buffer, name) {
  const tensors = readSafetensors(buffer);
  const rows = loop.trainer.rowsOf(tensors);
  data = { tensors, rows };
  epoch = { key: null, order: null };
  at("data").textContent = `${name}, ${rows} rows`;
  at("run").disabled = false;
  at("error").textContent = "";
}

async function begin() {
  const { manifest } = await loop.begin(REMEDY);
  at("title").textContent = `Train ${manifest.title} in the browser`;
  document.title = at("title").textContent;
  if (manifest.steps) at("steps").value = at("steps").defaultValue = manifest.steps;
  at("shuffle").checked = readAddress(FIELDS).get("shuffle") !== "0";
  for (const field of [...fields(FIELDS), at("shuffle")]) field.addEventListener("change", putFields);
  const wanted = loop.trainer.batch.map(({ name, dtype, dims }) =>
    `${name.slice(6)} ${dtype}[${dims.map((size) => size ?? "n")}]`);
  at("status").textContent = `Ready. A data file is a safetensors file with the tensors ${wanted.join(" and ")}.`;
  if (manifest.data) await use(await load(manifest.data, REMEDY), manifest.data);
}

at("file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) await use(await file.arrayBuffer(), file.name).catch(fail);
});
at("share").addEventListener("click", () => {
  putFields();
  copy(location.href, at("copied"));
});
begin().catch((error) => {
  at("status").textContent = "";
  fail(error);
});
