/* cmd_cache.c - tgc cache: where compiled models are kept, and how much that is. */
#include "cli/cli.h"
#include "backends/program/program.h"
#include "lib/cache.h"

enum exit_status cmd_cache(struct tgc *t, const struct options *o)
{
    const char *why;
    struct cache *c = cache_open(t, &why);
    if (!c) {
        diag_error(t, NULL, "there is no cache: %s", why);
        return EXIT_FAILED;
    }
    bool ok = !o->clear || cache_clear(c);
    struct cache_size size = cache_measure(c);
    struct text x = {.t = t};
    text_printf(&x, "%s: %d files, ", cache_path(c), size.nfile);
    text_bytes(&x, (double)size.nbytes);
    print_escaped(stdout, x.s);
    putchar('\n');
    cache_close(c);
    if (!ok)
        diag_error(t, &(struct place){.file = cache_path(c)}, "some files cannot be removed");
    return ok ? EXIT_DONE : EXIT_FAILED;
}
