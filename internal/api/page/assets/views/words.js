// How states and counts are told. A state is a word, and a kind that has a colour and a shape.
import { below, number } from "../dom.js";

const kinds = {
  up: "good", unprobed: "idle", standby: "idle", degraded: "warn", draining: "warn", drained: "warn", pending: "warn", panic: "bad", down: "bad", failed: "bad",
};

export const kindOf = (word) => kinds[word] ?? "idle";

// stateBadge is the state of a service as a cell of a list. The server computed it.
export function stateBadge(s) {
  return { text: s.state === "degraded" ? `degraded: ${s.down} down` : s.state, kind: kindOf(s.state), title: s.error };
}

// handshakeText says how long handshakes took.
export function handshakeText(h) {
  return h ? `Of the last ${number(h.count)} TCP handshakes, half took ${below(h.median)}, and 99 % ${below(h.p99)}.` : "No TCP handshake was seen.";
}

// refusedText says how many packets of clients were refused, and why.
export function refusedText({ refused, refusedBy, failed }) {
  const reasons = (refusedBy ?? []).map((r) => `${number(r.count)} ${r.reason}`).join(", ");
  return [refused && `${number(refused)} refused: ${reasons}`, failed && `${number(failed)} handshakes failed at endpoints`].filter(Boolean).join("; ") || "None refused.";
}
