// What libscaffe-mpi.so, in C, calls of libscaffe.so, in Go. The numbers are what
// cmd/libscaffe knows by their names.
#ifndef SCAFFE_SERVE_H
#define SCAFFE_SERVE_H

#include <stddef.h>
#include <stdint.h>

enum { SERVE_REDUCE, SERVE_BCAST, SERVE_ALLREDUCE, SERVE_ALLGATHER, SERVE_REDUCE_SCATTER, SERVE_ALLTOALL, SERVE_GATHER, SERVE_SCATTER, SERVE_VERBS };
enum { SERVE_F32, SERVE_F64, SERVE_F16, SERVE_BF16, SERVE_I32, SERVE_I64, SERVE_U8, SERVE_I8, SERVE_I16, SERVE_U16, SERVE_U32, SERVE_U64 }; // integers behind the others
enum { SERVE_SUM, SERVE_PROD, SERVE_MIN, SERVE_MAX, SERVE_BAND, SERVE_BOR, SERVE_BXOR, SERVE_LAND, SERVE_LOR, SERVE_LXOR, SERVE_OPS };

// A call as its rank makes it. Reductions in place have send == recv; a rank's part of a gather may lie where it is received, that of a
// scatter where it is sent from. What other ranks than the root have no use for does not count.
typedef struct {
  int verb, type, op, root;
  void *send, *recv;
  int64_t count;         // elements, of all parts or blocks where there are some
  const int64_t *counts; // of each rank's part; NULL: equal, or there are no parts
} serve_call;

// serve_open sets up the ranks of *(MPI_Comm *)comm, which all call it together. It returns a handle,
// or 0 and why not in why.
typedef uintptr_t serve_open_fn(void *comm, char *why, size_t room);
// serve_chooses reports whether scaffe serves a call better than the MPI library: alike on all ranks.
typedef int serve_chooses_fn(uintptr_t handle, int verb, int type, int64_t bytes);
// serve_do executes a call; other than 0 it has failed, and said why on stderr.
typedef int serve_do_fn(uintptr_t handle, serve_call *call);
// serve_starts reports whether scaffe can serve calls that do not block on this rank: 0 if not, 2 where those that add nothing
// gain too, else 1. All ranks must be able to.
typedef int serve_starts_fn(uintptr_t handle);
// A bell rings at the end of each such call: ends is counted up, and the futex there woken where waiting is not 0.
typedef struct {
  uint32_t ends, waiting;
} serve_bell;
// serve_prepare readies a call that is started any number of times, one after the other; all ranks prepare and start theirs in the
// same order. It returns a handle, 0 where it has failed and said why.
typedef uintptr_t serve_prepare_fn(uintptr_t handle, serve_call *call);
// serve_start begins what serve_prepare readied; scaffe goes on with it on a thread of its own, which calls no MPI. At the end *ended
// is 1, or -1 where it has failed and said why; then the bell rings. With another result than 0 nothing has begun.
typedef int serve_start_fn(uintptr_t prepared, int32_t *ended, serve_bell *bell);
// serve_drop forgets what serve_prepare readied, at once or when it has ended.
typedef void serve_drop_fn(uintptr_t prepared);
// serve_alloc returns memory that the ranks of a node share, which calls on that communicator are faster in; NULL where there is none.
typedef void *serve_alloc_fn(uintptr_t handle, size_t bytes);
// serve_free gives it back, and reports whether it was that.
typedef int serve_free_fn(uintptr_t handle, void *memory);
// serve_close ends what serve_open began; all ranks call it together.
typedef void serve_close_fn(uintptr_t handle);

#endif
