// The list of services.
import { every, get } from "../api.js";
import { below, bits, el, number, rate } from "../dom.js";
import { List } from "../list.js";
import { handshakeText, refusedText, stateBadge } from "./words.js";

export const title = "Services";

export function show(root, { parameters, heading, signal }) {
  let search = parameters.get("search") ?? "";
  let state = parameters.get("state") ?? "";
  const list = new List({
    label: "Services", name: "services", signal, sort: "key",
    empty: "No matching services.",
    onCount: (n) => { heading.textContent = `${title} (${n.toLocaleString("en")})`; },
    load: async ({ offset, limit, sort }) => {
      const answer = await get("/status/services", { search, state, sort, offset, limit }, signal);
      return { items: answer.serviceAttr, total: answer.total };
    },
    columns: [
      { key: "key", head: "Service", sort: true, value: (s) => ({ text: s.key, href: `#/service/${encodeURIComponent(s.key)}` }) },
      { key: "name", head: "Name", sort: true, value: (s) => ({ text: s.name, title: s.name }) },
      { key: "state", head: "State", sort: true, raw: (s) => s.state, value: stateBadge },
      { key: "endpoints", head: "Endpoints", sort: true, number: true, value: (s) => `${s.up} of ${s.endpoints}` },
      { key: "connections", head: "Open", sort: true, number: true, raw: (s) => s.connections, value: (s) => number(s.connections) },
      { key: "rate", head: "New", sort: true, number: true, raw: (s) => s.rate, value: (s) => rate(s.rate) },
      { key: "traffic", head: "Traffic", sort: true, number: true, raw: (s) => s.traffic * 8, value: (s) => bits(s.traffic * 8) },
      { key: "latency", head: "Latency", sort: true, number: true, raw: (s) => s.handshakes?.p99, value: (s) => ({ text: below(s.handshakes?.p99), title: handshakeText(s.handshakes) }) },
      { key: "refused", head: "Refused", number: true, raw: (s) => s.refused, value: (s) => ({ text: number(s.refused), title: refusedText(s) }) },
    ],
  });
  const box = el("input", { id: "search", type: "search", value: search, placeholder: "VIP, name or endpoint", oninput: debounced(() => { search = box.value.trim(); list.restart(); }) });
  const states = el("select", { id: "state", onchange: () => { state = states.value; list.restart(); } },
    [["", "any state"], ["trouble", "in trouble"], ...["failed", "down", "panic", "degraded", "draining", "drained", "pending", "unprobed", "up"].map((word) => [word, word])].map(([value, text]) =>
      el("option", { value, selected: value === state }, text)));
  root.append(
    el("form", { role: "search", class: "filters", onsubmit: (e) => e.preventDefault() },
      el("label", { for: "search" }, "Search"), box, el("label", { for: "state" }, "State"), states),
    list.node);
  list.restart().catch(() => {}); // the refresh says why
  every(2000, signal, () => list.refresh());
  document.addEventListener("changed", () => list.refresh(), { signal });
}

// debounced calls a function once typing has paused.
export function debounced(f) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(f, 150);
  };
}
