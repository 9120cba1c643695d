//go:build cuda && cgo && linux && (amd64 || arm64)

package cudatest

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static int tell(const char *library, const char *text) {
  void *l = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  void (*f)(const char *);
  if (!l) return 0;
  *(void **)&f = dlsym(l, "standin_tell");
  if (f) f(text);
  dlclose(l);
  return f != 0;
}
*/
import "C"

import (
	"fmt"
	"testing"
	"unsafe"
)

// Change is Tell until the test ends, when the library is as usual again.
func Change(t testing.TB, library, text, usual string) {
	t.Helper()
	if Hardware() {
		t.Skip("this tells the stand-in what to be like")
	}
	if err := Tell(library, text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Tell(library, usual); err != nil {
			t.Error(err)
		}
	})
}

// Tell changes what the library is like that this process has loaded, in the words of Env; fail=none
// ends all failures.
func Tell(library, text string) error {
	if Hardware() {
		return nil
	}
	l, s := C.CString(library), C.CString(text)
	defer C.free(unsafe.Pointer(l))
	defer C.free(unsafe.Pointer(s))
	if C.tell(l, s) == 0 {
		return fmt.Errorf("cudatest: this process has not loaded %s", library)
	}
	return nil
}
