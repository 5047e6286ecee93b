// api.cpp - tgc.h from C++: compiles a model, and runs it if it can be.   api MODEL
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <vector>

#include <tgc.h>

struct Free {
    void operator()(tgc_compiler *c) const { tgc_compiler_free(c); }
    void operator()(tgc_model *m) const { tgc_model_free(m); }
    void operator()(tgc_files *f) const { tgc_files_free(f); }
};

int main(int argc, char **argv)
{
    std::unique_ptr<tgc_compiler, Free> c(tgc_compiler_new());
    if (argc != 2 || !c || tgc_source_file(c.get(), argv[1]) != TGC_OK)
        return 1;
    tgc_files *made = nullptr;
    if (tgc_compile_memory(c.get(), "c", &made) != TGC_OK)
        return 1;
    std::unique_ptr<tgc_files, Free> files(made);
    tgc_model *opened = nullptr;
    tgc_status status = tgc_open(c.get(), &opened);
    std::unique_ptr<tgc_model, Free> m(opened);
    for (std::size_t i = 0; m && i < tgc_input_count(m.get()); i++) {
        const tgc_tensor *v = tgc_input(m.get(), i);
        std::size_t nbytes = v->element_bytes;
        for (int a = 0; a < v->rank; a++)
            nbytes *= static_cast<std::size_t>(v->shape[a]);
        if (tgc_set_input(m.get(), i, std::vector<char>(nbytes).data(), nullptr) != TGC_OK)
            return 1;
    }
    if (m && tgc_run(m.get()) != TGC_OK)
        return 1;
    // LLVM's handler of exhausted memory is not the caller's
    try {
        std::vector<char> all(PTRDIFF_MAX - 64);
        return 1;
    } catch (const std::bad_alloc &) {
    }
    std::printf("%s: %zu bytes, %s\n", tgc_files_get(made, 0).name, tgc_files_get(made, 0).nbytes,
                tgc_status_text(status));
    return 0;
}
