/* device.h - what the targets of devices share: kernels as functions of a C-like language, a run as
 * a list that is recorded once, the C around it. What is a target's own is a struct driver.
 */
#ifndef TGC_DEVICE_H
#define TGC_DEVICE_H

#include "backends/cstyle/cstyle.h"

/* A language for devices, its compiler, and the driver that programs load. Its pieces of runtime/
 * are in a file of its backend's name: NAME has the types, NAME_driver_WHAT the functions that
 * runtime/device.c names, NAME_PIECE the language's versions of others, NAME_language its head. */
struct driver {
    /* What stands before the kernel's name; its blocks have so many threads. */
    void (*head)(struct program *p, const struct kernel *k, const int block[GRID_RANK],
                 struct text *out);
    /* With a blank behind, or "": before the type of what lies in global memory, or in local
     * memory; after the asterisk of a pointer that no other one aliases. */
    const char *global, *local, *restrict_;
    /* Bytes of local memory that a kernel declares, at most; 0: all that its device has. What has
     * more has its arrays in memory that the launch names, by the piece NAME_block_array. */
    int64_t declared_local;
    /* An array's alignment is alignas(n) before its type, not
     * __attribute__((aligned(n))) behind its name */
    bool has_alignas;
    bool keeps_exchanged;   /* backend->shuffle takes local memory, an f32 for each thread, first */
    /* Types of arguments: a buffer's bytes, NULL: a tensor is one pointer; its offset there; a
     * run-time size; and of what threads count. */
    const char *byte, *offset, *symbol, *count;
    /* The function's one parameter is a structure of all these, which it gets as the language's
     * argument buffer: what stands before its type, and behind its name; and behind its i-th field.
     * NULL: they are the function's own. */
    const char *const *structure;
    const char *(*slot)(struct program *p, int i);
    const char *const *places;   /* parameters behind all others, up to NULL; NULL: there are
                                  * none */
    /* A thread's number in its block, how many there are; of what blocks share, the part that is
     * this block's (a block may be one thread), how many parts there are. */
    const char *thread, *threads, *part[2], *parts[2];
    const int64_t *most_groups;  /* blocks along each axis of a grid; NULL: as many as there are */
    /* The files of runtime/ whose pieces kernels use, in order, up to NULL. */
    const char *const *file;
    /* The text for the compiler; what it makes of it, to p->device_code, NULL: the driver has the
     * compiler; and what of both is in NAME.c. false: reported */
    const char *(*text)(struct program *p, const char *pieces, const char *kernels);
    bool (*compile)(struct program *p, const char *text);
    void (*embed)(struct program *p, const char *text, struct text *out);
    /* The type of an argument that is an image, with a blank behind; the pieces of the driver that
     * programs with images have instead of others; and the types and tables of those, before struct
     * NAME. NULL: there are no images. */
    const char *image;
    /* The type of an argument that is a tensor map, with a blank behind; NULL: there are none. */
    const char *map;
    void (*use_images)(struct program *p);
    void (*image_tables)(struct program *p, struct text *out);
    /* Fields of struct NAME: handles of the kernels, and what else a recorded list is; tables that
     * its functions read, NULL: none; the arguments of device_open() behind `self`, with ", "
     * behind each. */
    void (*fields)(struct program *p, struct text *out);
    void (*tables)(struct program *p, struct text *out);
    const char *(*open)(struct program *p);
    bool has_queues;             /* start_queued(): parts of a run may go by several queues */
};

/* The hooks of all of them. */
extern const struct device device_hooks;

/* host.c: text as the elements of an array of strings, one for each of its paragraphs. */
void device_write_strings(struct text *out, const char *s);
/* kernel.c: whether the kernel computes with 64-bit floats. */
bool device_has_doubles(const struct kernel *k);
/* places.c: where each buffer lies. false: reported, what devices do not have */
bool device_begin(struct program *p);

/* kernel.c: a kernel; then all of them, behind the pieces of runtime/ that they use. */
void device_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                   struct text *out);
const char *device_text(struct program *p, const char *kernels);

/* launch.c: a run as a list. Of a tensor, the index of its place (struct place of the program), and
 * the byte there where it begins; a state's varies. */
enum { PLACE_MEMORY, PLACE_WEIGHTS, PLACE_FIRST_INPUT };
/* The most tensors of a step of the host. */
enum { DEVICE_SPANS = 32 };
int device_place(const struct program *p, const struct buffer *b);
const char *device_offset(struct program *p, const struct buffer *b, bool *varies);
int device_count_places(const struct program *p);
/* Of a tensor that kernels read as an image, its number, from 0 on. */
int device_image(const struct program *p, const struct buffer *b);
/* The threads of a block, in each dimension. */
void device_block(const struct kernel *k, int block[GRID_RANK]);
/* kernel.c: bytes of local memory that its launch names, 0: the kernel declares it; whether the
 * kernel's local arrays are parts of one; and where in it one of them begins, NULL: its bytes. */
int64_t device_launched_local(const struct driver *d, const struct kernel *k);
bool device_has_over(const struct kernel *k);
int64_t device_local_at(const struct kernel *k, const struct buffer *b);
/* The blocks in dimension d, at the bounds of run-time sizes. */
int64_t device_most_groups(struct program *p, const struct kernel *k, int d);
/* The axis of the driver's grid that dimension d is, and the other way round: itself, unless a
 * dimension has more blocks than the driver allows there; that one and the first change places. */
int device_axis(struct program *p, const struct kernel *k, int d);
/* maps.c: the rows of the program's table of tensor maps, map_of[]; NULL: none are written. Returns
 * how many there are. */
int device_write_maps(struct program *p, struct text *out);
/* extent.c: which elements of a tensor, or of what it is a part of, a kernel accesses; false: two
 * kernels share none. */
struct extent;
const struct extent *device_extent(struct tgc *t, const struct kernel *k, const struct buffer *b);
bool device_extents_meet(const struct extent *a, const struct extent *b);
/* apart.c: places of intermediates by which kernels that need nothing of each other share no bytes,
 * and so need no order. *nbytes: what all take; true: p->place[] has them. false: it is as it was,
 * since the arena's plan makes no kernel wait, what a run does depends on what it computes, or they
 * would take more than `most`. */
bool device_place_apart(struct program *p, size_t most, size_t *nbytes);
/* queues.c: chooses each kernel's queue, by the places of all buffers; estimated ns of a run, 0:
 * the target has one queue. turn_of[] */
#define DEVICE_QUEUES_GAIN 0.05          /* the least share of the time that they must save */
#define DEVICE_APART_SHARE 0.1           /* the most that places of their own may add to what the
                                          * program takes of the device, */
enum { DEVICE_APART_NBYTES = 1 << 20 };  /* or so much, */
#define DEVICE_APART_GAIN 0.05           /* and the least share of the time that they must save */
double device_choose_queues(struct program *p);
void device_write_turns(struct program *p, struct text *out);
/* Estimated ns of the kernels, each part of a run a graph, by the places of all buffers. */
double device_graph_ns(struct program *p);
/* behind_first[], behind_of[]: the order of a graph's kernels, by the bytes that they access. */
void device_write_order(struct program *p, struct text *out);
/* launch_of[] and argument_of[] */
void device_write_list(struct program *p, struct text *out);
/* graphs.c: of drivers whose interface is "graphs". title: the target's, in what is reported
 * (false): more blocks than driver->most_groups */
void device_graph_fields(struct program *p, struct text *out);
void device_graph_tables(struct program *p, struct text *out);
bool device_check_grids(struct program *p, const char *title);
/* The statements for the kernels from this step on that are launched together;
 * returns their number. */
int device_launches(struct program *p, int step, struct text *out);

#endif
