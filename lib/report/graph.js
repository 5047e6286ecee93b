/* graph.js - the page's graphs: a canvas that pans and zooms, places of nodes in layers, blocks that
   open and close, and the view of the model's graph. passes.js draws with it, too.

   Parts, in order: the canvas; layers; blocks; a view of graphs; the model's graph. */
"use strict";

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
    this.redraw = () => this.change();
    redraws.push(this.redraw);
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

const NODE_W = 156, NODE_H = 38, GAP_X = 20, LAYER_H = 74, SWEEPS = 6, LARGE = 20000;

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
  const chain = new Uint8Array(n);
  for (const v of queue) chain[v] = outOf[v].length === 1 && into[v].length < 2 && into[v].every(u => chain[u]) ? 1 : 0;
  for (let at = queue.length; at-- > 0;) {      /* a source, and a chain of one, stand right above what they feed */
    const v = queue[at];
    if (outOf[v].length && (chain[v] || !into[v].length)) layer[v] = Math.max(layer[v], outOf[v].reduce((least, u) => Math.min(least, layer[u]), n) - 1);
  }
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
  for (let sweep = 0; sweep < (n > LARGE ? 2 : SWEEPS); sweep++) {
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
  let left = Infinity, right = -Infinity;
  for (const v of graph.nodes) { left = Math.min(left, v.x); right = Math.max(right, v.x); }
  graph.box = {x: (n ? left : 0) - NODE_W / 2, y: -NODE_H / 2, w: n ? right - left + NODE_W : 1,
               h: Math.max(1, rows.length - 1) * LAYER_H + NODE_H};
  return noteEdges(graph);
}

/* Of edges those over several layers, which no row in view may have an end of, and marks. */
function noteEdges(graph) {
  graph.long = [];
  graph.marks = new Map();
  for (const [a, b, mark] of graph.edges) {
    if (graph.nodes[a] && graph.nodes[b] && Math.abs(graph.nodes[a].layer - graph.nodes[b].layer) > 1) graph.long.push([a, b]);
    if (mark) graph.marks.set(a * graph.nodes.length + b, mark);
  }
  return graph;
}

/* Of an arranged graph the nodes, and edges between them, for which keep() is true, where they are. */
function subset(graph, keep) {
  const at = new Map(), nodes = graph.nodes.filter((v, i) => keep(v) && at.set(i, at.size));
  const edges = graph.edges.filter(([a, b, mark]) => at.has(a) && at.has(b) && (!mark || keep({before: mark === "del", after: mark === "add"})))
                     .map(([a, b, mark]) => [at.get(a), at.get(b), mark]);
  const into = nodes.map(() => []), outOf = nodes.map(() => []);
  for (const [a, b] of edges) { outOf[a].push(b); into[b].push(a); }
  return noteEdges({nodes, edges, into, outOf, box: graph.box, rows: graph.rows.map(row => row.filter(v => at.has(v)).map(v => at.get(v)))});
}

/* ---------------------------------------------------------------------------------------- the graph */

/* Microseconds of each kernel: measured where the document has that, else estimated. */
function kernelTimes() {
  const measured = doc.bench && doc.bench.kernel_times;
  return doc.kernel_list.map((k, i) => measured && measured[i] ? measured[i].us : k.predicted_us);
}

/* The model's nodes; each has the time of the kernels whose main node it is. */
function modelGraph(times) {
  const nodes = doc.nodes.map((n, i) => ({title: n.op, name: n.name, type: n.type, kind: n.kind, us: 0, kernels: [], idle: n.kind === "node"}));
  doc.kernel_nodes.forEach((list, k) => list.forEach((v, i) => {
    if (!nodes[v]) return;
    nodes[v].kernels.push(k);
    nodes[v].idle = false;
    if (i === 0) nodes[v].us += times[k];
  }));
  return {nodes, edges: doc.edges};
}

/* "/encoder/layer_3/Mul" is of the blocks encoder and encoder/layer_3; the outermost first. whole: and
   of one of its own. */
function pathOf(name, whole) {
  const DEPTH_MOST = 8, words = name.length < 1000 ? name.split("/").filter(Boolean) : [], parts = words.length ? words : [name];
  const of = parts.slice(0, DEPTH_MOST).map((_, i) => parts.slice(0, i + 1).join("/"));
  return whole ? [...of.slice(0, parts.length - 1), parts.join("/")] : of.slice(0, parts.length - 1);
}

/* Blocks of a graph's nodes, by the paths that they have. An open one shows its nodes and inner blocks,
   a closed one is a node of the picture. */
class Blocks {
  constructor(graph, paths) {
    this.base = graph;
    this.size = new Map();         /* nodes by block */
    for (const path of paths) for (const b of path) this.size.set(b, (this.size.get(b) || 0) + 1);
    this.above = paths.map(path => path.filter((b, i) => this.size.get(b) > 1 && this.size.get(b) !== this.size.get(path[i - 1])));
    this.open = new Set();
  }
  get any() { return this.above.some(path => path.length); }
  /* The closed block that stands for a node; undefined: the node itself. */
  closedAround(i) { return this.above[i].find(b => !this.open.has(b)); }
  get shown() { return new Set(this.above.map((_, i) => this.closedAround(i) || i)).size; }
  /* Opens the largest ones, equally large ones together, while there is room for what they hold. */
  openSome(most) {
    for (;;) {
      const closed = new Set(this.above.map((_, i) => this.closedAround(i)).filter(b => b !== undefined));
      const size = [...closed].reduce((n, b) => Math.max(n, this.size.get(b)), 0), largest = [...closed].filter(b => this.size.get(b) === size);
      if (!largest.length) return;
      largest.forEach(b => this.open.add(b));
      if (this.shown > most) { largest.forEach(b => this.open.delete(b)); return; }
    }
  }
  /* Opens those around marked nodes, if there is room for all that they hold. */
  openMarked(most) {
    const around = new Set(this.base.nodes.flatMap((v, i) => v.mark ? this.above[i] : []).filter(b => !this.open.has(b)));
    around.forEach(b => this.open.add(b));
    if (this.shown > most) around.forEach(b => this.open.delete(b));
  }
  graph() {
    const nodes = [], of = new Map(), at = [], edges = new Map();
    this.base.nodes.forEach((v, i) => {
      const b = this.closedAround(i);
      if (b === undefined) { at[i] = nodes.push({...v, of: i}) - 1; return; }
      if (!of.has(b)) of.set(b, nodes.push({title: b.split("/").pop(), name: b, type: "", kind: "block", us: 0, kernels: [], block: b, count: {}, before: false, after: false}) - 1);
      const block = nodes[at[i] = of.get(b)];
      block.us += v.us;
      block.kernels = v.kernels.length ? [...new Set([...block.kernels, ...v.kernels])] : block.kernels;
      block.before ||= v.before;
      block.after ||= v.after;
      if (v.mark) block.count[v.mark] = (block.count[v.mark] || 0) + 1;
    });
    for (const b of nodes)
      if (b.block && Object.keys(b.count).length) b.mark = !b.before ? "add" : !b.after ? "del" : "change";
    for (const [a, b, mark] of this.base.edges) {
      const key = at[a] * nodes.length + at[b], other = edges.get(key);
      if (at[a] === at[b] || at[a] === undefined || at[b] === undefined) continue;
      if (!other) edges.set(key, [at[a], at[b], mark]);
      else if (other[2] !== mark) other[2] = undefined;
    }
    return {nodes, edges: [...edges.values()]};
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

/* Marks of a difference: a sign, what it is called, colours of its edge and inside. */
const MARKS = {add: ["+", "added", "better", "plus"], del: ["\u2212", "removed", "worse", "minus"], change: ["~", "changed", "accent", "hover"]};

/* A view of graphs. `of` says what is drawn:
     label, height   of the canvas
     choices, make   [value, words], and by value a function that makes a graph {nodes, edges}: a node has
                     title, name, type, kind ("node", else a leaf), us, kernels, idle, mark, before, after
     blocks          of the choice "blocks"; else null
     tools, hint     elements above it, and words; titles: what search finds is said with its title
     keep            null, or which nodes are drawn, by {before, after}
     summary(g)      words while nothing is selected
     describe(v, around)  children of the line below it for a node or block; around: buttons that close blocks
     enter(v), key(key)   true: the key is taken */
class GraphView {
  constructor(of) {
    this.of = of;
    this.blocks = of.blocks;
    this.made = {};
    this.keep = null;
    this.stage = new Stage(of.label, of.height, (c, camera) => this.paint(c, camera));
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
    this.redraw = () => this.drawMap();
    redraws.push(this.redraw);
  }
  /* Of a view that is left. */
  close() {
    for (const f of [this.redraw, this.stage.redraw]) redraws.splice(redraws.indexOf(f), 1);
  }
  element() {
    const select = this.choice = make("select", {"aria-label": "What is drawn", onchange: () => this.show(select.value)},
                                      ...this.of.choices.map(([value, words]) => make("option", {value}, words)));
    const button = (label, title, f) => make("button", {type: "button", "aria-label": title, title, onclick: f}, label);
    return make("div", {class: "graph"},
      make("div", {class: "tools"}, select, this.search, button("+", "Zoom in", () => this.stage.zoom(1.3)),
           button("−", "Zoom out", () => this.stage.zoom(1 / 1.3)), button("All", "Show all", () => this.stage.fit(this.graph.box)),
           make("span", {class: "muted"}, this.of.hint)),
      this.of.tools || null, this.hits, this.stage.element, this.under);
  }
  /* needs: of.make[what]; another choice's picture begins where it can be read. */
  show(what) {
    this.what = what;
    this.whole = this.made[what] = this.made[what] || arrange(this.of.make[what]());
    this.selected = null;
    this.filter(this.keep);
    this.start();
  }
  /* Shows those nodes alone, where they are. */
  filter(keep) {
    const at = this.selected === null ? null : this.graph.nodes[this.selected];
    this.keep = keep;
    this.graph = keep ? subset(this.whole, keep) : this.whole;
    this.most = this.graph.nodes.reduce((most, v) => Math.max(most, v.us), 1e-9);
    this.drawMap();
    this.select(at ? this.graph.nodes.indexOf(at) : undefined);
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
  /* Opens what is around a node of the blocks' graph, and selects it. */
  reveal(of) {
    for (const b of this.blocks.above[of]) this.blocks.open.add(b);
    this.made.blocks = null;
    this.show("blocks");
    this.select(this.graph.nodes.findIndex(v => v.of === of));
  }
  /* The beginning at a scale that can be read, of a difference its first node; all of it where it fits. */
  start() {
    const HEIGHT = this.of.height, row = this.graph.rows.find(r => r.length) || [];
    this.stage.fit(this.graph.box);
    if (this.stage.k >= 0.5 || !row.length) return;
    const marked = this.graph.rows.flat().find(v => this.graph.nodes[v].mark), x = v => this.graph.nodes[v].x;
    this.stage.k = 0.8;
    if (marked === undefined) this.stage.center((x(row[0]) + x(row[row.length - 1])) / 2, HEIGHT / 2 / 0.8 - 60);
    else this.stage.center(x(marked), this.graph.nodes[marked].y + HEIGHT / 2 / 0.8 - 90);
  }
  nodeAt(x, y) {
    const row = this.graph.rows[Math.round(y / LAYER_H)] || [];
    return row.find(v => Math.abs(this.graph.nodes[v].x - x) <= NODE_W / 2 && Math.abs(this.graph.nodes[v].y - y) <= LAYER_H / 2);
  }
  find() {
    const word = this.search.value.toLowerCase(), MOST = 24, inBlocks = this.what === "blocks";
    const hits = [], list = inBlocks ? this.blocks.base.nodes : this.graph.nodes;
    list.forEach((v, i) => {
      if (word && hits.length <= MOST && (!this.keep || this.keep(v)) && `${v.name} ${v.title}`.toLowerCase().includes(word)) hits.push(i);
    });
    const go = i => inBlocks ? this.reveal(i) : this.select(i);
    this.found = hits.length ? () => go(hits[0]) : null;
    this.hits.replaceChildren(...hits.slice(0, MOST).map(i =>
      make("li", {}, make("button", {type: "button", onclick: () => go(i)}, short(this.of.titles && list[i].name ? `${list[i].title} ${list[i].name}` : list[i].name || list[i].title, 40)))),
      ...(hits.length > MOST ? [make("li", {class: "muted"}, "and more")] : []));
  }
  select(i) {
    this.selected = i === undefined || i < 0 ? null : i;
    if (this.selected !== null) {
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
    if (!v) { this.under.textContent = `${this.of.summary(this.graph)} No node is selected.`; return; }
    const around = this.what !== "blocks" || v.block ? [] : this.blocks.above[v.of];
    const close = around.map(b => make("button", {type: "button", onclick: () => this.toggle(b)}, `Close ${short(b.split("/").pop(), 30)}`));
    const open = v.block ? [make("button", {type: "button", onclick: () => this.toggle(v.block)}, "Open")] : close;
    this.under.replaceChildren(...this.of.describe(v, this.blocks), " ", ...open);
  }
  /* The next node that a pass changed, in the order of layers; from the last one to the first. */
  nextMarked(step) {
    const all = this.graph.rows.flat().filter(v => this.graph.nodes[v].mark), at = all.indexOf(this.selected);
    if (all.length) this.select(all[(at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step + all.length) % all.length]);
  }
  key(key) {
    const g = this.graph, at = this.selected, go = i => { if (i !== undefined) this.select(i); return true; };
    if (this.of.key && this.of.key(key)) return true;
    if (key === "0") { this.stage.fit(g.box); return true; }
    if (key === "/") { this.search.focus(); return true; }
    if (key === "Escape") { this.select(undefined); return true; }
    if (key === "Enter" && at === null) return go((g.rows.find(r => r.length) || [])[0]);
    if (at === null) return false;
    const inner = this.what === "blocks" && !g.nodes[at].block ? this.blocks.above[g.nodes[at].of] : [];
    if (key === "Enter" && g.nodes[at].block) { this.toggle(g.nodes[at].block); return true; }
    if (key === "c" && inner.length) { this.toggle(inner[inner.length - 1]); return true; }
    const row = g.rows[g.nodes[at].layer], place = row.indexOf(at);
    if (key === "ArrowDown") return go(g.outOf[at][0]);
    if (key === "ArrowUp") return go(g.into[at][0]);
    if (key === "ArrowLeft") return go(row[place - 1]);
    if (key === "ArrowRight") return go(row[place + 1]);
    return key === "Enter" && Boolean(this.of.enter) && this.of.enter(g.nodes[at]);
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
    const mark = ([a, b]) => g.marks.get(a * g.nodes.length + b);
    for (let i = 0; i < list.length; i += stride) if (!mark(list[i])) line(...list[i]);
    c.stroke();
    c.globalAlpha = 1;
    for (const kind of g.marks.size ? ["add", "del"] : []) {
      c.beginPath();
      c.strokeStyle = colour(MARKS[kind][2]);
      c.lineWidth = (kind === "add" ? 2 : 1.25) * Math.min(1, 0.3 + k);
      c.setLineDash(kind === "del" ? [4, 4] : []);
      for (let i = 0; i < list.length; i += stride) if (mark(list[i]) === kind) line(...list[i]);
      c.stroke();
      c.setLineDash([]);
    }
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
    const of = Object.fromEntries(["text", "bg", "area", "panel", "muted", "accent", "line", "better", "worse", "plus", "minus", "hover"].map(name => [name, colour(name)]));
    if (k <= 0.1) { this.paintBlocks(c, k, shown, place, of); return; }
    const w = NODE_W * k, h = NODE_H * k;
    c.textBaseline = "middle";
    c.textAlign = "center";
    for (const v of shown) {
      const n = this.graph.nodes[v], [px, py] = place(v), chosen = v === this.selected, [, , edge, inside] = MARKS[n.mark] || [];
      if (n.block && k > 0.2) {      /* a second edge behind it: there is more inside */
        c.strokeStyle = of.muted;
        c.lineWidth = 1;
        c.strokeRect(px - w / 2 + 4 * k, py - h / 2 + 4 * k, w, h);
      }
      c.fillStyle = inside ? of[inside] : n.kind === "node" || n.block ? of.bg : of.panel;
      c.fillRect(px - w / 2, py - h / 2, w, h);
      c.globalAlpha = n.us ? 0.08 + 0.62 * Math.sqrt(n.us / this.most) : 0;
      c.fillStyle = of.area;
      c.fillRect(px - w / 2, py - h / 2, w, h);
      c.globalAlpha = 1;
      c.strokeStyle = chosen ? of.accent : edge ? of[edge] : of.muted;
      c.lineWidth = chosen ? 3 : n.mark === "del" || n.mark && n.idle ? 1.25 : n.mark ? Math.min(2, 0.5 + 2 * k) : n.idle ? 0.5 : 1;
      c.setLineDash(n.mark === "del" ? [5, 4] : n.idle ? [3, 3] : []);
      c.strokeRect(px - w / 2, py - h / 2, w, h);
      c.setLineDash([]);
      if (n.mark === "change" && k > 0.2) {     /* an edge within the edge */
        c.lineWidth = 1;
        c.strokeRect(px - w / 2 + 4 * k, py - h / 2 + 4 * k, w - 8 * k, h - 8 * k);
      }
      if (k > 0.32) this.paintText(c, k, n, px, py, of);
      if (n.mark && k > 0.32) this.paintMark(c, k, n, px - w / 2, py - h / 2, of);
    }
  }
  /* The sign at a node's corner, of a block how many of each. */
  paintMark(c, k, n, x, y, of) {
    const size = Math.max(9, 13 * k), said = n.block ? Object.entries(MARKS).filter(([kind]) => n.count[kind]).map(([kind, [sign]]) => `${sign}${n.count[kind]}`).join(" ") : MARKS[n.mark][0];
    c.font = `700 ${size}px system-ui, sans-serif`;
    const w = Math.max(size * 1.25, c.measureText(said).width + size * 0.6), h = size * 1.25;
    c.fillStyle = of[MARKS[n.mark][2]];
    c.fillRect(x - h / 3, y - h / 2, w, h);
    c.fillStyle = of.bg;
    c.fillText(said, x - h / 3 + w / 2, y + size * 0.06);
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
    if (this.marked.length) this.paintMarkedRows(c, camera, first, last);
    if (this.selected === null) return;
    const v = g.nodes[this.selected];
    c.fillStyle = colour("text");
    c.fillRect((v.x - x) * k - 6, (v.y - y) * k - 1.5, 12, 3);
  }
  /* Beside the rows: what was added on the left, removed on the right, changed on both sides. */
  paintMarkedRows(c, camera, first, last) {
    const g = this.graph, {x, y, k} = camera;
    for (const kind of Object.keys(MARKS)) {
      c.fillStyle = colour(MARKS[kind][2]);
      for (const r of this.marked) {
        if (r < first || r > last || !g.rows[r].some(v => g.nodes[v].mark === kind)) continue;
        const row = g.rows[r], top = (r * LAYER_H - NODE_H / 2 - y) * k, h = Math.max(1.5, NODE_H * k);
        if (kind !== "del") c.fillRect((g.nodes[row[0]].x - NODE_W / 2 - x) * k - 10, top, 8, h);
        if (kind !== "add") c.fillRect((g.nodes[row[row.length - 1]].x + NODE_W / 2 - x) * k + 2, top, 8, h);
      }
    }
  }
  /* From far away: a path for each of a few shades. What was removed is an outline, what was added is
     whole, what was changed is half. */
  paintBlocks(c, k, shown, place, of) {
    const SHADES = 6, w = Math.max(1, NODE_W * k), h = Math.max(1.5, NODE_H * k), paths = Array.from({length: SHADES + 1}, () => new Path2D());
    for (const v of shown) {
      const [px, py] = place(v), mark = this.graph.nodes[v].mark;
      if (mark) {
        c.fillStyle = c.strokeStyle = of[MARKS[mark][2]];
        c.lineWidth = 1;
        if (mark === "del") c.strokeRect(px - w / 2, py - h / 2, w, h);
        else c.fillRect(px - w / 2, py - h / 2, mark === "add" ? w : w / 2, h);
        continue;
      }
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
    const title = fit(visible(n.title.slice(-60)), size), at = py - (two ? size * 0.6 : 0);
    c.fillText(title, px, at);
    if (n.mark === "del") c.fillRect(px - c.measureText(title).width / 2 - 2, at, c.measureText(title).width + 4, 1);
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
    this.marked = g.rows.map((row, r) => row.some(v => g.nodes[v].mark) ? r : -1).filter(r => r >= 0);
    const of = {area: colour("area"), muted: colour("muted"), ...Object.fromEntries(Object.entries(MARKS).map(([kind, [, , edge]]) => [kind, colour(edge)]))};
    for (const v of g.nodes) {
      c.globalAlpha = v.mark ? 1 : 0.3 + 0.7 * Math.sqrt(v.us / this.most);
      c.fillStyle = v.mark ? of[v.mark] : v.us ? of.area : of.muted;
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

/* What stands below the picture of the model's graph. */
function describeNode(v, blocks, total) {
  const share = v.us ? `, ${time(v.us)}, ${percent(total ? v.us / total : 0)} of the time` : "";
  if (v.block) return [make("b", {}, short(v.name)), ` ${blocks.size.get(v.block)} nodes, ${v.kernels.length} kernels${share}. `];
  const links = v.kernels.slice(0, 8).flatMap((k, i) => [i ? ", " : "", make("a", {class: "k", href: `#kernels/${doc.kernel_list[k].name}`}, doc.kernel_list[k].name)]);
  return [make("b", {}, short(v.name || v.title)), ` ${visible(v.title)} ${visible(v.type)}. `,
    ...(links.length ? ["Computed in ", ...links, v.us ? `${share}.` : ", with its main node."]
                     : [v.kind === "node" ? "No kernel computes it: it only moves data, or is known when the model is compiled." : ""])];
}

views.graph = {
  draw() {
    const times = kernelTimes(), total = times.reduce((a, b) => a + b, 0);
    const blocks = new Blocks(modelGraph(times), doc.nodes.map(n => n.kind === "node" ? pathOf(n.name) : []));
    blocks.openSome(SHOWN_AT_FIRST);
    this.view = new GraphView({
      label: "Graph. Arrow keys follow edges or pan, plus and minus zoom, 0 shows all, slash searches, Enter opens a block or a kernel, c closes a block",
      height: 560, blocks,
      choices: [...(blocks.any ? [["blocks", "Model's blocks"]] : []), ["model", "Model's nodes"], ["kernels", "Kernels (fused)"]],
      make: {blocks: () => blocks.graph(), model: () => modelGraph(times), kernels: () => kernelGraph(times)},
      hint: `Click a node${blocks.any ? ", twice to open a block" : ""}; drag to move; Ctrl and wheel to zoom`,
      summary: g => `${g.nodes.length} nodes, ${g.edges.length} edges.`,
      describe: v => describeNode(v, blocks, total),
      enter: v => { if (v.kernels.length) location.hash = `#kernels/${doc.kernel_list[v.kernels[0]].name}`; return v.kernels.length > 0; },
    });
    byId("graph-view").append(this.view.element());
    this.view.show(this.view.choice.value);
  },
};
