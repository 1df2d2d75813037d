// How states are told: a word, and a kind that has a colour and a shape.

const kinds = {
  up: "good", unprobed: "idle", standby: "idle", degraded: "warn", draining: "warn", drained: "warn", pending: "warn", panic: "bad", down: "bad", failed: "bad",
};

export const kindOf = (word) => kinds[word] ?? "idle";

// stateBadge is the state of a service as a cell of a list. The server computed it.
export function stateBadge(s) {
  return { text: s.state === "degraded" ? `degraded: ${s.down} down` : s.state, kind: kindOf(s.state), title: s.error };
}
