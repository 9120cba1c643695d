// What the files of libscaffe-mpi.so share.
#ifndef SCAFFE_INTERPOSE_H
#define SCAFFE_INTERPOSE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "serve.h"
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>

// Sums of floating-point numbers on more than two ranks have the bits of the order in which they are added, and MPI wants
// the same in every run: where nothing says from what size on calls are served, these are from this one on.
#define MIN_FLOATS (8 << 20)
#define CHOICES 64 // remembered of a communicator
#define CLASSES 32 // of sizes, by powers of two

// What a program's rank 0 says for all.
typedef struct {
  int on;
  int report;
  int tries;   // SCAFFE_MIN is not set: what is faster decides, not the model alone
  int eager;   // MPI_COMM_WORLD is set up in MPI_Init
  int64_t min; // bytes
} settings;

extern struct here {
  settings set;
  int ready; // between MPI_Init and MPI_Finalize, in the process that called MPI_Init
  int keyval, self_keyval;
  int rank;
  int64_t few; // bytes of a rank: where each of all has less a call is small
  MPI_Group world;
  struct state *open; // newest first
} here;

// Why a call was passed on.
enum { PASSED_SMALL, PASSED_TYPE, PASSED_COMM, PASSED_FIRST, PASSED_CHOICE, PASSED_KINDS };

// The calls of each verb, then of its forms that do not block.
extern struct calls {
  long long served, passed[PASSED_KINDS];
} counts[2 * SERVE_VERBS];

int passed(int verb, int why); // counts it, and returns 0

// trial is how calls of one kind and about one size are tried.
typedef struct {
  int64_t calls, from;    // how many there were; at how many both are tried, or were last
  int64_t bytes;          // of the call that is timed, 0: none
  int yes;                // scaffe serves them
  double library, scaffe; // the shortest of each, in seconds a byte
} trial;

// state is a communicator's.
typedef struct state {
  int rank, size;
  trial trials[SERVE_VERBS][CLASSES];
  int calls;           // large ones so far
  int none;            // it is not served
  uintptr_t handle;    // 0: not set up
  int starts;          // it is, for calls that do not block as well
  int moves;           // and those that add nothing gain too
  struct state *older; // of those that are set up
  struct {
    int64_t bytes;
    signed char verb, type, yes;
  } choice[CHOICES];
} state;

state *state_of(MPI_Comm comm);
void set_up(MPI_Comm comm, state *st); // by all ranks of a communicator together: all serve it afterwards, or none
int failed(state *st, MPI_Comm comm); // tells the communicator's error handler

extern __thread int inside; // within a call of scaffe's or the library's, on this thread

// CATCH defines what the program calls by a macro: in a library that is preloaded by both names, of which PMPI_X are called by Open MPI's
// Fortran and by tools; in an archive, which the linker reads before the MPI library, by MPI_X alone.
#ifdef SCAFFE_ARCHIVE
#define CATCH(wrap) wrap(MPI)
#else
#define CATCH(wrap) wrap(MPI) wrap(PMPI)
#endif

// REAL is a function of the library's, or of a tool's between this library and that. Nothing of MPI's is
// linked: shells have none, and Python opens it where this library's names do not reach.
void *must(const char *name);
#define REAL(name) (__extension__({ static __typeof__(name) *f_; if (!f_) f_ = (__typeof__(name) *)must(#name); f_; }))

// look returns what a name means from a place on: RTLD_NEXT, behind this library, or RTLD_DEFAULT.
void *look(void *from, const char *name);

// The library's handles. Open MPI's are addresses of variables, which the program may have moved to its own data (a copy
// relocation); MPICH's are numbers.
#if defined(OMPI_MAJOR_VERSION)
#define HANDLE(mpi, ompi) (__typeof__(mpi))look(RTLD_DEFAULT, "ompi_" ompi)
#else
#define HANDLE(mpi, ompi) mpi
#endif
extern MPI_Comm comm_world, comm_self, comm_null;
extern MPI_Datatype type_null, type_byte, type_int, type_long_long, type_double;
extern MPI_Op ops[SERVE_OPS]; // by SERVE_SUM, ...
void find_handles(void);

// What is known of a named type whose elements lie side by side.
#define NONE (-1)
enum { ARITHMETIC = 1, BITS = 2, LOGIC = 4 };
enum exact { NEVER, OF_TWO, ALWAYS };
static inline int is_exact(enum exact e, int ranks) { return e == ALWAYS || (e == OF_TWO && ranks == 2); }
struct named {
  MPI_Datatype type;
  int code, size;  // what the kernels take its elements for; bytes
  int combined_by; // which operators the standard has for it
};

const struct named *named(MPI_Datatype type);             // NULL of others
int operation(const struct named *type, MPI_Op op);       // its number in serve.h, NONE of one that the kernels lack for the type
enum exact exactness(int code, int op);                   // of how many ranks a result is the same whoever adds, in whatever order
int64_t signature(MPI_Datatype type, int *side_by_side);  // the bytes of an element, 0 of none
int element_size(int code);                               // bytes, by SERVE_F32, ...

// pack and unpack copy elements of a type that do not lie side by side, to and from bytes that do.
int pack(const void *buf, int64_t count, MPI_Datatype type, void *into, int64_t bytes, MPI_Comm comm);
int unpack(const void *from, int64_t bytes, void *buf, int64_t count, MPI_Datatype type, MPI_Comm comm);

// libscaffe.so's functions.
extern struct lib {
  int tried;
  char why[512];
  serve_open_fn *open;
  serve_chooses_fn *chooses;
  serve_do_fn *call;
  serve_starts_fn *starts;
  serve_prepare_fn *prepare;
  serve_start_fn *start;
  serve_drop_fn *drop;
  serve_alloc_fn *alloc;
  serve_free_fn *free;
  serve_close_fn *close;
} lib;

// device.c stages memory of a GPU.
typedef struct {
  void *device, *host; // NULL of what lies on the host already
  int64_t bytes;
  int part; // host is a part of the other buffer's
} staged;
typedef struct {
  staged send, recv;
  int failed;
} staging;
int stage(const state *st, serve_call *c, staging *s);  // gives a call memory of the host's in place of a GPU's
int stage_down(const staging *s);                       // copies what is given, before the call
int stage_up(const staging *s);                         // copies what has come, after it
void unstage(staging *s);
int move(void *to, const void *from, size_t bytes);     // memcpy, one of the two may be a GPU's

// requests.c serves calls that do not block.
void requests_find(void);         // the library's handles
void requests_drain(state *st);   // returns when none of a communicator's is under way
void requests_end(void);          // in MPI_Finalize

#endif
