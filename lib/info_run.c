/* info_run.c - what a run takes, of an entry or of all of them together (-1): kernels, operations,
 * and of the device that kernels are for its launches, bytes, images, time. */
#include "lib/lib.h"
#include "passes/analysis/kernel_cost.h"

void info_run_write_device(struct text *x, const struct schedule *s, int entry)
{
    const struct device_run run = device_run(x->t, s, entry);
    text_printf(x,
                "device: %s, %d launches, %.4g KB moved, %.4g KB at least, %.4g KB of local "
                "memory, predicted %.4g us\n",
                x->t->device->text, run.launches, run.moved / 1024, run.least / 1024,
                run.local_nbytes / 1024, run.ns / 1000);
    if (!x->t->image)
        return;
    const struct image_use use = image_use(x->t, s, entry);
    text_printf(x,
                "images: %d tensors, and %d that are buffers; %d image reads in the kernels, %d of "
                "them gated\n",
                use.images, use.buffers, use.reads, use.gated);
}

void info_run_write_device_json(struct text *x, const struct schedule *s, int entry)
{
    const struct device_run run = device_run(x->t, s, entry);
    text_printf(x,
                "{\"row\":\"%s\",\"launches\":%d,\"moved_bytes\":%.0f,\"least_bytes\":%.0f,\"asked_"
                "bytes\":%.0f,"
                "\"local_bytes\":%.0f,\"predicted_us\":%.4g",
                x->t->device->text, run.launches, run.moved, run.least, run.asked, run.local_nbytes,
                run.ns / 1000);
    if (x->t->image) {
        const struct image_use use = image_use(x->t, s, entry);
        text_printf(x, ",\"images\":%d,\"buffers\":%d,\"image_reads\":%d,\"gated_image_reads\":%d",
                    use.images, use.buffers, use.reads, use.gated);
    }
    text_putc(x, '}');
}

void info_run_write(struct text *x, const struct schedule *s, int entry)
{
    const struct run_use use = run_use(x->t, s, entry);
    text_printf(x, "    %s: %d kernels, %.4g FLOP", s->graph->entry[entry].name, use.kernels,
                use.flop);
    if (x->t->device) {
        const struct device_run run = device_run(x->t, s, entry);
        text_printf(x, ", %.4g KB moved, %.4g KB at least, predicted %.4g us", run.moved / 1024,
                    run.least / 1024, run.ns / 1000);
    }
    if (x->t->image) {
        const struct image_use images = image_use(x->t, s, entry);
        text_printf(x, ", %d image reads, %d of them gated", images.reads, images.gated);
    }
    text_putc(x, '\n');
}

void info_run_write_json(struct text *x, const struct schedule *s, int entry)
{
    const struct run_use use = run_use(x->t, s, entry);
    text_printf(x, "\"kernels\":%d,\"flop\":%.17g", use.kernels, use.flop);
    if (x->t->device) {
        text_puts(x, ",\"device\":");
        info_run_write_device_json(x, s, entry);
    }
    text_putc(x, '}');
}
