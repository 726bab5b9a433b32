// The words of the kernels in OpenCL C 1.2. `words.cu` has the same words in CUDA.
//
// OpenCL C 1.2 has no warps: lanes meet in memory of the block of threads, at barriers that all of its threads reach. A
// kernel whose warps take different ways runs with blocks of one warp (`Step::lone_warps`).

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;

#define FUNCTION
#define INLINE

// A kernel's parameters, as a function takes them and as it passes them on. Addresses in P are offsets in the arena: a
// buffer may lie elsewhere in the next launch.
#define KERNEL(name) \
    __kernel void name(__global u8* arena, __constant Params* params, u32 which, __local u64* lanes, __local u64* own_memory)
#define PARAMS __global u8* arena, __constant Params* params, __local u64* lanes
#define ARGS arena, params, lanes
#define P (*params)
#define AT(type, place) ((__global type*)(arena + (place)))
#define PLACE(pointer) ((u64)((pointer) - arena))

#define GLOBAL __global
#define LOCAL __local
#define CONSTANT __constant
#define DECLARE_LOCAL __local
#define DECLARE_CONSTANT __constant

#define THREAD_OF_BLOCK ((u32)get_local_id(0))
#define THREADS_OF_BLOCK ((u32)get_local_size(0))
#define BLOCK ((u32)get_group_id(0))
#define BLOCKS ((u32)get_num_groups(0))
#define LANE (THREAD_OF_BLOCK & 31u)

#define sync_block() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define sync_warp() sync_block()
#define lane_get(x, lane) lane_value(lanes, x, lane)
#define lane_up(x, by) lane_value(lanes, x, LANE < (by) ? LANE : LANE - (by))
#define lane_down(x, by) lane_value(lanes, x, LANE + (by) < 32 ? LANE + (by) : LANE)
#define lanes_where(holds) lanes_that_hold(lanes, holds)
#define lanes_like(x) lanes_that_equal(lanes, x)

u64 lane_value(__local u64* lanes, u64 x, u32 lane) {
    __local u64* warp = lanes + (THREAD_OF_BLOCK & ~31u);
    warp[LANE] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    u64 value = warp[lane & 31u];
    barrier(CLK_LOCAL_MEM_FENCE);
    return value;
}

// The lanes whose word is `wanted`. Each lane has a word of its own, and may look for another one.
u32 lanes_with(__local u64* lanes, u64 word, u64 wanted) {
    __local u64* warp = lanes + (THREAD_OF_BLOCK & ~31u);
    warp[LANE] = word;
    barrier(CLK_LOCAL_MEM_FENCE);
    u32 found = 0;
    for (u32 i = 0; i < 32; i++) found |= (u32)(warp[i] == wanted) << i;
    barrier(CLK_LOCAL_MEM_FENCE);
    return found;
}

u32 lanes_that_equal(__local u64* lanes, u32 x) { return lanes_with(lanes, x, x); }

u32 lanes_that_hold(__local u64* lanes, bool holds) { return lanes_with(lanes, holds, 1); }

#define add_to(at, x) atomic_add(at, x)
#define raise_to(at, x) atomic_max(at, x)
#define exchange_if(at, expected, x) atomic_cmpxchg(at, expected, x)

#define bits_in(x) popcount(x)
#define leading_zeros(x) clz((u32)(x))
// Of words that are not 0.
#define lowest_bit(x) (31u - clz((u32)(x) & (0u - (u32)(x))))
#define lowest_bit64(x) ((u32)(63u - clz((u64)(x) & ((u64)0 - (u64)(x)))))
#define swap32(x) as_uint(as_uchar4((u32)(x)).wzyx)
#define funnel_right(low, high, by) ((u32)(((u64)(high) << 32 | (low)) >> ((by) & 31u)))
#define high_product(a, b) mul_hi((u64)(a), (u64)(b))

