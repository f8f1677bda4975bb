#pragma once
#include "streams.h"

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

API CALL(MemAlloc)(Address *out, size_t size) {
    CONTEXT;
    return take(out, size, context->device, nullptr, nullptr);
}

API CALL(MemFree)(Address address) {
    {
        CONTEXT;
        auto found = memories.find(address);
        if (found == memories.end() || found->second.freed)
            return INVALID_VALUE;
    }
    if (int error = CALL(CtxSynchronize)())
        return error;
    Hold hold(state_mutex);
    unmap_memory(address, memories[address].size);
    memories.erase(address);
    return SUCCESS;
}

API CALL(MemPoolCreate)(void **out, const int *properties) {
    CONTEXT;
    if (!has_pools)
        return NOT_SUPPORTED;
    *out = new Pool{properties[3]};
    pools.insert(*out);
    return SUCCESS;
}

API CALL(MemPoolSetAttribute)(void *pool, int attribute, const uint64_t *value) {
    ENTER;
    VALID(pools, pool);
    if (attribute == 4)
        ((Pool *)pool)->threshold = *value;
    return SUCCESS;
}

API CALL(MemPoolTrimTo)(void *pool, size_t) {
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

API CALL(MemPoolDestroy)(void *pool) {
    ENTER;
    VALID(pools, pool);
    pools.erase(pool);
    return SUCCESS;
}

struct Access {
    int kind, id; // 1: a device
    int flags;
};

API CALL(MemPoolSetAccess)(void *pool, const Access *access, size_t count) {
    ENTER;
    VALID(pools, pool);
    for (size_t k = 0; k < count; k++)
        if (access[k].kind != 1 || access[k].id < 0 || access[k].id >= device_total || access[k].flags != 3)
            return INVALID_VALUE;
    return SUCCESS;
}

API CALL(MemAllocFromPoolAsync)(Address *out, size_t size, void *pool, void *handle) {
    STREAM(handle);
    VALID(pools, pool);
    return take(out, size, ((Pool *)pool)->device, (Pool *)pool, stream);
}

API CALL(MemFreeAsync)(Address address, void *handle) {
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

API CALL(MemGetInfo)(size_t *free, size_t *total) {
    CONTEXT;
    *total = memory_limit;
    *free = memory_limit - used_on(context->device, true);
    return SUCCESS;
}

API CALL(MemHostAlloc)(void **out, size_t size, unsigned) {
    CONTEXT;
    Address address = map_memory(size);
    if (!address)
        return OUT_OF_MEMORY;
    pinned[address] = size;
    *out = (void *)(uintptr_t)address;
    return SUCCESS;
}

API CALL(MemFreeHost)(void *memory) {
    Address address = (Address)(uintptr_t)memory;
    {
        CONTEXT;
        if (!pinned.count(address))
            return INVALID_VALUE;
    }
    if (int error = CALL(CtxSynchronize)())
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

API CALL(MemcpyHtoDAsync)(Address to, const void *from, size_t size, void *handle) {
    STREAM(handle);
    if (!is_accessible(to, size))
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy((void *)(uintptr_t)to, from, size); }); // the host's memory is read only then
    return SUCCESS;
}

API CALL(MemcpyDtoHAsync)(void *to, Address from, size_t size, void *handle) {
    STREAM(handle);
    if (!is_accessible(from, size))
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy(to, (void *)(uintptr_t)from, size); });
    if (!is_pinned((Address)(uintptr_t)to, size) && !stream->capture)
        released([&] { drain(stream); });
    return context->failure;
}

API CALL(MemcpyDtoDAsync)(Address to, Address from, size_t size, void *handle) {
    STREAM(handle);
    if (!is_accessible(to, size) || !is_accessible(from, size))
        return INVALID_VALUE;
    if (to < from + size && from < to + size) // what it would do is not defined
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

API CALL(MemsetD8Async)(Address to, unsigned char value, size_t count, void *handle) {
    STREAM(handle);
    return fill(to, value, count, stream);
}

API CALL(MemsetD16Async)(Address to, unsigned short value, size_t count, void *handle) {
    STREAM(handle);
    return fill(to, value, count, stream);
}

API CALL(MemsetD32Async)(Address to, unsigned value, size_t count, void *handle) {
    STREAM(handle);
    return fill(to, value, count, stream);
}
