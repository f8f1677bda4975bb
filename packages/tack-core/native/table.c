/* Tables: what the calls of one kernel on one backend resolved to. */
#include "native.h"

enum { MAX_SIGNATURES = 256, MAX_LAYOUTS = 256 };

/* --- storage ----------------------------------------------------------------------------------- */

static void
plan_free(Plan *plan)
{
    if (!plan)
        return;
    Py_XDECREF(plan->variant);
    PyMem_Free(plan->slots);
    PyMem_Free(plan->written);
    PyMem_Free(plan->aligned);
    PyMem_Free(plan);
}

static void
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

/* An array of `count` pointers with room for one more, or NULL with an exception. */
static void *
grow(void *pointers, int count)
{
    if (count && count & (count - 1)) /* it has grown to the next power of two */
        return pointers;
    void *grown = PyMem_Realloc(pointers, (size_t)(count ? 2 * count : 1) * sizeof(void *));
    return grown ? grown : PyErr_NoMemory();
}

static uint64_t *
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
same_words(uint64_t hash, const uint64_t *words, int count, uint64_t other_hash, const uint64_t *other, int n)
{
    return hash == other_hash && count == n && memcmp(words, other, (size_t)n * sizeof(uint64_t)) == 0;
}

Form *
find_form(Store *store, const Call *call)
{
    uint64_t hash = hash_words(call->words, call->nwords);
    for (int k = 0; k < store->nforms; k++) {
        /* The one of the last call first. */
        int at = k == 0 ? store->last_form : k == store->last_form ? 0 : k;
        Form *form = store->forms[at];
        if (same_words(form->hash, form->words, form->nwords, hash, call->words, call->nwords)) {
            store->last_form = at;
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
    uint64_t hash = hash_words(words, count);
    for (int k = 0; k < form->nentries; k++) {
        Entry *entry = form->entries[k];
        if (same_words(entry->hash, entry->words, entry->nwords, hash, words, count))
            return entry;
    }
    return NULL;
}

/* --- learning ---------------------------------------------------------------------------------- */

/* A sequence of integers as structs of `width` fields of 64 bits, or NULL with an exception. */
static void *
read_rows(PyObject *sequence, int width, int *count)
{
    int length;
    int64_t *rows = read_ints(sequence, &length);
    *count = length / width;
    return rows;
}

static Form *
form_new(const Call *call, PyObject *spec)
{
    Form *form = PyMem_Calloc(1, sizeof(Form));
    if (!form)
        return (Form *)PyErr_NoMemory();
    form->hash = hash_words(call->words, call->nwords);
    form->nwords = call->nwords;
    form->nvalues = call->nvalues;
    form->words = copy_words(call->words, call->nwords);
    form->refused = spec == Py_None;
    if (form->words && form->refused)
        return form;
    PyObject *needs, *written, *pinned, *ranges;
    bool made = form->words && PyArg_ParseTuple(spec, "OOOO!", &needs, &written, &pinned, &PyTuple_Type, &ranges) &&
                (form->needs = read_rows(needs, 3, &form->nneeds)) &&
                (form->written = read_rows(written, 1, &form->nwritten)) &&
                (form->pinned = read_rows(pinned, 3, &form->npinned));
    Py_ssize_t nranges = made ? PyTuple_Size(ranges) : 0;
    if (made && nranges > MAX_RANGES) {
        PyErr_SetString(PyExc_ValueError, "too many dimensions");
        made = false;
    }
    for (Py_ssize_t k = 0; made && k < nranges; k++) {
        Range *range = &form->ranges[form->nranges++];
        PyObject *start, *stop;
        long long step;
        made = PyArg_ParseTuple(PyTuple_GetItem(ranges, k), "OOL", &start, &stop, &step) &&
               (range->start = read_ints(start, &range->nstart)) && (range->stop = read_ints(stop, &range->nstop));
        range->step = made ? step : 1;
    }
    if (made)
        return form;
    form_free(form);
    return NULL;
}

static Plan *
plan_new(PyObject *spec)
{
    Plan *plan = PyMem_Calloc(1, sizeof(Plan));
    if (!plan)
        return (Plan *)PyErr_NoMemory();
    PyObject *variant, *slots, *written, *aligned;
    unsigned long long launch, result;
    long long group;
    int full, bounded;
    bool made = PyArg_ParseTuple(spec, "OKKiOOOpdpL", &variant, &launch, &result, &plan->result_dtype, &slots, &written,
                                 &aligned, &full, &plan->cost, &bounded, &group);
    if (made) {
        plan->variant = Py_NewRef(variant);
        plan->launch = (void (*)(void *, int64_t, int64_t))(uintptr_t)launch;
        plan->result = (void (*)(void *, void *))(uintptr_t)result;
        plan->full_workgroups = full;
        plan->bounded = bounded;
        plan->group = group;
        made = (plan->slots = read_rows(slots, 1, &plan->nslots)) &&
               (plan->written = read_rows(written, 1, &plan->nwritten)) &&
               (plan->aligned = read_rows(aligned, 2, &plan->naligned));
    }
    if (made)
        return plan;
    plan_free(plan);
    return NULL;
}

static Form *
store_add_form(Store *store, Form *form)
{
    Form **grown = form ? grow(store->forms, store->nforms) : NULL;
    if (!grown) {
        form_free(form);
        return NULL;
    }
    store->forms = grown;
    store->last_form = store->nforms;
    store->nsignatures += form->refused;
    return store->forms[store->nforms++] = form;
}

static bool
store_add_layout(Store *store, Layout *layout)
{
    Layout **grown = layout ? grow(store->layouts, store->nlayouts) : NULL;
    if (!grown) {
        layout_free(layout);
        return false;
    }
    store->layouts = grown;
    store->layouts[store->nlayouts++] = layout;
    return true;
}

static Entry *
form_add_entry(Form *form, const uint64_t *words, int count)
{
    Entry **grown = grow(form->entries, form->nentries);
    if (!grown)
        return NULL;
    form->entries = grown;
    Entry *entry = PyMem_Calloc(1, sizeof(Entry));
    if (!entry)
        return (Entry *)PyErr_NoMemory();
    entry->hash = hash_words(words, count);
    entry->nwords = count;
    entry->words = copy_words(words, count);
    if (!entry->words) {
        PyMem_Free(entry);
        return NULL;
    }
    return form->entries[form->nentries++] = entry;
}

static bool
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

void
start_call(const TableObject *table, Call *call)
{
    call->nvalues = call->nwords = call->nowned = 0;
    call->domain = table->domain;
    call->wraps_host_memory = table->wraps_host_memory;
    call->unknown = NULL;
    call->unchanged = NULL;
}

/* Reads the arguments, with the layouts of a lesson added as far as they are not known. */
static Status
read_with_layouts(TableObject *table, PyObject *const *args, int count, PyObject *layouts, Call *call)
{
    Store *store = table->store;
    int added = -1; /* the argument whose layout was added last */
    for (;;) {
        start_call(table, call);
        Status status = read_arguments(store, args, count, call);
        if (status != MISS || call->stopped_at <= added)
            return status;
        added = call->stopped_at;
        PyObject *spec = PyTuple_GetItem(layouts, added);
        release_owned(call, 0);
        if (!spec)
            return FAILED;
        if (spec == Py_None)
            return MISS;
        if (!store_add_layout(store, layout_new(spec, ++store->next_id)))
            return FAILED;
    }
}

/* Stores what a lesson says of a call; see tack.runtime.learn.Lesson.
 * 1: learned. 0: what C reads differs from what Python did, so nothing is. -1: an exception. */
static int
learn_call(TableObject *table, PyObject *const *args, int count, PyObject *lesson, Call *call)
{
    PyObject *layouts, *form_spec, *plan_spec;
    int is_disjoint;
    const char *bytes;
    Py_ssize_t nbytes;
    long long total;
    if (!PyArg_ParseTuple(lesson, "O!OOpy#L", &PyTuple_Type, &layouts, &form_spec, &plan_spec, &is_disjoint, &bytes,
                          &nbytes, &total))
        return -1;
    Status status = read_with_layouts(table, args, count, layouts, call);
    if (status == FAILED)
        return -1;
    if (status != DONE)
        return 0;
    Store *store = table->store;
    Form *form = find_form(store, call);
    if (!form && !(form = store_add_form(store, form_new(call, form_spec))))
        return -1;
    int nwords = call->nwords;
    if (form->refused || !add_extents(form, call))
        return 0;
    Plan *plan = plan_new(plan_spec);
    if (!plan)
        return -1;
    Packed packed;
    bool agrees = disjoint(form, call) == (bool)is_disjoint && check_and_pack(form, plan, call, &packed) == DONE &&
                  packed.total == total && (Py_ssize_t)sizeof(uint64_t) * packed.count == nbytes &&
                  memcmp(packed.slots, bytes, (size_t)nbytes) == 0;
    if (!agrees) {
        plan_free(plan);
        return 0;
    }
    Entry *entry = find_entry(form, call->words + nwords, call->nwords - nwords);
    if (!entry) {
        if (!(entry = form_add_entry(form, call->words + nwords, call->nwords - nwords))) {
            plan_free(plan);
            return -1;
        }
        store->nsignatures++;
    }
    Plan *before = entry->plans[is_disjoint];
    if (before) {
        before->next = store->replaced;
        store->replaced = before;
    }
    entry->plans[is_disjoint] = plan;
    return 1;
}

/* Notes that the Python path runs calls like this one. */
static int
refuse_call(TableObject *table, PyObject *const *args, int count, Call *call)
{
    start_call(table, call);
    Status status = read_arguments(table->store, args, count, call);
    Store *store = table->store;
    if (status == MISS && call->unknown)
        return store_add_layout(store, layout_refused(call->unknown, ++store->next_id)) ? 0 : -1;
    if (status != DONE || find_form(store, call))
        return 0;
    return store_add_form(store, form_new(call, Py_None)) ? 0 : -1;
}

/* Learns from a call that the Python path ran; `lesson` is None if it cannot be told in these terms. */
int
teach(TableObject *table, PyObject *const *args, int count, PyObject *lesson)
{
    Call call;
    if ((table->store->nsignatures >= MAX_SIGNATURES || table->store->nlayouts >= MAX_LAYOUTS) &&
        !table_clear_store(table))
        return -1;
    start_call(table, &call);
    Store *store = table->store;
    store->references++;
    int learned = lesson == Py_None ? 0 : learn_call(table, args, count, lesson, &call);
    release_owned(&call, 0);
    if (learned == 0) {
        learned = refuse_call(table, args, count, &call);
        release_owned(&call, 0);
    }
    store_release(store);
    table->learned += learned > 0;
    return learned;
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
