// Processes that share memory reduce terms: from `P,S(0)` to `S(0),R`, on groups that exist, with the framework's collectives in a few lines.
//
// Handles are freed by smart pointers, and a status that is not OK is an exception.
#include "reshard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t ranks = 4, rows = 24, columns = 10, most = 4096;

void check(reshard_status status) {
    if (status != RESHARD_STATUS_OK) {
        std::string message(reshard_last_error(nullptr, 0) + 1, '\0');
        reshard_last_error(&message[0], message.size());
        throw std::runtime_error(message.c_str());
    }
}

template <typename T, reshard_status (*end)(T *)>
struct Free {
    void operator()(T *handle) const { end(handle); }
};
template <typename T, reshard_status (*end)(T *)>
using Handle = std::unique_ptr<T, Free<T, end>>;
using Mesh = Handle<reshard_mesh, reshard_mesh_free>;
using Sharding = Handle<reshard_sharding, reshard_sharding_free>;
using Plan = Handle<reshard_plan, reshard_plan_free>;
using Groups = Handle<reshard_groups, reshard_groups_free>;
using Calls = Handle<reshard_calls, reshard_calls_free>;

// What processes share: a buffer each, where in it what goes to whom begins, and a barrier.
struct Shared {
    std::atomic<std::size_t> arrived;
    std::size_t starts[ranks][ranks];
    double buffers[ranks][most];

    void barrier() {
        const std::size_t mine = arrived.fetch_add(1) / ranks;
        while (arrived.load() / ranks == mine) {
            usleep(50);
        }
    }
};

Sharding sharded(const reshard_mesh *mesh, const char *text) {
    const std::size_t shape[] = {rows, columns};
    reshard_sharding *made = nullptr;
    check(reshard_sharding_parse(mesh, shape, 2, text, &made));
    return Sharding(made);
}

std::size_t elements(const reshard_sharding *sharding, std::size_t rank) {
    std::size_t shape[2], count;
    check(reshard_sharding_local_shape(sharding, rank, shape, 2, &count));
    return shape[0] * shape[1];
}

// The rows that a rank holds; columns are whole in all shardings here.
std::vector<std::size_t> rows_of(const reshard_sharding *sharding, std::size_t rank) {
    reshard_interval found[rows];
    std::size_t count;
    check(reshard_sharding_region(sharding, rank, 0, found, rows, &count));
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < count; i++) {
        for (std::size_t row = 0; row < found[i].length; row++) {
            all.push_back(found[i].start + row);
        }
    }
    return all;
}

// The collectives of a framework that has shared memory: everybody shows what was packed, and takes what is for it.
std::vector<double> collective(Shared &shared, std::size_t rank, const reshard_op &op, const std::vector<double> &packed) {
    std::copy(packed.begin(), packed.end(), shared.buffers[rank]);
    for (std::size_t i = 0, start = 0; i < op.send_count; i++) {
        shared.starts[rank][op.sends[i].peer] = start;
        start += op.sends[i].elements;
    }
    shared.barrier();
    std::vector<double> received(op.received_len);
    std::size_t place = 0;
    while (op.member_count > 0 && op.members[place] != rank) {
        place++;
    }
    switch (op.call) {
    case RESHARD_CALL_LOCAL:
        received = packed;
        break;
    case RESHARD_CALL_ALL_GATHER:
        for (std::size_t i = 0; i < op.member_count; i++) {
            std::copy_n(shared.buffers[op.members[i]], op.packed_len, received.begin() + static_cast<long>(i * op.packed_len));
        }
        break;
    case RESHARD_CALL_REDUCE_SCATTER:
    case RESHARD_CALL_ALL_REDUCE:
        for (std::size_t i = 0; i < op.member_count; i++) {
            for (std::size_t at = 0; at < received.size(); at++) {
                const std::size_t from = op.call == RESHARD_CALL_ALL_REDUCE ? at : place * received.size() + at;
                received[at] += shared.buffers[op.members[i]][from];
            }
        }
        break;
    case RESHARD_CALL_ALL_TO_ALL:
    case RESHARD_CALL_MESSAGES:
        for (std::size_t i = 0, at = 0; i < op.receive_count; i++) {
            const reshard_part &part = op.receives[i];
            std::copy_n(shared.buffers[part.peer] + shared.starts[part.peer][rank], part.elements, received.begin() + static_cast<long>(at));
            at += part.elements;
        }
        break;
    }
    shared.barrier();
    return received;
}

void run(Shared &shared, std::size_t rank) {
    reshard_mesh *parsed = nullptr;
    check(reshard_mesh_parse("dp=2,tp=2", &parsed));
    const Mesh mesh(parsed);
    const Sharding from = sharded(mesh.get(), "P,S(0)"), to = sharded(mesh.get(), "S(0),R");
    reshard_planner *planner = nullptr;
    check(reshard_planner_new("objective=bytes", &planner));
    reshard_plan *planned = nullptr;
    check(reshard_plan_new(from.get(), to.get(), "f64", planner, &planned));
    check(reshard_planner_free(planner));
    const Plan plan(planned);
    // The groups of both axes.
    const std::size_t members[4][2] = {{0, 2}, {1, 3}, {0, 1}, {2, 3}};
    const reshard_group groups[4] = {{"dp", members[0], 2}, {"dp", members[1], 2}, {"tp", members[2], 2}, {"tp", members[3], 2}};
    reshard_groups *given = nullptr;
    check(reshard_groups_new(groups, 4, &given));
    const Groups all_groups(given);
    reshard_calls *made = nullptr;
    check(reshard_calls_new(plan.get(), rank, nullptr, all_groups.get(), &made));
    const Calls calls(made);

    // Each of the two terms of an element is half of its number, but for the rank's own part.
    std::vector<double> buffer;
    for (const std::size_t row : rows_of(from.get(), rank)) {
        for (std::size_t column = 0; column < columns; column++) {
            const double number = static_cast<double>(row * columns + column);
            buffer.push_back(rank < 2 ? number + 1000 : -1000);
        }
    }
    std::size_t count;
    check(reshard_calls_count(calls.get(), &count));
    for (std::size_t i = 0; i < count; i++) {
        reshard_op op;
        op.size = sizeof op;
        check(reshard_calls_op(calls.get(), i, &op));
        std::vector<double> packed(op.packed_len), next(op.target_len);
        const auto bytes = [](std::vector<double> &of) { return reinterpret_cast<std::uint8_t *>(of.data()); };
        const auto size = [](const std::vector<double> &of) { return of.size() * sizeof(double); };
        check(reshard_calls_pack(calls.get(), i, bytes(buffer), size(buffer), bytes(packed), size(packed)));
        std::vector<double> received = collective(shared, rank, op, packed);
        check(reshard_calls_unpack(calls.get(), i, bytes(received), size(received), bytes(next), size(next)));
        buffer = next;
    }
    if (buffer.size() != elements(to.get(), rank)) {
        throw std::runtime_error("the buffer has another size");
    }
    std::size_t at = 0;
    for (const std::size_t row : rows_of(to.get(), rank)) {
        for (std::size_t column = 0; column < columns; column++, at++) {
            if (buffer[at] != static_cast<double>(row * columns + column)) {
                throw std::runtime_error("an element is wrong");
            }
        }
    }
    if (rank == 0) {
        std::string text(4096, '\0');
        std::size_t length;
        check(reshard_calls_text(calls.get(), &text[0], text.size(), &length));
        std::printf("%s\n", text.c_str());
        std::fflush(stdout);
    }
}

} // namespace

int main() {
    if (reshard_abi() != RESHARD_ABI) {
        std::fprintf(stderr, "the library was built with another version of reshard.h\n");
        return 1;
    }
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("mmap");
        return 1;
    }
    Shared &shared = *new (memory) Shared();
    std::vector<pid_t> children;
    for (std::size_t rank = 0; rank < ranks; rank++) {
        const pid_t child = fork();
        if (child == 0) {
            try {
                run(shared, rank);
            } catch (const std::exception &error) {
                std::fprintf(stderr, "rank %zu: %s\n", rank, error.what());
                std::_Exit(1);
            }
            std::_Exit(reshard_handles() == 0 ? 0 : 2);
        }
        children.push_back(child);
    }
    bool failed = false;
    // The first that fails ends all: the others would wait for it.
    for (std::size_t left = children.size(); left > 0; left--) {
        int status = 0;
        wait(&status);
        if (status != 0 && !failed) {
            failed = true;
            for (const pid_t child : children) {
                kill(child, SIGKILL);
            }
        }
    }
    std::printf(failed ? "some process failed\n" : "every element is the sum of its partial values\n");
    return failed ? 1 : 0;
}
