// Writes every generated dashboard as a TypeScript literal of Grafana's own
// types and has tsc look at it: unknown, missing and mistyped fields, and
// values that are none of a list, are errors.
//
//   node check.mjs FOLDER-OF-JSON
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const from = process.argv[2];
if (!from) {
  console.error("usage: node check.mjs FOLDER");
  process.exit(2);
}
const composable = "@grafana/schema/dist/esm/raw/composable/";
const panels = {
  stat: ["StatPanelCfg", false], bargauge: ["BarGaugePanelCfg", false], table: ["TablePanelCfg", false],
  timeseries: ["TimeSeriesPanelCfg", true], "status-history": ["StatusHistoryPanelCfg", false], "state-timeline": ["StateTimelinePanelCfg", false],
};
const alias = type => type.replace("-", "");
const lines = [
  `import type { Dashboard } from "@grafana/schema";`,
  ...Object.entries(panels).map(([type, [file]]) => `import type * as ${alias(type)} from "${composable}${alias(type)}/panelcfg/x/${file}_types.gen";`),
  // A dashboard is JSON: a string stands for each value of a list of strings.
  `type Plain<T> = T extends string ? \`\${T}\` : T extends number | boolean | null | undefined ? T : T extends Array<infer U> ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;`,
];
const where = []; // of each literal, by its line
const literal = (what, type, value) => {
  where.push([lines.length, what]);
  lines.push(`export const v${where.length}: Plain<${type}> = ${JSON.stringify(value)};`);
};
let boards = 0, checked = 0;
for (const name of readdirSync(from).filter(n => n.endsWith(".json")).sort()) {
  const board = JSON.parse(readFileSync(join(from, name), "utf8"));
  boards++;
  literal(name, "Dashboard", board);
  for (const p of board.panels.filter(p => p.type !== "row")) {
    const known = panels[p.type];
    if (!known) {
      console.error(`${name}: ${p.title}: no types are known for a panel of type ${p.type}`);
      process.exitCode = 1;
      continue;
    }
    checked++;
    // Partial: Grafana has defaults for what a panel leaves out.
    literal(`${name}: ${p.title}: options`, `Partial<${alias(p.type)}.Options>`, p.options ?? {});
    if (p.fieldConfig?.defaults?.custom) literal(`${name}: ${p.title}: custom`, known[1] ? `Partial<${alias(p.type)}.FieldConfig>` : "{}", p.fieldConfig.defaults.custom);
  }
}
writeFileSync("check.ts", lines.join("\n") + "\n");
const tsc = spawnSync("node", ["node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "--skipLibCheck", "--pretty", "false", "check.ts"], { encoding: "utf8" });
for (const line of (tsc.stdout + tsc.stderr).split("\n").filter(Boolean)) {
  const at = /^check\.ts\((\d+),/.exec(line);
  const what = at && where.filter(([n]) => n < at[1]).pop();
  console.error(what ? `${what[1]}: ${line}` : line);
}
if (tsc.status !== 0 || boards < 10 || checked < 100) process.exitCode = 1;
if (!process.exitCode) console.log(`${boards} dashboards with ${checked} panels are what @grafana/schema and tsc expect`);
