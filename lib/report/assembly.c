/* assembly.c - what a C compiler makes of the sources that the page shows, line by line.
 *
 * The program is compiled with -g to an object, and objdump says of each instruction which line it
 * is of, and into which lines that was inlined. The first of these in a kernel's text is its line.
 * source: objdump -d -l --inlines, binutils 2.34 and later.
 */
#include "lib/report/report.h"

#include "backends/process.h"
#include "backends/program/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { INSTRUCTIONS_MOST = 6000 };       /* of one function */

/* Of one source: its first line in the file and how many, and its instructions. */
struct listing {
    long first, n;
    struct text lines, text;
    int count;
};
struct reader {
    struct tgc *t;
    struct listing *of;
    int n, now;                  /* whose instructions follow; -1: nobody's */
    long line;                   /* of it, from 1 on */
    const char *suffix;          /* "/NAME.c:" */
};

static long count_lines(const char *s, size_t n)
{
    long lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += s[i] == '\n';
    return lines;
}

static struct listing *find_listings(struct tgc *t, const struct text *c,
                                     const struct program_source *source, int n)
{
    struct listing *of = mem_array(t, (size_t)n + 1, sizeof *of);
    for (int i = 0; i < n; i++) {
        const char *at = strstr(c->s, source[i].text);
        of[i] = (struct listing){.lines = {.t = t}, .text = {.t = t}};
        if (!at)
            TGC_BUG(t, "the text of %s is not in the program", source[i].kernel->name);
        of[i].first = count_lines(c->s, (size_t)(at - c->s)) + 1;
        of[i].n = count_lines(source[i].text, strlen(source[i].text)) + 1;
    }
    return of;
}

/* "/tmp/x/NAME.c:123", or "inlined by " before it: whose line that is. */
static void read_place(struct reader *r, const char *s, bool inlined)
{
    const char *at = strstr(s, r->suffix);
    long line = at ? strtol(at + strlen(r->suffix), NULL, 10) : 0;
    int found = -1;
    for (int i = 0; i < r->n && line; i++)
        if (line >= r->of[i].first && line < r->of[i].first + r->of[i].n)
            found = i;
    if (inlined && (r->now >= 0 || found < 0))
        return;
    r->now = found;
    r->line = found < 0 ? 0 : line - r->of[found].first + 1;
}

/* "    12b3:\tjs     21e9 <conv2d_2+0xf69>", with its address and target as the object has them. */
static void read_instruction(struct reader *r, const char *s)
{
    const char *text = strchr(s, '\t');
    struct listing *l = r->now >= 0 ? &r->of[r->now] : NULL;
    if (!text || !l || l->count++ >= INSTRUCTIONS_MOST)
        return;
    text_printf(&l->lines, "%s%ld", l->lines.n ? "," : "", r->line);
    text_printf(&l->text, "%s\n", text + 1);
}

static void read_lines(struct reader *r, char *s)
{
    bool fresh = true;           /* no place since the last instruction */
    for (char *end; *s; s = end) {
        end = s + strcspn(s, "\n");
        end += *end ? (*end = 0, 1) : 0;
        bool inlined = strncmp(s, "inlined by ", 11) == 0;
        if (*s == ' ' && strchr(s, '\t')) {
            read_instruction(r, s);
            fresh = true;
        } else if (*s == '/' || inlined) {
            read_place(r, s, inlined && !fresh);
            fresh = false;
        }
    }
}

static const char *disassembly_of(struct tgc *t, const char *dir, const char *object)
{
    static const char *const word[] = {"objdump", "-d", "-l", "--inlines", "--no-show-raw-insn",
#ifdef __x86_64__
                                       "-M", "intel",
#endif
                                       NULL, NULL};
    const char *words[sizeof word / sizeof *word], *path = mem_printf(t, "%s/text", dir);
    struct held *held;
    size_t n = 0, nbytes;
    for (; word[n]; n++)
        words[n] = word[n];
    words[n] = object;
    words[n + 1] = NULL;
    FILE *f = held_fopen(t, path, "we", &held);
    if (!f)
        return NULL;
    int status = process_run(t, &(struct process){.word = words, .file = {-1, fileno(f), -1}});
    held_release(held);
    return status == 0 ? tg_load(t, path, &nbytes) : NULL;
}

/* The program as an object, with lines; false: reported. */
static bool compile_lines(struct tgc *t, const char *dir, const char *name, const struct text *c,
                          const struct text *h)
{
    static const char *const flags[] = {"-g"};
    struct outputs *inside = outputs_new(t);
    struct compile_request r = {.kind = BINARY_OBJECT,
                                .source = mem_printf(t, "%s/%s.c", dir, name),
                                .out_path = mem_printf(t, "%s/%s.o", dir, name),
                                .temporary = dir,
                                .subject = name,
                                .flags = flags,
                                .nflag = 1};
    bool ok = outputs_put(inside, r.source, c) &&
              outputs_put(inside, mem_printf(t, "%s/%s.h", dir, name), h) &&
              outputs_commit(inside);
    progress(t, "%s: the C compiler, for the report's assembly", name);
    ok = ok && compile_c(t, &r);
    progress_end(t);
    outputs_discard(inside);
    return ok;
}

static void put_listings(struct text *out, const struct reader *r,
                         const struct program_source *source)
{
    const char *cc = compiler_of_environment();
    bool any = false;
    text_puts(out, ",\n\"assembly\":{\"by\":");
    text_json(out, mem_printf(r->t, "%s -O2 -g", cc ? cc : "cc"));
    text_puts(out, ",\"kernels\":[");
    for (int i = 0; i < r->n; i++) {
        if (!r->of[i].count)
            continue;
        text_puts(out, any ? ",\n{\"kernel\":" : "{\"kernel\":");
        text_json(out, source[i].kernel->name);
        text_printf(out, ",\"isa\":\"%s\",\"left_out\":%d,\"lines\":[%s],\"text\":",
                    isa_table[source[i].isa].text,
                    r->of[i].count > INSTRUCTIONS_MOST ? r->of[i].count - INSTRUCTIONS_MOST : 0,
                    r->of[i].lines.s);
        text_json(out, r->of[i].text.s);
        text_putc(out, '}');
        any = true;
    }
    text_puts(out, "]}");
}

bool report_can_disassemble(struct tgc *t)
{
    const char *cc = compiler_of_environment();
    cc = cc ? mem_printf(t, "%.*s", (int)strcspn(cc, " "), cc) : "cc";
    return program_is_on_path(t, "objdump") && (strchr(cc, '/') || program_is_on_path(t, cc));
}

bool report_assembly(struct text *out, struct tgc *t, const char *name, const struct text *c,
                     const struct text *h, const struct program_source *source, int n)
{
    struct held *held;
    const char *dir = directory_make(t, &held);
    if (!dir)
        return false;
    struct reader r = {.t = t,
                       .of = find_listings(t, c, source, n),
                       .n = n,
                       .now = -1,
                       .suffix = mem_printf(t, "/%s.c:", name)};
    bool ok = compile_lines(t, dir, name, c, h);
    const char *text = ok ? disassembly_of(t, dir, mem_printf(t, "%s/%s.o", dir, name)) : NULL;
    held_release(held);
    if (!ok)
        return false;
    if (!text) {
        diag_warn(t, NULL, "the report has no assembly: objdump failed");
        return true;
    }
    read_lines(&r, mem_str(t, text));
    put_listings(out, &r, source);
    return true;
}
