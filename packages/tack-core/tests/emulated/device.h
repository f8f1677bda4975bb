// What of CUDA C and HIP C the generated code uses, as C++. Blocks run one after the other, and so do the threads of a
// block, as runtime.c has it. There are no includes and few templates, because thousands of kernels are
// compiled with this in front.

#define __global__
#define __device__
#define __constant__
#define __shared__ static
#define __forceinline__
#define __launch_bounds__(...)

typedef unsigned int tack_u32;
typedef unsigned long long tack_u64;

struct dim3 {
    unsigned x, y, z;
};
extern "C" dim3 gridDim, blockDim, blockIdx, threadIdx;

// --- functions of numbers ---

#define TACK_MATH_1(name)                                                    \
    extern "C" float name##f(float) noexcept;                                \
    extern "C" double name(double) noexcept;
#define TACK_MATH_2(name)                                                    \
    extern "C" float name##f(float, float) noexcept;                         \
    extern "C" double name(double, double) noexcept;

TACK_MATH_1(sqrt) TACK_MATH_1(cbrt) TACK_MATH_1(fabs) TACK_MATH_1(floor) TACK_MATH_1(ceil) TACK_MATH_1(rint)
TACK_MATH_1(trunc) TACK_MATH_1(sin) TACK_MATH_1(cos) TACK_MATH_1(tan) TACK_MATH_1(asin) TACK_MATH_1(acos)
TACK_MATH_1(atan) TACK_MATH_1(sinh) TACK_MATH_1(cosh) TACK_MATH_1(tanh) TACK_MATH_1(exp) TACK_MATH_1(exp2)
TACK_MATH_1(expm1) TACK_MATH_1(log) TACK_MATH_1(log2) TACK_MATH_1(log10) TACK_MATH_1(log1p) TACK_MATH_1(erf)
TACK_MATH_1(erfc) TACK_MATH_2(atan2) TACK_MATH_2(hypot) TACK_MATH_2(pow) TACK_MATH_2(fmod) TACK_MATH_2(copysign)
TACK_MATH_2(fmin) TACK_MATH_2(fmax)
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double fma(double, double, double) noexcept;

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline bool isnan(float x) { return x != x; }
static inline bool isnan(double x) { return x != x; }
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }
static inline bool isfinite(float x) { return __builtin_isfinite(x); }
static inline bool isfinite(double x) { return __builtin_isfinite(x); }

#define TACK_EXTREMA(T)                                                      \
    static inline T min(T a, T b) { return b < a ? b : a; }                  \
    static inline T max(T a, T b) { return b > a ? b : a; }

TACK_EXTREMA(int) TACK_EXTREMA(unsigned) TACK_EXTREMA(long long) TACK_EXTREMA(tack_u64)

static inline int __popcll(tack_u64 x) {
    int found = 0;
    for (; x; x &= x - 1)
        ++found;
    return found;
}
static inline int __popc(unsigned x) { return __popcll(x); }
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(tack_u64 x) { return x ? __builtin_clzll(x) : 64; }

static inline tack_u64 __brevll(tack_u64 x) {
    x = (x & 0x5555555555555555) << 1 | (x >> 1 & 0x5555555555555555);
    x = (x & 0x3333333333333333) << 2 | (x >> 2 & 0x3333333333333333);
    x = (x & 0x0f0f0f0f0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f0f0f0f0f);
    return __builtin_bswap64(x);
}
static inline unsigned __brev(unsigned x) { return __brevll(x) >> 32; }

template <class To, class From> static inline To tack_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "");
    To found;
    __builtin_memcpy(&found, &x, sizeof found);
    return found;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned found = 0;
    for (int k = 0; k < 4; ++k) {
        unsigned index = selector >> 4 * k & 7;
        found |= (unsigned)((b * 0x100000000ull + a) >> 8 * index & 255) << 8 * k;
    }
    return found;
}
static inline int __float_as_int(float x) { return tack_bits<int>(x); }
static inline float __int_as_float(int x) { return tack_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return tack_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return tack_bits<double>(x); }

// PTX's conversions saturate, and give 0 for NaN.
static inline int __float2int_rz(float x) {
    return x >= 0x1p31f ? 0x7fffffff : x >= -0x1p31f ? (int)x : x != x ? 0 : -0x7fffffff - 1;
}
static inline unsigned __float2uint_rz(float x) {
    return x >= 0x1p32f ? 0xffffffffu : x > 0 ? (unsigned)x : 0;
}

// --- atomics: one thread runs at a time ---

#define TACK_ATOMIC(T, name, new_value)                                      \
    static inline T atomic##name(T *address, T value) {                      \
        T old = *address;                                                    \
        *address = new_value;                                                \
        return old;                                                          \
    }
#define TACK_ATOMICS(T)                                                      \
    TACK_ATOMIC(T, Exch, value)                                              \
    TACK_ATOMIC(T, Min, min(old, value))                                     \
    TACK_ATOMIC(T, Max, max(old, value))                                     \
    TACK_ATOMIC(T, And, (old & value))                                       \
    TACK_ATOMIC(T, Or, (old | value))                                        \
    TACK_ATOMIC(T, Xor, (old ^ value))                                       \
    static inline T atomicCAS(T *address, T expected, T value) {             \
        T old = *address;                                                    \
        *address = old == expected ? value : old;                            \
        return old;                                                          \
    }

TACK_ATOMICS(int) TACK_ATOMICS(unsigned) TACK_ATOMICS(tack_u64)
TACK_ATOMIC(long long, Min, min(old, value)) TACK_ATOMIC(long long, Max, max(old, value))
TACK_ATOMIC(int, Add, (int)((unsigned)old + value)) TACK_ATOMIC(unsigned, Add, old + value)
TACK_ATOMIC(tack_u64, Add, old + value) TACK_ATOMIC(float, Add, old + value)
TACK_ATOMIC(double, Add, old + value)

// HIP's are the compiler's own, for any type; clang has them here too.
#define __HIP_MEMORY_SCOPE_AGENT 4
#ifndef __clang__
#define TACK_HIP_ATOMIC(name, other)                                         \
    template <class T, class V> static inline T __hip_atomic_##name(T *address, V value, int, int) { \
        return atomic##other(address, (T)value);                             \
    }

TACK_HIP_ATOMIC(exchange, Exch) TACK_HIP_ATOMIC(fetch_add, Add) TACK_HIP_ATOMIC(fetch_and, And)
TACK_HIP_ATOMIC(fetch_or, Or) TACK_HIP_ATOMIC(fetch_xor, Xor) TACK_HIP_ATOMIC(fetch_min, Min)
TACK_HIP_ATOMIC(fetch_max, Max)
#endif

// --- textures: a handle is the address of this ---

struct tack_texture {
    const float *texels;
    unsigned width, height, depth;
};

typedef tack_u64 hipTextureObject_t;

template <class T> static inline T tex3D(tack_u64 handle, T x, T y, T z) {
    const tack_texture *t = (const tack_texture *)handle;
    const unsigned extents[3] = {t->width, t->height, t->depth};
    const T at[3] = {x - T(0.5), y - T(0.5), z - T(0.5)};
    unsigned low[3], high[3];
    T part[3];
    for (int axis = 0; axis < 3; ++axis) {
        T clamped = at[axis] > 0 ? at[axis] : 0;
        T end = extents[axis] - 1;
        clamped = clamped < end ? clamped : end;
        low[axis] = (unsigned)clamped;
        high[axis] = low[axis] + 1 < extents[axis] ? low[axis] + 1 : low[axis];
        part[axis] = clamped - low[axis];
    }
    T sum = 0;
    for (int corner = 0; corner < 8; ++corner) {
        const unsigned *index[3] = {corner & 1 ? high : low, corner & 2 ? high : low, corner & 4 ? high : low};
        T weight = (corner & 1 ? part[0] : 1 - part[0]) * (corner & 2 ? part[1] : 1 - part[1]) *
                   (corner & 4 ? part[2] : 1 - part[2]);
        sum += weight * t->texels[((tack_u64)index[2][2] * t->height + index[1][1]) * t->width + index[0][0]];
    }
    return sum;
}

// --- barriers and shuffles ---

extern "C" void tack_barrier(void);
extern "C" tack_u64 tack_shuffle_down(tack_u64 value, unsigned distance, unsigned width);
static inline void __threadfence() {}
static inline void __syncthreads() { tack_barrier(); }

template <class T> static inline T __shfl_down(T value, unsigned distance, unsigned width) {
    tack_u64 word = 0;
    __builtin_memcpy(&word, &value, sizeof value);
    word = tack_shuffle_down(word, distance, width);
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
}

template <class T> static inline T __shfl_down_sync(unsigned, T value, unsigned distance) {
    return __shfl_down(value, distance, 32);
}

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

typedef void tack_thread(void **parameters);
extern "C" void tack_launch(tack_thread *thread, int meeting, void **parameters, const unsigned *grid,
                            const unsigned *block);

// `meeting` says whether threads of a block wait for each other.
#define TACK_EMULATE(entry, meeting)                                                                            \
    extern "C" __attribute__((visibility("default"))) void emulate_##entry(                                     \
        void **parameters, const unsigned grid[3], const unsigned block[3]) {                                   \
        tack_launch([](void **p) { tack_call(entry, p); }, meeting, parameters, grid, block);                   \
    }
