// The fields of a page that trains: values that are checked, hyperparameters, downloads, the address.

import { at, element, putIntoAddress } from "./page.js";

// The value of a field: an integer of at least `least`, or any number if it is null.
export function number(id, least = null) {
  const field = at(id);
  const value = field.value.trim() === "" ? NaN : Number(field.value);
  if (least === null ? Number.isFinite(value) : Number.isInteger(value) && value >= least) return value;
  const name = field.closest("label").textContent.trim().toLowerCase();
  field.focus();
  const kind = least === null ? "a number" : `an integer of at least ${least}`;
  throw new Error(`The ${name} must be ${kind}; got "${field.value}".`);
}

const hypers = () => [...at("hypers").querySelectorAll("input")];

export function hyperValues() {
  return Object.fromEntries(hypers().map((input) => [input.name, number(input.id)]));
}

// A field for each input of the graph that is neither carried, nor data, nor drawn.
export function offerHypers(manifest) {
  const known = ["step", "param.", "state.", "shared.", "buffer.", "batch.", "random."];
  for (const { name } of manifest.inputs) {
    if (known.some((part) => (part.endsWith(".") ? name.startsWith(part) : name === part))) continue;
    const label = element(at("hypers"), "label", {}, name);
    element(label, "input", { type: "text", id: `hyper-${name}`, name, value: "0.01", inputmode: "decimal" });
  }
}

// These fields and the hyperparameters, as the address has them: those that were changed.
export function fields(ids) {
  return [...ids.map(at), ...hypers()];
}

export function share(ids, others = []) {
  const changed = fields(ids).filter((field) => field.value !== field.defaultValue);
  putIntoAddress([...changed.map((field) => [field.name || field.id, field.value]), ...others]);
  at("copied").textContent = "";
}

export function readAddress(ids) {
  const given = new URLSearchParams(location.search);
  for (const field of fields(ids)) {
    const value = given.get(field.name || field.id);
    if (value !== null) field.value = value;
  }
  return given;
}

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
