/* cmd_cache.c - tgc cache: where compiled models are kept, and how much that is. */
#include "cli/cli.h"
#include "backends/program/program.h"
#include "lib/cache.h"

static enum exit_status use_folder(struct tgc *t, const struct options *o, struct cache *c)
{
    const char *why, *path = o->folder_use == OPTION_FOLDER ? cache_folder_make(c, o->folder, &why)
                             : o->folder_use == OPTION_SEAL
                                 ? cache_folder_seal(c, o->folder, &why)
                                 : cache_folder_check(c, o->folder, &why);
    if (path)
        puts(path);                    /* as it is: another program reads it */
    else
        diag_error(t, &(struct place){.file = mem_printf(t, "%s/%s", cache_path(c), o->folder)},
                   "%s", why);
    return path ? EXIT_DONE : EXIT_FAILED;
}

static bool clear(struct tgc *t)
{
    const char *why = NULL;
    if (!cache_clear(t, &why))
        return diag_error(t, NULL, "the cache is not cleared: %s", why);
    return true;
}

enum exit_status cmd_cache(struct tgc *t, const struct options *o)
{
    const char *why;
    if (o->clear && !clear(t))
        return EXIT_FAILED;
    struct cache *c = cache_open(t, &why);
    if (!c) {
        diag_error(t, NULL, "there is no cache: %s", why);
        return EXIT_FAILED;
    }
    if (o->folder) {
        enum exit_status status = use_folder(t, o, c);
        cache_close(c);
        return status;
    }
    struct cache_size size = cache_measure(c);
    struct text x = {.t = t};
    text_printf(&x, "%s: %d files, ", cache_path(c), size.nfile);
    text_bytes(&x, (double)size.nbytes);
    print_escaped(stdout, x.s);
    putchar('\n');
    cache_close(c);
    return EXIT_DONE;
}
