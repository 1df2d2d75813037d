// Begins: finds out who looks, shows the view that the address names, and follows what happens.
import { call, follow, get, tell, token } from "./api.js";
import { el, setText } from "./dom.js";
import * as connections from "./views/connections.js";
import * as drains from "./views/drains.js";
import * as drops from "./views/drops.js";
import * as events from "./views/events.js";
import * as explain from "./views/explain.js";
import * as overview from "./views/overview.js";
import * as service from "./views/service.js";
import * as services from "./views/services.js";
import * as signin from "./views/signin.js";

const views = { "": overview, services, service, connections, drops, events, drains, explain };
const inBar = ["", "services", "connections", "drops", "events", "drains", "explain"];
const roles = ["view", "operate", "admin"];
const main = document.getElementById("main");
const live = document.getElementById("live");

let who = null; // {name, role, may}
let shown = new AbortController(); // ends what the view does that is shown
let session = new AbortController(); // ends what is followed

// place is what the address names: #/service/KEY?a=b.
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: Object.hasOwn(views, name) ? name : "", key: decoded(rest.join("/")), parameters: new URLSearchParams(query ?? "") };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody has written it by hand
  }
}

function show(why) {
  shown.abort();
  shown = new AbortController();
  const { name, key, parameters } = place();
  const view = who ? views[name] : signin;
  const title = who && view === service ? key : view.title;
  document.title = `${title} – loxilb`;
  for (const a of document.querySelectorAll("nav a")) {
    const here = a.hash === `#/${name}` || (name === "service" && a.hash === "#/services");
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  const heading = el("h1", { tabindex: -1 }, title);
  main.replaceChildren(heading);
  tell(null);
  view.show(main, { who, key, parameters, heading, why, signal: shown.signal, begin });
  if (document.activeElement !== document.body) heading.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

// begin asks who looks, and follows events; without a right to, it shows how to sign in. It is true if somebody may look.
async function begin() {
  try {
    return enter(await get("/auth/whoami"));
  } catch (error) {
    tell(error);
    setTimeout(begin, 2000);
    return false;
  }
}

function enter(account) {
  session.abort();
  session = new AbortController();
  who = account?.role ? { ...account, may: (role) => roles.indexOf(account.role) >= roles.indexOf(role) } : null;
  const nav = document.querySelector("nav");
  nav.replaceChildren(...(who ? inBar.map((name) => el("a", { href: `#/${name}` }, views[name].title)) : []));
  document.getElementById("out").hidden = !token.get() || !who;
  setText(live, who ? "connecting" : "signed out");
  live.className = "";
  show(account?.why);
  if (who) follow("/events", happened, state, session.signal);
  return Boolean(who);
}

function happened(kind, data) {
  if (kind !== "end" && data) document.dispatchEvent(new CustomEvent("happened", { detail: { kind, ...data } }));
}

function state(word) {
  live.className = word === "live" ? "on" : "";
  setText(live, word);
  if (word === "signed out") signOut();
}

function signOut() {
  token.clear();
  enter(null);
}

const themes = ["auto", "light", "dark"];

function setTheme(theme) {
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("loxilb-theme", theme);
  setText(document.getElementById("theme"), `Theme: ${theme}`);
}

document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault(); // the address names the view
  main.focus();
});
document.getElementById("theme").addEventListener("click", () => {
  setTheme(themes[(themes.indexOf(localStorage.getItem("loxilb-theme") ?? "auto") + 1) % themes.length]);
});
document.getElementById("out").addEventListener("click", async () => {
  await call("POST", "/auth/logout").catch(() => {}); // a token that is no user's has nothing to end
  signOut();
});
document.addEventListener("trouble", ({ detail: error }) => {
  if (error?.code === 401) return signOut();
  const p = document.getElementById("trouble");
  p.hidden = !error;
  setText(p, error?.message ?? "");
});
window.addEventListener("hashchange", () => show());
setTheme(localStorage.getItem("loxilb-theme") ?? "auto");
begin();
