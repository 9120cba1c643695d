// dropin times the collectives of a plain MPI program with libscaffe-mpi.so and without, in turn, in one run.
// It is started with the library preloaded (scripts/bench-dropin): MPI_X are then the library's, and what the MPI
// library itself does is found behind it, by its handle. Buffers are malloc's or MPI_Alloc_mem's, their bytes those of all parts together. Times are the slowest rank's.
//
//	dropin [-m MIN:MAX] [-f FACTOR] [-t TURNS] [-b malloc|mpi]
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
static int (*reduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
static int (*bcast)(void *, int, MPI_Datatype, int, MPI_Comm);
static int (*allgather)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
static int (*reduce_scatter)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
static int (*alltoall)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
static int (*gather)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
static int (*scatter)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);

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

static float *send, *recv;
static int rank, size;

// once executes a collective, with or without scaffe, and returns what it took on this rank, in microseconds.
static double once(int verb, int count, int with) {
  int part = count / size;
  MPI_Barrier(MPI_COMM_WORLD);
  double t = now();
  switch (verb * 2 + with) {
  case 0: reduce(send, recv, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); break;
  case 1: MPI_Reduce(send, recv, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); break;
  case 2: bcast(send, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
  case 3: MPI_Bcast(send, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
  case 4: allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  case 5: MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  case 6: allgather(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, MPI_COMM_WORLD); break;
  case 7: MPI_Allgather(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, MPI_COMM_WORLD); break;
  case 8: reduce_scatter(send, recv, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  case 9: MPI_Reduce_scatter_block(send, recv, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  case 10: alltoall(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, MPI_COMM_WORLD); break;
  case 11: MPI_Alltoall(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, MPI_COMM_WORLD); break;
  case 12: gather(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
  case 13: MPI_Gather(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
  case 14: scatter(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
  case 15: MPI_Scatter(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
  }
  return now() - t;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int turns = 31, factor = 4, mpis = 0, wrong = 0;
  long min = 4, max = 64 << 20;
  for (int i = 1; i + 1 < argc; i += 2) {
    char *colon = strchr(argv[i + 1], ':');
    if (!strcmp(argv[i], "-t")) turns = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "-f")) factor = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "-b") && (!strcmp(argv[i + 1], "mpi") || !strcmp(argv[i + 1], "malloc"))) mpis = !strcmp(argv[i + 1], "mpi");
    else if (!strcmp(argv[i], "-m") && colon) min = atol(argv[i + 1]), max = atol(colon + 1);
    else wrong = 1;
  }
  if (wrong || turns < 1 || factor < 2 || min < (long)sizeof(float) || max < min || max / (long)sizeof(float) > INT_MAX) { // factor 1 and size 0 would never end
    fprintf(stderr, "usage: dropin [-m MIN:MAX, from 4 bytes on] [-f FACTOR, at least 2] [-t TURNS, at least 1] [-b malloc|mpi]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  void *mpi = NULL;
  dl_iterate_phdr(find, &mpi);
  if (!mpi || !(allreduce = dlsym(mpi, "PMPI_Allreduce")) || !(reduce = dlsym(mpi, "PMPI_Reduce")) || !(bcast = dlsym(mpi, "PMPI_Bcast")) ||
      !(allgather = dlsym(mpi, "PMPI_Allgather")) || !(reduce_scatter = dlsym(mpi, "PMPI_Reduce_scatter_block")) ||
      !(alltoall = dlsym(mpi, "PMPI_Alltoall")) || !(gather = dlsym(mpi, "PMPI_Gather")) || !(scatter = dlsym(mpi, "PMPI_Scatter"))) {
    fprintf(stderr, "dropin: the MPI library below is not found\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (mpis) MPI_Alloc_mem(max, MPI_INFO_NULL, &send), MPI_Alloc_mem(max, MPI_INFO_NULL, &recv);
  else send = malloc(max), recv = malloc(max);
  memset(send, 0, max), memset(recv, 0, max);
  if (rank == 0) printf("collective,ranks,bytes,without_us,with_us,ratio,low,high\n");
  static const char *const names[] = {"reduce", "bcast", "allreduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter"};
  double *mine = malloc(2 * turns * sizeof *mine), *all = malloc(2 * turns * sizeof *all), *ratio = malloc(turns * sizeof *ratio);
  for (int verb = 0; verb < (int)(sizeof names / sizeof *names); verb++)
    for (long bytes = min; bytes <= max; bytes *= factor) {
      int count = (int)(bytes / sizeof(float)), inner = bytes <= 4096 ? 100 : bytes <= 65536 ? 20 : 1;
      for (int i = -2; i < turns; i++) // the pairs begin with one and the other in turn
        for (int k = 0; k < 2; k++) {
          int with = (i + k) & 1;
          double sum = 0;
          for (int j = 0; j < inner; j++) sum += once(verb, count, with);
          if (i >= 0) mine[2 * i + with] = sum / inner;
        }
      reduce(mine, all, 2 * turns, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (rank) continue;
      double *without = malloc(turns * sizeof *without), *with = malloc(turns * sizeof *with);
      for (int i = 0; i < turns; i++) without[i] = all[2 * i], with[i] = all[2 * i + 1], ratio[i] = with[i] / without[i];
      qsort(without, turns, sizeof *without, by_size), qsort(with, turns, sizeof *with, by_size), qsort(ratio, turns, sizeof *ratio, by_size);
      int off = turns / 2; // ranks of the median's 95 % interval
      while (off > 0 && off > turns / 2 - 0.98 * __builtin_sqrt(turns)) off--;
      printf("%s,%d,%ld,%.3f,%.3f,%.3f,%.3f,%.3f\n", names[verb], size, bytes, without[turns / 2], with[turns / 2], ratio[turns / 2], ratio[off], ratio[turns - 1 - off]);
      fflush(stdout);
      free(without), free(with);
    }
  if (mpis) MPI_Free_mem(send), MPI_Free_mem(recv);
  MPI_Finalize();
  return 0;
}
