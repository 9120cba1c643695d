// libscaffe-mpi.so: an MPI program's collectives, served by scaffe where that is faster, passed on to
// its MPI library otherwise. See docs/dropin.md.
//
// It needs nothing but libc: scaffe itself, libscaffe.so, is opened at the first call worth it. So a
// shell or a daemon that inherits LD_PRELOAD starts nothing.
//
// Whether a call is served all ranks decide alike, from what the MPI standard makes equal on all of them
// (communicator, verb, root, op, the signature's size, how many such calls came before) and from rank 0's environment,
// which MPI_Init sends to all. A rank that decided otherwise than its peers would wait for ever.
#include "interpose.h"
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The libraries with the interface of the one that this is compiled for, as they call themselves.
#if defined(OMPI_MAJOR_VERSION)
static const char *const libraries[] = {"Open MPI"};
#else
static const char *const libraries[] = {"MPICH", "MVAPICH", "Intel"};
#endif

// A call that takes less is passed on without asking: starting scaffe would not pay.
#define MIN_DEFAULT (64 << 10)
// Which of the two is faster is found by trying where the result cannot depend on it; elsewhere by size alone (MIN_FLOATS).
#define TRIALS 6 // calls of a size, the library's and scaffe's in turn
struct here here;
struct calls counts[2 * SERVE_VERBS];
__thread int inside;

static const char *const reasons[PASSED_KINDS] = {
    "small", "of other types or operations", "on communicators that are not served", "before set-up", "where the library is as fast, or to find out"};
static __thread trial *timed; // the call that is passed on next is a trial's

// ---- the real functions ----

static int find_mpi(struct dl_phdr_info *info, size_t size, void *out) {
  (void)size;
  const char *name = strrchr(info->dlpi_name, '/');
  name = name ? name + 1 : info->dlpi_name;
  if (strncmp(name, "libmpi.so", 9) != 0 && strncmp(name, "libmpich.so", 11) != 0 && strncmp(name, "libmpi_", 7) != 0) return 0;
  if (strncmp(name, "libmpi_", 7) == 0 && strncmp(name, "libmpi_mpifh", 12) == 0) return 0;
  *(void **)out = dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_LAZY);
  return *(void **)out != NULL;
}

// look finds a name, if not from that place on, in an MPI that was opened where the program's names do not reach (RTLD_LOCAL).
void *look(void *from, const char *name) {
  void *f = dlsym(from, name);
  if (!f) {
    void *mpi = NULL;
    dl_iterate_phdr(find_mpi, &mpi);
    if (mpi) f = dlsym(mpi, name);
  }
  return f;
}

void *must(const char *name) {
  void *f = look(RTLD_NEXT, name);
  if (!f) {
    fprintf(stderr, "scaffe: %s is called, but no MPI library is loaded that has it\n", name);
    abort();
  }
  return f;
}

// ---- the library's handles ----

MPI_Comm comm_world, comm_self, comm_null;
MPI_Datatype type_byte;
static MPI_Datatype type_null;
static MPI_Op ops[SERVE_OPS]; // by SERVE_SUM, ...

// The named types whose elements lie side by side, and what the kernels take them for. The standard says which
// operators combine which (MPI 4.0, section 6.9.2).
#define TYPES(X)                                                                                                               \
  X(MPI_DOUBLE, "double", SERVE_F64, 8, ARITHMETIC)                                                                            \
  X(MPI_FLOAT, "float", SERVE_F32, 4, ARITHMETIC)                                                                              \
  X(MPI_INT, "int", SERVE_I32, 4, ARITHMETIC | BITS | LOGIC)                                                                   \
  X(MPI_LONG, "long", sizeof(long) == 8 ? SERVE_I64 : SERVE_I32, sizeof(long), ARITHMETIC | BITS | LOGIC)                      \
  X(MPI_LONG_LONG, "long_long_int", SERVE_I64, 8, ARITHMETIC | BITS | LOGIC)                                                   \
  X(MPI_INT32_T, "int32_t", SERVE_I32, 4, ARITHMETIC | BITS | LOGIC)                                                           \
  X(MPI_INT64_T, "int64_t", SERVE_I64, 8, ARITHMETIC | BITS | LOGIC)                                                           \
  X(MPI_UINT8_T, "uint8_t", SERVE_U8, 1, ARITHMETIC | BITS | LOGIC)                                                            \
  X(MPI_UNSIGNED_CHAR, "unsigned_char", SERVE_U8, 1, ARITHMETIC | BITS | LOGIC)                                                \
  X(MPI_REAL, "real", SERVE_F32, 4, ARITHMETIC)                                                                                \
  X(MPI_DOUBLE_PRECISION, "dblprec", SERVE_F64, 8, ARITHMETIC)                                                                 \
  X(MPI_INTEGER, "integer", SERVE_I32, 4, ARITHMETIC | BITS)                                                                   \
  X(MPI_REAL4, "real4", SERVE_F32, 4, ARITHMETIC)                                                                              \
  X(MPI_REAL8, "real8", SERVE_F64, 8, ARITHMETIC)                                                                              \
  X(MPI_INTEGER4, "integer4", SERVE_I32, 4, ARITHMETIC | BITS)                                                                 \
  X(MPI_INTEGER8, "integer8", SERVE_I64, 8, ARITHMETIC | BITS)                                                                 \
  X(MPI_BYTE, "byte", SERVE_U8, 1, BITS)                                                                                       \
  X(MPI_CHAR, "char", SERVE_U8, 1, 0)                                                                                          \
  X(MPI_PACKED, "packed", SERVE_U8, 1, 0)                                                                                      \
  X(MPI_SIGNED_CHAR, "signed_char", SERVE_I8, 1, ARITHMETIC | BITS | LOGIC)                                                    \
  X(MPI_INT8_T, "int8_t", SERVE_I8, 1, ARITHMETIC | BITS | LOGIC)                                                              \
  X(MPI_SHORT, "short", SERVE_I16, 2, ARITHMETIC | BITS | LOGIC)                                                               \
  X(MPI_UNSIGNED_SHORT, "unsigned_short", SERVE_U16, 2, ARITHMETIC | BITS | LOGIC)                                             \
  X(MPI_INT16_T, "int16_t", SERVE_I16, 2, ARITHMETIC | BITS | LOGIC)                                                           \
  X(MPI_UINT16_T, "uint16_t", SERVE_U16, 2, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UNSIGNED, "unsigned", SERVE_U32, 4, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UINT32_T, "uint32_t", SERVE_U32, 4, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UINT64_T, "uint64_t", SERVE_U64, 8, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UNSIGNED_LONG, "unsigned_long", sizeof(long) == 8 ? SERVE_U64 : SERVE_U32, sizeof(long), ARITHMETIC | BITS | LOGIC)    \
  X(MPI_UNSIGNED_LONG_LONG, "unsigned_long_long", SERVE_U64, 8, ARITHMETIC | BITS | LOGIC)                                     \
  X(MPI_C_FLOAT_COMPLEX, "c_float_complex", SERVE_U8, 8, 0)                                                                    \
  X(MPI_C_DOUBLE_COMPLEX, "c_double_complex", SERVE_U8, 16, 0)                                                                 \
  X(MPI_INTEGER1, "integer1", SERVE_I8, 1, ARITHMETIC | BITS)                                                                  \
  X(MPI_INTEGER2, "integer2", SERVE_I16, 2, ARITHMETIC | BITS)                                                                 \
  X(MPI_AINT, "aint", SERVE_I64, 8, ARITHMETIC | BITS)                                                                         \
  X(MPI_OFFSET, "offset", SERVE_I64, 8, ARITHMETIC | BITS)                                                                     \
  X(MPI_COUNT, "count", SERVE_I64, 8, ARITHMETIC | BITS)                                                                       \
  X(MPI_C_BOOL, "c_bool", SERVE_U8, 1, LOGIC)                                                                                  \
  X(MPI_CXX_BOOL, "cxx_bool", SERVE_U8, 1, LOGIC)

#define COUNT_ONE(mpi, ompi, code, size, combined_by) +1
enum { NTYPES = 0 TYPES(COUNT_ONE) };
static struct named types[NTYPES];

static void find_handles(void) {
  int i = 0, size = 0;
  comm_world = HANDLE(MPI_COMM_WORLD, "mpi_comm_world");
  comm_self = HANDLE(MPI_COMM_SELF, "mpi_comm_self");
  comm_null = HANDLE(MPI_COMM_NULL, "mpi_comm_null");
  type_byte = HANDLE(MPI_BYTE, "mpi_byte");
  type_null = HANDLE(MPI_DATATYPE_NULL, "mpi_datatype_null");
  ops[SERVE_SUM] = HANDLE(MPI_SUM, "mpi_op_sum"), ops[SERVE_PROD] = HANDLE(MPI_PROD, "mpi_op_prod");
  ops[SERVE_MIN] = HANDLE(MPI_MIN, "mpi_op_min"), ops[SERVE_MAX] = HANDLE(MPI_MAX, "mpi_op_max");
  ops[SERVE_BAND] = HANDLE(MPI_BAND, "mpi_op_band"), ops[SERVE_BOR] = HANDLE(MPI_BOR, "mpi_op_bor");
  ops[SERVE_BXOR] = HANDLE(MPI_BXOR, "mpi_op_bxor"), ops[SERVE_LAND] = HANDLE(MPI_LAND, "mpi_op_land");
  ops[SERVE_LOR] = HANDLE(MPI_LOR, "mpi_op_lor"), ops[SERVE_LXOR] = HANDLE(MPI_LXOR, "mpi_op_lxor");
#define FIND(mpi, ompi, k, n, by) types[i].type = HANDLE(mpi, "mpi_" ompi), types[i].code = k, types[i].combined_by = by, types[i++].size = n;
  TYPES(FIND)
  // Fortran's may have other sizes, by the compiler's flags, or not be there.
  for (i = 0; i < NTYPES; i++)
    if (types[i].type == (MPI_Datatype)0 || types[i].type == type_null || REAL(PMPI_Type_size)(types[i].type, &size) != MPI_SUCCESS || size != types[i].size)
      types[i].size = 0;
}

const struct named *named(MPI_Datatype type) {
  static __thread int last;
  if (types[last].type != type) {
    for (int i = 0;; i++) {
      if (i == NTYPES) return NULL;
      if (types[i].type == type) {
        last = i;
        break;
      }
    }
  }
  return types[last].size ? &types[last] : NULL;
}

static const int sizes[] = {[SERVE_F32] = 4, [SERVE_F64] = 8, [SERVE_F16] = 2, [SERVE_BF16] = 2, [SERVE_I32] = 4, [SERVE_I64] = 8,
                            [SERVE_U8] = 1, [SERVE_I8] = 1, [SERVE_I16] = 2, [SERVE_U16] = 2, [SERVE_U32] = 4, [SERVE_U64] = 8};

// ---- libscaffe.so ----

struct lib lib;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

// load opens libscaffe.so, which lies beside this library, or beside the program that this is linked into, or
// where libraries are looked for. Go's threads must leave the program's signals to the program: they inherit the mask.
static int load(void) {
  pthread_mutex_lock(&loading);
  if (!lib.tried) {
    lib.tried = 1;
    Dl_info info;
    char path[4096] = "libscaffe.so";
    const char *end;
    if (dladdr((void *)load, &info) && (end = strrchr(info.dli_fname, '/')) && (size_t)(end - info.dli_fname) < sizeof path - 16)
      snprintf(path, sizeof path, "%.*s/libscaffe.so", (int)(end - info.dli_fname), info.dli_fname);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    void *h = access(path, F_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : dlopen("libscaffe.so", RTLD_NOW | RTLD_LOCAL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (h) {
      lib.open = (serve_open_fn *)dlsym(h, "serve_open");
      lib.chooses = (serve_chooses_fn *)dlsym(h, "serve_chooses");
      lib.call = (serve_do_fn *)dlsym(h, "serve_do");
      lib.starts = (serve_starts_fn *)dlsym(h, "serve_starts");
      lib.prepare = (serve_prepare_fn *)dlsym(h, "serve_prepare");
      lib.start = (serve_start_fn *)dlsym(h, "serve_start");
      lib.drop = (serve_drop_fn *)dlsym(h, "serve_drop");
      lib.alloc = (serve_alloc_fn *)dlsym(h, "serve_alloc");
      lib.free = (serve_free_fn *)dlsym(h, "serve_free");
      lib.close = (serve_close_fn *)dlsym(h, "serve_close");
    } else {
      const char *e = dlerror();
      snprintf(lib.why, sizeof lib.why, "%s", e ? e : "libscaffe.so cannot be opened");
    }
  }
  pthread_mutex_unlock(&loading);
  return lib.open && lib.chooses && lib.call && lib.starts && lib.prepare && lib.start && lib.drop && lib.alloc && lib.free && lib.close;
}

// ---- communicators ----

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER; // of here.open: threads have communicators of their own

static int not_copied(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
  (void)comm, (void)key, (void)extra, (void)in, (void)out;
  *flag = 0;
  return MPI_SUCCESS;
}

static int forget(MPI_Comm comm, int key, void *value, void *extra) {
  (void)comm, (void)key, (void)extra;
  state *st = value;
  pthread_mutex_lock(&listing);
  for (state **s = &here.open; *s; s = &(*s)->older)
    if (*s == st) {
      *s = st->older;
      break;
    }
  pthread_mutex_unlock(&listing);
  if (st->handle) {
    inside++;
    requests_drain(st);
    lib.close(st->handle);
    inside--;
  }
  free(st);
  return MPI_SUCCESS;
}

// within reports whether all of a communicator's ranks were started with this one: others
// may have another rank 0, which set them up.
static int within(MPI_Comm comm) {
  int inter = 1, size = 0;
  if (REAL(PMPI_Comm_test_inter)(comm, &inter) != MPI_SUCCESS || inter) return 0;
  if (REAL(PMPI_Comm_size)(comm, &size) != MPI_SUCCESS || size < 2) return 0;
  MPI_Group g;
  if (REAL(PMPI_Comm_group)(comm, &g) != MPI_SUCCESS) return 0;
  int *ranks = malloc(2 * sizeof(int) * (size_t)size), yes = ranks != NULL;
  if (ranks) {
    for (int i = 0; i < size; i++) ranks[i] = i;
    yes = REAL(PMPI_Group_translate_ranks)(g, size, ranks, here.world, ranks + size) == MPI_SUCCESS;
    for (int i = 0; yes && i < size; i++) yes = ranks[size + i] != MPI_UNDEFINED;
    free(ranks);
  }
  REAL(PMPI_Group_free)(&g);
  return yes;
}

state *state_of(MPI_Comm comm) {
  state *st = NULL;
  int found = 0;
  if (REAL(PMPI_Comm_get_attr)(comm, here.keyval, &st, &found) != MPI_SUCCESS) return NULL;
  if (found) return st;
  if (!(st = calloc(1, sizeof *st))) return NULL;
  st->none = !within(comm);
  REAL(PMPI_Comm_size)(comm, &st->size);
  REAL(PMPI_Comm_rank)(comm, &st->rank);
  if (REAL(PMPI_Comm_set_attr)(comm, here.keyval, st) != MPI_SUCCESS) {
    free(st);
    return NULL;
  }
  return st;
}

// agreed reports whether all ranks say yes. The first in MPI_COMM_WORLD that does not tells why, once.
static int agreed(MPI_Comm comm, int yes, const char *why) {
  static int told;
  int mine = yes ? INT_MAX : here.rank, first = 0;
  if (REAL(PMPI_Allreduce)(&mine, &first, 1, types[2].type, ops[SERVE_MIN], comm) != MPI_SUCCESS) return 0;
  if (why && first == here.rank && (!told || here.set.report)) {
    told = 1;
    fprintf(stderr, "scaffe: rank %d: calls are passed on to the MPI library: %s\n", here.rank, why);
  }
  return first == INT_MAX;
}

// set_up is called by all ranks of a communicator together: all serve it afterwards, or none.
static void set_up(MPI_Comm comm, state *st) {
  char why[512] = "";
  st->none = 1;
  if (!agreed(comm, load(), lib.why)) return;
  uintptr_t h = lib.open(&comm, why, sizeof why);
  if (!agreed(comm, h != 0, why)) return; // what others have opened stays as it is: those who failed would not close it with them
  int starts = lib.starts(h);
  st->starts = agreed(comm, starts > 0, NULL);
  st->spare = agreed(comm, starts > 1, NULL);
  st->handle = h, st->none = 0;
  pthread_mutex_lock(&listing);
  st->older = here.open, here.open = st;
  pthread_mutex_unlock(&listing);
}

// chosen reports whether scaffe serves a call of so many bytes.
static int chosen(state *st, int verb, int type, int64_t bytes) {
  unsigned slot = (unsigned)((bytes * 31 + bytes / 4096 + verb * 7 + type) % CHOICES);
  if (st->choice[slot].bytes != bytes || st->choice[slot].verb != verb || st->choice[slot].type != type || !st->choice[slot].yes) {
    st->choice[slot].yes = lib.chooses(st->handle, verb, type, bytes) ? 1 : -1;
    st->choice[slot].bytes = bytes, st->choice[slot].verb = (signed char)verb, st->choice[slot].type = (signed char)type;
  }
  return st->choice[slot].yes > 0;
}

// ---- serving ----

int failed(state *st, MPI_Comm comm) {
  st->none = 1;
  REAL(PMPI_Comm_call_errhandler)(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

int passed(int verb, int why) {
  counts[verb].passed[why]++;
  return 0;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void shortest(double *of, double took) {
  if (*of == 0 || took < *of) *of = took;
}

static trial *trial_of(state *st, int verb, int64_t bytes) {
  int class = 63 - __builtin_clzll((unsigned long long)(bytes | 1));
  return &st->trials[verb][class < CLASSES ? class : CLASSES - 1];
}

// tried reports whether scaffe makes a call, of a kind whose result does not depend on who does. All ranks count these calls
// alike, and agree on what took longest at any of them.
static int tried(trial *t, MPI_Comm comm) {
  if (t->yes) return t->yes > 0;
  int k = t->calls++;
  if (k < TRIALS) {
    if (k % 2 == 0) timed = t;
    return k % 2;
  }
  double mine[2] = {t->library, t->scaffe}, all[2];
  if (REAL(PMPI_Allreduce)(mine, all, 2, types[0].type, ops[SERVE_MAX], comm) != MPI_SUCCESS) all[0] = all[1] = 1;
  t->yes = all[1] < all[0] ? 1 : -1;
  return t->yes > 0;
}

// serves returns the state of a communicator whose call scaffe serves, NULL where that is passed on, and sets the communicator up
// if this is the time. exact says of how many ranks the result is the same whoever serves it.
static state *serves(int verb, int type, int64_t bytes, enum exact exact, int root, MPI_Comm comm) {
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(verb, PASSED_COMM), NULL;
  if (root < 0 || root >= st->size) return NULL; // the library says what is wrong
  int same = is_exact(exact, st->size);
  if (here.set.tries && !same && bytes < MIN_FLOATS) return passed(verb, PASSED_SMALL), NULL;
  if (!st->handle) {
    if (st->calls++ < 1) return passed(verb, PASSED_FIRST), NULL;
    set_up(comm, st);
    if (st->none) return passed(verb, PASSED_COMM), NULL;
  }
  if (!chosen(st, verb, type, bytes)) return passed(verb, PASSED_CHOICE), NULL;
  if (here.set.tries && same && !tried(trial_of(st, verb, bytes), comm))
    return passed(verb, PASSED_CHOICE), NULL;
  return st;
}

int element_size(int type) { return sizes[type]; }

static int serve(state *st, MPI_Comm comm, serve_call *c) {
  staging gpu;
  counts[c->verb].served++;
  double begun = now();
  int rc = stage(st, c, &gpu);
  if (rc == MPI_SUCCESS) rc = stage_down(&gpu);
  if (rc == MPI_SUCCESS) rc = lib.call(st->handle, c) == 0 ? stage_up(&gpu) : MPI_ERR_OTHER;
  unstage(&gpu);
  if (rc != MPI_SUCCESS) return failed(st, comm);
  trial *t = trial_of(st, c->verb, c->count * sizes[c->type]);
  if (!t->yes) shortest(&t->scaffe, now() - begun);
  return MPI_SUCCESS;
}

int operation(const struct named *type, MPI_Op op) {
  for (int o = 0; o < SERVE_OPS; o++)
    if (ops[o] == op) return type->combined_by & (o <= SERVE_MAX ? ARITHMETIC : o <= SERVE_BXOR ? BITS : LOGIC) ? o : NONE;
  return NONE;
}

enum exact exactness(int code, int op) {
  if (op == SERVE_SUM && sizes[code] <= 2 && code > SERVE_BF16) return NEVER; // Open MPI's saturate where there is AVX
  return code > SERVE_BF16 || (op != SERVE_SUM && op != SERVE_PROD) ? ALWAYS : OF_TWO;
}

// reduction serves a Reduce or an Allreduce, and reports whether it has.
static int reduction(int verb, const void *send, void *recv, int64_t count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, int *rc) {
  const struct named *t = named(type);
  if (!t) return passed(verb, PASSED_TYPE);
  if (count * t->size < here.set.min) return passed(verb, PASSED_SMALL);
  int o = operation(t, op);
  if (o == NONE || !send || (verb == SERVE_ALLREDUCE && !recv)) return passed(verb, PASSED_TYPE);
  state *st = serves(verb, t->code, count * t->size, exactness(t->code, o), root, comm);
  if (!st || (st->rank == root && !recv)) return 0;
  serve_call c = {verb, t->code, o, root, (void *)send, recv, count, NULL};
  if (send == MPI_IN_PLACE) c.send = recv;
  *rc = serve(st, comm, &c);
  return 1;
}

// signature is equal on all ranks; whether elements lie side by side is not.
int64_t signature(MPI_Datatype type, int *side_by_side) {
  const struct named *t = named(type);
  int size = 0;
  *side_by_side = t != NULL;
  if (t) return t->size;
  return type != type_null && REAL(PMPI_Type_size)(type, &size) == MPI_SUCCESS && size > 0 ? size : 0;
}

// from_bottom makes, of elements with absolute addresses, one whose addresses begin at base: MPI_BOTTOM is NULL in MPICH, whose MPI_Pack
// and MPI_Unpack refuse it.
static int from_bottom(int64_t *count, MPI_Datatype *type, const void *base) {
  if (*count > INT_MAX) return MPI_ERR_COUNT;
  int n = (int)*count, rc;
  MPI_Aint back = -(MPI_Aint)base;
  if ((rc = REAL(PMPI_Type_create_hindexed)(1, &n, &back, *type, type)) != MPI_SUCCESS) return rc;
  *count = 1;
  return REAL(PMPI_Type_commit)(type);
}

// copied packs or unpacks.
static int copied(void *buf, int64_t count, MPI_Datatype type, void *packed, int64_t bytes, MPI_Comm comm, int packs) {
  int rc = MPI_SUCCESS, bottom = !buf && count > 0;
  if (bottom && (rc = from_bottom(&count, &type, buf = packed)) != MPI_SUCCESS) return rc;
#if MPI_VERSION >= 4
  MPI_Count at = 0;
  if (packs) rc = REAL(PMPI_Pack_c)(buf, count, type, packed, bytes, &at, comm);
  else rc = REAL(PMPI_Unpack_c)(packed, bytes, &at, buf, count, type, comm);
#else
  int at = 0;
  if (bytes > INT_MAX) rc = MPI_ERR_COUNT;
  else if (packs) rc = REAL(PMPI_Pack)(buf, (int)count, type, packed, (int)bytes, &at, comm);
  else rc = REAL(PMPI_Unpack)(packed, (int)bytes, &at, buf, (int)count, type, comm);
#endif
  if (bottom) REAL(PMPI_Type_free)(&type);
  return rc;
}

int pack(const void *buf, int64_t count, MPI_Datatype type, void *into, int64_t bytes, MPI_Comm comm) {
  return copied((void *)buf, count, type, into, bytes, comm, 1);
}

int unpack(const void *from, int64_t bytes, void *buf, int64_t count, MPI_Datatype type, MPI_Comm comm) {
  return copied(buf, count, type, (void *)from, bytes, comm, 0);
}

// packable reports whether what some ranks may have to pack can be: MPI before 4 counts packed bytes in an int.
static int packable(int64_t bytes) { return MPI_VERSION >= 4 || bytes <= INT_MAX; }

// room returns memory for a call, NULL where there is none: then the call has failed.
static void *room(state *st, MPI_Comm comm, int64_t bytes, int *rc) {
  void *m = malloc((size_t)bytes + 1);
  if (m) return m;
  fprintf(stderr, "scaffe: no memory for a copy of %lld bytes that a call needs\n", (long long)bytes);
  *rc = failed(st, comm);
  return NULL;
}

// broadcast serves a Bcast. Ranks may use different types of one signature: whose elements do not lie
// side by side packs them.
static int broadcast(void *buf, int64_t count, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  int side_by_side;
  int64_t bytes = count * signature(type, &side_by_side);
  if (bytes < here.set.min) return passed(SERVE_BCAST, PASSED_SMALL);
  if ((side_by_side && !buf) || !packable(bytes)) return passed(SERVE_BCAST, PASSED_TYPE);
  state *st = serves(SERVE_BCAST, SERVE_U8, bytes, ALWAYS, root, comm);
  if (!st) return 0;
  serve_call c = {SERVE_BCAST, SERVE_U8, SERVE_SUM, root, buf, buf, bytes, NULL};
  if (side_by_side) {
    *rc = serve(st, comm, &c);
    return 1;
  }
  void *packed = room(st, comm, bytes, rc);
  if (!packed) return 1;
  if (st->rank == root) *rc = pack(buf, count, type, packed, bytes, comm);
  c.send = c.recv = packed;
  if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
  if (*rc == MPI_SUCCESS && st->rank != root) *rc = unpack(packed, bytes, buf, count, type, comm);
  free(packed);
  return 1;
}

// list is a number for each rank, as programs have them: int or a larger kind, or the same for all.
typedef struct {
  const int *ints;
  const MPI_Count *counts;
  const MPI_Aint *places;
  int64_t each;
} list;

static int64_t of(const list *l, int rank) {
  return l->ints ? l->ints[rank] : l->counts ? (int64_t)l->counts[rank] : l->places ? (int64_t)l->places[rank] : l->each;
}

static int equal(const list *l) { return !l->ints && !l->counts && !l->places; }

// total adds the counts of a communicator's ranks, -1 where the library is to say what is wrong with it or them.
static int64_t total(const list *counts, MPI_Comm comm) {
  int size = 0;
  if (equal(counts)) return comm != comm_null && REAL(PMPI_Comm_size)(comm, &size) == MPI_SUCCESS ? counts->each * size : -1;
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return -1; // between two groups the counts are the other's
  int64_t sum = 0;
  for (int r = 0; r < st->size; r++) {
    if (of(counts, r) < 0) return -1;
    sum += of(counts, r);
  }
  return sum;
}

// sends reports whether a rank may send these elements: where not, the library says what is wrong. Neither having nothing to send, and
// so perhaps no buffer, nor MPI_BOTTOM and a type with addresses in it is wrong: other ranks know of neither.
static int sends(const void *buf, int64_t count, MPI_Datatype type, int *side_by_side) {
  if (count < 0 || type == type_null) return 0;
  return count * signature(type, side_by_side) == 0 || buf || !*side_by_side;
}

// allgather serves an Allgather, whose parts lie one after the other, or an Allgatherv, whose parts lie at places of their own on each
// rank. Ranks may use different types of one signature. What does not lie side by side goes through memory where it does.
static int allgather(const void *send, int64_t count, MPI_Datatype sent, void *recv, list counts, const list *places, MPI_Datatype type,
                     MPI_Comm comm, int *rc) {
  int lies, sent_lies = 1;
  int64_t size = signature(type, &lies), all = total(&counts, comm), bytes = all * size;
  if (all < 0) return passed(SERVE_ALLGATHER, PASSED_COMM);
  if (bytes < here.set.min) return passed(SERVE_ALLGATHER, PASSED_SMALL);
  if (!packable(bytes) || (lies && !recv) || (send != MPI_IN_PLACE && !sends(send, count, sent, &sent_lies))) return passed(SERVE_ALLGATHER, PASSED_TYPE);
  state *st = serves(SERVE_ALLGATHER, SERVE_U8, bytes, ALWAYS, 0, comm);
  if (!st) return 0;
  MPI_Aint low, extent = size;
  if (!lies && (*rc = REAL(PMPI_Type_get_extent)(type, &low, &extent)) != MPI_SUCCESS) return 1;
  int64_t *parts = room(st, comm, 2 * (int64_t)sizeof *parts * st->size, rc), *begins = parts + st->size, before = 0;
  if (!parts) return 1;
  for (int r = 0; r < st->size; r++) {
    parts[r] = of(&counts, r) * size, begins[r] = before;
    before += parts[r];
    if (places && of(places, r) * size != begins[r]) lies = 0; // not one after the other
  }
#define PLACE(r) ((char *)recv + (places ? of(places, r) : (r) * counts.each) * extent)
  int me = st->rank;
  char *whole = lies ? recv : room(st, comm, bytes, rc), *own = whole + begins[me];
  serve_call c = {SERVE_ALLGATHER, SERVE_U8, SERVE_SUM, 0, own, whole, bytes, equal(&counts) ? NULL : parts};
  if (whole && parts[me] > 0) {
    if (send != MPI_IN_PLACE && sent_lies) c.send = (void *)send;
    else if (send != MPI_IN_PLACE) *rc = pack(send, count, sent, own, parts[me], comm);
    else if (!lies) *rc = pack(PLACE(me), of(&counts, me), type, own, parts[me], comm);
  }
  if (whole && *rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
  for (int r = 0; whole && !lies && *rc == MPI_SUCCESS && r < st->size; r++)
    *rc = unpack(whole + begins[r], parts[r], PLACE(r), of(&counts, r), type, comm);
#undef PLACE
  if (whole != recv) free(whole);
  free(parts);
  return 1;
}

// reduce_scatter serves a Reduce_scatter or a Reduce_scatter_block. In place the whole buffer is read, and the result goes to its front.
static int reduce_scatter(const void *send, void *recv, list counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm, int *rc) {
  const struct named *t = named(type);
  if (!t) return passed(SERVE_REDUCE_SCATTER, PASSED_TYPE);
  int64_t all = total(&counts, comm);
  if (all < 0) return passed(SERVE_REDUCE_SCATTER, PASSED_COMM);
  if (all * t->size < here.set.min) return passed(SERVE_REDUCE_SCATTER, PASSED_SMALL);
  int o = operation(t, op);
  if (o == NONE || !send || (!recv && send == MPI_IN_PLACE)) return passed(SERVE_REDUCE_SCATTER, PASSED_TYPE);
  state *st = serves(SERVE_REDUCE_SCATTER, t->code, all * t->size, exactness(t->code, o), 0, comm);
  if (!st) return 0;
  int64_t *parts = NULL, own = of(&counts, st->rank) * t->size;
  if (!equal(&counts)) {
    if (!(parts = room(st, comm, (int64_t)sizeof *parts * st->size, rc))) return 1;
    for (int r = 0; r < st->size; r++) parts[r] = of(&counts, r);
  }
  void *front = send == MPI_IN_PLACE ? room(st, comm, own, rc) : recv;
  serve_call c = {SERVE_REDUCE_SCATTER, t->code, o, 0, send == MPI_IN_PLACE ? recv : (void *)send, front, all, parts};
  if (send != MPI_IN_PLACE) *rc = serve(st, comm, &c);
  else if (front) {
    *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS) *rc = move(recv, front, (size_t)own);
    free(front);
  }
  free(parts);
  return 1;
}

// alltoall serves an Alltoall. Ranks may use different types of one signature: what does not lie side by side goes through memory where
// it does, and so does what is sent in place.
static int alltoall(const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, MPI_Comm comm, int *rc) {
  int lies, sent_lies = 1;
  int64_t size = signature(type, &lies), all = total(&(list){.each = each}, comm), bytes = all * size;
  if (all < 0) return passed(SERVE_ALLTOALL, PASSED_COMM);
  if (bytes < here.set.min) return passed(SERVE_ALLTOALL, PASSED_SMALL);
  if (!packable(bytes) || (lies && !recv) || (send != MPI_IN_PLACE && !sends(send, count, sent, &sent_lies))) return passed(SERVE_ALLTOALL, PASSED_TYPE);
  state *st = serves(SERVE_ALLTOALL, SERVE_U8, bytes, ALWAYS, 0, comm);
  if (!st) return 0;
  int apart = send == MPI_IN_PLACE || !sent_lies;
  char *from = apart ? room(st, comm, bytes, rc) : (void *)send, *into = lies ? recv : room(st, comm, bytes, rc);
  if (from && into) {
    if (send == MPI_IN_PLACE && lies) *rc = move(from, recv, (size_t)bytes);
    else if (send == MPI_IN_PLACE) *rc = pack(recv, all, type, from, bytes, comm);
    else if (!sent_lies) *rc = pack(send, count * st->size, sent, from, bytes, comm);
    serve_call c = {SERVE_ALLTOALL, SERVE_U8, SERVE_SUM, 0, from, into, bytes, NULL};
    if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS && !lies) *rc = unpack(into, bytes, recv, all, type, comm);
  }
  if (apart) free(from);
  if (!lies) free(into);
  return 1;
}

// gather serves a Gather. Ranks may use different types of one signature: what does not lie side by side goes through memory where it does.
// (Of a Gatherv or a Scatterv the root alone knows how much it is; those are passed on.)
static int gather(const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(SERVE_GATHER, PASSED_COMM);
  int gets = st->rank == root, in_place = gets && send == MPI_IN_PLACE, lies = 1, sent_lies = 1;
  int64_t own = gets ? each * signature(type, &lies) : count * signature(sent, &sent_lies), bytes = own * st->size;
  if (bytes < here.set.min) return passed(SERVE_GATHER, PASSED_SMALL);
  if (!packable(bytes) || (gets && lies && !recv) || (!in_place && !sends(send, count, sent, &sent_lies))) return passed(SERVE_GATHER, PASSED_TYPE);
  if (!serves(SERVE_GATHER, SERVE_U8, bytes, ALWAYS, root, comm)) return 0;
  MPI_Aint low, extent = 0;
  if (!lies && (*rc = REAL(PMPI_Type_get_extent)(type, &low, &extent)) != MPI_SUCCESS) return 1;
  char *whole = !gets ? NULL : lies ? recv : room(st, comm, bytes, rc), *part = (void *)send;
  if (in_place) part = whole + own * root;
  else if (!sent_lies) part = room(st, comm, own, rc);
  if ((whole || !gets) && part) {
    if (in_place && !lies) *rc = pack((char *)recv + each * extent * root, each, type, part, own, comm);
    else if (!sent_lies) *rc = pack(send, count, sent, part, own, comm);
    serve_call c = {SERVE_GATHER, SERVE_U8, SERVE_SUM, root, part, whole, bytes, NULL};
    if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS && !lies) *rc = unpack(whole, bytes, recv, each * st->size, type, comm);
  }
  if (!in_place && !sent_lies) free(part);
  if (!lies) free(whole);
  return 1;
}

// scatter serves a Scatter, likewise.
static int scatter(const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return passed(SERVE_SCATTER, PASSED_COMM);
  int gives = st->rank == root, in_place = gives && recv == MPI_IN_PLACE, lies = 1, sent_lies = 1;
  int64_t own = gives ? count * signature(sent, &sent_lies) : each * signature(type, &lies), bytes = own * st->size;
  if (bytes < here.set.min) return passed(SERVE_SCATTER, PASSED_SMALL);
  if (!packable(bytes) || (gives && sent_lies && !send) || (!in_place && !sends(recv, each, type, &lies))) return passed(SERVE_SCATTER, PASSED_TYPE);
  if (!serves(SERVE_SCATTER, SERVE_U8, bytes, ALWAYS, root, comm)) return 0;
  char *whole = !gives ? NULL : sent_lies ? (void *)send : room(st, comm, bytes, rc), *part = recv;
  if (in_place) part = whole + own * root;
  else if (!lies) part = room(st, comm, own, rc);
  if ((whole || !gives) && part) {
    if (!sent_lies) *rc = pack(send, count * st->size, sent, whole, bytes, comm);
    serve_call c = {SERVE_SCATTER, SERVE_U8, SERVE_SUM, root, whole, part, bytes, NULL};
    if (*rc == MPI_SUCCESS) *rc = serve(st, comm, &c);
    if (*rc == MPI_SUCCESS && !in_place && !lies) *rc = unpack(part, own, recv, each, type, comm);
  }
  if (!in_place && !lies) free(part);
  if (!sent_lies) free(whole);
  return 1;
}

// ---- memory ----

static int shared; // pieces of memory that the program has of scaffe

// allocate serves an Alloc_mem of as much as calls are served with, where MPI_COMM_WORLD is set up: elsewhere memory that ranks share would
// need them all. A rank that has such memory and one that has not may use theirs in the same call.
static int allocate(MPI_Aint bytes, void *into) {
  if (bytes < here.set.min || !into) return 0;
  state *st = state_of(comm_world);
  void *m = st && st->handle ? lib.alloc(st->handle, (size_t)bytes) : NULL;
  if (!m) return 0;
  __atomic_add_fetch(&shared, 1, __ATOMIC_RELAXED);
  *(void **)into = m;
  return 1;
}

static int give_back(void *memory) {
  if (__atomic_load_n(&shared, __ATOMIC_RELAXED) == 0 || !memory) return 0;
  state *st = state_of(comm_world);
  if (!st || !st->handle || !lib.free(st->handle, memory)) return 0;
  __atomic_sub_fetch(&shared, 1, __ATOMIC_RELAXED);
  return 1;
}

// ---- beginning and end ----

// say_report says on rank 0 who served what. Forms that do not block have lines where they were called.
static void say_report(void) {
  enum { NUMBERS = 2 * SERVE_VERBS * (1 + PASSED_KINDS) };
  long long mine[NUMBERS], all[NUMBERS];
  memcpy(mine, counts, sizeof mine);
  if (REAL(PMPI_Reduce)(mine, all, NUMBERS, types[4].type, ops[SERVE_SUM], 0, comm_world) != MPI_SUCCESS || here.rank != 0) return;
  static const char *const names[SERVE_VERBS] = {"Reduce", "Bcast", "Allreduce", "Allgather", "Reduce_scatter", "Alltoall", "Gather", "Scatter"};
  fprintf(stderr, "scaffe: calls of all ranks\n");
  for (int v = 0; v < 2 * SERVE_VERBS; v++) {
    long long *n = all + v * (1 + PASSED_KINDS), any = v < SERVE_VERBS;
    for (int k = 0; k <= PASSED_KINDS; k++) any |= n[k];
    if (!any) continue;
    const char *name = names[v % SERVE_VERBS];
    char text[32];
    snprintf(text, sizeof text, v < SERVE_VERBS ? "MPI_%c%s" : "MPI_I%c%s", v < SERVE_VERBS ? name[0] : name[0] - 'A' + 'a', name + 1);
    fprintf(stderr, "scaffe: %-18s served %lld", text, n[0]);
    for (int k = 0; k < PASSED_KINDS; k++)
      if (n[1 + k]) fprintf(stderr, ", passed on %lld %s", n[1 + k], reasons[k]);
    fprintf(stderr, "\n");
  }
}

// finish is called first of all in MPI_Finalize, while MPI still runs: the attribute of
// MPI_COMM_SELF is deleted. Communicators are closed in the order in which they were set up, which is
// the same on all ranks that have them in common.
static int finish(MPI_Comm comm, int key, void *value, void *extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  if (!here.ready) return MPI_SUCCESS;
  inside++;
  here.ready = 0;
  state *oldest = NULL;
  while (here.open) { // turn the list round
    state *st = here.open;
    here.open = st->older;
    st->older = oldest;
    oldest = st;
  }
  for (; oldest; oldest = oldest->older) {
    requests_drain(oldest);
    lib.close(oldest->handle);
    oldest->handle = 0;
  }
  requests_end();
  if (here.set.report) say_report();
  REAL(PMPI_Group_free)(&here.world);
  inside--;
  return MPI_SUCCESS;
}

// A forked child has Go's memory but not its threads: whatever it calls is passed on.
static void forked(void) { here.ready = 0; }

static int64_t bytes_of(const char *text) {
  char *end;
  double n = strtod(text, &end);
  switch (*end) {
  case 'k': case 'K': return (int64_t)(n * 1024);
  case 'm': case 'M': return (int64_t)(n * 1048576);
  case 'g': case 'G': return (int64_t)(n * 1073741824);
  case 0: return (int64_t)n;
  }
  return -1;
}

static int is_set(const char *name) {
  const char *text = getenv(name);
  return text && *text && strcmp(text, "0") != 0;
}

// begin is called right after MPI_Init, by all ranks: those of the library below have the same
// interface as the one this was compiled with, or nothing is served.
static void begin(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int n = 0, same = 0;
  if (REAL(PMPI_Get_library_version)(text, &n) != MPI_SUCCESS) return;
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) same |= strncmp(text, libraries[i], strlen(libraries[i])) == 0;
  const char *off = getenv("SCAFFE_DROPIN"), *min = getenv("SCAFFE_MIN");
  if (!same) {
    fprintf(stderr, "scaffe: all calls are passed on: this is libscaffe-mpi.so for %s, and the program runs with %.60s\n", libraries[0], text);
    return;
  }
  find_handles();
  requests_find();
  REAL(PMPI_Comm_rank)(comm_world, &here.rank);
  settings s = {1, is_set("SCAFFE_REPORT"), !(min && *min), is_set("SCAFFE_EAGER"), MIN_DEFAULT};
  if (off && strcmp(off, "off") == 0) s.on = 0;
  if (min && *min && (s.min = bytes_of(min)) < 1) {
    if (here.rank == 0) fprintf(stderr, "scaffe: invalid SCAFFE_MIN=%s: want the least size of calls to serve, such as 64K; taking 64K\n", min);
    s.min = MIN_DEFAULT, s.tries = 1;
  }
  if (REAL(PMPI_Bcast)(&s, sizeof s, type_byte, 0, comm_world) != MPI_SUCCESS || !s.on) return;
  here.set = s;
  if (REAL(PMPI_Comm_group)(comm_world, &here.world) != MPI_SUCCESS) return;
  if (REAL(PMPI_Comm_create_keyval)(not_copied, forget, &here.keyval, NULL) != MPI_SUCCESS) return;
  if (REAL(PMPI_Comm_create_keyval)(not_copied, finish, &here.self_keyval, NULL) != MPI_SUCCESS) return;
  if (REAL(PMPI_Comm_set_attr)(comm_self, here.self_keyval, NULL) != MPI_SUCCESS) return;
  pthread_atfork(NULL, NULL, forked);
  here.ready = 1;
  state *st = s.eager ? state_of(comm_world) : NULL;
  if (st && !st->none) set_up(comm_world, st);
}

// ---- the program's calls ----

#define ENTER(ask)                                                                                                             \
  int rc = MPI_SUCCESS;                                                                                                        \
  if (here.ready && !inside) {                                                                                                 \
    inside = 1;                                                                                                                \
    int served_ = (ask);                                                                                                       \
    inside = 0;                                                                                                                \
    if (served_) return rc;                                                                                                    \
  }
#define PASS(call)                                                                                                             \
  trial *timed_ = timed;                                                                                                       \
  double begun_ = timed_ ? now() : 0;                                                                                          \
  timed = NULL;                                                                                                                \
  inside++;                                                                                                                    \
  rc = (call);                                                                                                                 \
  inside--;                                                                                                                    \
  if (timed_) shortest(&timed_->library, now() - begun_);                                                                      \
  return rc

#define WRAP(MPI)                                                                                                              \
  int MPI##_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {                  \
    ENTER(reduction(SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, &rc))                                               \
    PASS(REAL(MPI##_Allreduce)(send, recv, count, type, op, comm));                                                            \
  }                                                                                                                            \
  int MPI##_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {           \
    ENTER(reduction(SERVE_REDUCE, send, recv, count, type, op, root, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce)(send, recv, count, type, op, root, comm));                                                         \
  }                                                                                                                            \
  int MPI##_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm) {                                          \
    ENTER(broadcast(buf, count, type, root, comm, &rc))                                                                        \
    PASS(REAL(MPI##_Bcast)(buf, count, type, root, comm));                                                                     \
  }                                                                                                                            \
  int MPI##_Allgather(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, MPI_Comm comm) {\
    ENTER(allgather(send, count, sent, recv, (list){.each = each}, NULL, type, comm, &rc))                                     \
    PASS(REAL(MPI##_Allgather)(send, count, sent, recv, each, type, comm));                                                    \
  }                                                                                                                            \
  int MPI##_Allgatherv(const void *send, int count, MPI_Datatype sent, void *recv, const int counts[], const int places[], MPI_Datatype type,\
                       MPI_Comm comm) {                                                                                        \
    list at = {.ints = places};                                                                                                \
    ENTER(counts && places && allgather(send, count, sent, recv, (list){.ints = counts}, &at, type, comm, &rc))                \
    PASS(REAL(MPI##_Allgatherv)(send, count, sent, recv, counts, places, type, comm));                                         \
  }                                                                                                                            \
  int MPI##_Reduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {    \
    ENTER(counts && reduce_scatter(send, recv, (list){.ints = counts}, type, op, comm, &rc))                                   \
    PASS(REAL(MPI##_Reduce_scatter)(send, recv, counts, type, op, comm));                                                      \
  }                                                                                                                            \
  int MPI##_Reduce_scatter_block(const void *send, void *recv, int each, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {        \
    ENTER(reduce_scatter(send, recv, (list){.each = each}, type, op, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce_scatter_block)(send, recv, each, type, op, comm));                                                  \
  }                                                                                                                            \
  int MPI##_Alltoall(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, MPI_Comm comm) { \
    ENTER(alltoall(send, count, sent, recv, each, type, comm, &rc))                                                            \
    PASS(REAL(MPI##_Alltoall)(send, count, sent, recv, each, type, comm));                                                     \
  }                                                                                                                            \
  int MPI##_Gather(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(gather(send, count, sent, recv, each, type, root, comm, &rc))                                                        \
    PASS(REAL(MPI##_Gather)(send, count, sent, recv, each, type, root, comm));                                                 \
  }                                                                                                                            \
  int MPI##_Scatter(const void *send, int count, MPI_Datatype sent, void *recv, int each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(scatter(send, count, sent, recv, each, type, root, comm, &rc))                                                       \
    PASS(REAL(MPI##_Scatter)(send, count, sent, recv, each, type, root, comm));                                                \
  }                                                                                                                            \
  int MPI##_Alloc_mem(MPI_Aint bytes, MPI_Info info, void *into) {                                                             \
    ENTER(allocate(bytes, into))                                                                                               \
    PASS(REAL(MPI##_Alloc_mem)(bytes, info, into));                                                                            \
  }                                                                                                                            \
  int MPI##_Free_mem(void *memory) {                                                                                           \
    ENTER(give_back(memory))                                                                                                   \
    PASS(REAL(MPI##_Free_mem)(memory));                                                                                        \
  }                                                                                                                            \
  int MPI##_Init(int *argc, char ***argv) {                                                                                    \
    int first = !inside;                                                                                                       \
    inside++;                                                                                                                  \
    int rc = REAL(MPI##_Init)(argc, argv);                                                                                     \
    if (first && rc == MPI_SUCCESS) begin();                                                                                   \
    inside--;                                                                                                                  \
    return rc;                                                                                                                 \
  }                                                                                                                            \
  int MPI##_Init_thread(int *argc, char ***argv, int required, int *provided) {                                                \
    int first = !inside;                                                                                                       \
    inside++;                                                                                                                  \
    int rc = REAL(MPI##_Init_thread)(argc, argv, required, provided);                                                          \
    if (first && rc == MPI_SUCCESS) begin();                                                                                   \
    inside--;                                                                                                                  \
    return rc;                                                                                                                 \
  }

#if MPI_VERSION >= 4
// MPI 4's forms with large counts.
#define WRAP_LARGE(MPI)                                                                                                        \
  int MPI##_Allreduce_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {          \
    ENTER(reduction(SERVE_ALLREDUCE, send, recv, count, type, op, 0, comm, &rc))                                               \
    PASS(REAL(MPI##_Allreduce_c)(send, recv, count, type, op, comm));                                                          \
  }                                                                                                                            \
  int MPI##_Reduce_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {   \
    ENTER(reduction(SERVE_REDUCE, send, recv, count, type, op, root, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce_c)(send, recv, count, type, op, root, comm));                                                       \
  }                                                                                                                            \
  int MPI##_Bcast_c(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {                                  \
    ENTER(broadcast(buf, count, type, root, comm, &rc))                                                                        \
    PASS(REAL(MPI##_Bcast_c)(buf, count, type, root, comm));                                                                   \
  }                                                                                                                            \
  int MPI##_Allgather_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, MPI_Comm comm) {\
    ENTER(allgather(send, count, sent, recv, (list){.each = each}, NULL, type, comm, &rc))                                     \
    PASS(REAL(MPI##_Allgather_c)(send, count, sent, recv, each, type, comm));                                                  \
  }                                                                                                                            \
  int MPI##_Allgatherv_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, const MPI_Count counts[], const MPI_Aint places[],\
                         MPI_Datatype type, MPI_Comm comm) {                                                                   \
    list at = {.places = places};                                                                                              \
    ENTER(counts && places && allgather(send, count, sent, recv, (list){.counts = counts}, &at, type, comm, &rc))              \
    PASS(REAL(MPI##_Allgatherv_c)(send, count, sent, recv, counts, places, type, comm));                                       \
  }                                                                                                                            \
  int MPI##_Reduce_scatter_c(const void *send, void *recv, const MPI_Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {\
    ENTER(counts && reduce_scatter(send, recv, (list){.counts = counts}, type, op, comm, &rc))                                 \
    PASS(REAL(MPI##_Reduce_scatter_c)(send, recv, counts, type, op, comm));                                                    \
  }                                                                                                                            \
  int MPI##_Reduce_scatter_block_c(const void *send, void *recv, MPI_Count each, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {\
    ENTER(reduce_scatter(send, recv, (list){.each = each}, type, op, comm, &rc))                                               \
    PASS(REAL(MPI##_Reduce_scatter_block_c)(send, recv, each, type, op, comm));                                                \
  }                                                                                                                            \
  int MPI##_Alltoall_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, MPI_Comm comm) {\
    ENTER(alltoall(send, count, sent, recv, each, type, comm, &rc))                                                            \
    PASS(REAL(MPI##_Alltoall_c)(send, count, sent, recv, each, type, comm));                                                   \
  }                                                                                                                            \
  int MPI##_Gather_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(gather(send, count, sent, recv, each, type, root, comm, &rc))                                                        \
    PASS(REAL(MPI##_Gather_c)(send, count, sent, recv, each, type, root, comm));                                               \
  }                                                                                                                            \
  int MPI##_Scatter_c(const void *send, MPI_Count count, MPI_Datatype sent, void *recv, MPI_Count each, MPI_Datatype type, int root, MPI_Comm comm) {\
    ENTER(scatter(send, count, sent, recv, each, type, root, comm, &rc))                                                       \
    PASS(REAL(MPI##_Scatter_c)(send, count, sent, recv, each, type, root, comm));                                              \
  }
#else
#define WRAP_LARGE(MPI)
#endif

#pragma GCC visibility push(default)
CATCH(WRAP)
CATCH(WRAP_LARGE)
#pragma GCC visibility pop
