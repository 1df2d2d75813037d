// The clients with the most connections or traffic, found by the load balancer.
import { every, get } from "../api.js";
import { bytes, el, number, setText } from "../dom.js";
import { List } from "../list.js";
import { debounced } from "./services.js";

export const title = "Clients";

const networks = { "": {}, networks: { prefix4: 24, prefix6: 64 }, large: { prefix4: 16, prefix6: 48 } };
const most = 1000; // clients in an answer

export function show(root, { parameters, signal }) {
  const asked = { service: parameters.get("service") ?? "", endpoint: parameters.get("endpoint") ?? "" };
  let group = parameters.get("group") ?? "";
  let all = { connections: 0, bytes: 0, packets: 0 };
  const sum = el("p", { role: "status" });
  const failed = el("p", { class: "bad", role: "alert" });
  const list = new List({
    label: "Clients", name: "clients", signal, sort: "-connections", empty: "No connections.",
    load: async ({ offset, limit, sort }) => {
      const answer = await get("/status/clients", { ...asked, ...networks[group], sort: sort.replace("-", ""), limit: most }, signal);
      all = answer;
      setText(sum, told(answer));
      return { items: answer.clientAttr.slice(offset, offset + limit), total: answer.clientAttr.length };
    },
    columns: [
      { key: "client", head: "Client", value: (c) => ({ text: c.client, href: `#/connections?${new URLSearchParams({ source: c.client, ...filled(asked) })}`, title: "Its connections" }) },
      { key: "connections", head: "Connections", sort: true, number: true, raw: (c) => c.connections, value: (c) => number(c.connections) },
      { key: "share", head: "Share", number: true, value: (c) => `${(100 * share(c)).toFixed(1)} %` },
      { key: "bytes", head: "Bytes", sort: true, number: true, raw: (c) => c.bytesIn + c.bytesOut, value: (c) => bytes(c.bytesIn + c.bytesOut) },
      { key: "in", head: "In", number: true, raw: (c) => c.bytesIn, value: (c) => bytes(c.bytesIn) },
      { key: "out", head: "Out", number: true, raw: (c) => c.bytesOut, value: (c) => bytes(c.bytesOut) },
      { key: "packets", head: "Packets", sort: true, number: true, raw: (c) => c.packetsIn + c.packetsOut, value: (c) => number(c.packetsIn + c.packetsOut) },
    ],
  });
  const share = (c) => { // of what they are sorted by
    const by = list.sort.slice(1);
    const own = { connections: c.connections, bytes: c.bytesIn + c.bytesOut, packets: c.packetsIn + c.packetsOut }[by];
    return own / Math.max(1, all[by]);
  };
  list.sortBy = (key) => { // there is one order of each
    list.sort = `-${key}`;
    restart();
  };
  const restart = async () => {
    try {
      await list.restart();
      failed.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") failed.textContent = error.message;
    }
  };
  const field = (name, label, example) => {
    const input = el("input", { id: name, type: "search", value: asked[name], placeholder: example, spellcheck: "false", oninput: debounced(() => { asked[name] = input.value.trim(); restart(); }) });
    return [el("label", { for: name }, label), input];
  };
  root.append(
    el("form", { role: "search", class: "filters", onsubmit: (e) => e.preventDefault() },
      field("service", "Service", "name, or IP:PORT/tcp"), field("endpoint", "Endpoint", "31.31.31.1:5001"),
      el("label", { for: "group" }, "Count by"),
      el("select", { id: "group", onchange: (e) => { group = e.target.value; restart(); } },
        [["", "address"], ["networks", "network: /24, IPv6 /64"], ["large", "network: /16, IPv6 /48"]].map(([value, text]) =>
          el("option", { value, selected: value === group }, text)))),
    failed, sum, list.node);
  restart();
  every(5000, signal, async () => { if (!failed.textContent) await list.refresh(); });
}

const filled = (asked) => Object.fromEntries(Object.entries(asked).filter(([, v]) => v));

function told({ total, error, connections, bytes: carried, clientAttr }) {
  const shown = total > clientAttr.length ? `, the first ${number(clientAttr.length)} below` : "";
  return `${number(connections)} connections of ${error ? "more than " : ""}${number(total)} client${total === 1 ? "" : "s"}${shown}, ${bytes(carried)} so far.`
    + (error ? ` There are too many clients to count all of them: each number may be too small by up to ${number(error)}.` : "");
}
