// Endpoints that are being drained, and how far that is.
import { every, get } from "../api.js";
import * as change from "../change.js";
import { badge, clock, duration, el, number, setText } from "../dom.js";

export const title = "Drains";

export function show(root, { who, signal }) {
  const note = el("p", { class: "note" }, "Loading …");
  const list = el("div", { class: "cards" });
  root.append(el("p", null, "A drained endpoint receives no new connections; existing ones continue until the deadline, if there is one."), note, list);
  const cards = new Map();
  const load = async () => {
    const { drainAttr } = await get("/config/drain/all", null, signal);
    for (const d of drainAttr) {
      if (!cards.has(d.endpoint)) cards.set(d.endpoint, card(d, who));
      cards.get(d.endpoint).update(d);
    }
    const nodes = drainAttr.map((d) => cards.get(d.endpoint).node);
    if (nodes.length !== list.childElementCount || nodes.some((n, i) => list.children[i] !== n)) list.replaceChildren(...nodes);
    for (const endpoint of cards.keys()) if (!drainAttr.some((d) => d.endpoint === endpoint)) cards.delete(endpoint);
    setText(note, drainAttr.length ? "" : "No endpoint is drained.");
  };
  every(2000, signal, load);
  document.addEventListener("changed", load, { signal });
}

function card(first, who) {
  const most = { n: 0 }; // connections that were seen
  const bar = el("progress", { max: 1, value: 0, "aria-label": `Drain of ${first.endpoint}` });
  const left = el("p");
  const until = el("p");
  const state = el("span");
  return {
    node: el("section", { class: "card", "aria-label": first.endpoint },
      el("h2", null, first.endpoint, " ", state), bar, left, until,
      who.may("operate") && el("button", { type: "button", onclick: () => change.undrain(first.endpoint) }, "End the drain")),
    update(d) {
      const rest = d.connections + (d.sockets ?? 0);
      most.n = Math.max(most.n, rest);
      bar.value = most.n ? 1 - rest / most.n : 1;
      state.replaceChildren(rest ? badge("warn", "draining") : badge("good", "empty"));
      setText(left, `${number(d.connections)} connections left${d.sockets ? `, and ${number(d.sockets)} of this machine's own sockets` : ""}.`);
      setText(until, d.deadline ? until_(d) : "No deadline: they end on their own.");
    },
  };
}

function until_(d) {
  const seconds = Math.round((new Date(d.deadline) - Date.now()) / 1000);
  if (seconds > 0) return `Remaining connections are ended at ${clock(d.deadline)} (in ${duration(seconds)}), ${number(d.rate)} per second; the last by ${clock(d.done)}.`;
  return `The deadline has passed: connections are ended, ${number(d.rate)} per second; the last by ${clock(d.done)}.`;
}
