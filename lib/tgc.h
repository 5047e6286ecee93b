/* tgc.h - the compiler as a library: link with -ltgc (pkg-config tgc). C99 and C++.
 *
 *      tgc_compiler *c = tgc_compiler_new();
 *      tgc_set(c, "cpu", "native");                     the options of the command line, by name
 *      tgc_source_file(c, "model.onnx");
 *      tgc_compile_file(c, "model.o");                  files, as the command line writes them
 *      tgc_model *m;
 *      if (tgc_open(c, &m) == TGC_OK) {                 or code in this process
 *          tgc_set_input(m, 0, x, NULL);
 *          tgc_run(m);
 *          ... tgc_output_data(m, 0) ...
 *      }
 *
 * Nothing is printed, and no function ends the process. What fails returns a status, and says why
 * in messages that are data. A compiler and a model are each used by one thread at a time;
 * different ones by as many threads as there are. There is no state beside them.
 *
 * Every function that takes a pointer to a compiler or a model accepts NULL: a status is TGC_MISUSE
 * then, a count 0, a pointer NULL. Text is UTF-8.
 */
#ifndef TGC_H
#define TGC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined __GNUC__
#define TGC_API __attribute__((visibility("default")))
#else
#define TGC_API
#endif

/* Of this header; tgc_version() is the library's. */
#define TGC_VERSION "0.1.0"
TGC_API const char *tgc_version(void);

typedef enum tgc_status {
    TGC_OK = 0,
    TGC_FAILED = 1,         /* the model, a file, or the machine at hand: messages say what */
    TGC_MISUSE = 2,         /* a parameter or an option: messages say which */
    TGC_NO_MEMORY = 3,      /* the system's or max-memory's limit is reached */
    TGC_CANCELLED = 4,      /* by tgc_on_cancel()'s function */
    TGC_DEFECT = 70         /* a defect of tgc: please report it */
} tgc_status;
/* A few words, "out of memory"; never NULL. */
TGC_API const char *tgc_status_text(tgc_status status);

/* ------------------------------------------------------------------------------------ compilers */

/* Options, the model that is to be compiled, and the messages of the last call. */
typedef struct tgc_compiler tgc_compiler;

/* NULL: out of memory. */
TGC_API tgc_compiler *tgc_compiler_new(void);
/* NULL: nothing. Models and files that were made stay. */
TGC_API void tgc_compiler_free(tgc_compiler *c);

/* Sets the option that the command line spells --NAME or -NAME ("cpu", "dim", "threads", "O"), as
 * long as the compiler lives. value: NULL for one that takes none ("fast-math"). One that takes
 * several values ("dim", "shape", "state") is set several times; of others the last value counts.
 * The value is read now. Not here: options that say what is printed, and those that are parameters
 * below (-o, -x, -i). */
TGC_API tgc_status tgc_set(tgc_compiler *c, const char *name, const char *value);
/* tgc_set() for words of the command line: {"--cpu", "native", "--fast-math", "--dim=batch=8"}. All
 * or, if one is wrong, none of them. */
TGC_API tgc_status tgc_set_words(tgc_compiler *c, const char *const *word, size_t n);
/* As if no option had been set. */
TGC_API void tgc_set_defaults(tgc_compiler *c);

/* The model of the calls below, which read it: a file that is ONNX, or tgc's text if its name ends
 * in .tg. The path is copied. */
TGC_API tgc_status tgc_source_file(tgc_compiler *c, const char *path);
/* The same in memory. format: "onnx" or "tg". The bytes are not copied: they must stay until
 * another model is named, or the compiler is freed. Weights in other files need the option
 * "external-data-dir". */
TGC_API tgc_status tgc_source_memory(tgc_compiler *c, const char *format, const void *bytes,
                                     size_t nbytes);

/* f(user, what) is called by the thread that works, with what is being done, for a line of
 * progress; "" where that is over. NULL: nobody. */
TGC_API void tgc_on_progress(tgc_compiler *c, void (*f)(void *user, const char *what), void *user);
/* f(user) is asked often (not while LLVM or a C compiler works); other than 0 ends the call, which
 * returns TGC_CANCELLED and leaves nothing behind. NULL: nobody. */
TGC_API void tgc_on_cancel(tgc_compiler *c, int (*f)(void *user), void *user);

/* ------------------------------------------------------------------------------------- messages */

typedef enum tgc_severity { TGC_NOTE, TGC_WARNING, TGC_ERROR } tgc_severity;
typedef struct tgc_message {
    tgc_severity severity;
    const char *file;       /* NULL: of none */
    int line, column;       /* in a text graph, from 1; 0: unknown */
    const char *place;      /* "node 17 'conv_3' (Conv), input 1 'w'"; NULL: no node */
    const char *text;       /* what was found, what was expected, and what to do; options as the
                             * command line spells them */
} tgc_message;
/* Of the last call with this compiler, in their order; valid until the next call with it. */
TGC_API size_t tgc_message_count(const tgc_compiler *c);
/* NULL: no such one. */
TGC_API const tgc_message *tgc_message_get(const tgc_compiler *c, size_t index);

/* ------------------------------------------------------------------------------------ compiling */

/* Writes what the path's extension (.c, .o, .so, .a, .tg, ...) or the option "emit" says, and what
 * belongs beside it (a header, a file of weights). Files appear whole or not at all. .so and .a
 * need a C compiler, .o as well, but with the option "target" llvm. */
TGC_API tgc_status tgc_compile_file(tgc_compiler *c, const char *path);

typedef struct tgc_files tgc_files;
typedef struct tgc_file {
    const char *name;       /* "model.h" */
    const void *bytes;
    size_t nbytes;
} tgc_file;
/* The same in memory. kind: "c", "o", "ll", ... The files' names are made of the option "name",
 * else of the model's file ("model", if it is in memory). */
TGC_API tgc_status tgc_compile_memory(tgc_compiler *c, const char *kind, tgc_files **files);
TGC_API size_t tgc_files_count(const tgc_files *files);
TGC_API tgc_file tgc_files_get(const tgc_files *files, size_t index);  /* all zeros: no such one */
TGC_API void tgc_files_free(tgc_files *files);                         /* NULL: nothing */

/* What `tgc info --json` prints: inputs, outputs, kernels, memory. Valid until the next call with
 * this compiler. */
TGC_API tgc_status tgc_info_json(tgc_compiler *c, const char **json);

/* ------------------------------------------------------------------------------------- running */

/* A compiled model in this process. */
typedef struct tgc_model tgc_model;

/* Compiles by LLVM, where libLLVM is installed; with the option "target" c or clang, by the C
 * compiler, whose shared object it opens. LLVM's code is stored in the cache that the command line
 * uses; a model found there needs no LLVM. The option "no-code-cache", or TGC_CACHE=0 in the
 * environment, turns the cache off. */
TGC_API tgc_status tgc_open(tgc_compiler *c, tgc_model **m);
TGC_API void tgc_model_free(tgc_model *m);                             /* NULL: nothing */
/* What made its code: "LLVM 19", "gcc", "clang 19.1.7". */
TGC_API const char *tgc_model_maker(const tgc_model *m);
/* What the last call with this model that failed says; "": none has. */
TGC_API const char *tgc_model_message(const tgc_model *m);

typedef struct tgc_tensor {
    const char *name;
    const char *dtype;              /* "f32", "i64", "bool", "string" */
    size_t element_bytes;           /* of a string: of a const char * */
    int rank;
    const int64_t *shape;           /* a size that only a run knows: its upper bound */
    const char *const *symbol;      /* symbol[axis]: a size that a run decides; NULL: fixed */
} tgc_tensor;
/* Valid as long as the model. NULL: no such one. After a run the shape of an output is the run's.
 * */
TGC_API size_t tgc_input_count(const tgc_model *m);
TGC_API const tgc_tensor *tgc_input(const tgc_model *m, size_t index);
TGC_API size_t tgc_output_count(const tgc_model *m);
TGC_API const tgc_tensor *tgc_output(const tgc_model *m, size_t index);

/* Copies an input's elements, row-major. shape: the rank's sizes of tgc_input(); NULL: those.
 * Strings are pointers to NUL-terminated text, which must stay until the run is over. */
TGC_API tgc_status tgc_set_input(tgc_model *m, size_t index, const void *data,
                                 const int64_t *shape);
/* needs: every input has been set once; it keeps its value. A model with entries runs the one that
 * the option "entry" names. */
TGC_API tgc_status tgc_run(tgc_model *m);

/* A text with several entries, runs over one context and what it keeps: their names, and which of
 * the inputs and outputs each has, as many from these on. */
typedef struct tgc_entry {
    const char *name;
    size_t input, input_count, output, output_count;
} tgc_entry;
TGC_API size_t tgc_entry_count(const tgc_model *m);                    /* 0: the model is one run */
TGC_API tgc_entry tgc_entry_get(const tgc_model *m, size_t index);     /* all zeros: no such one */
/* needs: every input of the entry has been set once. */
TGC_API tgc_status tgc_run_entry(tgc_model *m, size_t index);
/* The elements of an output, valid until the next run. NULL: no such one. */
TGC_API const void *tgc_output_data(const tgc_model *m, size_t index);
/* What the option "state" keeps between runs becomes what it was at first. */
TGC_API tgc_status tgc_reset(tgc_model *m);

/* ------------------------------------------------------------------------------- as C functions */

/* A model as tgc emits it: the functions of NAME.h, by the structs that are declared there, which
 * no model changes. Inputs and outputs lie where the caller has them. A model may be open several
 * times at once, each in an arena of its own and in one thread at a time. All of them are closed
 * before tgc_model_free(). */
typedef struct tgc_functions {
    const void *info;               /* NAME_describe(): const struct NAME_info * */
    int (*run)(void *self, const void *inputs, void *outputs);
    void (*close)(void *self);
    const char *(*strerror)(int status);
    /* NULL: it has no state */
    int (*reset)(void *self);
    int (*save)(const void *self, void *block);
    int (*restore)(void *self, const void *block);
} tgc_functions;
TGC_API tgc_status tgc_model_functions(const tgc_model *m, tgc_functions *functions);
/* NAME_init(). options: NULL or const struct NAME_options *; its weights NULL: the model's. */
TGC_API int tgc_model_init(const tgc_model *m, void **self, void *arena, size_t nbytes,
                           const void *options);

#ifdef __cplusplus
}
#endif

#endif
