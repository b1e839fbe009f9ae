// The curve of a schedule, computed by its graph whenever an input changes.

import { openGraph } from "./page.js";
import { makeTensor } from "./trainer.js";

export const REMEDY = "Write the page again with `closedform gallery`.";

export class Curve {
  constructor(entry) {
    this.entry = entry;
    this.steps = Array.from({ length: entry.steps + 1 }, (_, step) => step);
    this.wanted = 0;
    this.last = Promise.resolve();
  }

  async open(ort) {
    this.session = await openGraph(ort, this.entry.file, REMEDY);
    this.ort = ort;
    this.clock = makeTensor(ort, this.entry.clock, this.steps, [this.steps.length]);
  }

  // The values for these inputs. A session runs one thing at a time: the newest wish waits, and
  // older ones resolve to null.
  compute(inputs) {
    this.wanted += 1;
    const mine = this.wanted;
    const run = async () => {
      if (mine !== this.wanted) return null;
      const feeds = { step: this.clock };
      for (const { name, dtype } of this.entry.inputs) {
        feeds[name] = makeTensor(this.ort, dtype, [inputs[name]], []);
      }
      const { value } = await this.session.run(feeds);
      return Array.from(value.data, Number);
    };
    const result = this.last.then(run);
    this.last = result.catch(() => null);
    return result;
  }
}

export function initial(entry) {
  return Object.fromEntries(entry.inputs.map(({ name, value }) => [name, value]));
}
