/* amd.c - the model net in a program that uses HIP itself (shared_run.h): on the second of two
 * devices, which is a context, too; what does not go together is refused.
 */
#include "shared_run.h"

static struct {
    int (*get_device)(int *device);
    int (*set_device)(int device);
    int (*get_context)(void **context);
} hip;

/* A context is a device's; without one it is the first device's. */
static int has_context(void *wanted)
{
    void *now = NULL;
    int device = -1;
    if (hip.get_context(&now) != 0 || hip.get_device(&device) != 0)
        return 0;
    return wanted ? now == wanted : device == 0;
}

static int init_status(void *context, void *stream, int device)
{
    net *model;
    net_options options;
    memset(&options, 0, sizeof options);
    options.context = context;
    options.queue = stream;
    options.device = device;
    options.on_error = note_error;
    int status = net_init(&model, arena, sizeof arena, &options);
    if (status == NET_OK)
        net_close(model);
    return status;
}

int main(void)
{
    static const char *const name[] = {"hipInit",
                                       "hipStreamCreateWithFlags",
                                       "hipStreamDestroy",
                                       "hipMalloc",
                                       "hipFree",
                                       "hipMemcpyHtoD",
                                       "hipMemcpyDtoH",
                                       "hipEventSynchronize",
                                       "hipEventDestroy",
                                       "hipStreamBeginCapture",
                                       "hipStreamEndCapture",
                                       "hipGraphInstantiateWithFlags",
                                       "hipGraphLaunch",
                                       "hipGraphExecDestroy",
                                       "hipGraphDestroy",
                                       "hipStreamSynchronize"};
    static const char *const own[] = {"hipGetDevice", "hipSetDevice", "hipCtxGetCurrent"};
    float picture[64], wanted[10];
    void *first, *second, *stream;
    for (int i = 0; i < 64; i++)
        picture[i] = (float)(i % 17) / 16;
    load("libamdhip64.so.6", name, sizeof name / sizeof *name, &driver);
    load("libamdhip64.so.6", own, sizeof own / sizeof *own, &hip);
    expect(driver.init && driver.init(0) == 0, "the driver");
    run_alone(picture, wanted);
    expect(hip.get_context(&first) == 0 && hip.set_device(1) == 0 && hip.get_context(&second) == 0,
           "contexts");
    expect(driver.create_stream(&stream, 0) == 0, "a stream");
    run_shared(second, second, stream, picture, wanted);
    run_shared(second, NULL, stream, picture, wanted);
    run_captured(stream, picture, wanted);
    run_by_handle(second, second, picture, wanted);
    run_by_handle(second, NULL, picture, wanted);
    expect(hip.set_device(0) == 0 && init_status(second, NULL, 0) == NET_OK && has_context(first),
           "a context that is not the thread's");
    expect(init_status(NULL, stream, 2) == NET_OK && has_context(first),
           "the stream's device by its number");
    expect(init_status(first, stream, 0) == NET_BAD_OPTIONS, "a stream of another device");
    expect(init_status(second, NULL, 1) == NET_BAD_OPTIONS, "a context of another device");
    expect(init_status(NULL, NULL, 7) == NET_NO_DEVICE && has_context(first),
           "a device that is not there");
    expect(hip.set_device(1) == 0 && driver.destroy_stream(stream) == 0, "the stream's end");
    puts("right");
    return 0;
}
