// guest is what a program may do to those who serve its calls, by the name of its first argument.
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rank, size, errors;

#define FAIL(...)                                                                                                              \
  do {                                                                                                                         \
    errors++;                                                                                                                  \
    if (errors < 10) fprintf(stderr, "rank %d: ", rank), fprintf(stderr, __VA_ARGS__), fprintf(stderr, "\n");                  \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// sums adds up on a communicator, and returns what the last call said.
static int sums(MPI_Comm comm, int rounds, int n, const char *what) {
  int members, rc = MPI_SUCCESS;
  MPI_Comm_size(comm, &members);
  float *v = malloc(n * sizeof *v), *w = malloc(n * sizeof *w);
  for (int k = 0; k < rounds && rc == MPI_SUCCESS; k++) {
    for (int i = 0; i < n; i++) v[i] = 1 + k % 3, w[i] = -1;
    if ((rc = MPI_Allreduce(v, w, n, MPI_FLOAT, MPI_SUM, comm)) != MPI_SUCCESS) break;
    if (w[0] != members * (1 + k % 3) || w[n - 1] != w[0]) FAIL("%s: round %d: %g", what, k, w[n - 1]);
  }
  free(v), free(w);
  return rc;
}

// A profiler's signal comes at any time, to any of the program's threads; a fault of the program's own goes to the handler that it has set.
static volatile sig_atomic_t ticks, faults;
static char *page;

static void on_tick(int sig) { (void)sig, ticks++; }
static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  if ((char *)info->si_addr != page) _exit(3);
  faults++;
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void signals(void) {
  page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART}, fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGPROF, &tick, NULL);
  sigaction(SIGSEGV, &fault, NULL);
  struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &every, NULL);
  double until = now() + 1;
  do sums(MPI_COMM_WORLD, 20, 1 << 17, "under a profiler");
  while (({ int on = now() < until; MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD); on; }));
  setitimer(ITIMER_PROF, &never, NULL);
  if (ticks < 10) FAIL("%d ticks of the profiler", (int)ticks);
  *page = 1; // after Go has set its own handler
  if (faults != 1) FAIL("%d faults came to the handler", (int)faults);
  sums(MPI_COMM_WORLD, 5, 1 << 17, "after a fault");
}

// Collective files call collectives inside of the library.
static void files(const char *path) {
  int n = 1 << 16;
  MPI_File f;
  int *v = malloc(n * sizeof *v), *w = malloc(n * sizeof *w);
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < n; i++) v[i] = rank * n + i + round, w[i] = -1;
    if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f) != MPI_SUCCESS) {
      FAIL("%s cannot be opened", path);
      return;
    }
    MPI_Datatype every; // blocks of all ranks in turn, so that ranks exchange what they write
    MPI_Type_vector(n / 64, 64, 64 * size, MPI_INT, &every);
    MPI_Type_commit(&every);
    MPI_File_set_view(f, 64 * rank * sizeof(int), MPI_INT, every, "native", MPI_INFO_NULL);
    MPI_Request r;
    if (round % 2) MPI_File_iwrite_at_all(f, 0, v, n, MPI_INT, &r), MPI_Wait(&r, MPI_STATUS_IGNORE);
    else MPI_File_write_at_all(f, 0, v, n, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(f);
    MPI_Barrier(MPI_COMM_WORLD);
    if (round % 2) MPI_File_iread_at_all(f, 0, w, n, MPI_INT, &r), MPI_Wait(&r, MPI_STATUS_IGNORE);
    else MPI_File_read_at_all(f, 0, w, n, MPI_INT, MPI_STATUS_IGNORE);
    if (memcmp(v, w, n * sizeof *v)) FAIL("round %d: what was read is not what was written", round);
    MPI_Type_free(&every);
    MPI_File_close(&f);
    sums(MPI_COMM_WORLD, 2, n, "beside files");
  }
  free(v), free(w);
}

static void communicators(int n) {
  for (int k = 0; k < n; k++) {
    MPI_Comm c;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    sums(c, 3, 1 << 12, "a duplicate");
    MPI_Comm_free(&c);
  }
}

// What is wrong with a call the library says, to the error handler that is set, whoever serves the others.
static void mistakes(void) {
  int class, n = 1 << 16, *v = calloc(n, sizeof *v), *w = calloc(n, sizeof *w);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  sums(MPI_COMM_WORLD, 4, n, "before a mistake");
#define WRONG(call, want)                                                                                                      \
  do {                                                                                                                         \
    MPI_Error_class(call, &class);                                                                                             \
    if (class != want) FAIL(#call ": class %d, not " #want, class);                                                            \
  } while (0)
  WRONG(MPI_Bcast(v, n, MPI_INT, size, MPI_COMM_WORLD), MPI_ERR_ROOT);
  WRONG(MPI_Reduce(v, w, n, MPI_INT, MPI_SUM, -7, MPI_COMM_WORLD), MPI_ERR_ROOT);
#ifdef OMPI_MAJOR_VERSION // MPICH 4.0.2 crashes by itself
  WRONG(MPI_Allreduce(v, w, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_ERR_COUNT);
#endif
  WRONG(MPI_Gather(v, n, MPI_INT, w, n, MPI_INT, size, MPI_COMM_WORLD), MPI_ERR_ROOT);
  WRONG(MPI_Bcast(v, n, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
  WRONG(MPI_Allreduce(v, w, n, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD), MPI_ERR_OP);
  sums(MPI_COMM_WORLD, 4, n, "after mistakes");
  free(v), free(w);
}

// The last rank is killed among served calls: the others' error handlers hear of it.
static int killed(const char *folder) {
  char name[4096];
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  sums(MPI_COMM_WORLD, 5, 1 << 16, "before a rank is killed");
  if (rank == size - 1) raise(SIGKILL);
  double from = now();
  int rc = sums(MPI_COMM_WORLD, 1000, 1 << 16, "with a rank that is killed");
  snprintf(name, sizeof name, "%s/rank%d", folder, rank);
  FILE *f = fopen(name, "w"); // the launcher may not let it say more
  if (f) fprintf(f, "%s after %.1f s\n", rc == MPI_SUCCESS ? "success" : "an error", now() - from), fclose(f);
  _exit(0);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!strcmp(what, "signals")) signals();
  else if (!strcmp(what, "files") && argc > 2) files(argv[2]);
  else if (!strcmp(what, "communicators") && argc > 2) communicators(atoi(argv[2]));
  else if (!strcmp(what, "mistakes")) mistakes();
  else if (!strcmp(what, "killed") && argc > 2) killed(argv[2]);
  else if (!strcmp(what, "sums")) sums(MPI_COMM_WORLD, 20, 1 << 18, "sums");
  else FAIL("what?");
  int total = 0;
  MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d errors\n", total);
  MPI_Finalize();
  return total != 0;
}
