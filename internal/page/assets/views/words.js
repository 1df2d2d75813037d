// How states are told: a word, and a kind that has a colour and a shape.

const kinds = { ok: "good", up: "good", degraded: "warn", pending: "warn", unknown: "warn", drained: "warn", standby: "idle", unprobed: "idle", down: "bad", failed: "bad" };

export const kindOf = (word) => kinds[word] ?? "idle";

// stateBadge is the state of a service as a cell of a list.
export function stateBadge(s) {
  const word = s.state === "degraded" || s.state === "down" ? `${s.state}: ${s.down} down` : s.state;
  return { text: word, kind: kindOf(s.state), title: s.error };
}

// endpointWord is what an endpoint is, as far as users care.
export function endpointWord(e) {
  if (e.state === "down") return "down";
  if (e.drained) return "drained";
  if (e.standby) return "standby";
  return e.state;
}
