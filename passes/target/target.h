/* target.h - the interface to what programs run on: instruction sets (isa.def), machines
 * (machines.def), processors (processors.def) and devices (devices.def). Costs: cost.h.
 */
#ifndef TGC_TARGET_H
#define TGC_TARGET_H

#include "ir/ir.h"

/* ---------------------------------------------------------------------------------------- isa.c */

enum isa {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute)                                                                             \
    ISA_##name,
#include "passes/target/isa.def"
#undef ISA
    ISA_COUNT
};
/* A row, for vectors and backends. Other folders use the functions below. */
struct isa_info {
    const char *text, *arch;
    int lanes, narrow, registers;
    const char *title, *attribute;
};
extern const struct isa_info isa_table[ISA_COUNT];
/* A set of instruction sets: bit i is enum isa i. The portable one is always in it. */
typedef unsigned isa_set;

/* They are numbered by width within an architecture, the portable one first. */
enum isa isa_portable(void);
bool isa_is_portable(enum isa isa);
bool isa_is_of_device(enum isa isa);     /* vectors of a device's language, not of a processor */
isa_set isa_all(void);       /* those of processors, among which a model picks when it is opened */
/* What --cpu=auto, if that was asked for, is for the triple (NULL: this machine). */
isa_set isa_of_triple(const char *triple, isa_set asked);
/* The prefix of the pieces of runtime/ that it has in place of another set's, or NULL. */
const char *isa_pieces(enum isa isa);
enum isa isa_last(void);
enum isa isa_before(enum isa isa);       /* narrower, or the last of the architecture before */
/* The set from which this one differs only in sums of products of groups; else isa. */
enum isa isa_base(enum isa isa);
bool isa_find(const char *text, enum isa *isa);                   /* by its name in --cpu= */
const char *isa_name(enum isa isa);
int isa_lanes(enum isa isa);                                      /* f32 in a register */
int isa_half_lanes(enum isa isa);                /* in a half register; 0: not used */
int isa_registers(enum isa isa);  /* vector registers that a tile may take */
/* Registers that a step of a tile needs besides its sums: a vector of each block of columns, a
 * value of the rows; without an instruction for products of such groups (VOID: there are none), the
 * even and the odd elements. */
int isa_step_registers(enum isa isa, enum dtype group, int blocks);
int64_t isa_register_nbytes(enum isa isa);                        /* of all registers */
/* intrinsics.def: the function of runtime/ for an intrinsic; NULL: this one has none. */
const char *isa_function(enum isa isa, enum intrinsic of);
/* The intrinsic for sums of products of groups, whose weights are I8 or BF16; whether it is a
 * single instruction, and whether it takes values less 128. */
enum intrinsic isa_dot(enum isa isa, enum dtype weights);
bool isa_adds(enum isa isa, enum dtype weights);
bool isa_centers_bytes(enum isa isa);
/* Whether two sets of one width have different functions for such products; tiles: or one of them
 * multiplies tiles of them. */
bool isa_differs(enum isa a, enum isa b, enum dtype weights, bool tiles);
/* Whether it multiplies tiles; all else is as in the set before. */
bool isa_has_tiles(enum isa isa);
/* Whether casts to and from f16 are computed, because not all such processors have an
 * instruction. */
bool isa_computes_f16(enum isa isa);

/* ------------------------------------------------------------------------------------ machine.c */

/* From where a core loads data. */
enum memory_level { LEVEL_L1, LEVEL_L2, LEVEL_L3, LEVEL_MEMORY, LEVEL_COUNT };

/* One core of a machine, see machines.def. */
struct machine {
    const char *text, *title;
    const char *processors;      /* as lib/host_machine.c names them, with spaces between */
    double ns_cycle;
    double fma_cycle;            /* vectors of multiply-adds that begin in a cycle */
    double fma_latency;          /* cycles until one can be added to */
    double loads_cycle;          /* vectors */
    double decoded_cycle;        /* instructions */
    /* a product of two tiles of all rows, and cycles until it can be added to; 0: it has no such
     * unit */
    double tile_cycles, tile_latency;
    int lanes;                   /* f32 that a unit takes at once: wider vectors take longer */
    int flop_lanes;              /* of these, those that whole kernels keep busy */
    int line;                    /* bytes of a cache's line */
    struct { double nbytes; int ways; double bytes_cycle; } level[LEVEL_COUNT];
    /* of one element in vectors, as a multiple of an addition's time */
    double division, function;   /* division, root, remainder; exponential and the like */
    double lookup;               /* a load at a data-dependent index */
    double strided_cycles;       /* to store one lane of a vector by itself */
    double nest_cycles;          /* to start a loop nest, with cold caches */
    double wake_ns;              /* what a kernel must gain for threads to be woken */
    /* what a portable kernel's tile may take of them, addresses apart; 0: its lanes are for the C
     * compiler's vectors */
    int registers, float_registers;
    bool sums_words;             /* adds the products of a word's four bytes by two instructions */
    /* a rewrite is weighed by its time times memory^thrift; 0: memory is plentiful */
    double thrift;
};

/* All rows. The first is the cost models' default, so the same input gives the same bytes on any
 * machine. */
const struct machine *machine_rows(int *n);
const struct machine *machine_find(const char *text);             /* NULL: there is no such row */
/* The row that t's cost models use: t->machine, or the first one. */
const struct machine *machine_of(const struct tgc *t);
/* The row (NULL: the first) with another thrift, as -Os has it: memory decides, time where that is
 * equal. Lives as long as t. */
#define THRIFT_SMALLEST 64
const struct machine *machine_with_thrift(struct tgc *t, const struct machine *m, double thrift);
/* The row with an L2 of this size (--cache); lives as long as t. */
const struct machine *machine_with_l2(struct tgc *t, const struct machine *m, size_t nbytes);
/* The stride in bytes of addresses that share a set of the level's cache: one way of it. */
int64_t machine_way_nbytes(const struct machine *m, enum memory_level level);

/* ---------------------------------------------------------------------------------- processor.c */

/* A processor that --cpu names, see processors.def. */
struct processor {
    const char *name, *architectures;
    enum isa isa;
    int llvm;                    /* the oldest version of LLVM that knows it */
    const char *machine;
};
const struct processor *processor_rows(int *n);
const struct processor *processor_find(const char *name);         /* NULL: there is no such row */
/* Whether it runs code for the triple, by the architecture with which that begins. */
bool processor_runs(const struct processor *p, const char *triple);

/* ------------------------------------------------------------------------------------- device.c */

/* A device, see devices.def. */
struct device_row {
    const char *text, *title;
    const char *target;          /* --target= */
    bool is_processor;           /* its work-items are threads of a CPU */
    enum isa isa;                /* vectors of its language; the portable one: none */
    int registers;               /* 32-bit registers of a work-item at useful occupancy */
    int own_registers;           /* of a work-item in a small group, at most; 0: .registers */
    int wave;                    /* work-items of a subgroup */
    int group;                   /* work-items of a work-group, at most */
    int shuffle;                 /* work-items of a work-group that can exchange values by
                                  * shuffles; 0: none */
    int async;                   /* bytes that one asynchronous instruction copies to shared
                                  * memory, at most; 0: none */
    int store;                   /* bytes that a thread stores unconverted by one instruction, at
                                  * most (PUT); 0: element by element */
    bool by_rows;                /* has an instruction that loads 16-byte rows of tiles for a
                                  * subgroup (ldmatrix), see TILE_IS_BY_ROWS */
    bool moves_products;         /* its compilers move matrix products after barriers, with their
                                  * factors, to where sums are needed */
    bool bulk;                   /* has an engine that copies boxes of tensors to shared memory
                                  * (TMA) */
    int cluster;                 /* blocks of a cluster, at most, with multicast of boxes; 0: no
                                  * clusters */
    bool tickets;                /* its language has device-wide fences (TICKET) */
    int role_waves;              /* subgroups that together can move registers to others of their
                                  * block; 0: none */
    int64_t local_nbytes;        /* shared memory of a work-group; 0: not worth using */
    int64_t unit_local_nbytes;   /* shared memory of a unit, for all its work-groups */
    int unit_threads;            /* resident work-items of a unit, at most */
    double latency;              /* latency of a load from memory, in ns */
    int units;                   /* compute units */
    double gflops, gbytes;       /* 1e9 operations on f32, bytes of memory, in a second */
    int64_t cache_nbytes;        /* of the cache that all units share (L2); 0: unknown */
    double cache_gbytes;         /* its bandwidth; 0: see RATIO(GRID_CACHE) */
    double load;                 /* loads of a word by each thread of a unit, in its
                                  * multiply-adds; 0: see RATIO(GRID_LOAD) */
    double power;                /* hardware 2^x by each thread of a unit, in its multiply-adds;
                                  * 0: see RATIO(GRID_POWER) */
    int parameter_nbytes;        /* of a kernel's arguments, at most; 0: no limit */
    int tensor_nbytes;           /* of a tensor's arguments: a pointer, or a buffer and the
                                  * tensor's offset in it */
    int image_pitch;             /* an image's row is a multiple of this many pixels */
    int image_side;              /* pixels, at most */
};
/* All rows; a target's first row is its default. */
const struct device_row *device_rows(int *n);
const struct device_row *device_default(const char *target);
const struct device_row *device_find(const char *text);           /* NULL: there is no such row */
/* The i-th instruction of ir/matrix.def that t's device and every further architecture of its
 * kernels have; gflops: its rate. false: there are no more. */
bool device_matrix(const struct tgc *t, int i, enum matrix_unit *of, double *gflops);
/* Whether an instruction multiplies values of these dtypes, in either order; device_multiplies():
 * of this one with itself. */
bool device_multiplies_both(const struct tgc *t, enum dtype a, enum dtype b);
bool device_multiplies(const struct tgc *t, enum dtype of);
/* Least sizes for products of bytes by a matrix instruction: terms; rows or columns. */
enum { BYTES_TERMS_LEAST = 64, BYTES_SIDE_LEAST = 16 };
/* Whether the device and every further architecture of t's kernels can copy `nbytes`
 * asynchronously. */
bool device_copies(const struct tgc *t, int64_t nbytes);
/* Whether all of them can store `nbytes` at once. */
bool device_stores(const struct tgc *t, int64_t nbytes);
/* Whether all of them have the instruction that loads rows of tiles (by_rows). */
bool device_loads_rows(const struct tgc *t);
/* Whether all of them have an engine that copies boxes. Not with LLVM: it moves a tensor's map, an
 * argument, to a thread's own memory, where no engine reads it. */
bool device_copies_boxes(const struct tgc *t);
/* Blocks of a cluster, at most, on the device and every further architecture of t's kernels; 0: no
 * clusters. */
int device_cluster(const struct tgc *t);
/* Registers that an instruction should give a thread of the role in a block of `consumers` and
 * `producers` threads; 0: no change. */
int device_role_registers(const struct tgc *t, int64_t consumers, int64_t producers,
                          enum thread_role role);
/* With --image: log2 of the pixels, of four elements, in an image's row for a tensor of `nelem`
 * elements, a multiple of the device's pitch; -1: the tensor is too large. */
int device_image_shift(const struct tgc *t, size_t nelem);
/* Shared memory of a block: the least of the architectures that the kernels are compiled for;
 * without a device, what every OpenCL 1.2 device has. */
int64_t device_local_nbytes(const struct tgc *t);
/* Tensors that a kernel may have as arguments, results included, leaving room for sizes and
 * maps. */
int device_operands(const struct tgc *t);
/* Whether a block can know that it is the last to arrive, and sees what the others have stored
 * (TICKET). CUDA can, by device-wide fences; OpenCL 1.2 and Metal cannot. */
bool device_has_tickets(const struct tgc *t);
/* Registers of a thread in a block of `threads`, at most. */
int64_t device_registers(const struct device_row *d, int64_t threads);
/* Whether it has separate matrix units: some rows of matrix.def are faster than its threads. */
bool device_multiplies_apart(const struct device_row *d);
double device_cache_gbytes(const struct device_row *d);
/* Whether kernels are for a device with a grid of threads. */
bool device_has_grid(const struct tgc *t);

#endif
