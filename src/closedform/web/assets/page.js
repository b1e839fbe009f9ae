// What the pages have in common: elements, files with errors that say what to do, links to share.

export const at = (id) => document.getElementById(id);

export function element(parent, tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

// A formula wider than its box is made smaller, down to where it can still be read; beyond that it scrolls.
export function fit(formula) {
  formula.style.fontSize = "";
  const share = formula.clientWidth / formula.scrollWidth;
  if (share < 1) formula.style.fontSize = `${Math.max(0.65, share * 0.98)}em`;
  if (formula.scrollWidth <= formula.clientWidth) return;
  formula.tabIndex = 0;
  formula.setAttribute("role", "group");
  formula.setAttribute("aria-label", "formula");
}

export function fail(error) {
  at("error").textContent = error.message ?? String(error);
}

// The bytes of a file beside the page. `remedy` says how a missing file is made.
export async function load(file, remedy) {
  let response;
  try {
    response = await fetch(file);
  } catch {
    throw new Error(`${file} could not be loaded: the server does not respond. Start it again with `
      + "`python -m http.server`, then retry.");
  }
  if (!response.ok) throw new Error(`${file} could not be loaded (HTTP ${response.status}). ${remedy}`);
  try {
    return await response.arrayBuffer();
  } catch {
    const size = response.headers.get("content-length") ?? "an unknown number of";
    throw new Error(`${file} has ${size} bytes, which this browser could not load: it has no memory for them, `
      + "or the transfer was cut. Close other pages and retry, or train with closedform.training.TrainSession.");
  }
}

export async function loadJson(file, remedy) {
  const text = new TextDecoder().decode(await load(file, remedy));
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${file} is not valid JSON: ${error.message}. ${remedy}`);
  }
}

// onnxruntime with its WebAssembly file, imported once; another attempt follows a failure. A query
// imports it once more.
export async function loadRuntime(remedy, file = "ort.wasm.min.mjs", query = "") {
  try {
    const ort = await import(`./ort/${file}${query}`);
    ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
    ort.env.wasm.numThreads = 1;
    return ort;
  } catch (error) {
    throw new Error(`onnxruntime-web could not be loaded from ort/: ${error.message}. ${remedy}`);
  }
}

// `external` has the names of files with external data by model, as in a manifest.
export async function openGraph(ort, file, remedy, external = {}) {
  const bytes = new Uint8Array(await load(file, remedy));
  const externalData = [];
  for (const path of external[file] ?? []) {
    externalData.push({ path, data: new Uint8Array(await load(path, remedy)) });
  }
  try {
    return await ort.InferenceSession.create(bytes, externalData.length ? { externalData } : {});
  } catch (error) {
    throw new Error(`${file} cannot be run by onnxruntime-web: ${error.message}. ${remedy}`);
  }
}

// Puts these values into the address, without a new entry in the history.
export function putIntoAddress(values) {
  const search = new URLSearchParams(values).toString();
  history.replaceState(null, "", search ? `?${search}` : location.pathname);
}

// Writes a text to the clipboard; where a page may not, the text is shown to be copied by hand.
export async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    shown.textContent = "Copied.";
  } catch {
    shown.textContent = `Copy it from here: ${text}`;
  }
}
