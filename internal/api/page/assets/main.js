// Begins: finds out who looks, shows the view that the address names, and follows what happens.
import { call, follow, get, tell, token } from "./api.js";
import { badge, duration, el, setText } from "./dom.js";
import * as clients from "./views/clients.js";
import * as cluster from "./views/cluster.js";
import * as connections from "./views/connections.js";
import * as doctor from "./views/doctor.js";
import * as drains from "./views/drains.js";
import * as drops from "./views/drops.js";
import * as events from "./views/events.js";
import * as explain from "./views/explain.js";
import * as overview from "./views/overview.js";
import * as revisions from "./views/revisions.js";
import * as service from "./views/service.js";
import * as services from "./views/services.js";
import * as signin from "./views/signin.js";

const views = { "": overview, services, service, connections, clients, drops, explain, doctor, events, drains, revisions, cluster };
const inBar = ["", "services", "connections", "clients", "drops", "explain", "doctor", "events", "drains", "revisions", "cluster"];
const roles = ["view", "operate", "admin"];
const main = document.getElementById("main");
const live = document.getElementById("live");

let heading = ""; // of the view
let host = ""; // that the page is of
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
  heading = title;
  nameTab();
  for (const a of document.querySelectorAll("nav a")) {
    const here = a.hash === `#/${name}` || (name === "service" && a.hash === "#/services");
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  const h1 = el("h1", { tabindex: -1 }, title);
  main.replaceChildren(h1);
  tell(null);
  view.show(main, { who, key, parameters, heading: h1, why, signal: shown.signal, begin });
  if (document.activeElement !== document.body) h1.focus({ preventScroll: true });
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
  tellNode(null);
  if (who) {
    followNode(session.signal);
    follow("/events", happened, state, session.signal);
  }
  return Boolean(who);
}

const roleKinds = { MASTER: "good", BACKUP: "idle" };
const shownRoles = 2; // the others are in the title

// tellNode shows which node this is: with several of them, a tab of each is open at night.
function tellNode(node) {
  const at = document.getElementById("node");
  at.hidden = !node;
  document.querySelector('nav a[href="#/cluster"]')?.toggleAttribute("hidden", !node?.nodes?.length); // alone, the view is empty
  host = node?.hostName ?? "";
  nameTab();
  if (!node) return;
  const roles = node.instances.filter((i) => i.state !== "NOT_DEFINED");
  const role = (i) => `${i.state}${roles.length > 1 || i.instance !== "llb-inst0" ? ` of ${i.instance}` : ""}`;
  const vips = roles.filter((i) => i.vip && i.vip !== "0.0.0.0").map((i) => i.vip);
  at.replaceChildren(el("b", null, host), " ",
    ...roles.slice(0, shownRoles).flatMap((i) => [badge(roleKinds[i.state] ?? "bad", role(i)), " "]),
    el("span", { class: "more" }, `${node.version} · up ${duration(node.uptime)}`));
  at.title = [`loxilb ${node.version}, up ${duration(node.uptime)}`, `kernel ${node.kernel}`, `machine up ${duration(node.machineUptime)}`, `started ${node.started.slice(0, 19).replace("T", " ")}`, ...roles.map(role), ...(vips.length ? [`VIP ${vips.join(", ")}`] : [])].join("\n");
}

// followNode asks now and then, while somebody looks. What is wrong with the API, the view tells.
async function followNode(signal) {
  const ask = async () => {
    if (!document.hidden) await get("/status/node", null, signal).then(tellNode, () => {});
  };
  const timer = setInterval(ask, 10000);
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  await ask();
}

function nameTab() {
  document.title = [heading, host, "loxilb"].filter(Boolean).join(" – ");
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
