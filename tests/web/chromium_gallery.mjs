// Moves a slider of the gallery; prints all curves before, and that curve after, as JSON.
import { open } from "./browser.mjs";

const [address, name, input, value, shot, packages, chromium] = process.argv.slice(2);
const { browser, page, errors, foreign } = await open(address, packages, chromium, 1500);
await page.waitForFunction(
  () => /schedules$/.test(document.getElementById("status").textContent),
  { timeout: 90000 },
);
const before = await page.evaluate(() => ({ ...window.gallery.curves }));
await page.screenshot({ path: shot });
await page.locator(`#${name}-${input}`).fill(value);
await page.waitForFunction(
  ([curve, last]) => window.gallery.curves[curve].at(-1) !== last,
  [name, before[name].at(-1)],
);
const after = await page.evaluate((curve) => window.gallery.curves[curve], name);
const said = await page.textContent("#error");
if (said) errors.push(said);
await browser.close();
console.log(JSON.stringify({ before, after, errors, foreign }));
