// The nodes that share connections or configuration, as this one sees them.
import { every, get } from "../api.js";
import { ago, badge, el, number } from "../dom.js";

export const title = "Cluster";

const heads = ["Node", "State", "Version", "Roles", "Revision", "Connections", "Exchange", "Lag", "Since"];

export function show(root, { signal }) {
  const note = el("p", { class: "note", role: "status" });
  const problems = el("ul", { class: "note", hidden: "" });
  const rows = el("tbody");
  const table = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes", hidden: "" },
    el("table", null, el("thead", null, el("tr", null, heads.map((h) => el("th", { scope: "col" }, h)))), rows));
  root.append(note, problems, table);
  every(2000, signal, async () => {
    const { nodes = [] } = await get("/status/node", null, signal);
    table.hidden = nodes.length === 0;
    note.textContent = nodes.length ? "" : "This node is alone: it runs without --cluster and --store.";
    rows.replaceChildren(...nodes.map(row));
    const { problems: list = [], held } = await get("/status/cluster", null, signal);
    if (held) list.unshift(`VIPs are not announced: ${held}`);
    problems.hidden = list.length === 0;
    problems.replaceChildren(...list.map((p) => el("li", null, p)));
  });
}

function row(n) {
  const away = n.state === "away", exchanges = n.exchange === "up" || n.exchange === "copying";
  const described = !away && (n.own || n.exchange !== "up" || n.connections > 0 || n.peers > 0);
  const state = away ? n.state : n.maintenance || n.state;
  const reason = n.reason || (n.differing ? `services differ: ${n.differing}` : "");
  const revision = n.revision ? String(n.revision) : "–";
  return el("tr", null, el("td", null, n.own ? `${n.name} (this)` : n.name),
    el("td", null, badge(away ? "bad" : state === "up" ? "good" : "warn", state), reason && ` ${reason}`),
    el("td", null, n.version ?? "–"), el("td", null, (n.roles ?? []).join(", ")),
    el("td", null, n.behind ? badge("warn", `${revision}, behind`) : revision),
    el("td", { class: "number" }, described ? number(n.connections) : "–"), el("td", null, n.exchange ?? "–"),
    el("td", { class: "number" }, exchanges ? `${n.lag.toFixed(3)} s` : "–"), el("td", null, ago(n.since)));
}
