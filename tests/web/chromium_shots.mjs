// Opens pages at three widths, in light and dark: a screenshot each, and what is wider than the screen.
import path from "node:path";
import { launch, visit } from "./browser.mjs";

const [folder, packages, chromium, ...pages] = process.argv.slice(2);
const browser = await launch(packages, chromium);
const wide = [];
const errors = [];
for (const entry of pages) {
  const [name, address, ready] = entry.split("|");
  for (const width of [320, 768, 1280]) {
    for (const colorScheme of ["light", "dark"]) {
      const seen = await visit(browser, address, { width, colorScheme });
      await seen.page.waitForFunction(ready, null, { timeout: 90000 });
      const most = await seen.page.evaluate(() => document.documentElement.scrollWidth);
      if (most > width) wide.push(`${name} at ${width}: ${most}`);
      const file = path.join(folder, `${name}-${width}-${colorScheme}.png`);
      await seen.page.screenshot({ path: file, fullPage: true });
      errors.push(...seen.errors);
      await seen.page.context().close();
    }
  }
}
await browser.close();
console.log(JSON.stringify({ wide, errors }));
