/* reshard for C and C++: layouts, meshes, shardings, types, plans, a rank's calls of them, checkpoints.
 *
 * A handle is a number in the dress of a pointer, and points nowhere. It is immutable, may be used on any thread, and is freed by its _free.
 * What is freed, of another kind, or never was a handle is answered with RESHARD_STATUS_NOT_A_HANDLE.
 *
 * Texts end with a 0 and are UTF-8. A text or a list is answered into a place that the caller lends, with its room, and its length is
 * written to another: with a room of 0 the length alone. Lists of no entries may be null. A struct that begins with its size gets it from the
 * caller, its sizeof, and may grow; other structs stay as they are for one RESHARD_ABI. What structs point to belongs to the handle that they
 * come from. All else that is lent is read or written during the
 * call alone, and must be there, as large as is said.
 *
 * Where a function answers anything but RESHARD_STATUS_OK, nothing that it may have written is an answer, but for lengths, and
 * reshard_last_error has a sentence for this thread. */

#ifndef RESHARD_H
#define RESHARD_H

#include <stddef.h>
#include <stdint.h>

/*
 The version of this header: structs grow and functions are added without a change of it.
 */
#define RESHARD_ABI 1

/*
 What a function answers. Of any but `RESHARD_STATUS_OK`, `reshard_last_error` says why.
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
   The library refuses the values; nothing was done.
   */
  RESHARD_STATUS_REFUSED = 1,
  /*
   A pointer is null that must not be.
   */
  RESHARD_STATUS_NULL_POINTER = 2,
  /*
   An index is past the end, or what is asked for does not fit the place lent for it.
   */
  RESHARD_STATUS_OUT_OF_RANGE = 3,
  /*
   The library failed in itself: a bug of it.
   */
  RESHARD_STATUS_PANICKED = 4,
  /*
   A handle is freed, of another kind, or never was one.
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
 What is called.
 */
enum reshard_call
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Nothing: what was packed is unpacked.
   */
  RESHARD_CALL_LOCAL = 0,
  /*
   Everybody's packed elements one behind the other, in the order of the group.
   */
  RESHARD_CALL_ALL_GATHER = 1,
  /*
   The reduction of everybody's block for this rank.
   */
  RESHARD_CALL_REDUCE_SCATTER = 2,
  /*
   The reduction of everybody's packed elements.
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
 The calls by which one rank carries out a plan.
 */
typedef struct reshard_calls reshard_calls;

/*
 The tensors of a file or a folder.
 */
typedef struct reshard_checkpoint reshard_checkpoint;

/*
 Where is an element: a function from an index to an offset.
 */
typedef struct reshard_layout reshard_layout;

/*
 Ranks along named axes.
 */
typedef struct reshard_mesh reshard_mesh;

/*
 What one rank sends and receives, phase after phase.
 */
typedef struct reshard_messages reshard_messages;

/*
 The groups that exist.
 */
typedef struct reshard_offers reshard_offers;

/*
 The steps from one sharding to another.
 */
typedef struct reshard_plan reshard_plan;

/*
 Makes plans for one network and one objective, and keeps those that it made.
 */
typedef struct reshard_planner reshard_planner;

/*
 Who holds which elements of a tensor.
 */
typedef struct reshard_sharding reshard_sharding;

/*
 Who holds a value, and who holds its gradient.
 */
typedef struct reshard_type reshard_type;

/*
 A group that exists: its name, and its ranks in the order that its owner has.
 */
typedef struct reshard_group {
  /*
   What it is called.
   */
  const char *name;
  /*
   Its ranks.
   */
  const size_t *members;
  /*
   How many.
   */
  size_t member_count;
} reshard_group;

/*
 How many elements go to a rank, or come from it.
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
   How often it goes.
   */
  size_t extent;
  /*
   Elements apart.
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
   How many elements.
   */
  size_t elements;
  /*
   The loops.
   */
  const struct reshard_loop *loops;
  /*
   How many.
   */
  size_t loop_count;
} reshard_view;

/*
 A received term.
 */
typedef struct reshard_term {
  /*
   Where it begins in what was received.
   */
  size_t start;
  /*
   The first of the views of `unpack` where it lands.
   */
  size_t first_view;
  /*
   How many.
   */
  size_t view_count;
} reshard_term;

/*
 What a rank does at one place of a plan: it packs, calls, and unpacks, from its buffer to a new one.
 */
typedef struct reshard_op {
  /*
   The `sizeof` of this struct, set by the caller; what was written afterwards.
   */
  size_t size;
  /*
   The index of the plan's step.
   */
  size_t step;
  /*
   What is called.
   */
  reshard_call call;
  /*
   Whether the rank is only there because all of a group must be: nothing moves, and the buffer stays. 1 or 0.
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
   How many.
   */
  size_t member_count;
  /*
   How the call reduces, such as `sum`; null where it does not.
   */
  const char *reduce;
  /*
   Of an all-to-all and of messages what goes to whom, in the order of the packed elements.
   */
  const struct reshard_part *sends;
  /*
   How many.
   */
  size_t send_count;
  /*
   And what comes from whom, in the order of the received elements.
   */
  const struct reshard_part *receives;
  /*
   How many.
   */
  size_t receive_count;
  /*
   What is read of the source.
   */
  const struct reshard_view *pack;
  /*
   How many views.
   */
  size_t pack_count;
  /*
   What is written of the target.
   */
  const struct reshard_view *unpack;
  /*
   How many views.
   */
  size_t unpack_count;
  /*
   How terms that were received one by one combine; null where none were.
   */
  const char *combine;
  /*
   The terms in the order in which they combine.
   */
  const struct reshard_term *terms;
  /*
   How many.
   */
  size_t term_count;
  /*
   The op with whose identity the target is filled first; null for none.
   */
  const char *fill;
  /*
   What the target is divided by in the end; 1 for nothing.
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
 What a header says of a tensor.
 */
typedef struct reshard_tensor {
  /*
   The `sizeof` of this struct, set by the caller; what was written afterwards.
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
   The shape of the whole.
   */
  const size_t *shape;
  /*
   How many dims.
   */
  size_t dims;
  /*
   The bytes of the whole.
   */
  uint64_t bytes;
} reshard_tensor;

/*
 An extent, and how far elements are apart in the sender's and in the receiver's buffer.
 */
typedef struct reshard_mode {
  /*
   How many.
   */
  size_t extent;
  /*
   Elements apart in the source.
   */
  int64_t source_stride;
  /*
   Elements apart in the target.
   */
  int64_t target_stride;
} reshard_mode;

/*
 Elements that move together: two offsets, and modes, the leftmost fastest; no modes are one element.
 */
typedef struct reshard_block {
  /*
   Where the first element lies in the sender's buffer.
   */
  size_t source_offset;
  /*
   Where it goes in the receiver's.
   */
  size_t target_offset;
  /*
   The modes.
   */
  const struct reshard_mode *modes;
  /*
   How many modes.
   */
  size_t mode_count;
} reshard_block;

/*
 The blocks that go from one rank to another, in the same order on both.
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
   What moves.
   */
  const struct reshard_block *blocks;
  /*
   How many blocks.
   */
  size_t block_count;
} reshard_message;

/*
 What one rank does in one phase of a step.
 */
typedef struct reshard_phase {
  /*
   The `sizeof` of this struct, set by the caller; what was written afterwards.
   */
  size_t size;
  /*
   The index of its step.
   */
  size_t step;
  /*
   Elements of the buffer before.
   */
  size_t source_len;
  /*
   And after.
   */
  size_t target_len;
  /*
   The op with whose identity the target is first filled; null for none.
   */
  const char *fill;
  /*
   How received messages combine, in the order listed; null where they do not.
   */
  const char *reduce;
  /*
   What the combination is divided by; 1 for nothing.
   */
  size_t divisor;
  /*
   What lands here; a message from the rank itself is a local copy.
   */
  const struct reshard_message *receives;
  /*
   How many.
   */
  size_t receive_count;
  /*
   What others take from here.
   */
  const struct reshard_message *sends;
  /*
   How many.
   */
  size_t send_count;
  /*
   The ranks that take part together, ascending.
   */
  const size_t *members;
  /*
   How many.
   */
  size_t member_count;
} reshard_phase;

/*
 One operation of a plan.
 */
typedef struct reshard_step {
  /*
   The `sizeof` of this struct, set by the caller; what was written afterwards.
   */
  size_t size;
  /*
   `slice`, `all_gather`, `reduce_scatter`, `all_reduce`, `all_to_all`, `exchange` or `zero_fill`.
   */
  const char *op;
  /*
   Bytes that the rank which receives the most receives.
   */
  uint64_t received_bytes;
  /*
   Bytes that the rank which sends the most sends.
   */
  uint64_t sent_bytes;
  /*
   Bytes that the rank which holds the most holds.
   */
  uint64_t peak_bytes;
  /*
   Modelled time in microseconds.
   */
  double cost_us;
  /*
   Whether ranks talk to each other in it: 1 or 0.
   */
  uint8_t communicates;
} reshard_step;

/*
 How plans are asked for. Zeros and nulls are what is usual.
 */
typedef struct reshard_options {
  /*
   The `sizeof` of this struct, set by the caller.
   */
  size_t size;
  /*
   The network, such as `h100`, or its text.
   */
  const char *topology;
  /*
   `time`, `bytes` or `peak`.
   */
  const char *objective;
  /*
   What no rank may exceed; 0 for no limit.
   */
  uint64_t max_peak_bytes;
  /*
   The units of work that a search may take; 0 for what is usual.
   */
  uint64_t budget;
  /*
   Whether all reductions are in one order.
   */
  uint8_t deterministic;
  /*
   Whether a framework reduces, which knows more element types than the library.
   */
  uint8_t framework_arithmetic;
} reshard_options;

/*
 Indices one behind the other.
 */
typedef struct reshard_interval {
  /*
   The first.
   */
  size_t start;
  /*
   How many.
   */
  size_t length;
} reshard_interval;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The groups that exist, the same list on all ranks.
 */
reshard_status reshard_offers_new(const struct reshard_group *groups, size_t count, struct reshard_offers **out);

/*
 Frees offers; calls on them stay; null is nothing.
 */
reshard_status reshard_offers_free(struct reshard_offers *offers);

/*
 The plan as one rank's calls. `dtype` may be null, for the plan's; `offers` too, for messages alone.
 */
reshard_status reshard_calls_new(const struct reshard_plan *plan,
                                 size_t rank,
                                 const char *dtype,
                                 const struct reshard_offers *offers,
                                 struct reshard_calls **out);

/*
 Frees calls, and what their ops point to; null is nothing.
 */
reshard_status reshard_calls_free(struct reshard_calls *calls);

/*
 A line for each call, for people.
 */
reshard_status reshard_calls_text(const struct reshard_calls *calls, char *buffer, size_t size, size_t *length);

/*
 How many calls there are; none if the target is the source.
 */
reshard_status reshard_calls_count(const struct reshard_calls *calls, size_t *out);

/*
 A call. What it points to is there until the calls are freed.
 */
reshard_status reshard_calls_op(const struct reshard_calls *calls, size_t index, struct reshard_op *out);

/*
 Packs: the elements of the views of `pack`, one behind the other. The buffers have the bytes of `source_len` and `packed_len` elements,
 and share none.
 */
reshard_status reshard_calls_pack(const struct reshard_calls *calls,
                                  size_t index,
                                  const uint8_t *source,
                                  size_t source_bytes,
                                  uint8_t *packed,
                                  size_t packed_bytes);

/*
 Makes of what a call brought the buffer after it: fills, unpacks, combines terms, divides. The buffers have the bytes of
 `received_len` and `target_len` elements, and share none. Where the rank only attends nothing happens.
 */
reshard_status reshard_calls_unpack(const struct reshard_calls *calls,
                                    size_t index,
                                    const uint8_t *received,
                                    size_t received_bytes,
                                    uint8_t *target,
                                    size_t target_bytes);

/*
 The version of the header that the library was built with, `RESHARD_ABI` of it: of another one nothing here may be called.
 */
uint32_t reshard_abi(void);

/*
 The sentence of the last function of this thread that failed, empty if none has. Writes at most `size` bytes of it to `buffer`, the
 last of them 0, and returns its length without that 0. `buffer` may be null if `size` is 0.
 */
size_t reshard_last_error(char *buffer,
                          size_t size);

/*
 The stable word for it, such as `parse`, in the same way.
 */
size_t reshard_last_error_kind(char *buffer, size_t size);

/*
 The strategy of least cost for an op on a mesh, and what moves for it: a request and an answer in JSON, as a line of
 `reshard propagate --batch`, such as `{"mesh":"dp=2,tp=4","op":"mm","shapes":"64,32;32,16","in":"S(0),R;R,S(1)"}`.
 */
reshard_status reshard_propagate_json(const char *request, char *buffer, size_t size, size_t *length);

/*
 The tensors of a file or a folder, whatever wrote them; opening reads headers only.
 */
reshard_status reshard_checkpoint_open(const char *path, struct reshard_checkpoint **out);

/*
 Frees a checkpoint, and what its tensors point to; null is nothing.
 */
reshard_status reshard_checkpoint_free(struct reshard_checkpoint *checkpoint);

/*
 How many tensors it has.
 */
reshard_status reshard_checkpoint_tensors(const struct reshard_checkpoint *checkpoint, size_t *out);

/*
 A tensor. What it points to is there until the checkpoint is freed.
 */
reshard_status reshard_checkpoint_tensor(const struct reshard_checkpoint *checkpoint,
                                         size_t index,
                                         struct reshard_tensor *out);

/*
 The bytes of a region of a tensor, row-major: `lengths` indices from `starts` on, along each of `dims` dims. No byte more is read.
 Where `capacity` is 0 only the length is written, and all the same is read.
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
 The bytes of what a rank of a sharding holds of a tensor; no byte more is read.
 */
reshard_status reshard_checkpoint_shard(const struct reshard_checkpoint *checkpoint,
                                        const char *name,
                                        const struct reshard_sharding *sharding,
                                        size_t rank,
                                        uint8_t *bytes,
                                        size_t capacity,
                                        size_t *length);

/*
 How many handles there are that nobody has freed.
 */
size_t reshard_handles(void);

/*
 What an expression of the layout algebra comes to, as text: `size((4,2):(1,4))` is `8`.
 */
reshard_status reshard_evaluate(const char *expression, char *buffer, size_t size, size_t *length);

/*
 A layout, of its notation such as `(4,2):(1,4)`, or of an expression that comes to one, such as `coalesce((4,2):(1,4))`.
 */
reshard_status reshard_layout_parse(const char *expression,
                                    struct reshard_layout **out);

/*
 A flat layout of `modes` extents and strides, the leftmost fastest.
 */
reshard_status reshard_layout_new(const int64_t *extents,
                                  const int64_t *strides,
                                  size_t modes,
                                  struct reshard_layout **out);

/*
 Frees a layout; null is nothing.
 */
reshard_status reshard_layout_free(struct reshard_layout *layout);

/*
 Its notation.
 */
reshard_status reshard_layout_text(const struct reshard_layout *layout, char *buffer, size_t size, size_t *length);

/*
 How many indices it has.
 */
reshard_status reshard_layout_size(const struct reshard_layout *layout, int64_t *out);

/*
 The offset of an index below the size.
 */
reshard_status reshard_layout_at(const struct reshard_layout *layout, int64_t index, int64_t *out);

/*
 Its modes without their nesting, the leftmost fastest: extents and strides, `capacity` of each at most.
 */
reshard_status reshard_layout_modes(const struct reshard_layout *layout,
                                    int64_t *extents,
                                    int64_t *strides,
                                    size_t capacity,
                                    size_t *count);

/*
 A mesh, such as `dp=2,tp=4`.
 */
reshard_status reshard_mesh_parse(const char *notation, struct reshard_mesh **out);

/*
 Frees a mesh; shardings over it stay; null is nothing.
 */
reshard_status reshard_mesh_free(struct reshard_mesh *mesh);

/*
 Its notation.
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
 What one rank sends and receives: for who has a transport of their own.
 */
reshard_status reshard_messages_new(const struct reshard_plan *plan, size_t rank, struct reshard_messages **out);

/*
 Frees messages, and what their phases point to; null is nothing.
 */
reshard_status reshard_messages_free(struct reshard_messages *messages);

/*
 How many phases there are.
 */
reshard_status reshard_messages_phases(const struct reshard_messages *messages, size_t *out);

/*
 A phase. What it points to is there until the messages are freed.
 */
reshard_status reshard_messages_phase(const struct reshard_messages *messages, size_t index, struct reshard_phase *out);

/*
 The plan from one sharding to another of the same tensor, of elements of a type such as `f32`; `planner` may be null, for the usual one.
 */
reshard_status reshard_plan_new(const struct reshard_sharding *from,
                                const struct reshard_sharding *to,
                                const char *dtype,
                                const struct reshard_planner *planner,
                                struct reshard_plan **out);

/*
 What `reshard_plan_json` wrote; the plan is made again.
 */
reshard_status reshard_plan_from_json(const char *json, struct reshard_plan **out);

/*
 Frees a plan; null is nothing.
 */
reshard_status reshard_plan_free(struct reshard_plan *plan);

/*
 Its steps, for people.
 */
reshard_status reshard_plan_text(const struct reshard_plan *plan, char *buffer, size_t size, size_t *length);

/*
 What was asked for, as JSON.
 */
reshard_status reshard_plan_json(const struct reshard_plan *plan, char *buffer, size_t size, size_t *length);

/*
 How many steps it has; none if every rank already holds its target.
 */
reshard_status reshard_plan_steps(const struct reshard_plan *plan, size_t *out);

/*
 One of its steps.
 */
reshard_status reshard_plan_step(const struct reshard_plan *plan, size_t index, struct reshard_step *out);

/*
 The greatest total of bytes that any one rank receives.
 */
reshard_status reshard_plan_received_bytes(const struct reshard_plan *plan, uint64_t *out);

/*
 The most bytes that any rank holds at one moment.
 */
reshard_status reshard_plan_peak_bytes(const struct reshard_plan *plan, uint64_t *out);

/*
 Modelled time in microseconds.
 */
reshard_status reshard_plan_cost_us(const struct reshard_plan *plan, double *out);

/*
 Bytes that the worst rank cannot do without; `known` is 0, and the number too, where nothing simple is true.
 */
reshard_status reshard_plan_lower_bound_bytes(const struct reshard_plan *plan, uint64_t *out, uint8_t *known);

/*
 All ranks that hold something before or after, ascending.
 */
reshard_status reshard_plan_ranks(const struct reshard_plan *plan, size_t *values, size_t capacity, size_t *count);

/*
 The plan between the duals, from the second's to the first's: what gradients do.
 */
reshard_status reshard_plan_transposed(const struct reshard_plan *plan, struct reshard_plan **out);

/*
 A planner; without options, which may be null, the usual one.
 */
reshard_status reshard_planner_new(const struct reshard_options *options, struct reshard_planner **out);

/*
 Frees a planner; its plans stay; null is nothing.
 */
reshard_status reshard_planner_free(struct reshard_planner *planner);

/*
 Who holds which elements of a tensor of `dims` sizes: placements such as `S(0),R`, one for each axis of the mesh, or any notation
 that the library reads.
 */
reshard_status reshard_sharding_parse(const struct reshard_mesh *mesh,
                                      const size_t *shape,
                                      size_t dims,
                                      const char *notation,
                                      struct reshard_sharding **out);

/*
 What `reshard_sharding_json` wrote.
 */
reshard_status reshard_sharding_from_json(const char *json, struct reshard_sharding **out);

/*
 Frees a sharding; null is nothing.
 */
reshard_status reshard_sharding_free(struct reshard_sharding *sharding);

/*
 Its placements.
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
 Its mesh, a handle of its own.
 */
reshard_status reshard_sharding_mesh(const struct reshard_sharding *sharding, struct reshard_mesh **out);

/*
 The shape of the whole tensor.
 */
reshard_status reshard_sharding_shape(const struct reshard_sharding *sharding,
                                      size_t *values,
                                      size_t capacity,
                                      size_t *count);

/*
 The shape of what a rank holds.
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
 The sharding of the tensor viewed in another shape, where no element has to move; refused as `needs_redistribute` where one has.
 */
reshard_status reshard_sharding_view(const struct reshard_sharding *sharding,
                                     const size_t *shape,
                                     size_t dims,
                                     struct reshard_sharding **out);

/*
 Whether two are equal: 1 or 0.
 */
reshard_status reshard_sharding_equal(const struct reshard_sharding *one,
                                      const struct reshard_sharding *other,
                                      uint8_t *out);

/*
 Who holds a value and who holds its gradient, such as `R|S(0),I`.
 */
reshard_status reshard_type_parse(const struct reshard_mesh *mesh,
                                  const size_t *shape,
                                  size_t dims,
                                  const char *notation,
                                  struct reshard_type **out);

/*
 Frees a type; null is nothing.
 */
reshard_status reshard_type_free(struct reshard_type *type_);

/*
 Its notation.
 */
reshard_status reshard_type_text(const struct reshard_type *type_, char *buffer, size_t size, size_t *length);

/*
 Who holds the value.
 */
reshard_status reshard_type_value(const struct reshard_type *type_, struct reshard_sharding **out);

/*
 Who holds the gradient; null where there is none.
 */
reshard_status reshard_type_gradient(const struct reshard_type *type_, struct reshard_sharding **out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RESHARD_H */
