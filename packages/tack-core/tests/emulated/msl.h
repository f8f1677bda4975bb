// What of MSL the generated code uses, as C++: `metal_stdlib`, its address spaces and its attributes. The
// translation unit comes without attributes, and with the threadgroup's arrays marked as static (msl.py).
//
// As C++ for OpenCL, which is only checked, the address spaces are those of OpenCL: as in MSL none of them
// converts to another, not by a cast either, and there is neither f64 nor a generic address space.

#ifdef __OPENCL_CPP_VERSION__
#define TACK_CHECKED 1
#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private
#define atomic_int tack_atomic_int  // OpenCL has types of these names
#define atomic_uint tack_atomic_uint
#define atomic_float tack_atomic_float
#else
#define TACK_CHECKED 0
#define device
#define constant const
#define threadgroup
#define thread
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

struct uint3 {
    uint x, y, z;
};
struct float3 {
    float x, y, z;
    float3(float x, float y, float z) : x(x), y(y), z(z) {}
};
inline float3 operator+(float3 a, float b) { return float3(a.x + b, a.y + b, a.z + b); }
inline float3 operator/(float3 a, float3 b) { return float3(a.x / b.x, a.y / b.y, a.z / b.z); }
struct float4 {
    float x, y, z, w;
};

// --- functions of numbers ---

#define TACK_MATH_1(name)                                                    \
    extern "C" float name##f(float) noexcept;                                \
    namespace metal { static inline float name(float x) { return name##f(x); } }
#define TACK_MATH_2(name)                                                    \
    extern "C" float name##f(float, float) noexcept;                         \
    namespace metal { static inline float name(float x, float y) { return name##f(x, y); } }
#define TACK_PRECISE_1(name)                                                 \
    extern "C" float name##f(float) noexcept;                                \
    namespace metal::precise { static inline float name(float x) { return name##f(x); } }
#define TACK_PRECISE_2(name)                                                 \
    extern "C" float name##f(float, float) noexcept;                         \
    namespace metal::precise { static inline float name(float x, float y) { return name##f(x, y); } }

TACK_MATH_1(fabs) TACK_MATH_1(floor) TACK_MATH_1(ceil) TACK_MATH_1(rint) TACK_MATH_1(trunc)
TACK_MATH_2(fmod) TACK_MATH_2(copysign) TACK_MATH_2(fmin) TACK_MATH_2(fmax)
TACK_PRECISE_1(sqrt) TACK_PRECISE_1(sin) TACK_PRECISE_1(cos) TACK_PRECISE_1(tan) TACK_PRECISE_1(asin)
TACK_PRECISE_1(acos) TACK_PRECISE_1(atan) TACK_PRECISE_1(sinh) TACK_PRECISE_1(cosh) TACK_PRECISE_1(tanh)
TACK_PRECISE_1(exp) TACK_PRECISE_1(exp2) TACK_PRECISE_1(log) TACK_PRECISE_1(log2) TACK_PRECISE_1(log10)
TACK_PRECISE_2(atan2)
extern "C" float fmaf(float, float, float) noexcept;

namespace metal {

namespace precise {
static inline float rsqrt(float x) { return 1 / sqrt(x); }
}
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline bool isnan(float x) { return x != x; }
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isfinite(float x) { return __builtin_isfinite(x); }

#define TACK_EXTREMA(T)                                                      \
    static inline T min(T a, T b) { return b < a ? b : a; }                  \
    static inline T max(T a, T b) { return b > a ? b : a; }
TACK_EXTREMA(char) TACK_EXTREMA(uchar) TACK_EXTREMA(short) TACK_EXTREMA(ushort) TACK_EXTREMA(int) TACK_EXTREMA(uint)
TACK_EXTREMA(long) TACK_EXTREMA(ulong)

static inline uint popcount(uint x) {
    uint found = 0;
    for (; x; x &= x - 1)
        ++found;
    return found;
}
static inline uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
static inline uint ctz(uint x) { return x ? __builtin_ctz(x) : 32; }

template <class To, class From> static inline To as_type(From x) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    To found;
    __builtin_memcpy(&found, &x, sizeof found);
    return found;
}

// --- atomics: one thread runs at a time ---

enum memory_order { memory_order_relaxed, memory_order_seq_cst };
struct atomic_int {
    int value;
};
struct atomic_uint {
    uint value;
};
struct atomic_float {
    float value;
};

#define TACK_ATOMIC(A, T, name, new_value)                                   \
    static inline T atomic_##name##_explicit(volatile device A *object, T operand, memory_order) { \
        T old = object->value;                                               \
        object->value = new_value;                                           \
        return old;                                                          \
    }
#define TACK_ATOMICS(A, T)                                                   \
    TACK_ATOMIC(A, T, exchange, operand)                                     \
    TACK_ATOMIC(A, T, fetch_min, min(old, operand))                          \
    TACK_ATOMIC(A, T, fetch_max, max(old, operand))                          \
    TACK_ATOMIC(A, T, fetch_and, old & operand)                              \
    TACK_ATOMIC(A, T, fetch_or, old | operand)                               \
    TACK_ATOMIC(A, T, fetch_xor, old ^ operand)

TACK_ATOMICS(atomic_int, int) TACK_ATOMICS(atomic_uint, uint)
TACK_ATOMIC(atomic_int, int, fetch_add, (int)((uint)old + (uint)operand))
TACK_ATOMIC(atomic_uint, uint, fetch_add, old + operand)
TACK_ATOMIC(atomic_float, float, fetch_add, old + operand)

// --- textures ---

enum class coord { normalized, pixel };
enum class address { clamp_to_edge, repeat };
enum class filter { nearest, linear };
struct sampler {
    coord coordinates;
    address outside;
    filter between;
};

// --- barriers ---

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
static inline mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }

#if TACK_CHECKED

bool atomic_compare_exchange_weak_explicit(volatile device atomic_uint *object, thread uint *expected, uint desired,
                                           memory_order, memory_order);
uint atomic_fetch_add_explicit(volatile threadgroup atomic_uint *object, uint operand, memory_order);
void threadgroup_barrier(mem_flags);
enum thread_scope { thread_scope_device };
void atomic_thread_fence(mem_flags, memory_order, thread_scope);

struct tack_texture {
    uint get_width() const constant;
    uint get_height() const constant;
    uint get_depth() const constant;
    float4 sample(constant sampler &how, float3 position) const constant;
};
template <class T> using texture3d = constant tack_texture &;  // classes cannot be parameters of kernels

}  // namespace metal

#else  // what runs

// The weak form may fail although the values are equal, and here every third time it does.
static inline bool atomic_compare_exchange_weak_explicit(volatile atomic_uint *object, uint *expected, uint desired,
                                                         memory_order, memory_order) {
    static unsigned calls;
    if (++calls % 3 == 0)
        *expected = object->value;
    else if (object->value == *expected) {
        object->value = desired;
        return true;
    } else
        *expected = object->value;
    return false;
}

extern "C" void tack_barrier(void);
static inline void threadgroup_barrier(mem_flags) { tack_barrier(); }

struct tack_texture {
    const float *texels;
    uint width, height, depth;
};
template <class T> struct texture3d {
    const tack_texture *of;
    uint get_width() const { return of->width; }
    uint get_height() const { return of->height; }
    uint get_depth() const { return of->depth; }
    float4 sample(const sampler &how, float3 position) const {
        if (how.coordinates != coord::normalized || how.outside != address::clamp_to_edge || how.between != filter::linear)
            __builtin_trap();
        const uint extents[3] = {of->width, of->height, of->depth};
        const float at[3] = {position.x, position.y, position.z};
        uint low[3], high[3];
        float part[3];
        for (int axis = 0; axis < 3; ++axis) {
            float clamped = at[axis] * extents[axis] - 0.5f;
            clamped = clamped > 0 ? clamped : 0;
            const float end = extents[axis] - 1;
            clamped = clamped < end ? clamped : end;
            low[axis] = (uint)clamped;
            high[axis] = low[axis] + 1 < extents[axis] ? low[axis] + 1 : low[axis];
            part[axis] = clamped - low[axis];
        }
        float sum = 0;
        for (int corner = 0; corner < 8; ++corner) {
            const uint *x = corner & 1 ? high : low, *y = corner & 2 ? high : low, *z = corner & 4 ? high : low;
            const float weight = (corner & 1 ? part[0] : 1 - part[0]) * (corner & 2 ? part[1] : 1 - part[1]) *
                                 (corner & 4 ? part[2] : 1 - part[2]);
            sum += weight * of->texels[((ulong)z[2] * of->height + y[1]) * of->width + x[0]];
        }
        return float4{sum, 0, 0, 1};
    }
};

}  // namespace metal

// --- launches ---

extern "C" uint3 gridDim, blockDim, blockIdx, threadIdx;
typedef void tack_thread_function(void **parameters);
extern "C" void tack_launch(tack_thread_function *thread, int meeting, void **parameters, const unsigned *grid,
                            const unsigned *block);

#endif
