// One service: how it is, what it was asked to be, its endpoints, the picture of the paths to them, and what happened to it.
import { every, get, rates } from "../api.js";
import * as change from "../change.js";
import { ago, badge, bits, bytes, el, number, rate } from "../dom.js";
import { List } from "../list.js";
import { paths } from "../paths.js";
import { LastHour } from "../plot.js";
import { eventList } from "./events.js";
import { kindOf } from "./words.js";

export const title = "Service";

const quiet = new Set(["externalIP", "port", "portMax", "protocol", "name"]); // told by the heading

export function show(root, { key, who, signal }) {
  const status = el("p", { class: "status" });
  const wrong = el("ul", { class: "wrong" });
  const picture = el("div", { class: "picture" });
  const facts = el("dl", { class: "facts" });
  const hour = new LastHour({ service: key, signal });
  let detail = null;
  let fast = null; // as /status/rates has it
  const list = new List({
    label: "Endpoints", name: `endpoints${who.may("operate") ? " changing" : ""}`, signal, sort: "endpoint", empty: "It has none.",
    load: async ({ offset, limit, sort }) => ({ items: sorted(detail?.endpoints ?? [], sort).slice(offset, offset + limit), total: detail?.endpoints.length ?? 0 }),
    columns: [
      { key: "endpoint", head: "Endpoint", sort: true, value: (e) => ({ text: e.endpoint, href: `#/connections?service=${encodeURIComponent(key)}&endpoint=${encodeURIComponent(e.endpoint)}`, title: "Its connections" }) },
      { key: "state", head: "State", sort: true, value: (e) => ({ text: e.state, kind: kindOf(e.state) }) },
      { key: "evidence", head: "Evidence", value: (e) => ({ text: `${evidence(e)}${e.since ? ` (${ago(e.since)})` : ""}`, title: e.evidence }) },
      { key: "weight", head: "Weight", sort: true, number: true, value: (e) => e.weight },
      { key: "connections", head: "Connections", sort: true, number: true, value: (e) => number(e.connections) },
      { key: "rate", head: "New", sort: true, number: true, value: (e) => rate(e.rate) },
      { key: "bits", head: "Traffic", sort: true, number: true, value: (e) => bits(e.bits) },
      ...(who.may("operate") ? [
        { key: "drain", head: "Drain", value: (e) => ({ text: e.drained ? "End drain" : "Drain", act: () => (e.drained ? change.undrain(e.endpoint) : change.drain(e.endpoint)), title: `${e.drained ? "End drain of" : "Drain"} ${e.endpoint}` }) },
        { key: "set", head: "Change", value: (e) => ({ text: "Weight", act: () => change.weight(key, e), title: `Weight of ${e.endpoint}` }) },
      ] : []),
    ],
  });
  root.append(status, wrong, picture, hour.node, el("h2", null, "Endpoints"), list.node, el("h2", null, "As asked for"), facts,
    el("h2", null, "What happened"), eventList({ object: `service ${key}`, signal, limit: 20 }),
    who.may("operate") && el("p", null, el("button", { type: "button", class: "danger", onclick: () => detail && change.remove(detail.service, key) }, "Delete this service")));
  const load = async () => {
    const answer = await get("/status/service", { key }, signal);
    const first = detail === null;
    detail = answer;
    draw();
    tellStatus(status, wrong, answer, key);
    if (first) facts.replaceChildren(...asked(answer.service));
    await (first ? list.restart() : list.refresh());
  };
  const draw = () => {
    addRates(detail, fast);
    picture.replaceChildren(paths(Math.min(picture.clientWidth - 22, 760), ...drawn(detail)));
  };
  rates({ service: key, endpoints: true }, ({ list: { time, services: [now] } }) => {
    if (!now) return;
    fast = now;
    hour.add(time, { ...now.rates, connectionsActive: now.active });
    if (!detail) return;
    draw();
    list.refresh();
  }, signal);
  every(2000, signal, load);
  document.addEventListener("changed", load, { signal });
}

// addRates has each endpoint know how fast it is.
function addRates({ endpoints }, fast) {
  const known = new Map((fast?.endpoints ?? []).map((e) => [e.endpoint, e]));
  for (const e of endpoints) {
    const r = known.get(e.endpoint)?.rates;
    e.rate = r?.connections ?? 0;
    e.bits = ((r?.bytesIn ?? 0) + (r?.bytesOut ?? 0)) * 8;
  }
}

// evidence is without what was asked, when that is the endpoint itself.
const evidence = (e) => (e.evidence ?? "").replace(` ${e.endpoint}:`, ":");

function sorted(endpoints, sort) {
  const down = sort.startsWith("-");
  const by = down ? sort.slice(1) : sort;
  const value = (e) => e[by];
  const order = (a, b) => (typeof value(a) === "number" ? value(a) - value(b) : String(value(a)).localeCompare(String(value(b)), "en", { numeric: true }));
  return [...endpoints].sort((a, b) => (down ? order(b, a) : order(a, b)));
}

function drawn({ service, summary, endpoints }) {
  const all = endpoints.reduce((sum, e) => sum + e.bits, 0);
  return [
    { name: service.serviceArguments.name || summary.key, text: `${number(summary.connections)} open · ${bits(all)}` },
    endpoints.map((e) => ({
      name: e.endpoint, word: e.state, rate: e.bits, text: `${number(e.connections)} open · ${bits(e.bits)}`,
      state: { good: "up", bad: "down", warn: "drained", idle: "up" }[kindOf(e.state)],
    })),
  ];
}

const troubles = {
  down: "No endpoint serves. The evidence below says why.",
  panic: "Only endpoints that are reported down take new connections.",
  draining: "New connections are refused: all endpoints are draining.",
  drained: "New connections are refused: all endpoints are drained.",
};

function tellStatus(status, wrong, { summary, service }, key) {
  status.replaceChildren(
    badge(kindOf(summary.state), summary.state), ` ${summary.up} of ${summary.endpoints} endpoints serve · `,
    el("a", { href: `#/connections?service=${encodeURIComponent(key)}` }, `${number(summary.connections)} connections`),
    ` · ${number(summary.opened)} opened, ${bytes(summary.bytes)} so far · ${summary.mode}, ${summary.algorithm}`);
  const sentences = [];
  if (summary.error) sentences.push(`The data path could not take it: ${summary.error}`);
  if (troubles[summary.state]) sentences.push(troubles[summary.state]);
  for (const c of service.status?.conditions ?? []) sentences.push(c.message);
  if (wrong.childElementCount !== sentences.length || [...wrong.children].some((li, i) => li.textContent !== sentences[i])) {
    wrong.replaceChildren(...sentences.map((s) => el("li", null, s)));
  }
}

function asked(service) {
  const words = { ...service.serviceArguments, allowedSources: service.allowedSources, secondaryIPs: service.secondaryIPs };
  return Object.entries(words)
    .filter(([name, v]) => !quiet.has(name) && v && v !== "none" && (!Array.isArray(v) || v.length > 0))
    .flatMap(([name, v]) => [el("dt", null, name), el("dd", null, typeof v === "object" ? JSON.stringify(v) : String(v))]);
}
