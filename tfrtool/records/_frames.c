/* Frames of a TFRecord stream, and whether their payloads are canonical Examples, in C.
 *
 * It only ever says that bytes are as they should be. Where they are not, or where it can't tell,
 * it stops, and the reader in Python looks at that offset: each fault has one definition, there.
 * What holds: no length is believed before its checksum (within payloads, before it is compared
 * with what is left), no sum of lengths is made that could wrap, nothing behind `size` is read.
 *
 * The checksum is CRC-32C: Castagnoli's polynomial, RFC 3720 appendix B.4, bits reflected. The mask
 * is that of tensorflow/core/lib/hash/crc32c.h.
 */
#include "_native.h"

#define INTERFACE 7 /* counted up with each change of the functions; frames.py has it, too */
#define MASK_DELTA 0xa282ead8u
#define POLYNOMIAL 0x82f63b78u
#define LANE 256 /* bytes: of long data, three stretches of this size are done at once */

typedef uint32_t (*checksum)(uint32_t crc, const uint8_t *data, size_t size);

static uint32_t tables[8][256]; /* of a byte, followed by 0 to 7 zeros */
static uint32_t lanes[4][256];  /* of each byte of a CRC, followed by LANE zeros */

/* Little-endian, wherever it runs; compilers make one load of each. */
static uint32_t load32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t load64(const uint8_t *p) {
    return (uint64_t)load32(p) | (uint64_t)load32(p + 4) << 32;
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = load64(data) ^ crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= tables[7 - i][word >> 8 * i & 0xff];
    }
    while (size--) crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 0xff];
    return crc;
}

static void fill_tables(void) {
    static const uint8_t zeros[LANE];
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (int i = 1; i < 8; i++)
        for (int byte = 0; byte < 256; byte++)
            tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 0xff];
    for (int i = 0; i < 4; i++)
        for (uint32_t byte = 0; byte < 256; byte++)
            lanes[i][byte] = crc_by_table(byte << 8 * i, zeros, LANE);
}

/* The instruction has a latency of three cycles and a throughput of one: three lanes at once. */
#define CRC_BY_INSTRUCTION(NAME, TARGET, WORD, BYTE)                                     \
    static uint32_t shift_lane(uint32_t crc) {                                           \
        return lanes[0][crc & 0xff] ^ lanes[1][crc >> 8 & 0xff] ^                        \
               lanes[2][crc >> 16 & 0xff] ^ lanes[3][crc >> 24];                         \
    }                                                                                    \
    TARGET static uint32_t NAME(uint32_t crc, const uint8_t *data, size_t size) {        \
        for (; size >= 3 * LANE; data += 3 * LANE, size -= 3 * LANE) {                   \
            uint32_t second = 0, third = 0;                                              \
            for (size_t i = 0; i < LANE; i += 8) {                                       \
                crc = (uint32_t)WORD(crc, load64(data + i));                             \
                second = (uint32_t)WORD(second, load64(data + LANE + i));                \
                third = (uint32_t)WORD(third, load64(data + 2 * LANE + i));              \
            }                                                                            \
            crc = shift_lane(shift_lane(crc) ^ second) ^ third;                          \
        }                                                                                \
        for (; size >= 8; data += 8, size -= 8) crc = (uint32_t)WORD(crc, load64(data)); \
        while (size--) crc = BYTE(crc, *data++);                                         \
        return crc;                                                                      \
    }

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#if defined(__clang__) /* for which it is a feature of its own */
#define SSE_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define SSE_TARGET __attribute__((target("sse4.2")))
#endif
CRC_BY_INSTRUCTION(crc_by_sse, SSE_TARGET, _mm_crc32_u64, _mm_crc32_u8)
static checksum fastest(void) { return __builtin_cpu_supports("sse4.2") ? crc_by_sse : crc_by_table; }
#elif defined(_M_X64)
#include <intrin.h>
#include <nmmintrin.h>
CRC_BY_INSTRUCTION(crc_by_sse, , _mm_crc32_u64, _mm_crc32_u8)
static checksum fastest(void) {
    int info[4];
    __cpuid(info, 1);
    return info[2] & 1 << 20 ? crc_by_sse : crc_by_table;
}
#elif defined(__aarch64__) && defined(__GNUC__) && (defined(__APPLE__) || defined(__linux__))
#include <arm_acle.h>
#if defined(__APPLE__)
#define ARM_TARGET
#define HAS_CRC 1 /* all of their 64-bit processors */
#else
#include <sys/auxv.h>
#define ARM_TARGET __attribute__((target("+crc")))
#define HAS_CRC (getauxval(AT_HWCAP) & 1 << 7) /* HWCAP_CRC32 */
#endif
CRC_BY_INSTRUCTION(crc_by_arm, ARM_TARGET, __crc32cd, __crc32cb)
static checksum fastest(void) { return HAS_CRC ? crc_by_arm : crc_by_table; }
#else
static checksum fastest(void) { return crc_by_table; }
#endif

static checksum extend = crc_by_table;

static uint32_t masked_crc(const uint8_t *data, size_t size) {
    uint32_t crc = ~extend(0xffffffffu, data, size);
    return (crc >> 15 | crc << 17) + MASK_DELTA;
}

/* ---- frames ---- */

typedef struct {
    uint64_t *starts; /* of each frame, and the end of the last */
    uint64_t *keys;   /* of each payload: its CRC as it is stored, and its length */
    size_t count, room;
} frames;

static int has_room(frames *found) {
    if (found->count < found->room) return 1;
    size_t room = found->room ? 2 * found->room : 1024;
    uint64_t *starts = realloc(found->starts, (room + 1) * sizeof *starts);
    if (starts) found->starts = starts;
    uint64_t *keys = starts ? realloc(found->keys, room * sizeof *keys) : NULL;
    if (keys) found->keys = keys;
    if (keys) found->room = room;
    return keys != NULL;
}

/* Read the key of the frame that `size` bytes begin with; 0 if it is not intact, or not in them. */
static int read_frame(const uint8_t *frame, size_t size, uint64_t limit, int verify,
                      uint64_t *key) {
    if (size < FRAME) return 0;
    uint64_t length = load64(frame);
    if (masked_crc(frame, 8) != load32(frame + 8)) return 0;
    if (length > limit || length > size - FRAME) return 0;
    const uint8_t *payload = frame + HEADER;
    uint32_t crc = load32(payload + length);
    *key = (uint64_t)crc << 32 | (length & 0xffffffffu);
    return !verify || masked_crc(payload, (size_t)length) == crc;
}

/* Find intact frames one behind the other, from `at` on, that start before `stop`; 0: no memory.
 * `base` is added to where they start. */
static int find_frames(frames *found, const uint8_t *data, size_t size, size_t at, size_t stop,
                       uint64_t limit, int verify, uint64_t base) {
    uint64_t key;
    while (at < stop && read_frame(data + at, size - at, limit, verify, &key)) {
        if (!has_room(found)) return 0;
        found->starts[found->count] = base + at;
        found->keys[found->count++] = key;
        at += FRAME + (size_t)load64(data + at);
    }
    if (!has_room(found)) return 0;
    found->starts[found->count] = base + at;
    return 1;
}

static PyObject *scan(PyObject *module, PyObject *args) {
    Py_buffer data;
    Py_ssize_t at, stop;
    unsigned long long limit, base = 0;
    int verify, ok = 0;
    frames found = {0};
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnKp|K", &data, &at, &stop, &limit, &verify, &base))
        return NULL;
    if (at < 0 || at > data.len) {
        PyErr_SetString(PyExc_ValueError, "the position is not in the data");
    } else {
        Py_BEGIN_ALLOW_THREADS
        ok = find_frames(&found, data.buf, (size_t)data.len, (size_t)at,
                         stop < 0 ? 0 : (size_t)stop, limit, verify, base);
        Py_END_ALLOW_THREADS
        if (ok)
            result = Py_BuildValue("y#y#", (const char *)found.starts,
                                   (Py_ssize_t)((found.count + 1) * sizeof *found.starts),
                                   (const char *)found.keys,
                                   (Py_ssize_t)(found.count * sizeof *found.keys));
        else
            PyErr_NoMemory();
    }
    free(found.starts);
    free(found.keys);
    PyBuffer_Release(&data);
    return result;
}

/* Return how many bytes frames have together; 0 if one of them is not within the data. */
static size_t picked_size(size_t size, const uint8_t *starts, const uint8_t *sizes, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = number(starts, i), length = number(sizes, i);
        if (start > size || length < FRAME || length > size - start) return 0;
        if (length > PY_SSIZE_T_MAX - total) return 0;
        total += (size_t)length;
    }
    return total;
}

/* Copy frames in the given order, and note their keys; 0 if one of them is not intact. */
static int pick_frames(uint8_t *out, uint8_t *keys, const uint8_t *data, const uint8_t *starts,
                       const uint8_t *sizes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *frame = data + number(starts, i);
        size_t size = (size_t)number(sizes, i);
        uint64_t key;
        if (!read_frame(frame, size, size, 1, &key) || load64(frame) != size - FRAME) return 0;
        memcpy(keys + 8 * i, &key, 8);
        memcpy(out, frame, size);
        out += size;
    }
    return 1;
}

static PyObject *pick(PyObject *module, PyObject *args) {
    Py_buffer data, starts, sizes;
    PyObject *out = NULL, *keys = NULL, *result = NULL;
    int ok = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*", &data, &starts, &sizes)) return NULL;
    size_t count = (size_t)starts.len / 8;
    size_t total = starts.len == sizes.len
                       ? picked_size((size_t)data.len, starts.buf, sizes.buf, count)
                       : 0;
    if (!total && (count || sizes.len)) {
        PyErr_SetString(PyExc_ValueError, "a frame is not in the data");
    } else {
        out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
        keys = PyBytes_FromStringAndSize(NULL, starts.len / 8 * 8);
    }
    if (out && keys) {
        uint8_t *copied = (uint8_t *)PyBytes_AsString(out);
        uint8_t *noted = (uint8_t *)PyBytes_AsString(keys);
        Py_BEGIN_ALLOW_THREADS
        ok = pick_frames(copied, noted, data.buf, starts.buf, sizes.buf, count);
        Py_END_ALLOW_THREADS
        result = ok ? PyTuple_Pack(2, out, keys) : Py_BuildValue("");
    }
    Py_XDECREF(out);
    Py_XDECREF(keys);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&data);
    return result;
}

/* ---- frames of payloads ---- */

static void store32(uint8_t *out, uint32_t value) {
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> 8 * i);
}

static uint8_t *put_frame(uint8_t *out, span payload, uint32_t crc) {
    size_t size = (size_t)(payload.end - payload.at);
    store32(out, (uint32_t)size);
    store32(out + 4, (uint32_t)((uint64_t)size >> 32));
    store32(out + 8, masked_crc(out, 8));
    memcpy(out + HEADER, payload.at, size);
    store32(out + HEADER + size, crc);
    return out + FRAME + size;
}

static PyObject *masked_crcs(PyObject *module, PyObject *args) {
    stretches all;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*", &all.data, &all.starts, &all.ends)) return NULL;
    if (!check(&all)) return NULL;
    PyObject *array = make_array(all.count, sizeof(uint32_t));
    uint32_t *crcs = numbers_of(array);
    if (crcs) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < all.count; i++) {
            span payload = stretch(&all, i);
            crcs[i] = masked_crc(payload.at, (size_t)(payload.end - payload.at));
        }
        Py_END_ALLOW_THREADS
    }
    release(&all);
    return array;
}

static PyObject *frame(PyObject *module, PyObject *args) {
    stretches all;
    Py_buffer keys;
    PyObject *result = NULL;
    uint64_t total = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*", &all.data, &all.starts, &all.ends, &keys)) return NULL;
    if (check(&all)) {
        for (size_t i = 0; i < all.count; i++) {
            span payload = stretch(&all, i);
            total += FRAME + (uint64_t)(payload.end - payload.at);
        }
        if ((size_t)keys.len != 8 * all.count)
            PyErr_SetString(PyExc_ValueError, "a key is missing");
        else
            result = make_array(total, 1);
        uint8_t *out = numbers_of(result);
        if (out) {
            Py_BEGIN_ALLOW_THREADS
            for (size_t i = 0; i < all.count; i++) {
                uint64_t key;
                memcpy(&key, (const char *)keys.buf + 8 * i, 8);
                out = put_frame(out, stretch(&all, i), (uint32_t)(key >> 32));
            }
            Py_END_ALLOW_THREADS
        }
        release(&all);
    }
    PyBuffer_Release(&keys);
    return result;
}

/* ---- canonical Examples: tensorflow/core/example/example.proto and feature.proto ---- */

#define HAS_BOXES 1
#define HAS_LISTS 2

static int is_feature(span in) {
    span list, values;
    uint64_t value;
    uint8_t kind = in.at < in.end ? *in.at : 0;
    if (kind != FIRST && kind != SECOND && kind != THIRD) return 0;
    if (!read_field(&in, kind, &list) || in.at != in.end) return 0;
    if (kind == FIRST) {
        while (list.at < list.end)
            if (!read_field(&list, FIRST, &values)) return 0;
        return 1;
    }
    if (list.at == list.end) return 1;
    if (!read_field(&list, FIRST, &values) || list.at != list.end || values.at == values.end)
        return 0;
    if (kind == SECOND) return (values.end - values.at) % 4 == 0;
    while (values.at < values.end)
        if (!read_varint(&values, &value)) return 0;
    return 1;
}

static int is_feature_list(span in) {
    span feature;
    while (in.at < in.end)
        if (!read_field(&in, FIRST, &feature) || !is_feature(feature)) return 0;
    return 1;
}

static int has_box(span key) {
    for (; key.end - key.at >= 5; key.at++)
        if (!memcmp(key.at, "/bbox", 5)) return 1;
    return 0;
}

/* Whether it is a map from keys to what `is_value` says; sets HAS_BOXES for a key with "/bbox". */
static int is_map(span in, int (*is_value)(span), int *flags) {
    span entry, key, value;
    while (in.at < in.end) {
        if (!read_field(&in, FIRST, &entry) || !read_field(&entry, FIRST, &key)) return 0;
        if (!read_field(&entry, SECOND, &value) || entry.at != entry.end || !is_value(value))
            return 0;
        if (has_box(key)) *flags |= HAS_BOXES;
    }
    return 1;
}

static int is_example(span in, int *flags) {
    span map;
    if (in.at < in.end && *in.at == FIRST)
        if (!read_field(&in, FIRST, &map) || !is_map(map, is_feature, flags)) return 0;
    if (in.at == in.end) return 1;
    *flags |= HAS_LISTS;
    return read_field(&in, SECOND, &map) && is_map(map, is_feature_list, flags) &&
           in.at == in.end;
}

/* Note which payloads are not canonical; 0 if the frames are not within the data. */
static int check_frames(const uint8_t *data, size_t size, const uint8_t *starts, size_t count,
                        uint8_t *odd, int *flags) {
    span payload;
    for (size_t i = 0; i < count; i++) {
        int found = 0;
        if (!find_payload(data, size, starts, i, &payload)) return 0;
        odd[i] = !is_example(payload, &found);
        if (!odd[i]) *flags |= found;
    }
    return 1;
}

static PyObject *check_examples(PyObject *module, PyObject *args) {
    Py_buffer data, starts;
    PyObject *result = NULL;
    int ok = 0, flags = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*", &data, &starts)) return NULL;
    size_t count = starts.len >= 16 ? (size_t)starts.len / 8 - 1 : 0;
    uint8_t *odd = calloc(count ? count : 1, 1);
    if (!odd) {
        PyErr_NoMemory();
    } else {
        Py_BEGIN_ALLOW_THREADS
        ok = check_frames(data.buf, (size_t)data.len, starts.buf, count, odd, &flags);
        Py_END_ALLOW_THREADS
        if (ok)
            result = Py_BuildValue("y#i", (const char *)odd, (Py_ssize_t)count, flags);
        else
            PyErr_SetString(PyExc_ValueError, "a frame is not in the data");
    }
    free(odd);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&data);
    return result;
}

/* ---- Examples with certain features ---- */

typedef struct {
    int64_t key, key_end; /* where the key is among the keys */
    int64_t tag;          /* of the list of values */
    int64_t count;        /* of values; -1: a multiple of the next */
    int64_t multiple;
    int64_t low, high; /* of integers */
    int64_t is_text;   /* whether strings are UTF-8 */
} expected;

/* Whether it is UTF-8: RFC 3629, section 4. */
static int is_utf8(span text) {
    while (text.at < text.end) {
        uint8_t first = *text.at++;
        if (first < 0x80) continue;
        int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || text.end - text.at < more) return 0;
        uint8_t second = *text.at;
        if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
        if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
        while (more--)
            if ((*text.at++ & 0xc0) != 0x80) return 0;
    }
    return 1;
}

/* Count the values of a list, each of which is as expected; -1 if one is not. */
static int64_t count_values(span list, const expected *feature) {
    int64_t count = 0;
    span value;
    uint64_t bits;
    if (feature->tag == FIRST) {
        for (; list.at < list.end; count++)
            if (!read_field(&list, FIRST, &value) || (feature->is_text && !is_utf8(value)))
                return -1;
        return count;
    }
    if (list.at == list.end) return 0;
    if (!read_field(&list, FIRST, &value) || list.at != list.end || value.at == value.end)
        return -1;
    if (feature->tag == SECOND) {
        int64_t size = value.end - value.at;
        return size % 4 ? -1 : size / 4;
    }
    for (; value.at < value.end; count++) {
        if (!read_varint(&value, &bits)) return -1;
        if ((int64_t)bits < feature->low || (int64_t)bits > feature->high) return -1;
    }
    return count;
}

static int is_expected(span in, const expected *feature) {
    span list;
    if (!read_field(&in, (uint8_t)feature->tag, &list) || in.at != in.end) return 0;
    int64_t count = count_values(list, feature);
    if (count < 0) return 0;
    return feature->count < 0 ? count % feature->multiple == 0 : count == feature->count;
}

/* Whether a payload has each of the features once, in any order, and nothing else. */
static int has_features(span in, const expected *features, size_t count, const uint8_t *keys,
                        uint8_t *seen) {
    span map, entry, key, value;
    size_t next = 0, found = 0;
    memset(seen, 0, count);
    if (!read_field(&in, FIRST, &map) || in.at != in.end) return 0;
    for (; map.at < map.end; found++) {
        if (!read_field(&map, FIRST, &entry) || !read_field(&entry, FIRST, &key)) return 0;
        if (!read_field(&entry, SECOND, &value) || entry.at != entry.end) return 0;
        size_t tried = 0; /* they usually come in the same order in all records */
        for (; tried < count; tried++, next = next + 1 < count ? next + 1 : 0) {
            int64_t size = features[next].key_end - features[next].key;
            if (key.end - key.at == size && !memcmp(key.at, keys + features[next].key, (size_t)size))
                break;
        }
        if (tried == count || seen[next] || !is_expected(value, features + next)) return 0;
        seen[next] = 1;
        next = next + 1 < count ? next + 1 : 0;
    }
    return found == count;
}

static int are_valid(const expected *features, size_t count, Py_ssize_t size) {
    for (size_t i = 0; i < count; i++) {
        if (features[i].key < 0 || features[i].key_end < features[i].key) return 0;
        if (features[i].key_end > size || features[i].multiple < 1) return 0;
    }
    return 1;
}

/* Note which payloads don't have exactly the features; 0 if the frames are not within the data. */
static int match_frames(const uint8_t *data, size_t size, const uint8_t *starts, size_t count,
                        const expected *features, size_t wanted, const uint8_t *keys,
                        uint8_t *seen, uint8_t *odd) {
    span payload;
    for (size_t i = 0; i < count; i++) {
        if (!find_payload(data, size, starts, i, &payload)) return 0;
        odd[i] = !has_features(payload, features, wanted, keys, seen);
    }
    return 1;
}

static PyObject *match_features(PyObject *module, PyObject *args) {
    Py_buffer data, starts, features, keys;
    PyObject *result = NULL;
    int ok = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*", &data, &starts, &features, &keys)) return NULL;
    size_t count = starts.len >= 16 ? (size_t)starts.len / 8 - 1 : 0;
    size_t wanted = (size_t)features.len / sizeof(expected);
    expected *copied = malloc(wanted * sizeof *copied + 1); /* which is aligned */
    uint8_t *seen = malloc(wanted + 1), *odd = calloc(count + 1, 1);
    if (copied && seen && odd) {
        memcpy(copied, features.buf, wanted * sizeof *copied);
        if (are_valid(copied, wanted, keys.len)) {
            Py_BEGIN_ALLOW_THREADS
            ok = match_frames(data.buf, (size_t)data.len, starts.buf, count, copied, wanted,
                              keys.buf, seen, odd);
            Py_END_ALLOW_THREADS
        }
        if (ok)
            result = PyBytes_FromStringAndSize((const char *)odd, (Py_ssize_t)count);
        else
            PyErr_SetString(PyExc_ValueError, "a frame is not in the data, or a key in the keys");
    } else {
        PyErr_NoMemory();
    }
    free(copied);
    free(seen);
    free(odd);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&features);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS,
     "scan(data, position, stop, limit, verify, base=0) -> (starts, keys)\n\n"
     "Find intact frames one behind the other: where each starts, and the last one ends, plus base,\n"
     "and of each payload its stored CRC << 32 | its length, all as uint64."},
    {"pick", pick, METH_VARARGS,
     "pick(data, starts, sizes) -> (frames, keys), or None\n\n"
     "Copy frames in the order in which their starts and sizes are given, as uint64, with their\n"
     "keys, if all of them are intact."},
    {"check_examples", check_examples, METH_VARARGS,
     "check_examples(data, starts) -> (odd, flags)\n\n"
     "Say for each frame with a byte whether its payload is something other than an Example or a\n"
     "SequenceExample as every writer writes them; and of those that are none, 1 for a key with\n"
     "/bbox, 2 for feature lists."},
    {"match_features", match_features, METH_VARARGS,
     "match_features(data, starts, features, keys) -> odd\n\n"
     "Say for each frame with a byte whether its payload may be something other than an Example\n"
     "with each of the features once, and no other. A feature is eight int64: where its key starts\n"
     "and ends in the keys, the tag of its list, how many values it has or -1 for a multiple of\n"
     "the next, the lowest and highest integer, and whether its strings are UTF-8."},
    {"masked_crcs", masked_crcs, METH_VARARGS,
     "masked_crcs(data, starts, ends) -> crcs\n\n"
     "Return the masked CRCs of payloads, as uint32."},
    {"frame", frame, METH_VARARGS,
     "frame(data, starts, ends, keys) -> frames\n\n"
     "Return payloads with a frame around each, whose CRC the key has, one behind the other."},
    {"find_entries", find_entries, METH_VARARGS,
     "find_entries(data, starts, ends, keys, key_ends, key_order, most)\n"
     "-> (odd, owner, place, key, key_end, value, end, order)\n\n"
     "Find the entries of maps: each with its map, the place of its key among keys that are known,\n"
     "or -1, and where its key and its value are. The order is by these places. Odd are, with a\n"
     "byte for each, maps that are something else, that have more entries than this, or a key twice."},
    {"feature_kinds", feature_kinds, METH_VARARGS,
     "feature_kinds(data, starts, ends, counts) -> (kinds, starts, numbers, odd)\n\n"
     "Return the tags of the kinds of features, where their values start, and if asked for how\n"
     "many there are, 2 for more."},
    {"fields_of", fields_of, METH_VARARGS,
     "fields_of(data, starts, ends, most) -> (counts, odd, starts, stops)\n\n"
     "Read messages that consist of field 1: how many each has, and where all of them are."},
    {"integers_at", integers_at, METH_VARARGS,
     "integers_at(data, starts, ends) -> (counts, odd, values)\n\n"
     "Read packed varints as int64: how many each stretch has, and all of them."},
    {"bytes_at", bytes_at, METH_VARARGS,
     "bytes_at(data, starts, ends) -> (bytes, ends)\n\n"
     "Return stretches together, and where each ends, after 0, as int32."},
    {"encode_examples", encode_examples, METH_VARARGS,
     "encode_examples(columns, rows) -> (payloads, ends)\n\n"
     "Write an Example for each row, with the features in the order of the columns. A column is a\n"
     "tuple: the field of the key and the tag after it; the tag of the kind; when the values are a\n"
     "field of the list, 0 never, 1 if there are any, 2 always; what a null stands for, 0 a feature\n"
     "without a kind, 1 without values, else none; the bytes of all values, where those of each row\n"
     "end, after 0, and a byte for each that is not null, or nothing."},
    {"varints_of", varints_of, METH_VARARGS,
     "varints_of(values) -> (bytes, ends)\n\n"
     "Write int64 numbers as varints, and where each ends, after 0."},
    {"features_json", features_json, METH_VARARGS,
     "features_json(data, starts, most, describe) -> (json, ends)\n\n"
     "Return the features of the Example in each frame as a JSON object, and where each ends, as\n"
     "int64; nothing of what is something else, has more bytes than most, or keys that are not\n"
     "ASCII. Strings that are not ASCII text are described by a function from their bytes to those\n"
     "of JSON."},
    {0},
};

static int fill_module(PyObject *module) {
    fill_tables();
    extend = fastest();
    if (PyModule_AddIntConstant(module, "interface", INTERFACE)) return -1;
    return PyModule_AddStringConstant(module, "checksum",
                                      extend == crc_by_table ? "table" : "instruction");
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill_module}, {0}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_frames", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__frames(void) { return PyModuleDef_Init(&definition); }
