// requests makes collectives that do not block, and completes them in every way that a program may, among messages of its own.
// It knows nothing of scaffe.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, size, errors;
// Whether to leave out what MPICH 4.0.2 does wrong by itself: statuses of its collectives are not empty, and persistent ones are taken for
// active before their start and after their end.
static int passed_on;

#include "fail.h"
#include "threads.h"
#define CHECK(what)                                                                                                            \
  do {                                                                                                                         \
    if (!(what)) FAIL("line %d: not %s", __LINE__, #what);                                                                     \
  } while (0)

enum { MANY = 24 };
static int N = 40000;

// A collective under way: what it is, and its buffers.
typedef struct {
  int kind, root, n, id, size, me;
  int *in, *out, *typed;
  MPI_Request request;
} one;

// Every fourth is a broadcast of every other element of a larger buffer.
static void start(one *o, int id, MPI_Comm comm) {
  MPI_Comm_size(comm, &o->size);
  MPI_Comm_rank(comm, &o->me);
  o->kind = id % 5, o->root = id % o->size, o->n = N + 1000 * (id % 7), o->id = id;
  o->in = malloc(o->n * sizeof(int)), o->out = malloc(2 * o->n * sizeof(int));
  for (int i = 0; i < o->n; i++) o->in[i] = o->me + i % 100 + id;
  for (int i = 0; i < 2 * o->n; i++) o->out[i] = -1;
  int sent = o->me == o->root;
  MPI_Datatype every;
  switch (o->kind) {
  case 0: MPI_Iallreduce(o->in, o->out, o->n, MPI_INT, MPI_SUM, comm, &o->request); break;
  case 1: MPI_Ireduce(o->in, sent ? o->out : NULL, o->n, MPI_INT, MPI_SUM, o->root, comm, &o->request); break;
  case 2:
    for (int i = 0; sent && i < o->n; i++) o->out[i] = i + id;
    MPI_Ibcast(o->out, o->n, MPI_INT, o->root, comm, &o->request);
    break;
  case 3:
    memcpy(o->out, o->in, o->n * sizeof(int));
    MPI_Iallreduce(MPI_IN_PLACE, o->out, o->n, MPI_INT, MPI_SUM, comm, &o->request);
    break;
  default:
    MPI_Type_vector(o->n, 1, 2, MPI_INT, &every);
    MPI_Type_commit(&every);
    for (int i = 0; sent && i < o->n; i++) o->out[2 * i] = i + id;
    MPI_Ibcast(o->out, 1, every, o->root, comm, &o->request);
    MPI_Type_free(&every);
  }
  if (o->request == MPI_REQUEST_NULL) FAIL("collective %d has no request", id);
}

static void check(one *o, const char *how) {
  if (o->request != MPI_REQUEST_NULL) FAIL("%s: collective %d keeps its request", how, o->id);
  for (int i = 0; i < o->n; i++) {
    int sum = o->size * (i % 100 + o->id) + o->size * (o->size - 1) / 2, want = sum, at = i;
    if (o->kind == 1 && o->me != o->root) want = -1;
    if (o->kind == 2) want = i + o->id;
    if (o->kind == 4) want = i + o->id, at = 2 * i;
    if (o->out[at] == want && (o->kind != 4 || o->out[at + 1] == -1)) continue;
    FAIL("%s: collective %d (kind %d), element %d: %d, not %d", how, o->id, o->kind, i, o->out[at], want);
    break;
  }
  free(o->in), free(o->out);
}

static void is_empty(const MPI_Status *s, const char *how) {
  int n = -1;
  MPI_Get_count(s, MPI_INT, &n);
  if (n != 0 && !passed_on) FAIL("%s: the status of a collective counts %d", how, n);
}

// Messages to the next rank and from the one before, in an array with collectives: the collectives at even places.
enum { MIXED = 8 };
typedef struct {
  one c[MIXED];
  MPI_Request r[MIXED];
  int sent[MIXED], got[MIXED];
} mixed;

static void start_mixed(mixed *m, int id, MPI_Comm comm) {
  int n, me;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &me);
  for (int i = 0; i < MIXED; i++) {
    m->sent[i] = 100 * me + i, m->got[i] = -1;
    if (i % 2 == 0) {
      start(&m->c[i], id + i, comm);
      m->r[i] = m->c[i].request;
    } else if (i % 4 == 1) MPI_Irecv(&m->got[i], 1, MPI_INT, (me + n - 1) % n, i, comm, &m->r[i]);
    else MPI_Isend(&m->sent[i - 2], 1, MPI_INT, (me + 1) % n, i - 2, comm, &m->r[i]);
  }
}

static void check_mixed(mixed *m, MPI_Comm comm, const char *how) {
  int n, me;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &me);
  for (int i = 0; i < MIXED; i++) {
    if (m->r[i] != MPI_REQUEST_NULL) FAIL("%s: request %d is left", how, i);
    if (i % 2 == 0) m->c[i].request = m->r[i], check(&m->c[i], how);
    else if (i % 4 == 1 && m->got[i] != 100 * ((me + n - 1) % n) + i - 0) FAIL("%s: message %d: %d", how, i, m->got[i]);
  }
}

static void status_of_mixed(const MPI_Status *s, int i, MPI_Comm comm, const char *how) {
  int n, me;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &me);
  if (i % 2 == 0) is_empty(s, how);
  else if (i % 4 == 1 && (s->MPI_SOURCE != (me + n - 1) % n || s->MPI_TAG != i)) FAIL("%s: message %d has source %d, tag %d", how, i, s->MPI_SOURCE, s->MPI_TAG);
}

static MPI_Status *volatile ignored = MPI_STATUSES_IGNORE; // of which compilers warn where they see it

static void all_forms(MPI_Comm comm, int ignore) {
  MPI_Status *given;
  mixed m;
  one o;
  MPI_Status s[MIXED];
  int flag, index, count, indices[MIXED], left;
  for (int id = 0; id < 10; id++) { // one at a time
    start(&o, id, comm);
    MPI_Wait(&o.request, id % 2 ? &s[0] : MPI_STATUS_IGNORE);
    if (id % 2) is_empty(&s[0], "Wait");
    check(&o, "Wait");
    start(&o, id, comm);
    for (flag = 0; !flag;) MPI_Request_get_status(o.request, &flag, &s[0]);
    CHECK(o.request != MPI_REQUEST_NULL);
    for (flag = 0; !flag;) MPI_Test(&o.request, &flag, &s[0]);
    is_empty(&s[0], "Test");
    check(&o, "Test");
  }
  given = ignore ? ignored : s;
  start_mixed(&m, 3, comm);
  MPI_Waitall(MIXED, m.r, given);
  for (int i = 0; !ignore && i < MIXED; i++) status_of_mixed(&s[i], i, comm, "Waitall");
  check_mixed(&m, comm, "Waitall");

  start_mixed(&m, 4, comm);
  for (flag = 0; !flag;) {
    MPI_Testall(MIXED, m.r, &flag, given);
    for (int i = 0; !flag && i < MIXED; i++) CHECK(m.r[i] != MPI_REQUEST_NULL);
  }
  for (int i = 0; !ignore && i < MIXED; i++) status_of_mixed(&s[i], i, comm, "Testall");
  check_mixed(&m, comm, "Testall");

  start_mixed(&m, 5, comm);
  for (left = MIXED; left > 0; left--) {
    MPI_Waitany(MIXED, m.r, &index, given);
    CHECK(index >= 0 && index < MIXED && m.r[index] == MPI_REQUEST_NULL);
    if (!ignore) status_of_mixed(&s[0], index, comm, "Waitany");
  }
  check_mixed(&m, comm, "Waitany");
  MPI_Waitany(MIXED, m.r, &index, s);
  CHECK(index == MPI_UNDEFINED);

  start_mixed(&m, 6, comm);
  for (left = MIXED; left > 0; left -= flag) {
    MPI_Testany(MIXED, m.r, &index, &flag, given);
    CHECK(flag ? m.r[index] == MPI_REQUEST_NULL : index == MPI_UNDEFINED);
    if (flag && !ignore) status_of_mixed(&s[0], index, comm, "Testany");
  }
  check_mixed(&m, comm, "Testany");

  for (int waits = 0; waits < 2; waits++) {
    start_mixed(&m, 7, comm);
    for (left = MIXED; left > 0; left -= count) {
      if (waits) MPI_Waitsome(MIXED, m.r, &count, indices, given);
      else MPI_Testsome(MIXED, m.r, &count, indices, given);
      CHECK(count >= waits);
      for (int k = 0; !ignore && k < count; k++) status_of_mixed(&s[k], indices[k], comm, "Waitsome and Testsome");
    }
    check_mixed(&m, comm, "Waitsome and Testsome");
  }
  MPI_Testsome(MIXED, m.r, &count, indices, s);
  CHECK(count == MPI_UNDEFINED);
}

// Many under way on two communicators, completed in other orders on other ranks, with blocking calls between.
static void many(MPI_Comm comms[2]) {
  one *o = calloc(MANY, sizeof *o);
  int done[MANY] = {0}, n = N;
  double *v = calloc(n, sizeof *v), *w = calloc(n, sizeof *w);
  for (int k = 0; k < MANY; k++) {
    start(&o[k], 3 * k, comms[k % 3 % 2]);
    if (k % 4 == 3) {
      v[n - 1] = 1;
      MPI_Allreduce(v, w, n, MPI_DOUBLE, MPI_SUM, comms[0]);
      CHECK(w[n - 1] == size);
    }
  }
  for (int k = 0, at = rank * 7; k < MANY; k++, at += 5) {
    while (done[at % MANY]) at++;
    done[at % MANY] = 1;
    MPI_Wait(&o[at % MANY].request, MPI_STATUS_IGNORE);
    check(&o[at % MANY], "many");
  }
  free(o), free(v), free(w);
}

// A rank sends to another, which receives only once all others wait for a collective: who waits moves MPI on.
static void progress(void) {
  int n = 1 << 20;
  double *big = malloc(n * sizeof *big);
  for (int round = 0; round < 4; round++) {
    MPI_Request r;
    one o;
    for (int i = 0; i < n; i++) big[i] = rank == 0 ? i : -1;
    if (rank == 0) MPI_Isend(big, n, MPI_DOUBLE, 1, round, MPI_COMM_WORLD, &r);
    if (rank == 1) MPI_Recv(big, n, MPI_DOUBLE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    start(&o, 5, MPI_COMM_WORLD);
    if (round % 2) MPI_Wait(&o.request, MPI_STATUS_IGNORE);
    for (int flag = 0; round % 2 == 0 && !flag;) MPI_Test(&o.request, &flag, MPI_STATUS_IGNORE);
    check(&o, "beside a message");
    if (rank == 0) MPI_Wait(&r, MPI_STATUS_IGNORE);
    if (rank == 1 && big[n - 1] != n - 1) FAIL("a message beside a collective: %g", big[n - 1]);
  }
  free(big);
}

#if MPI_VERSION >= 4
// Persistent ones, started alone and among others, waited for, and freed.
static void persistent(MPI_Comm comm) {
  int n = N, me, count, got = -1, sent;
  MPI_Comm_size(comm, &count);
  MPI_Comm_rank(comm, &me);
  int *in = malloc(n * sizeof(int)), *out = malloc(n * sizeof(int)), *both = malloc(2 * n * sizeof(int)), *sum = malloc(n * sizeof(int));
  MPI_Datatype every;
  MPI_Type_vector(n, 1, 2, MPI_INT, &every);
  MPI_Type_commit(&every);
  MPI_Request r[5];
  MPI_Allreduce_init(in, out, n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &r[0]);
  MPI_Recv_init(&got, 1, MPI_INT, (me + count - 1) % count, 8, comm, &r[1]);
  MPI_Bcast_init(both, 1, every, 1, comm, MPI_INFO_NULL, &r[2]);
  MPI_Send_init(&sent, 1, MPI_INT, (me + 1) % count, 8, comm, &r[3]);
  MPI_Reduce_init(in, me == 0 ? sum : NULL, n, MPI_INT, MPI_MAX, 0, comm, MPI_INFO_NULL, &r[4]);
  MPI_Type_free(&every);
  for (int round = 0; round < 6; round++) {
    MPI_Status s[5];
    for (int i = 0; i < n; i++) in[i] = me + i % 9 + round, out[i] = -1;
    for (int i = 0; i < 2 * n; i++) both[i] = me == 1 ? i + round : -1;
    got = -1, sent = me + round;
    MPI_Waitall(5, r, s); // of none that is active
    is_empty(&s[0], "before a start");
    if (round % 2) MPI_Startall(5, r);
    else
      for (int i = 0; i < 5; i++) MPI_Start(&r[i]);
    if (round % 3) MPI_Waitall(5, r, s);
    else
      for (int left = 5, index; left > 0; left--) {
        MPI_Waitany(5, r, &index, s);
        CHECK(index != MPI_UNDEFINED);
      }
    for (int i = 0; i < 5; i++) CHECK(r[i] != MPI_REQUEST_NULL);
    for (int i = 0; i < n; i++)
      if (out[i] != count * (i % 9 + round) + count * (count - 1) / 2 || both[2 * i] != 2 * i + round || (me != 1 && both[2 * i + 1] != -1) ||
          (me == 0 && sum[i] != count - 1 + i % 9 + round)) {
        FAIL("round %d of persistent collectives, element %d: %d %d %d", round, i, out[i], both[2 * i], sum[i]);
        break;
      }
    CHECK(got == (me + count - 1) % count + round);
  }
  for (int i = 0; i < 5; i++) {
    MPI_Request_free(&r[i]);
    CHECK(r[i] == MPI_REQUEST_NULL);
  }
  free(in), free(out), free(both), free(sum);
}
#else
static void persistent(MPI_Comm comm) { (void)comm; }
#endif

// What blocks and is large, twice: communicators are then set up.
static void set_up(MPI_Comm comm) {
  double *v = calloc(N, sizeof *v), *w = calloc(N, sizeof *w);
  for (int k = 0; k < 2; k++) MPI_Allreduce(v, w, N, MPI_DOUBLE, MPI_SUM, comm);
  free(v), free(w);
}

int main(int argc, char **argv) {
  int eager = argc > 1 && (strcmp(argv[1], "eager") == 0 || strcmp(argv[1], "large") == 0), total = 0;
  if (argc > 1 && strcmp(argv[1], "large") == 0) N = 300000, passed_on = 1;
  else passed_on = argc > 1 && strcmp(argv[1], "passed-on") == 0;
  start_mpi(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  one o, p;
  start(&o, 0, MPI_COMM_WORLD); // before set-up, unless that is eager
  MPI_Wait(&o.request, MPI_STATUS_IGNORE);
  check(&o, "the first");
  MPI_Comm comms[2] = {MPI_COMM_WORLD};
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[1]);
  if (!eager) set_up(MPI_COMM_WORLD);
  set_up(comms[1]);
  start(&o, 0, MPI_COMM_WORLD);
  pid_t child = fork(); // as system() does
  if (child == 0) _exit(0);
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) FAIL("a child ended with status %d", status);
  MPI_Wait(&o.request, MPI_STATUS_IGNORE);
  check(&o, "after fork");
  for (int k = 0; k < 2; k++) {
    all_forms(comms[k], k);
    if (!passed_on) persistent(comms[k]);
  }
  many(comms);
  if (size > 1) progress();
  start(&o, 0, comms[1]); // completed after their communicator was freed
  start(&p, 4, comms[1]);
  MPI_Comm_free(&comms[1]);
  MPI_Wait(&o.request, MPI_STATUS_IGNORE);
  MPI_Wait(&p.request, MPI_STATUS_IGNORE);
  check(&o, "after MPI_Comm_free");
  check(&p, "after MPI_Comm_free");
  MPI_Reduce(&errors, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Bcast(&total, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d errors\n", total);
  MPI_Finalize();
  return total != 0;
}
