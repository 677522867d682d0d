// The description of one launch or of one part of it; filled in on the host, where Rust's `Job` has the same
// fields.
//
// A job of rows copies `count` units of W bytes. Unit i is at the mixed-radix digits of i over the loops,
// fastest first:
//
//     source + sum_k digit_k(i) * loop[k].source     ->     target + sum_k digit_k(i) * loop[k].target        (bytes)
//
// A job of runs copies runs of `columns` bytes: its first loop counts the words of 16 bytes that a run can
// touch in the target, the others are as those of rows.
//
// A job of a transpose has a tile of T x T units at each index; its first two loops count tiles along the source's and
// the target's contiguous dim, and the others are a batch.

typedef unsigned int u32;
typedef unsigned long long u64;

#define MAX_LOOPS 10
#define THREADS 256

struct JobLoop {
    u32 extent;
    // n / extent == (umulhi(n, magic) + n) >> shift for n < 2^31
    u32 magic;
    u32 shift;
    u32 unused;
    long long source;
    long long target;
};

struct Job {
    long long source;
    long long target;
    // The stride in the source of the target's contiguous dim, and in the target of the source's (transposes only).
    long long row_source;
    long long column_target;
    u32 kind;
    u32 first_block;
    u32 count;
    u32 loops;
    // Extents in units of the target's contiguous dim and of the source's (transposes); bytes of a run (runs).
    u32 rows;
    u32 columns;
    u32 unused[2];
    JobLoop loop[MAX_LOOPS];
};

template <int W> struct Unit;
template <> struct Unit<1> { typedef unsigned char type; };
template <> struct Unit<2> { typedef unsigned short type; };
template <> struct Unit<4> { typedef u32 type; };
template <> struct Unit<8> { typedef uint2 type; };
template <> struct Unit<16> { typedef uint4 type; };

// Adds the offsets of index i to both offsets.
__device__ __forceinline__ void place(const Job &job, u32 first, u32 i, long long &source, long long &target) {
#ifndef ELEMENT
    // There are few loops, and registers are the scarce resource of batches of copies.
#pragma unroll 1
#endif
    for (u32 k = first; k < job.loops; ++k) {
        const JobLoop &l = job.loop[k];
        u32 quotient = (__umulhi(i, l.magic) + i) >> l.shift;
        long long digit = i - quotient * l.extent;
        source += digit * l.source;
        target += digit * l.target;
        i = quotient;
    }
}
