/* main.c - openpilot's loop with a model in C: frames of two cameras, one run for each pair, a name
 * for each part of what comes out.
 *
 *      app [--camera tici|mici] [--frames N] [--drop K] [--cpu]
 *
 * The frames are drawn by the program. They lie in two buffers of its own OpenCL context, where the
 * model reads them: nothing copies a frame. Where there is no OpenCL device (or with --cpu) the
 * same frames go to the processor's build, which is linked beside it.
 */
#include "pilot.h"
#include "pilot_cpu.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ------------------------------------- what is called of OpenCL; #include <CL/cl.h> has it, too */

int clGetPlatformIDs(unsigned most, void **platform, unsigned *n);
int clGetDeviceIDs(void *platform, unsigned long type, unsigned most, void **device, unsigned *n);
void *clCreateContext(const void *properties, unsigned n, void *const *device, void *notify,
                      void *user, int *error);
void *clCreateCommandQueue(void *context, void *device, unsigned long properties, int *error);
void *clCreateBuffer(void *context, unsigned long flags, size_t size, void *host, int *error);
int clEnqueueWriteBuffer(void *queue, void *buffer, unsigned wait, size_t at, size_t size,
                         const void *from, unsigned n, void *list, void *event);
int clWaitForEvents(unsigned n, void *const *event);
int clReleaseEvent(void *event);
int clReleaseMemObject(void *buffer);
int clReleaseCommandQueue(void *queue);
int clReleaseContext(void *context);

/* ------------------------------------------------------------------------------- the two builds */

/* The device's, in a context and a queue of the program's. */
struct device { pilot *model; void *context, *queue, *frame[2]; };

static void on_error(void *user, const char *text)
{
    (void)user;
    fprintf(stderr, "pilot: %s\n", text);
}

static int open_device(struct device *d, size_t frame_bytes)
{
    static alignas(PILOT_ARENA_ALIGN) unsigned char arena[PILOT_ARENA_BYTES];
    void *platform, *device;
    pilot_options options;
    memset(&options, 0, sizeof options);
    if (clGetPlatformIDs(1, &platform, NULL) != 0 ||
        clGetDeviceIDs(platform, 0xffffffff, 1, &device, NULL) != 0)
        return PILOT_NO_DEVICE;
    d->context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    d->queue = d->context ? clCreateCommandQueue(d->context, device, 0, NULL) : NULL;
    for (int i = 0; i < 2 && d->queue; i++)
        d->frame[i] = clCreateBuffer(d->context, 1 /* read, write */, frame_bytes, NULL, NULL);
    if (!d->frame[0] || !d->frame[1])
        return PILOT_DEVICE_FAILED;
    options.queue = d->queue;
    options.on_error = on_error;
    int status = pilot_init(&d->model, arena, sizeof arena, &options);
    for (int i = 0; i < 2 && status == PILOT_OK; i++) {   /* the first two inputs of both entries */
        status = pilot_prepare_bind_input(d->model, i, d->frame[i], 0);
        if (status == PILOT_OK)
            status = pilot_run_bind_input(d->model, i, d->frame[i], 0);
    }
    return status;
}

static void close_device(struct device *d)
{
    if (d->model)
        pilot_close(d->model);
    for (int i = 0; i < 2; i++)
        if (d->frame[i])
            clReleaseMemObject(d->frame[i]);
    if (d->queue)
        clReleaseCommandQueue(d->queue);
    if (d->context)
        clReleaseContext(d->context);
}

/* Enqueues the run after the frames, and waits for its end; openpilot does other
 * work in between. */
static int run_on_device(struct device *d, bool drop, const pilot_run_inputs *in,
                         pilot_run_outputs *out)
{
    void *event = NULL;
    pilot_prepare_inputs less = {in->frame,      in->big_frame, in->tfm,
                                 in->big_tfm,    in->dim_width, in->dim_height,
                                 in->dim_stride, in->dim_uv,    in->dim_bytes};
    pilot_prepare_outputs none = {NULL};
    int status = drop ? pilot_prepare_enqueue(d->model, &less, &none, &event)
                      : pilot_run_enqueue(d->model, in, out, &event);
    if (event) {
        clWaitForEvents(1, &event);
        clReleaseEvent(event);
    }
    return status;
}

/* The processor's build has structs of the same fields. */
static int run_on_cpu(pilot_cpu *model, bool drop, const pilot_run_inputs *in,
                      pilot_run_outputs *out)
{
    pilot_cpu_prepare_inputs less = {in->frame,      in->big_frame, in->tfm,
                                     in->big_tfm,    in->dim_width, in->dim_height,
                                     in->dim_stride, in->dim_uv,    in->dim_bytes};
    pilot_cpu_prepare_outputs none = {NULL};
    pilot_cpu_run_inputs all;
    pilot_cpu_run_outputs results = {out->vision, out->policy};
    memcpy(&all, in, sizeof all);
    return drop ? pilot_cpu_prepare_run(model, &less, &none)
                : pilot_cpu_run_run(model, &all, &results);
}

/* ----------------------------------------------------------------------------------- the frames */

static const struct camera { const char *name; int width, height, stride, uv, bytes; } cameras[] = {
    {"tici", 1928, 1208, 2048, 2048 * 1216, 2048 * (1216 + 608)},
    {"mici", 1344, 760, 1408, 1408 * 768, 1408 * (768 + 384)},
};

/* Squares that move to the left, of other sizes for each camera. */
static void draw(unsigned char *frame, const struct camera *c, int time, int size)
{
    memset(frame, 16, (size_t)c->bytes);
    for (int y = 0; y < c->height; y++)
        for (int x = 0; x < c->width; x++)
            frame[y * c->stride + x] =
                (unsigned char)(40 + 37 * (((x + 9 * time) / size + y / size) % 6));
    for (int y = 0; y < c->height / 2; y++)
        for (int x = 0; x < c->width; x++)
            frame[c->uv + y * c->stride + x] =
                (unsigned char)(128 + 20 * ((x / 2 + 4 * time) / size % 3 - 1) * (x % 2 ? 1 : -1));
}

/* From a point of the network's 512 x 256 pixels to one of the frame. */
static void aim(float tfm[9], const struct camera *c, float zoom)
{
    const float scale = (float)c->width / 512 * zoom;
    const float matrix[9] = {scale, 0,     (float)c->width / 2 - 256 * scale,
                             0,     scale, (float)c->height / 2 - 128 * scale,
                             0,     0,     1};
    memcpy(tfm, matrix, sizeof matrix);
}

/* ------------------------------------------------------------------------------------- the loop */

static double milliseconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The parts of the outputs that the model names, and the first number of each. */
static void print_parts(const pilot_run_outputs *out)
{
    const struct pilot_info *info = pilot_describe();
    const float *const output[] = {out->vision, out->policy};
    for (int i = 0; i < info->slice_count; i++) {
        const struct pilot_slice *s = &info->slices[i];
        printf("  %s.%s: %zu numbers, the first %.4f\n", info->outputs[s->output].name, s->name,
               s->size, (double)output[s->output][s->begin]);
    }
}

struct arguments { const struct camera *camera; int frames, drop; bool cpu; };

static bool read_arguments(struct arguments *a, int argc, char **argv)
{
    *a = (struct arguments){&cameras[0], 8, 0, false};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--cpu")) {
            a->cpu = true;
            continue;
        }
        if (!strcmp(argv[i], "--frames"))
            a->frames = atoi(value);
        else if (!strcmp(argv[i], "--drop"))
            a->drop = atoi(value);
        else if (!strcmp(argv[i], "--camera") && (!strcmp(value, "tici") || !strcmp(value, "mici")))
            a->camera = &cameras[value[0] == 'm'];
        else
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    static alignas(PILOT_CPU_ARENA_ALIGN) unsigned char cpu_arena[PILOT_CPU_ARENA_BYTES];
    static float vision[1576], policy[1000];
    static unsigned char frame[2][PILOT_MAX_BYTES];
    float tfm[9], big_tfm[9];
    float desire[8] = {0}, traffic_convention[2] = {1, 0};
    struct arguments a;
    struct device device = {NULL, NULL, NULL, {NULL, NULL}};
    pilot_cpu *cpu = NULL;
    if (!read_arguments(&a, argc, argv)) {
        fprintf(stderr,
                "usage: %s [--camera tici|mici] [--frames N] [--drop K: every K-th] [--cpu]\n",
                argv[0]);
        return 2;
    }
    const struct camera *c = a.camera;
    int status = a.cpu ? PILOT_NO_DEVICE : open_device(&device, (size_t)c->bytes);
    if (status == PILOT_NO_DEVICE)
        status = pilot_cpu_init(&cpu, cpu_arena, sizeof cpu_arena, NULL);
    printf("%s, %d x %d: by %s\n", c->name, c->width, c->height, cpu ? "the processor" : "OpenCL");

    aim(tfm, c, 0.6f);
    aim(big_tfm, c, 1.0f);
    pilot_run_outputs out = {vision, policy};
    const pilot_run_inputs in = {frame[0], frame[1], tfm, big_tfm, desire, traffic_convention,
                                 c->width, c->height, c->stride, c->uv, c->bytes};
    for (int i = 0; i < a.frames && status == PILOT_OK; i++) {
        bool drop = a.drop > 0 && i % a.drop == a.drop - 1;
        for (int k = 0; k < 2; k++) {
            draw(frame[k], c, i, k ? 60 : 25);
            if (!cpu)               /* a camera writes into these buffers itself */
                clEnqueueWriteBuffer(device.queue, device.frame[k], 1, 0, (size_t)c->bytes,
                                     frame[k], 0, NULL, NULL);
        }
        desire[1] = i % 4 == 3;
        double begin = milliseconds();
        status = cpu ? run_on_cpu(cpu, drop, &in, &out) : run_on_device(&device, drop, &in, &out);
        printf("frame %d: %.1f ms%s\n", i, milliseconds() - begin, drop ? ", queued alone" : "");
    }
    if (status == PILOT_OK)
        print_parts(&out);
    else
        fprintf(stderr, "pilot: %s\n", pilot_strerror(status));
    if (cpu)
        pilot_cpu_close(cpu);
    close_device(&device);
    return status != PILOT_OK;
}
