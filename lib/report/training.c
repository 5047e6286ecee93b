/* training.c - the page's view of a program that trains: forward and backward side by side, what is
 * kept for the backward pass, and what is computed again.
 *
 * All of it follows from which kernel of the training's run reads what another has stored:
 *
 *      forward    what a result of the run (the loss) depends on
 *      update     what stores parameters or the optimizer's state, or depends on no forward kernel
 *      backward   the others
 *
 * A backward kernel belongs to the forward kernel that computes the node of which it computes the
 * derivative, or which it computes again.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <stdlib.h>
#include <string.h>

enum phase { FORWARD, BACKWARD, UPDATE, PHASE_COUNT };

/* A kernel of the run, in its order. */
struct part {
    int kernel;                  /* of kernel_list */
    enum phase phase;
    int beside;                  /* BACKWARD: of the forward part to which it belongs; -1: none */
    bool again;                  /* BACKWARD: it computes what was computed before */
};
struct run {
    const struct page *p;
    struct part *part; int n;
    /* by buffer, below nbuffer: the part that has stored it last, -1: none; whether it is a
     * state's, a parameter, or a result of the run */
    int *writer, nbuffer;
    bool *is_state, *is_parameter, *is_result;
};

static int buffer_at(const struct run *r, const struct json *access)
{
    int id = json_index(json_get(access, "buffer"));
    return id < r->nbuffer ? id : -1;
}

static const struct json *accesses(const struct run *r, int part, const char *side)
{
    return json_get(r->p->kernel[r->part[part].kernel], side)->child;
}

static void note_buffers(struct run *r)
{
    const struct json *d = r->p->d, *states = json_get(d, "states");
    struct tgc *t = r->p->t;
    for (int i = 0; i < r->p->nkernel; i++)
        for (int side = 0; side < 2; side++)
            for (const struct json *a = json_get(r->p->kernel[i], side ? "reads" : "writes")->child;
                 a; a = a->next) {
                int id = json_index(json_get(a, "buffer"));
                r->nbuffer = id >= r->nbuffer && id < INT32_MAX ? id + 1 : r->nbuffer;
            }
    size_t n = (size_t)r->nbuffer + 1;
    r->writer = mem_array(t, n, sizeof *r->writer);
    r->is_state = mem_array(t, n, sizeof *r->is_state);
    r->is_parameter = mem_array(t, n, sizeof *r->is_parameter);
    r->is_result = mem_array(t, n, sizeof *r->is_result);
    memset(r->writer, -1, n * sizeof *r->writer);
    for (const struct json *s = states && states->kind == JSON_LIST ? states->child : NULL; s;
         s = s->next) {
        int in = json_index(json_get(s, "in")), to = json_index(json_get(s, "out"));
        if (in >= 0 && in < r->nbuffer)
            r->is_parameter[in] = strcmp(json_string(s, "block"), "parameters") == 0;
        if (to >= 0 && to < r->nbuffer)
            r->is_state[to] = true;
    }
    for (const struct json *b = json_get(d, "buffers")->child; b; b = b->next) {
        int id = json_index(json_get(b, "id"));
        if (id >= 0 && id < r->nbuffer)
            r->is_result[id] = strcmp(json_string(b, "kind"), "output") == 0;
    }
}

/* What the results of the run depend on is forward; buffers are stored once in a run. */
static void find_forward(struct run *r)
{
    for (int i = 0; i < r->n; i++)
        for (const struct json *a = accesses(r, i, "writes"); a; a = a->next) {
            int b = buffer_at(r, a);
            r->part[i].phase = b >= 0 && r->is_state[b] ? UPDATE : BACKWARD;
            if (b >= 0)
                r->writer[b] = i;
        }
    for (int i = r->n - 1; i >= 0; i--) {
        bool is_forward = r->part[i].phase == FORWARD;
        for (const struct json *a = accesses(r, i, "writes"); a && !is_forward; a = a->next)
            is_forward = buffer_at(r, a) >= 0 && r->is_result[buffer_at(r, a)];
        if (!is_forward)
            continue;
        r->part[i].phase = FORWARD;
        for (const struct json *a = accesses(r, i, "reads"); a; a = a->next) {
            int b = buffer_at(r, a);
            if (b >= 0 && r->writer[b] >= 0 && r->writer[b] < i)
                r->part[r->writer[b]].phase = FORWARD;
        }
    }
}

/* Whether a part reads parameters alone: it stores them in another order. */
static bool only_packs(const struct run *r, int part)
{
    const struct json *a = accesses(r, part, "reads");
    bool any = a != NULL;
    for (; a; a = a->next)
        any &= buffer_at(r, a) >= 0 && r->is_parameter[buffer_at(r, a)];
    return any;
}

static bool computes(const struct run *r, int part, int node)
{
    const struct json *list = r->p->nodes[r->part[part].kernel];
    for (const struct json *v = list ? list->child : NULL; v; v = v->next)
        if (json_index(v) == node)
            return true;
    return false;
}

static bool is_true(const struct json *v) { return v && v->kind == JSON_TRUE; }

/* The last forward part that computes a node of the kernel's, its main one if one does. -1: none */
static int part_beside(const struct run *r, int part)
{
    const struct json *list = r->p->nodes[r->part[part].kernel];
    for (const struct json *v = list ? list->child : NULL; v; v = v->next)
        for (int i = r->n - 1; i >= 0; i--)
            if (r->part[i].phase == FORWARD && json_index(v) >= 0 && computes(r, i, json_index(v)))
                return i;
    return -1;
}

/* Of each backward part the forward one beside it; without any, it is of the update. */
static void place_backward(struct run *r)
{
    for (int i = 0; i < r->n; i++) {
        struct part *x = &r->part[i];
        const struct json *k = r->p->kernel[x->kernel];
        if (x->phase != BACKWARD)
            continue;
        x->beside = part_beside(r, i);
        if (x->beside < 0)
            x->phase = UPDATE;
        x->again = (is_true(json_get(k, "again")) || !is_true(json_get(k, "backward"))) &&
                   !only_packs(r, i);
    }
}

static bool read_run(struct run *r, const struct page *p)
{
    const struct json *training = json_get(p->d, "training");
    const struct json *entry = json_get(p->d, "entries");
    int number = json_index(json_get(training, "entry"));
    entry = entry && entry->kind == JSON_LIST ? entry->child : NULL;
    for (int i = 0; entry && i < number; i++)
        entry = entry->next;
    const struct json *list = number >= 0 ? json_get(entry, "kernels") : NULL;
    if (!list || list->kind != JSON_LIST)
        return false;
    *r = (struct run){.p = p, .part = mem_array(p->t, (size_t)list->n + 1, sizeof *r->part)};
    for (const struct json *v = list->child; v; v = v->next) {
        int k = json_index(v);
        if (k >= 0 && k < p->nkernel)
            r->part[r->n++] = (struct part){.kernel = k, .phase = BACKWARD, .beside = -1};
    }
    note_buffers(r);
    find_forward(r);
    place_backward(r);
    return r->n > 0;
}

/* --------------------------------------------------------------------------------------- tables */

static void put_phases(struct text *out, const struct run *r)
{
    static const char *const name[] = {"Forward", "Backward", "Update"};
    double us[PHASE_COUNT] = {0}, total = 0;
    int n[PHASE_COUNT] = {0}, again = 0;
    for (int i = 0; i < r->n; i++) {
        us[r->part[i].phase] += r->p->us[r->part[i].kernel];
        total += r->p->us[r->part[i].kernel];
        n[r->part[i].phase]++;
        again += r->part[i].phase == BACKWARD && r->part[i].again;
    }
    text_puts(out, "<dl class=\"figures\">\n");
    for (int i = 0; i < PHASE_COUNT; i++)
        view_figure(out, name[i], view_time(r->p->t, us[i]),
                    mem_printf(r->p->t, "%d kernels, %.0f %% of a step%s", n[i],
                               total > 0 ? 100 * us[i] / total : 0,
                               i == BACKWARD && again
                                   ? mem_printf(r->p->t, "; %d compute%s again", again,
                                                again == 1 ? "s" : "")
                                   : ""));
    text_puts(out, "</dl>\n");
}

static double bytes_of(const struct run *r, int id)
{
    for (const struct json *b = json_get(r->p->d, "buffers")->child; b; b = b->next)
        if (json_index(json_get(b, "id")) == id)
            return json_number(b, "bytes");
    return 0;
}

/* Of a forward part's results, the first one after *at that a backward part reads. */
static const struct json *next_kept(const struct run *r, int part, const struct json *at)
{
    for (at = at ? at->next : accesses(r, part, "writes"); at; at = at->next)
        for (int i = 0; i < r->n; i++)
            for (const struct json *a = r->part[i].phase == BACKWARD ? accesses(r, i, "reads") : NULL;
                 a; a = a->next)
                if (buffer_at(r, a) >= 0 && buffer_at(r, a) == buffer_at(r, at))
                    return at;
    return NULL;
}

static void put_forward(struct text *out, const struct run *r, int part)
{
    struct tgc *t = r->p->t;
    const struct json *k = r->p->kernel[r->part[part].kernel];
    double back = 0, kept = 0, own = r->p->us[r->part[part].kernel];
    for (const struct json *b = next_kept(r, part, NULL); b; b = next_kept(r, part, b))
        kept += bytes_of(r, buffer_at(r, b));
    text_puts(out, "<tr><th scope=\"row\">");
    html_kernel(out, json_string(k, "name"));
    text_puts(out, "</th>");
    cell_text(out, view_computes(r->p, r->part[part].kernel));
    cell_number(out, own, view_time(t, own));
    cell_number(out, kept, kept > 0 ? view_bytes(t, kept) : "");
    text_puts(out, "<td>");
    for (int i = 0, n = 0; i < r->n; i++) {
        const struct part *x = &r->part[i];
        if (x->phase != BACKWARD || x->beside != part)
            continue;
        text_puts(out, n++ ? ", " : "");
        html_kernel(out, json_string(r->p->kernel[x->kernel], "name"));
        text_puts(out, x->again ? " (computes again)" : "");
        back += r->p->us[x->kernel];
    }
    text_puts(out, "</td>");
    cell_number(out, back, back > 0 ? view_time(t, back) : "");
    cell_number(out, own > 0 ? back / own : 0,
                own > 0 && back > 0 ? mem_printf(t, "%.1f", back / own) : "");
    text_puts(out, "</tr>\n");
}

static void put_blocks(struct text *out, const struct run *r)
{
    static const char *const block[][2] = {{"parameters", "Parameters"},
                                           {"gradients", "Gradients, between NAME_gradients() "
                                                         "and NAME_update()"},
                                           {"optimizer", "State of the optimizer"}};
    table_begin(out, "train-memory", "Memory of the training", "What|#Tensors|#Size");
    for (size_t i = 0; i < sizeof block / sizeof *block; i++) {
        double nbytes = 0;
        int n = 0;
        const struct json *states = json_get(r->p->d, "states");
        for (const struct json *s = states && states->kind == JSON_LIST ? states->child : NULL; s;
             s = s->next)
            if (strcmp(json_string(s, "block"), block[i][0]) == 0) {
                nbytes += json_number(s, "bytes");
                n++;
            }
        text_printf(out, "<tr><th scope=\"row\">%s</th>", block[i][1]);
        cell_number(out, n, mem_printf(r->p->t, "%d", n));
        cell_number(out, nbytes, view_bytes(r->p->t, nbytes));
        text_puts(out, "</tr>\n");
    }
    double kept = 0;
    int n = 0;
    for (int i = 0; i < r->n; i++)
        for (const struct json *b = r->part[i].phase == FORWARD ? next_kept(r, i, NULL) : NULL; b;
             b = next_kept(r, i, b)) {
            kept += bytes_of(r, buffer_at(r, b));
            n++;
        }
    text_puts(out, "<tr><th scope=\"row\">Results of forward kernels, kept for the backward pass (in "
                   "the arena)</th>");
    cell_number(out, n, mem_printf(r->p->t, "%d", n));
    cell_number(out, kept, view_bytes(r->p->t, kept));
    text_puts(out, "</tr>\n");
    table_end(out);
}

void view_training(struct text *out, const struct page *p)
{
    struct run r;
    const struct json *training = json_get(p->d, "training");
    if (!training || !read_run(&r, p))
        return;
    html_heading(out, "training", "Training", NULL);
    text_puts(out, "<p class=\"lead\">A step lowers ");
    html_put(out, json_string(training, "loss"));
    text_puts(out, " by ");
    html_put(out, json_string(training, "optimizer"));
    text_puts(out, ". A backward kernel stands beside the forward kernel that computes the node of "
                   "which it computes the derivative.</p>\n");
    put_phases(out, &r);
    table_begin(out, "train-kernels", "Forward and backward side by side",
                "Forward|Computes|#Time|#Kept for backward|Backward|#Time|#Ratio");
    for (int i = 0; i < r.n; i++)
        if (r.part[i].phase == FORWARD)
            put_forward(out, &r, i);
    table_end(out);
    put_blocks(out, &r);
    text_puts(out, "</section>\n");
}
