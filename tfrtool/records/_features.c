/* The features of many Examples at once, in C.
 *
 * Each function does what a method of `WireScan` (tfrtool/examples/arrow/scan.py) does with numpy,
 * which is the reference. A message of another form than writers write is odd: it is marked, and
 * left to protobuf. Places are int64 numbers of bytes in the data. Those that come in are compared
 * with its size first; those that go out are within the messages that came in.
 */
#include "_native.h"

#define NONE 0 /* the kind of a feature without one */
#define ONE_AND_MORE 2
#define LONGEST 10 /* bytes of a varint of 64 bits */

/* ---- the entries of maps of features ---- */

typedef struct {
    Py_buffer data;
    Py_buffer ends;  /* of each key in the data; it starts where the one before ends */
    Py_buffer order; /* the keys by their bytes */
    int64_t count;
} keys;

static int64_t key_start(const keys *known, int64_t which) {
    return which ? load_place(&known->ends, (size_t)which - 1) : 0;
}

static int compare(const keys *known, int64_t which, span key) {
    int64_t start = key_start(known, which);
    int64_t size = load_place(&known->ends, (size_t)which) - start;
    int64_t other = key.end - key.at;
    int difference = memcmp(key.at, (const char *)known->data.buf + start, (size_t)(size < other ? size : other));
    return difference ? difference : (other > size) - (other < size);
}

/* Return which key it is, or -1. */
static int64_t find_key(const keys *known, span key) {
    int64_t low = 0, high = known->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int64_t which = load_place(&known->order, (size_t)middle);
        int difference = compare(known, which, key);
        if (!difference) return which;
        if (difference < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* Whether the places of keys are in their data, and the order has each number. */
static int are_keys(const keys *known) {
    if (known->ends.len != known->order.len || known->ends.len % 8) return 0;
    for (int64_t i = 0; i < known->count; i++) {
        int64_t start = key_start(known, i), end = load_place(&known->ends, (size_t)i);
        int64_t which = load_place(&known->order, (size_t)i);
        if (start < 0 || end < start || end > known->data.len) return 0;
        if (which < 0 || which >= known->count) return 0;
    }
    return 1;
}

static int read_entry(span *in, span *key, span *value) {
    span entry;
    return read_field(in, FIRST, &entry) && read_field(&entry, FIRST, key) &&
           read_field(&entry, SECOND, value) && entry.at == entry.end;
}

/* Count the entries of each map; of one that is odd, or has too many, none count. */
static uint64_t count_entries(const stretches *maps, int64_t most, int64_t *counts, uint8_t *odd) {
    uint64_t total = 0;
    for (size_t i = 0; i < maps->count; i++) {
        span in = stretch(maps, i), key, value;
        counts[i] = odd[i] = 0;
        while (in.at < in.end && !odd[i])
            odd[i] = counts[i]++ == most || !read_entry(&in, &key, &value);
        if (odd[i]) counts[i] = 0;
        total += (uint64_t)counts[i];
    }
    return total;
}

typedef struct {
    int64_t *owner, *place, *key, *key_end, *value, *end;
} entries;

/* Find all entries, and the places of their keys among the known ones.
 *
 * Most records have the keys of the one before, in its order: `likely` has them. `last` has for
 * each known key the number of the map that had it last, from 1.
 */
static void fill_entries(const stretches *maps, const keys *known, const int64_t *counts,
                         uint8_t *odd, entries out, int64_t *likely, int64_t *last) {
    const uint8_t *data = maps->data.buf;
    size_t at = 0;
    for (int64_t i = 0; i < known->count; i++) likely[i] = i, last[i] = 0;
    for (size_t i = 0; i < maps->count; i++) {
        span in = stretch(maps, i), key, value;
        for (int64_t n = 0; n < counts[i] && read_entry(&in, &key, &value); n++, at++) {
            int64_t place = n < known->count ? likely[n] : -1;
            if (place < 0 || compare(known, place, key)) place = find_key(known, key);
            if (place >= 0) {
                if (n < known->count) likely[n] = place;
                odd[i] |= last[place] == (int64_t)i + 1;
                last[place] = (int64_t)i + 1;
            }
            out.owner[at] = (int64_t)i;
            out.place[at] = place;
            out.key[at] = key.at - data;
            out.key_end[at] = key.end - data;
            out.value[at] = value.at - data;
            out.end[at] = value.end - data;
        }
    }
}

/* Sort the numbers of entries by place, -1 first; of one place they stay in order. */
static void sort_entries(const int64_t *places, size_t count, int64_t *order, int64_t *next,
                         int64_t known) {
    memset(next, 0, (size_t)(known + 2) * sizeof *next);
    for (size_t i = 0; i < count; i++) next[places[i] + 2]++;
    for (int64_t i = 0; i <= known; i++) next[i + 1] += next[i];
    for (size_t i = 0; i < count; i++) order[next[places[i] + 1]++] = (int64_t)i;
}

static PyObject *entries_of(const stretches *maps, const keys *known, int64_t most) {
    PyObject *arrays[8] = {make_array(maps->count, 1)};
    int64_t *counts = malloc((maps->count + 1) * sizeof *counts);
    int64_t *notes = malloc((size_t)(2 * known->count + 3) * sizeof *notes);
    uint8_t *odd = numbers_of(arrays[0]);
    uint64_t count = 0;
    if (!counts || !notes || !odd) {
        if (odd) PyErr_NoMemory();
        free(counts);
        free(notes);
        Py_XDECREF(arrays[0]);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    count = count_entries(maps, most, counts, odd);
    Py_END_ALLOW_THREADS
    for (int i = 1; i < 8; i++) arrays[i] = make_array(count, sizeof(int64_t));
    int64_t *out[8];
    int ok = 1;
    for (int i = 1; i < 8; i++) ok &= (out[i] = numbers_of(arrays[i])) != NULL;
    if (ok) {
        entries found = {out[1], out[2], out[3], out[4], out[5], out[6]};
        Py_BEGIN_ALLOW_THREADS
        fill_entries(maps, known, counts, odd, found, notes, notes + known->count);
        sort_entries(found.place, (size_t)count, out[7], notes, known->count);
        Py_END_ALLOW_THREADS
    }
    PyObject *result = pack(arrays, 8);
    free(counts);
    free(notes);
    return result;
}

PyObject *find_entries(PyObject *module, PyObject *args) {
    stretches maps;
    keys known;
    Py_ssize_t most;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*n", &maps.data, &maps.starts, &maps.ends, &known.data,
                          &known.ends, &known.order, &most))
        return NULL;
    known.count = known.ends.len / 8;
    if (check(&maps)) {
        if (are_keys(&known))
            result = entries_of(&maps, &known, most);
        else
            PyErr_SetString(PyExc_ValueError, "a key is not in the data");
        release(&maps);
    }
    PyBuffer_Release(&known.data);
    PyBuffer_Release(&known.ends);
    PyBuffer_Release(&known.order);
    return result;
}

/* ---- features ---- */

/* Count packed varints as far as they are some of 64 bits; -1 if one of them is not. */
static int64_t count_integers(span in) {
    int64_t count = 0;
    int length = 0;
    for (; in.at < in.end; in.at++) {
        if (++length == LONGEST && *in.at > 1) return -1;
        if (*in.at & 0x80) continue;
        count++;
        length = 0;
    }
    return length ? -1 : count;
}

/* How many values a feature has, 2 for more; -1 if it is odd, as far as that shows. */
static int count_values(uint8_t kind, span values) {
    int64_t size = values.end - values.at;
    if (!size) return 0;
    if (kind == SECOND) return size > 4 ? ONE_AND_MORE : 1;
    if (kind == THIRD) {
        if (size == 1) return 1;
        if (size > LONGEST) return ONE_AND_MORE;
        size = count_integers(values);
        return size > ONE_AND_MORE ? ONE_AND_MORE : (int)size;
    }
    span value;
    if (!read_field(&values, FIRST, &value)) return -1;
    if (values.at == values.end) return 1;
    return read_field(&values, FIRST, &value) ? ONE_AND_MORE : -1;
}

int read_feature(span in, uint8_t *kind, span *values) {
    *kind = NONE;
    *values = (span){in.end, in.end};
    if (in.at == in.end) return 1;
    uint8_t tag = *in.at;
    span list;
    if (tag != FIRST && tag != SECOND && tag != THIRD) return 0;
    if (!read_field(&in, tag, &list) || in.at != in.end) return 0;
    if (tag != FIRST && list.at < list.end) { /* there is one field, in which they are packed */
        span packed;
        if (!read_field(&list, FIRST, &packed) || list.at != list.end) return 0;
        if (tag == SECOND && (packed.end - packed.at) % 4) return 0;
        list = packed;
    }
    *kind = tag;
    *values = list;
    return 1;
}

PyObject *feature_kinds(PyObject *module, PyObject *args) {
    stretches all;
    int counts;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*p", &all.data, &all.starts, &all.ends, &counts)) return NULL;
    if (!check(&all)) return NULL;
    PyObject *arrays[4] = {make_array(all.count, 1), make_array(all.count, sizeof(int64_t)),
                           make_array(counts ? all.count : 0, 1), make_array(all.count, 1)};
    uint8_t *kinds = numbers_of(arrays[0]), *numbers = numbers_of(arrays[2]);
    int64_t *starts = numbers_of(arrays[1]);
    uint8_t *odd = numbers_of(arrays[3]);
    if (kinds && starts && numbers && odd) {
        const uint8_t *data = all.data.buf;
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < all.count; i++) {
            span values;
            odd[i] = !read_feature(stretch(&all, i), &kinds[i], &values);
            starts[i] = values.at - data;
            if (!counts) continue;
            int number = count_values(kinds[i], values);
            odd[i] |= number < 0;
            numbers[i] = (uint8_t)(number < 0 ? 0 : number);
        }
        Py_END_ALLOW_THREADS
    }
    PyObject *result = pack(arrays, 4);
    release(&all);
    return result;
}

/* ---- what messages consist of ---- */

/* Count what is in each message; of one that is odd, or has too much, nothing counts. */
typedef int64_t (*counter)(span in, int64_t most);
/* Write down what is in a message: the numbers of one, or where its fields start and stop. */
typedef size_t (*filler)(span in, const uint8_t *data, int64_t *first, int64_t *second);

static int64_t count_fields(span in, int64_t most) {
    int64_t count = 0;
    span field;
    while (in.at < in.end)
        if (count++ == most || !read_field(&in, FIRST, &field)) return -1;
    return count;
}

static size_t fill_fields(span in, const uint8_t *data, int64_t *starts, int64_t *stops) {
    size_t count = 0;
    span field;
    while (in.at < in.end && read_field(&in, FIRST, &field)) {
        starts[count] = field.at - data;
        stops[count++] = field.end - data;
    }
    return count;
}

static int64_t count_numbers(span in, int64_t most) {
    (void)most;
    return count_integers(in);
}

static size_t fill_numbers(span in, const uint8_t *data, int64_t *values, int64_t *unused) {
    size_t count = 0;
    uint64_t value = 0;
    int shift = 0;
    (void)data, (void)unused;
    for (; in.at < in.end; in.at++) {
        value |= (uint64_t)(*in.at & 0x7f) << shift;
        shift += 7;
        if (*in.at & 0x80) continue;
        memcpy(&values[count++], &value, 8);
        value = 0;
        shift = 0;
    }
    return count;
}

static PyObject *contents(const stretches *all, counter count_in, filler fill, int64_t most,
                          int arrays_out) {
    PyObject *arrays[4] = {make_array(all->count, sizeof(int64_t)), make_array(all->count, 1)};
    int64_t *counts = numbers_of(arrays[0]);
    uint8_t *odd = numbers_of(arrays[1]);
    uint64_t total = 0;
    if (counts && odd) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < all->count; i++) {
            int64_t count = count_in(stretch(all, i), most);
            odd[i] = count < 0;
            counts[i] = count < 0 ? 0 : count;
            total += (uint64_t)counts[i];
        }
        Py_END_ALLOW_THREADS
    }
    for (int i = 2; i < arrays_out; i++) arrays[i] = make_array(total, sizeof(int64_t));
    int64_t *first = numbers_of(arrays[2]);
    int64_t *second = arrays_out > 3 ? numbers_of(arrays[3]) : first;
    if (counts && odd && first && second) {
        Py_BEGIN_ALLOW_THREADS
        size_t at = 0;
        for (size_t i = 0; i < all->count; i++)
            if (counts[i]) at += fill(stretch(all, i), all->data.buf, first + at, second + at);
        Py_END_ALLOW_THREADS
    }
    return pack(arrays, arrays_out);
}

PyObject *fields_of(PyObject *module, PyObject *args) {
    stretches all;
    Py_ssize_t most;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*n", &all.data, &all.starts, &all.ends, &most)) return NULL;
    if (!check(&all)) return NULL;
    PyObject *result = contents(&all, count_fields, fill_fields, most, 4);
    release(&all);
    return result;
}

PyObject *integers_at(PyObject *module, PyObject *args) {
    stretches all;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*", &all.data, &all.starts, &all.ends)) return NULL;
    if (!check(&all)) return NULL;
    PyObject *result = contents(&all, count_numbers, fill_numbers, 0, 3);
    release(&all);
    return result;
}

PyObject *bytes_at(PyObject *module, PyObject *args) {
    stretches all;
    uint64_t total = 0;
    int fits = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*", &all.data, &all.starts, &all.ends)) return NULL;
    if (!check(&all)) return NULL;
    for (size_t i = 0; i < all.count && fits; i++) {
        span in = stretch(&all, i);
        total += (uint64_t)(in.end - in.at);
        fits = total <= INT32_MAX;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "more than 2 GiB");
        release(&all);
        return NULL;
    }
    PyObject *arrays[2] = {make_array(total, 1), make_array(all.count + 1, sizeof(int32_t))};
    uint8_t *out = numbers_of(arrays[0]);
    int32_t *ends = numbers_of(arrays[1]);
    if (out && ends) {
        Py_BEGIN_ALLOW_THREADS
        size_t at = 0;
        ends[0] = 0;
        for (size_t i = 0; i < all.count; i++) {
            span in = stretch(&all, i);
            memcpy(out + at, in.at, (size_t)(in.end - in.at));
            at += (size_t)(in.end - in.at);
            ends[i + 1] = (int32_t)at;
        }
        Py_END_ALLOW_THREADS
    }
    PyObject *result = pack(arrays, 2);
    release(&all);
    return result;
}
