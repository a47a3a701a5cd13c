/* Examples made of columns, in C.
 *
 * It writes what `encode_batch` (tfrtool/examples/arrow/encode_batch.py) writes with Arrow, which is
 * the reference. Sizes are computed first, then the messages are written in one go.
 */
#include "_native.h"

#define WHERE_ANY 1 /* when a list of values is a field within its message: if it has any bytes */
#define ALWAYS 2
#define UNSET 0 /* what a null stands for: a feature without a kind, an empty one, or none at all */
#define EMPTY 1

/* The values of one feature in all records. */
typedef struct {
    const char *head; /* the field with the key, and the tag of the value */
    Py_ssize_t head_size;
    int tag, packed, null;
    Py_buffer data, ends, valid; /* values, where they end, after 0, and which are not null */
} column;

static size_t varint_size(uint64_t value) {
    size_t size = 1;
    while (value >>= 7) size++;
    return size;
}

static uint8_t *put_varint(uint8_t *out, uint64_t value) {
    for (; value > 0x7f; value >>= 7) *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

/* The size of a message with the field that holds it. */
static uint64_t field_size(uint64_t size) { return 1 + varint_size(size) + size; }

static uint8_t *put_head(uint8_t *out, int tag, uint64_t size) {
    *out++ = (uint8_t)tag;
    return put_varint(out, size);
}

static int is_null(const column *one, size_t row) {
    return one->valid.len && !((const char *)one->valid.buf)[row];
}

static span values_of(const column *one, size_t row) {
    const uint8_t *data = one->data.buf;
    return (span){data + load_place(&one->ends, row), data + load_place(&one->ends, row + 1)};
}

/* The sizes of the messages around a feature's values, from the innermost to the map's entry. */
typedef struct {
    uint64_t values, list, feature, entry;
    int is_packed, is_set;
} sizes;

/* Measure an entry; 0 where there is none. */
static int measure(const column *one, size_t row, sizes *out) {
    memset(out, 0, sizeof *out);
    if (is_null(one, row)) {
        if (one->null != UNSET && one->null != EMPTY) return 0;
        out->is_set = one->null == EMPTY;
    } else {
        span values = values_of(one, row);
        out->is_set = 1;
        out->values = (uint64_t)(values.end - values.at);
        out->is_packed = one->packed == ALWAYS || (one->packed == WHERE_ANY && out->values);
        out->list = out->is_packed ? field_size(out->values) : out->values;
    }
    out->feature = out->is_set ? field_size(out->list) : 0;
    out->entry = (uint64_t)one->head_size + varint_size(out->feature) + out->feature;
    return 1;
}

static uint8_t *put_entry(uint8_t *out, const column *one, size_t row, const sizes *size) {
    out = put_head(out, FIRST, size->entry);
    memcpy(out, one->head, (size_t)one->head_size);
    out = put_varint(out + one->head_size, size->feature);
    if (!size->is_set) return out;
    out = put_head(out, one->tag, size->list);
    if (size->is_packed) out = put_head(out, FIRST, size->values);
    if (size->values) memcpy(out, values_of(one, row).at, (size_t)size->values);
    return out + size->values;
}

/* Sum up the sizes of each record's entries. */
static void measure_maps(const column *columns, size_t count, size_t rows, uint64_t *maps) {
    sizes size;
    for (size_t row = 0; row < rows; row++) {
        maps[row] = 0;
        for (size_t i = 0; i < count; i++)
            if (measure(&columns[i], row, &size)) maps[row] += field_size(size.entry);
    }
}

static void put_examples(const column *columns, size_t count, size_t rows, const uint64_t *maps,
                         uint8_t *out, int64_t *ends) {
    const uint8_t *start = out;
    sizes size;
    ends[0] = 0;
    for (size_t row = 0; row < rows; row++) {
        out = put_head(out, FIRST, maps[row]);
        for (size_t i = 0; i < count; i++)
            if (measure(&columns[i], row, &size)) out = put_entry(out, &columns[i], row, &size);
        ends[row + 1] = out - start;
    }
}

/* Whether the values of each record start and end in the data. */
static int are_values(const column *one, size_t rows) {
    if ((size_t)one->ends.len != 8 * (rows + 1)) return 0;
    if (one->valid.len && (size_t)one->valid.len != rows) return 0;
    int64_t before = load_place(&one->ends, 0);
    if (before < 0) return 0;
    for (size_t row = 1; row <= rows; row++) {
        int64_t end = load_place(&one->ends, row);
        if (end < before) return 0;
        before = end;
    }
    return before <= one->data.len;
}

static PyObject *examples_of(const column *columns, size_t count, size_t rows) {
    uint64_t *maps = malloc((rows + 1) * sizeof *maps), total = 0;
    if (!maps) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    measure_maps(columns, count, rows, maps);
    for (size_t row = 0; row < rows; row++) total += field_size(maps[row]);
    Py_END_ALLOW_THREADS
    PyObject *arrays[2] = {make_array(total, 1), make_array(rows + 1, sizeof(int64_t))};
    uint8_t *out = numbers_of(arrays[0]);
    int64_t *ends = numbers_of(arrays[1]);
    if (out && ends) {
        Py_BEGIN_ALLOW_THREADS
        put_examples(columns, count, rows, maps, out, ends);
        Py_END_ALLOW_THREADS
    }
    free(maps);
    return pack(arrays, 2);
}

PyObject *encode_examples(PyObject *module, PyObject *args) {
    PyObject *list, *result = NULL;
    Py_ssize_t rows;
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &list, &rows)) return NULL;
    Py_ssize_t count = PyList_Size(list), filled = 0;
    if (count < 0) return NULL;
    column *columns = calloc((size_t)count + 1, sizeof *columns);
    if (!columns) return PyErr_NoMemory();
    int ok = rows >= 0 && rows < PY_SSIZE_T_MAX / 8; /* each has a number of 8 bytes */
    while (ok && filled < count) {
        column *one = &columns[filled];
        if (!PyArg_ParseTuple(PyList_GetItem(list, filled), "y#iiiy*y*y*", &one->head,
                              &one->head_size, &one->tag, &one->packed, &one->null, &one->data,
                              &one->ends, &one->valid))
            break;
        filled++;
        ok = are_values(one, (size_t)rows);
    }
    if (!ok)
        PyErr_SetString(PyExc_ValueError, "a value is not in the data");
    else if (filled == count)
        result = examples_of(columns, (size_t)count, (size_t)rows);
    for (Py_ssize_t i = 0; i < filled; i++) {
        PyBuffer_Release(&columns[i].data);
        PyBuffer_Release(&columns[i].ends);
        PyBuffer_Release(&columns[i].valid);
    }
    free(columns);
    return result;
}

PyObject *varints_of(PyObject *module, PyObject *args) {
    Py_buffer values;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &values)) return NULL;
    size_t count = (size_t)values.len / 8;
    uint64_t total = 0;
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < count; i++)
        total += varint_size((uint64_t)load_place(&values, i));
    Py_END_ALLOW_THREADS
    PyObject *arrays[2] = {make_array(total, 1), make_array(count + 1, sizeof(int64_t))};
    uint8_t *out = numbers_of(arrays[0]);
    int64_t *ends = numbers_of(arrays[1]);
    if (out && ends) {
        const uint8_t *start = out;
        Py_BEGIN_ALLOW_THREADS
        ends[0] = 0;
        for (size_t i = 0; i < count; i++) {
            out = put_varint(out, (uint64_t)load_place(&values, i));
            ends[i + 1] = out - start;
        }
        Py_END_ALLOW_THREADS
    }
    PyObject *result = pack(arrays, 2);
    PyBuffer_Release(&values);
    return result;
}
