#pragma once
#include "memory.h"
#include <fcntl.h>
#include <sys/stat.h>

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

static const bool counted = [] {
    live_of_api["physicals"] = [] { return (long)physicals.size(); };
    live_of_api["reserved"] = [] { return (long)reserved.size(); };
    return true;
}();
