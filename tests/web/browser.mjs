// Opens a page in headless Chromium and notes its errors and what it asks of other machines.
import path from "node:path";
import { createRequire } from "node:module";

export async function open(address, packages, executablePath, height) {
  const require = createRequire(path.join(packages, "x.js"));
  const { chromium } = require("playwright-core");
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width: 1200, height } });
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
  await page.goto(address);
  return { browser, page, errors, foreign };
}
