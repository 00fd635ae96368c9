/* SHA3-256 (FIPS 202) of many streams at once, on one core.
 *
 * The hash of one stream cannot use a processor's wide registers: each permutation needs the one before. But the 64-bit
 * words of 8 streams (AVX-512) or 4 (AVX2) fit side by side into one register, and one instruction does to all what it
 * does to one. Each place in the registers is a lane; a lane whose stream has no more data takes the next stream.
 *
 * Nothing here knows of Python: sha3_multibuffer.py calls it by ctypes, so that other threads run meanwhile, and answers for all
 * pointers and sizes. Registers are the vectors of GCC and Clang: out of the plain operators compilers make the
 * rotations and the logic of three operands that AVX-512 has.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WORDS = 25, RATE = 136, ROUNDS = 24, WIDEST = 8, LINE = 64, AHEAD = 1024 };

/* A stream between two calls; at first all zeros. `block` holds `filled` bytes that are less than a block. */
struct stream {
    uint64_t state[WORDS];
    uint8_t block[RATE];
    uint64_t filled;
};

/* Data of a stream, or, if `data` is NULL, its end. The pieces of one stream stand together, in their order. `size` is
 * that of the end of the data which was not hashed yet. */
struct piece {
    struct stream *stream;
    const uint8_t *data;
    uint64_t size;
};

/* What a lane is at: `left` bytes of a piece, and the pieces of the same stream that follow. */
struct lane {
    struct stream *stream;
    struct piece *next, *end;
    const uint8_t *data;
    uint64_t left;
};

static const uint64_t IOTA[ROUNDS] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

/* Theta's parities of the columns, and what it adds to each. */
#define PARITY(a, x) (a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20])
#define ROTATED(word, bits) ((word) << (bits) | (word) >> (-(bits) & 63))
#define COLUMNS(a)                                                                                                     \
    c[0] = PARITY(a, 0), c[1] = PARITY(a, 1), c[2] = PARITY(a, 2), c[3] = PARITY(a, 3), c[4] = PARITY(a, 4);           \
    d[0] = c[4] ^ ROTATED(c[1], 1), d[1] = c[0] ^ ROTATED(c[2], 1), d[2] = c[1] ^ ROTATED(c[3], 1);                    \
    d[3] = c[2] ^ ROTATED(c[4], 1), d[4] = c[3] ^ ROTATED(c[0], 1);

/* A row of what a round makes: word `i` of the state, rotated by `r`, is where rho and pi put it; chi joins the five. */
#define MOVED(a, i, r) ROTATED(a[i] ^ d[(i) % 5], r)
#define ROW(out, y, a, i0, r0, i1, r1, i2, r2, i3, r3, i4, r4)                                                         \
    c[0] = MOVED(a, i0, r0), c[1] = MOVED(a, i1, r1), c[2] = MOVED(a, i2, r2);                                         \
    c[3] = MOVED(a, i3, r3), c[4] = MOVED(a, i4, r4);                                                                  \
    out[y] = c[0] ^ (~c[1] & c[2]), out[y + 1] = c[1] ^ (~c[2] & c[3]), out[y + 2] = c[2] ^ (~c[3] & c[4]);            \
    out[y + 3] = c[3] ^ (~c[4] & c[0]), out[y + 4] = c[4] ^ (~c[0] & c[1]);

#define ROUND(out, a, iota)                                                                                            \
    COLUMNS(a)                                                                                                         \
    ROW(out, 0, a, 0, 0, 6, 44, 12, 43, 18, 21, 24, 14)                                                                \
    ROW(out, 5, a, 3, 28, 9, 20, 10, 3, 16, 45, 22, 61)                                                                \
    ROW(out, 10, a, 1, 1, 7, 6, 13, 25, 19, 8, 20, 18)                                                                 \
    ROW(out, 15, a, 4, 27, 5, 36, 11, 10, 17, 15, 23, 56)                                                              \
    ROW(out, 20, a, 2, 62, 8, 55, 14, 39, 15, 41, 21, 2)                                                               \
    out[0] ^= iota;

/* The words `i` of the blocks of all lanes, side by side. */
#define WORD(n, i) word_at(blocks[n] + 8 * (i))
#define WORDS_4(i) WORD(0, i), WORD(1, i), WORD(2, i), WORD(3, i)
#define WORDS_8(i) WORDS_4(i), WORD(4, i), WORD(5, i), WORD(6, i), WORD(7, i)

static inline uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

/* Take in `count` blocks of each lane, which stand one behind the other, and permute after each by Keccak-f[1600]. Word
 * `i` of lane `n` is state[i * width + n]. A processor does not guess well what it needs next of so many streams, so it is
 * told: their data are seldom in its caches. */
#define ABSORPTION(width, instructions)                                                                                \
    __attribute__((target(instructions))) static void absorb_##width(uint64_t *state, const uint8_t **blocks,          \
                                                                     uint64_t count)                                   \
    {                                                                                                                  \
        typedef uint64_t words __attribute__((vector_size(8 * width)));                                                \
        words a[WORDS], b[WORDS], c[5], d[5];                                                                          \
        memcpy(a, state, sizeof a);                                                                                    \
        while (count--) {                                                                                              \
            for (int i = 0; i < RATE / 8; i++)                                                                         \
                a[i] ^= (words){WORDS_##width(i)};                                                                     \
            for (int n = 0; n < width; n++) {                                                                          \
                __builtin_prefetch(blocks[n] + AHEAD);                                                                 \
                __builtin_prefetch(blocks[n] + AHEAD + LINE);                                                          \
                blocks[n] += RATE;                                                                                     \
            }                                                                                                          \
            for (int round = 0; round < ROUNDS; round += 2) {                                                          \
                ROUND(b, a, IOTA[round])                                                                               \
                ROUND(a, b, IOTA[round + 1])                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        memcpy(state, a, sizeof a);                                                                                    \
    }

ABSORPTION(8, "avx512f")
ABSORPTION(4, "avx2")

/* The next whole block of a lane's stream; NULL when its pieces are used up, what is left being kept in the stream. */
static const uint8_t *next_block(struct lane *lane)
{
    struct stream *stream = lane->stream;
    for (;;) {
        if (stream->filled == 0 && lane->left >= RATE) {
            const uint8_t *block = lane->data;
            lane->data += RATE;
            lane->left -= RATE;
            return block;
        }
        uint64_t room = RATE - stream->filled, taken = lane->left < room ? lane->left : room;
        if (taken) {
            memcpy(stream->block + stream->filled, lane->data, taken);
            stream->filled += taken;
            lane->data += taken;
            lane->left -= taken;
        }
        if (stream->filled == RATE) {
            stream->filled = 0;
            return stream->block;
        }
        if (lane->next == lane->end)
            return NULL;
        struct piece *piece = lane->next++;
        if (piece->data == NULL) { /* the end: the bits 01 of SHA3, and pad10*1 */
            memset(stream->block + stream->filled, 0, RATE - stream->filled);
            stream->block[stream->filled] = 0x06;
            stream->block[RATE - 1] |= 0x80;
            stream->filled = 0;
            return stream->block;
        }
        lane->data = piece->data;
        lane->left = piece->size;
        piece->size = 0;
    }
}

/* The stream leaves the lane. `state` is the first word of the lane in the states, whose words are `width` apart. */
static void leave(struct lane *lane, const uint64_t *state, int width)
{
    for (int i = 0; i < WORDS; i++)
        lane->stream->state[i] = state[i * width];
    lane->stream = NULL;
}

/* The next block for a lane, of its stream or, when that has no more, of the next; NULL when there is none. */
static const uint8_t *block_for(struct lane *lane, struct piece **next, struct piece *end, uint64_t *state, int width)
{
    for (;;) {
        if (lane->stream) {
            const uint8_t *block = next_block(lane);
            if (block)
                return block;
            leave(lane, state, width);
        }
        if (*next == end)
            return NULL;
        *lane = (struct lane){.stream = (*next)->stream, .next = *next};
        while (*next < end && (*next)->stream == lane->stream)
            ++*next;
        lane->end = *next;
        for (int i = 0; i < WORDS; i++)
            state[i * width] = lane->stream->state[i];
    }
}

/* Whether the last piece of a lane's stream is its end. */
static int ends(const struct lane *lane)
{
    return lane->end[-1].data == NULL;
}

/* How many streams this processor hashes at once: 8, 4, or 0 if it is as fast one after the other. */
int lanes_width(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") ? 8 : __builtin_cpu_supports("avx2") ? 4 : 0;
}

/* The sizes that the caller allocates: it compares them with its own before the first call. */
size_t lanes_stream_size(void) { return sizeof(struct stream); }
size_t lanes_piece_size(void) { return sizeof(struct piece); }

/* Hash pieces until fewer than `least` lanes are busy, and none of them with a stream that ends; the pieces of streams
 * that end come first. `width` is 8 or 4, and not more than this processor has. The digest of a stream that has ended is
 * the first 32 bytes of its state. */
void lanes_hash(struct piece *pieces, size_t count, int width, int least)
{
    _Alignas(64) uint64_t states[WORDS * WIDEST] = {0};
    struct lane lanes[WIDEST] = {{0}};
    struct piece *next = pieces, *end = pieces + count;
    for (;;) {
        const uint8_t *blocks[WIDEST], *some = NULL;
        uint64_t more = UINT64_MAX; /* blocks that each lane has behind this one */
        int busy = 0, ending = 0;
        for (int n = 0; n < width; n++) {
            blocks[n] = block_for(&lanes[n], &next, end, states + n, width);
            if (blocks[n] == NULL)
                continue;
            busy++;
            ending |= ends(&lanes[n]);
            some = blocks[n];
            uint64_t behind = lanes[n].data == some + RATE ? lanes[n].left / RATE : 0;
            if (behind < more)
                more = behind;
        }
        if (busy == 0)
            return;
        int last = busy < least && !ending;
        if (last) /* only what was taken from them */
            more = 0;
        for (int n = 0; n < width; n++) {
            if (blocks[n] == NULL) { /* a lane without a stream: what is in it changes, and nobody looks */
                blocks[n] = some;
                continue;
            }
            lanes[n].data += more * RATE;
            lanes[n].left -= more * RATE;
        }
        if (width == 8)
            absorb_8(states, blocks, 1 + more);
        else
            absorb_4(states, blocks, 1 + more);
        if (last)
            break;
    }
    for (int n = 0; n < width; n++)
        if (lanes[n].stream) {
            lanes[n].next[-1].size = lanes[n].left;
            leave(&lanes[n], states + n, width);
        }
}
