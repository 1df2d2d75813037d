// What may be changed from here, each after a question.
import { call } from "./api.js";
import { el } from "./dom.js";

// question shows one, and calls act when it is answered by yes. fields are inputs that act reads. It returns the
// button for yes.
function question({ title, text, yes, danger, fields = [], act }) {
  const failed = el("p", { class: "bad", role: "alert" });
  const done = el("button", { type: "submit", class: danger ? "danger" : "primary" }, yes);
  const form = el("form", { method: "dialog" },
    el("h2", { id: "question" }, title), el("p", null, text), fields, failed,
    el("p", { class: "buttons" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), done));
  const dialog = el("dialog", { "aria-labelledby": "question", onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    done.disabled = true;
    try {
      await act();
      dialog.close();
      document.dispatchEvent(new Event("changed"));
    } catch (error) {
      failed.textContent = error.message;
      done.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  return done;
}

const ask = (what) => { question(what); };

export function drain(endpoint) {
  const within = el("input", { id: "within", type: "number", min: 0, value: 0, inputmode: "numeric" });
  ask({
    title: `Drain ${endpoint}?`,
    text: "It receives no new connections. Existing ones continue until they end, or until the deadline.",
    fields: [el("label", { for: "within" }, "Deadline in seconds, 0 for none "), within],
    yes: "Drain",
    act: () => call("POST", "/config/drain", { body: { endpoint, within: Number(within.value) } }),
  });
}

export function undrain(endpoint) {
  ask({
    title: `End the drain of ${endpoint}?`, text: "It receives new connections again.", yes: "End the drain",
    act: () => call("DELETE", "/config/drain", { parameters: { endpoint } }),
  });
}

// weight changes that of one endpoint of a service.
export function weight(service, { endpoint, weight: now }) {
  const input = el("input", { id: "weight", type: "number", min: 0, max: 65535, required: true, value: now, inputmode: "numeric" });
  ask({
    title: `Weight of ${endpoint}`, text: `In ${service}. 0 to 65535; 0 stops new connections.`, yes: "Set the weight",
    fields: [el("label", { for: "weight" }, "Weight "), input],
    act: () => call("POST", "/config/endpointweight", { body: { endpoint, service, weight: Number(input.value) } }),
  });
}

// rollback restores all objects as of a revision. The dialog shows the changes of a dry run first.
export function rollback({ revision, doing }) {
  const preview = el("ul", { class: "preview" }, el("li", null, "Calculating changes …"));
  const roll = (body) => call("POST", "/config/rollback", { body: { revision, ...body } });
  const done = question({
    title: `Roll back to revision ${revision}?`, text: `Restores all objects to their state after: ${doing}. Services managed by a controller are kept.`,
    yes: "Roll back", danger: true, fields: [preview], act: () => roll({}),
  });
  done.disabled = true;
  roll({ dryRun: true }).then(({ data }) => {
    preview.replaceChildren(...changes(data));
    done.disabled = data.changes.length === 0;
  }, (error) => preview.replaceChildren(el("li", { class: "bad" }, error.message)));
}

const listed = 12; // changes of a preview

function changes({ changes: all, cuts, ruleCut, kept }) {
  if (all.length === 0) return [el("li", null, "No changes.")];
  const told = all.slice(0, listed).map((c) => `${c.action} ${c.kind.toLowerCase()} ${c.name}${c.cut ? `: ends ${c.cut} connections` : ""}${c.warning ? ` (${c.warning})` : ""}`);
  if (all.length > listed) told.push(`and ${all.length - listed} more`);
  if (ruleCut) told.push(`firewall rules would end ${ruleCut} connections`);
  for (const cut of cuts ?? []) told.push(`would cut ${cut}`);
  if (kept?.length) told.push(`managed, and stay: ${kept.join(", ")}`);
  return told.map((text) => el("li", null, text));
}

export function confirm({ revision, doing }) {
  ask({
    title: `Confirm revision ${revision}?`, text: `${doing} stays, and is not rolled back any more.`, yes: "Confirm",
    act: () => call("POST", "/config/confirm", { body: { revision } }),
  });
}

// remove deletes a service.
export function remove({ serviceArguments: { externalIP, port, portMax, protocol, block } }, key) {
  ask({
    title: `Delete ${key}?`, text: "Its connections are reset. loxicmd rollback brings it back.", yes: "Delete", danger: true,
    act: async () => {
      await call("DELETE", "/config/loadbalancer", { body: { lbAttr: [{ externalIP, port, portMax, protocol, block }] } });
      location.hash = "#/services";
    },
  });
}
