// The curve of a schedule, computed by its graph whenever an input changes.

import { openGraph } from "./page.js";
import { makeTensor } from "./trainer.js";

export const REMEDY = "Write the page again with `closedform gallery`.";

// More points than a screen has pixels add nothing to a curve.
const MOST_STEPS = 20000;

// The value of a linear form, such as the length of a schedule.
export function linear({ constant, multiples }, inputs) {
  return Object.entries(multiples).reduce((sum, [name, factor]) => sum + factor * inputs[name], constant);
}

// The last step that is drawn: as many lengths of the schedule as in the example.
export function lastStep(entry, inputs) {
  if (!entry.length) return entry.steps;
  const share = linear(entry.length, inputs) / linear(entry.length, initial(entry));
  const last = Math.round(entry.steps * share);
  return last >= 1 ? Math.min(last, MOST_STEPS) : entry.steps;
}

export class Curve {
  constructor(entry) {
    this.entry = entry;
    this.steps = [];
    this.wanted = 0;
    this.last = Promise.resolve();
  }

  async open(ort) {
    this.session = await openGraph(ort, this.entry.file, REMEDY);
    this.ort = ort;
  }

  extend(last) {
    if (this.steps.length === last + 1) return;
    this.steps = Array.from({ length: last + 1 }, (_, step) => step);
    this.clock = makeTensor(this.ort, this.entry.clock, this.steps, [this.steps.length]);
  }

  // The values for these inputs. A session runs one thing at a time: the newest wish waits, and
  // older ones resolve to null.
  compute(inputs) {
    this.wanted += 1;
    const mine = this.wanted;
    const run = async () => {
      if (mine !== this.wanted) return null;
      this.extend(lastStep(this.entry, inputs));
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
