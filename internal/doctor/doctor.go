// Package doctor looks at what a run depends on (the MPI library, the nodes,
// shared memory, GPUs, BLAS, kernels) and says in words what it found, what is
// wrong with it and what to do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/dnn"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mpi"
)

// Finding is one thing that was checked.
type Finding struct {
	What  string // such as "MPI library"
	Found string
	Wrong string // empty: nothing
	Fix   string // what to do about it
	Fatal bool   // training does not work like this
}

// Examine looks at everything. In a world of several ranks all must call it;
// rank tells which one this is.
func Examine(ctx context.Context) (findings []Finding, rank int) {
	findings = []Finding{program()}
	done := make(chan struct{})
	go func() { // MPI wants one thread from start to end
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w, err := mpi.Start()
		if err != nil {
			findings = append(findings, Finding{What: "MPI", Found: orNone(mpi.Built()), Wrong: err.Error(), Fix: "act on the message", Fatal: true})
			return
		}
		rank = w.Rank()
		findings = append(findings, library(w)...)
		findings = append(findings, gpuPaths(w)...)
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := w.Finalize(ctx); err != nil {
			findings = append(findings, Finding{What: "MPI", Wrong: err.Error(), Fix: "see the messages of the other ranks"})
		}
	}()
	<-done
	findings = append(findings, sharedMemory(), unregistered(), cores(), cpuKernels(), matrices(), convolutions(), gpus())
	return findings, rank
}

// Print writes the findings as a list for people, and reports whether one is
// fatal.
func Print(w io.Writer, findings []Finding) (fatal bool) {
	for _, f := range findings {
		mark := "ok"
		if f.Wrong != "" {
			mark = "!!"
		}
		fmt.Fprintf(w, "%s  %-16s %s\n", mark, f.What, f.Found)
		if f.Wrong != "" {
			fmt.Fprintf(w, "    wrong: %s\n", f.Wrong)
			if f.Fix != "" {
				fmt.Fprintf(w, "    do:    %s\n", f.Fix)
			}
		}
		fatal = fatal || f.Fatal
	}
	return fatal
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// library says what MPI is and what it can do.
func library(w *mpi.World) []Finding {
	if mpi.Built() == "" {
		return []Finding{{
			What: "MPI library", Found: "none: this program was built without MPI",
			Wrong: "runs one rank, or several with --local, but not under mpirun", Fix: "build with `make build`",
		}}
	}
	lib := Finding{What: "MPI library", Found: fmt.Sprintf("%s (built for %s)", w.LibraryVersion(), mpi.Built())}
	for _, note := range w.Notes() {
		lib.Wrong, lib.Fix = note, "rebuild with `make build` if it misbehaves"
	}
	major, minor := w.StandardVersion()
	launcher := w.Launcher().Name
	if launcher == "" {
		launcher = "none: started alone, a world of one rank"
	}
	return []Finding{
		lib,
		{What: "MPI standard", Found: fmt.Sprintf("%d.%d, thread level %s, tags up to %d", major, minor, w.ThreadLevel(), w.TagUB())},
		{What: "launcher", Found: launcher},
		{What: "topology", Found: topology(w.Nodes())},
		aware(w),
	}
}

// aware says what the library claims of pointers to GPUs' memory, and on rank 0 what a process that tried showed.
func aware(w *mpi.World) Finding {
	f := Finding{What: "CUDA-aware MPI", Found: w.CUDAAware().String()}
	if all, err := cuda.GPUs(); err != nil || len(all) == 0 || w.CUDAAware() != mpi.Yes || w.Rank() != 0 {
		return f
	}
	if err := launch.TryAware(0); err != nil {
		f.Wrong = fmt.Sprintf("so it says, and %v: messages of GPUs' memory are staged between nodes", err)
		f.Fix = "see how the library is to be built or configured for CUDA; nothing, if that is fast enough"
		return f
	}
	f.Found += ", as a process showed that sent memory of cuda:0 to itself"
	return f
}

// topology says where the ranks are.
func topology(n mpi.Nodes) string {
	found := fmt.Sprintf("%v; %d of them on this node", n, n.LocalSize)
	if n.Rivals > 0 {
		found += fmt.Sprintf(", %d more on its cores: containers of one machine", n.Rivals)
	}
	return found
}

// program says which build this is.
func program() Finding {
	v := version.Get()
	return Finding{What: "scaffe", Found: fmt.Sprintf("%s, %s", v, v.Go)}
}

// sharedMemory says whether ranks of one node can share memory.
func sharedMemory() Finding {
	const dir, enough = "/dev/shm", 256 << 20
	f := Finding{What: "shared memory"}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		f.Found, f.Wrong, f.Fix = "none", fmt.Sprintf("%s: %v", dir, err), "mount a tmpfs there"
		return f
	}
	free := int64(st.Bavail) * st.Bsize
	f.Found = fmt.Sprintf("%s, %d MiB free", dir, free>>20)
	if free < enough {
		f.Wrong = "less than 256 MiB: MPI libraries keep the buffers that ranks of a node share there"
		f.Fix = "enlarge it (mount -o remount,size=2G /dev/shm; in a container --shm-size=2g)"
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		f.Wrong, f.Fix = fmt.Sprintf("cannot be written: %v", err), "give this user write access"
	}
	return f
}

// ptraceScope is where Yama says who may read another process's memory.
const ptraceScope = "/proc/sys/kernel/yama/ptrace_scope"

// unregistered says how messages in memory that is not registered reach another rank
// of the node (package nbc/shm), and why.
func unregistered() Finding {
	scope, _ := os.ReadFile(ptraceScope) // a kernel without Yama has none
	var got, want uint64 = 0, 1
	local := []unix.Iovec{{Base: (*byte)(unsafe.Pointer(&got)), Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&want)), Len: 8}}
	_, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0)
	return Finding{What: "unregistered memory", Found: pathOfUnregistered(strings.TrimSpace(string(scope)), err)}
}

// pathOfUnregistered is given Yama's scope, and whether process_vm_readv fails for this
// process's own memory.
func pathOfUnregistered(scope string, err error) string {
	const copied = "copied by its sender into memory that the ranks of a node share"
	switch {
	case err != nil:
		return fmt.Sprintf("%s: process_vm_readv is forbidden here (%v), as by a container's seccomp profile", copied, err)
	case scope == "2" || scope == "3":
		return fmt.Sprintf("%s: kernel.yama.ptrace_scope is %s; with 0 or 1 large messages are read by their receivers", copied, scope)
	}
	return copied + " where it is small, or part of 8 MiB and more and ranks share cores; otherwise read by its receiver (process_vm_readv)"
}

func cores() Finding {
	return Finding{What: "processor", Found: fmt.Sprintf("%d cores for this process, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)}
}

// Measured says what is kept of measurements of this machine, by which the cost model
// chooses algorithms.
func Measured(n selection.Node) []Finding {
	f := Finding{What: "measured"}
	dir, err := selection.KeptFolder()
	if err != nil {
		f.Wrong, f.Fix = fmt.Sprintf("no cache folder: %v", err), "set XDG_CACHE_HOME: until then every start measures this machine again"
		return []Finding{f}
	}
	var all []Finding
	for _, k := range selection.AllKept(dir, n) {
		m := k.Model(selection.Default().Model)
		f.Found = fmt.Sprintf("on %s, %d ranks a node: %.3g GB/s by a core, %.3g by all; short messages %.2g µs",
			k.Date(), k.PPN, m.Core.Bandwidth/1e9, m.Memory.Bandwidth/1e9, 1e6*(m.Short.Latency+2*m.Short.Op))
		all = append(all, f)
	}
	if len(all) == 0 {
		f.Found = "nothing yet of this machine: ranks measure it when they first start here"
		all = append(all, f)
	}
	return append(all, measuredGPUs(dir)...)
}

// measuredGPUs says what is kept of the GPUs that this machine has, of each kind once.
func measuredGPUs(dir string) (all []Finding) {
	gpus, err := cuda.GPUs()
	if err != nil {
		return nil // gpus tells
	}
	seen := map[string]bool{}
	for _, g := range gpus {
		k := launch.KeptGPU(g)
		if seen[k.GPU] {
			continue
		}
		seen[k.GPU] = true
		f := Finding{What: "measured GPU", Found: "nothing yet of " + k.GPU + ": ranks that have one measure it when they first start here"}
		if found, err := k.Load(dir); err != nil {
			f.Wrong, f.Fix = err.Error(), "remove the file: ranks measure the GPU again"
		} else if found {
			m := k.Model(selection.Default().Model).GPU
			f.Found = fmt.Sprintf("%s, on %s: %.2g µs for a kernel, %.3g GB/s in its memory; copies of %.3g GB/s down, %.3g up",
				k.GPU, k.Date(), 1e6*m.Launch, m.Memory/1e9, m.Down.Bandwidth/1e9, m.Up.Bandwidth/1e9)
		}
		all = append(all, f)
	}
	return all
}

func cpuKernels() Finding {
	k, err := kernels.NewCPU()
	if err != nil {
		return Finding{What: "kernels", Wrong: err.Error(), Fix: "unset SCAFFE_KERNELS", Fatal: true}
	}
	f := Finding{What: "kernels", Found: k.Name()}
	if k.Name() == "portable" && runtime.GOARCH == "amd64" {
		f.Wrong = "this processor has no AVX2 (or SCAFFE_KERNELS asks for the portable path): reductions are slower"
	}
	return f
}

func matrices() Finding {
	name, threads := dnn.ProductsBy()
	f := Finding{What: "matrix products", Found: fmt.Sprintf("%s, %d threads", name, threads)}
	switch {
	case dnn.Products:
	case !blas.Optimized():
		f.Wrong = "pure Go: layers compute several times slower than with OpenBLAS"
		f.Fix = "install libopenblas0, and build with cgo"
	case strings.HasSuffix(name, "(Prescott)") && cpuid.CPU.Supports(cpuid.AVX2):
		f.Wrong = "this OpenBLAS does not know the processor, and takes kernels without AVX2"
		f.Fix = "set OPENBLAS_CORETYPE=Haswell"
	}
	return f
}

func convolutions() Finding {
	f := Finding{What: "convolutions", Found: fmt.Sprintf("%s, %d threads", dnn.Name(), dnn.Threads())}
	if !dnn.Available {
		f.Wrong = "no oneDNN: convolutions go through BLAS, about two times slower"
		f.Fix = "install libdnnl-dev (version 2) and build with `make build`"
	}
	return f
}

// gpus says which GPUs there are, and which of NVIDIA's libraries training computes with.
func gpus() Finding {
	all, err := cuda.GPUs()
	f := Finding{What: "GPUs", Found: "none"}
	seen, _ := filepath.Glob("/proc/driver/nvidia/gpus/*")
	switch {
	case errors.Is(err, cuda.ErrNotBuilt) && len(seen) > 0:
		f.Found, f.Wrong = fmt.Sprintf("%d NVIDIA", len(seen)), err.Error()
	case errors.Is(err, cuda.ErrNotBuilt):
	case errors.Is(err, cuda.ErrNoDriver) && len(seen) > 0:
		f.Found, f.Wrong = fmt.Sprintf("%d NVIDIA", len(seen)), err.Error()
		f.Fix = "give this environment the driver's libcuda.so.1 (containers need the NVIDIA runtime)"
	case errors.Is(err, cuda.ErrNoDriver):
		f.Found = "none (" + err.Error() + ")"
	case err != nil:
		f.Wrong, f.Fix = err.Error(), "see what nvidia-smi says"
	case len(all) == 0:
		f.Found = "none (a CUDA driver, and no GPU)"
	default:
		f.Found = gpuNames(all)
		f.Found += libraryLine("cuBLAS", "products", cuda.FindBLAS, &f)
		f.Found += libraryLine("cuDNN", "convolutions", cuda.FindDNN, &f)
	}
	return f
}

// libraryLine says which of NVIDIA's libraries there is for what. One that is there and cannot be used is wrong.
func libraryLine(name, what string, find func() (cuda.Library, error), f *Finding) string {
	of, err := find()
	switch {
	case errors.Is(err, cuda.ErrNoLibrary):
		return fmt.Sprintf("\n%22sno %s (%v): %s by scaffe's own kernels", "", name, err, what)
	case err != nil:
		f.Wrong, f.Fix = err.Error(), "training on a GPU stops with this"
		return ""
	}
	return fmt.Sprintf("\n%22s%s %s (%s) for %s", "", name, of.Version, of.Name, what)
}

// gpuNames is one line for each GPU, after the driver.
func gpuNames(all []cuda.GPU) string {
	var b strings.Builder
	version, err := cuda.DriverVersion()
	if err != nil {
		version = err.Error()
	}
	fmt.Fprintf(&b, "%d, driver for CUDA %s", len(all), version)
	for _, g := range all {
		fmt.Fprintf(&b, "\n%22scuda:%d %s, %.1f GiB, sm_%d, %s, PCI %s", "", g.Index, g.Name, float64(g.Memory)/(1<<30), g.SM, g.UUID, g.PCIBus)
		if g.Mode != cuda.Shared {
			fmt.Fprintf(&b, ", compute mode %v", g.Mode)
		}
		b.WriteString(shared(g, all))
	}
	return b.String()
}
