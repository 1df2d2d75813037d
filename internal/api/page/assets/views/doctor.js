// What is wrong with the machine and its network, and what mends it.
import { get } from "../api.js";
import { badge, el, sentence } from "../dom.js";

export const title = "Doctor";

const kinds = { certain: "bad", likely: "warn", possible: "idle" };

export function show(root, { signal }) {
  const note = el("p", { class: "note", role: "status" });
  const list = el("div", { class: "reasons" });
  const checks = el("details");
  const again = el("button", { type: "button", onclick: () => look() }, "Check again");
  const look = async () => {
    again.disabled = true;
    note.textContent = "Checking …";
    try {
      const answer = await get("/doctor", null, signal);
      note.textContent = summary(answer);
      list.replaceChildren(...answer.findings.map(card));
      checks.replaceChildren(el("summary", null, `${answer.checks.length} checks`),
        el("ul", null, answer.checks.map((c) => el("li", null, el("b", null, c.name), `: ${result(c)}`))));
    } catch (error) {
      if (error.name !== "AbortError") note.textContent = error.message;
    } finally {
      again.disabled = false;
    }
  };
  root.append(
    el("p", null, "Checks kernel settings, interfaces, neighbours, memory, disk and clock. Nothing is changed; endpoints are pinged."),
    el("p", null, again), note, list, checks);
  look();
}

const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function summary({ findings, checks }) {
  const unknown = checks.filter((c) => c.unknown).length;
  return `${findings.length ? count(findings.length, "finding") : "No findings"}${unknown ? `; ${count(unknown, "check")} could not be made` : ""}.`;
}

const result = (c) => (c.unknown ? `could not be made: ${c.unknown}` : c.findings ? count(c.findings, "finding") : "nothing found");

function card(f) {
  return el("section", { class: "card", "aria-label": f.what },
    el("h2", null, badge(kinds[f.sure] ?? "idle", f.sure), " ", f.what.charAt(0).toUpperCase() + f.what.slice(1)), el("p", null, sentence(f.why)),
    f.command && el("p", { class: "remedy" }, el("b", null, "Fix: "), el("code", null, f.command)),
    f.fixable && el("p", { class: "note" }, "loxicmd doctor --fix does it."));
}
