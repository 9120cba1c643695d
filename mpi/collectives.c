//go:build mpi

#include "handles.h"
#include <stdlib.h>
#include <string.h>

// type_of is in the order of the Go side's constants.
static MPI_Datatype type_of(int type) {
  switch (type) {
  case 1: return MPI_FLOAT;
  case 2: return MPI_DOUBLE;
  case 3: return MPI_INT32_T;
  case 4: return MPI_INT64_T;
  case 5: return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

// op_of is in the order of mem.Op.
static MPI_Op op_of(int op) {
  switch (op) {
  case 0: return MPI_SUM;
  case 1: return MPI_PROD;
  case 2: return MPI_MIN;
  case 3: return MPI_MAX;
  }
  return MPI_OP_NULL;
}

int scaffe_barrier(scaffe_comm *c) {
  ON_THREAD;
  return MPI_Barrier(c->comm);
}

// MPICH 4.0.2 ends with a segmentation fault in a blocking MPI_Reduce whose
// root says MPI_IN_PLACE, from some hundred bytes on, where the ranks share a
// node (its collectives through shared memory take the constant for an
// address). There the root gives a copy; the memory is kept for the next time.
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000 && MPICH_NUMVERSION < 40200000
static int own_copy(const void **from, const void *recv, int n, MPI_Datatype t) {
  static void *memory;
  static size_t room;
  int size;
  TRY(MPI_Type_size(t, &size));
  size_t need = (size_t)n * (size_t)size;
  if (need > room) {
    free(memory);
    memory = malloc(need);
    room = memory ? need : 0;
    if (!memory) return SCAFFE_NO_MEMORY;
  }
  if (need) *from = memcpy(memory, recv, need);
  return MPI_SUCCESS;
}
#else
static int own_copy(const void **from, const void *recv, int n, MPI_Datatype t) {
  (void)from, (void)recv, (void)n, (void)t;
  return MPI_SUCCESS;
}
#endif

static int blocking(MPI_Comm comm, int verb, const void *send, void *recv, int n, MPI_Datatype t, MPI_Op op, int root) {
  switch (verb) {
  case 0: return MPI_Reduce(send, recv, n, t, op, root, comm);
  case 1: return MPI_Bcast(recv, n, t, root, comm);
  }
  return MPI_Allreduce(send, recv, n, t, op, comm);
}

static int begin(MPI_Comm comm, int verb, const void *send, void *recv, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Request *q) {
  switch (verb) {
  case 0: return MPI_Ireduce(send, recv, n, t, op, root, comm, q);
  case 1: return MPI_Ibcast(recv, n, t, root, comm, q);
  }
  return MPI_Iallreduce(send, recv, n, t, op, comm, q);
}

int scaffe_collective(scaffe_comm *c, scaffe_reqs *r, uint64_t id, int verb, void *send, void *recv, int in_place,
                      int count, int type, int op, int root) {
  ON_THREAD;
  const void *from = in_place ? MPI_IN_PLACE : send;
  if (!r && verb == 0 && in_place) TRY(own_copy(&from, recv, count, type_of(type)));
  if (!r) return blocking(c->comm, verb, from, recv, count, type_of(type), op_of(op), root);
  MPI_Request *q;
  TRY(scaffe_room(r, &q));
  TRY(begin(c->comm, verb, from, recv, count, type_of(type), op_of(op), root, q));
  return scaffe_added(r, id);
}

int scaffe_reduce_local(void *in, void *inout, int count, int type, int op) {
  ON_THREAD;
  return MPI_Reduce_local(in, inout, count, type_of(type), op_of(op));
}
