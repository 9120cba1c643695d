// Blocking calls: which are served, and the rest passed on to the program's own library. MPI_Alloc_mem too.
#include "calls.h"
#include <time.h>

// Which of the two is faster is found by trying where the result cannot depend on it; elsewhere by size alone (MIN_FLOATS). Each makes some
// calls one after another, of which the first does not count: it finds memory and caches as the other has left them, and its own memory perhaps
// for the first time. All calls of a trial may meet a bad moment, so there is another, a shorter one, when there have been AGAIN calls, and each
// time when there have been AGAIN_TIMES as many.
#define TRIALS 5 // calls of each
#define SHORTER 3
#define AGAIN 32
#define AGAIN_TIMES 4
#define WORTH 0.9 // of the library's time: what gains less in so few calls may lose in others

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

// shortest keeps the less of what calls took, a byte.
static void shortest(double *of, double took, int64_t bytes) {
  took /= (double)bytes;
  if (*of == 0 || took < *of) *of = took;
}

static trial *trial_of(state *st, int verb, int64_t bytes) {
  int class = 63 - __builtin_clzll((unsigned long long)(bytes | 1));
  return &st->trials[verb][class < CLASSES ? class : CLASSES - 1];
}

// tried reports whether scaffe makes a call, of a kind whose result does not depend on who does. All ranks count these calls
// alike, and agree on what took longest at any of them.
static int tried(trial *t, int64_t bytes, MPI_Comm comm) {
  int64_t k = t->calls++ - t->from; // calls since both are tried
  t->bytes = 0;                     // of a call that was not made in the end
  if (k < 0) return t->yes;
  int each = t->from ? SHORTER : TRIALS;
  if (k < 2 * each) {
    if (k % each) t->bytes = bytes;
    if (t->bytes && k < each) timed = t;
    return k >= each;
  }
  double mine[2] = {t->library, t->scaffe}, all[2];
  if (REAL(PMPI_Allreduce)(mine, all, 2, type_double, ops[SERVE_MAX], comm) != MPI_SUCCESS) all[0] = all[1] = 1;
  t->from = t->from ? t->from * AGAIN_TIMES : AGAIN;
  return t->yes = all[1] < WORTH * all[0];
}

// serves_blocking returns the state of a communicator whose call scaffe serves, NULL where that is passed on, and sets the communicator up
// if this is the time. exact says of how many ranks the result is the same whoever serves it.
state *serves_blocking(int verb, int type, int64_t bytes, enum exact exact, int root, MPI_Comm comm) {
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
  if (here.set.tries && same && !tried(trial_of(st, verb, bytes), bytes, comm))
    return passed(verb, PASSED_CHOICE), NULL;
  return st;
}

int make_blocking(state *st, MPI_Comm comm, job *j) {
  counts[j->call.verb].served++;
  trial *t = trial_of(st, j->call.verb, j->call.count * element_size(j->call.type));
  double begun = now();
  int rc = bring(j, st, comm);
  if (rc == MPI_SUCCESS) rc = lib.call(st->handle, &j->call) == 0 ? deliver(j, st, comm) : failed(st, comm);
  if (rc == MPI_SUCCESS && t->bytes) shortest(&t->scaffe, now() - begun, t->bytes);
  t->bytes = 0;
  clear(j);
  return rc;
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
  if (timed_) shortest(&timed_->library, now() - begun_, timed_->bytes), timed_->bytes = 0;                                    \
  return rc

static const form blocks;

#define BLOCKING(blocking, started, persistent, params, args, ask)                                                             \
  int blocking(LISTED params) {                                                                                                \
    const form *f = &blocks;                                                                                                   \
    ENTER(ask)                                                                                                                 \
    PASS(REAL(blocking)(LISTED args));                                                                                         \
  }
#define WRAP(MPI)                                                                                                              \
  COLLECTIVES_OF_INT(BLOCKING, MPI)                                                                                            \
  int MPI##_Alloc_mem(MPI_Aint bytes, MPI_Info info, void *into) {                                                             \
    ENTER(allocate(bytes, into))                                                                                               \
    PASS(REAL(MPI##_Alloc_mem)(bytes, info, into));                                                                            \
  }                                                                                                                            \
  int MPI##_Free_mem(void *memory) {                                                                                           \
    ENTER(give_back(memory))                                                                                                   \
    PASS(REAL(MPI##_Free_mem)(memory));                                                                                        \
  }

#if MPI_VERSION >= 4
#define WRAP_ALL(MPI) WRAP(MPI) COLLECTIVES_LARGE(BLOCKING, MPI)
#else
#define WRAP_ALL(MPI) WRAP(MPI)
#endif

#pragma GCC visibility push(default)
CATCH(WRAP_ALL)
#pragma GCC visibility pop
