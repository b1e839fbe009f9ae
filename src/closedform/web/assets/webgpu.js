// Training on a GPU: parameters and states stay in its buffers, scalars are computed in WebAssembly.
//
// The GPU's runtime is a module of its own. A device that is lost takes its buffers with it, and the
// module with it: another one is imported, and training goes on from the last copy of the state.

import { load, loadRuntime, openGraph } from "./page.js";
import { drawn, makeTensor, Trainer } from "./trainer.js";

const COPY_EVERY = 50; // steps between two copies of the state on the CPU
const READ_EVERY = 8; // steps between two reads of losses, which wait for the GPU
const INT32 = 2 ** 31;

// Training has gone on from an earlier step, or elsewhere: `trainer` is the one to go on with.
export class Interrupted extends Error {
  constructor(message, trainer) {
    super(message);
    this.trainer = trainer;
  }
}

// The adapter of this browser, or null.
export async function findAdapter() {
  return (await navigator.gpu?.requestAdapter()) ?? null;
}

const size = (dims) => dims.reduce((a, b) => a * b, 1);

// Whether a tensor is kept in a buffer of the GPU: booleans and empty ones are not.
const isResident = ({ type, dims }) => (type === "float32" || type === "int32") && size(dims) > 0;

// Numbers in the dtype of an input of the GPU's graph.
function narrowed(name, { dtype, dims, values }, wanted) {
  if (dtype === wanted) return { dtype, dims, values };
  const numbers = Array.from(values, Number);
  if (wanted === "int32") {
    const large = numbers.find((value) => value < -INT32 || value >= INT32);
    if (large !== undefined) {
      throw new Error(`The tensor ${name} has the value ${large}, which is not an int32. Train without WebGPU.`);
    }
  }
  return { dtype: wanted, dims, values: numbers };
}

export class GpuTrainer extends Trainer {
  // `plain(tensors)` makes a trainer in WebAssembly with this state.
  constructor(ort, manifest, init, plain, remedy) {
    super(ort, manifest, null, init);
    this.plain = plain;
    this.remedy = remedy;
    this.inputs = Object.fromEntries(manifest.webgpu.inputs.map((input) => [input.name, input]));
    const { outputs, scalarOutputs } = manifest.webgpu;
    this.scalarNames = scalarOutputs;
    this.following = outputs.filter((name) => name.startsWith("next."));
    this.modules = 0;
    this.pending = [];
    this.copyEvery = COPY_EVERY;
  }

  // Loads the runtime and the graphs; throws if there is no adapter or the graph cannot be run.
  async open() {
    this.bytes ??= new Uint8Array(await load("webgpu.onnx", this.remedy));
    this.scalars ??= await openGraph(this.ort, "scalars.onnx", this.remedy);
    this.gpu = await loadRuntime(this.remedy, "ort.webgpu.min.mjs", this.modules ? `?${this.modules}` : "");
    this.modules += 1;
    if (this.manifest.webgpu.logLevel) this.gpu.env.logLevel = this.manifest.webgpu.logLevel;
    await this.renewSession();
    this.device = await this.gpu.env.webgpu.device;
    this.lost = null;
    const { device } = this;
    // A run on a lost device with results on the GPU does not throw.
    device.lost.then((info) => {
      if (device === this.device) this.lost = info.message || info.reason;
    });
    return this;
  }

  async renewSession() {
    const locations = Object.fromEntries(this.manifest.webgpu.outputs.map((name) => {
      const input = this.inputs[name.slice("next.".length)];
      const isState = name.startsWith("next.") && (!input || input.dtype !== "bool");
      return [name, isState || name === "loss" ? "gpu-buffer" : "cpu"];
    }));
    const options = { executionProviders: ["webgpu"], preferredOutputLocation: locations };
    if (this.manifest.webgpu.logLevel) options.logSeverityLevel = 0;
    // With its last session the runtime gives up its device: the new one comes first.
    const before = this.session;
    this.session = await this.gpu.InferenceSession.create(this.bytes, options);
    await before?.release();
  }

  async reset() {
    this.pending = [];
    await this.upload({ ...(await this.start.run({})) });
    return this;
  }

  // Puts a state of the portable files into the GPU's buffers, and keeps it as the last copy.
  async upload(tensors) {
    this.dispose();
    this.copy = { tensors, step: Number(tensors.step.data[0]) };
    for (const [name, tensor] of Object.entries(tensors)) {
      const input = this.inputs[name];
      // What the scalars carry on stays on the CPU.
      if (!input || this.scalarNames.includes(`next.${name}`)) this.carried[name] = tensor;
      else this.carried[name] = this.toGpu(name, tensor, input.dtype);
    }
  }

  toGpu(name, tensor, dtype) {
    const part = narrowed(name, { dtype: tensor.type, dims: tensor.dims, values: tensor.data }, dtype);
    const made = makeTensor(this.gpu, dtype, part.values, part.dims);
    if (!isResident(made)) return made;
    const bytes = made.data.byteLength;
    const buffer = this.device.createBuffer({
      size: Math.ceil(bytes / 16) * 16,
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
      mappedAtCreation: true,
    });
    new made.data.constructor(buffer.getMappedRange(0, bytes)).set(made.data);
    buffer.unmap();
    return this.gpu.Tensor.fromGpuBuffer(buffer, { dataType: dtype, dims: made.dims, dispose: () => buffer.destroy() });
  }

  dispose() {
    for (const tensor of Object.values(this.carried)) {
      if (tensor.location === "gpu-buffer") tensor.dispose();
    }
    this.carried = {};
  }

  // How many tensors of the state there are, and how many of them in buffers of the GPU.
  residency() {
    const all = Object.keys(this.carried).filter((name) => name in this.inputs);
    return { all: all.length, gpu: all.filter((name) => this.carried[name].location === "gpu-buffer").length };
  }

  // The state as tensors on the CPU, in the dtypes of the portable files: one wait for all buffers.
  async download() {
    const names = Object.keys(this.carried).filter((name) => this.carried[name].location === "gpu-buffer");
    const sizes = names.map((name) => size(this.carried[name].dims) * 4);
    const total = sizes.reduce((a, b) => a + b, 0);
    const tensors = { ...this.carried };
    if (total > 0) {
      const stage = this.device.createBuffer({ size: total, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
      const encoder = this.device.createCommandEncoder();
      let offset = 0;
      names.forEach((name, i) => {
        encoder.copyBufferToBuffer(this.carried[name].gpuBuffer, 0, stage, offset, sizes[i]);
        offset += sizes[i];
      });
      this.device.queue.submit([encoder.finish()]);
      await stage.mapAsync(GPUMapMode.READ);
      const bytes = stage.getMappedRange().slice(0);
      stage.destroy();
      offset = 0;
      names.forEach((name, i) => {
        const { type, dims } = this.carried[name];
        const kind = type === "int32" ? Int32Array : Float32Array;
        tensors[name] = { type, dims, data: new kind(bytes, offset, size(dims)) };
        offset += sizes[i];
      });
    }
    return Object.fromEntries(this.manifest.inputs.filter(({ name }) => name in tensors).map(({ name, dtype }) => {
      const { data, dims } = tensors[name];
      return [name, makeTensor(this.ort, dtype, data, dims)];
    }));
  }

  async train(data, rows, { hyper = {}, seed = 0 } = {}) {
    const parts = this.parts(data, rows); // a refused batch is no failure of the device
    return this.guarded(async () => {
      const result = await this.run(parts, rows, hyper, seed);
      if (this.pending.length >= READ_EVERY) await this.readLosses();
      if (this.step - this.copy.step >= this.copyEvery) await this.backUp();
      return result;
    });
  }

  // Reads the losses of the last steps.
  async settle() {
    return this.guarded(() => this.readLosses());
  }

  // The state on the CPU.
  async host() {
    return this.guarded(async () => {
      await this.readLosses();
      return this.download();
    });
  }

  // Runs something on the device; where that fails, training can go on afterwards.
  async guarded(action) {
    try {
      if (this.lost) throw new Error(this.lost);
      const result = await action();
      if (this.lost) throw new Error(this.lost);
      return result;
    } catch (error) {
      await this.recover(error);
      throw error;
    }
  }

  async run(parts, rows, hyper, seed) {
    const scalarFeeds = {};
    for (const { name, dtype } of this.manifest.webgpu.scalars) {
      scalarFeeds[name] = this.carried[name] ?? makeTensor(this.ort, dtype, [hyper[name]], []);
    }
    const scalars = await this.scalars.run(scalarFeeds);
    const feeds = {};
    for (const [name, { dtype, dims }] of Object.entries(this.inputs)) {
      if (name in this.carried) feeds[name] = this.carried[name];
      else if (name in scalars) feeds[name] = makeTensor(this.gpu, dtype, scalars[name].data, []);
      else if (name.startsWith("batch.")) {
        const short = name.slice("batch.".length);
        const part = narrowed(short, parts[short], dtype);
        feeds[name] = makeTensor(this.gpu, dtype, part.values, part.dims);
      } else {
        const sizes = dims.map((length) => length ?? rows.length);
        const place = this.random.findIndex((input) => input.name === name);
        const numbers = drawn(name, seed * 31 + place + 2, this.step, size(sizes));
        feeds[name] = makeTensor(this.gpu, dtype, numbers, sizes);
      }
    }
    for (const name of Object.keys(feeds)) {
      // What the CPU carries on and the GPU reads, too.
      if (this.scalarNames.includes(`next.${name}`)) {
        const { data: values, dims, type } = feeds[name];
        const part = narrowed(name, { dtype: type, dims, values }, this.inputs[name].dtype);
        feeds[name] = makeTensor(this.gpu, part.dtype, part.values, part.dims);
      }
    }
    const results = await this.session.run(feeds);
    // Nothing is replaced before the run has returned everything: a failed step changes nothing.
    for (const output of this.following) {
      const name = output.slice("next.".length);
      const before = this.carried[name];
      if (before.location === "gpu-buffer") before.dispose();
      this.carried[name] = results[output];
    }
    for (const output of this.scalarNames) {
      if (output.startsWith("next.")) this.carried[output.slice("next.".length)] = scalars[output];
    }
    const rate = scalars.learning_rate;
    const result = { step: this.step, loss: null, learningRate: rate ? Number(rate.data[0]) : null };
    this.pending.push({ result, tensor: results.loss });
    return result;
  }

  async readLosses() {
    const { pending } = this;
    this.pending = [];
    for (const { result, tensor } of pending) {
      result.loss = Number((await tensor.getData(true))[0]);
    }
  }

  // Copies the state to the CPU.
  async backUp() {
    await this.readLosses();
    const tensors = await this.download();
    // The event of a lost device comes after a turn of the loop.
    await new Promise((resolve) => setTimeout(resolve));
    if (this.lost) throw new Error(this.lost);
    this.copy = { tensors, step: Number(tensors.step.data[0]) };
  }

  // After a failed step: a new session with the state as it was; after a lost device, with the copy.
  async recover(error) {
    await new Promise((resolve) => setTimeout(resolve));
    if (!this.lost) {
      try {
        await this.readLosses();
        const tensors = await this.download();
        this.dispose();
        await this.renewSession();
        await this.upload(tensors);
        return;
      } catch (failure) {
        await new Promise((resolve) => setTimeout(resolve));
        this.lost ??= failure.message;
      }
    }
    const { lost, copy } = this;
    this.pending = [];
    this.carried = {};
    this.session = null;
    const text = `The GPU was lost (${lost.trim()}). `;
    const from = `from the copy of step ${copy.step}.`;
    let trainer = this;
    let told = `${text}Training goes on ${from}`;
    try {
      if (!await findAdapter()) throw new Error("no adapter");
      await this.open();
      await this.upload(copy.tensors);
    } catch (failure) {
      told = `${text}No other one can be used (${failure.message}): training goes on in WebAssembly, ${from}`;
      trainer = await this.plain(copy.tensors);
    }
    throw new Interrupted(told, trainer, { cause: error });
  }
}
