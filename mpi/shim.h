// The C side of package mpi. MPI handles are pointers in one library and
// integers in another, and constants addresses or numbers: none of them leaves
// these functions.
#ifndef SCAFFE_MPI_SHIM_H
#define SCAFFE_MPI_SHIM_H

#include <stdint.h>

// Return codes of this package, outside the range of any library's.
enum {
  SCAFFE_OK = 0,
  SCAFFE_WRONG_THREAD = -7001,
  SCAFFE_NO_MEMORY = -7002,
  SCAFFE_CANCELED = -7003,
  SCAFFE_NO_REQUEST = -7004,
};

// A finished request.
typedef struct {
  uint64_t id;
  int64_t bytes;
  int32_t error, source, tag, pad;
} scaffe_done;

typedef struct scaffe_comm scaffe_comm;

// A growing set of requests. done[0:ended] are those that the last
// scaffe_testsome found.
typedef struct scaffe_reqs {
  int live, cap;
  int keeps; // the core: see scaffe_keep_core
  scaffe_done *done;
  struct scaffe_slot *slot; // one for each live request
  void *req, *status;       // MPI_Request[cap], MPI_Status[cap]
  int *index;
} scaffe_reqs;

// What scaffe_start found out.
typedef struct {
  int rank, size, major, minor, level, tag_ub, cuda, lowest;
  scaffe_comm *comm;
} scaffe_world;

const char *scaffe_built(void);
int scaffe_library(char *text, int cap);
int scaffe_started(void);
void scaffe_before_init(void);
int scaffe_start(scaffe_world *w);
// scaffe_attach is scaffe_start where others have started MPI, for the ranks of *(MPI_Comm *)comm.
int scaffe_attach(const void *comm, scaffe_world *w);
// scaffe_gather stores what every rank of c gives, each so many bytes, in the order of ranks.
int scaffe_gather(scaffe_comm *c, const void *one, int bytes, void *all);
int scaffe_on_thread(void);
int scaffe_move_thread(void);
int scaffe_abort(int code);
void scaffe_error(int code, char *text, int cap, const char **name);

int scaffe_comm_dup(scaffe_comm *c, scaffe_comm **out);
int scaffe_comm_split(scaffe_comm *c, int color, int key, scaffe_comm **out);
int scaffe_comm_free(scaffe_comm *c);
int scaffe_comm_rank(scaffe_comm *c, int *rank, int *size);

scaffe_reqs *scaffe_reqs_new(void);
int scaffe_reqs_free(scaffe_reqs *r);
int scaffe_isend(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int64_t n, int to, int tag);
int scaffe_isend_test(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int n, int to, int tag, int *ended);
int scaffe_issend(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int n, int to, int tag);
int scaffe_irecv(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int64_t n, int from, int tag);
int scaffe_ibarrier(scaffe_comm *c, scaffe_reqs *r, uint64_t id);
int scaffe_barrier(scaffe_comm *c);
// scaffe_collective blocks where r is NULL. verb, type and op are numbered as
// in the Go code. Of an allgather count is what this rank gives, of a reduce-scatter what
// it gets, and parts, unless all
// parts are equal, holds the counts of all ranks and then their offsets, until the end.
int scaffe_collective(scaffe_comm *c, scaffe_reqs *r, uint64_t id, int verb, void *send, void *recv, int in_place,
                      int count, int type, int op, int root, const int *parts);
// scaffe_time executes a collective n times, after a barrier each where meet is
// set, and stores how long each took, in microseconds.
int scaffe_time(scaffe_comm *c, int nonblocking, int meet, int verb, void *send, void *recv, int in_place, int count,
                int type, int op, int root, const int *parts, int n, double *took);
int scaffe_reduce_local(void *in, void *inout, int count, int type, int op);
int scaffe_testsome(scaffe_reqs *r, int *ended);
int scaffe_cancel(scaffe_reqs *r, uint64_t id);

// Messages of more bytes than this are sent as a derived datatype, since a count
// is an int. It is a variable so that tests need not send gigabytes.
extern int64_t scaffe_large;

#endif
