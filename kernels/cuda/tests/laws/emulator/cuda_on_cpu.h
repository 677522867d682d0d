// CUDA C++ on a CPU, for tests: every thread of a block is a fiber, so that __syncthreads is a real barrier, and blocks run
// in sequence. Threads run in ascending or descending order between barriers, which exposes races.
// Not supported: shuffles, inline PTX, asynchronous copies; kernels exclude them by ON_CPU.

#pragma once
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define ON_CPU 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// Blocks run in sequence, so one copy serves all.
#define __shared__ static
#define __restrict__

struct uint2 {
    alignas(8) unsigned x;
    unsigned y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct Dim {
    unsigned x = 1, y = 1, z = 1;
};
static Dim threadIdx, blockIdx, blockDim, gridDim;

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
template <typename To, typename From>
inline To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To y;
    memcpy(&y, &x, sizeof x);
    return y;
}
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __fma_rn(double x, double a, double b) { return fma(x, a, b); }
inline float __fmaf_rn(float x, float a, float b) { return fmaf(x, a, b); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }

namespace fibers {
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
};
static std::vector<Fiber *> all;
static ucontext_t scheduler;
static Fiber *current;
static void (*body)(void *);
static void *argument;

static void enter() {
    body(argument);
    current->done = true;
    swapcontext(&current->context, &scheduler);
}

// Runs the threads of one block until all have ended.
static void block(unsigned threads, bool descending, void (*what)(void *), void *with) {
    body = what;
    argument = with;
    while (all.size() < threads) {
        Fiber *fiber = new Fiber;
        fiber->stack.resize(64 << 10);
        all.push_back(fiber);
    }
    for (unsigned i = 0; i < threads; ++i) {
        Fiber *fiber = all[i];
        fiber->done = false;
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack.data();
        fiber->context.uc_stack.ss_size = fiber->stack.size();
        fiber->context.uc_link = &scheduler;
        makecontext(&fiber->context, enter, 0);
    }
    for (bool left = true; left;) {
        left = false;
        for (unsigned k = 0; k < threads; ++k) {
            unsigned i = descending ? threads - 1 - k : k;
            if (all[i]->done) {
                continue;
            }
            current = all[i];
            threadIdx.x = i;
            swapcontext(&scheduler, &current->context);
            left |= !current->done;
        }
    }
}
}  // namespace fibers

inline void __syncthreads() {
    fibers::Fiber *mine = fibers::current;
    swapcontext(&mine->context, &fibers::scheduler);
}
// The number of threads whose argument is not 0.
inline int __syncthreads_count(int mine) {
    static int count, seen;
    count += mine != 0;
    __syncthreads();
    int all = count;
// The last thread that has read the count resets it for the next call.
    if (++seen == (int)blockDim.x) {
        count = seen = 0;
    }
    __syncthreads();
    return all;
}
