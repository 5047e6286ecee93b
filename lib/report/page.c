/* page.c - the page of a document: its head, its sections (views.c), the document itself, script.
 *
 * The policy in the head allows the one style and the one script whose hashes it names, and nothing
 * that is loaded. The document is a block of data, which no browser runs; in it "<" and the line
 * separators of Unicode are escapes, so no name of a model's ends the block. source: CSP Level 3;
 * HTML, 4.12.1.3.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"
#include "lib/digest.h"
#include "lib/report/report_page.inc"

#include <string.h>

const struct json **json_elements(struct tgc *t, const struct json *list, int *n)
{
    const struct json **v = mem_array(t, list ? (size_t)list->n + 1 : 1, sizeof *v);
    *n = 0;
    if (!list || list->kind != JSON_LIST)
        return v;
    for (const struct json *c = list->child; c; c = c->next)
        v[(*n)++] = c;
    return v;
}

/* 'sha256-...', as a policy names what may run. source: RFC 4648, 4 */
static void put_hash(struct text *out, const char *s, size_t nbytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char sum[DIGEST_NBYTES + 1] = {0};
    digest_sha256(s, nbytes, sum);
    text_puts(out, "'sha256-");
    for (int i = 0; i < DIGEST_NBYTES; i += 3) {
        unsigned v = (unsigned)sum[i] << 16 | (unsigned)sum[i + 1] << 8 |
                     (i + 2 < DIGEST_NBYTES ? sum[i + 2] : 0u);
        for (int k = 18; k >= 0; k -= 6)
            text_putc(out, k == 0 && i + 2 >= DIGEST_NBYTES ? '=' : digits[v >> k & 63]);
    }
    text_putc(out, '\'');
}

void page_begin(struct text *out, const char *title, const char *heading)
{
    text_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "base-uri 'none'; form-action 'none'; style-src ");
    put_hash(out, page_css, sizeof page_css);
    text_puts(out, "; script-src ");
    put_hash(out, page_js, sizeof page_js);
    text_puts(out, "\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    html_put(out, title);
    text_puts(out, "</title>\n<style>");
    text_write(out, page_css, sizeof page_css);
    text_puts(out, "</style>\n</head>\n<body>\n<header>\n<h1>");
    html_put(out, title);
    text_puts(out, "</h1>\n<p>");
    html_put(out, heading);
    text_puts(out, "</p>\n</header>\n");
}

/* JSON as it stands, but for what could end the block: only in strings can these characters be. */
static void put_data(struct text *out, const char *s, size_t nbytes)
{
    text_puts(out, "<script type=\"application/json\" id=\"document\">");
    for (size_t i = 0; i < nbytes; i++) {
        bool separates = nbytes - i > 2 && memcmp(s + i, "\xe2\x80", 2) == 0 &&
                         ((unsigned char)s[i + 2] == 0xa8 || (unsigned char)s[i + 2] == 0xa9);
        if (s[i] == '<' || s[i] == '>' || s[i] == '&')
            text_printf(out, "\\u%04x", (unsigned)s[i]);
        else if (separates)
            text_printf(out, "\\u20%02x", (unsigned char)s[i += 2] - 0x80u);
        else
            text_putc(out, s[i]);
    }
    text_puts(out, "</script>\n");
}

void page_end(struct text *out, const char *json, size_t nbytes)
{
    text_puts(out, "</main>\n<footer>Made by tgc " TGC_VERSION ". This file needs no network.</footer>\n");
    if (json)
        put_data(out, json, nbytes);
    text_puts(out, "<script>");
    text_write(out, page_js, sizeof page_js);
    text_puts(out, "</script>\n</body>\n</html>\n");
}

/* What a page reads of a document; of: the kind of a list's elements. */
static const struct { const char *key; enum json_kind kind, of; const char *expected; } parts[] = {
    {"name", JSON_STRING, JSON_NULL, "a string"},
    {"machine", JSON_OBJECT, JSON_NULL, "an object"},
    {"error", JSON_OBJECT, JSON_NULL, "an object"},
    {"entries", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"opts", JSON_OBJECT, JSON_NULL, "an object"},
    {"kernel_list", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"kernel_nodes", JSON_LIST, JSON_LIST, "a list of lists"},
    {"buffers", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"steps", JSON_LIST, JSON_STRING, "a list of strings"},
    {"nodes", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"edges", JSON_LIST, JSON_LIST, "a list of pairs"},
    {"choices", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"compared", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"schedules", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"sources", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"passes", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"changes", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"rules", JSON_LIST, JSON_OBJECT, "a list of objects"},
    {"advice", JSON_LIST, JSON_OBJECT, "a list of objects"},
};

static bool has_part(const struct json *v, enum json_kind kind, enum json_kind of)
{
    if (!v || v->kind != kind)
        return false;
    for (const struct json *c = kind == JSON_LIST ? v->child : NULL; c; c = c->next)
        if (c->kind != of)
            return false;
    return true;
}

static bool check_parts(struct tgc *t, const struct place *at, const struct json *d)
{
    const struct json *bench = json_get(d, "bench");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!has_part(json_get(d, parts[i].key), parts[i].kind, parts[i].of))
            return diag_error(t, at, "is a damaged report: \"%s\" is to be %s; make it anew",
                              parts[i].key, parts[i].expected);
    for (const struct json *k = json_get(d, "kernel_list")->child; k; k = k->next)
        if (!has_part(json_get(k, "reads"), JSON_LIST, JSON_OBJECT) ||
            !has_part(json_get(k, "writes"), JSON_LIST, JSON_OBJECT))
            return diag_error(t, at, "is a damaged report: a kernel needs \"reads\" and \"writes\", "
                                     "lists of objects; make it anew");
    const struct json *assembly = json_get(d, "assembly");
    if (assembly && (!bench || !has_part(json_get(assembly, "kernels"), JSON_LIST, JSON_OBJECT)))
        return diag_error(t, at, "is a damaged report: \"assembly\" needs \"bench\", and "
                                 "\"kernels\", a list of objects; make it anew");
    return !bench || has_part(json_get(bench, "kernel_times"), JSON_LIST, JSON_OBJECT) ||
           diag_error(t, at, "is a damaged report: \"bench\" needs \"kernel_times\", a list of "
                             "objects; make it anew");
}

const struct json *page_read(struct tgc *t, const char *file, const char *json, size_t nbytes)
{
    const struct place at = {.file = file};
    const struct json *d = json_read(t, file, json, nbytes);
    double version = json_number(d, "version");
    if (!d)
        return NULL;
    if (strcmp(json_string(d, "format"), "tgc-report") != 0)
        diag_error(t, &at, "is JSON, but no report of tgc's: \"format\": \"tgc-report\" is expected; "
                           "tgc MODEL -o m.json writes one, and tgc bench MODEL -o m.json");
    else if (version != REPORT_VERSION)
        diag_error(t, &at, "is a report of version %g, by %.80s; this tgc reads version %d: make it "
                           "anew, or read it with the tgc that wrote it",
                   version, *json_string(d, "producer") ? json_string(d, "producer") : "nobody",
                   REPORT_VERSION);
    else if (check_parts(t, &at, d))
        return d;
    return NULL;
}

void page_of(struct page *p, struct tgc *t, const struct json *d)
{
    int nnodes, ntime;
    const struct json **nodes = json_elements(t, json_get(d, "kernel_nodes"), &nnodes);
    *p = (struct page){.t = t, .d = d};
    p->kernel = json_elements(t, json_get(d, "kernel_list"), &p->nkernel);
    p->node = json_elements(t, json_get(d, "nodes"), &p->nnode);
    const struct json **time = json_elements(t, json_get(json_get(d, "bench"), "kernel_times"),
                                             &ntime);
    p->measured = ntime > 0 && ntime == p->nkernel;
    p->us = mem_array(t, (size_t)p->nkernel + 1, sizeof *p->us);
    p->nodes = mem_array(t, (size_t)p->nkernel + 1, sizeof *p->nodes);
    for (int i = 0; i < p->nkernel; i++) {
        p->us[i] = p->measured ? json_number(time[i], "us")
                               : json_number(p->kernel[i], "predicted_us");
        p->total += p->us[i];
        p->most = p->us[i] > p->most ? p->us[i] : p->most;
        p->nodes[i] = i < nnodes ? nodes[i] : NULL;
    }
}

int page_main_node(const struct page *p, int kernel)
{
    const struct json *list = p->nodes[kernel];
    int node = list ? json_index(list->child) : -1;
    return node < p->nnode ? node : -1;
}

static const char *heading_of(const struct page *p)
{
    const struct json *machine = json_get(p->d, "machine"), *bench = json_get(p->d, "bench");
    double threads = json_number(p->d, "threads");
    struct text x = {.t = p->t};
    text_printf(&x, "%s, target %s, %g thread%s, -O%g. ", json_string(p->d, "model"),
                json_string(p->d, "target"), threads, threads == 1 ? "" : "s",
                json_number(p->d, "level"));
    if (p->measured)
        text_printf(&x, "Times were measured by tgc bench, run by %s; estimates are those of the "
                        "machine \"%s\".",
                    json_string(bench, "ran_by"), json_string(machine, "name"));
    else
        text_printf(&x, "Times are estimates for%s the machine \"%s\": nothing was run.",
                    threads > 1 ? " one thread of" : "", json_string(machine, "name"));
    if (*view_bounds(p))
        text_printf(&x, " Sizes, work and estimates are%s, the upper bound.", view_bounds(p) + 1);
    return x.s;
}

bool report_page(struct text *out, struct tgc *t, const char *file, const char *json,
                 size_t nbytes)
{
    struct page p;
    struct text training = {.t = t};
    const struct json *d = page_read(t, file, json, nbytes);
    if (!d)
        return false;
    page_of(&p, t, d);
    view_training(&training, &p);
    page_begin(out, json_string(d, "name"), heading_of(&p));
    text_puts(out, "<nav aria-label=\"Views\">\n<a href=\"#overview\">Overview</a>\n"
                   "<a href=\"#graph\">Graph</a>\n<a href=\"#kernels\">Kernels</a>\n"
                   "<a href=\"#memory\">Memory</a>\n");
    if (training.n)
        text_puts(out, "<a href=\"#training\">Training</a>\n");
    text_puts(out, "<a href=\"#passes\">Passes</a>\n</nav>\n<main>\n");
    view_overview(out, &p);
    view_graph(out, &p);
    view_kernels(out, &p);
    view_memory(out, &p);
    text_write(out, training.s, training.n);
    view_passes(out, &p);
    page_end(out, json, nbytes);
    return true;
}
