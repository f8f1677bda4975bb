// Launches: blocks one after the other, and the threads of a block one after the other too, or, where they wait for
// each other, as fibers that take turns: each runs until it meets others or ends.

#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

// WARP lanes run in step. With ALL_MEET, as on NVIDIA's GPUs, a shuffle needs all of them; otherwise, as on AMD's, it
// is among those that are there, and the others' values are anything.
enum { MAX_LANES = 256, STACK = 1 << 20 };

typedef void thread(void **parameters);

struct dim3 {
    unsigned x, y, z;
} gridDim, blockDim, blockIdx, threadIdx;

// --- fibers ---

enum state { READY, AT_BARRIER, AT_SHUFFLE, DONE };

struct lane {
    jmp_buf context;
    enum state state;
    int started;
    int turn;  // which of the two words the next shuffle uses
    unsigned long long words[2];
    unsigned long meeting; // at which shuffle it was last
};

static struct lane lanes[MAX_LANES];
static char *stacks;
static jmp_buf scheduler;

// With the library.
__attribute__((destructor)) static void end(void) {
    if (stacks && stacks != MAP_FAILED)
        munmap(stacks, (size_t)MAX_LANES * STACK);
}

static unsigned count, current;
static thread *body;
static void **arguments;

static void start(void) {
    body(arguments);
    lanes[current].state = DONE;
    _longjmp(scheduler, 1);
}

static void resume(unsigned number) {
    struct lane *lane = &lanes[number];
    current = number;
    if (_setjmp(scheduler))
        return;
    if (lane->started)
        _longjmp(lane->context, 1);
    lane->started = 1;
    ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = stacks + (size_t)number * STACK;
    first.uc_stack.ss_size = STACK;
    first.uc_link = 0;
    makecontext(&first, start, 0);
    setcontext(&first);
}

static void wait_at(enum state state) {
    struct lane *lane = &lanes[current];
    lane->state = state;
    if (!_setjmp(lane->context))
        _longjmp(scheduler, 1);
}

void tack_barrier(void) { wait_at(AT_BARRIER); }

unsigned long long tack_shuffle_down(unsigned long long value, unsigned distance, unsigned width) {
    unsigned self = current;
    int turn = lanes[self].turn;
    lanes[self].turn = !turn;
    lanes[self].words[turn] = value;
    wait_at(AT_SHUFFLE);
    if (self % width + distance >= width)
        return value;
    const struct lane *other = &lanes[self + distance];
    return other->meeting == lanes[self].meeting ? other->words[turn] : 0xDEADBEEFDEADBEEF;
}

// Lets lanes [first, end) go on if all of them are at the same kind of meeting; says whether it did.
static int release(unsigned first, unsigned end, enum state state) {
    for (unsigned k = first; k < end; ++k)
        if (lanes[k].state != state)
            return 0;
    for (unsigned k = first; k < end; ++k)
        lanes[k].state = READY;
    return 1;
}

// The same for a shuffle of a warp.
static int shuffle(unsigned first, unsigned end) {
    static unsigned long meetings;
    int found = 0;
    if (ALL_MEET && !release(first, end, AT_SHUFFLE))
        return 0;
    ++meetings;
    for (unsigned k = first; k < end; ++k)
        if (ALL_MEET || lanes[k].state == AT_SHUFFLE) {
            lanes[k].state = READY, lanes[k].meeting = meetings;
            found = 1;
        }
    return found;
}

static void run_fibers(void) {
    for (unsigned k = 0; k < count; ++k)
        lanes[k].state = READY, lanes[k].started = lanes[k].turn = 0;
    for (;;) {
        unsigned done = 0;
        for (unsigned k = 0; k < count; ++k) {
            if (lanes[k].state == READY) {
                threadIdx = (struct dim3){k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
                resume(k);
            }
            done += lanes[k].state == DONE;
        }
        if (done == count)
            return;
        int moved = release(0, count, AT_BARRIER);
        for (unsigned warp = 0; warp < count; warp += WARP)
            moved |= shuffle(warp, warp + WARP < count ? warp + WARP : count);
        if (!moved) {
            fprintf(stderr, "emulation: not all threads of a block, or of a warp, meet\n");
            abort();
        }
    }
}

// --- launches ---

static void run_threads(void) {
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
                body(arguments);
}

// All of this is global to a shared object, so its launches take turns.
void tack_launch(thread *entry, int meeting, void **parameters, const unsigned *grid, const unsigned *block) {
    static char busy;
    while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
        sched_yield();
    gridDim = (struct dim3){grid[0], grid[1], grid[2]};
    blockDim = (struct dim3){block[0], block[1], block[2]};
    body = entry, arguments = parameters, count = block[0] * block[1] * block[2];
    if (meeting && !stacks)
        stacks = mmap(0, (size_t)MAX_LANES * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (meeting && (count > MAX_LANES || stacks == MAP_FAILED))
        abort();
    for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x)
                (meeting ? run_fibers : run_threads)();
    __atomic_clear(&busy, __ATOMIC_RELEASE);
}
