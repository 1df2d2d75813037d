// A list of any length, of which only the rows that are seen are there, and asked for. The window scrolls it, so that keys, wheels and fingers
// do what they do anywhere.
import { csv, download } from "./csv.js";
import { el, setText } from "./dom.js";

const page = 100; // rows that are asked for at once
const keep = 12; // pages that are kept
const margin = 6; // rows made beyond the edges
const saved = 100_000; // rows of a file
const tallest = 16e6; // pixels that any browser can lay out

export class List {
  // columns: {key, head, sort, number, value: item => text or {text, href, title, kind, act}}; load: {offset, limit, sort, uncounted} =>
  // {items, total, most}: most, if any, is how many of them can be asked for; with uncounted no total is needed, as
  // there was one before. raw: item => value for files, if it is not the text.
  constructor({ label, name, columns, load, sort = "", empty = "None.", signal, onCount = () => {} }) {
    Object.assign(this, { label, columns, load, sort, empty, signal, onCount });
    this.pages = new Map();
    this.asked = new Set();
    this.rows = new Map();
    this.total = null;
    this.height = 40;
    this.head = el("div", { role: "row", class: "row head", "aria-rowindex": 1 }, columns.map((c) => this.heading(c)));
    this.body = el("div", { role: "rowgroup", class: "rows" });
    this.table = el("div", { role: "table", "aria-label": label, class: `list ${name}` }, el("div", { role: "rowgroup" }, this.head), this.body);
    this.note = el("p", { class: "note", role: "status" }, "Loading …");
    this.csv = el("button", { type: "button", class: "csv", onclick: () => this.save() }, "Save as CSV");
    this.node = el("div", { class: "listing" }, this.table, this.note, this.csv);
    const draw = () => this.schedule();
    window.addEventListener("scroll", draw, { passive: true, signal });
    window.addEventListener("resize", () => { this.measured = false; this.schedule(); }, { passive: true, signal });
  }

  heading(column) {
    const button = column.sort && el("button", { type: "button", onclick: () => this.sortBy(column.key) }, column.head);
    column.node = el("div", { role: "columnheader", class: column.number ? "number" : null }, button || column.head);
    return column.node;
  }

  sortBy(key) {
    this.sort = this.sort === `-${key}` ? key : this.sort === key || !this.numeric(key) ? (this.sort === key ? `-${key}` : key) : `-${key}`;
    this.restart().catch(() => {}); // the next refresh says why
  }

  numeric(key) {
    return this.columns.find((c) => c.key === key)?.number;
  }

  // restart asks anew, from the top, as for another search.
  restart() {
    this.generation = (this.generation ?? 0) + 1;
    this.pages.clear();
    this.asked.clear();
    for (const c of this.columns) {
      const order = this.sort === c.key ? "ascending" : this.sort === `-${c.key}` ? "descending" : "none";
      if (c.sort) c.node.setAttribute("aria-sort", order);
    }
    return this.fetch(this.visible().first);
  }

  // refresh asks again for what is seen.
  async refresh() {
    const { first, last } = this.visible();
    const wanted = new Set([Math.floor(first / page), Math.floor(Math.max(first, last - 1) / page)]);
    for (const p of this.pages.keys()) if (!wanted.has(p)) this.pages.delete(p);
    await Promise.all([...wanted].map((p) => this.fetch(p * page)));
  }

  async fetch(index, scrolled = false) {
    const number = Math.floor(index / page);
    const key = `${this.generation} ${number}`;
    if (this.asked.has(key)) return;
    this.asked.add(key);
    const generation = this.generation;
    try {
      const { items, total, most } = await this.load({ offset: number * page, limit: page, sort: this.sort, uncounted: scrolled });
      if (generation !== this.generation) return;
      this.pages.set(number, items);
      if (this.pages.size > keep) this.pages.delete(this.pages.keys().next().value);
      if (!scrolled) Object.assign(this, { total, most });
    } finally {
      this.asked.delete(key);
    }
    if (this.total != null) this.onCount(this.total);
    this.draw();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => {
      this.scheduled = 0;
      if (!this.signal.aborted) this.draw();
    });
  }

  visible() {
    const top = this.body.getBoundingClientRect().top;
    const shown = Math.min(this.total ?? 0, this.most ?? Infinity, Math.floor(tallest / this.height));
    const first = Math.max(0, Math.min(Math.floor(-top / this.height) - margin, shown - 1));
    return { shown, first, last: Math.max(0, Math.min(shown, Math.ceil((window.innerHeight - top) / this.height) + margin)) };
  }

  draw() {
    if (this.total == null) return;
    if (!this.measured && this.total > 0) {
      const row = this.rows.get(0) ?? this.rows.values().next().value ?? this.row(this.visible().first);
      this.height = row.offsetHeight || this.height;
      this.measured = true;
    }
    const { shown, first, last } = this.visible();
    this.table.setAttribute("aria-rowcount", this.total + 1);
    this.body.style.height = `${shown * this.height}px`;
    for (const [index, row] of this.rows) {
      if (index < first || index >= last) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index < last; index++) this.update(index);
    const more = this.total - shown;
    this.csv.hidden = this.total === 0;
    setText(this.note, this.total === 0 ? this.empty : more > 0 ? `${more.toLocaleString("en")} more: search for fewer.` : "");
  }

  // save makes a file of all rows, in the order that is shown.
  async save() {
    this.csv.disabled = true;
    try {
      const columns = this.columns.filter((c) => !c.act || c.raw);
      const rows = await this.all();
      const cells = rows.map((item) => columns.map((c) => (c.raw ? c.raw(item) : textOf(c.value(item)))));
      download(`${this.label.toLowerCase()}.csv`, csv([columns.map((c) => c.head), ...cells]));
      if (rows.length < this.total) setText(this.note, `The file contains the first ${rows.length.toLocaleString("en")} of ${this.total.toLocaleString("en")}.`);
    } catch (error) {
      if (error.name !== "AbortError") setText(this.note, error.message);
    } finally {
      this.csv.disabled = false;
    }
  }

  async all() {
    const rows = [];
    for (let total = Infinity; rows.length < Math.min(total, this.most ?? saved);) {
      const answer = await this.load({ offset: rows.length, limit: 1000, sort: this.sort });
      rows.push(...answer.items);
      total = answer.items.length ? answer.total : 0; // the list has become shorter
    }
    return rows;
  }

  row(index) {
    const row = el("div", { role: "row", class: "row", "aria-rowindex": index + 2 }, this.columns.map((c) =>
      el("div", { role: "cell", class: c.number ? `number ${c.key}` : c.key, "data-head": c.head })));
    const after = [...this.rows.keys()].filter((i) => i > index).sort((a, b) => a - b)[0];
    this.body.insertBefore(row, after === undefined ? null : this.rows.get(after)); // in the order in which keys go from row to row
    this.rows.set(index, row);
    return row;
  }

  update(index) {
    const row = this.rows.get(index) ?? this.row(index);
    row.style.transform = `translateY(${index * this.height}px)`;
    const item = this.pages.get(Math.floor(index / page))?.[index % page];
    if (item === undefined) {
      if (!this.pages.has(Math.floor(index / page))) this.fetch(index, true).catch(() => {}); // the next refresh says why
      return;
    }
    this.columns.forEach((column, i) => show(row.children[i], column.value(item)));
  }
}

const textOf = (value) => (typeof value === "object" && value !== null ? value.text : value);

// show puts a value into a cell, and leaves what is there already, for who has the focus on it.
function show(cell, value) {
  const { text, href, kind, title, act } = typeof value === "object" && value !== null ? value : { text: value };
  let inner = cell;
  if (href || kind || act) {
    const name = act ? "button" : href ? "a" : "span";
    inner = cell.firstElementChild;
    if (inner?.localName !== name) {
      inner = el(name, act && { type: "button" });
      cell.replaceChildren(inner);
    }
    if (act) inner.onclick = act;
    if (act && title) inner.setAttribute("aria-label", title);
    if (href && inner.getAttribute("href") !== href) inner.setAttribute("href", href);
    if (kind && inner.className !== `badge ${kind}`) inner.className = `badge ${kind}`;
  }
  setText(inner, String(text ?? ""));
  if (title && cell.title !== title) cell.title = title;
}
