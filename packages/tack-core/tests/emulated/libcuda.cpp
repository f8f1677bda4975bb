// A CUDA driver for machines without a GPU: device memory is host memory, and kernels are host code.
//
// It keeps the driver's rules as far as Tack relies on them. Streams run in threads of their own, so what is
// not ordered really runs in any order. Handles and addresses are checked, freed memory is overwritten, and
// any call can be made to fail. The functions at the end, emu_*, are how tests steer it.
//
// A module's image is a shared object, which exports for each kernel
//     void emulate_NAME(void **params, const unsigned grid[3], const unsigned block[3]);
//     const unsigned emulate_NAME_params;  // how many parameters, of at most 8 bytes each
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
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

struct Texture { // as kernels read it; see cuda.h
    const float *texels;
    unsigned width, height, depth;
};

struct Memory {
    uint64_t size;
    int device;
    Pool *pool; // null: of cuMemAlloc
    Stream *stream;
    bool freed = false; // but kept for the next allocation on its stream
};

static std::recursive_mutex state_mutex;
static std::mutex faults_mutex; // which running kernels take as well
typedef std::lock_guard<std::recursive_mutex> Hold;

static bool initialized = false;
static int device_total = 2;
static uint64_t memory_limit = 16ull << 30;
static int architecture = 90;
static int driver_version = 13000;
static std::atomic<int> has_pools{1}, synchronous{0}, delay{0};
static std::map<Address, Memory> memories;
static std::map<Address, uint64_t> pinned;
static std::set<void *> contexts, streams, events, modules, functions, pools, graphs, execs, arrays, textures;
static std::map<int, Context *> primaries;
static std::map<std::string, long> calls;
static std::map<std::string, std::pair<long, int>> faults; // by name: which call from now on fails, with what
static thread_local std::vector<Context *> current;

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

#define ENTER                                                                                                        \
    if (int error_ = injected(__func__))                                                                             \
        return error_;                                                                                               \
    Hold hold_(state_mutex);                                                                                         \
    if (!initialized)                                                                                                \
        return NOT_INITIALIZED
#define CONTEXT                                                                                                      \
    ENTER;                                                                                                           \
    Context *context = current.empty() ? nullptr : current.back();                                                   \
    if (!context || !contexts.count(context))                                                                        \
        return INVALID_CONTEXT;                                                                                      \
    if (context->failure)                                                                                            \
    return context->failure
#define VALID(set, handle)                                                                                           \
    if (!set.count(handle))                                                                                          \
    return INVALID_HANDLE

// --- streams -------------------------------------------------------------------------------------

static void serve(Stream *stream) {
    for (;;) {
        Task task;
        {
            std::unique_lock<std::mutex> hold(stream->mutex);
            stream->changed.wait(hold, [&] { return stream->stopped || !stream->queue.empty(); });
            if (stream->queue.empty())
                return;
            task = std::move(stream->queue.front());
            stream->queue.pop_front();
            stream->busy = true;
        }
        pass_gate();
        if (delay)
            usleep((useconds_t)delay);
        if (task.is_event || !stream->context->failure)
            task.work();
        task.work = nullptr;
        std::lock_guard<std::mutex> hold(stream->mutex);
        stream->busy = false;
        stream->changed.notify_all();
    }
}

static std::map<Context *, Stream *> default_streams;

static Stream *stream_new(Context *context) {
    Stream *stream = new Stream;
    stream->context = context;
    stream->thread = std::thread(serve, stream);
    return stream;
}

static Stream *stream_of(void *handle, Context *context) {
    if ((uintptr_t)handle > 2)
        return streams.count(handle) ? (Stream *)handle : nullptr;
    Stream *&stream = default_streams[context];
    if (!stream)
        streams.insert(stream = stream_new(context));
    return stream;
}

static void drain(Stream *stream) {
    std::unique_lock<std::mutex> hold(stream->mutex);
    stream->changed.wait(hold, [&] { return stream->queue.empty() && !stream->busy; });
}

static void enqueue(Stream *stream, Work work, bool is_event = false) {
    if (stream->capture) {
        auto node = std::make_shared<Node>();
        node->work = std::move(work);
        stream->capture->nodes.push_back(node);
        return;
    }
    {
        std::lock_guard<std::mutex> hold(stream->mutex);
        stream->queue.push_back(Task{std::move(work), is_event});
        stream->changed.notify_all();
    }
    if (synchronous)
        drain(stream);
}

#define STREAM(handle)                                                                                               \
    CONTEXT;                                                                                                         \
    Stream *stream = stream_of(handle, context);                                                                     \
    if (!stream || stream->context != context)                                                                       \
    return INVALID_HANDLE

// Waits without the lock, so that other threads go on.
template <class Wait> static void released(Wait wait) {
    state_mutex.unlock();
    wait();
    state_mutex.lock();
}

API cuStreamCreate(void **out, unsigned flags) {
    CONTEXT;
    if (flags > 1)
        return INVALID_VALUE;
    *out = stream_new(context);
    streams.insert(*out);
    return SUCCESS;
}

static void stream_stop(Stream *stream) {
    {
        std::lock_guard<std::mutex> hold(stream->mutex);
        stream->stopped = true;
        stream->changed.notify_all();
    }
    stream->thread.detach(); // it ends once its work is done; the object stays
}

API cuStreamDestroy(void *handle) {
    STREAM(handle);
    if ((uintptr_t)handle <= 2)
        return INVALID_HANDLE;
    streams.erase(handle);
    stream_stop(stream);
    return SUCCESS;
}

API cuStreamSynchronize(void *handle) {
    STREAM(handle);
    if (stream->capture)
        return CAPTURE_UNSUPPORTED;
    released([&] { drain(stream); });
    return context->failure;
}

API cuStreamQuery(void *handle) {
    STREAM(handle);
    if (stream->capture)
        return CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> hold(stream->mutex);
    return stream->queue.empty() && !stream->busy ? (int)context->failure : NOT_READY;
}

API cuStreamGetCtx(void *handle, void **out) {
    ENTER;
    if ((uintptr_t)handle <= 2) {
        *out = current.empty() ? nullptr : current.back();
        return *out ? SUCCESS : INVALID_CONTEXT;
    }
    VALID(streams, handle);
    *out = ((Stream *)handle)->context;
    return SUCCESS;
}

API cuStreamWaitEvent(void *handle, void *event, unsigned) {
    CONTEXT;
    Stream *stream = stream_of(handle, context);
    if (!stream || !events.count(event))
        return INVALID_HANDLE;
    std::shared_ptr<Flag> flag = ((Event *)event)->flag;
    if (flag)
        enqueue(stream, [flag] { flag->wait(); });
    return SUCCESS;
}

API cuCtxSynchronize(void) {
    CONTEXT;
    std::vector<Stream *> all;
    for (void *handle : streams)
        if (((Stream *)handle)->context == context)
            all.push_back((Stream *)handle);
    released([&] {
        for (Stream *stream : all)
            drain(stream);
    });
    return context->failure;
}

// --- events --------------------------------------------------------------------------------------

API cuEventCreate(void **out, unsigned) {
    CONTEXT;
    *out = new Event{context, nullptr};
    events.insert(*out);
    return SUCCESS;
}

API cuEventDestroy(void *event) {
    ENTER;
    VALID(events, event);
    events.erase(event);
    delete (Event *)event;
    return SUCCESS;
}

API cuEventRecord(void *event, void *handle) {
    STREAM(handle);
    VALID(events, event);
    if (((Event *)event)->context != context)
        return INVALID_HANDLE;
    auto flag = std::make_shared<Flag>();
    ((Event *)event)->flag = flag;
    enqueue(stream, [flag] { flag->set(); }, true);
    return SUCCESS;
}

API cuEventQuery(void *event) {
    ENTER;
    VALID(events, event);
    Context *context = ((Event *)event)->context;
    if (context->failure)
        return context->failure;
    auto flag = ((Event *)event)->flag;
    return !flag || flag->is_set() ? SUCCESS : NOT_READY;
}

API cuEventSynchronize(void *event) {
    ENTER;
    VALID(events, event);
    Context *context = ((Event *)event)->context;
    auto flag = ((Event *)event)->flag;
    if (flag)
        released([&] {
            while (!context->failure && !flag->is_set())
                usleep(20);
        });
    return context->failure;
}

API cuEventElapsedTime(float *out, void *first, void *last) {
    ENTER;
    VALID(events, first);
    VALID(events, last);
    *out = 0.5f;
    return SUCCESS;
}

// --- start, devices and contexts -----------------------------------------------------------------

API cuInit(unsigned) {
    if (int error = injected(__func__))
        return error;
    if (!device_total)
        return NO_DEVICE;
    initialized = true;
    return SUCCESS;
}

API cuDriverGetVersion(int *out) {
    *out = driver_version;
    return injected(__func__);
}

API cuGetErrorName(int code, const char **out) {
    switch (code) {
    case OUT_OF_MEMORY:
        *out = "CUDA_ERROR_OUT_OF_MEMORY";
        return SUCCESS;
    case ILLEGAL_ADDRESS:
        *out = "CUDA_ERROR_ILLEGAL_ADDRESS";
        return SUCCESS;
    case NO_DEVICE:
        *out = "CUDA_ERROR_NO_DEVICE";
        return SUCCESS;
    case INVALID_VALUE:
        *out = "CUDA_ERROR_INVALID_VALUE";
        return SUCCESS;
    case INVALID_HANDLE:
        *out = "CUDA_ERROR_INVALID_HANDLE";
        return SUCCESS;
    }
    *out = "CUDA_ERROR_OF_THE_EMULATION";
    return SUCCESS;
}

API cuGetErrorString(int code, const char **out) {
    *out = code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "an error of the emulated driver";
    return SUCCESS;
}

API cuDeviceGetCount(int *out) {
    ENTER;
    *out = device_total;
    return SUCCESS;
}

API cuDeviceGet(int *out, int ordinal) {
    ENTER;
    if (ordinal < 0 || ordinal >= device_total)
        return INVALID_DEVICE;
    *out = ordinal;
    return SUCCESS;
}

API cuDeviceGetName(char *out, int length, int device) {
    ENTER;
    snprintf(out, (size_t)length, "Emulated GPU %d", device);
    return SUCCESS;
}

API cuDeviceGetUuid(unsigned char *out, int device) {
    ENTER;
    memset(out, 0xE0 + device, 16);
    return SUCCESS;
}

API cuDeviceTotalMem(size_t *out, int) {
    ENTER;
    *out = memory_limit;
    return SUCCESS;
}

API cuDeviceGetAttribute(int *out, int attribute, int device) {
    ENTER;
    if (device < 0 || device >= device_total)
        return INVALID_DEVICE;
    switch (attribute) {
    case 16:
        *out = 4;
        break;
    case 24: // the extents of a 3-D texture
    case 25:
    case 26:
        *out = 2048;
        break;
    case 75:
        *out = architecture / 10;
        break;
    case 76:
        *out = architecture % 10;
        break;
    case 102: // of handles to memory as file descriptors
    case 103:
        *out = 1;
        break;
    case 115:
        *out = has_pools;
        break;
    default:
        *out = 0;
    }
    return SUCCESS;
}

API cuDevicePrimaryCtxRetain(void **out, int device) {
    ENTER;
    if (device < 0 || device >= device_total)
        return INVALID_DEVICE;
    Context *&context = primaries[device];
    if (context)
        context->references++;
    else {
        context = new Context;
        context->device = device;
        context->primary = true;
        contexts.insert(context);
    }
    *out = context;
    return SUCCESS;
}

API cuDevicePrimaryCtxRelease(int device) {
    ENTER;
    Context *context = primaries.count(device) ? primaries[device] : nullptr;
    if (!context)
        return INVALID_CONTEXT;
    if (--context->references == 0) {
        contexts.erase(context);
        primaries.erase(device);
    }
    return SUCCESS;
}

API cuCtxCreate(void **out, void *, unsigned, int device) {
    ENTER;
    if (device < 0 || device >= device_total)
        return INVALID_DEVICE;
    Context *context = new Context;
    context->device = device;
    contexts.insert(context);
    current.push_back(context);
    *out = context;
    return SUCCESS;
}

API cuCtxDestroy(void *context) {
    ENTER;
    if (!contexts.erase(context))
        return INVALID_CONTEXT;
    if (!current.empty() && current.back() == context)
        current.pop_back();
    return SUCCESS;
}

API cuCtxGetCurrent(void **out) {
    ENTER;
    *out = current.empty() ? nullptr : current.back();
    return SUCCESS;
}

API cuCtxSetCurrent(void *context) {
    ENTER;
    if (context && !contexts.count(context))
        return INVALID_CONTEXT;
    if (!current.empty())
        current.pop_back();
    if (context)
        current.push_back((Context *)context);
    return SUCCESS;
}

API cuCtxPushCurrent(void *context) {
    ENTER;
    if (!contexts.count(context))
        return INVALID_CONTEXT;
    current.push_back((Context *)context);
    return SUCCESS;
}

API cuCtxPopCurrent(void **out) {
    ENTER;
    if (current.empty())
        return INVALID_CONTEXT;
    if (out)
        *out = current.back();
    current.pop_back();
    return SUCCESS;
}

API cuCtxGetDevice(int *out) {
    ENTER;
    if (current.empty())
        return INVALID_CONTEXT;
    *out = current.back()->device;
    return SUCCESS;
}

// --- memory --------------------------------------------------------------------------------------

static uint64_t used_on(int device, bool with_cached) {
    uint64_t total = 0;
    for (auto &entry : memories)
        if (entry.second.device == device && (with_cached || !entry.second.freed))
            total += entry.second.size;
    return total;
}

static uint64_t rounded(uint64_t size) { return (size + 511) / 512 * 512; }

// New memory with pages around it that nobody may touch.
static Address map_memory(uint64_t size) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *base = (char *)mmap(nullptr, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return 0;
    mprotect(base + page, whole, PROT_READ | PROT_WRITE);
    if (size < 1 << 20)
        memset(base + page, 0xCD, size);
    return (Address)(uintptr_t)(base + page);
}

static void unmap_memory(Address address, uint64_t size) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    munmap((void *)(uintptr_t)(address - page), whole + 2 * page);
}

static int take(Address *out, uint64_t size, int device, Pool *pool, Stream *stream) {
    if (!size)
        return INVALID_VALUE;
    size = rounded(size);
    for (auto &entry : memories) {
        Memory &memory = entry.second;
        if (pool && memory.freed && memory.pool == pool && memory.stream == stream && memory.size == size) {
            memory.freed = false;
            *out = entry.first;
            return SUCCESS;
        }
    }
    if (size > memory_limit || used_on(device, true) + size > memory_limit)
        return OUT_OF_MEMORY;
    Address address = map_memory(size);
    if (!address)
        return OUT_OF_MEMORY;
    memories[address] = Memory{size, device, pool, stream};
    *out = address;
    return SUCCESS;
}

API cuMemAlloc(Address *out, size_t size) {
    CONTEXT;
    return take(out, size, context->device, nullptr, nullptr);
}

API cuMemFree(Address address) {
    {
        CONTEXT;
        auto found = memories.find(address);
        if (found == memories.end() || found->second.freed)
            return INVALID_VALUE;
    }
    if (int error = cuCtxSynchronize())
        return error;
    Hold hold(state_mutex);
    unmap_memory(address, memories[address].size);
    memories.erase(address);
    return SUCCESS;
}

API cuMemPoolCreate(void **out, const int *properties) {
    CONTEXT;
    if (!has_pools)
        return NOT_SUPPORTED;
    *out = new Pool{properties[3]};
    pools.insert(*out);
    return SUCCESS;
}

API cuMemPoolSetAttribute(void *pool, int attribute, const uint64_t *value) {
    ENTER;
    VALID(pools, pool);
    if (attribute == 4)
        ((Pool *)pool)->threshold = *value;
    return SUCCESS;
}

API cuMemPoolTrimTo(void *pool, size_t) {
    ENTER;
    VALID(pools, pool);
    for (auto entry = memories.begin(); entry != memories.end();) {
        Memory &memory = entry->second;
        if (memory.pool == pool && memory.freed) {
            unmap_memory(entry->first, memory.size);
            entry = memories.erase(entry);
        } else
            ++entry;
    }
    return SUCCESS;
}

API cuMemPoolDestroy(void *pool) {
    ENTER;
    VALID(pools, pool);
    pools.erase(pool);
    return SUCCESS;
}

API cuDeviceCanAccessPeer(int *out, int device, int peer) {
    ENTER;
    if (device < 0 || device >= device_total || peer < 0 || peer >= device_total)
        return INVALID_DEVICE;
    *out = device != peer;
    return SUCCESS;
}

struct Access {
    int kind, id; // 1: a device
    int flags;
};

API cuMemPoolSetAccess(void *pool, const Access *access, size_t count) {
    ENTER;
    VALID(pools, pool);
    for (size_t k = 0; k < count; k++)
        if (access[k].kind != 1 || access[k].id < 0 || access[k].id >= device_total || access[k].flags != 3)
            return INVALID_VALUE;
    return SUCCESS;
}

API cuMemAllocFromPoolAsync(Address *out, size_t size, void *pool, void *handle) {
    STREAM(handle);
    VALID(pools, pool);
    return take(out, size, ((Pool *)pool)->device, (Pool *)pool, stream);
}

API cuMemFreeAsync(Address address, void *handle) {
    STREAM(handle);
    auto found = memories.find(address);
    if (found == memories.end() || found->second.freed)
        return INVALID_VALUE;
    Memory &memory = found->second;
    memory.freed = true;
    memory.stream = stream;
    if (!memory.pool)
        return INVALID_VALUE;
    uint64_t size = std::min<uint64_t>(memory.size, 1 << 16);
    enqueue(stream, [address, size] { memset((void *)(uintptr_t)address, 0xDD, size); });
    return SUCCESS;
}

// --- memory that is created, mapped and exported by itself ----------------------------------------

struct Physical { // a file in memory
    int file, device;
    uint64_t size;
    bool exportable;
    int references; // the handle's and the mapping's
};

struct Wanted {
    int kind, handles; // 1: pinned; 1: a file descriptor
    int where, device; // 1: on a device
    void *unused;
    unsigned char flags[8];
};

static const uint64_t GRANULARITY = 2 << 20;
static std::set<void *> physicals;                                            // that have a handle
static std::map<Address, std::pair<uint64_t, Physical *>> reserved; // and what is mapped there

static void physical_drop(Physical *physical) {
    if (--physical->references)
        return;
    close(physical->file);
    delete physical;
}

API cuMemGetAllocationGranularity(size_t *out, const Wanted *wanted, int) {
    ENTER;
    if (wanted->kind != 1 || wanted->where != 1 || wanted->device >= device_total)
        return INVALID_VALUE;
    *out = GRANULARITY;
    return SUCCESS;
}

API cuMemCreate(uint64_t *out, size_t size, const Wanted *wanted, unsigned long long flags) {
    ENTER;
    if (wanted->kind != 1 || wanted->where != 1 || wanted->device >= device_total || flags || !size || size % GRANULARITY)
        return INVALID_VALUE;
    uint64_t there = used_on(wanted->device, true);
    for (void *other : physicals)
        there += ((Physical *)other)->device == wanted->device ? ((Physical *)other)->size : 0;
    if (size > memory_limit || there + size > memory_limit)
        return OUT_OF_MEMORY;
    int file = memfd_create("device memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size))
        return OUT_OF_MEMORY;
    Physical *physical = new Physical{file, wanted->device, size, wanted->handles == 1, 1};
    physicals.insert(physical);
    *out = (uint64_t)(uintptr_t)physical;
    return SUCCESS;
}

API cuMemRelease(uint64_t handle) {
    ENTER;
    VALID(physicals, (void *)(uintptr_t)handle);
    physicals.erase((void *)(uintptr_t)handle);
    physical_drop((Physical *)(uintptr_t)handle);
    return SUCCESS;
}

API cuMemAddressReserve(Address *out, size_t size, size_t, Address, unsigned long long flags) {
    ENTER;
    if (!size || size % GRANULARITY || flags)
        return INVALID_VALUE;
    void *base = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return OUT_OF_MEMORY;
    *out = (Address)(uintptr_t)base;
    reserved[*out] = {size, nullptr};
    return SUCCESS;
}

API cuMemAddressFree(Address address, size_t size) {
    ENTER;
    auto found = reserved.find(address);
    if (found == reserved.end() || found->second.first != size || found->second.second)
        return INVALID_VALUE;
    munmap((void *)(uintptr_t)address, size);
    reserved.erase(found);
    return SUCCESS;
}

API cuMemMap(Address address, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    ENTER;
    VALID(physicals, (void *)(uintptr_t)handle);
    Physical *physical = (Physical *)(uintptr_t)handle;
    auto found = reserved.find(address);
    if (found == reserved.end() || found->second.first != size || found->second.second || offset || flags ||
        size != physical->size)
        return INVALID_VALUE;
    void *at = (void *)(uintptr_t)address;
    if (mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, 0) == MAP_FAILED)
        return OUT_OF_MEMORY;
    found->second.second = physical;
    physical->references++;
    return SUCCESS;
}

API cuMemUnmap(Address address, size_t size) {
    ENTER;
    auto found = reserved.find(address);
    if (found == reserved.end() || found->second.first != size || !found->second.second)
        return INVALID_VALUE;
    mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    memories.erase(address);
    physical_drop(found->second.second);
    found->second.second = nullptr;
    return SUCCESS;
}

API cuMemSetAccess(Address address, size_t size, const Access *access, size_t count) {
    ENTER;
    auto found = reserved.find(address);
    if (found == reserved.end() || found->second.first != size || !found->second.second || count != 1)
        return INVALID_VALUE;
    Physical *physical = found->second.second;
    if (access->kind != 1 || access->id != physical->device || access->flags != 3)
        return INVALID_VALUE;
    mprotect((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE);
    memories[address] = Memory{size, physical->device, nullptr, nullptr};
    return SUCCESS;
}

API cuMemExportToShareableHandle(int *out, uint64_t handle, int kind, unsigned long long flags) {
    ENTER;
    VALID(physicals, (void *)(uintptr_t)handle);
    Physical *physical = (Physical *)(uintptr_t)handle;
    if (!physical->exportable || kind != 1 || flags)
        return INVALID_VALUE;
    *out = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
    return *out < 0 ? OUT_OF_MEMORY : SUCCESS;
}

API cuMemImportFromShareableHandle(uint64_t *out, void *handle, int kind) {
    ENTER;
    struct stat about;
    int file = fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0);
    if (kind != 1 || file < 0 || fstat(file, &about))
        return INVALID_VALUE;
    Physical *physical = new Physical{file, 0, (uint64_t)about.st_size, true, 1};
    physicals.insert(physical);
    *out = (uint64_t)(uintptr_t)physical;
    return SUCCESS;
}

API cuMemGetInfo(size_t *free, size_t *total) {
    CONTEXT;
    *total = memory_limit;
    *free = memory_limit - used_on(context->device, true);
    return SUCCESS;
}

API cuMemHostAlloc(void **out, size_t size, unsigned) {
    CONTEXT;
    Address address = map_memory(size);
    if (!address)
        return OUT_OF_MEMORY;
    pinned[address] = size;
    *out = (void *)(uintptr_t)address;
    return SUCCESS;
}

API cuMemFreeHost(void *memory) {
    Address address = (Address)(uintptr_t)memory;
    {
        CONTEXT;
        if (!pinned.count(address))
            return INVALID_VALUE;
    }
    if (int error = cuCtxSynchronize())
        return error;
    Hold hold(state_mutex);
    unmap_memory(address, pinned[address]);
    pinned.erase(address);
    return SUCCESS;
}

// Whether a range is inside one allocation of a device.
static bool is_device_range(Address address, uint64_t size) {
    auto after = memories.upper_bound(address);
    if (after == memories.begin())
        return false;
    auto &entry = *--after;
    return !entry.second.freed && address + size <= entry.first + entry.second.size;
}

static bool is_pinned(Address address, uint64_t size) {
    auto after = pinned.upper_bound(address);
    if (after == pinned.begin())
        return false;
    auto &entry = *--after;
    return address + size <= entry.first + entry.second;
}

static bool is_accessible(Address address, uint64_t size) {
    return is_device_range(address, size) || is_pinned(address, size);
}

API cuMemcpyHtoDAsync(Address to, const void *from, size_t size, void *handle) {
    STREAM(handle);
    if (!is_accessible(to, size))
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy((void *)(uintptr_t)to, from, size); }); // the host's memory is read only then
    return SUCCESS;
}

API cuMemcpyDtoHAsync(void *to, Address from, size_t size, void *handle) {
    STREAM(handle);
    if (!is_accessible(from, size))
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy(to, (void *)(uintptr_t)from, size); });
    if (!is_pinned((Address)(uintptr_t)to, size) && !stream->capture)
        released([&] { drain(stream); });
    return context->failure;
}

API cuMemcpyDtoDAsync(Address to, Address from, size_t size, void *handle) {
    STREAM(handle);
    if (!is_accessible(to, size) || !is_accessible(from, size))
        return INVALID_VALUE;
    if (to < from + size && from < to + size) // what it would do is not defined
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size); });
    return SUCCESS;
}

API cuMemcpyPeerAsync(Address to, void *to_context, Address from, void *from_context, size_t size, void *handle) {
    STREAM(handle);
    if (!contexts.count(to_context) || !contexts.count(from_context))
        return INVALID_CONTEXT;
    if (!is_accessible(to, size) || !is_accessible(from, size))
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size); });
    return SUCCESS;
}

template <class T> static int fill(Address to, T value, size_t count, Stream *stream) {
    if (!is_accessible(to, count * sizeof(T)) || to % sizeof(T))
        return INVALID_VALUE;
    enqueue(stream, [=] { std::fill_n((T *)(uintptr_t)to, count, value); });
    return SUCCESS;
}

API cuMemsetD8Async(Address to, unsigned char value, size_t count, void *handle) {
    STREAM(handle);
    return fill(to, value, count, stream);
}

API cuMemsetD16Async(Address to, unsigned short value, size_t count, void *handle) {
    STREAM(handle);
    return fill(to, value, count, stream);
}

API cuMemsetD32Async(Address to, unsigned value, size_t count, void *handle) {
    STREAM(handle);
    return fill(to, value, count, stream);
}

API cuPointerGetAttribute(void *out, int attribute, Address address) {
    ENTER;
    bool device = is_device_range(address, 1), host = is_pinned(address, 1);
    if (!device && !host)
        return INVALID_VALUE;
    switch (attribute) {
    case 2:
        *(unsigned *)out = device ? 2 : 1;
        return SUCCESS;
    case 8:
        *(unsigned *)out = 0;
        return SUCCESS;
    case 9:
        *(int *)out = device ? (--memories.upper_bound(address))->second.device : 0;
        return SUCCESS;
    }
    return INVALID_VALUE;
}

// --- modules and launches ------------------------------------------------------------------------

API cuModuleLoadData(void **out, const void *image) {
    CONTEXT;
    // The image has no length: the section headers of a shared object are its last part.
    const unsigned char *bytes = (const unsigned char *)image;
    if (memcmp(bytes, "\177ELF", 4) != 0)
        return INVALID_IMAGE;
    uint64_t headers;
    uint16_t size, count;
    memcpy(&headers, bytes + 40, 8);
    memcpy(&size, bytes + 58, 2);
    memcpy(&count, bytes + 60, 2);
    char path[] = "/tmp/emulated-cuda-XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        return INVALID_IMAGE;
    size_t length = headers + (uint64_t)size * count;
    bool written = write(file, image, length) == (ssize_t)length;
    close(file);
    void *handle = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path);
    if (!handle)
        return INVALID_IMAGE;
    Module *module = new Module;
    module->context = context;
    module->handle = handle;
    modules.insert(module);
    *out = module;
    return SUCCESS;
}

API cuModuleGetFunction(void **out, void *handle, const char *name) {
    CONTEXT;
    VALID(modules, handle);
    Module *module = (Module *)handle;
    if (module->context != context)
        return INVALID_HANDLE;
    std::string symbol = std::string("emulate_") + name;
    void *run = dlsym(module->handle, symbol.c_str());
    if (!run)
        return NOT_FOUND;
    std::unique_ptr<Function> &function = module->functions[name];
    if (!function) {
        const unsigned *params = (const unsigned *)dlsym(module->handle, (symbol + "_params").c_str());
        function.reset(new Function{context, nullptr, params ? (int)*params : -1, name});
        memcpy(&function->run, &run, sizeof run);
        functions.insert(function.get());
    }
    *out = function.get();
    return SUCCESS;
}

API cuModuleUnload(void *handle) {
    CONTEXT;
    VALID(modules, handle);
    Module *module = (Module *)handle;
    modules.erase(handle);
    for (auto &entry : module->functions)
        functions.erase(entry.second.get());
    dlclose(module->handle); // code that still runs would crash
    delete module;
    return SUCCESS;
}

static void run_kernel(Context *context, const Node &node) {
    if (int error = injected("run")) {
        context->failure = error;
        return;
    }
    std::vector<void *> pointers;
    for (const uint64_t &value : node.params)
        pointers.push_back((void *)&value);
    node.function->run(pointers.data(), node.grid, node.block);
}

static int launch(void *handle, const unsigned grid[3], const unsigned block[3], void *stream_handle, void **params) {
    STREAM(stream_handle);
    VALID(functions, handle);
    Function *function = (Function *)handle;
    if (function->context != context)
        return INVALID_HANDLE;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || !threads || threads > 1024 || grid[0] > INT32_MAX || grid[1] > 65535 ||
        grid[2] > 65535 || block[2] > 64)
        return INVALID_VALUE;
    auto node = std::make_shared<Node>();
    node->function = function;
    std::copy_n(grid, 3, node->grid);
    std::copy_n(block, 3, node->block);
    if (function->params < 0) { // without their number they cannot be copied
        released([&] { drain(stream); });
        function->run(params, grid, block);
        return SUCCESS;
    }
    for (int k = 0; k < function->params; k++) {
        uint64_t value = 0;
        memcpy(&value, params[k], 8);
        node->params.push_back(value);
    }
    if (stream->capture) {
        stream->capture->nodes.push_back(node);
        return SUCCESS;
    }
    enqueue(stream, [context, node] { run_kernel(context, *node); });
    return SUCCESS;
}

API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned, void *stream, void **params, void **) {
    if (int error = injected(__func__))
        return error;
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return launch(function, grid, block, stream, params);
}

// NVRTC looks for this in any driver, and has to be told that there is nothing.
API cuGetExportTable(const void **out, const void *) {
    *out = nullptr;
    return NOT_FOUND;
}

// --- graphs ---------------------------------------------------------------------------------------

API cuStreamBeginCapture(void *handle, int) {
    STREAM(handle);
    if ((uintptr_t)handle <= 2 || stream->capture)
        return INVALID_VALUE;
    stream->capture = std::make_shared<Graph>();
    return SUCCESS;
}

API cuStreamEndCapture(void *handle, void **out) {
    STREAM(handle);
    if (!stream->capture)
        return INVALID_VALUE;
    *out = new std::shared_ptr<Graph>(stream->capture);
    graphs.insert(*out);
    stream->capture = nullptr;
    return SUCCESS;
}

API cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long) {
    CONTEXT;
    VALID(graphs, graph);
    *out = new std::shared_ptr<Graph>(*(std::shared_ptr<Graph> *)graph);
    execs.insert(*out);
    return SUCCESS;
}

API cuGraphLaunch(void *exec, void *handle) {
    STREAM(handle);
    VALID(execs, exec);
    std::shared_ptr<Graph> graph = *(std::shared_ptr<Graph> *)exec;
    enqueue(stream, [context, graph] {
        for (auto &node : graph->nodes) {
            if (context->failure)
                return;
            if (node->function)
                run_kernel(context, *node);
            else
                node->work();
        }
    });
    return SUCCESS;
}

API cuGraphDestroy(void *graph) {
    ENTER;
    if (!graphs.erase(graph))
        return INVALID_VALUE;
    delete (std::shared_ptr<Graph> *)graph;
    return SUCCESS;
}

API cuGraphExecDestroy(void *exec) {
    ENTER;
    if (!execs.erase(exec))
        return INVALID_VALUE;
    delete (std::shared_ptr<Graph> *)exec;
    return SUCCESS;
}

// --- finding functions ---------------------------------------------------------------------------

API cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t, int *status) {
    static void *self = nullptr;
    if (!self) {
        Dl_info about;
        dladdr((void *)&cuGetProcAddress_v2, &about);
        self = dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    // Of functions whose parameters changed there is one form.
    static const std::map<std::string, std::pair<int, int>> forms = {
        {"cuCtxCreate", {12050, 99999}},
        {"cuStreamGetCtx", {0, 12049}},
        {"cuCtxGetDevice", {0, 12999}},
    };
    auto form = forms.find(name);
    bool fits = form == forms.end() || (form->second.first <= version && version <= form->second.second);
    *out = fits ? dlsym(self, std::string(name) == "cuGetProcAddress" ? "cuGetProcAddress_v2" : name) : nullptr;
    if (status)
        *status = *out ? 0 : 1;
    return *out ? SUCCESS : NOT_FOUND;
}

// --- textures ------------------------------------------------------------------------------------

struct ArrayLayout {
    size_t extents[3];
    int format;
    unsigned channels, flags;
};

API cuArray3DCreate(void **out, const ArrayLayout *layout) {
    CONTEXT;
    const size_t *extents = layout->extents;
    if (layout->format != 0x20 || layout->channels != 1 || layout->flags)
        return NOT_SUPPORTED;
    if (!extents[0] || !extents[1] || !extents[2] || std::max({extents[0], extents[1], extents[2]}) > 2048)
        return INVALID_VALUE;
    size_t count = extents[0] * extents[1] * extents[2];
    if (used_on(context->device, true) + 4 * count > memory_limit)
        return OUT_OF_MEMORY;
    *out = new Array{context, {extents[0], extents[1], extents[2]}, std::vector<float>(count)};
    arrays.insert(*out);
    return SUCCESS;
}

API cuArrayDestroy(void *handle) {
    CONTEXT;
    VALID(arrays, handle);
    arrays.erase(handle);
    delete (Array *)handle;
    return SUCCESS;
}

struct Place {
    size_t x, y, z, lod;
    int kind; // 2: device memory, 3: an array
    const void *host;
    Address device;
    void *array, *reserved;
    size_t pitch, height;
};

struct Copy {
    Place from, to;
    size_t width, height, depth; // the first in bytes
};

API cuMemcpy3DAsync(const Copy *copy, void *handle) {
    STREAM(handle);
    const Place &from = copy->from, &to = copy->to;
    if (from.kind != 2 || to.kind != 3)
        return NOT_SUPPORTED;
    VALID(arrays, to.array);
    Array *array = (Array *)to.array;
    bool whole = copy->width == 4 * array->extents[0] && copy->height == array->extents[1] &&
                 copy->depth == array->extents[2] && from.pitch == copy->width && from.height == copy->height;
    if (!whole)
        return NOT_SUPPORTED;
    size_t size = copy->width * copy->height * copy->depth;
    if (!is_accessible(from.device, size))
        return INVALID_VALUE;
    Address source = from.device;
    enqueue(stream, [=] { memcpy(array->texels.data(), (void *)(uintptr_t)source, size); });
    return SUCCESS;
}

struct Resource {
    int kind; // 0: an array
    union {
        void *array;
        int reserved[32];
    };
    unsigned flags;
};

struct Sampler {
    int address[3], filter;
    unsigned flags;
};

API cuTexObjectCreate(uint64_t *out, const Resource *resource, const Sampler *sampler, const void *view) {
    CONTEXT;
    if (resource->kind || view)
        return NOT_SUPPORTED;
    VALID(arrays, resource->array);
    for (int mode : sampler->address)
        if (mode != 1) // clamp
            return NOT_SUPPORTED;
    if (sampler->filter != 1 || sampler->flags) // linear; coordinates in texels
        return NOT_SUPPORTED;
    Array *array = (Array *)resource->array;
    Texture *texture = new Texture{array->texels.data(), (unsigned)array->extents[0], (unsigned)array->extents[1],
                                   (unsigned)array->extents[2]};
    textures.insert(texture);
    *out = (uint64_t)(uintptr_t)texture;
    return SUCCESS;
}

API cuTexObjectDestroy(uint64_t handle) {
    CONTEXT;
    void *texture = (void *)(uintptr_t)handle;
    VALID(textures, texture);
    textures.erase(texture);
    delete (Texture *)texture;
    return SUCCESS;
}

// --- how tests steer it --------------------------------------------------------------------------

// How many devices there are; 0 before cuInit: none.
API emu_devices(int count) {
    device_total = count;
    return SUCCESS;
}

API emu_limit(uint64_t bytes) {
    Hold hold(state_mutex);
    memory_limit = bytes;
    return SUCCESS;
}

// Whether each call waits for its work; the microseconds that a stream waits before each piece of work.
API emu_pace(int is_synchronous, int microseconds) {
    synchronous = is_synchronous;
    delay = microseconds;
    return SUCCESS;
}

API emu_pools(int on) {
    has_pools = on;
    return SUCCESS;
}

API emu_version(int arch, int version) {
    architecture = arch;
    driver_version = version;
    return SUCCESS;
}

// While it is closed, no stream begins with more work.
API emu_gate(int closed) {
    std::lock_guard<std::mutex> hold(gate_mutex);
    gate_closed = closed;
    gate_changed.notify_all();
    return SUCCESS;
}

// The n-th call from now on of a function fails; "run" is the execution of a kernel.
API emu_fail(const char *name, long n, int code) {
    std::lock_guard<std::mutex> hold(faults_mutex);
    faults[name] = {n, code};
    return SUCCESS;
}

API emu_forget_faults(void) {
    std::lock_guard<std::mutex> hold(faults_mutex);
    faults.clear();
    return SUCCESS;
}

// Takes the failure of a context back, as no driver does, so that one process can test several.
API emu_heal(void) {
    Hold hold(state_mutex);
    for (void *context : contexts)
        ((Context *)context)->failure = 0;
    return SUCCESS;
}

extern "C" long emu_calls(const char *name) {
    std::lock_guard<std::mutex> hold(faults_mutex);
    return calls[name];
}

// How much of something is alive: memory (allocations), bytes, cached (bytes), pinned, streams, ...
extern "C" long emu_live(const char *kind) {
    Hold hold(state_mutex);
    std::string what = kind;
    if (what == "memory")
        return std::count_if(memories.begin(), memories.end(), [](auto &entry) { return !entry.second.freed; });
    if (what == "bytes" || what == "cached") {
        long total = 0;
        for (auto &entry : memories)
            total += entry.second.freed == (what == "cached") ? (long)entry.second.size : 0;
        return total;
    }
    if (what == "pinned")
        return (long)pinned.size();
    if (what == "reserved")
        return (long)reserved.size();
    const std::map<std::string, std::set<void *> *> sets = {{"contexts", &contexts}, {"streams", &streams},
                                                            {"events", &events},     {"modules", &modules},
                                                            {"pools", &pools},       {"graphs", &graphs},
                                                            {"arrays", &arrays},     {"textures", &textures},
                                                            {"execs", &execs},       {"physicals", &physicals}};
    auto found = sets.find(what);
    return found == sets.end() ? -1 : (long)found->second->size();
}
