// The norm of two numbers, (|a|^p + |b|^p)^(1/p), as kernels/src/norm.rs computes it on the host, operation by operation.

__device__ __forceinline__ double power_of_two(long long n) { return __longlong_as_double((long long)((u64)(n + 1023) << 52)); }
__device__ __forceinline__ double magnitude(double x) { return __longlong_as_double(__double_as_longlong(x) & 0x7fffffffffffffffll); }
__device__ __forceinline__ double no_number() { return __longlong_as_double(0x7ff8000000000000ll); }

__device__ __forceinline__ double euclidean(double a, double b) {
    a = magnitude(a);
    b = magnitude(b);
    double most = (a > b || a != a) ? a : b;
    double scale = most >= power_of_two(511) ? 1.0 / power_of_two(600) : most < 1.0 / power_of_two(450) ? power_of_two(600) : 1.0;
    double x = a * scale;
    double y = b * scale;
    double sum = __dsqrt_rn(x * x + y * y) / scale;
    return (a != a || b != b) ? no_number() : sum;
}

#define LN_2_HIGH __longlong_as_double(0x3fe62e42fee00000ll)
#define LN_2_LOW __longlong_as_double(0x3dea39ef35793c76ll)
#define LOG2_E __longlong_as_double(0x3ff71547652b82fell)
#define SQRT_2 __longlong_as_double(0x3ff6a09e667f3bcdll)

__device__ __forceinline__ double log_of(double x) {
    long long less = 0;
    if (x < power_of_two(-1022)) {
        x = x * power_of_two(54);
        less = 54;
    }
    u64 bits = (u64)__double_as_longlong(x);
    long long k = (long long)(bits >> 52) - 1023;
    double f = __longlong_as_double((long long)((bits & 0xfffffffffffffull) | 1023ull << 52));
    if (f > SQRT_2) {
        f = f * 0.5;
        k += 1;
    }
    double s = (f - 1.0) / (f + 1.0);
    double square = s * s;
    double series = 0.0;
    for (int odd = 25; odd > 1; odd -= 2) {
        series = (series + 1.0 / (double)odd) * square;
    }
    double whole = (double)(k - less);
    return whole * LN_2_HIGH + (2.0 * s + (2.0 * s * series + whole * LN_2_LOW));
}

__device__ __forceinline__ double exp_of(double x) {
    if (x < -745.0) {
        return 0.0;
    }
    double scaled = x * LOG2_E;
    long long k = (long long)(scaled + (scaled < 0.0 ? -0.5 : 0.5));
    double whole = (double)k;
    double r = (x - whole * LN_2_HIGH) - whole * LN_2_LOW;
    double series = 1.0;
    for (int n = 16; n > 0; --n) {
        series = 1.0 + series * r / (double)n;
    }
    long long half = k / 2;
    return series * power_of_two(half) * power_of_two(k - half);
}

__device__ __forceinline__ double norm_of(double p, double a, double b) {
    a = magnitude(a);
    b = magnitude(b);
    if (a != a || b != b) {
        return no_number();
    }
    double most = a > b ? a : b;
    double least = a > b ? b : a;
    if (least == 0.0 || most > 1.7976931348623157e308) {
        return most;
    }
    double ratio = least / most;
    if (ratio == 0.0) {
        return most;
    }
    return most * exp_of(log_of(1.0 + exp_of(p * log_of(ratio))) / p);
}

// For the exponent `p`, which is infinite for the greatest magnitude. Singles use other functions for
// magnitudes and sums.
__device__ __forceinline__ double norm(double a, double b, double p) {
    if (p == 1.0) {
        return magnitude(a) + magnitude(b);
    }
    if (p == 2.0) {
        return euclidean(a, b);
    }
    if (p > 1.7976931348623157e308) {
        a = magnitude(a);
        b = magnitude(b);
        return (a > b || a != a) ? a : b;
    }
    return norm_of(p, a, b);
}
__device__ __forceinline__ float norm(float a, float b, double p) {
    float x = __uint_as_float(__float_as_uint(a) & 0x7fffffffu);
    float y = __uint_as_float(__float_as_uint(b) & 0x7fffffffu);
    if (p == 1.0) {
        return x + y;
    }
    if (p == 2.0) {
        float sum = (float)__dsqrt_rn((double)x * (double)x + (double)y * (double)y);
        return (x != x || y != y) ? __uint_as_float(0x7fc00000u) : sum;
    }
    if (p > 1.7976931348623157e308) {
        return (x > y || x != x) ? x : y;
    }
    return (float)norm_of(p, (double)a, (double)b);
}

