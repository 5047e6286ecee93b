"""The random numbers of tgc, written anew from the paper: Salmon et al., Parallel random numbers: as easy
as 1, 2, 3, 2011."""


def threefry(key, counter):
    """Threefry-2x32, 20 rounds, from the paper."""
    def mask(v):
        return v & 0xffffffff
    k = [*key, 0x1BD11BDA ^ key[0] ^ key[1]]
    x = [mask(counter[0] + k[0]), mask(counter[1] + k[1])]
    for r in range(20):
        x[0] = mask(x[0] + x[1])
        turn = [13, 15, 26, 6, 17, 29, 16, 24][r % 8]
        x[1] = mask(x[1] << turn | x[1] >> (32 - turn)) ^ x[0]
        if r % 4 == 3:
            x = [mask(x[0] + k[(r // 4 + 1) % 3]), mask(x[1] + k[(r // 4 + 2) % 3] + r // 4 + 1)]
    return x


def halves(v):
    return [v & 0xffffffff, v >> 32]
