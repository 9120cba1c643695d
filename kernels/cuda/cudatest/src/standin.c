// A library that answers as libcuda.so.1 does, for machines without one.
//
// SCAFFE_STANDIN says what it is like, in words that spaces separate:
//
//   devices=N      how many GPUs there are; 1
//   version=V      what cuDriverGetVersion answers; 13000
//   mode=M         the GPUs' compute mode; 0
//   fail=F:N:CODE  the Nth call of the function F, and all that follow, answer CODE
//
// What a program could not tell from a driver's answer, no test is about.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum {
  OK = 0,
  INVALID_VALUE = 1,
  NOT_INITIALIZED = 3,
  INVALID_DEVICE = 101,
};

static struct {
  int devices, version, mode, initialized;
  struct {
    char function[64];
    int calls, from, code;
  } fail[8];
  int fails;
} self = {.devices = 1, .version = 13000};

__attribute__((constructor)) static void configure(void) {
  const char *text = getenv("SCAFFE_STANDIN");
  if (!text) return;
  char copy[1024], *rest = copy, *word;
  snprintf(copy, sizeof copy, "%s", text);
  while ((word = strsep(&rest, " "))) {
    int a, b;
    char name[64];
    if (!*word) continue;
    if (sscanf(word, "devices=%d", &a) == 1) self.devices = a;
    else if (sscanf(word, "version=%d", &a) == 1) self.version = a;
    else if (sscanf(word, "mode=%d", &a) == 1) self.mode = a;
    else if (self.fails < 8 && sscanf(word, "fail=%63[A-Za-z0-9_]:%d:%d", name, &a, &b) == 3) {
      strcpy(self.fail[self.fails].function, name);
      self.fail[self.fails].from = a;
      self.fail[self.fails++].code = b;
    } else {
      fprintf(stderr, "standin: SCAFFE_STANDIN: \"%s\" is not understood\n", word);
      abort();
    }
  }
}

// called counts a call, and returns what it is to fail with.
static int called(const char *function) {
  for (int i = 0; i < self.fails; i++)
    if (!strcmp(self.fail[i].function, function) && ++self.fail[i].calls >= self.fail[i].from)
      return self.fail[i].code;
  return OK;
}

// Every function begins with one of these: CALL wants cuInit before it.
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
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
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
  *n = (size_t)1 << 30;
  return OK;
}

API int cuDeviceGetAttribute(int *v, int attribute, int d) {
  CALL("cuDeviceGetAttribute");
  DEVICE(d);
  switch (attribute) {
  case 16: *v = 4; break;         // multiprocessors
  case 20: *v = self.mode; break; // compute mode
  case 75: *v = 8; break;         // compute capability, major
  case 76: *v = 0; break;         // and minor
  default: return INVALID_VALUE;
  }
  return OK;
}
