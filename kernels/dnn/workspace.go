//go:build onednn && cgo

package dnn

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// workspace is memory for blocked copies and scratch, and the stream that goes
// with it. What lies in it means nothing between calls, so the layers of a
// net share one, which stays in the caches; ranks in one process that compute at
// the same time have one each. Its memory is C's, because the library keeps
// pointers to it.
type workspace struct {
	stream C.dnnl_stream_t
	base   unsafe.Pointer // aligned to a cache line and more
	bytes  int
}

var workspaces struct {
	sync.Mutex
	free []*workspace
}

// takeWorkspace returns one of at least n bytes, not in use elsewhere.
func takeWorkspace(n int) (*workspace, error) {
	const page = 4096
	w, err := freeWorkspace()
	if err != nil || w.bytes >= n {
		return w, err
	}
	n = (n + page - 1) &^ (page - 1)
	C.free(w.base)
	if w.base = C.aligned_alloc(page, C.size_t(n)); w.base == nil {
		w.bytes = 0
		putWorkspace(w)
		return nil, fmt.Errorf("dnn: no memory for a workspace of %d MiB", n>>20)
	}
	w.bytes = n
	return w, nil
}

func freeWorkspace() (*workspace, error) {
	workspaces.Lock()
	defer workspaces.Unlock()
	if last := len(workspaces.free) - 1; last >= 0 {
		w := workspaces.free[last]
		workspaces.free = workspaces.free[:last]
		return w, nil
	}
	e, err := engine()
	if err != nil {
		return nil, err
	}
	w := &workspace{}
	if s := C.dnnl_stream_create(&w.stream, e, C.dnnl_stream_default_flags); s != C.dnnl_success {
		return nil, fmt.Errorf("dnn: creating a stream: %w", status(s))
	}
	return w, nil
}

func putWorkspace(w *workspace) {
	workspaces.Lock()
	workspaces.free = append(workspaces.free, w)
	workspaces.Unlock()
}
