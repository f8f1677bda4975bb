// A GPU driver for machines without a GPU: device memory is host memory, and kernels are host code.
//
// It keeps a driver's rules as far as Tack relies on them. Streams run in threads of their own, so what is
// not ordered really runs in any order. Handles and addresses are checked, freed memory is overwritten, and
// any call can be made to fail. The functions of steering.h, emu_*, are how tests steer it.
//
// cuda.cpp and hip.cpp each make a library of it. What both APIs have is here and in the other headers, and
// CALL(StreamCreate) there is cuStreamCreate or hipStreamCreate; hip.cpp renames what HIP calls otherwise.
//
// A module's image is a shared object, which exports for each kernel
//     void emulate_NAME(void **params, const unsigned grid[3], const unsigned block[3]);
//     const unsigned emulate_NAME_params;  // how many parameters, of at most 8 bytes each
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define API extern "C" int

typedef uint64_t Address;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

// --- state ---------------------------------------------------------------------------------------

struct Flag { // whether what it stands for has been done
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;

    void set() {
        std::lock_guard<std::mutex> hold(mutex);
        done = true;
        changed.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> hold(mutex);
        changed.wait(hold, [&] { return done; });
    }
    bool is_set() {
        std::lock_guard<std::mutex> hold(mutex);
        return done;
    }
};

typedef std::function<void()> Work;

struct Task {
    Work work;
    bool is_event; // which happens also if what was queued before it failed
};

struct Node {
    Work work;
    // Of a kernel node: so that its parameters can be replaced.
    struct Function *function = nullptr;
    std::vector<uint64_t> params;
    unsigned grid[3], block[3];
};

struct Graph {
    std::vector<std::shared_ptr<Node>> nodes;
};

struct Context {
    int device;
    int references = 1;
    bool primary = false;
    std::atomic<int> failure{0};
};

struct Stream {
    Context *context;
    std::shared_ptr<Graph> capture;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> queue;
    bool busy = false, stopped = false;
    std::thread thread;
};

struct Event {
    Context *context;
    std::shared_ptr<Flag> flag; // of the last record
};

struct Function {
    Context *context;
    void (*run)(void **, const unsigned *, const unsigned *);
    int params;
    std::string name;
};

struct Module {
    Context *context;
    void *handle;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Pool {
    int device;
    uint64_t threshold = 0;
};

struct Array { // of texels, of one f32 each
    Context *context;
    size_t extents[3];
    std::vector<float> texels;
};

struct Texture { // as kernels read it; see device.h
    const float *texels;
    unsigned width, height, depth;
};

struct Memory {
    uint64_t size;
    int device;
    Pool *pool; // null: of a call without a stream
    Stream *stream;
    bool freed = false; // but kept for the next allocation on its stream
};

static std::recursive_mutex state_mutex;
static std::mutex faults_mutex; // which running kernels take as well
typedef std::lock_guard<std::recursive_mutex> Hold;

static bool initialized = false;
static int device_total = 2;
static uint64_t memory_limit = 16ull << 30;
static std::string architecture; // as the API writes it
static int driver_version;
static std::atomic<int> has_pools{1}, synchronous{0}, delay{0};
static std::map<Address, Memory> memories;
static std::map<Address, uint64_t> pinned;
static std::set<void *> contexts, streams, events, modules, functions, pools, graphs, execs, arrays, textures;
static std::map<std::string, long> calls;
static std::map<std::string, std::pair<long, int>> faults; // by name: which call from now on fails, with what

static std::map<std::string, std::function<long()>> live_of_api; // by kind: how many are alive of what is one API's own

static std::mutex gate_mutex;
static std::condition_variable gate_changed;
static bool gate_closed = false;

static void pass_gate() {
    std::unique_lock<std::mutex> hold(gate_mutex);
    gate_changed.wait(hold, [] { return !gate_closed; });
}

static int injected(const char *name) {
    std::lock_guard<std::mutex> hold(faults_mutex);
    calls[name]++;
    auto found = faults.find(name);
    if (found == faults.end() || --found->second.first > 0)
        return SUCCESS;
    int code = found->second.second;
    faults.erase(found);
    return code;
}

static Context *current_context(); // the calling thread's, or null: an API's own

#define ENTER                                                                                                        \
    if (int error_ = injected(__func__))                                                                             \
        return error_;                                                                                               \
    Hold hold_(state_mutex);                                                                                         \
    if (!initialized)                                                                                                \
        return NOT_INITIALIZED
#define CONTEXT                                                                                                      \
    ENTER;                                                                                                           \
    Context *context = current_context();                                                                            \
    if (!context || !contexts.count(context))                                                                        \
        return INVALID_CONTEXT;                                                                                      \
    if (context->failure)                                                                                            \
    return context->failure
#define VALID(set, handle)                                                                                           \
    if (!set.count(handle))                                                                                          \
    return INVALID_HANDLE

