/* The functions of Python that the C files call, so that their entry points run without Python.
 *
 * Arguments and results are in memory of exactly their size. Buffers, objects and exceptions are
 * counted: a call has to release what it took, and to fail with an exception. `failing` makes an
 * allocation fail.
 */
#include <stdarg.h>

typedef struct {
    const void *bytes; /* of y* and y#; it is copied */
    size_t size;
    long long number; /* of n, i, p and K */
    PyObject *object; /* of O */
} argument;

typedef struct {
    PyObject head;
    Py_ssize_t size;
    uint8_t *bytes;   /* of an object that has bytes */
    PyObject **items; /* of a tuple or a list */
    argument *arguments;
    long long number;
} object;

PyObject *PyExc_ValueError;
static long open_buffers, open_objects;
static int has_failed;
static long failing; /* the number of the allocation that fails, from 1; 0 for none */

static uint8_t *exactly(const void *bytes, size_t size) {
    uint8_t *copied = malloc(size);
    CHECK(copied || !size);
    if (size && bytes) memcpy(copied, bytes, size);
    return copied;
}

static object *new_object(void) {
    if (failing && !--failing) {
        has_failed = 1;
        return NULL;
    }
    object *created = calloc(1, sizeof *created);
    CHECK(created);
    Py_SET_REFCNT(&created->head, 1);
    open_objects++;
    return created;
}

void _Py_Dealloc(PyObject *item) {
    object *old = (object *)item;
    for (Py_ssize_t i = 0; old->items && i < old->size; i++) Py_XDECREF(old->items[i]);
    free(old->bytes), free(old->items), free(old);
    open_objects--;
}

void _Py_DecRef(PyObject *item) {
    Py_ssize_t left = Py_REFCNT(item) - 1;
    Py_SET_REFCNT(item, left);
    if (!left) _Py_Dealloc(item);
}

void _Py_IncRef(PyObject *item) { Py_SET_REFCNT(item, Py_REFCNT(item) + 1); }

PyThreadState *PyEval_SaveThread(void) { return NULL; }

void PyEval_RestoreThread(PyThreadState *thread) { (void)thread; }

void PyErr_SetString(PyObject *kind, const char *text) {
    (void)kind, (void)text;
    has_failed = 1;
}

PyObject *PyErr_NoMemory(void) {
    has_failed = 1;
    return NULL;
}

void PyBuffer_Release(Py_buffer *view) {
    free(view->buf);
    view->buf = NULL;
    open_buffers--;
}

PyObject *PyBytes_FromStringAndSize(const char *bytes, Py_ssize_t size) {
    CHECK(size >= 0);
    object *created = new_object();
    if (!created) return NULL;
    created->size = size;
    created->bytes = exactly(bytes, (size_t)size);
    return &created->head;
}

char *PyBytes_AsString(PyObject *item) { return (char *)((object *)item)->bytes; }

PyObject *PyTuple_New(Py_ssize_t size) {
    object *created = new_object();
    if (!created) return NULL;
    created->size = size;
    created->items = calloc((size_t)size + 1, sizeof *created->items);
    CHECK(created->items);
    return &created->head;
}

int PyTuple_SetItem(PyObject *tuple, Py_ssize_t i, PyObject *item) {
    CHECK(i >= 0 && i < ((object *)tuple)->size);
    ((object *)tuple)->items[i] = item;
    return 0;
}

PyObject *PyTuple_Pack(Py_ssize_t size, ...) {
    va_list items;
    PyObject *tuple = PyTuple_New(size);
    va_start(items, size);
    for (Py_ssize_t i = 0; tuple && i < size; i++) {
        PyObject *item = va_arg(items, PyObject *);
        Py_INCREF(item);
        PyTuple_SetItem(tuple, i, item);
    }
    va_end(items);
    return tuple;
}

Py_ssize_t PyList_Size(PyObject *list) { return ((object *)list)->size; }

PyObject *PyList_GetItem(PyObject *list, Py_ssize_t i) {
    CHECK(i >= 0 && i < ((object *)list)->size);
    return ((object *)list)->items[i];
}

int PyBytes_AsStringAndSize(PyObject *item, char **bytes, Py_ssize_t *size) {
    *bytes = PyBytes_AsString(item);
    *size = ((object *)item)->size;
    return 0;
}

/* A function is an object that describes bytes by how many there are. */
PyObject *PyObject_CallFunctionObjArgs(PyObject *function, ...) {
    char described[32];
    va_list arguments;
    va_start(arguments, function);
    PyObject *bytes = va_arg(arguments, PyObject *);
    va_end(arguments);
    int size = snprintf(described, sizeof described, "\"%zd bytes\"", ((object *)bytes)->size);
    return PyBytes_FromStringAndSize(described, size);
}

void *PyMem_Realloc(void *memory, size_t size) {
    return failing && !--failing ? NULL : realloc(memory, size);
}

void PyMem_Free(void *memory) { free(memory); }

PyObject *PyErr_Occurred(void) { return NULL; }

double PyOS_string_to_double(const char *text, char **end, PyObject *overflow) {
    (void)overflow;
    return strtod(text, end);
}

/* As many digits as a format has, or for 'r' as few as it takes. */
char *PyOS_double_to_string(double value, char format, int digits, int flags, int *kind) {
    char *text = malloc(40);
    CHECK(text);
    (void)kind;
    if (format != 'r') {
        snprintf(text, 40, "%.*g", digits, value);
        return text;
    }
    for (digits = 1; digits < 18; digits++) {
        snprintf(text, 40, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (flags && !strpbrk(text, ".e")) strcat(text, ".0");
    return text;
}

/* Copy the arguments that a format names to where they are wanted. */
int PyArg_ParseTuple(PyObject *args, const char *format, ...) {
    const argument *next = ((object *)args)->arguments;
    va_list out;
    va_start(out, format);
    for (const char *c = format; *c; c++) {
        if (*c == '|') continue;
        if (*c == 'y' && *++c == '*') {
            Py_buffer *view = va_arg(out, Py_buffer *);
            memset(view, 0, sizeof *view);
            view->buf = exactly(next->bytes, next->size);
            view->len = (Py_ssize_t)next->size;
            open_buffers++;
        } else if (*c == '#') { /* the argument keeps it */
            *va_arg(out, const char **) = next->bytes;
            *va_arg(out, Py_ssize_t *) = (Py_ssize_t)next->size;
        } else if (*c == 'O') {
            *va_arg(out, PyObject **) = next->object;
        } else if (*c == 'n') {
            *va_arg(out, Py_ssize_t *) = (Py_ssize_t)next->number;
        } else if (*c == 'K') {
            *va_arg(out, unsigned long long *) = (unsigned long long)next->number;
        } else {
            CHECK(*c == 'i' || *c == 'p');
            *va_arg(out, int *) = (int)next->number;
        }
        next++;
    }
    va_end(out);
    return 1;
}

/* Make a tuple of bytes, numbers and objects. */
PyObject *Py_BuildValue(const char *format, ...) {
    va_list in;
    PyObject *items[4] = {NULL};
    Py_ssize_t count = 0;
    va_start(in, format);
    for (const char *c = format; *c; c++, count++) {
        if (*c == 'y') {
            const char *bytes = va_arg(in, const char *);
            items[count] = PyBytes_FromStringAndSize(bytes, va_arg(in, Py_ssize_t));
            c++;
        } else if (*c == 'O') {
            items[count] = va_arg(in, PyObject *);
            Py_INCREF(items[count]);
        } else {
            object *created = new_object();
            if (created) created->number = va_arg(in, int);
            items[count] = created ? &created->head : NULL;
        }
    }
    va_end(in);
    return pack(items, count);
}

/* Call an entry point. What it took has to be released, and if it fails there is an exception. */
static object *call(PyObject *(*function)(PyObject *, PyObject *), const argument *arguments,
                    size_t count) {
    object args = {.arguments = (argument *)exactly(arguments, count * sizeof *arguments)};
    long before = open_objects;
    has_failed = 0;
    PyObject *result = function(NULL, &args.head);
    free(args.arguments);
    CHECK(!open_buffers);
    CHECK((result == NULL) == has_failed);
    CHECK(result || open_objects == before);
    return (object *)result;
}

static void drop(object *result) { Py_XDECREF((PyObject *)result); }

static const uint8_t *bytes_in(const object *tuple, int i) {
    return ((object *)tuple->items[i])->bytes;
}

static size_t size_in(const object *tuple, int i) {
    return (size_t)((object *)tuple->items[i])->size;
}

static int64_t number_in(const object *tuple, int i, size_t at) {
    CHECK(8 * at + 8 <= size_in(tuple, i));
    return (int64_t)number(bytes_in(tuple, i), at);
}
