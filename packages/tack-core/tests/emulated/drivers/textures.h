#pragma once
#include "memory.h"

// --- textures ------------------------------------------------------------------------------------

struct ArrayLayout {
    size_t extents[3];
    int format;
    unsigned channels, flags;
};

API CALL(Array3DCreate)(void **out, const ArrayLayout *layout) {
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

API CALL(ArrayDestroy)(void *handle) {
    CONTEXT;
    VALID(arrays, handle);
    arrays.erase(handle);
    delete (Array *)handle;
    return SUCCESS;
}

struct Copy {
    Place from, to;
    size_t width, height, depth; // the first in bytes
};

API CALL(DrvMemcpy3DAsync)(const Copy *copy, void *handle) {
    STREAM(handle);
    const Place &from = copy->from, &to = copy->to;
    if (from.kind != DEVICE_MEMORY || to.kind != ARRAY_MEMORY)
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

API CALL(TexObjectCreate)(uint64_t *out, const Resource *resource, const Sampler *sampler, const void *view) {
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

API CALL(TexObjectDestroy)(uint64_t handle) {
    CONTEXT;
    void *texture = (void *)(uintptr_t)handle;
    VALID(textures, texture);
    textures.erase(texture);
    delete (Texture *)texture;
    return SUCCESS;
}
