/* bulk.c - bulk copies in a kernel's text, and the barriers in memory that signal their completion.
 *
 *      mbar_arrive(&bar[0], 16384);
 *      bulk_copy(&tile[at], &map, &bar[0], column, row);
 *      mbar_wait(&bar[0], 0);
 *      mbar_release<1>(&empty[0]);
 *      bulk_store(&map, &tile[at], column, row);
 *      bulk_wait<false>();
 *
 * The functions are pieces of runtime/ in the device's language. A tensor map, a parameter,
 * describes the tensor.
 */
#include "backends/cstyle/writer.h"
#include "ir/device_ops.h"

static const char *element_at(struct writer *w, const struct uop *memory, const char *i)
{
    const struct buffer *b = uop_buffer_of(memory);
    w->f->is_used[writer_place(w, b)] = true;
    return mem_printf(w->t, "&%s[%s]", writer_place_name(w, b), i);
}

static const char *map_of(const struct writer *w, const struct uop *u)
{
    for (int i = 0; i < w->f->nmap; i++)
        if (bulk_is_of_same_map(w->f->map[i], u))
            return w->f->map_name[i];
    TGC_BUG(w->t, "kernel %s: a bulk copy without a tensor map", w->f->k->name);
}

/* of: template arguments, after the function's name */
static void call_of(struct writer *w, const char *function, const char *of, const char *args)
{
    (void)expr_call(w->p, function, args, 'I');
    writer_put(w, mem_printf(w->t, "%s%s(%s);", function, of, args), false);
}

static void call(struct writer *w, const char *function, const char *args)
{
    call_of(w, function, "", args);
}

static void write_copy(struct writer *w, const struct uop *u)
{
    struct expr src[BULK_AXES + BULK_AXIS * BULK_RANK];
    struct text args = {.t = w->t};
    writer_operands(w, u, u->nsrc, src);
    const int cluster = BULK_CLUSTER(u->arg.i), part = bulk_part_axis(u);
    text_printf(&args, "%s, &%s, ", element_at(w, u->src[BULK_TO], src[BULK_OFFSET].s),
                map_of(w, u));
    text_puts(&args, element_at(w, u->src[BULK_BARRIERS], src[BULK_NUMBER].s));
    for (int a = 0; a < bulk_rank(u); a++)
        text_printf(&args, ", %s", src[BULK_AXES + a * BULK_AXIS].s);
    if (cluster == 1)
        call(w, "bulk_copy", args.s);
    else
        call_of(
            w, "bulk_copy_part",
            mem_printf(w->t, "<%d, %d, %lld, %lld>", cluster, part,
                       (long long)bulk_part_extent(u, part),
                       (long long)(bulk_nelem(u) / cluster *
                                   (int64_t)dtype_nbytes(uop_buffer_of(u->src[BULK_TO])->dtype))),
            args.s);
}

static void write_store(struct writer *w, const struct uop *u)
{
    struct expr src[BULK_AXES + BULK_AXIS * BULK_RANK];
    struct text args = {.t = w->t};
    writer_operands(w, u, u->nsrc, src);
    text_printf(&args, "&%s, %s", map_of(w, u), element_at(w, u->src[BULK_TO], src[BULK_OFFSET].s));
    for (int a = 0; a < bulk_rank(u); a++)
        text_printf(&args, ", %s", src[bulk_source(u, BULK_AXES) + a * BULK_AXIS].s);
    call(w, "bulk_store", args.s);
}

void bulk_write(struct writer *w, const struct uop *u)
{
    struct expr src[3];
    if (u->op == OP_BULK) {
        write_copy(w, u);
        return;
    }
    if (u->op == OP_BULK_STORE) {
        write_store(w, u);
        return;
    }
    if (u->op == OP_BULK_WAIT) {
        call_of(w, "bulk_wait", u->arg.i ? "<true>" : "<false>", "");
        return;
    }
    if (u->op == OP_CLUSTER_BARRIER) {
        call(w, "cluster_barrier", "");
        return;
    }
    if (u->op == OP_BARRIER) {
        call_of(w, "role_barrier", mem_printf(w->t, "<%d>", BARRIER_THREADS(u->arg.i)), "");
        return;
    }
    if (u->op == OP_REGISTERS) {
        call_of(w, REGISTERS_MORE(u->arg.i) ? "take_registers" : "give_registers",
                mem_printf(w->t, "<%d>", REGISTERS_OF(u->arg.i)), "");
        return;
    }
    writer_operands(w, u, u->nsrc, src);
    const char *at = element_at(w, u->src[0], u->op == OP_MBAR_INIT ? "0" : src[1].s);
    const struct buffer *b = uop_buffer_of(u->src[0]);
    if (u->op == OP_MBAR_INIT)
        call(w, "mbar_init",
             mem_printf(w->t, "%s, %lld, %lld", at, (long long)b->dim[0]->vmax,
                        (long long)MBAR_COUNT(u->arg.i) * MBAR_CLUSTER(u->arg.i)));
    else if (u->op == OP_MBAR_ARRIVE)
        call(w, "mbar_arrive", mem_printf(w->t, "%s, %lld", at, (long long)u->arg.i));
    else if (u->op == OP_MBAR_RELEASE && RELEASE_LANES(u->arg.i) > 1)
        call_of(w, "mbar_release", mem_printf(w->t, "<%d>", RELEASE_CLUSTER(u->arg.i)), at);
    else if (u->op == OP_MBAR_RELEASE)
        call(w, "mbar_arrive", mem_printf(w->t, "%s, 0", at));
    else
        call(w, "mbar_wait", mem_printf(w->t, "%s, %s", at, src[2].s));
}
