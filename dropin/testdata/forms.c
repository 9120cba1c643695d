// forms makes gathers, exchanges, scatters and reductions to parts that do not block, and persistent ones, as a program may: in place,
// with types whose elements lie apart, many at once and completed in another order on each rank. It checks what they give, and prints a
// digest of what those that do not block have given, which is the same whoever serves them.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, errors;
// Whether scaffe serves them, so that more can be asked for: arrays of counts that are changed at once, requests that are freed under way, and
// persistent ones, which MPICH 4.0.2 does wrong by itself.
static int served;
static uint64_t digest;
static MPI_Datatype pair; // two ints, each with a gap behind it

#include "fail.h"
#include "threads.h"

enum { ALLGATHER, ALLGATHERV, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, ALLTOALL, GATHER, SCATTER, VERBS };
enum { PLAIN, IN_PLACE, APART_SENT, APART, APART_IN_PLACE, WAYS };
enum { MOST = 4 }; // ranks

// values is a buffer of ints, which may have gaps between them.
typedef struct {
  int n, step;
  int *at;
} values;

static values make(int n, int step) {
  values v = {n, step, malloc((n * step + 1) * sizeof(int))};
  for (int i = 0; i < n * step + 1; i++) v.at[i] = -1;
  return v;
}

// A collective, and its buffers: what it gives is to be want, gaps and the element beyond included.
typedef struct {
  int id, verb, way, root, me, n, each, front; // front: how many elements are to be looked at
  int placed;                                  // on this rank
  int counts[MOST], places[MOST];
#if MPI_VERSION >= 4
  MPI_Count large_counts[MOST];
  MPI_Aint large_places[MOST];
#endif
  values in, out, want;
  MPI_Request request;
} one;

// Unequal parts: one has nothing. (They do not grow: in place, MPICH 4.0.2 would copy to what it copies from.)
static int part(const one *o, int r) { return o->verb == ALLGATHERV || o->verb == REDUCE_SCATTER ? (r == 1 ? 0 : r == 2 && o->each > 4 ? o->each - 4 : o->each) : o->each; }
static int mine(int r, int i, int round) { return 1000 * r + i % 997 + 7 * round; }
static int block(int from, int to, int i, int round) { return mine(from, i, round) + 100000 * to; }

// prepare makes the buffers of one.
static void prepare(one *o, int id, int verb, int way, int each, MPI_Comm comm) {
  memset(o, 0, sizeof *o);
  MPI_Comm_size(comm, &o->n);
  MPI_Comm_rank(comm, &o->me);
  o->id = id, o->verb = verb, o->way = way, o->each = each, o->root = id % o->n;
  int rooted = verb == GATHER || verb == SCATTER, at = o->me == o->root, sum = 0, next = 2 * o->me;
  o->placed = (way == IN_PLACE || way == APART_IN_PLACE) && (!rooted || at);
  for (int r = 0; r < o->n; r++) o->counts[r] = part(o, r), sum += o->counts[r];
  for (int r = o->n - 1; r >= 0; r--) o->places[r] = next, next += o->counts[r] + 2; // in reverse, and elsewhere on each rank
  int own = o->counts[o->me], room = verb == ALLGATHERV ? next : verb == ALLGATHER || verb == ALLTOALL ? sum : verb == GATHER ? (at ? sum : 0) : own;
  int given = verb == ALLTOALL || verb == REDUCE_SCATTER || verb == REDUCE_SCATTER_BLOCK ? sum : verb == SCATTER ? (at ? sum : 0) : own;
  int reduces = verb == REDUCE_SCATTER || verb == REDUCE_SCATTER_BLOCK;
  if (reduces && o->placed) room = sum;
  // Types of one signature may differ between the ranks; what is scattered in place lies where it is sent from.
  int sent_apart = !reduces && ((way == APART_SENT && o->me % 2 == 0) || (verb == SCATTER && way == APART_IN_PLACE));
  o->in = make(given, sent_apart ? 2 : 1);
  o->out = make(room, !reduces && (way == APART || (verb != SCATTER && way == APART_IN_PLACE)) ? 2 : 1);
  o->want = make(room, o->out.step);
  o->front = reduces && o->placed ? own : room * o->out.step + 1;
}

#define OF(v, i) (v).at[(v).step * (i)]

// fill sets what a collective reads, and what it is to give in a round.
static void fill(one *o, int round) {
  int own = o->counts[o->me], begin = 0, sum = 0;
  for (int r = 0; r < o->n; r++) {
    if (r == o->me) begin = sum;
    sum += o->counts[r];
  }
  for (int i = 0; i < o->out.n * o->out.step + 1; i++) o->out.at[i] = o->want.at[i] = -1;
  switch (o->verb) {
  case ALLGATHER:
  case ALLGATHERV:
  case GATHER:
    for (int i = 0; i < own; i++) OF(o->in, i) = mine(o->me, i, round);
    for (int r = 0; r < o->n && o->out.n > 0; r++) {
      int at = o->verb == ALLGATHERV ? o->places[r] : r * o->each;
      for (int i = 0; i < o->counts[r]; i++) {
        OF(o->want, at + i) = mine(r, i, round);
        if (r == o->me && o->placed) OF(o->out, at + i) = mine(r, i, round);
      }
    }
    break;
  case REDUCE_SCATTER:
  case REDUCE_SCATTER_BLOCK:
    for (int i = 0; i < sum; i++) {
      o->in.at[i] = mine(o->me, i, round);
      if (o->placed) o->out.at[i] = o->in.at[i];
    }
    for (int i = 0; i < own; i++) {
      o->want.at[i] = 0;
      for (int r = 0; r < o->n; r++) o->want.at[i] += mine(r, begin + i, round);
    }
    break;
  case ALLTOALL:
    for (int i = 0; i < sum; i++) {
      int r = i / o->each, k = i % o->each;
      OF(o->in, i) = block(o->me, r, k, round), OF(o->want, i) = block(r, o->me, k, round);
      if (o->placed) OF(o->out, i) = block(o->me, r, k, round);
    }
    break;
  default:
    for (int i = 0; i < o->in.n; i++) OF(o->in, i) = block(o->root, i / o->each, i % o->each, round);
    for (int i = 0; i < own && !o->placed; i++) OF(o->want, i) = block(o->root, o->me, i, round);
  }
}

#if MPI_VERSION >= 4
// Of each, every other one has large counts.
#define CALL(i, init, args, large)                                                                                             \
  do {                                                                                                                         \
    if (persistent && o->id % 2) MPI_##init##_init_c(ARGS large, MPI_INFO_NULL, &o->request);                                  \
    else if (persistent) MPI_##init##_init(ARGS args, MPI_INFO_NULL, &o->request);                                             \
    else if (o->id % 2) MPI_##i##_c(ARGS large, &o->request);                                                                  \
    else MPI_##i(ARGS args, &o->request);                                                                                      \
  } while (0)
#else
#define CALL(i, init, args, large) (void)persistent, MPI_##i(ARGS args, &o->request)
#endif
#define ARGS(...) __VA_ARGS__

// begin starts a collective, or makes it ready.
static void begin(one *o, int persistent, MPI_Comm comm) {
  MPI_Datatype sent = o->in.step == 2 ? pair : MPI_INT, type = o->out.step == 2 ? pair : MPI_INT;
  int s = o->in.step, t = o->out.step, count = (o->verb == ALLTOALL || o->verb == SCATTER ? o->each : o->in.n) / s, each = o->each / t;
  void *in = o->placed ? MPI_IN_PLACE : o->in.n > 0 ? o->in.at : NULL, *out = o->out.n > 0 ? o->out.at : NULL;
  if (s == 2) MPI_Type_dup(sent, &sent); // freed at once: what is under way needs them still
  if (t == 2) MPI_Type_dup(type, &type);
  int counts[MOST], places[MOST];
  for (int r = 0; r < o->n; r++) counts[r] = o->counts[r] / t, places[r] = o->places[r] / t;
#if MPI_VERSION >= 4
  for (int r = 0; r < o->n; r++) o->large_counts[r] = counts[r], o->large_places[r] = places[r];
#endif
  int *c = served ? counts : malloc(sizeof counts), *p = served ? places : malloc(sizeof places); // the library may read them later
  memcpy(c, counts, sizeof counts), memcpy(p, places, sizeof places);
  switch (o->verb) {
  case ALLGATHER:
    CALL(Iallgather, Allgather, (in, count, sent, out, each, type, comm), (in, count, sent, out, each, type, comm));
    break;
  case ALLGATHERV:
    CALL(Iallgatherv, Allgatherv, (in, count, sent, out, c, p, type, comm), (in, count, sent, out, o->large_counts, o->large_places, type, comm));
    break;
  case REDUCE_SCATTER:
    CALL(Ireduce_scatter, Reduce_scatter, (in, out, c, MPI_INT, MPI_SUM, comm), (in, out, o->large_counts, MPI_INT, MPI_SUM, comm));
    break;
  case REDUCE_SCATTER_BLOCK:
    CALL(Ireduce_scatter_block, Reduce_scatter_block, (in, out, each, MPI_INT, MPI_SUM, comm), (in, out, each, MPI_INT, MPI_SUM, comm));
    break;
  case ALLTOALL:
    if (o->placed) CALL(Ialltoall, Alltoall, (in, 0, MPI_DATATYPE_NULL, out, each, type, comm), (in, 0, MPI_DATATYPE_NULL, out, each, type, comm));
    else CALL(Ialltoall, Alltoall, (in, count, sent, out, each, type, comm), (in, count, sent, out, each, type, comm));
    break;
  case GATHER:
    CALL(Igather, Gather, (in, count, sent, out, each, type, o->root, comm), (in, count, sent, out, each, type, o->root, comm));
    break;
  default: // what is in place is what is received
    in = o->in.n > 0 ? o->in.at : NULL;
    if (o->placed) out = MPI_IN_PLACE;
    CALL(Iscatter, Scatter, (in, count, sent, out, each, type, o->root, comm), (in, count, sent, out, each, type, o->root, comm));
  }
  if (served) {
    for (int r = 0; r < o->n; r++) counts[r] = -1, places[r] = 1 << 20;
#if MPI_VERSION >= 4
    for (int r = 0; r < o->n; r++) o->large_counts[r] = -1, o->large_places[r] = 1 << 20;
#endif
  }
  if (s == 2) MPI_Type_free(&sent);
  if (t == 2) MPI_Type_free(&type);
  if (o->request == MPI_REQUEST_NULL) FAIL("collective %d has no request", o->id);
}

static void digest_of(const one *o) {
  uint64_t h = 1469598103934665603u ^ (uint64_t)o->id;
  for (int i = 0; i < o->front; i++) h = (h ^ (uint32_t)o->out.at[i]) * 1099511628211u;
  digest += h;
}

static void check(const one *o, const char *how) {
  for (int i = 0; i < o->front; i++)
    if (o->out.at[i] != o->want.at[i]) {
      FAIL("%s: collective %d (verb %d, way %d, of %d): element %d: %d, not %d", how, o->id, o->verb, o->way, o->each, i, o->out.at[i], o->want.at[i]);
      break;
    }
}

static void discard(one *o) { free(o->in.at), free(o->out.at), free(o->want.at); }

static const int sizes[] = {2, 5000, 70000};
enum { ALL = VERBS * WAYS };

static void prepare_all(one *o, int each, MPI_Comm comm) {
  for (int k = 0; k < ALL; k++) prepare(&o[k], k, k % VERBS, k / VERBS, each, comm);
}

// All at once, completed from the end, one after the other, or as they end.
static void started(MPI_Comm comm, const char *what) {
  static one o[ALL];
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    prepare_all(o, sizes[s], comm);
    for (int k = 0; k < ALL; k++) fill(&o[k], 0), begin(&o[k], 0, comm);
    MPI_Request r[ALL];
    for (int k = 0; k < ALL; k++) r[k] = o[k].request;
    for (int k = ALL - 1; k >= 0; k--) {
      int flag = 0, index = k;
      if (s == 0) MPI_Wait(&r[k], MPI_STATUS_IGNORE);
      else if (s == 1) while (!flag) MPI_Test(&r[(k + 5 * rank) % ALL], &flag, MPI_STATUS_IGNORE);
      else MPI_Waitany(ALL, r, &index, MPI_STATUS_IGNORE);
      if (index == MPI_UNDEFINED) FAIL("%s: nothing is under way with %d to come", what, k + 1);
    }
    for (int k = 0; k < ALL; k++) {
      if (r[k] != MPI_REQUEST_NULL) FAIL("%s: collective %d keeps its request", what, k);
      check(&o[k], what), digest_of(&o[k]), discard(&o[k]);
    }
  }
}

// Large ones, one after the other.
static void large(MPI_Comm comm) {
  one o;
  for (int verb = 0; verb < VERBS; verb++) {
    prepare(&o, 2, verb, PLAIN, 300000, comm), fill(&o, 0), begin(&o, 0, comm);
    MPI_Wait(&o.request, MPI_STATUS_IGNORE);
    check(&o, "large"), discard(&o);
  }
}

#if MPI_VERSION >= 4
static MPI_Status *volatile ignored = MPI_STATUSES_IGNORE; // of which compilers warn where they see it

// Started three times, each time with other values.
static void persistent(MPI_Comm comm, const char *what) {
  static one o[ALL];
  MPI_Request r[ALL];
  prepare_all(o, 3000, comm);
  for (int k = 0; k < ALL; k++) begin(&o[k], 1, comm), r[k] = o[k].request;
  for (int round = 1; round <= 3; round++) {
    for (int k = 0; k < ALL; k++) fill(&o[k], round);
    if (round == 1) MPI_Startall(ALL, r);
    else
      for (int k = 0; k < ALL; k++) MPI_Start(&r[k]);
    if (round == 2) MPI_Waitall(ALL, r, ignored);
    else
      for (int k = ALL - 1; k >= 0; k--) MPI_Wait(&r[k], MPI_STATUS_IGNORE);
    for (int k = 0; k < ALL; k++) check(&o[k], what);
  }
  for (int k = 0; k < ALL; k++) MPI_Request_free(&r[k]), discard(&o[k]);
}

// The library's own on a communicator that is not set up, after others have been served.
static void library(void) {
  one o;
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int verb = 0; verb < VERBS; verb++) {
    prepare(&o, 0, verb, PLAIN, 3000, comm), fill(&o, 0), begin(&o, 1, comm); // MPICH 4.0.2 copies when it makes them
    MPI_Start(&o.request);
    MPI_Wait(&o.request, MPI_STATUS_IGNORE);
    check(&o, "the library's"), MPI_Request_free(&o.request), discard(&o);
  }
  MPI_Comm_free(&comm);
}
#else
static void persistent(MPI_Comm comm, const char *what) { (void)comm, (void)what; }
static void library(void) {}
#endif

// Requests freed under way: what is received side by side comes, and no memory of theirs is given up before they end.
static void freed(void) {
  static one o[ALL];
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  double *v = calloc(40000, sizeof *v), *w = calloc(40000, sizeof *w);
  for (int k = 0; k < 2; k++) MPI_Allreduce(v, w, 40000, MPI_DOUBLE, MPI_SUM, comm);
  free(v), free(w);
  prepare_all(o, 70000, comm);
  for (int k = 0; k < ALL; k++) fill(&o[k], 0), begin(&o[k], 0, comm), MPI_Request_free(&o[k].request);
  MPI_Comm_free(&comm); // when all have ended
  for (int k = 0; k < ALL; k++) {
    if (o[k].out.step == 1 && !(o[k].verb == ALLGATHERV || ((o[k].verb == REDUCE_SCATTER || o[k].verb == REDUCE_SCATTER_BLOCK) && o[k].placed)))
      check(&o[k], "freed");
    discard(&o[k]);
  }
}

// Between two groups they are the library's.
static void between(void) {
  MPI_Comm half, inter;
  int low = rank < size / 2, there = low ? size - size / 2 : size / 2, n = 5000, *in = malloc(n * sizeof(int)), *out = malloc(there * n * sizeof(int));
  MPI_Request r[2];
  MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 2 : 0, 5, &inter);
  for (int i = 0; i < n; i++) in[i] = mine(rank, i, 0);
  MPI_Iallgather(in, n, MPI_INT, out, n, MPI_INT, inter, &r[0]);
  MPI_Wait(&r[0], MPI_STATUS_IGNORE);
  for (int i = 0; i < there * n; i++)
    if (out[i] != mine((low ? size / 2 : 0) + i / n, i % n, 0)) {
      FAIL("between two groups, element %d: %d", i, out[i]);
      break;
    }
  MPI_Comm_free(&inter), MPI_Comm_free(&half);
  free(in), free(out);
}

int main(int argc, char **argv) {
  served = argc > 1 && strcmp(argv[1], "served") == 0;
  start_mpi(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > MOST) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Datatype vector;
  MPI_Type_vector(2, 1, 2, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, 4 * sizeof(int), &pair);
  MPI_Type_free(&vector);
  MPI_Type_commit(&pair);
  if (argc > 1 && strcmp(argv[1], "large") == 0) large(MPI_COMM_WORLD);
  else started(MPI_COMM_WORLD, "started");
  if (served) persistent(MPI_COMM_WORLD, "persistent"), freed(), library();
  if (size > 1) between();
  MPI_Type_free(&pair);
  int total = 0;
  uint64_t sum = 0;
  MPI_Reduce(&errors, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(&digest, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Bcast(&total, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("digest %016llx\n%d errors\n", (unsigned long long)sum, total);
  MPI_Finalize();
  return total != 0;
}
