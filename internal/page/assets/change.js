// What may be changed from here, each after a question.
import { call } from "./api.js";
import { el } from "./dom.js";

// ask shows a question, and calls act when it is answered by yes. fields are inputs that act reads.
function ask({ title, text, yes, danger, fields = [], act }) {
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
}

export function drain(endpoint) {
  const within = el("input", { id: "within", type: "number", min: 0, value: 0, inputmode: "numeric" });
  ask({
    title: `Drain ${endpoint}?`,
    text: "It takes no new connections. Those that it has go on until they end, or until the deadline.",
    fields: [el("label", { for: "within" }, "Deadline in seconds, 0 for none "), within],
    yes: "Drain",
    act: () => call("POST", "/config/drain", { body: { endpoint, within: Number(within.value) } }),
  });
}

export function undrain(endpoint) {
  ask({
    title: `End the drain of ${endpoint}?`, text: "It takes new connections again.", yes: "End the drain",
    act: () => call("DELETE", "/config/drain", { parameters: { endpoint } }),
  });
}

// weight changes that of one endpoint of a service.
export function weight(service, { endpoint, weight: now }) {
  const input = el("input", { id: "weight", type: "number", min: 0, max: 65535, required: true, value: now, inputmode: "numeric" });
  ask({
    title: `Weight of ${endpoint}`, text: `In ${service}. 0 to 65535; 0 takes no new connections.`, yes: "Set the weight",
    fields: [el("label", { for: "weight" }, "Weight "), input],
    act: () => call("POST", "/config/endpointweight", { body: { endpoint, service, weight: Number(input.value) } }),
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
