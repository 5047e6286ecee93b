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
/* A set of them: bit i is enum isa i. The portable one is always in it. */
typedef unsigned isa_set;

/* They are numbered by width within an architecture, the portable one first. */
enum isa isa_portable(void);
bool isa_is_portable(enum isa isa);
bool isa_is_of_device(enum isa isa);     /* vectors of a device's language, not of a processor */
isa_set isa_all(void);                   /* those of processors */
enum isa isa_last(void);
enum isa isa_before(enum isa isa);       /* narrower, or the last of the architecture before */
/* The set from which this one differs only in sums of products of bytes; else isa. */
enum isa isa_base(enum isa isa);
bool isa_find(const char *text, enum isa *isa);                   /* by its name in --cpu= */
const char *isa_name(enum isa isa);
int isa_lanes(enum isa isa);                                      /* f32 in a register */
int isa_half_lanes(enum isa isa);                /* in a half register; 0: not used */
int isa_registers(enum isa isa);  /* vector registers that a tile may take */
/* Registers that a step of a tile needs besides its sums: a vector of each block of columns, a
 * value of the rows; without an instruction for products of bytes, the even and the odd ones. */
int isa_step_registers(enum isa isa, bool bytes, int blocks);
int64_t isa_register_nbytes(enum isa isa);                        /* of all registers */
/* intrinsics.def: the function of runtime/ for an intrinsic; NULL: this one has none. */
const char *isa_function(enum isa isa, enum intrinsic of);
/* The intrinsic for sums of products of bytes; whether it is a single instruction, and whether it
 * takes values less 128. */
enum intrinsic isa_dot(enum isa isa);
bool isa_adds_bytes(enum isa isa);
bool isa_centers_bytes(enum isa isa);
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
};

/* All rows. The first is the cost models' default, so the same input gives the same bytes on any
 * machine. */
const struct machine *machine_rows(int *n);
const struct machine *machine_find(const char *text);             /* NULL: there is no such row */
/* The row that t's cost models use: t->machine, or the first one. */
const struct machine *machine_of(const struct tgc *t);
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
    int registers;               /* of 32 bits, for a work-item, while others hide its latencies */
    int own_registers;           /* of a work-item of a small group, at most; 0: .registers */
    int wave;                    /* work-items in step */
    int group;                   /* work-items of a work-group, at most */
    int shuffle;                 /* work-items of a work-group that exchange values by
                                  * shuffles; 0: none do */
    int async;                   /* bytes of memory that one instruction copies to local memory
                                  * meanwhile, at most; 0: none does */
    int store;                   /* bytes that a thread stores as they are by one instruction, at
                                  * most (PUT); 0: its elements one by one */
    bool by_rows;                /* an instruction loads rows of 16 bytes of tiles for a wave, see
                                  * TILE_BY_ROWS */
    bool moves_products;         /* its compilers move products of matrices behind barriers, with
                                  * their factors, to where sums are needed */
    bool bulk;                   /* an engine copies boxes of tensors to local memory */
    int cluster;                 /* blocks that run at once, and to whose local memory it copies the
                                  * same box, at most; 0: none */
    bool tickets;                /* its language has fences of all blocks of the device (TICKET) */
    int role_waves;              /* waves that give some of their registers to others of their
                                  * block, or take some, together; 0: none do */
    int64_t local_nbytes;        /* of a work-group; 0: local memory is not worth using */
    int64_t unit_local_nbytes;   /* of a compute unit, whose work-groups share it */
    int unit_threads;            /* work-items that a compute unit holds at once, at most */
    double latency;              /* ns from a load of memory to its value */
    int units;                   /* compute units */
    double gflops, gbytes;       /* 1e9 operations on f32, bytes of memory, in a second */
    int64_t cache_nbytes;        /* of the cache that all units share; 0: not known */
    double cache_gbytes;         /* the same of the cache that all units share; 0: see
                                  * RATIO(GRID_CACHE) */
    double load;                 /* a unit's loads of a word by each thread, in its multiply-adds;
                                  * 0: see RATIO(GRID_LOAD) */
    double power;                /* a unit's 2^x of each thread, by its own instruction, in its
                                  * multiply-adds; 0: see RATIO(GRID_POWER) */
    int parameter_nbytes;        /* of a kernel's arguments, at most; 0: of any number */
    int tensor_nbytes;           /* of a tensor's among them: a pointer, or a buffer and where in it
                                  * the tensor begins */
    int image_pitch;             /* pixels of which an image's row is a multiple */
    int image_side;              /* pixels, at most */
};
/* All rows; a target's first one, the default of it. */
const struct device_row *device_rows(int *n);
const struct device_row *device_default(const char *target);
const struct device_row *device_find(const char *text);           /* NULL: there is no such row */
/* The i-th instruction of ir/matrix.def that t's device has, and every architecture that
 * its kernels are compiled for besides, and 1e9 operations of it in a second; false: there
 * are no more of them. */
bool device_matrix(const struct tgc *t, int i, enum matrix_unit *of, double *gflops);
/* Whether there is one that multiplies values of these dtypes, in either order; of this
 * one with each other. */
bool device_multiplies_both(const struct tgc *t, enum dtype a, enum dtype b);
bool device_multiplies(const struct tgc *t, enum dtype of);
/* Of products of bytes that go by such an instruction: terms, and rows or columns, at least. */
enum { BYTES_TERMS_LEAST = 64, BYTES_SIDE_LEAST = 16 };
/* Whether that device, and every architecture that t's kernels are compiled for besides, copies so
 * many bytes asynchronously. */
bool device_copies(const struct tgc *t, int64_t nbytes);
/* Whether their threads store so many bytes at once. */
bool device_stores(const struct tgc *t, int64_t nbytes);
/* Whether they have the instruction that loads rows of tiles (by_rows). */
bool device_loads_rows(const struct tgc *t);
/* Whether they have an engine that copies boxes, and kernels are none of LLVM's: it copies a
 * tensor's map, an argument, to a thread's own memory, where no engine reads it. */
bool device_copies_boxes(const struct tgc *t);
/* Blocks of a cluster, at most, of that device and of every architecture that t's kernels are
 * compiled for besides; 0: it has none. */
int device_cluster(const struct tgc *t);
/* How many registers a thread of the role has in a block of so many consumers and producers, to
 * whom the instruction is to give them; 0: those with which it begins. */
int device_role_registers(const struct tgc *t, int64_t consumers, int64_t producers,
                          enum thread_role role);
/* With --image: log2 of the pixels, of four elements, in a row of a tensor of that many elements, a
 * multiple of the device's pitch; -1: it has too many for an image. */
int device_image_shift(const struct tgc *t, size_t nelem);
/* Bytes of a block's local memory: the least of the architectures that the kernels are compiled
 * for; of no device, what each one of OpenCL 1.2 has. */
int64_t device_local_nbytes(const struct tgc *t);
/* Tensors that a kernel may have as arguments, results and those that it reads: so many that there
 * is room for sizes and maps. */
int device_operands(const struct tgc *t);
/* Whether a block knows that it is the last of some, and sees what they have stored (TICKET):
 * CUDA's, whose fences are for all blocks of the device. Neither OpenCL 1.2 nor Metal has such. */
bool device_has_tickets(const struct tgc *t);
/* Registers of a thread that a block of so many may have. */
int64_t device_registers(const struct device_row *d, int64_t threads);
/* Whether it has units that multiply matrices beside those of its threads: some rows of
 * matrix.def go faster. */
bool device_multiplies_apart(const struct device_row *d);
double device_cache_gbytes(const struct device_row *d);
/* Whether kernels are for a device that runs a thread for each place of a grid. */
bool device_has_grid(const struct tgc *t);

#endif
