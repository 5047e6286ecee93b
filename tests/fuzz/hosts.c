/* hosts.c - an emitted model's run on inputs that mean harm: hosts COUNT SEED_FILE...
 *
 * Every run has lengths within their bounds and arbitrary elements: bytes and strings are seeds
 * (the files, or a few words) that are cut, repeated and overwritten; numbers are small, or at an
 * edge. Whatever status a run returns, it must return within SECONDS, and the sanitizers that this
 * is built with must find nothing.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "net.c"

enum { MOST = 8, SECONDS = 5, MOST_SEEDS = 64, LONGEST = 1 << 16, LONGEST_STRING = 40 };

static uint64_t state;
static long round_number;
static struct { unsigned char *data; size_t n; } seed[MOST_SEEDS];
static int nseed;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return below ? (uint32_t)(state >> 33) % below : 0;
}

static void on_end(int number)
{
    dprintf(2, "signal %d in round %ld\n", number, round_number);
    signal(number, SIG_DFL);
    raise(number);
}

static void read_seed(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || nseed == MOST_SEEDS)
        exit(2);
    seed[nseed].data = malloc(LONGEST);
    seed[nseed].n = fread(seed[nseed].data, 1, LONGEST, f);
    fclose(f);
    nseed++;
}

/* A seed with some bytes overwritten, most of them in its head, perhaps cut, or with a part of it
 * repeated. Returns its length. */
static size_t draw_bytes(unsigned char *to, size_t most)
{
    static const unsigned char edges[] = {0, 1, 0x7f, 0x80, 0xff};
    int k = (int)draw((uint32_t)nseed);
    size_t n = seed[k].n < most ? seed[k].n : most;
    memcpy(to, seed[k].data, n);
    for (uint32_t i = draw(6); i > 0 && n; i--) {
        uint32_t head = draw(2) && n > 64 ? 64 : (uint32_t)n;
        to[draw(head)] = draw(2) ? edges[draw(sizeof edges)] : (unsigned char)draw(256);
    }
    if (n && draw(4) == 0)
        n = draw((uint32_t)n);
    if (n > 1 && draw(8) == 0) {
        size_t at = draw((uint32_t)n), part = draw((uint32_t)(n - at));
        part = part < most - n ? part : most - n;
        memmove(to + at + part, to + at, n - at);
        n += part;
    }
    return n;
}

static const char *draw_string(void)
{
    static const char *const words[] = {"",
                                        "a",
                                        "abc, b",
                                        "1.5e-3",
                                        "-12",
                                        "+nan",
                                        "-inf",
                                        "1e400",
                                        "0x1p-4",
                                        "99999999999999999999",
                                        "\xff\xfe",
                                        "\xc3",
                                        "\xe2\x82\xac 10",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaab"};
    static char room[1 << 12][LONGEST_STRING + 1];
    static unsigned next;
    char *to = room[next++ % (1 << 12)];
    const char *from = words[draw(sizeof words / sizeof *words)];
    size_t n = strlen(from);
    n = n < LONGEST_STRING ? n : LONGEST_STRING;
    memcpy(to, from, n);
    for (uint32_t i = draw(3); i > 0 && n; i--)
        to[draw((uint32_t)n)] = (char)(1 + draw(255));
    if (n && draw(4) == 0)
        n = draw((uint32_t)n);
    to[n] = 0;
    return to;
}

static void draw_element(const char *dtype, size_t nbytes, void *to)
{
    static const double edges[] = {0, -0.0, 1, -1, 0.5, 1e-40, 3e38, -3e38, 1e308, 2147483648.0,
                                   -2147483649.0, 9.3e18, -9.3e18};
    double v = draw(4) ? (double)(int)draw(9) - 2 : edges[draw(sizeof edges / sizeof *edges)];
    if (dtype[0] == 'f') {
        v = draw(16) ? v + draw(2) * 0.25 : draw(2) ? NAN : INFINITY;
        float f = (float)v;
        memcpy(to, nbytes == 4 ? (void *)&f : (void *)&v, nbytes);
    } else if (dtype[0] == 'b') {
        *(unsigned char *)to = (unsigned char)draw(2);
    } else {
        int64_t i = v >= 9.2e18 ? INT64_MAX : v <= -9.2e18 ? INT64_MIN : (int64_t)v;
        memcpy(to, &i, nbytes);
    }
}

static size_t bound(const struct net_tensor *t)
{
    size_t n = 1;
    for (int a = 0; a < t->rank; a++)
        n *= (size_t)t->dim[a].size;
    return n;
}

static void draw_input(const struct net_tensor *t, void *to, int64_t *length)
{
    size_t n = bound(t);
    if (strcmp(t->dtype, "u8") == 0) {
        size_t used = draw_bytes(to, n);
        if (length)
            *length = (int64_t)used;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(t->dtype, "string") == 0)
            ((const char **)to)[i] = draw_string();
        else
            draw_element(t->dtype, t->element_bytes, (char *)to + i * t->element_bytes);
    }
}

int main(int argc, char **argv)
{
    const struct net_info *info = net_describe();
    long rounds = argc > 1 ? atol(argv[1]) : 0, good = 0;
    net *model;
    net_inputs in = {0};
    net_outputs out = {0};
    void *input[MOST];
    for (int i = 2; i < argc; i++)
        read_seed(argv[i]);
    signal(SIGALRM, on_end);
    signal(SIGABRT, on_end);
    if (info->input_count > MOST ||
        net_init(&model, aligned_alloc(64, (info->arena_bytes + 63) / 64 * 64),
                 (info->arena_bytes + 63) / 64 * 64, NULL) != 0)
        return 2;
    for (int i = 0; i < info->input_count; i++) {
        input[i] = malloc(bound(&info->inputs[i]) * info->inputs[i].element_bytes + 1);
        memcpy((char *)&in + info->inputs[i].offset, &input[i], sizeof(void *));
    }
    for (int i = 0; i < info->output_count; i++) {
        void *p = malloc(bound(&info->outputs[i]) * info->outputs[i].element_bytes + 1);
        memcpy((char *)&out + info->outputs[i].offset, &p, sizeof p);
    }
    for (round_number = 0; round_number < rounds; round_number++) {
        state = (uint64_t)round_number * 0x9e3779b97f4a7c15u + 1;
        draw(2);
        for (int s = 0; s < info->symbol_count; s++) {
            int64_t least = info->symbols[s].min, most = info->symbols[s].max,
                    length = least + (int64_t)draw((uint32_t)(most - least + 1));
            if (info->symbols[s].offset != (size_t)-1)
                memcpy((char *)&in + info->symbols[s].offset, &length, sizeof length);
        }
        for (int i = 0; i < info->input_count; i++) {
            int64_t *length = NULL;
            for (int s = 0; s < info->symbol_count && info->inputs[i].rank == 1; s++)
                if (info->inputs[i].dim[0].symbol && info->symbols[s].offset != (size_t)-1 &&
                    strcmp(info->inputs[i].dim[0].symbol, info->symbols[s].name) == 0)
                    length = (int64_t *)(void *)((char *)&in + info->symbols[s].offset);
            draw_input(&info->inputs[i], input[i], length);
        }
        alarm(SECONDS);
        int status = net_run(model, &in, &out);
        alarm(0);
        if (status < 0 || strcmp(net_strerror(status), "") == 0)
            return 3;
        good += status == 0;
    }
    printf("%ld runs, %ld of them good\n", rounds, good);
    return 0;
}
