// Runs the files of a folder in onnxruntime-web: node run_files.mjs PACKAGES FOLDER RESULTS
import fs from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [packages, folder, results] = process.argv.slice(2);
const dist = path.join(packages, "onnxruntime-web", "dist");
const ort = await import(pathToFileURL(path.join(dist, "ort.wasm.min.mjs")).href);
ort.env.wasm.wasmPaths = `${pathToFileURL(dist).href}/`;
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";

const kinds = { float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array };
const decode = ({ dtype, shape, data }) => {
  const bytes = new Uint8Array(Buffer.from(data, "base64"));
  return new ort.Tensor(dtype, new kinds[dtype](bytes.buffer), shape);
};
const encode = ({ type, dims, data }) => ({
  dtype: type,
  shape: [...dims],
  data: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64"),
});
const rows = JSON.parse(await fs.readFile(path.join(folder, "index.json"), "utf8"));
const lines = [];
for (const row of rows) {
  const line = { name: row.name };
  try {
    const session = await ort.InferenceSession.create(await fs.readFile(path.join(folder, row.file)));
    const inputs = Object.entries(row.inputs).map(([name, coded]) => [name, decode(coded)]);
    const outputs = await session.run(Object.fromEntries(inputs));
    line.outputs = Object.fromEntries(
      Object.keys(row.expected).map((name) => [name, encode(outputs[name])]),
    );
    await session.release();
  } catch (error) {
    line.error = String(error.message ?? error);
  }
  lines.push(JSON.stringify(line));
}
await fs.writeFile(results, `${lines.join("\n")}\n`);
