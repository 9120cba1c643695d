// How a program completes what does not block, in every way that it may, among requests of the library's own. MPI_Wait and its like
// compare one counter with 0 where nothing is served.
#include "requests.h"
#include <stdlib.h>
#include <string.h>

// under_way is find of one that is active.
static request *under_way(MPI_Request handle) {
  request *q = find(handle);
  return q && q->active ? q : NULL;
}

// has reports whether a served request that is under way is among several.
static int has(int n, MPI_Request handles[]) {
  int found = 0;
  pthread_mutex_lock(&requests.lock);
  for (int i = 0; !found && handles && i < n; i++) {
    request *q = find_locked(handles[i]);
    found = q && q->active;
  }
  pthread_mutex_unlock(&requests.lock);
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
  pthread_mutex_lock(&requests.lock);
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
  pthread_mutex_unlock(&requests.lock);
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
  MPI_Request null = requests.null;
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
    if (rc != MPI_SUCCESS && rc != MPI_ERR_IN_STATUS) break; // then it has said nothing
    if (*count == MPI_UNDEFINED) *count = 0;                  // nothing but what is served is active
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
  if (any(&requests.counter) && here.ready && !inside) {                                                                       \
    int rc = MPI_SUCCESS;                                                                                                      \
    inside = 1;                                                                                                                \
    int done_ = (ask);                                                                                                         \
    inside = 0;                                                                                                                \
    if (done_) return rc;                                                                                                      \
  }
#define WRAP(MPI)                                                                                                              \
  int MPI##_Wait(MPI_Request *r, MPI_Status *status) {                                                                         \
    request *q;                                                                                                                \
    ASK(active, r && (q = under_way(*r)) && (rc = wait_one(q, r, status), 1))                                                  \
    return REAL(MPI##_Wait)(r, status);                                                                                        \
  }                                                                                                                            \
  int MPI##_Test(MPI_Request *r, int *flag, MPI_Status *status) {                                                              \
    request *q;                                                                                                                \
    ASK(active, r && (q = under_way(*r)) && (rc = test_one(q, r, flag, status), 1))                                            \
    return REAL(MPI##_Test)(r, flag, status);                                                                                  \
  }                                                                                                                            \
  int MPI##_Request_get_status(MPI_Request r, int *flag, MPI_Status *status) {                                                 \
    request *q;                                                                                                                \
    ASK(active, (q = under_way(r)) && (rc = status_of(q, flag, status), 1))                                                    \
    return REAL(MPI##_Request_get_status)(r, flag, status);                                                                    \
  }                                                                                                                            \
  int MPI##_Waitall(int n, MPI_Request r[], MPI_Status statuses[]) {                                                           \
    ASK(active, has(n, r) && (rc = wait_all(n, r, statuses), 1))                                                               \
    return REAL(MPI##_Waitall)(n, r, statuses);                                                                                \
  }                                                                                                                            \
  int MPI##_Testall(int n, MPI_Request r[], int *flag, MPI_Status statuses[]) {                                                \
    ASK(active, has(n, r) && (rc = test_all(n, r, flag, statuses), 1))                                                         \
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
    ASK(served, r && start_one(r, &rc))                                                                                        \
    return REAL(MPI##_Start)(r);                                                                                               \
  }                                                                                                                            \
  int MPI##_Startall(int n, MPI_Request r[]) {                                                                                 \
    ASK(served, r && (rc = start_all(n, r), 1))                                                                                \
    return REAL(MPI##_Startall)(n, r);                                                                                         \
  }                                                                                                                            \
  int MPI##_Request_free(MPI_Request *r) {                                                                                     \
    request *q;                                                                                                                \
    ASK(served, r && (q = find(*r)) && (drop(q), *r = requests.null, 1))                                                       \
    return REAL(MPI##_Request_free)(r);                                                                                        \
  }                                                                                                                            \
  int MPI##_Cancel(MPI_Request *r) {                                                                                           \
    request *q;                                                                                                                \
    ASK(served, r && (q = find(*r)) && (rc = refuse(q, MPI_ERR_REQUEST), 1))                                                   \
    return REAL(MPI##_Cancel)(r);                                                                                              \
  }

#pragma GCC visibility push(default)
CATCH(WRAP)
#pragma GCC visibility pop
