/* scalar.c - buffers and integers as expressions of C in NAME_run(). */
#include "backends/cstyle/cstyle.h"
#include "passes/target/legal.h"

const char *program_buffer(struct program *p, const struct buffer *b)
{
    const struct buffer *root = buffer_root(b);
    const char *name = p->buffer_name[root->id];
    if (!name)
        TGC_BUG(p->t, "buffer %d is not in the schedule", root->id);
    bool on_device = p->backend->device && root->kind != BUFFER_WEIGHT &&
                     (root->kind != BUFFER_INPUT || root->port.state);
    p->buffer_used[root->id] = !on_device;
    const char *s = on_device                     ? p->backend->device->host_view(p, root)
                    : root->port.state            ? name
                    : root->kind == BUFFER_INPUT  ? mem_printf(p->t, "in->%s", name)
                    : root->kind == BUFFER_OUTPUT ? mem_printf(p->t, "out->%s", name)
                    : root->kind == BUFFER_WEIGHT ? mem_printf(p->t, "w->%s", name)
                                                  : name;
    for (; b->base; b = b->base)
        if (b->base_offset && !uop_is_int(b->base_offset, 0))
            s = mem_printf(p->t, "%s + %s", s, program_scalar(p, b->base_offset));
    return s;
}

const char *program_scalar(struct program *p, struct uop *root)
{
    int n;
    root = legal_scalar(p->t, root);
    struct uop **order = uop_toposort(p->t, &root, 1, &n);
    struct expr *e = mem_array(p->t, (size_t)n, sizeof *e);
    struct uop_map place = {.t = p->t};
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        struct expr src[4] = {{0}, {0}, {0}, {0}};
        map_set(&place, u, (void *)(intptr_t)i);
        for (int k = 0; k < u->nsrc && k < 4; k++)
            src[k] = e[(intptr_t)map_get(&place, u->src[k])];
        if (u->op == OP_CONST) {
            e[i] = expr_const(p, u->dtype, u->arg);
        } else if (u->op == OP_VAR) {
            e[i] = expr_name(program_var_in_run(p, u->arg.p), 'L');
        } else if (u->op == OP_BUFFER) {
            e[i] = expr_name("", 'I');
        } else if (u->op == OP_LOAD) {
            const struct buffer *b = uop_buffer_of(u->src[0]);
            e[i] = expr_load(p, u->dtype,
                             mem_printf(p->t, "%s[%s]", program_buffer(p, b), src[1].s),
                             b->kind != BUFFER_INPUT);
            if (u->nsrc > 3)
                e[i] = expr_choose(p, &src[2], &e[i], &src[3]);
        } else if (op_is_elementwise(u->op)) {
            e[i] = expr_apply(p, u, src);
        } else {
            TGC_BUG(p->t, "%s in a scalar of the schedule", op_name(u->op));
        }
    }
    struct expr r = expr_resolve(p, e[n - 1]);
    return r.s;
}
