// Copies between two layouts.

// Units of W bytes, a block of which takes THREADS * UNROLL. All loads are under way before the first store.
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

// Tiles of T x T units of W bytes, T = K * N, moved in words of K units both ways.
//
// A thread reads K words below each other, K x K units, transposes them in registers and stores them into the tile as K
// words. Word x of a row of the tile holds units x*K .. of the target's contiguous dim; the row of column c of the source is
// c / K + N * (c % K), so that neighbouring threads store to neighbouring rows. Rows are N + 1 words apart, hence neither
// side has bank conflicts: a phase of 128 bytes stores at (N + 1) * lane + const and reads at lane + const, in words.
template <int W, int K, int N>
__device__ __forceinline__ void transpose(const Job &job, u32 block, const char *source, char *target, char *shared) {
    typedef typename Unit<W>::type U;
    typedef typename Unit<W * K>::type Word;
    const u32 T = K * N;
    const u32 STEP = THREADS / N;
    Word *tile = (Word *)shared;
    const Loop &across = job.loop[0];
    const Loop &down = job.loop[1];
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
                tile[(x + N * j) * (N + 1) + y + m] = out[j];
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
                        tile[(y + m + N * j) * (N + 1) + x];
                }
            }
        }
    }
}

// The largest tile: 128 rows of 33 words of 4 bytes, or 64 of 17 words of 16 bytes.
#define TILE_BYTES 17408

// Every kind of copy: its number, its name, what it runs.
#define FOR_EACH_KIND(DO) \
    DO(0, rows_1, (rows<1, 8>(job, block, source, target))) \
    DO(1, rows_2, (rows<2, 8>(job, block, source, target))) \
    DO(2, rows_4, (rows<4, 8>(job, block, source, target))) \
    DO(3, rows_8, (rows<8, 4>(job, block, source, target))) \
    DO(4, rows_16, (rows<16, 4>(job, block, source, target))) \
    DO(5, transpose_1, (transpose<1, 1, 32>(job, block, source, target, shared))) \
    DO(6, transpose_2, (transpose<2, 1, 32>(job, block, source, target, shared))) \
    DO(7, transpose_4, (transpose<4, 1, 32>(job, block, source, target, shared))) \
    DO(8, transpose_8, (transpose<8, 1, 32>(job, block, source, target, shared))) \
    DO(9, transpose_16, (transpose<16, 1, 16>(job, block, source, target, shared))) \
    DO(10, transpose_1x4, (transpose<1, 4, 32>(job, block, source, target, shared))) \
    DO(11, transpose_2x4, (transpose<2, 4, 16>(job, block, source, target, shared))) \
    DO(12, transpose_4x4, (transpose<4, 4, 16>(job, block, source, target, shared))) \
    DO(13, transpose_8x2, (transpose<8, 2, 16>(job, block, source, target, shared)))

// One job.
#define ALONE(NUMBER, NAME, BODY) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
        reshard_##NAME(const __grid_constant__ Job job, const char *__restrict__ source, char *__restrict__ target) { \
        __shared__ __align__(16) char shared[TILE_BYTES]; \
        (void)shared; \
        const u32 block = blockIdx.x; \
        BODY; \
    }
FOR_EACH_KIND(ALONE)

// Many jobs in one launch: block b belongs to the last job whose first block is not above it.
// Four blocks a multiprocessor leave the registers that all paths together need.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    reshard_copy_jobs(const Job *__restrict__ jobs, u32 count, const char *__restrict__ source, char *__restrict__ target) {
    __shared__ __align__(16) char shared[TILE_BYTES];
    u32 low = 0;
    u32 high = count;
    while (high - low > 1) {
        u32 middle = low + (high - low) / 2;
        if (jobs[middle].first_block <= blockIdx.x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const Job &job = jobs[low];
    const u32 block = blockIdx.x - job.first_block;
#define CASE(NUMBER, NAME, BODY) \
    case NUMBER: \
        BODY; \
        break;
    switch (job.kind) { FOR_EACH_KIND(CASE) }
}
