/* load.c - from a path to an unpacked, checked model.
 *
 *      file --mmap--> bytes --scan (wire.c)--> estimate <= budget? --protobuf-c--> ModelProto
 *      --check.c--> struct onnx_model
 *
 * protobuf-c allocates from the compile's arena, so that the compile's memory limit holds for it
 * too, and nothing needs to be freed. It copies every weight; the file is unmapped right after
 * that, so that a model is in memory twice only while it is unpacked. Anything but a regular file
 * (a pipe, standard input) is read into a buffer that is freed in the same way.
 */
#include "frontend/onnx/onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* protobuf's own limit; larger models keep their weights in external files. */
enum { MAX_FILE_NBYTES = INT32_MAX };

struct input { const uint8_t *bytes; size_t nbytes; bool is_mapped; };

static void input_free(void *what)
{
    struct input *in = what;
    if (in->is_mapped)
        munmap((void *)(uintptr_t)in->bytes, in->nbytes);
    else
        free((void *)(uintptr_t)in->bytes);
}

static bool too_large(struct tgc *t, const struct place *at)
{
    return diag_error(t, at, "the file is larger than 2 GiB, which is more than protobuf can hold; "
                             "save the model with its weights as external data");
}

static bool read_stream(struct tgc *t, const struct place *at, int fd, struct input *in)
{
    size_t cap = 1 << 16;
    uint8_t *buffer = malloc(cap);
    in->bytes = buffer;
    while (buffer) {
        if (in->nbytes == cap) {
            uint8_t *larger = cap >= t->mem_limit ? NULL : realloc(buffer, 2 * cap);
            if (!larger)
                break;
            in->bytes = buffer = larger;
            cap *= 2;
        }
        ssize_t got = read(fd, buffer + in->nbytes, cap - in->nbytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return diag_error(t, at, "reading failed: %s", strerror(errno));
        if (got == 0)
            return true;
        in->nbytes += (size_t)got;
        if (in->nbytes > MAX_FILE_NBYTES)
            return too_large(t, at);
    }
    t->exhausted = true;
    return diag_error(
        t, at, "out of memory while reading it (%zu bytes so far; the limit is --max-memory)",
        in->nbytes);
}

static bool read_fd(struct tgc *t, const struct place *at, int fd, struct input *in)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return diag_error(t, at, "cannot be examined: %s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return diag_error(t, at, "is a directory; a model file is expected");
    if (!S_ISREG(st.st_mode))
        return read_stream(t, at, fd, in);
    if (st.st_size > MAX_FILE_NBYTES)
        return too_large(t, at);
    if (st.st_size == 0)
        return true;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return diag_error(t, at, "cannot be mapped: %s", strerror(errno));
    *in = (struct input){p, (size_t)st.st_size, true};
    return true;
}

/* NULL: a diagnostic. */
static struct input *read_input(struct tgc *t, const struct place *at, const char *path,
                                struct held **held)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct input *in = MEM_NEW(t, struct input);
    int *fd;
    *held = held_add(t, input_free, in);
    struct held *file = held_fd(t, &fd);
    if (!is_stdin && (*fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        diag_error(t, at, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    bool ok = is_stdin ? read_stream(t, at, STDIN_FILENO, in) : read_fd(t, at, *fd, in);
    held_release(file);
    return ok ? in : NULL;
}

/* Files that people mistake for models, recognized by their first bytes. */
static const struct { const char *begin, *advice;
} mistaken[] = {
    {"version https://git-lfs",
     "it is a Git LFS pointer, not the model itself; run 'git lfs pull'"},
    {"PK\x03\x04",
     "it is a zip archive (a PyTorch or Keras file?); export the model to ONNX first"},
    {"\x89HDF", "it is an HDF5 file (a Keras model?); convert it to ONNX first"},
    {"tg 1", "it is a text graph; name it .tg, or say -x tg"},
    {"<!DOCTYPE", "it is an HTML page, not a model; was the download refused?"},
    {"<html", "it is an HTML page, not a model; was the download refused?"},
};

static const char *advice_for(const uint8_t *bytes, size_t nbytes)
{
    for (size_t i = 0; i < sizeof mistaken / sizeof *mistaken; i++) {
        size_t n = strlen(mistaken[i].begin);
        if (nbytes >= n && memcmp(bytes, mistaken[i].begin, n) == 0)
            return mistaken[i].advice;
    }
    return "is it an ONNX model, and complete?";
}

static void *budget_alloc(void *t, size_t nbytes) { return mem_alloc(t, nbytes); }
static void budget_free(void *t, void *p) { (void)t, (void)p; }

/* NULL: diagnostics. Ends the compile if memory is exhausted all the same. */
static ProtobufCMessage *unpack(struct tgc *t, const struct place *at,
                                const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                                size_t nbytes)
{
    struct onnx_wire_error error;
    size_t need;
    if (!onnx_scan_wire(type, bytes, nbytes, &need, &error)) {
        diag_error(t, at, "not a well-formed %s: at byte %zu, in %s%s%s: %s; %s", type->short_name,
                   error.offset, error.message, error.field ? "." : "",
                   error.field ? error.field : "", error.problem, advice_for(bytes, nbytes));
        return NULL;
    }
    if (need > mem_room(t)) {
        t->exhausted = true;
        diag_error(t, at,
                   "unpacking its %zu bytes may take %.1f MiB, which is beyond the memory limit "
                   "(--max-memory) of %.1f MiB, of which %.1f are taken",
                   nbytes, (double)need / 0x1p20, (double)t->mem_limit / 0x1p20,
                   (double)t->mem_used / 0x1p20);
        return NULL;
    }
    ProtobufCAllocator allocator = {budget_alloc, budget_free, t};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, nbytes, bytes);
    if (!message)
        diag_error(t, at, "not a well-formed %s; %s", type->short_name, advice_for(bytes, nbytes));
    return message;
}

static struct onnx_model *model_new(struct tgc *t, const char *path,
                                    const struct onnx_load_options *options)
{
    struct onnx_model *m = MEM_NEW(t, struct onnx_model);
    m->tgc = t;
    m->path = mem_str(t, strcmp(path, "-") == 0 ? "<stdin>" : path);
    if (options)
        m->options = *options;
    return m;
}

struct onnx_model *onnx_load_bytes(struct tgc *t, const char *path, const void *bytes,
                                   size_t nbytes, const struct onnx_load_options *options)
{
    struct onnx_model *m = model_new(t, path, options);
    struct place at = onnx_place_model(m);
    m->proto = (ModelProto *)unpack(t, &at, &model_proto__descriptor, bytes, nbytes);
    return m->proto && onnx_check(m) ? m : NULL;
}

struct onnx_model *onnx_load(struct tgc *t, const char *path,
                             const struct onnx_load_options *options)
{
    struct onnx_model *m = model_new(t, path, options);
    struct place at = onnx_place_model(m);
    struct held *held;
    const struct input *in = read_input(t, &at, path, &held);
    if (!in)
        return NULL;
    m->proto = (ModelProto *)unpack(t, &at, &model_proto__descriptor, in->bytes, in->nbytes);
    held_release(held);
    return m->proto && onnx_check(m) ? m : NULL;
}

ProtobufCMessage *onnx_load_message(struct tgc *t, const char *path,
                                    const ProtobufCMessageDescriptor *type)
{
    struct place at = {.file = mem_str(t, path)};
    struct held *held;
    const struct input *in = read_input(t, &at, path, &held);
    if (!in)
        return NULL;
    ProtobufCMessage *message = unpack(t, &at, type, in->bytes, in->nbytes);
    held_release(held);
    return message;
}
