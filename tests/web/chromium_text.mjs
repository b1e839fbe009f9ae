// Fine-tunes on the text of the page that writes; prints losses, windows and what it wrote as JSON.
import { readFileSync } from "node:fs";
import { launch, visit, WEBGPU } from "./browser.mjs";

const [address, steps, rows, shots, packages, chromium, device = "wasm"] = process.argv.slice(2);
const browser = await launch(packages, chromium, device === "webgpu" ? WEBGPU : []);
const seen = { wide: [], errors: [], foreign: [] };
const isReady = () => !document.getElementById("write").disabled;
const { page, errors, foreign } = await visit(browser, address);
await page.waitForFunction(isReady, { timeout: 60000 });

// Mistakes are answered by what to do.
const text = await page.inputValue("#text");
await page.fill("#text", "short");
await page.click("#run");
await page.waitForFunction(() => document.getElementById("error").textContent !== "");
seen.short = await page.textContent("#error");
await page.fill("#text", text);

const write = async () => {
  await page.click("#write");
  await page.waitForFunction(() => document.getElementById("write").textContent === "Write"
    && document.getElementById("written").textContent.length > 20);
  return page.textContent("#written");
};
await page.fill("#length", "40");
await page.fill("#temperature", "0");
seen.before = await write();
await page.fill("#temperature", "1");
seen.drawn = await write();
await page.evaluate(() => { window.training.starts = []; });
await page.fill("#batch", rows);
await page.fill("#steps", steps);
await page.click("#run");
await page.waitForFunction(
  (count) => !window.training.isRunning() && window.training.results().length === count,
  Number(steps),
  { timeout: 300000 },
);
seen.losses = await page.evaluate(() => window.training.results().map((result) => result.loss));
seen.starts = await page.evaluate(() => window.training.starts);
seen.after = await write();
seen.device = await page.textContent("#device");
const [saved] = await Promise.all([page.waitForEvent("download"), page.click("#adapter")]);
seen.adapterName = saved.suggestedFilename();
seen.adapter = readFileSync(await saved.path()).toString("base64");
seen.address = await page.evaluate(() => location.href);
for (const scheme of ["light", "dark"]) {
  for (const width of [320, 768, 1280]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 900 });
    await page.waitForTimeout(150);
    const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (excess > 0) seen.wide.push([scheme, width, excess]);
    await page.screenshot({ path: `${shots}/text-${scheme}-${width}.png`, fullPage: true });
  }
}
await page.reload();
await page.waitForFunction(isReady, { timeout: 60000 });
seen.shared = await page.inputValue("#steps");
seen.errors = errors;
seen.foreign = foreign;
await browser.close();
console.log(JSON.stringify(seen));
