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

// The libraries with the interface of the one that this is compiled for, as they call themselves.
#if defined(OMPI_MAJOR_VERSION)
static const char *const libraries[] = {"Open MPI"};
#else
static const char *const libraries[] = {"MPICH", "MVAPICH", "Intel"};
#endif

// A call that takes less is passed on without asking: starting scaffe would not pay.
#define MIN_DEFAULT (64 << 10)
struct here here;
struct calls counts[2 * SERVE_VERBS];
__thread int inside;

static const char *const reasons[PASSED_KINDS] = {
    "small", "of other types or operations", "on communicators that are not served", "before set-up", "where the library is as fast, or to find out"};

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
  if (REAL(PMPI_Allreduce)(&mine, &first, 1, type_int, ops[SERVE_MIN], comm) != MPI_SUCCESS) return 0;
  if (why && first == here.rank && (!told || here.set.report)) {
    told = 1;
    fprintf(stderr, "scaffe: rank %d: calls are passed on to the MPI library: %s\n", here.rank, why);
  }
  return first == INT_MAX;
}

void set_up(MPI_Comm comm, state *st) {
  char why[512] = "";
  st->none = 1;
  if (!agreed(comm, load(), lib.why)) return;
  uintptr_t h = lib.open(&comm, why, sizeof why);
  if (!agreed(comm, h != 0, why)) return; // what others have opened stays as it is: those who failed would not close it with them
  int starts = lib.starts(h);
  st->starts = agreed(comm, starts > 0, NULL);
  st->moves = agreed(comm, starts > 1, NULL);
  st->handle = h, st->none = 0;
  pthread_mutex_lock(&listing);
  st->older = here.open, here.open = st;
  pthread_mutex_unlock(&listing);
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

// ---- beginning and end ----

// say_report says on rank 0 who served what. Forms that do not block have lines where they were called.
static void say_report(void) {
  enum { NUMBERS = 2 * SERVE_VERBS * (1 + PASSED_KINDS) };
  long long mine[NUMBERS], all[NUMBERS];
  memcpy(mine, counts, sizeof mine);
  if (REAL(PMPI_Reduce)(mine, all, NUMBERS, type_long_long, ops[SERVE_SUM], 0, comm_world) != MPI_SUCCESS || here.rank != 0) return;
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

// finish is called before the library's MPI_Finalize: from there on MPICH takes no locks, so a thread of an engine's that is in a call then would leave its lock
// behind. Communicators are closed in the order in which they were set up, which is
// the same on all ranks that have them in common.
static void finish(void) {
  if (!here.ready) return;
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
}

// finish_late is called first of all in an MPI_Finalize that was not caught: the attribute of MPI_COMM_SELF is deleted.
static int finish_late(MPI_Comm comm, int key, void *value, void *extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  finish();
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
  int ranks = 1;
  REAL(PMPI_Comm_size)(comm_world, &ranks);
  here.few = s.min / ranks;
  if (REAL(PMPI_Comm_group)(comm_world, &here.world) != MPI_SUCCESS) return;
  if (REAL(PMPI_Comm_create_keyval)(not_copied, forget, &here.keyval, NULL) != MPI_SUCCESS) return;
  if (REAL(PMPI_Comm_create_keyval)(not_copied, finish_late, &here.self_keyval, NULL) != MPI_SUCCESS) return;
  if (REAL(PMPI_Comm_set_attr)(comm_self, here.self_keyval, NULL) != MPI_SUCCESS) return;
  pthread_atfork(NULL, NULL, forked);
  here.ready = 1;
  state *st = s.eager ? state_of(comm_world) : NULL;
  if (st && !st->none) set_up(comm_world, st);
}

// ---- the program's calls ----

#define WRAP(MPI)                                                                                                              \
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
  }                                                                                                                            \
  int MPI##_Finalize(void) {                                                                                                   \
    finish();                                                                                                                  \
    return REAL(MPI##_Finalize)();                                                                                             \
  }

#pragma GCC visibility push(default)
CATCH(WRAP)
#pragma GCC visibility pop
