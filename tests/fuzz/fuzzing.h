/* What the programs that fuzz the C files without Python share: _frames.c, random numbers, seeds and
 * mutations. */
#include "../../tfrtool/records/_frames.c"

#include <stdio.h>
#include <time.h>

#define MOST 4096
#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s, line %d: %s\n", __FILE__, __LINE__, #condition);    \
            abort();                                                                 \
        }                                                                            \
    } while (0)

static uint64_t state;

/* xorshift64* by Vigna, 2016. */
static uint64_t random_bits(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}

static size_t draw(size_t below) { return below ? (size_t)((random_bits() >> 33) % below) : 0; }

typedef struct {
    uint8_t bytes[MOST];
    size_t size;
} buffer;

static void change(buffer *in) {
    static const uint8_t hard[] = {0, 1, 0x0a, 0x12, 0x1a, 0x7f, 0x80, 0xff, 0xc3, 0xed};
    size_t at = draw(in->size + 1), size = draw(9);
    switch (draw(5)) {
    case 0:
        if (at < in->size) in->bytes[at] ^= (uint8_t)(1 << draw(8));
        break;
    case 1:
        if (at < in->size) in->bytes[at] = hard[draw(sizeof hard)];
        break;
    case 2: /* leave some out */
        if (size > in->size - at) size = in->size - at;
        memmove(in->bytes + at, in->bytes + at + size, in->size - at - size);
        in->size -= size;
        break;
    case 3: /* repeat some */
        if (size > in->size - at) size = in->size - at;
        if (size > MOST - in->size) size = MOST - in->size;
        memmove(in->bytes + at + size, in->bytes + at, in->size - at);
        in->size += size;
        break;
    default:
        if (at < in->size) in->bytes[at] = (uint8_t)draw(256);
    }
}

/* Read the payloads of a shard, those that are short enough. */
static size_t read_seeds(const char *path, buffer *seeds, size_t most) {
    static uint8_t data[1 << 20];
    frames found = {0};
    size_t count = 0;
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    CHECK(find_frames(&found, data, size, 0, size, MOST - FRAME, 1, 0));
    for (size_t i = 0; i < found.count && count < most; i++, count++) {
        seeds[count].size = (size_t)(found.starts[i + 1] - found.starts[i]) - FRAME;
        memcpy(seeds[count].bytes, data + found.starts[i] + HEADER, seeds[count].size);
    }
    free(found.starts), free(found.keys);
    return count;
}
