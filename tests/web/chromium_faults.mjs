// The pages while a graph loads slowly, when files are missing, and by keyboard; prints what is shown as JSON.
import { launch, visit } from "./browser.mjs";

const [address, slow, missing, training, packages, chromium] = process.argv.slice(2);
const browser = await launch(packages, chromium);
const seen = {};
const text = (page, selector) => page.textContent(selector);

// One graph waits until it is released: the search works meanwhile.
{
  let release;
  const released = new Promise((resolve) => { release = resolve; });
  const prepare = (page) => page.route(`**/${slow}.onnx`, async (route) => {
    await released;
    await route.continue();
  });
  const { page } = await visit(browser, address, { prepare });
  await page.waitForSelector(`#card-${slow}`);
  await page.keyboard.press("/");
  await page.keyboard.type(missing);
  seen.whileLoading = await page.locator(".card:visible h2").allTextContents();
  seen.statusWhileLoading = await text(page, "#status");
  seen.searchAddress = page.url();
  await page.keyboard.press("Control+A");
  await page.keyboard.type("nothing like this");
  seen.noMatch = await text(page, "#status");
  release();
  await page.fill("#find", "");
  await page.waitForFunction(() => /schedules$/.test(document.getElementById("status").textContent));
  seen.afterLoading = await text(page, "#status");
  // Tab reaches a card from the search, and Enter opens its page.
  await page.focus("#find");
  await page.keyboard.press("Tab");
  seen.focused = await page.evaluate(() => document.activeElement.textContent);
  await page.keyboard.press("Enter");
  await page.waitForURL(/schedule\.html/);
  seen.address = page.url();
  await page.waitForFunction(() => document.getElementById("value")?.textContent);
  await page.focus("#at");
  await page.keyboard.press("ArrowRight");
  seen.value = await text(page, "#value");
}

// One graph is missing: the others are drawn, and a retry draws it.
{
  let isMissing = true;
  const prepare = (page) => page.route(`**/${missing}.onnx`, (route) =>
    (isMissing ? route.fulfill({ status: 404, body: "" }) : route.continue()));
  const { page } = await visit(browser, address, { prepare });
  await page.waitForFunction(() => /^\d+ schedules, \d+ could not be drawn$/.test(document.getElementById("status").textContent));
  seen.statusWithMissing = await text(page, "#status");
  seen.drawnWithMissing = await page.evaluate(() => Object.keys(window.gallery.curves));
  seen.missing = await text(page, `#card-${missing} .error`);
  isMissing = false;
  await page.click(`#card-${missing} .error button`);
  await page.waitForFunction((name) => window.gallery.curves[name], missing);
  seen.errorAfterRetry = await page.locator(`#card-${missing} .error:visible`).count();
}

// Each of these makes one error, which is shown.
const faults = {
  damaged: ["", (page) => page.route(`**/${missing}.onnx`, (route) => route.fulfill({ body: "no graph" })), `#card-${missing} .error`],
  runtime: ["", (page) => page.route("**/ort/*", (route) => route.fulfill({ status: 404, body: "" })), `#card-${missing} .error`],
  noManifest: ["", (page) => page.route("**/manifest.json", (route) => route.fulfill({ status: 404, body: "" })), "#error"],
  noServer: ["", (page) => page.route("**/manifest.json", (route) => route.abort()), "#error"],
  noSchedule: ["schedule.html", null, "#error"],
  unknownSchedule: ["schedule.html?schedule=cosin", null, "#error"],
  unknownInput: [`schedule.html?schedule=${missing}&stop=1`, null, "#error"],
  notANumber: [`schedule.html?schedule=${missing}&end=abc`, null, "#error"],
  notAnInteger: [`schedule.html?schedule=${missing}&steps=2.5`, null, "#error"],
  undefinedValues: [`schedule.html?schedule=${missing}&steps=0`, null, "#said"],
};
for (const [name, [part, prepare, selector]] of Object.entries(faults)) {
  const { page } = await visit(browser, address + part, { prepare });
  await page.waitForFunction((where) => document.querySelector(where)?.textContent, selector);
  seen[name] = await text(page, selector);
  await page.context().close();
}

// Fields of the page that trains, from its address.
{
  const { page } = await visit(browser, `${training}?steps=0&batch=7&shuffle=0`);
  await page.waitForFunction(() => !document.getElementById("run").disabled);
  seen.fields = await page.evaluate(() =>
    [document.getElementById("batch").value, document.getElementById("shuffle").checked]);
  await page.click("#run");
  seen.steps = await text(page, "#error");
  await page.fill("#steps", "3");
  await page.fill("#seed", "5");
  await page.press("#seed", "Tab");
  seen.trainingAddress = page.url();
  await page.focus("#run");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => window.training.results().length === 3 && !window.training.isRunning());
  await page.click("#run");
  seen.done = await text(page, "#error");
  await page.setInputFiles("#file", { name: "x.safetensors", mimeType: "", buffer: Buffer.from("no") });
  await page.waitForFunction(() => /safetensors file:/.test(document.getElementById("error").textContent));
  seen.notSafetensors = await text(page, "#error");
  await page.context().close();
}
await browser.close();
console.log(JSON.stringify(seen));
