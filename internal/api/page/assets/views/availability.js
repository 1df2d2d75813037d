// Maintenance, roles and announced VIPs, which decide what packets reach this node. Hidden without any.
import { every, get } from "../api.js";
import { ago, badge, el, number } from "../dom.js";

export function availability({ signal }) {
  const node = el("section", { hidden: "" }, el("h2", null, "High availability"));
  const parts = el("div");
  node.append(parts);
  every(2000, signal, async () => {
    const [here, { Attr: sessions }] = await Promise.all([get("/status/node", null, signal), get("/config/bfd/all", null, signal)]);
    const known = [here.maintenance, here.instances, here.announcements, sessions.map((s) => [s.instance, s.remoteIp, s.state, s.role, s.reason])];
    const said = JSON.stringify(known);
    if (parts.dataset.said === said) return;
    parts.dataset.said = said;
    const shown = [maintenance(here.maintenance), roles(here.instances, sessions), vips(here.announcements)].filter(Boolean);
    node.hidden = shown.length === 0;
    parts.replaceChildren(...shown);
  });
  return node;
}

function maintenance(m) {
  if (!m) return null;
  const progress = m.stage === "draining" ? `: ${number(m.connections ?? 0)} connections, ${number(Math.round(m.packetRate ?? 0))} packets/s` : ": its VIPs are withdrawn until loxicmd node resume";
  return el("p", null, badge("warn", m.stage), ` The node is ${m.stage} since ${ago(m.since)}${progress}`);
}

// roles are those of instances, each with the BFD session that elects it, if one does.
function roles(instances, sessions) {
  const named = new Map(instances.filter((i) => i.state !== "NOT_DEFINED").map((i) => [i.instance, { role: i.state }]));
  for (const s of sessions) named.set(s.instance, { role: s.role || named.get(s.instance)?.role, session: s });
  if (named.size === 0) return null;
  return table("Roles", ["Instance", "Role", "Peer", "Session", "Reason"], [...named].map(([instance, { role, session }]) => [
    instance, badge(role === "FAULT" || role === "STOP" ? "bad" : "idle", role || "NOT_DEFINED"), session?.remoteIp ?? "–",
    session ? badge(session.state === "BFDUp" ? "good" : "bad", session.state) : "–", session?.reason ?? "",
  ]));
}

function vips(a) {
  if (!a || a.announced + a.withdrawn === 0) return null;
  const rows = a.vips.map((v) => [v.prefix, badge(v.announced ? "good" : "bad", v.announced ? "announced" : "withdrawn"), v.since ? ago(v.since) : "", v.reason]);
  const rest = a.announced + a.withdrawn - a.vips.length;
  const to = a.neighbors.length ? ` to ${a.neighbors.join(", ")}` : ": no BGP session is established";
  return el("div", null, el("p", null, `${number(a.announced)} VIPs are announced, ${number(a.withdrawn)} are not${to}`),
    table("Announced VIPs", ["VIP", "State", "Since", "Reason"], rows), rest > 0 && el("p", null, `and ${number(rest)} more`));
}

function table(label, heads, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", null, el("thead", null, el("tr", null, heads.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", null, rows.map((cells) => el("tr", null, cells.map((c) => el("td", null, c)))))));
}
