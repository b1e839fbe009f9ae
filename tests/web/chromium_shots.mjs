// Opens pages at three widths, in light and dark: a screenshot each, and what is wider than the screen.
import path from "node:path";
import { launch, visit } from "./browser.mjs";

const [folder, packages, chromium, ...pages] = process.argv.slice(2);
const browser = await launch(packages, chromium);
const wide = [];
const errors = [];
for (const entry of pages) {
  const [name, address, ready] = entry.split("|");
  const { page, errors: found } = await visit(browser, address);
  await page.waitForFunction(ready);
  for (const width of [320, 768, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      // Curves are drawn again for the new width after a frame.
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
      const most = await page.evaluate(() => document.documentElement.scrollWidth);
      if (most > width) wide.push(`${name} at ${width}: ${most}`);
      await page.screenshot({ path: path.join(folder, `${name}-${width}-${colorScheme}.png`), fullPage: true });
    }
  }
  errors.push(...found);
  await page.context().close();
}
await browser.close();
console.log(JSON.stringify({ wide, errors }));
