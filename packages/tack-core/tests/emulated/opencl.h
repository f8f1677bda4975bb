// What of OpenCL C 1.2 the generated code uses, as C++: its overloaded functions, its address spaces, images and
// barriers. The translation unit comes without attributes, and with the workgroup's arrays marked as static (opencl.py).
// There are no includes, because thousands of kernels are compiled with this in front.

#define __kernel
#define __global
#define __local
#define __constant const
#define __read_only
#define restrict __restrict

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

struct dim3 {
    uint x, y, z;
};
extern "C" dim3 gridDim, blockDim, blockIdx, threadIdx;

static inline ulong tack_axis(const dim3 &of, uint axis) { return axis == 0 ? of.x : axis == 1 ? of.y : of.z; }
static inline ulong get_group_id(uint axis) { return tack_axis(blockIdx, axis); }
static inline ulong get_local_id(uint axis) { return tack_axis(threadIdx, axis); }
static inline ulong get_local_size(uint axis) { return tack_axis(blockDim, axis); }
static inline ulong get_num_groups(uint axis) { return tack_axis(gridDim, axis); }

// --- functions of numbers ---

#define TACK_MATH_1(name)                                                    \
    extern "C" float name##f(float) noexcept;                                \
    extern "C" double name(double) noexcept;                                 \
    static inline float name(float x) { return name##f(x); }
#define TACK_MATH_2(name)                                                    \
    extern "C" float name##f(float, float) noexcept;                         \
    extern "C" double name(double, double) noexcept;                         \
    static inline float name(float x, float y) { return name##f(x, y); }

TACK_MATH_1(sqrt) TACK_MATH_1(cbrt) TACK_MATH_1(fabs) TACK_MATH_1(floor) TACK_MATH_1(ceil) TACK_MATH_1(rint)
TACK_MATH_1(trunc) TACK_MATH_1(sin) TACK_MATH_1(cos) TACK_MATH_1(tan) TACK_MATH_1(asin) TACK_MATH_1(acos)
TACK_MATH_1(atan) TACK_MATH_1(sinh) TACK_MATH_1(cosh) TACK_MATH_1(tanh) TACK_MATH_1(exp) TACK_MATH_1(exp2)
TACK_MATH_1(expm1) TACK_MATH_1(log) TACK_MATH_1(log2) TACK_MATH_1(log10) TACK_MATH_1(log1p) TACK_MATH_1(erf)
TACK_MATH_1(erfc) TACK_MATH_2(atan2) TACK_MATH_2(hypot) TACK_MATH_2(pow) TACK_MATH_2(fmod) TACK_MATH_2(copysign)
TACK_MATH_2(fmin) TACK_MATH_2(fmax)
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double fma(double, double, double) noexcept;
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }

#define TACK_FLOATS(T)                                                       \
    static inline T rsqrt(T x) { return 1 / sqrt(x); }                       \
    static inline int isnan(T x) { return x != x; }                          \
    static inline int isinf(T x) { return __builtin_isinf(x); }              \
    static inline int isfinite(T x) { return __builtin_isfinite(x); }

TACK_FLOATS(float) TACK_FLOATS(double)

#define TACK_EXTREMA(T)                                                      \
    static inline T min(T a, T b) { return b < a ? b : a; }                  \
    static inline T max(T a, T b) { return b > a ? b : a; }

TACK_EXTREMA(char) TACK_EXTREMA(uchar) TACK_EXTREMA(short) TACK_EXTREMA(ushort) TACK_EXTREMA(int) TACK_EXTREMA(uint)
TACK_EXTREMA(long) TACK_EXTREMA(ulong)

static inline ulong popcount(ulong x) {
    ulong found = 0;
    for (; x; x &= x - 1)
        ++found;
    return found;
}
static inline uint popcount(uint x) { return (uint)popcount((ulong)x); }
static inline uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
static inline ulong clz(ulong x) { return x ? __builtin_clzl(x) : 64; }

template <class To, class From> static inline To tack_as(From x) {
    static_assert(sizeof(To) == sizeof(From), "as_ keeps the size");
    To found;
    __builtin_memcpy(&found, &x, sizeof found);
    return found;
}
#define TACK_AS(T)                                                           \
    template <class From> static inline T as_##T(From x) { return tack_as<T>(x); }
TACK_AS(int) TACK_AS(uint) TACK_AS(long) TACK_AS(ulong) TACK_AS(float) TACK_AS(double)

// --- atomics: one thread runs at a time ---

#define TACK_ATOMIC(prefix, T, name, new_value)                              \
    static inline T prefix##_##name(volatile T *address, T value) {          \
        const T old = *address;                                              \
        *address = new_value;                                                \
        return old;                                                          \
    }
#define TACK_ATOMICS(prefix, T)                                              \
    TACK_ATOMIC(prefix, T, add, (T)((ulong)old + (ulong)value))              \
    TACK_ATOMIC(prefix, T, min, min(old, value))                             \
    TACK_ATOMIC(prefix, T, max, max(old, value))                             \
    TACK_ATOMIC(prefix, T, and, (old & value))                               \
    TACK_ATOMIC(prefix, T, or, (old | value))                                \
    TACK_ATOMIC(prefix, T, xor, (old ^ value))                               \
    TACK_ATOMIC(prefix, T, xchg, value)                                      \
    static inline T prefix##_cmpxchg(volatile T *address, T expected, T value) { \
        const T old = *address;                                              \
        *address = old == expected ? value : old;                            \
        return old;                                                          \
    }

TACK_ATOMICS(atomic, int) TACK_ATOMICS(atomic, uint)
TACK_ATOMIC(atomic, float, xchg, value)
// Of the base extension; `min` and others are in another one.
TACK_ATOMIC(atom, long, add, (long)((ulong)old + (ulong)value)) TACK_ATOMIC(atom, ulong, add, old + value)
TACK_ATOMIC(atom, long, xchg, value) TACK_ATOMIC(atom, ulong, xchg, value)

// --- images ---

struct float4 {
    float x, y, z, w;
    float4(float x, float y, float z, float w) : x(x), y(y), z(z), w(w) {}
};

struct tack_image {
    const float *texels;
    ulong width, height, depth;
};
typedef const tack_image *image3d_t;
typedef uint sampler_t;
enum { CLK_NORMALIZED_COORDS_FALSE = 1, CLK_ADDRESS_CLAMP_TO_EDGE = 2, CLK_FILTER_LINEAR = 4 };

static inline float4 read_imagef(image3d_t image, sampler_t sampler, float4 position) {
    if (sampler != 7)
        __builtin_trap();
    const ulong extents[3] = {image->width, image->height, image->depth};
    const float at[3] = {position.x, position.y, position.z};
    ulong low[3], high[3];
    float part[3];
    for (int axis = 0; axis < 3; ++axis) {
        const float end = extents[axis] - 1, shifted = at[axis] - 0.5f, clamped = fmin(fmax(shifted, 0.0f), end);
        low[axis] = (ulong)clamped;
        high[axis] = low[axis] + 1 < extents[axis] ? low[axis] + 1 : low[axis];
        part[axis] = clamped - low[axis];
    }
    float sum = 0;
    for (int corner = 0; corner < 8; ++corner) {
        const ulong *x = corner & 1 ? high : low, *y = corner & 2 ? high : low, *z = corner & 4 ? high : low;
        const float weight = (corner & 1 ? part[0] : 1 - part[0]) * (corner & 2 ? part[1] : 1 - part[1]) *
                             (corner & 4 ? part[2] : 1 - part[2]);
        sum += weight * image->texels[(z[2] * image->height + y[1]) * image->width + x[0]];
    }
    return float4(sum, 0, 0, 1);
}

// --- barriers ---

extern "C" void tack_barrier(void);
enum { CLK_LOCAL_MEM_FENCE = 1, CLK_GLOBAL_MEM_FENCE = 2 };
static inline void barrier(uint) { tack_barrier(); }
static inline void mem_fence(uint) {}

// --- launches ---

template <class T, T...> struct tack_numbers {};
#ifdef __clang__
#define TACK_NUMBERS(n) __make_integer_seq<tack_numbers, int, n>
#else
#define TACK_NUMBERS(n) tack_numbers<int, __integer_pack(n)...>
#endif

template <class... A, int... I>
static inline void tack_apply(void (*kernel)(A...), void **parameters, tack_numbers<int, I...>) {
    kernel(*(A *)parameters[I]...);
}

template <class... A> static inline void tack_call(void (*kernel)(A...), void **parameters) {
    tack_apply(kernel, parameters, TACK_NUMBERS(sizeof...(A))());
}

// A parameter as the loader is told of it: 'v' for a value, 'p' for a pointer, 'i' for an image.
struct tack_parameter {
    char kind;
    ulong size;
};
template <class T> struct tack_kind {
    enum { value = 'v' };
};
template <class T> struct tack_kind<T *> {
    enum { value = 'p' };
};
template <> struct tack_kind<image3d_t> {
    enum { value = 'i' };
};
template <class... A> static inline uint tack_describe(void (*)(A...), tack_parameter *found) {
    const tack_parameter own[] = {{tack_kind<A>::value, sizeof(A)}..., {}};
    for (uint k = 0; k < sizeof...(A); ++k)
        found[k] = own[k];
    return sizeof...(A);
}

typedef void tack_thread(void **parameters);
extern "C" void tack_launch(tack_thread *thread, int meeting, void **parameters, const uint *grid, const uint *block);

// `meeting` says whether threads of a block wait for each other; a block has x, y, z of them.
#define TACK_EMULATE(entry, meeting, x, y, z)                                                                   \
    extern "C" __attribute__((visibility("default"))) void emulate_##entry(                                     \
        void **parameters, const uint grid[3], const uint block[3]) {                                           \
        tack_launch([](void **p) { tack_call(entry, p); }, meeting, parameters, grid, block);                   \
    }                                                                                                           \
    extern "C" __attribute__((visibility("default"))) uint describe_##entry(tack_parameter *found, uint *block) { \
        block[0] = x, block[1] = y, block[2] = z;                                                               \
        return tack_describe(entry, found);                                                                     \
    }
