// A line chart as SVG: no library, readable in light and dark.

const NS = "http://www.w3.org/2000/svg";

function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const first = Math.ceil(low / step - 1e-9) * step;
  const found = [];
  for (let value = first; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace(/\.?0+e/, "e");
}

function add(parent, name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

// Draws y over x into `svg`, in the pixels of its box, so that letters keep their size.
export function draw(svg, xs, ys, { label = "", below = "", mark = null } = {}) {
  svg.replaceChildren();
  const { clientWidth: width, clientHeight: height } = svg;
  if (!width || !height) return null;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const box = { left: 62, right: width - 12, top: 22, bottom: height - 26 };
  const finite = ys.filter(Number.isFinite);
  if (finite.length === 0) return null;
  let low = finite.reduce((a, b) => Math.min(a, b));
  let high = finite.reduce((a, b) => Math.max(a, b));
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  const [first, last] = [xs[0], xs[xs.length - 1]];
  const x = (v) => box.left + ((v - first) / (last - first || 1)) * (box.right - box.left);
  const y = (v) => box.bottom - ((v - low) / (high - low)) * (box.bottom - box.top);
  for (const value of ticks(low, high, 4)) {
    add(svg, "line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value), class: "grid" });
    add(svg, "text", { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value));
  }
  for (const value of ticks(first, last, 5)) {
    const isAtEnd = x(value) > box.right - 16;
    const place = isAtEnd ? { x: width - 2, "text-anchor": "end" } : { x: x(value), "text-anchor": "middle" };
    add(svg, "text", { ...place, y: box.bottom + 17 }, short(value));
  }
  let path = "";
  let isDown = false;
  ys.forEach((value, i) => {
    if (!Number.isFinite(value)) {
      isDown = false;
      return;
    }
    path += `${isDown ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    isDown = true;
  });
  add(svg, "path", { d: path, class: "line" });
  if (Number.isFinite(ys[mark])) {
    add(svg, "line", { x1: x(xs[mark]), x2: x(xs[mark]), y1: box.top, y2: box.bottom, class: "mark" });
    add(svg, "circle", { cx: x(xs[mark]), cy: y(ys[mark]), r: 4, class: "dot" });
  }
  add(svg, "text", { x: box.left, y: 13, class: "label" }, label);
  add(svg, "text", { x: box.right, y: box.bottom - 6, "text-anchor": "end", class: "label" }, below);
  return { left: box.left, right: box.right, first, last };
}

// Returns a function as draw(), without its first argument, that draws again when the box changes.
export function follow(svg) {
  let given = null;
  let drawn = null;
  const again = () => {
    drawn = given && draw(svg, ...given);
  };
  const show = (...all) => {
    given = all;
    again();
  };
  // The whole x under a pointer; null where nothing is drawn.
  show.stepAt = (event) => {
    if (!drawn) return null;
    const share = (event.clientX - svg.getBoundingClientRect().left - drawn.left) / (drawn.right - drawn.left);
    return Math.round(drawn.first + Math.min(1, Math.max(0, share)) * (drawn.last - drawn.first));
  };
  new ResizeObserver(again).observe(svg);
  return show;
}
