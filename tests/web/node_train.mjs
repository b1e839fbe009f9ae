// Trains in Node with the files of a page; prints the losses as JSON, and writes trained.onnx beside them.
import fs from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [site, packages, steps, size] = process.argv.slice(2);
const dist = path.join(packages, "onnxruntime-web", "dist");
const ort = await import(pathToFileURL(path.join(dist, "ort.wasm.min.mjs")).href);
ort.env.wasm.wasmPaths = `${pathToFileURL(dist).href}/`;
ort.env.wasm.numThreads = 1;
const copy = path.join(path.dirname(site), `${path.basename(site)}-trainer.mjs`);
await fs.copyFile(path.join(site, "trainer.js"), copy);
const { Trainer, readSafetensors } = await import(pathToFileURL(copy).href);
const read = (name) => fs.readFile(path.join(site, name));
const manifest = JSON.parse(await read("manifest.json"));
const [train, init] = await Promise.all(
  ["train.onnx", "init.onnx"].map(async (name) => {
    const files = manifest.external[name] ?? [];
    const externalData = await Promise.all(files.map(async (file) => ({ path: file, data: await read(file) })));
    return ort.InferenceSession.create(await read(name), externalData.length ? { externalData } : {});
  }),
);
const trainer = await new Trainer(ort, manifest, train, init).reset();
const bytes = await read(manifest.data);
const data = readSafetensors(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
trainer.rowsOf(data);
const losses = [];
for (let step = 0; step < Number(steps); step += 1) {
  const rows = Uint32Array.from({ length: Number(size) }, (_, i) => step * Number(size) + i);
  losses.push((await trainer.train(data, rows)).loss);
}
const model = await trainer.saveModel(await read("model.onnx"));
await fs.writeFile(path.join(site, "trained.onnx"), new Uint8Array(await model.arrayBuffer()));
console.log(JSON.stringify(losses));
