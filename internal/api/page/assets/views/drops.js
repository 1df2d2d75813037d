// Dropped packets by reason, with usual cause and remedy.
import { every, get } from "../api.js";
import { el, number, rate, sentence, setText } from "../dom.js";

export const title = "Drops";

export function show(root, { signal }) {
  const sum = el("p", { role: "status" }, "Loading …");
  const list = el("div", { class: "reasons" });
  const others = el("details", null, el("summary", null, "Reasons with no packets"), el("ul"));
  root.append(el("p", null, "Packets dropped since the data path was loaded, by reason. A few are normal, such as late segments and scans."), sum, list, others);
  let before = null;
  const cards = new Map();
  every(2000, signal, async () => {
    const now = performance.now();
    const { dropAttr } = await get("/status/drops", null, signal);
    const counted = new Map(dropAttr.map((d) => [d.reason, d.packets]));
    const perSecond = (d) => (before ? Math.max(0, d.packets - before.counted.get(d.reason)) / ((now - before.now) / 1000) : 0);
    const some = dropAttr.filter((d) => d.packets > 0).sort((a, b) => perSecond(b) - perSecond(a) || b.packets - a.packets);
    setText(sum, some.length ? `${number(some.reduce((n, d) => n + d.packets, 0))} in all.` : "No packets dropped.");
    for (const d of some) {
      if (!cards.has(d.reason)) cards.set(d.reason, card(d));
      setText(cards.get(d.reason).count, `${number(d.packets)} · ${rate(perSecond(d))}`);
    }
    const nodes = some.map((d) => cards.get(d.reason).node);
    if (nodes.some((n, i) => list.children[i] !== n)) list.replaceChildren(...nodes);
    if (others.lastChild.childElementCount !== dropAttr.length - some.length) {
      others.lastChild.replaceChildren(...dropAttr.filter((d) => !d.packets).map((d) => el("li", null, el("b", null, d.reason), `: ${d.meaning}`)));
    }
    before = { now, counted };
  });
}

function card(d) {
  const count = el("span", { class: "count" });
  return {
    count,
    node: el("section", { class: "card", "aria-label": d.reason },
      el("h2", null, d.reason, " ", count), el("p", null, `${sentence(d.meaning)}`),
      el("p", null, el("b", null, "Usual cause: "), sentence(d.cause)), el("p", { class: "remedy" }, el("b", null, "What to do: "), d.remedy)),
  };
}
