/** The built page in Chromium, from a file:// address: dragging, playing, scrubbing, sharing and importing. */

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import axe from "axe-core";
import { chromium, type Browser, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { compareAll } from "../proof/compare";
import { readCases } from "../proof/cases";

const PAGE = new URL("../../src/attsvm/playground/page/index.html", import.meta.url).href;
const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const MINUTE = 60_000;

let browser: Browser;
let page: Page;
const errors: string[] = [];

beforeAll(async () => {
  if (!existsSync(CHROMIUM)) throw new Error(`${CHROMIUM}: no such browser; CHROMIUM names another`);
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) errors.push(`request to ${request.url()}`);
  });
  await page.goto(PAGE);
  await page.waitForSelector("#token-0-0");
}, MINUTE);

afterAll(async () => {
  await browser.close();
  expect(errors).toEqual([]);
});

const step = async (): Promise<number> => Number((await page.textContent("#step"))!.replaceAll(/\D/g, ""));
const transform = (id: string): Promise<string | null> => page.getAttribute(`#${id}`, "transform");

test("the page opens at step 0 and plays, and waits where less motion is asked for", async () => {
  for (const reducedMotion of ["no-preference", "reduce"] as const) {
    const other = await browser.newPage({ reducedMotion });
    await other.addInitScript(() => {
      const seen: number[] = [];
      Object.assign(window, { seen });
      new MutationObserver(() => seen.push(Number(document.querySelector("#step")?.textContent?.replaceAll(/\D/g, "") ?? 0)))
        .observe(document, { subtree: true, childList: true, characterData: true });
    });
    await other.goto(PAGE);
    await other.waitForSelector(".rim path", { state: "attached" });
    await other.waitForTimeout(500);
    const seen = await other.evaluate(() => (window as unknown as { seen: number[] }).seen);
    const last = seen.at(-1)!;
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    if (reducedMotion === "reduce") expect(last).toBe(0);
    else {
      expect(last).toBeGreaterThan(0);
      expect(last).toBeLessThan(1000);
    }
    await other.close();
  }
}, MINUTE);

test("the legend names every part of the planes, and each path by what tells it apart", async () => {
  const other = await browser.newPage({ reducedMotion: "reduce" });
  await other.goto(PAGE);
  const legend = (): Promise<string> => other.locator(".legend").allTextContents().then((all) => all.join(" "));
  for (const part of ["Att-SVM", "ball", "margins", "constraints", "contours", "best tokens", "locally optimal", "logarithmic"]) {
    expect(await legend()).toContain(part);
  }
  const scenes = {
    "Two optimisers, two directions": ["ℓ1.1 mirror descent", "normalised gradient descent"],
    "Sign descent with long steps": ["sign descent, step 0.02", "sign descent, step 2"],
    "Factors against the matrix": ["normalised gradient descent on W", "normalised gradient descent on K, Q"],
  };
  const colours = new Set<string>();
  for (const [label, names] of Object.entries(scenes)) {
    await other.selectOption("#preset", { label });
    expect(await other.locator("#paths span").allTextContents()).toEqual(names);
    for (const [k, drawn] of (await other.locator("path.made").all()).entries()) {
      const stroke = await drawn.evaluate((path) => getComputedStyle(path).stroke);
      colours.add(stroke);
      expect(await other.locator("#paths i").nth(k).evaluate((mark) => getComputedStyle(mark).backgroundColor)).toBe(stroke);
    }
  }
  expect(colours.size).toBe(2);
  await other.close();
}, MINUTE);

test("the slider moves through the steps", async () => {
  await page.waitForFunction(() => Number(document.querySelector("#step")!.textContent!.replaceAll(/\D/g, "")) > 1000);
  await page.fill("#scrub", "2.3");
  await page.waitForFunction(() => document.querySelector("#step")!.textContent === "step 100");
  await page.fill("#scrub", "0");
  await page.waitForFunction(() => document.querySelector("#step")!.textContent === "step 0");
}, MINUTE);

test("play goes on, and pause stays", async () => {
  await page.click("#play");
  await page.waitForFunction(() => Number(document.querySelector("#step")!.textContent!.replaceAll(/\D/g, "")) > 5);
  await page.click("#play");
  await page.waitForTimeout(100);
  const paused = await step();
  await page.waitForTimeout(300);
  expect(await step()).toBe(paused);
  await page.click("#next");
  await page.waitForTimeout(200);
  expect(await step()).toBeGreaterThan(paused);
}, MINUTE);

test("a token follows the mouse and the arrow keys", async () => {
  const before = await transform("token-0-1");
  const box = (await page.locator("#token-0-1").boundingBox())!;
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + 60, box.y + 40, { steps: 4 });
  await page.mouse.up();
  await page.waitForTimeout(200);
  const dragged = await transform("token-0-1");
  expect(dragged).not.toBe(before);
  await page.focus("#token-0-1");
  await page.keyboard.press("ArrowLeft");
  await page.waitForTimeout(200);
  expect(await transform("token-0-1")).not.toBe(dragged);
  for (const label of ["Pause", "Play"]) {
    await page.keyboard.press("Space");
    await page.waitForFunction((of) => document.querySelector("#play")!.getAttribute("aria-label") === of, label);
  }
}, MINUTE);

test("Space plays after a drag, whatever had the focus before", async () => {
  await page.focus("#preset");
  const box = (await page.locator("#token-0-0").boundingBox())!;
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 + 12, box.y + box.height / 2, { steps: 3 });
  await page.mouse.up();
  for (const label of ["Pause", "Play"]) {
    await page.keyboard.press("Space");
    await page.waitForFunction((of) => document.querySelector("#play")!.getAttribute("aria-label") === of, label);
  }
}, MINUTE);

test("a finger drags a token", async () => {
  const context = await browser.newContext({ viewport: { width: 400, height: 900 }, hasTouch: true });
  const phone = await context.newPage();
  await phone.goto(PAGE);
  await phone.waitForSelector("#token-0-1");
  const before = await phone.getAttribute("#token-0-1", "transform");
  await phone.locator("#token-0-1").scrollIntoViewIfNeeded();
  const box = (await phone.locator("#token-0-1").boundingBox())!;
  const at = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  const session = await context.newCDPSession(phone);
  await session.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [at] });
  for (const by of [10, 20, 30]) await session.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: [{ x: at.x + by, y: at.y }] });
  await session.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
  await phone.waitForFunction((old) => document.querySelector("#token-0-1")!.getAttribute("transform") !== old, before);
  await context.close();
}, MINUTE);

test("the start of W and of (K, Q) is dragged to where it is drawn", async () => {
  for (const attention of ["combined", "factored"]) {
    const scene = {
      name: attention, note: "", attention, start: [0.4, -0.2],
      sequences: [{ label: 1, query: [0.8, 0.5], tokens: [{ at: [1, 0.2] }, { at: [-0.5, 0.8] }, { at: [-0.6, -0.7] }] }],
    };
    const link = Buffer.from(JSON.stringify(scene)).toString("base64url");
    const other = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await other.goto(`${PAGE}#scene=${link}`);
    await other.waitForSelector("#start");
    const box = (await other.locator("#start circle.touch").boundingBox())!;
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    await other.mouse.move(x, y);
    await other.mouse.down();
    await other.mouse.move(x + 25, y - 15, { steps: 3 });
    await other.mouse.up();
    await other.waitForTimeout(200);
    const moved = (await other.locator("#start circle.touch").boundingBox())!;
    expect(Math.hypot(moved.x - box.x - 25, moved.y - box.y + 15)).toBeLessThan(1.5);
    expect(await other.locator(".landscape path").count()).toBeGreaterThan(2);
    await other.waitForSelector(".rim path", { state: "attached" });
    await other.close();
  }
}, MINUTE);

test("the picture is saved as PNG", async () => {
  await page.click(".menu summary");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#png")]);
  const bytes = await readFile(await download.path());
  expect([...bytes.subarray(0, 8)]).toEqual([137, 80, 78, 71, 13, 10, 26, 10]);
  const size = await page.evaluate(async (text) => {
    const image = new Image();
    image.src = `data:image/png;base64,${text}`;
    await image.decode();
    return [image.naturalWidth, image.naturalHeight];
  }, bytes.toString("base64"));
  expect(size[0]).toBeGreaterThan(size[1]); // both planes, side by side
  await page.click(".menu summary");
}, MINUTE);

test.each([400, 700, 1280, 2000])("nothing is wider than a window of %d px", async (width) => {
  const other = await browser.newPage({ viewport: { width, height: 900 } });
  await other.goto(PAGE);
  await other.waitForSelector("#token-0-0");
  expect(await other.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
  await other.close();
}, MINUTE);

test.each(["light", "dark"] as const)("axe finds no violation in the %s page", async (colorScheme) => {
  const other = await browser.newPage({ colorScheme });
  await other.goto(PAGE);
  await other.waitForSelector("#token-0-0");
  await other.evaluate(axe.source);
  const found = await other.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run(document));
  expect(found.violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])).toEqual([]);
  await other.close();
}, MINUTE);

test("tokens and sequences are counted from 0", async () => {
  expect(await page.getAttribute("#token-0-1", "aria-label")).toMatch(/^Token 1 of sequence 0,/);
  expect(await page.textContent(".legend")).toContain("counted from 0");
});

test("a link holds the scene", async () => {
  await page.click("#share");
  await page.waitForFunction(() => location.hash.startsWith("#scene="));
  const other = await browser.newPage();
  await other.goto(page.url());
  await other.waitForSelector("#token-0-1");
  expect(await other.getAttribute("#token-0-1", "aria-label")).toContain((await page.getAttribute("#token-0-1", "aria-label"))!.split("at ").at(-1));
  expect(await other.$eval("#preset option:checked", (option) => option.textContent)).toBe("own scene");
  const shared = await other.getAttribute("#token-0-1", "transform");
  await other.focus("#token-0-1");
  await other.keyboard.press("ArrowLeft");
  await other.waitForFunction((at) => document.querySelector("#token-0-1")!.getAttribute("transform") !== at, shared);
  await other.click("#reset");
  await other.waitForFunction((at) => document.querySelector("#token-0-1")!.getAttribute("transform") === at, shared);
  await other.close();
}, MINUTE);

test("what a link that cannot be read says stays until the next click", async () => {
  const other = await browser.newPage();
  await other.goto(`${PAGE}#scene=eyJ`);
  const said = other.locator("#toast");
  await other.waitForTimeout(4500);
  expect(await said.textContent()).toMatch(/^The link cannot be read.*first scene/);
  expect(await other.textContent("#note")).toContain("Gradient descent");
  await other.click("h1");
  expect(await said.isVisible()).toBe(false);
  await other.evaluate(() => { location.hash = "#scene=e30"; });
  await said.waitFor();
  expect(await said.textContent()).toMatch(/sequences: expected.*stays as it was/);
  await other.close();
}, MINUTE);

test("statements are those of the step, and terms show their definition and lead to their guide", async () => {
  const other = await browser.newPage({ reducedMotion: "reduce" });
  await other.addInitScript(() => document.addEventListener("DOMContentLoaded", () => { document.documentElement.dataset["guides"] = "../guide/"; }));
  await other.goto(PAGE);
  const saturated = (): Promise<string | null> => other.getAttribute("#answer li:has-text('saturated')", "class");
  await other.waitForSelector("#answer li.no:has-text('saturated')");
  await other.fill("#scrub", "4.3");
  await other.waitForSelector("#answer h3:has-text('globally at step 10,000')");
  expect(await saturated()).toBe("yes");
  const tip = other.locator("#tip");
  await other.hover("#answer dt .term:has-text('direction error')");
  expect(await tip.textContent()).toMatch(/^1 − cosine similarity/);
  await other.hover("h1");
  expect(await tip.isVisible()).toBe(false);
  await other.focus("#answer .term:has-text('Convergence')");
  expect(await tip.textContent()).toMatch(/^Global: each query/);
  expect(await other.getAttribute("#answer .term:has-text('Convergence')", "href")).toBe("../guide/theory.html#kinds-of-convergence");
  await other.close();
}, MINUTE);

test("a saved scene is opened again", async () => {
  await page.selectOption("#preset", { label: "Three sequences" });
  await page.waitForSelector("#token-2-0");
  await page.click(".menu summary");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#json")]);
  const path = await download.path();
  expect(JSON.parse(await readFile(path, "utf8"))).toHaveProperty("tokens");
  await page.selectOption("#preset", { label: "Two optimisers, two directions" });
  await page.waitForSelector("#token-2-0", { state: "detached" });
  await page.setInputFiles("#import", path);
  await page.waitForSelector("#token-2-0");
}, MINUTE);

test("every scene is drawn without an error", async () => {
  const names = await page.$$eval("#preset option:not([disabled])", (options) => options.map((option) => option.textContent!));
  for (const name of names) {
    await page.selectOption("#preset", { label: name });
    await page.waitForTimeout(150);
    expect(await page.textContent("#note")).toContain(name);
    const broken = await page.$$eval("svg *", (all) => all.filter((one) => [...one.attributes].some((a) => /NaN|Infinity|undefined/.test(a.value))).length);
    expect(broken, name).toBe(0);
  }
}, MINUTE);

test("Chromium computes what Node does", async () => {
  const cases = readCases(fileURLToPath(new URL("../tests/cases.json", import.meta.url)));
  const { build } = await import("vite");
  const entry = fileURLToPath(new URL("../proof/compare.ts", import.meta.url));
  const output = await build({
    configFile: false, logLevel: "silent", root: fileURLToPath(new URL("..", import.meta.url)),
    build: { write: false, lib: { entry, formats: ["iife"], name: "proof" }, rollupOptions: { external: ["node:fs"], output: { globals: { "node:fs": "({})" } } } },
  });
  const [{ output: [chunk] }] = output as unknown as [{ output: [{ code: string }] }];
  await page.addScriptTag({ content: chunk.code });
  const inBrowser = await page.evaluate((of) => (window as unknown as { proof: { compareAll(c: unknown): unknown } }).proof.compareAll(of), cases as unknown);
  const found = inBrowser as ReturnType<typeof compareAll>;
  expect(found.svm.statuses).toEqual([]);
  expect(Math.max(found.svm.value, found.svm.gap)).toBeLessThan(1e-9);
  for (const { error } of Object.values(found.steps)) expect(error).toBeLessThan(1e-12);
  expect(found.paths.error).toBeLessThan(1e-9);
}, MINUTE);
