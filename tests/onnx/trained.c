/* trained.c - the tests' window on models with new weights: reads a model and arrays for some of
 * its weights, and writes the model with these.
 *
 *   trained MODEL OUT [NAME=FILE.npy[,DTYPE] ...]            DTYPE where .npy has none such: bf16
 *   trained -m BYTES MODEL OUT.onnx [NAME=FILE.npy ...]      a file of at most so many bytes, as if
 *                                                            that were protobuf's limit
 *
 * Diagnostics go to standard error; the status is 1 then.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static bool write_small(struct tgc *t, const struct model *m, size_t most, const struct array *v,
                        int n, const char *path, struct outputs *files)
{
    struct onnx_replacement *r = mem_array(t, (size_t)n + 1, sizeof *r);
    for (int i = 0; i < n; i++)
        r[i] = (struct onnx_replacement){v[i].name, v[i].dtype, v[i].ndim,
                                         v[i].dim,  v[i].data,  v[i].nbytes};
    struct onnx_sink to = onnx_file(t, path, files);
    to.most = most;
    return to.file && onnx_save_replaced(m->onnx, r, n, &to);
}

/* The environment says nothing. */
static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

static bool work(struct tgc *t, struct options *o, int argc, char **argv)
{
    struct model m;
    struct outputs *files = outputs_new(t);
    size_t most = 0;
    if (argc > 2 && strcmp(argv[1], "-m") == 0) {
        most = strtoull(argv[2], NULL, 10);
        argv += 2;
        argc -= 2;
    }
    if (argc < 3)
        return diag_error(t, NULL, "MODEL and OUT are expected");
    const char *words[] = {"trained", argv[1], "-o", "unused.c"};
    if (!options_parse(t, 4, words, no_variable, o))
        return false;
    limits_set(t, o);
    int n = argc - 3;
    struct array *v = mem_array(t, (size_t)n + 1, sizeof *v);
    for (int i = 0; i < n; i++) {
        char *name = mem_str(t, argv[3 + i]), *equals = strchr(name, '=');
        if (!equals)
            return diag_error(t, NULL, "NAME=FILE.npy is expected, found %s", name);
        char *comma = strrchr(equals, ',');
        enum dtype wanted = DTYPE_VOID;
        if (comma && dtype_parse(comma + 1, &wanted))
            *comma = 0;
        *equals = 0;
        if (!npy_read(t, equals + 1, wanted, &v[i]))
            return false;
        v[i].name = name;
    }
    return model_load(t, o, &m) &&
           (most ? write_small(t, &m, most, v, n, argv[2], files)
                 : trained_write(t, o, &m, v, n, argv[2], files)) &&
           outputs_commit(files);
}

int main(int argc, char **argv)
{
    static struct options o;
    struct tgc *t = tgc_new(0);
    bool ok = false;
    if (!t)
        return 1;
    if (setjmp(t->stop) == 0)
        ok = work(t, &o, argc, argv);
    messages_print(t, &o, stderr);
    tgc_free(t);
    return ok ? 0 : 1;
}
