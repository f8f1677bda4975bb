/* The last calls of a kernel whose arguments were all arrays.
 *
 * Loops launch on the same arrays again and again, in turn on two sets of them where they are swapped. What an array
 * says of itself never changes, but for the byte that tells whether others may use its memory; so such a call
 * comes to what it came to before. Arrays are known by their serial numbers, since an address may be
 * another one's by now. */
#include "native.h"

static size_t
used(const Packed *packed)
{
    return offsetof(Packed, slots) + (size_t)packed->count * sizeof(packed->slots[0]);
}

static bool
is_of(const Memo *memo, PyObject *const *args, int count)
{
    if (!memo->plan || memo->count != count)
        return false;
    for (int k = 0; k < count; k++) {
        const ArrayObject *array = (const ArrayObject *)args[k];
        if (Py_TYPE(args[k]) != state.array || array->serial != memo->serials[k] || *array->shared)
            return false;
    }
    return true;
}

/* The plan for a call, and its slots, if it is one of the last; it may run unless a device has failed. */
Plan *
recall(const Store *store, PyObject *const *args, int count, Packed *packed)
{
    for (int k = 0; k < MEMOS; k++) {
        const Memo *memo = &store->memos[k];
        if (is_of(memo, args, count)) {
            if (memo->plan->gpu && gpu_refuses(memo->plan->gpu, &memo->packed))
                return NULL;
            memcpy(packed, &memo->packed, used(&memo->packed));
            return memo->plan;
        }
    }
    return NULL;
}

void
remember(Store *store, PyObject *const *args, int count, Plan *plan, const Packed *packed)
{
    if (count > MAX_REMEMBERED)
        return;
    for (int k = 0; k < count; k++)
        if (Py_TYPE(args[k]) != state.array)
            return;
    Memo *memo = &store->memos[store->oldest_memo];
    store->oldest_memo = (store->oldest_memo + 1) % MEMOS;
    memo->plan = plan;
    memo->count = count;
    for (int k = 0; k < count; k++)
        memo->serials[k] = ((const ArrayObject *)args[k])->serial;
    memcpy(&memo->packed, packed, used(packed));
}

/* Plans are about to be replaced. */
void
forget(Store *store)
{
    for (int k = 0; k < MEMOS; k++)
        store->memos[k].plan = NULL;
}
