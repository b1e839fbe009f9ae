// Checks batches of integers with trainer.js; prints the messages, null for a batch that passes.
import fs from "node:fs";
import { pathToFileURL } from "node:url";

const [module, cases] = process.argv.slice(2);
const { checkIndices } = await import(pathToFileURL(module).href);
const messages = JSON.parse(fs.readFileSync(cases)).map(({ indices, inputs, tensors, rows }) => {
  const arrays = Object.entries(tensors).map(([name, { dims, values }]) => (
    [name, { dims, values: BigInt64Array.from(values.map(BigInt)) }]
  ));
  try {
    checkIndices(indices, inputs, Object.fromEntries(arrays), rows);
    return null;
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify(messages));
