//go:build cuda && cgo && linux && (amd64 || arm64)

#include "shim.h"

#include <dlfcn.h>
#include <stddef.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN int scaffe_cuda_no_device(void) { return 100; }
HIDDEN int scaffe_cuda_not_found(void) { return 500; }

#if defined(__x86_64__)
#define JUMP(f) "jmp *scaffe_p_" #f "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(f) "adrp x16, scaffe_p_" #f "\nldr x16, [x16, :lo12:scaffe_p_" #f "]\nbr x16\n"
#endif

// Arguments and results pass through a jump untouched. The symbols are hidden: a
// library that is linked with the real driver still finds the real one.
#define X(f)                                                                  \
  HIDDEN void *scaffe_p_##f = (void *)scaffe_cuda_no_device;                  \
  __asm__(".text\n.globl " #f "\n.hidden " #f "\n.type " #f ",@function\n" #f \
          ":\n" JUMP(f) ".size " #f ", .-" #f "\n");
#include "symbols.inc"
#undef X

static const struct {
  const char *name;
  void **p;
} functions[] = {
#define X(f) {#f, &scaffe_p_##f},
#include "symbols.inc"
#undef X
};

enum { N = sizeof functions / sizeof *functions };

static int (*init)(unsigned);

// gorgonia.org/cu calls cuInit when the program starts, and ends it unless that succeeds.
HIDDEN int cuInit(unsigned flags) {
  (void)flags;
  return 0;
}

const char *scaffe_cuda_load(const char *name) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  int (*f)(unsigned);
  *(void **)&f = dlsym(library, "cuInit");
  if (!f) return dlerror();
  init = f;
  for (int i = 0; i < N; i++) {
    void *symbol = dlsym(library, functions[i].name);
    *functions[i].p = symbol ? symbol : (void *)scaffe_cuda_not_found;
  }
  return NULL;
}

int scaffe_cuda_init(void) { return init(0); }

void scaffe_cuda_unload(void) {
  for (int i = 0; i < N; i++) *functions[i].p = (void *)scaffe_cuda_no_device;
}
