// A client of the REST API. The user's token is in the storage of this tab, never in a URL.

const base = "/netlox/v1";
const kept = "loxilb-token";

export const token = {
  get: () => sessionStorage.getItem(kept) ?? "",
  set: (t) => sessionStorage.setItem(kept, t),
  clear: () => sessionStorage.removeItem(kept),
};

// Refused is an error answer, with the API's message.
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

function headers(more) {
  const out = { ...more };
  if (token.get()) out.Authorization = `Bearer ${token.get()}`;
  return out;
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new Refused(response.status, body?.message ?? body?.result ?? `The server answered ${response.status} ${response.statusText}.`);
}

// call makes a request and returns its answer. parameters that are empty are not sent.
export async function call(method, path, { parameters, body, signal } = {}) {
  const query = new URLSearchParams(Object.entries(parameters ?? {}).filter(([, v]) => v !== "" && v != null && v !== false));
  let response;
  try {
    response = await fetch(base + path + (query.size ? `?${query}` : ""), {
      method, signal, cache: "no-store", credentials: "omit",
      headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "loxilb does not answer; trying again.");
  }
  if (!response.ok) throw await refusal(response);
  return { data: await response.json(), headers: response.headers };
}

export const get = async (path, parameters, signal) => (await call("GET", path, { parameters, signal })).data;

// fields reads a server-sent event.
function fields(block) {
  const event = { kind: "message", id: "", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.kind = line.slice(7);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}

async function read(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks.filter((b) => b && !b.startsWith(":"))) onEvent(fields(block));
  }
}

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

// seen waits until the tab is visible, and returns a signal that aborts when it is hidden. All tabs
// share six connections of the browser, and a stream takes one.
async function seen(signal) {
  const unseen = new AbortController();
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
  document.addEventListener("visibilitychange", () => unseen.abort(), { once: true, signal });
  return AbortSignal.any([signal, unseen.signal]);
}

// follow reads a stream of events until the signal aborts. It reconnects after errors, and goes on
// after the last event. It uses fetch, since EventSource sends no token. onState reports whether
// the stream is live.
export async function follow(path, onEvent, onState, signal) {
  for (let last = "", wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10000)) {
    const looked = await seen(signal);
    if (signal.aborted) return;
    try {
      const response = await fetch(base + path, {
        signal: looked, cache: "no-store", credentials: "omit", headers: headers({ Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) }),
      });
      if (!response.ok) throw await refusal(response);
      onState("live");
      wait = 250;
      await read(response, (event) => {
        last = event.id || last;
        onEvent(event.kind, event.data ? JSON.parse(event.data) : null);
      });
    } catch (error) {
      if (!signal.aborted && error.code === 401) onState("signed out");
    }
    if (signal.aborted) return;
    if (looked.aborted) {
      onState("paused");
      continue;
    }
    onState("reconnecting");
    await pause(wait, signal);
  }
}

// rates follows the rates of all services, or of one, each second.
export function rates(parameters, onUpdate, signal) {
  const told = (kind, data) => { if (kind === "rates" && !document.hidden) onUpdate(data); };
  follow(`/status/rates/events?${new URLSearchParams(parameters)}`, told, () => {}, signal);
}

// every calls a function now, and again ms after it has ended, while the tab is visible. A slow
// function is called less often, to limit the load on the server.
export async function every(ms, signal, f) {
  for (let wait = ms; !signal.aborted; await pause(wait, signal)) {
    if (document.hidden) continue;
    const start = performance.now();
    try {
      await f();
      tell(null);
    } catch (error) {
      if (!signal.aborted) tell(error);
    }
    wait = Math.max(ms, 5 * (performance.now() - start));
  }
}

// tell shows the error that keeps the page from being up to date; null: there is none.
export function tell(error) {
  if (error?.name === "AbortError") return;
  document.dispatchEvent(new CustomEvent("trouble", { detail: error }));
}
