//go:build cuda && cgo && linux && (amd64 || arm64)

#include "libraries.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// A library that has been loaded stays.
void *scaffe_library_load(const char *name, const scaffe_symbol *symbols, int n, size_t bytes, const char **why) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  char *table = library ? calloc(1, bytes) : NULL;
  if (!table) {
    *why = library ? "no memory" : dlerror();
    return NULL;
  }
  for (int i = 0; i < n; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    if (!symbol) {
      *why = dlerror();
      free(table);
      return NULL;
    }
    memcpy(table + symbols[i].at, &symbol, sizeof symbol);
  }
  return table;
}
