// Runs kernels.html; prints its outcomes, and which provider took the node of each case, as JSON.
import { launch, visit, WEBGPU } from "./browser.mjs";
import { placements } from "./placements.mjs";

const [address, packages, chromium] = process.argv.slice(2);
const browser = await launch(packages, chromium, WEBGPU);
const logs = [];
const prepare = (page) => page.on("console", (message) => {
  const text = message.text();
  if (text.startsWith("case ")) logs.push([]);
  else logs.at(-1)?.push(text);
});
const { page } = await visit(browser, address, { prepare });
await page.waitForFunction(() => window.outcomes !== undefined);
const outcomes = await page.evaluate(() => window.outcomes);
await browser.close();
console.log(JSON.stringify(outcomes.map((outcome, i) => ({ ...outcome, placed: placements(logs[i]) }))));
