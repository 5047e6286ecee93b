/* buffer.h - memory: buffers of a model and of its kernels, who shares them, and the states that
 * runs leave to each other. A part of ir.h, which includes it after struct uop.
 */
#ifndef TGC_BUFFER_H
#define TGC_BUFFER_H

/* Integers x that stand for (x - zero) * scale. */
struct quantization { double scale; int64_t zero; };

/* Memory. Identity is the pointer. */
enum buffer_kind {
    BUFFER_INPUT,
    BUFFER_OUTPUT,
    BUFFER_WEIGHT,
    BUFFER_TEMP,
    BUFFER_STATE,
    BUFFER_SCRATCH
};
/* Where a state lies: in the arena, or in one of the blocks of a training, which the caller has. */
enum state_block { BLOCK_ARENA, BLOCK_PARAMS, BLOCK_GRADIENTS, BLOCK_OPTIMIZER, BLOCK_COUNT };
/* A block's head, before the table of its tensors. */
enum { BLOCK_HEAD_BYTES = 64, BLOCK_ROW_BYTES = 16, BLOCK_ALIGNMENT = 64 };
enum space {
#define SPACE(name, text) SPACE_##name,
#include "ir/spaces.def"
#undef SPACE
    SPACE_COUNT
};
const char *space_name(enum space s);
enum transfer {
#define TRANSFER(name, text) TRANSFER_##name,
#include "ir/transfers.def"
#undef TRANSFER
    TRANSFER_COUNT
};
const char *transfer_name(enum transfer of);
enum thread_role {
#define ROLE(name, text, compares) ROLE_##name,
#include "ir/roles.def"
#undef ROLE
    ROLE_COUNT
};
const char *role_name(enum thread_role of);
/* Has this thread the role, in a block whose first `consumers` threads are consumers? */
bool role_has(enum thread_role of, int consumers, int thread);
/* REGISTERS: the registers that a thread of a role may have. */
enum { ROLE_REGISTERS_LEAST = 24, ROLE_REGISTERS_MOST = 256, ROLE_REGISTERS_STEP = 8 };
enum { THREADS_OF_BLOCK = 1024 };    /* at most, with those that only copy */
enum { RING_MAX = 8, CLUSTER_MOST = 8 };
/* BUFFER_WEIGHT: its elements, and where it comes from. */
struct buffer_weight {
    const void *data;            /* buffer.nbytes of little-endian elements, in storage order */
    /* set by the memory plan: an equal weight, whose place it shares */
    const struct buffer *same;
    /* a pass has made it: of which weight, perhaps one that was made itself, and how, in words;
     * NULL: the model has it */
    const struct buffer *of;
    const char *how;
    /* the model names it, an initializer or a weight of a text; it is no constant of a node, and
     * derivatives by it may be asked for */
    bool is_named;
    bool is_param;               /* is_named: a text declares it by `param`: training changes it */
    const struct origin *reader; /* the first node that computes with it */
    struct statistic *statistic; /* what it is the running statistic of; or NULL */
};
/* A pipeline of copies to shared memory (PIPELINE), by a ring of equal parts, one for each stage.
 * stages 0: there is none. */
struct pipeline {
    int stages;
    enum transfer transfer;      /* how a stage is filled */
    /* filled in bulk: multicast to that many blocks along dimension `multicast` of the grid, of
     * which each copies a part for all; 0: no multicast */
    int cluster, multicast;
    int producers;               /* producer threads, after the threads of ITEM ranges
                                  * (WARP_SPECIALIZE); 0: those copy */
};
/* BUFFER_SCRATCH: who shares it, and what it holds. */
struct buffer_scratch {
    enum space space;            /* SCRATCH: of one thread; SHARED; GLOBAL: all blocks of a grid */
    bool counts;                 /* GLOBAL: counters of TICKETs, 0 before and after each run */
    bool is_register;            /* SCRATCH: each element belongs to one thread of a block, which
                                  * alone accesses it */
    bool is_own;                 /* likewise, in linear programs: it has one thread's elements */
    /* SHARED: an epilogue tile that aliases the operands' copies, which are dead then
     * (ALIAS_EPILOGUE), and one that the copy engine stores to its tensor (BULK_EPILOGUE) */
    bool is_alias, is_bulk_stored;
    int64_t panel;               /* SHARED: elements of a swizzled panel (SWIZZLE); 0: no panels */
    struct pipeline pipeline;    /* SHARED: copies of a pipeline */
    const char *word;            /* what it holds, as uop_name_value(); or NULL */
};
/* BUFFER_INPUT, BUFFER_OUTPUT: what the caller or the context knows of it. */
struct buffer_port {
    const struct quantization *quantization;    /* of an input; NULL: it stands for itself */
    /* the context keeps it from run to run; NULL: the caller passes it */
    struct state *state;
    struct buffer *first;        /* an input: the weight with a state's value in the first run */
    enum state_block block;      /* of a state: where it lies */
};
/* The order of the axes in memory, outermost first. is_set: it is not 0, 1, 2... */
struct axis_order { bool is_set; unsigned char axis[MAX_RANK]; };
struct buffer {
    enum buffer_kind kind;
    enum dtype dtype;
    int ndim;
    struct uop *dim[MAX_RANK];
    const char *name;            /* the model's name, unescaped; NULL for intermediates */
    int id;
    size_t nbytes;               /* at the dimensions' upper bounds; 0 until known */
    size_t offset;               /* set by the memory plan: place in the arena, or in the weights */
    size_t placed;               /* bytes reserved there: more than nbytes for images and copies */
    /* BUFFER_WEIGHT: where element i of the stored order lies in its data; NULL: in order.
     * BUFFER_SCRATCH: the layout of the tensor of which it holds a band. BUFFER_TEMP: a layout that
     * is not contiguous */
    const struct view *storage;
    struct axis_order order;     /* set by passes */
    /* set by passes: this buffer is a part of another one (of a concat), from its element
     * base_offset on */
    struct buffer *base;
    struct uop *base_offset;
    const char *why; /* set by passes/plan: why it is stored, and not computed where it is used */
    bool is_image;               /* set by passes/vector/images.c: kernels read pixels of it */
    bool kept; /* BUFFER_TEMP: its memory is reserved for the whole run, see struct host_output */
    /* BUFFER_TEMP, a bool of a device: true until a run finds what an `expect` rules out; programs
     * keep it from run to run, and set it again when they have reported that */
    bool is_verdict;
    struct buffer_weight weight;
    struct buffer_scratch scratch;
    struct buffer_port port;
};

/* The mean or the variance of `of` over all axes but 1, as batch normalization keeps it: a new one
 * has the share 1 - momentum. of NULL: several layers share it. */
struct statistic { struct uop *of; bool is_variance; double momentum; };

/* An output that the context keeps and that is an input of the next run: passes/graph/state.c. */
struct state {
    const char *name, *from;     /* names of the input and of the output */
    struct buffer *in, *out;     /* what a run reads, and what it writes */
    /* A state that grows along `axis`: a run appends `rows` rows to the `length` that are there.
     * All are in one place, whose strides are those of the upper bounds, so `out` is read as a
     * leaf. NULL: its size is fixed. */
    struct var *length;
    int axis;
    struct uop *rows;
    struct state_part *part; int npart; size_t cap_part;
    struct uop *join;            /* `out` as a join of its parts' leaves; NULL: a single part */
    bool is_updated;  /* set by the schedule: a run stores some of its elements, in place */
    /* set by the memory plan, offsets in the states' part of the arena: where runs 0, 2, 4 ...
     * read it, and where runs 1, 3, 5 ... read it. The run before stores it there. Equal if
     * one place is enough. In a block: the offset there, and if one place is not enough that of the
     * next value in the arena, which is copied to the block when the run ends. A device's memory
     * holds blocks, too: schedule->block_at */
    size_t place[2], nbytes;
    bool is_copied;              /* in a block: the next value has a place of its own */
};

/* A state that grows is one CONCAT with rows, or several that are joined along other axes, as keys
 * and values are in one tensor. Each has rows of its own, and a leaf that is valid once they are
 * stored. A state of fixed size has one part, `out`. */
struct state_part {
    struct state *state;
    /* where a run stores the rows and reads the part, by the part's own axes */
    struct buffer *out;
    /* the part of `in` to which the rows are appended; NULL: there is none */
    struct uop *past;
    int axis;                    /* the axis of `out` along which it grows */
    int entry;                   /* the runs that store it; -1: all */
    int64_t first;               /* the element of the place at which it begins */
};

#endif
