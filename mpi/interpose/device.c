// Memory of a GPU. A program may hand it to an MPI library that takes it, and then to calls that scaffe serves, whose engine reads and
// writes the host's. All ranks decide alike whether a call is served, whatever memory each has: so who has a GPU's stages it, down to
// the host before the call and up again after it, with the driver that the program itself has opened.
#include "interpose.h"
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The CUDA driver's functions, and what they are asked for (cuda.h).
enum { SUCCESS = 0, ATTRIBUTE_CONTEXT = 1, ATTRIBUTE_MEMORY_TYPE = 2, MEMORYTYPE_DEVICE = 2 };
static struct {
  int (*attribute)(void *data, int attribute, unsigned long long address);
  int (*push)(void *context);
  int (*pop)(void **context);
  int (*down)(void *host, unsigned long long device, size_t bytes);
  int (*up)(unsigned long long device, const void *host, size_t bytes);
} driver;
static unsigned long long looked; // how many libraries had been opened when the driver was looked for
static int found;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int opened(struct dl_phdr_info *info, size_t size, void *libraries) {
  (void)size;
  *(unsigned long long *)libraries = info->dlpi_adds;
  return 1;
}

// has_driver reports whether the program has opened the driver. It is looked for again only where some library has been opened since.
static int has_driver(void) {
  unsigned long long now = 0;
  dl_iterate_phdr(opened, &now);
  if (__atomic_load_n(&looked, __ATOMIC_ACQUIRE) == now) return found;
  pthread_mutex_lock(&lock);
  if (looked != now) {
    const char *name = getenv("SCAFFE_CUDA_LIBRARY");
    void *h = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (h) {
      driver.attribute = (__typeof__(driver.attribute))dlsym(h, "cuPointerGetAttribute");
      driver.push = (__typeof__(driver.push))dlsym(h, "cuCtxPushCurrent_v2");
      driver.pop = (__typeof__(driver.pop))dlsym(h, "cuCtxPopCurrent_v2");
      driver.down = (__typeof__(driver.down))dlsym(h, "cuMemcpyDtoH_v2");
      driver.up = (__typeof__(driver.up))dlsym(h, "cuMemcpyHtoD_v2");
      found = driver.attribute && driver.push && driver.pop && driver.down && driver.up;
    }
    __atomic_store_n(&looked, now, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

// on_device reports whether p is an address of a GPU's memory. The driver does not know the host's, unless the program has pinned it.
static int on_device(const void *p) {
  unsigned type = 0;
  return p && has_driver() && driver.attribute(&type, ATTRIBUTE_MEMORY_TYPE, (uintptr_t)p) == SUCCESS && type == MEMORYTYPE_DEVICE;
}

// copy copies between the host and a GPU, in the context of whose memory it is: the one that is current where that has none, as
// what cudaMallocAsync returns.
static int copy(void *host, void *device, size_t bytes, int up) {
  void *context = NULL, *old = NULL;
  if (bytes == 0) return MPI_SUCCESS;
  int pushed = driver.attribute(&context, ATTRIBUTE_CONTEXT, (uintptr_t)device) == SUCCESS && context;
  int code = pushed ? driver.push(context) : SUCCESS;
  if (code == SUCCESS) {
    code = up ? driver.up((uintptr_t)device, host, bytes) : driver.down(host, (uintptr_t)device, bytes);
    if (pushed) driver.pop(&old);
  }
  if (code == SUCCESS) return MPI_SUCCESS;
  fprintf(stderr, "scaffe: rank %d: a copy of %zu bytes %s a GPU failed: CUDA's error %d\n", here.rank, bytes, up ? "to" : "from", code);
  return MPI_ERR_OTHER;
}

int move(void *to, const void *from, size_t bytes) {
  if (on_device(from)) return copy(to, (void *)from, bytes, 0);
  if (on_device(to)) return copy((void *)from, to, bytes, 1);
  memcpy(to, from, bytes);
  return MPI_SUCCESS;
}

// extents are how many bytes a rank has at a call's send and recv: 0 of what does not count.
static void extents(const state *st, const serve_call *c, int64_t *send, int64_t *recv) {
  int64_t size = element_size(c->type), whole = c->count * size, own = (c->counts ? c->counts[st->rank] : c->count / st->size) * size;
  int root = st->rank == c->root;
  *send = *recv = whole;
  switch (c->verb) {
  case SERVE_REDUCE: *recv = root ? whole : 0; break;
  case SERVE_BCAST: *send = root ? whole : 0; break;
  case SERVE_ALLGATHER: *send = own; break;
  case SERVE_GATHER: *send = own, *recv = root ? whole : 0; break;
  case SERVE_SCATTER: *send = root ? whole : 0, *recv = own; break;
  case SERVE_REDUCE_SCATTER: *recv = own; break;
  }
}

// host returns memory of the host's for a buffer on a GPU, or for a part of one that has some.
static void *host(staging *s, void *device, int64_t bytes, const staged *whole) {
  if (whole && whole->host && (char *)device >= (char *)whole->device && (char *)device + bytes <= (char *)whole->device + whole->bytes)
    return (char *)whole->host + ((char *)device - (char *)whole->device);
  void *m = malloc((size_t)bytes + 1);
  if (!m) s->failed = 1;
  return m;
}

int stage(const state *st, serve_call *c, staging *s) {
  int64_t send, recv;
  memset(s, 0, sizeof *s);
  extents(st, c, &send, &recv);
  int sends = send > 0 && on_device(c->send), receives = recv > 0 && on_device(c->recv);
  if (!sends && !receives) return MPI_SUCCESS;
  // The larger one first: in place, the other is a part of it, or all.
  for (int k = 0; k < 2; k++) {
    int is_send = (send >= recv) == (k == 0);
    staged *one = is_send ? &s->send : &s->recv, *other = is_send ? &s->recv : &s->send;
    if (!(is_send ? sends : receives)) continue;
    void **buffer = is_send ? &c->send : &c->recv;
    one->device = *buffer, one->bytes = is_send ? send : recv;
    one->host = host(s, *buffer, one->bytes, other);
    one->part = other->host && one->host && one->device >= other->device && (char *)one->device < (char *)other->device + other->bytes;
    *buffer = one->host;
  }
  if (c->verb == SERVE_BCAST && !sends) c->send = c->recv; // the engine has one buffer
  if (!s->failed) return MPI_SUCCESS;
  fprintf(stderr, "scaffe: no memory of the host's for a copy of what is on a GPU\n");
  unstage(s);
  return MPI_ERR_OTHER;
}

int stage_down(const staging *s) { return s->send.device ? copy(s->send.host, s->send.device, (size_t)s->send.bytes, 0) : MPI_SUCCESS; }

int stage_up(const staging *s) { return s->recv.device ? copy(s->recv.host, s->recv.device, (size_t)s->recv.bytes, 1) : MPI_SUCCESS; }

void unstage(staging *s) {
  if (!s->send.part) free(s->send.host);
  if (!s->recv.part) free(s->recv.host);
  memset(s, 0, sizeof *s);
}
