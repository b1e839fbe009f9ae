// Trains on WebGPU with the buttons of a page; prints the losses, the placement of nodes, and what the
// page says, as JSON. `fault` and `lost` are steps at which a run fails and the device is lost.
import { launch, visit, WEBGPU } from "./browser.mjs";
import { placements } from "./placements.mjs";

const [address, packages, chromium, options] = process.argv.slice(2);
const { steps, rows, fault = null, lost = null, flags = WEBGPU, copyEvery = null, adapters = null } = JSON.parse(options);
const browser = await launch(packages, chromium, flags);
const log = [];
const errors = []; // of the page; the log of a session is written to the console, too
const prepare = (page) => {
  page.on("console", (message) => log.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
};
const { page, foreign } = await visit(browser, address, { prepare });
await page.waitForFunction(() => !document.getElementById("run").disabled || document.getElementById("error").textContent);
const text = (id) => page.evaluate((name) => document.getElementById(name).textContent, id);
const device = await text("device");
await page.evaluate(({ copyEvery, adapters }) => {
  const trainer = window.training.trainer();
  if (copyEvery !== null) trainer.copyEvery = copyEvery;
  if (adapters === 0) window.withoutAdapter = () => { navigator.gpu.requestAdapter = async () => null; };
}, { copyEvery, adapters });
await page.fill("#batch", String(rows));
await page.uncheck("#shuffle");

async function train(until) {
  await page.fill("#steps", String(until));
  await page.click("#run");
  await page.waitForFunction(() => !window.training.isRunning());
  return text("error");
}

const messages = [];
if (fault !== null) {
  messages.push(await train(fault));
  // The next run fails in the provider: two of its inputs have different numbers of rows.
  await page.evaluate(() => {
    const { session } = window.training.trainer();
    const run = session.run.bind(session);
    session.run = (feeds) => {
      const name = Object.keys(feeds).find((key) => key.startsWith("batch."));
      const { type, dims, data } = feeds[name];
      const width = data.length / dims[0];
      const cut = new feeds[name].constructor(type, data.slice(0, (dims[0] - 1) * width), [dims[0] - 1, ...dims.slice(1)]);
      return run({ ...feeds, [name]: cut });
    };
  });
  messages.push(await train(steps));
}
if (lost !== null) {
  messages.push(await train(lost));
  await page.evaluate(() => {
    window.withoutAdapter?.();
    window.training.trainer().device.destroy();
  });
}
messages.push(await train(steps));
const results = await page.evaluate(() => window.training.results());
const residency = await page.evaluate(() => window.training.trainer().residency?.() ?? null);
const saved = await page.evaluate(async () => {
  const bytes = new Uint8Array(await (await window.training.trainer().save()).arrayBuffer());
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
});
const after = await text("device");
const status = await text("status");
await browser.close();

const placed = placements(log);
console.log(JSON.stringify({ results, residency, device, after, status, messages, placed, saved, foreign, errors }));
