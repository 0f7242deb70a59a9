/** The widget's module as node takes it: it has no imports, so its text is all there is. */
import { readFileSync } from "node:fs";

const file = new URL("../../../workbench/widgets/divergence.js", import.meta.url);
const source = readFileSync(file, "utf8");

/** @type {typeof import("../../../workbench/widgets/divergence.js")} */
export const widget = await import(
  `data:text/javascript;base64,${Buffer.from(source).toString("base64")}`
);
