/* clang.h - the clang target: the C target's C, checked by libclang and built by the clang program,
 * for this machine or another one.
 *
 *      NAME.c ──check.c──> diagnostics with the model's nodes
 *         └─────driver.c──> what compile.c runs: clang --target=TRIPLE ...
 */
#ifndef TGC_CLANG_H
#define TGC_CLANG_H

#include "backends/backend.h"

enum { CLANG_OLDEST = 13, CLANG_NEWEST = 19 };

struct clang {
    struct tgc *t;
    const char *triple;          /* NULL: this machine */
    const char *driver;          /* the program's name, "clang-19"; NULL: there is none */
    int version;                 /* its major version */
    const char *title;           /* "clang 19.1.7" */
    const char *resources;       /* the folder of its own headers */
    const char **word; int nword; size_t cap;  /* what both take: --target and folders of headers */
};

/* driver.c. Finds what there is of clang. NULL: an error names the package. */
struct clang *clang_open(struct tgc *t, const char *triple);
/* The program for compile_c(). NULL: an error names the package. */
const struct compiler *clang_compiler(struct clang *l);
/* "clang 19.1.7 (clang-19)"; NULL: none of the known versions is on PATH. */
const char *clang_found(struct tgc *t);
/* Both record an error, which names --triple, or the subject for this machine: false. The second
 * names the package that libc's headers are in, where sysroots.def has it. */
bool clang_refuse_machine(const struct clang *l, const char *by, const char *subject);
bool clang_refuse_headers(const struct clang *l, const char *subject);

/* check.c. An emitted program; lines: of NAME.c, from program_write_c(). */
struct clang_source {
    const char *subject;         /* the file that messages name */
    const char *c_name, *h_name; /* "lenet.c", and the header as it includes it */
    const struct text *c, *h;
    const struct program_lines *lines;
    const char *flag;            /* one more word for clang; NULL: none */
};
/* Parses it by libclang, if that is here, and reports what it says. false: errors, or neither clang
 * nor libclang is here. */
bool clang_check(struct clang *l, const struct clang_source *s);
/* The version of the libclang that goes with the program's (0: there is no program); NULL: none, so
 * nothing is checked. */
const char *clang_library_found(struct tgc *t, int version);

#endif
