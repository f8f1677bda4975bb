// The emulated HIP runtime, libamdhip64.so: what of it CUDA does not have, or has in another form. A device has one
// context, which is current in a thread that has set the device.
#define CALL(name) hip##name
#define hipCtxSynchronize hipDeviceSynchronize
#define hipDeviceGetCount hipGetDeviceCount
#define hipEventCreate hipEventCreateWithFlags
#define hipLaunchKernel hipModuleLaunchKernel
#define hipMemAlloc hipMalloc
#define hipMemAllocFromPoolAsync hipMallocFromPoolAsync
#define hipMemFree hipFree
#define hipMemFreeAsync hipFreeAsync
#define hipMemFreeHost hipHostFree
#define hipMemHostAlloc hipHostMalloc
#define hipStreamCreate hipStreamCreateWithFlags
#include "state.h"

struct Place {
    size_t x, y, z, lod;
    int kind;
    const void *host;
    Address device;
    void *array;
    size_t pitch, height;
};

enum { HOST_MEMORY = 1, DEVICE_MEMORY = 2, ARRAY_MEMORY = 10 };

#include "steering.h"

static std::map<int, Context *> of_devices;
static thread_local int current;

static Context *context_of(int device) {
    Context *&context = of_devices[device];
    if (!context) {
        context = new Context;
        context->device = device;
        contexts.insert(context);
    }
    return context;
}

static Context *current_context() { return context_of(current); }

static bool is_launchable(const unsigned grid[3], const unsigned block[3]) {
    for (int axis = 0; axis < 3; axis++)
        if ((uint64_t)grid[axis] * block[axis] > UINT32_MAX)
            return false;
    return grid[1] <= 65535 && grid[2] <= 65535;
}

// --- devices -------------------------------------------------------------------------------------

extern "C" const char *hipGetErrorName(int code) {
    switch (code) {
    case OUT_OF_MEMORY:
        return "hipErrorOutOfMemory";
    case ILLEGAL_ADDRESS:
        return "hipErrorIllegalAddress";
    case NO_DEVICE:
        return "hipErrorNoDevice";
    case INVALID_VALUE:
        return "hipErrorInvalidValue";
    case INVALID_HANDLE:
        return "hipErrorInvalidHandle";
    }
    return "hipErrorOfTheEmulation";
}

extern "C" const char *hipGetErrorString(int code) {
    return code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "an error of the emulated driver";
}

API hipRuntimeGetVersion(int *out) {
    *out = driver_version;
    return injected(__func__);
}

API hipGetDevice(int *out) {
    ENTER;
    *out = current;
    return SUCCESS;
}

API hipSetDevice(int device) {
    ENTER;
    if (device < 0 || device >= device_total)
        return INVALID_DEVICE;
    current = device;
    return SUCCESS;
}

// The structure of HIP 6 and later; see hipDeviceProp_t.
API hipGetDevicePropertiesR0600(char *out, int device) {
    enum { SIZE = 1472, UUID = 256, ARCHITECTURE = 1160 };
    ENTER;
    if (device < 0 || device >= device_total)
        return INVALID_DEVICE;
    memset(out, 0, SIZE);
    snprintf(out, UUID, "Emulated GPU %d", device);
    memset(out + UUID, 0xE0 + device, 16);
    snprintf(out + ARCHITECTURE, 256, "%s", architecture.c_str());
    return SUCCESS;
}

API hipDeviceGetAttribute(int *out, int attribute, int device) {
    ENTER;
    if (device < 0 || device >= device_total)
        return INVALID_DEVICE;
    switch (attribute) {
    case 49: // the extents of a 3-D texture
    case 50:
    case 51:
        *out = 2048;
        break;
    case 63:
        *out = 4;
        break;
    case 88:
        *out = has_pools;
        break;
    case 10014: // of images, which compute accelerators do not have
        *out = architecture.compare(0, 5, "gfx90") && architecture.compare(0, 5, "gfx94");
        break;
    default:
        *out = 0;
    }
    return SUCCESS;
}

API hipStreamGetDevice(void *handle, int *out) {
    ENTER;
    if ((uintptr_t)handle <= 2) {
        *out = current;
        return SUCCESS;
    }
    VALID(streams, handle);
    *out = ((Stream *)handle)->context->device;
    return SUCCESS;
}

API hipMemcpyPeerAsync(Address to, int to_device, Address from, int from_device, size_t size, void *handle) {
    STREAM(handle);
    if (to_device < 0 || to_device >= device_total || from_device < 0 || from_device >= device_total)
        return INVALID_DEVICE;
    if (!is_accessible(to, size) || !is_accessible(from, size))
        return INVALID_VALUE;
    enqueue(stream, [=] { memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size); });
    return SUCCESS;
}

struct Pointer {
    int kind, device;
    void *on_device, *on_host;
    int managed;
    unsigned flags;
};

API hipPointerGetAttributes(Pointer *out, Address address) {
    ENTER;
    memset(out, 0, sizeof *out);
    if (is_device_range(address, 1)) {
        out->kind = DEVICE_MEMORY;
        out->device = (--memories.upper_bound(address))->second.device;
    } else if (is_pinned(address, 1))
        out->kind = HOST_MEMORY;
    return SUCCESS; // the kind of memory that the driver does not know is 0
}

API hipGetProcAddress(const char *name, void **out, int, uint64_t, int *status) {
    if (status)
        *status = 1;
    if (int error = injected(__func__))
        return error;
    static void *self = nullptr;
    if (!self) {
        Dl_info about;
        dladdr((void *)&hipGetProcAddress, &about);
        self = dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    *out = dlsym(self, name);
    if (status && *out)
        *status = 0;
    return *out ? SUCCESS : NOT_FOUND;
}
