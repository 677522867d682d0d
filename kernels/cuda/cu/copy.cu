// Copies between two layouts.

// Copies units of W bytes; a block takes THREADS * UNROLL. All loads are issued before the first store.
template <int W, int UNROLL>
__device__ __forceinline__ void rows(const Job &job, u32 block, const char *source, char *target) {
    typedef typename Unit<W>::type U;
    U unit[UNROLL];
    long long to[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (block * UNROLL + k) * THREADS + threadIdx.x;
        if (i < job.count) {
            long long from = job.source;
            to[k] = job.target;
            place(job, 0, i, from, to[k]);
            unit[k] = *(const U *)(source + from);
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (block * UNROLL + k) * THREADS + threadIdx.x;
        if (i < job.count) {
            *(U *)(target + to[k]) = unit[k];
        }
    }
}

// Words per thread.
#define RUNS_UNROLL 2

// Copies runs of `columns` bytes at any multiple of W, in words of 16 bytes of the target, which are the
// fastest loop.
//
// A run touches at most loop[0].extent words; it may cover the first and the last only in part. A whole word
// is read by one access of 16 bytes if source and target are equally misaligned. Otherwise, units of fewer
// than 4 bytes come from five words of 4 bytes, which a funnel shift combines, unless those would leave the
// run. The rest is copied unit by unit. All loads come before the stores.
template <int W, int UNROLL>
__device__ __forceinline__ void runs(const Job &job, u32 block, const char *source, char *target) {
    typedef typename Unit<W>::type U;
    union Word {
        uint4 all;
        u32 part[4];
        U unit[16 / W];
    };
    Word raw[UNROLL];
    char *word[UNROLL];
    // The bytes of a word that belong to the run.
    u32 first[UNROLL];
    u32 end[UNROLL];
    const JobLoop &words = job.loop[0];
    const long long length = job.columns;
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (block * UNROLL + k) * THREADS + threadIdx.x;
        first[k] = end[k] = 0;
        if (i < job.count) {
            u32 rest = (__umulhi(i, words.magic) + i) >> words.shift;
            long long from = job.source;
            long long to = job.target;
            place(job, 1, rest, from, to);
            u32 lead = (u32)(u64)(target + to) & 15;
            // The offset in the run at which the word begins.
            long long begin = (long long)(i - rest * words.extent) * 16 - lead;
            const char *at = source + (from + begin);
            word[k] = target + (to + begin);
            first[k] = begin < 0 ? lead : 0;
            long long left = length - begin;
            end[k] = left >= 16 ? 16 : left > 0 ? (u32)left : 0;
            bool whole = first[k] == 0 && end[k] == 16;
            u32 before = (u32)(u64)at & 3;
            if (whole && ((u64)at & 15) == 0) {
                raw[k].all = *(const uint4 *)at;
            } else if (W < 4 && whole && begin >= before && begin - before + 20 <= length) {
                const u32 *part = (const u32 *)(at - before);
                u32 low = part[0];
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    u32 high = part[j + 1];
                    raw[k].part[j] = __funnelshift_r(low, high, 8 * before);
                    low = high;
                }
            } else {
#pragma unroll
                for (u32 j = 0; j < 16; j += W) {
                    if (first[k] <= j && j < end[k]) {
                        raw[k].unit[j / W] = *(const U *)(at + j);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        if (first[k] == 0 && end[k] == 16) {
            *(uint4 *)word[k] = raw[k].all;
        } else {
#pragma unroll
            for (u32 j = 0; j < 16; j += W) {
                if (first[k] <= j && j < end[k]) {
                    *(U *)(word[k] + j) = raw[k].unit[j / W];
                }
            }
        }
    }
}

// The offset in the tile at which a word of S bytes is stored and loaded. The host prepends TILE_PAD to this
// text: the padding, in words, between rows of words of S bytes.
#ifndef PLANT_BANK_CONFLICTS
#define TILE_ROW(S, N) ((N) + TILE_PAD(S))
#else
#define TILE_ROW(S, N) (N)
#endif
template <int S, int N>
__device__ __forceinline__ u32 stored_at(u32 x, u32 y, u32 j) {
    return (x + N * j) * TILE_ROW(S, N) + y;
}
template <int S, int N>
__device__ __forceinline__ u32 loaded_at(u32 x, u32 y, u32 j) {
    return (y + N * j) * TILE_ROW(S, N) + x;
}

// Copies tiles of T x T units of W bytes, T = K * N, in words of K units for both loads and stores.
//
// A thread reads K consecutive rows of a word each, K x K units, transposes them in registers and stores them
// into the tile as K words. Word x of a row of the tile holds units x*K .. of the target's contiguous dim.
// The row of column c of the source is c / K + N * (c % K), so that neighbouring threads store to
// neighbouring rows. TILE_ROW is the distance of rows, such that neither side has bank conflicts: a phase of
// 128 bytes stores at row * lane + const and reads at lane + const, in words.
template <int W, int K, int N>
__device__ __forceinline__ void transpose(const Job &job, u32 block, const char *source, char *target, char *shared) {
    typedef typename Unit<W>::type U;
    typedef typename Unit<W * K>::type Word;
    const u32 T = K * N;
    const u32 STEP = THREADS / N;
    Word *tile = (Word *)shared;
    const JobLoop &across = job.loop[0];
    const JobLoop &down = job.loop[1];
    u32 rest = (__umulhi(block, across.magic) + block) >> across.shift;
    u32 column0 = (block - rest * across.extent) * T;
    u32 outer = (__umulhi(rest, down.magic) + rest) >> down.shift;
    u32 row0 = (rest - outer * down.extent) * T;
    long long from = job.source;
    long long to = job.target;
    place(job, 2, outer, from, to);
    const u32 x = threadIdx.x % N;
    const u32 y = threadIdx.x / N;
    {
        u32 column = column0 + x * K;
#pragma unroll
        for (u32 m = 0; m < N; m += STEP) {
            Word in[K];
            Word out[K];
#pragma unroll
            for (int i = 0; i < K; ++i) {
                u32 row = row0 + (y + m) * K + i;
                if (row < job.rows && column < job.columns) {
                    in[i] = *(const Word *)(source + from + row * job.row_source + (long long)column * W);
                }
            }
#pragma unroll
            for (int i = 0; i < K; ++i) {
#pragma unroll
                for (int j = 0; j < K; ++j) {
                    ((U *)&out[j])[i] = ((U *)&in[i])[j];
                }
            }
#pragma unroll
            for (int j = 0; j < K; ++j) {
                tile[stored_at<W * K, N>(x, y + m, j)] = out[j];
            }
        }
    }
#ifndef PLANT_MISSING_BARRIER
    __syncthreads();
#endif
    {
        u32 row = row0 + x * K;
#pragma unroll
        for (u32 m = 0; m < N; m += STEP) {
#pragma unroll
            for (int j = 0; j < K; ++j) {
                u32 column = column0 + (y + m) * K + j;
                if (row < job.rows && column < job.columns) {
                    *(Word *)(target + to + column * job.column_target + (long long)row * W) =
                        tile[loaded_at<W * K, N>(x, y + m, j)];
                }
            }
        }
    }
}

// The size of the largest tile: 128 rows of 33 words of 4 bytes, or 64 of 17 words of 16 bytes.
#define TILE_BYTES 17408

// Every kind of copy: its number, its name, its code. The number of units per thread of rows was measured:
// without a batch, those of 16 bytes are fastest with one; in a batch, a block that has found its job should
// have enough work.
#define FOR_EACH_KIND(DO) \
    DO(0, rows_1, (rows<1, BATCH ? 4 : 1>(job, block, source, target))) \
    DO(1, rows_2, (rows<2, BATCH ? 4 : 1>(job, block, source, target))) \
    DO(2, rows_4, (rows<4, 4>(job, block, source, target))) \
    DO(3, rows_8, (rows<8, 4>(job, block, source, target))) \
    DO(4, rows_16, (rows<16, BATCH ? 4 : 1>(job, block, source, target))) \
    DO(5, transpose_1, (transpose<1, 1, 32>(job, block, source, target, shared))) \
    DO(6, transpose_2, (transpose<2, 1, 32>(job, block, source, target, shared))) \
    DO(7, transpose_4, (transpose<4, 1, 32>(job, block, source, target, shared))) \
    DO(8, transpose_8, (transpose<8, 1, 32>(job, block, source, target, shared))) \
    DO(9, transpose_16, (transpose<16, 1, 16>(job, block, source, target, shared))) \
    DO(10, transpose_1x4, (transpose<1, 4, 32>(job, block, source, target, shared))) \
    DO(11, transpose_2x4, (transpose<2, 4, 16>(job, block, source, target, shared))) \
    DO(12, transpose_4x4, (transpose<4, 4, 16>(job, block, source, target, shared))) \
    DO(13, transpose_8x2, (transpose<8, 2, 16>(job, block, source, target, shared))) \
    DO(14, runs_1, (runs<1, RUNS_UNROLL>(job, block, source, target))) \
    DO(15, runs_2, (runs<2, RUNS_UNROLL>(job, block, source, target))) \
    DO(16, runs_4, (runs<4, RUNS_UNROLL>(job, block, source, target)))

// The kernel of one job.
#define ALONE(NUMBER, NAME, BODY) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
        reshard_##NAME(const __grid_constant__ Job job, const char *__restrict__ source, char *__restrict__ target) { \
        __shared__ __align__(16) char shared[TILE_BYTES]; \
        (void)shared; \
        const bool BATCH = false; \
        (void)BATCH; \
        const u32 block = blockIdx.x; \
        BODY; \
    }
FOR_EACH_KIND(ALONE)

// Returns the job of this block: the last one whose first block is not above it. The first blocks of all jobs
// follow the jobs. All threads search in parallel, so that 256 jobs take one access, and 65,536 two.
__device__ __forceinline__ u32 job_of_block(const Job *jobs, u32 count) {
    const u32 *first = (const u32 *)(jobs + count);
    u32 low = 0;
    u32 span = count;
    for (;;) {
        u32 step = (span + THREADS - 1) / THREADS;
        u32 at = threadIdx.x * step;
        u32 begun = (u32)__syncthreads_count(at < span && first[low + at] <= blockIdx.x);
        low += (begun - 1) * step;
        if (step == 1) {
            return low;
        }
        span = step < count - low ? step : count - low;
    }
}

// Many jobs in one launch. A job is read once, by all threads jointly, since its numbers are needed many
// times. Four blocks per multiprocessor leave the registers that all code paths need in total.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    reshard_copy_jobs(const Job *__restrict__ jobs, u32 count, const char *__restrict__ source, char *__restrict__ target) {
    __shared__ __align__(16) char shared[TILE_BYTES];
    __shared__ __align__(16) Job job;
    const bool BATCH = true;
    const u32 *of = (const u32 *)(jobs + job_of_block(jobs, count));
    if (threadIdx.x < sizeof(Job) / sizeof(u32)) {
        ((u32 *)&job)[threadIdx.x] = of[threadIdx.x];
    }
    __syncthreads();
    const u32 block = blockIdx.x - job.first_block;
#define CASE(NUMBER, NAME, BODY) \
    case NUMBER: \
        BODY; \
        break;
    switch (job.kind) { FOR_EACH_KIND(CASE) }
}
