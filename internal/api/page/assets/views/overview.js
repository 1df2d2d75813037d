// The first look: how much there is, what is wrong, what happened.
import { every, get, rates } from "../api.js";
import { badge, clock, el, number, rate, setText } from "../dom.js";
import { handshakeTimes, LastHour } from "../plot.js";
import { eventList } from "./events.js";
import { availability } from "./availability.js";
import { neighborTable } from "./neighbors.js";
import { kindOf } from "./words.js";

export const title = "Overview";

export function show(root, { signal }) {
  const tiles = Object.fromEntries([
    ["services", "Services", "#/services"], ["trouble", "Unhealthy", "#/services?state=trouble"], ["endpoints", "Endpoints down", "#/services?state=trouble"],
    ["connections", "Connections", "#/connections"], ["drops", "Packets dropped", "#/drops"], ["drains", "Drains", "#/drains"],
  ].map(([name, label, href]) => [name, tile(label, href)]));
  const trouble = el("ul", { class: "wrong" });
  const hour = new LastHour({ signal });
  root.append(trouble, el("div", { class: "tiles" }, Object.values(tiles).map((t) => t.node)), hour.node,
    availability({ signal }), neighborTable({ signal }), el("h2", null, "Recent events"), eventList({ signal, limit: 12 }));
  every(2000, signal, async () => {
    const [bad, drains, failed, { revisionAttr }] = await Promise.all([
      get("/status/services", { state: "trouble", sort: "state", limit: 10 }, signal), get("/config/drain/all", null, signal),
      get("/status/objects", { failed: true }, signal), get("/config/revisions", null, signal)]);
    tiles.trouble(bad.total, bad.total > 0);
    tiles.drains(drains.drainAttr.length);
    const waiting = revisionAttr.find((r) => r.confirm && new Date(r.confirm) > Date.now());
    tellTrouble(trouble, bad, failed.statusAttr.filter((s) => s.kind !== "service"), waiting);
  });
  rates({ limit: 1 }, ({ total }) => {
    tiles.services(total.services);
    tiles.endpoints(total.endpointsDown, total.endpointsDown > 0);
    tiles.connections(total.connections);
    tiles.drops(total.drops.reduce((n, d) => n + d.packets, 0), false, total.dropped > 0 ? `${rate(total.dropped)} now, ${total.drops[0].reason}` : "");
    hour.add(total.time, { ...total.rates, ...handshakeTimes(total.handshakes), connectionsActive: total.connections, halfOpen: total.halfOpen, dropped: total.dropped, refused: total.refusedRate });
  }, signal);
}

function tile(label, href) {
  const value = el("span", { class: "value" }, "–");
  const more = el("span", { class: "more" });
  const update = (n, wrong, now = "") => {
    setText(value, number(n));
    setText(more, now);
    value.classList.toggle("bad", Boolean(wrong));
  };
  return Object.assign(update, { node: el("a", { class: "tile", href }, value, el("span", { class: "label" }, label), more) });
}

// tellTrouble says what is wrong and why, the worst first; each line leads to more.
function tellTrouble(list, { serviceAttr, total }, objects, waiting) {
  const said = JSON.stringify([serviceAttr.map((s) => [s.key, s.state, s.down, s.error, s.evidence]), total, objects.map((o) => [o.key, o.error]), waiting?.confirm]);
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  const lines = [
    ...serviceAttr.map((s) => el("li", { class: kindOf(s.state) },
      badge(kindOf(s.state), s.state), " ", el("a", { href: `#/service/${encodeURIComponent(s.key)}` }, s.name ? `${s.name} (${s.key})` : s.key), `: ${whatIsWrong(s)}`,
      s.evidence && el("span", { class: "why" }, s.evidence))),
    ...objects.slice(0, 10).map((o) => el("li", null, badge("bad", o.kind), ` ${o.key}: ${o.error}`)),
    total > serviceAttr.length && el("li", null, el("a", { href: "#/services?state=trouble" }, `and ${total - serviceAttr.length} more`)),
    waiting && el("li", { class: "warn" }, badge("warn", "unconfirmed"), " ",
      el("a", { href: "#/revisions" }, `Revision ${waiting.revision}`), ` is rolled back at ${clock(waiting.confirm)} unless it is confirmed.`),
  ].filter(Boolean);
  list.replaceChildren(...(lines.length ? lines : [el("li", { class: "good" }, badge("good", "healthy"), " No service is in trouble.")]));
}

function whatIsWrong(s) {
  if (s.error) return s.error;
  const down = `${s.down} of ${s.endpoints} endpoints ${s.down === 1 ? "is" : "are"} down`;
  switch (s.state) {
    case "down": return s.endpoints ? "no endpoint serves" : "it has no endpoint";
    case "panic": return "only endpoints that are down take new connections";
    case "draining": case "drained": return "all endpoints are drained: new connections are refused";
  }
  return down;
}
