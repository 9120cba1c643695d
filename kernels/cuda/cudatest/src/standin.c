// A library that answers as libcuda.so.1 does, for machines without one.
//
// SCAFFE_STANDIN says what it is like, in words that spaces separate:
//
//   devices=N      how many GPUs there are; 1
//   version=V      what cuDriverGetVersion answers; 13000
//   mode=M         the GPUs' compute mode; 0
//   peers=0        GPUs cannot reach each other's memory; 1, they can once that is asked for
//   owner=FILE     in mode 3, who has a lock of FILE has the GPUs until it ends: others get CUDA_ERROR_DEVICE_UNAVAILABLE; none, and all have them
//   mps=1          an MPS server has the GPUs; 0. It has them, too, where CUDA_MPS_PIPE_DIRECTORY has a file control
//   fail=F:N:CODE  the Nth call of the function F, and all that follow, answer CODE
//   delay=US       what is on a stream begins after up to so many microseconds; 200
//   seed=N         of the delays; 1
//   broken=CODE    what the device has failed with; 0, not
//   hold=KERNEL    launches of the kernel do not begin, nor what follows on their streams; none, that ends it
//   visible=1      the host reaches device memory that is allocated from now on, as a CUDA-aware MPI library does; 0
//   pools=1        device memory is of no context, as what cuMemAllocAsync returns; 0
//   queues=N       a GPU's streams that are made from now on share so many work queues in turn, each of which does one thing after
//                  the other; 0, each has its own
//
//   cublas=V       the version of the cuBLAS that it is, too (cublas.c); 120405
//   cudnn=V        that of cuDNN (cudnn.c), as cudnnGetVersion answers; 90100
//
// Preloaded, it says in the MPI library's place that this one is CUDA-aware.
//
// standin_tell changes mode, owner, peers, fail, delay, seed, broken, hold, queues, cublas and cudnn while it runs; fail=none ends all failures.
//
// It is strict where a GPU may be lucky. Each stream is a thread, or several are, which does what it is given
// after a delay, and nothing before: what a program does not wait for it does not find. Calls
// want a context that is current on the calling thread. Device memory faults when the host
// touches it, is 0xcb when it is new, and every access of a kernel or copy has to lie within one
// allocation: else the device has failed (CUDA_ERROR_ILLEGAL_ADDRESS), and answers that from then on.
// Memory can be freed while it is used, which a driver would wait for; but not while another process has it open,
// which fails the device. A GPU's streams reach the memory of another one where that was asked for.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../kernels.cu"
#include "../../layers.cu"

#define API __attribute__((visibility("default")))

enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  DEVICE_UNAVAILABLE = 46,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  MAP_FAILED_ = 205,
  NO_PEER_ACCESS = 217,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  ENABLED_ALREADY = 704,
};

enum { MOST_QUEUES = 32 };

static struct {
  int devices, version, mode, peers, mps, initialized, delay, seed, broken, queues, visible, pools, cublas, cudnn;
  size_t used;
  char hold[64], owner[256];
  struct {
    char function[64];
    int calls, from, code;
  } fail[8];
  int fails;
} self = {.devices = 1, .version = 13000, .peers = 1, .delay = 200, .seed = 1, .cublas = 120405, .cudnn = 90100};

static const size_t device_memory = (size_t)1 << 30;

// One lock for all that follows, and one signal for streams that wait: that an event has passed, or nothing is held.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

// outstanding is how much of what streams were given they have not ended; when it comes to none, they say so by idle.
static long outstanding;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;

static void tell(const char *text) {
  char copy[1024], *rest = copy, *word;
  snprintf(copy, sizeof copy, "%s", text);
  while ((word = strsep(&rest, " "))) {
    int a, b;
    char name[64];
    if (!*word) continue;
    if (!strcmp(word, "fail=none")) self.fails = 0;
    else if (sscanf(word, "hold=%63[a-z0-9_]", name) == 1) strcpy(self.hold, strcmp(name, "none") ? name : ""), pthread_cond_broadcast(&changed);
    else if (sscanf(word, "broken=%d", &a) == 1) self.broken = a;
    else if (sscanf(word, "queues=%d", &a) == 1 && a >= 0 && a <= MOST_QUEUES) self.queues = a;
    else if (sscanf(word, "delay=%d", &a) == 1) self.delay = a;
    else if (sscanf(word, "seed=%d", &a) == 1) self.seed = a;
    else if (sscanf(word, "devices=%d", &a) == 1) self.devices = a;
    else if (sscanf(word, "version=%d", &a) == 1) self.version = a;
    else if (sscanf(word, "mode=%d", &a) == 1) self.mode = a;
    else if (sscanf(word, "owner=%255s", self.owner) == 1) continue;
    else if (sscanf(word, "cublas=%d", &a) == 1) self.cublas = a;
    else if (sscanf(word, "cudnn=%d", &a) == 1) self.cudnn = a;
    else if (sscanf(word, "peers=%d", &a) == 1) self.peers = a;
    else if (sscanf(word, "mps=%d", &a) == 1) self.mps = a;
    else if (sscanf(word, "visible=%d", &a) == 1) self.visible = a;
    else if (sscanf(word, "pools=%d", &a) == 1) self.pools = a;
    else if (self.fails < 8 && sscanf(word, "fail=%63[A-Za-z0-9_]:%d:%d", name, &a, &b) == 3) {
      strcpy(self.fail[self.fails].function, name);
      self.fail[self.fails].calls = 0;
      self.fail[self.fails].from = a;
      self.fail[self.fails++].code = b;
    } else {
      fprintf(stderr, "standin: SCAFFE_STANDIN: \"%s\" is not understood\n", word);
      abort();
    }
  }
}

__attribute__((constructor)) static void configure(void) {
  const char *text = getenv("SCAFFE_STANDIN");
  if (text) tell(text);
}

// What Open MPI has to ask with, and MPICH.
API int MPIX_Query_cuda_support(void) { return 1; }

API int MPIX_GPU_query_support(int kind, int *yes) {
  *yes = 1;
  return kind; // of CUDA: 0, which is MPI_SUCCESS
}

// A device that is told to be whole again first ends what it was given: work that nobody waits for any more would break it
// afterwards. Work that is held stays.
API void standin_tell(const char *text) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 60;
  pthread_mutex_lock(&lock);
  if (strstr(text, "broken=0"))
    while (outstanding && !*self.hold)
      if (pthread_cond_timedwait(&idle, &lock, &until)) {
        fprintf(stderr, "standin: streams have not ended %ld operations within 60 s\n", outstanding);
        abort();
      }
  tell(text);
  pthread_mutex_unlock(&lock);
}

// called counts a call, and returns what it is to fail with.
static int called(const char *function) {
  int code = OK;
  if (!__atomic_load_n(&self.fails, __ATOMIC_ACQUIRE)) return OK;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < self.fails && !code; i++)
    if (!strcmp(self.fail[i].function, function) && ++self.fail[i].calls >= self.fail[i].from) code = self.fail[i].code;
  pthread_mutex_unlock(&lock);
  return code;
}

// Every function begins with one of these: CALL wants cuInit before it, WORK a current context and
// a device that has not failed.
#define ANY(f)                    \
  do {                            \
    int code_ = called(f);        \
    if (code_) return code_;      \
  } while (0)
#define CALL(f)                                   \
  do {                                            \
    ANY(f);                                       \
    if (!self.initialized) return NOT_INITIALIZED; \
  } while (0)
static __thread void *current;
#define WORK(f)                                   \
  do {                                            \
    CALL(f);                                      \
    if (!current) return INVALID_CONTEXT;         \
    int broken_ = __atomic_load_n(&self.broken, __ATOMIC_ACQUIRE); \
    if (broken_) return broken_;                  \
  } while (0)
#define DEVICE(d) \
  if ((d) < 0 || (d) >= self.devices) return INVALID_DEVICE

API int cuInit(unsigned flags) {
  ANY("cuInit");
  if (flags) return INVALID_VALUE;
  self.initialized = 1;
  return OK;
}

API int cuDriverGetVersion(int *v) {
  ANY("cuDriverGetVersion");
  *v = self.version;
  return OK;
}

static const struct {
  int code;
  const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

API int cuGetErrorName(int code, const char **p) {
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) return *p = errors[i].name, OK;
  return *p = NULL, INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **p) {
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) return *p = errors[i].text, OK;
  return *p = NULL, INVALID_VALUE;
}

API int cuDeviceGetCount(int *n) {
  CALL("cuDeviceGetCount");
  *n = self.devices;
  return OK;
}

API int cuDeviceGet(int *d, int i) {
  CALL("cuDeviceGet");
  DEVICE(i);
  *d = i;
  return OK;
}

API int cuDeviceGetName(char *s, int n, int d) {
  CALL("cuDeviceGetName");
  DEVICE(d);
  snprintf(s, n, "stand-in %d", d);
  return OK;
}

API int cuDeviceGetUuid(char *id, int d) {
  CALL("cuDeviceGetUuid");
  DEVICE(d);
  memset(id, 0x10 + d, 16);
  return OK;
}

API int cuDeviceGetPCIBusId(char *s, int n, int d) {
  CALL("cuDeviceGetPCIBusId");
  DEVICE(d);
  return snprintf(s, n, "0000:%02x:00.0", 0x3b + d) < n ? OK : INVALID_VALUE;
}

API int cuDeviceTotalMem_v2(size_t *n, int d) {
  CALL("cuDeviceTotalMem_v2");
  DEVICE(d);
  *n = device_memory;
  return OK;
}

// served reports whether an MPS server has the GPUs.
static int served(void) {
  const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
  char name[4096];
  return self.mps || (pipes && snprintf(name, sizeof name, "%s/control", pipes) < (int)sizeof name && !access(name, F_OK));
}

API int cuDeviceGetAttribute(int *v, int attribute, int d) {
  CALL("cuDeviceGetAttribute");
  DEVICE(d);
  switch (attribute) {
  case 16: *v = 4; break;         // multiprocessors
  case 20: *v = self.mode; break; // compute mode
  case 75: *v = 8; break;         // compute capability, major
  case 76: *v = 0; break;         // and minor
  case 133: *v = served(); break; // MPS
  default: return INVALID_VALUE;
  }
  return OK;
}

// Contexts.

static int contexts[16];
static int reaches[16][16]; // which memory the streams of a context may touch besides its own

static int number(void *context) { return (int *)context - contexts; }

// taken takes a GPU in exclusive mode for this process, and reports whether another one has it.
static int taken(int d) {
  static int file = -1;
  if (self.mode != 3 || !*self.owner || served()) return 0;
  struct flock one = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = d, .l_len = 1};
  pthread_mutex_lock(&lock);
  if (file < 0) file = open(self.owner, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  int by = file < 0 || fcntl(file, F_OFD_SETLK, &one);
  pthread_mutex_unlock(&lock);
  return by;
}

API int cuDevicePrimaryCtxRetain(void **c, int d) {
  CALL("cuDevicePrimaryCtxRetain");
  DEVICE(d);
  if (taken(d)) return DEVICE_UNAVAILABLE;
  *c = &contexts[d];
  return OK;
}

API int cuDevicePrimaryCtxRelease_v2(int d) {
  CALL("cuDevicePrimaryCtxRelease_v2");
  DEVICE(d);
  return OK;
}

API int cuCtxSetCurrent(void *c) {
  CALL("cuCtxSetCurrent");
  current = c;
  return OK;
}

API int cuDeviceCanAccessPeer(int *can, int d, int peer) {
  CALL("cuDeviceCanAccessPeer");
  DEVICE(d);
  DEVICE(peer);
  *can = self.peers && d != peer;
  return OK;
}

API int cuCtxEnablePeerAccess(void *peer, unsigned flags) {
  WORK("cuCtxEnablePeerAccess");
  if (flags || peer == current) return INVALID_VALUE;
  if (!self.peers) return NO_PEER_ACCESS;
  int *reach = &reaches[number(current)][number(peer)];
  return __atomic_exchange_n(reach, 1, __ATOMIC_ACQ_REL) ? ENABLED_ALREADY : OK;
}

static __thread void *pushed[8]; // those below the current one
static __thread int pushes;

API int cuCtxPushCurrent_v2(void *c) {
  CALL("cuCtxPushCurrent_v2");
  if (pushes == 8) return INVALID_VALUE;
  pushed[pushes++] = current;
  current = c;
  return OK;
}

API int cuCtxPopCurrent_v2(void **c) {
  CALL("cuCtxPopCurrent_v2");
  if (!pushes) return INVALID_CONTEXT;
  *c = current;
  current = pushed[--pushes];
  return OK;
}

// Memory. The program knows an address where nothing can be read or written; what lies there is
// at another one, which only this library knows.

typedef struct allocation {
  u64 address;
  size_t bytes;
  u8 *store;
  int users, freed, file, imported, of; // of: the context
  struct allocation *next;
} allocation;

static allocation *allocations;

// Who imports memory has its file locked for reading, so whoever frees it sees that it is open.
static int lock_file(int file, int kind) {
  struct flock all = {.l_type = kind, .l_whence = SEEK_SET};
  return fcntl(file, F_OFD_SETLK, &all);
}

static void unmap(allocation *a) {
  munmap(a->store, a->bytes);
  if (a->imported) lock_file(a->file, F_UNLCK); // which the address that nobody reads would keep
  close(a->file);
  a->store = NULL;
}

// keep makes an allocation of a file, which it closes unless that succeeds.
static int keep(int file, size_t n, int imported, u64 *p) {
  allocation *a = calloc(1, sizeof *a);
  void *seen = mmap(NULL, n, self.visible ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, file, 0);
  void *store = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (!a || seen == MAP_FAILED || store == MAP_FAILED) return close(file), free(a), OUT_OF_MEMORY;
  *a = (allocation){.address = (u64)(uintptr_t)seen, .bytes = n, .store = store, .file = file, .imported = imported, .of = number(current)};
  if (!imported) memset(store, 0xcb, n);
  pthread_mutex_lock(&lock);
  a->next = allocations;
  allocations = a;
  pthread_mutex_unlock(&lock);
  *p = a->address;
  return OK;
}

// drop frees an allocation, or gives an imported one up.
static int drop(u64 p, int imported) {
  int code = INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (allocation *a = allocations; a; a = a->next)
    if (a->address == p && !a->freed && a->imported == imported) {
      if (!imported && lock_file(a->file, F_WRLCK)) {
        __atomic_store_n(&self.broken, ILLEGAL_ADDRESS, __ATOMIC_RELEASE);
        break;
      }
      a->freed = 1;
      if (!imported) {
        self.used -= a->bytes;
        memset(a->store, 0xdd, a->bytes);
      }
      if (!a->users) unmap(a);
      code = OK;
    }
  pthread_mutex_unlock(&lock);
  return code;
}

API int cuMemAlloc_v2(u64 *p, size_t n) {
  WORK("cuMemAlloc_v2");
  if (!n) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  int room = n <= device_memory - self.used;
  if (room) self.used += n;
  pthread_mutex_unlock(&lock);
  int file = room ? memfd_create("standin", MFD_CLOEXEC) : -1;
  int code = OUT_OF_MEMORY;
  if (file >= 0) code = ftruncate(file, n) ? (close(file), OUT_OF_MEMORY) : keep(file, n, 0, p);
  return code;
}

// An address is never given out again, so one that was freed is known.
API int cuMemFree_v2(u64 p) {
  WORK("cuMemFree_v2");
  return drop(p, 0);
}

// Pinned memory is the host's own.
API int cuMemHostAlloc(void **p, size_t n, unsigned flags) {
  WORK("cuMemHostAlloc");
  if (!n || flags != 1) return INVALID_VALUE;
  if (posix_memalign(p, 4096, n)) return OUT_OF_MEMORY;
  memset(*p, 0xcb, n);
  return OK;
}

API int cuMemFreeHost(void *p) {
  WORK("cuMemFreeHost");
  free(p);
  return OK;
}

// A handle is the process and its file. As with a driver, the process itself cannot open it.
typedef struct {
  char magic[16];
  int process, file, of;
  size_t bytes;
  char rest[24];
} handle;

API int cuIpcGetMemHandle(handle *h, u64 p) {
  WORK("cuIpcGetMemHandle");
  int code = INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (allocation *a = allocations; a; a = a->next)
    if (a->address == p && !a->freed && !a->imported) {
      *h = (handle){.magic = "stand-in", .process = getpid(), .file = a->file, .of = a->of, .bytes = a->bytes};
      code = OK;
    }
  pthread_mutex_unlock(&lock);
  return code;
}

API int cuIpcOpenMemHandle_v2(u64 *p, handle h, unsigned flags) {
  WORK("cuIpcOpenMemHandle_v2");
  if (flags != 1 || strcmp(h.magic, "stand-in")) return INVALID_VALUE;
  if (h.process == getpid()) return INVALID_CONTEXT;
  if (h.of != number(current) && !self.peers) return MAP_FAILED_;
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", h.process, h.file);
  int file = open(name, O_RDWR | O_CLOEXEC);
  struct stat is;
  if (file < 0) return INVALID_HANDLE;
  if (fstat(file, &is) || !S_ISREG(is.st_mode) || (size_t)is.st_size != h.bytes) return close(file), INVALID_HANDLE; // another by now
  if (lock_file(file, F_RDLCK)) return close(file), INVALID_HANDLE;
  return keep(file, h.bytes, 1, p);
}

API int cuIpcCloseMemHandle(u64 p) {
  WORK("cuIpcCloseMemHandle");
  return drop(p, 1);
}

API int cuMemGetInfo_v2(size_t *left, size_t *all) {
  WORK("cuMemGetInfo_v2");
  pthread_mutex_lock(&lock);
  *left = device_memory - self.used;
  pthread_mutex_unlock(&lock);
  *all = device_memory;
  return OK;
}

// calling is the context of the stream whose thread makes a library's call.
static _Thread_local int calling;

// use returns where n bytes at p lie, and keeps them; leave gives them back. Where they do not lie
// within one allocation that the context reaches the device has failed.
static u8 *use(u64 p, size_t n, int context, allocation **kept) {
  *kept = NULL;
  pthread_mutex_lock(&lock);
  for (allocation *a = allocations; a; a = a->next)
    if (!a->freed && p >= a->address && p - a->address <= a->bytes && n <= a->bytes - (p - a->address) &&
        (a->of == context || __atomic_load_n(&reaches[context][a->of], __ATOMIC_ACQUIRE))) {
      *kept = a;
      a->users++;
      break;
    }
  if (!*kept) __atomic_store_n(&self.broken, ILLEGAL_ADDRESS, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  return *kept ? (*kept)->store + (p - (*kept)->address) : NULL;
}

static void leave(allocation *a) {
  if (!a) return;
  pthread_mutex_lock(&lock);
  if (!--a->users && a->freed) unmap(a);
  pthread_mutex_unlock(&lock);
}

API int cuPointerGetAttribute(void *data, int attribute, u64 p) {
  CALL("cuPointerGetAttribute");
  allocation *a;
  pthread_mutex_lock(&lock);
  for (a = allocations; a && (a->freed || p < a->address || p >= a->address + a->bytes); a = a->next) {}
  pthread_mutex_unlock(&lock);
  if (!a) return INVALID_VALUE; // the host's
  switch (attribute) {
  case 1: // CU_POINTER_ATTRIBUTE_CONTEXT
    if (self.pools) return INVALID_VALUE;
    *(void **)data = &contexts[a->of];
    return OK;
  case 2: *(unsigned *)data = 2; return OK; // CU_MEMORYTYPE_DEVICE
  }
  return INVALID_VALUE;
}

// copy_bytes copies; dst and src are the host's where they are not to_device and from_device.
static void copy_bytes(u64 dst, int to_device, u64 src, int from_device, size_t n, int context) {
  allocation *d = NULL, *s = NULL;
  u8 *to = to_device ? use(dst, n, context, &d) : (u8 *)(uintptr_t)dst;
  u8 *from = !to ? NULL : from_device ? use(src, n, context, &s) : (u8 *)(uintptr_t)src;
  if (to && from) memmove(to, from, n);
  leave(d);
  leave(s);
}

API int cuMemcpyHtoD_v2(u64 dst, const void *src, size_t n) {
  WORK("cuMemcpyHtoD_v2");
  copy_bytes(dst, 1, (u64)(uintptr_t)src, 0, n, number(current));
  return self.broken;
}

API int cuMemcpyDtoH_v2(void *dst, u64 src, size_t n) {
  WORK("cuMemcpyDtoH_v2");
  copy_bytes((u64)(uintptr_t)dst, 0, src, 1, n, number(current));
  return self.broken;
}

// Kernels, as the host's compiler made them.

typedef struct {
  const char *name;
  void *run;
  int pointers, arguments, count; // which argument says how many elements there are; 0: each pointer is followed by its bytes
  size_t size;                    // of an element
} kernel;

#define COMBINES_OF(t, op) {"reduce_" #t "_" #op, (void *)reduce_##t##_##op, 3, 4, 3, sizeof(t)},
#define SUMS_OF(t) {"sums_" #t, (void *)sums_##t, 9, 11, 9, sizeof(t)},
#define DIVIDES_OF(t) {"divide_" #t, (void *)divide_##t, 2, 4, 3, sizeof(t)},
#define LAYER(name, buffers, numbers) {#name, (void *)name, buffers, 2 * (buffers) + (numbers), 0, 1}
#define UPDATE(rule, pointers) {"update_" #rule, (void *)update_##rule, pointers, 14, 4, 4}

static const kernel kernels[] = {
    ALL_OPERATORS(COMBINES_OF, DIVIDES_OF)
    SUMS_OF(f32) SUMS_OF(f64) SUMS_OF(f16) SUMS_OF(bf16)
    {"copy", (void *)copy, 2, 3, 2, 1},
    UPDATE(sgd, 3), UPDATE(nesterov, 3), UPDATE(adagrad, 3), UPDATE(rmsprop, 3), UPDATE(adadelta, 4), UPDATE(adam, 4),
    LAYER(fill, 1, 1),
    LAYER(multiply, 3, 0),
    LAYER(scaled, 2, 2),
    LAYER(part, 2, 6),
    LAYER(not_finite, 2, 1),
    LAYER(add_rows, 2, 1),
    LAYER(sum_planes, 2, 1),
    LAYER(add_bias, 2, 1),
    LAYER(pair_sums, 3, 2),
    LAYER(add_pair_sums, 3, 1),
    LAYER(product, 3, 13),
    LAYER(im2col, 2, 13),
    LAYER(col2im, 2, 13),
    LAYER(relu_forward, 2, 1),
    LAYER(relu_backward, 3, 1),
    LAYER(max_forward, 3, 10),
    LAYER(max_backward, 3, 10),
    LAYER(ave_forward, 2, 10),
    LAYER(ave_backward, 2, 10),
    LAYER(softmax_forward, 2, 2),
    LAYER(softmax_backward, 3, 2),
    LAYER(loss_of_each, 3, 4),
    LAYER(mean_of, 2, 2),
    LAYER(loss_backward, 3, 5),
    LAYER(hits, 3, 5),
    LAYER(lrn_across, 3, 6),
    LAYER(lrn_across_backward, 5, 5),
    LAYER(lrn_within, 3, 2),
    LAYER(lrn_ratio, 4, 0),
    LAYER(lrn_within_backward, 5, 2),
    LAYER(greater, 3, 2),
    LAYER(where_number, 3, 1),
    LAYER(product_gradient, 4, 0),
    LAYER(affine, 4, 1),
    LAYER(moments, 7, 3),
    LAYER(global_moments, 5, 1),
    LAYER(normalize, 5, 1),
    LAYER(mean_gradients, 3, 1),
    LAYER(normalize_backward, 6, 1),
};
enum { KERNEL_COUNT = sizeof kernels / sizeof *kernels };

// What a kernel does not take it does not see.
static void run_thread(const kernel *k, const u64 *a) {
  if (k->arguments <= 4) ((void (*)(u64, u64, u64, u64))k->run)(a[0], a[1], a[2], a[3]);
  else
    ((void (*)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64))k->run)(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17], a[18],
        a[19], a[20], a[21], a[22], a[23]);
}

static void run_grid(const kernel *k, u64 *a, i64 grid, int context) {
  allocation *kept[9] = {NULL};
  int all = 1;
  for (int i = 0; all && i < k->pointers; i++) {
    int at = k->count ? i : 2 * i;
    size_t bytes = k->count ? a[k->count] * k->size : a[at + 1];
    if (!k->count && !bytes) continue; // a buffer that is left out
    a[at] = (u64)(uintptr_t)use(a[at], bytes, context, &kept[i]);
    all = a[at] != 0;
  }
  of_threads = grid;
  for (the_thread = 0; all && the_thread < grid; the_thread++) run_thread(k, a);
  for (int i = 0; i < k->pointers; i++) leave(kept[i]);
}

// A module's text has to name a kernel for the kernel to be found.
API int cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *options, void **values) {
  WORK("cuModuleLoadDataEx");
  const char *text = image;
  if (strstr(text, "\n.version ") && strstr(text, "\n.target sm_80")) return *m = strdup(text), OK;
  for (unsigned i = 0; i + 1 < n; i++) // CU_JIT_ERROR_LOG_BUFFER, and then its size
    if (options[i] == 5 && options[i + 1] == 6)
      snprintf(values[i], (size_t)(uintptr_t)values[i + 1], "ptxas fatal   : Missing .version directive at start of file");
  return INVALID_PTX;
}

API int cuModuleUnload(void *m) {
  WORK("cuModuleUnload");
  free(m);
  return OK;
}

API int cuModuleGetFunction(void **f, void *m, const char *name) {
  WORK("cuModuleGetFunction");
  char entry[96];
  snprintf(entry, sizeof entry, ".visible .entry %s(", name);
  for (int i = 0; i < KERNEL_COUNT; i++)
    if (!strcmp(kernels[i].name, name) && strstr(m, entry)) return *f = (void *)&kernels[i], OK;
  return NOT_FOUND;
}

// Streams and events.

typedef struct {
  u64 recorded, passed;
  int timer;
  struct timespec at;
} event;

typedef struct operation {
  enum { COPY, KERNEL_, CALL_, RECORD, WAIT, END } kind;
  void (*call)(void *of); // what of a library's has to be done, and then freed
  void *of;
  u64 arguments[24], ticket;
  size_t bytes;
  i64 grid;
  const kernel *kernel;
  event *event;
  struct stream *on;
  struct operation *next;
} operation;

// A thread does what the streams of a queue are given, in the order in which they are given it.
typedef struct {
  operation *first, **last;
  pthread_cond_t more;
  unsigned random;
  int shared; // by streams, and stays
} queue;

typedef struct stream {
  queue *queue;
  u64 given, done; // written under the lock, as are an event's
  int of;          // the context
} stream;

static void pause_for(unsigned *random) {
  int most = __atomic_load_n(&self.delay, __ATOMIC_RELAXED);
  if (most <= 0) return;
  struct timespec t = {0, 1000L * (rand_r(random) % most)};
  nanosleep(&t, NULL);
}

static void *work(void *of) {
  queue *q = of;
  for (;;) {
    pthread_mutex_lock(&lock);
    while (!q->first) pthread_cond_wait(&q->more, &lock);
    operation *o = q->first;
    stream *s = o->on;
    q->first = o->next;
    if (!q->first) q->last = &q->first;
    while (o->kind == WAIT && o->event->passed < o->ticket) pthread_cond_wait(&changed, &lock);
    while (o->kind == KERNEL_ && !strcmp(o->kernel->name, self.hold)) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    pause_for(&q->random);
    if (!__atomic_load_n(&self.broken, __ATOMIC_ACQUIRE)) {
      if (o->kind == COPY) copy_bytes(o->arguments[0], o->arguments[1], o->arguments[2], o->arguments[3], o->bytes, s->of);
      if (o->kind == KERNEL_) run_grid(o->kernel, o->arguments, o->grid, s->of);
      calling = s->of;
      if (o->kind == CALL_) o->call(o->of);
    }
    free(o->of);
    pthread_mutex_lock(&lock);
    if (o->kind == RECORD && o->event->passed < o->ticket) {
      clock_gettime(CLOCK_MONOTONIC, &o->event->at);
      __atomic_store_n(&o->event->passed, o->ticket, __ATOMIC_RELEASE);
      pthread_cond_broadcast(&changed);
    }
    __atomic_store_n(&s->done, s->done + 1, __ATOMIC_RELEASE);
    if (!--outstanding) pthread_cond_broadcast(&idle);
    int end = o->kind == END;
    free(o);
    pthread_mutex_unlock(&lock);
    if (end) free(s);
    if (end && !q->shared) {
      pthread_cond_destroy(&q->more);
      free(q);
      return NULL;
    }
  }
}

static int give(stream *s, operation what) {
  if (!s) return INVALID_HANDLE; // the default stream, which nothing here uses
  operation *o = malloc(sizeof *o);
  if (!o) return OUT_OF_MEMORY;
  *o = what;
  o->on = s;
  queue *q = s->queue;
  pthread_mutex_lock(&lock);
  if (o->kind == RECORD) __atomic_store_n(&o->event->recorded, o->ticket = o->event->recorded + 1, __ATOMIC_RELEASE);
  if (o->kind == WAIT) o->ticket = o->event->recorded;
  *q->last = o;
  q->last = &o->next;
  __atomic_store_n(&s->given, s->given + 1, __ATOMIC_RELEASE);
  outstanding++;
  pthread_cond_signal(&q->more);
  pthread_mutex_unlock(&lock);
  return OK;
}

static queue *new_queue(int shared) {
  queue *q = calloc(1, sizeof *q);
  pthread_t thread;
  if (!q) return NULL;
  q->last = &q->first;
  q->shared = shared;
  pthread_cond_init(&q->more, NULL);
  static unsigned queues;
  q->random = self.seed + 7919 * ++queues;
  if (pthread_create(&thread, NULL, work, q)) return free(q), NULL;
  pthread_detach(thread);
  return q;
}

API int cuStreamCreate(stream **p, unsigned flags) {
  WORK("cuStreamCreate");
  if (flags != 1) return INVALID_VALUE; // CU_STREAM_NON_BLOCKING: others wait for each other
  stream *s = calloc(1, sizeof *s);
  if (!s) return OUT_OF_MEMORY;
  s->of = number(current);
  pthread_mutex_lock(&lock);
  if (self.queues) {
    static queue *shared[16][MOST_QUEUES];
    static unsigned turn[16];
    queue **next = &shared[s->of][turn[s->of]++ % self.queues];
    if (!*next) *next = new_queue(1);
    s->queue = *next;
  } else {
    s->queue = new_queue(0);
  }
  pthread_mutex_unlock(&lock);
  if (!s->queue) return free(s), OUT_OF_MEMORY;
  *p = s;
  return OK;
}

API int cuStreamDestroy_v2(stream *s) {
  WORK("cuStreamDestroy_v2");
  return give(s, (operation){.kind = END});
}

API int cuStreamQuery(stream *s) {
  WORK("cuStreamQuery");
  u64 done = __atomic_load_n(&s->done, __ATOMIC_ACQUIRE); // before what was given
  int ended = done == __atomic_load_n(&s->given, __ATOMIC_ACQUIRE);
  return ended ? __atomic_load_n(&self.broken, __ATOMIC_ACQUIRE) : NOT_READY; // which may have come just now
}

API int cuStreamWaitEvent(stream *s, event *e, unsigned flags) {
  WORK("cuStreamWaitEvent");
  if (flags) return INVALID_VALUE;
  return give(s, (operation){.kind = WAIT, .event = e});
}

API int cuEventCreate(event **p, unsigned flags) {
  WORK("cuEventCreate");
  if (flags != 2 && flags) return INVALID_VALUE; // CU_EVENT_DISABLE_TIMING
  if (!(*p = calloc(1, sizeof **p))) return OUT_OF_MEMORY;
  (*p)->timer = !flags;
  return OK;
}

API int cuEventElapsedTime(float *ms, event *first, event *last) {
  WORK("cuEventElapsedTime");
  pthread_mutex_lock(&lock);
  int code = OK;
  if (!first->timer || !last->timer || !first->recorded || !last->recorded) code = INVALID_HANDLE;
  else if (first->passed < first->recorded || last->passed < last->recorded) code = NOT_READY;
  else *ms = (last->at.tv_sec - first->at.tv_sec) * 1e3f + (last->at.tv_nsec - first->at.tv_nsec) * 1e-6f;
  pthread_mutex_unlock(&lock);
  return code;
}

// What is on a stream may still refer to it, so it stays.
API int cuEventDestroy_v2(event *e) {
  WORK("cuEventDestroy_v2");
  return e ? OK : INVALID_HANDLE;
}

API int cuEventRecord(event *e, stream *s) {
  WORK("cuEventRecord");
  return give(s, (operation){.kind = RECORD, .event = e});
}

API int cuEventQuery(event *e) {
  WORK("cuEventQuery");
  u64 passed = __atomic_load_n(&e->passed, __ATOMIC_ACQUIRE);
  int ended = passed == __atomic_load_n(&e->recorded, __ATOMIC_ACQUIRE);
  return ended ? __atomic_load_n(&self.broken, __ATOMIC_ACQUIRE) : NOT_READY;
}

API int cuLaunchKernel(const kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, stream *s, void **parameters, void **extra) {
  WORK("cuLaunchKernel");
  if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || shared || extra) return INVALID_VALUE;
  operation o = {.kind = KERNEL_, .kernel = k, .grid = (i64)gx * bx};
  for (int i = 0; i < k->arguments; i++) memcpy(&o.arguments[i], parameters[i], 8);
  return give(s, o);
}

API int cuMemcpyHtoDAsync_v2(u64 dst, const void *src, size_t n, stream *s) {
  WORK("cuMemcpyHtoDAsync_v2");
  return give(s, (operation){.kind = COPY, .arguments = {dst, 1, (u64)(uintptr_t)src, 0}, .bytes = n});
}

API int cuMemcpyDtoHAsync_v2(void *dst, u64 src, size_t n, stream *s) {
  WORK("cuMemcpyDtoHAsync_v2");
  return give(s, (operation){.kind = COPY, .arguments = {(u64)(uintptr_t)dst, 0, src, 1}, .bytes = n});
}

API int cuMemcpyDtoDAsync_v2(u64 dst, u64 src, size_t n, stream *s) {
  WORK("cuMemcpyDtoDAsync_v2");
  return give(s, (operation){.kind = COPY, .arguments = {dst, 1, src, 1}, .bytes = n});
}

// The libraries that compute on these streams.
#include "cublas.c"
#include "cudnn.c"
