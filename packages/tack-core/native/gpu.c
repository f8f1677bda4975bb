/* Launches through a driver's function pointers: cuLaunchKernel or hipModuleLaunchKernel, whose parameters are
 * the same, and what makes the context or the device current. */
#include "native.h"

enum { WORDS = 26, ASK_EACH = 64 };

/* What tack.runtime.streams.program.native_plan says, one number after the other.
 *
 * HIP has no stack of contexts: there is no push and no pop, and what is current is a device's number, an int,
 * which fills the low half of the pointer that stands for it here. */
struct Gpu {
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **);
    int (*get_current)(void **);
    int (*set_current)(void *);
    int (*push_current)(void *);
    int (*pop_current)(void **);
    int (*is_busy)(void *);
    void *function, *stream, *context;
    const uint8_t *stopped; /* one byte: the queue cannot be used any more */
    int64_t *launches;      /* how many the queue was given */
    int64_t *last;          /* the number of the last one of this kernel */
    int64_t *waited;        /* the number up to which launches are known to be done */
    int64_t room;           /* how many launches the driver takes without waiting */
    int64_t block[3], items[3], most_blocks[3];
    int64_t most; /* iterations of a launch */
    int64_t flat, is_usual;
};

_Static_assert(sizeof(struct Gpu) == WORDS * sizeof(int64_t), "a row of 64-bit numbers");

Gpu *
gpu_new(PyObject *spec)
{
    int count;
    int64_t *words = read_ints(spec, &count);
    if (words && count != WORDS) {
        PyErr_SetString(PyExc_ValueError, "a launch through a driver has other parts");
        PyMem_Free(words);
        return NULL;
    }
    return (Gpu *)words;
}

/* Whether Python has to decide the launch. */
bool
gpu_refuses(const Gpu *gpu, const Packed *packed)
{
    return *gpu->stopped || packed->total > gpu->most;
}

/* The blocks along each axis; see Program.grid in tack.runtime.gpu.program. */
static void
find_grid(const Gpu *gpu, const Packed *packed, unsigned *grid)
{
    for (int axis = 0; axis < 3; axis++) {
        int64_t count = axis ? 1 : packed->total;
        if (!gpu->flat) /* the last dimension first: the third number of the last range */
            count = axis < packed->nranges ? (int64_t)packed->slots[packed->count - 3 * axis - 1] : 1;
        int64_t each = gpu->block[axis] * gpu->items[axis];
        int64_t blocks = count / each + (count % each != 0);
        grid[axis] = (unsigned)(blocks < gpu->most_blocks[axis] ? blocks : gpu->most_blocks[axis]);
    }
}

/* Whether the driver may wait for room in its queue. It is asked now and then what is done, so that a program
 * that never waits, and whose launches the device keeps up with, has room all the time. */
static bool
may_wait(const Gpu *gpu, int64_t number)
{
    int64_t pending = number - *gpu->waited;
    if (pending <= gpu->room)
        return false;
    if (gpu->room == 0 || pending % ASK_EACH || gpu->is_busy(gpu->stream))
        return true;
    *gpu->waited = number - 1;
    return false;
}

/* Queues the launch; the driver's error, or 0.
 *
 * It takes the driver a few microseconds, for which giving the GIL away is not worth what it costs: a tenth of that,
 * or a thread's whole turn if another one takes it. */
int
gpu_launch(const Gpu *gpu, Packed *packed)
{
    unsigned grid[3];
    void *current = NULL, *params[MAX_SLOTS];
    find_grid(gpu, packed, grid);
    for (int k = 0; k < packed->count; k++)
        params[k] = &packed->slots[k];
    int64_t number = *gpu->last = ++*gpu->launches;
    int error = gpu->get_current(&current);
    bool changed = !error && current != gpu->context, pushed = false;
    if (changed) {
        /* See Context.entered in tack.runtime.streams.driver. */
        pushed = gpu->push_current && (current || !gpu->is_usual);
        error = pushed ? gpu->push_current(gpu->context) : gpu->set_current(gpu->context);
        pushed = pushed && !error;
    }
    PyThreadState *thread = !error && may_wait(gpu, number) ? PyEval_SaveThread() : NULL;
    if (!error)
        error = gpu->launch(gpu->function, grid[0], grid[1], grid[2], (unsigned)gpu->block[0], (unsigned)gpu->block[1],
                            (unsigned)gpu->block[2], 0, gpu->stream, params, NULL);
    if (thread)
        PyEval_RestoreThread(thread);
    if (pushed)
        gpu->pop_current(&current);
    else if (changed && !gpu->push_current)
        gpu->set_current(current);
    return error;
}
