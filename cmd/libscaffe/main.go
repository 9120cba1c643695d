// Command libscaffe is libscaffe.so, what libscaffe-mpi.so opens at the first call worth it. It is built
// with -buildmode=c-shared; `make lib` does that.
package main

/*
#include "../../mpi/interpose/serve.h"
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/dropin"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

func main() {}

// processors is how many of Go's processors the program lends: one for the thread that calls, one for
// the collector.
const processors = 2

func init() { runtime.GOMAXPROCS(processors) }

// verbs are the collectives by their numbers in serve.h.
var verbs = [C.SERVE_VERBS]schedule.Collective{
	C.SERVE_REDUCE: schedule.Reduce, C.SERVE_BCAST: schedule.Bcast, C.SERVE_ALLREDUCE: schedule.Allreduce,
	C.SERVE_ALLGATHER: schedule.Allgather, C.SERVE_REDUCE_SCATTER: schedule.ReduceScatter,
	C.SERVE_ALLTOALL: schedule.Alltoall, C.SERVE_GATHER: schedule.Gather, C.SERVE_SCATTER: schedule.Scatter,
}

// types and ops are likewise those of reductions.
var (
	types = [...]mem.Datatype{
		C.SERVE_F32: mem.Float32, C.SERVE_F64: mem.Float64, C.SERVE_F16: mem.Float16, C.SERVE_BF16: mem.BFloat16,
		C.SERVE_I32: mem.Int32, C.SERVE_I64: mem.Int64, C.SERVE_U8: mem.Uint8,
		C.SERVE_I8: mem.Int8, C.SERVE_I16: mem.Int16, C.SERVE_U16: mem.Uint16, C.SERVE_U32: mem.Uint32, C.SERVE_U64: mem.Uint64,
	}
	ops = [C.SERVE_OPS]mem.Op{
		C.SERVE_SUM: mem.Sum, C.SERVE_PROD: mem.Prod, C.SERVE_MIN: mem.Min, C.SERVE_MAX: mem.Max,
		C.SERVE_BAND: mem.BitAnd, C.SERVE_BOR: mem.BitOr, C.SERVE_BXOR: mem.BitXor,
		C.SERVE_LAND: mem.LogicalAnd, C.SERVE_LOR: mem.LogicalOr, C.SERVE_LXOR: mem.LogicalXor,
	}
)

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "scaffe: "+format+"\n", args...) }

//export serve_open
func serve_open(comm unsafe.Pointer, why *C.char, room C.size_t) C.uintptr_t {
	c, err := dropin.Open(comm, func(text string) { say("warning: %s", text) })
	if err != nil {
		text := append([]byte(err.Error()), 0)
		into := unsafe.Slice((*byte)(unsafe.Pointer(why)), int(room))
		if n := copy(into, text); n == len(into) {
			into[n-1] = 0
		}
		return 0
	}
	return C.uintptr_t(cgo.NewHandle(c))
}

func of(handle C.uintptr_t) *dropin.Comm { return cgo.Handle(handle).Value().(*dropin.Comm) }

// refused holds why calls were passed on that should not have been, each said once.
var refused sync.Map

//export serve_chooses
func serve_chooses(handle C.uintptr_t, verb, typ C.int, bytes C.int64_t) C.int {
	yes, err := of(handle).Chooses(verbs[verb], types[typ], int(bytes))
	switch {
	case err != nil:
		if _, said := refused.LoadOrStore(err.Error(), true); !said {
			say("calls are passed on to the MPI library: %v", err)
		}
		return 0
	case yes:
		return 1
	}
	return 0
}

// callOf returns the call that C describes.
func callOf(c *dropin.Comm, k *C.serve_call) dropin.Call {
	call := dropin.Call{
		Collective: verbs[k.verb], Datatype: types[k._type], Op: ops[k.op], Root: int(k.root),
		Count: int(k.count), Send: k.send, Recv: k.recv,
	}
	if k.counts != nil {
		call.Counts = make([]int, c.Size())
		for r, n := range unsafe.Slice(k.counts, c.Size()) {
			call.Counts[r] = int(n)
		}
	}
	return call
}

//export serve_do
func serve_do(handle C.uintptr_t, k *C.serve_call) C.int {
	c := of(handle)
	if err := c.Do(callOf(c, k)); err != nil {
		say("%v", err)
		return 1
	}
	return 0
}

//export serve_starts
func serve_starts(handle C.uintptr_t) C.int {
	switch c := of(handle); {
	case !c.Starts():
		return 0
	case c.MovesOn():
		return 2
	}
	return 1
}

//export serve_prepare
func serve_prepare(handle C.uintptr_t, k *C.serve_call) C.uintptr_t {
	c := of(handle)
	r, err := c.Prepare(callOf(c, k))
	if err != nil {
		say("%v", err)
		return 0
	}
	return C.uintptr_t(cgo.NewHandle(r))
}

//export serve_start
func serve_start(prepared C.uintptr_t, ended *C.int32_t, bell *C.serve_bell) C.int {
	r := cgo.Handle(prepared).Value().(*nbc.Request)
	err := r.StartTelling(func(err error) {
		end := int32(1)
		if err != nil {
			say("%v", err)
			end = -1
		}
		atomic.StoreInt32((*int32)(ended), end) // C may free it now
		ends := (*uint32)(&bell.ends)
		atomic.AddUint32(ends, 1)
		if atomic.LoadUint32((*uint32)(&bell.waiting)) != 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(ends)), futexWake, math.MaxInt32)
		}
	})
	if err != nil {
		say("%v", err)
		return 1
	}
	return 0
}

// futexWake is FUTEX_WAKE_PRIVATE.
const futexWake = 1 | 128

//export serve_drop
func serve_drop(prepared C.uintptr_t) {
	h := cgo.Handle(prepared)
	h.Value().(*nbc.Request).Close()
	h.Delete()
}

//export serve_alloc
func serve_alloc(handle C.uintptr_t, bytes C.size_t) unsafe.Pointer {
	return of(handle).Alloc(int(bytes))
}

//export serve_free
func serve_free(handle C.uintptr_t, memory unsafe.Pointer) C.int {
	if of(handle).Free(memory) {
		return 1
	}
	return 0
}

//export serve_close
func serve_close(handle C.uintptr_t) {
	h := cgo.Handle(handle)
	if err := h.Value().(*dropin.Comm).Close(); err != nil {
		say("%v", err)
	}
	h.Delete()
}
