/* images.c - tables and pieces of an OpenCL program whose kernels read images
 * (runtime/opencl_image.c).
 *
 *      image_of[]      for each image {place, byte, pixels, log2 of a row's pixels, halves};
 *      part_of[]       where each place is in the memory, and its size;
 *      results_of[]    how many of a kernel's arguments, from the first on, it stores.
 */
#include "backends/opencl/opencl.h"

static void write_image(struct program *p, const struct buffer *b, struct text *out)
{
    const size_t nelem = b->nbytes / dtype_nbytes(b->dtype);
    const int place = device_place(p, b);
    text_printf(out, "    {%d, %zu, %zu, %d, %s},\n", place, place == PLACE_WEIGHTS ? b->offset : 0,
                nelem / 4 + (nelem % 4 > 0), device_image_shift(p->t, nelem),
                b->dtype == DTYPE_F16 ? "true" : "false");
}

static void write_images(struct program *p, struct buffer *const *b, int n, int *done,
                         struct text *out)
{
    for (int i = 0; i < n; i++)
        if (b[i]->is_image && device_image(p, b[i]) == *done) {
            write_image(p, b[i], out);
            ++*done;
        }
}

static void write_parts(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    struct buffer *const *side[] = {s->input, s->output};
    const int n[] = {s->ninput, s->noutput};
    text_puts(out, "static const struct part_of part_of[] = {\n    {0, 0}, {0, 0},\n");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n[k]; i++)
            text_printf(out, "    {%zu, %zu},\n", p->place[side[k][i]->id], side[k][i]->nbytes);
    for (int i = 0; i < s->nbuffer; i++)
        if (p->own_place[s->buffer[i]->id])
            text_printf(out, "    {%zu, %zu},\n", p->place[s->buffer[i]->id], s->buffer[i]->placed);
    if (p->place_of_states)
        text_printf(out, "    {%zu, %zu},\n", p->device_states, s->state_nbytes);
    text_puts(out, "};\n\n");
}

void opencl_image_tables(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    int done = 0;
    program_write_text(p, out, snippet_find("opencl_image_types")->text);
    text_printf(out, "\nenum { %s_IMAGES = %d };\nstatic const struct image_of image_of[] = {\n",
                p->upper, p->nimage);
    write_images(p, s->buffer, s->nbuffer, &done, out);
    write_images(p, s->weight, s->nweight, &done, out);
    text_puts(out, "};\n\n");
    write_parts(p, out);
    text_puts(out, "/* How many of each kernel's arguments, the first ones, it stores. */\n"
                   "static const int results_of[] = {");
    for (int i = 0; i < s->nkernel; i++)
        text_printf(out, "%s%d", i == 0 ? "" : i % 24 ? ", " : ",\n    ", s->kernel[i]->noutput);
    text_puts(out, "};\n\n");
}

void opencl_use_images(struct program *p)
{
    static const char *const piece[] = {"open", "argument", "to_device", "start"};
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++)
        snippet_replace(&p->snippets, piece[i], mem_printf(p->t, "opencl_image_%s", piece[i]));
}
