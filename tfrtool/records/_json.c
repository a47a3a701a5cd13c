/* The features of Examples as JSON, in C.
 *
 * It writes what `json.dumps` makes of what `PayloadJson` (tfrtool/inspection/rows/payload_json.py)
 * says of an Example, which is the reference. An Example of another form than writers write, or with
 * a key that is not ASCII, is left to Python; so is each string that is not plain ASCII text, by a
 * function that is called with it. What is written has room before it is written.
 */
#include "_native.h"

#define ODD 0 /* what the functions here return: left to Python, done, or an exception is set */
#define DONE 1
#define FAILED (-1)

#define LONGEST_NUMBER 40 /* characters of a number, and what is between two of them */

typedef struct {
    char *data;
    size_t size, room;
} text;

static int reserve(text *out, size_t more) {
    if (out->room - out->size >= more) return DONE;
    if (more > PY_SSIZE_T_MAX / 4 || out->size > PY_SSIZE_T_MAX / 4) {
        PyErr_NoMemory();
        return FAILED;
    }
    size_t room = 2 * out->size + more + 4096;
    char *data = PyMem_Realloc(out->data, room);
    if (!data) {
        PyErr_NoMemory();
        return FAILED;
    }
    out->data = data;
    out->room = room;
    return DONE;
}

/* Append characters for which there is room. */
static void put(text *out, const char *characters, size_t count) {
    memcpy(out->data + out->size, characters, count);
    out->size += count;
}

static int append(text *out, const char *characters, size_t count) {
    if (reserve(out, count) < 0) return FAILED;
    put(out, characters, count);
    return DONE;
}

/* ---- strings ---- */

static int is_plain(span value, int with_breaks) {
    for (; value.at < value.end; value.at++) {
        uint8_t byte = *value.at;
        if (byte >= 0x20 && byte < 0x7f) continue;
        if (!with_breaks || (byte != '\n' && byte != '\r' && byte != '\t')) return 0;
    }
    return 1;
}

static int put_plain(text *out, span value) {
    size_t size = (size_t)(value.end - value.at);
    if (size > PY_SSIZE_T_MAX / 4) return ODD;
    if (reserve(out, 2 * size + 2) < 0) return FAILED;
    char *at = out->data + out->size;
    *at++ = '"';
    for (; value.at < value.end; value.at++) {
        char byte = (char)*value.at;
        char escape = byte == '\n' ? 'n' : byte == '\r' ? 'r' : byte == '\t' ? 't' : byte;
        if (escape != byte || byte == '"' || byte == '\\') *at++ = '\\';
        *at++ = escape;
    }
    *at++ = '"';
    out->size = (size_t)(at - out->data);
    return DONE;
}

static int put_string(text *out, span value, PyObject *describe) {
    if (is_plain(value, 1)) return put_plain(out, value);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)value.at, value.end - value.at);
    PyObject *json = bytes ? PyObject_CallFunctionObjArgs(describe, bytes, NULL) : NULL;
    char *characters;
    Py_ssize_t count;
    int done = json && PyBytes_AsStringAndSize(json, &characters, &count) == 0
                   ? append(out, characters, (size_t)count)
                   : FAILED;
    Py_XDECREF(json);
    Py_XDECREF(bytes);
    return done;
}

/* ---- numbers; there is room for one of them ---- */

static void put_digits(text *out, uint64_t number, int at_least) {
    char digits[20];
    int count = 0;
    for (; number || count < at_least; number /= 10) digits[count++] = (char)('0' + number % 10);
    while (count) out->data[out->size++] = digits[--count];
}

static void put_integer(text *out, uint64_t bits) {
    int is_negative = bits >> 63 == 1;
    if (is_negative) out->data[out->size++] = '-';
    put_digits(out, is_negative ? 0 - bits : bits, 1);
}

static int put_double(text *out, double value) {
    char *digits = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (!digits) return FAILED;
    size_t count = strlen(digits);
    int done = count < LONGEST_NUMBER - 2 ? append(out, digits, count) : ODD;
    PyMem_Free(digits);
    return done;
}

/* Do what `_shortest_decimal` (tfrtool/inspection/summary/summary_json.py) does. */
static int put_shortest(text *out, float value) {
    int is_normal = value >= 0x1p-126f || value <= -0x1p-126f;
    for (int digits = is_normal ? 6 : 1;; digits++) {
        char *decimal = PyOS_double_to_string(value, 'g', digits, 0, NULL);
        if (!decimal) return FAILED;
        double candidate = PyOS_string_to_double(decimal, NULL, NULL);
        PyMem_Free(decimal);
        if (candidate == -1.0 && PyErr_Occurred()) return FAILED;
        if (digits == 9 || (float)candidate == value) return put_double(out, candidate);
    }
}

/* Powers of ten that a double holds exactly. */
static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static double power_of_two(int exponent) {
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

/* Put a number of 15 digits at most, of which these many are decimals. */
static void put_decimal(text *out, uint64_t digits, int decimals) {
    for (; decimals && digits % 10 == 0; digits /= 10) decimals--;
    uint64_t power = 1;
    for (int i = 0; i < decimals; i++) power *= 10;
    put_digits(out, digits / power, 1);
    out->data[out->size++] = '.';
    put_digits(out, digits % power, decimals ? decimals : 1);
}

/* Do what `shortest_float` (tfrtool/inspection/summary/summary_json.py) does. */
static int put_finite(text *out, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    int exponent = (int)(bits >> 23 & 0xff) - 126, is_power = !(bits & 0x7fffff);
    double size = value < 0 ? -(double)value : (double)value;
    if (is_power && exponent >= -7 && exponent <= 24) { /* it has seven digits at most */
        int decimals = exponent < 1 ? 1 - exponent : 0;
        if (bits >> 31) out->data[out->size++] = '-';
        put_decimal(out, (uint64_t)(size * POWERS[decimals]), decimals);
        return DONE;
    }
    if (is_power || exponent < -50 || exponent > 24) return put_shortest(out, value);
    double half_ulp = power_of_two(exponent - 25), two = power_of_two(exponent);
    int first = 0;
    while (POWERS[first] * two < 1e5) first++;
    for (int decimals = first; decimals < first + 5 && decimals < 23; decimals++) {
        double power = POWERS[decimals], scaled = size * power;
        double digits = scaled + 0x1.8p52 - 0x1.8p52;
        double distance = scaled < digits ? digits - scaled : scaled - digits;
        double unsure = half_ulp * power;
        if (distance < (unsure < 0.5 ? unsure : 0.5) - 1e-6) {
            if (size < 2e-4 || decimals > 15) /* it may have an exponent */
                return put_double(out, (bits >> 31 ? -digits : digits) / power);
            if (bits >> 31) out->data[out->size++] = '-';
            put_decimal(out, (uint64_t)digits, decimals);
            return DONE;
        }
        if (distance < unsure + 1e-6) break;
    }
    return put_shortest(out, value);
}

static int put_float(text *out, const uint8_t *at) {
    uint32_t bits = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    float value;
    memcpy(&value, &bits, 4);
    if (!bits) return append(out, "0.0", 3);
    if (bits == 1u << 31) return append(out, "-0.0", 4);
    if ((bits >> 23 & 0xff) < 0xff) return put_finite(out, value);
    if (bits & 0x7fffff) return append(out, "\"NaN\"", 5);
    return bits >> 31 ? append(out, "\"-Infinity\"", 11) : append(out, "\"Infinity\"", 10);
}

/* ---- features ---- */

typedef struct {
    span key, value;
} entry;

/* Put the value that is next in a list, and go on to the one after it. */
static int put_value(text *out, uint8_t kind, span *values, PyObject *describe) {
    span string;
    uint64_t bits;
    if (reserve(out, LONGEST_NUMBER) < 0) return FAILED;
    if (kind == FIRST)
        return read_field(values, FIRST, &string) ? put_string(out, string, describe) : ODD;
    if (kind == THIRD) {
        if (!read_varint(values, &bits)) return ODD;
        put_integer(out, bits);
        return DONE;
    }
    values->at += 4;
    return put_float(out, values->at - 4);
}

/* Put a single value as such, more or none as a list, and null for a feature without a kind. */
static int put_feature(text *out, span feature, PyObject *describe) {
    span values;
    uint8_t kind;
    int done;
    if (!read_feature(feature, &kind, &values)) return ODD;
    if (!kind) return append(out, "null", 4);
    size_t start = out->size;
    if (append(out, "[", 1) < 0) return FAILED;
    int64_t count = 0;
    for (; values.at < values.end; count++) {
        if (count && append(out, ", ", 2) < 0) return FAILED;
        if ((done = put_value(out, kind, &values, describe)) != DONE) return done;
    }
    if (count != 1) return append(out, "]", 1);
    out->size--; /* without the bracket */
    memmove(out->data + start, out->data + start + 1, out->size - start);
    return DONE;
}

static int by_key(const void *first, const void *second) {
    span one = ((const entry *)first)->key, other = ((const entry *)second)->key;
    int64_t size = one.end - one.at, other_size = other.end - other.at;
    int difference = memcmp(one.at, other.at, (size_t)(size < other_size ? size : other_size));
    return difference ? difference : (size > other_size) - (size < other_size);
}

typedef struct {
    entry *items;
    size_t count, room;
} entries;

/* Find the entries of a payload, sorted by keys, none of which comes twice. */
static int find_sorted(span in, entries *found) {
    span map, field;
    int is_sorted = 1;
    found->count = 0;
    if (!read_field(&in, FIRST, &map) || in.at < in.end || map.at == map.end) return ODD;
    while (map.at < map.end) {
        if (found->count == found->room) {
            size_t room = 2 * found->room + 64;
            entry *items = PyMem_Realloc(found->items, room * sizeof *items);
            if (!items) {
                PyErr_NoMemory();
                return FAILED;
            }
            found->items = items;
            found->room = room;
        }
        entry *item = found->items + found->count++;
        if (!read_field(&map, FIRST, &field) || !read_field(&field, FIRST, &item->key)) return ODD;
        if (!read_field(&field, SECOND, &item->value) || field.at < field.end) return ODD;
        if (!is_plain(item->key, 0)) return ODD;
        is_sorted &= found->count == 1 || by_key(item - 1, item) < 0;
    }
    if (is_sorted) return DONE;
    qsort(found->items, found->count, sizeof *found->items, by_key);
    for (size_t i = 1; i < found->count; i++)
        if (by_key(found->items + i - 1, found->items + i) == 0) return ODD;
    return DONE;
}

static int put_example(text *out, span payload, entries *found, PyObject *describe) {
    int done = find_sorted(payload, found);
    if (done != DONE) return done;
    for (size_t i = 0; i < found->count; i++) {
        if (append(out, i ? ", " : "{", i ? 2 : 1) < 0) return FAILED;
        if ((done = put_plain(out, found->items[i].key)) != DONE) return done;
        if (append(out, ": ", 2) < 0) return FAILED;
        if ((done = put_feature(out, found->items[i].value, describe)) != DONE) return done;
    }
    return append(out, "}", 1);
}

/* Put all Examples of up to this size, and note where each ends; nothing is left of an odd one. */
static int put_examples(text *out, const Py_buffer *data, const Py_buffer *starts, size_t count,
                        int64_t most, int64_t *ends, PyObject *describe) {
    entries found = {0};
    int done = DONE;
    for (size_t i = 0; i < count && done >= 0; i++) {
        span payload;
        size_t before = out->size;
        if (!find_payload(data->buf, (size_t)data->len, starts->buf, i, &payload)) {
            PyErr_SetString(PyExc_ValueError, "a frame is not in the data");
            done = FAILED;
            break;
        }
        done = payload.end - payload.at > most ? ODD : put_example(out, payload, &found, describe);
        if (done == ODD) out->size = before;
        ends[i] = (int64_t)out->size;
    }
    PyMem_Free(found.items);
    return done < 0 ? FAILED : DONE;
}

PyObject *features_json(PyObject *module, PyObject *args) {
    Py_buffer data, starts;
    PyObject *describe, *result = NULL;
    Py_ssize_t most;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*nO", &data, &starts, &most, &describe)) return NULL;
    size_t count = starts.len >= 16 ? (size_t)starts.len / 8 - 1 : 0;
    PyObject *ends = make_array(count, sizeof(int64_t));
    text out = {0};
    if (ends && put_examples(&out, &data, &starts, count, most, numbers_of(ends), describe) == DONE)
        result = Py_BuildValue("y#O", out.data ? out.data : "", (Py_ssize_t)out.size, ends);
    Py_XDECREF(ends);
    PyMem_Free(out.data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&data);
    return result;
}
