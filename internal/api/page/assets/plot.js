// Plots of numbers over time, as SVG.
import { get, tell } from "./api.js";
import { below, bits, clock, el, number, rate, setText, svg } from "./dom.js";

const left = 72;
const top = 10;
const bottom = 22;

// round is the next larger round number: 1, 2 or 5 times a power of ten.
function round(n) {
  const power = 10 ** Math.floor(Math.log10(n || 1));
  return [1, 2, 5, 10].map((f) => f * power).find((x) => x >= n);
}

// ticks are the values with a line and a label: three of them, or fewer where labels would say the same or
// what is not so.
export function ticks(most, format) {
  const out = [];
  for (const value of [0, most / 2, most]) {
    const text = format(value).replace(/\.0+(?=\D)/, "");
    if (!out.some((t) => t.text === text) && (value === most || Number.isInteger(value) || !format.whole)) out.push({ value, text });
  }
  return out;
}

// axisEnd is the value at the upper end of an axis.
export const axisEnd = (series, least = 1) => round(Math.max(least, ...series.flat().map((p) => p[1] ?? 0)));

// Plot shows series of [milliseconds, number or null] between two moments.
export class Plot {
  constructor({ title, format, axis = format, names, least, height = 160 }) {
    Object.assign(this, { title, format, axis, names, least, height, width: 640, series: names.map(() => []), from: 0, to: 1 });
    this.picture = svg("svg", { height, role: "img", class: "plot", tabindex: 0 });
    this.readings = names.map((n, i) => el("span", { class: names.length > 1 ? `legend s${i}` : null }, n));
    this.moment = el("span", { class: "moment" });
    this.node = el("figure", null,
      el("figcaption", null, el("b", null, title), this.readings, this.moment), this.picture);
    this.picture.addEventListener("pointermove", (e) => {
      const box = this.picture.getBoundingClientRect();
      this.point(this.from + ((e.clientX - box.left - left) / (this.width - left)) * (this.to - this.from));
    });
    this.picture.addEventListener("pointerleave", () => this.point(null));
    this.picture.addEventListener("blur", () => this.point(null));
    this.picture.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step) return;
      e.preventDefault();
      this.point((this.at ?? this.to) + (step * (this.to - this.from)) / 60);
    });
  }

  x(t) { return left + ((t - this.from) / (this.to - this.from)) * (this.width - left); }
  y(v) { return this.height - bottom - (v / this.most) * (this.height - top - bottom); }

  show(series, from, to) {
    Object.assign(this, { series, from, to, width: this.picture.clientWidth || this.width });
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.most = axisEnd(series, this.least);
    const last = series.map((s) => s.at(-1)?.[1] ?? null);
    this.picture.setAttribute("aria-label", `${this.title}, ${this.names.map((n, i) => `${n || "now"} ${this.format(last[i])}`).join(", ")}; the axis ends at ${this.format(this.most)}`);
    this.mark = svg("line", { class: "mark", y1: top, y2: this.height - bottom, visibility: "hidden" });
    this.picture.replaceChildren(...this.grid(), ...series.flatMap((s, i) => this.lines(s, i)), this.mark);
    this.point(this.at ?? null);
  }

  grid() {
    const out = ticks(this.most, this.axis).flatMap(({ value, text }) => {
      const y = this.y(value);
      return [svg("line", { class: "grid", x1: left, x2: this.width, y1: y, y2: y }),
        svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, text)];
    });
    for (const f of this.width < 400 ? [0, 1] : [0, 1 / 3, 2 / 3, 1]) {
      const t = this.from + f * (this.to - this.from);
      out.push(svg("text", { x: this.x(t), y: this.height - 5, "text-anchor": ["start", "middle", "middle", "end"][Math.round(f * 3)] }, this.to - this.from < 600000 ? clock(t) : clock(t).slice(0, 5)));
    }
    return out;
  }

  // lines draws one line for each stretch of time without a gap.
  lines(points, i) {
    const out = [];
    let d = "";
    for (const [t, v] of [...points, [0, null]]) {
      if (v != null) d += `${d ? "L" : "M"}${this.x(t).toFixed(1)} ${this.y(v).toFixed(1)}`;
      else if (d) {
        out.push(svg("path", { class: `line s${i}`, d: d.includes("L") ? d : `${d}h.1` }));
        d = "";
      }
    }
    return out;
  }

  // point tells the numbers at a moment, or the last ones.
  point(t) {
    this.at = t == null ? null : Math.max(this.from, Math.min(this.to, t));
    const values = this.series.map((s) => {
      if (this.at == null) return s.at(-1);
      return s.reduce((best, p) => (best && Math.abs(best[0] - this.at) <= Math.abs(p[0] - this.at) ? best : p), null);
    });
    values.forEach((v, i) => setText(this.readings[i], `${this.names[i]} ${this.format(v?.[1] ?? null)}`.trim()));
    setText(this.moment, this.at == null || !values[0] ? "" : clock(values[0][0]));
    if (this.mark) {
      const x = this.at == null ? 0 : this.x(values[0]?.[0] ?? this.at);
      this.mark.setAttribute("visibility", this.at == null ? "hidden" : "visible");
      this.mark.setAttribute("x1", x);
      this.mark.setAttribute("x2", x);
    }
  }
}

const hour = 3600000;

const sums = (names, factor = 1) => (v) => (names.every((n) => v[n] == null) ? null : names.reduce((sum, n) => sum + (v[n] ?? 0), 0) * factor);

// positive is null where there was nothing to measure, so that the line has a gap.
const positive = (name) => (v) => v[name] || null;

// whole writes numbers of things that have no halves.
const whole = Object.assign((n) => number(n == null ? n : Math.round(n)), { whole: true });

const seconds = (n) => (n ? below(n).slice(2) : "0");

// handshakeTimes are the names of history for what a window says.
export const handshakeTimes = (h) => ({ handshakeMedian: h?.median ?? 0, handshake99: h?.p99 ?? 0 });

// LastHour is the plots of the last hour, of everything or of one service: what the daemon has kept, and what comes.
export class LastHour {
  constructor({ service = "", signal }) {
    this.plots = [
      { title: "New connections", format: rate, names: ["made", "failed", "refused"], values: ["connections", "failedHandshakes", "refused"].map((name) => sums([name])) },
      { title: "Traffic", format: bits, least: 1000, names: ["in", "out"], values: [sums(["bytesIn"], 8), sums(["bytesOut"], 8)] },
      { title: "Open connections", format: whole, names: service ? [""] : ["all", "half-open"], values: [sums(["connectionsActive"]), ...(service ? [] : [sums(["halfOpen"])])] },
      { title: "TCP handshakes", format: below, axis: seconds, least: 0.01, names: ["half", "99 %"], values: [positive("handshakeMedian"), positive("handshake99")] },
      !service && { title: "Packets dropped", format: rate, names: [""], values: [sums(["dropped"])] },
      !service && { title: "Packets", format: rate, names: ["in", "out"], values: [sums(["packetsIn"]), sums(["packetsOut"])] },
    ].filter(Boolean).map((p) => ({ ...p, plot: new Plot(p), series: p.values.map(() => []) }));
    this.node = el("div", { class: "plots" }, this.plots.map((p) => p.plot.node));
    this.waiting = [];
    get("/status/rates/history", { service }, signal).then((h) => this.fill(h)).catch(tell);
    window.addEventListener("resize", () => this.draw(), { signal });
  }

  fill({ start, step, series }) {
    const begin = Date.parse(start);
    const steps = Math.max(0, ...Object.values(series).map((s) => s.length));
    for (let i = 0; i < steps; i++) {
      const at = Object.fromEntries(Object.entries(series).map(([name, s]) => [name, s[i]]));
      this.put(begin + (i + (i < steps - 1 ? 0.5 : 0)) * step * 1000, at); // the last has not ended
    }
    this.filled = true;
    for (const [t, values] of this.waiting) this.put(t, values);
    this.draw();
  }

  // add is what is so now.
  add(time, values) {
    const t = Date.parse(time);
    if (!this.filled) return this.waiting.push([t, values]);
    this.put(t, values);
    this.draw();
  }

  put(t, values) {
    for (const p of this.plots) {
      p.series.forEach((points, i) => {
        if (points.length && points.at(-1)[0] >= t) return;
        points.push([t, p.values[i](values)]);
        while (points[0][0] < t - hour) points.shift();
      });
    }
  }

  draw() {
    const last = Math.max(0, ...this.plots.flatMap((p) => p.series.map((s) => s.at(-1)?.[0] ?? 0))) || Date.now();
    const first = Math.min(last - 60000, ...this.plots.flatMap((p) => p.series.map((s) => s[0]?.[0] ?? last)));
    for (const p of this.plots) p.plot.show(p.series, first, last);
  }
}
