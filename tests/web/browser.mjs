// Opens a page in headless Chromium and notes its errors and what it asks of other machines.
import path from "node:path";
import { createRequire } from "node:module";

// The software adapter, on machines with a GPU, too: its results are the same everywhere.
export const WEBGPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

export async function launch(packages, executablePath, flags = []) {
  const require = createRequire(path.join(packages, "x.js"));
  const { chromium } = require("playwright-core");
  return chromium.launch({ executablePath, args: ["--no-sandbox", ...flags] });
}

// `prepare` gets the page before it is opened, for routes.
export async function visit(browser, address, { width = 1200, height = 800, colorScheme = "light", prepare } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  page.setDefaultTimeout(240000);
  const errors = [];
  const foreign = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!/^(data|blob):/.test(url) && !url.startsWith(new URL(address).origin)) foreign.push(url);
  });
  await prepare?.(page);
  await page.goto(address);
  return { page, errors, foreign };
}

export async function open(address, packages, executablePath, height) {
  const browser = await launch(packages, executablePath);
  return { browser, ...(await visit(browser, address, { height })) };
}
