// Elements, and how numbers and times are written. Text becomes text nodes only, whoever has chosen it.

const svgNamespace = "http://www.w3.org/2000/svg";

// fill gives an element attributes and children. A function is what is called on an event, false and null are left out.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((c) => c != null && c !== false));
  return node;
}

// el makes an element: el("p", {class: "note"}, "text", el("b", null, "more")).
export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// svg does the same for pictures.
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(svgNamespace, name), attributes, children);
}

// setText changes what is read only if it is another text, so that screen readers and selections are left alone.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const units = ["", " k", " M", " G", " T", " P"];

function scaled(n, step) {
  let i = 0;
  while (n >= step * 0.9995 && i < units.length - 1) {
    n /= step;
    i++;
  }
  const digits = i === 0 ? (Number.isInteger(n) || n >= 100 ? 0 : 1) : n < 10 ? 2 : n < 100 ? 1 : 0;
  return n.toFixed(digits) + units[i];
}

export const number = (n) => (n == null ? "–" : Math.abs(n) < 100000 ? n.toLocaleString("en") : scaled(n, 1000));
export const rate = (n) => (n == null ? "–" : scaled(n, 1000) + "/s");
export const bits = (n) => (n == null ? "–" : scaled(n, 1000) + (n < 1000 ? " bit/s" : "bit/s"));
export const bytes = (n) => scaled(n, 1000) + (n < 1000 ? " B" : "B");

// below writes how long handshakes took. The data path counts them in steps: each number is an upper bound.
export const below = (seconds) => (seconds ? `< ${seconds < 1 ? `${scaled(seconds * 1000, 1e9)} ms` : `${scaled(seconds, 1e9)} s`}` : "–");

// ago is how long ago a moment was.
export function ago(time) {
  const seconds = Math.round((Date.now() - new Date(time)) / 1000);
  return seconds < 1 ? "now" : `${duration(seconds)} ago`;
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// sentence begins with a capital letter and ends with a full stop.
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");

const two = (n) => String(n).padStart(2, "0");

// clock is the time of day.
export function clock(time) {
  const t = new Date(time);
  return `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
}

// badge is a state as a word with a colour and a shape of its own.
export function badge(kind, word) {
  return el("span", { class: `badge ${kind}` }, word);
}
