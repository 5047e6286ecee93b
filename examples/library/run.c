/* run.c - loads digits.onnx, compiles it in this process, and shows it a drawn digit.
 *
 *      cc run.c -o run $(pkg-config --cflags --libs tgc) && ./run ../digits.onnx
 */
#include <stdio.h>
#include <tgc.h>

static const char picture[] = ".######."
                              ".....##."
                              "....##.."
                              "...##..."
                              "...##..."
                              "..##...."
                              "..##...."
                              "........";

static int fail(tgc_compiler *c, tgc_status status)
{
    fprintf(stderr, "run: %s\n", tgc_status_text(status));
    for (size_t i = 0; i < tgc_message_count(c); i++)
        fprintf(stderr, "run: %s\n", tgc_message_get(c, i)->text);
    tgc_compiler_free(c);
    return 1;
}

int main(int argc, char **argv)
{
    tgc_compiler *c = tgc_compiler_new();
    tgc_model *m = NULL;
    tgc_status status = tgc_source_file(c, argc == 2 ? argv[1] : "../digits.onnx");
    if (status == TGC_OK)
        status = tgc_set(c, "cpu", "native");
    if (status == TGC_OK)
        status = tgc_open(c, &m);
    if (status != TGC_OK)
        return fail(c, status);
    tgc_compiler_free(c);

    float grey[64];
    for (int i = 0; i < 64; i++)
        grey[i] = picture[i] == '#' ? 1.0f : 0.0f;
    status = tgc_set_input(m, 0, grey, NULL);
    if (status == TGC_OK)
        status = tgc_run(m);
    if (status != TGC_OK) {
        fprintf(stderr, "run: %s\n", tgc_model_message(m));
        tgc_model_free(m);
        return 1;
    }
    const float *p = tgc_output_data(m, 0);
    int best = 0;
    for (int digit = 1; digit < 10; digit++)
        best = p[digit] > p[best] ? digit : best;
    printf("a %d, to %.0f%%, by %s\n", best, 100 * (double)p[best], tgc_model_maker(m));
    tgc_model_free(m);
    return 0;
}
