/* backend.h - from a schedule to a program: naming, escaping, the public header, weights, kernels,
 * launch code.
 *
 *      schedule ──program.c──> NAME.h (header.c)
 *                              NAME.c: pieces of runtime/ (snippets.c), kernels (a target, c/),
 *                              init, run (run.c), close, weights (weights.c), main
 *
 * A target is a struct backend: how a kernel becomes text, how text becomes a binary, which
 * launcher the program carries.
 */
#ifndef TGC_BACKEND_H
#define TGC_BACKEND_H

#include "ir/ir.h"
#include "passes/passes.h"

/* ----------------------------------------------------------------- what NAME_describe() returns */
/* Mirrors the structs in every emitted header, for users who open a model as a shared object. The
 * layout does not depend on the model; it changes only together with PROGRAM_INFO_VERSION. Offsets
 * are of fields in NAME_inputs and NAME_outputs, which consist of object pointers and int64_t. */
enum { PROGRAM_INFO_VERSION = 5 };
#define PROGRAM_NO_OFFSET ((size_t)-1)

struct program_dim {
    int64_t size;                /* the size, or the upper bound of a run-time dimension */
    /* NULL: fixed; else the symbol ("batch") or an expression of symbols ("2*batch") */
    const char *symbol;
};
struct program_tensor {
    const char *name;            /* the model's own name, UTF-8, unescaped */
    const char *dtype;           /* as dtype_name(): "f32" */
    size_t element_bytes;
    int rank;
    const struct program_dim *dim;         /* [rank]; NULL for rank 0 */
    size_t offset;               /* of the pointer field */
    /* outputs with run-time dimensions: of int64_t NAME_shape[rank]; else PROGRAM_NO_OFFSET */
    size_t shape_offset;
};
struct program_symbol {
    const char *name;
    int64_t min, max;
    /* of int64_t dim_NAME in NAME_inputs; PROGRAM_NO_OFFSET: the run computes it */
    size_t offset;
};
struct program_kernel {
    const char *name;            /* the C function */
    const char *title;           /* the model's nodes */
    double flop, bytes;          /* of one launch, at the dimensions' upper bounds */
};
/* An output that is the input of the next run. */
struct program_state {
    const char *from;            /* the output's name */
    struct program_tensor input; /* its sizes are upper bounds; offset: of its data in a block */
    int axis;                    /* along which it grows; -1: it does not */
    size_t length_offset;        /* of its length in a block, an int64_t; PROGRAM_NO_OFFSET */
};
/* One of several runs; its inputs are contiguous in the tables of all inputs, and
 * its outputs are. */
struct program_entry {
    const char *name;            /* as in the model */
    int input, input_count, output, output_count;
};
/* A part of an output, along its last axis, that has a name. */
struct program_slice {
    const char *name;
    int output;                  /* of all outputs */
    size_t begin, size;          /* elements */
};
/* What the program says of itself. */
struct program_meta { const char *key, *value; };
/* What callers check of an input, and draw for it. */
struct program_feed {
    /* [rank]: NULL: the size is fixed; else what it follows from, in postfix: "$0 2 mul" is twice
     * symbols[0]. NULL for rank 0 */
    const char *const *rule;
    int64_t least, most;         /* integers that its uses allow; least > most: it holds none */
};
struct program_info {
    int version;                 /* PROGRAM_INFO_VERSION */
    const char *name;            /* the C prefix */
    const char *producer;        /* "tgc 0.1.0" */
    const char *target;          /* "c" */
    int input_count, output_count, symbol_count, kernel_count;
    const struct program_tensor *inputs, *outputs;
    const struct program_symbol *symbols;
    const struct program_kernel *kernels;
    size_t arena_bytes, arena_align;
    size_t weights_bytes;
    /* 1: NAME_options.weights must point to the contents of NAME.weights */
    int weights_external;
    double flop;                 /* of one run */
    size_t inputs_bytes, outputs_bytes;    /* sizeof NAME_inputs, NAME_outputs */
    size_t stack_bytes;          /* NAME_STACK_BYTES */
    int state_count;
    const struct program_state *states;
    size_t state_bytes;          /* NAME_STATE_BYTES; 0: the model has no state */
    int entry_count;             /* 0: the model is one run */
    const struct program_entry *entries;
    size_t entry_offset;         /* of an int64_t in NAME_inputs: which entry NAME_run() runs */
    int slice_count, meta_count;
    const struct program_slice *slices;
    const struct program_meta *meta;
    const struct program_feed *feeds;   /* [input_count + state_count]: of inputs, then of states */
};

/* Which entry the input or output i belongs to; -1: the model has none. */
int program_entry_of(const struct program_info *info, bool output, int i);

enum { MOST_THREADS = 1024 };    /* of --threads */
/* NAME_options of programs for processors; no model changes it. */
struct program_run_options {
    int threads;
    const void *weights;
    size_t weights_bytes;
    void (*parallel_for)(void *user, int count, void (*body)(void *context, int index),
                         void *context);
    void (*on_kernel)(void *user, int index, const char *kernel);
    void *user;
};
/* NAME_options of programs for devices. */
struct program_device_options {
    struct program_run_options run;
    int device;
    void *context, *queue;
    size_t (*load_program)(void *user, const char *key, void *to, size_t size);
    void (*save_program)(void *user, const char *key, const void *binary, size_t size);
    void (*on_kernel_time)(void *user, int index, const char *kernel, double ns);
    void (*on_error)(void *user, const char *text);
    int images;                  /* of programs that have images */
};

/* Statuses of NAME_init and NAME_run, for all models; the emitted enum is generated from
 * this table, too. */
enum program_status {
#define STATUS(name, value, text) PROGRAM_##name = value,
#include "backends/program/statuses.def"
#undef STATUS
    PROGRAM_STATUS_END,
    PROGRAM_OWN_STATUS = 100     /* from here on: of C functions of the user's */
};

/* feeds.c: the rule of a size, for runtime/fit.c; NULL: it is fixed. number: of a symbol. */
typedef int symbol_numberer(void *user, const struct var *v);
const char *size_rule(struct tgc *t, const struct uop *dim, symbol_numberer *number, void *user);

/* ------------------------------------------------------------------------------------ program.c */

enum weights_mode {
    /* STRING, from WEIGHTS_INCBIN_FROM bytes on INCBIN, from WEIGHTS_FILE_FROM on FILE */
    WEIGHTS_AUTO,
    WEIGHTS_STRING,              /* u"" literals in NAME.c, which is UTF-8 then */
    WEIGHTS_ARRAY,               /* arrays of numbers: typed, readable, slow to compile */
    WEIGHTS_INCBIN,              /* NAME.weights next to NAME.c, included by #embed or .incbin */
    WEIGHTS_FILE,                /* NAME.weights is given to NAME_init through the options */
    WEIGHTS_OBJECT               /* NAME_weights_data, of another object of the program */
};
#define WEIGHTS_INCBIN_FROM ((size_t)32 << 20)
/* Weights in the program: code reaches 2 GB of what is linked with it, in the usual code models,
 * and shares that with the rest of the program. */
#define WEIGHTS_FILE_FROM ((size_t)3 << 29)

/* Reference values for --selftest, in the storage format, row-major. */
struct program_vectors {
    const void **output; size_t *output_nbytes; /* [noutput], of the inputs of runtime/fill.c */
    const int64_t *var;                    /* by position in schedule->var */
    double rtol, atol;
};

struct backend;                  /* a target: program.h */
/* The target of that name, as in --target; NULL: there is none. */
const struct backend *backend_find(const char *target);
/* The version of NVRTC that --target=cuda compiles with; NULL: there is none. */
const char *cuda_found(struct tgc *t);
/* Do its kernels run on a device, in memory other than the caller's? */
bool backend_is_of_device(const struct backend *backend);
/* Does LLVM compile the device's kernels? It lacks some instructions of the vendor's compiler.
 * as_text: only LLVM's text is asked for. */
bool backend_is_by_llvm(const struct backend *backend, struct tgc *t, bool as_text);

/* Whether the interpreter computes reference vectors: if that is quick, always, or never. */
enum vectors_mode { VECTORS_AUTO, VECTORS_ALWAYS, VECTORS_NEVER };

/* Lines of NAME.c, from 1: those of a kernel or of a step of NAME_run, and its title, the model's
 * nodes. */
struct program_range { const struct text *in; size_t from, to; const char *title; };
struct program_lines { struct program_range *range; size_t n, cap; };
/* NULL: no node's. */
const char *program_line_title(const struct program_lines *l, size_t line);

struct program_options {
    const struct backend *backend;         /* NULL: c */
    const char *name;            /* C identifier: see program_name() */
    /* the file name of the header that NAME.c includes; NULL: NAME.h */
    const char *header;
    /* what the user compiled, for a comment: "resnet18.onnx"; a base name, never a path */
    const char *model;
    const char *producer;        /* "tgc 0.1.0" */
    enum weights_mode weights;
    bool no_main;                /* leave the -DNAME_MAIN program out */
    /* NULL, or receives that program, a file of this name, which needs no -DNAME_MAIN */
    struct text *main;
    const char *main_name;
    bool small;                  /* names and texts only where NAME_STRINGS is defined */
    const struct program_vectors *vectors;     /* NULL: as vectors_mode says */
    enum vectors_mode vectors_mode;
    struct text *kernels;                  /* NULL, or receives the kernels' text as well */
    /* Of devices whose kernels are compiled here: the architectures, "sm_80,sm_90a"; whether they
     * are not compiled at all; NULL, or receives what one is compiled to. */
    const char *architectures;
    bool only_kernels;
    struct text *device_code;
    struct text *device_ir;                /* NULL, or receives the kernels as LLVM's text
                                            * instead */
    struct program_lines *lines;           /* NULL, or receives what lines belong to */
    struct program_sources *sources;       /* NULL, or receives each kernel's text */
};
/* The text of each function of a kernel, for an instruction set. */
struct program_source { const struct kernel *kernel; enum isa isa; const char *text; };
struct program_sources { struct program_source *v; size_t n, cap; };

/* Receives bytes in order; false stops the writing. swapped: it wants the byte order that this
 * process has not. */
struct byte_sink {
    bool (*write)(void *context, const void *p, size_t nbytes);
    void *context;
    bool swapped;
};

/* sizes.c: whether a run takes at most `limit` bytes of stack; false: an error says what takes
 * more */
bool program_check_stack(struct tgc *t, const struct schedule *s, size_t limit);
/* naming.c: the first call of each C function of the user's, from *step on; *step moves to the step
 * after it. NULL: there are no more. */
const struct host_call *schedule_next_external(const struct schedule *s, int *step);
/* Their names are free in the program `name`. false: reported. */
bool program_check_externals(struct tgc *t, const struct schedule *s, const char *name);
/* Writes NAME.c and NAME.h. *weights_beside: NAME.weights is needed, too, which
 * program_write_weights() writes. needs: a planned schedule (buffer offsets, arena_nbytes). false:
 * diagnostics were recorded. */
bool program_write_c(struct tgc *t, const struct schedule *s, const struct program_options *o,
                     struct text *c, struct text *h, bool *weights_beside);
/* NAME.h alone, for a target whose program is no C. */
/* NAME_STACK_BYTES: the most stack that NAME_run() uses, without libc's functions */
size_t program_stack_bytes(struct tgc *t, const struct schedule *s);
/* web.c: the .mjs beside STEM.wasm. has_file: the weights are in NAME.weights. */
void program_write_web(const char *name, const char *stem, bool has_file, struct text *out);
void program_write_header(struct tgc *t, const struct schedule *s, const struct program_options *o,
                          struct text *h);
/* By entry: "lenet_warp", as NAME.h has its structs and functions. */
const char *const *program_entry_names(struct tgc *t, const struct schedule *s,
                                       const struct program_options *o);
/* The functions of runtime/ in C, for gcc and clang, with symbols that only the program's other
 * object sees; of a training those of its entries, too, and NAME_describe(). */
void program_write_pieces(struct tgc *t, const struct schedule *s, const struct program_options *o,
                          const char *const *piece, int n, struct text *c);
const char *program_piece_symbol(struct tgc *t, const char *name, const char *piece);
/* The weights at their offsets, gaps zeroed: the contents of NAME.weights. false: the sink
 * refused. */
bool program_write_weights(struct tgc *t, const struct schedule *s, const struct byte_sink *sink);
/* The weights to memory of schedule->weight_nbytes; swapped: as in a sink. In any thread. needs:
 * the places do not overlap, and are in order. */
void program_copy_weights(const struct schedule *s, unsigned char *to, bool swapped);
enum weights_mode program_weights_mode(const struct schedule *s, enum weights_mode wanted);
/* A C identifier for NAME from an output's stem or a model's name: never a keyword, never empty. */
const char *program_name(struct tgc *t, const char *stem);
const char *name_upper(struct tgc *t, const char *s);             /* as macros have it */

/* Other representations of a schedule, for people and for tools. */
void schedule_write_uops(struct text *out, struct tgc *t, const struct schedule *s);
/* Parts of it: what is before a kernel's program, which has a name of its own if it is a variant; a
 * step, in one line. */
void schedule_write_kernel_head(struct text *out, struct tgc *t, const struct kernel *k,
                                const char *name);
void schedule_write_step(struct text *out, const struct step *step);
void schedule_write_dot(struct text *out, struct tgc *t, const struct schedule *s);
/* As members of a JSON object, the last one without a comma: tensors, kernels, buffers with their
 * places and why they are stored, steps, sizes. */
void schedule_write_members(struct text *out, struct tgc *t, const struct schedule *s,
                            const char *name);
/* Its kernels as the elements of a JSON list: name, title, what each reads and writes, FLOP,
 * bytes. */
void schedule_kernels_json(struct text *out, struct tgc *t, const struct schedule *s);

/* ------------------------------------------------------------------------------------ compile.c */

/* A compiler, what it is told before all else and where it links (NULL: nothing), and the archiver
 * for its objects (NULL: $AR, else ar). */
struct compiler {
    const char *command;
    const char *const *word; int nword;
    const char *linker, *archiver;
    const char *libraries;       /* -L... of WebAssembly's libc; NULL: for another machine */
};
/* JOINED: an object of the C file and of the objects in library[]; an archive's member is one, if
 * there are any. WASM: a module that exports the functions of the header. */
enum binary_kind { BINARY_OBJECT, BINARY_SHARED, BINARY_ARCHIVE, BINARY_PROGRAM, BINARY_JOINED,
                   BINARY_WASM };
struct compile_request {
    enum binary_kind kind;
    const char *source;       /* the emitted C file, next to its header and weights, or an object */
    const char *out_path;
    const char *temporary;       /* where the compiler's own temporary files go; NULL: $TMPDIR */
    const char *subject;         /* the file that messages name, which the user
                                  * knows; NULL: out_path */
    const struct compiler *compiler;       /* NULL: $CC, else cc */
    /* besides the defaults, which the compiler's own words replace: -O2 -std=c11, and -fPIC in
     * objects and libraries */
    const char *const *flags; int nflag;
    const char *const *library; int nlibrary; /* -l and the like, after the file */
    const char *define;          /* "LENET_MAIN" or NULL */
    bool small;                  /* -Os is the default in place of -O2 */
    size_t stack;                /* of a WebAssembly module, in bytes */
};
/* $CC without leading blanks; NULL: it is not set. */
const char *compiler_of_environment(void);
/* Whether a directory of PATH has a program of that name (clang/driver.c). */
bool program_is_on_path(struct tgc *t, const char *name);
/* Runs the system's compiler, and the archiver. false: a diagnostic says what is missing or quotes
 * the compiler's first error. */
bool compile_c(struct tgc *t, const struct compile_request *r);

#endif
