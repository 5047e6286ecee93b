/* device.h - what the targets for devices share: kernels as functions of a C-like language, a run
 * as a list that is recorded once, the C around it. A target's own part is a struct driver.
 */
#ifndef TGC_DEVICE_H
#define TGC_DEVICE_H

#include "backends/cstyle/cstyle.h"

/* A language for devices, its compiler, and the driver that programs load. Its pieces of
 * runtime/ are in a file with the backend's name: NAME has the types, NAME_driver_WHAT the
 * functions that runtime/device.c calls, NAME_PIECE the language's version of another piece,
 * NAME_language the head. */
struct driver {
    /* Writes what precedes the kernel's name. block: its threads in each dimension. */
    void (*head)(struct program *p, const struct kernel *k, const int block[GRID_RANK],
                 struct text *out);
    /* Qualifiers, followed by a blank, or "": before the type of global memory, before that of
     * shared memory, and after the asterisk of a pointer that aliases no other. */
    const char *global, *local, *restrict_;
    /* The most bytes of shared memory that a kernel declares; 0: no limit but the device's. A
     * kernel with more has its arrays in dynamic memory that the launch requests, by the piece
     * NAME_block_array. */
    int64_t declared_local;
    /* alignas(n) precedes an array's type; otherwise __attribute__((aligned(n)))
     * follows its name */
    bool has_alignas;
    bool keeps_exchanged;   /* backend->shuffle takes an array of shared memory, an f32 for each
                             * thread, as its first argument */
    /* Types of arguments: a pointer to a buffer's bytes (NULL: a tensor is one pointer), an offset
     * in it, a run-time size, and what counts threads. */
    const char *byte, *offset, *symbol, *count;
    /* For languages with argument buffers, the function's one parameter is a structure: what
     * precedes its type, follows its name, and follows its i-th field. NULL: parameters are the
     * function's own. */
    const char *const *structure;
    const char *(*slot)(struct program *p, int i);
    const char *const *places;   /* parameters after all others, up to NULL; NULL: there are none */
    /* Expressions: a thread's number in its block, and the block's threads; the block's part of a
     * shared loop, and the number of parts (a block may be one thread). */
    const char *thread, *threads, *part[2], *parts[2];
    const int64_t *most_groups;  /* the most blocks along each axis of a grid; NULL: no limit */
    /* The files of runtime/ whose pieces kernels use, in order, up to NULL. */
    const char *const *file;
    /* The text for the compiler; what it compiles that to, in p->device_code (NULL: the driver has
     * the compiler); and what NAME.c has of both. false: reported */
    const char *(*text)(struct program *p, const char *pieces, const char *kernels);
    bool (*compile)(struct program *p, const char *text);
    void (*embed)(struct program *p, const char *text, struct text *out);
    /* The type of an image argument, followed by a blank; pieces that replace others in programs
     * with images; and those programs' types and tables, before struct NAME. NULL: no images. */
    const char *image;
    /* The type of a tensor map argument, followed by a blank; NULL: no maps. */
    const char *map;
    void (*use_images)(struct program *p);
    void (*image_tables)(struct program *p, struct text *out);
    /* Fields of struct NAME: handles of the kernels, and what else a recorded list consists of.
     * Tables that the driver's functions read; NULL: none. Arguments of device_open() after `self`,
     * each followed by ", ". */
    void (*fields)(struct program *p, struct text *out);
    void (*tables)(struct program *p, struct text *out);
    const char *(*open)(struct program *p);
    bool has_queues;             /* start_queued(): parts of a run may use several queues */
};

/* The hooks of all of them. */
extern const struct device device_hooks;

/* host.c: text as the elements of an array of strings, one for each of its paragraphs. */
void device_write_strings(struct text *out, const char *s);
/* kernel.c: whether the kernel computes with 64-bit floats. */
bool device_has_doubles(const struct kernel *k);
/* places.c: assigns each buffer its place. false: devices lack something, which is reported */
bool device_begin(struct program *p);

/* kernel.c: writes one kernel; writes all of them, after the pieces of runtime/ that they use. */
void device_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                   struct text *out);
const char *device_text(struct program *p, const char *kernels);

/* launch.c: a run as a list. A tensor's place (the index of its struct place), and its offset
 * there; a state's varies. */
enum { PLACE_MEMORY, PLACE_WEIGHTS, PLACE_FIRST_INPUT };
/* The most tensors of a step of the host. */
enum { DEVICE_SPANS = 32 };
int device_place(const struct program *p, const struct buffer *b);
const char *device_offset(struct program *p, const struct buffer *b, bool *varies);
int device_count_places(const struct program *p);
/* The number, from 0 on, of a tensor that kernels read as an image. */
int device_image(const struct program *p, const struct buffer *b);
/* The threads of a block, in each dimension. */
void device_block(const struct kernel *k, int block[GRID_RANK]);
/* kernel.c: the bytes of dynamic shared memory that a launch requests, 0: the kernel declares
 * it; whether the kernel's local arrays are parts of one; and the offset of one of them in it,
 * NULL: its bytes. */
int64_t device_launched_local(const struct driver *d, const struct kernel *k);
bool device_has_over(const struct kernel *k);
int64_t device_local_at(const struct kernel *k, const struct buffer *b);
/* The blocks in dimension d, at the bounds of run-time sizes. */
int64_t device_most_groups(struct program *p, const struct kernel *k, int d);
/* The axis of the driver's grid for dimension d, and vice versa. It is d, unless a dimension has
 * more blocks than the driver allows there: then that one and the first are exchanged. */
int device_axis(struct program *p, const struct kernel *k, int d);
/* maps.c: writes the rows of map_of[], the program's table of tensor maps; NULL: none are written.
 * Returns their number. */
int device_write_maps(struct program *p, struct text *out);
/* extent.c: the elements that a kernel accesses, of a tensor or of the tensor that it is a part of;
 * false: two kernels have none in common. */
struct extent;
const struct extent *device_extent(struct tgc *t, const struct kernel *k, const struct buffer *b);
bool device_extents_meet(const struct extent *a, const struct extent *b);
/* apart.c: places for intermediates such that independent kernels share no bytes, and so need
 * no order. true: p->place[] has them; *nbytes: their total. false: nothing has changed,
 * because the arena's plan makes no kernel wait, the steps depend on data, or it would take
 * more than `most`. */
bool device_place_apart(struct program *p, size_t most, size_t *nbytes);
/* queues.c: chooses each kernel's queue, from the places of all buffers; returns the estimated ns
 * of a run, 0: the target has one queue. turn_of[] */
#define DEVICE_QUEUES_GAIN 0.05          /* the least share of the time that they must save */
#define DEVICE_APART_SHARE 0.1           /* the most that places of their own may add to the
                                          * program's memory on the device, */
enum { DEVICE_APART_NBYTES = 1 << 20 };  /* or this many bytes, */
#define DEVICE_APART_GAIN 0.05           /* and the least share of the time that they must save */
double device_choose_queues(struct program *p);
void device_write_turns(struct program *p, struct text *out);
/* Estimated ns of the kernels, each part of a run a graph, by the places of all buffers. */
double device_graph_ns(struct program *p);
/* behind_first[], behind_of[]: the dependences of a graph's kernels, by the bytes
 * that they access. */
void device_write_order(struct program *p, struct text *out);
/* launch_of[] and argument_of[] */
void device_write_list(struct program *p, struct text *out);
/* graphs.c: for drivers whose interface is "graphs". title: the target's, in what is reported
 * (false): more blocks than driver->most_groups */
void device_graph_fields(struct program *p, struct text *out);
void device_graph_tables(struct program *p, struct text *out);
bool device_check_grids(struct program *p, const char *title);
/* Writes the statements for the kernels from this step on that are launched together;
 * returns their number. */
int device_launches(struct program *p, int step, struct text *out);

#endif
