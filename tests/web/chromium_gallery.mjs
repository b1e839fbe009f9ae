// Prints as JSON: the curves of the gallery, and of one schedule before and after its slider moves.
import { launch, visit } from "./browser.mjs";

const [address, name, input, value, packages, chromium] = process.argv.slice(2);
const browser = await launch(packages, chromium);
const all = await visit(browser, address);
await all.page.waitForFunction(
  () => /schedules$/.test(document.getElementById("status").textContent),
);
const curves = await all.page.evaluate(() => window.gallery.curves);
await all.page.click(`#card-${name} h2 a`);
await all.page.waitForFunction((curve) => window.gallery?.curves[curve], name);
const code = async () => [await all.page.textContent("#python"), await all.page.textContent("#onnx")];
const initialCode = await code();
const verdicts = async (page) => ({
  scope: await page.textContent("#scope"),
  lines: await page.locator("#proofs li").allTextContents(),
  isPast: await page.evaluate(() => document.getElementById("proofs").classList.contains("past")),
});
const initialProofs = await verdicts(all.page);
const curveOf = () => all.page.evaluate((curve) => window.gallery.curves[curve], name);
const before = await curveOf();
await all.page.locator(`#${input}`).fill(value);
await all.page.locator(`#${input}`).press("Tab");
await all.page.waitForFunction(
  ([curve, last]) => window.gallery.curves[curve].at(-1) !== last,
  [name, before.at(-1)],
);
const after = await curveOf();
const movedCode = await code();
await all.page.click("#share");
const link = await all.page.evaluate(() => navigator.clipboard.readText());
const again = await visit(browser, link);
await again.page.waitForFunction((curve) => window.gallery?.curves[curve], name);
const shared = await again.page.evaluate((curve) => window.gallery.curves[curve], name);
const proofs = await verdicts(again.page);
const outside = await visit(browser, link.replace(/=[^=]*$/, "=7"));
await outside.page.waitForFunction((curve) => window.gallery?.curves[curve], name);
const outsideProofs = await verdicts(outside.page);
const longer = await visit(browser, `${link}&steps=200`);
await longer.page.waitForFunction((curve) => window.gallery?.curves[curve], name);
const longerSteps = await longer.page.evaluate((curve) => window.gallery.curves[curve].length - 1, name);
const names = await again.page.locator("#names li").allTextContents();
const [download] = await Promise.all([again.page.waitForEvent("download"), again.page.click("#download")]);
const formula = await again.page.locator("#formula .katex").count();
const errors = [...all.errors, ...again.errors, ...outside.errors, ...longer.errors];
const foreign = [...all.foreign, ...again.foreign];
const downloaded = download.suggestedFilename();
await browser.close();
console.log(JSON.stringify({
  curves, before, after, shared, link, initialCode, movedCode, initialProofs, proofs, outsideProofs, longerSteps, names, downloaded, formula, errors, foreign,
}));
