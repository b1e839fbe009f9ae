// The training loop of a page: its buttons, its progress, and the curves of loss and learning rate.

import { follow, short } from "./chart.js";
import { download, hyperValues, number, offerHypers } from "./fields.js";
import { at, fail, loadJson, loadRuntime, openGraph } from "./page.js";
import { Trainer } from "./trainer.js";

const SHORTEST_FRAME = 50; // milliseconds of training between two drawings of the page

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
    window.training = { results: () => this.results, isRunning: () => this.isRunning };
    at("run").addEventListener("click", () => {
      if (this.isRunning) this.isRunning = false;
      else this.run();
    });
    at("reset").addEventListener("click", () => this.reset().catch(fail));
    at("save").addEventListener("click", () => {
      download(this.trainer.save(), `step-${this.trainer.step}.safetensors`);
    });
  }

  // Loads the manifest, onnxruntime and the graphs of the step; returns the manifest and onnxruntime.
  async begin(remedy) {
    const manifest = await loadJson("manifest.json", remedy);
    const ort = await loadRuntime(remedy);
    const [train, init] = await Promise.all(
      ["train.onnx", "init.onnx"].map((file) => openGraph(ort, file, remedy)),
    );
    this.trainer = await new Trainer(ort, manifest, train, init).reset();
    offerHypers(manifest);
    return { manifest, ort };
  }

  async run() {
    this.isRunning = true;
    at("run").textContent = "Pause";
    for (const id of ["reset", "save"]) at(id).disabled = true;
    at("error").textContent = "";
    try {
      const { trainer } = this;
      if (trainer.step >= number("steps", 1)) {
        throw new Error(`${trainer.step} steps are done. Increase the number of steps, or start again.`);
      }
      let drawn = performance.now();
      while (this.isRunning && trainer.step < number("steps", 1)) {
        const { tensors, rows } = this.batchAt(trainer.step);
        const options = { hyper: hyperValues(), seed: number("seed", 0) };
        this.results.push(await trainer.train(tensors, rows, options));
        if (performance.now() - drawn > SHORTEST_FRAME) {
          this.show();
          await new Promise((resolve) => requestAnimationFrame(resolve));
          drawn = performance.now();
        }
      }
    } catch (error) {
      fail(error);
    }
    this.isRunning = false;
    at("run").textContent = "Train";
    for (const id of ["reset", "save"]) at(id).disabled = this.results.length === 0;
    this.show();
    this.onPause();
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
    const { results } = this;
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
