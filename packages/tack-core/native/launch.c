/* From a call whose variant is known to its result. */
#include "native.h"

/* Estimated nanoseconds from which letting other threads run is worth it, and several threads of native
 * pools and of Python's. */
static const double WORTH_RELEASING = 10000.0, WORTH_FANNING_OUT = 20000.0, WORTH_PYTHON_THREADS = 150000.0;
enum { WORKGROUP = 256, CHUNKS_PER_THREAD = 4 };

/* Whether no array that the kernel writes shares memory with another array of the call. */
bool
disjoint(const Form *form, const Call *call)
{
    for (int w = 0; w < form->nwritten; w++) {
        const Value *written = &call->values[form->written[w]];
        if (written->kind != V_ARRAY)
            continue;
        uint64_t low = written->address, high = low + written->nbytes;
        for (int k = 0; k < call->nvalues; k++) {
            const Value *other = &call->values[k];
            if (other != written && other->kind == V_ARRAY && low < other->address + other->nbytes &&
                other->address < high)
                return false;
        }
    }
    return true;
}

/* --- the launch range -------------------------------------------------------------------------- */

/* The operations of a program, each followed by its operands; the rest work on a stack. */
enum { OP_CONST, OP_ARG, OP_DIM, OP_SIZE, OP_NDIM, OP_NEG, OP_ADD, OP_SUB, OP_MUL, OP_FLOORDIV, OP_MIN, OP_MAX };

static bool
combine(int64_t op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case OP_ADD:
        return !__builtin_add_overflow(a, b, out);
    case OP_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case OP_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case OP_FLOORDIV:
        if (b == 0 || (a == INT64_MIN && b == -1))
            return false;
        *out = a / b - (a % b != 0 && (a < 0) != (b < 0));
        return true;
    case OP_MIN:
        *out = b < a ? b : a;
        return true;
    case OP_MAX:
        *out = b > a ? b : a;
        return true;
    }
    return false;
}

/* Runs a program. False: Python, whose integers are exact, has to say what it gives. */
static bool
evaluate(const int64_t *program, int length, const Call *call, int64_t *out)
{
    int64_t stack[MAX_STACK];
    int depth = 0;
    for (int at = 0; at < length;) {
        int64_t op = program[at++], value;
        if (op <= OP_NDIM) {
            int64_t operand = program[at++];
            const Value *arg = op == OP_CONST ? NULL : &call->values[operand];
            if (arg && arg->kind != (op == OP_ARG ? V_INT : V_ARRAY))
                return false;
            if (op == OP_CONST)
                value = operand;
            else if (op == OP_ARG)
                value = arg->i;
            else if (op == OP_SIZE)
                value = arg->size;
            else if (op == OP_NDIM)
                value = arg->ndim;
            else {
                int64_t axis = program[at++];
                if (axis < -arg->ndim || axis >= arg->ndim)
                    return false;
                value = arg->dims[axis < 0 ? axis + arg->ndim : axis];
            }
            if (depth == MAX_STACK)
                return false;
            stack[depth++] = value;
        }
        else if (op == OP_NEG) {
            if (!combine(OP_SUB, 0, stack[depth - 1], &stack[depth - 1]))
                return false;
        }
        else {
            depth--;
            if (!combine(op, stack[depth - 1], stack[depth], &stack[depth - 1]))
                return false;
        }
    }
    *out = stack[0];
    return true;
}

/* Appends start, step and count of a dimension, and multiplies the total. */
static bool
add_range(const Range *range, const Call *call, Packed *packed)
{
    int64_t start, stop, count = 0;
    if (!evaluate(range->start, range->nstart, call, &start) || !evaluate(range->stop, range->nstop, call, &stop) ||
        start == INT64_MIN)
        return false;
    if (stop > start &&
        (__builtin_sub_overflow(stop, start, &count) || __builtin_add_overflow(count, range->step - 1, &count)))
        return false;
    count /= range->step;
    packed->slots[packed->count++] = (uint64_t)start;
    packed->slots[packed->count++] = (uint64_t)range->step;
    packed->slots[packed->count++] = (uint64_t)count;
    return !__builtin_mul_overflow(packed->total, count, &packed->total);
}

/* --- arguments --------------------------------------------------------------------------------- */

static bool
holds(const Pinned *pinned, const Value *value)
{
    if (value->kind == V_INT)
        return pinned->min <= value->i && (value->i < 0 || (uint64_t)value->i <= pinned->max);
    return value->kind == V_UINT && value->u <= pinned->max;
}

static bool
pack_value(int64_t type, const Value *value, uint64_t *slot)
{
    static const uint64_t masks[N_DTYPES] = {0xFF,       0xFF,       0xFFFF,     0xFFFF,
                                             0xFFFFFFFF, 0xFFFFFFFF, UINT64_MAX, UINT64_MAX};
    if (type == ARRAY_SLOT || value->kind == V_ARRAY) {
        *slot = value->address;
        return type == ARRAY_SLOT && value->kind == V_ARRAY;
    }
    if (type != F32 && type != F64) {
        *slot = value->u & masks[type];
        return value->kind != V_FLOAT;
    }
    double wide = value->kind == V_FLOAT ? value->f : value->kind == V_INT ? (double)value->i : (double)value->u;
    float narrow = (float)wide; /* past its range an infinity */
    *slot = 0;
    memcpy(slot, type == F32 ? (void *)&narrow : (void *)&wide, type == F32 ? sizeof narrow : sizeof wide);
    return true;
}

/* Fills the slots if the call passes every check; if not, the Python path says what is wrong. */
Status
check_and_pack(const Form *form, const Plan *plan, const Call *call, Packed *packed)
{
    if (plan->nslots != call->nvalues || form->nvalues != call->nvalues)
        return PYTHON;
    for (int k = 0; k < form->npinned; k++)
        if (!holds(&form->pinned[k], &call->values[form->pinned[k].slot]))
            return PYTHON;
    for (int k = 0; k < plan->nwritten; k++)
        if (!call->values[plan->written[k]].writable)
            return PYTHON;
    for (int k = 0; k < plan->naligned; k++)
        if (call->values[plan->aligned[k].slot].address % (uint64_t)plan->aligned[k].alignment)
            return PYTHON;
    packed->count = 0;
    packed->nranges = form->nranges;
    packed->total = 1;
    for (int k = 0; k < call->nvalues; k++)
        if (!pack_value(plan->slots[k], &call->values[k], &packed->slots[packed->count++]))
            return PYTHON;
    for (int k = 0; k < form->nranges; k++)
        if (!add_range(&form->ranges[k], call, packed))
            return PYTHON;
    if (plan->gpu && gpu_refuses(plan->gpu, packed))
        return PYTHON;
    return plan->full_workgroups && packed->total % WORKGROUP ? PYTHON : DONE;
}

/* --- running ----------------------------------------------------------------------------------- */

/* A launch that is worth several threads: the pool's, which are Python's. */
static bool
fan_out(const Plan *plan, const Call *call, const Packed *packed, PyObject *const *args, int count)
{
    PyObject *used = PyTuple_New(count + call->nowned);
    if (!used)
        return false;
    for (int k = 0; k < count + call->nowned; k++)
        PyTuple_SetItem(used, k, Py_NewRef(k < count ? args[k] : call->owned[k - count]));
    PyObject *done = PyObject_CallFunction(state.fan_out, "Oy#LN", plan->variant, (const char *)packed->slots,
                                           (Py_ssize_t)sizeof(uint64_t) * packed->count, (long long)packed->total, used);
    Py_XDECREF(done);
    return done != NULL;
}

static PyObject *
as_number(int dtype, uint64_t bits)
{
    float narrow;
    double wide;
    memcpy(&narrow, &bits, sizeof narrow);
    memcpy(&wide, &bits, sizeof wide);
    switch (dtype) {
    case I8:
        return PyLong_FromLong((int8_t)bits);
    case U8:
        return PyLong_FromLong((uint8_t)bits);
    case I16:
        return PyLong_FromLong((int16_t)bits);
    case U16:
        return PyLong_FromLong((uint16_t)bits);
    case I32:
        return PyLong_FromLong((int32_t)bits);
    case U32:
        return PyLong_FromUnsignedLong((uint32_t)bits);
    case I64:
        return PyLong_FromLongLong((int64_t)bits);
    case U64:
        return PyLong_FromUnsignedLongLong(bits);
    default:
        return PyFloat_FromDouble(dtype == F32 ? (double)narrow : wide);
    }
}

/* On the native pool's threads: in chunks of whole groups, a few for each thread. */
static void
fan_out_natively(void (*launch)(void *, int64_t, int64_t), void *slots, int64_t total, int64_t group, PyObject *pool)
{
    int64_t groups = total / group + (total % group != 0);
    int64_t chunks = (int64_t)pool_threads(pool) * CHUNKS_PER_THREAD;
    int64_t groups_each = groups / chunks + (groups % chunks != 0);
    pool_run(pool, launch, slots, groups_each * group, 0, total);
}

/* Queues all iterations on a device. */
static PyObject *
queue_launch(const Plan *plan, Packed *packed)
{
    if (packed->total == 0)
        return Py_NewRef(Py_None);
    int error = gpu_launch(plan->gpu, packed);
    return error ? PyObject_CallFunction(state.launch_failed, "Oi", plan->variant, error) : Py_NewRef(Py_None);
}

/* One step of tack.runtime.cpu.graph: a launch, or a copy if there is no function. */
typedef struct {
    void (*launch)(void *slots, int64_t low, int64_t high);
    union {
        void *slots;
        void *target;
    };
    union {
        int64_t total;
        const void *source;
    };
    int64_t size; /* of a group, or in bytes */
    int64_t work; /* estimated nanoseconds */
    int64_t unused;
} Row;

/* run_rows(pool, address, count, owner): runs steps one after the other. */
PyObject *
run_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *pool, *owner;
    unsigned long long address;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!KnO", state.pool_type, &pool, &address, &count, &owner))
        return NULL;
    const Row *rows = (const Row *)(uintptr_t)address;
    PyThreadState *thread = PyEval_SaveThread();
    for (Py_ssize_t k = 0; k < count; k++) {
        const Row *row = &rows[k];
        if (!row->launch)
            memmove(row->target, row->source, (size_t)row->size);
        else if (row->total && (double)row->work >= WORTH_FANNING_OUT && pool_threads(pool) > 1)
            fan_out_natively(row->launch, row->slots, row->total, row->size, pool);
        else if (row->total)
            row->launch(row->slots, 0, row->total);
    }
    PyEval_RestoreThread(thread);
    Py_RETURN_NONE;
}

/* Runs all iterations, and evaluates the kernel's return expression. */
PyObject *
run_plan(const Plan *plan, const Call *call, Packed *packed, PyObject *pool, PyObject *const *args, int count)
{
    if (plan->gpu)
        return queue_launch(plan, packed);
    double work = (double)packed->total * plan->cost;
    uint64_t result = 0;
    bool done = packed->total == 0;
    if (!done && !pool && work >= WORTH_PYTHON_THREADS) {
        if (!fan_out(plan, call, packed, args, count))
            return NULL;
        done = true;
    }
    PyThreadState *thread = !done && (!plan->bounded || work > WORTH_RELEASING) ? PyEval_SaveThread() : NULL;
    if (!done && pool && work >= WORTH_FANNING_OUT && pool_threads(pool) > 1)
        fan_out_natively(plan->launch, packed->slots, packed->total, plan->group, pool);
    else if (!done)
        plan->launch(packed->slots, 0, packed->total);
    if (plan->result)
        plan->result(packed->slots, &result);
    if (thread)
        PyEval_RestoreThread(thread);
    return plan->result ? as_number(plan->result_dtype, result) : Py_NewRef(Py_None);
}
