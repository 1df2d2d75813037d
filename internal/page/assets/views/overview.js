// The first look: how much there is, what is wrong, what happened.
import { every, get, rates } from "../api.js";
import { badge, el, number, setText } from "../dom.js";
import { LastHour } from "../plot.js";
import { eventList } from "./events.js";
import { kindOf } from "./words.js";

export const title = "Overview";

export function show(root, { signal }) {
  const tiles = Object.fromEntries([
    ["services", "Services", "#/services"], ["trouble", "In trouble", "#/services?state=trouble"], ["endpoints", "Endpoints down", "#/services?state=trouble"],
    ["connections", "Connections", "#/connections"], ["drops", "Packets dropped", "#/drops"], ["drains", "Drains", "#/drains"],
  ].map(([name, label, href]) => [name, tile(label, href)]));
  const trouble = el("ul", { class: "wrong" });
  const hour = new LastHour({ signal });
  root.append(el("div", { class: "tiles" }, Object.values(tiles).map((t) => t.node)), trouble, hour.node,
    el("h2", null, "Lately"), eventList({ signal, limit: 12 }));
  every(2000, signal, async () => {
    const [bad, drains, failed] = await Promise.all([
      get("/status/services", { state: "trouble", sort: "state", limit: 10 }, signal), get("/config/drain/all", null, signal), get("/status/objects", { failed: true }, signal)]);
    tiles.trouble(bad.total, bad.total > 0);
    tiles.drains(drains.drainAttr.length);
    tellTrouble(trouble, bad, failed.statusAttr.filter((s) => s.kind !== "service"));
  });
  rates({ limit: 1 }, ({ total }) => {
    tiles.services(total.services);
    tiles.endpoints(total.endpointsDown, total.endpointsDown > 0);
    tiles.connections(total.connections);
    tiles.drops(total.drops.reduce((n, d) => n + d.packets, 0));
    hour.add(total.time, { ...total.rates, connectionsActive: total.connections, halfOpen: total.halfOpen, dropped: total.dropped });
  }, signal);
}

function tile(label, href) {
  const value = el("span", { class: "value" }, "–");
  const update = (n, wrong) => {
    setText(value, number(n));
    value.classList.toggle("bad", Boolean(wrong));
  };
  return Object.assign(update, { node: el("a", { class: "tile", href }, value, el("span", { class: "label" }, label)) });
}

function tellTrouble(list, { serviceAttr, total }, objects) {
  const said = JSON.stringify([serviceAttr.map((s) => [s.key, s.state, s.down, s.error]), total, objects.map((o) => [o.key, o.error])]);
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren(
    ...serviceAttr.map((s) => el("li", { class: kindOf(s.state) }, badge(kindOf(s.state), s.state), " ", el("a", { href: `#/service/${encodeURIComponent(s.key)}` }, s.name ? `${s.name} (${s.key})` : s.key),
      s.error ? `: ${s.error}` : s.up === 0 ? ": no endpoint serves" : `: ${s.down} of ${s.endpoints} endpoints ${s.down === 1 ? "is" : "are"} down`)),
    ...objects.slice(0, 10).map((o) => el("li", null, badge("bad", o.kind), ` ${o.key}: ${o.error}`)),
    ...(total > serviceAttr.length ? [el("li", null, el("a", { href: "#/services?state=trouble" }, `and ${total - serviceAttr.length} more`))] : []));
}
