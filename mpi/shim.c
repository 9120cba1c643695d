//go:build mpi

#define _GNU_SOURCE
#include "handles.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static pthread_t thread;
static int running, level;
static int attached; // others started MPI: its calls are theirs, on whatever thread they make them

#define STR_(x) #x
#define STR(x) STR_(x)

const char *scaffe_built(void) {
#if defined(OMPI_MAJOR_VERSION)
  return "Open MPI " STR(OMPI_MAJOR_VERSION) "." STR(OMPI_MINOR_VERSION) "." STR(OMPI_RELEASE_VERSION);
#elif defined(MVAPICH2_VERSION)
  return "MVAPICH2 " MVAPICH2_VERSION;
#elif defined(MVAPICH_VERSION)
  return "MVAPICH " MVAPICH_VERSION;
#elif defined(I_MPI_VERSION)
  return "Intel MPI " I_MPI_VERSION;
#elif defined(MPICH_VERSION)
  return "MPICH " MPICH_VERSION;
#else
  return "MPI " STR(MPI_VERSION) "." STR(MPI_SUBVERSION);
#endif
}

// The standard allows this one before MPI_Init.
int scaffe_library(char *text, int cap) {
  char buf[MPI_MAX_LIBRARY_VERSION_STRING];
  int n = 0;
  TRY(PMPI_Get_library_version(buf, &n));
  if (n >= cap) n = cap - 1;
  memcpy(text, buf, n);
  text[n] = 0;
  return MPI_SUCCESS;
}

int scaffe_started(void) {
  int a = 0, b = 0;
  PMPI_Initialized(&a);
  PMPI_Finalized(&b);
  return a || b;
}

static struct sigaction before[65];

// keep_signals records how the Go runtime handles each signal; restore_signals
// undoes what MPI_Init replaced: MPICH's handler of SIGUSR1 calls Go's on the
// wrong stack and with too few arguments, which crashes the process.
static void keep_signals(void) {
  for (int s = 1; s <= 64; s++)
    if (sigaction(s, NULL, &before[s]) != 0) before[s].sa_handler = SIG_DFL;
}

static void restore_signals(void) {
  for (int s = 1; s <= 64; s++) {
    struct sigaction now;
    if (before[s].sa_handler == SIG_DFL || before[s].sa_handler == SIG_IGN) continue;
    if (sigaction(s, NULL, &now) == 0 && now.sa_handler != before[s].sa_handler)
      sigaction(s, &before[s], NULL);
  }
}

void scaffe_before_init(void) { keep_signals(); }

static int adopt(MPI_Comm comm, scaffe_comm **out) {
  scaffe_comm *c = malloc(sizeof *c);
  if (!c) return SCAFFE_NO_MEMORY;
  c->comm = comm;
  *out = c;
  return PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

// cuda_aware returns 1, 0, or -1 if there is no way to ask. The functions are
// extensions that not every build of a library has, so they are looked up at run
// time.
static int cuda_aware(void) {
  int (*ompi)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
  if (ompi) return ompi();
  int (*mpich)(int, int *) = (int (*)(int, int *))dlsym(RTLD_DEFAULT, "MPIX_GPU_query_support");
  int yes = 0;
  if (mpich && mpich(0 /* MPIX_GPU_SUPPORT_CUDA */, &yes) == MPI_SUCCESS) return yes;
  return -1;
}

// Open MPI's own way to say whether it yields, nil in other libraries, or where it does not yield anyway.
static bool (*set_yield)(bool);

static void find_yield(void) {
  bool (*set)(bool) = (bool (*)(bool))dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle");
  if (!set || set_yield) return;
  bool yields = set(false);
  set(yields);
  if (yields) set_yield = set;
}

void scaffe_keep_core(int keep) {
  if (set_yield) set_yield(!keep);
}

// lowest_on_node finds the lowest rank that shares this rank's machine.
static int lowest_on_node(MPI_Comm comm, int rank, int *lowest) {
  MPI_Comm node;
  TRY(PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node));
  *lowest = rank;
  TRY(PMPI_Bcast(lowest, 1, MPI_INT, 0, node));
  return PMPI_Comm_free(&node);
}

// set_up duplicates a communicator and describes the world that it is.
static int set_up(MPI_Comm from, scaffe_world *w) {
  MPI_Comm comm;
  TRY(PMPI_Comm_dup(from, &comm));
  TRY(adopt(comm, &w->comm));
  find_yield();
  TRY(PMPI_Get_version(&w->major, &w->minor));
  TRY(PMPI_Comm_rank(comm, &w->rank));
  TRY(PMPI_Comm_size(comm, &w->size));
  TRY(PMPI_Query_thread(&level));
  w->level = level == MPI_THREAD_MULTIPLE     ? 3
             : level == MPI_THREAD_SERIALIZED ? 2
             : level == MPI_THREAD_FUNNELED   ? 1
                                              : 0;
  int *ub = NULL, found = 0;
  TRY(PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &ub, &found));
  w->tag_ub = found ? *ub : 32767; // the least that the standard allows
  w->cuda = cuda_aware();
  return lowest_on_node(comm, w->rank, &w->lowest);
}

int scaffe_start(scaffe_world *w) {
  thread = pthread_self();
  running = 1;
  restore_signals();
  TRY(PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  return set_up(MPI_COMM_WORLD, w);
}

int scaffe_attach(const void *comm, scaffe_world *w) {
  MPI_Comm from;
  memcpy(&from, comm, sizeof from);
  attached = running = 1;
  return set_up(from, w);
}

int scaffe_gather(scaffe_comm *c, const void *one, int bytes, void *all) {
  return PMPI_Allgather(one, bytes, MPI_BYTE, all, bytes, MPI_BYTE, c->comm);
}

// Returns 0 if that is not possible. The caller makes sure that no other thread calls
// meanwhile.
int scaffe_move_thread(void) {
  if (attached) return 1;
  if (!running || level < MPI_THREAD_SERIALIZED) return 0;
  thread = pthread_self();
  return 1;
}

int scaffe_on_thread(void) { return attached || (running && pthread_equal(thread, pthread_self())); }

int scaffe_abort(int code) {
  ON_THREAD;
  return PMPI_Abort(MPI_COMM_WORLD, code);
}

void scaffe_error(int code, char *text, int cap, const char **name) {
  static const struct {
    int class;
    const char *name;
  } names[] = {
      {MPI_ERR_BUFFER, "BUFFER"},     {MPI_ERR_COUNT, "COUNT"},       {MPI_ERR_TYPE, "TYPE"},
      {MPI_ERR_TAG, "TAG"},           {MPI_ERR_COMM, "COMM"},         {MPI_ERR_RANK, "RANK"},
      {MPI_ERR_REQUEST, "REQUEST"},   {MPI_ERR_ROOT, "ROOT"},         {MPI_ERR_GROUP, "GROUP"},
      {MPI_ERR_OP, "OP"},             {MPI_ERR_ARG, "ARG"},           {MPI_ERR_UNKNOWN, "UNKNOWN"},
      {MPI_ERR_TRUNCATE, "TRUNCATE"}, {MPI_ERR_OTHER, "OTHER"},       {MPI_ERR_INTERN, "INTERN"},
      {MPI_ERR_PENDING, "PENDING"},   {MPI_ERR_NO_MEM, "NO_MEM"},
#ifdef MPIX_ERR_PROC_FAILED
      {MPIX_ERR_PROC_FAILED, "PROC_FAILED"},
#endif
  };
  *name = "OTHER";
  text[0] = 0;
  switch (code) {
  case SCAFFE_WRONG_THREAD:
    *name = "WRONG_THREAD";
    strncat(text, "called on an OS thread other than MPI's, or while MPI is not running", cap - 1);
    return;
  case SCAFFE_NO_MEMORY:
    *name = "NO_MEM";
    strncat(text, "out of memory", cap - 1);
    return;
  case SCAFFE_NO_REQUEST:
    *name = "REQUEST";
    strncat(text, "no such request is under way", cap - 1);
    return;
  }
  char buf[MPI_MAX_ERROR_STRING] = "";
  int n = 0, class = MPI_ERR_OTHER;
  if (PMPI_Error_string(code, buf, &n) == MPI_SUCCESS) strncat(text, buf, cap - 1);
  PMPI_Error_class(code, &class);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].class == class) *name = names[i].name;
}

int scaffe_comm_dup(scaffe_comm *c, scaffe_comm **out) {
  ON_THREAD;
  MPI_Comm comm;
  TRY(PMPI_Comm_dup(c->comm, &comm));
  return adopt(comm, out);
}

int scaffe_comm_split(scaffe_comm *c, int color, int key, scaffe_comm **out) {
  ON_THREAD;
  MPI_Comm comm;
  TRY(PMPI_Comm_split(c->comm, color < 0 ? MPI_UNDEFINED : color, key, &comm));
  *out = NULL;
  return comm == MPI_COMM_NULL ? MPI_SUCCESS : adopt(comm, out);
}

int scaffe_comm_free(scaffe_comm *c) {
  ON_THREAD;
  int rc = PMPI_Comm_free(&c->comm);
  free(c);
  return rc;
}

int scaffe_comm_rank(scaffe_comm *c, int *rank, int *size) {
  ON_THREAD;
  TRY(PMPI_Comm_rank(c->comm, rank));
  return PMPI_Comm_size(c->comm, size);
}
