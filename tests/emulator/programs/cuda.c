/* cuda.c - the model net in a program that uses CUDA itself (shared_run.h); what does not go
 * together is refused.
 */
#include "shared_run.h"

static struct {
    int (*create_context)(void **context, unsigned flags, int device);
    int (*destroy_context)(void *context);
    int (*get_current)(void **context);
} cu;

static int has_context(void *wanted)
{
    void *now = NULL;
    return cu.get_current(&now) == 0 && now == wanted;
}

int main(void)
{
    static const char *const name[] = {"cuInit",
                                       "cuStreamCreate",
                                       "cuStreamDestroy_v2",
                                       "cuMemAlloc_v2",
                                       "cuMemFree_v2",
                                       "cuMemcpyHtoD_v2",
                                       "cuMemcpyDtoH_v2",
                                       "cuEventSynchronize",
                                       "cuEventDestroy_v2",
                                       "cuStreamBeginCapture_v2",
                                       "cuStreamEndCapture",
                                       "cuGraphInstantiateWithFlags",
                                       "cuGraphLaunch",
                                       "cuGraphExecDestroy",
                                       "cuGraphDestroy",
                                       "cuStreamSynchronize"};
    static const char *const own[] = {"cuCtxCreate_v2", "cuCtxDestroy_v2", "cuCtxGetCurrent"};
    float picture[64], wanted[10];
    void *context, *other, *stream;
    net *model;
    for (int i = 0; i < 64; i++)
        picture[i] = (float)(i % 17) / 16;
    load("libcuda.so.1", name, sizeof name / sizeof *name, &driver);
    load("libcuda.so.1", own, sizeof own / sizeof *own, &cu);
    expect(driver.init && driver.init(0) == 0, "the driver");
    run_alone(picture, wanted);
    expect(cu.create_context(&other, 0, 0) == 0 && cu.create_context(&context, 0, 0) == 0,
           "contexts");
    expect(driver.create_stream(&stream, 0) == 0, "a stream");
    run_shared(context, context, stream, picture, wanted);
    run_shared(context, NULL, stream, picture, wanted);
    run_captured(stream, picture, wanted);
    run_by_handle(context, other, picture, wanted);
    run_by_handle(context, NULL, picture, wanted);
    net_options options;
    memset(&options, 0, sizeof options);
    options.queue = stream;
    options.context = other;
    expect(net_init(&model, arena, sizeof arena, &options) == NET_BAD_OPTIONS,
           "a stream of another context");
    options = (net_options){.device = 7};
    expect(net_init(&model, arena, sizeof arena, &options) == NET_NO_DEVICE,
           "a device that is not there");
    driver.destroy_stream(stream);
    cu.destroy_context(context);
    cu.destroy_context(other);
    puts("right");
    return 0;
}
