/* w_model.h - w.tg as a C library, by tgc 0.1.0.
 *
 *     alignas(W_MODEL_ARENA_ALIGN) unsigned char arena[W_MODEL_ARENA_BYTES];
 *     w_model *model;
 *     w_model_init(&model, arena, sizeof arena, NULL);
 *     w_model_inputs in = {a, b};
 *     w_model_outputs out = {y};
 *     int status = w_model_run(model, &in, &out);     0 is success; w_model_strerror(status)
 *     w_model_close(model);
 *
 * No heap, no files, no global state: the arena holds everything that changes.
 *
 * This header is its user's without obligation. SPDX-License-Identifier: 0BSD */
#ifndef W_MODEL_H
#define W_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define W_MODEL_ARENA_BYTES 1280      /* scratch and state, which the caller provides */
#define W_MODEL_ARENA_ALIGN 64
/* the most that a run takes of its caller's stack: gcc, clang, -O1 to -O3 and -Os */
#define W_MODEL_STACK_BYTES 1152
#define W_MODEL_DEVICE_BYTES 18560     /* of the device's memory, beside the weights */

typedef struct w_model w_model;           /* lives at the start of the arena */

/* In the order of the model. Run-time dimensions stand behind the tensors. */
typedef struct {
    const float *a;              /* f32[64,40] */
    const float *b;              /* f32[40,48] */
} w_model_inputs;

/* Memory of the caller. Where a dimension is known only at run time the memory must hold the
 * bound, and the run writes the shape beside the pointer. Inputs and outputs must not overlap. */
typedef struct {
    int64_t *y;                  /* i64[64] */
} w_model_outputs;

typedef struct {
    int threads;                    /* of a run, at most as compiled; 0: as compiled */
    const void *weights;            /* --weights=file: what w_model.weights holds, 64-byte aligned */
    size_t weights_bytes;
    /* Your thread pool, instead of threads of the model's own: calls body(context, 0) ...
     * body(context, count - 1), at once or in any order, and returns when all are done; count is
     * `threads`. A model compiled for one thread does not call it. */
    void (*parallel_for)(void *user, int count, void (*body)(void *context, int index),
                         void *context);
    /* Called before each kernel, and once with index == kernel_count and NULL when a run ends. */
    void (*on_kernel)(void *user, int index, const char *kernel);
    void *user;                     /* handed to the two functions above */
    int device;                     /* as `tgc devices` counts; 0: the first GPU, else the first */
    /* The caller's cl_context and cl_command_queue, which must be in order; NULL: the model's own. */
    void *context, *queue;
    /* Functions of yours, which get `user`, too, or NULL.
     * A cache of programs that the driver has compiled, by a key that is a file's name. load_program
     * copies a binary to `to` if it has no more than `size` bytes, and returns its size, or 0. */
    size_t (*load_program)(void *user, const char *key, void *to, size_t size);
    void (*save_program)(void *user, const char *key, const void *binary, size_t size);
    /* Told each kernel's nanoseconds by the device's clock; kernels then wait for each other. */
    void (*on_kernel_time)(void *user, int index, const char *kernel, double ns);
    /* Told what is wrong with the device, in a sentence, when a call fails. */
    void (*on_error)(void *user, const char *text);
} w_model_options;

/* What w_model_init and w_model_run return. */
enum w_model_status {
    W_MODEL_OK = 0,                     /* success */
    W_MODEL_NULL_ARGUMENT = 1,          /* a pointer to the model, the arena, the inputs or the outputs is NULL */
    W_MODEL_ARENA_TOO_SMALL = 2,        /* the arena is smaller than the ARENA_BYTES macro says */
    W_MODEL_ARENA_MISALIGNED = 3,       /* the arena's address is not a multiple of the ARENA_ALIGN macro */
    W_MODEL_MISSING_INPUT = 4,          /* an input's pointer is NULL */
    W_MODEL_MISSING_OUTPUT = 5,         /* an output's pointer is NULL */
    W_MODEL_DIM_OUT_OF_RANGE = 6,       /* a run-time dimension is outside its bounds */
    W_MODEL_BAD_OPTIONS = 7,            /* an option has a value that this model cannot use */
    W_MODEL_MISSING_WEIGHTS = 8,        /* the options give no weights, too few bytes of them, or not 64-byte aligned */
    W_MODEL_TOO_MANY_RESULTS = 9,       /* a result of data-dependent size does not fit its bound */
    W_MODEL_BAD_VALUE = 10,             /* an input holds a value that the model cannot use, such as an index out of range */
    W_MODEL_DEVICE_FAILED = 11,         /* the device or its driver failed */
    W_MODEL_NOT_INITIALIZED = 12,       /* the model was not initialized, or it was closed */
    W_MODEL_DIM_MISMATCH = 13,          /* the run-time dimensions do not go together: the model needs sizes equal that they make different */
    W_MODEL_NO_THREADS = 14,            /* a thread could not be started */
    W_MODEL_NO_DECODER = 15,            /* the image's format needs a library that the program was built without; see image_decode() in it */
    W_MODEL_STATE_FULL = 16,            /* a state would grow beyond the bound of its dimension: reset it, or compile with a larger bound */
    W_MODEL_STATE_SIZE = 17,            /* a run-time dimension of a state is not what it was in the run before: reset the state first */
    W_MODEL_BAD_STATE = 18,             /* the block is no state of this model: of another one, of another version of it or of tgc, or damaged */
    W_MODEL_NO_DEVICE = 19,             /* the driver of the device is not installed, or it has no device */
    W_MODEL_DEVICE_LACKS = 20,          /* the device lacks what the model needs: memory, 64-bit floats or images */
    W_MODEL_OLD_DRIVER = 21,            /* the device's driver is older than the program needs */
    W_MODEL_DEVICE_MEMORY = 22,         /* the device has not enough free memory */
    W_MODEL_OTHER_DEVICE = 23           /* the program has no kernels for this architecture of devices */
};

/* Makes a model in the caller's arena: at least W_MODEL_ARENA_BYTES at a multiple of
 * W_MODEL_ARENA_ALIGN, untouched until w_model_close. options may be NULL. Several models may run at
 * once, each in its own arena. */
int w_model_init(w_model **made, void *arena, size_t arena_bytes, const w_model_options *options);
int w_model_run(w_model *self, const w_model_inputs *in, w_model_outputs *out);
void w_model_close(w_model *self);
const char *w_model_strerror(int status);
const struct w_model_info *w_model_describe(void);

/* The run without waiting for its end: inputs and results must stay until then. event, unless NULL,
 * becomes the cl_event of its end, which the caller releases. A run in which the host computes, too,
 * waits for what it reads. */
int w_model_enqueue(w_model *self, const w_model_inputs *in, w_model_outputs *out, void **event);
int w_model_wait(w_model *self);      /* for the end of all runs */
/* Makes a cl_mem of the model's context, from the byte `at` on, a multiple of 128, the input or output
 * of this number in w_model_inputs or w_model_outputs, in place of a pointer in the following runs. It holds
 * an output's bound, an input of each run's size. NULL: a pointer again. */
int w_model_bind_input(w_model *self, int input, void *buffer, size_t at);
int w_model_bind_output(w_model *self, int output, void *buffer, size_t at);

/* What w_model_describe() returns, for tools. The layout is the same for every model. */
struct w_model_dim {
    int64_t size;                   /* the size, or the upper bound of a run-time dimension */
    const char *symbol;             /* NULL: fixed; else a symbol or an expression of symbols */
};
struct w_model_tensor {
    const char *name, *dtype;       /* as in the model; "f32" */
    size_t element_bytes;
    int rank;
    const struct w_model_dim *dim;  /* [rank] */
    size_t offset;                  /* of the pointer in w_model_inputs or w_model_outputs */
    size_t shape_offset;            /* of int64_t NAME_shape[rank] in w_model_outputs; (size_t)-1: none */
};
struct w_model_symbol {
    const char *name;
    int64_t min, max;
    size_t offset;                  /* of int64_t dim_NAME in w_model_inputs; (size_t)-1: the run finds it */
};
struct w_model_kernel {
    const char *name, *title;       /* the C function; the model's nodes */
    double flop, bytes;             /* of one launch, at the dimensions' upper bounds */
};
struct w_model_state {
    const char *from;               /* the output; its next run's input: */
    struct w_model_tensor input;    /* sizes are bounds; offset: of its data in a block */
    int axis;                       /* along which it grows; -1: none */
    size_t length_offset;           /* of its length in a block; (size_t)-1: none */
};
struct w_model_entry {
    const char *name;
    int input, input_count, output, output_count;   /* those of all inputs and outputs that it has */
};
struct w_model_slice {              /* a part of an output that has a name */
    const char *name;
    int output;                     /* its number among all outputs */
    size_t begin, size;             /* elements of its last axis */
};
struct w_model_meta {
    const char *key, *value;
};
struct w_model_info {
    int version;                    /* of this layout: 4 */
    const char *name, *producer, *target;
    int input_count, output_count, symbol_count, kernel_count;
    const struct w_model_tensor *inputs, *outputs;
    const struct w_model_symbol *symbols;
    const struct w_model_kernel *kernels;
    size_t arena_bytes, arena_align;
    size_t weights_bytes;
    int weights_external;           /* 1: w_model_options.weights is needed */
    double flop;                    /* of one run */
    size_t inputs_bytes, outputs_bytes;
    size_t stack_bytes;             /* W_MODEL_STACK_BYTES */
    int state_count;
    const struct w_model_state *states;
    size_t state_bytes;             /* W_MODEL_STATE_BYTES; 0: no state */
    int entry_count;                /* 0: the model is one run */
    const struct w_model_entry *entries;
    size_t entry_offset;            /* of an int64_t in w_model_inputs: the entry that w_model_run runs */
    int slice_count, meta_count;
    const struct w_model_slice *slices;
    const struct w_model_meta *meta; /* what the model says of itself */
};

#ifdef __cplusplus
}
#endif

#endif
