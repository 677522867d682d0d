// target = element(recipe, index), over jobs of rows whose source side counts indices of the global tensor:
// the generator of reshard_kernels::random, bit for bit. Polynomials and their coefficients come from there.

struct Recipe {
    u64 key[2];
    u64 second[2];
    double low;
    double span;
    double a;
    double b;
    u64 base;
    u64 modulus;
    u64 power;
    u32 generator;
    u32 kind;
    u32 stretch;
    u32 unused;
};

enum Kind { BITS, REMAINDER, BELOW, STRETCHED, NORMAL, NORMAL_OF, CLAMPED, EXPONENTIAL, GUMBEL };
enum Stretch { NOT_STRETCHED, PLAIN, FUSED, TWICE };

struct Words {
    u32 word[4];
};

__device__ __forceinline__ u32 turned(u32 x, int left) { return x << left | x >> (32 - left); }

// Threefry-2x32 of 20 rounds.
__device__ __forceinline__ Words threefry(const u64 *key, u64 counter) {
    const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    u32 keys[3] = {(u32)key[0], (u32)key[1], (u32)key[0] ^ (u32)key[1] ^ 0x1bd11bdau};
    u32 a = (u32)(counter >> 32) + keys[0];
    u32 b = (u32)counter + keys[1];
#pragma unroll
    for (int group = 0; group < 5; ++group) {
#pragma unroll
        for (int round = 0; round < 4; ++round) {
            a += b;
            b = turned(b, rotations[group % 2][round]) ^ a;
        }
        a += keys[(group + 1) % 3];
        b += keys[(group + 2) % 3] + (u32)group + 1;
    }
    Words words = {{a, b, 0, 0}};
    return words;
}

// Philox-4x32 of 10 rounds, the upper half of the counter 0.
__device__ __forceinline__ Words philox(u64 seed, u64 counter) {
    u32 key[2] = {(u32)seed, (u32)(seed >> 32)};
    u32 x[4] = {(u32)counter, (u32)(counter >> 32), 0, 0};
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 p = (u64)0xd2511f53u * x[0];
        u64 q = (u64)0xcd9e8d57u * x[2];
        u32 y[4] = {(u32)(q >> 32) ^ x[1] ^ key[0], (u32)q, (u32)(p >> 32) ^ x[3] ^ key[1], (u32)p};
        for (int i = 0; i < 4; ++i) {
            x[i] = y[i];
        }
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    Words words = {{x[0], x[1], x[2], x[3]}};
    return words;
}

__device__ __forceinline__ u32 word32(u32 generator, const u64 *key, u64 index) {
    if (generator == 0) {
        Words words = threefry(key, index);
        return words.word[0] ^ words.word[1];
    }
    Words words = philox(key[0], key[1] + index / 4);
    u32 half = index & 1 ? words.word[1] : words.word[0];
    u32 other = index & 1 ? words.word[3] : words.word[2];
    return index & 2 ? other : half;
}

__device__ __forceinline__ u64 word64(u32 generator, const u64 *key, u64 index) {
    if (generator == 0) {
        Words words = threefry(key, index);
        return (u64)words.word[0] << 32 | words.word[1];
    }
    Words words = philox(key[0], key[1] + index / 2);
    u32 high = index & 1 ? words.word[2] : words.word[0];
    u32 low = index & 1 ? words.word[3] : words.word[1];
    return (u64)high << 32 | low;
}

// Returns the fraction of f32, which Bernoulli's draws use for every element type.
__device__ __forceinline__ float fraction32(const Recipe &r, u64 index) {
    u32 word = word32(r.generator, r.key, index);
    if (r.generator == 0) {
        return __uint_as_float(word >> 9 | 0x3f800000u) - 1.0f;
    }
    return (float)(int)(word & 0xffffffu) * (1.0f / 16777216.0f);
}

#if ELEMENT < ELEMENT_F16

#if ELEMENT == ELEMENT_U64 || ELEMENT == ELEMENT_I64
typedef u64 Word;
#define WORD word64
#else
typedef u32 Word;
#define WORD word32
#endif

__device__ __forceinline__ Word remainder_of(Word x, Word modulus) { return modulus ? x % modulus : x; }

__device__ __forceinline__ Item drawn(const Recipe &r, u64 index) {
    if (r.kind == BELOW) {
        return fraction32(r, index) < (float)r.a ? 1 : 0;
    }
    Word word = WORD(r.generator, r.key, index);
    if (r.kind == BITS) {
        return (Item)word;
    }
    Word base = (Word)r.base;
    Word modulus = (Word)r.modulus;
    if (r.generator != 0) {
        return (Item)(Word)(base + remainder_of(word, modulus));
    }
    Word lower = WORD(r.generator, r.second, index);
    Word sum = (Word)(remainder_of(word, modulus) * (Word)r.power) + remainder_of(lower, modulus);
    return (Item)(Word)(base + remainder_of(sum, modulus));
}

#else

#if ELEMENT == ELEMENT_F64
typedef double Wide;
__device__ __forceinline__ Wide fused(Wide x, Wide a, Wide b) { return __fma_rn(x, a, b); }
__device__ __forceinline__ Wide root(Wide x) { return __dsqrt_rn(x); }
#else
typedef float Wide;
__device__ __forceinline__ Wide fused(Wide x, Wide a, Wide b) { return __fmaf_rn(x, a, b); }
__device__ __forceinline__ Wide root(Wide x) { return __fsqrt_rn(x); }
#endif

// The nearest element, in the wide type, and the element itself.
#if ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
__device__ __forceinline__ Wide nearest(Wide x) { return widened(narrowed(x)); }
__device__ __forceinline__ Item element(Wide x) { return narrowed(x); }
#else
__device__ __forceinline__ Wide nearest(Wide x) { return x; }
__device__ __forceinline__ Item element(Wide x) { return x; }
#endif

__device__ __forceinline__ Wide fraction(const Recipe &r, u64 index) {
#if ELEMENT == ELEMENT_F64
    u64 word = word64(r.generator, r.key, index);
    if (r.generator == 0) {
        return __longlong_as_double((long long)(word >> 12 | 0x3ff0000000000000ull)) - 1.0;
    }
    return (double)(word & 0x1fffffffffffffull) * (1.0 / 9007199254740992.0);
#elif ELEMENT == ELEMENT_F32
    return fraction32(r, index);
#else
    u32 word = word32(r.generator, r.key, index);
#if ELEMENT == ELEMENT_F16
    const int bits = 10;
#else
    const int bits = 7;
#endif
    // Threefry uses the upper bits of 16-bit words for f16, and of 8-bit words for bf16.
    const int drawn = bits == 10 ? 16 : 8;
    if (r.generator == 0) {
        return (float)(int)(word >> (drawn - bits) & ((1u << bits) - 1)) * (1.0f / (float)(1u << bits));
    }
    return (float)(int)(word & ((2u << bits) - 1)) * (1.0f / (float)(2u << bits));
#endif
}

__device__ __forceinline__ Wide stretched(const Recipe &r, u64 index) {
    Wide x = fraction(r, index);
    Wide low = (Wide)r.low;
    Wide span = (Wide)r.span;
    if (r.stretch == NOT_STRETCHED) {
        return x;
    }
    if (r.stretch == PLAIN) {
        x = nearest(x * span + low);
    } else if (r.stretch == FUSED) {
        x = fused(x, span, low);
    } else {
        x = nearest(nearest(x * span) + low);
    }
    return x > low ? x : low;
}

// x = 2^e m, m between the roots of 1/2 and 2, and the series of 2 artanh((m-1)/(m+1)).
template <int TERMS>
__device__ __forceinline__ double logarithm(double x) {
    const u64 root_of_half = 0x3fe6a09e667f3bcdull;
    u64 bits = (u64)__double_as_longlong(x) + (0x3ff0000000000000ull - root_of_half);
    double exponent =
        __longlong_as_double((long long)(0x4330000000000000ull | bits >> 52)) - (4503599627370496.0 + 1023.0);
    double m = __longlong_as_double((long long)((bits & 0xfffffffffffffull) + root_of_half));
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double sum = 0.0;
#pragma unroll
    for (int k = TERMS - 1; k > 0; --k) {
        sum = (sum + 1.0 / (double)(2 * k + 1)) * z;
    }
    double series = s + s * sum;
    return exponent * 6.931471803691238e-1 + (2.0 * series + exponent * 1.9082149292705877e-10);
}

#if ELEMENT == ELEMENT_F64

__device__ __forceinline__ double ln(double x) { return logarithm<12>(x); }

__device__ __forceinline__ double ln_one_less(double u) {
    double x = 0.0 - u;
    double numerator = log1p_numerator(x);
    double denominator = log1p_denominator(x);
    double z = x * x;
    double near_zero = x + (x * (z * numerator / denominator) - 0.5 * z);
    return u < 1.4142135623730951 - 1.0 ? near_zero : logarithm<12>(1.0 - u);
}

__device__ __forceinline__ double erf_inv(double x) {
    double w = 0.0 - ln_one_less(x * x);
    double p;
    if (w < 6.25) {
        p = erf_inv_inner_f64(w - 3.125);
    } else if (w < 16.0) {
        p = erf_inv_middle_f64(root(w) - 3.25);
    } else {
        p = erf_inv_outer_f64(root(w) - 5.0);
    }
    if (!(fabs(x) < 1.0)) {
        p = __longlong_as_double(0x7ff0000000000000ll);
    }
    return p * x;
}

#else

__device__ __forceinline__ float ln(float x) { return (float)logarithm<7>((double)x); }
__device__ __forceinline__ float ln_one_less(float x) { return (float)logarithm<7>(1.0 - (double)x); }

__device__ __forceinline__ float ln_single(float x) {
    const u32 root_of_half = 0x3f3504f3u;
    u32 bits = __float_as_uint(x) + (0x3f800000u - root_of_half);
    float exponent = (float)((int)(bits >> 23) - 127);
    float m = __uint_as_float((bits & 0x7fffffu) + root_of_half);
    float s = (m - 1.0f) / (m + 1.0f);
    float z = s * s;
    float sum = ln_single_terms(z) * z;
    float series = 2.0f * s + 2.0f * s * sum;
    return exponent * 0.6933594f + (series + exponent * -2.1219444e-4f);
}

__device__ __forceinline__ float erf_inv(float x) {
    float w = 0.0f - ln_single(1.0f - x * x);
    float p = w < 5.0f ? erf_inv_inner_f32(w - 2.5f) : erf_inv_outer_f32(root(w) - 3.0f);
    if (!(fabsf(x) < 1.0f)) {
        p = __uint_as_float(0x7f800000u);
    }
    return p * x;
}

#endif

__device__ __forceinline__ Item drawn(const Recipe &r, u64 index) {
    if (r.kind == BELOW) {
        return element(fraction32(r, index) < (float)r.a ? (Wide)1 : (Wide)0);
    }
    Wide x = stretched(r, index);
    Wide zero = 0;
    if (r.kind == NORMAL || r.kind == NORMAL_OF || r.kind == CLAMPED) {
        x = nearest(nearest((Wide)1.4142135623730951) * nearest(erf_inv(x)));
        if (r.kind == NORMAL_OF) {
            x = nearest((Wide)r.a + nearest((Wide)r.b * x));
        } else if (r.kind == CLAMPED) {
            x = x > (Wide)r.a ? x : (Wide)r.a;
            x = x < (Wide)r.b ? x : (Wide)r.b;
        }
    } else if (r.kind == EXPONENTIAL) {
        x = zero - nearest(ln_one_less(x));
    } else if (r.kind == GUMBEL) {
        x = zero - nearest(ln(zero - nearest(ln(x))));
    }
    return element(x);
}

#endif

#define DRAWS_PER_THREAD 4

extern "C" __global__ void __launch_bounds__(THREADS) reshard_draw(
    const __grid_constant__ Job job, const __grid_constant__ Recipe recipe, char *__restrict__ target
) {
    for (int k = 0; k < DRAWS_PER_THREAD; ++k) {
        u32 i = (blockIdx.x * DRAWS_PER_THREAD + k) * THREADS + threadIdx.x;
        if (i < job.count) {
            long long index = job.source;
            long long to = job.target;
            place(job, 0, i, index, to);
            *(Item *)(target + to) = drawn(recipe, (u64)index);
        }
    }
}
