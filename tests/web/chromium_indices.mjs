// Trains on a data file with a wrong label, then on the corrected one, with the buttons of a page;
// prints what the page says after each as JSON.
import { launch, visit, WEBGPU } from "./browser.mjs";

const [address, packages, chromium, options] = process.argv.slice(2);
const { steps, rows, files, isWebgpu = false } = JSON.parse(options);
const browser = await launch(packages, chromium, isWebgpu ? WEBGPU : []);
const { page, foreign } = await visit(browser, address);
await page.waitForFunction(() => !document.getElementById("run").disabled);
await page.fill("#batch", String(rows));
await page.fill("#steps", String(steps));
await page.uncheck("#shuffle");
const device = await page.evaluate(() => document.getElementById("device")?.textContent ?? "");
const runs = [];
for (const file of files) {
  await page.setInputFiles("#file", file);
  const name = file.split("/").pop();
  await page.waitForFunction((wanted) => document.getElementById("data").textContent.startsWith(wanted), name);
  await page.click("#run");
  await page.waitForFunction(() => !window.training.isRunning());
  runs.push({
    message: await page.textContent("#error"),
    losses: (await page.evaluate(() => window.training.results())).map((result) => result.loss),
  });
}
await browser.close();
console.log(JSON.stringify({ runs, device, foreign }));
