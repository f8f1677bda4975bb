/* Instances of device classes: how one is taken apart, as describe() in lang/device_class.py does it.
 *
 * A layout is what instances had when it was learned: the class attributes of each class among the
 * bases, and the instance's attributes in the order of its dictionary. An instance that differs in
 * any of these has another layout. A layout keeps no class and no function alive: when one is
 * collected, the tables that know it are cleared before its address can be used again. */
#include "native.h"

typedef enum {
    ANY,     /* starts with an underscore: not looked at */
    MARK,    /* says whether instances are taken apart */
    CONSTANT /* a number, compiled in */,
    HOST,    /* must not be a number */
} ItemKind;

typedef struct {
    PyObject *key;
    PyObject *value; /* owned, of MARK and CONSTANT */
    ItemKind kind;
} Item;

/* The attributes of one class among the bases. */
typedef struct {
    PyTypeObject *cls;
    PyObject *bases;
    Item *items;
    Py_ssize_t nitems;
} Snapshot;

typedef enum { SKIPPED, ON_HOST, SHADOWS, SCALAR, ARRAY, FUNC, PART } Role;

typedef struct {
    PyObject *key;
    PyObject *value; /* SHADOWS: owned. FUNC: not owned */
    Layout *part;
    int position; /* among the instance's values */
    Role role;
} Attribute;

struct Layout {
    PyTypeObject *cls;
    Snapshot *classes;
    Attribute *attributes;
    Py_ssize_t nclasses, nattributes;
    int id, nvalues;
    bool refused, has_dict;
};

/* --- making them ------------------------------------------------------------------------------- */

static bool
is_private(PyObject *key)
{
    return PyUnicode_GetLength(key) > 0 && PyUnicode_ReadChar(key, 0) == '_';
}

/* The dictionary of an instance or class, or NULL without an exception. */
static PyObject *
dictionary(PyObject *object)
{
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    if (!dict)
        PyErr_Clear();
    return dict;
}

static bool
take_snapshot(Snapshot *shot, PyTypeObject *cls)
{
    if (!(PyType_GetFlags(cls) & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError, "a base class that is not written in Python");
        return false;
    }
    PyObject *dict = dictionary((PyObject *)cls);
    if (!dict || !PyDict_Check(dict)) {
        Py_XDECREF(dict);
        PyErr_SetString(PyExc_TypeError, "a class without a dictionary");
        return false;
    }
    shot->cls = cls;
    shot->bases = Py_NewRef((PyObject *)PyType_GetSlot(cls, Py_tp_bases));
    shot->items = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof(Item));
    PyObject *key, *value;
    for (Py_ssize_t at = 0; shot->items && PyDict_Next(dict, &at, &key, &value);) {
        Item *item = &shot->items[shot->nitems++];
        item->key = Py_NewRef(key);
        if (!PyUnicode_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "a class attribute whose name is no string");
            break;
        }
        bool marks = PyUnicode_Compare(key, state.mark) == 0;
        item->kind = marks ? MARK : is_private(key) ? ANY : is_number(value) ? CONSTANT : HOST;
        if (item->kind == MARK || item->kind == CONSTANT)
            item->value = Py_NewRef(value);
    }
    Py_DECREF(dict);
    if (!shot->items)
        PyErr_NoMemory();
    return !PyErr_Occurred();
}

static bool
take_attribute(Attribute *attribute, PyObject *spec, int id)
{
    const char *role;
    PyObject *key, *detail;
    if (!PyArg_ParseTuple(spec, "UsiO", &key, &role, &attribute->position, &detail))
        return false;
    attribute->key = Py_NewRef(key);
    static const struct {
        const char *name;
        Role role;
    } roles[] = {{"skipped", SKIPPED}, {"host", ON_HOST}, {"shadows", SHADOWS}, {"scalar", SCALAR},
                 {"array", ARRAY},     {"func", FUNC},    {"part", PART}};
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (strcmp(role, roles[k].name) == 0)
            attribute->role = roles[k].role;
    if (attribute->role == SHADOWS)
        attribute->value = Py_NewRef(detail);
    else if (attribute->role == FUNC)
        attribute->value = detail;
    else if (attribute->role == PART)
        attribute->part = layout_new(detail, id);
    return attribute->role != PART || attribute->part;
}

/* The layout that a spec (see tack.runtime.learn) describes:
 * (class, its method resolution order, number of values, has a dictionary, attributes). */
Layout *
layout_new(PyObject *spec, int id)
{
    PyObject *cls, *order, *attributes;
    int nvalues, has_dict;
    if (!PyArg_ParseTuple(spec, "O!O!ipO!", &PyType_Type, &cls, &PyTuple_Type, &order, &nvalues, &has_dict,
                          &PyTuple_Type, &attributes))
        return NULL;
    Layout *layout = PyMem_Calloc(1, sizeof(Layout));
    if (!layout)
        return (Layout *)PyErr_NoMemory();
    layout->cls = (PyTypeObject *)cls;
    layout->id = id;
    layout->nvalues = nvalues;
    layout->has_dict = has_dict;
    Py_ssize_t nclasses = PyTuple_Size(order) - 1; /* without `object`, whose attributes never change */
    Py_ssize_t nattributes = PyTuple_Size(attributes);
    layout->classes = PyMem_Calloc((size_t)nclasses + 1, sizeof(Snapshot));
    layout->attributes = PyMem_Calloc((size_t)nattributes + 1, sizeof(Attribute));
    bool made = layout->classes && layout->attributes;
    if (!made)
        PyErr_NoMemory();
    for (Py_ssize_t k = 0; made && k < nclasses; k++) {
        layout->nclasses++;
        made = take_snapshot(&layout->classes[k], (PyTypeObject *)PyTuple_GetItem(order, k));
    }
    for (Py_ssize_t k = 0; made && k < nattributes; k++) {
        layout->nattributes++;
        made = take_attribute(&layout->attributes[k], PyTuple_GetItem(attributes, k), id);
    }
    if (made)
        return layout;
    layout_free(layout);
    return NULL;
}

/* Says that the Python path takes instances of this class apart. */
Layout *
layout_refused(PyTypeObject *cls, int id)
{
    Layout *layout = PyMem_Calloc(1, sizeof(Layout));
    if (!layout)
        return (Layout *)PyErr_NoMemory();
    layout->cls = cls;
    layout->id = id;
    layout->refused = true;
    return layout;
}

void
layout_free(Layout *layout)
{
    if (!layout)
        return;
    for (Py_ssize_t k = 0; k < layout->nclasses; k++) {
        Snapshot *shot = &layout->classes[k];
        for (Py_ssize_t i = 0; i < shot->nitems; i++) {
            Py_XDECREF(shot->items[i].key);
            Py_XDECREF(shot->items[i].value);
        }
        PyMem_Free(shot->items);
        Py_XDECREF(shot->bases);
    }
    for (Py_ssize_t k = 0; k < layout->nattributes; k++) {
        Attribute *attribute = &layout->attributes[k];
        Py_XDECREF(attribute->key);
        if (attribute->role == SHADOWS)
            Py_XDECREF(attribute->value);
        layout_free(attribute->part);
    }
    PyMem_Free(layout->classes);
    PyMem_Free(layout->attributes);
    PyMem_Free(layout);
}

int
layout_visit(const Layout *layout, visitproc visit, void *arg)
{
    for (Py_ssize_t k = 0; k < layout->nclasses; k++) {
        Py_VISIT(layout->classes[k].bases);
        for (Py_ssize_t i = 0; i < layout->classes[k].nitems; i++)
            Py_VISIT(layout->classes[k].items[i].value);
    }
    for (Py_ssize_t k = 0; k < layout->nattributes; k++) {
        const Attribute *attribute = &layout->attributes[k];
        if (attribute->role == SHADOWS)
            Py_VISIT(attribute->value);
        int result = attribute->part ? layout_visit(attribute->part, visit, arg) : 0;
        if (result)
            return result;
    }
    return 0;
}

PyTypeObject *
layout_class(const Layout *layout)
{
    return layout->cls;
}

bool
layout_is_refused(const Layout *layout)
{
    return layout->refused;
}

/* --- reading instances ------------------------------------------------------------------------- */

/* Whether two constants are the same to a kernel's code: of one type, with the same bits. */
static bool
same_constant(PyObject *known, PyObject *value)
{
    if (known == value)
        return true;
    if (Py_TYPE(known) != Py_TYPE(value))
        return false;
    if (Py_TYPE(known) == &PyFloat_Type) {
        double a = PyFloat_AsDouble(known), b = PyFloat_AsDouble(value);
        return memcmp(&a, &b, sizeof a) == 0;
    }
    if (Py_TYPE(known) == &PyLong_Type)
        return PyObject_RichCompareBool(known, value, Py_EQ) == 1;
    return false;
}

/* Attribute names are interned, as a rule. */
static bool
same_name(PyObject *known, PyObject *key)
{
    return known == key || (PyUnicode_Check(key) && PyUnicode_Compare(known, key) == 0);
}

static bool
unchanged(const Snapshot *shot)
{
    if (PyType_GetSlot(shot->cls, Py_tp_bases) != (void *)shot->bases)
        return false;
    PyObject *dict = dictionary((PyObject *)shot->cls);
    if (!dict)
        return false;
    bool same = PyDict_Size(dict) == shot->nitems;
    const Item *item = shot->items;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; same && PyDict_Next(dict, &at, &key, &value); item++) {
        same = same_name(item->key, key);
        if (same && item->kind == CONSTANT)
            same = same_constant(item->value, value);
        else if (same && item->kind == MARK)
            same = value == item->value;
        else if (same && item->kind == HOST)
            same = !is_number(value);
    }
    Py_DECREF(dict);
    return same;
}

/* Adds the value of one attribute; its words name its type, and an array's whole shape. */
static Status
read_attribute(const Attribute *attribute, PyObject *own, Call *call, int first)
{
    if (attribute->role == SKIPPED)
        return DONE;
    Value *value = &call->values[first + attribute->position];
    if (attribute->role == SCALAR && Py_TYPE(own) == &PyFloat_Type) /* the most common, so the fastest */
        return read_number(own, value, call);
    switch (classify(own)) {
    case IS_NUMBER:
        if (attribute->role == SHADOWS)
            return same_constant(attribute->value, own) ? DONE : MISS;
        return attribute->role == SCALAR ? read_number(own, value, call) : MISS;
    case IS_ARRAY:
        if (attribute->role != ARRAY)
            return MISS;
        Status status = read_array((ArrayObject *)own, value, call, 0);
        for (int k = 0; status == DONE && k < value->ndim; k++)
            status = add_word(call, (uint64_t)value->dims[k]) ? DONE : PYTHON;
        if (status == DONE)
            call->owned[call->nowned++] = Py_NewRef(own);
        return status;
    case IS_FUNC:
        return attribute->role == FUNC && attribute->value == own ? DONE : MISS;
    case IS_INSTANCE:
        if (attribute->role != PART || Py_TYPE(own) != attribute->part->cls)
            return MISS;
        call->nvalues = first + attribute->position;
        return layout_read(attribute->part, own, call);
    case IS_OTHER:
        return attribute->role == ON_HOST ? DONE : MISS;
    }
    return MISS;
}

/* Adds the values of `instance` to the call; MISS if it has another layout. */
Status
layout_read(const Layout *layout, PyObject *instance, Call *call)
{
    int first = call->nvalues;
    if (layout->refused || first + layout->nvalues > MAX_VALUES || !add_word(call, (uint64_t)layout->id))
        return PYTHON;
    for (Py_ssize_t k = 0; k < layout->nclasses && call->unchanged != layout; k++)
        if (!unchanged(&layout->classes[k]))
            return MISS;
    call->unchanged = layout;
    PyObject *dict = dictionary(instance);
    if ((dict != NULL) != layout->has_dict || (dict && PyDict_Size(dict) != layout->nattributes)) {
        Py_XDECREF(dict);
        return MISS;
    }
    Status status = DONE;
    const Attribute *attribute = layout->attributes;
    PyObject *key, *own;
    for (Py_ssize_t at = 0; dict && status == DONE && PyDict_Next(dict, &at, &key, &own); attribute++)
        status = same_name(attribute->key, key) ? read_attribute(attribute, own, call, first) : MISS;
    Py_XDECREF(dict);
    call->nvalues = first + layout->nvalues;
    return status;
}
