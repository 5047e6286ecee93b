/* SPDX-License-Identifier: 0BSD */
/* half.h - binary16 as C++ has it where the compiler has none; to nearest, ties to even.
 */
struct half {
    uint16_t bits;
    half() = default;
    explicit half(float v)
    {
        const uint32_t u = __builtin_bit_cast(uint32_t, v), sign = u >> 16 & 0x8000,
                       rest = u & 0x7fffffff;
        if (rest > 0x7f800000)
            bits = (uint16_t)(sign | 0x7e00);
        else if (rest >= 0x477ff000)
            bits = (uint16_t)(sign | 0x7c00);
        else if (rest < 0x38800000) {
            /* 2^24, 2^23 */
            const float scaled = __builtin_bit_cast(float, rest) * 16777216.0f + 8388608.0f;
            bits = (uint16_t)(sign | (__builtin_bit_cast(uint32_t, scaled) & 0x7fff));
        } else
            bits = (uint16_t)(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13));
    }
    explicit operator float() const
    {
        const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff;
        if (rest >= 0x7c00)
            return __builtin_bit_cast(float, sign | 0x7f800000 | (rest & 0x3ff) << 13);
        if (rest < 0x400)
            return __builtin_bit_cast(
                float, sign | __builtin_bit_cast(uint32_t, (float)rest / 16777216.0f));
        return __builtin_bit_cast(float, sign | ((rest << 13) + 0x38000000));
    }
};
