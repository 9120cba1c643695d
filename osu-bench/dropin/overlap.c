// overlap times what a plain MPI program gains from collectives that do not block: it starts one, computes for as long as the
// library's collective alone takes, and waits; with libscaffe-mpi.so and without, in turn, in one run. It is started with the
// library preloaded (scripts/bench-dropin --overlap). Buffers are malloc's. Times are the slowest rank's, in microseconds.
//
//	overlap [-m MIN:MAX] [-f FACTOR] [-t TURNS] [-c COLLECTIVE] [-T multiple]
//
// With -T multiple it asks for MPI_THREAD_MULTIPLE, with which such calls are served between nodes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int (*library_wait)(MPI_Request *, MPI_Status *);
static int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

// The collectives, of count floats in all parts together; n is how many a part has.
#define COLLECTIVES(X)                                                                                                         \
  X(ireduce, MPI_Ireduce, (send, recv, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD, &r))                                      \
  X(ibcast, MPI_Ibcast, (send, count, MPI_FLOAT, 0, MPI_COMM_WORLD, &r))                                                       \
  X(iallreduce, MPI_Iallreduce, (send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &r))                                   \
  X(iallgather, MPI_Iallgather, (send, n, MPI_FLOAT, recv, n, MPI_FLOAT, MPI_COMM_WORLD, &r))                                  \
  X(ireduce_scatter, MPI_Ireduce_scatter_block, (send, recv, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &r))                       \
  X(ialltoall, MPI_Ialltoall, (send, n, MPI_FLOAT, recv, n, MPI_FLOAT, MPI_COMM_WORLD, &r))                                    \
  X(igather, MPI_Igather, (send, n, MPI_FLOAT, recv, n, MPI_FLOAT, 0, MPI_COMM_WORLD, &r))                                     \
  X(iscatter, MPI_Iscatter, (send, n, MPI_FLOAT, recv, n, MPI_FLOAT, 0, MPI_COMM_WORLD, &r))
#define NUMBER(name, call, args) name,
#define NAME(name, call, args) #name,
#define POINTER(name, call, args) static __typeof__(call) *library_##name;
#define FIND(name, call, args) missing |= !(library_##name = (__typeof__(call) *)dlsym(mpi, "P" #call));
enum { COLLECTIVES(NUMBER) VERBS };
static const char *const names[] = {COLLECTIVES(NAME)};
COLLECTIVES(POINTER)

static int find(struct dl_phdr_info *i, size_t n, void *out) {
  (void)n;
  const char *s = strrchr(i->dlpi_name, '/');
  s = s ? s + 1 : i->dlpi_name;
  if (strncmp(s, "libmpi.so", 9) && strncmp(s, "libmpich.so", 11)) return 0;
  *(void **)out = dlopen(i->dlpi_name, RTLD_NOLOAD | RTLD_LAZY);
  return 1;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *v, int n) {
  qsort(v, n, sizeof *v, by_size);
  return v[n / 2];
}

// compute does some work in registers, whose amount, not its time, is fixed: a thread that shares the core makes it longer.
static volatile double sink;
static double per_round; // microseconds

static void compute(double us) {
  double x = 1;
  for (long k = (long)(us / per_round); k > 0; k--)
    for (int i = 0; i < 100; i++) x = x * 1.0000001 + 1e-9;
  sink = x;
}

static float *send, *recv;

// once executes a collective beside a computation, and returns what both took on this rank.
static double once(int verb, int count, int with, double us) {
  MPI_Request r;
  int n;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  n = count / n;
  MPI_Barrier(MPI_COMM_WORLD);
  double t = now();
  switch (verb) {
#define MAKE(name, call, args)                                                                                                 \
  case name:                                                                                                                   \
    if (with) call args;                                                                                                       \
    else library_##name args;                                                                                                  \
    break;
    COLLECTIVES(MAKE)
  }
  if (us > 0) compute(us);
  if (with) MPI_Wait(&r, MPI_STATUS_IGNORE);
  else library_wait(&r, MPI_STATUS_IGNORE);
  return now() - t;
}

int main(int argc, char **argv) {
  int rank, size, turns = 21, factor = 4, wrong = 0, level = MPI_THREAD_SINGLE, provided;
  for (int i = 1; i + 1 < argc; i += 2)
    if (!strcmp(argv[i], "-T") && !strcmp(argv[i + 1], "multiple")) level = MPI_THREAD_MULTIPLE;
  MPI_Init_thread(&argc, &argv, level, &provided);
  long min = 64 << 10, max = 64 << 20;
  const char *only = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    char *colon = strchr(argv[i + 1], ':');
    if (!strcmp(argv[i], "-t")) turns = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "-f")) factor = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "-c")) only = argv[i + 1];
    else if (!strcmp(argv[i], "-m") && colon) min = atol(argv[i + 1]), max = atol(colon + 1);
    else if (strcmp(argv[i], "-T") || provided < level) wrong = 1;
  }
  if (wrong || turns < 1 || factor < 2 || min < (long)sizeof(float) || max < min || max / (long)sizeof(float) > INT_MAX) { // factor 1 and size 0 would never end
    fprintf(stderr, "usage: overlap [-m MIN:MAX, from 4 bytes on] [-f FACTOR, at least 2] [-t TURNS, at least 1] [-c COLLECTIVE] [-T multiple, which the library must have]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  void *mpi = NULL;
  dl_iterate_phdr(find, &mpi);
  int missing = 0;
  if (mpi) { COLLECTIVES(FIND) }
  if (!mpi || missing || !(library_wait = dlsym(mpi, "PMPI_Wait")) || !(allreduce = dlsym(mpi, "PMPI_Allreduce"))) {
    fprintf(stderr, "overlap: the MPI library below is not found\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  send = malloc(max), recv = malloc(max);
  memset(send, 0, max), memset(recv, 0, max);
  for (int k = 0; k < 5; k++) { // the shortest of a few
    double keep = per_round, t = now();
    per_round = 1;
    compute(20000);
    t = (now() - t) / 20000;
    per_round = k == 0 || t < keep ? t : keep;
  }
  if (rank == 0) printf("collective,ranks,bytes,alone_without_us,alone_with_us,without_us,with_us,ratio,low,high,hidden_without,hidden_with\n");
  double *mine = malloc(4 * turns * sizeof *mine), *all = malloc(4 * turns * sizeof *all), *ratio = malloc(turns * sizeof *ratio);
  for (int verb = 0; verb < VERBS; verb++)
    for (long bytes = min; bytes <= max && (!only || !strcmp(only, names[verb])); bytes *= factor) {
      int count = (int)(bytes / sizeof(float));
      double us = 0, work = 0;
      for (int i = -2; i < turns; i++)
        for (int k = 0; k < 2; k++) {
          int with = (i + k) & 1;
          double t = once(verb, count, with, 0);
          if (i >= 0) mine[2 * i + with] = t;
        }
      allreduce(mine, all, 2 * turns, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      double *alone[2] = {malloc(turns * sizeof(double)), malloc(turns * sizeof(double))}, *both[2] = {malloc(turns * sizeof(double)), malloc(turns * sizeof(double))};
      for (int i = 0; i < turns; i++) alone[0][i] = all[2 * i], alone[1][i] = all[2 * i + 1];
      double a[2] = {median(alone[0], turns), median(alone[1], turns)};
      us = a[0];
      for (int i = 0; i < turns; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double t = now();
        compute(us);
        mine[i] = now() - t;
      }
      allreduce(mine, all, turns, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      work = median(all, turns);
      for (int i = -2; i < turns; i++)
        for (int k = 0; k < 2; k++) {
          int with = (i + k) & 1;
          double t = once(verb, count, with, us);
          if (i >= 0) mine[2 * i + with] = t;
        }
      allreduce(mine, all, 2 * turns, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      for (int i = 0; i < turns; i++) both[0][i] = all[2 * i], both[1][i] = all[2 * i + 1], ratio[i] = all[2 * i + 1] / all[2 * i];
      double b[2] = {median(both[0], turns), median(both[1], turns)}, hidden[2];
      qsort(ratio, turns, sizeof *ratio, by_size);
      for (int w = 0; w < 2; w++) {
        hidden[w] = 100 * (1 - (b[w] - work) / a[w]);
        if (hidden[w] < 0) hidden[w] = 0;
      }
      int off = turns / 2; // ranks of the median's 95 % interval
      while (off > 0 && off > turns / 2 - 0.98 * __builtin_sqrt(turns)) off--;
      if (rank == 0) printf("%s,%d,%ld,%.1f,%.1f,%.1f,%.1f,%.3f,%.3f,%.3f,%.0f,%.0f\n", names[verb], size, bytes, a[0], a[1], b[0], b[1], ratio[turns / 2], ratio[off], ratio[turns - 1 - off], hidden[0], hidden[1]);
      fflush(stdout);
      for (int w = 0; w < 2; w++) free(alone[w]), free(both[w]);
    }
  MPI_Finalize();
  return 0;
}
