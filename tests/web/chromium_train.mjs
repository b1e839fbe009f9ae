// Presses the buttons of the page that trains; prints the losses that it shows as JSON.
import { open } from "./browser.mjs";

const [address, steps, rows, shot, packages, chromium] = process.argv.slice(2);
const { browser, page, errors, foreign } = await open(address, packages, chromium, 700);
await page.waitForFunction(() => !document.getElementById("run").disabled);
await page.fill("#batch", rows);
await page.fill("#steps", steps);
await page.uncheck("#shuffle");
await page.click("#run");
await page.waitForFunction(
  (count) => !window.training.isRunning() && window.training.results().length === count,
  Number(steps),
);
const losses = await page.evaluate(() => window.training.results().map((result) => result.loss));
const said = await page.textContent("#error");
if (said) errors.push(said);
await page.screenshot({ path: shot });
await browser.close();
console.log(JSON.stringify({ losses, errors, foreign }));
