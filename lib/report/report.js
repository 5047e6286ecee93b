/* report.js - what the page adds to its tables: sorting, kernels' details, the arena. It reads the
   document that the page carries (docs/guide/report.md has its schema), loads nothing, and writes every
   text of the model's as text. graph.js and passes.js follow it in the same script.

   Parts, in order: texts and elements; tables; views by address; kernels; the arena; the start. */
"use strict";

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
    table.classList.toggle("filtered", word !== "");
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
  for (const a of document.querySelectorAll("body > nav a"))
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

/* ------------------------------------------------------------------------------------------ kernels */

const bufferById = new Map();
const nameOf = b => b ? short(b.name || b.label || `b${b.id}`, 60) : "?";
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

/* "lanes 0.sum0 axis=3 n=13": where, and the sentence of its first word with these numbers in it. */
function optText(opt) {
  const [kind, where = "", ...rest] = opt.split(" "), of = Object.fromEntries(rest.map(w => w.split("="))), [store, part] = where.split(".");
  const place = [part ? part.replace(/(\d+)$/, " $1 of ") + `store ${store}` : `store ${store}`, of.axis === undefined ? null : `loop ${of.axis}`].filter(Boolean).join(", ");
  const name = key => of[key] === undefined ? key : of[key];
  const words = (doc.opts[kind] || "").replace(/(loops? )?`axis`/g, (all, loop) => (loop || "loop ") + name("axis")).replace(/`(\w+)`/g, (all, key) => name(key))
    .replace("lanes of this kind", of.kind ? `lanes (${of.kind})` : "lanes").replace("rows or columns", of.as ? `${of.as}s` : "rows or columns")
    .replace(/\b(n|to): /g, (all, key) => `${key} = ${name(key)}: `);
  return `${place}: ` + (of.n === undefined ? words : words.replace("q n + p", `${of.n} q + p`).replace("n - 1", of.n - 1).replace(/\bn-th\b/g, `${of.n}th`).replace(/(?<!= )\bn\b(?! = )/g, of.n));
}

function optList(opts) {
  if (!opts.length) return make("p", {class: "muted"}, "None: the loops are as they were lowered.");
  return make("div", {}, make("p", {class: "muted"}, "Stores and loops are counted from 0, loops from the outermost, in the program as the steps before left it."),
    make("ol", {}, ...opts.map(o => make("li", {}, make("code", {}, o.split(" ")[0]), ` ${optText(o)}`))));
}

/* "winograd 27c1 side=4x2": what such a line of a tune file says, for people. */
function winogradText(line) {
  const words = line.split(" ").slice(2), side = (words.find(w => w.startsWith("side=")) || "").slice(5);
  if (words.includes("apart")) return "one product for each tap";
  const [height, width = height] = side.split("x");
  return /^[0x]*$/.test(side) ? "sums of products" : `Winograd's tiles of ${height === "0" ? `${width} along the width` : width === "0" ? `${height} along the height` : side}`;
}

const CANDIDATES = 4;            /* rejected ones that are listed */

/* One list: the candidate that was taken, then the best of the others; [text, words, rank, taken]. */
function candidateItems(all) {
  const taken = all.filter(x => x.taken), others = all.filter(x => !x.taken).sort((a, b) => a.rank - b.rank), left = others.length - CANDIDATES;
  const item = x => make("li", {}, x.taken ? make("b", {}, "taken: ") : "rejected: ", x.text, x.words);
  return [...taken, ...others.slice(0, CANDIDATES)].map(item)
    .concat(left > 0 ? [make("li", {class: "muted"}, make("details", {}, make("summary", {}, `${left} more`), make("ul", {}, ...others.slice(CANDIDATES).map(item))))] : []);
}

/* The passes that changed the kernel's texts, "conv2d_1 (avx512, AST)", in their order. */
function passList(k) {
  const by = new Map();
  for (const c of doc.changes) {
    if (!c.subject.startsWith(`${k.name} (`)) continue;
    const lines = c.lines.split("\n"), count = sign => lines.filter(s => s[0] === sign).length;
    if (!by.has(c.pass)) by.set(c.pass, []);
    by.get(c.pass).push(`${c.subject.slice(k.name.length + 2, -1)}: ${c.whole ? `${lines.length - 1} lines, its first text` : `${count("-")} lines out, ${count("+")} in`}`);
  }
  const items = [...by].map(([pass, of]) => make("li", {}, make("a", {href: `#passes/${passName(pass)}/${k.name}`}, passName(pass)), ` ${of.join("; ")}`));
  const graph = [make("a", {href: "#passes"}, "Passes of the graph and of the plan"), " come before them", doc.changes_left_out ? "; changes that are too many for the document are left out." : "."];
  return make("details", {open: items.length <= OPTS_OPEN}, make("summary", {}, `Passes that changed it: ${items.length}`),
    items.length ? make("ul", {}, ...items) : make("p", {class: "muted"}, "It has no text of its own."), make("p", {class: "muted"}, ...graph));
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
      const why = b.why ? ` is stored: ${b.why}.` : " is stored as the model computes it.", links = kernelLinks(side === "reads" ? of.writes : of.reads);
      if (side === "reads") items.push(make("li", {}, "It reads ", make("b", {}, b.name ? short(b.name, 60) : "the result"), b.name ? ", by " : " of ", ...links, ", which", why));
      else items.push(make("li", {}, make("b", {}, b.name ? short(b.name, 60) : "Its result"), ", for ", ...links, ",", why));
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
  const loops = (shown.length ? shown : schedules.slice(-1)).map(s => make("details", {open: s.opts.length <= OPTS_OPEN}, make("summary", {}, `What was done to its loops (${s.isa}): ${s.opts.length} step${s.opts.length === 1 ? "" : "s"}`), optList(s.opts)));
  loops.push(passList(k));
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

/* Of the arena: scratch has a copy per thread. 0: it is not in the arena. */
const placedBytes = b => b.placed === undefined ? b.bytes : b.placed;
const sizeOf = b => b.copies > 1 ? `${b.copies} × ${bytes(b.bytes)}, one per thread` : bytes(b.bytes);
const scratchOf = b => b.kind === "scratch" && /^run /.test(doc.steps[b.first_step]) ? doc.steps[b.first_step].slice(4) : null;

class ArenaView {
  constructor() {
    const steps = doc.steps.length;
    this.list = doc.buffers.filter(b => ["temp", "state", "scratch"].includes(b.kind) && b.first_step !== undefined && placedBytes(b) > 0);
    const end = Math.max(0, ...this.list.map(b => b.offset + placedBytes(b))), apart = doc.tensors_in === "device" || doc.tensors_in === "stack";
    const all = this.all = apart ? Math.max(doc.tensor_bytes, end) : doc.arena_bytes;
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
    return [b.first_step * this.cell.x * w, b.offset * this.cell.y * h, (b.last_step - b.first_step + 1) * this.cell.x * w, placedBytes(b) * this.cell.y * h];
  }
  at(p) {
    const w = this.stage.width, h = this.stage.height;
    return this.list.find(b => { const [x, y, dx, dy] = this.rect(b, w, h); return p.px >= x && p.px < x + dx && p.py >= y && p.py < y + Math.max(dy, 2); });
  }
  select(b) {
    this.selected = b;
    this.stage.change();
    if (!b) return;
    const shares = this.list.filter(o => o !== b && o.offset < b.offset + placedBytes(b) && b.offset < o.offset + placedBytes(o)), of = touchedBy(b.id);
    this.under.replaceChildren(make("b", {}, nameOf(b)), ` ${visible(shapeOf(b))}, ${sizeOf(b)}, from ${b.offset} on, steps ${b.first_step + 1} to ${b.last_step + 1}. `,
      ...(scratchOf(b) ? ["Used within ", ...kernelLinks([scratchOf(b)])] : ["Written by ", ...kernelLinks(of.writes), ", read by ", ...kernelLinks(of.reads)]), b.why ? `; stored: ${b.why}. ` : ". ",
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
      for (let k = 1; k < (b.copies || 1); k++) c.fillRect(x, y + k * dy / b.copies, dx, 1);
      if (dx > 56 && dy > 18) {
        c.fillStyle = colour("text");
        c.save();
        c.beginPath();
        c.rect(x, y, dx - 4, dy);
        c.clip();
        c.fillText(`${nameOf(b)} ${sizeOf(b)}`, x + 6, y + 4);
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
      byId("arena-view").append(make("p", {class: "muted"}, `Steps from left to right, places from top to bottom, ${bytes(view.all)} in all.`), view.stage.element, view.under);
  },
};

/* -------------------------------------------------------------------------------------------- start */

/* When all of the script is there. */
function start() {
  addThemeButton();
  enhanceTables();
  if (doc) {
    document.body.classList.add("views");
    window.addEventListener("hashchange", follow);
    follow();
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach(f => f()));
}
document.addEventListener("DOMContentLoaded", start);
