/* Arguments as numbers and addresses, and the words that their types add to a call's signature. */
#include "native.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "extents of NumPy arrays are read as they are");

/* The first byte of a word. */
enum { W_ARRAY = 1, W_TEXTURE, W_I32, W_I64, W_U64, W_FLOAT };

static uint64_t
array_word(int tag, int dtype, int ndim, unsigned component)
{
    return (uint64_t)tag | (uint64_t)dtype << 8 | (uint64_t)ndim << 16 | (uint64_t)component << 32;
}

Status
read_array(ArrayObject *array, Value *value, Call *call, int tag)
{
    if (array->dtype == NO_DTYPE || array->domain != call->domain ||
        *array->shared)
        return PYTHON;
    *value = (Value){
        .kind = V_ARRAY,
        .writable = array->writable,
        .ndim = array->ndim,
        .address = array->address,
        .nbytes = array->nbytes,
        .size = array->size,
        .dims = array->dims,
    };
    uint64_t word = array_word(tag ? W_TEXTURE : W_ARRAY, array->dtype, array->ndim, array->component);
    return add_word(call, word) ? DONE : PYTHON;
}

static int
numpy_dtype(const PyArray_Descr *descr)
{
    int number = descr->type_num;
    bool native = descr->byteorder == '=' || descr->byteorder == '|';
    return native && 0 <= number && number < MAX_TYPES ? state.dtypes[number] - 1 : NO_DTYPE;
}

static const int item_sizes[N_DTYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};

Status
read_numpy(PyObject *arg, Value *value, Call *call)
{
    PyArrayObject_fields *array = (PyArrayObject_fields *)arg;
    int dtype = numpy_dtype(array->descr);
    if (dtype == NO_DTYPE || !(array->flags & NPY_ARRAY_C_CONTIGUOUS) ||
        !call->wraps_host_memory)
        return PYTHON;
    int64_t size = 1;
    for (int k = 0; k < array->nd; k++)
        size *= array->dimensions[k];
    *value = (Value){
        .kind = V_ARRAY,
        .writable = array->flags & NPY_ARRAY_WRITEABLE,
        .ndim = array->nd,
        .address = (uint64_t)(uintptr_t)array->data,
        .nbytes = (uint64_t)size * (uint64_t)item_sizes[dtype],
        .size = size,
        .dims = (const int64_t *)array->dimensions,
    };
    return add_word(call, array_word(W_ARRAY, dtype, array->nd, 0)) ? DONE : PYTHON;
}

static Status
read_integer(PyObject *number, Value *value, Call *call)
{
    int overflow;
    long long small = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow == 0) {
        *value = (Value){.kind = V_INT, .i = small};
        bool narrow = INT32_MIN <= small && small <= INT32_MAX;
        return add_word(call, narrow ? W_I32 : W_I64) ? DONE : PYTHON;
    }
    unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(number) : 0;
    if (overflow < 0 || PyErr_Occurred()) {
        PyErr_Clear();
        return PYTHON; /* no type holds it */
    }
    *value = (Value){.kind = V_UINT, .u = large};
    return add_word(call, W_U64) ? DONE : PYTHON;
}

static Status
read_float(double number, Value *value, Call *call)
{
    *value = (Value){.kind = V_FLOAT, .f = number};
    return add_word(call, W_FLOAT) ? DONE : PYTHON;
}

/* The number that `arg` is, if it has one of the exact types whose conversion runs no Python code. */
Status
read_number(PyObject *arg, Value *value, Call *call)
{
    PyTypeObject *type = Py_TYPE(arg);
    if (type == &PyFloat_Type)
        return read_float(PyFloat_AsDouble(arg), value, call);
    if (type == &PyLong_Type || type == &PyBool_Type)
        return read_integer(arg, value, call);
    for (int k = 0; k < state.nscalars; k++) {
        if (state.scalars[k].type != type)
            continue;
        if (state.scalars[k].kind == 'f')
            return read_float(PyFloat_AsDouble(arg), value, call);
        if (state.scalars[k].kind == 'b') {
            *value = (Value){.kind = V_INT, .i = PyObject_IsTrue(arg)};
            return add_word(call, W_I32) ? DONE : PYTHON;
        }
        PyObject *integer = PyNumber_Index(arg);
        if (!integer) {
            PyErr_Clear();
            return PYTHON;
        }
        Status status = read_integer(integer, value, call);
        Py_DECREF(integer);
        return status;
    }
    return PYTHON;
}

bool
is_number(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type)
        return true;
    for (int k = 0; k < state.nplain; k++)
        if (type == state.plain[k])
            return false;
    return PyType_IsSubtype(type, &PyLong_Type) || PyType_IsSubtype(type, &PyFloat_Type) ||
           PyType_IsSubtype(type, state.number) || type == state.bool_;
}

/* Whether instances of `type` are taken apart. */
bool
is_device_class(PyTypeObject *type)
{
    if (!(PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE))
        return false;
    PyObject *mark = PyObject_GetAttr((PyObject *)type, state.mark);
    if (!mark)
        PyErr_Clear();
    Py_XDECREF(mark);
    return mark == Py_True;
}

/* What describe() sees in an attribute, in its order. */
Class
classify(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type == state.array)
        return IS_ARRAY;
    if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type)
        return IS_NUMBER;
    if (type == state.func)
        return IS_FUNC;
    for (int k = 0; k < state.nplain; k++)
        if (type == state.plain[k])
            return IS_OTHER;
    if (is_number(value))
        return IS_NUMBER;
    if (PyType_IsSubtype(type, state.func))
        return IS_FUNC;
    return is_device_class(type) ? IS_INSTANCE : IS_OTHER;
}

uint64_t
hash_words(const uint64_t *words, int count)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ (uint64_t)count;
    for (int k = 0; k < count; k++) {
        hash = (hash ^ words[k]) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    return hash;
}

/* read_back(array): what C reads of a NumPy array, for the self-check at start-up:
 * (address, dtype, shape, writable), or None if it would leave the array to Python. */
PyObject *
read_back(PyObject *Py_UNUSED(module), PyObject *arg)
{
    Call call = {.wraps_host_memory = true};
    Value value;
    if (read_numpy(arg, &value, &call) != DONE)
        Py_RETURN_NONE;
    PyObject *shape = PyTuple_New(value.ndim);
    for (int k = 0; shape && k < value.ndim; k++) {
        PyObject *extent = PyLong_FromLongLong(value.dims[k]);
        if (!extent || PyTuple_SetItem(shape, k, extent) < 0)
            Py_CLEAR(shape);
    }
    if (!shape)
        return NULL;
    int dtype = numpy_dtype(((PyArrayObject_fields *)arg)->descr);
    return Py_BuildValue("(KiNO)", (unsigned long long)value.address, dtype, shape,
                         value.writable ? Py_True : Py_False);
}
