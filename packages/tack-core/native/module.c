/* tack._native: the module, and what the Python side tells it. */
#include "native.h"

State state = {.debug = -1, .default_serial = -1};

/* A sequence of integers of 64 bits, signed or not, or NULL with an exception. */
int64_t *
read_ints(PyObject *sequence, int *count)
{
    Py_ssize_t length = PySequence_Size(sequence);
    int64_t *out = length < 0 ? NULL : PyMem_Malloc((size_t)(length ? length : 1) * sizeof(int64_t));
    if (!out)
        return length < 0 ? NULL : (int64_t *)PyErr_NoMemory();
    *count = (int)length;
    for (Py_ssize_t k = 0; k < length; k++) {
        PyObject *item = PySequence_GetItem(sequence, k);
        out[k] = item ? (int64_t)PyLong_AsUnsignedLongLongMask(item) : 0;
        Py_XDECREF(item);
    }
    if (!PyErr_Occurred())
        return out;
    PyMem_Free(out);
    return NULL;
}

/* The object that the configuration has under a name, kept for ever; NULL with an exception. */
static void *
keep(PyObject *config, const char *name)
{
    PyObject *value = PyDict_GetItemString(config, name);
    if (!value)
        PyErr_Format(PyExc_KeyError, "%s", name);
    return Py_XNewRef(value);
}

static bool
keep_types(PyObject *config)
{
    PyObject *scalars = keep(config, "scalars"), *dtypes = keep(config, "dtypes"), *plain = keep(config, "plain");
    if (!scalars || !dtypes || !plain)
        return false;
    Py_ssize_t nscalars = PyTuple_Size(scalars), ndtypes = PyTuple_Size(dtypes), nplain = PyTuple_Size(plain);
    if (nscalars > MAX_TYPES || ndtypes > MAX_TYPES || nplain > MAX_TYPES) {
        PyErr_SetString(PyExc_ValueError, "too many types");
        return false;
    }
    for (Py_ssize_t k = 0; k < nscalars; k++) {
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GetItem(scalars, k), "OC", &state.scalars[k].type, &kind))
            return false;
        state.scalars[k].kind = (char)kind;
    }
    for (Py_ssize_t k = 0; k < ndtypes; k++) {
        int number, dtype;
        if (!PyArg_ParseTuple(PyTuple_GetItem(dtypes, k), "ii", &number, &dtype))
            return false;
        if (0 <= number && number < MAX_TYPES)
            state.dtypes[number] = dtype + 1;
    }
    for (Py_ssize_t k = 0; k < nplain; k++)
        state.plain[k] = (PyTypeObject *)PyTuple_GetItem(plain, k);
    state.nscalars = (int)nscalars;
    state.nplain = (int)nplain;
    return !PyErr_Occurred();
}

/* start(config): see tack.runtime.learn._configure. */
static PyObject *
start(PyObject *Py_UNUSED(module), PyObject *config)
{
    if (!PyDict_Check(config)) {
        PyErr_SetString(PyExc_TypeError, "a dict");
        return NULL;
    }
    state.array = keep(config, "array");
    state.texture = keep(config, "texture");
    state.ndarray = keep(config, "ndarray");
    state.func = keep(config, "func");
    state.number = keep(config, "number");
    state.bool_ = keep(config, "bool");
    state.missing = keep(config, "missing");
    state.default_backend = keep(config, "default_backend");
    state.fan_out = keep(config, "fan_out");
    state.launch_failed = keep(config, "launch_failed");
    state.environ = keep(config, "environ");
    state.debug_variable = keep(config, "debug_variable");
    state.debug_enabled = keep(config, "debug_enabled");
    if (!keep_types(config) || PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* arm(learn): what to call with calls to learn from; None for nothing. */
static PyObject *
arm(PyObject *Py_UNUSED(module), PyObject *learn)
{
    PyObject *old = state.learn;
    state.learn = Py_NewRef(learn);
    Py_XDECREF(old);
    state.armed = learn != Py_None;
    Py_RETURN_NONE;
}

static PyObject *
enable(PyObject *Py_UNUSED(module), PyObject *on)
{
    state.enabled = on == Py_True && state.array;
    Py_RETURN_NONE;
}

/* set_debug(mode): 0 off, 1 on, -1 what the environment says. */
static PyObject *
set_debug(PyObject *Py_UNUSED(module), PyObject *mode)
{
    state.debug = (int)PyLong_AsLong(mode);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* set_default(serial): of the process's default backend; -1 if that has to be asked for. */
static PyObject *
set_default(PyObject *Py_UNUSED(module), PyObject *serial)
{
    state.default_serial = PyLong_AsLongLong(serial);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* note_entered(): from now on a thread or task may have a default device of its own. */
static PyObject *
note_entered(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    state.entered = true;
    Py_RETURN_NONE;
}

/* teach(table, args, lesson): whether the table learned the call. */
static PyObject *
teach_call(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *table, *call, *lesson, *items[MAX_ARGS];
    if (!PyArg_ParseTuple(args, "O!O!O", state.table_type, &table, &PyTuple_Type, &call, &lesson))
        return NULL;
    int count = (int)PyTuple_Size(call);
    if (count > MAX_ARGS || !((TableObject *)table)->store)
        Py_RETURN_FALSE;
    for (int k = 0; k < count; k++)
        items[k] = PyTuple_GetItem(call, k);
    int learned = teach((TableObject *)table, items, count, lesson);
    return learned < 0 ? NULL : PyBool_FromLong(learned);
}

/* class_attributes(cls): the names in the dictionary that layouts look at, for the self-check. */
static PyObject *
class_attributes(PyObject *Py_UNUSED(module), PyObject *cls)
{
    PyObject *dict = PyObject_GenericGetDict(cls, NULL);
    PyObject *names = dict ? PyDict_Keys(dict) : NULL;
    Py_XDECREF(dict);
    return names;
}

static PyMethodDef methods[] = {
    {"start", start, METH_O, "Takes the types and functions that dispatch needs."},
    {"arm", arm, METH_O, "Says what to call with calls to learn from."},
    {"enable", enable, METH_O, "Turns native dispatch on or off."},
    {"set_debug", set_debug, METH_O, "Says whether debug mode is on."},
    {"set_default", set_default, METH_O, "Says which backend is the default."},
    {"note_entered", note_entered, METH_NOARGS, "Says that a device was entered."},
    {"teach", teach_call, METH_VARARGS, "Stores how a call is dispatched."},
    {"resolve", resolve, METH_VARARGS, "The variant that a call would run natively, or None."},
    {"run_rows", run_rows, METH_VARARGS, "Runs the steps of a graph."},
    {"read_back", read_back, METH_O, "What dispatch reads of a NumPy array."},
    {"last_line", last_line, METH_VARARGS, "The last line that code comes from."},
    {"class_attributes", class_attributes, METH_O, "What layouts read of a class."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *
add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    return type && PyModule_AddType(module, (PyTypeObject *)type) == 0 ? (PyTypeObject *)type : NULL;
}

static int
module_exec(PyObject *module)
{
    if (state.array_base) {
        PyErr_SetString(PyExc_ImportError, "tack._native serves one interpreter of a process");
        return -1;
    }
    state.mark = PyUnicode_InternFromString("__tack_device_class__");
    state.storage = PyUnicode_InternFromString("storage");
    state.call_name = PyUnicode_InternFromString("_call");
    state.kernel_base = add_type(module, &kernel_spec);
    state.table_type = add_type(module, &table_spec);
    state.array_base = add_type(module, &array_spec);
    state.pool_type = add_type(module, &pool_spec);
    return state.mark && state.storage && state.call_name && state.kernel_base && state.table_type &&
                   state.array_base && state.pool_type && add_code(module)
               ? 0
               : -1;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tack._native",
    .m_doc = "What a warm call of a kernel does, without running any Python.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
