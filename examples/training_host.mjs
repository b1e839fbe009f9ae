// Trains in Node with the files of closedform.training.export and the API of onnxruntime alone.
//
//     node training_host.mjs [--no-check] FOLDER STEPS ROWS NAME=FILE …
//
// runs init.onnx of FOLDER once and train.onnx STEPS times, and prints the loss of each step. Each
// NAME is an input of the batch (input, target), each FILE its raw little-endian values, rows first;
// a step takes the next ROWS rows, and starts over where fewer are left. Labels and indices out of
// the range that train.onnx states are an error; --no-check leaves this out. It needs
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

const words = process.argv.slice(2);
const isChecked = words[0] !== "--no-check";
const [folder, steps, rows, ...given] = isChecked ? words : words.slice(1);
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

/** The fields of a protobuf message: its number, and the bytes of those that have a length. */
function* fieldsOf(bytes) {
  let place = 0;
  const varint = () => {
    let [number, factor] = [0, 1];
    for (; bytes[place] > 127; factor *= 128) number += (bytes[place++] - 128) * factor;
    return number + bytes[place++] * factor;
  };
  while (place < bytes.length) {
    const tag = varint();
    if (tag % 8 === 2) {
      const length = varint();
      place += length;
      yield [Math.floor(tag / 8), bytes.subarray(place - length, place)];
    } else if (tag % 8 === 0) varint();
    else place += tag % 8 === 1 ? 8 : 4;
  }
}

/** The metadata of an ONNX file, which onnxruntime-node does not return: field 14 of the model. */
function metadataOf(file) {
  const entries = [...fieldsOf(file)].filter(([field]) => field === 14);
  return Object.fromEntries(entries.map(([, entry]) => {
    const texts = Object.fromEntries([...fieldsOf(entry)].map(([field, text]) => [field, text.toString()]));
    return [texts[1], texts[2]];
  }));
}

// Parts of integer inputs that the model reads as labels or indices: ONNX counts a negative index from
// the end, and would train a wrong row.
const metadata = isChecked ? metadataOf(await fs.readFile(path.join(folder, "train.onnx"))) : {};
const ranges = JSON.parse(metadata["closedform.indices"] ?? "[]");

/** The integers whose results of arithmetic are in an interval. */
function preimage([least, most], steps) {
  return steps.reduceRight(([low, high], [kind, number]) => {
    switch (kind) {
      case "add": return [low - number, high - number];
      case "multiply": {
        const ends = number > 0 ? [low / number, high / number] : [high / number, low / number];
        return [Math.ceil(ends[0]), Math.floor(ends[1])];
      }
      case "floor_divide": return [low * number, high * number + number - 1];
      case "clip_low": return [low <= number ? -Infinity : low, number <= high ? high : -Infinity];
      case "clip_high": return [low <= number ? low : Infinity, number <= high ? Infinity : high];
      default: throw new Error(`arithmetic of indices that this example does not know: ${kind}`);
    }
  }, [least, most]);
}

/** Whether slices of Python, one after the other, leave an element. */
function isRead(cuts, shape, element) {
  const counts = [...shape];
  const places = shape.map((size, axis) => {
    const width = shape.slice(axis + 1).reduce((product, other) => product * other, 1);
    return Math.floor(element / width) % size;
  });
  return cuts.every(([axis, first, last, stride]) => {
    const count = counts[axis];
    const bound = (place) => Math.min(Math.max(place < 0 ? place + count : place, 0), count);
    const [start, stop] = [first === null ? 0 : bound(first), last === null ? count : bound(last)];
    const place = places[axis] - start;
    counts[axis] = Math.max(0, Math.ceil((stop - start) / stride));
    const isLeft = place >= 0 && places[axis] < stop && place % stride === 0;
    places[axis] = Math.floor(place / stride);
    return isLeft;
  });
}

/** Throws at the first value of an input that is out of its range. */
function checkIndices(name, shape, values, firstRow) {
  for (const range of ranges.filter(({ input }) => `batch.${input}` === name)) {
    const size = range.size === "batch" ? Number(rows) : Number(range.size);
    if (Number.isNaN(size)) throw new Error(`a range that this example does not compute: ${range.size}`);
    const [low, high] = preimage([range.is_from_end ? -size : range.low, size - 1], range.steps ?? []);
    values.forEach((entry, element) => {
      const value = Number(entry);
      const isRight = (value >= low && value <= high) || range.free.includes(value);
      if (isRight || !isRead(range.cuts, shape, element)) return;
      const bounds = low === -Infinity ? `<= ${high}` : high === Infinity ? `>= ${low}` : `in ${low}..${high}`;
      const row = firstRow + Math.floor(element / (values.length / shape[0]));
      const texts = [bounds, ...range.free].join(" or ");
      throw new Error(`${range.input}: must have values ${texts}, got ${value} in row ${row} of the data`);
    });
  }
}

/** The rows of a step; the last rows of the data are left out if they do not fill one. */
function batchOf(port, step) {
  const shape = shapeOf(port);
  const count = shape.reduce((product, size) => product * size, 1);
  const bytes = data[port.name];
  if (bytes === undefined) throw new Error(`no data: NAME=FILE is missing for ${port.name}`);
  const size = count * ARRAYS[port.type].BYTES_PER_ELEMENT;
  if (bytes.length < size) throw new Error(`fewer values than one step takes: ${port.name}`);
  const batch = step % Math.floor(bytes.length / size);
  const copy = Uint8Array.from(bytes.subarray(batch * size, (batch + 1) * size));
  const values = new ARRAYS[port.type](copy.buffer);
  checkIndices(port.name, shape, values, batch * Number(rows));
  return new ort.Tensor(port.type, values, shape);
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
