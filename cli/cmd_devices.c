/* cmd_devices.c - tgc devices: what programs for devices would find here. */
#include "cli/cli.h"
#include "backends/program/program.h"

#include <string.h>

static void put_bytes(struct text *x, const char *what, uint64_t nbytes)
{
    text_puts(x, ", ");
    text_bytes(x, (double)nbytes);
    text_puts(x, what);
}

/* What a driver says, in one line. */
static void put_words(struct text *x, const char *s)
{
    for (; *s; s++)
        text_putc(x, *s == '\n' ? ' ' : *s);
}

static void put_device(struct text *x, const struct device_facts *d)
{
    text_printf(x, "%s %d: ", d->target, d->number);
    put_words(x, mem_printf(x->t, "%s, %s", d->name, d->vendor));
    text_printf(x, "\n    %s, ", d->kind);
    put_words(x, mem_printf(x->t, "%s, driver %s", d->version, d->driver));
    text_printf(x, "\n    %llu unit%s", (unsigned long long)d->units, d->units == 1 ? "" : "s");
    put_bytes(x, "", d->memory_bytes);
    if (d->buffer_bytes != d->memory_bytes)
        put_bytes(x, " in a buffer", d->buffer_bytes);
    put_bytes(x, " of local memory", d->local_bytes);
    text_printf(x, ", work-groups of %llu\n    ", (unsigned long long)d->work_group);
    if (d->image_width)
        text_printf(x, "images of %llux%llu", (unsigned long long)d->image_width,
                    (unsigned long long)d->image_height);
    else
        text_puts(x, "no images");
    if (d->image_pitch)
        text_printf(x, ", rows of %llu pixels", (unsigned long long)d->image_pitch);
    text_printf(x, ", %s, %s\n", d->halves ? "f16" : "no f16", d->doubles ? "f64" : "no f64");
}

static void put_json(struct text *x, const struct device_facts *d)
{
    const struct { const char *key, *text;
    } texts[] = {{"kind", d->kind},
                 {"name", d->name},
                 {"vendor", d->vendor},
                 {"version", d->version},
                 {"driver", d->driver}};
    const struct { const char *key; uint64_t value;
    } numbers[] = {{"units", d->units},
                   {"work_group", d->work_group},
                   {"memory_bytes", d->memory_bytes},
                   {"buffer_bytes", d->buffer_bytes},
                   {"local_bytes", d->local_bytes},
                   {"image_width", d->image_width},
                   {"image_height", d->image_height},
                   {"image_pitch", d->image_pitch}};
    text_printf(x, "{\"target\":\"%s\",\"number\":%d", d->target, d->number);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        text_printf(x, ",\"%s\":", texts[i].key);
        text_json(x, texts[i].text);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        text_printf(x, ",\"%s\":%llu", numbers[i].key, (unsigned long long)numbers[i].value);
    text_printf(x, ",\"f16\":%s,\"f64\":%s}", d->halves ? "true" : "false",
                d->doubles ? "true" : "false");
}

enum exit_status cmd_devices(struct tgc *t, const struct options *o)
{
    struct device_facts *list;
    int n;
    const char *none = devices_list(t, &list, &n), *no_cuda = devices_add_cuda(t, &list, &n);
    const char *no_amd = devices_add_amd(t, &list, &n);
    struct text x = {.t = t};
    text_puts(&x, o->json ? "[" : "");
    for (int i = 0; i < n; i++) {
        text_puts(&x, o->json && i ? "," : "");
        (o->json ? put_json : put_device)(&x, &list[i]);
    }
    if (o->json)
        text_puts(&x, "]\n");
    else {
        if (none)
            text_printf(&x, "no device of OpenCL: %s\n", none);
        if (no_cuda)
            text_printf(&x, "no device of CUDA: %s\n", no_cuda);
        if (no_amd)
            text_printf(&x, "no device of HIP: %s\n", no_amd);
        text_puts(&x, "devices of Metal are not listed: they need macOS, where NAME_options.device "
                      "counts those of "
                      "MTLCopyAllDevices() from 1\n");
    }
    for (const char *line = x.s, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        print_escaped(stdout, mem_printf(t, "%.*s", (int)(end - line), line));
        putchar('\n');
    }
    return EXIT_DONE;
}
