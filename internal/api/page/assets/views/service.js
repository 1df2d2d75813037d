// One service: how it is, what it was asked to be, its endpoints, the picture of the paths to them, and what happened to it.
import { every, get, rates } from "../api.js";
import * as change from "../change.js";
import { ago, badge, below, bits, bytes, duration, el, number, rate } from "../dom.js";
import { List } from "../list.js";
import { paths } from "../paths.js";
import { handshakeTimes, LastHour } from "../plot.js";
import { eventList } from "./events.js";
import { handshakeText, kindOf, refusedText } from "./words.js";

export const title = "Service";

const quiet = new Set(["externalIP", "port", "portMax", "protocol", "name"]); // told by the heading

export function show(root, { key, who, signal }) {
  const status = el("p", { class: "status" });
  const numbers = el("dl", { class: "numbers" });
  const wrong = el("ul", { class: "wrong" });
  const picture = el("div", { class: "picture" });
  const facts = el("dl", { class: "facts" });
  const hour = new LastHour({ service: key, signal });
  let detail = null;
  let fast = null; // as /status/rates has it
  const list = new List({
    label: "Endpoints", name: `endpoints${who.may("operate") ? " changing" : ""}`, signal, sort: "endpoint", empty: "No endpoints.",
    load: async ({ offset, limit, sort }) => ({ items: sorted(detail?.endpoints ?? [], sort).slice(offset, offset + limit), total: detail?.endpoints.length ?? 0 }),
    columns: [
      { key: "endpoint", head: "Endpoint", sort: true, value: (e) => ({ text: e.source ? `${e.endpoint} sees ${e.source === "client" ? "clients" : e.source}` : e.endpoint, href: `#/connections?service=${encodeURIComponent(key)}&endpoint=${encodeURIComponent(e.endpoint)}`, title: "Its connections" }) },
      { key: "state", head: "State", sort: true, value: (e) => ({ text: e.state, kind: kindOf(e.state) }) },
      { key: "evidence", head: "Evidence", raw: (e) => e.evidence, value: (e) => ({ text: evidence(e), title: e.evidence }) },
      { key: "downtime", head: "Down", sort: true, number: true, raw: (e) => e.downtime, value: (e) => ({ text: downs(e), title: downsText(e) }) },
      { key: "connections", head: "Open", sort: true, number: true, raw: (e) => e.connections, value: (e) => number(e.connections) },
      { key: "rate", head: "New", sort: true, number: true, raw: (e) => e.rate, value: (e) => rate(e.rate) },
      { key: "bits", head: "Traffic", sort: true, number: true, raw: (e) => e.bits, value: (e) => bits(e.bits) },
      { key: "p99", head: "Latency", sort: true, number: true, raw: (e) => e.p99, value: (e) => ({ text: below(e.p99), title: handshakeText(e.handshakes) }) },
      { key: "lost", head: "Failed", sort: true, number: true, raw: (e) => e.lost, value: (e) => ({ text: number(e.lost), title: refusedText(e) }) },
      ...(who.may("operate") ? [
        { key: "drain", head: "Drain", act: true, value: (e) => ({ text: e.drained ? "End drain" : "Drain", act: () => (e.drained ? change.undrain(e.endpoint) : change.drain(e.endpoint)), title: `${e.drained ? "End drain of" : "Drain"} ${e.endpoint}` }) },
        { key: "set", head: "Weight", act: true, raw: (e) => e.weight, value: (e) => ({ text: String(e.weight), act: () => change.weight(key, e), title: `Weight of ${e.endpoint}: ${e.weight}` }) },
      ] : [{ key: "weight", head: "Weight", sort: true, number: true, value: (e) => e.weight }]),
    ],
  });
  root.append(status, wrong, numbers, picture, hour.node, el("h2", null, "Endpoints"), list.node, el("h2", null, "Configuration"), facts,
    el("h2", null, "Recent events"), eventList({ object: `service ${key}`, signal, limit: 20 }),
    who.may("operate") && el("p", null, el("button", { type: "button", class: "danger", onclick: () => detail && change.remove(detail.service, key) }, "Delete this service")));
  const load = async () => {
    const answer = await get("/status/service", { key }, signal);
    const first = detail === null;
    detail = answer;
    draw();
    tellStatus(status, numbers, wrong, answer, key);
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
    hour.add(time, { ...now.rates, ...handshakeTimes(now.handshakes), connectionsActive: now.active, refused: now.refusedRate });
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
    e.p99 = e.handshakes?.p99 ?? 0;
    e.downtime ??= 0;
    e.lost = (e.failed ?? 0) + (e.refused ?? 0);
  }
}

// evidence is what was seen, without what was asked if that is the endpoint itself, since when, and how fresh it is.
function evidence(e) {
  const times = [e.since && `for ${duration((Date.now() - new Date(e.since)) / 1000)}`, e.checked && `checked ${ago(e.checked)}`].filter(Boolean);
  return (e.evidence ?? "").replace(` ${e.endpoint}:`, ":") + (times.length ? ` (${times.join(", ")})` : "");
}

const downs = (e) => (e.downs ? `${e.downs} ×, ${duration(e.downtime)}` : e.checked ? "never" : "–");

const downsText = (e) => (e.downs ? `It went down ${e.downs === 1 ? "once" : `${e.downs} times`}, for ${duration(e.downtime)} in all, since it is probed.` : "");

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
  panic: "Only endpoints that are down receive new connections.",
  draining: "New connections are refused: all endpoints are draining.",
  drained: "New connections are refused: all endpoints are drained.",
};

// counts are the numbers of a service that say whether clients are served.
function counts(s) {
  const tried = s.attempts ?? s.opened;
  return [
    ["Attempts", number(tried), "Connections requested by clients"],
    ["Refused", number(s.refused ?? 0), refusedText(s)],
    ["Failed", number(s.failed ?? 0), "Handshakes that endpoints refused or reset, or that were undeliverable"],
    ["Active", number(s.activeConnections ?? s.connections), "Open now"],
    ["Inactive", number(s.inactiveConnections ?? 0), "Closed, and still in the connection table"],
    ["Median handshake", below(s.handshakes?.median), handshakeText(s.handshakes)],
    ["99 % of handshakes", below(s.handshakes?.p99), handshakeText(s.handshakes)],
  ];
}

function tellStatus(status, numbers, wrong, { summary, service }, key) {
  status.replaceChildren(
    badge(kindOf(summary.state), summary.state), ` ${summary.up} of ${summary.endpoints} endpoints serve · `,
    el("a", { href: `#/connections?service=${encodeURIComponent(key)}` }, `${number(summary.connections)} open connections`), " · ",
    el("a", { href: `#/clients?service=${encodeURIComponent(key)}` }, "top clients"),
    ` · ${number(summary.opened)} opened, ${bytes(summary.bytes)} so far · ${summary.mode}, ${summary.algorithm}`);
  numbers.replaceChildren(...counts(summary).map(([label, value, title]) => el("div", { title }, el("dt", null, label), el("dd", null, value))));
  const sentences = [];
  if (summary.error) sentences.push(`Not applied to the data path: ${summary.error}`);
  if (troubles[summary.state]) sentences.push(troubles[summary.state]);
  for (const r of summary.refusedBy ?? []) if (r.count) sentences.push(`${number(r.count)} packets of clients were refused so far: ${r.reason}.`);
  for (const v of service.status?.announcements ?? []) if (!v.announced) sentences.push(`${v.prefix} is not announced by BGP: ${v.reason}.`);
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
