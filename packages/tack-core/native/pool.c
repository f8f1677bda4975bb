/* The threads that share one launch on the CPU.
 *
 * A launch is cut into chunks, which the caller and the workers claim from a counter. Between launches a
 * worker looks for the next one for a moment, and then sleeps. Workers run compiled code only, never Python. */
#include "native.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* How long a worker looks for the next launch before it sleeps, and the caller for the end of one. */
enum { WORKER_SPINS = 4000, CALLER_SPINS = 2000, SPINS_BETWEEN_YIELDS = 64 };

/* What the caller and its workers share. It outlives the Python object while workers hold on to it. */
typedef struct {
    atomic_int references;
    atomic_bool busy; /* one launch fans out at a time */
    atomic_bool stopped;
    _Atomic uint32_t epoch; /* changes with each launch: what workers wait for */
    _Atomic uint32_t done;  /* changes when a worker leaves a launch: what the caller waits for */
    atomic_int sleeping;
    atomic_int openings; /* how many workers may still join the launch */
    atomic_int inside;   /* how many are in it */
    atomic_bool waiting; /* whether the caller sleeps */
    /* The launch; written before there are openings. */
    void (*launch)(void *, int64_t, int64_t);
    void *slots;
    int64_t chunk, end;
    _Atomic int64_t next;
#ifndef __linux__
    pthread_mutex_t mutex;
    pthread_cond_t changed;
#endif
} Crew;

typedef struct {
    PyObject_HEAD
    int num_threads, workers;
    Crew *crew;
} PoolObject;

/* --- waiting ----------------------------------------------------------------------------------- */

static inline void
pause_briefly(int spin)
{
    if (spin % SPINS_BETWEEN_YIELDS == SPINS_BETWEEN_YIELDS - 1)
        sched_yield(); /* there may be more threads than processors */
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void
sleep_while(Crew *crew, _Atomic uint32_t *word, uint32_t value)
{
#ifdef __linux__
    (void)crew;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
    pthread_mutex_lock(&crew->mutex);
    while (atomic_load(word) == value)
        pthread_cond_wait(&crew->changed, &crew->mutex);
    pthread_mutex_unlock(&crew->mutex);
#endif
}

static void
wake(Crew *crew, _Atomic uint32_t *word, int count)
{
#ifdef __linux__
    (void)crew;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
#else
    (void)word, (void)count;
    pthread_mutex_lock(&crew->mutex);
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->mutex);
#endif
}

/* --- a launch ---------------------------------------------------------------------------------- */

/* Claims and runs chunks until none is left. */
static void
work(Crew *crew)
{
    for (;;) {
        int64_t low = atomic_load(&crew->next), high;
        do {
            if (low >= crew->end)
                return;
            high = crew->chunk < crew->end - low ? low + crew->chunk : crew->end;
        } while (!atomic_compare_exchange_weak(&crew->next, &low, high));
        crew->launch(crew->slots, low, high);
    }
}

/* Takes one of the openings of a launch, if there is one. */
static bool
join_launch(Crew *crew)
{
    int openings = atomic_load(&crew->openings);
    while (openings > 0)
        if (atomic_compare_exchange_weak(&crew->openings, &openings, openings - 1))
            return true;
    return false;
}

static void
help(Crew *crew)
{
    if (!join_launch(crew))
        return;
    work(crew);
    atomic_fetch_sub(&crew->inside, 1);
    atomic_fetch_add(&crew->done, 1);
    if (atomic_load(&crew->waiting))
        wake(crew, &crew->done, 1);
}

static void
crew_release(Crew *crew)
{
    if (atomic_fetch_sub(&crew->references, 1) != 1)
        return;
#ifndef __linux__
    pthread_mutex_destroy(&crew->mutex);
    pthread_cond_destroy(&crew->changed);
#endif
    free(crew);
}

/* A worker's life. */
static void *
serve(void *argument)
{
    Crew *crew = argument;
    uint32_t seen = 0;
    while (!atomic_load(&crew->stopped)) {
        uint32_t epoch = atomic_load(&crew->epoch);
        for (int spin = 0; epoch == seen && spin < WORKER_SPINS; spin++) {
            pause_briefly(spin);
            epoch = atomic_load(&crew->epoch);
        }
        if (epoch == seen) {
            atomic_fetch_add(&crew->sleeping, 1);
            sleep_while(crew, &crew->epoch, seen); /* returns at once if it has changed */
            atomic_fetch_sub(&crew->sleeping, 1);
            continue;
        }
        seen = epoch;
        help(crew);
    }
    crew_release(crew);
    return NULL;
}

/* Starts workers up to `wanted`, or as many as the system lets us have. They leave signals to other threads. */
static void
start_workers(PoolObject *self, int wanted)
{
    sigset_t all, before;
    pthread_t thread;
    if (self->workers >= wanted)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (self->workers < wanted) {
        atomic_fetch_add(&self->crew->references, 1);
        if (pthread_create(&thread, NULL, serve, self->crew)) {
            atomic_fetch_sub(&self->crew->references, 1);
            break;
        }
        pthread_detach(thread);
        self->workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Waits until no worker is in the launch. */
static void
wait_for_workers(Crew *crew)
{
    for (int spin = 0;; spin++) {
        uint32_t done = atomic_load(&crew->done);
        if (!atomic_load(&crew->inside))
            return;
        if (spin < CALLER_SPINS) {
            pause_briefly(spin);
            continue;
        }
        atomic_store(&crew->waiting, true);
        if (atomic_load(&crew->inside))
            sleep_while(crew, &crew->done, done);
        atomic_store(&crew->waiting, false);
    }
}

int
pool_threads(PyObject *pool)
{
    return ((PoolObject *)pool)->num_threads;
}

/* Runs the iterations [low, high), `chunk` at a time; without the GIL. While another launch fans out, this
 * one runs in the calling thread alone. */
void
pool_run(PyObject *pool, void (*launch)(void *, int64_t, int64_t), void *slots, int64_t chunk, int64_t low,
         int64_t high)
{
    PoolObject *self = (PoolObject *)pool;
    Crew *crew = self->crew;
    int64_t total = high - low, chunks = total / chunk + (total % chunk != 0);
    int helpers = (int)(chunks < self->num_threads ? chunks : self->num_threads) - 1;
    if (helpers < 1 || atomic_exchange(&crew->busy, true)) {
        launch(slots, low, high);
        return;
    }
    start_workers(self, helpers);
    helpers = helpers < self->workers ? helpers : self->workers;
    crew->launch = launch;
    crew->slots = slots;
    crew->chunk = chunk;
    crew->end = high;
    atomic_store(&crew->next, low);
    atomic_store(&crew->inside, helpers);
    atomic_store(&crew->openings, helpers);
    atomic_fetch_add(&crew->epoch, 1);
    if (atomic_load(&crew->sleeping))
        wake(crew, &crew->epoch, helpers);
    work(crew);
    /* Whoever has not come by now is not needed: the launch must not end with somebody about to join. */
    atomic_fetch_sub(&crew->inside, atomic_exchange(&crew->openings, 0));
    wait_for_workers(crew);
    atomic_store(&crew->busy, false);
}

/* --- the type ---------------------------------------------------------------------------------- */

static Crew *
crew_new(void)
{
    Crew *crew = calloc(1, sizeof(Crew));
    if (!crew)
        return (Crew *)PyErr_NoMemory();
    atomic_store(&crew->references, 1);
#ifndef __linux__
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->changed, NULL);
#endif
    return crew;
}

static PyObject *
pool_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    int num_threads;
    if (!PyArg_ParseTuple(args, "i", &num_threads))
        return NULL;
    if (num_threads < 1) {
        PyErr_Format(PyExc_ValueError, "a pool needs at least 1 thread, not %d", num_threads);
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PoolObject *self = (PoolObject *)allocate(type, 0);
    if (!self)
        return NULL;
    self->num_threads = num_threads;
    if (!(self->crew = crew_new())) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
pool_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Crew *crew = ((PoolObject *)object)->crew;
    if (crew) {
        atomic_store(&crew->stopped, true);
        atomic_fetch_add(&crew->epoch, 1);
        wake(crew, &crew->epoch, INT32_MAX);
        crew_release(crew);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* run(owner, address, slots, chunk, low, high): the caller keeps the owner, which nobody uses once this returns. */
static PyObject *
pool_run_method(PyObject *self, PyObject *args)
{
    PyObject *owner;
    unsigned long long address, slots;
    long long chunk, low, high;
    if (!PyArg_ParseTuple(args, "OKKLLL", &owner, &address, &slots, &chunk, &low, &high))
        return NULL;
    if (chunk < 1 || low < 0 || low > high) {
        PyErr_SetString(PyExc_ValueError, "a launch has no negative size, and its chunks have at least 1 iteration");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    pool_run(self, (void (*)(void *, int64_t, int64_t))(uintptr_t)address, (void *)(uintptr_t)slots, chunk, low, high);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* forget(): in a forked child, which has none of the threads; what they used is left alone. */
static PyObject *
pool_forget(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PoolObject *self = (PoolObject *)object;
    Crew *fresh = crew_new();
    if (!fresh)
        return NULL;
    self->crew = fresh;
    self->workers = 0;
    Py_RETURN_NONE;
}

static PyObject *
pool_get_workers(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((PoolObject *)self)->workers);
}

static PyObject *
pool_get_num_threads(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((PoolObject *)self)->num_threads);
}

static PyMethodDef pool_methods[] = {
    {"run", pool_run_method, METH_VARARGS, "Runs a launch, a chunk at a time, on all threads."},
    {"forget", pool_forget, METH_NOARGS, "Starts anew in a forked child."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pool_getset[] = {
    {"num_threads", pool_get_num_threads, NULL, "The threads that share a launch, the caller included.", NULL},
    {"workers", pool_get_workers, NULL, "The workers that have been started.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot pool_slots[] = {
    {Py_tp_doc, "The threads that share one launch."},
    {Py_tp_new, pool_new},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_getset},
    {0, NULL},
};

PyType_Spec pool_spec = {
    .name = "tack._native.Pool",
    .basicsize = sizeof(PoolObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pool_slots,
};
