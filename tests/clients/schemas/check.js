// check.js PLATFORM: reads lines {"name", "value"} and says which values are not of the type that PLATFORM.ts exports for
// their name. The types are others'; what PLATFORM.ts does is to say which of them is meant.
"use strict";

const fs = require("fs");
const path = require("path");

const modules = process.env.NODE_PATH;
const { createGenerator } = require("ts-json-schema-generator");
const Ajv = require("ajv");

const platform = process.argv[2];
const source = fs.readFileSync(path.join(__dirname, `${platform}.ts`), "utf8");
const known = new Set([...source.matchAll(/^export type (\w+) =/gm)].map((found) => found[1]));

// Imports are looked up from where a file lies.
const beside = path.join(path.dirname(modules), `${platform}-${process.pid}.ts`);
const settings = path.join(path.dirname(modules), `${platform}-${process.pid}.json`);
fs.writeFileSync(beside, source);
fs.writeFileSync(settings, JSON.stringify({
  compilerOptions: { strict: true, module: "nodenext", moduleResolution: "nodenext", target: "es2022", types: [] },
  files: [beside],
}));

const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
const checks = new Map();

// Flags are sums of what they are listed as, and a choice that the generator cannot work out comes as one of nothing.
function opened(key, schema) {
  if (/flags$/i.test(key) && schema && schema.const === 1) return { type: "integer" };
  const choice = schema && schema.enum;
  if (!Array.isArray(choice)) return schema;
  const isFlag = (value) => Number.isInteger(value) && value > 0 && Number.isInteger(Math.log2(value));
  if (choice.length > 0 && !(choice.includes(2) && choice.includes(4) && choice.every(isFlag))) return schema;
  const { enum: _, ...rest } = schema;
  return rest;
}

function check(type) {
  if (!checks.has(type)) {
    const generator = createGenerator({
      path: beside, tsconfig: settings, type, skipTypeCheck: true, additionalProperties: false, encodeRefs: false,
    });
    checks.set(type, ajv.compile(JSON.parse(JSON.stringify(generator.createSchema(type)), opened)));
  }
  return checks.get(type);
}

const input = fs.readFileSync(0, "utf8");
const wrong = new Set();
let count = 0;
try {
  for (const line of input.split("\n").filter(Boolean)) {
    const { name, value } = JSON.parse(line);
    const type = name.replace(/\W/g, "_");
    count += 1;
    if (!known.has(type)) {
      wrong.add(`${name}: ${platform}.ts has no type for it`);
      continue;
    }
    const is = check(type);
    if (!is(value)) {
      // Of a choice every branch complains; what lies deepest is most likely what is meant.
      const deep = (error) => error.instancePath.split("/").length;
      const most = Math.max(...is.errors.map(deep));
      for (const error of is.errors.filter((error) => deep(error) === most).slice(0, 8)) {
        wrong.add(`${name}: at ${error.instancePath || "/"} ${error.message} ${JSON.stringify(error.params)}`);
      }
    }
  }
} catch (error) {
  wrong.add(String(error.message ?? error).split("\n")[0]);
} finally {
  fs.rmSync(beside);
  fs.rmSync(settings);
}
for (const sentence of wrong) console.log(sentence);
console.error(`${count} values of ${checks.size} types`);
process.exit(wrong.size === 0 && count > 0 ? 0 : 1);
