// The collectives as a program calls them, whatever form it does that in.
#ifndef SCAFFE_CALLS_H
#define SCAFFE_CALLS_H

#include "interpose.h"

// form is how a collective is called: it blocks (blocking.c), or it gives a request (requests.c).
typedef struct {
  int verbs;           // where its verbs begin in counts
  MPI_Request *handle; // of one that does not block
  int persistent;
} form;

// list is a number for each rank, as programs have them: int or a larger kind, or the same for all.
typedef struct {
  const int *ints;
  const MPI_Count *counts;
  const MPI_Aint *places;
  int64_t each;
} list;

// The calls. Each reports whether scaffe serves it; then *rc is what it returns to the program.
int reduction(const form *f, int verb, const void *send, void *recv, int64_t count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, int *rc);
int broadcast(const form *f, void *buf, int64_t count, MPI_Datatype type, int root, MPI_Comm comm, int *rc);
int allgather(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, list counts, const list *places, MPI_Datatype type,
              MPI_Comm comm, int *rc);
int reduce_scatter(const form *f, const void *send, void *recv, list counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm, int *rc);
int alltoall(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, MPI_Comm comm, int *rc);
int gather(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc);
int scatter(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc);

// COLLECTIVES gives X each of them: its names (blocking, started, persistent), its parameters and arguments but for info and request, and
// what serves it in the form f. c, T, P, COUNTS and PLACES are those of the interface: of int, or MPI 4's of large counts.
#define COLLECTIVES(X, MPI, c, T, P, COUNTS, PLACES)                                                                           \
  X(MPI##_Reduce##c, MPI##_Ireduce##c, MPI##_Reduce_init##c,                                                                   \
    (const void *send, void *recv, T count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm), (send, recv, count, type, op, root, comm),\
    reduction(f, SERVE_REDUCE, send, recv, count, type, op, root, comm, &rc))                                                  \
  X(MPI##_Bcast##c, MPI##_Ibcast##c, MPI##_Bcast_init##c,                                                                      \
    (void *buf, T count, MPI_Datatype type, int root, MPI_Comm comm), (buf, count, type, root, comm),                          \
    broadcast(f, buf, count, type, root, comm, &rc))                                                                           \
  X(MPI##_Allreduce##c, MPI##_Iallreduce##c, MPI##_Allreduce_init##c,                                                          \
    (const void *send, void *recv, T count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (send, recv, count, type, op, comm), \
    reduction(f, SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, &rc))                                                  \
  X(MPI##_Allgather##c, MPI##_Iallgather##c, MPI##_Allgather_init##c,                                                          \
    (const void *send, T count, MPI_Datatype sent, void *recv, T each, MPI_Datatype type, MPI_Comm comm),                      \
    (send, count, sent, recv, each, type, comm),                                                                               \
    allgather(f, send, count, sent, recv, (list){.each = each}, NULL, type, comm, &rc))                                        \
  X(MPI##_Allgatherv##c, MPI##_Iallgatherv##c, MPI##_Allgatherv_init##c,                                                       \
    (const void *send, T count, MPI_Datatype sent, void *recv, const T counts[], const P places[], MPI_Datatype type, MPI_Comm comm),\
    (send, count, sent, recv, counts, places, type, comm),                                                                     \
    counts && places && allgather(f, send, count, sent, recv, (list){COUNTS = counts}, &(list){PLACES = places}, type, comm, &rc))\
  X(MPI##_Reduce_scatter##c, MPI##_Ireduce_scatter##c, MPI##_Reduce_scatter_init##c,                                           \
    (const void *send, void *recv, const T counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm), (send, recv, counts, type, op, comm),\
    counts && reduce_scatter(f, send, recv, (list){COUNTS = counts}, type, op, comm, &rc))                                     \
  X(MPI##_Reduce_scatter_block##c, MPI##_Ireduce_scatter_block##c, MPI##_Reduce_scatter_block_init##c,                         \
    (const void *send, void *recv, T each, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (send, recv, each, type, op, comm),   \
    reduce_scatter(f, send, recv, (list){.each = each}, type, op, comm, &rc))                                                  \
  X(MPI##_Alltoall##c, MPI##_Ialltoall##c, MPI##_Alltoall_init##c,                                                             \
    (const void *send, T count, MPI_Datatype sent, void *recv, T each, MPI_Datatype type, MPI_Comm comm),                      \
    (send, count, sent, recv, each, type, comm), alltoall(f, send, count, sent, recv, each, type, comm, &rc))                  \
  X(MPI##_Gather##c, MPI##_Igather##c, MPI##_Gather_init##c,                                                                   \
    (const void *send, T count, MPI_Datatype sent, void *recv, T each, MPI_Datatype type, int root, MPI_Comm comm),            \
    (send, count, sent, recv, each, type, root, comm), gather(f, send, count, sent, recv, each, type, root, comm, &rc))        \
  X(MPI##_Scatter##c, MPI##_Iscatter##c, MPI##_Scatter_init##c,                                                                \
    (const void *send, T count, MPI_Datatype sent, void *recv, T each, MPI_Datatype type, int root, MPI_Comm comm),            \
    (send, count, sent, recv, each, type, root, comm), scatter(f, send, count, sent, recv, each, type, root, comm, &rc))
#define COLLECTIVES_OF_INT(X, MPI) COLLECTIVES(X, MPI, , int, int, .ints, .ints)
#define COLLECTIVES_LARGE(X, MPI) COLLECTIVES(X, MPI, _c, MPI_Count, MPI_Aint, .counts, .places)
#define LISTED(...) __VA_ARGS__

// piece is elements of the program's, and the memory in which they lie side by side.
typedef struct {
  void *buf;
  int64_t count;
  MPI_Datatype type; // type_null: they are bytes, which lie so here as well
  void *packed;
  int64_t bytes;
} piece;

// job is a call that is served, with what is copied before and after it.
typedef struct {
  serve_call call;
  piece give;      // copied before, if it has an address
  piece *take;     // copied after, all of one type
  int takes, keeps; // how many; whether the types are the job's own
  void *rooms[4];  // memory of the job's
  int64_t lacks;   // bytes of it that could not be had
  staging gpu;
} job;

int keep(job *j);                                     // makes the types the job's own: the program may free its
int bring(const job *j, state *st, MPI_Comm comm);    // copies what is given
int deliver(const job *j, state *st, MPI_Comm comm);  // copies what has come; st NULL: no error handler hears of what failed
void clear(job *j);

// The forms: what each of them serves, and how. make clears the job, or hands it to a request.
state *serves_blocking(int verb, int type, int64_t bytes, enum exact exact, int root, MPI_Comm comm);
state *serves_started(int verb, int64_t bytes, enum exact exact, int root, MPI_Comm comm);
int make_blocking(state *st, MPI_Comm comm, job *j);
int make_request(const form *f, state *st, MPI_Comm comm, job *j);

#endif
