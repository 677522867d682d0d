// Runs kernels on the CPU by requests on stdin, so that tests in another language can drive them.
//
//     name, grid, descending, extra (f64), jobs, bases, shift, source, shift, target      texts and buffers after their length
//
// With an argument it prints, for each copy, the worst bank conflict of shared memory instead. All numbers
// are 8 bytes. The answer is the target after the kernel. Buffers have exactly the requested length and start
// `shift` bytes after a multiple of 256, so that a sanitizer sees accesses outside of them and misaligned
// ones.

#include "cuda_on_cpu.h"
#include KERNELS

#include <map>
#include <set>
#include <string>

static uint64_t number() {
    uint64_t n;
    if (fread(&n, sizeof n, 1, stdin) != 1) {
        exit(0);
    }
    return n;
}

static std::string text() {
    std::string s(number(), '\0');
    if (!s.empty() && fread(&s[0], 1, s.size(), stdin) != s.size()) {
        exit(3);
    }
    return s;
}

struct Buffer {
    char *start;
    char *data;
    size_t size;
    Buffer() {
        uint64_t shift = number();
        std::string s = text();
        size = s.size();
        // The end of the allocation is the end of the buffer.
        void *memory = nullptr;
        if (posix_memalign(&memory, 256, shift + size + (shift + size == 0))) {
            exit(4);
        }
        start = (char *)memory;
        data = start + shift;
        memcpy(data, s.data(), size);
    }
    ~Buffer() { free(start); }
};

struct Call {
    const Job *jobs;
    uint64_t count;
    double extra;
    const long long *bases;
    uint64_t terms;
    const char *source;
    char *target;
    void (*run)(Call &);
};

#ifdef DRAWS
// The bytes passed as bases are a recipe.
#elif defined(ELEMENT)
#define ENTRY(NAME) {#NAME, [](Call &c) { reshard_##NAME(*c.jobs, c.source, c.target); }},
#define TERMS_ENTRY(NAME) \
    {#NAME, [](Call &c) { reshard_##NAME(*c.jobs, c.bases, (u32)c.terms, c.extra, c.source, c.target); }},
#define NORM_ENTRY(NAME) {#NAME, [](Call &c) { reshard_##NAME(*c.jobs, c.extra, c.source, c.target); }},
#define DIVIDE_ENTRY(NAME) {#NAME, [](Call &c) { reshard_##NAME(*c.jobs, c.extra, c.target); }},
#else
#define ENTRY(NUMBER, NAME, BODY) {#NAME, [](Call &c) { reshard_##NAME(*c.jobs, c.source, c.target); }},
#endif

static const std::map<std::string, void (*)(Call &)> KERNEL_TABLE = {
#ifdef DRAWS
    {"draw", [](Call &c) { reshard_draw(*c.jobs, *(const Recipe *)c.bases, c.target); }},
#elif defined(ELEMENT)
#define OPS(W) \
    ENTRY(sum_##W) ENTRY(prod_##W) ENTRY(min_##W) ENTRY(max_##W) \
    TERMS_ENTRY(sum_terms_##W) TERMS_ENTRY(prod_terms_##W) TERMS_ENTRY(min_terms_##W) TERMS_ENTRY(max_terms_##W)
#if ELEMENT <= ELEMENT_I8
    OPS(1)
#endif
#if ELEMENT <= ELEMENT_I16 || ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
    OPS(2)
#endif
#if ELEMENT <= ELEMENT_I32 || (ELEMENT >= ELEMENT_F16 && ELEMENT <= ELEMENT_F32)
    OPS(4)
#endif
    OPS(8) OPS(16)
#if ELEMENT >= ELEMENT_F16
#define NORMS(W) NORM_ENTRY(norm_##W) TERMS_ENTRY(norm_terms_##W) DIVIDE_ENTRY(divide_##W)
    NORMS(8) NORMS(16)
#if ELEMENT <= ELEMENT_F32
    NORMS(4)
#endif
#if ELEMENT <= ELEMENT_BF16
    NORMS(2)
#endif
#endif
#else
    FOR_EACH_KIND(ENTRY)
    {"copy_jobs", [](Call &c) { reshard_copy_jobs(c.jobs, (u32)c.count, c.source, c.target); }},
#endif
};

#ifndef ELEMENT
// Returns the number of accesses to one bank of shared memory in the worst phase of a transpose: 1 is free of
// conflicts. A bank is one of 32 words of 4 bytes; a phase is as many lanes of a warp as take 128 bytes;
// lanes that share a word share its access.
struct Banks {
    static unsigned worst;

    template <int W, int UNROLL>
    static void rows(const Job &, u32, const char *, char *) {}
    template <int W, int UNROLL>
    static void runs(const Job &, u32, const char *, char *) {}
    template <int W, int K, int N>
    static void transpose(const Job &, u32, const char *, char *, char *) {
        const unsigned bytes = W * K;
        const unsigned lanes = bytes < 4 ? 32 : 128 / bytes;
        for (unsigned first = 0; first < THREADS; first += lanes) {
            for (unsigned m = 0; m < N; m += THREADS / N) {
                for (unsigned j = 0; j < K; ++j) {
                    std::set<unsigned> words[2][32];
                    for (unsigned thread = first; thread < first + lanes; ++thread) {
                        unsigned x = thread % N;
                        unsigned y = thread / N + m;
                        unsigned at[2] = {stored_at<W * K, N>(x, y, j), loaded_at<W * K, N>(x, y, j)};
                        for (unsigned side = 0; side < 2; ++side) {
                            for (unsigned b = at[side] * bytes; b < (at[side] + 1) * bytes; ++b) {
                                words[side][b / 4 % 32].insert(b / 4);
                            }
                        }
                    }
                    for (auto &side : words) {
                        for (auto &bank : side) {
                            worst = bank.size() > worst ? (unsigned)bank.size() : worst;
                        }
                    }
                }
            }
        }
    }

    static void print() {
        const Job job = {};
        const u32 block = 0;
        const bool BATCH = false;
        (void)BATCH;
        const char *source = nullptr;
        char *target = nullptr;
        char *shared = nullptr;
        (void)block, (void)source, (void)target, (void)shared;
#define WORST(NUMBER, NAME, BODY) \
    worst = 0; \
    BODY; \
    printf("%s %u\n", #NAME, worst);
        FOR_EACH_KIND(WORST)
    }
};
unsigned Banks::worst;
#endif

int main(int count, char **) {
#ifndef ELEMENT
    if (count > 1) {
        Banks::print();
        return 0;
    }
#endif
    for (;;) {
        std::string name = text();
        uint64_t grid = number();
        bool descending = number();
        double extra = bits_as<double>(number());
        std::string jobs = text();
        std::string bases = text();
        Buffer source;
        Buffer target;
        auto found = KERNEL_TABLE.find(name);
        if (found == KERNEL_TABLE.end() || jobs.size() < sizeof(Job)) {
            fprintf(stderr, "no kernel %s, or no jobs in %zu bytes\n", name.c_str(), jobs.size());
            return 2;
        }
        Call call = {(const Job *)jobs.data(), jobs.size() / (sizeof(Job) + sizeof(u32)), extra, (const long long *)bases.data(), bases.size() / 8, source.data, target.data, found->second};
        gridDim.x = (unsigned)grid;
        blockDim.x = THREADS;
        for (unsigned b = 0; b < grid; ++b) {
            blockIdx.x = b;
            fibers::block(THREADS, descending, [](void *c) { ((Call *)c)->run(*(Call *)c); }, &call);
        }
        fwrite(target.data, 1, target.size, stdout);
        fflush(stdout);
    }
}
