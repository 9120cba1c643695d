//go:build mpi

package mpi

/*
#cgo pkg-config: ompi
#cgo LDFLAGS: -ldl
#include "shim.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	empi "github.com/emer/empi/mpi"
)

// The name ompi above is empi's: both packages link whatever library
// scripts/with-mpi describes in the pkg-config file of that name.

// builtFor is the library that scripts/with-mpi chose for the build ("MPICH
// 4.0.2"), set by the linker; empty in a build by hand.
var builtFor string

func built() string { return C.GoString(C.scaffe_built()) }

// failure turns a return code into an error; nil for success.
func failure(rc C.int, format string, args ...any) error {
	if rc == C.SCAFFE_OK {
		return nil
	}
	if rc == C.SCAFFE_CANCELED {
		return ErrCancelled
	}
	const room = 2048
	text := (*C.char)(C.malloc(room))
	defer C.free(unsafe.Pointer(text))
	var class *C.char
	C.scaffe_error(rc, text, room, &class)
	return &Error{
		Op: fmt.Sprintf(format, args...), Class: C.GoString(class), Code: int(rc),
		Text: strings.TrimSpace(strings.ReplaceAll(C.GoString(text), "\n", " ")),
	}
}

func library() (string, error) {
	const room = 1 << 14
	text := (*C.char)(C.malloc(room))
	defer C.free(unsafe.Pointer(text))
	if rc := C.scaffe_library(text, room); rc != C.SCAFFE_OK {
		return "", fmt.Errorf("mpi: MPI_Get_library_version failed with code %d", int(rc))
	}
	return strings.TrimSpace(C.GoString(text)), nil
}

func start() (*World, error) {
	w := &World{launcher: DetectLauncher()}
	var err error
	if w.library, err = library(); err != nil {
		return nil, err
	}
	note, err := checkLibrary(builtFor, ParseLibrary(Built()), w.Library())
	if err != nil {
		return nil, err
	}
	if note != "" {
		w.notes = append(w.notes, note)
	}
	if err := checkLauncher(w.launcher, w.Library().String()); err != nil {
		return nil, err
	}
	if C.scaffe_started() != 0 {
		return nil, ErrStarted
	}
	empi.LogErrors = false
	C.scaffe_before_init()
	if err := setDefaults(); err != nil {
		return nil, err
	}
	empi.Init()
	if !empi.IsOn() {
		return nil, fmt.Errorf("mpi: MPI_Init of %s failed: see what it printed above", w.Library())
	}
	if err := checkWorld(w.launcher, w.Library().String(), empi.WorldSize()); err != nil {
		empi.Finalize()
		return nil, err
	}
	return w, w.setUp()
}

func attach(comm unsafe.Pointer) (*World, error) {
	w := &World{attached: true}
	var err error
	if w.library, err = library(); err != nil {
		return nil, err
	}
	if _, err := checkLibrary(builtFor, ParseLibrary(Built()), w.Library()); err != nil {
		return nil, err
	}
	var c C.scaffe_world
	return w, w.fill(&c, C.scaffe_attach(comm, &c))
}

// setUp fills w in, with MPI running.
func (w *World) setUp() error {
	var c C.scaffe_world
	return w.fill(&c, C.scaffe_start(&c))
}

// fill fills w in from what was found out, with the return code given.
func (w *World) fill(c *C.scaffe_world, rc C.int) error {
	if err := failure(rc, "setting up a communicator"); err != nil {
		return err
	}
	w.rank, w.size, w.tagUB = int(c.rank), int(c.size), int(c.tag_ub)
	w.major, w.minor = int(c.major), int(c.minor)
	w.level = [...]string{"single", "funneled", "serialized", "multiple"}[c.level]
	w.cuda = [...]Support{Unknown, No, Yes}[min(int(c.cuda), 1)+1]
	w.comm = &Comm{c: c.comm, rank: w.rank, size: w.size}
	here, all := hereWith(int(c.lowest)), make([]place, w.size)
	rc = C.scaffe_gather(c.comm, unsafe.Pointer(&here), C.int(unsafe.Sizeof(here)), unsafe.Pointer(&all[0]))
	if err := failure(rc, "determining which ranks share a node"); err != nil {
		return err
	}
	w.nodes = newNodes(all, w.rank)
	return nil
}

// onThread returns an error unless the calling thread may call MPI.
func onThread(op string) error {
	if C.scaffe_on_thread() != 0 {
		return nil
	}
	return failure(C.SCAFFE_WRONG_THREAD, "%s", op)
}

func moveThread() bool { return C.scaffe_move_thread() != 0 }

// Barrier blocks, polling, until every rank has called it. It is for set-up and
// benchmarks; the wait has no time limit.
func (w *World) Barrier() error {
	if err := onThread("MPI_Barrier"); err != nil {
		return err
	}
	control, err := empi.NewComm(nil)
	if err != nil {
		return fmt.Errorf("mpi: %w", err)
	}
	return control.Barrier()
}

// finalizeWait is how long MPI_Finalize may take: by itself it waits for ever for a rank that has stopped.
const finalizeWait = time.Minute

func (w *World) finalize() error {
	late := time.AfterFunc(finalizeWait, func() {
		fmt.Fprintf(os.Stderr, "mpi: rank %d: MPI_Finalize has not returned after %v: another rank may have stopped; this process ends\n", w.rank, finalizeWait)
		w.Kill(1)
	})
	defer late.Stop()
	empi.Finalize()
	return nil
}

// Kill ends this process with status code (1 for 0), and the job with it. On
// MPI's thread it calls MPI_Abort, which gets three seconds; on any other it
// ends the process alone, and mpirun then ends the rest. It does not return.
func (w *World) Kill(code int) {
	if code == 0 {
		code = 1
	}
	if C.scaffe_on_thread() != 0 && !w.over {
		time.AfterFunc(3*time.Second, func() { os.Exit(code) })
		C.scaffe_abort(C.int(code))
	}
	os.Exit(code)
}
