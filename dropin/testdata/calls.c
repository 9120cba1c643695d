// calls makes the collectives that scaffe serves, in every way that a program may, and checks what
// they give. It knows nothing of scaffe. Sizes begin below SCAFFE_MIN and end far above.
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, errors;

#include "fail.h"

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
        for (int place = 0; place < (type == MPI_LONG_DOUBLE ? 1 : 2); place++) {                                           \
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
typedef long double long_double;
REDUCTIONS(long_double, MPI_LONG_DOUBLE) // which scaffe does not add

// integers reduces every type of integers, and of truth values and bytes, by every operator that the standard has for it.
static void integers(MPI_Comm comm, const char *what) {
  enum { ARITHMETIC = 1, BITS = 2, LOGIC = 4, COUNT = 20001 };
  static const char *names[] = {"sum", "product", "minimum", "maximum", "and", "or", "exclusive or", "logical and", "logical or", "logical exclusive or"};
  MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
  struct {
    MPI_Datatype type;
    int size, by;
  } types[] = {{MPI_SIGNED_CHAR, 1, 7}, {MPI_UNSIGNED_CHAR, 1, 7}, {MPI_INT8_T, 1, 7}, {MPI_UINT8_T, 1, 7}, {MPI_SHORT, 2, 7}, {MPI_UNSIGNED_SHORT, 2, 7},
               {MPI_INT16_T, 2, 7}, {MPI_UINT16_T, 2, 7}, {MPI_INT, 4, 7}, {MPI_UNSIGNED, 4, 7}, {MPI_INT32_T, 4, 7}, {MPI_UINT32_T, 4, 7},
               {MPI_LONG, sizeof(long), 7}, {MPI_UNSIGNED_LONG, sizeof(long), 7}, {MPI_LONG_LONG, 8, 7}, {MPI_UNSIGNED_LONG_LONG, 8, 7},
               {MPI_INT64_T, 8, 7}, {MPI_UINT64_T, 8, 7}, {MPI_AINT, 8, 3}, {MPI_OFFSET, 8, 3}, {MPI_COUNT, 8, 3}, {MPI_BYTE, 1, BITS}, {MPI_C_BOOL, 1, LOGIC}};
  int me, n;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &n);
  char *in = malloc(8 * COUNT), *out = malloc(8 * COUNT);
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int o = 0; o < 10; o++) {
      if (!(types[t].by & (o < 4 ? ARITHMETIC : o < 7 ? BITS : LOGIC))) continue;
      int size = types[t].size;
      for (int i = 0; i < COUNT; i++) {
        long long v = types[t].by == LOGIC ? value(me, i) % 2 : value(me, i);
        memcpy(in + size * i, &v, size); // little endian
      }
      memset(out, 0x55, size * COUNT);
      MPI_Allreduce(in, out, COUNT, types[t].type, ops[o], comm);
      for (int i = 0; i < COUNT; i++) {
        long long want = types[t].by == LOGIC ? value(0, i) % 2 : value(0, i), got = 0;
        for (int r = 1; r < n; r++) {
          long long y = types[t].by == LOGIC ? value(r, i) % 2 : value(r, i);
          long long all[] = {want + y, want * y, want < y ? want : y, want > y ? want : y, want & y, want | y, want ^ y, want && y, want || y, !want != !y};
          want = all[o];
        }
        memcpy(&got, out + size * i, size);
        if (memcmp(&got, &want, size)) {
          FAIL("%s: %s of type %d, element %d: %lld, not %lld", what, names[o], (int)t, i, got, want);
          break;
        }
      }
    }
  free(in);
  free(out);
}

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

// What every rank's part of an allgather holds, and of an allgatherv, whose parts differ: one has nothing.
static int mine(int r, int i) { return 1000 * r + i % 997; }
static int part(int r, int n, int all) { return r == 1 ? 0 : all / n + 3 * r; }

// Parts may lie in another order on each rank, with space between, and be of types of one signature.
static void allgathers(MPI_Comm comm, const char *what) {
  int me, n;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &n);
  MPI_Datatype vector, pair; // every other element
  MPI_Type_vector(2, 1, 2, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, 4 * sizeof(int), &pair);
  MPI_Type_free(&vector);
  MPI_Type_commit(&pair);
  for (int s = 0; s < NSIZES; s++)
    for (int way = 0; way < 5; way++) { // as it is, in place, derived to send, derived to receive, by address to send
      int count = sizes[s] / n / 2 * 2, wide = way == 3 ? 2 : 1;
      int *in = malloc((2 * count + 1) * sizeof(int)), *out = malloc((2 * n * count + 1) * sizeof(int));
      for (int i = 0; i < 2 * n * count + 1; i++) out[i] = -1;
      for (int i = 0; i < count; i++) {
        in[way == 2 ? 2 * i : i] = mine(me, i);
        if (way == 1) out[me * count + i] = mine(me, i);
      }
      if (way == 2 && me % 2 == 0) MPI_Allgather(in, count / 2, pair, out, count, MPI_INT, comm);
      else {
        for (int i = 0; way == 2 && i < count; i++) in[i] = mine(me, i);
        if (way == 3) MPI_Allgather(in, count, MPI_INT, out, count / 2, pair, comm);
        else if (way == 4 && me == 0 && count > 0) {
          MPI_Aint where;
          MPI_Datatype there;
          MPI_Get_address(in, &where);
          MPI_Type_create_hindexed(1, &count, &where, MPI_INT, &there);
          MPI_Type_commit(&there);
          MPI_Allgather(MPI_BOTTOM, 1, there, out, count, MPI_INT, comm);
          MPI_Type_free(&there);
        } else MPI_Allgather(way == 1 ? MPI_IN_PLACE : in, count, MPI_INT, out, count, MPI_INT, comm);
      }
      for (int r = 0, ok = 1; ok && r < n; r++)
        for (int i = 0; ok && i < count; i++)
          if (out[wide * (r * count + i)] != mine(r, i) || (wide == 2 && out[2 * (r * count + i) + 1] != -1)) {
            FAIL("%s: allgather of %d, way %d: element %d of rank %d", what, count, way, i, r);
            ok = 0;
          }
      free(in), free(out);
    }
  MPI_Type_free(&pair);
  for (int s = 0; s < NSIZES; s++)
    for (int way = 0; way < 4; way++) { // side by side, in place; in reverse, in place
      int *counts = malloc(n * sizeof(int)), *at = malloc(n * sizeof(int)), sum = 0;
      for (int r = 0; r < n; r++) counts[r] = part(r, n, sizes[s]), at[r] = sum, sum += counts[r];
      if (way > 1)
        for (int r = n - 1, next = me; r >= 0; r--) at[r] = next, next += counts[r] + 1;
      int room = sum + 2 * n + 1;
      int *in = malloc((counts[me] + 1) * sizeof(int)), *out = malloc(room * sizeof(int));
      for (int i = 0; i < room; i++) out[i] = -1;
      for (int i = 0; i < counts[me]; i++) {
        in[i] = mine(me, i);
        if (way % 2) out[at[me] + i] = in[i];
      }
      MPI_Allgatherv(way % 2 ? MPI_IN_PLACE : counts[me] ? in : NULL, counts[me], MPI_INT, out, counts, at, MPI_INT, comm);
      int filled = 0, ok = 1;
      for (int r = 0; r < n; r++)
        for (int i = 0; ok && i < counts[r]; i++)
          if (out[at[r] + i] != mine(r, i)) {
            FAIL("%s: allgatherv of %d, way %d: element %d of rank %d", what, sizes[s], way, i, r);
            ok = 0;
          }
      for (int i = 0; i < room; i++) filled += out[i] != -1;
      if (ok && filled != sum) FAIL("%s: allgatherv of %d, way %d: it wrote %d elements, not %d", what, sizes[s], way, filled, sum);
      free(in), free(out), free(counts), free(at);
    }
}

// What a rank has for another.
static int block(int from, int to, int i) { return mine(from, i) + 1000 * to; }

// Types of one signature may differ between the ranks, and between what is sent and what is received.
static void alltoalls(MPI_Comm comm, const char *what) {
  int me, n;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &n);
  MPI_Datatype vector, pair; // every other element
  MPI_Type_vector(2, 1, 2, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, 4 * sizeof(int), &pair);
  MPI_Type_free(&vector);
  MPI_Type_commit(&pair);
  for (int s = 0; s < NSIZES; s++)
    for (int way = 0; way < 5; way++) { // as it is, in place, derived to send on some ranks, derived to receive, derived in place
      int count = sizes[s] / n / 2 * 2, wide_in = way == 2 && me % 2 == 0 ? 2 : 1, wide = way > 2 ? 2 : 1;
      int *in = malloc((wide_in * n * count + 1) * sizeof(int)), *out = malloc((wide * n * count + 1) * sizeof(int));
      for (int i = 0; i < wide_in * n * count; i++) in[i] = -1;
      for (int i = 0; i < wide * n * count + 1; i++) out[i] = -1;
      for (int to = 0; to < n; to++)
        for (int i = 0; i < count; i++) {
          int at = to * count + i;
          if (way == 1 || way == 4) out[wide * at] = block(me, to, i);
          else in[wide_in * at] = block(me, to, i);
        }
      int each = wide == 2 ? count / 2 : count;
      MPI_Datatype type = wide == 2 ? pair : MPI_INT;
      if (way == 1 || way == 4) MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, each, type, comm);
      else MPI_Alltoall(in, wide_in == 2 ? count / 2 : count, wide_in == 2 ? pair : MPI_INT, out, each, type, comm);
      for (int r = 0, ok = 1; ok && r < n; r++)
        for (int i = 0; ok && i < count; i++) {
          int at = wide * (r * count + i);
          if (out[at] != block(r, me, i) || (wide == 2 && out[at + 1] != -1)) {
            FAIL("%s: alltoall of %d, way %d: element %d of rank %d", what, count, way, i, r);
            ok = 0;
          }
          if (ok && way == 0 && in[r * count + i] != block(me, r, i)) {
            FAIL("%s: alltoall of %d wrote to what was sent", what, count);
            ok = 0;
          }
        }
      if (out[wide * n * count] != -1) FAIL("%s: alltoall wrote beyond", what);
      free(in), free(out);
    }
  MPI_Type_free(&pair);
}

// gathers brings blocks to a root and back again, with types of one signature that differ between the ranks.
static void gathers(MPI_Comm comm, const char *what) {
  int me, n;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &n);
  MPI_Datatype vector, pair; // every other element
  MPI_Type_vector(2, 1, 2, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, 4 * sizeof(int), &pair);
  MPI_Type_free(&vector);
  MPI_Type_commit(&pair);
  for (int s = 0; s < NSIZES; s++)
    for (int way = 0; way < 5; way++) { // as it is, in place, parts derived on some ranks, the whole derived, that in place
      int count = sizes[s] / n / 2 * 2, root = (s + way) % n, at = me == root, placed = at && (way == 1 || way == 4);
      int thin = way == 2 && me % 2 == 0 ? 2 : 1, wide = way > 2 ? 2 : 1;
      int *part = malloc((thin * count + 1) * sizeof(int)), *whole = malloc((wide * n * count + 1) * sizeof(int));
      int few = thin == 2 ? count / 2 : count, each = wide == 2 ? count / 2 : count;
      MPI_Datatype small = thin == 2 ? pair : MPI_INT, large = wide == 2 ? pair : MPI_INT;
      for (int i = 0; i < thin * count + 1; i++) part[i] = -1;
      for (int i = 0; i < wide * n * count + 1; i++) whole[i] = -1;
      for (int i = 0; i < count; i++) {
        if (placed) whole[wide * (me * count + i)] = mine(me, i);
        else part[thin * i] = mine(me, i);
      }
      MPI_Gather(placed ? MPI_IN_PLACE : part, few, small, at ? whole : NULL, each, large, root, comm);
      for (int r = 0, ok = 1; r < n && at && ok; r++)
        for (int i = 0; i < count && ok; i++) {
          int *e = whole + wide * (r * count + i);
          if (e[0] == mine(r, i) && (wide == 1 || e[1] == -1)) continue;
          FAIL("%s: gather of %d, way %d: element %d of rank %d", what, count, way, i, r);
          ok = 0;
        }
      if (whole[at ? wide * n * count : 0] != -1) FAIL("%s: gather wrote where it should not", what);
      for (int r = 0; r < n && at; r++)
        for (int i = 0; i < count; i++) whole[wide * (r * count + i)] = block(root, r, i);
      for (int i = 0; i < count && !placed; i++) part[thin * i] = -2;
      MPI_Scatter(at ? whole : NULL, each, large, placed ? MPI_IN_PLACE : part, few, small, root, comm);
      for (int i = 0; i < count && !placed; i++)
        if (part[thin * i] != block(root, me, i) || (thin == 2 && part[2 * i + 1] != -1)) {
          FAIL("%s: scatter of %d, way %d: element %d", what, count, way, i);
          break;
        }
      if (part[thin * count] != -1) FAIL("%s: scatter wrote beyond", what);
      for (int i = 0; i < n * count && at; i++)
        if (whole[wide * i] != block(root, i / count, i % count)) {
          FAIL("%s: scatter of %d, way %d wrote to what was sent", what, count, way);
          break;
        }
      free(part), free(whole);
    }
  MPI_Type_free(&pair);
}

#define SCATTERS(T, type)                                                                                                      \
  static void scatters_##T(MPI_Comm comm, const char *what) {                                                                  \
    int me, n;                                                                                                                 \
    MPI_Comm_rank(comm, &me);                                                                                                  \
    MPI_Comm_size(comm, &n);                                                                                                   \
    MPI_Op ops[] = {MPI_SUM, MPI_MAX};                                                                                         \
    for (int s = 0; s < NSIZES; s++)                                                                                           \
      for (int way = 0; way < 4; way++) { /* parts equal or not, in place or not */                                            \
        int *counts = malloc(n * sizeof(int)), sum = 0, off = 0, op = s % 2;                                                   \
        for (int r = 0; r < n; r++) {                                                                                          \
          counts[r] = way & 1 ? part(r, n, sizes[s]) : sizes[s] / n;                                                           \
          if (r == me) off = sum;                                                                                              \
          sum += counts[r];                                                                                                    \
        }                                                                                                                      \
        T *in = malloc((sum + 1) * sizeof(T)), *out = way & 2 ? in : malloc((counts[me] + 1) * sizeof(T));                     \
        for (int i = 0; i < sum; i++) in[i] = (T)value(me, i);                                                                 \
        in[sum] = (T)77;                                                                                                       \
        if (!(way & 2)) out[counts[me]] = (T)77;                                                                               \
        if (way & 1) MPI_Reduce_scatter(way & 2 ? MPI_IN_PLACE : in, counts[me] || way & 2 ? out : NULL, counts, type, ops[op], comm); \
        else MPI_Reduce_scatter_block(way & 2 ? MPI_IN_PLACE : in, out, counts[0], type, ops[op], comm);                       \
        for (int i = 0; i < counts[me]; i++)                                                                                   \
          if (out[i] != (T)expect(ops[op], n, off + i)) {                                                                      \
            FAIL("%s: reduce_scatter of %d %s, way %d: element %d", what, sum, #T, way, i);                                    \
            break;                                                                                                             \
          }                                                                                                                    \
        if (in[sum] != (T)77 || (!(way & 2) && out[counts[me]] != (T)77)) FAIL("%s: reduce_scatter wrote beyond", what);       \
        if (!(way & 2)) free(out);                                                                                             \
        free(in), free(counts);                                                                                                \
      }                                                                                                                        \
  }

SCATTERS(float, MPI_FLOAT)
SCATTERS(long, MPI_LONG)

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
  reductions_long_double(comm, what);
  integers(comm, what);
  bcasts(comm, what);
  allgathers(comm, what);
  scatters_float(comm, what);
  scatters_long(comm, what);
  alltoalls(comm, what);
  gathers(comm, what);
}

// memory reduces in what MPI_Alloc_mem returns, on some ranks alone: that and the program's own may meet in one call.
static void memory(void) {
  for (int some = 0; some < 2; some++)
    for (long n = 16; n <= 1 << 20; n <<= 8) {
      float *v, *w;
      int here = some == 0 || rank % 2 == 0;
      if (here) {
        MPI_Alloc_mem(n * sizeof *v, MPI_INFO_NULL, &v);
        MPI_Alloc_mem(n * sizeof *w, MPI_INFO_NULL, &w);
      } else v = malloc(n * sizeof *v), w = malloc(n * sizeof *w);
      for (int k = 0; k < 3; k++) {
        for (long i = 0; i < n; i++) v[i] = rank + k + i % 3, w[i] = -1;
        MPI_Allreduce(v, w, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (long i = 0; i < n; i++)
          if (w[i] != size * (size - 1) / 2 + size * (k + i % 3)) {
            FAIL("memory of MPI_Alloc_mem: element %ld of %ld: %g", i, n, w[i]);
            break;
          }
      }
      if (here) MPI_Free_mem(v), MPI_Free_mem(w);
      else free(v), free(w);
    }
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
  memory();
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
