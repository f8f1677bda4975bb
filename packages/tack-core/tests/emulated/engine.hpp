// What the emulated Level Zero loader and its engines have in common: pocl.hpp and native.hpp.
#pragma once
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

namespace engine {

struct Parameter {
    enum Kind { VALUE, POINTER, LOCAL, IMAGE } kind;
    size_t size;
};

struct Argument {
    bool set = false;
    uint64_t word = 0; // a value, an address, or an image
};

} // namespace engine
