/* team.c - threads as emitted programs have them, which are runtime/threads.c's: embed writes its
 * pieces, so that tgc is compiled with them and nothing is written twice. */
#include "backends/llvm/team.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#include "team.inc"

struct team *team_new(int workers)
{
    struct team *team = aligned_alloc(alignof(struct team), sizeof *team);
    if (!team)
        return NULL;
    if (team_open(team, workers) == 0)
        return team;
    free(team);
    return NULL;
}

void team_free(struct team *team)
{
    team_close(team);
    free(team);
}

void team_share(struct team *team, void (*body)(void *context, int part), void *context, long saves)
{
    team_run(team, body, context, saves);
}
