/* choices.c - what the page says of the model's blocks, and of convolutions by Winograd's tiles:
 * tables that need no script. */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- blocks */

/* Nodes whose names are paths ("/encoder/layer_3/ln_1/Mul") stand in blocks. A block is what begins
 * with the same parts of a path, up to a depth. */
enum { DEPTH_MOST = 6, BLOCKS_MOST = 40 };

struct block { const char *name; double us, flop; int kernels, longest; };
struct blocks { struct block *v; int n; bool grouped; };

/* Bytes of a path's first `depth` parts, less if the last part, the node's own, is among them. */
static size_t prefix_of(const char *name, int depth)
{
    const char *at = name, *end = name;
    for (int i = 0; i < depth; i++) {
        at += strspn(at, "/");
        const char *next = at + strcspn(at, "/");
        if (!*next)
            break;
        at = end = next;
    }
    return (size_t)(end - name);
}

/* In the order of their first kernels. */
static struct blocks blocks_at(const struct page *p, int depth)
{
    struct dict seen = {0};
    struct blocks b = {.v = mem_array(p->t, (size_t)p->nkernel + 1, sizeof *b.v)};
    for (int i = 0; i < p->nkernel; i++) {
        int node = page_main_node(p, i);
        const char *name = node >= 0 ? json_string(p->node[node], "name") : "";
        size_t n = prefix_of(name, depth);
        const char *prefix = mem_printf(p->t, "%.*s", (int)n, name);
        uintptr_t *at = (uintptr_t *)dict_enter(p->t, &seen, prefix);
        if (!*at) {
            b.v[b.n++] = (struct block){.name = prefix, .longest = i};
            *at = (uintptr_t)b.n;
        }
        struct block *one = &b.v[*at - 1];
        b.grouped |= n > 0 && one->kernels > 0;
        one->us += p->us[i];
        one->flop += json_number(p->kernel[i], "flop");
        one->longest = p->us[i] > p->us[one->longest] ? i : one->longest;
        one->kernels++;
    }
    return b;
}

/* The deepest blocks of which there are few enough to read. */
static struct blocks find_blocks(const struct page *p)
{
    for (int depth = DEPTH_MOST; depth > 0; depth--) {
        struct blocks b = blocks_at(p, depth);
        if (b.grouped && b.n > 1 && b.n <= BLOCKS_MOST)
            return b;
    }
    return (struct blocks){0};
}

void view_blocks(struct text *out, const struct page *p)
{
    struct blocks b = find_blocks(p);
    double most = 0;
    for (int i = 0; i < b.n; i++)
        most = b.v[i].us > most ? b.v[i].us : most;
    if (!b.n)
        return;
    table_begin(out, "blocks", "Blocks of the model, by the names of its nodes",
                "Block|#Share|#Time|#Work|#Kernels|Its longest kernel");
    for (int i = 0; i < b.n; i++) {
        text_puts(out, "<tr><th scope=\"row\">");
        html_put(out, *b.v[i].name ? b.v[i].name : "outside of blocks");
        text_puts(out, "</th>");
        cell_bar(out, p->total > 0 ? b.v[i].us / p->total : 0, p->total > 0 ? most / p->total : 0);
        cell_number(out, b.v[i].us, view_time(p->t, b.v[i].us));
        cell_number(out, b.v[i].flop, view_flop(p->t, b.v[i].flop));
        cell_number(out, b.v[i].kernels, mem_printf(p->t, "%d", b.v[i].kernels));
        text_puts(out, "<td>");
        html_kernel(out, json_string(p->kernel[b.v[i].longest], "name"));
        text_puts(out, "</td></tr>\n");
    }
    table_end(out);
}

/* ------------------------------------------------------------------------------------- Winograd */

/* "winograd 27c1 side=4x2": the tile's sides, "6 along the width" of "0x6"; "": sums of products, or
 * one product for each tap. */
static const char *sides_of(struct tgc *t, const char *line)
{
    const char *at = strstr(line, " side=");
    size_t n = at ? strcspn(at += strlen(" side="), " ") : 0;
    size_t by = n ? strcspn(at, "x") : 0;
    if (n <= strspn(at ? at : "", "0x"))
        return "";
    if (by < n && *at == '0')
        return mem_printf(t, "%.*s along the width", (int)(n - by - 1), at + by + 1);
    if (by + 2 == n && at[by + 1] == '0')
        return mem_printf(t, "%.*s along the height", (int)by, at);
    return mem_printf(t, "%.*s", (int)n, at);
}

/* us of the candidate that was taken, or of the one without tiles; -1: none such. */
static double cost_of(struct tgc *t, const struct json *choice, bool taken)
{
    const struct json *list = json_get(choice, "candidates"), *cost = json_get(choice, "us");
    const struct json *us = cost && cost->kind == JSON_LIST ? cost->child : NULL;
    const struct json *line = list && list->kind == JSON_LIST ? list->child : NULL;
    for (; us && line; us = us->next, line = line->next) {
        if (line->kind != JSON_STRING || us->kind != JSON_NUMBER)
            continue;
        if (taken ? !strcmp(line->string, json_string(choice, "taken"))
                  : !*sides_of(t, line->string) && !strstr(line->string, "apart"))
            return us->number;
    }
    return -1;
}

static void put_convolution(struct text *out, const struct page *p, const struct json *choice)
{
    double us = cost_of(p->t, choice, true), without = cost_of(p->t, choice, false),
           share = json_number(choice, "error_share"),
           all = json_number(json_get(p->d, "error"), "estimate");
    text_puts(out, "<tr><th scope=\"row\">");
    html_put(out, *json_string(choice, "node") ? json_string(choice, "node") : "a convolution");
    text_puts(out, "</th>");
    cell_text(out, sides_of(p->t, json_string(choice, "taken")));
    cell_number(out, us, us >= 0 ? view_time(p->t, us) : "");
    cell_number(out, without, without >= 0 ? view_time(p->t, without) : "");
    cell_bar(out, share, 1);
    cell_number(out, share * all, mem_printf(p->t, "%.2g", share * all));
    text_puts(out, "</tr>\n");
}

/* What the tiles save, and what they cost in accuracy. */
void view_winograd(struct text *out, const struct page *p)
{
    int n, rows = 0;
    const struct json **choice = json_elements(p->t, json_get(p->d, "choices"), &n);
    const struct json *error = json_get(p->d, "error");
    for (int i = 0; i < n; i++) {
        if (!json_get(choice[i], "us") || !*sides_of(p->t, json_string(choice[i], "taken")))
            continue;
        if (rows++ == 0)
            table_begin(out, "winograd", "Convolutions by Winograd&#39;s tiles, by the cost model",
                        "Layer|Tile|#Time|#Without tiles|#Share of the error|#Error");
        put_convolution(out, p, choice[i]);
    }
    if (!rows)
        return;
    table_end(out);
    text_printf(out, "<p class=\"note\">All tiles together add an error of about %.2g of the largest "
                     "output to what f32 rounds anyway; --error allows %.2g. --no-winograd makes none."
                     "</p>\n",
                json_number(error, "estimate"), json_number(error, "limit"));
}
