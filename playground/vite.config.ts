import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

/** The page is one file without requests, so that it works from a file:// address. */
export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
  build: { outDir: "../src/attsvm/playground/page", emptyOutDir: true, target: "es2022", reportCompressedSize: false },
});
