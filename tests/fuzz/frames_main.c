/* Throws mutated shards at the functions of _frames.c, without Python: some 100,000 a second.
 *
 * frames_main SECONDS SEED SHARD changes the payloads of a shard; `python -m tests.fuzz.frames`
 * writes one.
 * Built with sanitizers, which end it at a finding: each shard is in memory of exactly its size.
 * What it asserts itself: both ways to compute a CRC agree, what has certain features is canonical,
 * and copies of frames are equal. tests/fuzz/frames.py compares with Python.
 */
#include "fuzzing.h"

static void store(uint8_t *to, uint64_t value, int size) {
    for (int i = 0; i < size; i++) to[i] = (uint8_t)(value >> 8 * i);
}

static void add_frame(buffer *shard, const buffer *payload) {
    if (shard->size + payload->size + FRAME > MOST) return;
    uint8_t *at = shard->bytes + shard->size;
    store(at, payload->size, 8);
    store(at + 8, masked_crc(at, 8), 4);
    memcpy(at + HEADER, payload->bytes, payload->size);
    store(at + HEADER + payload->size, masked_crc(payload->bytes, payload->size), 4);
    shard->size += FRAME + payload->size;
}

static void check_shard(const uint8_t *data, size_t size, size_t *totals) {
    static const char keys[] = "labeltitleimage";
    static const expected features[] = {
        {0, 5, THIRD, 1, 1, -1, 2, 0},
        {5, 10, FIRST, 1, 1, 0, 0, 1},
        {10, 15, FIRST, -1, 2, 0, 0, 0},
        {10, 10, SECOND, -1, 3, 0, 0, 0},
    };
    frames found = {0};
    size_t at = draw(size + 1) * draw(2), wanted = 1 + draw(4);
    uint64_t limit = draw(4) ? UINT64_MAX : draw(100);
    CHECK(~extend(~0u, data, size) == ~crc_by_table(~0u, data, size));
    size_t stop = draw(4) ? size : draw(size + 20);
    CHECK(find_frames(&found, data, size, at, stop, limit, draw(4) > 0, 0));
    totals[0] += found.count;
    CHECK(found.starts[found.count] <= size);
    uint8_t *odd = malloc(found.count + 1), *other = malloc(found.count + 1);
    uint8_t *copied = malloc(size + 1), *copied_keys = malloc(8 * found.count + 1), seen[4];
    uint64_t *sizes = malloc(8 * found.count + 8);
    int flags = 0;
    CHECK(odd && other && copied && copied_keys && sizes);
    const uint8_t *starts = (const uint8_t *)found.starts;
    CHECK(check_frames(data, size, starts, found.count, odd, &flags));
    CHECK(match_frames(data, size, starts, found.count, features, wanted,
                       (const uint8_t *)keys, seen, other));
    for (size_t i = 0; i < found.count; i++) {
        sizes[i] = found.starts[i + 1] - found.starts[i];
        CHECK(other[i] || !odd[i]); /* what has the features is canonical */
        totals[1] += !other[i];
    }
    size_t picked = picked_size(size, starts, (const uint8_t *)sizes, found.count);
    CHECK(picked == (size_t)(found.starts[found.count] - found.starts[0]));
    if (pick_frames(copied, copied_keys, data, starts, (const uint8_t *)sizes, found.count)) {
        CHECK(!memcmp(copied, data + found.starts[0], picked));
        CHECK(!memcmp(copied_keys, found.keys, 8 * found.count));
    }
    free(odd), free(other), free(copied), free(copied_keys), free(sizes);
    free(found.starts), free(found.keys);
}

int main(int count, char **arguments) {
    static buffer seeds[256], pool[2048], shard, payload;
    size_t runs = 0, totals[2] = {0};
    if (count != 4) return 2;
    state = strtoull(arguments[2], NULL, 10) * 2 + 1;
    fill_tables();
    extend = fastest();
    size_t known = read_seeds(arguments[3], seeds, 256);
    if (!known) return 2;
    for (size_t i = 0; i < 2048; i++) pool[i] = seeds[i % known];
    time_t end = time(NULL) + atol(arguments[1]);
    for (; runs % 1024 || time(NULL) < end; runs++) {
        shard.size = 0;
        for (size_t left = 1 + draw(5); left; left--) {
            payload = pool[draw(2048)];
            for (size_t changes = draw(5); changes; changes--) change(&payload);
            add_frame(&shard, &payload);
        }
        if (!draw(16)) pool[draw(2048)] = draw(4) ? payload : seeds[draw(known)];
        for (size_t changes = draw(4) ? 0 : 1 + draw(3); changes; changes--) change(&shard);
        uint8_t *data = malloc(shard.size ? shard.size : 1);
        CHECK(data);
        memcpy(data, shard.bytes, shard.size);
        check_shard(data, shard.size, totals);
        free(data);
    }
    printf("frames_main: %zu runs in %s s from seed %s; of %zu frames, %zu had the features\n",
           runs, arguments[1], arguments[2], totals[0], totals[1]);
    return 0;
}
