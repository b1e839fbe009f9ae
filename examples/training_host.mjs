// Trains in Node with the files of closedform.training.export and the API of onnxruntime alone.
//
//     node training_host.mjs FOLDER STEPS ROWS NAME=FILE …
//
// runs init.onnx of FOLDER once and train.onnx STEPS times, and prints the loss of each step. Each
// NAME is an input of the batch (input, target), each FILE its raw little-endian values, rows first;
// a step takes the next ROWS rows, and starts over where fewer are left. It needs
// `npm install onnxruntime-node`; the same calls work with onnxruntime-web in a browser.
//
// The contract of the files: docs/migrate_onnxruntime_training.md.
import fs from "node:fs/promises";
import path from "node:path";
import ort from "onnxruntime-node";

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int64: BigInt64Array,
  int32: Int32Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

const DISTRIBUTIONS = {
  uniform: () => Math.floor(Math.random() * 2 ** 24) / 2 ** 24, // exact in float32, below 1
  normal: () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random()),
  exponential: () => -Math.log(1 - Math.random()),
};

const [folder, steps, rows, ...given] = process.argv.slice(2);
const data = {};
for (const word of given) {
  const [name, file] = word.split("=", 2);
  data[`batch.${name}`] = await fs.readFile(file);
}

const open = (name) => ort.InferenceSession.create(path.join(folder, name));
const init = await open("init.onnx");
const train = await open("train.onnx");

/** The shape of an input, with the rows of a step for its free size. */
function shapeOf({ name, shape }) {
  return shape.map((size) => {
    if (size !== "batch" && typeof size !== "number") {
      throw new Error(`${name} has a free size that this example does not know: ${size}`);
    }
    return size === "batch" ? Number(rows) : size;
  });
}

/** The rows of a step; the last rows of the data are left out if they do not fill one. */
function batchOf(port, step) {
  const shape = shapeOf(port);
  const count = shape.reduce((product, size) => product * size, 1);
  const bytes = data[port.name];
  if (bytes === undefined) throw new Error(`no data: NAME=FILE is missing for ${port.name}`);
  const size = count * ARRAYS[port.type].BYTES_PER_ELEMENT;
  if (bytes.length < size) throw new Error(`fewer values than one step takes: ${port.name}`);
  const start = (step % Math.floor(bytes.length / size)) * size;
  const copy = Uint8Array.from(bytes.subarray(start, start + size));
  return new ort.Tensor(port.type, new ARRAYS[port.type](copy.buffer), shape);
}

/** Random numbers of the distribution in the name of an input: random.0, random.normal.1, …. */
function randomOf(port) {
  const shape = shapeOf(port);
  const draw = DISTRIBUTIONS[port.name.split(".")[1]] ?? DISTRIBUTIONS.uniform;
  const count = shape.reduce((product, size) => product * size, 1);
  const numbers = ARRAYS[port.type].from({ length: count }, draw);
  return new ort.Tensor(port.type, numbers, shape);
}

let values = await init.run({});
for (let step = 0; step < Number(steps); step += 1) {
  const feeds = {};
  for (const port of train.inputMetadata) {
    if (port.name.startsWith("batch.")) feeds[port.name] = batchOf(port, step);
    else if (port.name.startsWith("random.")) feeds[port.name] = randomOf(port);
    else feeds[port.name] = values[port.name];
  }
  const outputs = await train.run(feeds);
  for (const [name, value] of Object.entries(outputs)) {
    if (name.startsWith("next.")) values = { ...values, [name.slice("next.".length)]: value };
  }
  console.log(outputs.loss.data[0]);
}
