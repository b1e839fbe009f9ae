// One training step after the other with the graph of train.onnx, in any onnxruntime for JavaScript.

// By the names of onnxruntime: what safetensors calls a dtype, which array holds it, its number in ONNX.
const KINDS = {
  float32: ["F32", Float32Array, 1],
  float64: ["F64", Float64Array, 11],
  float16: ["F16", Uint16Array, 10],
  int32: ["I32", Int32Array, 6],
  int64: ["I64", BigInt64Array, 7],
  int8: ["I8", Int8Array, 3],
  uint8: ["U8", Uint8Array, 2],
  bool: ["BOOL", Uint8Array, 9],
};

const bytesOf = ({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

// A tensor of any dtype from plain numbers or a typed array.
export function makeTensor(ort, dtype, values, dims) {
  const [, kind] = KINDS[dtype] ?? [];
  if (!kind) throw new Error(`no array holds ${dtype}`);
  if (values instanceof kind) return new ort.Tensor(dtype, values, dims);
  const convert = dtype === "int64" ? (value) => BigInt(value) : (value) => Number(value);
  return new ort.Tensor(dtype, kind.from(Array.from(values, convert)), dims);
}

// Uniform numbers in [0, 1) from a seed and a step: mulberry32.
export function uniform(seed, step, count) {
  let state = (seed * 0x9e3779b1 + step * 0x85ebca6b) >>> 0;
  const numbers = new Float32Array(count);
  for (let i = 0; i < count; i += 1) {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    numbers[i] = ((mixed ^ (mixed >>> 14)) >>> 8) / 2 ** 24;
  }
  return numbers;
}

// Numbers for an input of random numbers, of the distribution in its name: uniform on [0, 1), standard
// normal (Box and Muller) or exponential of rate 1.
export function drawn(name, seed, step, count) {
  const kind = name.split(".")[1];
  if (kind === "normal") {
    const numbers = uniform(seed, step, 2 * count);
    const radius = (u) => Math.sqrt(-2 * Math.log(1 - u));
    return Float32Array.from({ length: count }, (_, i) => radius(numbers[2 * i]) * Math.cos(2 * Math.PI * numbers[2 * i + 1]));
  }
  const numbers = uniform(seed, step, count);
  return kind === "exponential" ? numbers.map((u) => -Math.log(1 - u)) : numbers;
}

// The order of the rows in one pass over the data: Fisher-Yates with the numbers above.
export function shuffled(count, seed, epoch) {
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  const numbers = uniform(seed + 1, epoch, count);
  for (let i = count - 1; i > 0; i -= 1) {
    const j = Math.floor(numbers[i] * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// Tensors of a safetensors file by name: {dtype, dims, values}.
export function readSafetensors(buffer) {
  const refused = (why) => new Error(`The file is not a safetensors file: ${why}. Write it with `
    + "safetensors.numpy.save_file, a tensor for each input of the batch.");
  if (buffer.byteLength < 8) throw refused("it has fewer than 8 bytes");
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  if (size > buffer.byteLength - 8) throw refused("its header is longer than the file");
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  } catch {
    throw refused("its header is not JSON");
  }
  const names = Object.fromEntries(Object.entries(KINDS).map(([name, [short]]) => [short, name]));
  const tensors = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const dtype = names[entry.dtype];
    if (!dtype) {
      throw new Error(`The tensor ${name} has dtype ${entry.dtype}, which this page cannot read. Save it as one of `
        + `${Object.values(KINDS).map(([short]) => short).join(", ")}.`);
    }
    const [start, end] = entry.data_offsets;
    const bytes = buffer.slice(8 + size + start, 8 + size + end);
    tensors[name] = { dtype, dims: entry.shape, values: new KINDS[dtype][1](bytes) };
  }
  return tensors;
}

// Rows of a tensor in an order, as typed array.
export function takeRows(tensor, rows) {
  const width = tensor.dims.slice(1).reduce((a, b) => a * b, 1);
  const values = new tensor.values.constructor(rows.length * width);
  rows.forEach((row, i) => {
    values.set(tensor.values.subarray(row * width, (row + 1) * width), i * width);
  });
  return { dtype: tensor.dtype, dims: [rows.length, ...tensor.dims.slice(1)], values };
}

// A size of a manifest: a number, the name of a free size, or an operator and two sizes.
function sizeOf(tree, sizes) {
  if (typeof tree === "number") return tree;
  if (typeof tree === "string") return sizes[tree];
  const [operator, first, second] = [tree[0], sizeOf(tree[1], sizes), sizeOf(tree[2], sizes)];
  switch (operator) {
    case "add": return first + second;
    case "subtract": return first - second;
    case "multiply": return first * second;
    case "floor_divide": return Math.floor(first / second);
    case "modulo": return first - second * Math.floor(first / second);
    default: throw new Error(`The manifest has a size with ${operator}. Write the page again.`);
  }
}

// The integers whose results of arithmetic are in an interval: index_ranges.preimage of Python.
function preimage([least, most], steps) {
  let [low, high] = [least, most];
  for (const [kind, number] of [...steps].reverse()) {
    switch (kind) {
      case "add":
        [low, high] = [low - number, high - number];
        break;
      case "multiply":
        [low, high] = number > 0 ? [low / number, high / number] : [high / number, low / number];
        [low, high] = [Math.ceil(low), Math.floor(high)];
        break;
      case "floor_divide":
        [low, high] = [low * number, high * number + number - 1];
        break;
      case "clip_low":
        [low, high] = [low <= number ? -Infinity : low, number <= high ? high : -Infinity];
        break;
      case "clip_high":
        [low, high] = [low <= number ? low : Infinity, number <= high ? Infinity : high];
        break;
      default:
        throw new Error(`The manifest has a range with ${kind}. Write the page again.`);
    }
  }
  return [low, high];
}

// The places that a slice of Python with a step above 0 selects from an axis.
function placesOf(count, start, stop, step) {
  const bound = (value, fallback) => (value === null ? fallback
    : Math.min(Math.max(value < 0 ? value + count : value, 0), count));
  const places = [];
  for (let i = bound(start, 0); i < bound(stop, count); i += step) places.push(i);
  return places;
}

// The flat places of a tensor that are left after slices.
function flatPlaces(dims, cuts) {
  let axes = dims.map((count) => Array.from({ length: count }, (_, i) => i));
  for (const [axis, start, stop, step] of cuts) {
    const selected = placesOf(axes[axis].length, start, stop, step).map((i) => axes[axis][i]);
    axes = axes.map((places, i) => (i === axis ? selected : places));
  }
  return axes.reduce((flat, places, axis) => flat.flatMap((base) => places.map((i) => base * dims[axis] + i)), [0]);
}

// Throws at the first label or index of a batch that is out of its range: ONNX would count a negative
// one from the end, and train a wrong row. `tensors` are {dims, values} by name, `rows` their rows in
// the data, `inputs` and `indices` are of the manifest.
export function checkIndices(indices, inputs, tensors, rows) {
  const sizes = {};
  for (const { name, symbols } of inputs) {
    const tensor = tensors[name.slice("batch.".length)];
    if (tensor) symbols?.forEach((symbol, axis) => { if (symbol !== null) sizes[symbol] = tensor.dims[axis]; });
  }
  for (const entry of indices) {
    const { dims, values } = tensors[entry.input];
    const size = sizeOf(entry.size, sizes);
    const [low, high] = preimage([entry.is_from_end ? -size : entry.low, size - 1], entry.steps);
    for (const place of entry.cuts.length ? flatPlaces(dims, entry.cuts) : values.keys()) {
      const value = Number(values[place]);
      if ((value < low || value > high) && !entry.free.includes(value)) {
        const width = dims.slice(1).reduce((a, b) => a * b, 1);
        const bounds = low === -Infinity ? `<= ${high}` : high === Infinity ? `>= ${low}` : `in ${low}..${high}`;
        throw new Error(`The tensor ${entry.input} must have values ${[bounds, ...entry.free].join(" or ")}, got `
          + `${value} in row ${rows[Math.floor(place / width)]} of the data: they are labels or indices of the `
          + "model. Correct them and save the file again.");
      }
    }
  }
}

export class Trainer {
  // `manifest` names the inputs of train.onnx: [{name, dtype, dims}], null for a free size.
  constructor(ort, manifest, train, init) {
    this.ort = ort;
    this.manifest = manifest;
    this.session = train;
    this.start = init;
    this.carried = {};
    const of = (prefix) => manifest.inputs.filter((input) => input.name.startsWith(prefix));
    this.batch = of("batch.");
    this.random = of("random.");
  }

  // Back to the parameters and states of init.onnx.
  async reset() {
    this.carried = { ...(await this.start.run({})) };
    return this;
  }

  get step() {
    return Number(this.carried.step.data[0]);
  }

  // Checks that the data has a tensor for each input of the batch; returns the number of rows.
  rowsOf(data) {
    let rows = null;
    for (const { name, dtype, dims } of this.batch) {
      const short = name.slice("batch.".length);
      const found = data[short];
      const want = `${dtype}[${dims.map((size) => size ?? "n").join(",")}]`;
      if (!found) {
        const names = Object.keys(data).join(", ");
        throw new Error(`The data has no tensor ${short} (${want}); it has ${names}. Rename its tensors.`);
      }
      const fits = found.dtype === dtype && found.dims.length === dims.length
        && dims.every((size, i) => size === null || size === found.dims[i]);
      if (!fits) {
        throw new Error(`The tensor ${short} must be ${want}, got ${found.dtype}[${found.dims}]. Convert it `
          + "and save the file again.");
      }
      if (rows !== null && rows !== found.dims[0]) {
        throw new Error(`The tensors of the data have ${rows} and ${found.dims[0]} rows; they must have the same number.`);
      }
      [rows] = found.dims;
    }
    if (rows === 0) throw new Error("The tensors of the data have no rows. Choose a file with some.");
    return rows;
  }

  // The rows of each tensor of the batch by name, whose labels and indices are checked.
  parts(data, rows) {
    const names = this.batch.map(({ name }) => name.slice("batch.".length));
    const parts = Object.fromEntries(names.map((name) => [name, takeRows(data[name], rows)]));
    checkIndices(this.manifest.indices ?? [], this.batch, parts, rows);
    return parts;
  }

  // One step on the given rows; returns {step, loss, learningRate}.
  async train(data, rows, { hyper = {}, seed = 0 } = {}) {
    const feeds = {};
    const parts = this.parts(data, rows);
    for (const { name, dtype, dims } of this.manifest.inputs) {
      if (name in this.carried) feeds[name] = this.carried[name];
      else if (name.startsWith("batch.")) {
        const part = parts[name.slice("batch.".length)];
        feeds[name] = makeTensor(this.ort, part.dtype, part.values, part.dims);
      } else if (name.startsWith("random.")) {
        const sizes = dims.map((size) => size ?? rows.length);
        const count = sizes.reduce((a, b) => a * b, 1);
        const place = this.random.findIndex((input) => input.name === name);
        const numbers = drawn(name, seed * 31 + place + 2, this.step, count);
        feeds[name] = makeTensor(this.ort, dtype, numbers, sizes);
      } else feeds[name] = makeTensor(this.ort, dtype, [hyper[name]], []);
    }
    const results = await this.session.run(feeds);
    for (const name of Object.keys(this.carried)) {
      if (`next.${name}` in results) this.carried[name] = results[`next.${name}`];
    }
    const rate = results.learning_rate;
    return {
      step: this.step,
      loss: Number(results.loss.data[0]),
      learningRate: rate ? Number(rate.data[0]) : null,
    };
  }

  // A trainer on a GPU reads losses at intervals; here each step has its loss.
  async settle() {}

  // The state on the CPU.
  async host() {
    return this.carried;
  }

  // Step, parameters, states and buffers as the bytes of a safetensors file.
  async save() {
    return writeSafetensors(await this.host());
  }

  // The model with its current weights as the bytes of an ONNX file, from one without them.
  async saveModel(model) {
    const tensors = await this.host();
    const weights = Object.entries(this.manifest.weights).map(([name, source]) => [name, tensors[source]]);
    return writeModel(model, Object.fromEntries(weights));
  }
}

// Tensors of onnxruntime by name, as the bytes of a safetensors file.
export function writeSafetensors(tensors) {
  const header = {};
  let offset = 0;
  const parts = [];
  for (const [name, tensor] of Object.entries(tensors)) {
    const bytes = bytesOf(tensor);
    header[name] = {
      dtype: KINDS[tensor.type][0],
      shape: [...tensor.dims],
      data_offsets: [offset, offset + bytes.length],
    };
    offset += bytes.length;
    parts.push(bytes);
  }
  let text = JSON.stringify(header);
  // A name may have characters of several bytes.
  let encoded = new TextEncoder().encode(text);
  text = text.padEnd(text.length + ((8 - (encoded.length % 8)) % 8), " ");
  encoded = new TextEncoder().encode(text);
  const head = new Uint8Array(8 + encoded.length);
  new DataView(head.buffer).setBigUint64(0, BigInt(encoded.length), true);
  head.set(encoded, 8);
  return new Blob([head, ...parts]);
}

// A number as the bytes of protobuf: seven bits each, from the lowest ones.
function varint(number) {
  const bytes = [];
  for (; number >= 128; number = Math.floor(number / 128)) bytes.push((number % 128) + 128);
  return [...bytes, number];
}

// A field of protobuf that holds bytes, which come in parts: tag, length, parts.
function field(number, parts) {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  return [Uint8Array.from([...varint(number * 8 + 2), ...varint(size)]), ...parts];
}

// The bytes of an ONNX model with weights: tensors of onnxruntime by name. Protobuf joins the parts of a
// message, so that a second graph (field 7 of onnx.proto) adds its initializers (5) to the first one.
export function writeModel(model, weights) {
  const initializers = Object.entries(weights).flatMap(([name, tensor]) => field(5, [
    ...tensor.dims.map((size) => Uint8Array.from([8, ...varint(size)])),
    Uint8Array.from([16, KINDS[tensor.type][2]]),
    ...field(8, [new TextEncoder().encode(name)]),
    ...field(9, [bytesOf(tensor)]),
  ]));
  return new Blob([model, ...field(7, initializers)]);
}

// The index that a uniform number selects, by softmax of logits at a temperature; 0 takes the largest.
export function sample(logits, temperature, draw) {
  const top = logits.reduce((best, value, i) => (value > logits[best] ? i : best), 0);
  if (temperature === 0) return top;
  const weights = logits.map((value) => Math.exp((value - logits[top]) / temperature));
  let left = draw * weights.reduce((a, b) => a + b, 0);
  for (let i = 0; i < weights.length; i += 1) {
    left -= weights[i];
    if (left < 0) return i;
  }
  return top;
}
