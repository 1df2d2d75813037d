// The last changes of the configuration, and the way back.
import { every, get } from "../api.js";
import * as change from "../change.js";
import { ago, clock, el } from "../dom.js";
import { List } from "../list.js";

export const title = "Revisions";

export function show(root, { who, signal }) {
  const waiting = el("ul", { class: "wrong" });
  let revisions = [];
  const list = new List({
    label: "Revisions", name: `revisions${who.may("operate") ? " changing" : ""}`, signal, empty: "No changes since the start.",
    load: async ({ offset, limit }) => {
      revisions = (await get("/config/revisions", null, signal)).revisionAttr;
      tellWaiting(waiting, revisions, who);
      return { items: revisions.slice(offset, offset + limit), total: revisions.length };
    },
    columns: [
      { key: "revision", head: "Revision", value: (r) => r.revision },
      { key: "time", head: "Time", raw: (r) => r.time, value: (r) => ({ text: `${ago(r.time)}`, title: `${r.time.slice(0, 10)} ${clock(r.time)}` }) },
      { key: "who", head: "By", value: (r) => ({ text: r.who ?? "", title: [r.who, r.from].filter(Boolean).join(", ") }) },
      { key: "doing", head: "Change", value: (r) => ({ text: r.doing ?? "", title: r.doing }) },
      { key: "objects", head: "Objects", raw: (r) => `+${r.created} ~${r.changed} -${r.deleted}`, value: (r) => objects(r) },
      ...(who.may("operate") ? [{ key: "back", head: "Back", act: true, value: (r) => (r.revision === revisions[0]?.revision ? "now" : { text: "Roll back", act: () => change.rollback(r), title: `Roll back to revision ${r.revision}` }) }] : []),
    ],
  });
  root.append(el("p", null, "Configuration changes, newest first. A rollback restores all objects to a revision, and is itself a new revision."), waiting, list.node);
  list.restart().catch(() => {}); // the refresh says why
  every(3000, signal, () => list.refresh());
  document.addEventListener("changed", () => list.refresh(), { signal });
}

const objects = (r) => [[r.created, "new"], [r.changed, "changed"], [r.deleted, "deleted"]].filter(([n]) => n).map(([n, word]) => `${n} ${word}`).join(", ");

// tellWaiting shows the revision that is undone unless somebody confirms it.
function tellWaiting(list, revisions, who) {
  const r = revisions.find((one) => one.confirm && new Date(one.confirm) > Date.now());
  const said = r ? `${r.revision} ${r.confirm}` : "";
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren(...(r ? [el("li", { class: "warn" }, `Revision ${r.revision} (${r.doing}) is rolled back at ${clock(r.confirm)} unless it is confirmed. `,
    who.may("operate") && el("button", { type: "button", onclick: () => change.confirm(r) }, "Confirm"))] : []));
}
