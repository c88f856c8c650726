/** Prints how long the first picture takes, and script and drawing of a frame while sequences play: `node measure.mjs 20 40`. */

import { chromium } from "playwright-core";

const [n, T] = [process.argv[2] ?? 6, process.argv[3] ?? 8].map(Number);
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
await page.goto(new URL("../../src/attsvm/playground/page/index.html", import.meta.url).href);
await page.waitForSelector("#token-0-0");
const first = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
console.log(`first contentful paint: ${Math.round(first)} ms`);
const sequences = Array.from({ length: n }, (_, i) => ({
  label: i % 2 === 0 ? 1 : -1,
  query: [1, 0],
  tokens: Array.from({ length: T }, (_, t) => ({ at: [1.5 * Math.sin(7.1 * i + 2.3 * t), 1.5 * Math.cos(3.7 * i + 5.9 * t)] })),
}));
const optimizers = ["normalized_gradient_descent", "mirror_descent"].map((name) => ({ name, rate: 0.1, schedule: "constant", p: 1.5 }));
const scene = Buffer.from(JSON.stringify({ name: "measured", note: "", sequences, optimizers })).toString("base64url");
await page.evaluate((fragment) => { location.hash = fragment; }, `scene=${scene}`);
await page.waitForSelector(`#token-${n - 1}-${T - 1}`);
await page.evaluate(() => { playground.frames.length = 0; });
await page.waitForTimeout(6000);
const frames = await page.evaluate(() => [...playground.frames].sort((a, b) => a - b));
const at = (share) => frames[Math.floor(share * (frames.length - 1))].toFixed(1);
console.log(`${await page.locator(".handle[id^=token]").count()} tokens, ${frames.length} frames in 6 s; script and drawing: median ${at(0.5)} ms, 95th percentile ${at(0.95)} ms`);
await browser.close();
