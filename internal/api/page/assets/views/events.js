// What happened, as it happens.
import { get, tell } from "../api.js";
import { clock, el } from "../dom.js";

export const title = "Events";

const kinds = ["", "health", "object", "pressure", "link", "address", "route", "neighbour", "revision", "vip", "node"];
const most = 500; // that are shown

export function show(root, { signal }) {
  const place = el("div");
  const fill = (kind) => place.replaceChildren(eventList({ kind, signal, limit: most }));
  root.append(
    el("form", { class: "filters", onsubmit: (e) => e.preventDefault() }, el("label", { for: "kind" }, "Kind"),
      el("select", { id: "kind", onchange: (e) => fill(e.target.value) }, kinds.map((k) => el("option", { value: k }, k || "any")))),
    place);
  fill("");
}

// eventList shows the last events, the newest first, and those that come.
export function eventList({ kind = "", object = "", signal, limit }) {
  const note = el("p", { class: "note" }, "Loading …");
  const list = el("ol", { class: "events" });
  let newest = 0;
  const add = (event) => {
    if (event.seq <= newest) return;
    newest = event.seq;
    note.hidden = true;
    list.prepend(line(event));
    while (list.childElementCount > limit) list.lastElementChild.remove();
  };
  const asked = get("/events", { kind, object, limit }, signal).then(({ eventAttr }) => {
    note.textContent = "No recent events.";
    eventAttr.forEach(add);
  });
  asked.catch(tell);
  const waiting = [];
  let loaded = false;
  asked.finally(() => { loaded = true; waiting.forEach(add); }).catch(() => {});
  document.addEventListener("happened", ({ detail: e }) => {
    if ((kind && e.kind !== kind) || (object && e.object !== object) || !e.seq) return;
    if (loaded) add(e);
    else waiting.push(e);
  }, { signal });
  return el("div", null, note, list);
}

function line(e) {
  return el("li", { class: e.kind },
    el("time", { datetime: e.time }, clock(e.time)), " ", el("span", { class: "tag" }, `${e.kind} ${e.action}`), " ", el("span", { class: "said" }, e.message));
}
