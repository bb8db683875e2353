// SPDX-License-Identifier: Apache-2.0
// Instructions without an operator in C. Counts and positions are the low 8 bits of their operands, as in PTX.

static inline uint64_t low_bits(uint32_t count) { return count >= 64 ? ~0ULL : (1ULL << count) - 1; }

static inline uint32_t leading_zeros(uint64_t value, uint32_t bits)
{
    return value ? (uint32_t)__builtin_clzll(value) - (64 - bits) : bits;
}

static inline uint64_t reversed_bits(uint64_t value, uint32_t bits)
{
    uint64_t reversed = 0;
    for (uint32_t k = 0; k < bits; k++) reversed |= (value >> k & 1) << (bits - 1 - k);
    return reversed;
}

static inline uint64_t inserted_bits(uint64_t bits_in, uint64_t into, uint32_t position, uint32_t count, uint32_t bits)
{
    position &= 255, count &= 255;
    if (position >= bits) return into;
    uint64_t mask = low_bits(count) << position;
    return (into & ~mask) | (bits_in << position & mask);
}

static inline uint64_t extracted_bits(uint64_t value, uint32_t position, uint32_t count, uint32_t bits, int is_signed)
{
    position &= 255, count &= 255;
    value &= low_bits(bits);
    uint64_t field = position < 64 ? value >> position & low_bits(count) : 0;
    if (!is_signed || count == 0) return field;
    uint32_t top = position + count - 1 < bits - 1 ? position + count - 1 : bits - 1;
    if (!(value >> top & 1)) return field;
    uint32_t width = top >= position ? top - position + 1 : 0;
    return field | ~low_bits(width);
}

static inline uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t count)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << count >> 32);
}

static inline uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t count)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> count);
}

// Each half-byte of `chosen` names one of the eight bytes of `b` and `a`; its top bit spreads that byte's sign.
static inline uint32_t permuted_bytes(uint32_t a, uint32_t b, uint32_t chosen)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t choice = chosen >> 4 * k & 15;
        uint8_t byte = (uint8_t)(bytes >> 8 * (choice & 7));
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        result |= (uint32_t)byte << 8 * k;
    }
    return result;
}

// Bit k of the table is the result for the bits (a, b, c) of k.
static inline uint32_t logic_of_three(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t result = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return result;
}

static inline int64_t quotient_signed(Thread *t, uint32_t instruction, int64_t a, int64_t b)
{
    if (b == 0) fail(t, instruction, FAULT_DIVISION, 0, 0);
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static inline int64_t remainder_signed(Thread *t, uint32_t instruction, int64_t a, int64_t b)
{
    if (b == 0) fail(t, instruction, FAULT_DIVISION, 0, 0);
    return b == -1 ? 0 : a % b;
}

static inline uint64_t quotient_unsigned(Thread *t, uint32_t instruction, uint64_t a, uint64_t b)
{
    if (b == 0) fail(t, instruction, FAULT_DIVISION, 0, 0);
    return a / b;
}

static inline uint64_t remainder_unsigned(Thread *t, uint32_t instruction, uint64_t a, uint64_t b)
{
    if (b == 0) fail(t, instruction, FAULT_DIVISION, 0, 0);
    return a % b;
}
