// What of HIP's headers the generated code uses, declared for clang's AMDGPU target without them (-nogpuinc).
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads) __attribute__((launch_bounds(threads)))

struct tack_index {
    unsigned x, y, z;
};
#define TACK_INDEX(name, builtin)                                                                                  \
    static __device__ inline tack_index tack_##name() {                                                            \
        return {__builtin_amdgcn_##builtin##_x(), __builtin_amdgcn_##builtin##_y(), __builtin_amdgcn_##builtin##_z()}; \
    }
TACK_INDEX(thread, workitem_id)
TACK_INDEX(block, workgroup_id)
TACK_INDEX(size, workgroup_size)
static __device__ inline tack_index tack_grid() {
    return {__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
            __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
            __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z()};
}
#define threadIdx tack_thread()
#define blockIdx tack_block()
#define blockDim tack_size()
#define gridDim tack_grid()

#define TACK_MATH_1(name)                                                                                          \
    extern "C" __device__ float name##f(float) noexcept;                                                           \
    extern "C" __device__ double name(double) noexcept;
#define TACK_MATH_2(name)                                                                                          \
    extern "C" __device__ float name##f(float, float) noexcept;                                                    \
    extern "C" __device__ double name(double, double) noexcept;
TACK_MATH_1(sqrt) TACK_MATH_1(cbrt) TACK_MATH_1(fabs) TACK_MATH_1(floor) TACK_MATH_1(ceil) TACK_MATH_1(rint)
TACK_MATH_1(trunc) TACK_MATH_1(sin) TACK_MATH_1(cos) TACK_MATH_1(tan) TACK_MATH_1(asin) TACK_MATH_1(acos)
TACK_MATH_1(atan) TACK_MATH_1(sinh) TACK_MATH_1(cosh) TACK_MATH_1(tanh) TACK_MATH_1(exp) TACK_MATH_1(exp2)
TACK_MATH_1(expm1) TACK_MATH_1(log) TACK_MATH_1(log2) TACK_MATH_1(log10) TACK_MATH_1(log1p) TACK_MATH_1(erf)
TACK_MATH_1(erfc) TACK_MATH_1(rsqrt) TACK_MATH_2(atan2) TACK_MATH_2(hypot) TACK_MATH_2(pow) TACK_MATH_2(fmod)
TACK_MATH_2(copysign) TACK_MATH_2(fmin) TACK_MATH_2(fmax)
extern "C" __device__ float fmaf(float, float, float) noexcept;
extern "C" __device__ double fma(double, double, double) noexcept;

template <class T> static __device__ inline bool isnan(T x) { return __builtin_isnan(x); }
template <class T> static __device__ inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T> static __device__ inline bool isfinite(T x) { return __builtin_isfinite(x); }

#define TACK_EACH(T)                                                                                               \
    static __device__ inline T min(T a, T b) { return b < a ? b : a; }                                             \
    static __device__ inline T max(T a, T b) { return b > a ? b : a; }
TACK_EACH(int) TACK_EACH(unsigned) TACK_EACH(long long) TACK_EACH(unsigned long long)

static __device__ inline int __popc(unsigned x) { return __builtin_popcount(x); }
static __device__ inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static __device__ inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static __device__ inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
static __device__ inline unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
static __device__ inline unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
static __device__ inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
static __device__ inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
static __device__ inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
static __device__ inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

static __device__ inline void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
static __device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
template <class T> __device__ T __shfl_down(T value, unsigned distance, int width);
#define TACK_SWAP(T)                                                                                               \
    static __device__ inline T atomicCAS(T *address, T expected, T value) {                                        \
        __hip_atomic_compare_exchange_strong(address, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,        \
                                             __HIP_MEMORY_SCOPE_AGENT);                                            \
        return expected;                                                                                           \
    }
TACK_SWAP(unsigned) TACK_SWAP(unsigned long long)
typedef struct tack_texture *hipTextureObject_t;
template <class T> __device__ T tex3D(hipTextureObject_t texture, float x, float y, float z);
