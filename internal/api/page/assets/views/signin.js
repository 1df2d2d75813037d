// Signing in, by name and password or by a token.
import { call, token } from "../api.js";
import { el } from "../dom.js";

export const title = "Sign in";

export function show(root, { why, begin }) {
  const failed = el("p", { class: "bad", role: "alert" }, token.get() ? why : "");
  const name = el("input", { id: "name", autocomplete: "username", autocapitalize: "off", spellcheck: "false" });
  const password = el("input", { id: "password", type: "password", autocomplete: "current-password" });
  const given = el("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false" });

  const by = (fields, label, act) => el("form", {
    method: "post", class: "card", onsubmit: async (e) => {
      e.preventDefault();
      failed.textContent = "";
      try {
        token.set(await act());
        await begin();
      } catch (error) {
        token.clear();
        failed.textContent = error.message;
      }
    },
  }, fields, el("button", { type: "submit", class: "primary" }, label));

  root.append(
    el("p", null, "Log in to continue. The token is kept in this tab only, until you close it."), failed,
    el("div", { class: "cards" },
      by([el("label", { for: "name" }, "User"), name, el("label", { for: "password" }, "Password"), password], "Sign in",
        async () => (await call("POST", "/auth/login", { body: { username: name.value, password: password.value } })).data.token),
      by([el("label", { for: "token" }, "Or a token"), given], "Use the token", async () => given.value.trim())));
  name.focus();
}
