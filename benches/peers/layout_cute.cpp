// Answers and times of CuTe C++, on the host, with run-time integers.
//
//     python3 -m venv venv
//     venv/bin/pip install --no-deps nvidia-cutlass==4.2.0.0 nvidia-cuda-runtime-cu12==12.9.79 \
//         nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-cccl-cu12==12.9.27
//     P=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
//     g++ -std=c++17 -O2 -w -I$P/cutlass_library/source/include -I$P/nvidia/cuda_runtime/include \
//         -I$P/nvidia/cuda_nvcc/include -I$P/nvidia/cuda_cccl/include benches/peers/layout_cute.cpp -o layout_cute
//     ./layout_cute
//
// Ranks are compile-time even here, so the compiler unrolls every loop; a library whose ranks are run-time cannot.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <cute/layout.hpp>

using namespace cute;

// An integer that the compiler cannot know.
static int hide(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

template <class T> static void keep(T const &value) { asm volatile("" : : "r"(&value) : "memory"); }

template <class F> static double median_ns(F operation) {
    std::vector<double> runs;
    for (int run = 0; run < 31; ++run) {
        const int times = 100000;
        auto start = std::chrono::steady_clock::now();
        for (int k = 0; k < times; ++k) operation();
        std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
        runs.push_back(taken.count() / times);
    }
    std::sort(runs.begin(), runs.end());
    return runs[runs.size() / 2];
}

template <class A, class B> static void show(char const *what, A const &a, B const &b, int index) {
    auto r = composition(a, b);
    std::printf("%-28s ", what);
    print(r);
    std::printf("   value at %d: %d, and A(B(%d)) = %d\n", index, int(r(index)), index, int(a(b(index))));
}

int main() {
    show("textbook, run-time", make_layout(make_shape(hide(6), hide(2)), make_stride(hide(8), hide(2))),
         make_layout(make_shape(hide(4), hide(3)), make_stride(hide(3), hide(1))), 7);
    show("carry, run-time", make_layout(make_shape(hide(12), hide(2)), make_stride(hide(1), hide(100))),
         make_layout(make_shape(hide(2), hide(2), hide(2)), make_stride(hide(3), hide(4), hide(6))), 7);
    show("carry, compile-time", Layout<Shape<Int<12>, _2>, Stride<_1, Int<100>>>{},
         Layout<Shape<_2, _2, _2>, Stride<_3, _4, _6>>{}, 7);

    std::uint64_t seed = 1;
    std::printf("yardstick        %8.1f ns\n", median_ns([&] {
                    std::uint64_t x = seed;
                    for (std::uint64_t k = 0; k < 64; ++k)
                        x = (x ^ (x >> 29)) * 0x9e3779b97f4a7c15u + k;
                    keep(x);
                }));
    std::printf("compose 1        %8.1f ns\n", median_ns([] {
                    keep(composition(make_layout(make_shape(hide(6), hide(2)), make_stride(hide(8), hide(2))),
                                     make_layout(make_shape(hide(4), hide(3)), make_stride(hide(3), hide(1)))));
                }));
    std::printf("compose 2        %8.1f ns\n", median_ns([] {
                    keep(composition(make_layout(make_shape(hide(128), hide(64)), make_stride(hide(64), hide(1))),
                                     make_layout(make_shape(make_shape(hide(8), hide(16)), make_shape(hide(4), hide(16))),
                                                 make_stride(make_stride(hide(1), hide(8)),
                                                             make_stride(hide(128), hide(512))))));
                }));
    std::printf("compose 3        %8.1f ns\n", median_ns([] {
                    keep(composition(make_layout(make_shape(hide(4), hide(8), hide(2), hide(16)),
                                                 make_stride(hide(1), hide(4), hide(32), hide(64))),
                                     make_layout(make_shape(make_shape(hide(2), hide(4)), make_shape(hide(8), hide(16))),
                                                 make_stride(make_stride(hide(1), hide(2)),
                                                             make_stride(hide(8), hide(64))))));
                }));
    std::printf("logical_divide   %8.1f ns\n", median_ns([] {
                    keep(logical_divide(make_layout(make_shape(hide(16), hide(64)), make_stride(hide(64), hide(1))),
                                        make_layout(make_shape(_4{}, _8{}), make_stride(_1{}, Int<16>{}))));
                }));
}
