// Stand-ins for the CUDA driver and for NCCL in one library, whose ranks are threads of one process. They
// test the calls to the libraries, their order and the handling of their errors without a device. Device
// memory is host memory; there are no kernels. A stream runs its work in order, on separate threads.
//
// STAND_IN_FAULT=rank:group:kind injects a fault into one group of calls of one rank: refused, asynchronous
// or stalled. The process fails at its end if anything is still open or allocated.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int allocations;
static int communicators;

static void fatal(const char *what) {
    fprintf(stderr, "stand-in: %s\n", what);
    _exit(9);
}

// ---- memory

typedef struct Block {
    struct Block *next;
    char *start;
    size_t size;
} Block;
static Block *blocks;

// Ends the process unless the bytes are in one live allocation. Requires the lock.
static void check_memory(const void *at, size_t bytes) {
    for (Block *b = blocks; b; b = b->next) {
        if ((const char *)at >= b->start && (const char *)at + bytes <= b->start + b->size) {
            return;
        }
    }
    fatal("memory that was not allocated");
}

typedef struct {
    int enqueued;
    int done;
} Stream;

int cuInit(unsigned flags) { return flags != 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    // CUDA_ERROR_INVALID_DEVICE
    return ordinal == 0 ? 0 : 101;
}
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    // The compute capability, and no memory pools.
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(intptr_t)(device + 1), 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device != 0; }
static __thread void *current;
int cuCtxGetCurrent(void **context) { return *context = current, 0; }
int cuCtxSetCurrent(void *context) { return current = context, 0; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorName(int code, const char **name) { return (void)code, *name = "an error of the stand-in", 0; }
int cuGetErrorString(int code, const char **text) { return (void)code, *text = "an error of the stand-in", 0; }
int cuStreamCreate(void **stream, unsigned flags) { return (void)flags, *stream = calloc(1, sizeof(Stream)), 0; }
int cuStreamDestroy_v2(void *stream) { return (void)stream, 0; }

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    Block *b = malloc(sizeof *b);
    // The bytes past the end belong to other memory.
    if (posix_memalign((void **)&b->start, 256, bytes)) {
        return 2;
    }
    pthread_mutex_lock(&lock);
    b->size = bytes;
    b->next = blocks;
    blocks = b;
    ++allocations;
    pthread_mutex_unlock(&lock);
    *at = (uint64_t)b->start;
    return 0;
}
int cuMemAllocAsync(uint64_t *at, size_t bytes, void *stream) { return (void)stream, cuMemAlloc_v2(at, bytes); }
static int wait_for(Stream *stream) {
    pthread_mutex_lock(&lock);
    while (stream->done < stream->enqueued) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
int cuMemFree_v2(uint64_t at) {
    pthread_mutex_lock(&lock);
    Block **b = &blocks;
    while (*b && (uint64_t)(*b)->start != at) {
        b = &(*b)->next;
    }
    if (!*b) {
        fatal("memory is freed that was not allocated");
    }
    Block *gone = *b;
    *b = gone->next;
    --allocations;
    pthread_mutex_unlock(&lock);
    free(gone->start);
    free(gone);
    return 0;
}
int cuMemFreeAsync(uint64_t at, void *stream) { return wait_for(stream), cuMemFree_v2(at); }
int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t bytes, void *stream) {
    return wait_for(stream), memset((void *)at, byte, bytes), 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    return wait_for(stream), memcpy((void *)to, from, bytes), 0;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    return wait_for(stream), memcpy(to, (void *)from, bytes), 0;
}
int cuStreamSynchronize(void *stream) { return wait_for(stream); }
int cuStreamQuery(void *stream) {
    pthread_mutex_lock(&lock);
    Stream *s = stream;
    // CUDA_ERROR_NOT_READY
    int said = s->done < s->enqueued ? 600 : 0;
    pthread_mutex_unlock(&lock);
    return said;
}

// ---- NCCL

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { SEND, RECEIVE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE };

typedef struct {
    char internal[128];
} Id;

typedef struct Comm {
    Id id;
    int rank;
    int size;
    int aborted;
    int state;
    int stalled;
    int groups;
} Comm;

typedef struct {
    int kind;
    Comm *comm;
    const char *source;
    char *target;
    size_t bytes;
    size_t count;
    int op;
    int peer;
} Op;

typedef struct {
    Op ops[64];
    int count;
    Stream *stream;
    int ticket;
} Group;

typedef struct Message {
    struct Message *next;
    Id id;
    int from;
    int to;
    size_t bytes;
    char data[];
} Message;
static Message *mail;

// The number of members that have opened each communicator.
static struct {
    Id id;
    int members;
} opened[64];
static int ids;

static __thread Group *group;

const char *ncclGetErrorString(int result) { return result == SYSTEM_ERROR ? "unhandled system error" : result == REMOTE_ERROR ? "remote process exited or there was a network error" : "some error"; }
const char *ncclGetLastError(Comm *comm) { return (void)comm, ""; }
int ncclGetVersion(int *version) { return *version = 22809, SUCCESS; }

int ncclGetUniqueId(Id *id) {
    memset(id, 0, sizeof *id);
    pthread_mutex_lock(&lock);
    snprintf(id->internal, sizeof id->internal, "stand-in %d", ++ids);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int members(const Id *id, int more) {
    for (int i = 0; i < 64; ++i) {
        if (!opened[i].members) {
            opened[i].id = *id;
        }
        if (!memcmp(&opened[i].id, id, sizeof *id)) {
            return opened[i].members += more;
        }
    }
    fatal("too many communicators");
    return 0;
}

typedef struct {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
} Config;

int ncclCommInitRankConfig(Comm **comm, int size, Id id, int rank, Config *config) {
    if (config->magic != 0xcafebeef || config->size < sizeof *config || config->version < 22403 || config->blocking != 0 || rank < 0 || rank >= size) {
        return INVALID_ARGUMENT;
    }
    if (!current) {
        fatal("a communicator is opened without a current context");
    }
    Comm *c = calloc(1, sizeof *c);
    *c = (Comm){.id = id, .rank = rank, .size = size};
    *comm = c;
    pthread_mutex_lock(&lock);
    ++communicators;
    members(&id, 1);
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(Comm *comm, int *state) {
    pthread_mutex_lock(&lock);
    *state = comm->state ? comm->state : members(&comm->id, 0) < comm->size ? IN_PROGRESS : SUCCESS;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int ncclCommFinalize(Comm *comm) { return (void)comm, SUCCESS; }
int ncclCommAbort(Comm *comm) {
    pthread_mutex_lock(&lock);
    if (comm->aborted++) {
        fatal("a communicator is aborted or destroyed twice");
    }
    --communicators;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    // Operations may still use it.
    return SUCCESS;
}
int ncclCommDestroy(Comm *comm) { return ncclCommAbort(comm); }

// Requires the lock.
static void post(Comm *comm, int to, const char *source, size_t bytes) {
    check_memory(source, bytes);
    Message *m = malloc(sizeof *m + bytes);
    *m = (Message){.id = comm->id, .from = comm->rank, .to = to, .bytes = bytes};
    memcpy(m->data, source, bytes);
    Message **end = &mail;
    while (*end) {
        end = &(*end)->next;
    }
    *end = m;
    pthread_cond_broadcast(&changed);
}

// Returns the next message of a member, or null when the communicator is aborted. Requires the lock.
static Message *next(Comm *comm, int from, size_t bytes) {
    while (!comm->aborted) {
        for (Message **m = &mail; *m; m = &(*m)->next) {
            if ((*m)->from == from && (*m)->to == comm->rank && !memcmp(&(*m)->id, &comm->id, sizeof(Id))) {
                Message *found = *m;
                *m = found->next;
                if (found->bytes != bytes) {
                    fatal("a message has not the size that its receiver says");
                }
                return found;
            }
        }
        pthread_cond_wait(&changed, &lock);
    }
    return NULL;
}

static int32_t combined(int op, int32_t a, int32_t b) {
    switch (op) {
    case 0: return (int32_t)((uint32_t)a + (uint32_t)b);
    case 1: return (int32_t)((uint32_t)a * (uint32_t)b);
    case 2: return a > b ? a : b;
    default: return a < b ? a : b;
    }
}

// Sends the data of an operation for other members.
static void give(Op *o) {
    Comm *c = o->comm;
    if (o->kind == SEND) {
        post(c, o->peer, o->source, o->bytes);
    } else if (o->kind != RECEIVE) {
        for (int p = 0; p < c->size; ++p) {
            post(c, p, o->source + (o->kind == REDUCE_SCATTER ? p * o->bytes : 0), o->bytes);
        }
    }
}

static void take(Op *o) {
    Comm *c = o->comm;
    if (o->kind == SEND) {
        return;
    }
    check_memory(o->target, o->bytes * (o->kind == ALL_GATHER ? c->size : 1));
    int first = o->kind == RECEIVE ? o->peer : 0;
    int end = o->kind == RECEIVE ? o->peer + 1 : c->size;
    for (int p = first; p < end; ++p) {
        Message *m = next(c, p, o->bytes);
        if (!m) {
            return;
        }
        if (o->kind == REDUCE_SCATTER || o->kind == ALL_REDUCE) {
            int32_t *sum = (int32_t *)o->target;
            const int32_t *term = (const int32_t *)m->data;
            for (size_t i = 0; i < o->count; ++i) {
                sum[i] = p == 0 ? term[i] : combined(o->op, sum[i], term[i]);
            }
        } else {
            memcpy(o->target + (o->kind == ALL_GATHER ? p * o->bytes : 0), m->data, o->bytes);
        }
        free(m);
    }
}

static void *carry_out(void *argument) {
    Group *g = argument;
    Comm *c = g->ops[0].comm;
    pthread_mutex_lock(&lock);
    while (!c->aborted && (c->stalled || g->stream->done < g->ticket)) {
        pthread_cond_wait(&changed, &lock);
    }
    if (!c->aborted) {
        for (int i = 0; i < g->count; ++i) {
            give(&g->ops[i]);
        }
        for (int i = 0; i < g->count; ++i) {
            take(&g->ops[i]);
        }
    }
    ++g->stream->done;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(g);
    return NULL;
}

int ncclGroupStart(void) {
    if (group) {
        fatal("a group begins within a group");
    }
    group = calloc(1, sizeof *group);
    return SUCCESS;
}

int ncclGroupEnd(void) {
    Group *g = group;
    group = NULL;
    if (!g) {
        return INVALID_USAGE;
    }
    if (!g->count) {
        free(g);
        return SUCCESS;
    }
    Comm *c = g->ops[0].comm;
    int rank = -1, number = -1;
    char kind[16] = "";
    const char *fault = getenv("STAND_IN_FAULT");
    if (fault && sscanf(fault, "%d:%d:%15s", &rank, &number, kind) == 3 && rank == c->rank && number == c->groups) {
        if (!strcmp(kind, "refused")) {
            free(g);
            return SYSTEM_ERROR;
        }
        pthread_mutex_lock(&lock);
        if (!strcmp(kind, "asynchronous")) {
            c->state = REMOTE_ERROR;
        }
        c->stalled = 1;
        pthread_mutex_unlock(&lock);
    }
    ++c->groups;
    pthread_mutex_lock(&lock);
    g->ticket = g->stream->enqueued++;
    pthread_mutex_unlock(&lock);
    pthread_t thread;
    if (pthread_create(&thread, NULL, carry_out, g)) {
        fatal("no thread");
    }
    pthread_detach(thread);
    return IN_PROGRESS;
}

static int add(Op op, Stream *stream) {
    if (!group || group->count == 64 || op.peer >= op.comm->size || op.comm->aborted) {
        return INVALID_USAGE;
    }
    group->ops[group->count++] = op;
    group->stream = stream;
    return IN_PROGRESS;
}

int ncclSend(const void *source, size_t count, int type, int peer, Comm *comm, void *stream) {
    return type != 1 ? INVALID_ARGUMENT : add((Op){.kind = SEND, .comm = comm, .source = source, .bytes = count, .peer = peer}, stream);
}
int ncclRecv(void *target, size_t count, int type, int peer, Comm *comm, void *stream) {
    return type != 1 ? INVALID_ARGUMENT : add((Op){.kind = RECEIVE, .comm = comm, .target = target, .bytes = count, .peer = peer}, stream);
}
int ncclAllGather(const void *source, void *target, size_t count, int type, Comm *comm, void *stream) {
    return type != 1 ? INVALID_ARGUMENT : add((Op){.kind = ALL_GATHER, .comm = comm, .source = source, .target = target, .bytes = count}, stream);
}
// Only reductions of i32 are supported.
int ncclReduceScatter(const void *source, void *target, size_t count, int type, int op, Comm *comm, void *stream) {
    return type != 2 ? INVALID_ARGUMENT : add((Op){.kind = REDUCE_SCATTER, .comm = comm, .source = source, .target = target, .bytes = 4 * count, .count = count, .op = op}, stream);
}
int ncclAllReduce(const void *source, void *target, size_t count, int type, int op, Comm *comm, void *stream) {
    return type != 2 ? INVALID_ARGUMENT : add((Op){.kind = ALL_REDUCE, .comm = comm, .source = source, .target = target, .bytes = 4 * count, .count = count, .op = op}, stream);
}

// No operation here takes a minute.
__attribute__((constructor)) static void begin(void) { alarm(60); }

__attribute__((destructor)) static void end(void) {
    if (allocations || communicators) {
        fprintf(stderr, "stand-in: %d allocations and %d communicators are left\n", allocations, communicators);
        _exit(9);
    }
}
