// The training loop of a page: its buttons, its progress, and the curves of loss and learning rate.

import { follow, short } from "./chart.js";
import { download, hyperValues, number, offerHypers } from "./fields.js";
import { at, fail, load, loadJson, loadRuntime, openGraph } from "./page.js";
import { Trainer } from "./trainer.js";

const SHORTEST_FRAME = 50; // milliseconds of training between two drawings of the page

const BUTTONS = ["reset", "save", "model"]; // of what there is after a step

export class Loop {
  // `batchAt(step)` returns {tensors, rows} of a step; `onPause` is called when the loop has stopped.
  constructor(batchAt, onPause = () => {}) {
    this.batchAt = batchAt;
    this.onPause = onPause;
    this.charts = { loss: follow(at("loss")), rate: follow(at("rate")) };
    this.trainer = null;
    this.results = [];
    this.isRunning = false;
    // Read by tests: what has happened so far.
    window.training = {
      results: () => this.results,
      isRunning: () => this.isRunning,
      trainer: () => this.trainer,
    };
    at("run").addEventListener("click", () => {
      if (this.isRunning) this.isRunning = false;
      else this.run();
    });
    at("reset").addEventListener("click", () => this.reset().catch(fail));
    at("save").addEventListener("click", () => {
      this.attempt(async () => {
        const { step } = this.trainer;
        download(await this.trainer.save(), `step-${step}.safetensors`);
      }).catch(fail);
    });
    at("model").addEventListener("click", () => {
      this.attempt(async () => {
        const { step } = this.trainer;
        download(await this.trainer.saveModel(await load("model.onnx", this.remedy)), `step-${step}.onnx`);
      }).catch(fail);
    });
  }

  // Loads the manifest, onnxruntime and the graphs of the step; returns the manifest and onnxruntime.
  async begin(remedy) {
    const manifest = await loadJson("manifest.json", remedy);
    this.remedy = remedy;
    // A step may be exported to a folder whose eval.onnx is elsewhere.
    at("model").hidden = !manifest.weights;
    const ort = await loadRuntime(remedy);
    const init = await openGraph(ort, "init.onnx", remedy, manifest.external);
    const plain = async (tensors = null) => {
      const trainer = new Trainer(ort, manifest, await openGraph(ort, "train.onnx", remedy, manifest.external), init);
      if (tensors === null) return trainer.reset();
      trainer.carried = tensors;
      return trainer;
    };
    this.trainer = manifest.webgpu
      ? await this.onGpu({ ort, manifest, init, plain, remedy })
      : await plain();
    offerHypers(manifest);
    return { manifest, ort };
  }

  // A trainer on the GPU, or in WebAssembly where there is none; the page says which.
  async onGpu({ ort, manifest, init, plain, remedy }) {
    const { findAdapter, GpuTrainer } = await import("./webgpu.js");
    const adapter = await findAdapter();
    if (!adapter) {
      at("device").textContent = "This browser has no WebGPU adapter: training runs in WebAssembly, on the CPU.";
      return plain();
    }
    try {
      const trainer = await new GpuTrainer(ort, manifest, init, plain, remedy).open();
      const { vendor, architecture } = adapter.info;
      at("device").textContent = `Training runs on WebGPU (${[vendor, architecture].filter(Boolean).join(" ")}).`;
      return await trainer.reset();
    } catch (error) {
      at("device").textContent = `WebGPU cannot be used (${error.message}): training runs in WebAssembly, on the CPU.`;
      return plain();
    }
  }

  // Goes on with the trainer that took over, without the steps that were lost.
  resume(interruption) {
    this.trainer = interruption.trainer;
    at("device").textContent = interruption.message;
    this.results = this.results.filter(({ step }) => step <= this.trainer.step);
  }

  async run() {
    this.isRunning = true;
    at("run").textContent = "Pause";
    for (const id of BUTTONS) at(id).disabled = true;
    at("error").textContent = "";
    try {
      if (this.trainer.step >= number("steps", 1)) {
        throw new Error(`${this.trainer.step} steps are done. Increase the number of steps, or start again.`);
      }
      let drawn = performance.now();
      while (this.isRunning && this.trainer.step < number("steps", 1)) {
        await this.step();
        if (performance.now() - drawn > SHORTEST_FRAME) {
          this.show();
          await new Promise((resolve) => requestAnimationFrame(resolve));
          drawn = performance.now();
        }
      }
      await this.attempt(() => this.trainer.settle());
    } catch (error) {
      fail(error);
    }
    this.isRunning = false;
    at("run").textContent = "Train";
    for (const id of BUTTONS) at(id).disabled = this.results.length === 0;
    this.show();
    this.onPause();
  }

  async step() {
    const { tensors, rows } = this.batchAt(this.trainer.step);
    const options = { hyper: hyperValues(), seed: number("seed", 0) };
    await this.attempt(async () => {
      this.results.push(await this.trainer.train(tensors, rows, options));
    });
  }

  // Runs something of the trainer; if another one takes over, training goes on with that.
  async attempt(action) {
    try {
      await action();
    } catch (error) {
      if (!error.trainer) throw error;
      this.resume(error);
    }
  }

  async reset() {
    this.isRunning = false;
    this.results = [];
    await this.trainer.reset();
    for (const chart of Object.values(this.charts)) chart([], []);
    at("progress").value = 0;
    at("status").textContent = "Back at the first step.";
    this.onPause();
  }

  show() {
    // A loss on the GPU is read some steps later.
    const results = this.results.filter(({ loss }) => loss !== null);
    const steps = results.map((result) => result.step);
    this.charts.loss(steps, results.map((result) => result.loss), { label: "loss" });
    const rates = results.map((result) => result.learningRate);
    if (rates.some((rate) => rate !== null)) {
      this.charts.rate(steps, rates, { label: "learning rate" });
    }
    const last = results.at(-1);
    if (!last) return;
    at("progress").max = at("steps").value;
    at("progress").value = last.step;
    const rate = last.learningRate === null ? "" : `, learning rate ${short(last.learningRate)}`;
    at("status").textContent = `step ${last.step}: loss ${short(last.loss)}${rate}`;
  }
}
