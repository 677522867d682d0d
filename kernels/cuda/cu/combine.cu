// target = target op source, target = target / divisor, and target = (term_0 op term_1 op ..) / divisor, over jobs of rows.
// For a norm, p is the exponent; other ops have none.

template <int W>
struct Items {
    static const int COUNT = W / (int)sizeof(Item);
    Item item[COUNT];
};

template <int W, int UNROLL, Op OP>
__device__ __forceinline__ void combine(const Job &job, double p, const char *source, char *target) {
    typedef typename Unit<W>::type U;
    U unit[UNROLL];
    U old[UNROLL];
    long long to[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (blockIdx.x * UNROLL + k) * THREADS + threadIdx.x;
        if (i < job.count) {
            long long from = job.source;
            to[k] = job.target;
            place(job, 0, i, from, to[k]);
            unit[k] = *(const U *)(source + from);
            old[k] = *(const U *)(target + to[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (blockIdx.x * UNROLL + k) * THREADS + threadIdx.x;
        if (i < job.count) {
            Items<W> a = __builtin_bit_cast(Items<W>, old[k]);
            Items<W> b = __builtin_bit_cast(Items<W>, unit[k]);
#pragma unroll
            for (int j = 0; j < Items<W>::COUNT; ++j) {
                a.item[j] = combined<OP>(a.item[j], b.item[j], p);
            }
            *(U *)(target + to[k]) = __builtin_bit_cast(U, a);
        }
    }
}

// Reduces partial values with equal nests: partial value t of a unit is `bases[t]` bytes further in the
// source. They are combined in order, and the result is divided if the divisor is not 1.
template <int W, int UNROLL, Op OP>
__device__ __forceinline__ void reduce(
    const Job &job, const long long *bases, u32 terms, double divisor, double p, const char *source, char *target
) {
    typedef typename Unit<W>::type U;
    Items<W> sum[UNROLL];
    long long from[UNROLL];
    long long to[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (blockIdx.x * UNROLL + k) * THREADS + threadIdx.x;
        from[k] = job.source;
        to[k] = job.target;
        if (i < job.count) {
            place(job, 0, i, from[k], to[k]);
            sum[k] = __builtin_bit_cast(Items<W>, *(const U *)(source + bases[0] + from[k]));
        }
    }
    for (u32 t = 1; t < terms; ++t) {
        const char *term = source + bases[t];
        U unit[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            u32 i = (blockIdx.x * UNROLL + k) * THREADS + threadIdx.x;
            if (i < job.count) {
                unit[k] = *(const U *)(term + from[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            Items<W> next = __builtin_bit_cast(Items<W>, unit[k]);
#pragma unroll
            for (int j = 0; j < Items<W>::COUNT; ++j) {
                sum[k].item[j] = combined<OP>(sum[k].item[j], next.item[j], p);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (blockIdx.x * UNROLL + k) * THREADS + threadIdx.x;
        if (i < job.count) {
#if ELEMENT >= ELEMENT_F16
            if (divisor != 1.0) {
#pragma unroll
                for (int j = 0; j < Items<W>::COUNT; ++j) {
                    sum[k].item[j] = divided(sum[k].item[j], divisor);
                }
            }
#endif
            *(U *)(target + to[k]) = __builtin_bit_cast(U, sum[k]);
        }
    }
}

#define REDUCE(NAME, W, UNROLL, OP) \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) reshard_##NAME( \
        const __grid_constant__ Job job, const long long *__restrict__ bases, u32 terms, double divisor, \
        const char *__restrict__ source, char *__restrict__ target \
    ) { \
        reduce<W, UNROLL, OP>(job, bases, terms, divisor, 0.0, source, target); \
    }

#define COMBINE(NAME, W, UNROLL, OP) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
        reshard_##NAME(const __grid_constant__ Job job, const char *__restrict__ source, char *__restrict__ target) { \
        combine<W, UNROLL, OP>(job, 0.0, source, target); \
    }
#define COMBINES(W, UNROLL) \
    COMBINE(sum_##W, W, UNROLL, SUM) \
    COMBINE(prod_##W, W, UNROLL, PROD) \
    COMBINE(min_##W, W, UNROLL, MIN) \
    COMBINE(max_##W, W, UNROLL, MAX) \
    REDUCE(sum_terms_##W, W, UNROLL, SUM) \
    REDUCE(prod_terms_##W, W, UNROLL, PROD) \
    REDUCE(min_terms_##W, W, UNROLL, MIN) \
    REDUCE(max_terms_##W, W, UNROLL, MAX) \
    FLOATS(W, UNROLL)

#if ELEMENT >= ELEMENT_F16
#define FLOATS(W, UNROLL) \
    DIVIDE(W, UNROLL) \
    NORM_KERNELS(W, UNROLL)
#define NORM_KERNELS(W, UNROLL) \
    extern "C" __global__ void __launch_bounds__(THREADS) reshard_norm_##W( \
        const __grid_constant__ Job job, double p, const char *__restrict__ source, char *__restrict__ target \
    ) { \
        combine<W, UNROLL, NORM>(job, p, source, target); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) reshard_norm_terms_##W( \
        const __grid_constant__ Job job, const long long *__restrict__ bases, u32 terms, double p, \
        const char *__restrict__ source, char *__restrict__ target \
    ) { \
        reduce<W, UNROLL, NORM>(job, bases, terms, 1.0, p, source, target); \
    }
#define DIVIDE(W, UNROLL) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
        reshard_divide_##W(const __grid_constant__ Job job, double divisor, char *__restrict__ target) { \
        divide<W, UNROLL>(job, divisor, target); \
    }
template <int W, int UNROLL>
__device__ __forceinline__ void divide(const Job &job, double divisor, char *target) {
    typedef typename Unit<W>::type U;
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (blockIdx.x * UNROLL + k) * THREADS + threadIdx.x;
        if (i < job.count) {
            long long from = job.source;
            long long to = job.target;
            place(job, 0, i, from, to);
            Items<W> a = __builtin_bit_cast(Items<W>, *(const U *)(target + to));
#pragma unroll
            for (int j = 0; j < Items<W>::COUNT; ++j) {
                a.item[j] = divided(a.item[j], divisor);
            }
            *(U *)(target + to) = __builtin_bit_cast(U, a);
        }
    }
}
#else
#define FLOATS(W, UNROLL)
#endif

#if ELEMENT <= ELEMENT_I8
COMBINES(1, 8)
#endif
#if ELEMENT <= ELEMENT_I16 || ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
COMBINES(2, 8)
#endif
#if ELEMENT <= ELEMENT_I32 || (ELEMENT >= ELEMENT_F16 && ELEMENT <= ELEMENT_F32)
COMBINES(4, 4)
#endif
COMBINES(8, 4)
COMBINES(16, 2)
