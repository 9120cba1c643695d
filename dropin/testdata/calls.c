// calls makes the collectives that scaffe serves, in every way that a program may, and checks what
// they give. It knows nothing of scaffe. Sizes begin below SCAFFE_MIN and end far above.
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, errors;

#define FAIL(...)                                                                                                              \
  do {                                                                                                                         \
    if (errors++ < 5) {                                                                                                        \
      printf("rank %d: ", rank);                                                                                               \
      printf(__VA_ARGS__);                                                                                                     \
      printf("\n");                                                                                                            \
    }                                                                                                                          \
  } while (0)

static const int sizes[] = {0, 1, 7, 4096, 20000, 131072 + 3, 1 << 20};
enum { NSIZES = sizeof sizes / sizeof *sizes };

// Contributions are small whole numbers, so that sums are exact in every type.
static long value(int r, int i) { return (r + 1) * (i % 5) % 7; }

static long expect(MPI_Op op, int n, int i) {
  long x = value(0, i);
  for (int r = 1; r < n; r++) {
    long y = value(r, i);
    if (op == MPI_SUM) x += y;
    else if (op == MPI_PROD) x *= y;
    else if (op == MPI_MAX) x = x > y ? x : y;
    else x = x < y ? x : y;
  }
  return x;
}

// MPICH 4.0.2 reads MPI_IN_PLACE itself in some reductions of its own, so a type that only the library adds has none.
#define REDUCTIONS(T, type)                                                                                                    \
  static void reductions_##T(MPI_Comm comm, const char *what) {                                                                \
    int me, n;                                                                                                                 \
    MPI_Comm_rank(comm, &me);                                                                                                  \
    MPI_Comm_size(comm, &n);                                                                                                   \
    MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD};                                                                      \
    for (int s = 0; s < NSIZES; s++)                                                                                           \
      for (int o = 0; o < 4; o++)                                                                                              \
        for (int place = 0; place < (type == MPI_SHORT ? 1 : 2); place++) {                                                                         \
          int count = sizes[s], root = (s + o) % n;                                                                            \
          T *in = malloc((count + 1) * sizeof(T)), *out = malloc((count + 1) * sizeof(T));                                     \
          for (int i = 0; i < count; i++) in[i] = (T)value(me, i), out[i] = place ? in[i] : (T)-1;                             \
          in[count] = out[count] = (T)77;                                                                                      \
          MPI_Allreduce(place ? MPI_IN_PLACE : in, out, count, type, ops[o], comm);                                            \
          for (int i = 0; i <= count; i++)                                                                                     \
            if (out[i] != (i < count ? (T)expect(ops[o], n, i) : (T)77)) {                                                     \
              FAIL("%s: allreduce of %d %s, op %d, in place %d: element %d", what, count, #T, o, place, i);                    \
              break;                                                                                                           \
            }                                                                                                                  \
          for (int i = 0; i < count; i++) out[i] = place ? in[i] : (T)-1;                                                      \
          if (me == root) MPI_Reduce(place ? MPI_IN_PLACE : in, out, count, type, ops[o], root, comm);                         \
          else MPI_Reduce(in, NULL, count, type, ops[o], root, comm);                                                          \
          for (int i = 0; me == root && i <= count; i++)                                                                       \
            if (out[i] != (i < count ? (T)expect(ops[o], n, i) : (T)77)) {                                                     \
              FAIL("%s: reduce of %d %s to %d, op %d, in place %d: element %d", what, count, #T, root, o, place, i);           \
              break;                                                                                                           \
            }                                                                                                                  \
          for (int i = 0; i <= count; i++)                                                                                     \
            if (in[i] != (i < count ? (T)value(me, i) : (T)77)) {                                                              \
              FAIL("%s: element %d of a buffer to send was changed", what, i);                                                 \
              break;                                                                                                           \
            }                                                                                                                  \
          free(in);                                                                                                            \
          free(out);                                                                                                           \
        }                                                                                                                      \
  }

REDUCTIONS(float, MPI_FLOAT)
REDUCTIONS(double, MPI_DOUBLE)
REDUCTIONS(int, MPI_INT)
REDUCTIONS(long, MPI_LONG)
REDUCTIONS(uint8_t, MPI_UINT8_T)
REDUCTIONS(short, MPI_SHORT) // which scaffe does not add

static void bcasts(MPI_Comm comm, const char *what) {
  int me, n;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &n);
  for (int s = 0; s < NSIZES; s++) {
    int count = sizes[s], root = s % n;
    double *v = malloc((count + 1) * sizeof(double));
    for (int i = 0; i < count; i++) v[i] = me == root ? i % 1000 : -1;
    v[count] = 77;
    MPI_Bcast(v, count, MPI_DOUBLE, root, comm);
    for (int i = 0; i <= count; i++)
      if (v[i] != (i < count ? i % 1000 : 77)) {
        FAIL("%s: bcast of %d from %d: element %d", what, count, root, i);
        break;
      }
    free(v);
  }
  // One signature, three ways to lie in memory: side by side, every other element, and backwards.
  int count = 1 << 17;
  MPI_Datatype type;
  int step = me % 3 == 1 ? 2 : 1, back = me % 3 == 2;
  int *lengths = malloc(count * sizeof(int)), *at = malloc(count * sizeof(int));
  for (int i = 0; i < count; i++) lengths[i] = 1, at[i] = back ? count - 1 - i : step * i;
  if (me % 3 == 0) MPI_Type_contiguous(count, MPI_INT, &type);
  else MPI_Type_indexed(count, lengths, at, MPI_INT, &type);
  MPI_Type_commit(&type);
  for (int root = 0; root < n; root++) {
    int *v = malloc(2 * count * sizeof(int));
    for (int i = 0; i < 2 * count; i++) v[i] = -1;
    for (int i = 0; me == root && i < count; i++) v[at[i]] = i;
    MPI_Bcast(v, 1, type, root, comm);
    for (int i = 0; i < count; i++)
      if (v[at[i]] != i) {
        FAIL("%s: bcast of a derived type from %d: element %d is %d", what, root, i, v[at[i]]);
        break;
      }
    for (int i = 0; me % 3 == 1 && i < count; i++)
      if (v[2 * i + 1] != -1) {
        FAIL("%s: bcast of a derived type wrote between its elements", what);
        break;
      }
    free(v);
  }
  MPI_Type_free(&type);
  free(lengths);
  free(at);
}

static void add_user(void *in, void *out, int *n, MPI_Datatype *t) {
  (void)t;
  for (int i = 0; i < *n; i++) ((float *)out)[i] += ((float *)in)[i];
}

static void all(MPI_Comm comm, const char *what) {
  reductions_float(comm, what);
  reductions_double(comm, what);
  reductions_int(comm, what);
  reductions_long(comm, what);
  reductions_uint8_t(comm, what);
  reductions_short(comm, what);
  bcasts(comm, what);
}

// What is passed on: other operations, pairs, communicators of one rank and between two groups.
static void others(void) {
  int n = 1 << 18;
  float *v = malloc(n * sizeof *v), *w = malloc(n * sizeof *w);
  for (int i = 0; i < n; i++) v[i] = 1;
  MPI_Op op;
  MPI_Op_create(add_user, 1, &op);
  for (int k = 0; k < 3; k++) MPI_Allreduce(v, w, n, MPI_FLOAT, op, MPI_COMM_WORLD);
  if (w[n - 1] != size) FAIL("a user's operation: %g", w[n - 1]);
  MPI_Op_free(&op);
  struct {
    double x;
    int i;
  } *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b);
  for (int i = 0; i < n; i++) a[i].x = rank, a[i].i = rank;
  for (int k = 0; k < 3; k++) MPI_Allreduce(a, b, n, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  if (b[n - 1].i != size - 1) FAIL("MAXLOC: %d", b[n - 1].i);
  for (int k = 0; k < 3; k++) MPI_Bcast(b, n, MPI_DOUBLE_INT, 0, MPI_COMM_WORLD);
  for (int k = 0; k < 3; k++) MPI_Allreduce(v, w, n, MPI_FLOAT, MPI_SUM, MPI_COMM_SELF);
  if (w[n - 1] != 1) FAIL("MPI_COMM_SELF: %g", w[n - 1]);
  if (size > 1) {
    MPI_Comm half, inter;
    int low = rank < size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 2 : 0, 5, &inter);
    for (int k = 0; k < 3; k++) MPI_Allreduce(v, w, n, MPI_FLOAT, MPI_SUM, inter);
    if (w[n - 1] != (low ? size - size / 2 : size / 2)) FAIL("an intercommunicator: %g", w[n - 1]);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
  }
  free(v), free(w), free(a), free(b);
}

// A rank sends to another, which receives only after a collective's other ranks are in it: the library must be
// moved on from within.
static void progress(void) {
  if (size < 2) return;
  int n = 1 << 20;
  double *big = malloc(n * sizeof *big), *v = calloc(n, sizeof *v), *w = malloc(n * sizeof *w);
  for (int round = 0; round < 4; round++) {
    MPI_Request r;
    for (int i = 0; i < n; i++) big[i] = rank == 0 ? i : -1;
    if (rank == 0) MPI_Isend(big, n, MPI_DOUBLE, 1, round, MPI_COMM_WORLD, &r);
    if (rank == 1) MPI_Recv(big, n, MPI_DOUBLE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(v, w, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) MPI_Wait(&r, MPI_STATUS_IGNORE);
    if (rank == 1 && big[n - 1] != n - 1) FAIL("a message beside a collective: %g", big[n - 1]);
  }
  free(big), free(v), free(w);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  all(MPI_COMM_WORLD, "the world");
  others();
  progress();
  MPI_Comm turned, dup;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
  all(turned, "ranks turned round");
  MPI_Comm_dup(turned, &dup);
  MPI_Comm_free(&turned);
  bcasts(dup, "a duplicate");
  if (argc > 1 && strcmp(argv[1], "many") == 0) { // communicators made, used and freed
    double *v = calloc(1 << 15, sizeof *v), *w = calloc(1 << 15, sizeof *w);
    for (int k = 0; k < 40; k++) {
      MPI_Comm c;
      MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &c);
      v[9] = 1;
      for (int j = 0; j < 3; j++) MPI_Allreduce(v, w, 1 << 15, MPI_DOUBLE, MPI_SUM, c);
      int n;
      MPI_Comm_size(c, &n);
      if (w[9] != n) FAIL("communicator %d: %g, not %d", k, w[9], n);
      MPI_Comm_free(&c);
    }
    free(v), free(w);
  }
  int total = 0; // the duplicate is left to MPI_Finalize
  MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d errors\n", total);
  MPI_Finalize();
  return total != 0;
}
