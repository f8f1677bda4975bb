#pragma once
#include "state.h"

// --- devices ---

API CALL(Init)(unsigned) {
    if (int error = injected(__func__))
        return error;
    if (!device_total)
        return NO_DEVICE;
    initialized = true;
    return SUCCESS;
}

API CALL(DriverGetVersion)(int *out) {
    *out = driver_version;
    return injected(__func__);
}

API CALL(DeviceGetCount)(int *out) {
    ENTER;
    *out = device_total;
    return SUCCESS;
}

API CALL(DeviceGet)(int *out, int ordinal) {
    ENTER;
    if (ordinal < 0 || ordinal >= device_total)
        return INVALID_DEVICE;
    *out = ordinal;
    return SUCCESS;
}

API CALL(DeviceCanAccessPeer)(int *out, int device, int peer) {
    ENTER;
    if (device < 0 || device >= device_total || peer < 0 || peer >= device_total)
        return INVALID_DEVICE;
    *out = device != peer;
    return SUCCESS;
}
