/* report.js - what the page adds to its tables: sorting, the graph, kernels' details, the arena, what
   passes changed. It reads the document that the page carries (docs/guide/report.md has its schema),
   loads nothing, and writes every text of the model's as text.

   Parts, in order: texts and elements; tables; views by address; a canvas that pans and zooms; layers
   of a graph; the graph; kernels; the arena; passes; the start. */
"use strict";
(() => {

/* ------------------------------------------------------------------------------ texts and elements */

const byId = id => document.getElementById(id);
const source = byId("document");
const doc = source ? JSON.parse(source.textContent) : null;

/* Characters without a width, and those that change direction, are written out. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]/g;
const visible = s => String(s).replace(HIDDEN, c => `[U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
/* A name that may be of any length. */
const short = (s, most = 120) => s.length > most ? `${visible(s.slice(0, most))}… (${s.length} characters)` : visible(s);

/* An element with attributes; children are elements, or texts. */
function make(tag, attributes = {}, ...children) {
  const e = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
                                   : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) e.setAttribute(name, value === true ? "" : value);
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}

/* Three digits of v in the largest unit of which it has one. */
function scaled(v, units) {
  let i = 0;
  while (i < units.length - 1 && Math.abs(v) >= 999.5) { v /= 1000; i++; }
  return `${Math.abs(v) >= 99.95 ? v.toFixed(0) : Number(v.toPrecision(3))} ${units[i]}`;
}
const time = us => scaled(1000 * us, ["ns", "µs", "ms", "s"]);
const bytes = n => scaled(n, ["B", "kB", "MB", "GB", "TB"]);
const percent = share => `${(100 * share).toFixed(1)} %`;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/* ------------------------------------------------------------------------------------------- tables */

const FILTER_FROM = 12;          /* rows from which a table has a filter */

const keyOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent.toLowerCase();
};

/* Numbers fall at first, texts rise; again turns the order around. */
function sortBy(table, column) {
  const head = table.tHead.rows[0].cells[column], body = table.tBodies[0];
  const isNumber = head.classList.contains("n");
  const falls = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : isNumber;
  for (const th of table.tHead.rows[0].cells) th.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falls ? "descending" : "ascending");
  const rows = [...body.rows].map(row => [keyOf(row, column), row]);
  rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (falls ? -1 : 1));
  body.append(...rows.map(([, row]) => row));
}

function addFilter(table) {
  const caption = table.caption.textContent;
  const input = make("input", {type: "search", placeholder: "Filter", "aria-label": `Filter: ${caption}`, oninput: () => {
    const word = input.value.toLowerCase();
    let n = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(word);
      n += !row.hidden;
    }
    count.textContent = word ? `${n} of ${table.tBodies[0].rows.length}` : "";
  }});
  const count = make("span", {class: "muted", role: "status"});
  table.parentElement.before(make("div", {class: "filter"}, input, count));
}

function enhanceTables() {
  /* where links lead without a script; here they choose a view */
  for (const row of document.querySelectorAll("tr[id]")) row.removeAttribute("id");
  for (const table of document.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length > 1)
      [...table.tHead.rows[0].cells].forEach((th, i) => {
        if (th.textContent)
          th.replaceChildren(make("button", {type: "button", onclick: () => sortBy(table, i)}, th.textContent));
      });
    if (table.tBodies[0].rows.length >= FILTER_FROM) addFilter(table);
  }
}

/* -------------------------------------------------------------------------------- views by address */

const views = {};                /* by section: {draw(), show(what)}, made on first show */

/* "#kernels/conv_3": the section, and what of it. */
function follow() {
  const [id, ...rest] = decodeURIComponent(location.hash.slice(1)).split("/");
  const sections = [...document.querySelectorAll("main > section")];
  const shown = sections.find(s => s.id === id) || sections[0];
  for (const s of sections) s.classList.toggle("shown", s === shown);
  for (const a of document.querySelectorAll("nav a"))
    if (a.hash === `#${shown.id}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  const view = views[shown.id];
  if (view && !view.drawn) { view.drawn = true; view.draw(); }
  if (view && view.show && rest.length) view.show(rest.join("/"));
  else if (!rest.length) requestAnimationFrame(() => window.scrollTo(0, 0));
}

const redraws = [];              /* what a change of colours or of the window draws again */

function addThemeButton() {
  const root = document.documentElement, modes = ["auto", "light", "dark"];
  let mode = "auto";
  const set = m => {
    mode = m;
    if (m === "auto") delete root.dataset.theme;
    else root.dataset.theme = m;
    button.textContent = `Colours: ${m}`;
    redraws.forEach(f => f());
  };
  const button = make("button", {type: "button", id: "theme", onclick: () => set(modes[(modes.indexOf(mode) + 1) % 3])});
  document.querySelector("header").append(button);
  set("auto");
}

/* ------------------------------------------------------------------- a canvas that pans and zooms */

/* A canvas of a height, with world coordinates: x, y of the world at its upper left corner, k pixels
   a unit. paint(context, camera) is called when something has changed. */
class Stage {
  constructor(label, height, paint) {
    this.paint = paint;
    this.x = this.y = 0;
    this.k = 1;
    this.height = height;
    this.canvas = make("canvas", {tabindex: 0, role: "application", "aria-label": label});
    this.canvas.style.height = `${height}px`;
    this.element = make("div", {class: "stage"}, this.canvas);
    this.listen();
    redraws.push(() => this.change());
    new ResizeObserver(() => this.change()).observe(this.canvas);
  }
  get width() { return this.canvas.clientWidth || 1; }
  change() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }
  draw() {
    const ratio = window.devicePixelRatio || 1, w = this.width, h = this.height;
    if (!this.canvas.clientWidth) return;
    if (this.canvas.width !== Math.round(w * ratio) || this.canvas.height !== Math.round(h * ratio)) {
      this.canvas.width = Math.round(w * ratio);
      this.canvas.height = Math.round(h * ratio);
    }
    const c = this.canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, w, h);
    this.paint(c, this);
  }
  /* Shows the box, at most at scale 1. */
  fit(box) {
    const k = Math.min(this.width / (box.w + 40), this.height / (box.h + 40), 1);
    this.k = k > 0 ? k : 1;
    this.x = box.x + box.w / 2 - this.width / 2 / this.k;
    this.y = box.y + box.h / 2 - this.height / 2 / this.k;
    this.change();
  }
  center(x, y) {
    this.x = x - this.width / 2 / this.k;
    this.y = y - this.height / 2 / this.k;
    this.change();
  }
  pan(dx, dy) { this.x -= dx / this.k; this.y -= dy / this.k; this.change(); }
  /* About the point (px, py) of the canvas. */
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const k = Math.min(4, Math.max(1e-4, this.k * factor));
    this.x += px / this.k - px / k;
    this.y += py / this.k - py / k;
    this.k = k;
    this.change();
  }
  at(event) {
    const r = this.canvas.getBoundingClientRect(), px = event.clientX - r.left, py = event.clientY - r.top;
    return {px, py, x: this.x + px / this.k, y: this.y + py / this.k};
  }
  listen() {
    const held = new Map();      /* pointers that are down */
    let moved = 0;
    this.canvas.addEventListener("pointerdown", e => {
      held.set(e.pointerId, this.at(e));
      moved = 0;
      this.canvas.setPointerCapture(e.pointerId);
    });
    this.canvas.addEventListener("pointermove", e => {
      const now = this.at(e), before = held.get(e.pointerId);
      if (!before) { if (this.onhover) this.onhover(now); return; }
      const other = [...held].find(([id]) => id !== e.pointerId);
      if (other)
        this.zoom(Math.hypot(now.px - other[1].px, now.py - other[1].py) /
                  Math.max(1, Math.hypot(before.px - other[1].px, before.py - other[1].py)), now.px, now.py);
      else
        this.pan(now.px - before.px, now.py - before.py);
      moved += Math.abs(now.px - before.px) + Math.abs(now.py - before.py);
      held.set(e.pointerId, now);
    });
    const end = e => {
      if (held.delete(e.pointerId) && moved < 4 && e.type === "pointerup" && this.onpick) this.onpick(this.at(e));
    };
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", end);
    this.canvas.addEventListener("wheel", e => {
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== this.canvas) return;   /* the page scrolls */
      const p = this.at(e);
      e.preventDefault();
      this.zoom(Math.exp(-e.deltaY / 400), p.px, p.py);
    }, {passive: false});
    this.canvas.addEventListener("keydown", e => {
      const step = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]}[e.key];
      if (this.onkey && this.onkey(e.key)) e.preventDefault();
      else if (e.key === "+" || e.key === "=") this.zoom(1.3);
      else if (e.key === "-") this.zoom(1 / 1.3);
      else if (step) { this.pan(...step); e.preventDefault(); }
    });
  }
}

/* ----------------------------------------------------------------------------- layers of a graph */

const NODE_W = 156, NODE_H = 38, GAP_X = 20, LAYER_H = 74, SWEEPS = 6;

/* The longest path from a source, by node; a cycle, which only a foreign document has, is cut. */
function layersOf(n, into, outOf) {
  const layer = new Int32Array(n), open = into.map(list => list.length), queue = [];
  for (let i = 0; i < n; i++) if (!open[i]) queue.push(i);
  for (let at = 0, next = 0; at < n; at++) {
    while (at === queue.length) { if (open[next] > 0) { open[next] = -1; queue.push(next); } next++; }
    const u = queue[at];
    for (const v of outOf[u]) {
      layer[v] = open[v] > 0 ? Math.max(layer[v], layer[u] + 1) : layer[v];
      if (open[v] > 0 && --open[v] === 0) queue.push(v);
    }
  }
  for (let i = 0; i < n; i++)    /* a source stands right above what it feeds */
    if (!into[i].length && outOf[i].length) layer[i] = Math.max(0, Math.min(...outOf[i].map(v => layer[v])) - 1);
  return layer;
}

/* Places in a row, at least `gap` apart, as near as can be to what is wanted (least squares; pool
   adjacent violators). wanted: in the row's order. */
function spread(wanted, gap) {
  const pools = [];
  wanted.forEach((w, i) => {
    let pool = {sum: w - i * gap, n: 1};
    while (pools.length && pools[pools.length - 1].sum / pools[pools.length - 1].n >= pool.sum / pool.n) {
      const last = pools.pop();
      pool = {sum: last.sum + pool.sum, n: last.n + pool.n};
    }
    pools.push(pool);
  });
  return pools.flatMap(p => Array(p.n).fill(p.sum / p.n)).map((x, i) => x + i * gap);
}

/* Adds x, y and layer to the nodes, and the rows in order of x. Each sweep puts a row's nodes at the
   mean of their neighbours in the row before. */
function arrange(graph) {
  const n = graph.nodes.length;
  graph.into = Array.from({length: n}, () => []);
  graph.outOf = Array.from({length: n}, () => []);
  for (const [a, b] of graph.edges)
    if (a >= 0 && b >= 0 && a < n && b < n && a !== b) { graph.outOf[a].push(b); graph.into[b].push(a); }
  const layer = layersOf(n, graph.into, graph.outOf), rows = [];
  graph.nodes.forEach((v, i) => {
    v.layer = layer[i];
    v.y = layer[i] * LAYER_H;
    (rows[layer[i]] = rows[layer[i]] || []).push(i);
  });
  for (let i = 0; i < rows.length; i++) rows[i] = rows[i] || [];
  for (const row of rows) row.forEach((v, i) => { graph.nodes[v].x = (i - (row.length - 1) / 2) * (NODE_W + GAP_X); });
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      for (const v of row) {
        const near = down ? graph.into[v] : graph.outOf[v];
        let sum = 0;
        for (const u of near) sum += graph.nodes[u].x;
        graph.nodes[v].wanted = near.length ? sum / near.length : graph.nodes[v].x;
      }
      row.sort((a, b) => graph.nodes[a].wanted - graph.nodes[b].wanted || a - b);
      spread(row.map(v => graph.nodes[v].wanted), NODE_W + GAP_X).forEach((x, i) => { graph.nodes[row[i]].x = x; });
    }
  }
  graph.rows = rows;
  graph.long = [];               /* edges over several layers, which no row in view may have an end of */
  for (const [a, b] of graph.edges)
    if (graph.nodes[a] && graph.nodes[b] && Math.abs(layer[a] - layer[b]) > 1) graph.long.push([a, b]);
  let left = Infinity, right = -Infinity;
  for (const v of graph.nodes) { left = Math.min(left, v.x); right = Math.max(right, v.x); }
  graph.box = {x: (n ? left : 0) - NODE_W / 2, y: -NODE_H / 2, w: n ? right - left + NODE_W : 1,
               h: Math.max(1, rows.length - 1) * LAYER_H + NODE_H};
  return graph;
}

/* ---------------------------------------------------------------------------------------- the graph */

/* Microseconds of each kernel: measured where the document has that, else estimated. */
function kernelTimes() {
  const measured = doc.bench && doc.bench.kernel_times;
  return doc.kernel_list.map((k, i) => measured && measured[i] ? measured[i].us : k.predicted_us);
}

/* The model's nodes; each has the time of the kernels whose main node it is. */
function modelGraph(times) {
  const nodes = doc.nodes.map((n, i) => ({title: n.op, name: n.name, type: n.type, kind: n.kind, us: 0, kernels: [], of: i}));
  doc.kernel_nodes.forEach((list, k) => list.forEach((v, i) => {
    if (!nodes[v]) return;
    nodes[v].kernels.push(k);
    if (i === 0) nodes[v].us += times[k];
  }));
  return {nodes, edges: doc.edges};
}

/* Blocks: nodes whose names are paths ("/encoder/layer_3/Mul") and share leading parts. An open one
   shows its nodes and inner blocks, a closed one is a node of the picture. */
class Blocks {
  constructor() {
    this.size = new Map();         /* nodes by block */
    this.above = doc.nodes.map(n => n.kind === "node" ? this.pathOf(n.name) : []);
    for (const path of this.above) for (const b of path) this.size.set(b, (this.size.get(b) || 0) + 1);
    this.above = this.above.map(path => path.filter((b, i) => this.size.get(b) > 1 && this.size.get(b) !== this.size.get(path[i - 1])));
    this.open = new Set();
  }
  /* Names of the blocks around a node, the outermost first. */
  pathOf(name) {
    const DEPTH_MOST = 8, parts = name.length < 1000 ? name.split("/").filter(Boolean).slice(0, -1) : [];
    return parts.slice(0, DEPTH_MOST).map((_, i) => parts.slice(0, i + 1).join("/"));
  }
  get any() { return this.above.some(path => path.length); }
  /* The closed block that stands for a node; undefined: the node itself. */
  closedAround(i) { return this.above[i].find(b => !this.open.has(b)); }
  /* Opens the largest ones, equally large ones together, while there is room for what they hold. */
  openSome(most) {
    for (;;) {
      const closed = new Set(this.above.map((_, i) => this.closedAround(i)).filter(b => b !== undefined));
      const size = Math.max(0, ...[...closed].map(b => this.size.get(b))), largest = [...closed].filter(b => this.size.get(b) === size);
      if (!largest.length) return;
      largest.forEach(b => this.open.add(b));
      const shown = new Set(this.above.map((_, i) => this.closedAround(i) || i));
      if (shown.size > most) { largest.forEach(b => this.open.delete(b)); return; }
    }
  }
  graph(times) {
    const all = modelGraph(times), nodes = [], of = new Map(), at = [], seen = new Set(), edges = [];
    all.nodes.forEach((v, i) => {
      const b = this.closedAround(i);
      if (b === undefined) { at[i] = nodes.push(v) - 1; return; }
      if (!of.has(b)) of.set(b, nodes.push({title: b.split("/").pop(), name: b, type: "", kind: "block", us: 0, kernels: [], block: b}) - 1);
      const block = nodes[at[i] = of.get(b)];
      block.us += v.us;
      block.kernels = [...new Set([...block.kernels, ...v.kernels])];
    });
    for (const [a, b] of all.edges) {
      const key = `${at[a]} ${at[b]}`;
      if (at[a] !== at[b] && !seen.has(key)) { seen.add(key); edges.push([at[a], at[b]]); }
    }
    return {nodes, edges};
  }
}

/* Kernels, and which reads what another one has written before. */
function kernelGraph(times) {
  const writer = new Map(), edges = [], seen = new Set();
  const nodes = doc.kernel_list.map((k, i) => ({title: k.name, name: k.title, type: k.limit, kind: "node", us: times[i], kernels: [i]}));
  doc.kernel_list.forEach((k, i) => {
    for (const r of k.reads) {
      const from = writer.get(r.buffer), key = `${from} ${i}`;
      if (from !== undefined && from !== i && !seen.has(key)) { seen.add(key); edges.push([from, i]); }
    }
    for (const w of k.writes) writer.set(w.buffer, i);
  });
  return {nodes, edges};
}

const ROW_PIXELS = 3;            /* of a layer: below that, rows are drawn and not nodes */
const SHOWN_AT_FIRST = 48;       /* nodes and closed blocks, as far as opening blocks decides */
const EDGES_MOST = 4000;         /* drawn in one picture; of more, each n-th */

class GraphView {
  constructor(times) {
    this.blocks = new Blocks();
    this.blocks.openSome(SHOWN_AT_FIRST);
    this.make = {blocks: () => arrange(this.blocks.graph(times)), model: () => arrange(modelGraph(times)), kernels: () => arrange(kernelGraph(times))};
    this.made = {};
    this.total = times.reduce((a, b) => a + b, 0);
    this.stage = new Stage("Graph. Arrow keys follow edges or pan, plus and minus zoom, 0 shows all, slash searches, Enter opens a block or a kernel, c closes a block",
                           560, (c, camera) => this.paint(c, camera));
    this.map = make("canvas", {class: "map", "aria-hidden": "true"});
    this.stage.element.append(this.map);
    this.under = make("div", {class: "under", role: "status"});
    this.hits = make("ul", {class: "hits"});
    this.search = make("input", {type: "search", placeholder: "Search nodes", "aria-label": "Search nodes by name or operator",
                                 oninput: () => this.find(), onkeydown: e => { if (e.key === "Enter" && this.found) this.found(); }});
    this.stage.onpick = p => {
      const i = this.nodeAt(p.x, p.y);
      if (i !== undefined && i === this.selected && this.graph.nodes[i].block) this.toggle(this.graph.nodes[i].block);
      else this.select(i);
    };
    this.stage.onkey = key => this.key(key);
    this.listenToMap();
    redraws.push(() => { this.drawMap(); });
  }
  element() {
    const option = (value, words) => make("option", {value}, words);
    const select = this.choice = make("select", {"aria-label": "What is drawn", onchange: () => this.show(select.value)}, this.blocks.any ? option("blocks", "Model's blocks") : null,
                                      option("model", "Model's nodes"), option("kernels", "Kernels (fused)"));
    const button = (label, title, f) => make("button", {type: "button", "aria-label": title, title, onclick: f}, label);
    return make("div", {},
      make("div", {class: "tools"}, select, this.search, button("+", "Zoom in", () => this.stage.zoom(1.3)),
           button("−", "Zoom out", () => this.stage.zoom(1 / 1.3)), button("All", "Show all", () => this.stage.fit(this.graph.box)),
           make("span", {class: "muted"}, `Click a node${this.blocks.any ? ", twice to open a block" : ""}; drag to move; Ctrl and wheel to zoom`)),
      this.hits, this.stage.element, this.under);
  }
  show(what) {
    this.what = what;
    this.graph = this.made[what] = this.made[what] || this.make[what]();
    this.selected = null;
    this.most = this.graph.nodes.reduce((most, v) => Math.max(most, v.us), 1e-9);
    this.start();
    this.drawMap();
    this.describe();
  }
  /* Opens or closes a block; what becomes of it stays where it was. */
  toggle(block) {
    const {x, y, k} = this.stage, opens = !this.blocks.open.delete(block);
    if (opens) this.blocks.open.add(block);
    this.made.blocks = null;
    this.show("blocks");
    const i = this.graph.nodes.findIndex(v => opens ? v.of !== undefined && this.blocks.above[v.of].includes(block) || v.block && v.block.startsWith(`${block}/`) : v.block === block);
    Object.assign(this.stage, {x, y, k});
    this.select(i < 0 ? undefined : i);
    if (i >= 0) this.stage.center(this.graph.nodes[i].x, this.graph.nodes[i].y);
  }
  /* Opens what is around a node of the model, and selects it. */
  reveal(of) {
    for (const b of this.blocks.above[of]) this.blocks.open.add(b);
    this.made.blocks = null;
    this.show("blocks");
    this.select(this.graph.nodes.findIndex(v => v.of === of));
  }
  /* The beginning at a scale that can be read; all of it where it fits. */
  start() {
    this.stage.fit(this.graph.box);
    if (this.stage.k >= 0.5 || !this.graph.rows.length) return;
    this.stage.k = 0.8;
    const first = this.graph.nodes[this.graph.rows[0][0]];
    this.stage.center(first ? first.x : 0, 560 / 2 / 0.8 - 60);
  }
  nodeAt(x, y) {
    const row = this.graph.rows[Math.round(y / LAYER_H)] || [];
    return row.find(v => Math.abs(this.graph.nodes[v].x - x) <= NODE_W / 2 && Math.abs(this.graph.nodes[v].y - y) <= LAYER_H / 2);
  }
  find() {
    const word = this.search.value.toLowerCase(), MOST = 24, inBlocks = this.what === "blocks";
    const hits = [], list = inBlocks ? doc.nodes.map(n => ({name: n.name, title: n.op})) : this.graph.nodes;
    list.forEach((v, i) => {
      if (word && hits.length <= MOST && `${v.name} ${v.title}`.toLowerCase().includes(word)) hits.push(i);
    });
    const go = i => inBlocks ? this.reveal(i) : this.select(i);
    this.found = hits.length ? () => go(hits[0]) : null;
    this.hits.replaceChildren(...hits.slice(0, MOST).map(i =>
      make("li", {}, make("button", {type: "button", onclick: () => go(i)}, short(list[i].name || list[i].title, 40)))),
      ...(hits.length > MOST ? [make("li", {class: "muted"}, "and more")] : []));
  }
  select(i) {
    this.selected = i === undefined ? null : i;
    if (i !== undefined && i !== null) {
      const v = this.graph.nodes[i], s = this.stage;
      s.k = Math.max(s.k, 0.5);
      const inside = v.x - NODE_W / 2 > s.x && v.x + NODE_W / 2 < s.x + s.width / s.k && v.y > s.y + 30 && v.y < s.y + s.height / s.k - 30;
      if (!inside) s.center(v.x, v.y);
    }
    this.describe();
    this.stage.change();
  }
  describe() {
    const v = this.selected === null ? null : this.graph.nodes[this.selected];
    if (!v) { this.under.textContent = `${this.graph.nodes.length} nodes, ${this.graph.edges.length} edges. No node is selected.`; return; }
    const around = this.what !== "blocks" || v.block ? [] : this.blocks.above[v.of];
    const close = around.map(b => make("button", {type: "button", onclick: () => this.toggle(b)}, `Close ${short(b.split("/").pop(), 30)}`));
    if (v.block) {
      this.under.replaceChildren(make("b", {}, short(v.name)), ` ${this.blocks.size.get(v.block)} nodes, ${v.kernels.length} kernels, ${time(v.us)}, ${percent(this.total ? v.us / this.total : 0)} of the time. `,
        make("button", {type: "button", onclick: () => this.toggle(v.block)}, "Open"));
      return;
    }
    const links = v.kernels.slice(0, 8).flatMap((k, i) => [i ? ", " : "", make("a", {class: "k", href: `#kernels/${doc.kernel_list[k].name}`}, doc.kernel_list[k].name)]);
    this.under.replaceChildren(make("b", {}, short(v.name || v.title)), ` ${visible(v.title)} ${visible(v.type)}. `,
      ...(links.length ? ["Computed in ", ...links, v.us ? `, ${time(v.us)}, ${percent(this.total ? v.us / this.total : 0)} of the time.` : ", with its main node."]
                       : [v.kind === "node" ? "No kernel computes it: it only moves data, or is known when the model is compiled." : ""]), ...close);
  }
  key(key) {
    const g = this.graph, at = this.selected, go = i => { if (i !== undefined) this.select(i); return true; };
    if (key === "0") { this.stage.fit(g.box); return true; }
    if (key === "/") { this.search.focus(); return true; }
    if (key === "Escape") { this.select(undefined); return true; }
    if (key === "Enter" && at === null) return go(g.rows[0] && g.rows[0][0]);
    if (at === null) return false;
    const inner = this.what === "blocks" && !g.nodes[at].block ? this.blocks.above[g.nodes[at].of] : [];
    if (key === "Enter" && g.nodes[at].block) { this.toggle(g.nodes[at].block); return true; }
    if (key === "c" && inner.length) { this.toggle(inner[inner.length - 1]); return true; }
    const row = g.rows[g.nodes[at].layer], place = row.indexOf(at);
    if (key === "ArrowDown") return go(g.outOf[at][0]);
    if (key === "ArrowUp") return go(g.into[at][0]);
    if (key === "ArrowLeft") return go(row[place - 1]);
    if (key === "ArrowRight") return go(row[place + 1]);
    if (key === "Enter" && g.nodes[at].kernels.length) { location.hash = `#kernels/${doc.kernel_list[g.nodes[at].kernels[0]].name}`; return true; }
    return false;
  }
  paint(c, camera) {
    if (!this.graph) return;
    const g = this.graph, {x, y, k} = camera, w = camera.width, h = camera.height;
    const first = Math.max(0, Math.floor(y / LAYER_H) - 1), last = Math.min(g.rows.length - 1, Math.ceil((y + h / k) / LAYER_H) + 1);
    if (LAYER_H * k < ROW_PIXELS) { this.paintRows(c, camera, first, last); this.paintFrame(); return; }
    const shown = [];
    for (let r = first; r <= last; r++) {
      const row = g.rows[r], from = x - NODE_W;
      let low = 0, high = row.length;
      while (low < high) { const middle = (low + high) >> 1; if (g.nodes[row[middle]].x < from) low = middle + 1; else high = middle; }
      for (; low < row.length && g.nodes[row[low]].x < x + w / k + NODE_W; low++) shown.push(row[low]);
    }
    const place = v => [(g.nodes[v].x - x) * k, (g.nodes[v].y - y) * k];
    this.paintEdges(c, k, shown, place, first, last);
    this.paintNodes(c, k, shown, place);
    this.paintFrame();
  }
  paintEdges(c, k, shown, place, first, last) {
    const g = this.graph, list = [];
    for (const v of shown) for (const u of g.outOf[v]) list.push([v, u]);
    for (const [a, b] of g.long)
      if (list.length < 4 * EDGES_MOST && g.nodes[a].layer < first && g.nodes[b].layer >= first) list.push([a, b]);
    const stride = Math.ceil(list.length / EDGES_MOST), half = k > 0.2 ? NODE_H / 2 * k : 0;
    const line = (a, b) => {
      const [ax, ay] = place(a), [bx, by] = place(b), bend = (by - ay) / 2, span = g.nodes[b].layer - g.nodes[a].layer;
      const aside = span > 1 && Math.abs(ax - bx) < NODE_W * k ? (NODE_W * 0.9 + 12 * Math.min(span, 12)) * k * (a % 2 ? 1 : -1) : 0;
      c.moveTo(ax, ay + half);
      if (aside) c.bezierCurveTo(ax + aside, ay + half + 20 * k, bx + aside, by - half - 20 * k, bx, by - half);
      else if (k > 0.3) c.bezierCurveTo(ax, ay + half + bend / 2, bx, by - half - bend / 2, bx, by - half);
      else c.lineTo(bx, by - half);
    };
    c.beginPath();
    c.strokeStyle = colour("muted");
    c.globalAlpha = k > 0.3 ? 0.55 : 0.3;
    c.lineWidth = 1;
    for (let i = 0; i < list.length; i += stride) line(...list[i]);
    c.stroke();
    c.globalAlpha = 1;
    if (this.selected === null) return;
    c.beginPath();
    c.strokeStyle = colour("accent");
    c.lineWidth = 2;
    for (const u of g.outOf[this.selected]) line(this.selected, u);
    for (const u of g.into[this.selected]) line(u, this.selected);
    c.stroke();
  }
  /* Levels of detail: blocks of colour; with the operator; with the name as well. */
  paintNodes(c, k, shown, place) {
    const of = {text: colour("text"), bg: colour("bg"), area: colour("area"), panel: colour("panel"), muted: colour("muted"), accent: colour("accent")};
    if (k <= 0.1) { this.paintBlocks(c, k, shown, place, of); return; }
    const w = NODE_W * k, h = NODE_H * k;
    c.textBaseline = "middle";
    c.textAlign = "center";
    for (const v of shown) {
      const n = this.graph.nodes[v], [px, py] = place(v), chosen = v === this.selected, moves = !n.kernels.length && n.kind === "node";
      if (n.block && k > 0.2) {      /* a second edge behind it: there is more inside */
        c.strokeStyle = of.muted;
        c.lineWidth = 1;
        c.strokeRect(px - w / 2 + 4 * k, py - h / 2 + 4 * k, w, h);
      }
      c.fillStyle = n.kind === "node" || n.block ? of.bg : of.panel;
      c.fillRect(px - w / 2, py - h / 2, w, h);
      c.globalAlpha = n.us ? 0.08 + 0.62 * Math.sqrt(n.us / this.most) : 0;
      c.fillStyle = of.area;
      c.fillRect(px - w / 2, py - h / 2, w, h);
      c.globalAlpha = 1;
      c.strokeStyle = chosen ? of.accent : of.muted;
      c.lineWidth = chosen ? 2.5 : moves ? 0.5 : 1;
      c.setLineDash(moves ? [3, 3] : []);
      c.strokeRect(px - w / 2, py - h / 2, w, h);
      c.setLineDash([]);
      if (k > 0.32) this.paintText(c, k, n, px, py, of);
    }
  }
  /* From so far away that rows are thinner than a few pixels: a block for each row that has some of its
     own, as dark as its longest node. */
  paintRows(c, camera, first, last) {
    const g = this.graph, {x, y, k} = camera, step = Math.max(1, Math.floor(1 / (LAYER_H * k))), area = colour("area"), muted = colour("muted");
    for (let r = first; r <= last; r += step) {
      const row = g.rows[r];
      if (!row.length) continue;
      const from = (g.nodes[row[0]].x - NODE_W / 2 - x) * k, to = (g.nodes[row[row.length - 1]].x + NODE_W / 2 - x) * k;
      const most = row.reduce((m, v) => Math.max(m, g.nodes[v].us), 0);
      c.globalAlpha = 0.25 + 0.75 * Math.sqrt(most / this.most);
      c.fillStyle = most ? area : muted;
      c.fillRect(from, (r * LAYER_H - NODE_H / 2 - y) * k, Math.max(2, to - from), Math.max(1, NODE_H * k * step));
    }
    c.globalAlpha = 1;
    if (this.selected === null) return;
    const v = g.nodes[this.selected];
    c.fillStyle = colour("text");
    c.fillRect((v.x - x) * k - 6, (v.y - y) * k - 1.5, 12, 3);
  }
  /* From far away: a path for each of a few shades. */
  paintBlocks(c, k, shown, place, of) {
    const SHADES = 6, w = Math.max(1, NODE_W * k), h = Math.max(1.5, NODE_H * k), paths = Array.from({length: SHADES + 1}, () => new Path2D());
    for (const v of shown) {
      const [px, py] = place(v);
      paths[Math.round(SHADES * Math.sqrt(this.graph.nodes[v].us / this.most))].rect(px - w / 2, py - h / 2, w, h);
    }
    paths.forEach((path, i) => {
      c.globalAlpha = 0.25 + 0.75 * i / SHADES;
      c.fillStyle = i ? of.area : of.muted;
      c.fill(path);
    });
    c.globalAlpha = 1;
    if (this.selected === null) return;
    const [px, py] = place(this.selected);
    c.fillStyle = of.accent;
    c.fillRect(px - Math.max(4, w) / 2, py - Math.max(4, h) / 2, Math.max(4, w), Math.max(4, h));
  }
  paintText(c, k, n, px, py, of) {
    /* the end of a long name tells more: names are paths */
    const fit = (s, size) => { const most = Math.floor(NODE_W * k / (size * 0.58)); return s.length > most ? `…${s.slice(1 - Math.max(2, most))}` : s; };
    const size = Math.min(13, 13 * k), two = k > 0.6 && n.name && n.name !== n.title;
    c.fillStyle = of.text;
    c.font = `600 ${size}px system-ui, sans-serif`;
    c.fillText(fit(visible(n.title.slice(-60)), size), px, py - (two ? size * 0.6 : 0));
    if (!two) return;
    c.fillStyle = n.us > this.most / 8 ? of.text : of.muted;
    c.font = `${size * 0.9}px system-ui, sans-serif`;
    c.fillText(fit(visible(n.name.slice(-60)), size * 0.9), px, py + size * 0.7);
  }
  /* The minimap: all nodes once, then the frame of what is in view. */
  drawMap() {
    if (!this.graph) return;
    const g = this.graph, w = this.map.clientWidth || 132, h = this.map.clientHeight || 176, k = Math.min(w / g.box.w, h / g.box.h);
    this.scale = {k, x: (w - g.box.w * k) / 2, y: (h - g.box.h * k) / 2};
    this.picture = make("canvas", {width: w, height: h});
    const c = this.picture.getContext("2d");
    for (const v of g.nodes) {
      c.globalAlpha = 0.3 + 0.7 * Math.sqrt(v.us / this.most);
      c.fillStyle = v.us ? colour("area") : colour("muted");
      c.fillRect(this.scale.x + (v.x - NODE_W / 2 - g.box.x) * k, this.scale.y + (v.y - NODE_H / 2 - g.box.y) * k, Math.max(1, NODE_W * k), Math.max(1, NODE_H * k));
    }
    this.stage.change();
  }
  paintFrame() {
    if (!this.picture) return;
    const {k, x, y} = this.scale, s = this.stage, g = this.graph;
    this.map.width = this.picture.width;
    this.map.height = this.picture.height;
    const c = this.map.getContext("2d");
    c.drawImage(this.picture, 0, 0);
    c.strokeStyle = colour("accent");
    c.strokeRect(x + (s.x - g.box.x) * k, y + (s.y - g.box.y) * k, s.width / s.k * k, s.height / s.k * k);
  }
  listenToMap() {
    const go = e => {
      const r = this.map.getBoundingClientRect(), {k, x, y} = this.scale;
      this.stage.center(this.graph.box.x + (e.clientX - r.left - x) / k, this.graph.box.y + (e.clientY - r.top - y) / k);
    };
    this.map.addEventListener("pointerdown", e => { this.map.setPointerCapture(e.pointerId); go(e); });
    this.map.addEventListener("pointermove", e => { if (e.buttons) go(e); });
  }
}

views.graph = {
  draw() {
    this.view = new GraphView(kernelTimes());
    byId("graph-view").append(this.view.element());
    this.view.show(this.view.choice.value);
  },
};

/* ------------------------------------------------------------------------------------------ kernels */

const bufferById = new Map();
const nameOf = b => b ? short(b.name || `b${b.id}`, 60) : "?";
const shapeOf = t => `${t.dtype}[${t.shape.join(",")}]`;

/* Which kernels write and read a buffer. */
function touchedBy(id) {
  const of = {writes: [], reads: []};
  for (const k of doc.kernel_list)
    for (const side of ["writes", "reads"])
      if (k[side].some(b => b.buffer === id)) of[side].push(k.name);
  return of;
}

const kernelLinks = names => names.slice(0, 6).flatMap((n, i) => [i ? ", " : "", make("a", {class: "k", href: `#kernels/${n}`}, n)]);

/* "lanes 0 axis=3 n=13": its sentence is the one of its first word, which is said once. */
function optList(opts) {
  if (!opts.length) return make("p", {class: "muted"}, "None: the loops are as they were lowered.");
  const said = new Set(), sentence = kind => said.has(kind) ? "" : (said.add(kind), ` ${(doc.opts[kind] || "").replace(/`/g, "")}`);
  return make("ol", {}, ...opts.map(o => make("li", {}, make("code", {}, o), sentence(o.split(" ")[0]))));
}

/* "winograd 27c1 side=4x2": what such a line of a tune file says, for people. */
function winogradText(line) {
  const words = line.split(" ").slice(2), side = (words.find(w => w.startsWith("side=")) || "").slice(5);
  if (words.includes("apart")) return "one product for each tap";
  return /^[0x]*$/.test(side) ? "sums of products" : `Winograd's tiles of ${side}`;
}

const CANDIDATES = 4;            /* rejected ones that are listed */

/* One list: the candidate that was taken, then the best of the others; [text, words, rank, taken]. */
function candidateItems(all) {
  const taken = all.filter(x => x.taken), others = all.filter(x => !x.taken).sort((a, b) => a.rank - b.rank), left = others.length - CANDIDATES;
  return [...taken, ...others.slice(0, CANDIDATES)].map(x => make("li", {}, x.taken ? make("b", {}, "taken: ") : "rejected: ", x.text, x.words))
    .concat(left > 0 ? [make("li", {class: "muted"}, `${left} more in the document`)] : []);
}

/* The choices that were made for a kernel, or for its nodes before it was one. */
function choiceList(k, index, isas) {
  const main = doc.nodes[doc.kernel_nodes[index][0]], lists = [];
  for (const c of doc.choices) {
    const isa = c.taken.split(" ")[2];
    if (c.kernel === k.name && c.tiles && isas.has(isa) && c.tiles.some(t => t.text !== "no tile"))
      lists.push([`Tile, ${isa}`, c.tiles.map(t => ({taken: t.taken, text: t.text, rank: -t.share, words: t.taken ? "" : `, ${percent(t.share)} of the best by the cost model`}))]);
    if (!c.kernel && c.us && main && c.node && c.node === main.name) {
      const seen = new Set();
      const all = c.candidates.map((line, i) => c.us[i] === null ? null : ({taken: line === c.taken, text: winogradText(line), rank: c.us[i], words: `, ${time(c.us[i])} by the cost model`})).filter(Boolean);
      lists.push([`Layer ${short(c.node, 60)}`, all.filter(x => x.taken || !seen.has(x.text + x.words) && seen.add(x.text + x.words))]);
    }
  }
  return lists.flatMap(([title, all]) => [make("h4", {}, title), make("ul", {}, ...candidateItems(all))]);
}

/* Of a device: the kinds of schedules that were compared, the chosen one first. */
function comparedList(k) {
  const c = doc.compared.find(x => x.kernel === k.name), order = ["chosen", "slower", "rule", "refused", "inapplicable"];
  if (!c) return [];
  const rank = r => order.indexOf(r.state) + (r.us ? 1 - 1 / (1 + r.us) : 1), words = r => [r.text, r.why].filter(Boolean).join("; ");
  const items = [...c.candidates].sort((x, y) => rank(x) - rank(y)).map(r => make("li", {class: r.us ? null : "muted"},
    r.state === "chosen" ? make("b", {}, "taken: ") : r.us ? "rejected: " : "not applicable: ", r.is || r.kind, r.us ? `, ${time(r.us)}` : "", words(r) ? `: ${words(r)}` : ""));
  return [make("h4", {}, "Schedules"), make("ul", {}, ...items)];
}

/* Why what it reads was stored by another kernel, and its own result for others. */
function fusionList(k) {
  const items = [];
  for (const [side, list] of [["reads", k.reads], ["writes", k.writes]])
    for (const r of list) {
      const b = bufferById.get(r.buffer), of = touchedBy(r.buffer);
      if (!b || (side === "reads" ? !of.writes.length : !of.reads.length)) continue;
      items.push(make("li", {}, make("b", {}, nameOf(b)), side === "reads" ? ", by " : ", for ", ...kernelLinks(side === "reads" ? of.writes : of.reads),
                      b.why ? ` is stored: ${b.why}.` : " is stored as the model computes it."));
    }
  return items;
}

function sourcePane(k, list) {
  const pre = make("pre", {tabindex: 0, "aria-label": "Source"});
  if (!list.length) return make("p", {class: "muted"}, "It calls the function of an equal kernel before it.");
  const select = make("select", {"aria-label": "Instruction set", onchange: () => { pre.textContent = visible(list[select.selectedIndex].text); }},
                      ...list.map(s => make("option", {}, s.isa)));
  pre.textContent = visible(list[0].text);
  return make("div", {}, list.length > 1 ? make("div", {class: "tools"}, select, make("span", {class: "muted"}, "portable, and as the machine would run it")) : null, pre);
}

const OPTS_OPEN = 12;            /* steps of a list that is open at first */
const BANDS = 6;                 /* colours of lines that have instructions, in turn */

/* Source and assembly side by side: a line of one marks what it is in the other. */
class CodePair {
  constructor(list, assembly) {
    this.list = list;
    this.assembly = assembly;
    const pane = label => make("pre", {tabindex: 0, class: "code", "aria-label": label, onclick: e => this.choose(Number(e.target.dataset.line) || 0), onkeydown: e => this.key(e)});
    this.source = pane("Source. Up and down choose a line that has instructions");
    this.target = pane("Assembly. Up and down choose a line of the source");
    this.status = make("span", {class: "muted", role: "status"});
    this.select = make("select", {"aria-label": "Instruction set", onchange: () => this.draw()}, ...list.map(s => make("option", {}, s.isa)));
    this.select.selectedIndex = list.length - 1;
    this.draw();
  }
  element() {
    return make("div", {}, make("div", {class: "tools"}, this.select, this.status), make("div", {class: "pair"}, this.source, this.target));
  }
  draw() {
    const s = this.list[this.select.selectedIndex], a = this.assembly.find(x => x.isa === s.isa), count = new Map(), band = new Map();
    for (const line of a ? a.lines : []) count.set(line, (count.get(line) || 0) + 1);
    this.lines = [...count.keys()].filter(line => line > 0).sort((x, y) => x - y);
    this.lines.forEach((line, i) => band.set(line, `band${i % BANDS}`));
    const span = (line, text, n) => make("span", {"data-line": band.has(line) ? line : null, class: band.get(line) || null, "data-n": n}, visible(text) || " ");
    this.source.replaceChildren(...s.text.split("\n").map((text, i) => span(i + 1, text, count.get(i + 1) || "")));
    this.target.replaceChildren(...(a ? a.text.split("\n").slice(0, a.lines.length).map((text, i) => span(a.lines[i], text, null)) : ["The compiler left no instruction of it: an equal function stands for it."]),
      ...(a && a.left_out ? [make("span", {class: "muted"}, `… and ${a.left_out} more`)] : []));
    this.count = count;
    this.chosen = 0;
    this.status.textContent = `${a ? a.lines.length : 0} instructions by ${doc.assembly.by}; choose a line`;
  }
  choose(line) {
    if (!line) return;
    this.chosen = line;
    for (const pane of [this.source, this.target]) {
      for (const e of pane.children) e.classList.toggle("on", Number(e.dataset.line) === line);
      const first = pane.querySelector(".on");
      if (first && (first.offsetTop < pane.scrollTop || first.offsetTop + 20 > pane.scrollTop + pane.clientHeight)) pane.scrollTop = first.offsetTop - 40;
    }
    this.status.textContent = `Line ${line}: ${this.count.get(line)} instructions`;
  }
  key(e) {
    const step = {ArrowDown: 1, ArrowUp: -1}[e.key];
    if (!step || !this.lines.length) return;
    const at = this.lines.indexOf(this.chosen);
    this.choose(this.lines[Math.max(0, Math.min(this.lines.length - 1, at + step))]);
    e.preventDefault();
  }
}

/* Below the reasons, over the whole width; null: there is no assembly of it. */
function assemblyPart(k, list) {
  const of = doc.assembly ? doc.assembly.kernels.filter(x => x.kernel === k.name) : [];
  if (!of.length || !list.length) return null;
  const ran = doc.bench.ran_by, byLlvm = ran.startsWith("LLVM");
  return make("div", {}, make("h4", {}, "Source and assembly"),
    byLlvm ? make("p", {class: "muted"}, `The times are those of ${ran}, which compiled the same loops in the process; with `, make("span", {class: "option"}, "--target=c"), ", bench runs what stands here.") : null,
    new CodePair(list, of).element());
}

function showKernel(name) {
  const index = doc.kernel_list.findIndex(k => k.name === name), k = doc.kernel_list[index], pane = byId("kernel-detail");
  if (!k) { pane.replaceChildren(); return; }
  const measured = doc.bench && doc.bench.kernel_times[index];
  const facts = [measured ? `${time(measured.us)} measured, ${time(k.predicted_us)} estimated` : `${time(k.predicted_us)} estimated`,
                 scaled(k.flop, ["FLOP", "kFLOP", "MFLOP", "GFLOP"]), `${bytes(k.bytes)} of tensors`, `${bytes(k.weight_bytes)} of weights`,
                 k.arithmetic_us !== undefined ? `arithmetic alone ${time(k.arithmetic_us)}` : `${k.threads} threads, blocks of ${k.block}`, `limited by ${k.limit}`];
  const schedules = doc.schedules.filter(s => s.kernel === name), isas = new Set(doc.sources.filter(s => s.kernel === name).map(s => s.isa));
  const shown = schedules.filter(s => isas.has(s.isa)), choices = choiceList(k, index, isas), fusion = fusionList(k);
  const heading = make("h3", {tabindex: -1}, k.name), sources = doc.sources.filter(s => s.kernel === name), assembly = assemblyPart(k, sources);
  const loops = (shown.length ? shown : schedules.slice(-1)).map(s => make("details", {open: s.opts.length <= OPTS_OPEN}, make("summary", {}, `What was done to its loops (${s.isa}): ${s.opts.length} steps`), optList(s.opts)));
  pane.replaceChildren(make("div", {class: "detail"}, heading, make("p", {}, short(k.title || "copies", 400)), make("p", {class: "muted"}, facts.join(" · ")),
    make("div", {class: assembly ? "columns even" : "columns"},
      make("div", {}, ...(choices.length ? choices : doc.compared.length ? [] : [make("h4", {}, "Tile"), make("p", {class: "muted"}, "The cost model had no tiles to choose from: its loops are as the steps say.")]),
           ...comparedList(k), make("h4", {}, "Why not one kernel with its neighbours"),
           fusion.length ? make("ul", {}, ...fusion) : make("p", {class: "muted"}, "It reads inputs and weights alone, and no kernel reads its result."),
           ...(assembly ? [] : loops)),
      assembly ? make("div", {}, ...loops) : make("div", {}, make("h4", {}, "Source"), sourcePane(k, sources),
        doc.bench && !doc.compared.length ? make("p", {class: "muted"}, "No assembly: tgc bench found no C compiler or no objdump (Debian: apt-get install gcc binutils).") : null)),
    assembly));
  heading.focus({preventScroll: true});
  pane.scrollIntoView({block: "start"});
}

/* The roofline: FLOP/s over FLOP a byte, both logarithmic; a circle's area is the kernel's time. */
function roofline(times) {
  const W = 1000, H = 280, L = 56, B = 34, peak = doc.machine.gflops, rate = doc.machine.gbytes_per_second;
  const points = doc.kernel_list.map((k, i) => ({k, us: times[i], x: k.flop / Math.max(1, k.bytes), y: k.flop / Math.max(1e-9, times[i]) / 1000}))
                    .filter(p => p.x > 0 && p.y > 0).sort((a, b) => b.us - a.us).slice(0, 400);
  if (!points.length || !(peak > 0) || !(rate > 0)) return null;
  const span = (v, more) => [Math.floor(Math.log10(Math.min(...v)) - more), Math.ceil(Math.log10(Math.max(...v)) + more)];
  const [x0, x1] = span(points.map(p => p.x).concat(peak / rate), 0.1), [y0, y1] = span(points.map(p => p.y).concat(peak), 0.05);
  const px = v => L + (Math.log10(v) - x0) / (x1 - x0) * (W - L - 12), py = v => H - B - (Math.log10(v) - y0) / (y1 - y0) * (H - B - 12);
  const total = times.reduce((a, b) => a + b, 0), marks = [];
  for (let e = x0; e <= x1; e++)
    marks.push(make("svg:path", {class: "grid", d: `M${px(10 ** e)} 12V${H - B}`}), make("svg:text", {x: px(10 ** e), y: H - B + 16, "text-anchor": "middle"}, String(Number((10 ** e).toPrecision(1)))));
  for (let e = y0; e <= y1; e++)
    marks.push(make("svg:path", {class: "grid", d: `M${L} ${py(10 ** e)}H${W - 12}`}), make("svg:text", {x: L - 8, y: py(10 ** e) + 4, "text-anchor": "end"}, String(Number((10 ** e).toPrecision(1)))));
  const knee = peak / rate, start = Math.max(10 ** x0, 10 ** y0 / rate);
  const circles = points.map(p => make("svg:circle", {cx: px(p.x), cy: py(p.y), r: 3 + 16 * Math.sqrt(p.us / Math.max(total, 1e-9)), onclick: () => { location.hash = `#kernels/${p.k.name}`; }},
    make("svg:title", {}, `${p.k.name}: ${time(p.us)}, ${p.y.toPrecision(3)} GFLOP/s, ${p.x.toPrecision(3)} FLOP a byte, limited by ${p.k.limit}`)));
  return make("figure", {style: null}, make("svg:svg", {class: "roof", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Roofline: each kernel's GFLOP/s over its FLOP a byte; the table has the same numbers"},
    ...marks, make("svg:path", {class: "roofline", d: `M${px(start)} ${py(start * rate)}L${px(Math.max(knee, start))} ${py(peak)}H${W - 12}`}), ...circles,
    make("svg:text", {x: W - 12, y: py(peak) - 6, "text-anchor": "end"}, `${peak.toPrecision(3)} GFLOP/s: the machine's arithmetic`),
    make("svg:text", {x: px(Math.max(start, 10 ** x0)) + 8, y: H - B - 8}, `${rate.toPrecision(3)} GB/s: memory (what stays in caches may lie above)`),
    make("svg:text", {x: W - 12, y: H - 4, "text-anchor": "end"}, "FLOP a byte of its tensors"), make("svg:text", {x: L + 6, y: 22}, "GFLOP/s")));
}

views.kernels = {
  draw() {
    for (const b of doc.buffers) bufferById.set(b.id, b);
    const picture = roofline(kernelTimes());
    if (picture) byId("roofline").append(picture);
  },
  show: showKernel,
};

/* -------------------------------------------------------------------------------------------- arena */

/* Okabe and Ito's. */
const SERIES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];

class ArenaView {
  constructor() {
    const steps = doc.steps.length, all = doc.arena_bytes;
    this.list = doc.buffers.filter(b => ["temp", "state", "scratch"].includes(b.kind) && b.first_step !== undefined && b.bytes > 0);
    this.under = make("div", {class: "under", role: "status"}, "Each block is a tensor: the steps from its first to its last access, by its place in the arena. Click one.");
    this.stage = new Stage("Arena: tensors by step and place. Left and right choose a tensor; the table below has the same", 320, (c, camera) => this.paint(c, camera));
    this.stage.zoom = this.stage.pan = () => {};
    this.cell = {x: 1 / Math.max(1, steps), y: 1 / Math.max(1, all)};
    this.stage.onpick = p => this.select(this.at(p));
    this.stage.onkey = key => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[key];
      if (!step || !this.list.length) return false;
      const at = this.list.indexOf(this.selected);
      this.select(this.list[(at + step + this.list.length) % this.list.length]);
      return true;
    };
  }
  rect(b, w, h) {
    return [b.first_step * this.cell.x * w, b.offset * this.cell.y * h, (b.last_step - b.first_step + 1) * this.cell.x * w, b.bytes * this.cell.y * h];
  }
  at(p) {
    const w = this.stage.width, h = this.stage.height;
    return this.list.find(b => { const [x, y, dx, dy] = this.rect(b, w, h); return p.px >= x && p.px < x + dx && p.py >= y && p.py < y + Math.max(dy, 2); });
  }
  select(b) {
    this.selected = b;
    this.stage.change();
    if (!b) return;
    const shares = this.list.filter(o => o !== b && o.offset < b.offset + b.bytes && b.offset < o.offset + o.bytes), of = touchedBy(b.id);
    this.under.replaceChildren(make("b", {}, nameOf(b)), ` ${visible(shapeOf(b))}, ${bytes(b.bytes)}, from ${b.offset} on, steps ${b.first_step + 1} to ${b.last_step + 1}. Written by `,
      ...kernelLinks(of.writes), ", read by ", ...kernelLinks(of.reads), b.why ? `; stored: ${b.why}. ` : ". ",
      shares.length ? `Shares its place with ${shares.slice(0, 6).map(nameOf).join(", ")}${shares.length > 6 ? ` and ${shares.length - 6} more` : ""}.` : "Shares its place with no other tensor.");
  }
  paint(c, camera) {
    const w = camera.width, h = camera.height, bg = colour("bg");
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "top";
    this.list.forEach((b, i) => {
      const [x, y, dx, dy] = this.rect(b, w, h), chosen = b === this.selected;
      c.globalAlpha = chosen ? 0.95 : 0.55;
      c.fillStyle = SERIES[i % SERIES.length];
      c.fillRect(x, y, dx, Math.max(1, dy));
      c.globalAlpha = 1;
      c.strokeStyle = chosen ? colour("text") : bg;
      c.lineWidth = chosen ? 2 : 1;
      if (chosen || dx > 3 && dy > 3) c.strokeRect(x + 0.5, y + 0.5, dx - 1, Math.max(1, dy) - 1);
      if (dx > 56 && dy > 18) {
        c.fillStyle = colour("text");
        c.save();
        c.beginPath();
        c.rect(x, y, dx - 4, dy);
        c.clip();
        c.fillText(`${nameOf(b)} ${bytes(b.bytes)}`, x + 6, y + 4);
        c.restore();
      }
    });
  }
}

views.memory = {
  draw() {
    for (const b of doc.buffers) bufferById.set(b.id, b);
    const view = new ArenaView();
    if (view.list.length)
      byId("arena-view").append(make("p", {class: "muted"}, `Steps from left to right, places from top to bottom, ${bytes(doc.arena_bytes)} in all.`), view.stage.element, view.under);
  },
};

/* ------------------------------------------------------------------------------------------- passes */

/* The texts of a subject by its changes: each is made of the one before ("=N", "-", "+" lines). */
function textsOf(subject) {
  let lines = [];
  return doc.changes.filter(c => c.subject === subject).map(c => {
    const before = lines, parts = c.lines.split("\n"), marked = [];
    if (parts[parts.length - 1] === "") parts.pop();
    if (c.whole) {
      lines = parts;
      parts.forEach(s => marked.push(["", s]));
    } else {
      let at = 0;
      lines = [];
      for (const s of parts) {
        if (s[0] === "=") for (let n = Number(s.slice(1)); n > 0 && at < before.length; n--, at++) { lines.push(before[at]); marked.push(["", before[at]]); }
        else if (s[0] === "-") { marked.push(["del", s.slice(1)]); at++; }
        else { lines.push(s.slice(1)); marked.push(["add", s.slice(1)]); }
      }
      for (; at < before.length; at++) { lines.push(before[at]); marked.push(["", before[at]]); }
    }
    return {pass: c.pass, whole: c.whole, marked};
  });
}

const CONTEXT = 2, LINES_MOST = 3000;

/* Lines that changed with a few around them, or all of them. */
function diffPane(change, all) {
  const pre = make("pre", {tabindex: 0, "aria-label": "Text after the pass"}), near = new Set();
  change.marked.forEach(([kind], i) => { if (kind) for (let k = i - CONTEXT; k <= i + CONTEXT; k++) near.add(k); });
  let skipped = 0, n = 0;
  for (let i = 0; i < change.marked.length && n < LINES_MOST; i++) {
    const [kind, s] = change.marked[i];
    if (!all && !change.whole && !near.has(i)) { skipped++; continue; }
    if (skipped) pre.append(make("span", {class: "muted"}, `  … ${skipped} equal lines`));
    skipped = 0;
    pre.append(make("span", {class: kind || null}, `${kind === "del" ? "- " : kind === "add" ? "+ " : "  "}${visible(s)}`));
    n++;
  }
  if (n === LINES_MOST) pre.append(make("span", {class: "muted"}, "  … and more; the document has all"));
  return pre;
}

function showPass(name) {
  const frontend = name === "frontend", index = frontend ? doc.passes.length : doc.passes.findIndex(p => p.name === name);
  const pass = frontend ? {name: "frontend", text: "reads the model and makes its graph", stage: "graph"} : doc.passes[index], pane = byId("pass-view");
  if (!pass) return;
  const subjects = [...new Set(doc.changes.filter(c => c.pass === index).map(c => c.subject))];
  const rules = doc.rules.filter(r => r.pass === index).sort((a, b) => b.n - a.n);
  const box = make("div"), whole = make("input", {type: "checkbox", id: "whole", onchange: () => draw()});
  const select = make("select", {"aria-label": "Graph, plan or kernel", onchange: () => draw()}, ...subjects.map(s => make("option", {}, short(s, 80))));
  const draw = () => {
    const changes = textsOf(subjects[select.selectedIndex]).filter(c => c.pass === index);
    box.replaceChildren(...changes.map(c => diffPane(c, whole.checked)));
  };
  const heading = make("h3", {tabindex: -1}, pass.name);
  const step = d => doc.passes[index + d] && make("a", {href: `#passes/${doc.passes[index + d].name}`}, d < 0 ? "← before" : "after →");
  pane.replaceChildren(make("div", {class: "detail"}, heading, make("p", {}, pass.text), make("p", {class: "tools"}, step(-1) || null, frontend ? null : step(1) || null),
    rules.length ? make("div", {}, make("h4", {}, "Rules that fired in it"), make("ul", {}, ...rules.slice(0, 20).map(r => make("li", {}, make("code", {}, r.name), ` ${r.n} times, ${r.at}`)))) : make("p", {class: "muted"}, "No rule of passes/rules/ fired in it."),
    make("h4", {}, "What it changed"), subjects.length ? make("div", {}, make("div", {class: "tools"}, select, whole, make("label", {for: "whole"}, "whole text")), box)
                                                       : make("p", {class: "muted"}, "No text differs before and after it.")));
  if (subjects.length) draw();
  heading.focus({preventScroll: true});
  pane.scrollIntoView({block: "start"});
}

views.passes = {
  draw() {
    const left = doc.changes_left_out;
    byId("pass-view").before(make("p", {class: "lead"}, "Choose a pass to see the text before and after it, and the rules that fired. ",
      make("a", {href: "#passes/frontend"}, "The graph as it was read"), left ? `. ${left} later changes are left out, since the document would be too large.` : "."));
  },
  show: showPass,
};

/* -------------------------------------------------------------------------------------------- start */

addThemeButton();
enhanceTables();
if (doc) {
  document.body.classList.add("views");
  window.addEventListener("hashchange", follow);
  follow();
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach(f => f()));
})();
