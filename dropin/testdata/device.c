// Calls on memory of a GPU, of some ranks or all: the driver is the library that the first argument names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;
static int (*alloc)(address *, size_t), (*release)(address), (*down)(void *, address, size_t), (*up)(address, const void *, size_t);
static int rank, size, errors;

static void need(int code, const char *what) {
  if (code == 0) return;
  fprintf(stderr, "%s: %d\n", what, code);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *find(void *driver, const char *name) {
  void *f = dlsym(driver, name);
  need(!f, name);
  return f;
}

static int mine(int r, int i) { return 1 + (3 * r + i) % 17; }
static int block(int from, int to, int i) { return mine(from, i) + 1000 * to; }

// buffer is n ints, which this rank has on its GPU or not.
typedef struct {
  int *values, n;
  address device;
} buffer;

static int has_gpu(int who) { return who == 0 || rank % 2 == 0; }

static buffer make(int n, int who) {
  buffer b = {malloc(n * sizeof(int)), n, 0};
  for (int i = 0; i < n; i++) b.values[i] = -1;
  if (has_gpu(who)) need(alloc(&b.device, n * sizeof(int)), "cuMemAlloc");
  return b;
}

static void *at(buffer *b, int i) {
  if (b->device) return (void *)(uintptr_t)(b->device + i * sizeof(int));
  return b->values + i;
}

static void give(buffer *b) {
  if (b->device) need(up(b->device, b->values, b->n * sizeof(int)), "cuMemcpyHtoD");
}

static void take(buffer *b) {
  if (b->device) need(down(b->values, b->device, b->n * sizeof(int)), "cuMemcpyDtoH");
}

static void drop(buffer *b) {
  if (b->device) need(release(b->device), "cuMemFree");
  free(b->values);
}

static void same(const char *what, int who, int place, int i, int got, int want) {
  if (got == want) return;
  errors++;
  if (errors < 10) fprintf(stderr, "rank %d: %s, GPUs of %s, in place %d: element %d is %d, not %d\n", rank, what, who ? "some" : "all", place, i, got, want);
}

static void all(int n, int who, int place) {
  int last = size - 1, sum;
  buffer in = make(n * size, who), out = make(n * size, who), one = make(n, who);
#define FILL(b, value) for (int i = 0; i < (b).n; i++) (b).values[i] = (value); give(&(b))
#define CHECK(what, b, count, want) take(&(b)); for (int i = 0; i < (count); i++) same(what, who, place, i, (b).values[i], want)
#define SUM(i) (sum = 0, ({ for (int r_ = 0; r_ < size; r_++) sum += mine(r_, i); }), sum)
#if MPI_VERSION >= 4
#define FORMS 3
#define LASTING(Init, ...) MPI_##Init##_init(__VA_ARGS__, MPI_INFO_NULL, &q), MPI_Start(&q), MPI_Wait(&q, MPI_STATUS_IGNORE), MPI_Request_free(&q)
#else
#define FORMS 2
#define LASTING(Init, ...) (void)0
#endif
#define CALL(Name, name, ...)                                                                                                  \
  do {                                                                                                                         \
    MPI_Request q;                                                                                                             \
    if (form == 0) MPI_##Name(__VA_ARGS__);                                                                                    \
    else if (form == 1) MPI_I##name(__VA_ARGS__, &q), MPI_Wait(&q, MPI_STATUS_IGNORE);                                         \
    else LASTING(Name, __VA_ARGS__);                                                                                           \
  } while (0)
  for (int form = 0; form < FORMS; form++) { // blocking, started and waited for, persistent
    FILL(in, mine(rank, i));
    FILL(out, place ? mine(rank, i) : -1);
    void *from = place ? MPI_IN_PLACE : at(&in, 0);
    CALL(Allreduce, allreduce, from, at(&out, 0), n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK("allreduce", out, n, SUM(i));
    FILL(out, place ? mine(rank, i) : -1);
    from = place && rank == last ? MPI_IN_PLACE : at(&in, 0);
    CALL(Reduce, reduce, from, at(&out, 0), n, MPI_INT, MPI_SUM, last, MPI_COMM_WORLD);
    if (rank == last) { CHECK("reduce", out, n, SUM(i)); }
    FILL(out, rank == last ? mine(last, i) : -1);
    CALL(Bcast, bcast, at(&out, 0), n, MPI_INT, last, MPI_COMM_WORLD);
    CHECK("bcast", out, n, mine(last, i));
    FILL(one, mine(rank, i));
    FILL(out, place && i / n == rank ? mine(rank, i % n) : -1);
    CALL(Allgather, allgather, place ? MPI_IN_PLACE : at(&one, 0), n, MPI_INT, at(&out, 0), n, MPI_INT, MPI_COMM_WORLD);
    CHECK("allgather", out, n * size, mine(i / n, i % n));
    FILL(out, place && i / n == rank ? mine(rank, i % n) : -1);
    CALL(Gather, gather, place && rank == last ? MPI_IN_PLACE : at(&one, 0), n, MPI_INT, at(&out, 0), n, MPI_INT, last, MPI_COMM_WORLD);
    if (rank == last) { CHECK("gather", out, n * size, mine(i / n, i % n)); }
    FILL(in, block(rank, i / n, i % n));
    FILL(one, -1);
    int placed = place && rank == last;
    CALL(Scatter, scatter, at(&in, 0), n, MPI_INT, placed ? MPI_IN_PLACE : at(&one, 0), n, MPI_INT, last, MPI_COMM_WORLD);
    if (placed) { CHECK("scatter", in, n * size, block(last, i / n, i % n)); }
    else { CHECK("scatter", one, n, block(last, rank, i)); }
    FILL(in, block(rank, i / n, i % n));
    FILL(out, place ? block(rank, i / n, i % n) : -1);
    CALL(Alltoall, alltoall, place ? MPI_IN_PLACE : at(&in, 0), n, MPI_INT, at(&out, 0), n, MPI_INT, MPI_COMM_WORLD);
    CHECK("alltoall", out, n * size, block(i / n, rank, i % n));
    FILL(in, mine(rank, i));
    FILL(one, -1);
    CALL(Reduce_scatter_block, reduce_scatter_block, place ? MPI_IN_PLACE : at(&in, 0), place ? at(&in, 0) : at(&one, 0), n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (place) { CHECK("reduce_scatter", in, n, SUM(rank * n + i)); }
    else { CHECK("reduce_scatter", one, n, SUM(rank * n + i)); }
  }
  drop(&in), drop(&out), drop(&one);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  void *driver = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL, *context;
  need(!driver, "the driver");
  alloc = find(driver, "cuMemAlloc_v2"), release = find(driver, "cuMemFree_v2");
  down = find(driver, "cuMemcpyDtoH_v2"), up = find(driver, "cuMemcpyHtoD_v2");
  need(((int (*)(unsigned))find(driver, "cuInit"))(0), "cuInit");
  need(((int (*)(void **, int))find(driver, "cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
  need(((int (*)(void *))find(driver, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
  for (int who = 0; who < 2; who++)
    for (int place = 0; place < 2; place++)
      for (int n = 1; n <= 40000; n *= 200) all(n, who, place);
  int total;
  MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d errors\n", total);
  MPI_Finalize();
  return total != 0;
}
