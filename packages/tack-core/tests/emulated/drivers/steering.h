#pragma once
#include "devices.h"
#include "modules.h"
#include "textures.h"

// --- how tests steer it --------------------------------------------------------------------------

// How many devices there are; 0 before the API is initialized: none.
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

API emu_version(const char *arch, int version) {
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
    const std::map<std::string, std::set<void *> *> sets = {{"contexts", &contexts}, {"streams", &streams},
                                                            {"events", &events},     {"modules", &modules},
                                                            {"pools", &pools},       {"graphs", &graphs},
                                                            {"arrays", &arrays},     {"textures", &textures},
                                                            {"execs", &execs}};
    if (live_of_api.count(what))
        return live_of_api[what]();
    auto found = sets.find(what);
    return found == sets.end() ? -1 : (long)found->second->size();
}
