// The picture of the paths from a VIP to its endpoints: the wider a line, the more it carries.
import { svg } from "./dom.js";

const most = 16; // endpoints that are drawn
const step = 46;

// paths draws endpoints of {name, state, word, rate, text} in a picture of some width; state is up, down or drained.
export function paths(wide, vip, endpoints) {
  const left = Math.min(206, wide * 0.36); // of the box of the VIP
  const right = wide - Math.min(240, wide * 0.5); // where those of the endpoints begin
  const busy = [...endpoints].sort((a, b) => b.rate - a.rate).slice(0, most);
  const shown = endpoints.filter((e) => busy.includes(e));
  const rows = shown.length + (endpoints.length > most ? 1 : 0);
  const height = Math.max(rows, 2) * step + 8;
  const top = Math.max(1, ...shown.map((e) => e.rate));
  const middle = height / 2;
  const said = shown.map((e) => `${e.name} ${e.word} ${e.text}`).join("; ");
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${height}`, height, class: "paths", role: "img", "aria-label": `Paths from ${vip.name} to its endpoints: ${said}` });
  shown.forEach((e, i) => {
    const y = 4 + step * i + step / 2;
    const line = `M${left + 4} ${middle} C ${(left + right) / 2} ${middle}, ${(left + right) / 2} ${y}, ${right} ${y}`;
    picture.append(
      svg("path", { d: line, class: `way ${e.state}`, "stroke-width": (1.5 + (10 * e.rate) / top).toFixed(1) }),
      box(right, y, wide - right - 4, e.name, `${e.word} · ${e.text}`, e.state));
  });
  if (rows > shown.length) {
    picture.append(svg("text", { x: right + 10, y: height - step / 2, class: "more" }, `and ${endpoints.length - most} more`));
  }
  picture.append(box(4, middle, left, vip.name, vip.text, "vip"));
  return picture;
}

function box(x, y, width, title, text, state) {
  return svg("g", { class: `box ${state}` },
    svg("rect", { x, y: y - 19, width, height: 38, rx: 6 }),
    svg("text", { x: x + 10, y: y - 3, class: "title" }, cut(title, (width - 12) / 7.9)),
    svg("text", { x: x + 10, y: y + 13 }, cut(text, (width - 12) / 6.9)));
}

function cut(text, length) {
  return text.length <= length ? text : text.slice(0, Math.max(1, Math.floor(length) - 1)) + "…";
}
