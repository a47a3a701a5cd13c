/* What the C files of the module `_frames` share. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 0x0a /* the tags of fields 1, 2 and 3 where they have a length */
#define SECOND 0x12
#define THIRD 0x1a

#define HEADER 12 /* bytes of a frame: a length of 8, and its masked CRC */
#define FRAME 16  /* and the payload's masked CRC */

typedef struct {
    const uint8_t *at, *end;
} span;

/* Read a varint that is as short as it can be, as protobuf writes them. */
static inline int read_varint(span *in, uint64_t *value) {
    uint64_t result = 0;
    for (int shift = 0; in->at < in->end && shift < 64; shift += 7) {
        uint8_t byte = *in->at++;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        if ((shift && !byte) || (shift == 63 && byte > 1)) return 0;
        *value = result;
        return 1;
    }
    return 0;
}

/* Read the field with this tag that comes next. */
static inline int read_field(span *in, uint8_t tag, span *field) {
    uint64_t length;
    if (in->at == in->end || *in->at != tag) return 0;
    in->at++;
    if (!read_varint(in, &length) || length > (uint64_t)(in->end - in->at)) return 0;
    field->at = in->at;
    field->end = in->at += length;
    return 1;
}

/* ---- frames ---- */

/* Return a number of an array that need not be aligned. */
static inline uint64_t number(const uint8_t *array, size_t i) {
    uint64_t value;
    memcpy(&value, array + 8 * i, 8);
    return value;
}

/* Find the payload of a frame; 0 if the frame is not within the data. */
static inline int find_payload(const uint8_t *data, size_t size, const uint8_t *starts, size_t i,
                               span *payload) {
    uint64_t start = number(starts, i), end = number(starts, i + 1);
    if (end > size || start > end || end - start < FRAME) return 0;
    payload->at = data + start + HEADER;
    payload->end = data + end - (FRAME - HEADER);
    return 1;
}

/* ---- places in, arrays out ---- */

/* Stretches of some data, by int64 numbers of its bytes. */
typedef struct {
    Py_buffer data, starts, ends;
    size_t count;
} stretches;

static inline int64_t load_place(const Py_buffer *places, size_t i) {
    int64_t place;
    memcpy(&place, (const char *)places->buf + 8 * i, 8);
    return place;
}

static inline span stretch(const stretches *all, size_t i) {
    const uint8_t *data = all->data.buf;
    return (span){data + load_place(&all->starts, i), data + load_place(&all->ends, i)};
}

/* Whether each stretch starts and ends in the data. */
static inline int are_within(const stretches *all) {
    for (size_t i = 0; i < all->count; i++) {
        int64_t start = load_place(&all->starts, i), end = load_place(&all->ends, i);
        if (start < 0 || end < start || end > (int64_t)all->data.len) return 0;
    }
    return 1;
}

static inline void release(stretches *all) {
    PyBuffer_Release(&all->data);
    PyBuffer_Release(&all->starts);
    PyBuffer_Release(&all->ends);
}

/* Count the stretches; 0 with an exception where they are not in the data. */
static inline int check(stretches *all) {
    all->count = (size_t)all->starts.len / 8;
    if (all->starts.len == all->ends.len && all->starts.len % 8 == 0 && are_within(all)) return 1;
    PyErr_SetString(PyExc_ValueError, "a place is not in the data");
    release(all);
    return 0;
}

/* An array of numbers to be filled; NULL, and an exception, without memory. */
static inline PyObject *make_array(uint64_t count, size_t width) {
    if (count > (uint64_t)PY_SSIZE_T_MAX / width) return PyErr_NoMemory();
    return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * width));
}

static inline void *numbers_of(PyObject *array) { return array ? PyBytes_AsString(array) : NULL; }

/* Give arrays out as a tuple; NULL if one of them is missing. */
static inline PyObject *pack(PyObject **arrays, Py_ssize_t count) {
    int all = 1;
    for (Py_ssize_t i = 0; i < count; i++) all &= arrays[i] != NULL;
    PyObject *result = all ? PyTuple_New(count) : NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (result)
            PyTuple_SetItem(result, i, arrays[i]);
        else
            Py_XDECREF(arrays[i]);
    }
    return result;
}

/* Find what kind a feature is of, and its values: packed numbers, or fields of strings. */
int read_feature(span in, uint8_t *kind, span *values);

/* Functions of the module: in _features.c; the next two in _encode.c, and the last in _json.c. */
PyObject *find_entries(PyObject *module, PyObject *args);
PyObject *feature_kinds(PyObject *module, PyObject *args);
PyObject *fields_of(PyObject *module, PyObject *args);
PyObject *integers_at(PyObject *module, PyObject *args);
PyObject *bytes_at(PyObject *module, PyObject *args);
PyObject *encode_examples(PyObject *module, PyObject *args);
PyObject *varints_of(PyObject *module, PyObject *args);
PyObject *features_json(PyObject *module, PyObject *args);
