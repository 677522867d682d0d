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

// Words of a thread.
#define RUNS_UNROLL 2

// Runs of `columns` bytes at any address, in words of 16 bytes of the target, the loop that goes fastest.
//
// A run touches at most loop[0].extent words; the first and the last may be the run's in part. A whole word is read by one
// access of 16 bytes where source and target are misaligned alike, else by four or five of 4 bytes, which a funnel shift
// puts together; what would reach out of the run, and words in part, go byte by byte. All loads come before the stores.
template <int UNROLL>
__device__ __forceinline__ void runs(const Job &job, u32 block, const char *source, char *target) {
    u32 raw[UNROLL][5];
    char *word[UNROLL];
    // The bytes of a word that are the run's, and how many the words read begin before it.
    u32 first[UNROLL];
    u32 end[UNROLL];
    u32 shift[UNROLL];
    const JobLoop &words = job.loop[0];
    const long long length = job.columns;
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        u32 i = (block * UNROLL + k) * THREADS + threadIdx.x;
        first[k] = end[k] = shift[k] = 0;
        if (i < job.count) {
            u32 rest = (__umulhi(i, words.magic) + i) >> words.shift;
            long long from = job.source;
            long long to = job.target;
            place(job, 1, rest, from, to);
            u32 lead = (u32)(u64)(target + to) & 15;
            // Where in the run the word begins.
            long long begin = (long long)(i - rest * words.extent) * 16 - lead;
            const char *at = source + (from + begin);
            word[k] = target + (to + begin);
            first[k] = begin < 0 ? lead : 0;
            long long left = length - begin;
            end[k] = left >= 16 ? 16 : left > 0 ? (u32)left : 0;
            bool whole = first[k] == 0 && end[k] == 16;
            u32 before = (u32)(u64)at & 3;
            if (whole && ((u64)at & 15) == 0) {
                uint4 unit = *(const uint4 *)at;
                raw[k][0] = unit.x;
                raw[k][1] = unit.y;
                raw[k][2] = unit.z;
                raw[k][3] = unit.w;
            } else if (whole && (before == 0 || (begin >= before && begin - before + 20 <= length))) {
                const u32 *part = (const u32 *)(at - before);
                raw[k][0] = part[0];
                raw[k][1] = part[1];
                raw[k][2] = part[2];
                raw[k][3] = part[3];
                if (before) {
                    raw[k][4] = part[4];
                }
                shift[k] = 8 * before;
            } else {
                raw[k][0] = raw[k][1] = raw[k][2] = raw[k][3] = 0;
#pragma unroll
                for (u32 j = 0; j < 16; ++j) {
                    if (first[k] <= j && j < end[k]) {
                        raw[k][j / 4] |= (u32)*(const unsigned char *)(at + j) << 8 * (j % 4);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        if (first[k] == 0 && end[k] == 16) {
            uint4 unit;
            unit.x = __funnelshift_r(raw[k][0], raw[k][1], shift[k]);
            unit.y = __funnelshift_r(raw[k][1], raw[k][2], shift[k]);
            unit.z = __funnelshift_r(raw[k][2], raw[k][3], shift[k]);
            unit.w = __funnelshift_r(raw[k][3], raw[k][4], shift[k]);
            *(uint4 *)word[k] = unit;
        } else {
#pragma unroll
            for (u32 j = 0; j < 16; ++j) {
                if (first[k] <= j && j < end[k]) {
                    word[k][j] = (char)(raw[k][j / 4] >> 8 * (j % 4));
                }
            }
        }
    }
}

// Where in the tile a word of S bytes is stored and loaded. TILE_PAD comes before this text: how many words rows of S bytes
// a word are apart beyond their own.
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

// Tiles of T x T units of W bytes, T = K * N, moved in words of K units both ways.
//
// A thread reads K words below each other, K x K units, transposes them in registers and stores them into the tile as K
// words. Word x of a row of the tile holds units x*K .. of the target's contiguous dim; the row of column c of the source is
// c / K + N * (c % K), so that neighbouring threads store to neighbouring rows. Rows are as far apart as TILE_ROW says, so
// that neither side has bank conflicts: a phase of 128 bytes stores at row * lane + const and reads at lane + const, in words.
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
    DO(13, transpose_8x2, (transpose<8, 2, 16>(job, block, source, target, shared))) \
    DO(14, runs, (runs<RUNS_UNROLL>(job, block, source, target)))

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
