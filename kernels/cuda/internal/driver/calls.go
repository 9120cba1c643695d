//go:build cuda && cgo && linux && (amd64 || arm64)

package driver

/*
#cgo noescape scaffe_cuda_launch
#cgo nocallback scaffe_cuda_launch
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"unsafe"
)

// Context is a device's primary context. Its methods may be called on any thread.
type Context struct{ c C.CUcontext }

// Handles of what a context holds.
type (
	Module   struct{ m C.CUmodule }
	Function struct{ f C.CUfunction }
	Stream   struct{ s C.CUstream }
	Event    struct{ e C.CUevent }
)

// Results that callers tell apart.
const (
	OutOfMemory = Result(C.CUDA_ERROR_OUT_OF_MEMORY)
	notReady    = C.CUDA_ERROR_NOT_READY
)

// MostArguments is how many arguments a kernel may have.
const MostArguments = C.MOST_ARGUMENTS

func check(r C.int) error { return Check(int(r)) }

// Retain returns the primary context of a device, which Release gives back.
func Retain(device int) (Context, error) {
	var c Context
	return c, check(C.scaffe_cuda_retain(C.int(device), &c.c))
}

// Release gives it back.
func Release(device int) error { return check(C.scaffe_cuda_release(C.int(device))) }

// Alloc returns n > 0 bytes of device memory, whose contents are undefined.
func (c Context) Alloc(n int) (p unsafe.Pointer, err error) {
	return p, check(C.scaffe_cuda_alloc(c.c, C.size_t(n), &p))
}

// Free gives them back.
func (c Context) Free(p unsafe.Pointer) error { return check(C.scaffe_cuda_free(c.c, p)) }

// HostAlloc returns n > 0 bytes of the host's memory that stay in their place, so that copies to and from
// them do not wait for the CPU.
func (c Context) HostAlloc(n int) (p unsafe.Pointer, err error) {
	return p, check(C.scaffe_cuda_host_alloc(c.c, C.size_t(n), &p))
}

// HostFree gives them back.
func (c Context) HostFree(p unsafe.Pointer) error { return check(C.scaffe_cuda_host_free(c.c, p)) }

// Handle names an allocation of device memory to other processes of the node.
type Handle [C.sizeof_CUipcMemHandle]byte

// Export returns the handle of what Alloc returned.
func (c Context) Export(p unsafe.Pointer) (h Handle, err error) {
	return h, check(C.scaffe_cuda_export(c.c, p, unsafe.Pointer(&h)))
}

// Import returns where another process's allocation lies in this one's addresses, until CloseImport.
func (c Context) Import(h Handle) (p unsafe.Pointer, err error) {
	return p, check(C.scaffe_cuda_import(c.c, unsafe.Pointer(&h), &p))
}

// CloseImport gives what Import returned up.
func (c Context) CloseImport(p unsafe.Pointer) error {
	return check(C.scaffe_cuda_close_import(c.c, p))
}

// CanReach reports whether a device's kernels can read the memory of another one, once Reach was called.
func CanReach(device, peer int) (bool, error) {
	var can C.int
	err := check(C.scaffe_cuda_can_reach(C.int(device), C.int(peer), &can))
	return can != 0, err
}

// Reach makes another context's memory usable by what is launched in this one. It may be called again.
func (c Context) Reach(peer Context) error { return check(C.scaffe_cuda_reach(c.c, peer.c)) }

// attributeMPS is CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which drivers know from CUDA 12.3 on.
const attributeMPS = 133

// MPS reports whether the contexts of processes on a device share it through an MPS server, and whether the driver
// says.
func MPS(device int) (on, known bool) {
	var v C.int
	known = C.scaffe_cuda_attribute(C.int(device), attributeMPS, &v) == C.CUDA_SUCCESS
	return known && v != 0, known
}

// Memory returns how many bytes of the device are left, and how many it has.
func (c Context) Memory() (left, all int64, err error) {
	var l, a C.size_t
	err = check(C.scaffe_cuda_memory(c.c, &l, &a))
	return int64(l), int64(a), err
}

// Load translates PTX for the device. The error has the translator's own words.
func (c Context) Load(ptx string) (Module, error) {
	text := C.CString(ptx)
	defer C.free(unsafe.Pointer(text))
	var m Module
	log := make([]byte, 4096)
	err := check(C.scaffe_cuda_module(c.c, text, &m.m, (*C.char)(unsafe.Pointer(&log[0])), C.size_t(len(log))))
	if words, _, _ := bytes.Cut(log, []byte{0}); err != nil && len(bytes.TrimSpace(words)) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(words))
	}
	return m, err
}

// Unload gives a module back.
func (c Context) Unload(m Module) error { return check(C.scaffe_cuda_unload_module(c.c, m.m)) }

// Function returns a kernel of a module.
func (c Context) Function(m Module, name string) (Function, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var f Function
	return f, check(C.scaffe_cuda_function(c.c, m.m, text, &f.f))
}

// NewStream returns a stream that waits for no other.
func (c Context) NewStream() (Stream, error) {
	var s Stream
	return s, check(C.scaffe_cuda_stream(c.c, &s.s))
}

// DestroyStream gives it back, when what is on it has been done.
func (c Context) DestroyStream(s Stream) error { return check(C.scaffe_cuda_stream_destroy(c.c, s.s)) }

// StreamDone reports whether everything on it has been done.
func (c Context) StreamDone(s Stream) (bool, error) {
	return done(C.scaffe_cuda_stream_query(c.c, s.s))
}

// NewEvent returns an event, which has passed as long as it is on no stream.
func (c Context) NewEvent() (Event, error) {
	var e Event
	return e, check(C.scaffe_cuda_event(c.c, &e.e))
}

// NewTimer returns an event that knows when it has passed.
func (c Context) NewTimer() (Event, error) {
	var e Event
	return e, check(C.scaffe_cuda_timer(c.c, &e.e))
}

// Elapsed returns how many milliseconds lie between two timers, which have passed.
func (c Context) Elapsed(first, last Event) (float32, error) {
	var ms C.float
	err := check(C.scaffe_cuda_elapsed(c.c, first.e, last.e, &ms))
	return float32(ms), err
}

// DestroyEvent gives it back.
func (c Context) DestroyEvent(e Event) error { return check(C.scaffe_cuda_event_destroy(c.c, e.e)) }

// Record makes e pass when all that is on s now has been done.
func (c Context) Record(e Event, s Stream) error { return check(C.scaffe_cuda_record(c.c, e.e, s.s)) }

// Wait keeps what comes on s until e has passed.
func (c Context) Wait(s Stream, e Event) error { return check(C.scaffe_cuda_wait(c.c, s.s, e.e)) }

// Passed reports whether e has passed.
func (c Context) Passed(e Event) (bool, error) { return done(C.scaffe_cuda_event_query(c.c, e.e)) }

func done(r C.int) (bool, error) {
	if r == notReady {
		return false, nil
	}
	return r == C.CUDA_SUCCESS, check(r)
}

// Launch puts a kernel on a stream, with up to MostArguments arguments of 64 bits.
func (c Context) Launch(f Function, blocks, threads int, s Stream, arguments *[MostArguments]uint64, n int) error {
	return check(C.scaffe_cuda_launch(c.c, f.f, C.uint(blocks), C.uint(threads), s.s, (*C.uint64_t)(unsafe.Pointer(arguments)), C.int(n)))
}

// ToDevice puts a copy of n bytes of the host on a stream. src must stay until it has been done, and
// lie outside the Go heap.
func (c Context) ToDevice(dst, src unsafe.Pointer, n int, s Stream) error {
	return check(C.scaffe_cuda_to_device(c.c, dst, src, C.size_t(n), s.s))
}

// ToHost does the reverse.
func (c Context) ToHost(dst, src unsafe.Pointer, n int, s Stream) error {
	return check(C.scaffe_cuda_to_host(c.c, dst, src, C.size_t(n), s.s))
}
