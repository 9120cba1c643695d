//go:build mpi

#include "handles.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

// type_of is in the order of the Go side's constants.
static MPI_Datatype type_of(int type) {
  switch (type) {
  case 1: return MPI_FLOAT;
  case 2: return MPI_DOUBLE;
  case 3: return MPI_INT32_T;
  case 4: return MPI_INT64_T;
  case 5: return MPI_UINT8_T;
  case 6: return MPI_INT8_T;
  case 7: return MPI_INT16_T;
  case 8: return MPI_UINT16_T;
  case 9: return MPI_UINT32_T;
  case 10: return MPI_UINT64_T;
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
  case 4: return MPI_BAND;
  case 5: return MPI_BOR;
  case 6: return MPI_BXOR;
  case 7: return MPI_LAND;
  case 8: return MPI_LOR;
  case 9: return MPI_LXOR;
  }
  return MPI_OP_NULL;
}

int scaffe_barrier(scaffe_comm *c) {
  ON_THREAD;
  return PMPI_Barrier(c->comm);
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
  TRY(PMPI_Type_size(t, &size));
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

// offsets are those of parts: they lie behind the counts of all ranks.
static const int *offsets(MPI_Comm comm, const int *parts) {
  int size = 0;
  return PMPI_Comm_size(comm, &size) == MPI_SUCCESS ? parts + size : parts;
}

enum { SCATTER = 9 }; // the verbs are in the order of the Go side's

static int blocking(MPI_Comm comm, int verb, const void *send, void *recv, int n, MPI_Datatype t, MPI_Op op, int root, const int *parts) {
  switch (verb) {
  case 0: return PMPI_Reduce(send, recv, n, t, op, root, comm);
  case 1: return PMPI_Bcast(recv, n, t, root, comm);
  case 4: return PMPI_Barrier(comm);
  case 5:
    if (!parts) return PMPI_Allgather(send, n, t, recv, n, t, comm);
    return PMPI_Allgatherv(send, n, t, recv, parts, offsets(comm, parts), t, comm);
  case 6:
    if (!parts) return PMPI_Reduce_scatter_block(send, recv, n, t, op, comm);
    return PMPI_Reduce_scatter(send, recv, parts, t, op, comm);
  case 7: return PMPI_Alltoall(send, n, t, recv, n, t, comm);
  case 8:
    if (!parts) return PMPI_Gather(send, n, t, recv, n, t, root, comm);
    return PMPI_Gatherv(send, n, t, recv, parts, offsets(comm, parts), t, root, comm);
  case SCATTER:
    if (!parts) return PMPI_Scatter(send, n, t, recv, n, t, root, comm);
    return PMPI_Scatterv(send, parts, offsets(comm, parts), t, recv, n, t, root, comm);
  }
  return PMPI_Allreduce(send, recv, n, t, op, comm);
}

static int begin(MPI_Comm comm, int verb, const void *send, void *recv, int n, MPI_Datatype t, MPI_Op op, int root, const int *parts, MPI_Request *q) {
  switch (verb) {
  case 0: return PMPI_Ireduce(send, recv, n, t, op, root, comm, q);
  case 1: return PMPI_Ibcast(recv, n, t, root, comm, q);
  case 4: return PMPI_Ibarrier(comm, q);
  case 5:
    if (!parts) return PMPI_Iallgather(send, n, t, recv, n, t, comm, q);
    return PMPI_Iallgatherv(send, n, t, recv, parts, offsets(comm, parts), t, comm, q);
  case 6:
    if (!parts) return PMPI_Ireduce_scatter_block(send, recv, n, t, op, comm, q);
    return PMPI_Ireduce_scatter(send, recv, parts, t, op, comm, q);
  case 7: return PMPI_Ialltoall(send, n, t, recv, n, t, comm, q);
  case 8:
    if (!parts) return PMPI_Igather(send, n, t, recv, n, t, root, comm, q);
    return PMPI_Igatherv(send, n, t, recv, parts, offsets(comm, parts), t, root, comm, q);
  case SCATTER:
    if (!parts) return PMPI_Iscatter(send, n, t, recv, n, t, root, comm, q);
    return PMPI_Iscatterv(send, parts, offsets(comm, parts), t, recv, n, t, root, comm, q);
  }
  return PMPI_Iallreduce(send, recv, n, t, op, comm, q);
}

// In place, one of the two buffers is MPI_IN_PLACE: of a scatter the root's that receives.
static void places(int verb, int in_place, const void **send, void **recv) {
  if (in_place && verb == SCATTER) *recv = MPI_IN_PLACE;
  else if (in_place) *send = MPI_IN_PLACE;
}

int scaffe_collective(scaffe_comm *c, scaffe_reqs *r, uint64_t id, int verb, void *send, void *recv, int in_place,
                      int count, int type, int op, int root, const int *parts) {
  ON_THREAD;
  const void *from = send;
  void *to = recv;
  places(verb, in_place, &from, &to);
  if (!r && verb == 0 && in_place) TRY(own_copy(&from, recv, count, type_of(type)));
  if (!r) return blocking(c->comm, verb, from, to, count, type_of(type), op_of(op), root, parts);
  MPI_Request *q;
  TRY(scaffe_room(r, &q));
  TRY(begin(c->comm, verb, from, to, count, type_of(type), op_of(op), root, parts, q));
  return scaffe_added(r, id);
}

int scaffe_reduce_local(void *in, void *inout, int count, int type, int op) {
  ON_THREAD;
  return PMPI_Reduce_local(in, inout, count, type_of(type), op_of(op));
}

static double microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int scaffe_time(scaffe_comm *c, int nonblocking, int meet, int verb, void *send, void *recv, int in_place, int count,
                int type, int op, int root, const int *parts, int n, double *took) {
  ON_THREAD;
  const void *from = send;
  void *to = recv;
  places(verb, in_place, &from, &to);
  MPI_Datatype t = type_of(type);
  MPI_Op o = op_of(op);
  for (int i = 0; i < n; i++) {
    if (!nonblocking && verb == 0 && in_place) TRY(own_copy(&from, recv, count, t));
    if (meet) TRY(PMPI_Barrier(c->comm));
    double start = microseconds();
    if (nonblocking) {
      MPI_Request q;
      TRY(begin(c->comm, verb, from, to, count, t, o, root, parts, &q));
      TRY(PMPI_Wait(&q, MPI_STATUS_IGNORE));
    } else {
      TRY(blocking(c->comm, verb, from, to, count, t, o, root, parts));
    }
    took[i] = microseconds() - start;
  }
  return SCAFFE_OK;
}
