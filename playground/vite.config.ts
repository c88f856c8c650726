import { readFileSync } from "node:fs";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";
import { TERMS } from "./src/page/terms.ts";

/** The definitions of the page's terms in plain text, as attsvm/pages/glossary.py makes it for pages of results. */
function definitions(): Record<string, string> {
  const glossary = readFileSync(new URL("../src/attsvm/pages/glossary.md", import.meta.url), "utf8");
  const found: Record<string, string> = {};
  for (const section of glossary.split(/^##+ /m).slice(1)) {
    const [names, ...lines] = section.split("\n");
    const text = lines.join(" ").trim().split(/\s+/).join(" ").replace(/\[([^\]]+)\]\([^)]*\)/g, "$1")
      .replace(/[*`](\S(?:[^*`]*\S)?)[*`]/g, "$1").replace(/\s*\[\d[^\]]*\](,\s*\[\d[^\]]*\])*/g, "");
    for (const name of names.split(", ")) found[name] = text;
  }
  for (const [entry] of Object.values(TERMS)) if (!found[entry]) throw new Error(`glossary.md: expected an entry ${entry}`);
  return Object.fromEntries(Object.values(TERMS).map(([entry]) => [entry, found[entry]]));
}

/** The page is one file without requests, so that it works from a file:// address. */
export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
  define: { DEFINITIONS: JSON.stringify(definitions()) },
  build: { outDir: "../src/attsvm/playground/page", emptyOutDir: true, target: "es2022", reportCompressedSize: false },
});
