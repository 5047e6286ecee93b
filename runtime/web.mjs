// SPDX-License-Identifier: 0BSD
// web.mjs - what stands beside a .wasm: typed arrays in and out. MODEL_FILE is the file's stem, MODEL_NAME the C prefix.
// It reads what NAME_describe() returns (backends/program/header.c), as 32-bit targets lay it out.
//@ web
// Runs MODEL_FILE.wasm, which tgc has written together with this file.
//
//     import load from "./MODEL_FILE.mjs";
//     const model = await load();          // MODEL_FILE.wasm beside this file
//     const out = model.run({ NAME: typedArray, ... });
//
// load(SOURCE, { weights }): SOURCE is a URL, a Response, bytes or a WebAssembly.Module; weights the same of
// MODEL_NAME.weights, where the model has such a file. run() takes the model's inputs by their names and returns its
// outputs, typed arrays with the field `shape`. Where a dimension is known only at run time, it follows from the array's
// length; where several are, give { data, shape } in place of the array. One model is one thread; load it once for each
// worker. What tgc has written here is its user's without obligation (0BSD).

const arrays = {
  f32: Float32Array, f64: Float64Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array, bool: Uint8Array, f16: Uint16Array,
  bf16: Uint16Array, i4: Int8Array, i2: Int8Array, u4: Uint8Array, u2: Uint8Array,
};
const NONE = 0xffffffff;
// The least module with an instruction of SIMD128.
const vectors = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0,
  253, 15, 253, 98, 11]);

function fail(what) {
  throw new Error(`MODEL_FILE: ${what}`);
}

// A Response, or bytes, of what `source` names.
async function open(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source) ||
      (typeof Response !== "undefined" && source instanceof Response))
    return source;
  const url = source instanceof URL ? source : new URL(source, import.meta.url);
  if (url.protocol === "file:" && typeof process !== "undefined" && process.versions?.node) {
    const { readFile } = await import("node:fs/promises");
    return readFile(url).catch((why) => fail(`${url.pathname} cannot be read: ${why.message}`));
  }
  const answer = await fetch(url).catch((why) => fail(`${url} cannot be fetched: ${why.message}`));
  return answer.ok ? answer : fail(`${url} cannot be fetched: status ${answer.status}`);
}

async function bytesOf(source) {
  const got = await open(source);
  return got instanceof ArrayBuffer ? new Uint8Array(got)
    : ArrayBuffer.isView(got) ? new Uint8Array(got.buffer, got.byteOffset, got.byteLength)
      : new Uint8Array(await got.arrayBuffer());
}

async function compile(source) {
  if (source instanceof WebAssembly.Module)
    return source;
  const got = await open(source);
  const streams = typeof Response !== "undefined" && got instanceof Response &&
    WebAssembly.compileStreaming && (got.headers.get("content-type") || "").startsWith("application/wasm");
  try {
    return await (streams ? WebAssembly.compileStreaming(got) : WebAssembly.compile(await bytesOf(got)));
  } catch (why) {
    if (!WebAssembly.validate(vectors))
      fail("this host has no SIMD128; a module without it is written with --cpu=generic");
    return fail(`no WebAssembly module: ${why.message}`);
  }
}

class Model {
  constructor(instance, weights) {
    this.c = instance.exports;
    this.memory = this.c.memory;
    const v = this.view(), at = this.c.MODEL_NAME_describe(), info = (n) => v.getUint32(at + n, true);
    if (info(0) !== 5)
      fail("another version of tgc wrote MODEL_FILE.wasm than this file");
    if (info(96))
      fail("a model with several entries is for C");
    this.name = this.text(info(4));
    this.inputs = this.tensors(info(32), info(16));
    this.outputs = this.tensors(info(36), info(20));
    this.symbols = Array.from({ length: info(24) }, (_, k) => {
      const p = info(40) + 32 * k;
      return { name: this.text(v.getUint32(p, true)), min: Number(v.getBigInt64(p + 8, true)),
        max: Number(v.getBigInt64(p + 16, true)), offset: v.getUint32(p + 24, true) };
    });
    for (const x of [...this.inputs, ...this.outputs])
      if (!arrays[x.dtype])
        fail(`'${x.name}' is a tensor of ${x.dtype}, which no typed array holds`);
    // what the model works in, behind what the module has itself
    const arena = info(48), inBytes = info(72), outBytes = info(76), external = info(60) ? info(56) : 0;
    if (external && (!weights || weights.length < external))
      fail(`it needs ${external} bytes of weights, MODEL_NAME.weights`);
    const need = [arena, inBytes, outBytes, 512, 8, external, ...[...this.inputs, ...this.outputs].map((x) => x.bytes)];
    const total = need.reduce((sum, n) => sum + n + 64, 0), start = this.memory.buffer.byteLength;
    try {
      this.memory.grow(Math.ceil(total / 65536));
    } catch {
      fail(`it needs ${Math.ceil((start + total) / 1e6)} MB of memory, more than this host gives`);
    }
    let next = start;
    const take = (n) => { const p = next; next += Math.ceil((n + 1) / 64) * 64; return p; };
    const place = take(arena);
    [this.in, this.out] = [take(inBytes), take(outBytes)];
    const options = take(512), pointer = take(8), w = external ? take(external) : 0;
    for (const x of [...this.inputs, ...this.outputs])
      x.place = take(x.bytes);
    const u = this.view();
    if (external)
      new Uint8Array(this.memory.buffer, w, external).set(weights.subarray(0, external));
    u.setUint32(options + 4, w, true);
    u.setUint32(options + 8, external, true);
    this.check(this.c.MODEL_NAME_init(pointer, place, arena, options));
    this.self = u.getUint32(pointer, true);
    for (const x of this.inputs)
      u.setUint32(this.in + x.offset, x.place, true);
    for (const x of this.outputs)
      u.setUint32(this.out + x.offset, x.place, true);
  }

  view() { return new DataView(this.memory.buffer); }

  text(p) {
    if (!p)
      return null;
    const bytes = new Uint8Array(this.memory.buffer), end = bytes.indexOf(0, p);
    return new TextDecoder().decode(bytes.subarray(p, end));
  }

  tensors(first, count) {
    const v = this.view();
    return Array.from({ length: count }, (_, k) => {
      const p = first + 28 * k, u = (n) => v.getUint32(p + n, true);
      const dims = Array.from({ length: u(12) }, (_, a) => {
        const d = u(16) + 16 * a;
        return { size: Number(v.getBigInt64(d, true)), symbol: this.text(v.getUint32(d + 8, true)) };
      });
      return { name: this.text(u(0)), dtype: this.text(u(4)), dims, offset: u(20), shapeOffset: u(24),
        bytes: dims.reduce((n, d) => n * d.size, u(8)) };
    });
  }

  check(status) {
    if (status)
      fail(this.text(this.c.MODEL_NAME_strerror(status)));
  }

  // The sizes of x, and those of its dimensions that this decides.
  shape(x, data, given, found) {
    const open = x.dims.map((d, a) => (d.symbol === null ? -1 : a)).filter((a) => a >= 0);
    const shape = given ? Array.from(given, Number) : x.dims.map((d) => d.size);
    if (shape.length !== x.dims.length)
      fail(`'${x.name}' has ${x.dims.length} dimensions, and ${shape.length} are given`);
    if (!given && open.length) {
      const symbols = new Set(open.map((a) => x.dims[a].symbol).filter((s) => found[s] === undefined));
      const rest = x.dims.reduce((n, d) => n * (d.symbol === null ? d.size : found[d.symbol] ?? 1), 1);
      if (symbols.size > 1 || open.filter((a) => symbols.has(x.dims[a].symbol)).length > 1)
        fail(`'${x.name}' has several dimensions that are open: give { data, shape }`);
      for (const a of open)
        shape[a] = found[x.dims[a].symbol] ?? (rest ? data.length / rest : 0);
    }
    x.dims.forEach((d, a) => {
      if (!Number.isInteger(shape[a]) || shape[a] < 0 || shape[a] > d.size || (d.symbol === null && shape[a] !== d.size))
        fail(`'${x.name}': dimension ${a} is ${d.symbol === null ? "" : "at most "}${d.size}, and ${shape[a]} is given`);
      if (d.symbol !== null)
        found[d.symbol] = shape[a];
    });
    const count = shape.reduce((n, size) => n * size, 1);
    if (data.length !== count)
      fail(`'${x.name}' has ${count} elements, and ${data.length} are given`);
  }

  run(given) {
    const found = Object.create(null);
    for (const x of this.inputs) {
      const value = given?.[x.name], data = value?.data ?? value, Kind = arrays[x.dtype];
      if (value === undefined || value === null)
        fail(`the input '${x.name}' is missing; inputs are ${this.inputs.map((i) => i.name).join(", ")}`);
      if (!(data instanceof Kind))
        fail(`the input '${x.name}' takes a ${Kind.name}`);
      this.shape(x, data, value.data ? value.shape : undefined, found);
      new Kind(this.memory.buffer, x.place, data.length).set(data);
    }
    const v = this.view();
    for (const s of this.symbols)
      if (s.offset !== NONE)
        v.setBigInt64(this.in + s.offset, BigInt(found[s.name] ?? fail(`the dimension ${s.name} is given by no input`)), true);
    this.check(this.c.MODEL_NAME_run(this.self, this.in, this.out));
    return Object.fromEntries(this.outputs.map((x) => {
      const shape = x.dims.map((d, a) => (x.shapeOffset === NONE ? d.size
        : Number(v.getBigInt64(this.out + x.shapeOffset + 8 * a, true))));
      const data = new arrays[x.dtype](this.memory.buffer, x.place, shape.reduce((n, size) => n * size, 1)).slice();
      return [x.name, Object.assign(data, { shape })];
    }));
  }

  // States begin anew, where the model has any.
  reset() { this.c.MODEL_NAME_reset?.(this.self); }
}

export default async function load(source = new URL("./MODEL_FILE.wasm", import.meta.url), options = {}) {
  if (typeof WebAssembly === "undefined")
    fail("this host has no WebAssembly");
  const module = await compile(source);
  const weights = WEIGHTS_FILE ? await bytesOf(options.weights ?? new URL("./MODEL_NAME.weights", import.meta.url)) : null;
  return new Model(await WebAssembly.instantiate(module, {}), weights);
}
