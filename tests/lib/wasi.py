"""Runs a WebAssembly program of WASI by the package wasmtime: wasi.py PROGRAM WORD...

It sees all files by their absolute paths. Exit status 134 says that it trapped."""

import sys


def main(path, words):
    import wasmtime

    config = wasmtime.Config()
    engine = wasmtime.Engine(config)
    store, linker, wasi = wasmtime.Store(engine), wasmtime.Linker(engine), wasmtime.WasiConfig()
    wasi.argv = [path, *words]
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    wasi.preopen_dir("/", "/")
    store.set_wasi(wasi)
    linker.define_wasi()
    try:
        linker.instantiate(store, wasmtime.Module.from_file(engine, path)).exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        return end.code
    except wasmtime.WasmtimeError as why:
        print(why, file=sys.stderr)
        return 134
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
