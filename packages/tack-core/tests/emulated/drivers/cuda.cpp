// The emulated CUDA driver, libcuda.so.1: what of it HIP does not have, or has in another form.
#define CALL(name) cu##name
#define cuDrvMemcpy3DAsync cuMemcpy3DAsync
#include "state.h"

struct Place {
    size_t x, y, z, lod;
    int kind;
    const void *host;
    Address device;
    void *array, *reserved;
    size_t pitch, height;
};

enum { DEVICE_MEMORY = 2, ARRAY_MEMORY = 3 };

#include "sharing.h"
#include "steering.h"

static std::map<int, Context *> primaries;
static thread_local std::vector<Context *> current;

static Context *current_context() { return current.empty() ? nullptr : current.back(); }

static bool is_launchable(const unsigned grid[3], const unsigned block[3]) {
    return grid[0] <= INT32_MAX && grid[1] <= 65535 && grid[2] <= 65535 && block[2] <= 64;
}

// --- start, devices and contexts -----------------------------------------------------------------

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
        *out = atoi(architecture.c_str()) / 10;
        break;
    case 76:
        *out = atoi(architecture.c_str()) % 10;
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

API cuMemcpyPeerAsync(Address to, void *to_context, Address from, void *from_context, size_t size, void *handle) {
    STREAM(handle);
    if (!contexts.count(to_context) || !contexts.count(from_context))
        return INVALID_CONTEXT;
    if (!is_accessible(to, size) || !is_accessible(from, size))
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size); });
    return SUCCESS;
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

// NVRTC looks for this in any driver, and has to be told that there is nothing.
API cuGetExportTable(const void **out, const void *) {
    *out = nullptr;
    return NOT_FOUND;
}

// --- finding functions ---------------------------------------------------------------------------

API cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t, int *status) {
    if (status)
        *status = 1;
    if (int error = injected(__func__))
        return error;
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
    if (status && *out)
        *status = 0;
    return *out ? SUCCESS : NOT_FOUND;
}
