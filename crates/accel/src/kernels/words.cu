// The words of the kernels in CUDA, and in the C++ of `emulate.cpp`. `words.cl` has the same words in OpenCL C.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define FUNCTION __device__
#define INLINE __device__ __forceinline__

// A kernel's parameters, as a function takes them and as it passes them on. Addresses in P are the device's own.
#define KERNEL(name) extern "C" __global__ void name(const Params P, u32 which)
#define PARAMS const Params& P
#define ARGS P
#define AT(type, place) ((type*)(place))
#define PLACE(pointer) ((u64)(pointer))

// Kinds of memory: the device's, a block of threads', the program's. A pointer to any of them is the same here.
#define GLOBAL
#define LOCAL
#define CONSTANT
#define DECLARE_LOCAL __shared__
#define DECLARE_CONSTANT __device__ const

// Memory of a block of threads whose length the host gives.
#ifdef EMULATED
alignas(16) static u64 own_memory[8192];
#else
extern __shared__ u64 own_memory[];
#endif

#define THREAD_OF_BLOCK threadIdx.x
#define THREADS_OF_BLOCK blockDim.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define LANE (THREAD_OF_BLOCK & 31u)

#define sync_block() __syncthreads()
#define sync_warp() __syncwarp()
#define lane_get(x, lane) __shfl_sync(0xffffffffu, x, lane)
#define lane_up(x, by) __shfl_up_sync(0xffffffffu, x, by)
#define lane_down(x, by) __shfl_down_sync(0xffffffffu, x, by)
#define lanes_where(holds) __ballot_sync(0xffffffffu, holds)
#define lanes_like(x) __match_any_sync(0xffffffffu, x)

#define add_to(at, x) atomicAdd(at, x)
#define raise_to(at, x) atomicMax(at, x)
#define exchange_if(at, expected, x) atomicCAS(at, expected, x)

#define bits_in(x) ((u32)__popc(x))
#define leading_zeros(x) ((u32)__clz((int)(x)))
// Of words that are not 0.
#define lowest_bit(x) ((u32)__ffs((int)(x)) - 1)
#define lowest_bit64(x) ((u32)__ffsll((long long)(x)) - 1)
#define swap32(x) __byte_perm(x, 0, 0x0123)
#define funnel_right(low, high, by) __funnelshift_r(low, high, by)
#define high_product(a, b) __umul64hi(a, b)

