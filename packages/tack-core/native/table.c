/* Tables: what the calls of one kernel on one backend resolved to. */
#include "native.h"

/* --- storage ----------------------------------------------------------------------------------- */

void
plan_free(Plan *plan)
{
    if (!plan)
        return;
    Py_XDECREF(plan->variant);
    PyMem_Free(plan->slots);
    PyMem_Free(plan->written);
    PyMem_Free(plan->aligned);
    PyMem_Free(plan->gpu);
    PyMem_Free(plan);
}

void
form_free(Form *form)
{
    if (!form)
        return;
    for (int k = 0; k < form->nentries; k++) {
        plan_free(form->entries[k]->plans[0]);
        plan_free(form->entries[k]->plans[1]);
        PyMem_Free(form->entries[k]->words);
        PyMem_Free(form->entries[k]);
    }
    for (int k = 0; k < form->nranges; k++) {
        PyMem_Free(form->ranges[k].start);
        PyMem_Free(form->ranges[k].stop);
    }
    PyMem_Free(form->entries);
    PyMem_Free(form->words);
    PyMem_Free(form->needs);
    PyMem_Free(form->written);
    PyMem_Free(form->pinned);
    PyMem_Free(form);
}

void
store_release(Store *store)
{
    if (!store || --store->references)
        return;
    for (int k = 0; k < store->nforms; k++)
        form_free(store->forms[k]);
    for (int k = 0; k < store->nlayouts; k++)
        layout_free(store->layouts[k]);
    while (store->replaced) {
        Plan *plan = store->replaced;
        store->replaced = plan->next;
        plan_free(plan);
    }
    PyMem_Free(store->forms);
    PyMem_Free(store->layouts);
    PyMem_Free(store);
}

static Store *
store_new(void)
{
    Store *store = PyMem_Calloc(1, sizeof(Store));
    if (!store)
        return (Store *)PyErr_NoMemory();
    store->references = 1;
    return store;
}

bool
table_clear_store(TableObject *table)
{
    Store *fresh = store_new();
    if (!fresh)
        return false;
    Store *old = table->store;
    if (old) {
        fresh->next_id = old->next_id;
        fresh->hits = old->hits;
    }
    table->store = fresh;
    store_release(old);
    return true;
}

/* An array of `count` pointers with room for one more, or NULL with an exception. */
void *
grow(void *pointers, int count)
{
    if (count && count & (count - 1)) /* it has grown to the next power of two */
        return pointers;
    void *grown = PyMem_Realloc(pointers, (size_t)(count ? 2 * count : 1) * sizeof(void *));
    return grown ? grown : PyErr_NoMemory();
}

uint64_t *
copy_words(const uint64_t *words, int count)
{
    uint64_t *copy = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(uint64_t));
    if (!copy)
        return (uint64_t *)PyErr_NoMemory();
    memcpy(copy, words, (size_t)count * sizeof(uint64_t));
    return copy;
}

/* --- looking up -------------------------------------------------------------------------------- */

void
start_call(const TableObject *table, Call *call)
{
    call->nvalues = call->nwords = call->nowned = 0;
    call->domain = table->domain;
    call->wraps_host_memory = table->wraps_host_memory;
    call->unknown = NULL;
    call->unchanged = NULL;
}

void
release_owned(Call *call, int down_to)
{
    while (call->nowned > down_to)
        Py_DECREF(call->owned[--call->nowned]);
}

/* The instance's values, by the first layout that fits. */
static Status
read_instance(Store *store, PyObject *arg, Call *call)
{
    int nvalues = call->nvalues, nwords = call->nwords, nowned = call->nowned;
    bool known = false, refused = false;
    for (int k = store->nlayouts - 1; k >= 0; k--) { /* the latest first */
        Layout *layout = store->layouts[k];
        if (layout_class(layout) != Py_TYPE(arg))
            continue;
        known = true;
        if (layout_is_refused(layout)) {
            refused = true;
            continue;
        }
        Status status = layout_read(layout, arg, call);
        if (status != MISS)
            return status;
        call->nvalues = nvalues;
        call->nwords = nwords;
        release_owned(call, nowned);
    }
    if (refused || (!known && !is_device_class(Py_TYPE(arg))))
        return PYTHON;
    call->unknown = Py_TYPE(arg);
    return MISS;
}

static Status
read_argument(Store *store, PyObject *arg, Call *call)
{
    if (call->nvalues == MAX_VALUES)
        return PYTHON;
    Value *value = &call->values[call->nvalues];
    PyTypeObject *type = Py_TYPE(arg);
    Status status;
    if (type == state.array)
        status = read_array((ArrayObject *)arg, value, call, 0);
    else if (type == state.ndarray)
        status = read_numpy(arg, value, call);
    else if (type == state.texture) {
        PyObject *storage = PyObject_GetAttr(arg, state.storage);
        if (!storage || Py_TYPE(storage) != state.array) {
            PyErr_Clear();
            Py_XDECREF(storage);
            return PYTHON;
        }
        status = read_array((ArrayObject *)storage, value, call, 1);
        call->owned[call->nowned++] = storage;
    }
    else {
        status = read_number(arg, value, call);
        if (status == PYTHON)
            return PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE ? read_instance(store, arg, call) : PYTHON;
    }
    call->nvalues++;
    return status;
}

Status
read_arguments(Store *store, PyObject *const *args, int count, Call *call)
{
    for (int k = 0; k < count; k++) {
        Status status = read_argument(store, args[k], call);
        if (status != DONE) {
            call->stopped_at = k;
            return status;
        }
    }
    return DONE;
}

static bool
same_words(const uint64_t *words, int count, const uint64_t *other, int n)
{
    return count == n && memcmp(words, other, (size_t)n * sizeof(uint64_t)) == 0;
}

Form *
find_form(Store *store, const Call *call)
{
    if (!store->nforms)
        return NULL;
    Form *last = store->forms[store->last_form];
    if (same_words(last->words, last->nwords, call->words, call->nwords))
        return last;
    uint64_t hash = hash_words(call->words, call->nwords);
    for (int k = 0; k < store->nforms; k++) {
        Form *form = store->forms[k];
        if (form->hash == hash && same_words(form->words, form->nwords, call->words, call->nwords)) {
            store->last_form = k;
            return form;
        }
    }
    return NULL;
}

/* The extents that are compiled in, as shape_signature() in runtime/variants.py has them. The numbers of
 * axes are in the words of the arrays. */
bool
add_extents(const Form *form, Call *call)
{
    bool fits = true;
    for (int k = 0; fits && k < form->nneeds; k++) {
        const Need *need = &form->needs[k];
        const Value *value = &call->values[need->slot];
        if (value->kind != V_ARRAY)
            continue;
        if (need->op == NEED_SIZE)
            fits = add_word(call, (uint64_t)value->size);
        else if (need->op == NEED_AXIS) {
            bool has = -value->ndim <= need->axis && need->axis < value->ndim;
            int64_t axis = need->axis < 0 ? need->axis + value->ndim : need->axis;
            fits = add_word(call, has ? (uint64_t)value->dims[axis] : UINT64_MAX);
        }
        else {
            for (int i = 1; fits && i < value->ndim; i++)
                fits = add_word(call, (uint64_t)value->dims[i]);
        }
    }
    return fits;
}

Entry *
find_entry(const Form *form, const uint64_t *words, int count)
{
    uint64_t hash = form->nentries > 1 ? hash_words(words, count) : 0;
    for (int k = 0; k < form->nentries; k++) {
        Entry *entry = form->entries[k];
        if ((form->nentries == 1 || entry->hash == hash) && same_words(entry->words, entry->nwords, words, count))
            return entry;
    }
    return NULL;
}

/* --- the type ---------------------------------------------------------------------------------- */

static PyObject *
table_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *kernel, *pool;
    long long backend;
    int domain, wraps;
    if (!PyArg_ParseTuple(args, "O!LipO", state.kernel_base, &kernel, &backend, &domain, &wraps, &pool))
        return NULL;
    if (pool != Py_None && Py_TYPE(pool) != state.pool_type) {
        PyErr_SetString(PyExc_TypeError, "a Pool or None");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    TableObject *self = (TableObject *)allocate(type, 0);
    if (!self)
        return NULL;
    self->backend = backend;
    self->domain = domain;
    self->wraps_host_memory = wraps;
    self->pool = pool == Py_None ? NULL : Py_NewRef(pool);
    if (!table_clear_store(self) || kernel_add_table((KernelObject *)kernel, self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
table_traverse(PyObject *object, visitproc visit, void *arg)
{
    TableObject *self = (TableObject *)object;
    Py_VISIT(Py_TYPE(object));
    Store *store = self->store;
    if (!store || store->references > 1) /* a call holds on to it */
        return 0;
    for (int k = 0; k < store->nlayouts; k++) {
        int result = layout_visit(store->layouts[k], visit, arg);
        if (result)
            return result;
    }
    for (int k = 0; k < store->nforms; k++)
        for (int i = 0; i < store->forms[k]->nentries; i++)
            for (int which = 0; which < 2; which++)
                if (store->forms[k]->entries[i]->plans[which])
                    Py_VISIT(store->forms[k]->entries[i]->plans[which]->variant);
    for (const Plan *plan = store->replaced; plan; plan = plan->next)
        Py_VISIT(plan->variant);
    return 0;
}

static int
table_gc_clear(PyObject *object)
{
    TableObject *self = (TableObject *)object;
    Store *store = self->store;
    self->store = NULL;
    if (self->kernel)
        kernel_remove_table(self->kernel, self);
    self->kernel = NULL;
    Py_CLEAR(self->pool);
    store_release(store);
    return 0;
}

static void
table_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    table_gc_clear(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *
table_clear(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (((TableObject *)self)->store && !table_clear_store((TableObject *)self))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
table_counts(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    TableObject *self = (TableObject *)object;
    return Py_BuildValue("{s:K,s:K,s:i,s:i}", "hits", self->store ? self->store->hits : 0, "learned", self->learned, "signatures",
                         self->store ? self->store->nsignatures : 0, "layouts",
                         self->store ? self->store->nlayouts : 0);
}

static PyMethodDef table_methods[] = {
    {"clear", table_clear, METH_NOARGS, "Forgets everything; calls that are under way end as they began."},
    {"counts", table_counts, METH_NOARGS, "Calls dispatched and learned, signatures and layouts known."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "What the calls of one kernel on one backend resolved to."},
    {Py_tp_new, table_new},
    {Py_tp_traverse, table_traverse},
    {Py_tp_clear, table_gc_clear},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {0, NULL},
};

PyType_Spec table_spec = {
    .name = "tack._native.Table",
    .basicsize = sizeof(TableObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = table_slots,
};
