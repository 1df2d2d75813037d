// What would become of a packet, and why.
import { get } from "../api.js";
import { badge, el } from "../dom.js";

export const title = "Explain";

const kinds = { ok: "good", warning: "warn", failed: "bad" };
const good = new Set(["forwarded", "reached", "local", "sockets", "redirected"]);

export function show(root, { parameters, signal }) {
  const field = (name, label, example, required) => {
    const input = el("input", { id: name, name, value: parameters.get(name) ?? "", placeholder: example, required, autocapitalize: "off", autocomplete: "off", spellcheck: "false" });
    return [el("label", { for: name }, label), input];
  };
  const protocol = el("select", { id: "proto", name: "proto" }, ["tcp", "udp", "icmp"].map((p) => el("option", { value: p, selected: p === parameters.get("proto") }, p)));
  const answer = el("div", { class: "answer", role: "region", "aria-label": "Answer", "aria-live": "polite" });
  const ask = async () => {
    try {
      const asked = Object.fromEntries(new FormData(form));
      answer.replaceChildren(...told(await get("/explain", asked, signal)));
    } catch (error) {
      if (error.name !== "AbortError") answer.replaceChildren(el("p", { class: "bad" }, error.message));
    }
  };
  const form = el("form", { class: "filters", method: "post", onsubmit: (e) => { e.preventDefault(); ask(); } },
    field("from", "From", "100.100.100.1:40000", true), field("to", "To", "20.20.20.1:2020", true),
    el("label", { for: "proto" }, "Protocol"), protocol, field("interface", "Interface", "by its route", false),
    el("button", { type: "submit", class: "primary" }, "Explain"));
  root.append(
    el("p", null, "Runs the data path on a copy: nothing is sent, and no connection or counter changes. With an endpoint as To, it shows which services lead a client to it, and why others do not."),
    form, answer);
  if (parameters.get("from") && parameters.get("to")) ask();
}

function told(e, deep) {
  const facts = [["Service", e.service], ["Endpoint", e.endpoint], ["Seen from", e.source], ["Leaves by", e.interface], ["Next hop", [e.gateway, e.mac].filter(Boolean).join(" ")], ["MTU", e.mtu], ["Connection", e.connection], ["Reason", e.reason]]
    .filter(([, v]) => v);
  return [
    el(deep ? "h3" : "h2", null, badge(good.has(e.verdict) ? "good" : "bad", e.verdict), " ", e.question),
    el("p", null, e.summary),
    e.hint && el("p", { class: "remedy" }, el("b", null, "What to do: "), e.hint),
    facts.length > 0 && el("dl", { class: "facts" }, facts.flatMap(([name, v]) => [el("dt", null, name), el("dd", null, String(v))])),
    e.steps?.length > 0 && el("ol", { class: "events steps" }, e.steps.map((s) => el("li", null, badge(kinds[s.state] ?? "idle", s.stage), " ", s.text))),
    ...(e.paths ?? []).map((p) => el("section", { class: "card" }, told(p, true).filter(Boolean))),
  ].filter(Boolean);
}
