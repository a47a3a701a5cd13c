/* Throws Examples at the entry points of _features.c, _encode.c and _json.c, and at those of
 * _frames.c that write, without Python.
 *
 * features_main SECONDS SEED SHARD changes the payloads of a shard; `python -m tests.fuzz.frames`
 * writes one.
 * Built with sanitizers, which end it at a finding: each argument and result is in memory of exactly
 * its size. What it asserts itself: what is encoded decodes to the same, what is decoded encodes to
 * the same, what is odd is not canonical, and a wrong place is an error.
 */
#include "fuzzing.h"

#include "python_api.h"

#define ROWS 6
#define COLUMNS 5
#define NAMES 8

static const char *const names[NAMES] = {"", "a", "ab", "b", "image/object/bbox/xmin", "label", "steps", "title"};

static buffer seeds[256], pool[2048];
/* Examples encoded, entries found, errors, Examples that are left to Python, and that are JSON. */
static size_t totals[5];

/* ---- writing without the functions that are tested ---- */

typedef struct {
    uint8_t *bytes;
    size_t size;
} growing;

static void add(growing *to, const void *bytes, size_t size) {
    to->bytes = realloc(to->bytes, to->size + size + 1);
    CHECK(to->bytes);
    if (size) memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void add_number(growing *to, int64_t value) { add(to, &value, 8); }

static void add_varint(growing *to, uint64_t value) {
    uint8_t byte;
    do {
        byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        add(to, &byte, 1);
        value >>= 7;
    } while (value);
}

static void add_field(growing *to, uint8_t tag, const void *bytes, size_t size) {
    add(to, &tag, 1);
    add_varint(to, size);
    add(to, bytes, size);
}

static int equal(const void *first, size_t size, const void *second, size_t other) {
    return size == other && (!size || !memcmp(first, second, size));
}

/* ---- stretches of data ---- */

typedef struct {
    growing data, starts, ends;
    size_t count;
} places;

static void add_place(places *to, size_t start, size_t end) {
    add_number(&to->starts, (int64_t)start);
    add_number(&to->ends, (int64_t)end);
    to->count++;
}

static span at_place(const places *in, size_t i) {
    return (span){in->data.bytes + number(in->starts.bytes, i), in->data.bytes + number(in->ends.bytes, i)};
}

static void drop_places(places *old) { free(old->data.bytes), free(old->starts.bytes), free(old->ends.bytes); }

static argument of_bytes(const growing *bytes) {
    return (argument){.bytes = bytes->bytes, .size = bytes->size};
}

static void set_places(argument *arguments, const places *in) {
    arguments[0] = of_bytes(&in->data);
    arguments[1] = of_bytes(&in->starts);
    arguments[2] = of_bytes(&in->ends);
}

/* Make one of the numbers of an array wrong, or the array too short. Return whether it is certain
 * that the array is refused. */
static int spoil(growing *array, size_t size) {
    int64_t far[] = {-1, INT64_MIN, INT64_MAX, (int64_t)size + 1};
    if (!array->size || !draw(4)) {
        array->size -= array->size ? 1 : 0;
        return 0;
    }
    memcpy(array->bytes + 8 * draw(array->size / 8), &far[draw(4)], 8);
    return 1;
}

/* ---- entries of maps ---- */

typedef struct {
    growing bytes, ends, order;
} known_keys;

/* Know some of the names, in any order. */
static void fill_keys(known_keys *to, size_t *chosen, size_t *count) {
    for (size_t i = draw(NAMES + 1); i < NAMES; i++) chosen[(*count)++] = i;
    for (size_t i = *count; i > 1; i--) {
        size_t other = draw(i), name = chosen[other];
        chosen[other] = chosen[i - 1];
        chosen[i - 1] = name;
    }
    for (size_t i = 0; i < *count; i++) {
        add(&to->bytes, names[chosen[i]], strlen(names[chosen[i]]));
        add_number(&to->ends, (int64_t)to->bytes.size);
    }
    for (size_t name = 0; name < NAMES; name++)
        for (size_t i = 0; i < *count; i++)
            if (chosen[i] == name) add_number(&to->order, (int64_t)i);
}

/* Return which of the known names a key is, or -1. */
static int64_t which_key(span key, const size_t *chosen, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *name = names[chosen[i]];
        if (equal(key.at, (size_t)(key.end - key.at), name, strlen(name))) return (int64_t)i;
    }
    return -1;
}

/* Check the entries of a map, of which the first has this number; return how many there are. */
static size_t check_map(const places *maps, size_t map, const object *found, size_t first,
                        const size_t *chosen, size_t count, size_t most) {
    span in = at_place(maps, map);
    growing again = {0}, entry = {0};
    size_t number_of = 0, total = size_in(found, 1) / 8, seen[NAMES] = {0};
    int is_odd = bytes_in(found, 0)[map], is_double = 0;
    for (; first + number_of < total && number_in(found, 1, first + number_of) == (int64_t)map; number_of++) {
        int64_t at[4];
        for (int i = 0; i < 4; i++) at[i] = number_in(found, 3 + i, first + number_of);
        const uint8_t *data = maps->data.bytes;
        CHECK(in.at - data <= at[0] && at[0] <= at[1] && at[1] <= at[2] && at[2] <= at[3]);
        CHECK(at[3] <= in.end - data);
        int64_t which = which_key((span){data + at[0], data + at[1]}, chosen, count);
        CHECK(number_in(found, 2, first + number_of) == which);
        if (which >= 0) is_double |= seen[which]++ > 0;
        entry.size = 0;
        add_field(&entry, FIRST, data + at[0], (size_t)(at[1] - at[0]));
        add_field(&entry, SECOND, data + at[2], (size_t)(at[3] - at[2]));
        add_field(&again, FIRST, entry.bytes, entry.size);
    }
    CHECK(number_of <= most);
    if (!is_odd || number_of) {
        CHECK(equal(again.bytes, again.size, in.at, (size_t)(in.end - in.at)));
        CHECK(is_odd == is_double);
    }
    int flags;
    if (is_odd && !is_double && !number_of && most > 100) CHECK(!is_map(in, is_feature, &flags));
    free(again.bytes), free(entry.bytes);
    return number_of;
}

static void check_order(const object *found, size_t count) {
    for (size_t i = 1; i < count; i++) {
        int64_t last = number_in(found, 7, i - 1), next = number_in(found, 7, i);
        CHECK(last >= 0 && next >= 0 && last < (int64_t)count && next < (int64_t)count);
        int64_t before = number_in(found, 2, (size_t)last), place = number_in(found, 2, (size_t)next);
        CHECK(before < place || (before == place && last < next));
    }
}

/* Find the entries of maps; the values of some are the features that are looked at next. */
static void check_entries(const places *maps, places *features) {
    known_keys known = {0};
    size_t chosen[NAMES], count = 0, most = draw(4) ? 1000 : draw(4), at = 0;
    argument arguments[7];
    fill_keys(&known, chosen, &count);
    set_places(arguments, maps);
    arguments[3] = of_bytes(&known.bytes);
    arguments[4] = of_bytes(&known.ends);
    arguments[5] = of_bytes(&known.order);
    arguments[6].number = (long long)most;
    object *found = call(find_entries, arguments, 7);
    if (found) {
        size_t total = size_in(found, 1) / 8;
        CHECK(size_in(found, 0) == maps->count);
        for (int i = 1; i < 8; i++) CHECK(size_in(found, i) == 8 * total);
        for (size_t map = 0; map < maps->count; map++)
            at += check_map(maps, map, found, at, chosen, count, most);
        CHECK(at == total);
        check_order(found, total);
        totals[1] += total;
        for (size_t i = 0; i < total && features->count < 64; i++)
            add_place(features, (size_t)number_in(found, 5, i), (size_t)number_in(found, 6, i));
    }
    drop(found);
    if (!draw(8)) { /* keys that are not in their data */
        int is_wrong = spoil(draw(2) ? &known.ends : &known.order, known.bytes.size + count);
        arguments[4] = of_bytes(&known.ends);
        arguments[5] = of_bytes(&known.order);
        found = call(find_entries, arguments, 7);
        CHECK(!found || !is_wrong);
        totals[2] += !found;
        drop(found);
    }
    free(known.bytes.bytes), free(known.ends.bytes), free(known.order.bytes);
}

static int compare_keys(span one, span other) {
    size_t size = (size_t)(one.end - one.at), other_size = (size_t)(other.end - other.at);
    int difference = memcmp(one.at, other.at, size < other_size ? size : other_size);
    return difference ? difference : (size > other_size) - (size < other_size);
}

/* ---- features and their values ---- */

/* Count varints without looking at more than their last bytes; -1 if one of them is too long. */
static int64_t count_varints(span in) {
    int64_t count = 0, length = 0;
    for (const uint8_t *byte = in.at; byte < in.end; byte++) {
        length++;
        if (length > 10 || (length == 10 && *byte > 1)) return -1;
        if (*byte < 0x80) count++, length = 0;
    }
    return length ? -1 : count;
}

static int64_t count_strings(span in) {
    int64_t count = 0;
    span value;
    for (; in.at < in.end; count++)
        if (!read_field(&in, FIRST, &value)) return -1;
    return count;
}

/* Whether a feature of this kind with these values is what is in the message. */
static int is_same(span in, uint8_t kind, span values) {
    growing list = {0}, feature = {0};
    size_t size = (size_t)(values.end - values.at);
    if (kind == FIRST)
        add(&list, values.at, size);
    else if (size)
        add_field(&list, FIRST, values.at, size);
    if (kind) add_field(&feature, kind, list.bytes, list.size);
    int same = equal(feature.bytes, feature.size, in.at, (size_t)(in.end - in.at));
    if (!same && kind != FIRST && !size) { /* or a field without bytes */
        feature.size = 0;
        add_field(&list, FIRST, NULL, 0);
        add_field(&feature, kind, list.bytes, list.size);
        same = equal(feature.bytes, feature.size, in.at, (size_t)(in.end - in.at));
    }
    free(list.bytes), free(feature.bytes);
    return same;
}

static void check_feature(const places *features, size_t i, const object *found, int counts,
                          places *values) {
    span in = at_place(features, i);
    uint8_t kind = bytes_in(found, 0)[i];
    int is_odd = bytes_in(found, 3)[i];
    const uint8_t *data = features->data.bytes;
    span list = {data + number_in(found, 1, i), in.end};
    CHECK(list.at >= in.at && list.at <= in.end);
    if (is_feature(in)) CHECK(!is_odd);
    if (is_odd) return;
    CHECK(kind <= THIRD && (!kind || kind == FIRST || kind == SECOND || kind == THIRD));
    CHECK(is_same(in, kind, list));
    int64_t count = (list.end - list.at) / 4;
    if (kind == FIRST) count = count_strings(list);
    if (kind == THIRD) count = count_varints(list);
    if (counts && count >= 0) CHECK(bytes_in(found, 2)[i] == (count > 2 ? 2 : count));
    add_place(&values[kind == FIRST ? 0 : 1], (size_t)(list.at - data), (size_t)(list.end - data));
}

static void check_features(const places *features, places *values) {
    argument arguments[4];
    int counts = draw(3) > 0;
    set_places(arguments, features);
    arguments[3].number = counts;
    object *found = call(feature_kinds, arguments, 4);
    for (size_t i = 0; found && i < features->count; i++) check_feature(features, i, found, counts, values);
    CHECK(!found || size_in(found, 0) == features->count);
    drop(found);
}

static void check_fields(const places *messages) {
    argument arguments[4];
    size_t at = 0, most = draw(4) ? 1000 : draw(3);
    set_places(arguments, messages);
    arguments[3].number = (long long)most;
    object *found = call(fields_of, arguments, 4);
    for (size_t i = 0; found && i < messages->count; i++) {
        span in = at_place(messages, i);
        size_t count = (size_t)number_in(found, 0, i);
        int64_t wanted = count_strings(in);
        CHECK(bytes_in(found, 1)[i] == (wanted < 0 || (size_t)wanted > most));
        growing again = {0};
        for (size_t n = 0; n < count; n++, at++) {
            int64_t start = number_in(found, 2, at), stop = number_in(found, 3, at);
            CHECK(start <= stop);
            add_field(&again, FIRST, messages->data.bytes + start, (size_t)(stop - start));
        }
        if (!bytes_in(found, 1)[i]) CHECK(equal(again.bytes, again.size, in.at, (size_t)(in.end - in.at)));
        free(again.bytes);
    }
    drop(found);
}

/* Read integers, write them as varints, and read them again. */
static void check_integers(const places *stretches_in) {
    argument arguments[3];
    size_t at = 0;
    set_places(arguments, stretches_in);
    object *found = call(integers_at, arguments, 3);
    if (!found) return;
    for (size_t i = 0; i < stretches_in->count; i++) {
        int64_t wanted = count_varints(at_place(stretches_in, i));
        CHECK(bytes_in(found, 1)[i] == (wanted < 0));
        CHECK(number_in(found, 0, i) == (wanted < 0 ? 0 : wanted));
        at += (size_t)number_in(found, 0, i);
    }
    CHECK(size_in(found, 2) == 8 * at);
    argument values = {.bytes = bytes_in(found, 2), .size = size_in(found, 2)};
    object *written = call(varints_of, &values, 1);
    if (written) {
        growing plain = {0};
        for (size_t i = 0; i < at; i++) add_varint(&plain, (uint64_t)number_in(found, 2, i));
        CHECK(equal(plain.bytes, plain.size, bytes_in(written, 0), size_in(written, 0)));
        CHECK(size_in(written, 1) == 8 * at + 8 && number_in(written, 1, at) == (int64_t)plain.size);
        argument again[3] = {{.bytes = bytes_in(written, 0), .size = size_in(written, 0)},
                             {.bytes = bytes_in(written, 1), .size = 8 * at},
                             {.bytes = bytes_in(written, 1) + 8, .size = 8 * at}};
        object *same = call(integers_at, again, 3);
        if (same) CHECK(equal(bytes_in(same, 2), size_in(same, 2), values.bytes, values.size));
        drop(same);
        free(plain.bytes);
    }
    drop(written), drop(found);
}

/* ---- JSON ---- */

static int skip(const char **at, const char *expected_text) {
    size_t size = strlen(expected_text);
    if (strncmp(*at, expected_text, size)) return 0;
    *at += size;
    return 1;
}

/* Read a string of JSON and compare it: with plain text, or with what describes other bytes. */
static void check_string(const char **at, span wanted) {
    char described[32];
    int is_plain = 1;
    for (const uint8_t *byte = wanted.at; byte < wanted.end; byte++)
        is_plain &= (*byte >= ' ' && *byte < 0x7f) || strchr("\n\r\t", *byte ? *byte : 'x');
    snprintf(described, sizeof described, "\"%zd bytes\"", wanted.end - wanted.at);
    if (!is_plain) {
        CHECK(skip(at, described));
        return;
    }
    CHECK(skip(at, "\""));
    for (; wanted.at < wanted.end; wanted.at++) {
        char byte = *(*at)++;
        if (byte == '\\') {
            byte = *(*at)++;
            byte = byte == 'n' ? '\n' : byte == 'r' ? '\r' : byte == 't' ? '\t' : byte;
        }
        CHECK(byte == (char)*wanted.at);
    }
    CHECK(skip(at, "\""));
}

static void check_number(const char **at, float wanted) {
    char *end;
    if (wanted != wanted) {
        CHECK(skip(at, "\"NaN\""));
    } else if (wanted - wanted != 0) {
        CHECK(skip(at, wanted < 0 ? "\"-Infinity\"" : "\"Infinity\""));
    } else {
        float found = strtof(*at, &end);
        CHECK(end > *at && !memcmp(&found, &wanted, 4));
        CHECK(memchr(*at, '.', (size_t)(end - *at)) || memchr(*at, 'e', (size_t)(end - *at)));
        *at = end;
    }
}

/* Read the value of a feature in JSON, and compare it. */
static void check_values(const char **at, span feature) {
    span list, value;
    uint64_t bits;
    size_t count = 0;
    if (feature.at == feature.end) {
        CHECK(skip(at, "null"));
        return;
    }
    uint8_t kind = *feature.at;
    CHECK(read_field(&feature, kind, &list));
    if (kind != FIRST && list.at < list.end) {
        CHECK(read_field(&list, FIRST, &value));
        list = value;
    }
    int is_list = skip(at, "[");
    for (; list.at < list.end; count++) {
        if (count) CHECK(skip(at, ", "));
        if (kind == FIRST) {
            CHECK(read_field(&list, FIRST, &value));
            check_string(at, value);
        } else if (kind == SECOND) {
            float number_of;
            memcpy(&number_of, list.at, 4);
            check_number(at, number_of);
            list.at += 4;
        } else {
            char *end;
            CHECK(read_varint(&list, &bits));
            CHECK((uint64_t)strtoll(*at, &end, 10) == bits && end > *at);
            *at = end;
        }
    }
    CHECK(is_list == (count != 1));
    if (is_list) CHECK(skip(at, "]"));
}

/* Check that JSON has the entries of an Example in the order of their keys. */
static void check_object(const char *at, const char *end, span payload) {
    span map, item, key, value, last = {NULL, NULL};
    CHECK(read_field(&payload, FIRST, &map) && payload.at == payload.end);
    size_t count = 0;
    for (span in = map; in.at < in.end; count++) CHECK(read_field(&in, FIRST, &item));
    for (size_t done = 0; done < count; done++) {
        span next = {NULL, NULL}, feature = {NULL, NULL};
        for (span in = map; in.at < in.end;) { /* the least key behind the last one */
            CHECK(read_field(&in, FIRST, &item) && read_field(&item, FIRST, &key));
            CHECK(read_field(&item, SECOND, &value) && item.at == item.end);
            if (last.at && compare_keys(key, last) <= 0) continue;
            if (!next.at || compare_keys(key, next) < 0) next = key, feature = value;
        }
        CHECK(next.at && skip(&at, done ? ", " : "{"));
        check_string(&at, next);
        CHECK(skip(&at, ": "));
        check_values(&at, feature);
        last = next;
    }
    CHECK(skip(&at, "}") && at == end);
}

/* Put frames of payloads into JSON, which has to say the same: often several times, so that the
 * text outgrows its room at any place. */
static void check_json(const places *payloads) {
    growing framed = {0}, starts = {0}, json = {0};
    object describe = {.size = 0};
    size_t count = payloads->count * (1 + draw(9));
    for (size_t i = 0; i < count; i++) {
        span in = at_place(payloads, i % payloads->count);
        add_number(&starts, (int64_t)framed.size);
        add(&framed, (const uint8_t[HEADER]){0}, HEADER);
        add(&framed, in.at, (size_t)(in.end - in.at));
        add(&framed, (const uint8_t[FRAME - HEADER]){0}, FRAME - HEADER);
    }
    add_number(&starts, (int64_t)framed.size);
    int64_t most = draw(4) ? 1 << 20 : (int64_t)draw(200);
    argument arguments[4] = {
        of_bytes(&framed), of_bytes(&starts), {.number = most}, {.object = &describe.head}};
    object *found = call(features_json, arguments, 4);
    if (found) {
        add(&json, bytes_in(found, 0), size_in(found, 0));
        add(&json, "", 1); /* numbers are read up to a character that is not part of them */
        size_t start = 0;
        for (size_t i = 0; i < count; i++) {
            size_t end = (size_t)number_in(found, 1, i);
            CHECK(start <= end && end < json.size);
            int flags = 0;
            span in = at_place(payloads, i % payloads->count);
            CHECK(end == start || in.end - in.at <= most);
            if (end > start)
                check_object((char *)json.bytes + start, (char *)json.bytes + end, in);
            else
                totals[3] += is_example(in, &flags) ? 1 : 0;
            totals[4] += end > start;
            start = end;
        }
    }
    drop(found);
    free(framed.bytes), free(starts.bytes), free(json.bytes);
}

/* ---- copies ---- */

/* Copy stretches, and put frames around them, which are found again. */
static void check_copies(const places *payloads) {
    argument arguments[4];
    growing plain = {0}, keys = {0};
    set_places(arguments, payloads);
    object *copied = call(bytes_at, arguments, 3), *crcs = call(masked_crcs, arguments, 3);
    for (size_t i = 0; crcs && i < payloads->count; i++) {
        span in = at_place(payloads, i);
        size_t size = (size_t)(in.end - in.at);
        uint32_t crc = load32(crcs->bytes + 4 * i);
        CHECK(crc == masked_crc(in.at, size));
        add_number(&keys, (int64_t)((uint64_t)crc << 32 | size));
        add(&plain, in.at, size);
    }
    if (crcs && copied) CHECK(equal(plain.bytes, plain.size, bytes_in(copied, 0), size_in(copied, 0)));
    arguments[3] = of_bytes(&keys);
    object *framed = crcs ? call(frame, arguments, 4) : NULL;
    if (framed) {
        size_t size = (size_t)framed->size;
        argument all[6] = {{.bytes = framed->bytes, .size = size}, {0}, {.number = (long long)size},
                           {.number = MOST * 16}, {.number = 1}, {0}};
        object *found = call(scan, all, 6);
        if (found) {
            CHECK(number_in(found, 0, payloads->count) == (int64_t)size);
            CHECK(equal(bytes_in(found, 1), size_in(found, 1), keys.bytes, keys.size));
        }
        drop(found);
    }
    drop(framed), drop(crcs), drop(copied);
    free(plain.bytes), free(keys.bytes);
}

/* ---- what is encoded ---- */

typedef struct {
    growing head, data, ends, valid;
    int tag, packed, null;
    size_t name;
} values_of_rows;

static void add_integer(growing *to) {
    uint64_t value = random_bits() >> draw(64);
    add_varint(to, draw(4) ? value : ~value);
}

/* Add bytes, or text of which each character is escaped in JSON. */
static void add_string(growing *to) {
    static const char escaped[] = "\"\\\n\r\t";
    uint8_t bytes[200];
    size_t size = draw(8) ? draw(9) : draw(sizeof bytes);
    int is_text = !draw(4);
    for (size_t i = 0; i < size; i++)
        bytes[i] = is_text ? (uint8_t)escaped[draw(5)] : (uint8_t)draw(256);
    add_field(to, FIRST, bytes, size);
}

/* Make the values of a feature in all rows. */
static void fill_column(values_of_rows *to, size_t name, size_t rows) {
    static const uint8_t tags[] = {FIRST, SECOND, THIRD};
    static const uint8_t value_tag = SECOND;
    to->name = name;
    to->tag = tags[draw(3)];
    to->packed = to->tag == FIRST ? 0 : 1 + (int)draw(2);
    to->null = (int)draw(3);
    add_field(&to->head, FIRST, names[name], strlen(names[name]));
    add(&to->head, &value_tag, 1);
    add_number(&to->ends, 0);
    int has_nulls = !draw(3);
    for (size_t row = 0; row < rows; row++) {
        uint8_t is_valid = !has_nulls || draw(3) > 0;
        for (size_t left = is_valid ? draw(5) : 0; left; left--) {
            uint32_t bits = (uint32_t)random_bits();
            if (to->tag == FIRST) add_string(&to->data);
            if (to->tag == SECOND) add(&to->data, &bits, 4);
            if (to->tag == THIRD) add_integer(&to->data);
        }
        add_number(&to->ends, (int64_t)to->data.size);
        if (has_nulls) add(&to->valid, &is_valid, 1);
    }
}

static object *encode(const values_of_rows *columns, size_t count, size_t rows) {
    object tuples[COLUMNS];
    PyObject *items[COLUMNS + 1];
    argument each[COLUMNS][7];
    for (size_t i = 0; i < count; i++) {
        each[i][0] = of_bytes(&columns[i].head);
        each[i][1].number = columns[i].tag;
        each[i][2].number = columns[i].packed;
        each[i][3].number = columns[i].null;
        each[i][4] = of_bytes(&columns[i].data);
        each[i][5] = of_bytes(&columns[i].ends);
        each[i][6] = of_bytes(&columns[i].valid);
        tuples[i] = (object){.arguments = each[i]};
        items[i] = &tuples[i].head;
    }
    object list = {.size = (Py_ssize_t)count, .items = items};
    argument arguments[2] = {{.object = &list.head}, {.number = (long long)rows}};
    return call(encode_examples, arguments, 2);
}

/* Check the feature of a row against its values. */
static void check_value(const values_of_rows *one, size_t row, span *map) {
    uint64_t start = number(one->ends.bytes, row), end = number(one->ends.bytes, row + 1);
    int is_null = one->valid.size && !one->valid.bytes[row];
    span entry, key, feature, list = {NULL, NULL};
    if (is_null && one->null == 2) return;
    CHECK(read_field(map, FIRST, &entry) && read_field(&entry, FIRST, &key));
    CHECK(equal(key.at, (size_t)(key.end - key.at), names[one->name], strlen(names[one->name])));
    CHECK(read_field(&entry, SECOND, &feature) && entry.at == entry.end);
    if (is_null && one->null == 0) {
        CHECK(feature.at == feature.end);
        return;
    }
    CHECK(read_field(&feature, (uint8_t)one->tag, &list) && feature.at == feature.end);
    if (!is_null && (one->packed == 2 || (one->packed && end > start))) {
        span packed = list;
        CHECK(read_field(&packed, FIRST, &list) && packed.at == packed.end);
    }
    CHECK(equal(list.at, (size_t)(list.end - list.at), one->data.bytes + start, end - start));
}

/* Encode rows, and find in them what was encoded. */
static void check_rows(places *payloads) {
    values_of_rows columns[COLUMNS] = {0};
    size_t count = draw(COLUMNS + 1), rows = draw(ROWS + 1), name = draw(NAMES);
    for (size_t i = 0; i < count; i++) fill_column(&columns[i], name++ % NAMES, rows);
    object *found = encode(columns, count, rows);
    if (found) {
        add(&payloads->data, bytes_in(found, 0), size_in(found, 0));
        CHECK(size_in(found, 1) == 8 * rows + 8 && number_in(found, 1, 0) == 0);
        for (size_t row = 0; row < rows; row++) {
            add_place(payloads, (size_t)number_in(found, 1, row), (size_t)number_in(found, 1, row + 1));
            span in = at_place(payloads, row), map;
            CHECK(read_field(&in, FIRST, &map) && in.at == in.end);
            for (size_t i = 0; i < count; i++) check_value(&columns[i], row, &map);
            CHECK(map.at == map.end);
        }
        totals[0] += rows;
    }
    drop(found);
    if (count && !draw(8)) { /* values that are not in their data */
        values_of_rows *one = &columns[draw(count)];
        int is_wrong = spoil(&one->ends, one->data.size);
        found = encode(columns, count, rows);
        CHECK(!found || !is_wrong);
        totals[2] += !found;
        drop(found);
    }
    for (size_t i = 0; i < count; i++)
        free(columns[i].head.bytes), free(columns[i].data.bytes), free(columns[i].ends.bytes),
            free(columns[i].valid.bytes);
}

/* ---- runs ---- */

static void add_payload(places *to, const uint8_t *bytes, size_t size) {
    size_t start = to->data.size;
    add(&to->data, bytes, size);
    add_place(to, start, to->data.size);
}

/* Take some payloads, change them, and put some of them into the pool. */
static void change_payloads(const places *encoded, places *to) {
    buffer payload;
    for (size_t i = 0, count = 1 + draw(5); i < count; i++) {
        payload = pool[draw(2048)];
        if (i < encoded->count) {
            span in = at_place(encoded, i);
            if (in.end - in.at > MOST) continue;
            payload.size = (size_t)(in.end - in.at);
            memcpy(payload.bytes, in.at, payload.size);
        }
        for (size_t changes = draw(4); changes; changes--) change(&payload);
        add_payload(to, payload.bytes, payload.size);
        if (!draw(16)) pool[draw(2048)] = payload;
    }
}

/* Take the maps of payloads, and nothing around them: what is read behind the last is found. */
static void take_maps(const places *payloads, places *to) {
    span map;
    for (size_t i = 0; i < payloads->count; i++) {
        span in = at_place(payloads, i);
        if (!read_field(&in, FIRST, &map)) map = in;
        if (in.at < in.end && draw(2)) map = in;
        add_payload(to, map.at, (size_t)(map.end - map.at));
    }
}

/* Take single places, or any stretches. */
static void take_places(const places *from, places *to) {
    for (size_t i = 0; i < from->count; i++) {
        span in = at_place(from, i);
        size_t size = (size_t)(in.end - in.at), start = draw(8) ? 0 : draw(size + 1);
        size_t taken = draw(8) ? size - start : draw(size - start + 1);
        if (draw(4)) add_payload(to, in.at + start, taken);
    }
}

/* Check that places which are not in the data are refused. */
static void check_wrong_places(places *in) {
    static PyObject *(*const functions[])(PyObject *, PyObject *) = {
        find_entries, feature_kinds, fields_of, integers_at, bytes_at, masked_crcs, frame};
    argument arguments[7] = {0};
    size_t before = in->starts.size;
    if (!in->count || !spoil(draw(2) ? &in->starts : &in->ends, in->data.size)) {
        CHECK(!in->count || in->starts.size + in->ends.size == 2 * before - 1);
        if (!in->count) return;
    }
    set_places(arguments, in);
    CHECK(!call(functions[draw(7)], arguments, 7));
    totals[2]++;
}

static void run(void) {
    places encoded = {0}, payloads = {0}, maps = {0}, features = {0}, taken = {0};
    places values[2];
    memset(values, 0, sizeof values);
    failing = draw(16) ? 0 : 1 + (long)draw(24);
    if (draw(2)) check_rows(&encoded);
    change_payloads(&encoded, &payloads);
    take_maps(&payloads, &maps);
    check_copies(&payloads);
    check_json(draw(2) ? &payloads : &encoded);
    add(&features.data, maps.data.bytes, maps.data.size);
    check_entries(&maps, &features);
    take_places(&features, &taken);
    add(&values[0].data, taken.data.bytes, taken.data.size);
    add(&values[1].data, taken.data.bytes, taken.data.size);
    check_features(&taken, values);
    for (int i = 0; i < 2; i++) {
        places parts = {0};
        take_places(&values[i], &parts);
        check_fields(&parts);
        check_integers(&parts);
        drop_places(&parts);
    }
    if (!draw(8)) check_wrong_places(&taken);
    failing = 0;
    CHECK(!open_objects);
    drop_places(&encoded), drop_places(&payloads), drop_places(&maps), drop_places(&features);
    drop_places(&values[0]), drop_places(&values[1]), drop_places(&taken);
}

int main(int count, char **arguments) {
    size_t runs = 0;
    if (count != 4) return 2;
    state = strtoull(arguments[2], NULL, 10) * 2 + 1;
    fill_tables();
    extend = fastest();
    size_t known = read_seeds(arguments[3], seeds, 256);
    if (!known) return 2;
    for (size_t i = 0; i < 2048; i++) pool[i] = seeds[i % known];
    time_t end = time(NULL) + atol(arguments[1]);
    for (; runs % 1024 || time(NULL) < end; runs++) {
        run();
        if (!draw(64)) pool[draw(2048)] = seeds[draw(known)];
    }
    printf("features_main: %zu runs in %s s from seed %s; %zu Examples written, %zu as JSON and %zu "
           "not, %zu entries found, %zu errors\n",
           runs, arguments[1], arguments[2], totals[0], totals[4], totals[3], totals[1], totals[2]);
    return 0;
}
