// Connections, searched by the load balancer.
import { every, get } from "../api.js";
import { bytes, duration, el, number } from "../dom.js";
import { List } from "../list.js";
import { debounced } from "./services.js";

export const title = "Connections";

const fields = [
  ["source", "Client", "10.0.0.0/8"],
  ["service", "Service", "name, or IP:PORT/tcp"],
  ["endpoint", "Endpoint", "31.31.31.1:5001"],
];
const states = ["", "est", "sync-sent", "sync-ack", "closed-wait", "fini", "closed", "udp-uni", "udp-est", "req-sent", "bidir"];

const sorted = 10_000; // that can be seen in an order

export function show(root, { parameters, heading, signal }) {
  const asked = Object.fromEntries([...fields.map(([name]) => name), "state"].map((name) => [name, parameters.get(name) ?? ""]));
  const failed = el("p", { class: "bad", role: "alert" });
  const list = new List({
    label: "Connections", name: "connections", signal, sort: parameters.get("sort") ?? "", empty: "No matching connections.",
    onCount: (n) => { heading.textContent = `${title} (${n.toLocaleString("en")})`; },
    load: async ({ offset, limit, sort, uncounted }) => {
      const answer = await get("/status/connections", { ...asked, offset, limit, sort, uncounted }, signal);
      return { items: answer.connectionAttr, total: answer.total, most: sort ? sorted : undefined };
    },
    columns: [
      { key: "client", head: "Client", sort: true, value: (c) => c.client },
      { key: "vip", head: "VIP", sort: true, value: (c) => c.vip },
      { key: "endpoint", head: "Endpoint", sort: true, value: (c) => c.endpoint },
      { key: "protocol", head: "Protocol", value: (c) => c.protocol },
      { key: "state", head: "State", sort: true, value: (c) => c.state },
      { key: "servName", head: "Service", value: (c) => ({ text: c.servName, title: c.servName }) },
      { key: "age", head: "Age", sort: true, number: true, raw: (c) => c.age, value: (c) => (c.age ? duration(c.age) : "–") },
      { key: "idle", head: "Idle", sort: true, number: true, raw: (c) => c.idle, value: (c) => duration(c.idle) },
      { key: "packets", head: "Packets in", sort: true, number: true, raw: (c) => c.packetsIn, value: (c) => number(c.packetsIn) },
      { key: "bytes", head: "Bytes in", sort: true, number: true, raw: (c) => c.bytesIn, value: (c) => bytes(c.bytesIn) },
    ],
  });
  const restart = async () => {
    try {
      await list.restart();
      failed.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") failed.textContent = error.message; // of a filter, most often
    }
  };
  const change = (name, value) => {
    asked[name] = value.trim();
    restart();
  };
  root.append(
    el("form", { role: "search", class: "filters", onsubmit: (e) => e.preventDefault() },
      fields.map(([name, label, example]) => {
        const input = el("input", { id: name, type: "search", value: asked[name], placeholder: example, spellcheck: "false", oninput: debounced(() => change(name, input.value)) });
        return [el("label", { for: name }, label), input];
      }),
      el("label", { for: "state" }, "State"),
      el("select", { id: "state", onchange: (e) => change("state", e.target.value) },
        states.map((s) => el("option", { value: s, selected: s === asked.state }, s || "any")))),
    failed, list.node);
  restart();
  every(3000, signal, async () => { if (!failed.textContent) await list.refresh(); });
}
