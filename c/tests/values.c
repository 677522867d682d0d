/* What functions answer, held against what is written here or computed another way. */
#include "reshard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, RANKS = 8, ROWS = 16, COLUMNS = 24, MOST = ROWS * COLUMNS };

static char text[ROOM];
static size_t length;

static void ok(reshard_status status) {
    if (status != RESHARD_STATUS_OK) {
        reshard_last_error(text, sizeof text);
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
}

static void that(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s (the last text is %s)\n", what, text);
        exit(1);
    }
}

static reshard_sharding *sharded(const reshard_mesh *mesh, const char *notation) {
    const size_t shape[] = {ROWS, COLUMNS};
    reshard_sharding *made;
    ok(reshard_sharding_parse(mesh, shape, 2, notation, &made));
    return made;
}

/* The element of the whole at each place of a rank's shard, from its region. */
static size_t numbers(const reshard_sharding *sharding, size_t rank, int *out) {
    reshard_interval rows[ROWS], columns[COLUMNS];
    size_t row_count, column_count, i, j, row, column, n = 0;
    ok(reshard_sharding_region(sharding, rank, 0, rows, ROWS, &row_count));
    ok(reshard_sharding_region(sharding, rank, 1, columns, COLUMNS, &column_count));
    for (i = 0; i < row_count; i++) {
        for (row = rows[i].start; row < rows[i].start + rows[i].length; row++) {
            for (j = 0; j < column_count; j++) {
                for (column = columns[j].start; column < columns[j].start + columns[j].length; column++) {
                    out[n++] = (int)(row * COLUMNS + column);
                }
            }
        }
    }
    return n;
}

static void land(const reshard_block *block, const int *source, int *target) {
    size_t at, mode, elements = 1;
    for (mode = 0; mode < block->mode_count; mode++) {
        elements *= block->modes[mode].extent;
    }
    for (at = 0; at < elements; at++) {
        long from = (long)block->source_offset, to = (long)block->target_offset;
        size_t left = at;
        for (mode = 0; mode < block->mode_count; mode++) {
            long digit = (long)(left % block->modes[mode].extent);
            left /= block->modes[mode].extent;
            from += digit * (long)block->modes[mode].source_stride;
            to += digit * (long)block->modes[mode].target_stride;
        }
        target[to] = source[from];
    }
}

/* A plan by its messages alone: all ranks in one process, phase after phase, blocks as the receivers list them. */
static void messages(const reshard_mesh *mesh, const char *from_text, const char *to_text) {
    static int before[RANKS][MOST], after[RANKS][MOST], wanted[MOST];
    reshard_sharding *from = sharded(mesh, from_text), *to = sharded(mesh, to_text);
    reshard_messages *all[RANKS];
    reshard_plan *plan;
    size_t rank, index, phases, count, i, j, n;
    ok(reshard_plan_new(from, to, "i32", NULL, &plan));
    for (rank = 0; rank < RANKS; rank++) {
        numbers(from, rank, before[rank]);
        ok(reshard_messages_new(plan, rank, &all[rank]));
    }
    ok(reshard_messages_phases(all[0], &phases));
    for (index = 0; index < phases; index++) {
        for (rank = 0; rank < RANKS; rank++) {
            reshard_phase phase;
            phase.size = sizeof phase;
            ok(reshard_messages_phase(all[rank], index, &phase));
            that(phase.size == sizeof phase && phase.divisor == 1 && phase.reduce == NULL && phase.member_count > 0, "a phase");
            for (i = 0, n = 0; i < phase.receive_count; i++) {
                n += phase.receives[i].elements;
                for (j = 0; j < phase.receives[i].block_count; j++) {
                    land(&phase.receives[i].blocks[j], before[phase.receives[i].peer], after[rank]);
                }
            }
            that(n == phase.target_len, "what is received");
        }
        memcpy(before, after, sizeof before);
    }
    for (rank = 0; rank < RANKS; rank++) {
        count = numbers(to, rank, wanted);
        that(memcmp(before[rank], wanted, count * sizeof *wanted) == 0, to_text);
        ok(reshard_messages_free(all[rank]));
    }
    ok(reshard_plan_free(plan));
    ok(reshard_sharding_free(from));
    ok(reshard_sharding_free(to));
}

/* A gather between two ranks takes 50 us, whatever its size. */
static const char profile[] = "launch_us = 900.0\nmessage_us = 0.1\nlevels = [{latency_us = 1.0, gbytes_per_s = 100.0}]\n"
                              "[[curves]]\ncollective = \"all_gather\"\nspread = [2]\nbytes = [1, 1073741824]\nus = [50.0, 50.0]\n";

static void measured(const reshard_mesh *mesh) {
    reshard_sharding *from = sharded(mesh, "S(0),R"), *to = sharded(mesh, "R,R");
    reshard_planner *planner;
    reshard_plan *plan;
    double cost;
    ok(reshard_planner_of_profile(profile, NULL, &planner));
    ok(reshard_plan_new(from, to, "f32", planner, &plan));
    ok(reshard_plan_cost_us(plan, &cost));
    that(cost == 50, "a measured time");
    ok(reshard_plan_free(plan));
    ok(reshard_planner_free(planner));
    ok(reshard_planner_of_profile(profile, "objective=bytes", &planner));
    ok(reshard_planner_free(planner));
    that(reshard_planner_of_profile(profile, "topology=h100", &planner) == RESHARD_STATUS_REFUSED, "two networks");
    ok(reshard_sharding_free(from));
    ok(reshard_sharding_free(to));
}

static void plans(const reshard_mesh *mesh) {
    reshard_sharding *from = sharded(mesh, "S(0),R"), *to = sharded(mesh, "R,R"), *again;
    reshard_planner *planner;
    reshard_plan *plan, *back, *read;
    reshard_step step;
    uint64_t bytes, bound;
    uint8_t known, equal;
    double cost;
    size_t steps, ranks[RANKS], count;
    ok(reshard_planner_new("objective=bytes", &planner));
    ok(reshard_plan_new(from, to, "f32", planner, &plan));
    ok(reshard_plan_steps(plan, &steps));
    step.size = sizeof step;
    ok(reshard_plan_step(plan, 0, &step));
    that(steps == 1 && strcmp(step.op, "all_gather") == 0 && step.communicates == 1, "one all-gather");
    ok(reshard_plan_received_bytes(plan, &bytes));
    ok(reshard_plan_lower_bound_bytes(plan, &bound, &known));
    ok(reshard_plan_cost_us(plan, &cost));
    that(bytes == MOST / 2 * 4 && known == 1 && bound == bytes && cost > 0, "half of it is received");
    ok(reshard_plan_ranks(plan, ranks, RANKS, &count));
    that(count == RANKS && ranks[7] == 7, "all ranks");
    that(reshard_plan_ranks(plan, ranks, RANKS - 1, &count) == RESHARD_STATUS_OUT_OF_RANGE && count == RANKS, "room for one less");
    ok(reshard_plan_transposed(plan, &back));
    ok(reshard_plan_text(back, text, ROOM, &length));
    that(strstr(text, "reduce_scatter") != NULL && strlen(text) == length, "the gradient of a gather");
    ok(reshard_plan_json(plan, text, ROOM, &length));
    ok(reshard_plan_from_json(text, &read));
    ok(reshard_plan_steps(read, &steps));
    that(steps == 1, "a plan that was stored");
    ok(reshard_sharding_json(from, text, ROOM, &length));
    ok(reshard_sharding_from_json(text, &again));
    ok(reshard_sharding_equal(from, again, &equal));
    that(equal == 1, "a sharding that was stored");
    ok(reshard_sharding_equal(from, to, &equal));
    that(equal == 0, "two shardings");
    ok(reshard_plan_free(plan));
    ok(reshard_plan_free(back));
    ok(reshard_plan_free(read));
    ok(reshard_planner_free(planner));
    ok(reshard_sharding_free(from));
    ok(reshard_sharding_free(again));
    ok(reshard_sharding_free(to));
}

static void meshes_and_types(const reshard_mesh *mesh) {
    const size_t shape[] = {ROWS, COLUMNS}, flat[] = {MOST}, last[] = {1, 3};
    size_t values[RANKS], count, ranks;
    reshard_sharding *sharding = sharded(mesh, "S(0),R"), *view;
    reshard_sharding_type *type;
    reshard_mesh *same;
    int64_t extents[4], strides[4];
    reshard_layout *layout;
    ok(reshard_mesh_axis(mesh, 1, &ranks, text, ROOM, &length));
    that(ranks == 4 && strcmp(text, "tp") == 0, "an axis");
    ok(reshard_mesh_group(mesh, "dp", 5, values, RANKS, &count));
    that(count == 2 && values[0] == 1 && values[1] == 5, "a group");
    ok(reshard_mesh_coordinate(mesh, 7, values, RANKS, &count));
    that(count == 2 && values[0] == 1 && values[1] == 3, "a coordinate");
    ok(reshard_mesh_rank_at(mesh, last, 2, &ranks));
    that(ranks == 7, "a rank");
    ok(reshard_sharding_mesh(sharding, &same));
    ok(reshard_mesh_text(same, text, ROOM, &length));
    that(strcmp(text, "dp=2,tp=4") == 0, "a sharding's mesh");
    ok(reshard_sharding_view(sharding, flat, 1, &view));
    ok(reshard_sharding_local_shape(view, 0, values, RANKS, &count));
    that(count == 1 && values[0] == MOST / 2, "a view");
    ok(reshard_sharding_type_parse(mesh, shape, 2, "S(0),R|P", &type));
    ok(reshard_sharding_free(view));
    ok(reshard_sharding_type_gradient(type, &view));
    ok(reshard_sharding_text(view, text, ROOM, &length));
    that(strcmp(text, "S(0),P(sum)") == 0, "a gradient");
    ok(reshard_layout_parse("(4,2):(1,8)", &layout));
    ok(reshard_layout_modes(layout, extents, strides, 4, &count));
    that(count == 2 && extents[1] == 2 && strides[1] == 8, "modes");
    ok(reshard_layout_free(layout));
    ok(reshard_sharding_type_free(type));
    ok(reshard_sharding_free(view));
    ok(reshard_sharding_free(sharding));
    ok(reshard_mesh_free(same));
}

static void checkpoint(const reshard_mesh *mesh, const char *path) {
    const char *header = "{\"w\":{\"dtype\":\"I32\",\"shape\":[16,24],\"data_offsets\":[0,1536]}}";
    const size_t starts[] = {3, 5}, lengths[] = {2, 1};
    unsigned char size[8] = {0};
    int data[MOST], wanted[MOST], got[MOST], i;
    reshard_sharding *sharding = sharded(mesh, "S(1),S(0)");
    reshard_checkpoint *opened;
    reshard_tensor tensor;
    size_t count, rank;
    FILE *file = fopen(path, "wb");
    for (i = 0; i < MOST; i++) {
        data[i] = i;
    }
    size[0] = (unsigned char)strlen(header);
    that(file != NULL && fwrite(size, 1, 8, file) == 8 && fwrite(header, 1, strlen(header), file) == strlen(header) &&
             fwrite(data, sizeof *data, MOST, file) == MOST && fclose(file) == 0,
         path);
    ok(reshard_checkpoint_open(path, &opened));
    tensor.size = sizeof tensor;
    ok(reshard_checkpoint_tensor(opened, 0, &tensor));
    that(strcmp(tensor.name, "w") == 0 && strcmp(tensor.dtype, "i32") == 0 && tensor.dims == 2 && tensor.shape[1] == 24 && tensor.bytes == 1536,
         "a tensor");
    ok(reshard_checkpoint_read(opened, "w", starts, lengths, 2, (uint8_t *)got, sizeof got, &length));
    that(length == 8 && got[0] == 3 * 24 + 5 && got[1] == 4 * 24 + 5, "a region");
    for (rank = 0; rank < RANKS; rank++) {
        ok(reshard_checkpoint_shard(opened, "w", sharding, rank, (uint8_t *)got, sizeof got, &length));
        count = numbers(sharding, rank, wanted);
        that(length == count * sizeof *wanted && memcmp(got, wanted, length) == 0, "a shard");
    }
    ok(reshard_checkpoint_free(opened));
    ok(reshard_sharding_free(sharding));
}

/* A sum of two equal shardings has this sharding, and neither input is redistributed. */
static void propagation(const reshard_mesh *mesh) {
    const reshard_sharding *inputs[2];
    reshard_sharding *given = sharded(mesh, "S(0),S(1)"), *input, *output;
    reshard_op_sharding *chosen;
    reshard_planner *planner;
    uint8_t equal[2];
    size_t outputs;
    double cost;
    inputs[0] = given, inputs[1] = given;
    ok(reshard_propagate("add", inputs, 2, "f32", NULL, &chosen));
    ok(reshard_op_sharding_cost_us(chosen, &cost));
    ok(reshard_op_sharding_outputs(chosen, &outputs));
    ok(reshard_op_sharding_input(chosen, 1, &input));
    ok(reshard_op_sharding_output(chosen, 0, &output));
    ok(reshard_sharding_equal(input, given, &equal[0]));
    ok(reshard_sharding_equal(output, given, &equal[1]));
    that(cost == 0 && outputs == 1 && equal[0] == 1 && equal[1] == 1, "a sum without communication");
    that(reshard_op_sharding_output(chosen, 1, &output) == RESHARD_STATUS_OUT_OF_RANGE, "one output");
    that(reshard_propagate("add", inputs, 0, "f32", NULL, &chosen) == RESHARD_STATUS_REFUSED, "no inputs");
    that(reshard_propagate("ad", inputs, 2, "f32", NULL, &chosen) == RESHARD_STATUS_REFUSED, "no such op");
    ok(reshard_sharding_free(given));
    ok(reshard_sharding_free(input));
    ok(reshard_sharding_free(output));
    ok(reshard_op_sharding_free(chosen));
    /* Partial complex numbers are sums that only a framework computes. */
    given = sharded(mesh, "P,R");
    inputs[0] = given;
    that(reshard_propagate("neg", inputs, 1, "c64", NULL, &chosen) == RESHARD_STATUS_REFUSED, "no kernel adds c64");
    ok(reshard_planner_new("arithmetic=framework budget=1000", &planner));
    ok(reshard_propagate("neg", inputs, 1, "c64", planner, &chosen));
    ok(reshard_planner_free(planner));
    ok(reshard_op_sharding_free(chosen));
    ok(reshard_sharding_free(given));
}

int main(int argc, char **argv) {
    static const char *pairs[][2] = {{"S(0),S(1)", "S(1),S(0)"}, {"S(0),S(0)", "S(1),S(1)"}, {"R,S(1)", "S(0),R"}, {"SS(0,2),R", "R,S(0)"}};
    reshard_mesh *mesh;
    size_t i, count, few[3];
    /* How many there are is said of any mesh, and nothing is made that has no room. */
    ok(reshard_mesh_parse("a=4611686018427387904", &mesh));
    ok(reshard_mesh_ranks(mesh, NULL, 0, &count));
    that(count == (size_t)1 << 62, "the ranks of a large mesh");
    that(reshard_mesh_ranks(mesh, few, 3, &count) == RESHARD_STATUS_OUT_OF_RANGE, "room for three of many ranks");
    ok(reshard_mesh_free(mesh));
    ok(reshard_mesh_parse("a=3:2@1", &mesh));
    ok(reshard_mesh_ranks(mesh, few, 3, &count));
    that(count == 3 && few[0] == 1 && few[1] == 3 && few[2] == 5, "the ranks of a small mesh");
    ok(reshard_mesh_free(mesh));
    ok(reshard_mesh_parse("dp=2,tp=4", &mesh));
    for (i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        messages(mesh, pairs[i][0], pairs[i][1]);
    }
    plans(mesh);
    measured(mesh);
    meshes_and_types(mesh);
    checkpoint(mesh, argc > 1 ? argv[1] : "values.safetensors");
    propagation(mesh);
    ok(reshard_mesh_free(mesh));
    that(reshard_handles() == 0, "all handles are freed");
    printf("values are as written\n");
    return 0;
}
