// An engine of the emulated Level Zero loader: OpenCL C that has been compiled as C++, a shared object (opencl.py).
#pragma once
#include "engine.hpp"
#include <cstdlib>
#include <unistd.h>

namespace engine {

typedef void *Program; // what dlopen gives

struct Texels { // tack_image in opencl.h
    const float *texels;
    size_t width, height, depth;
};
typedef Texels *Image;

struct Kernel {
    void (*handle)(void **parameters, const uint32_t groups[3], const uint32_t group[3]);
    std::vector<Parameter> parameters;
    uint32_t group[3]; // what it demands
};

inline const char *start() { return nullptr; } // nothing is missing

// The code of a module, loaded; null with a message if it is none.
inline Program build(const std::string &code, const std::string &, std::string &log) {
    char path[] = "/tmp/emulated-level-zero-XXXXXX";
    int file = mkstemp(path);
    bool written = file >= 0 && write(file, code.data(), code.size()) == (ssize_t)code.size();
    if (file >= 0)
        close(file);
    void *found = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    log = found ? "" : std::string("error: ") + (written ? dlerror() : "the module cannot be written");
    unlink(path);
    return found;
}

inline void release(Program program) { dlclose(program); }

// The kernel of a name, or one whose handle is null.
inline Kernel kernel(Program program, const char *name) {
    struct Described {
        char kind;
        uint64_t size;
    } described[256];
    Kernel found{};
    *(void **)&found.handle = dlsym(program, (std::string("emulate_") + name).c_str());
    if (!found.handle)
        return found;
    uint32_t (*describe)(Described *, uint32_t *);
    *(void **)&describe = dlsym(program, (std::string("describe_") + name).c_str());
    uint32_t count = describe(described, found.group);
    for (uint32_t k = 0; k < count; ++k) {
        char kind = described[k].kind;
        found.parameters.push_back(
            {kind == 'p' ? Parameter::POINTER : kind == 'i' ? Parameter::IMAGE : Parameter::VALUE, described[k].size});
    }
    return found;
}

inline void release(const Kernel &) {}

inline int run(const Kernel &kernel, const std::vector<Argument> &arguments, const uint32_t groups[3],
               const uint32_t group[3]) {
    std::vector<void *> addresses;
    for (const Argument &argument : arguments)
        addresses.push_back((void *)&argument.word);
    kernel.handle(addresses.data(), groups, group);
    return 0;
}

inline Image image(size_t width, size_t height, size_t depth) {
    float *texels = (float *)malloc(4 * width * height * depth);
    return texels ? new Texels{texels, width, height, depth} : nullptr;
}

inline void release(Image image) {
    free((void *)image->texels);
    delete image;
}

inline int write_image(Image image, const size_t extents[3], const void *texels) {
    memcpy((void *)image->texels, texels, 4 * extents[0] * extents[1] * extents[2]);
    return 0;
}

} // namespace engine
