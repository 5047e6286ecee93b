/* amx_trap.c - AMX's instructions on a processor that has none: a library for LD_PRELOAD that
 * catches the illegal instruction, does what it would have done, and resumes after it.
 *
 * It knows ldtilecfg, tilerelease, tilezero, tileloadd, tilestored, tdpbusd and tdpbf16ps as
 * Intel's manual has them (VEX, three bytes). It ends the process with a message for what the
 * manual forbids: a tile that is not configured, shapes that do not match, another instruction.
 * AMX_TRAPS=FILE: their number is written there at the end.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_NBYTES = 64, MAP_0F38 = 2 };
enum { PP_NONE, PP_66, PP_F3, PP_F2 };

struct tile { int rows, nbytes; unsigned char row[ROWS][ROW_NBYTES]; };
static _Thread_local struct tile tiles[TILES];
static _Thread_local int configured;
static volatile long traps;

static void fail(const char *why)
{
    static const char head[] = "amx_trap: ", end[] = "\n";
    if (write(2, head, sizeof head - 1) < 0 || write(2, why, strlen(why)) < 0 ||
        write(2, end, 1) < 0)
        _exit(71);
    _exit(70);
}

/* An instruction's operands: registers, and the memory at base + displacement, with an index. */
struct decoded {
    int map, pp, opcode, reg, rm, vvvv;
    int is_memory;
    unsigned char *at;
    long index;                  /* of a tile's rows: from one to the next */
    size_t length;
};

/* As encoded, in the order of the machine's numbers. */
static long number(const ucontext_t *c, int r)
{
    static const int place[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};
    return (long)c->uc_mcontext.gregs[place[r]];
}

static long displacement(const unsigned char **p, int nbytes)
{
    int32_t wide;
    if (nbytes == 1)
        return (int8_t)*(*p)++;
    memcpy(&wide, *p, sizeof wide);
    *p += sizeof wide;
    return wide;
}

static struct decoded decode(const ucontext_t *c)
{
    const unsigned char *start = (const unsigned char *)c->uc_mcontext.gregs[REG_RIP],
                        *p = start + 3;
    struct decoded d = {
        .map = start[1] & 31, .pp = start[2] & 3, .vvvv = ~start[2] >> 3 & 15, .opcode = *p++};
    int high_base = ~start[1] >> 5 & 1, high_index = ~start[1] >> 6 & 1, modrm = *p++,
        mod = modrm >> 6;
    if (*start != 0xC4)
        fail("an illegal instruction that is none of AMX's");
    d.reg = modrm >> 3 & 7;
    d.rm = modrm & 7;
    d.is_memory = mod != 3;
    if (!d.is_memory) {
        d.length = (size_t)(p - start);
        return d;
    }
    int base = d.rm, sib = base == 4 ? *p++ : -1, index = 4;
    long at = 0;
    if (sib >= 0) {
        base = sib & 7;
        index = (sib >> 3 & 7) | high_index << 3;
    }
    if (index != 4)
        d.index = number(c, index) << (sib >> 6);
    if (mod == 0 && base == 5)
        at = displacement(&p, 4) + (sib < 0 ? (long)p : 0);      /* from the next instruction */
    else
        at = number(c, base | high_base << 3) + (mod ? displacement(&p, mod == 1 ? 1 : 4) : 0);
    d.at = (unsigned char *)at;
    d.length = (size_t)(p - start);
    return d;
}

static struct tile *tile_at(int n)
{
    if (!configured || n >= TILES || tiles[n].rows == 0)
        fail("a tile that is not configured");
    return &tiles[n];
}

static void configure(const unsigned char *config)
{
    if (configured)
        fail("tiles are configured twice");
    if (config[0] != 1)
        fail("another palette");
    for (int i = 0; i < TILES; i++) {
        tiles[i] = (struct tile){.rows = config[48 + i],
                                 .nbytes = config[16 + 2 * i] | config[17 + 2 * i] << 8};
        if (tiles[i].rows > ROWS || tiles[i].nbytes > ROW_NBYTES)
            fail("more rows or bytes than a tile has");
    }
    configured = 1;
}

static void check_shapes(const struct tile *sum, const struct tile *a, const struct tile *b)
{
    if (a == b || sum == a || sum == b)
        fail("one register twice");
    if (a->rows != sum->rows || b->nbytes != sum->nbytes || a->nbytes != 4 * b->rows)
        fail("shapes that do not match");
}

/* sum += bytes of a (0..255) times bytes of b (-128..127), four of a row by four of a column */
static void dot(struct tile *sum, const struct tile *a, const struct tile *b)
{
    check_shapes(sum, a, b);
    for (int m = 0; m < sum->rows; m++)
        for (int n = 0; n < sum->nbytes / 4; n++) {
            uint32_t total;
            memcpy(&total, &sum->row[m][4 * n], 4);
            for (int k = 0; k < b->rows; k++)
                for (int i = 0; i < 4; i++)
                    total += (uint32_t)(a->row[m][4 * k + i] * (int8_t)b->row[k][4 * n + i]);
            memcpy(&sum->row[m][4 * n], &total, 4);
        }
}

/* a bf16 as f32, and an f32; a subnormal number is a zero of its sign */
static float flush(float v) { return v > -0x1p-126f && v < 0x1p-126f ? v * 0.0f : v; }

static float half_at(const unsigned char *p)
{
    uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float v;
    memcpy(&v, &bits, sizeof v);
    return flush(v);
}

/* sum += pairs of bf16 of a row times those of a column; even and odd ones are summed apart */
static void dot_halves(struct tile *sum, const struct tile *a, const struct tile *b)
{
    check_shapes(sum, a, b);
    for (int m = 0; m < sum->rows; m++)
        for (int n = 0; n < sum->nbytes / 4; n++) {
            float total, part[2] = {0, 0};
            memcpy(&total, &sum->row[m][4 * n], 4);
            for (int k = 0; k < b->rows; k++)
                for (int i = 0; i < 2; i++)
                    part[i] = flush((float)((double)half_at(&a->row[m][4 * k + 2 * i]) *
                                                (double)half_at(&b->row[k][4 * n + 2 * i]) +
                                            (double)part[i]));
            total = flush(flush(total) + flush(part[0] + part[1]));
            memcpy(&sum->row[m][4 * n], &total, 4);
        }
}

static void move(const struct decoded *d, int is_store)
{
    struct tile *t = tile_at(d->reg);
    for (int r = 0; r < t->rows; r++)
        if (is_store)
            memcpy(d->at + r * d->index, t->row[r], (size_t)t->nbytes);
        else
            memcpy(t->row[r], d->at + r * d->index, (size_t)t->nbytes);
}

static void perform(const struct decoded *d)
{
    if (d->map != MAP_0F38)
        fail("an illegal instruction that is none of AMX's");
    if (d->opcode == 0x49 && d->pp == PP_NONE && d->is_memory)
        configure(d->at);
    else if (d->opcode == 0x49 && d->pp == PP_NONE)
        configured = configured ? 0 : (fail("tiles are released twice"), 0);
    else if (d->opcode == 0x49 && d->pp == PP_F2 && !d->is_memory)
        memset(tile_at(d->reg)->row, 0, sizeof tiles->row);
    else if (d->opcode == 0x4B && (d->pp == PP_F2 || d->pp == PP_F3) && d->is_memory)
        move(d, d->pp == PP_F3);
    else if (d->opcode == 0x5E && d->pp == PP_66 && !d->is_memory)
        dot(tile_at(d->reg), tile_at(d->rm), tile_at(d->vvvv));
    else if (d->opcode == 0x5C && d->pp == PP_F3 && !d->is_memory)
        dot_halves(tile_at(d->reg), tile_at(d->rm), tile_at(d->vvvv));
    else
        fail("an illegal instruction that is none of those");
}

static void trapped(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    struct decoded d = decode(c);
    (void)number, (void)info;
    perform(&d);
    c->uc_mcontext.gregs[REG_RIP] += (greg_t)d.length;
    __atomic_add_fetch(&traps, 1, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGILL, &action, NULL))
        fail("no handler");
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("AMX_TRAPS");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f && (fprintf(f, "%ld\n", traps) < 0 || fclose(f)))
        fail("the number of traps is not written");
}
