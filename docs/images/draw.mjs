// Draws overview.svg of overview.dot: `make pictures`. The comment at its end lets a test see that both belong together.
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const here = new URL(".", import.meta.url);
const library = createRequire(pathToFileURL(process.argv[2] + "/")).resolve("@viz-js/viz");
const { instance } = await import(pathToFileURL(library));
const source = readFileSync(new URL("overview.dot", here), "utf8");
const svg = (await instance()).renderString(source, { format: "svg" });
const digest = createHash("sha256").update(source).digest("hex");
writeFileSync(new URL("overview.svg", here), `${svg.trimEnd()}\n<!-- of overview.dot, sha256 ${digest} -->\n`);
