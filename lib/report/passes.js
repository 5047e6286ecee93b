/* passes.js - the view of passes: texts and their differences, and pictures of the graph before and
   after each pass, which graph.js draws.

   A picture is of both graphs at once, so that nothing moves from before to after. It is made of their
   texts (ir/print.c) when it is looked at. What computes the same as before keeps its number in them
   (passes/dump.c), so numbers pair most; the others are paired by what they compute.

   Parts, in order: the texts; a graph of a text; two graphs as one; the picture; the view. */
"use strict";

/* ---------------------------------------------------------------------------------------- the texts */

/* The lines after a change, given those before it ("=N", "-", "+" lines); mark(kind, line) of each. */
function changedLines(change, before, mark = () => {}) {
  const parts = change.lines.split("\n"), lines = [];
  let at = 0;
  const put = (kind, s) => { if (kind !== "del") lines.push(s); mark(kind, s); };
  const same = n => { for (; n > 0 && at < before.length; n--, at++) put("", before[at]); };
  if (parts[parts.length - 1] === "") parts.pop();
  for (const s of parts)
    if (change.whole) put("", s);
    else if (s[0] === "=") same(Number(s.slice(1)));
    else if (s[0] === "-") { put("del", s.slice(1)); at++; }
    else put("add", s.slice(1));
  if (!change.whole) same(Infinity);
  return lines;
}

/* What a pass changed of a subject: lists of [kind, line]. */
function changesOf(subject, pass) {
  const found = [];
  let lines = [];
  for (const c of doc.changes.filter(c => c.subject === subject)) {
    const marked = [];
    lines = changedLines(c, lines, c.pass === pass ? (kind, s) => marked.push([kind, s]) : undefined);
    if (c.pass === pass) found.push({whole: c.whole, marked});
  }
  return found;
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

/* The graph's lines, of the frontend and after each pass that changed it: [{pass, lines}]. */
let graphTexts = null;
function graphHistory() {
  let lines = [];
  graphTexts = graphTexts || doc.changes.filter(c => c.subject === "graph").map(c => ({pass: c.pass, lines: lines = changedLines(c, lines)}));
  return graphTexts;
}

/* --------------------------------------------------------------------------------- a graph of a text */

const MOVES = new Set(["iota", "reshape", "permute", "expand", "pad", "shrink", "flip", "window", "concat", "get"]);
const SOURCE = /(?<![\w)\]])%[a-z]*\d+(?:\.\d+)?/g;      /* and not the remainder in an expression, "N%2" */

/* The place of the parenthesis that closes the one at `open`; texts in quotes may have others. */
function closing(s, open) {
  let depth = 0, quoted = false;
  for (let i = open; i < s.length; i++) {
    if (quoted && s[i] === "\\") i++;
    else if (s[i] === '"') quoted = !quoted;
    else if (!quoted && s[i] === "(") depth++;
    else if (!quoted && s[i] === ")" && --depth === 0) return i;
  }
  return s.length;
}

/* A line: '%12 : f32[3, 4] = add(%3, %weight1) {...}   loc("name")', 'weight %weight1 : f32[4] "w"',
   'output %12 as "y"'. null: another one. key: what stands for it in sources. */
function readLine(line) {
  let m = /^(weight|input|buffer) +(%\S+) : (.*?)(?: "(.*)")?$/.exec(line);
  if (m) return {line, key: m[2], title: m[1], name: m[4] || "", type: m[3], args: "", rest: "", loc: "", kind: m[1], src: []};
  m = /^output (.*) as "(.*)"$/.exec(line);
  if (m) return {line, key: `output ${m[2]}`, title: "output", name: m[2], type: "", args: m[1], rest: "", loc: "", kind: "output", src: m[1].match(SOURCE) || []};
  m = /^(%\S+) : (.*?) = ([\w.]+)\(/.exec(line);
  if (!m) return null;
  const open = m[0].length - 1, close = closing(line, open), at = line.lastIndexOf('   loc("'), loc = at > close ? line.slice(at + 8, -2) : "";
  const args = line.slice(open + 1, close), rest = line.slice(close + 1, at > close ? at : line.length).trim(), by = m[3] === "reduce" && /\{op=(\w+)/.exec(rest);
  return {line, key: m[1], title: by ? `reduce ${by[1]}` : m[3], name: loc, type: m[2], args, rest, loc, kind: "node", idle: MOVES.has(m[3]),
          src: args.replace(/"(?:[^"\\]|\\.)*"/g, "").match(SOURCE) || []};
}

const readLines = new Map();     /* most lines are those of the pass before */

/* The ops in their order, sources first; each has a `group`: the model's node that it is of. What the
   frontend gave none is of its first source's, a weight of what reads it. */
function readGraph(lines) {
  const list = [], at = new Map();
  for (const line of lines) {
    if (!readLines.has(line)) readLines.set(line, readLine(line));
    const n = readLines.get(line);
    if (!n || n.kind !== "output" && at.has(n.key)) continue;
    const first = n.kind === "node" && !n.loc ? n.src.map(k => at.get(k)).find(u => u && u.group) : null;
    const made = {...n, group: n.loc || (first ? first.group : "")};
    while (at.has(made.key)) made.key += "'";     /* entries have outputs of one name */
    at.set(made.key, made);
    list.push(made);
  }
  for (const n of list)
    for (const k of n.src) {
      const u = at.get(k);
      if (u && u.kind === "weight" && !u.group) u.group = n.group;
    }
  return list;
}

/* ------------------------------------------------------------------------------- two graphs as one */

/* Of each op after a pass the op before it that it is: the same number; else one that computes the same of
   the same; else one of the same kind and place in the model that reads one of the same sources, or is the
   only one. Returns a map from keys after it to ops before it. */
function pairOps(before, after) {
  const old = new Map(before.map(n => [n.key, n])), now = new Set(after.map(n => n.key)), pair = new Map(), taken = new Set();
  const same = (n, of) => `${n.title} ${n.type} ${n.rest} ${n.loc} ${n.kind === "node" ? "" : n.name} ${n.args.replace(SOURCE, of)}`;
  const alike = n => `${n.title} ${n.type} ${n.rest} ${n.loc} ${n.kind === "node" ? "" : n.name}`, place = n => `${n.title} ${n.loc} ${n.kind === "node" ? "" : n.name}`;
  const left = before.filter(n => !now.has(n.key)), come = after.filter(n => !old.has(n.key));
  const index = (list, by) => { const map = new Map(); for (const n of list) { const key = by(n); map.has(key) ? map.get(key).push(n) : map.set(key, [n]); } return map; };
  const exact = index(left, n => same(n, k => k)), likes = index(left, alike), places = index(left, place), rivals = index(come, alike);
  const mapped = k => pair.has(k) ? pair.get(k).key : k, NEAR = 24;
  const free = list => {           /* the first few that are not taken */
    while (list && list.length && taken.has(list[0])) list.shift();
    return list ? list.slice(0, NEAR).filter(u => !taken.has(u)) : [];
  };
  const shares = (n, u) => n.src.some(k => pair.has(k) && u.src.includes(pair.get(k).key));
  for (const n of after) {
    const likely = old.has(n.key) ? [] : free(likes.get(alike(n)));
    const u = old.get(n.key) || free(exact.get(same(n, mapped)))[0] || likely.find(u => shares(n, u)) ||
              (n.loc && likely.length === 1 && rivals.get(alike(n)).length === 1 ? likely[0] : null) ||
              (n.loc ? free(places.get(place(n))).find(u => shares(n, u)) : null);
    if (u) { pair.set(n.key, u); taken.add(u); }
  }
  return pair;
}

/* A graph of both, with marks; before: null where there is none. */
function uniteGraphs(before, after) {
  const pair = before ? pairOps(before, after) : new Map(after.map(n => [n.key, n])), nodes = [], at = new Map(), was = new Map(), edges = new Map();
  const mapped = k => pair.has(k) ? pair.get(k).key : k, node = (n, more) => ({title: n.title, name: n.name, type: n.type, kind: n.kind === "node" ? "node" : "leaf", us: 0, kernels: [], idle: n.idle, group: n.group, ...more});
  for (const n of after) {
    const u = pair.get(n.key), equal = u && (u.key === n.key && u.line === n.line || u.title === n.title && u.type === n.type && u.rest === n.rest && u.args === n.args.replace(SOURCE, mapped));
    at.set(n.key, nodes.length);
    if (u) was.set(u.key, nodes.length);
    nodes.push(node(n, {before: Boolean(u), after: true, mark: !u ? "add" : equal ? undefined : "change", text: [u && u.line, n.line]}));
  }
  for (const n of before || [])
    if (!was.has(n.key)) { was.set(n.key, nodes.length); nodes.push(node(n, {before: true, after: false, mark: "del", text: [n.line, null]})); }
  const put = (a, b, mark) => {
    const key = a * nodes.length + b, edge = edges.get(key);
    if (a === undefined || b === undefined) return;
    if (!edge) edges.set(key, [a, b, mark]);
    else if (edge[2] !== mark) edge[2] = undefined;
  };
  for (const n of before || []) for (const k of n.src) put(was.get(k), was.get(n.key), "del");
  for (const n of after) for (const k of n.src) put(at.get(k), at.get(n.key), before ? "add" : undefined);
  return {nodes, edges: [...edges.values()]};
}

/* The marked nodes and their neighbours; of: each node's number in the whole graph. */
function markedPart(graph) {
  const keep = new Set(graph.nodes.map((v, i) => v.mark ? i : -1)), near = new Set(), at = new Map();
  keep.delete(-1);
  keep.forEach(i => near.add(i));
  for (const [a, b] of graph.edges) if (keep.has(a) || keep.has(b)) near.add(a).add(b);
  const nodes = [...near].sort((a, b) => a - b).map((i, k) => { at.set(i, k); return {...graph.nodes[i], of: i}; });
  return {nodes, edges: graph.edges.filter(([a, b]) => at.has(a) && at.has(b)).map(([a, b, mark]) => [at.get(a), at.get(b), mark])};
}

/* ------------------------------------------------------------------------------------- the picture */

const OPENED_AT_FIRST = 400;     /* nodes and closed blocks, as far as opening what changed decides */
const SIDES = {before: ["Before", v => v.before], both: ["Both, marked", null], after: ["After", v => v.after]};

/* Of the pass whose entry of the history is at `at`. step: a function that goes on to another one. */
class PassPicture {
  constructor(at, step) {
    const history = graphHistory(), graph = uniteGraphs(at ? readGraph(history[at - 1].lines) : null, readGraph(history[at].lines));
    const blocks = new Blocks(graph, graph.nodes.map(v => v.group ? pathOf(v.group, true) : []));
    this.count = {add: 0, del: 0, change: 0};
    for (const v of graph.nodes) if (v.mark) this.count[v.mark]++;
    this.total = graph.nodes.length;
    this.any = graph.nodes.some(v => v.mark);
    blocks.openSome(SHOWN_AT_FIRST);
    blocks.openMarked(OPENED_AT_FIRST);
    this.side = at ? "both" : "after";
    this.view = new GraphView({
      label: "The graph before and after the pass. n and p: next and previous pass that changed it; d: next change; b, m, a: before, both, after; arrow keys follow edges or pan; plus and minus zoom; 0 shows all; slash searches; Enter opens a block, c closes it",
      height: 560, blocks,
      choices: [...(this.any ? [["marked", "What changed, and its neighbours"]] : []), ...(blocks.any ? [["blocks", "By the model's nodes"]] : []), ["all", "All operations"]],
      make: {marked: () => markedPart(graph), blocks: () => blocks.graph(), all: () => ({nodes: graph.nodes.map((v, i) => ({...v, of: i})), edges: graph.edges})},
      tools: at ? this.tools(step) : null,
      hint: "Drag to move; Ctrl and wheel to zoom", titles: true,
      summary: g => `${g.nodes.length} shown of ${this.total} operations, weights, inputs and outputs.`,
      describe: (v, of) => this.describe(v, of),
      key: key => this.key(key, step),
    });
  }
  tools(step) {
    const button = (words, key, f) => make("button", {type: "button", title: `Key ${key}`, onclick: f}, words), said = kind => `${this.count[kind]} ${MARKS[kind][1]}`;
    this.buttons = Object.entries(SIDES).map(([side, [words]]) => make("button", {type: "button", "aria-pressed": String(side === this.side), title: `Key ${side === "both" ? "m" : side[0]}`, onclick: () => this.show(side)}, words));
    return make("div", {class: "tools"}, make("span", {class: "joined", role: "group", "aria-label": "Which graph"}, ...this.buttons),
      button("Next change", "d", () => this.view.nextMarked(1)),
      ...Object.keys(MARKS).map(kind => make("span", {class: `mark ${kind}`}, make("i", {}, MARKS[kind][0]), said(kind))),
      make("span", {class: "muted"}, `${this.total - this.count.add - this.count.del - this.count.change} as before`));
  }
  show(side) {
    this.side = side;
    this.buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(Object.keys(SIDES)[i] === side)));
    this.view.filter(SIDES[side][1]);
  }
  key(key, step) {
    const side = this.buttons && {b: "before", m: "both", a: "after"}[key];
    if (side) this.show(side);
    else if (key === "n" || key === "p") step(key === "n" ? 1 : -1);
    else if (key === "d" || key === "D") this.view.nextMarked(key === "d" ? 1 : -1);
    else return false;
    return true;
  }
  describe(v, blocks) {
    if (v.block) {
      const marks = Object.entries(v.count).map(([kind, n]) => `${n} ${MARKS[kind][1]}`).join(", ");
      return [make("b", {}, short(v.name)), ` ${blocks.size.get(v.block)} operations and weights${marks ? `; ${marks}` : ", as before"}.`];
    }
    const line = (kind, s) => s ? make("code", {class: kind || null}, `${kind === "del" ? "- " : kind === "add" ? "+ " : ""}${short(s, 400)}`) : null;
    return [make("b", {}, v.mark ? `${MARKS[v.mark][1]}: ` : ""), ...(v.mark === "change" ? [line("del", v.text[0]), " ", line("add", v.text[1])] : [line(v.mark, v.text[1] || v.text[0])])];
  }
}

/* ----------------------------------------------------------------------------------------- the view */

let picture = null;              /* that is shown */

const passName = index => doc.passes[index] ? doc.passes[index].name : "frontend";

/* The picture of a pass, or why there is none. */
function picturePart(index, stage) {
  const history = graphHistory(), at = history.findIndex(h => h.pass === index);
  const step = d => {
    const to = history[at + d], y = window.scrollY;
    if (!to) return;
    window.history.replaceState(null, "", `#passes/${passName(to.pass)}`);
    showPass(passName(to.pass));
    picture.view.stage.canvas.focus({preventScroll: true});
    window.scrollTo(0, y);
  };
  if (picture) picture.view.close();
  picture = null;
  if (at >= 0) {
    picture = new PassPicture(at, step);
    return [make("h4", {}, at ? "The graph before and after it" : "The graph as it was read"), picture.view.element()];
  }
  const last = history.filter(h => h.pass < index).pop(), link = last ? [" The graph that it works on is that ", make("a", {href: `#passes/${passName(last.pass)}`}, `after ${passName(last.pass)}`), "."] : [];
  return [make("p", {class: "muted"}, stage === "graph" ? "It left the graph as it was." : "Pictures are of the graph alone: what it makes of the plan and of kernels stands below, as text.", ...(stage === "graph" ? [] : link))];
}

/* "tile", or of it the text of a kernel: "tile/conv2d_1". */
function showPass(what) {
  const [name, kernel] = what.split("/");
  const frontend = name === "frontend", index = frontend ? doc.passes.length : doc.passes.findIndex(p => p.name === name);
  const pass = frontend ? {name: "frontend", text: "reads the model and makes its graph", stage: "graph"} : doc.passes[index], pane = byId("pass-view");
  if (!pass) return;
  const subjects = [...new Set(doc.changes.filter(c => c.pass === index).map(c => c.subject))];
  const rules = doc.rules.filter(r => r.pass === index).sort((a, b) => b.n - a.n);
  const box = make("div"), whole = make("input", {type: "checkbox", id: "whole", onchange: () => draw()});
  const select = make("select", {"aria-label": "Graph, plan or kernel", onchange: () => draw()}, ...subjects.map(s => make("option", {}, short(s, 80))));
  if (kernel) select.selectedIndex = Math.max(0, subjects.findIndex(s => s.startsWith(`${kernel} (`)));
  const draw = () => box.replaceChildren(...changesOf(subjects[select.selectedIndex], index).map(c => diffPane(c, whole.checked)));
  const heading = make("h3", {tabindex: -1}, pass.name);
  const step = d => doc.passes[index + d] && make("a", {href: `#passes/${doc.passes[index + d].name}`}, d < 0 ? `← ${doc.passes[index + d].name}` : `${doc.passes[index + d].name} →`);
  for (const a of document.querySelectorAll(".steps a"))
    if (a.textContent === pass.name) a.setAttribute("aria-current", "step");
    else a.removeAttribute("aria-current");
  const detail = make("div", {class: "detail"}, heading, make("p", {}, pass.text), make("p", {class: "tools"}, step(-1) || null, frontend ? null : step(1) || null));
  pane.replaceChildren(detail);    /* a picture is made where its size is known */
  detail.append(...picturePart(index, pass.stage),
    rules.length ? make("div", {}, make("h4", {}, "Rules that fired in it"), make("ul", {}, ...rules.slice(0, 20).map(r => make("li", {}, make("code", {}, r.name), ` ${r.n} times, ${r.at}`)))) : make("p", {class: "muted"}, "No rule of passes/rules/ fired in it."),
    make("h4", {}, "What it changed, as text"), subjects.length ? make("div", {}, make("div", {class: "tools"}, select, whole, make("label", {for: "whole"}, "whole text")), box)
                                                       : make("p", {class: "muted"}, "No text differs before and after it."));
  if (picture) picture.view.show(picture.view.choice.value);
  if (subjects.length) draw();
  heading.focus({preventScroll: true});
  (byId("passes").querySelector(".lead") || pane).scrollIntoView({block: "start"});
}

/* Above the table of passes: those that changed no text are shown if one asks for them. */
function addIdleToggle() {
  const table = byId("pass-table"), all = table.tBodies[0].rows.length, idle = table.querySelectorAll("tr.idle").length;
  const box = make("input", {type: "checkbox", id: "idle-passes", onchange: () => table.classList.toggle("changed", !box.checked)});
  if (!idle) return;
  table.classList.add("changed");
  table.parentElement.before(make("div", {class: "tools"}, `${all} passes, ${all - idle} changed the text of the graph, the plan or a kernel. `, box, make("label", {for: "idle-passes"}, `show the other ${idle}`)));
}

views.passes = {
  draw() {
    const left = doc.changes_left_out, steps = graphHistory();
    addIdleToggle();
    byId("pass-view").before(
      make("p", {class: "lead"}, "Choose a pass to see the graph before and after it, its text, and the rules that fired", left ? `. ${left} later change${left > 1 ? "s are" : " is"} left out, since the document would be too large.` : "."),
      ...(steps.length ? [make("div", {class: "steps", role: "group", "aria-label": "Passes that changed the graph"}, ...steps.flatMap((h, i) => [i ? make("span", {class: "muted", "aria-hidden": "true"}, "→") : null, make("a", {href: `#passes/${passName(h.pass)}`}, passName(h.pass))]))] : []));
  },
  show: showPass,
};
