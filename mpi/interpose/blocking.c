// Blocking calls: which are served, how each is handed to scaffe, and the rest to the program's own library. MPI_Alloc_mem too.
#include "interpose.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Which of the two is faster is found by trying where the result cannot depend on it; elsewhere by size alone (MIN_FLOATS).
#define TRIALS 6 // calls of a size, the library's and scaffe's in turn

static __thread trial *timed; // the call that is passed on next is a trial's

// ---- the choice ----

// chosen reports whether scaffe serves a call of so many bytes.
static int chosen(state *st, int verb, int type, int64_t bytes) {
  unsigned slot = (unsigned)((bytes * 31 + bytes / 4096 + verb * 7 + type) % CHOICES);
  if (st->choice[slot].bytes != bytes || st->choice[slot].verb != verb || st->choice[slot].type != type || !st->choice[slot].yes) {
    st->choice[slot].yes = lib.chooses(st->handle, verb, type, bytes) ? 1 : -1;
    st->choice[slot].bytes = bytes, st->choice[slot].verb = (signed char)verb, st->choice[slot].type = (signed char)type;
  }
  return st->choice[slot].yes > 0;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void shortest(double *of, double took) {
  if (*of == 0 || took < *of) *of = took;
}

static trial *trial_of(state *st, int verb, int64_t bytes) {
  int class = 63 - __builtin_clzll((unsigned long long)(bytes | 1));
  return &st->trials[verb][class < CLASSES ? class : CLASSES - 1];
}

// tried reports whether scaffe makes a call, of a kind whose result does not depend on who does. All ranks count these calls
// alike, and agree on what took longest at any of them.
static int tried(trial *t, MPI_Comm comm) {
  if (t->yes) return t->yes > 0;
  int k = t->calls++;
  if (k < TRIALS) {
    if (k % 2 == 0) timed = t;
    return k % 2;
  }
  double mine[2] = {t->library, t->scaffe}, all[2];
  if (REAL(PMPI_Allreduce)(mine, all, 2, type_double, ops[SERVE_MAX], comm) != MPI_SUCCESS) all[0] = all[1] = 1;
  t->yes = all[1] < all[0] ? 1 : -1;
  return t->yes > 0;
}

// serves returns the state of a communicator whose call scaffe serves, NULL where that is passed on, and sets the communicator up
// if this is the time. exact says of how many ranks the result is the same whoever serves it.
static state *serves(int verb, int type, int64_t bytes, enum exact exact, int root, MPI_Comm comm) {
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(verb, PASSED_COMM), NULL;
  if (root < 0 || root >= st->size) return NULL; // the library says what is wrong
  int same = is_exact(exact, st->size);
  if (here.set.tries && !same && bytes < MIN_FLOATS) return passed(verb, PASSED_SMALL), NULL;
  if (!st->handle) {
    if (st->calls++ < 1) return passed(verb, PASSED_FIRST), NULL;
    set_up(comm, st);
    if (st->none) return passed(verb, PASSED_COMM), NULL;
  }
  if (!chosen(st, verb, type, bytes)) return passed(verb, PASSED_CHOICE), NULL;
  if (here.set.tries && same && !tried(trial_of(st, verb, bytes), comm))
    return passed(verb, PASSED_CHOICE), NULL;
  return st;
}

static int serve(state *st, MPI_Comm comm, serve_call *c) {
  staging gpu;
  counts[c->verb].served++;
  double begun = now();
  int rc = stage(st, c, &gpu);
  if (rc == MPI_SUCCESS) rc = stage_down(&gpu);
  if (rc == MPI_SUCCESS) rc = lib.call(st->handle, c) == 0 ? stage_up(&gpu) : MPI_ERR_OTHER;
  unstage(&gpu);
  if (rc != MPI_SUCCESS) return failed(st, comm);
  trial *t = trial_of(st, c->verb, c->count * element_size(c->type));
  if (!t->yes) shortest(&t->scaffe, now() - begun);
  return MPI_SUCCESS;
}

// ---- the calls ----

// reduction serves a Reduce or an Allreduce, and reports whether it has.
static int reduction(int verb, const void *send, void *recv, int64_t count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, int *rc) {
  const struct named *t = named(type);
  if (!t) return passed(verb, PASSED_TYPE);
  if (count * t->size < here.set.min) return passed(verb, PASSED_SMALL);
  int o = operation(t, op);
  if (o == NONE || !send || (verb == SERVE_ALLREDUCE && !recv)) return passed(verb, PASSED_TYPE);
  state *st = serves(verb, t->code, count * t->size, exactness(t->code, o), root, comm);
  if (!st || (st->rank == root && !recv)) return 0;
  serve_call c = {verb, t->code, o, root, (void *)send, recv, count, NULL};
  if (send == MPI_IN_PLACE) c.send = recv;
  *rc = serve(st, comm, &c);
  return 1;
}

// packable reports whether what some ranks may have to pack can be: MPI before 4 counts packed bytes in an int.
static int packable(int64_t bytes) { return MPI_VERSION >= 4 || bytes <= INT_MAX; }

// room returns memory for a call, NULL where there is none: then the call has failed.
static void *room(state *st, MPI_Comm comm, int64_t bytes, int *rc) {
  void *m = malloc((size_t)bytes + 1);
  if (m) return m;
  fprintf(stderr, "scaffe: no memory for a copy of %lld bytes that a call needs\n", (long long)bytes);
  *rc = failed(st, comm);
  return NULL;
}

// broadcast serves a Bcast. Ranks may use different types of one signature: whose elements do not lie
// side by side packs them.
static int broadcast(void *buf, int64_t count, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  int side_by_side;
  int64_t bytes = count * signature(type, &side_by_side);
  if (bytes < here.set.min) return passed(SERVE_BCAST, PASSED_SMALL);
  if ((side_by_side && !buf) || !packable(bytes)) return passed(SERVE_BCAST, PASSED_TYPE);
  state *st = serves(SERVE_BCAST, SERVE_U8, bytes, ALWAYS, root, comm);
  if (!st) return 0;
  serve_call c = {SERVE_BCAST, SERVE_U8, SERVE_SUM, root, buf, buf, bytes, NULL};
  if (side_by_side) {
    *rc = serve(st, comm, &c);
    return 1;
  }
  void *packed = room(st, comm, bytes, rc);
  if (!packed) return 1;
  if (st->rank == root) *rc = pack(buf, count, type, packed, bytes, comm);
  c.send = c.recv = packed;
  if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
  if (*rc == MPI_SUCCESS && st->rank != root) *rc = unpack(packed, bytes, buf, count, type, comm);
  free(packed);
  return 1;
}

// list is a number for each rank, as programs have them: int or a larger kind, or the same for all.
typedef struct {
  const int *ints;
  const MPI_Count *counts;
  const MPI_Aint *places;
  int64_t each;
} list;

static int64_t of(const list *l, int rank) {
  return l->ints ? l->ints[rank] : l->counts ? (int64_t)l->counts[rank] : l->places ? (int64_t)l->places[rank] : l->each;
}

static int equal(const list *l) { return !l->ints && !l->counts && !l->places; }

// total adds the counts of a communicator's ranks, -1 where the library is to say what is wrong with it or them.
static int64_t total(const list *counts, MPI_Comm comm) {
  int size = 0;
  if (equal(counts)) return comm != comm_null && REAL(PMPI_Comm_size)(comm, &size) == MPI_SUCCESS ? counts->each * size : -1;
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return -1; // between two groups the counts are the other's
  int64_t sum = 0;
  for (int r = 0; r < st->size; r++) {
    if (of(counts, r) < 0) return -1;
    sum += of(counts, r);
  }
  return sum;
}

// sends reports whether a rank may send these elements: where not, the library says what is wrong. Neither having nothing to send, and
// so perhaps no buffer, nor MPI_BOTTOM and a type with addresses in it is wrong: other ranks know of neither.
static int sends(const void *buf, int64_t count, MPI_Datatype type, int *side_by_side) {
  if (count < 0 || type == type_null) return 0;
  return count * signature(type, side_by_side) == 0 || buf || !*side_by_side;
}

// allgather serves an Allgather, whose parts lie one after the other, or an Allgatherv, whose parts lie at places of their own on each
// rank. Ranks may use different types of one signature. What does not lie side by side goes through memory where it does.
static int allgather(const void *send, int64_t count, MPI_Datatype sent, void *recv, list counts, const list *places, MPI_Datatype type,
                     MPI_Comm comm, int *rc) {
  int lies, sent_lies = 1;
  int64_t size = signature(type, &lies), all = total(&counts, comm), bytes = all * size;
  if (all < 0) return passed(SERVE_ALLGATHER, PASSED_COMM);
  if (bytes < here.set.min) return passed(SERVE_ALLGATHER, PASSED_SMALL);
  if (!packable(bytes) || (lies && !recv) || (send != MPI_IN_PLACE && !sends(send, count, sent, &sent_lies))) return passed(SERVE_ALLGATHER, PASSED_TYPE);
  state *st = serves(SERVE_ALLGATHER, SERVE_U8, bytes, ALWAYS, 0, comm);
  if (!st) return 0;
  MPI_Aint low, extent = size;
  if (!lies && (*rc = REAL(PMPI_Type_get_extent)(type, &low, &extent)) != MPI_SUCCESS) return 1;
  int64_t *parts = room(st, comm, 2 * (int64_t)sizeof *parts * st->size, rc), *begins = parts + st->size, before = 0;
  if (!parts) return 1;
  for (int r = 0; r < st->size; r++) {
    parts[r] = of(&counts, r) * size, begins[r] = before;
    before += parts[r];
    if (places && of(places, r) * size != begins[r]) lies = 0; // not one after the other
  }
#define PLACE(r) ((char *)recv + (places ? of(places, r) : (r) * counts.each) * extent)
  int me = st->rank;
  char *whole = lies ? recv : room(st, comm, bytes, rc), *own = whole + begins[me];
  serve_call c = {SERVE_ALLGATHER, SERVE_U8, SERVE_SUM, 0, own, whole, bytes, equal(&counts) ? NULL : parts};
  if (whole && parts[me] > 0) {
    if (send != MPI_IN_PLACE && sent_lies) c.send = (void *)send;
    else if (send != MPI_IN_PLACE) *rc = pack(send, count, sent, own, parts[me], comm);
    else if (!lies) *rc = pack(PLACE(me), of(&counts, me), type, own, parts[me], comm);
  }
  if (whole && *rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
  for (int r = 0; whole && !lies && *rc == MPI_SUCCESS && r < st->size; r++)
    *rc = unpack(whole + begins[r], parts[r], PLACE(r), of(&counts, r), type, comm);
#undef PLACE
  if (whole != recv) free(whole);
  free(parts);
  return 1;
}

// reduce_scatter serves a Reduce_scatter or a Reduce_scatter_block. In place the whole buffer is read, and the result goes to its front.
static int reduce_scatter(const void *send, void *recv, list counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm, int *rc) {
  const struct named *t = named(type);
  if (!t) return passed(SERVE_REDUCE_SCATTER, PASSED_TYPE);
  int64_t all = total(&counts, comm);
  if (all < 0) return passed(SERVE_REDUCE_SCATTER, PASSED_COMM);
  if (all * t->size < here.set.min) return passed(SERVE_REDUCE_SCATTER, PASSED_SMALL);
  int o = operation(t, op);
  if (o == NONE || !send || (!recv && send == MPI_IN_PLACE)) return passed(SERVE_REDUCE_SCATTER, PASSED_TYPE);
  state *st = serves(SERVE_REDUCE_SCATTER, t->code, all * t->size, exactness(t->code, o), 0, comm);
  if (!st) return 0;
  int64_t *parts = NULL, own = of(&counts, st->rank) * t->size;
  if (!equal(&counts)) {
    if (!(parts = room(st, comm, (int64_t)sizeof *parts * st->size, rc))) return 1;
    for (int r = 0; r < st->size; r++) parts[r] = of(&counts, r);
  }
  void *front = send == MPI_IN_PLACE ? room(st, comm, own, rc) : recv;
  serve_call c = {SERVE_REDUCE_SCATTER, t->code, o, 0, send == MPI_IN_PLACE ? recv : (void *)send, front, all, parts};
  if (send != MPI_IN_PLACE) *rc = serve(st, comm, &c);
  else if (front) {
    *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS) *rc = move(recv, front, (size_t)own);
    free(front);
  }
  free(parts);
  return 1;
}

// alltoall serves an Alltoall. Ranks may use different types of one signature: what does not lie side by side goes through memory where
// it does, and so does what is sent in place.
static int alltoall(const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, MPI_Comm comm, int *rc) {
  int lies, sent_lies = 1;
  int64_t size = signature(type, &lies), all = total(&(list){.each = each}, comm), bytes = all * size;
  if (all < 0) return passed(SERVE_ALLTOALL, PASSED_COMM);
  if (bytes < here.set.min) return passed(SERVE_ALLTOALL, PASSED_SMALL);
  if (!packable(bytes) || (lies && !recv) || (send != MPI_IN_PLACE && !sends(send, count, sent, &sent_lies))) return passed(SERVE_ALLTOALL, PASSED_TYPE);
  state *st = serves(SERVE_ALLTOALL, SERVE_U8, bytes, ALWAYS, 0, comm);
  if (!st) return 0;
  int apart = send == MPI_IN_PLACE || !sent_lies;
  char *from = apart ? room(st, comm, bytes, rc) : (void *)send, *into = lies ? recv : room(st, comm, bytes, rc);
  if (from && into) {
    if (send == MPI_IN_PLACE && lies) *rc = move(from, recv, (size_t)bytes);
    else if (send == MPI_IN_PLACE) *rc = pack(recv, all, type, from, bytes, comm);
    else if (!sent_lies) *rc = pack(send, count * st->size, sent, from, bytes, comm);
    serve_call c = {SERVE_ALLTOALL, SERVE_U8, SERVE_SUM, 0, from, into, bytes, NULL};
    if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS && !lies) *rc = unpack(into, bytes, recv, all, type, comm);
  }
  if (apart) free(from);
  if (!lies) free(into);
  return 1;
}

// gather serves a Gather. Ranks may use different types of one signature: what does not lie side by side goes through memory where it does.
// (Of a Gatherv or a Scatterv the root alone knows how much it is; those are passed on.)
static int gather(const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(SERVE_GATHER, PASSED_COMM);
  int gets = st->rank == root, in_place = gets && send == MPI_IN_PLACE, lies = 1, sent_lies = 1;
  int64_t own = gets ? each * signature(type, &lies) : count * signature(sent, &sent_lies), bytes = own * st->size;
  if (bytes < here.set.min) return passed(SERVE_GATHER, PASSED_SMALL);
  if (!packable(bytes) || (gets && lies && !recv) || (!in_place && !sends(send, count, sent, &sent_lies))) return passed(SERVE_GATHER, PASSED_TYPE);
  if (!serves(SERVE_GATHER, SERVE_U8, bytes, ALWAYS, root, comm)) return 0;
  MPI_Aint low, extent = 0;
  if (!lies && (*rc = REAL(PMPI_Type_get_extent)(type, &low, &extent)) != MPI_SUCCESS) return 1;
  char *whole = !gets ? NULL : lies ? recv : room(st, comm, bytes, rc), *part = (void *)send;
  if (in_place) part = whole + own * root;
  else if (!sent_lies) part = room(st, comm, own, rc);
  if ((whole || !gets) && part) {
    if (in_place && !lies) *rc = pack((char *)recv + each * extent * root, each, type, part, own, comm);
    else if (!sent_lies) *rc = pack(send, count, sent, part, own, comm);
    serve_call c = {SERVE_GATHER, SERVE_U8, SERVE_SUM, root, part, whole, bytes, NULL};
    if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS && !lies) *rc = unpack(whole, bytes, recv, each * st->size, type, comm);
  }
  if (!in_place && !sent_lies) free(part);
  if (!lies) free(whole);
  return 1;
}

// scatter serves a Scatter, likewise.
static int scatter(const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(SERVE_SCATTER, PASSED_COMM);
  int gives = st->rank == root, in_place = gives && recv == MPI_IN_PLACE, lies = 1, sent_lies = 1;
  int64_t own = gives ? count * signature(sent, &sent_lies) : each * signature(type, &lies), bytes = own * st->size;
  if (bytes < here.set.min) return passed(SERVE_SCATTER, PASSED_SMALL);
  if (!packable(bytes) || (gives && sent_lies && !send) || (!in_place && !sends(recv, each, type, &lies))) return passed(SERVE_SCATTER, PASSED_TYPE);
  if (!serves(SERVE_SCATTER, SERVE_U8, bytes, ALWAYS, root, comm)) return 0;
  char *whole = !gives ? NULL : sent_lies ? (void *)send : room(st, comm, bytes, rc), *part = recv;
  if (in_place) part = whole + own * root;
  else if (!lies) part = room(st, comm, own, rc);
  if ((whole || !gives) && part) {
    if (!sent_lies) *rc = pack(send, count * st->size, sent, whole, bytes, comm);
    serve_call c = {SERVE_SCATTER, SERVE_U8, SERVE_SUM, root, whole, part, bytes, NULL};
    if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS && !in_place && !lies) *rc = unpack(part, own, recv, each, type, comm);
  }
  if (!in_place && !lies) free(part);
  if (!sent_lies) free(whole);
  return 1;
}

// ---- memory ----

static int shared; // pieces of memory that the program has of scaffe

// allocate serves an Alloc_mem of as much as calls are served with, where MPI_COMM_WORLD is set up: elsewhere memory that ranks share would
// need them all. A rank that has such memory and one that has not may use theirs in the same call.
static int allocate(MPI_Aint bytes, void *into) {
  if (bytes < here.set.min || !into) return 0;
  state *st = state_of(comm_world);
  void *m = st && st->handle ? lib.alloc(st->handle, (size_t)bytes) : NULL;
  if (!m) return 0;
  __atomic_add_fetch(&shared, 1, __ATOMIC_RELAXED);
  *(void **)into = m;
  return 1;
}

static int give_back(void *memory) {
  if (__atomic_load_n(&shared, __ATOMIC_RELAXED) == 0 || !memory) return 0;
  state *st = state_of(comm_world);
  if (!st || !st->handle || !lib.free(st->handle, memory)) return 0;
  __atomic_sub_fetch(&shared, 1, __ATOMIC_RELAXED);
  return 1;
}

// ---- the program's calls ----

#define ENTER(ask)                                                                                                             \
  int rc = MPI_SUCCESS;                                                                                                        \
  if (here.ready && !inside) {                                                                                                 \
    inside = 1;                                                                                                                \
    int served_ = (ask);                                                                                                       \
    inside = 0;                                                                                                                \
    if (served_) return rc;                                                                                                    \
  }
#define PASS(call)                                                                                                             \
  trial *timed_ = timed;                                                                                                       \
  double begun_ = timed_ ? now() : 0;                                                                                          \
  timed = NULL;                                                                                                                \
  inside++;                                                                                                                    \
  rc = (call);                                                                                                                 \
  inside--;                                                                                                                    \
  if (timed_) shortest(&timed_->library, now() - begun_);                                                                      \
  return rc

#define WRAP(MPI)                                                                                                              \
  int MPI##_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {                  \
    ENTER(reduction(SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, &rc))                                               \
    PASS(REAL(MPI##_Allreduce)(send, recv, count, type, op, comm));                                                            \
  }                                                                                                                            \
  int MPI##_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {           \
    ENTER(reduction(SERVE_REDUCE, send, recv, count, type, op, root, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce)(send, recv, count, type, op, root, comm));                                                         \
  }                                                                                                                            \
  int MPI##_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm) {                                          \
    ENTER(broadcast(buf, count, type, root, comm, &rc))                                                                        \
    PASS(REAL(MPI##_Bcast)(buf, count, type, root, comm));                                                                     \
  }                                                                                                                            \
  int MPI##_Allgather(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, MPI_Comm comm) {\
    ENTER(allgather(send, count, sent, recv, (list){.each = each}, NULL, type, comm, &rc))                                     \
    PASS(REAL(MPI##_Allgather)(send, count, sent, recv, each, type, comm));                                                    \
  }                                                                                                                            \
  int MPI##_Allgatherv(const void *send, int count, MPI_Datatype sent, void *recv, const int counts[], const int places[], MPI_Datatype type,\
                       MPI_Comm comm) {                                                                                        \
    list at = {.ints = places};                                                                                                \
    ENTER(counts && places && allgather(send, count, sent, recv, (list){.ints = counts}, &at, type, comm, &rc))                \
    PASS(REAL(MPI##_Allgatherv)(send, count, sent, recv, counts, places, type, comm));                                         \
  }                                                                                                                            \
  int MPI##_Reduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {    \
    ENTER(counts && reduce_scatter(send, recv, (list){.ints = counts}, type, op, comm, &rc))                                   \
    PASS(REAL(MPI##_Reduce_scatter)(send, recv, counts, type, op, comm));                                                      \
  }                                                                                                                            \
  int MPI##_Reduce_scatter_block(const void *send, void *recv, int each, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {        \
    ENTER(reduce_scatter(send, recv, (list){.each = each}, type, op, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce_scatter_block)(send, recv, each, type, op, comm));                                                  \
  }                                                                                                                            \
  int MPI##_Alltoall(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, MPI_Comm comm) { \
    ENTER(alltoall(send, count, sent, recv, each, type, comm, &rc))                                                            \
    PASS(REAL(MPI##_Alltoall)(send, count, sent, recv, each, type, comm));                                                     \
  }                                                                                                                            \
  int MPI##_Gather(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(gather(send, count, sent, recv, each, type, root, comm, &rc))                                                        \
    PASS(REAL(MPI##_Gather)(send, count, sent, recv, each, type, root, comm));                                                 \
  }                                                                                                                            \
  int MPI##_Scatter(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(scatter(send, count, sent, recv, each, type, root, comm, &rc))                                                       \
    PASS(REAL(MPI##_Scatter)(send, count, sent, recv, each, type, root, comm));                                                \
  }                                                                                                                            \
  int MPI##_Alloc_mem(MPI_Aint bytes, MPI_Info info, void *into) {                                                             \
    ENTER(allocate(bytes, into))                                                                                               \
    PASS(REAL(MPI##_Alloc_mem)(bytes, info, into));                                                                            \
  }                                                                                                                            \
  int MPI##_Free_mem(void *memory) {                                                                                           \
    ENTER(give_back(memory))                                                                                                   \
    PASS(REAL(MPI##_Free_mem)(memory));                                                                                        \
  }

#if MPI_VERSION >= 4
// MPI 4's forms with large counts.
#define WRAP_LARGE(MPI)                                                                                                        \
  int MPI##_Allreduce_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {          \
    ENTER(reduction(SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, &rc))                                               \
    PASS(REAL(MPI##_Allreduce_c)(send, recv, count, type, op, comm));                                                          \
  }                                                                                                                            \
  int MPI##_Reduce_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {   \
    ENTER(reduction(SERVE_REDUCE, send, recv, count, type, op, root, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce_c)(send, recv, count, type, op, root, comm));                                                       \
  }                                                                                                                            \
  int MPI##_Bcast_c(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {                                  \
    ENTER(broadcast(buf, count, type, root, comm, &rc))                                                                        \
    PASS(REAL(MPI##_Bcast_c)(buf, count, type, root, comm));                                                                   \
  }                                                                                                                            \
  int MPI##_Allgather_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, MPI_Comm comm) {\
    ENTER(allgather(send, count, sent, recv, (list){.each = each}, NULL, type, comm, &rc))                                     \
    PASS(REAL(MPI##_Allgather_c)(send, count, sent, recv, each, type, comm));                                                  \
  }                                                                                                                            \
  int MPI##_Allgatherv_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, const MPI_Count counts[], const MPI_Aint places[],\
                         MPI_Datatype type, MPI_Comm comm) {                                                                   \
    list at = {.places = places};                                                                                              \
    ENTER(counts && places && allgather(send, count, sent, recv, (list){.counts = counts}, &at, type, comm, &rc))              \
    PASS(REAL(MPI##_Allgatherv_c)(send, count, sent, recv, counts, places, type, comm));                                       \
  }                                                                                                                            \
  int MPI##_Reduce_scatter_c(const void *send, void *recv, const MPI_Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {\
    ENTER(counts && reduce_scatter(send, recv, (list){.counts = counts}, type, op, comm, &rc))                                 \
    PASS(REAL(MPI##_Reduce_scatter_c)(send, recv, counts, type, op, comm));                                                    \
  }                                                                                                                            \
  int MPI##_Reduce_scatter_block_c(const void *send, void *recv, MPI_Count each, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {\
    ENTER(reduce_scatter(send, recv, (list){.each = each}, type, op, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce_scatter_block_c)(send, recv, each, type, op, comm));                                                \
  }                                                                                                                            \
  int MPI##_Alltoall_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, MPI_Comm comm) {\
    ENTER(alltoall(send, count, sent, recv, each, type, comm, &rc))                                                            \
    PASS(REAL(MPI##_Alltoall_c)(send, count, sent, recv, each, type, comm));                                                   \
  }                                                                                                                            \
  int MPI##_Gather_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(gather(send, count, sent, recv, each, type, root, comm, &rc))                                                        \
    PASS(REAL(MPI##_Gather_c)(send, count, sent, recv, each, type, root, comm));                                               \
  }                                                                                                                            \
  int MPI##_Scatter_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(scatter(send, count, sent, recv, each, type, root, comm, &rc))                                                       \
    PASS(REAL(MPI##_Scatter_c)(send, count, sent, recv, each, type, root, comm));                                              \
  }
#else
#define WRAP_LARGE(MPI)
#endif

#pragma GCC visibility push(default)
CATCH(WRAP)
CATCH(WRAP_LARGE)
#pragma GCC visibility pop
