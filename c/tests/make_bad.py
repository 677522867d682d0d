"""Writes a C program that calls every function of reshard.h with bad arguments, and once with good ones.

    python3 make_bad.py reshard.h >bad.c

Functions and arguments are those of the header, so that none is forgotten: an argument that is not known here fails.
Each function is called with good arguments (it must succeed), then with each argument in turn null, freed, of another kind, made up, no UTF-8,
too large or misaligned. It must return the expected status, and set a message that begins with its name.
"""

import re
import sys

HANDLES = "layout mesh sharding sharding_type planner plan op_sharding messages groups calls checkpoint".split()
SIZED = "step phase op tensor".split()

# Good texts: by function and argument, else by argument.
TEXTS = {
    ("reshard_mesh_parse", "notation"): '"dp=2,tp=2"',
    ("reshard_sharding_parse", "notation"): '"S(0),R"',
    ("reshard_sharding_type_parse", "notation"): '"S(0),R|P"',
    ("reshard_sharding_from_json", "json"): "sharding_json",
    ("reshard_plan_from_json", "json"): "plan_json",
    ("reshard_planner_of_profile", "settings"): '"objective=bytes"',
    "profile": '"launch_us = 5.0\\nmessage_us = 0.1\\nlevels = [{latency_us = 1.0, gbytes_per_s = 100.0}]"',
    "expression": '"(4,2):(1,4)"',
    "dtype": '"f32"',
    "settings": '"topology=h100 objective=bytes"',
    "axes": '"dp"',
    "op": '"relu"',
    "path": "path",
    "name": '"w"',
}

# Arguments that may be null.
OPTIONAL = {
    ("reshard_planner_new", "settings"), ("reshard_planner_of_profile", "settings"), ("reshard_plan_new", "planner"), ("reshard_propagate", "planner"), ("reshard_calls_new", "dtype"), ("reshard_calls_new", "groups"),
}

# Good numbers.
NUMBERS = {
    "capacity": "ROOM", "size": "ROOM", "dims": "2", "modes": "2", "count": "1", "axes": "2", "index": "0", "rank": "0", "dim": "0", "axis": "0",
    "source_bytes": "4 * op.source_len", "packed_bytes": "4 * op.packed_len", "received_bytes": "4 * op.received_len",
    "target_bytes": "4 * op.target_len",
}
LENGTHS = {"dims", "modes", "count", "axes", "source_bytes", "packed_bytes", "received_bytes", "target_bytes"}
INDICES = {"index", "rank", "dim", "axis"}

# Lists that are read, and output arguments.
LISTS = {
    "shape": "two", "starts": "zeros", "lengths": "ones", "coordinate": "zeros", "extents": "extents", "strides": "extents", "groups": "groups", "inputs": "inputs",
    "source": "bytes_in", "received": "bytes_in",
}
OUTS = {"out", "buffer", "length", "values", "count", "extents", "strides", "ranks", "known", "packed", "target", "bytes"}

PROLOGUE = r'''
#include "reshard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096 };
typedef union { size_t size; double number; void *pointer; char bytes[ROOM * 16]; } place;
static place places[8];
static const size_t two[] = {4, 2}, zeros[] = {0, 0}, ones[] = {1, 1};
static const int64_t extents[] = {2, 2};
static const uint8_t bytes_in[ROOM];
static const size_t members[] = {0, 1};
static const reshard_group groups[] = {{"tp", members, 2}};
static const char *path;
static const reshard_sharding *inputs[1];
static char sharding_json[ROOM], plan_json[ROOM];
static reshard_op op;
static size_t calls_made;

static void lost(const char *function, const char *what, reshard_status status, reshard_status wanted) {
    char message[1000];
    reshard_last_error(message, sizeof message);
    fprintf(stderr, "%s, %s: status %u, and not %u; the last error is: %s\n", function, what, (unsigned)status, (unsigned)wanted, message);
    exit(1);
}

static void expect(const char *function, const char *what, reshard_status status, reshard_status wanted) {
    char message[4000], kind[100];
    calls_made++;
    /* REFUSED is expected where any error will do: OUT_OF_RANGE is accepted too. */
    if (status == wanted || (wanted == RESHARD_STATUS_REFUSED && status == RESHARD_STATUS_OUT_OF_RANGE)) {
        if (status != RESHARD_STATUS_OK) {
            size_t length = reshard_last_error(message, sizeof message);
            if (length < strlen(function) + 5 || strncmp(message, function, strlen(function)) != 0 ||
                reshard_last_error_kind(kind, sizeof kind) == 0) {
                lost(function, what, status, wanted);
            }
        }
        return;
    }
    lost(function, what, status, wanted);
}

/* A capacity of one entry may or may not suffice. */
static void expect_fits(const char *function, const char *what, reshard_status status) {
    expect(function, what, status, status == RESHARD_STATUS_OK ? status : RESHARD_STATUS_OUT_OF_RANGE);
}

static void good(reshard_status status) {
    if (status != RESHARD_STATUS_OK) {
        lost("setup", "good arguments", status, RESHARD_STATUS_OK);
    }
}
'''

EPILOGUE = r'''
static void write_file(void) {
    const char *header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]}}";
    unsigned char length[8] = {0}, data[32] = {0};
    FILE *file = fopen(path, "wb");
    length[0] = (unsigned char)strlen(header);
    if (file == NULL || fwrite(length, 1, 8, file) != 8 || fwrite(header, 1, strlen(header), file) != strlen(header) ||
        fwrite(data, 1, 32, file) != 32 || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

/* Errors are per thread. While one thread frees a handle, the others find it valid or freed. */
static reshard_mesh *shared_mesh;

static void *uses(void *failed) {
    size_t i, size;
    char message[100];
    if (reshard_last_error(message, sizeof message) != 0 || message[0] != 0) {
        *(int *)failed = 1;
    }
    for (i = 0; i < 2000; i++) {
        reshard_status status = reshard_mesh_size(shared_mesh, &size);
        if (status == RESHARD_STATUS_OK ? size != 4 : status != RESHARD_STATUS_NOT_A_HANDLE) {
            *(int *)failed = 2;
        }
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    int failed[4] = {0, 0, 0, 0};
    size_t i;
    good(reshard_mesh_parse("x=4", &shared_mesh));
    for (i = 0; i < 4; i++) {
        if (pthread_create(&all[i], NULL, uses, &failed[i]) != 0) {
            perror("pthread_create");
            exit(1);
        }
    }
    good(reshard_mesh_free(shared_mesh));
    for (i = 0; i < 4; i++) {
        pthread_join(all[i], NULL);
        if (failed[i] != 0) {
            fprintf(stderr, "thread %zu failed: %d\n", i, failed[i]);
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    size_t length;
    char small[4];
    path = argc > 1 ? argv[1] : "bad.safetensors";
    write_file();
    if (reshard_abi() != RESHARD_ABI || reshard_last_error(NULL, 0) != 0) {
        return 1;
    }
    setup();
    good(reshard_sharding_json(the_sharding, sharding_json, ROOM, &length));
    good(reshard_plan_json(the_plan, plan_json, ROOM, &length));
    op.size = sizeof op;
    good(reshard_calls_op(the_calls, 0, &op));
    run_all();
    /* Messages that do not fit are truncated. */
    expect("reshard_mesh_parse", "no mesh", reshard_mesh_parse("=", &shared_mesh), RESHARD_STATUS_REFUSED);
    length = reshard_last_error(small, sizeof small);
    if (length <= 3 || strcmp(small, "res") != 0) {
        return 1;
    }
    threads();
    teardown();
    if (reshard_handles() != 0) {
        fprintf(stderr, "%zu handles are left\n", reshard_handles());
        return 1;
    }
    printf("%zu calls of %d functions, every bad argument was rejected\n", calls_made, FUNCTIONS);
    return 0;
}
'''


def split(parameters):
    for parameter in parameters.split(","):
        parameter = " ".join(parameter.split())
        match = re.fullmatch(r"(.*?[\s*])(\w+)", parameter)
        yield match[1].strip(), match[2]


def kind_of(type_, name, function):
    handle = re.fullmatch(r"(const )?(?:struct )?reshard_(\w+) \*", type_)
    if handle and handle[2] in HANDLES:
        return "handle", handle[2]
    if type_ == "const char *":
        return "text", None
    if type_.endswith("*") and type_.startswith("const"):
        return "list", None
    if type_.endswith("*"):
        return "out", None
    return "number", None


def value_of(function, type_, name, kind, at):
    if kind[0] == "handle":
        return f"the_{kind[1]}"
    if kind[0] == "text":
        return TEXTS.get((function, name)) or TEXTS[name]
    if kind[0] == "list":
        return LISTS[name]
    if kind[0] == "out":
        assert name in OUTS, (function, name)
        return f"({type_})(void *)&places[{at}]"
    return NUMBERS[name]


def main():
    with open(sys.argv[1], encoding="utf8") as file:
        header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    functions = re.findall(r"reshard_status (reshard_\w+)\(([^;]*?)\);", header)
    others = set(re.findall(r"\b(reshard_\w+)\(", header)) - {name for name, _ in functions}
    assert others == {"reshard_abi", "reshard_last_error", "reshard_last_error_kind", "reshard_handles"}, others
    out = [PROLOGUE]
    for handle in HANDLES:
        out.append(f"static reshard_{handle} *the_{handle}, *freed_{handle};")
    out.append('''
static void make(int again) {
    const size_t shape[] = {4, 2};
    reshard_sharding *to;
    (void)again;
    good(reshard_layout_parse("(4,2):(1,4)", &the_layout));
    good(reshard_mesh_parse("dp=2,tp=2", &the_mesh));
    good(reshard_sharding_parse(the_mesh, shape, 2, "S(0),R", &the_sharding));
    good(reshard_sharding_parse(the_mesh, shape, 2, "R,S(1)", &to));
    good(reshard_sharding_type_parse(the_mesh, shape, 2, "S(0),R|P", &the_sharding_type));
    good(reshard_planner_new(NULL, &the_planner));
    good(reshard_plan_new(the_sharding, to, "f32", NULL, &the_plan));
    good(reshard_sharding_free(to));
    inputs[0] = the_sharding;
    good(reshard_propagate("relu", inputs, 1, "f32", NULL, &the_op_sharding));
    good(reshard_messages_new(the_plan, 0, &the_messages));
    good(reshard_groups_new(groups, 1, &the_groups));
    good(reshard_calls_new(the_plan, 0, NULL, NULL, &the_calls));
    good(reshard_checkpoint_open(path, &the_checkpoint));
}
''')
    free = "".join(f"    good(reshard_{h}_free(the_{h}));\n" for h in HANDLES)
    keep = "".join(f"    freed_{h} = the_{h};\n" for h in HANDLES)
    out.append(f"static void teardown(void) {{\n{free}}}\n")
    out.append(f"static void setup(void) {{\n    make(0);\n{keep}    teardown();\n    make(1);\n}}\n")
    bodies = []
    for function, parameters in functions:
        all_ = [(type_, name, kind_of(type_, name, function)) for type_, name in split(parameters)]
        values = [value_of(function, type_, name, kind, at) for at, (type_, name, kind) in enumerate(all_)]
        lines = []
        for at, (type_, name, kind) in enumerate(all_):
            struct = re.fullmatch(r"(?:struct )?reshard_(\w+) \*", type_)
            if struct and struct[1] in SIZED and name == "out":
                sized = at, f"sizeof(reshard_{struct[1]})"
                break
        else:
            sized = None

        def call(what, wanted, changed=None, size=None):
            arguments = [changed[1] if changed and changed[0] == at else value for at, value in enumerate(values)]
            if sized:
                lines.append(f"    places[{sized[0]}].size = {size or sized[1]};")
            check = "expect_fits" if wanted == "OUT_OF_RANGE_OR_OK" else "expect"
            last = "" if check == "expect_fits" else f", RESHARD_STATUS_{wanted}"
            lines.append(f'    {check}("{function}", "{what}", {function}({", ".join(arguments)}){last});')

        is_free = function.endswith("_free")
        if not is_free:
            call("good arguments", "OK")
            for at, (type_, name, kind) in enumerate(all_):
                made = re.fullmatch(r"(?:struct )?reshard_(\w+) \*\*", type_)
                if made:
                    lines.append(f"    good(reshard_{made[1]}_free(*(reshard_{made[1]} **)(void *)&places[{at}]));")
        for at, (type_, name, kind) in enumerate(all_):
            what = kind[0]
            if what == "handle":
                null = "OK" if is_free or (function, name) in OPTIONAL else "NULL_POINTER"
                if not (null == "OK" and not is_free):
                    call(f"{name} null", null, (at, "NULL"))
                other = HANDLES[(HANDLES.index(kind[1]) + 1) % len(HANDLES)]
                for said, bad in [("freed", f"freed_{kind[1]}"), ("of another kind", f"({type_})(void *)the_{other}"),
                                  ("one", f"({type_})(size_t)1"), ("all bits", f"({type_})~(size_t)0"), ("an address", f"({type_})(void *)places")]:
                    call(f"{name} {said}", "NOT_A_HANDLE", (at, bad))
            elif what == "text":
                if (function, name) not in OPTIONAL:
                    call(f"{name} null", "NULL_POINTER", (at, "NULL"))
                # A mesh of no axes has one rank, and a planner without settings is the default one.
                empty = [] if name == "settings" or function == "reshard_mesh_parse" else [("empty", '""')]
                for said, bad in [*empty, ("no UTF-8", '"\\xff\\xfe("'), ("nonsense", '"!(,\\xc3\\xa9"')]:
                    call(f"{name} {said}", "REFUSED", (at, bad))
            elif what == "list":
                if (function, name) not in OPTIONAL:
                    # A null list with a length above 0.
                    call(f"{name} null", "NULL_POINTER", (at, "NULL"))
                if "uint8_t" not in type_:
                    call(f"{name} misaligned", "REFUSED", (at, f"({type_})(const void *)&places[0].bytes[1]"))
            elif what == "out":
                call(f"{name} null", "NULL_POINTER", (at, "NULL"))
                if "char" not in type_ and "uint8_t" not in type_:
                    call(f"{name} misaligned", "REFUSED", (at, f"({type_})(void *)&places[{at}].bytes[1]"))
                if sized and sized[0] == at:
                    for size in ("0", "1", "~(size_t)0"):
                        call(f"size {size}", "REFUSED", None, size)
            else:
                if name in LENGTHS:
                    call(f"{name} all bits", "REFUSED", (at, "~(size_t)0"))
                    if not name.endswith("bytes"):
                        call(f"{name} too many", "REFUSED", (at, "((size_t)1 << 24) + 1"))
                elif name in INDICES:
                    for number in ("~(size_t)0" if type_ == "size_t" else "-1", "1000"):
                        call(f"{name} {number}", "REFUSED", (at, number))
                else:
                    call(f"{name} 0", "OK", (at, "0"))
                    call(f"{name} 1", "OUT_OF_RANGE_OR_OK", (at, "1"))
        bodies.append(f"static void test_{function}(void) {{\n" + "\n".join(lines) + "\n}\n")
    out += bodies
    out.append("enum { FUNCTIONS = %d };\n" % len(functions))
    out.append("static void run_all(void) {\n" + "".join(f"    test_{f}();\n" for f, _ in functions) + "}\n")
    out.append(EPILOGUE)
    print("\n".join(out))


main()
