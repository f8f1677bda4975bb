// A Level Zero loader and driver for machines without an Intel GPU: device memory is host memory, and kernels are
// run by an ENGINE, pocl.hpp or native.hpp. What a module is made from is what that takes, behind a line that names
// its form.
//
// It keeps the API's rules as far as Tack relies on them, and counts what breaks them (`emu_violations`): commands
// run when they want unless barriers order them, memory and handles must not go before the commands that use them,
// only the context's own allocations may be copied, and events have to be reset. Any call can be made to fail. The
// functions at the end, emu_*, are how tests steer it. The declarations are those of libze-dev.
#include ENGINE
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <level_zero/ze_api.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#define API extern "C" ze_result_t

static const char SPIRV[] = "SPIR-V of the emulation\n", NATIVE[] = "native code of the emulation, revision ";

// --- objects -------------------------------------------------------------------------------------

struct Device {
    int number;
};

struct Context {};

struct Allocation {
    Context *context;
    size_t size;
    ze_memory_type_t type;
    Device *device;
};

struct Module {
    Context *context;
    engine::Program program;
    std::string code;
    int kernels = 0;
};

struct Kernel {
    Module *module;
    engine::Kernel code;
    std::vector<engine::Argument> arguments;
    uint32_t group[3] = {0, 0, 0};
};

struct Image {
    engine::Image memory;
    size_t extents[3];
};

struct Pool {
    Context *context;
    ze_event_pool_flags_t flags;
    std::vector<bool> used;
};

struct Event {
    Pool *pool;
    uint32_t index;
    std::atomic<bool> signaled{false};
    std::atomic<uint64_t> start{0}, end{0}; // ticks of the device's clock
};

struct Command {
    std::function<bool()> work; // false: the device is lost
    std::vector<const void *> uses; // handles and addresses
    Event *signal = nullptr;
    bool is_barrier = false;
};

struct List {
    Context *context;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Command> queue;
    std::vector<const void *> running; // what the commands under way use
    bool busy = false, stopped = false;
    std::thread thread;
};

// --- state ---------------------------------------------------------------------------------------

static std::recursive_mutex state_mutex;
typedef std::lock_guard<std::recursive_mutex> Hold;

static bool initialized = false;
static Device devices[2] = {{0}, {1}};
static int device_total = 2;
static uint64_t memory_limit = 4ull << 30, largest_allocation = 2ull << 30;
static bool has_f64 = true, has_samplers = true, has_int64_atomics = true;
static uint32_t group_limit = 1024, groups_limit = UINT32_MAX, image_limit = 2048, revision = 1;
static std::atomic<int> delay{0}, lost{0};
static std::map<uintptr_t, Allocation> allocations;
static std::set<void *> contexts, lists, pools, events, modules, kernels, images, logs;
static int driver_token;

static std::mutex faults_mutex; // which running kernels take as well
static std::map<std::string, long> calls;
static std::map<std::string, std::pair<long, unsigned>> faults; // by name: which call from now on fails, with what

static std::mutex violations_mutex;
static std::vector<std::string> violations;

static ze_result_t violated(const char *function, const char *what, ze_result_t result) {
    std::lock_guard<std::mutex> hold(violations_mutex);
    violations.push_back(std::string(function) + ": " + what);
    return result;
}

static std::mutex gate_mutex;
static std::condition_variable gate_changed;
static bool gate_closed = false;

static void pass_gate() {
    std::unique_lock<std::mutex> hold(gate_mutex);
    gate_changed.wait(hold, [] { return !gate_closed; });
}

static unsigned injected(const char *name) {
    std::lock_guard<std::mutex> hold(faults_mutex);
    calls[name]++;
    auto found = faults.find(name);
    if (found == faults.end() || --found->second.first > 0)
        return 0;
    unsigned code = found->second.second;
    faults.erase(found);
    return code;
}

#define WRONG(what, result) return violated(__func__, what, result)
#define ENTER                                                                                                          \
    if (unsigned code_ = injected(__func__))                                                                           \
        return (ze_result_t)code_;                                                                                     \
    Hold hold_(state_mutex);                                                                                           \
    if (!initialized)                                                                                                  \
    WRONG("zeInit has not been called", ZE_RESULT_ERROR_UNINITIALIZED)
#define VALID(set, handle)                                                                                             \
    if (!set.count((void *)handle))                                                                                    \
    WRONG(handle ? #handle " is no such handle" : #handle " is null", ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
#define DEVICE(handle)                                                                                                 \
    if ((Device *)handle < devices || (Device *)handle >= devices + device_total)                                      \
    WRONG("no such device", ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
#define POINTER(pointer)                                                                                               \
    if (!pointer)                                                                                                      \
    WRONG(#pointer " is null", ZE_RESULT_ERROR_INVALID_NULL_POINTER)
#define TYPE(description, number)                                                                                      \
    POINTER(description);                                                                                              \
    if (description->stype != number)                                                                                  \
    WRONG(#description " has another type number", ZE_RESULT_ERROR_INVALID_ENUMERATION)

// The allocation that a range is in, or null.
static Allocation *allocation_of(const void *pointer, size_t size, uintptr_t *start = nullptr) {
    auto found = allocations.upper_bound((uintptr_t)pointer);
    if (found == allocations.begin())
        return nullptr;
    --found;
    if ((uintptr_t)pointer + size > found->first + found->second.size)
        return nullptr;
    if (start)
        *start = found->first;
    return &found->second;
}

// Whether a command that has not ended uses a handle, or an address in a range.
static bool in_flight(const void *first, size_t size = 1) {
    for (void *handle : lists) {
        List *list = (List *)handle;
        std::lock_guard<std::mutex> hold(list->mutex);
        auto within = [&](const void *used) {
            return (uintptr_t)used >= (uintptr_t)first && (uintptr_t)used < (uintptr_t)first + size;
        };
        if (std::any_of(list->running.begin(), list->running.end(), within))
            return true;
        for (const Command &command : list->queue)
            if (std::any_of(command.uses.begin(), command.uses.end(), within))
                return true;
    }
    return false;
}

// --- drivers and devices -------------------------------------------------------------------------

API zeInit(ze_init_flags_t flags) {
    if (unsigned code = injected(__func__))
        return (ze_result_t)code;
    Hold hold(state_mutex);
    if (flags & ~(unsigned)ZE_INIT_FLAG_GPU_ONLY)
        WRONG("unknown flags", ZE_RESULT_ERROR_INVALID_ENUMERATION);
    if (engine::start())
        return ZE_RESULT_ERROR_UNINITIALIZED;
    initialized = true;
    return ZE_RESULT_SUCCESS;
}

API zeDriverGet(uint32_t *count, ze_driver_handle_t *found) {
    ENTER;
    POINTER(count);
    if (*count && found)
        *found = (ze_driver_handle_t)&driver_token;
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

API zeDriverGetProperties(ze_driver_handle_t driver, ze_driver_properties_t *properties) {
    ENTER;
    if ((void *)driver != &driver_token)
        WRONG("no such driver", ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    TYPE(properties, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES);
    properties->driverVersion = 0x01030000 + revision;
    return ZE_RESULT_SUCCESS;
}

API zeDeviceGet(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *found) {
    ENTER;
    if ((void *)driver != &driver_token)
        WRONG("no such driver", ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    POINTER(count);
    for (int k = 0; found && k < device_total && k < (int)*count; ++k)
        found[k] = (ze_device_handle_t)&devices[k];
    *count = (uint32_t)device_total;
    return ZE_RESULT_SUCCESS;
}

static const uint64_t TICK = 52; // nanoseconds

static uint64_t now() {
    auto time = std::chrono::steady_clock::now().time_since_epoch();
    uint64_t ticks = (uint64_t)std::chrono::duration_cast<std::chrono::nanoseconds>(time).count() / TICK;
    return ticks & 0xffffffff; // of which so many bits are valid
}

API zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t *properties) {
    ENTER;
    DEVICE(device);
    TYPE(properties, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
    properties->type = ZE_DEVICE_TYPE_GPU;
    properties->vendorId = 0x8086;
    properties->deviceId = 0x0bd5;
    properties->maxMemAllocSize = largest_allocation;
    properties->timerResolution = TICK;
    properties->timestampValidBits = 36;
    properties->kernelTimestampValidBits = 32;
    memset(properties->uuid.id, 0x40 + ((Device *)device)->number, sizeof properties->uuid.id);
    strcpy(properties->name, "Emulated Intel GPU");
    return ZE_RESULT_SUCCESS;
}

API zeDeviceGetComputeProperties(ze_device_handle_t device, ze_device_compute_properties_t *properties) {
    ENTER;
    DEVICE(device);
    TYPE(properties, ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES);
    properties->maxTotalGroupSize = properties->maxGroupSizeX = properties->maxGroupSizeY = group_limit;
    properties->maxGroupSizeZ = group_limit;
    properties->maxGroupCountX = properties->maxGroupCountY = properties->maxGroupCountZ = groups_limit;
    properties->maxSharedLocalMemory = 64 << 10;
    return ZE_RESULT_SUCCESS;
}

API zeDeviceGetModuleProperties(ze_device_handle_t device, ze_device_module_properties_t *properties) {
    ENTER;
    DEVICE(device);
    TYPE(properties, ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES);
    properties->spirvVersionSupported = ZE_MAKE_VERSION(1, 4);
    properties->flags = (has_f64 ? ZE_DEVICE_MODULE_FLAG_FP64 : 0) |
                        (has_int64_atomics ? ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS : 0);
    properties->maxArgumentsSize = 2048;
    return ZE_RESULT_SUCCESS;
}

API zeDeviceGetImageProperties(ze_device_handle_t device, ze_device_image_properties_t *properties) {
    ENTER;
    DEVICE(device);
    TYPE(properties, ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES);
    properties->maxImageDims1D = properties->maxImageDims2D = 16384;
    properties->maxImageDims3D = image_limit;
    properties->maxSamplers = has_samplers ? 16 : 0;
    properties->maxReadImageArgs = has_samplers ? 128 : 0;
    return ZE_RESULT_SUCCESS;
}

API zeDeviceGetMemoryProperties(ze_device_handle_t device, uint32_t *count, ze_device_memory_properties_t *found) {
    ENTER;
    DEVICE(device);
    POINTER(count);
    if (*count && found) {
        TYPE(found, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES);
        found->totalSize = memory_limit;
    }
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

// The first group only copies, as on some devices.
API zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t device, uint32_t *count,
                                           ze_command_queue_group_properties_t *found) {
    ENTER;
    DEVICE(device);
    POINTER(count);
    for (uint32_t k = 0; found && k < *count && k < 2; ++k) {
        ze_command_queue_group_properties_t *group = found + k;
        TYPE(group, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES);
        group->flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY |
                       (k ? (unsigned)ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE : 0);
        group->maxMemoryFillPatternSize = k ? 16 : 1;
        group->numQueues = 1;
    }
    *count = 2;
    return ZE_RESULT_SUCCESS;
}

API zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *description, ze_context_handle_t *out) {
    ENTER;
    if ((void *)driver != &driver_token)
        WRONG("no such driver", ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    TYPE(description, ZE_STRUCTURE_TYPE_CONTEXT_DESC);
    POINTER(out);
    *out = (ze_context_handle_t) new Context;
    contexts.insert(*out);
    return ZE_RESULT_SUCCESS;
}

API zeContextDestroy(ze_context_handle_t context) {
    ENTER;
    VALID(contexts, context);
    for (auto &entry : allocations)
        if (entry.second.context == (Context *)context)
            WRONG("the context has memory", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    contexts.erase(context);
    return ZE_RESULT_SUCCESS;
}

// --- memory --------------------------------------------------------------------------------------

static ze_result_t allocate(const char *function, Context *context, size_t size, size_t alignment,
                            ze_memory_type_t type, Device *device, void **out) {
    uint64_t used = 0;
    for (auto &entry : allocations)
        if (entry.second.type == type && entry.second.device == device)
            used += entry.second.size;
    if (!size)
        return violated(function, "no bytes", ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    if (alignment & (alignment - 1))
        return violated(function, "the alignment is no power of two", ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    if (used + size > memory_limit)
        return type == ZE_MEMORY_TYPE_HOST ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    void *found = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    memset(found, 0xa5, std::min<size_t>(size, 1 << 20)); // nobody has written to it
    allocations[(uintptr_t)found] = {context, size, type, device};
    *out = found;
    return ZE_RESULT_SUCCESS;
}

API zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *description, size_t size,
                     size_t alignment, ze_device_handle_t device, void **out) {
    ENTER;
    VALID(contexts, context);
    DEVICE(device);
    TYPE(description, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
    POINTER(out);
    auto *relaxed = (const ze_relaxed_allocation_limits_exp_desc_t *)description->pNext;
    bool any_size = relaxed && relaxed->stype == ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC &&
                    relaxed->flags & ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
    if (size > largest_allocation && !any_size)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    return allocate(__func__, (Context *)context, size, alignment, ZE_MEMORY_TYPE_DEVICE, (Device *)device, out);
}

API zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *description, size_t size,
                   size_t alignment, void **out) {
    ENTER;
    VALID(contexts, context);
    TYPE(description, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
    POINTER(out);
    return allocate(__func__, (Context *)context, size, alignment, ZE_MEMORY_TYPE_HOST, nullptr, out);
}

API zeMemFree(ze_context_handle_t context, void *pointer) {
    ENTER;
    VALID(contexts, context);
    POINTER(pointer);
    auto found = allocations.find((uintptr_t)pointer);
    if (found == allocations.end() || found->second.context != (Context *)context)
        WRONG("no allocation of the context starts there", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (in_flight(pointer, found->second.size))
        WRONG("the memory is in use", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    munmap(pointer, found->second.size);
    allocations.erase(found);
    return ZE_RESULT_SUCCESS;
}

API zeMemGetAllocProperties(ze_context_handle_t context, const void *pointer,
                            ze_memory_allocation_properties_t *properties, ze_device_handle_t *device) {
    ENTER;
    VALID(contexts, context);
    POINTER(pointer);
    TYPE(properties, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);
    uintptr_t start = 0;
    Allocation *found = allocation_of(pointer, 0, &start);
    bool known = found && found->context == (Context *)context;
    properties->type = known ? found->type : ZE_MEMORY_TYPE_UNKNOWN;
    properties->id = known ? start : 0;
    properties->pageSize = known ? 4096 : 0;
    if (device)
        *device = known ? (ze_device_handle_t)found->device : nullptr;
    return ZE_RESULT_SUCCESS;
}

// --- command lists -------------------------------------------------------------------------------

// Takes the commands up to a barrier, which may run in any order: here the last comes first.
static void serve(List *list) {
    for (;;) {
        std::vector<Command> batch;
        {
            std::unique_lock<std::mutex> hold(list->mutex);
            auto has_batch = [&] {
                return std::any_of(list->queue.begin(), list->queue.end(), [](auto &c) { return c.is_barrier; });
            };
            list->changed.wait(hold, [&] { return list->stopped || has_batch(); });
            if (!has_batch())
                return;
            do {
                batch.push_back(std::move(list->queue.front()));
                list->queue.pop_front();
                list->running.insert(list->running.end(), batch.back().uses.begin(), batch.back().uses.end());
            } while (!batch.back().is_barrier);
            list->busy = true;
        }
        pass_gate();
        if (delay)
            usleep((useconds_t)delay);
        uint64_t start = now();
        for (size_t k = batch.size() - 1; k-- > 0;)
            if (!lost && !batch[k].work())
                lost = 1;
        // Who sees an event signaled finds nothing of its batch in flight.
        std::lock_guard<std::mutex> hold(list->mutex);
        for (Command &command : batch)
            if (command.signal && !lost) {
                command.signal->start = start, command.signal->end = now();
                command.signal->signaled = true;
            }
        batch.clear();
        list->running.clear();
        list->busy = false;
        list->changed.notify_all();
    }
}

static ze_result_t append(List *list, Command command) {
    if (lost)
        return ZE_RESULT_ERROR_DEVICE_LOST;
    std::lock_guard<std::mutex> hold(list->mutex);
    list->queue.push_back(std::move(command));
    list->changed.notify_all();
    return ZE_RESULT_SUCCESS;
}

API zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                 const ze_command_queue_desc_t *description, ze_command_list_handle_t *out) {
    ENTER;
    VALID(contexts, context);
    DEVICE(device);
    TYPE(description, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
    POINTER(out);
    if (description->ordinal != 1 || description->index)
        WRONG("not the queue group for kernels", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (description->mode != ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
        WRONG("not asynchronous", ZE_RESULT_ERROR_INVALID_ENUMERATION);
    List *list = new List;
    list->context = (Context *)context;
    list->thread = std::thread(serve, list);
    lists.insert(list);
    *out = (ze_command_list_handle_t)list;
    return ZE_RESULT_SUCCESS;
}

API zeCommandListDestroy(ze_command_list_handle_t handle) {
    ENTER;
    VALID(lists, handle);
    List *list = (List *)handle;
    std::lock_guard<std::mutex> hold(list->mutex);
    if (!lost && (list->busy || !list->queue.empty()))
        WRONG("commands are in flight", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    lists.erase(handle);
    list->stopped = true;
    list->changed.notify_all();
    list->thread.detach(); // the object stays
    return ZE_RESULT_SUCCESS;
}

#define LIST(handle)                                                                                                   \
    ENTER;                                                                                                             \
    VALID(lists, handle);                                                                                              \
    List *list = (List *)handle;                                                                                       \
    if (waits || wait_events)                                                                                          \
    WRONG("waits for events, which nothing here does", ZE_RESULT_ERROR_INVALID_ARGUMENT)

API zeCommandListAppendBarrier(ze_command_list_handle_t handle, ze_event_handle_t event, uint32_t waits,
                               ze_event_handle_t *wait_events) {
    LIST(handle);
    Command command;
    command.is_barrier = true;
    if (event) {
        VALID(events, event);
        command.signal = (Event *)event;
        command.uses = {event};
        if (command.signal->signaled || in_flight(event))
            WRONG("the event has not been reset", ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    }
    return append(list, std::move(command));
}

API zeCommandListAppendMemoryCopy(ze_command_list_handle_t handle, void *to, const void *of, size_t size,
                                  ze_event_handle_t event, uint32_t waits, ze_event_handle_t *wait_events) {
    LIST(handle);
    POINTER(to);
    POINTER(of);
    if (event)
        WRONG("signals an event, which barriers do", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (!allocation_of(to, size) || !allocation_of(of, size))
        WRONG("the device cannot address the memory", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if ((char *)to < (char *)of + size && (char *)of < (char *)to + size)
        WRONG("the ranges overlap", ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
    Command command;
    command.uses = {to, of};
    command.work = [=] { return memcpy(to, of, size), true; };
    return append(list, std::move(command));
}

API zeCommandListAppendMemoryFill(ze_command_list_handle_t handle, void *to, const void *pattern, size_t unit,
                                  size_t size, ze_event_handle_t event, uint32_t waits,
                                  ze_event_handle_t *wait_events) {
    LIST(handle);
    POINTER(to);
    POINTER(pattern);
    if (event)
        WRONG("signals an event, which barriers do", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (!unit || unit & (unit - 1) || unit > 16 || size % unit)
        WRONG("the pattern has no such size", ZE_RESULT_ERROR_INVALID_SIZE);
    if (!allocation_of(to, size))
        WRONG("the device cannot address the memory", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    Command command;
    command.uses = {to};
    std::string kept((const char *)pattern, unit);
    command.work = [=] {
        for (size_t k = 0; k < size; k += unit)
            memcpy((char *)to + k, kept.data(), unit);
        return true;
    };
    return append(list, std::move(command));
}

// --- events --------------------------------------------------------------------------------------

API zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t *description, uint32_t count,
                      ze_device_handle_t *, ze_event_pool_handle_t *out) {
    ENTER;
    VALID(contexts, context);
    TYPE(description, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
    POINTER(out);
    if (!description->count || count > (uint32_t)device_total)
        WRONG("no events, or no such devices", ZE_RESULT_ERROR_INVALID_SIZE);
    Pool *pool = new Pool{(Context *)context, description->flags, {}};
    pool->used.resize(description->count);
    pools.insert(pool);
    *out = (ze_event_pool_handle_t)pool;
    return ZE_RESULT_SUCCESS;
}

API zeEventPoolDestroy(ze_event_pool_handle_t handle) {
    ENTER;
    VALID(pools, handle);
    Pool *pool = (Pool *)handle;
    if (std::count(pool->used.begin(), pool->used.end(), true))
        WRONG("the pool has events", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    pools.erase(handle);
    delete pool;
    return ZE_RESULT_SUCCESS;
}

API zeEventCreate(ze_event_pool_handle_t handle, const ze_event_desc_t *description, ze_event_handle_t *out) {
    ENTER;
    VALID(pools, handle);
    TYPE(description, ZE_STRUCTURE_TYPE_EVENT_DESC);
    POINTER(out);
    Pool *pool = (Pool *)handle;
    if (description->index >= pool->used.size() || pool->used[description->index])
        WRONG("the index is out of range or in use", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    pool->used[description->index] = true;
    Event *event = new Event;
    event->pool = pool;
    event->index = description->index;
    events.insert(event);
    *out = (ze_event_handle_t)event;
    return ZE_RESULT_SUCCESS;
}

API zeEventDestroy(ze_event_handle_t handle) {
    ENTER;
    VALID(events, handle);
    if (!lost && in_flight(handle))
        WRONG("a command will signal the event", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    Event *event = (Event *)handle;
    event->pool->used[event->index] = false;
    events.erase(handle);
    delete event;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t status_of(Event *event) {
    return lost ? ZE_RESULT_ERROR_DEVICE_LOST : event->signaled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

API zeEventQueryStatus(ze_event_handle_t handle) {
    ENTER;
    VALID(events, handle);
    return status_of((Event *)handle);
}

API zeEventHostSynchronize(ze_event_handle_t handle, uint64_t timeout) {
    Event *event = (Event *)handle;
    {
        ENTER;
        VALID(events, handle);
        if (!(event->pool->flags & ZE_EVENT_POOL_FLAG_HOST_VISIBLE))
            WRONG("the event is not the host's to see", ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    }
    auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout >> 2);
    ze_result_t status;
    while ((status = status_of(event)) == ZE_RESULT_NOT_READY) {
        if (timeout != UINT64_MAX && std::chrono::steady_clock::now() > end)
            return ZE_RESULT_NOT_READY;
        usleep(10);
    }
    return status;
}

API zeEventHostReset(ze_event_handle_t handle) {
    ENTER;
    VALID(events, handle);
    if (in_flight(handle))
        WRONG("a command will signal the event", ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    ((Event *)handle)->signaled = false;
    return ZE_RESULT_SUCCESS;
}

API zeEventQueryKernelTimestamp(ze_event_handle_t handle, ze_kernel_timestamp_result_t *out) {
    ENTER;
    VALID(events, handle);
    POINTER(out);
    Event *event = (Event *)handle;
    if (!(event->pool->flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP))
        WRONG("the event has no timestamps", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (status_of(event))
        return status_of(event);
    out->global = out->context = {event->start, event->end};
    return ZE_RESULT_SUCCESS;
}

// --- modules and kernels -------------------------------------------------------------------------

API zeModuleCreate(ze_context_handle_t context, ze_device_handle_t device, const ze_module_desc_t *description,
                   ze_module_handle_t *out, ze_module_build_log_handle_t *log_out) {
    std::string code, flags, log;
    {
        ENTER;
        VALID(contexts, context);
        DEVICE(device);
        TYPE(description, ZE_STRUCTURE_TYPE_MODULE_DESC);
        POINTER(description->pInputModule);
        POINTER(out);
        code.assign((const char *)description->pInputModule, description->inputSize);
        flags = description->pBuildFlags ? description->pBuildFlags : "";
        bool native = description->format == ZE_MODULE_FORMAT_NATIVE;
        std::string head = native ? NATIVE + std::to_string(revision) + "\n" : SPIRV;
        if (code.compare(0, head.size(), head))
            return native ? ZE_RESULT_ERROR_INVALID_NATIVE_BINARY : ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
        code.erase(0, head.size());
    }
    std::string options = "-cl-std=CL1.2";
    for (const char *known : {"-cl-fp32-correctly-rounded-divide-sqrt", "-cl-denorms-are-zero"})
        if (flags.find(known) != std::string::npos)
            options += std::string(" ") + known;
    engine::Program program = engine::build(code, options, log);
    Hold hold(state_mutex);
    if (log_out) {
        *log_out = (ze_module_build_log_handle_t) new std::string(log);
        logs.insert(*log_out);
    }
    if (!program)
        return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    *out = (ze_module_handle_t) new Module{(Context *)context, program, code};
    modules.insert(*out);
    return ZE_RESULT_SUCCESS;
}

API zeModuleBuildLogGetString(ze_module_build_log_handle_t handle, size_t *size, char *text) {
    ENTER;
    VALID(logs, handle);
    POINTER(size);
    const std::string &log = *(std::string *)handle;
    if (text)
        memcpy(text, log.c_str(), std::min(*size, log.size() + 1));
    *size = log.size() + 1;
    return ZE_RESULT_SUCCESS;
}

API zeModuleBuildLogDestroy(ze_module_build_log_handle_t handle) {
    ENTER;
    VALID(logs, handle);
    logs.erase(handle);
    delete (std::string *)handle;
    return ZE_RESULT_SUCCESS;
}

API zeModuleGetNativeBinary(ze_module_handle_t handle, size_t *size, uint8_t *binary) {
    ENTER;
    VALID(modules, handle);
    POINTER(size);
    std::string found = NATIVE + std::to_string(revision) + "\n" + ((Module *)handle)->code;
    if (binary)
        memcpy(binary, found.data(), std::min(*size, found.size()));
    *size = found.size();
    return ZE_RESULT_SUCCESS;
}

API zeModuleDestroy(ze_module_handle_t handle) {
    ENTER;
    VALID(modules, handle);
    Module *module = (Module *)handle;
    if (module->kernels)
        WRONG("the module has kernels", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    engine::release(module->program);
    modules.erase(handle);
    delete module;
    return ZE_RESULT_SUCCESS;
}

API zeKernelCreate(ze_module_handle_t handle, const ze_kernel_desc_t *description, ze_kernel_handle_t *out) {
    ENTER;
    VALID(modules, handle);
    TYPE(description, ZE_STRUCTURE_TYPE_KERNEL_DESC);
    POINTER(description->pKernelName);
    POINTER(out);
    Module *module = (Module *)handle;
    engine::Kernel code = engine::kernel(module->program, description->pKernelName);
    if (!code.handle)
        return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    Kernel *kernel = new Kernel{module, code, {}, {0, 0, 0}};
    kernel->arguments.resize(code.parameters.size());
    module->kernels++;
    kernels.insert(kernel);
    *out = (ze_kernel_handle_t)kernel;
    return ZE_RESULT_SUCCESS;
}

API zeKernelDestroy(ze_kernel_handle_t handle) {
    ENTER;
    VALID(kernels, handle);
    if (!lost && in_flight(handle))
        WRONG("the kernel is in use", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    Kernel *kernel = (Kernel *)handle;
    kernel->module->kernels--;
    engine::release(kernel->code);
    kernels.erase(handle);
    delete kernel;
    return ZE_RESULT_SUCCESS;
}

API zeKernelSetGroupSize(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z) {
    ENTER;
    VALID(kernels, handle);
    Kernel *kernel = (Kernel *)handle;
    const uint32_t given[3] = {x, y, z};
    for (int axis = 0; axis < 3; ++axis)
        if (!given[axis] || (kernel->code.group[axis] && kernel->code.group[axis] != given[axis]))
            WRONG("the kernel has another size", ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    if ((uint64_t)x * y * z > group_limit)
        WRONG("more than the device has", ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    std::copy(given, given + 3, kernel->group);
    return ZE_RESULT_SUCCESS;
}

API zeKernelSetArgumentValue(ze_kernel_handle_t handle, uint32_t index, size_t size, const void *value) {
    ENTER;
    VALID(kernels, handle);
    Kernel *kernel = (Kernel *)handle;
    if (index >= kernel->arguments.size())
        WRONG("there is no such parameter", ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    const engine::Parameter &parameter = kernel->code.parameters[index];
    if (size != parameter.size)
        WRONG("the argument has another size", ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    uint64_t word = 0;
    if (value)
        memcpy(&word, value, size);
    else if (parameter.kind != engine::Parameter::POINTER)
        WRONG("the argument has no value", ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    if (parameter.kind == engine::Parameter::POINTER && value) {
        Allocation *found = allocation_of((void *)word, 1);
        if (!found || found->context != kernel->module->context)
            WRONG("the device cannot address the memory", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    if (parameter.kind == engine::Parameter::IMAGE)
        VALID(images, (void *)word);
    kernel->arguments[index] = {true, word};
    return ZE_RESULT_SUCCESS;
}

API zeCommandListAppendLaunchKernel(ze_command_list_handle_t handle, ze_kernel_handle_t kernel_handle,
                                    const ze_group_count_t *count, ze_event_handle_t event, uint32_t waits,
                                    ze_event_handle_t *wait_events) {
    LIST(handle);
    VALID(kernels, kernel_handle);
    POINTER(count);
    if (event)
        WRONG("signals an event, which barriers do", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    Kernel *kernel = (Kernel *)kernel_handle;
    if (!kernel->group[0])
        WRONG("the group's size has not been set", ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    std::vector<uint32_t> groups = {count->groupCountX, count->groupCountY, count->groupCountZ};
    if (std::count(groups.begin(), groups.end(), 0u))
        WRONG("no groups", ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION);
    if (*std::max_element(groups.begin(), groups.end()) > groups_limit)
        WRONG("more groups than the device has", ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION);
    Command command;
    command.uses = {kernel_handle};
    auto arguments = kernel->arguments;
    for (size_t k = 0; k < arguments.size(); ++k) {
        if (!arguments[k].set)
            WRONG("a parameter has no argument", ZE_RESULT_ERROR_INVALID_ARGUMENT);
        if (kernel->code.parameters[k].kind == engine::Parameter::POINTER)
            command.uses.push_back((void *)arguments[k].word);
        if (kernel->code.parameters[k].kind == engine::Parameter::IMAGE) {
            VALID(images, (void *)arguments[k].word);
            command.uses.push_back((void *)arguments[k].word);
            arguments[k].word = (uint64_t)((Image *)arguments[k].word)->memory;
        }
    }
    const uint32_t *group = kernel->group;
    command.work = [=] { return !injected("run") && !engine::run(kernel->code, arguments, groups.data(), group); };
    return append(list, std::move(command));
}

// --- images --------------------------------------------------------------------------------------

API zeImageCreate(ze_context_handle_t context, ze_device_handle_t device, const ze_image_desc_t *description,
                  ze_image_handle_t *out) {
    ENTER;
    VALID(contexts, context);
    DEVICE(device);
    TYPE(description, ZE_STRUCTURE_TYPE_IMAGE_DESC);
    POINTER(out);
    const ze_image_format_t &format = description->format;
    if (description->type != ZE_IMAGE_TYPE_3D || format.layout != ZE_IMAGE_FORMAT_LAYOUT_32 ||
        format.type != ZE_IMAGE_FORMAT_TYPE_FLOAT || format.x != ZE_IMAGE_FORMAT_SWIZZLE_R)
        WRONG("not volumes of f32", ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
    if (!has_samplers || std::max({description->width, (uint64_t)description->height,
                                   (uint64_t)description->depth}) > image_limit)
        WRONG("larger than images can be", ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    Image *image = new Image;
    image->extents[0] = description->width, image->extents[1] = description->height;
    image->extents[2] = description->depth;
    image->memory = engine::image(image->extents[0], image->extents[1], image->extents[2]);
    if (!image->memory)
        return delete image, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    images.insert(image);
    *out = (ze_image_handle_t)image;
    return ZE_RESULT_SUCCESS;
}

API zeImageDestroy(ze_image_handle_t handle) {
    ENTER;
    VALID(images, handle);
    if (!lost && in_flight(handle))
        WRONG("the image is in use", ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    engine::release(((Image *)handle)->memory);
    images.erase(handle);
    delete (Image *)handle;
    return ZE_RESULT_SUCCESS;
}

API zeCommandListAppendImageCopyFromMemory(ze_command_list_handle_t handle, ze_image_handle_t to, const void *of,
                                           const ze_image_region_t *region, ze_event_handle_t event, uint32_t waits,
                                           ze_event_handle_t *wait_events) {
    LIST(handle);
    VALID(images, to);
    POINTER(of);
    if (event || region)
        WRONG("signals an event, or copies a part", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    Image *image = (Image *)to;
    if (!allocation_of(of, 4 * image->extents[0] * image->extents[1] * image->extents[2]))
        WRONG("the device cannot address the memory", ZE_RESULT_ERROR_INVALID_ARGUMENT);
    Command command;
    command.uses = {to, of};
    command.work = [=] { return !engine::write_image(image->memory, image->extents, of); };
    return append(list, std::move(command));
}

// --- how tests steer it --------------------------------------------------------------------------

// What the emulation lacks on this machine, or null.
extern "C" const char *emu_missing(void) { return engine::start(); }

extern "C" void emu_devices(int count) { device_total = count; }

extern "C" void emu_limit(uint64_t bytes, uint64_t largest) {
    Hold hold(state_mutex);
    memory_limit = bytes, largest_allocation = largest;
}

// What devices that start from now on report.
extern "C" void emu_features(int f64, int samplers, uint32_t group, uint32_t groups, uint32_t image) {
    has_f64 = f64, has_samplers = samplers, group_limit = group, groups_limit = groups, image_limit = image;
}

// Of the driver: it refuses the native code of others.
extern "C" void emu_revision(uint32_t number) { revision = number; }

// The microseconds that a list waits before each piece of work.
extern "C" void emu_delay(int microseconds) { delay = microseconds; }

// While it is closed, no list begins with more work.
extern "C" void emu_gate(int closed) {
    std::lock_guard<std::mutex> hold(gate_mutex);
    gate_closed = closed;
    gate_changed.notify_all();
}

// The n-th call from now on of a function fails; "run" is the execution of a kernel, whose failure loses the device.
extern "C" void emu_fail(const char *name, long n, unsigned code) {
    std::lock_guard<std::mutex> hold(faults_mutex);
    faults[name] = {n, code};
}

// Takes back planned failures, and a device's loss, as no driver does, so that one process can test several.
extern "C" void emu_heal(void) {
    {
        std::lock_guard<std::mutex> hold(faults_mutex);
        faults.clear();
    }
    Hold hold(state_mutex);
    for (void *handle : lists) {
        List *list = (List *)handle;
        std::lock_guard<std::mutex> held(list->mutex);
        list->queue.clear();
    }
    lost = 0;
}

extern "C" long emu_calls(const char *name) {
    std::lock_guard<std::mutex> hold(faults_mutex);
    return calls[name];
}

// How many handles of a kind there are, or allocations of "device" or "host" memory.
extern "C" long emu_live(const char *kind) {
    Hold hold(state_mutex);
    std::string what = kind;
    if (what == "device" || what == "host")
        return std::count_if(allocations.begin(), allocations.end(), [&](auto &entry) {
            return (entry.second.type == ZE_MEMORY_TYPE_DEVICE) == (what == "device");
        });
    const std::map<std::string, std::set<void *> *> sets = {
        {"contexts", &contexts}, {"lists", &lists},     {"pools", &pools},   {"events", &events},
        {"modules", &modules},   {"kernels", &kernels}, {"images", &images}, {"logs", &logs}};
    auto found = sets.find(what);
    return found == sets.end() ? -1 : (long)found->second->size();
}

// The rules broken so far, one a line; they are forgotten. The text lives until the next call.
extern "C" const char *emu_violations(void) {
    static std::string text;
    std::lock_guard<std::mutex> hold(violations_mutex);
    text.clear();
    for (const std::string &violation : violations)
        text += violation + "\n";
    violations.clear();
    return text.c_str();
}
