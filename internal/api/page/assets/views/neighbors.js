// The BGP neighbors, and the sessions with them; nothing if there are none.
import { every, get } from "../api.js";
import { badge, el, number } from "../dom.js";

const heads = ["Peer", "AS", "State", "For", "Sent", "Received", "Last error"];

export function neighborTable({ signal }) {
  const rows = el("tbody");
  const node = el("section", { hidden: "" }, el("h2", null, "BGP neighbors"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "BGP neighbors" },
      el("table", null, el("thead", null, el("tr", null, heads.map((h) => el("th", { scope: "col" }, h)))), rows)));
  every(2000, signal, async () => {
    const { bgpNeiAttr } = await get("/config/bgp/neigh/all", null, signal);
    const said = JSON.stringify(bgpNeiAttr);
    if (rows.dataset.said === said) return;
    rows.dataset.said = said;
    node.hidden = bgpNeiAttr.length === 0;
    rows.replaceChildren(...bgpNeiAttr.map(row));
  });
  return node;
}

function row(n) {
  const up = n.state === "Established";
  const count = (value) => el("td", { class: "number" }, number(value ?? 0));
  return el("tr", null, el("td", null, n.ipAddress || n.interface), el("td", null, String(n.remoteAs)),
    el("td", null, badge(up ? "good" : "bad", n.state ?? "off")), el("td", null, n.updowntime ?? "–"),
    count(n.prefixesSent), count(n.prefixesReceived), el("td", null, up ? "" : n.lastError ?? ""));
}
