// Checks pages in a real Chromium: check.mjs CHROMIUM DRIVER OUT PAGE.. ; screenshots and findings are written to OUT.
//
// Every page, at 400 and 1600 pixels, in light and in dark: no console error, no request, no horizontal scroll, no finding of
// axe. Then by the keyboard alone: every control and every picture can be reached, a rank selected, a plan stepped through.
// Then without scripts: all content is visible.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [chromium, folder, out, ...pages] = process.argv.slice(2);
const require = createRequire(join(resolve(folder), "package.json"));
const { chromium: driver } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const found = [];
const say = (where, what) => {
  found.push(`${where}: ${what}`);
  console.error(`check_pictures: ${where}: ${what}`);
};

const browser = await driver.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });

const open = async (page, where, options) => {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  const tab = await context.newPage();
  const url = pathToFileURL(resolve(page)).href;
  tab.on("console", (message) => ["error", "warning"].includes(message.type()) && say(where, `console: ${message.text()}`));
  tab.on("pageerror", (error) => say(where, `error: ${error.message}`));
  tab.on("request", (request) => request.url() !== url && !request.url().startsWith("data:") && say(where, `asks for ${request.url()}`));
  await tab.goto(url);
  return { context, tab };
};

// Finds letters that extend beyond their picture, or overlap.
const misplaced = () => {
  const wrong = [];
  for (const svg of document.querySelectorAll("svg.rs")) {
    const whole = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].slice(0, 1500).map((text) => [text, text.getBoundingClientRect()]);
    for (const [text, box] of texts)
      if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1)
        wrong.push(`"${text.textContent}" sticks out of ${svg.querySelector("title").textContent}`);
    for (let a = 0; a < texts.length && texts.length < 600; a++)
      for (let b = a + 1; b < texts.length; b++) {
        const [x, y] = [texts[a][1], texts[b][1]];
        const wide = Math.min(x.right, y.right) - Math.max(x.left, y.left);
        const high = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
        if (wide > 2 && high > x.height / 3)
          wrong.push(`"${texts[a][0].textContent}" over "${texts[b][0].textContent}" in ${svg.querySelector("title").textContent}`);
      }
  }
  return wrong.slice(0, 10);
};

for (const page of pages) {
  const name = basename(page, ".html");
  for (const width of [400, 1600]) {
    for (const colorScheme of ["light", "dark"]) {
      const where = `${name} ${width} ${colorScheme}`;
      const { context, tab } = await open(page, where, { viewport: { width, height: 900 }, colorScheme });
      const wide = await tab.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wide > 0) say(where, `scrolls ${wide} pixels to the side`);
      for (const wrong of await tab.evaluate(misplaced)) say(where, wrong);
      await tab.evaluate(axe);
      const { violations } = await tab.evaluate(() => window.axe.run());
      for (const { id, help, nodes } of violations) say(where, `axe ${id}: ${help}: ${nodes[0].html.slice(0, 200)}`);
      await tab.screenshot({ path: join(out, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      await context.close();
    }
  }

  const where = `${name} keyboard`;
  const { context, tab } = await open(page, where, { viewport: { width: 1000, height: 900 } });
  const reached = new Set();
  const all = await tab.evaluate(() => {
    const list = [...document.querySelectorAll("select,button:not([disabled]),summary,[tabindex]")].filter((e) => e.checkVisibility());
    list.forEach((element, at) => (element.dataset.at = at));
    return list.length;
  });
  for (let at = 0; at <= all + 2; at++) {
    await tab.keyboard.press("Tab");
    const now = await tab.evaluate(() => {
      const element = document.activeElement;
      const style = getComputedStyle(element);
      return { at: element.dataset.at, outline: style.outlineStyle !== "none" };
    });
    if (now.at === undefined) continue;
    reached.add(now.at);
    if (!now.outline) say(where, `no outline on the focus of control ${now.at}`);
  }
  if (reached.size !== all) say(where, `${reached.size} of ${all} controls are reached by Tab`);
  const select = await tab.$("#ranks select");
  if (select && (await select.isVisible())) {
    await select.focus();
    await tab.keyboard.press("ArrowDown");
    const said = await tab.textContent("#ranks output");
    const marked = await tab.evaluate(() => document.querySelectorAll("[data-ranks].this").length);
    if (!/^rank \d+: ./.test(said) || marked === 0) say(where, `choosing a rank says "${said}" and marks ${marked}`);
    await tab.screenshot({ path: join(out, `${name}-rank.png`), fullPage: true });
    await tab.keyboard.press("Escape");
    if (await tab.evaluate(() => document.body.classList.contains("one"))) say(where, "Escape does not undo the choice");
  }
  const steps = await tab.$$("section.steps");
  for (const section of steps) {
    const count = (await section.$$("figure")).length;
    await (await section.$("button:nth-of-type(2)")).focus();
    await tab.keyboard.press("Enter");
    const seen = await section.$$eval("figure", (figures) => figures.filter((figure) => figure.checkVisibility()).length);
    if (seen !== 1) say(where, `of ${count} steps ${seen} are seen after one is chosen`);
  }
  for (const alternative of await tab.$$eval("svg.rs", (list) => list.map((svg) => svg.getAttribute("aria-label"))))
    if (!alternative || alternative.length < 20) say(where, `a picture says only "${alternative}" in words`);
  await context.close();

  const plain = await open(page, `${name} without scripts`, { viewport: { width: 1000, height: 900 }, javaScriptEnabled: false });
  const hidden = await plain.tab.locator("figure:visible").count();
  const figures = await plain.tab.locator("figure").count();
  if (hidden !== figures || figures === 0) say(`${name} without scripts`, `${hidden} of ${figures} pictures are seen`);
  if (await plain.tab.locator("#ranks:visible").count()) say(`${name} without scripts`, "a control is seen that does nothing");
  await plain.context.close();
  console.log(`${name}: looked at`);
}
await browser.close();
if (found.length > 0) process.exit(1);
