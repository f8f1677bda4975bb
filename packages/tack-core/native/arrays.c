/* The base of tack.Array. */
#include "native.h"

static uint16_t
component_code(PyObject *shape)
{
    Py_ssize_t rank = PyTuple_Size(shape);
    unsigned long rows = rank > 0 ? PyLong_AsUnsignedLong(PyTuple_GetItem(shape, 0)) : 0;
    unsigned long columns = rank > 1 ? PyLong_AsUnsignedLong(PyTuple_GetItem(shape, 1)) : 0;
    return (uint16_t)(rank << 12 | rows << 6 | columns);
}

/* _describe(address, nbytes, dtype, shape, components, writable, domain, foreign) */
static PyObject *
array_describe(PyObject *object, PyObject *args)
{
    ArrayObject *self = (ArrayObject *)object;
    unsigned long long address, nbytes;
    int dtype, writable, domain;
    PyObject *shape, *components, *foreign;
    if (!PyArg_ParseTuple(args, "KKiO!O!piO", &address, &nbytes, &dtype, &PyTuple_Type, &shape, &PyTuple_Type,
                          &components, &writable, &domain, &foreign))
        return NULL;
    if (foreign != Py_None && !(PyByteArray_CheckExact(foreign) && PyByteArray_Size(foreign) == 1)) {
        PyErr_SetString(PyExc_TypeError, "a bytearray of one byte, or None");
        return NULL;
    }
    if (self->dtype != NO_DTYPE) {
        PyErr_SetString(PyExc_RuntimeError, "an array is described once");
        return NULL;
    }
    Py_ssize_t ndim = PyTuple_Size(shape);
    int64_t *dims = self->inline_dims;
    if (ndim > INLINE_DIMS && !(dims = PyMem_Malloc((size_t)ndim * sizeof(int64_t))))
        return PyErr_NoMemory();
    int64_t size = 1;
    bool empty = false, huge = false;
    for (Py_ssize_t k = 0; k < ndim; k++) {
        dims[k] = PyLong_AsLongLong(PyTuple_GetItem(shape, k));
        empty |= dims[k] == 0;
        huge |= __builtin_mul_overflow(size, dims[k], &size);
    }
    if (empty)
        size = 0;
    else if (huge) /* 2^63 elements of one byte: left to Python */
        dtype = NO_DTYPE;
    uint16_t component = component_code(components);
    if (PyErr_Occurred()) {
        if (dims != self->inline_dims)
            PyMem_Free(dims);
        return NULL;
    }
    static uint64_t described = 0;
    self->serial = ++described;
    self->foreign = foreign == Py_None ? NULL : Py_NewRef(foreign);
    self->shared = self->foreign ? PyByteArray_AsString(foreign) : "";
    self->address = address;
    self->nbytes = nbytes;
    self->size = size;
    self->dims = dims;
    self->ndim = (int32_t)ndim;
    self->domain = domain;
    self->component = component;
    self->writable = writable;
    self->dtype = dtype;
    Py_RETURN_NONE;
}

static PyObject *
array_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ArrayObject *self = (ArrayObject *)allocate(type, 0);
    if (self)
        self->dtype = NO_DTYPE;
    return (PyObject *)self;
}

static void
array_dealloc(PyObject *object)
{
    ArrayObject *self = (ArrayObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->dims != self->inline_dims)
        PyMem_Free(self->dims);
    Py_XDECREF(self->foreign);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef array_methods[] = {
    {"_describe", array_describe, METH_VARARGS, "Says once what dispatch reads of the array."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_doc, "The base of tack.Array."},
    {Py_tp_new, array_new},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_methods, array_methods},
    {0, NULL},
};

PyType_Spec array_spec = {
    .name = "tack._native.ArrayBase",
    .basicsize = sizeof(ArrayObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = array_slots,
};
