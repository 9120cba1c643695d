// Calls that do not block: MPI_Ireduce, MPI_Ibcast, MPI_Iallreduce, and their persistent forms where the MPI has them.
//
// They are served on communicators that are set up (to set one up blocks), by an engine with a thread that calls no
// MPI. What the program gets as its request is an inactive persistent one of the library's own, the placeholder, which is found again in
// a table. Whatever the program does with it in a function that is not caught, the library takes it for one that has nothing
// to wait for. MPI_Wait and its like compare one counter with 0 where nothing is served.
//
// Who waits here turns the program's MPI too: a peer may first need the rest of an MPI_Isend from this rank.
#include "interpose.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The least size that is served where SCAFFE_MIN does not say another.
#define MIN_STARTED (1 << 20)
// How long a wait sleeps at most before it turns the program's MPI again.
#define REST_NS 100000
#define BUCKETS 256

// request is a served one.
typedef struct request {
  MPI_Request handle; // its placeholder
  MPI_Comm comm;
  state *st;           // NULL once its communicator is gone
  uintptr_t prepared;
  int verb, persistent;
  int active;          // between its start and its completion in a call of the program's
  int32_t ended;       // set by scaffe's thread: 1, or -1
  // A broadcast whose elements do not lie side by side.
  void *packed, *buf;
  int64_t bytes, count;
  MPI_Datatype type;
  int root;
  staging gpu;
  struct request *next; // in its bucket
} request;

static request *table[BUCKETS];
static request *orphans; // freed by the program before they ended
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the table, orphans, and what is counted
static int served; // requests in the table
static int active; // of them, those that were started and not completed
static serve_bell bell;

static MPI_Request request_null;

void requests_find(void) { request_null = HANDLE(MPI_REQUEST_NULL, "request_null"); }

static unsigned bucket(MPI_Request r) { return (unsigned)(((uintptr_t)r >> 4 ^ (uintptr_t)r >> 12 ^ (uintptr_t)r) % BUCKETS); }

static request *find_locked(MPI_Request handle) {
  request *q = table[bucket(handle)];
  while (q && q->handle != handle) q = q->next;
  return q;
}

// find returns the served request with a handle, NULL where there is none.
static request *find(MPI_Request handle) {
  pthread_mutex_lock(&lock);
  request *q = find_locked(handle);
  pthread_mutex_unlock(&lock);
  return q;
}

// under_way is find of one that is active.
static request *under_way(MPI_Request handle) {
  request *q = find(handle);
  return q && q->active ? q : NULL;
}

static int over(const request *q) { return __atomic_load_n(&q->ended, __ATOMIC_ACQUIRE) != 0; }

static int any(const int *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED) != 0; }

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
static void rest(uint32_t seen) {
  struct timespec most = {0, REST_NS};
  turn();
  __atomic_add_fetch(&bell.waiting, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&bell.ends, __ATOMIC_SEQ_CST) == seen) syscall(SYS_futex, &bell.ends, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
  __atomic_sub_fetch(&bell.waiting, 1, __ATOMIC_SEQ_CST);
}

static uint32_t look_at_bell(void) { return __atomic_load_n(&bell.ends, __ATOMIC_SEQ_CST); }

// look_again turns the program's MPI after a test in vain, and lets scaffe's thread have the core, which it may share with this one.
static void look_again(void) {
  turn();
  sched_yield();
}

static void await(const request *q) {
  for (uint32_t seen = look_at_bell(); !over(q); seen = look_at_bell()) rest(seen);
}

// ---- the life of a request ----

static void discard(request *q) {
  unstage(&q->gpu);
  if (q->prepared) lib.drop(q->prepared);
  if (q->packed) {
    free(q->packed);
    REAL(PMPI_Type_free)(&q->type);
  }
  free(q);
}

// refuse tells an error handler that a call on a request is wrong, or has failed.
static int refuse(request *q, int class) {
  REAL(PMPI_Comm_call_errhandler)(q->st ? q->comm : comm_world, class);
  return class;
}

// retire completes a request that has ended, in a call of the program's, whose handle becomes null unless it is persistent. It returns
// what the call is to say of it.
static int retire(request *q, MPI_Request *handle) {
  int rc = MPI_SUCCESS;
  await(q);
  if (q->ended < 0) rc = q->st ? failed(q->st, q->comm) : refuse(q, MPI_ERR_OTHER);
  else if (q->packed && q->st && q->st->rank != q->root) rc = unpack(q->packed, q->bytes, q->buf, q->count, q->type, comm_self);
  else if (q->st) rc = stage_up(&q->gpu);
  pthread_mutex_lock(&lock);
  q->active = 0;
  __atomic_sub_fetch(&active, 1, __ATOMIC_RELAXED);
  if (!q->persistent) {
    request **at = &table[bucket(q->handle)];
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    __atomic_sub_fetch(&served, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&lock);
  if (!q->persistent) {
    REAL(PMPI_Request_free)(&q->handle);
    *handle = request_null;
    discard(q);
  }
  return rc;
}

// start begins a request.
static int start(request *q) {
  if (q->packed && q->st->rank == q->root) {
    int rc = pack(q->buf, q->count, q->type, q->packed, q->bytes, comm_self);
    if (rc != MPI_SUCCESS) return rc;
  }
  if (stage_down(&q->gpu) != MPI_SUCCESS) return failed(q->st, q->comm);
  pthread_mutex_lock(&lock);
  q->active = 1, q->ended = 0;
  __atomic_add_fetch(&active, 1, __ATOMIC_RELAXED);
  counts[SERVE_VERBS + q->verb].served++;
  pthread_mutex_unlock(&lock);
  if (lib.start(q->prepared, &q->ended, &bell) == 0) return MPI_SUCCESS;
  pthread_mutex_lock(&lock);
  q->active = 0;
  __atomic_sub_fetch(&active, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
  return failed(q->st, q->comm);
}

// add makes a request of a call, and starts it unless it is persistent. It returns what the program's call is to.
static int add(state *st, MPI_Comm comm, serve_call *c, request *with, int persistent, MPI_Request *handle) {
  request *q = malloc(sizeof *q);
  if (q) {
    *q = *with;
    q->comm = comm, q->st = st, q->verb = c->verb, q->persistent = persistent;
    q->prepared = stage(st, c, &q->gpu) == MPI_SUCCESS ? lib.prepare(st->handle, c) : 0;
  }
  if (!q || !q->prepared || REAL(PMPI_Recv_init)(NULL, 0, type_byte, MPI_PROC_NULL, 0, comm_self, &q->handle) != MPI_SUCCESS) {
    if (q) discard(q);
    return failed(st, comm);
  }
  pthread_mutex_lock(&lock);
  q->next = table[bucket(q->handle)];
  table[bucket(q->handle)] = q;
  __atomic_add_fetch(&served, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
  *handle = q->handle;
  return persistent ? MPI_SUCCESS : start(q);
}

// reap forgets what the program freed and has ended since.
static void reap(void) {
  pthread_mutex_lock(&lock);
  for (request **at = &orphans; *at;) {
    request *q = *at;
    if (!over(q)) {
      at = &q->next;
      continue;
    }
    *at = q->next;
    __atomic_sub_fetch(&active, 1, __ATOMIC_RELAXED);
    discard(q);
  }
  pthread_mutex_unlock(&lock);
}

// drop frees a request for the program.
static void drop(request *q) {
  pthread_mutex_lock(&lock);
  request **at = &table[bucket(q->handle)];
  while (*at != q) at = &(*at)->next;
  *at = q->next;
  __atomic_sub_fetch(&served, 1, __ATOMIC_RELAXED);
  int goes_on = q->active;
  if (goes_on) q->next = orphans, orphans = q;
  pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    for (int b = 0; b < BUCKETS; b++)
      for (request *q = table[b]; q; q = q->next)
        if (q->st == st && q->active && !over(q)) left = 1;
    for (request *q = orphans; q; q = q->next)
      if (q->st == st) left = 1;
    pthread_mutex_unlock(&lock);
    if (!left) break;
    rest(seen);
  }
  pthread_mutex_lock(&lock);
  for (int b = 0; b < BUCKETS; b++)
    for (request *q = table[b]; q; q = q->next)
      if (q->st == st) {
        if (q->packed && q->active && st->rank != q->root && q->ended > 0) unpack(q->packed, q->bytes, q->buf, q->count, q->type, comm_self);
        else if (q->active && q->ended > 0) stage_up(&q->gpu);
        if (q->packed) free(q->packed), REAL(PMPI_Type_free)(&q->type), q->packed = NULL;
        lib.drop(q->prepared);
        q->prepared = 0, q->st = NULL;
      }
  pthread_mutex_unlock(&lock);
}

void requests_end(void) {
  if (!idle.open) return;
  idle.open = 0;
  REAL(PMPI_Cancel)(&idle.request);
  REAL(PMPI_Wait)(&idle.request, MPI_STATUS_IGNORE);
  REAL(PMPI_Comm_free)(&idle.comm);
}

// ---- starting ----

// serves returns the state of a communicator whose call scaffe serves, NULL where it is passed on. All ranks decide alike, from what
// they decide blocking calls by, but for what was tried: a program that goes on meanwhile gains what no trial of calls alone would show.
static state *serves(int verb, int64_t bytes, enum exact exact, int root, MPI_Comm comm) {
  int v = SERVE_VERBS + verb;
  if (bytes < here.set.min || (here.set.tries && bytes < MIN_STARTED)) return passed(v, PASSED_SMALL), NULL;
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(v, PASSED_COMM), NULL;
  if (root < 0 || root >= st->size) return NULL; // the library says what is wrong
  if (here.set.tries && bytes < MIN_FLOATS && !is_exact(exact, st->size)) return passed(v, PASSED_SMALL), NULL;
  if (!st->handle) return passed(v, PASSED_FIRST), NULL;
  if (!st->starts) return passed(v, PASSED_COMM), NULL;
  // A broadcast is copied once by either, so a thread that has no core for itself only loses.
  if (here.set.tries && verb == SERVE_BCAST && !st->spare) return passed(v, PASSED_CHOICE), NULL;
  return st;
}

// reduction serves an Ireduce or an Iallreduce, or a persistent one, and reports whether it has.
static int reduction(int verb, const void *send, void *recv, int64_t count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                     int persistent, MPI_Request *handle, int *rc) {
  const struct named *t = named(type);
  int o = t ? operation(t, op) : NONE;
  if (!handle || o == NONE || !send || (verb == SERVE_ALLREDUCE && !recv)) return passed(SERVE_VERBS + verb, PASSED_TYPE);
  state *st = serves(verb, count * t->size, exactness(t->code, o), root, comm);
  if (!st || (st->rank == root && !recv)) return 0;
  serve_call c = {verb, t->code, o, root, (void *)send, recv, count, NULL};
  if (send == MPI_IN_PLACE) c.send = recv;
  *rc = add(st, comm, &c, &(request){0}, persistent, handle);
  return 1;
}

// broadcast likewise. Who has elements that do not lie side by side packs them.
static int broadcast(void *buf, int64_t count, MPI_Datatype type, int root, MPI_Comm comm, int persistent, MPI_Request *handle, int *rc) {
  int side_by_side;
  int64_t bytes = count * signature(type, &side_by_side);
  if (!handle || (side_by_side && !buf)) return passed(SERVE_VERBS + SERVE_BCAST, PASSED_TYPE);
  state *st = serves(SERVE_BCAST, bytes, ALWAYS, root, comm);
  if (!st) return 0;
  request with = {.buf = buf, .bytes = bytes, .count = count, .root = root};
  serve_call c = {SERVE_BCAST, SERVE_U8, SERVE_SUM, root, buf, buf, bytes, NULL};
  if (!side_by_side) {
    if (!(with.packed = malloc((size_t)bytes + 1)) || REAL(PMPI_Type_dup)(type, &with.type) != MPI_SUCCESS) {
      fprintf(stderr, "scaffe: no memory for a copy of %lld bytes that a call needs\n", (long long)bytes);
      free(with.packed);
      *rc = failed(st, comm);
      return 1;
    }
    c.send = c.recv = with.packed;
  }
  *rc = add(st, comm, &c, &with, persistent, handle);
  return 1;
}

// ---- completing ----

// has reports whether a served request that is under way is among several.
static int has(int n, MPI_Request handles[]) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; !found && handles && i < n; i++) {
    request *q = find_locked(handles[i]);
    found = q && q->active;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

// some is served requests of an array that are under way, each with its place in it.
typedef struct {
  int n;
  struct place {
    request *q;
    int at;
  } *in, few[32];
} some;

static void collect(some *s, int n, MPI_Request handles[]) {
  s->n = 0, s->in = s->few;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < n; i++) {
    request *q = find_locked(handles[i]);
    if (!q || !q->active) continue;
    if (s->n == 32 && s->in == s->few) {
      struct place *more = malloc((size_t)n * sizeof *more);
      if (!more) abort(); // as the library does where a few bytes are not to be had
      s->in = memcpy(more, s->few, sizeof s->few);
    }
    s->in[s->n++] = (struct place){q, i};
  }
  pthread_mutex_unlock(&lock);
}

static void done_with(some *s) {
  if (s->in != s->few) free(s->in);
}

// first returns the index in s of one that has ended, or -1.
static int first(const some *s) {
  for (int i = 0; i < s->n; i++)
    if (over(s->in[i].q)) return i;
  return -1;
}

// Placeholders stand for what the library sees as complete, with an empty status: such is a status of a collective that has ended.
static void empty(MPI_Status *status) {
  MPI_Request null = request_null;
  int flag;
  if (status != MPI_STATUS_IGNORE) REAL(PMPI_Test)(&null, &flag, status);
}

// outcome notes how one of several requests ended, with rc of all so far.
static int outcome(int rc, int of_one, int n, int at, MPI_Status statuses[]) {
  if (of_one == MPI_SUCCESS && rc != MPI_ERR_IN_STATUS) return rc;
  if (statuses != MPI_STATUSES_IGNORE) {
    if (rc == MPI_SUCCESS)
      for (int i = 0; i < n; i++) statuses[i].MPI_ERROR = MPI_SUCCESS;
    statuses[at].MPI_ERROR = of_one;
  }
  return rc == MPI_SUCCESS ? MPI_ERR_IN_STATUS : rc;
}

static int wait_all(int n, MPI_Request handles[], MPI_Status statuses[]) {
  some s;
  collect(&s, n, handles);
  for (int i = 0; i < s.n; i++) await(s.in[i].q);
  int rc = REAL(PMPI_Waitall)(n, handles, statuses);
  for (int i = 0; i < s.n; i++) rc = outcome(rc, retire(s.in[i].q, &handles[s.in[i].at]), n, s.in[i].at, statuses);
  done_with(&s);
  return rc;
}

static int test_all(int n, MPI_Request handles[], int *flag, MPI_Status statuses[]) {
  some s;
  int rc = MPI_SUCCESS, all = 1;
  collect(&s, n, handles);
  for (int i = 0; i < s.n; i++) all &= over(s.in[i].q);
  *flag = 0;
  if (!all) look_again();
  else rc = REAL(PMPI_Testall)(n, handles, flag, statuses);
  for (int i = 0; *flag && i < s.n; i++) rc = outcome(rc, retire(s.in[i].q, &handles[s.in[i].at]), n, s.in[i].at, statuses);
  done_with(&s);
  return rc;
}

// any_of completes one of several requests, if one has ended, or waits for that.
static int any_of(int n, MPI_Request handles[], int *index, int *flag, MPI_Status *status, int waits) {
  some s;
  int rc = MPI_SUCCESS, i;
  collect(&s, n, handles);
  for (;;) {
    uint32_t seen = look_at_bell();
    if ((i = first(&s)) >= 0) {
      *index = s.in[i].at, *flag = 1;
      empty(status);
      rc = retire(s.in[i].q, &handles[*index]);
      break;
    }
    rc = REAL(PMPI_Testany)(n, handles, index, flag, status);
    if (rc != MPI_SUCCESS || s.n == 0 || (*flag && *index != MPI_UNDEFINED)) break;
    *flag = 0, *index = MPI_UNDEFINED;
    if (!waits) {
      look_again();
      break;
    }
    rest(seen);
  }
  done_with(&s);
  return rc;
}

// some_of completes those of several requests that have ended, or waits for one.
static int some_of(int n, MPI_Request handles[], int *count, int indices[], MPI_Status statuses[], int waits) {
  some s;
  int rc = MPI_SUCCESS;
  collect(&s, n, handles);
  for (;;) {
    uint32_t seen = look_at_bell();
    rc = REAL(PMPI_Testsome)(n, handles, count, indices, statuses);
    if (*count == MPI_UNDEFINED) *count = 0; // nothing but what is served is active
    for (int i = 0; i < s.n; i++) {
      if (!over(s.in[i].q)) continue;
      int k = (*count)++;
      indices[k] = s.in[i].at;
      if (statuses != MPI_STATUSES_IGNORE) empty(&statuses[k]);
      rc = outcome(rc, retire(s.in[i].q, &handles[s.in[i].at]), k + 1, k, statuses);
    }
    if (*count > 0 || rc != MPI_SUCCESS) break;
    if (!waits) {
      look_again();
      break;
    }
    rest(seen);
  }
  done_with(&s);
  return rc;
}

// test_one looks at one request that is under way.
static int test_one(request *q, MPI_Request *handle, int *flag, MPI_Status *status) {
  if (!over(q)) look_again();
  if (!(*flag = over(q))) return MPI_SUCCESS;
  empty(status);
  return retire(q, handle);
}

// wait_one waits for it.
static int wait_one(request *q, MPI_Request *handle, MPI_Status *status) {
  await(q);
  empty(status);
  return retire(q, handle);
}

static int status_of(request *q, int *flag, MPI_Status *status) {
  if (!over(q)) look_again();
  if ((*flag = over(q))) empty(status);
  return MPI_SUCCESS;
}

// start_one starts a persistent request if it is served, and reports whether it is.
static int start_one(MPI_Request *handle, int *rc) {
  request *q = find(*handle);
  if (!q) return 0;
  *rc = q->active || !q->st ? refuse(q, MPI_ERR_REQUEST) : start(q);
  return 1;
}

static int start_all(int n, MPI_Request handles[]) {
  for (int i = 0; i < n; i++) {
    int rc;
    if (!start_one(&handles[i], &rc)) rc = REAL(PMPI_Start)(&handles[i]);
    if (rc != MPI_SUCCESS) return rc;
  }
  return MPI_SUCCESS;
}

// ---- the program's calls ----

// ASK makes what scaffe does of a call, if it serves that, its result; otherwise the library's follows.
#define ASK(counter, ask)                                                                                                      \
  if (any(&counter) && here.ready && !inside) {                                                                                \
    int rc = MPI_SUCCESS;                                                                                                      \
    inside = 1;                                                                                                                \
    int done_ = (ask);                                                                                                         \
    inside = 0;                                                                                                                \
    if (done_) return rc;                                                                                                      \
  }
#define BEGIN(ask)                                                                                                             \
  int rc = MPI_SUCCESS;                                                                                                        \
  if (here.ready && !inside) {                                                                                                 \
    inside = 1;                                                                                                                \
    if (any(&active)) reap();                                                                                                  \
    int done_ = (ask);                                                                                                         \
    inside = 0;                                                                                                                \
    if (done_) return rc;                                                                                                      \
  }                                                                                                                            \
  inside++
#define END(call)                                                                                                              \
  rc = (call);                                                                                                                 \
  inside--;                                                                                                                    \
  return rc

#define WRAP(MPI)                                                                                                              \
  int MPI##_Ireduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request *r) {\
    BEGIN(reduction(SERVE_REDUCE, send, recv, count, type, op, root, comm, 0, r, &rc));                                        \
    END(REAL(MPI##_Ireduce)(send, recv, count, type, op, root, comm, r));                                                      \
  }                                                                                                                            \
  int MPI##_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *r) { \
    BEGIN(reduction(SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, 0, r, &rc));                                        \
    END(REAL(MPI##_Iallreduce)(send, recv, count, type, op, comm, r));                                                         \
  }                                                                                                                            \
  int MPI##_Ibcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *r) {                         \
    BEGIN(broadcast(buf, count, type, root, comm, 0, r, &rc));                                                                 \
    END(REAL(MPI##_Ibcast)(buf, count, type, root, comm, r));                                                                  \
  }                                                                                                                            \
  int MPI##_Wait(MPI_Request *r, MPI_Status *status) {                                                                         \
    request *q;                                                                                                                \
    ASK(active, r && (q = under_way(*r)) && (rc = wait_one(q, r, status), 1))                                                       \
    return REAL(MPI##_Wait)(r, status);                                                                                        \
  }                                                                                                                            \
  int MPI##_Test(MPI_Request *r, int *flag, MPI_Status *status) {                                                              \
    request *q;                                                                                                                \
    ASK(active, r && (q = under_way(*r)) && (rc = test_one(q, r, flag, status), 1))                                                 \
    return REAL(MPI##_Test)(r, flag, status);                                                                                  \
  }                                                                                                                            \
  int MPI##_Request_get_status(MPI_Request r, int *flag, MPI_Status *status) {                                                 \
    request *q;                                                                                                                \
    ASK(active, (q = under_way(r)) && (rc = status_of(q, flag, status), 1))                                                    \
    return REAL(MPI##_Request_get_status)(r, flag, status);                                                                    \
  }                                                                                                                            \
  int MPI##_Waitall(int n, MPI_Request r[], MPI_Status statuses[]) {                                                           \
    ASK(active, has(n, r) && (rc = wait_all(n, r, statuses), 1))                                                                            \
    return REAL(MPI##_Waitall)(n, r, statuses);                                                                                \
  }                                                                                                                            \
  int MPI##_Testall(int n, MPI_Request r[], int *flag, MPI_Status statuses[]) {                                                \
    ASK(active, has(n, r) && (rc = test_all(n, r, flag, statuses), 1))                                                                      \
    return REAL(MPI##_Testall)(n, r, flag, statuses);                                                                          \
  }                                                                                                                            \
  int MPI##_Waitany(int n, MPI_Request r[], int *index, MPI_Status *status) {                                                  \
    int flag;                                                                                                                  \
    ASK(active, has(n, r) && (rc = any_of(n, r, index, &flag, status, 1), 1))                                                  \
    return REAL(MPI##_Waitany)(n, r, index, status);                                                                           \
  }                                                                                                                            \
  int MPI##_Testany(int n, MPI_Request r[], int *index, int *flag, MPI_Status *status) {                                       \
    ASK(active, has(n, r) && (rc = any_of(n, r, index, flag, status, 0), 1))                                                   \
    return REAL(MPI##_Testany)(n, r, index, flag, status);                                                                     \
  }                                                                                                                            \
  int MPI##_Waitsome(int n, MPI_Request r[], int *count, int indices[], MPI_Status statuses[]) {                               \
    ASK(active, has(n, r) && (rc = some_of(n, r, count, indices, statuses, 1), 1))                                             \
    return REAL(MPI##_Waitsome)(n, r, count, indices, statuses);                                                               \
  }                                                                                                                            \
  int MPI##_Testsome(int n, MPI_Request r[], int *count, int indices[], MPI_Status statuses[]) {                               \
    ASK(active, has(n, r) && (rc = some_of(n, r, count, indices, statuses, 0), 1))                                             \
    return REAL(MPI##_Testsome)(n, r, count, indices, statuses);                                                               \
  }                                                                                                                            \
  int MPI##_Start(MPI_Request *r) {                                                                                            \
    ASK(served, r && start_one(r, &rc))                                                                                             \
    return REAL(MPI##_Start)(r);                                                                                               \
  }                                                                                                                            \
  int MPI##_Startall(int n, MPI_Request r[]) {                                                                                 \
    ASK(served, r && (rc = start_all(n, r), 1))                                                                                     \
    return REAL(MPI##_Startall)(n, r);                                                                                         \
  }                                                                                                                            \
  int MPI##_Request_free(MPI_Request *r) {                                                                                     \
    request *q;                                                                                                                \
    ASK(served, r && (q = find(*r)) && (drop(q), *r = request_null, 1))                                                             \
    return REAL(MPI##_Request_free)(r);                                                                                        \
  }                                                                                                                            \
  int MPI##_Cancel(MPI_Request *r) {                                                                                           \
    request *q;                                                                                                                \
    ASK(served, r && (q = find(*r)) && (rc = refuse(q, MPI_ERR_REQUEST), 1))                                                                         \
    return REAL(MPI##_Cancel)(r);                                                                                              \
  }

#if MPI_VERSION >= 4
// MPI 4's forms with large counts, and the persistent ones.
#define WRAP_4(MPI, c, T)                                                                                                      \
  int MPI##_Reduce_init##c(const void *send, void *recv, T count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Info info,\
                           MPI_Request *r) {                                                                                   \
    BEGIN(reduction(SERVE_REDUCE, send, recv, count, type, op, root, comm, 1, r, &rc));                                        \
    END(REAL(MPI##_Reduce_init##c)(send, recv, count, type, op, root, comm, info, r));                                         \
  }                                                                                                                            \
  int MPI##_Allreduce_init##c(const void *send, void *recv, T count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *r) {\
    BEGIN(reduction(SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, 1, r, &rc));                                        \
    END(REAL(MPI##_Allreduce_init##c)(send, recv, count, type, op, comm, info, r));                                            \
  }                                                                                                                            \
  int MPI##_Bcast_init##c(void *buf, T count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info, MPI_Request *r) {     \
    BEGIN(broadcast(buf, count, type, root, comm, 1, r, &rc));                                                                 \
    END(REAL(MPI##_Bcast_init##c)(buf, count, type, root, comm, info, r));                                                     \
  }
#define WRAP_LARGE(MPI)                                                                                                        \
  int MPI##_Ireduce_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request *r) {\
    BEGIN(reduction(SERVE_REDUCE, send, recv, count, type, op, root, comm, 0, r, &rc));                                        \
    END(REAL(MPI##_Ireduce_c)(send, recv, count, type, op, root, comm, r));                                                    \
  }                                                                                                                            \
  int MPI##_Iallreduce_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *r) {\
    BEGIN(reduction(SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, 0, r, &rc));                                        \
    END(REAL(MPI##_Iallreduce_c)(send, recv, count, type, op, comm, r));                                                       \
  }                                                                                                                            \
  int MPI##_Ibcast_c(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *r) {                 \
    BEGIN(broadcast(buf, count, type, root, comm, 0, r, &rc));                                                                 \
    END(REAL(MPI##_Ibcast_c)(buf, count, type, root, comm, r));                                                                \
  }
#define WRAP_ALL(MPI) WRAP(MPI) WRAP_LARGE(MPI) WRAP_4(MPI, , int) WRAP_4(MPI, _c, MPI_Count)
#else
#define WRAP_ALL(MPI) WRAP(MPI)
#endif

#pragma GCC visibility push(default)
CATCH(WRAP_ALL)
#pragma GCC visibility pop
