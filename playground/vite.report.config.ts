import { defineConfig } from "vite";

/** The zoom of the pages of results: one script that the templates of attsvm.pages inline. */
export default defineConfig({
  build: {
    outDir: "../src/attsvm/pages/templates",
    emptyOutDir: false,
    target: "es2022",
    reportCompressedSize: false,
    lib: { entry: "src/report/zoom.ts", formats: ["iife"], name: "zoom", fileName: () => "zoom.js" },
    rolldownOptions: { output: { banner: "/* With d3-scale, d3-zoom and what they need: © Mike Bostock and others, ISC, BSD-3-Clause and MIT. */" } },
  },
});
