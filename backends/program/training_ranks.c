/* training_ranks.c - a step of several ranks, in a program that trains: what they add up by the
 * caller's function, sum_ranks of NAME_options.
 *
 *      NAME_update()   sums of gradients; the mean of running statistics; then the update
 *      NAME_train()    NAME_gradients(), the sum of the loss, NAME_update()
 */
#include "backends/program/program.h"

size_t training_place_in_block(const struct schedule *s, const struct state *st)
{
    return st->place[0] - s->block_at[st->in->port.block];
}

/* States of the block from `first` on, `end` excluded, whose elements have one size: a row for all
 * that follow each other, with the zeros between them. */
static void write_rows(struct program *p, enum state_block block, int first, int end, bool mean,
                       struct text *out)
{
    const struct schedule *s = p->s;
    size_t at = 0, stop = 0, size = 0;
    for (int i = first; i <= end; i++) {
        const struct state *st = i < end ? s->state[i] : NULL;
        size_t own = st ? dtype_nbytes(st->in->dtype) : 0;
        if (st && (st->in->port.block != block || st->nbytes == 0))
            continue;
        if (size && own != size)
            text_printf(out, "    {%d, %d, %zu, %zu, %zu},\n", block - BLOCK_PARAMS, mean, at,
                        (stop - at) / size, size);
        if (own != size)
            at = st ? training_place_in_block(s, st) : 0;
        size = own;
        stop = st ? training_place_in_block(s, st) + st->nbytes : 0;
    }
}

void training_write_segments(struct program *p, struct text *out)
{
    const struct graph_training *x = program_training(p->s);
    snippet_use(&p->snippets, "sum_segments");
    text_puts(out, "/* What ranks add up: block, whether it is their mean, offset, elements. */\n"
                   "static const struct ranks_segment ranks_segments[] = {\n");
    write_rows(p, BLOCK_GRADIENTS, 0, p->s->nstate, false, out);
    write_rows(p, BLOCK_PARAMS, x->nparam, x->nparam + x->nstatistic, true, out);
    text_puts(out, "};\n\n");
}

static const char sum_text[] =
    "    if (self->options.sum_ranks) {\n"
    "        void *const block[] = {self->options.params, self->options.gradients};\n"
    "        const size_t count = sizeof ranks_segments / sizeof *ranks_segments;\n"
    "        const int ranks = self->options.ranks > 0 ? self->options.ranks : 1;\n"
    "DOWNLOADstatus = sum_segments(block, ranks_segments, count, self->options.sum_ranks,\n"
    "                              self->options.ranks_user, ranks);\n"
    "UPLOAD"
    "        if (status != MODEL_OK)\n"
    "            return status;\n"
    "    }\n";

void training_write_sum_of_ranks(struct program *p, struct text *out)
{
    const bool copies = p->backend->device != NULL;
    const struct text_word word[] = {
        {"DOWNLOAD", copies ? "        status = model_download(self);\n"
                              "        if (status == MODEL_OK)\n            "
                            : "        "},
        {"UPLOAD", copies ? "        if (status == MODEL_OK)\n"
                            "            status = model_upload(self);\n"
                          : ""},
        {NULL, NULL}};
    struct text x = {.t = p->t};
    program_write_words(p, &x, sum_text, word);
    program_write_text(p, out, x.s);
}

static const char step_text[] =
    "    if (self->options.sum_ranks) {\n"
    "        status = model_gradients(self, given, targets, loss);\n"
    "        if (status == MODEL_OK &&\n"
    "            self->options.sum_ranks(self->options.ranks_user, loss, 1, sizeof *loss) != 0)\n"
    "            status = MODEL_RANK_FAILED;\n"
    "        return status == MODEL_OK ? model_update(self, given) : status;\n"
    "    }\n";

void training_write_step_of_ranks(struct program *p, struct text *out)
{
    program_write_text(p, out, step_text);
}
