/* The base of tack.Kernel: calling one. */
#include "native.h"

#include <structmember.h>

/* What Python.h hides from the stable ABI of 3.11. It is as old as 3.9, but classes that derive from this one have it
 * from 3.12 on only; before, they are called with a tuple. */
#define HAVE_VECTORCALL (1UL << 11)
#define ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

/* --- binding ----------------------------------------------------------------------------------- */

/* The arguments in parameter order, borrowed. False: the Python path binds them, or says why it cannot. */
static bool
bind(KernelObject *self, PyObject *args, PyObject *kwargs, PyObject **out, int *count)
{
    Py_ssize_t given = PyTuple_Size(args), named = kwargs ? PyDict_Size(kwargs) : 0;
    if (!self->params || given > MAX_ARGS)
        return false;
    for (Py_ssize_t k = 0; k < given; k++)
        out[k] = PyTuple_GetItem(args, k);
    *count = (int)given;
    if (!named && given == self->positional)
        return true;
    Py_ssize_t total = PyTuple_Size(self->params);
    if (!self->defaults || given > self->positional_most || total > MAX_ARGS)
        return false;
    for (Py_ssize_t k = given; k < total; k++) {
        out[k] = NULL;
        if (named && k >= self->positional_only) {
            out[k] = PyDict_GetItemWithError(kwargs, PyTuple_GetItem(self->params, k));
            named -= out[k] != NULL;
        }
        if (!out[k] && (out[k] = PyTuple_GetItem(self->defaults, k)) == state.missing)
            return false;
    }
    *count = (int)total;
    return named == 0;
}

static PyObject *kernel_vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);

/* _bind_natively(params, positional): what a call with positional arguments needs. */
static PyObject *
kernel_set_params(PyObject *object, PyObject *args)
{
    KernelObject *self = (KernelObject *)object;
    PyObject *params;
    if (!PyArg_ParseTuple(args, "O!i", &PyTuple_Type, &params, &self->positional))
        return NULL;
    PyObject *old = self->params;
    self->params = Py_NewRef(params);
    Py_XDECREF(old);
    self->vectorcall = kernel_vectorcall;
    Py_RETURN_NONE;
}

/* _set_defaults(defaults, positional_only, positional): what other calls need. */
static PyObject *
kernel_set_defaults(PyObject *object, PyObject *args)
{
    KernelObject *self = (KernelObject *)object;
    PyObject *defaults;
    int only, most;
    if (!PyArg_ParseTuple(args, "O!ii", &PyTuple_Type, &defaults, &only, &most))
        return NULL;
    if (!self->params || PyTuple_Size(defaults) != PyTuple_Size(self->params))
        Py_RETURN_NONE;
    self->positional_only = only;
    self->positional_most = most;
    PyObject *old = self->defaults;
    self->defaults = Py_NewRef(defaults);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

/* --- calling ----------------------------------------------------------------------------------- */

/* Whether debug mode is on, or may be. */
static bool
is_debugging(void)
{
    if (state.debug >= 0)
        return state.debug;
    PyObject *value = PyDict_GetItemWithError(state.environ, state.debug_variable);
    if (!value || value == state.debug_off)
        return false;
    PyObject *enabled = PyObject_CallNoArgs(state.debug_enabled);
    if (enabled == Py_False) {
        PyObject *old = state.debug_off;
        state.debug_off = Py_NewRef(value);
        Py_XDECREF(old);
        Py_DECREF(enabled);
        return false;
    }
    PyErr_Clear(); /* the Python path raises it */
    Py_XDECREF(enabled);
    return true;
}

static TableObject *
table_of(const KernelObject *self)
{
    int64_t backend = state.default_serial;
    if (state.entered || backend < 0) {
        PyObject *serial = PyObject_CallNoArgs(state.default_backend);
        backend = serial ? PyLong_AsLongLong(serial) : -1;
        Py_XDECREF(serial);
        PyErr_Clear(); /* the Python path raises it */
    }
    for (int k = 0; k < self->ntables; k++)
        if (self->tables[k]->backend == backend)
            return self->tables[k];
    return NULL;
}

/* The plan for a call, and the slots that it needs; DONE if there is one and it may run. */
static Status
find_plan(Store *store, PyObject *const *args, int count, Call *call, Packed *packed, Plan **plan)
{
    Status status = read_arguments(store, args, count, call);
    if (status != DONE)
        return status;
    Form *form = find_form(store, call);
    if (!form || form->refused)
        return form ? PYTHON : MISS;
    int nwords = call->nwords;
    if (!add_extents(form, call))
        return PYTHON;
    Entry *entry = find_entry(form, call->words + nwords, call->nwords - nwords);
    *plan = entry ? entry->plans[disjoint(form, call)] : NULL;
    if (!*plan)
        return MISS;
    status = check_and_pack(form, *plan, call, packed);
    return status == DONE && packed->total >= (*plan)->large ? PYTHON : status;
}

static Status
dispatch(KernelObject *self, PyObject *const *args, int count, PyObject **result)
{
    if (is_debugging())
        return PYTHON;
    TableObject *table = table_of(self);
    if (!table || !table->store)
        return MISS;
    Call call;
    Packed packed;
    Plan *plan = NULL;
    Store *store = table->store;
    start_call(table, &call);
    store->references++; /* other threads may clear the table while this call is under way */
    Status status = DONE;
    if (!(plan = recall(store, args, count, &packed))) {
        status = find_plan(store, args, count, &call, &packed, &plan);
        if (status == DONE)
            remember(store, args, count, plan, &packed);
    }
    if (status == DONE) {
        store->hits++;
        PyObject *pool = Py_XNewRef(table->pool); /* the table may go meanwhile */
        *result = run_plan(plan, &call, &packed, pool, args, count);
        Py_XDECREF(pool);
        status = *result ? DONE : FAILED;
    }
    release_owned(&call, 0);
    store_release(store);
    return status;
}

/* resolve(kernel, args): the variant that a call with these arguments would run natively, or None. */
PyObject *
resolve(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *kernel, *args, *items[MAX_ARGS], *found = NULL;
    int count;
    if (!PyArg_ParseTuple(arguments, "O!O!", state.kernel_base, &kernel, &PyTuple_Type, &args))
        return NULL;
    KernelObject *self = (KernelObject *)kernel;
    TableObject *table = state.enabled && !is_debugging() ? table_of(self) : NULL;
    if (table && table->store && bind(self, args, NULL, items, &count)) {
        Call call;
        Packed packed;
        Plan *plan = NULL;
        Store *store = table->store;
        start_call(table, &call);
        store->references++;
        if (find_plan(store, items, count, &call, &packed, &plan) == DONE)
            found = Py_NewRef(plan->variant);
        release_owned(&call, 0);
        store_release(store);
    }
    PyErr_Clear();
    return found ? found : Py_NewRef(Py_None);
}

/* Lets tack.runtime.learn look at a call that the Python path ran. A failure there is no failure of the call. */
static void
learn(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *done = PyObject_CallFunctionObjArgs(state.learn, self, args, kwargs ? kwargs : Py_None, NULL);
    if (!done)
        PyErr_WriteUnraisable(self);
    Py_XDECREF(done);
}

static Status
try_natively(KernelObject *self, PyObject *args, PyObject *kwargs, PyObject **result)
{
    PyObject *items[MAX_ARGS];
    int count;
    if (!bind(self, args, kwargs, items, &count)) {
        PyErr_Clear();
        return self->params && !self->defaults ? MISS : PYTHON; /* the first such call learns the defaults */
    }
    for (int k = 0; kwargs && k < count; k++) /* the dictionary may be somebody's, who changes it meanwhile */
        Py_INCREF(items[k]);
    Status status = dispatch(self, items, count, result);
    for (int k = 0; kwargs && k < count; k++)
        Py_DECREF(items[k]);
    return status;
}

/* What a call is after C has tried, which came to `status`: Python's, from which C may learn. */
static PyObject *
call_python(PyObject *self, PyObject *args, PyObject *kwargs, Status status)
{
    KernelObject *kernel = (KernelObject *)self;
    PyObject *python = PyObject_GetAttr(self, state.call_name);
    if (!python)
        return NULL;
    PyObject *result = PyObject_Call(python, args, kwargs);
    Py_DECREF(python);
    if (result && status == MISS && state.armed) {
        if (kernel->missed)
            learn(self, args, kwargs);
        kernel->missed = true;
    }
    return result;
}

static PyObject *
kernel_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *result = NULL;
    KernelObject *kernel = (KernelObject *)self;
    Status status = state.enabled ? try_natively(kernel, args, kwargs, &result) : state.armed ? MISS : PYTHON;
    return status == DONE || status == FAILED ? result : call_python(self, args, kwargs, status);
}

static PyObject *
kernel_vectorcall(PyObject *self, PyObject *const *args, size_t nargs, PyObject *names)
{
    KernelObject *kernel = (KernelObject *)self;
    Py_ssize_t count = (Py_ssize_t)(nargs & ~ARGUMENTS_OFFSET);
    bool tried = state.enabled && kernel->params && !names && count == kernel->positional && count <= MAX_ARGS;
    PyObject *result = NULL;
    Status status = tried ? dispatch(kernel, args, (int)count, &result) : PYTHON;
    if (status == DONE || status == FAILED)
        return result;
    PyObject *tuple = PyTuple_New(count), *kwargs = names ? PyDict_New() : NULL;
    bool made = tuple && (!names || kwargs);
    for (Py_ssize_t k = 0; made && k < count; k++)
        made = PyTuple_SetItem(tuple, k, Py_NewRef(args[k])) == 0;
    for (Py_ssize_t k = 0; made && names && k < PyTuple_Size(names); k++)
        made = PyDict_SetItem(kwargs, PyTuple_GetItem(names, k), args[count + k]) == 0;
    if (made)
        result = tried ? call_python(self, tuple, NULL, status) : kernel_call(self, tuple, kwargs);
    Py_XDECREF(tuple);
    Py_XDECREF(kwargs);
    return result;
}

/* --- the type ---------------------------------------------------------------------------------- */

int
kernel_add_table(KernelObject *kernel, TableObject *table)
{
    TableObject **tables = PyMem_Realloc(kernel->tables, (size_t)(kernel->ntables + 1) * sizeof(*tables));
    if (!tables) {
        PyErr_NoMemory();
        return -1;
    }
    kernel->tables = tables;
    kernel->tables[kernel->ntables++] = table;
    table->kernel = kernel;
    return 0;
}

void
kernel_remove_table(KernelObject *kernel, TableObject *table)
{
    for (int k = 0; k < kernel->ntables; k++)
        if (kernel->tables[k] == table) {
            kernel->tables[k] = kernel->tables[--kernel->ntables];
            return;
        }
}

static int
kernel_traverse(PyObject *object, visitproc visit, void *arg)
{
    KernelObject *self = (KernelObject *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->params);
    Py_VISIT(self->defaults);
    return 0;
}

static int
kernel_clear(PyObject *object)
{
    KernelObject *self = (KernelObject *)object;
    Py_CLEAR(self->params);
    Py_CLEAR(self->defaults);
    return 0;
}

static void
kernel_dealloc(PyObject *object)
{
    KernelObject *self = (KernelObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (int k = 0; k < self->ntables; k++)
        self->tables[k]->kernel = NULL;
    PyMem_Free(self->tables);
    kernel_clear(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef kernel_methods[] = {
    {"_set_params", kernel_set_params, METH_VARARGS, "What a call with positional arguments needs."},
    {"_set_defaults", kernel_set_defaults, METH_VARARGS, "What other calls need."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef kernel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(KernelObject, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, "The base of tack.Kernel."},
    {Py_tp_call, kernel_call},
    {Py_tp_traverse, kernel_traverse},
    {Py_tp_clear, kernel_clear},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_methods, kernel_methods},
    {Py_tp_members, kernel_members},
    {0, NULL},
};

PyType_Spec kernel_spec = {
    .name = "tack._native.KernelBase",
    .basicsize = sizeof(KernelObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL,
    .slots = kernel_slots,
};
