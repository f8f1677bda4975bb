/* What C learns from lessons: how calls that the Python path ran resolve from then on. */
#include "native.h"

enum { MAX_SIGNATURES = 256, MAX_LAYOUTS = 256 };

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
    PyObject *variant, *slots, *written, *aligned, *gpu;
    unsigned long long launch, result;
    long long group, large;
    int full, bounded;
    bool made = PyArg_ParseTuple(spec, "OKKiOOOpdpLOL", &variant, &launch, &result, &plan->result_dtype, &slots, &written,
                                 &aligned, &full, &plan->cost, &bounded, &group, &gpu, &large);
    if (made) {
        plan->variant = Py_NewRef(variant);
        plan->launch = (void (*)(void *, int64_t, int64_t))(uintptr_t)launch;
        plan->result = (void (*)(void *, void *))(uintptr_t)result;
        plan->full_workgroups = full;
        plan->bounded = bounded;
        plan->group = group;
        plan->large = large;
        made = (plan->slots = read_rows(slots, 1, &plan->nslots)) &&
               (plan->written = read_rows(written, 1, &plan->nwritten)) &&
               (plan->aligned = read_rows(aligned, 2, &plan->naligned)) &&
               (gpu == Py_None || (plan->gpu = gpu_new(gpu)));
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
    forget(store);
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
