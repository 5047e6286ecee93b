/* SPDX-License-Identifier: 0BSD */
/* emulator.h - a device for tests: kernels run on this processor and every access is checked.
 *
 *      NAME.c (an emitted program, unmodified)
 *         |  dlopen("libOpenCL.so.1")
 *         v
 *      driver.c buffers.c programs.c queue.c   the driver's functions: objects, states, arguments
 *         |                     enqueue.c
 *         |                                    calls.def: what they are, how each can fail
 *         v
 *      build.c elf.c         kernels' text -> a shared object, by clang's own front end;
 *      signature.c           what the text declares as kernels;
 *      tensors.c             what the comment above an emitted kernel says of its arguments;
 *      bulk.c leaving.c      the copy engine: bulk copies to and from local memory;
 *      blocks.c              a launch: work-items are fibers, barriers end their phases;
 *      shadow.c              who wrote and read each byte: races, bounds, bytes nobody wrote;
 *      matrix.c products.c   matrix instructions, synchronous or asynchronous;
 *      report.c              one line for each finding;
 *      transfer.c            asynchronous copies, which complete when they are waited for;
 *      tickets.c             ticket counters of blocks, and what the last block may read;
 *      banks.c               bank conflicts of local memory;
 *      calls.c               calls of any driver: counted, listed, failing on demand.
 *
 * What it does not see:
 *
 *   - PTX in kernels (asm), and code under __CUDA_ARCH__. Pieces of runtime/ have a model of each
 *     instruction (TGC_..._MODEL), which runs instead. tests/onnx/machine_test.py reads what ptxas
 *     makes of the PTX.
 *   - Blocks that run at the same time: they run one after the other, those of a cluster
 *     alternately. order=SEED changes their order; with wave=N up to 8 blocks, or clusters,
 *     alternate at barriers, but not between two barriers. Nothing else that depends on
 *     interleaving is seen, except races of the same bytes, what tickets.c counts, and a block
 *     that ends before others have arrived.
 *   - The layout of arrays that a kernel declares: each is an allocation with bounds of its own,
 *     as aligned as this machine's linker has it, where a device may give it no more than the
 *     declared alignment. Arrays in memory whose size a CUDA launch names are where the kernel
 *     says with placed=1, each with its bounds.
 *   - How a vendor's compiler rounds. contracts=1 fuses a product and its sum wherever the text
 *     allows it, as vendors' compilers do by default; tests/exec/contract_test.py runs kernels
 *     both ways.
 *
 * CUDA's driver is another library, cuda/, with its own functions and the same kernels' side.
 * Metal's framework and the Objective-C runtime are a third, metal/. Each language is one file
 * (language_opencl.c: words, how a kernel is called), clang's flags for it and its built-ins
 * (opencl.flags, opencl.h, opencl.cl, builtins.c). Fibers and shadow memory know no language. The
 * library has process-wide state (objects, the launch that runs), as a driver has; one lock guards
 * it.
 */
#ifndef TGC_EMULATOR_H
#define TGC_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What programs, kernels and tests call; all else is the library's own, whatever names they
 * have. */
#define API __attribute__((visibility("default")))

/* ------------------------------------------------------------------------------------ report.c */

/* One line on standard error, or in the file $TGC_EMULATOR_REPORT: "emulator: ...". The same line
 * is printed once. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* How many lines were reported, since the library was loaded or all were forgotten. */
API int emulator_reports(void);
void report_reset(void);
/* "line 12: y[i] = x[i];" of the kernels' text, for an address in a module's code. The result is
 * valid until the next call. */
struct module;
const char *report_line(const struct module *m, const void *code);

/* ------------------------------------------------------------------------------------ calls.c */

/* Reads the environment again; forgets what was reported; calls are counted from here on. */
API void emulator_reset(void);
/* Calls that could have failed so far. */
API long emulator_calls(void);
/* Every function of a driver lies between these two: the driver is locked, misuse() says which it
 * is. The second notes its status in the log, and returns it. */
void call_enter(const char *name);
int32_t call_leave(const char *name, int32_t status);
/* Of a function without a status: it goes on by a jump, and the lock is not held. */
void call_note(const char *name);
/* Counts the call that runs; returns the status with which it is to fail, or 0. failure: its own
 * status (0: it cannot fail, and is not counted). later: the status of all calls after the one that
 * fails, where they fail, too. */
int32_t call_count(int32_t failure, int32_t later);
/* Has the device failed, so that enqueued commands no longer run? */
bool device_is_lost(void);
/* Says what is wrong with how the function that runs was called, and returns the status. */
int32_t misuse(int32_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ----------------------------------------------------------------------------------- device.c */

/* What $TGC_EMULATOR_DEVICE says: "double=0 local=16384 name=Adreno". */
struct device_facts {
    long is_double, is_half, is_image; /* 0: the language has none */
    long local;                        /* bytes of local memory */
    long group;                        /* most work-items of a block */
    long axis;                         /* of these, most along one axis */
    long subgroup;                     /* work-items that exchange values */
    long units;                        /* compute units */
    long devices;                      /* of HIP: how many there are */
    long width;                        /* largest side of an image */
    long pixels;                       /* most of a buffer's image */
    long pitch;    /* rows of an image over a buffer begin at multiples of this many pixels; 0:
                    * there are no such images */
    long parameters; /* bytes of a kernel's arguments */
    long align;    /* sub-buffers start at multiples, in bytes */
    long memory;   /* bytes that the device has */
    long most;     /* bytes of a buffer, at most; 0: all */
    long is_unified; /* host and device have one memory */
    long is_eager; /* commands run when they are enqueued, not when waited for */
    long family;   /* Metal's: 7 for MTLGPUFamilyApple7 */
    long tier;     /* of argument buffers: the first, the second */
    long is_resident; /* Metal has residency sets */
    long arch, driver; /* CUDA's: 80 for sm_80; the driver's version, 12090 for 12.9 */
    long takes_code; /* CUDA: modules of machine code, or of PTX alone */
    long contracts; /* the kernels' compiler rounds a product and its sum once wherever it sees both
                     * and the text does not forbid it, as vendors' do when nothing is said */
    long is_placed; /* arrays in memory that a CUDA launch names lie there as the kernels say, in
                     * place of each by itself, at a multiple of 1024 bytes */
    long order; /* of a launch's blocks: 0, by their numbers; 1, from the last one on; others: a
                 * seed, by which they are mixed */
    long wave;  /* clusters, or blocks where there are none, that run at once, in turns from barrier
                 * to barrier; 1: one after the other */
    long looks_at_banks; /* reports bank conflicts of local memory: 1, of tiles,
                          * 2, of copies, too */
    const char *name, *version;
};
const struct device_facts *device_facts(void);
/* Reads them again. */
void device_read(void);

/* -------------------------------------------------------------------------------- signature.c */

enum { MAX_PARAMETERS = 128, MAX_NAME = 256, MAX_PLACES = 8 };
enum parameter_kind {
    PARAMETER_VALUE,
    PARAMETER_GLOBAL,
    PARAMETER_CONSTANT,
    PARAMETER_LOCAL,
    PARAMETER_IMAGE,
    PARAMETER_SAMPLER
};

struct parameter {
    enum parameter_kind kind;
    bool is_const;                       /* what it points to; an image: it is read only */
    char type[MAX_NAME], name[MAX_NAME]; /* as declared */
    char tensor[MAX_NAME];               /* "f32[B,128]", several with bars between them, see
                                          * tensors.c; "": nothing is said */
    int slot;                            /* "[[buffer(2)]]", "[[id(2)]]"; -1: the text does not
                                          * say */
};

struct signature {
    char name[MAX_NAME];
    struct parameter parameter[MAX_PARAMETERS];
    int n;
    char structure[MAX_NAME]; /* of which the parameters are fields, the one parameter's type; "":
                               * they are the kernel's own */
    char place[MAX_PLACES][MAX_NAME]; /* "[[threads_per_threadgroup]]": parameters
                                       * after the others */
    int nplace;
    size_t block[3]; /* what the text requires; 0: nothing */
    size_t bound;    /* most work-items of a block, by the text; 0: it does not say */
    size_t cluster[3]; /* blocks of a cluster along each axis, by the text; 0: each is for itself */
};

/* A language's words that say what a parameter is. */
enum word_kind {
    WORD_KERNEL,
    WORD_GLOBAL,
    WORD_CONSTANT,
    WORD_LOCAL,
    WORD_IMAGE,
    WORD_SAMPLER,
    WORD_CONST,
    WORD_SKIP,
    WORD_BLOCK,
    WORD_BOUND,
    WORD_CLUSTER
};
struct word {
    const char *text; /* "image*": all that begin so */
    enum word_kind kind;
};

/* The next kernel of the text after *at, which is advanced; false: there is none. */
bool signature_next(const struct word *word, const char **at, struct signature *s);

/* --------------------------------------------------------------------------------- tensors.c */

/* Fills in what the comment in front of a kernel says of its arguments. */
void tensors_read(const char *text, const char *kernel, struct signature *s);
/* What a launch has: bytes of its arguments that are numbers (NULL: no number), work-items along
 * the first axis, and of them those of a block. */
struct launch_values {
    const struct signature *signature;
    const unsigned char *value[MAX_PARAMETERS];
    size_t items, threads;
    bool is_pointer; /* the arguments are, so that no other one says where they begin */
};
/* Where the tensor of argument i begins in its buffer, and how long it is; *nbytes was the
 * buffer's. false: nobody says. */
bool tensor_extent(const struct launch_values *v, int i, size_t *from, size_t *nbytes);

/* --------------------------------------------------------------------------------- language_*.c */

struct text;
/* What a language adds. FILE.flags are clang's for it, FILE.h declares what clang does not know. */
struct language {
    const char *name, *file;
    const struct word *word; /* ends with a NULL */
    /* Writes code after the text: NAME_call(), NAME_nbytes[] (see struct kernel_code). */
    void (*wrap)(const struct signature *s, struct text *out);
    const char *linkage; /* before the text in braces; NULL: nothing */
};
extern const struct language language_opencl, language_cuda, language_hip, language_metal;

/* A string that grows; what does not fit into memory is cut. */
struct text {
    char *s;
    size_t n, size;
};
void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ----------------------------------------------------------------------------------- shadow.c */

/* Bytes that work-items can share: a buffer, an image's elements, a local array. */
struct memory {
    unsigned char *at;
    size_t nbytes;
    struct cell *cell;    /* who used each byte */
    unsigned char *known; /* whether each byte was written */
    struct memory *next;  /* of all that there are */
};

/* What precedes a launch or a copy: in each queue all commands up to a number; its own queue and
 * number. several: there are other queues. */
enum { MAX_QUEUES = 16 };
struct order {
    bool several;
    unsigned queue;
    uint32_t number, before[MAX_QUEUES];
};

/* A part of memory that a launch may use. */
struct window {
    struct memory *memory;
    size_t from, to;
    bool in_shared, is_writable;
    bool is_written; /* by this launch, through any window */
    char name[MAX_NAME];
};

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC };

/* false: no memory. */
bool memory_create(struct memory *m, void *at, size_t nbytes);
void memory_release(struct memory *m);
/* The next launch's number: what earlier ones did is ordered with it. */
uint32_t shadow_epoch(const struct order *o);
/* A copy by the driver: reports a launch or another copy that has accessed these bytes, one of both
 * a write, and that nothing orders with it. */
void shadow_transfer(struct memory *m, size_t from, size_t nbytes, bool writes,
                     const struct order *o);
/* Of an access by the work-item that runs; ends the launch if it is out of bounds. */
void shadow_access(const void *at, size_t nbytes, enum access kind);
/* shadow_access() of an access that must be aligned to its size. */
void shadow_aligned(const void *at, size_t nbytes, enum access kind);
/* From now on nobody has written these bytes. */
void shadow_forget(const void *at, size_t nbytes);
/* The local memory that has the address, in the launch that runs; NULL: none has. */
struct memory *shadow_memory(const void *at);
/* From now on readers of the byte are ordered after its writer. */
void shadow_forget_writer(struct memory *m, size_t at);

/* ------------------------------------------------------------------------------------ build.c */

/* Kernels compiled and loaded. */
struct module {
    void *library;
    char path[4096];      /* of the shared object; the text's is that with .cl */
    uintptr_t begin, end; /* its segments */
    struct kernel_code *kernel;
    int nkernel;
    struct local_array *local;
    int nlocal;
    unsigned char *placed; /* where arrays lie that a launch's memory has, if the device places
                            * them; NULL: each lies by itself */
    size_t nplaced;
};

/* A `local` variable: one place, of whichever block runs. */
struct local_array {
    char kernel[MAX_NAME], name[MAX_NAME];
    struct memory *memory;
};

struct kernel_code {
    struct signature signature;
    void (*call)(void *const *argument); /* runs one work-item, on the places of its arguments */
    const uint64_t *nbytes;              /* of each argument */
    size_t local;                        /* bytes of its local arrays */
    size_t allowed;                      /* bytes of a block's memory that a launch may name, if
                                          * they are more than usual */
};

/* Compiles the text; NULL: `log`, of `size` bytes, has the compiler's words. `flags` are more words
 * for the compiler, and end with a NULL. */
struct module *build_module(const struct language *language, const char *text,
                            const char *const *flags, char *log, size_t size);
/* A module as bytes that another process can load, malloc()ed, or NULL; and back; NULL: these are
 * none of this device and driver. */
unsigned char *build_binary(const struct module *m, size_t *nbytes);
struct module *build_from_binary(const struct language *language, const unsigned char *binary,
                                 size_t nbytes);
void module_close(struct module *m);

/* --------------------------------------------------------------------------------- builtins.c */

/* What an argument that is an image points to. */
struct image {
    struct memory *memory;
    size_t from, pitch; /* bytes: of the first pixel, between rows */
    size_t width, height;
    bool is_half; /* or floats; four of them are a pixel */
    char name[MAX_NAME];
};

/* -------------------------------------------------------------------------------------- elf.c */

/* Finds the segments of a loaded object, and its local variables: "kernel.name" in memory that can
 * be written. false: the file is no object of this machine. */
bool elf_read(struct module *m);
/* One more variable, whose names are found's. false: no memory. */
bool module_add_local(struct module *m, const struct local_array *found, void *at, size_t nbytes);

/* ------------------------------------------------------------------------------------- bulk.c */

/* What the driver writes of a tensor, in the 128 bytes that a kernel takes: axes innermost
 * first. */
enum { TENSOR_MAP = 0x544d4150 };
struct tensor_map {
    uint64_t magic, at;
    int type, rank, swizzle; /* log2 of an element's bytes; 1, 2, 3: 32, 64, 128 bytes */
    int rounds;              /* floats to tf32 */
    uint32_t size[5], extent[5];
    uint64_t between_rows[4];
};
struct launch;
struct block;
struct item;
/* Before and after the work-items of a block; the second: false, something was reported. */
void bulk_begin_block(const struct launch *l, struct block *b);
bool bulk_end_block(const struct launch *l, struct block *b);
void bulk_free(struct block *b);
/* leaving.c: before and after the work-items of a block. */
void leaving_begin_block(struct block *b);
bool leaving_end_block(const struct launch *l, const struct block *b);
void leaving_free(struct block *b);
/* All work-items of a cluster are at its barrier. */
void bulk_met(struct launch *l);
/* The block's first n work-items are at their barrier: each learns what all their
 * waves have done. */
void bulk_met_role(const struct launch *l, struct block *b, uint32_t n);
/* Is the phase of this parity of the running block's barrier complete? */
bool bulk_has_ended(struct launch *l, const uint64_t *at, unsigned parity);
/* Do barriers in memory order what a wave of a block of the cluster did, before its barrier of this
 * number, before what the running work-item does now? */
bool bulk_orders(const struct launch *l, uint32_t block, uint32_t wave, uint32_t subphase);
/* Reports what the work-item waits for in vain. */
void bulk_report_stuck(const struct launch *l, const struct block *b, const struct item *item);

/* ----------------------------------------------------------------------------------- blocks.c */

enum { MAX_WINDOWS = 256 };

struct item {
    size_t local[3]; /* its place in the block */
    uint32_t number; /* among all of the launch's */
    uint32_t in_block;
    struct fiber *fiber;
    enum { ITEM_READY, ITEM_WAITS, ITEM_POLLS, ITEM_DONE } state;
    /* POLLS: until the phase of this parity of the barrier in memory has ended */
    const uint64_t *polled;
    unsigned parity;
    enum wait { FOR_SUBGROUP, FOR_BLOCK, FOR_CLUSTER, FOR_ROLE } waits; /* for whom, if it does */
    uint32_t of;       /* FOR_ROLE: the first work-items of the block that meet */
    unsigned flags;
    const void *site;
    /* what it passes to the others of its sub-group, double-buffered: a fast one is
     * one exchange ahead */
    unsigned char given[2][32];
    unsigned turn;
    uint32_t subphase; /* barriers of its sub-group, since the block's last */
    uint32_t fenced;      /* tickets.c: the phase of its last fence, from 1 on; 0: there was none */
    const void *counted;         /* where it has counted since; NULL: nowhere */
    struct transfers *transfers; /* NULL: it has copied nothing asynchronously */
};

/* A block and its work-items. The blocks of a cluster alternate, and several clusters if the device
 * is told so. While another one runs, a block's local memory is saved in memory of its own, by
 * window of the launch. */
enum { CLUSTER_MOST = 8, WAVE_MOST = 8 };
struct products;
struct barriers;
struct leaving;
struct block {
    uint32_t number;             /* among all of the launch's, in the order in which they run */
    size_t group[3];
    struct item *item;
    struct products *products;   /* products.c: of each item; NULL: there are none yet */
    struct barriers *barriers;   /* bulk.c; NULL: there are none yet */
    struct leaving *leaving;     /* leaving.c: stores in flight; NULL: there are none yet */
    uint32_t phase[2];           /* barriers passed, for local and for global memory */
    int any[2];                  /* tickets.c: what one of its work-items has voted in this phase,
                                  * or in the last one */
    struct memory *own;
    bool has_ended;
};

/* One launch, as it runs. */
struct launch {
    const struct module *module;
    const struct kernel_code *kernel;
    void *const *argument;
    struct window window[MAX_WINDOWS];
    int nwindow;
    int dimensions;
    size_t offset[3], global[3], block[3];
    /* state */
    const struct order *order; /* NULL: launches run one after the other */
    uint32_t epoch; /* of shadow cells */
    struct block *here;       /* whose work-items run */
    struct block blocks[WAVE_MOST * CLUSTER_MOST];
    struct block *cluster;     /* of these, those of the cluster whose turn it is */
    uint32_t nwave;            /* clusters that run at once */
    uint32_t ncluster, nblock; /* blocks of a cluster; those that have run, or do */
    uint32_t nitem, nsubgroup;
    struct item *now;
    struct tickets *tickets;  /* NULL: there were none yet */
    bool by_engine;           /* an engine stores to local memory, in the async proxy */
    bool has_failed;          /* something was reported */
    const void *reported[32]; /* at which places of the code */
    int nreported;
};

/* banks.c: looks for bank conflicts. Each lane of the wave calls it with its address, and
 * accesses nbytes. Eight lanes are served at once with 16 bytes, 16 with 8, 32 with 4. what: the
 * access, for the report. */
void banks_look(const void *at, uint32_t nbytes, const char *what);

/* tickets.c: is what a work-item of another block did in this phase ordered before what the running
 * one does? phases: how many are told apart. After a launch: false, something was reported. */
bool tickets_order(const struct launch *l, uint32_t block, uint32_t item, uint32_t phase,
                   uint32_t phases);
bool tickets_end(struct launch *l);

/* transfer.c: a block begins; the launch has ended. */
void transfers_begin(struct item *item);
void transfers_free(struct item *item);

/* Runs a launch to its end; false: something was reported. */
bool launch_run(struct launch *l);
/* The launch that runs now. */
struct launch *launch_now(void);
/* Waits for the others of the running work-item's block, sub-group, ... */
void item_wait(enum wait whom, unsigned flags, const void *site);
/* The memory of a block of the cluster that corresponds to the running block's m. */
struct memory *block_memory(struct launch *l, const struct block *b, struct memory *m);
/* An access of the running work-item to local memory of a block of the cluster, at that
 * block's address. */
void block_access(struct launch *l, const struct block *b, const void *at, size_t nbytes,
                  enum access kind);
/* Waits until the phase of the barrier in memory has ended. */
void item_poll(const uint64_t *at, unsigned parity);
/* Ends the launch: the work-item that runs cannot go on. */
_Noreturn void launch_abort(void);
/* "work-item 3 of block 1", of a number among all of the launch's. */
const char *item_name(const struct launch *l, uint32_t number);
/* Where in the kernels' text the work-item that runs is. */
const char *item_line(void);
/* Is this the first report of this place in the code? What one work-item does the others do, too.
 * Notes it, and that the launch has failed. */
bool item_is_first(void);
/* builtins.c: of the running work-item, facts of its sub-group, and what its work-items pass to
 * each other: of a lane; at the same place of the code, double-buffered. */
API uint32_t emulator_subgroup(uint32_t what);
API void emulator_give(const void *value, uint32_t nbytes);
API void emulator_take(void *value, uint32_t nbytes, uint32_t lane);

/* ----------------------------------------------------------------------------------- matrix.c */

/* A row of ir/matrix.def. */
enum matrix_part { A, B, SUM, PARTS };
enum matrix_type { F16, BF16, TF32, F32, I8, U8, I32, F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ };
struct matrix_row {
    const char *text;
    uint32_t lanes;
    int size[PARTS]; /* m, n, k */
    enum matrix_type type[PARTS];
    const char *layout[PARTS];
};
/* The elements that a lane has of a part that is not "shared", and the bits of m, n, k that the
 * numbers of lane and element set: "k1 m0 | k0", a bit each, lowest first. */
struct matrix_places {
    int n;
    unsigned char lane[128][3], element[128][3];
};
const struct matrix_places *matrix_places(const struct matrix_row *r, enum matrix_part part);
/* One of the coordinates m, n, k of an element of a lane's. */
int matrix_coordinate(const struct matrix_places *p, uint32_t lane, int element, int of);
unsigned matrix_nbytes(enum matrix_type type);
/* Element i of those from `from` on. */
double matrix_number(enum matrix_type type, const void *from, int i);
/* Adds the products of a row's and a column's terms to element i of the sums. */
void matrix_add(const struct matrix_row *r, void *sum, int i, const double *a, const double *b);

/* --------------------------------------------------------------------------------- products.c */

/* The running work-item's part in asynchronous products, which complete when they are waited for.
 * Their factors are descriptors; across: is k across the rows? what: a row of matrix.def, or
 * publish, begin, commit, wait. */
void products_do(const char *what, const struct matrix_row *r, void *sum, const void *a,
                 const uint64_t *b);
/* Events: a block begins; the running work-item has stored to local memory; the item waits for its
 * block; it ends. */
void products_reset(struct launch *l);
void products_stored(struct launch *l, const struct memory *m);
void products_barrier(struct launch *l, const struct item *item);
void products_end(struct launch *l, const struct item *item);
/* Did a work-item store to the memory before the last barrier without publishing it? Engines and
 * units cannot see that. */
bool products_unpublished(const struct launch *l, const struct memory *m);
/* Reports if a unit still reads bytes of the block that an engine is about to replace. */
void products_replaced(struct launch *l, const struct block *of, const void *at, size_t nbytes);

#endif
