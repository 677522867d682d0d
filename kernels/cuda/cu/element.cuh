// Arithmetic of the element type ELEMENT, bit for bit that of the host: NaN takes precedence, -0.0 is below
// 0.0, integers wrap, 16-bit floats are computed in f32 and rounded once (their division in f64).

#define ELEMENT_U8 1
#define ELEMENT_I8 2
#define ELEMENT_U16 3
#define ELEMENT_I16 4
#define ELEMENT_U32 5
#define ELEMENT_I32 6
#define ELEMENT_U64 7
#define ELEMENT_I64 8
#define ELEMENT_F16 9
#define ELEMENT_BF16 10
#define ELEMENT_F32 11
#define ELEMENT_F64 12

#if ELEMENT == ELEMENT_U8
typedef unsigned char Item;
#elif ELEMENT == ELEMENT_I8
typedef signed char Item;
#elif ELEMENT == ELEMENT_U16 || ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
typedef unsigned short Item;
#elif ELEMENT == ELEMENT_I16
typedef short Item;
#elif ELEMENT == ELEMENT_U32
typedef u32 Item;
#elif ELEMENT == ELEMENT_I32
typedef int Item;
#elif ELEMENT == ELEMENT_U64
typedef u64 Item;
#elif ELEMENT == ELEMENT_I64
typedef long long Item;
#elif ELEMENT == ELEMENT_F32
typedef float Item;
#elif ELEMENT == ELEMENT_F64
typedef double Item;
#endif

enum Op { SUM, PROD, MIN, MAX, NORM };

#if ELEMENT >= ELEMENT_F16

// min and max of floats: equal operands differ at most in the sign of a zero, which the bits order.
__device__ __forceinline__ float least(float a, float b) {
    if (a == b) {
        return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
    }
    return (a < b || a != a) ? a : b;
}
__device__ __forceinline__ float greatest(float a, float b) {
    if (a == b) {
        return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
    }
    return (a > b || a != a) ? a : b;
}
__device__ __forceinline__ double least(double a, double b) {
    if (a == b) {
        return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
    }
    return (a < b || a != a) ? a : b;
}
__device__ __forceinline__ double greatest(double a, double b) {
    if (a == b) {
        return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
    }
    return (a > b || a != a) ? a : b;
}

// Each operation rounds by itself: no product and sum become one fused operation. For a norm, p is the
// exponent.
template <Op OP, typename F>
__device__ __forceinline__ F computed(F a, F b, double p) {
    switch (OP) {
    case SUM:
        return a + b;
    case PROD:
        return a * b;
    case MIN:
        return least(a, b);
    case MAX:
        return greatest(a, b);
    default:
        return norm(a, b, p);
    }
}

// x rounded to nearest, ties to even, to a float of 16 bits with FRACTION bits of fraction.
template <int FRACTION>
__device__ __forceinline__ Item rounded(double x) {
    const int EXPONENT = 15 - FRACTION;
    const int BIAS = (1 << (EXPONENT - 1)) - 1;
    u64 bits = (u64)__double_as_longlong(x);
    u32 sign = (u32)(bits >> 48) & 0x8000u;
    int exponent = (int)(bits >> 52 & 0x7ff);
    u64 fraction = bits & 0xfffffffffffffull;
    const u32 infinity = ((1u << EXPONENT) - 1) << FRACTION;
    if (exponent == 0x7ff) {
        u32 payload = (u32)(fraction >> (52 - FRACTION)) | (1u << (FRACTION - 1));
        return (Item)(sign | infinity | (fraction ? payload : 0));
    }
    // Doubles without an implicit bit are below half of the least float of 16 bits.
    if (exponent == 0) {
        return (Item)sign;
    }
    int power = exponent - 1023 + BIAS;
    if (power >= (1 << EXPONENT) - 1) {
        return (Item)(sign | infinity);
    }
    fraction |= 1ull << 52;
    // The number of dropped bits: more if the result has no implicit bit.
    int drop = 52 - FRACTION + (power < 1 ? 1 - power : 0);
    if (drop > 54) {
        return (Item)sign;
    }
    u64 kept = fraction >> drop;
    u64 rest = fraction & ((1ull << drop) - 1);
    u64 half = 1ull << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    // A carry propagates into the exponent, and from there to infinity.
    u32 base = power < 1 ? 0 : (u32)(power - 1) << FRACTION;
    return (Item)(sign | (base + (u32)kept));
}

#if ELEMENT == ELEMENT_F16
__device__ __forceinline__ float widened(Item x) {
#ifdef ON_CPU
    u32 exponent = x >> 10 & 31;
    u32 fraction = x & 1023;
    u32 sign = (u32)(x & 0x8000) << 16;
    if (exponent == 31) {
        return __uint_as_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    }
    if (exponent == 0) {
        float magnitude = (float)fraction * 5.9604644775390625e-8f;
        return sign ? -magnitude : magnitude;
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
#else
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
#endif
}
__device__ __forceinline__ Item narrowed(float x) {
#ifdef ON_CPU
    return rounded<10>((double)x);
#else
    Item narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
    return narrow;
#endif
}
#define FRACTION_BITS 10
#elif ELEMENT == ELEMENT_BF16
__device__ __forceinline__ float widened(Item x) { return __uint_as_float((u32)x << 16); }
__device__ __forceinline__ Item narrowed(float x) {
    u32 bits = __float_as_uint(x);
    if (x != x) {
        return (Item)(bits >> 16 | 0x40);
    }
    return (Item)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#define FRACTION_BITS 7
#endif

#if ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
template <Op OP>
__device__ __forceinline__ Item combined(Item a, Item b, double p) {
    return narrowed(computed<OP>(widened(a), widened(b), p));
}
__device__ __forceinline__ Item divided(Item a, double divisor) {
    return rounded<FRACTION_BITS>((double)widened(a) / divisor);
}
#else
template <Op OP>
__device__ __forceinline__ Item combined(Item a, Item b, double p) {
    return computed<OP>(a, b, p);
}
__device__ __forceinline__ Item divided(Item a, double divisor) { return a / (Item)divisor; }
#endif

#else

template <Op OP>
__device__ __forceinline__ Item combined(Item a, Item b, double) {
    switch (OP) {
    case SUM:
        return (Item)((u64)a + (u64)b);
    case PROD:
        return (Item)((u64)a * (u64)b);
    case MIN:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
}

#endif
