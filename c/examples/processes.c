/* Two by four processes that share nothing but pipes move the shards of a tensor from one sharding to another.
 *
 * Every process makes the plan by itself, packs what it has, writes to each peer, reads from each, and unpacks. In the end each compares every
 * element with what its region of the target says. */
#include "reshard.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 8, ROWS = 48, COLUMNS = 40 };

static int pipes[RANKS][RANKS][2];

static void check(reshard_status status) {
    char message[1000];
    if (status == RESHARD_STATUS_OK) {
        return;
    }
    reshard_last_error(message, sizeof message);
    fprintf(stderr, "%s\n", message);
    exit(1);
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *room(size_t bytes) {
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fail("malloc");
    }
    return memory;
}

/* Everything is of 4 bytes, and each element is its number in the whole tensor. Calls `does` for each element that a rank holds. */
static size_t each_of_mine(const reshard_sharding *sharding, size_t rank, int32_t *buffer, int compares) {
    reshard_interval rows[RANKS], columns[RANKS];
    size_t row_count, column_count, i, j, row, column, at = 0, wrong = 0;
    check(reshard_sharding_region(sharding, rank, 0, rows, RANKS, &row_count));
    check(reshard_sharding_region(sharding, rank, 1, columns, RANKS, &column_count));
    for (i = 0; i < row_count; i++) {
        for (row = rows[i].start; row < rows[i].start + rows[i].length; row++) {
            for (j = 0; j < column_count; j++) {
                for (column = columns[j].start; column < columns[j].start + columns[j].length; column++) {
                    int32_t number = (int32_t)(row * COLUMNS + column);
                    if (compares) {
                        wrong += buffer[at] != number;
                    } else {
                        buffer[at] = number;
                    }
                    at++;
                }
            }
        }
    }
    return wrong;
}

static size_t elements_of(const reshard_sharding *sharding, size_t rank) {
    size_t shape[2], count;
    check(reshard_sharding_local_shape(sharding, rank, shape, 2, &count));
    return shape[0] * shape[1];
}

/* Sends and receives at once, so that no two ranks wait for each other with full pipes. */
static void exchange(size_t rank, const reshard_op *op, const char *packed, char *received) {
    size_t sent[RANKS] = {0}, came[RANKS] = {0}, left = op->send_count + op->receive_count, i;
    while (left > 0) {
        struct pollfd waits[2 * RANKS];
        const char *from = packed;
        char *to = received;
        for (i = 0; i < op->send_count; i++) {
            size_t bytes = op->sends[i].elements * sizeof(int32_t);
            waits[i].fd = sent[i] < bytes ? pipes[rank][op->sends[i].peer][1] : -1;
            waits[i].events = POLLOUT;
        }
        for (i = 0; i < op->receive_count; i++) {
            size_t bytes = op->receives[i].elements * sizeof(int32_t);
            waits[op->send_count + i].fd = came[i] < bytes ? pipes[op->receives[i].peer][rank][0] : -1;
            waits[op->send_count + i].events = POLLIN;
        }
        left = 0;
        for (i = 0; i < op->send_count + op->receive_count; i++) {
            left += waits[i].fd >= 0;
        }
        if (left > 0 && poll(waits, (nfds_t)(op->send_count + op->receive_count), -1) < 0) {
            fail("poll");
        }
        for (i = 0; i < op->send_count; i++) {
            size_t bytes = op->sends[i].elements * sizeof(int32_t);
            if (waits[i].fd >= 0 && waits[i].revents != 0) {
                size_t most = bytes - sent[i] < 512 ? bytes - sent[i] : 512; /* what poll promises room for */
                ssize_t n = write(waits[i].fd, from + sent[i], most);
                if (n <= 0) {
                    fail("write");
                }
                sent[i] += (size_t)n;
            }
            from += bytes;
        }
        for (i = 0; i < op->receive_count; i++) {
            size_t bytes = op->receives[i].elements * sizeof(int32_t);
            if (waits[op->send_count + i].fd >= 0 && waits[op->send_count + i].revents != 0) {
                ssize_t n = read(waits[op->send_count + i].fd, to + came[i], bytes - came[i]);
                if (n <= 0) {
                    fail("read");
                }
                came[i] += (size_t)n;
            }
            to += bytes;
        }
    }
}

/* One process: how many elements are wrong in the end. */
static size_t run(size_t rank, const char *from_text, const char *to_text) {
    const size_t shape[2] = {ROWS, COLUMNS};
    reshard_mesh *mesh;
    reshard_sharding *from, *to;
    reshard_plan *plan;
    reshard_calls *calls;
    size_t count, i, wrong;
    int32_t *buffer;
    check(reshard_mesh_parse("dp=2,tp=4", &mesh));
    check(reshard_sharding_parse(mesh, shape, 2, from_text, &from));
    check(reshard_sharding_parse(mesh, shape, 2, to_text, &to));
    check(reshard_plan_new(from, to, "i32", NULL, &plan));
    check(reshard_calls_new(plan, rank, NULL, NULL, &calls)); /* no groups: messages */
    check(reshard_calls_count(calls, &count));
    buffer = room(elements_of(from, rank) * sizeof *buffer);
    each_of_mine(from, rank, buffer, 0);
    for (i = 0; i < count; i++) {
        reshard_op op;
        char *packed, *received;
        int32_t *next;
        op.size = sizeof op;
        check(reshard_calls_op(calls, i, &op));
        packed = room(op.packed_len * sizeof *buffer);
        received = room(op.received_len * sizeof *buffer);
        next = room(op.target_len * sizeof *buffer);
        check(reshard_calls_pack(calls, i, (const uint8_t *)buffer, op.source_len * sizeof *buffer, (uint8_t *)packed,
                                 op.packed_len * sizeof *buffer));
        if (op.call == RESHARD_CALL_MESSAGES) {
            exchange(rank, &op, packed, received);
        } else {
            memcpy(received, packed, op.packed_len * sizeof *buffer);
        }
        check(reshard_calls_unpack(calls, i, (const uint8_t *)received, op.received_len * sizeof *buffer, (uint8_t *)next,
                                   op.target_len * sizeof *buffer));
        free(packed);
        free(received);
        free(buffer);
        buffer = next;
    }
    wrong = each_of_mine(to, rank, buffer, 1);
    free(buffer);
    check(reshard_calls_free(calls));
    check(reshard_plan_free(plan));
    check(reshard_sharding_free(from));
    check(reshard_sharding_free(to));
    check(reshard_mesh_free(mesh));
    if (reshard_handles() != 0) {
        fprintf(stderr, "rank %zu did not free %zu handles\n", rank, reshard_handles());
        exit(1);
    }
    return wrong;
}

int main(int argc, char **argv) {
    const char *from = argc > 1 ? argv[1] : "S(0),S(1)", *to = argc > 2 ? argv[2] : "S(1),S(0)";
    size_t rank, peer;
    int failed = 0;
    if (reshard_abi() != RESHARD_ABI) {
        fprintf(stderr, "the library was built with another version of reshard.h\n");
        return 1;
    }
    for (rank = 0; rank < RANKS; rank++) {
        for (peer = 0; peer < RANKS; peer++) {
            if (pipe(pipes[rank][peer]) != 0) {
                fail("pipe");
            }
        }
    }
    fflush(stdout);
    for (rank = 0; rank < RANKS; rank++) {
        pid_t child = fork();
        if (child < 0) {
            fail("fork");
        }
        if (child == 0) {
            size_t wrong = run(rank, from, to);
            if (wrong > 0) {
                fprintf(stderr, "rank %zu: %zu elements are wrong\n", rank, wrong);
            }
            exit(wrong > 0);
        }
    }
    for (rank = 0; rank < RANKS; rank++) {
        int status;
        if (wait(&status) < 0) {
            fail("wait");
        }
        failed += status != 0;
    }
    if (failed > 0) {
        fprintf(stderr, "%d processes failed\n", failed);
        return 1;
    }
    printf("%s -> %s: every element of %d processes is correct\n", from, to, RANKS);
    return 0;
}
