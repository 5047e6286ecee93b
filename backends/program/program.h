/* program.h - what the files of backends/ share: names and escaping, runtime snippets, the program
 * being written, renderers. */
#ifndef TGC_PROGRAM_H
#define TGC_PROGRAM_H

#include "backends/backend.h"

/* -------------------------------------------------------------------------------------- names.c */

/* A set of identifiers in use. A name is free if neither this scope nor an enclosing one has it. */
struct name {
    enum { NAME_FREE, NAME_HELD, NAME_TAKEN } state;
    int next;                    /* name_2 ... up to here are taken; 1 is the name itself */
};
struct names {
    struct tgc *t;
    const struct names *parent;
    struct dict name;
    const char *macros;          /* of the outermost scope: NULL, or how macros begin: "LENET_" */
};
struct names *names_new(struct tgc *t, const struct names *parent);
bool names_has(const struct names *n, const char *s);
void names_add(struct names *n, const char *s);
/* Reserves s until it is released. */
void names_hold(struct names *n, const char *s);
void names_release(struct names *n, const char *s);
/* The first free one of base, base2, base3 (with the separator). Callers of one scope use the same
 * separator. */
const char *names_number(struct names *n, const char *base, const char *separator);
/* The identifier for `wanted`, any bytes: mangled readably, truncated, made unique with _2, _3 ...;
 * added to the scope. `fallback` replaces it if nothing readable is left. */
const char *names_unique(struct names *n, const char *wanted, const char *fallback);
/* Every word an emitted file must not define: keywords of C11, C++17 and OpenCL, and what the
 * headers it includes may declare. */
struct names *names_reserved(struct tgc *t);
/* naming.c: and every name that emitted files define themselves, but for the program's own */
struct names *names_of_files(struct tgc *t);
/* [A-Za-z0-9_], not starting with a digit, at most 48 long; "" if nothing readable is left. */
const char *name_mangle(struct tgc *t, const char *s);

/* Escaping. Model names are hostile: each language has one function, and nothing else may write a
 * name into it. */
/* inside a C comment; one line; cut after 160 characters */
void text_comment(struct text *out, const char *s);
/* a C string literal with its quotes */
void text_string(struct text *out, const char *s);
void text_json(struct text *out, const char *s);                 /* a JSON string with its quotes */
/* HTML text, or an attribute's in quotes. Control characters and those of direction are shown as
 * [U+202E]; of more than `most` bytes the first ones, and how many there are. */
void text_html(struct text *out, const char *s, size_t most);
void text_dot(struct text *out, const char *s);                  /* inside a quoted DOT string */
/* bytes as a C string literal of several lines */
void text_literal(struct text *out, const void *p, size_t nbytes);
/* blanks until out->n - column_start == width */
void text_pad(struct text *out, size_t column_start, size_t width);
/* indents each line by four blanks per depth; empty lines stay empty */
void text_lines(struct text *out, const char *lines, int depth);
/* "f(a, b, c": appends an item, on a new line if the present one, which began at out->n == line,
 * would exceed LINE_WIDTH. tail: the text after the last item. */
enum { LINE_WIDTH = 100 };
struct text_list { struct text *out; const char *separator; size_t line, indent, tail; bool any; };
void list_put(struct text_list *l, const char *s);
/* shortest text that reads back as v; "NAN", "INFINITY" */
void text_double(struct text *out, double v);
/* shortest text that reads back as the float v, with the suffix f */
void text_float(struct text *out, float v);
const char *text_si(struct tgc *t, double v, const char *unit);  /* "231 MFLOP" */
void text_bytes(struct text *out, double nbytes);                /* "1.8 MB" */
/* "12 of them are stored as bf16, 248 MB in place of 496 MB; ..." and the error of that */
void text_narrowing(struct text *out, const struct narrowing *n);
/* "[1,64,56,56]"; comments */
void text_dims(struct text *out, struct uop *const *dim, int ndim, const char *open,
               const char *close);

/* ----------------------------------------------------------------------------------- snippets.c */

/* A piece of runtime/: C text with a name, and the names of the pieces that it needs. */
struct snippet { const char *file, *name, *needs, *text; };
const struct snippet *snippet_find(const char *name);
void snippets_reserve(struct names *n);                           /* all names of pieces */
/* whether some piece uses the word as an identifier */
bool snippets_mention(const char *word);
bool text_has_word(const char *text, const char *word);
/* The set of pieces that a program uses, closed under needs. language: NULL, or "opencl": then a
 * piece opencl_x replaces x if it exists. family: likewise, where the language has none. */
struct snippet_set {
    struct tgc *t;
    bool *used;
    const char *language, *family;
    struct dict found;           /* pieces by the names that were asked for */
};
/* Whether there is a piece of that name, in the set's language or in C. */
bool snippet_is_known(struct snippet_set *s, const char *name);
/* Where the set would use the piece `name`, it uses `by`. needs: it does not use either yet */
void snippet_replace(struct snippet_set *s, const char *name, const char *by);
void snippet_use(struct snippet_set *s, const char *name);        /* TGC_BUG on an unknown name */
struct program;
/* the used pieces of one file, in its order; with a suffix only those whose names end so */
void snippets_write(const struct program *p, struct text *out, const char *file,
                    const char *suffix);
bool snippets_any(const struct snippet_set *s, const char *file);
/* Whether one of the used pieces has the word. */
bool snippets_have(const struct snippet_set *s, const char *word);
/* Those of the other set are no more of this one: the file has them already. */
void snippets_leave_out(struct snippet_set *s, const struct snippet_set *written);
/* Macros of emitted programs; see load_again and kept_twice of program.c. */
#define PROGRAM_LOAD_AGAIN "LOAD_AGAIN"
#define PROGRAM_KEPT_TWICE "KEPT_TWICE"
#define PROGRAM_UNROLL "UNROLL"
/* Writes text of runtime/ or of the backends. Words model_x and MODEL_X become NAME_x and NAME_X,
 * and model_self and model_ become NAME. */
void program_write_text(const struct program *p, struct text *out, const char *text);
/* The same, with words of the text replaced by others; the list ends with a NULL. */
struct text_word { const char *name, *text; };
void program_write_words(const struct program *p, struct text *out, const char *text,
                         const struct text_word *word);

/* -------------------------------------------------------------------------------------- sizes.c */

/* The most threads of a run: 1, if they share no kernel. */
int program_threads(const struct schedule *s);
/* Bytes at the begin of the arena for struct NAME. */
size_t program_head_bytes(const struct schedule *s);
/* In it, where a program whose struct is no C's has its struct team, and how many
 * bytes that may take. */
size_t program_team_offset(void);
size_t program_team_bytes(const struct schedule *s);
/* NAME_ARENA_BYTES: what the caller provides. */
size_t program_arena_bytes(struct tgc *t, const struct schedule *s);

/* ------------------------------------------------------------------------------------ buffers.c */

struct program;
/* Whether the intermediates are on the stack of NAME_run(), not in the arena: if they are small. */
bool program_is_on_stack(const struct schedule *s);
/* Where runs on a processor have a tensor, in bytes from the arena's begin: a state in up to two
 * places by turns. Returns how many; 0: it is the caller's, a weight, or on the stack. needs: b is
 * no part of another buffer */
int program_arena_places(const struct schedule *s, const struct buffer *b, size_t place[2]);
/* an output with a dimension that is not constant */
bool program_has_shape_field(const struct buffer *b);
/* "const float *", "const char *const *": pointer to elements that are only read */
const char *const_pointer(enum dtype d);
int64_t dim_bound(const struct uop *dim);                         /* the upper bound, at least 0 */
/* TABLE_dim_INDEX[], which a struct NAME_tensor points to */
void describe_write_dims(struct program *p, struct text *out, const char *table,
                         const struct buffer *b, int index);

/* Whether names and texts are there only where NAME_STRINGS is defined: -Os. */
bool program_is_bare(const struct program *p);

/* NULL: the program's parameters do not train. */
const struct graph_training *program_training(const struct schedule *s);
/* The fields of NAME_inputs and NAME_outputs: of a training those of the model alone. */
int program_count_inputs(const struct schedule *s);
int program_count_outputs(const struct schedule *s);

/* ---------------------------------------------------------------------------------- the program */

/* queues.c of backends/device/: the queue of a kernel, those of other queues for which it waits,
 * whether others wait for it. by_queues: its part of the run goes by several queues. */
enum { DEVICE_QUEUES = 4 };
struct device_turn { int queue, nwait, wait[DEVICE_QUEUES]; bool signals, by_queues; };

struct program {
    struct tgc *t;
    const struct schedule *s;
    const struct program_options *o;
    const struct backend *backend;
    const char *name, *upper;    /* "lenet", "LENET" */
    enum weights_mode weights;
    /* identifiers at file scope, and those of NAME_run that no kernel may have */
    struct names *file;
    /* identifiers at file scope that a kernel may use, so its locals have other names */
    struct names *visible;
    struct names *run;           /* identifiers inside NAME_run */
    const char **kernel_name;    /* by position in schedule->kernel */
    /* likewise: the kernel whose function it calls, itself or an earlier one */
    const struct kernel **twin;
    const char **parameters;     /* of the kernel's function, likewise */
    const char *const **casts;   /* likewise, of C: of its arguments, each "" or a cast */
    /* likewise, if threads share the kernel: "conv1_task", "conv1_part" */
    const char **task_name, **part_name;
    /* by buffer->id: field of inputs/outputs/weights, or the local in NAME_run */
    const char **buffer_name;
    const char **macro_name;     /* by buffer->id, of inputs and outputs: "IMAGE" */
    struct names *macros;        /* what stands behind "LENET_" in macros and enumerators */
    const char **entry_name;     /* by entry: "lenet_warp", of its structs and functions */
    const char **var_name;       /* by var->id: "batch"; in NAME_run a local of that name */
    bool *buffer_used;           /* by buffer->id: NAME_run uses it */
    int nbuffer_id, nvar_id;
    struct snippet_set snippets;
    int threads;                 /* of program_threads() */
    size_t head_bytes;           /* bytes of struct NAME at the arena's begin */
    struct text tasks;           /* how threads call the kernels that they share */

    /* Devices: the pieces that their kernels use, and whether they use 64-bit floats; by buffer->id
     * the offset in the memory or in the weights; bytes of the memory. */
    struct snippet_set device_snippets;
    bool device_doubles;
    size_t *place, device_nbytes;
    size_t device_states;        /* where states begin in the memory */
    size_t device_verdicts;      /* where verdicts begin in the memory, a byte each */
    /* tensors that have places of their own, after those of inputs and outputs: by buffer id, from
     * 1 on, and of the states together; 0: the memory's */
    int *own_place, place_of_states, nown;
    /* by buffer id, of tensors that kernels read as images: its number, from 1 on */
    int *image_number, nimage;
    void *device_code;           /* what the target's compiler has made */
    size_t device_mapped_nbytes; /* the most that a step of the host accesses of the memory, each
                                  * tensor rounded up to 64 */
    int device_arguments;        /* of all kernels */
    int *device_part;            /* by kernel: where the part of a run that begins with it
                                  * ends; 0: none does */
    int device_queues;           /* that a run takes, the caller's among them */
    struct device_turn *turn;    /* by kernel */
    int *span;                   /* by buffer->id: what the host has of it in this step,
                                  * from 1; 0: nothing */
};

/* The host code around kernels of a device. Statements are those of a function with `self` and
 * `status`; only open's and close's are indented. */
struct device {
    /* Places the buffers. false: a diagnostic says what devices do not support */
    bool (*begin)(struct program *p);
    void (*types)(struct program *p, struct text *out);          /* before struct NAME */
    void (*fields)(struct program *p, struct text *out);         /* of struct NAME */
    /* The kernels' text; what its compiler makes of it, false: reported; what of
     * them is in NAME.c. */
    const char *(*text)(struct program *p, const char *kernels);
    bool (*compile)(struct program *p, const char *text);
    void (*kernels)(struct program *p, const char *text, struct text *out);
    /* The functions that open the device and launch kernels, and those of NAME.h except init,
     * enqueue, close; after step(). */
    void (*functions)(struct program *p, struct text *out);
    /* in NAME_init(), of an arena that nothing was written to */
    void (*check)(struct program *p, struct text *out);
    void (*open)(struct program *p, struct text *out);           /* in NAME_init() */
    void (*close)(struct program *p, struct text *out);          /* in NAME_close() */
    /* Where the host accesses a buffer, after what to_host() writes for a step that accesses it. */
    const char *(*host_view)(struct program *p, const struct buffer *b);
    void (*to_host)(struct program *p, const struct step *step, struct text *out);
    /* to_host() for all states, whose place it returns. reads false: the host
     * overwrites all of them. */
    const char *(*states_to_host)(struct program *p, bool reads, bool writes, struct text *out);
    /* "&& ...": what else an input or output that is NULL must be, to be missing. */
    const char *(*is_absent)(struct program *p, const struct buffer *b);
    void (*begin_run)(struct program *p, struct text *out);      /* copies the inputs */
    /* Launches the kernels of this step and of as many of the next ones as go with it; returns how
     * many steps. */
    int (*launches)(struct program *p, int step, struct text *out);
    void (*end_run)(struct program *p, struct text *out);        /* copies the results */
};

struct backend {
    const char *name;            /* "c": --target= */
    /* Writes the definition of a kernel, with its comment, or of a variant of it. The kernel's own
     * comes first; it notes its parameters in p->parameters. */
    void (*kernel)(struct program *p, const struct kernel *k, const struct variant *v,
                   struct text *out);
    /* Writes the statements of NAME_run that run it; NULL: its device launches it. */
    void (*call)(struct program *p, const struct kernel *k, struct text *out);
    const struct device *device; /* NULL: kernels run on the processor, in the caller's arena */
    const struct driver *driver; /* of a device: backends/device/device.h */
    /* Of a device: whether LLVM compiles its kernels here, or only their text is asked for; NULL:
     * what is compiled here does not depend on it */
    bool (*by_llvm)(struct tgc *t, bool as_text);
    /* Of a device: the file of runtime/ whose pieces stand for those that the driver's own has not,
     * an interface that several drivers have by other names; its handles are struct driver then.
     * NULL: there is none. */
    const char *interface;
    /* The prefix of the pieces that kernels' vectors are made of, where the language has none of
     * its own; NULL: none */
    const char *vectors;
    const char *barrier;         /* where a block's threads wait; NULL: it has one thread */
    /* A function of runtime/: of an f32, and of m, that of the block's thread whose number is t ^
     * m; NULL: there is one thread */
    const char *shuffle;
    /* Whether tensors are arrays of several dimensions where all accesses are known to be inside of
     * these */
    bool has_arrays;
    const char *unroll;       /* a line before a loop that becomes straight-line code; NULL: none */
    /* where in dimension d of a kernel's grid a thread is; if the kernel has blocks, its block */
    const char *(*place)(struct program *p, const struct kernel *k, int d);
    /* For a language of which a compiler loses conditions of threads after barriers inside a
     * condition: the number of blocks in dimension d. A loop over blocks takes the condition's
     * place then. NULL: conditions do. */
    const char *(*blocks)(struct program *p, int d);
    /* Of devices, words of the header's text: HANDLES, END_HANDLE, BUFFER_HANDLE, CACHE_NOTE. */
    const struct text_word *word;
};
extern const struct backend backend_c, backend_llvm, backend_opencl, backend_cuda, backend_metal,
    backend_amd;

/* nodes.c: a kernel's nodes, a line each, within a comment; a comment with those of the model that
 * no kernel and no step computes, if there are any. */
void nodes_write(const char *nodes, struct text *out);
void nodes_write_others(const struct program *p, struct text *out);

/* lines.c: in[from..] belongs to the nodes of that title; `from` was appended to `to` just now; the
 * file is complete. */
void lines_mark(struct program *p, const struct text *in, size_t from, const char *title);
void lines_move(struct program *p, const struct text *from, const struct text *to);
void lines_finish(struct program *p, const struct text *c);
/* backend->kernel, with its lines */
void lines_write_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                        struct text *out);

/* twins.c: by position in schedule->kernel, the first kernel with the same function */
const struct kernel **twins_find(struct tgc *t, const struct schedule *s);

/* variants.c: kernels for each instruction set, and pick_kernels() */
bool program_has_variants(const struct program *p);
const char *program_variant_name(const struct program *p, const struct kernel *k, enum isa isa);
/* A device has one program of each kernel: in vectors, if there are some; but without a
 * grid not where work-items share the loops, which they do in the portable program alone.
 * NULL: the portable one. */
const struct variant *program_variant_on_device(const struct program *p, const struct kernel *k);
void variants_write(struct program *p, struct text *out);
/* As isa_pieces(), of the sets that kernels are written for. */
const char *variants_pieces(const struct program *p);
/* runtime/'s functions on vectors that are used */
void variants_write_pieces(struct program *p, struct text *out);

void header_write(struct program *p, struct text *out);
/* Of NAME.c: the structs of all entries of a training, which run_entry() takes. */
void header_write_all_structs(struct program *p, struct text *out);
/* struct weights, before the kernels */
void weights_write_declaration(struct program *p, struct text *out);
/* the data and weights(), at the end of the file */
void weights_write_data(struct program *p, struct text *out);
/* tables and NAME_describe() */
void describe_write(struct program *p, struct text *out);
/* feeds.c: of inputs, then of states */
const struct program_feed *feeds_describe(struct tgc *t, const struct schedule *s);
const struct buffer *feeds_buffer(const struct schedule *s, int i);
/* Whether NAME_selftest() is there, with -DNAME_SELFTEST; the memory that it needs. */
bool program_has_selftest(const struct program *p);
size_t selftest_bytes(const struct program *p);
size_t selftest_place(const struct program *p, int i);
size_t program_bound_nelem(const struct buffer *b);
/* The -DNAME_MAIN program at the end of NAME.c; the file of --main. */
void selftest_write(struct program *p, const struct program_vectors *v, struct text *out);
void selftest_write_apart(struct program *p, const struct program_vectors *v, struct text *out);
/* The #include of NAME.h, by the name that it has. */
void program_include_header(const struct program *p, struct text *out);

/* ------------------------------------------------------------------------------------- state.c
 * What a run of the model keeps for the next one. All of it is empty if the model has no state. */

/* Bytes of struct NAME for states. */
size_t state_head_bytes(const struct schedule *s);
/* NAME_STATE_BYTES: size of a block of NAME_save(). 0: the model has no state */
size_t program_state_bytes(struct tgc *t, const struct schedule *s);
/* The symbols whose values the context keeps: lengths, and sizes that must stay the same;
 * NULL-terminated. */
const struct var **state_vars(struct tgc *t, const struct schedule *s);
/* Rows, before the first run, of the states whose length is v. */
int64_t state_first_length(const struct schedule *s, const struct var *v);
/* How many there are, and where one is among them; -1: it is not. */
int state_count_vars(const struct schedule *s);
int state_var_position(const struct var *const *list, const struct var *v);
/* A state whose length it is; NULL: it is a size. */
const struct state *state_of_length(const struct schedule *s, const struct var *v);
/* A block's field of NAME_options, and its local in run_entry(). */
const char *training_block(enum state_block block);
/* Whether runs read a state alternately in two places; whether any is. */
bool state_has_two_places(const struct state *st);
bool states_have_two_places(const struct schedule *s);
/* Which of the states with two places a run of the entry has stored, as bits of state_turn(). */
uint64_t state_turns(const struct schedule *s, int entry);
/* Whether runs read it from its second place now, as an expression. */
const char *state_is_odd(struct program *p, const struct state *st);
/* A state that grows is `parts` pieces with stride `stride` bytes, of rows of `row` bytes. */
struct state_pieces { size_t parts, stride, row; };
struct state_pieces state_pieces(const struct state *st);
/* Where the data of state k begins in a block; for the index after the last: the block's size. */
enum { STATE_BLOCK_HEAD = 32 };
size_t state_block_offset(struct tgc *t, const struct schedule *s, int k);
/* Fields of struct NAME; the table and functions before NAME_init(); the statement in it. */
void state_write_fields(struct program *p, struct text *out);
/* note_states() and take_back(), of a device's program */
void state_write_taking_back(struct program *p, struct text *out);
void state_write_functions(struct program *p, struct text *out);
/* NAME_run(): lengths and checks of them; the places of states; what it leaves for the next run. */
void state_write_checks(struct program *p, struct text *out);
void state_write_places(struct program *p, struct text *out);
void state_write_end(struct program *p, struct text *out);
/* NAME.h: the description of a block, and the functions. describe(): the table. */
void state_write_macro(struct program *p, struct text *out);
void state_write_header(struct program *p, struct text *out);
void state_write_info(struct program *p, struct text *out);

/* ----------------------------------------------------------------------------------- example.c */

/* Decides their names, after all others. */
void example_name_macros(struct program *p);
/* NAME_TENSOR_SIZE, _BYTES, _RANK and _DIMS of what a caller passes. */
void example_write_macros(struct program *p, struct text *out);
/* The code at the head of NAME.h, in a comment: it compiles as the body of a function. */
void example_write(struct program *p, struct text *out);

/* ------------------------------------------------------------------------------------ slices.c */

/* Named parts of outputs: NAME.h has where they begin, and how many elements they are. */
void slices_write_macros(struct program *p, struct text *out);
/* The tables of NAME_describe(), and how many rows they have. */
int slices_write_info(struct program *p, struct text *out);
int meta_write_info(struct program *p, struct text *out);

/* ----------------------------------------------------------------------------------- entries.c */

/* The tensors of a struct, as its fields are named. entry -1: of NAME_inputs and NAME_outputs. */
struct struct_fields { const struct buffer **b; const char **name; int n; };
struct struct_fields entries_fields(struct program *p, int entry, bool output);
/* 0: the graph is one run. */
int schedule_count_entries(const struct schedule *s);
/* The entry of input or output i; -1: there are none. */
int entry_of_input(const struct schedule *s, int i);
int entry_of_output(const struct schedule *s, int i);
/* "in->dim_entry == 1", in NAME_run() */
const char *entry_condition(struct program *p, int entry);
/* Structs and functions of the entries, in NAME.h and after NAME_run(). */
void entries_write_header(struct program *p, struct text *out);
void entries_write_functions(struct program *p, struct text *out);
void entries_write_info(struct program *p, struct text *out);      /* describe(): the table */

/* ------------------------------------------------------------------------------------- naming.c */

/* The words of macros and enumerators that belong together, behind "LENET_": before, name, after.
 * The name is `wanted` in capitals; a number follows where one of the words is taken. */
struct macro_form { const char *before, *after; };
const char *program_name_macros(struct program *p, const char *wanted, const char *fallback,
                                const struct macro_form *form, size_t n);
/* Decides all names: file, visible, run and all *_name of p. */
void program_name_all(struct program *p);
/* name of the function */
const char *program_kernel_name(const struct program *p, const struct kernel *k);
/* whether it shares another kernel's function */
bool program_is_twin(const struct program *p, const struct kernel *k);
/* the caller passes it, in NAME_inputs */
bool schedule_passes_var(const struct schedule *s, const struct var *v);
bool program_is_field(const struct program *p, const struct var *v);
/* likewise, but for the number of the entry that is run: entries share the field */
bool program_is_shared_field(const struct program *p, const struct var *v);
/* as a kernel's parameter */
const char *program_var(const struct program *p, const struct var *v);
/* as an expression in NAME_run */
const char *program_var_in_run(const struct program *p, const struct var *v);

/* ----------------------------------------------------------------------------------- training.c */

/* Bytes of struct NAME for training_write_fields(). */
size_t training_head_bytes(const struct schedule *s);
void training_write_fields(struct program *p, struct text *out);
/* Where these are in the struct of a program whose struct is no C's. */
size_t training_fields_at(const struct program *p);
/* Of NAME.h; "" and nothing where nothing trains. */
void training_write_macros(struct program *p, struct text *out);
const char *training_options(const struct program *p);
/* Of the header's example: the caller's blocks and options; ten steps. */
void training_write_blocks(struct program *p, struct text *out);
void training_write_steps(struct program *p, const char *targets, struct text *out);
/* NULL: nothing trains, or its loss takes no target */
const struct buffer *training_target(const struct program *p);
void training_write_header(struct program *p, struct text *out);
/* Statements of NAME_init(), and the functions after run_entry(). */
const char *training_init_check(const struct program *p);
void training_write_functions(struct program *p, struct text *out);
/* training_ranks.c: where the caller's block has a state; what ranks add up, and when */
size_t training_place_in_block(const struct schedule *s, const struct state *st);
void training_write_segments(struct program *p, struct text *out);
void training_write_sum_of_ranks(struct program *p, struct text *out);
void training_write_step_of_ranks(struct program *p, struct text *out);
/* The -DNAME_MAIN program, which reads files of samples; false: the model's inputs have no first
 * axis of samples, and NAME.c says so where the program is asked for. */
bool training_has_main(const struct program *p);
void training_write_main(struct program *p, struct text *out);

/* ---------------------------------------------------------------------------------------- run.c */


void run_write(struct program *p, struct text *out);

/* ----------------------------------------------------------------------------------- external.c */

void externals_write_header(struct program *p, struct text *out);
void external_write_call(struct program *p, struct text *out, const struct step *step);

/* ------------------------------------------------------------------------------------- scalar.c */

/* expression in NAME_run, typed pointer */
const char *program_buffer(struct program *p, const struct buffer *b);
/* An integer or bool scalar expression over VARs and LOADs, as C in NAME_run. */
const char *program_scalar(struct program *p, struct uop *u);

#endif
