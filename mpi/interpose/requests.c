// Calls that do not block, and their persistent forms where the MPI has them: how requests are started and how they end. How the program
// completes them is in completing.c.
//
// They are served on communicators that are set up (to set one up blocks), by an engine with a thread that calls no
// MPI. What the program gets as its request is an inactive persistent one of the library's own, the placeholder, which is found again in
// a table. Whatever the program does with it in a function that is not caught, the library takes it for one that has nothing
// to wait for.
//
// Who waits here turns the program's MPI too: a peer may first need the rest of an MPI_Isend from this rank.
#include "requests.h"
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The least size that is served where SCAFFE_MIN does not say another.
#define MIN_STARTED (1 << 20)
// How long a wait sleeps at most before it turns the program's MPI again.
#define REST_NS 100000
#define BUCKETS 256

static request *table[BUCKETS];
static request *orphans; // freed by the program before they ended
struct requests requests = {.lock = PTHREAD_MUTEX_INITIALIZER};
static serve_bell bell;

void requests_find(void) { requests.null = HANDLE(MPI_REQUEST_NULL, "request_null"); }

static unsigned bucket(MPI_Request r) { return (unsigned)(((uintptr_t)r >> 4 ^ (uintptr_t)r >> 12 ^ (uintptr_t)r) % BUCKETS); }

request *find_locked(MPI_Request handle) {
  request *q = table[bucket(handle)];
  while (q && q->handle != handle) q = q->next;
  return q;
}

// find returns the served request with a handle, NULL where there is none.
request *find(MPI_Request handle) {
  pthread_mutex_lock(&requests.lock);
  request *q = find_locked(handle);
  pthread_mutex_unlock(&requests.lock);
  return q;
}

// ---- turning the program's MPI ----

// idle is a receive that is never sent to: a test of it moves the library on.
static struct {
  MPI_Comm comm;
  MPI_Request request;
  int open;
  pthread_mutex_t lock;
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER};

// turn moves the program's MPI on, unless another thread does.
static void turn(void) {
  int flag;
  if (pthread_mutex_trylock(&idle.lock)) return;
  if (!idle.open && REAL(PMPI_Comm_dup)(comm_self, &idle.comm) == MPI_SUCCESS) {
    if (REAL(PMPI_Irecv)(NULL, 0, type_byte, 0, 0, idle.comm, &idle.request) == MPI_SUCCESS) idle.open = 1;
    else REAL(PMPI_Comm_free)(&idle.comm);
  }
  if (idle.open) REAL(PMPI_Test)(&idle.request, &flag, MPI_STATUS_IGNORE);
  pthread_mutex_unlock(&idle.lock);
}

// rest turns the program's MPI, and sleeps until a request ends that had not when the bell was looked at, or for a moment.
void rest(uint32_t seen) {
  struct timespec most = {0, REST_NS};
  turn();
  __atomic_add_fetch(&bell.waiting, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&bell.ends, __ATOMIC_SEQ_CST) == seen) syscall(SYS_futex, &bell.ends, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
  __atomic_sub_fetch(&bell.waiting, 1, __ATOMIC_SEQ_CST);
}

uint32_t look_at_bell(void) { return __atomic_load_n(&bell.ends, __ATOMIC_SEQ_CST); }

// look_again turns the program's MPI after a test in vain, and lets scaffe's thread have the core, which it may share with this one.
void look_again(void) {
  turn();
  sched_yield();
}

void await(const request *q) {
  for (uint32_t seen = look_at_bell(); !over(q); seen = look_at_bell()) rest(seen);
}

// ---- the life of a request ----

static void discard(request *q) {
  if (q->prepared) lib.drop(q->prepared);
  clear(&q->job);
  free(q);
}

// refuse tells an error handler that a call on a request is wrong, or has failed.
int refuse(request *q, int class) {
  REAL(PMPI_Comm_call_errhandler)(q->st ? q->comm : comm_world, class);
  return class;
}

// retire completes a request that has ended, in a call of the program's, whose handle becomes null unless it is persistent. It returns
// what the call is to say of it.
int retire(request *q, MPI_Request *handle) {
  int rc = MPI_SUCCESS;
  await(q);
  if (q->ended < 0) rc = q->st ? failed(q->st, q->comm) : refuse(q, MPI_ERR_OTHER);
  else if (q->st) rc = deliver(&q->job, q->st, q->comm); // else requests_drain has
  pthread_mutex_lock(&requests.lock);
  q->active = 0;
  __atomic_sub_fetch(&requests.active, 1, __ATOMIC_RELAXED);
  if (!q->persistent) {
    request **at = &table[bucket(q->handle)];
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    __atomic_sub_fetch(&requests.served, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&requests.lock);
  if (!q->persistent) {
    REAL(PMPI_Request_free)(&q->handle);
    *handle = requests.null;
    discard(q);
  }
  return rc;
}

int start(request *q) {
  int rc = bring(&q->job, q->st, q->comm);
  if (rc != MPI_SUCCESS) return rc;
  pthread_mutex_lock(&requests.lock);
  q->active = 1, q->ended = 0;
  __atomic_add_fetch(&requests.active, 1, __ATOMIC_RELAXED);
  counts[SERVE_VERBS + q->job.call.verb].served++;
  pthread_mutex_unlock(&requests.lock);
  if (lib.start(q->prepared, &q->ended, &bell) == 0) return MPI_SUCCESS;
  pthread_mutex_lock(&requests.lock);
  counts[SERVE_VERBS + q->job.call.verb].served--;
  q->active = 0;
  __atomic_sub_fetch(&requests.active, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&requests.lock);
  return failed(q->st, q->comm);
}

int make_request(const form *f, state *st, MPI_Comm comm, job *j) {
  request *q = malloc(sizeof *q);
  if (q) {
    *q = (request){.comm = comm, .st = st, .persistent = f->persistent, .job = *j};
    if (keep(&q->job) == MPI_SUCCESS) q->prepared = lib.prepare(st->handle, &q->job.call);
  }
  // Not of MPI_PROC_NULL, which MPICH 4.0.2 remembers: it would never start a persistent collective that is given the same memory.
  if (!q || !q->prepared || REAL(PMPI_Recv_init)(NULL, 0, type_byte, 0, 0, comm_self, &q->handle) != MPI_SUCCESS) {
    if (q) discard(q);
    else clear(j);
    return failed(st, comm);
  }
  pthread_mutex_lock(&requests.lock);
  q->next = table[bucket(q->handle)];
  table[bucket(q->handle)] = q;
  __atomic_add_fetch(&requests.served, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&requests.lock);
  *f->handle = q->handle;
  return f->persistent ? MPI_SUCCESS : start(q);
}

// reap forgets what the program freed and has ended since.
static void reap(void) {
  pthread_mutex_lock(&requests.lock);
  for (request **at = &orphans; *at;) {
    request *q = *at;
    if (!over(q)) {
      at = &q->next;
      continue;
    }
    *at = q->next;
    __atomic_sub_fetch(&requests.active, 1, __ATOMIC_RELAXED);
    discard(q);
  }
  pthread_mutex_unlock(&requests.lock);
}

// drop frees a request for the program. One that has ended has done what it was to; of one that goes on nobody will know when it ends, so
// that what would have to be copied then is not: the memory may be another's.
void drop(request *q) {
  if (q->active && over(q) && q->ended > 0 && q->st) deliver(&q->job, q->st, q->comm);
  pthread_mutex_lock(&requests.lock);
  request **at = &table[bucket(q->handle)];
  while (*at != q) at = &(*at)->next;
  *at = q->next;
  __atomic_sub_fetch(&requests.served, 1, __ATOMIC_RELAXED);
  int goes_on = q->active;
  if (goes_on) q->next = orphans, orphans = q;
  pthread_mutex_unlock(&requests.lock);
  REAL(PMPI_Request_free)(&q->handle);
  if (!goes_on) discard(q);
}

// requests_drain returns when none of a communicator's requests is under way any more: all ranks have started them before they free
// the communicator. They can be completed afterwards.
void requests_drain(state *st) {
  for (;;) {
    uint32_t seen = look_at_bell();
    int left = 0;
    reap();
    pthread_mutex_lock(&requests.lock);
    for (int b = 0; b < BUCKETS; b++)
      for (request *q = table[b]; q; q = q->next)
        if (q->st == st && q->active && !over(q)) left = 1;
    for (request *q = orphans; q; q = q->next)
      if (q->st == st) left = 1;
    pthread_mutex_unlock(&requests.lock);
    if (!left) break;
    rest(seen);
  }
  pthread_mutex_lock(&requests.lock);
  for (int b = 0; b < BUCKETS; b++)
    for (request *q = table[b]; q; q = q->next)
      if (q->st == st) {
        if (q->active && q->ended > 0 && deliver(&q->job, NULL, comm_self) != MPI_SUCCESS) q->ended = -1;
        clear(&q->job);
        lib.drop(q->prepared);
        q->prepared = 0, q->st = NULL;
      }
  pthread_mutex_unlock(&requests.lock);
}

void requests_end(void) {
  if (!idle.open) return;
  idle.open = 0;
  REAL(PMPI_Cancel)(&idle.request);
  REAL(PMPI_Wait)(&idle.request, MPI_STATUS_IGNORE);
  REAL(PMPI_Comm_free)(&idle.comm);
}

// ---- starting ----

// serves_started returns the state of a communicator whose call scaffe serves, NULL where it is passed on. All ranks decide alike, from what
// they decide blocking calls by, but for what was tried: a program that goes on meanwhile gains what no trial of calls alone would show.
state *serves_started(int verb, int64_t bytes, enum exact exact, int root, MPI_Comm comm) {
  int v = SERVE_VERBS + verb;
  if (here.set.tries && bytes < MIN_STARTED) return passed(v, PASSED_SMALL), NULL;
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(v, PASSED_COMM), NULL;
  if (root < 0 || root >= st->size) return NULL; // the library says what is wrong
  if (here.set.tries && bytes < MIN_FLOATS && !is_exact(exact, st->size)) return passed(v, PASSED_SMALL), NULL;
  if (!st->handle) return passed(v, PASSED_FIRST), NULL;
  if (!st->starts) return passed(v, PASSED_COMM), NULL;
  // On a node what is not added is copied once by either, so a thread that has no core for itself only loses.
  int adds = verb == SERVE_REDUCE || verb == SERVE_ALLREDUCE || verb == SERVE_REDUCE_SCATTER;
  if (here.set.tries && !adds && !st->moves) return passed(v, PASSED_CHOICE), NULL;
  return st;
}

// ---- the program's calls ----

#define BEGIN(ask)                                                                                                             \
  int rc = MPI_SUCCESS;                                                                                                        \
  if (here.ready && !inside) {                                                                                                 \
    inside = 1;                                                                                                                \
    if (any(&requests.active)) reap();                                                                                         \
    int done_ = (ask);                                                                                                         \
    inside = 0;                                                                                                                \
    if (done_) return rc;                                                                                                      \
  }                                                                                                                            \
  inside++
#define END(call)                                                                                                              \
  rc = (call);                                                                                                                 \
  inside--;                                                                                                                    \
  return rc

#define STARTS(name, lasts, params, args, ask)                                                                                 \
  int name(params) {                                                                                                           \
    const form *f = &(const form){SERVE_VERBS, r, lasts};                                                                      \
    BEGIN(r && (ask));                                                                                                         \
    END(REAL(name)(args));                                                                                                     \
  }
#define STARTED(blocking, started, persistent, params, args, ask)                                                              \
  STARTS(started, 0, LISTED(LISTED params, MPI_Request *r), LISTED(LISTED args, r), ask)
#define PERSISTENT(blocking, started, persistent, params, args, ask)                                                           \
  STARTS(persistent, 1, LISTED(LISTED params, MPI_Info info, MPI_Request *r), LISTED(LISTED args, info, r), ask)

#if MPI_VERSION >= 4
#define WRAP(MPI)                                                                                                              \
  COLLECTIVES_OF_INT(STARTED, MPI)                                                                                             \
  COLLECTIVES_OF_INT(PERSISTENT, MPI)                                                                                          \
  COLLECTIVES_LARGE(STARTED, MPI)                                                                                              \
  COLLECTIVES_LARGE(PERSISTENT, MPI)
#else
#define WRAP(MPI) COLLECTIVES_OF_INT(STARTED, MPI)
#endif

#pragma GCC visibility push(default)
CATCH(WRAP)
#pragma GCC visibility pop
