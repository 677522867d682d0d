/* reshard for C and C++: layouts, meshes, shardings, types, plans, a rank's calls of them, checkpoints.
 *
 * Handles: a handle is a number typed as a pointer, and does not point to memory. It is immutable, may be used on any
 * thread, and is freed by its _free function. A handle that was freed, is of another kind, or never was one gives
 * RESHARD_STATUS_NOT_A_HANDLE.
 *
 * Texts and lists: texts are UTF-8 and end with a 0. A text or a list is returned in a buffer of the caller, with its
 * capacity; its length is written to another pointer. With a capacity of 0 only the length is written. Empty lists may
 * be null.
 *
 * Structs: where a struct begins with its size, the caller sets it to its sizeof, and the struct may grow in later
 * versions; other structs do not change within one RESHARD_ABI. The data that structs point to belongs to the handle
 * that they come from.
 *
 * All other memory that is passed is read or written during the call only; it must be valid, and as large as the
 * arguments declare.
 *
 * Errors: if a function returns anything but RESHARD_STATUS_OK, its outputs are undefined, except for lengths.
 * reshard_last_error then has a message for this thread. */

#ifndef RESHARD_H
#define RESHARD_H

#include <stddef.h>
#include <stdint.h>

/*
 The version of this header; it stays when structs grow or functions are added.
 */
#define RESHARD_ABI 1

/*
 The status that a function returns; `reshard_last_error` describes every one but `RESHARD_STATUS_OK`.
 */
enum reshard_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Done.
   */
  RESHARD_STATUS_OK = 0,
  /*
   The library rejected the arguments; nothing was done.
   */
  RESHARD_STATUS_REFUSED = 1,
  /*
   A pointer that must not be null is null.
   */
  RESHARD_STATUS_NULL_POINTER = 2,
  /*
   An index is out of range, or the result does not fit in the caller's buffer.
   */
  RESHARD_STATUS_OUT_OF_RANGE = 3,
  /*
   The library panicked: a bug in it.
   */
  RESHARD_STATUS_PANICKED = 4,
  /*
   A handle was freed, is of another kind, or never was one.
   */
  RESHARD_STATUS_NOT_A_HANDLE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reshard_status reshard_status;
#else
typedef uint32_t reshard_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The kind of call.
 */
enum reshard_call
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   No communication: the packed elements are unpacked.
   */
  RESHARD_CALL_LOCAL = 0,
  /*
   The packed elements of all ranks, concatenated in the order of the group.
   */
  RESHARD_CALL_ALL_GATHER = 1,
  /*
   The reduction of this rank's block over all ranks of the group.
   */
  RESHARD_CALL_REDUCE_SCATTER = 2,
  /*
   The reduction of the packed elements of all ranks of the group.
   */
  RESHARD_CALL_ALL_REDUCE = 3,
  /*
   A block to and from each rank of the group.
   */
  RESHARD_CALL_ALL_TO_ALL = 4,
  /*
   A message to and from some ranks.
   */
  RESHARD_CALL_MESSAGES = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reshard_call reshard_call;
#else
typedef uint32_t reshard_call;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The calls with which one rank executes a plan.
 */
typedef struct reshard_calls reshard_calls;

/*
 The tensors of a file or a folder.
 */
typedef struct reshard_checkpoint reshard_checkpoint;

/*
 Framework groups: the process groups that exist.
 */
typedef struct reshard_groups reshard_groups;

/*
 A layout: a function from an index to an offset.
 */
typedef struct reshard_layout reshard_layout;

/*
 Ranks along named axes.
 */
typedef struct reshard_mesh reshard_mesh;

/*
 The messages that one rank sends and receives, phase by phase.
 */
typedef struct reshard_messages reshard_messages;

/*
 The cheapest shardings of the inputs and outputs of an op.
 */
typedef struct reshard_op_sharding reshard_op_sharding;

/*
 The steps from one sharding to another.
 */
typedef struct reshard_plan reshard_plan;

/*
 A planner for one network and one objective, with a cache of its plans.
 */
typedef struct reshard_planner reshard_planner;

/*
 The elements of a tensor that each rank holds.
 */
typedef struct reshard_sharding reshard_sharding;

/*
 The sharding of a value and that of its gradient.
 */
typedef struct reshard_sharding_type reshard_sharding_type;

/*
 An existing process group: its name, and its ranks in the order of their group ranks.
 */
typedef struct reshard_group {
  /*
   The name of the group.
   */
  const char *name;
  /*
   Its ranks.
   */
  const size_t *members;
  /*
   The number of ranks in `members`.
   */
  size_t member_count;
} reshard_group;

/*
 The number of elements sent to one rank or received from it.
 */
typedef struct reshard_part {
  /*
   The rank.
   */
  size_t peer;
  /*
   Elements.
   */
  size_t elements;
} reshard_part;

/*
 A loop over elements of a buffer.
 */
typedef struct reshard_loop {
  /*
   The number of iterations.
   */
  size_t extent;
  /*
   The distance between consecutive elements, in elements.
   */
  int64_t stride;
} reshard_loop;

/*
 Elements of a flat buffer: an offset and loops, the outermost first; no loops are one element.
 */
typedef struct reshard_view {
  /*
   The first element.
   */
  size_t offset;
  /*
   The number of elements.
   */
  size_t elements;
  /*
   The loops.
   */
  const struct reshard_loop *loops;
  /*
   The number of entries in `loops`.
   */
  size_t loop_count;
} reshard_view;

/*
 One received operand of a reduction.
 */
typedef struct reshard_term {
  /*
   The index of its first element in the received elements.
   */
  size_t start;
  /*
   The index of the first view in `unpack` that it is written to.
   */
  size_t first_view;
  /*
   The number of views that it is written to.
   */
  size_t view_count;
} reshard_term;

/*
 One call of a plan on a rank: it packs the rank's buffer, calls, and unpacks into a new buffer.
 */
typedef struct reshard_op {
  /*
   The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
   */
  size_t size;
  /*
   The index of the plan's step.
   */
  size_t step;
  /*
   The kind of call.
   */
  reshard_call call;
  /*
   1 if the rank takes part without data, because the call is collective, and keeps its buffer; else 0.
   */
  uint32_t attends;
  /*
   The name of the group; null for a call of none.
   */
  const char *group;
  /*
   The ranks of the group in its order.
   */
  const size_t *members;
  /*
   The number of ranks in `members`.
   */
  size_t member_count;
  /*
   The reduction of the call, such as `sum`; null if it does not reduce.
   */
  const char *reduce;
  /*
   The recipients of an all-to-all or of messages, in the order of the packed elements.
   */
  const struct reshard_part *sends;
  /*
   The number of entries in `sends`.
   */
  size_t send_count;
  /*
   The senders of an all-to-all or of messages, in the order of the received elements.
   */
  const struct reshard_part *receives;
  /*
   The number of entries in `receives`.
   */
  size_t receive_count;
  /*
   The views of the source buffer that are packed.
   */
  const struct reshard_view *pack;
  /*
   The number of entries in `pack`.
   */
  size_t pack_count;
  /*
   The views of the target buffer that are written.
   */
  const struct reshard_view *unpack;
  /*
   The number of entries in `unpack`.
   */
  size_t unpack_count;
  /*
   The op that combines the operands of `terms`; null if there are none.
   */
  const char *combine;
  /*
   The received operands, in the order in which they are combined.
   */
  const struct reshard_term *terms;
  /*
   The number of entries in `terms`.
   */
  size_t term_count;
  /*
   The op with whose identity the target is filled first; null for none.
   */
  const char *fill;
  /*
   The divisor of the target after the reduction; 1 for none.
   */
  size_t divisor;
  /*
   Elements of the buffer before.
   */
  size_t source_len;
  /*
   Elements of the buffer after.
   */
  size_t target_len;
  /*
   Elements that are packed.
   */
  size_t packed_len;
  /*
   Elements that the call brings.
   */
  size_t received_len;
} reshard_op;

/*
 The metadata of a tensor in a checkpoint.
 */
typedef struct reshard_tensor {
  /*
   The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
   */
  size_t size;
  /*
   Its name.
   */
  const char *name;
  /*
   The type of its elements, such as `f32`.
   */
  const char *dtype;
  /*
   The shape of the global tensor.
   */
  const size_t *shape;
  /*
   The number of dims.
   */
  size_t dims;
  /*
   The bytes of the global tensor.
   */
  uint64_t bytes;
} reshard_tensor;

/*
 An extent, with the distances between elements in the sender's and in the receiver's buffer.
 */
typedef struct reshard_mode {
  /*
   The number of elements.
   */
  size_t extent;
  /*
   The distance between consecutive elements in the sender's buffer, in elements.
   */
  int64_t source_stride;
  /*
   The distance between consecutive elements in the receiver's buffer, in elements.
   */
  int64_t target_stride;
} reshard_mode;

/*
 A strided block of elements: two offsets, and modes, the leftmost fastest; no modes are one element.
 */
typedef struct reshard_block {
  /*
   The offset of the first element in the sender's buffer.
   */
  size_t source_offset;
  /*
   The offset of the first element in the receiver's buffer.
   */
  size_t target_offset;
  /*
   The modes.
   */
  const struct reshard_mode *modes;
  /*
   The number of entries in `modes`.
   */
  size_t mode_count;
} reshard_block;

/*
 The blocks that one rank sends to another, in the same order on both.
 */
typedef struct reshard_message {
  /*
   The other rank.
   */
  size_t peer;
  /*
   The number of elements.
   */
  size_t elements;
  /*
   The blocks that are sent.
   */
  const struct reshard_block *blocks;
  /*
   The number of entries in `blocks`.
   */
  size_t block_count;
} reshard_message;

/*
 The transfers of one rank in one phase of a step.
 */
typedef struct reshard_phase {
  /*
   The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
   */
  size_t size;
  /*
   The index of the plan's step.
   */
  size_t step;
  /*
   Elements of the buffer before.
   */
  size_t source_len;
  /*
   Elements of the buffer after.
   */
  size_t target_len;
  /*
   The op with whose identity the target is first filled; null for none.
   */
  const char *fill;
  /*
   The op that combines the received messages, in the order listed; null if they are not combined.
   */
  const char *reduce;
  /*
   The divisor of the combined elements; 1 for none.
   */
  size_t divisor;
  /*
   The messages received; one from the rank itself is a local copy.
   */
  const struct reshard_message *receives;
  /*
   The number of entries in `receives`.
   */
  size_t receive_count;
  /*
   The messages sent.
   */
  const struct reshard_message *sends;
  /*
   The number of entries in `sends`.
   */
  size_t send_count;
  /*
   The ranks that take part in the phase, ascending.
   */
  const size_t *members;
  /*
   The number of ranks in `members`.
   */
  size_t member_count;
} reshard_phase;

/*
 One operation of a plan.
 */
typedef struct reshard_step {
  /*
   The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
   */
  size_t size;
  /*
   `slice`, `all_gather`, `reduce_scatter`, `all_reduce`, `all_to_all`, `exchange` or `zero_fill`.
   */
  const char *op;
  /*
   The most bytes that any rank receives.
   */
  uint64_t received_bytes;
  /*
   The most bytes that any rank sends.
   */
  uint64_t sent_bytes;
  /*
   The most bytes that any rank holds.
   */
  uint64_t peak_bytes;
  /*
   Modelled time in microseconds.
   */
  double cost_us;
  /*
   1 if ranks communicate in the step, else 0.
   */
  uint8_t communicates;
} reshard_step;

/*
 A range of consecutive indices.
 */
typedef struct reshard_interval {
  /*
   The first index.
   */
  size_t start;
  /*
   The number of indices.
   */
  size_t length;
} reshard_interval;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Makes a list of the process groups that exist; it must be the same on all ranks.
 */
reshard_status reshard_groups_new(const struct reshard_group *groups, size_t count, struct reshard_groups **out);

/*
 Frees framework groups; calls that use them stay valid. Null is ignored.
 */
reshard_status reshard_groups_free(struct reshard_groups *groups);

/*
 Converts a plan to the calls of one rank.

 `dtype` may be null, for the plan's own; `groups` may be null if the calls are messages only.
 */
reshard_status reshard_calls_new(const struct reshard_plan *plan,
                                 size_t rank,
                                 const char *dtype,
                                 const struct reshard_groups *groups,
                                 struct reshard_calls **out);

/*
 Frees calls, and the data that their ops point to; null is ignored.
 */
reshard_status reshard_calls_free(struct reshard_calls *calls);

/*
 Prints the calls, one a line.
 */
reshard_status reshard_calls_text(const struct reshard_calls *calls, char *buffer, size_t size, size_t *length);

/*
 The number of calls; 0 if the target equals the source.
 */
reshard_status reshard_calls_count(const struct reshard_calls *calls, size_t *out);

/*
 One call; the data that it points to is valid until the calls are freed.
 */
reshard_status reshard_calls_op(const struct reshard_calls *calls, size_t index, struct reshard_op *out);

/*
 Packs the elements of the views of `pack` contiguously.

 The buffers have the bytes of `source_len` and `packed_len` elements, and do not overlap.
 */
reshard_status reshard_calls_pack(const struct reshard_calls *calls,
                                  size_t index,
                                  const uint8_t *source,
                                  size_t source_bytes,
                                  uint8_t *packed,
                                  size_t packed_bytes);

/*
 Makes the target buffer from the received elements: fills, unpacks, combines and divides.

 The buffers have the bytes of `received_len` and `target_len` elements, and do not overlap. On a rank
 whose call has `attends` set it does nothing.
 */
reshard_status reshard_calls_unpack(const struct reshard_calls *calls,
                                    size_t index,
                                    const uint8_t *received,
                                    size_t received_bytes,
                                    uint8_t *target,
                                    size_t target_bytes);

/*
 The `RESHARD_ABI` of the header that the library was built with; with another header call nothing else.
 */
uint32_t reshard_abi(void);

/*
 The message of the last error of this thread, empty if there was none.

 Writes at most `size` bytes of it to `buffer`, the last of them 0, and returns its length without that 0.
 `buffer` may be null if `size` is 0.
 */
size_t reshard_last_error(char *buffer, size_t size);

/*
 The kind of the last error of this thread, such as `parse`, written like `reshard_last_error`.
 */
size_t reshard_last_error_kind(char *buffer, size_t size);

/*
 The tensors of a file or a folder, in any supported format; opening reads headers only.
 */
reshard_status reshard_checkpoint_open(const char *path, struct reshard_checkpoint **out);

/*
 Frees a checkpoint, and the data that its tensors point to; null is ignored.
 */
reshard_status reshard_checkpoint_free(struct reshard_checkpoint *checkpoint);

/*
 The number of tensors.
 */
reshard_status reshard_checkpoint_tensors(const struct reshard_checkpoint *checkpoint, size_t *out);

/*
 One tensor; the data that it points to is valid until the checkpoint is freed.
 */
reshard_status reshard_checkpoint_tensor(const struct reshard_checkpoint *checkpoint,
                                         size_t index,
                                         struct reshard_tensor *out);

/*
 The bytes of a region of a tensor, row-major; nothing else of the tensor is read.

 The region has `lengths` indices from `starts` on, along each of `dims` dims. With a `capacity` of 0 only
 the length is written, but the region is read all the same.
 */
reshard_status reshard_checkpoint_read(const struct reshard_checkpoint *checkpoint,
                                       const char *name,
                                       const size_t *starts,
                                       const size_t *lengths,
                                       size_t dims,
                                       uint8_t *bytes,
                                       size_t capacity,
                                       size_t *length);

/*
 The bytes of a rank's shard of a tensor; nothing else of the tensor is read.
 */
reshard_status reshard_checkpoint_shard(const struct reshard_checkpoint *checkpoint,
                                        const char *name,
                                        const struct reshard_sharding *sharding,
                                        size_t rank,
                                        uint8_t *bytes,
                                        size_t capacity,
                                        size_t *length);

/*
 The number of handles that have not been freed.
 */
size_t reshard_handles(void);

/*
 The value of an expression of the layout algebra as text: `size((4,2):(1,4))` is `8`.
 */
reshard_status reshard_evaluate(const char *expression, char *buffer, size_t size, size_t *length);

/*
 A layout from its notation, such as `(4,2):(1,4)`, or from an expression such as `coalesce((4,2):(1,4))`.
 */
reshard_status reshard_layout_parse(const char *expression, struct reshard_layout **out);

/*
 A flat layout of `modes` extents and strides, the leftmost fastest.
 */
reshard_status reshard_layout_new(const int64_t *extents,
                                  const int64_t *strides,
                                  size_t modes,
                                  struct reshard_layout **out);

/*
 Frees a layout; null is ignored.
 */
reshard_status reshard_layout_free(struct reshard_layout *layout);

/*
 The notation of the layout.
 */
reshard_status reshard_layout_text(const struct reshard_layout *layout, char *buffer, size_t size, size_t *length);

/*
 The number of indices.
 */
reshard_status reshard_layout_size(const struct reshard_layout *layout, int64_t *out);

/*
 The offset of an index below the size.
 */
reshard_status reshard_layout_at(const struct reshard_layout *layout, int64_t index, int64_t *out);

/*
 The extents and strides of the flattened modes, the leftmost fastest; at most `capacity` of each.
 */
reshard_status reshard_layout_modes(const struct reshard_layout *layout,
                                    int64_t *extents,
                                    int64_t *strides,
                                    size_t capacity,
                                    size_t *count);

/*
 A mesh from its notation, such as `dp=2,tp=4`.
 */
reshard_status reshard_mesh_parse(const char *notation, struct reshard_mesh **out);

/*
 Frees a mesh; shardings over it stay valid. Null is ignored.
 */
reshard_status reshard_mesh_free(struct reshard_mesh *mesh);

/*
 The notation of the mesh.
 */
reshard_status reshard_mesh_text(const struct reshard_mesh *mesh, char *buffer, size_t size, size_t *length);

/*
 The number of ranks.
 */
reshard_status reshard_mesh_size(const struct reshard_mesh *mesh, size_t *out);

/*
 All ranks in the order of their coordinates, the last axis fastest.
 */
reshard_status reshard_mesh_ranks(const struct reshard_mesh *mesh, size_t *values, size_t capacity, size_t *count);

/*
 The name and the size of an axis; axes are counted from the outermost.
 */
reshard_status reshard_mesh_axis(const struct reshard_mesh *mesh,
                                 size_t axis,
                                 size_t *ranks,
                                 char *buffer,
                                 size_t size,
                                 size_t *length);

/*
 The coordinate of a rank along each axis.
 */
reshard_status reshard_mesh_coordinate(const struct reshard_mesh *mesh,
                                       size_t rank,
                                       size_t *values,
                                       size_t capacity,
                                       size_t *count);

/*
 The rank at a coordinate of `axes` numbers.
 */
reshard_status reshard_mesh_rank_at(const struct reshard_mesh *mesh,
                                    const size_t *coordinate,
                                    size_t axes,
                                    size_t *out);

/*
 The ranks of a rank's group along axes, such as `dp` or `dp,tp`, ascending, the rank among them.
 */
reshard_status reshard_mesh_group(const struct reshard_mesh *mesh,
                                  const char *axes,
                                  size_t rank,
                                  size_t *values,
                                  size_t capacity,
                                  size_t *count);

/*
 The messages that one rank sends and receives, for callers with their own transport.
 */
reshard_status reshard_messages_new(const struct reshard_plan *plan, size_t rank, struct reshard_messages **out);

/*
 Frees messages, and the data that their phases point to; null is ignored.
 */
reshard_status reshard_messages_free(struct reshard_messages *messages);

/*
 The number of phases.
 */
reshard_status reshard_messages_phases(const struct reshard_messages *messages, size_t *out);

/*
 One phase; the data that it points to is valid until the messages are freed.
 */
reshard_status reshard_messages_phase(const struct reshard_messages *messages, size_t index, struct reshard_phase *out);

/*
 Plans the redistribution from one sharding to another of the same tensor.

 `dtype` is the type of its elements, such as `f32`. `planner` may be null, for the default one.
 */
reshard_status reshard_plan_new(const struct reshard_sharding *from,
                                const struct reshard_sharding *to,
                                const char *dtype,
                                const struct reshard_planner *planner,
                                struct reshard_plan **out);

/*
 Reads a plan from the JSON of `reshard_plan_json`, and plans it again.
 */
reshard_status reshard_plan_from_json(const char *json, struct reshard_plan **out);

/*
 Frees a plan; null is ignored.
 */
reshard_status reshard_plan_free(struct reshard_plan *plan);

/*
 Prints the steps of the plan.
 */
reshard_status reshard_plan_text(const struct reshard_plan *plan, char *buffer, size_t size, size_t *length);

/*
 The request of the plan (shardings, dtype and options) as JSON.
 */
reshard_status reshard_plan_json(const struct reshard_plan *plan, char *buffer, size_t size, size_t *length);

/*
 The number of steps; 0 if every rank already holds its target.
 */
reshard_status reshard_plan_steps(const struct reshard_plan *plan, size_t *out);

/*
 One step of the plan.
 */
reshard_status reshard_plan_step(const struct reshard_plan *plan, size_t index, struct reshard_step *out);

/*
 The greatest total of bytes that any one rank receives.
 */
reshard_status reshard_plan_received_bytes(const struct reshard_plan *plan, uint64_t *out);

/*
 The most bytes that any rank holds at one time.
 */
reshard_status reshard_plan_peak_bytes(const struct reshard_plan *plan, uint64_t *out);

/*
 Modelled time in microseconds.
 */
reshard_status reshard_plan_cost_us(const struct reshard_plan *plan, double *out);

/*
 A lower bound of the bytes that the worst rank must receive; if there is none, it and `known` are 0.
 */
reshard_status reshard_plan_lower_bound_bytes(const struct reshard_plan *plan, uint64_t *out, uint8_t *known);

/*
 All ranks that hold elements before or after, ascending.
 */
reshard_status reshard_plan_ranks(const struct reshard_plan *plan, size_t *values, size_t capacity, size_t *count);

/*
 The transposed plan, between the cotangent shardings: from that of the target to that of the source.
 */
reshard_status reshard_plan_transposed(const struct reshard_plan *plan, struct reshard_plan **out);

/*
 Makes a planner from its settings, such as `topology=h100 objective=bytes`; null is the default one.

 Settings are `name=value`, separated by spaces: `topology` (`uniform`, `h100`, or the text of a network),
 `objective` (`time`, `bytes` or `peak`), `max_peak_bytes` (the limit of the bytes on any rank), `groups`
 (the only groups to use, separated by `|`), `deterministic` (`true` for reductions in rank order),
 `arithmetic` (`kernels`, or `framework` for types that only the framework reduces) and `budget`
 (units of work, or `none`).
 */
reshard_status reshard_planner_new(const char *settings, struct reshard_planner **out);

/*
 Makes a planner for the network of a measured profile, from the text of its TOML file.

 `settings` are those of `reshard_planner_new` without `topology`; null are the default ones. The notation of a
 network has no measured times, so `topology` cannot be a profile.
 */
reshard_status reshard_planner_of_profile(const char *profile, const char *settings, struct reshard_planner **out);

/*
 Frees a planner; its plans stay valid. Null is ignored.
 */
reshard_status reshard_planner_free(struct reshard_planner *planner);

/*
 Propagates shardings through an op, at the least cost of the redistributions that it needs.

 `op` is a call such as `mm` or `softmax(dim=1)`, or a rule such as `mk,kn->mn`. `inputs` are the
 shardings of its `count` inputs, on one mesh, of elements of type `dtype`. `planner` may be null, for the
 default one.
 */
reshard_status reshard_propagate(const char *op,
                                 const struct reshard_sharding *const *inputs,
                                 size_t count,
                                 const char *dtype,
                                 const struct reshard_planner *planner,
                                 struct reshard_op_sharding **out);

/*
 Frees the shardings of an op; null is ignored.
 */
reshard_status reshard_op_sharding_free(struct reshard_op_sharding *op_sharding);

/*
 The modelled time of all redistributions, in microseconds.
 */
reshard_status reshard_op_sharding_cost_us(const struct reshard_op_sharding *op_sharding, double *out);

/*
 The sharding of an input after its redistribution, which is that given where none is needed.
 */
reshard_status reshard_op_sharding_input(const struct reshard_op_sharding *op_sharding,
                                         size_t index,
                                         struct reshard_sharding **out);

/*
 The number of outputs.
 */
reshard_status reshard_op_sharding_outputs(const struct reshard_op_sharding *op_sharding, size_t *out);

/*
 The sharding of an output.
 */
reshard_status reshard_op_sharding_output(const struct reshard_op_sharding *op_sharding,
                                          size_t index,
                                          struct reshard_sharding **out);

/*
 Parses the sharding of a tensor of `dims` sizes.

 The notation is placements such as `S(0),R`, one for each axis of the mesh, or any other that the library
 reads.
 */
reshard_status reshard_sharding_parse(const struct reshard_mesh *mesh,
                                      const size_t *shape,
                                      size_t dims,
                                      const char *notation,
                                      struct reshard_sharding **out);

/*
 Reads a sharding from the JSON of `reshard_sharding_json`.
 */
reshard_status reshard_sharding_from_json(const char *json, struct reshard_sharding **out);

/*
 Frees a sharding; null is ignored.
 */
reshard_status reshard_sharding_free(struct reshard_sharding *sharding);

/*
 The placements of the sharding.
 */
reshard_status reshard_sharding_text(const struct reshard_sharding *sharding,
                                     char *buffer,
                                     size_t size,
                                     size_t *length);

/*
 Mesh, shape and placements as a JSON object.
 */
reshard_status reshard_sharding_json(const struct reshard_sharding *sharding,
                                     char *buffer,
                                     size_t size,
                                     size_t *length);

/*
 The mesh of the sharding, as a new handle.
 */
reshard_status reshard_sharding_mesh(const struct reshard_sharding *sharding, struct reshard_mesh **out);

/*
 The shape of the global tensor.
 */
reshard_status reshard_sharding_shape(const struct reshard_sharding *sharding,
                                      size_t *values,
                                      size_t capacity,
                                      size_t *count);

/*
 The shape of a rank's shard.
 */
reshard_status reshard_sharding_local_shape(const struct reshard_sharding *sharding,
                                            size_t rank,
                                            size_t *values,
                                            size_t capacity,
                                            size_t *count);

/*
 The indices of a dim that a rank holds, in local order.
 */
reshard_status reshard_sharding_region(const struct reshard_sharding *sharding,
                                       size_t rank,
                                       size_t dim,
                                       struct reshard_interval *values,
                                       size_t capacity,
                                       size_t *count);

/*
 The sharding of the tensor viewed in another shape.

 It is rejected as `needs_redistribute` if elements must be sent.
 */
reshard_status reshard_sharding_view(const struct reshard_sharding *sharding,
                                     const size_t *shape,
                                     size_t dims,
                                     struct reshard_sharding **out);

/*
 1 if two shardings are equal, else 0.
 */
reshard_status reshard_sharding_equal(const struct reshard_sharding *one,
                                      const struct reshard_sharding *other,
                                      uint8_t *out);

/*
 Parses a sharding type: the sharding of a value and that of its gradient, such as `R|S(0),I`.
 */
reshard_status reshard_sharding_type_parse(const struct reshard_mesh *mesh,
                                           const size_t *shape,
                                           size_t dims,
                                           const char *notation,
                                           struct reshard_sharding_type **out);

/*
 Frees a type; null is ignored.
 */
reshard_status reshard_sharding_type_free(struct reshard_sharding_type *type_);

/*
 The notation of the type.
 */
reshard_status reshard_sharding_type_text(const struct reshard_sharding_type *type_,
                                          char *buffer,
                                          size_t size,
                                          size_t *length);

/*
 The sharding of the value.
 */
reshard_status reshard_sharding_type_value(const struct reshard_sharding_type *type_, struct reshard_sharding **out);

/*
 The sharding of the gradient; null if there is none.
 */
reshard_status reshard_sharding_type_gradient(const struct reshard_sharding_type *type_, struct reshard_sharding **out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RESHARD_H */
