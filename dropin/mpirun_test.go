package dropin_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/mpi"
)

// place is where the tests' programs and libraries are built, once.
var place = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "dropin")
	if err != nil {
		return "", err
	}
	made = folder
	run := func(name string, args ...string) {
		if err != nil {
			return
		}
		var out []byte
		if out, err = exec.Command(name, args...).CombinedOutput(); err != nil {
			err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	run("../scripts/build-lib", folder)
	for _, program := range []string{"calls", "requests", "forms", "threads", "device", "guest"} {
		run(os.Getenv("SCAFFE_MPICC"), "-O1", "-Wall", "-Werror", "-o", filepath.Join(folder, program), filepath.Join("testdata", program+".c"), "-lpthread")
	}
	run(os.Getenv("SCAFFE_MPICC"), "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", filepath.Join(folder, "tool.so"), filepath.Join("testdata", "tool.c"))
	return folder, err
})

var made string // by place

func TestMain(m *testing.M) {
	status := m.Run()
	if made != "" {
		_ = os.RemoveAll(made)
	}
	os.Exit(status)
}

// built returns where the libraries and the C programs of testdata are, built with the MPI that scripts/with-mpi chose.
func built(t *testing.T) (folder string) {
	t.Helper()
	if os.Getenv("SCAFFE_MPICC") == "" {
		t.Skip("no MPI: run `make test-mpi`")
	}
	folder, err := place()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// ranks runs a program of testdata on n ranks with the library preloaded, and returns what they said.
func ranks(t *testing.T, folder string, n int, environment []string, line ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // of what hangs
	defer cancel()
	args := append([]string{"-np", strconv.Itoa(n), "env"}, environment...)
	if !slices.ContainsFunc(environment, func(s string) bool { return strings.HasPrefix(s, "LD_PRELOAD") }) {
		args = slices.Insert(args, 3, "LD_PRELOAD="+filepath.Join(folder, "libscaffe-mpi.so"))
	}
	if program := filepath.Join(folder, line[0]); filepath.Base(line[0]) == line[0] && !strings.HasPrefix(line[0], "python") {
		line = append([]string{program}, line[1:]...)
	}
	args = append(args, line...)
	out, err := exec.CommandContext(ctx, filepath.Join(os.Getenv("SCAFFE_MPI_DIR"), "bin", "mpirun"), args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "0 errors") {
		t.Errorf("%d ranks, %s %s: %v\n%s", n, strings.Join(environment, " "), strings.Join(line, " "), err, out)
	}
	return string(out)
}

var served = regexp.MustCompile(`scaffe: (MPI_\w+) +served (\d+)`)

// Every way to call what is served, with everything served that can be; and what is passed on.
func TestMPICalls(t *testing.T) {
	folder := built(t)
	for _, n := range []int{2, 3} {
		said := ranks(t, folder, n, []string{"SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, "calls", "many")
		counts := served.FindAllStringSubmatch(said, -1)
		if len(counts) != 8 {
			t.Errorf("%d ranks: a report of %d collectives, not 8:\n%s", n, len(counts), said)
		}
		for _, c := range counts {
			if k, _ := strconv.Atoi(c[2]); k < 20*n {
				t.Errorf("%d ranks: of %s %d calls were served, or others passed on:\n%s", n, c[1], k, said)
			}
		}
	}
}

// Linked with the archive before the MPI library, nothing preloaded; libscaffe.so is found where libraries are looked for.
func TestMPIArchive(t *testing.T) {
	folder := built(t)
	elsewhere := t.TempDir()
	program := filepath.Join(elsewhere, "linked")
	link := exec.Command(os.Getenv("SCAFFE_MPICC"), "-o", program, "testdata/requests.c", filepath.Join(folder, "libscaffe-mpi.a"), "-lpthread", "-ldl")
	if out, err := link.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := ranks(t, folder, 2, []string{"-u", "LD_PRELOAD", "LD_LIBRARY_PATH=" + folder, "SCAFFE_EAGER=1", "SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, program, "eager")
	for _, name := range []string{"MPI_Allreduce", "MPI_Iallreduce"} {
		if !regexp.MustCompile(name + ` +served [1-9]`).MatchString(said) {
			t.Errorf("%s is not served:\n%s", name, said)
		}
	}
	// Without libscaffe.so all is passed on, and said once.
	said = ranks(t, folder, 2, []string{"-u", "LD_PRELOAD", "SCAFFE_MIN=1"}, program, "passed-on")
	if strings.Count(said, "libscaffe.so") != 1 {
		t.Errorf("it is to be said once that libscaffe.so is missing:\n%s", said)
	}
}

// Without SCAFFE_MIN what is faster serves, once both have been tried; sums of floating-point numbers on more than two ranks, which are
// not tried, are passed on below their size.
func TestMPITrial(t *testing.T) {
	folder := built(t)
	said := ranks(t, folder, 2, []string{"SCAFFE_REPORT=1"}, "threads", "single")
	n := regexp.MustCompile(`MPI_Allreduce +served (\d+),.* passed on (\d+) where the library is as fast`).FindStringSubmatch(said)
	if n == nil {
		t.Fatalf("2 ranks: nothing was tried:\n%s", said)
	}
	for _, calls := range n[1:] { // by both ranks: of each five of the first ten, and three again, on one communicator, and on the other, which is called less, five
		if k, _ := strconv.Atoi(calls); k < 2*(5+3+5) {
			t.Errorf("2 ranks: one was tried %d times, so not again later:\n%s", k, said)
		}
	}
	said = ranks(t, folder, 3, []string{"SCAFFE_REPORT=1"}, "threads", "single")
	if !strings.Contains(said, "MPI_Allreduce      served 0") {
		t.Errorf("3 ranks: sums of 320 kB were served, and their bits depend on who serves them:\n%s", said)
	}
}

// Calls that do not block, completed in every way among messages of the program's, where set-up is done: after blocking calls, or in
// MPI_Init.
func TestMPIRequests(t *testing.T) {
	folder := built(t)
	for _, run := range []struct {
		ranks    int
		eager    bool
		settings []string
	}{{2, true, []string{"SCAFFE_EAGER=1"}}, {3, false, nil}} {
		line := []string{"requests"}
		if run.eager {
			line = append(line, "eager")
		}
		said := ranks(t, folder, run.ranks, append(run.settings, "SCAFFE_MIN=1", "SCAFFE_REPORT=1"), line...)
		for _, name := range []string{"MPI_Ireduce", "MPI_Ibcast", "MPI_Iallreduce"} {
			c := regexp.MustCompile(name + ` +served (\d+)(.*)`).FindStringSubmatch(said)
			if c == nil {
				t.Fatalf("%d ranks: nothing about %s:\n%s", run.ranks, name, said)
			}
			if k, _ := strconv.Atoi(c[1]); k < 20*run.ranks || run.eager && c[2] != "" {
				t.Errorf("%d ranks: of %s %d calls were served, or others passed on:\n%s", run.ranks, name, k, said)
			}
		}
	}
	// Without memory that is shared, unless all threads may call MPI, and below their size, they are the library's.
	said := ranks(t, folder, 2, []string{"SCAFFE_MIN=1", "SCAFFE_SHM=off", "SCAFFE_REPORT=1"}, "requests", "passed-on")
	if !regexp.MustCompile(`MPI_Iallreduce +served 0, .* on communicators that are not served`).MatchString(said) {
		t.Errorf("calls that do not block were served without shared memory:\n%s", said)
	}
	said = ranks(t, folder, 2, []string{"SCAFFE_REPORT=1"}, "requests", "passed-on")
	if !regexp.MustCompile(`MPI_Iallreduce +served 0, passed on \d+ small\n`).MatchString(said) {
		t.Errorf("small calls that do not block were served:\n%s", said)
	}
	// Unless all are asked for, broadcasts wait until each rank's thread has a core for itself.
	said = ranks(t, folder, 2, []string{"SCAFFE_EAGER=1", "SCAFFE_REPORT=1"}, "requests", "large")
	if !regexp.MustCompile(`MPI_Iallreduce +served [1-9]`).MatchString(said) {
		t.Errorf("large calls that do not block were not served:\n%s", said)
	}
	if runtime.NumCPU() < 4 && !regexp.MustCompile(`MPI_Ibcast +served 0, .* where the library is as fast`).MatchString(said) {
		t.Errorf("broadcasts were served without a core for the thread:\n%s", said)
	}
}

// The other collectives that do not block, and persistent ones, in every way to call them: what they give is what the library gives.
func TestMPIForms(t *testing.T) {
	folder := built(t)
	digest := regexp.MustCompile(`digest (\w+)`)
	for _, n := range []int{2, 3} {
		library := digest.FindString(ranks(t, folder, n, []string{"SCAFFE_DROPIN=off"}, "forms"))
		said := ranks(t, folder, n, []string{"SCAFFE_EAGER=1", "SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, "forms", "served")
		if got := digest.FindString(said); got == "" || got != library {
			t.Errorf("%d ranks: not what the library gives: %q, not %q\n%s", n, got, library, said)
		}
		for _, name := range []string{"MPI_Iallgather", "MPI_Ireduce_scatter", "MPI_Ialltoall", "MPI_Igather", "MPI_Iscatter"} {
			c := regexp.MustCompile(name + ` +served (\d+)(.*)`).FindStringSubmatch(said)
			if c == nil {
				t.Fatalf("%d ranks: nothing about %s:\n%s", n, name, said)
			}
			// Some are for others: between two groups, and on a communicator that is not set up.
			others := regexp.MustCompile(`^(, passed on \d on communicators that are not served)?(, passed on \d before set-up)?$`)
			if k, _ := strconv.Atoi(c[1]); k < 20*n || !others.MatchString(c[2]) {
				t.Errorf("%d ranks: of %s %d calls were served, or others passed on:\n%s", n, name, k, said)
			}
		}
	}
	// Unless all are asked for, what is not added waits, as broadcasts do, until each rank's thread has a core for itself.
	said := ranks(t, folder, 2, []string{"SCAFFE_EAGER=1", "SCAFFE_REPORT=1"}, "forms", "large")
	if !regexp.MustCompile(`MPI_Ireduce_scatter served 4\n`).MatchString(said) {
		t.Errorf("large reductions to parts that do not block were not served:\n%s", said)
	}
	for _, name := range []string{"MPI_Iallgather", "MPI_Ialltoall", "MPI_Igather", "MPI_Iscatter"} {
		if runtime.NumCPU() < 4 && !regexp.MustCompile(name+` +served 0, .* where the library is as fast`).MatchString(said) {
			t.Errorf("%s was served without a core for the thread:\n%s", name, said)
		}
	}
}

// Where all threads may call MPI, what does not block is served without shared memory too, as between nodes.
func TestMPIRequestsOverMPI(t *testing.T) {
	folder := built(t)
	environment := []string{"SCAFFE_EAGER=1", "SCAFFE_MIN=1", "SCAFFE_SHM=off", "SCAFFE_REPORT=1", "THREADS=multiple"}
	said := ranks(t, folder, 2, environment, "requests", "eager")
	said += ranks(t, folder, 2, environment, "forms", "served")
	for _, name := range []string{"MPI_Ireduce", "MPI_Ibcast", "MPI_Iallreduce", "MPI_Iallgather", "MPI_Ireduce_scatter", "MPI_Ialltoall", "MPI_Igather", "MPI_Iscatter"} {
		if c := regexp.MustCompile(name + ` +served (\d+)`).FindStringSubmatch(said); c == nil || len(c[1]) < 2 {
			t.Errorf("%s is not served:\n%s", name, said)
		}
	}
}

// Over the MPI library alone, as between nodes.
func TestMPICallsWithoutSharedMemory(t *testing.T) {
	ranks(t, built(t), 2, []string{"SCAFFE_MIN=1", "SCAFFE_SHM=off", "SCAFFE_ALGORITHM=chain"}, "calls")
}

// On memory of a GPU, which the library below does not take: who has such memory stages it, also where others have the host's.
func TestMPIDevice(t *testing.T) {
	folder := built(t)
	driver, err := cudatest.Build()
	if err != nil {
		t.Fatal(err)
	}
	for like, n := range map[string]int{"": 3, "pools=1": 2} {
		said := ranks(t, folder, n, []string{"SCAFFE_EAGER=1", "SCAFFE_MIN=1", "SCAFFE_REPORT=1", "SCAFFE_STANDIN=" + like, cuda.EnvLibrary + "=" + driver}, "device", driver)
		if strings.Contains(said, "passed on") {
			t.Errorf("%q: calls on a GPU's memory were passed on:\n%s", like, said)
		}
	}
}

// Among signals and faults of the program's own, collective files, mistakes, and a thousand communicators.
func TestMPIGuest(t *testing.T) {
	folder := built(t)
	everything := []string{"SCAFFE_MIN=1", "SCAFFE_REPORT=1"}
	for _, line := range [][]string{
		{"guest", "signals"},
		{"guest", "files", filepath.Join(t.TempDir(), "file")},
		{"guest", "mistakes"},
		{"guest", "communicators", "1000"},
	} {
		said := ranks(t, folder, 2, everything, line...)
		if c := regexp.MustCompile(`MPI_Allreduce +served (\d+)`).FindStringSubmatch(said); c == nil || c[1] == "0" {
			t.Errorf("%s: no sum was served:\n%s", line[1], said)
		}
	}
	// With little address space, which Go asks for much of, or without the right to read another process, all is as it was.
	said := ranks(t, folder, 2, everything, "/bin/sh", "-c", `ulimit -v 4000000; exec "$0" sums`, filepath.Join(folder, "guest"))
	if strings.Contains(said, "panic") || strings.Contains(said, "fatal error") {
		t.Errorf("with 4 GB of address space:\n%s", said)
	}
}

// Tools that have MPI_X and call PMPI_X see the program's calls before scaffe, and what is passed on behind it.
func TestMPITools(t *testing.T) {
	folder := built(t)
	lib, tool := filepath.Join(folder, "libscaffe-mpi.so"), filepath.Join(folder, "tool.so")
	calls := func(said string) int {
		c := regexp.MustCompile(`tool: (\d+) calls`).FindStringSubmatch(said)
		if c == nil {
			t.Fatalf("the tool says nothing:\n%s", said)
		}
		n, _ := strconv.Atoi(c[1])
		return n
	}
	served := regexp.MustCompile(`MPI_Allreduce +served (\d+)`)
	before := ranks(t, folder, 2, []string{"LD_PRELOAD=" + tool + ":" + lib, "SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, "guest", "sums")
	if n, c := calls(before), served.FindStringSubmatch(before); n != 21 || c == nil || c[1] == "0" {
		t.Errorf("in front, a tool sees %d of 21 calls:\n%s", n, before)
	}
	behind := ranks(t, folder, 2, []string{"LD_PRELOAD=" + lib + ":" + tool, "SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, "guest", "sums")
	if n, c := calls(behind), served.FindStringSubmatch(behind); n == 0 || n > 5 || c == nil || c[1] == "0" {
		t.Errorf("behind, a tool sees %d calls, where a few are passed on:\n%s", n, behind)
	}
	// Under MPICH a thread that is in a call when the library's MPI_Finalize begins leaves its lock behind.
	if strings.Index(behind, "scaffe: calls of all ranks") > strings.Index(behind, "tool: ") {
		t.Errorf("scaffe ends within MPI_Finalize, not before it:\n%s", behind)
	}
}

// A rank that is killed among served calls is an error to the others, within ten seconds.
func TestMPIKilled(t *testing.T) {
	folder, said := built(t), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	mpirun := filepath.Join(os.Getenv("SCAFFE_MPI_DIR"), "bin", "mpirun")
	program := []string{"env", "LD_PRELOAD=" + filepath.Join(folder, "libscaffe-mpi.so"), "SCAFFE_MIN=1", filepath.Join(folder, "guest"), "killed", said}
	args := append([]string{"--enable-recovery", "-np", "3"}, program...)
	if library, _ := exec.CommandContext(ctx, mpirun, "--version").CombinedOutput(); strings.Contains(string(library), "HYDRA") {
		// Hydra would end the others: a shell around each rank outlives it, and the signal that follows.
		args = append([]string{"-disable-auto-cleanup", "-np", "3", "sh", "-c", `trap : USR1; "$0" "$@"; sleep 12`}, program...)
	}
	out, _ := exec.CommandContext(ctx, mpirun, args...).CombinedOutput() // fails, whatever the others do
	for _, rank := range []string{"rank0", "rank1"} {
		text, err := os.ReadFile(filepath.Join(said, rank))
		var took float64
		if n, _ := fmt.Sscanf(string(text), "an error after %f s", &took); err != nil || n != 1 || took > 10 {
			t.Errorf("%s: %v, %q\n%s", rank, err, text, out)
		}
	}
}

// Under any level of threads, and with children.
func TestMPIThreads(t *testing.T) {
	folder := built(t)
	for _, level := range []string{"single", "multiple"} {
		said := ranks(t, folder, 3, []string{"SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, "threads", level)
		if !strings.Contains(said, "MPI_Allreduce      served 2") {
			t.Errorf("%s: hardly anything was served:\n%s", level, said)
		}
	}
}

// Whoever waits long says for whom, and waits on.
func TestMPIStall(t *testing.T) {
	said := ranks(t, built(t), 2, []string{"SCAFFE_MIN=1", "SCAFFE_STALL=1s"}, "threads", "single", "late")
	if n := strings.Count(said, "rank 0 has waited in "); n != 1 || !strings.Contains(said, "rank 1 has not answered") {
		t.Errorf("%d times it was said what is waited for:\n%s", n, said)
	}
}

// Where scaffe cannot be had, or is not wanted, all is passed on.
func TestMPIPassedOn(t *testing.T) {
	folder := built(t)
	said := ranks(t, folder, 2, []string{"SCAFFE_MIN=1", "SCAFFE_REPORT=1", "SCAFFE_DROPIN=off"}, "threads", "single")
	if strings.Contains(said, "scaffe") {
		t.Errorf("switched off, it says\n%s", said)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", "echo quiet")
	shell.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(folder, "libscaffe-mpi.so"))
	if out, err := shell.CombinedOutput(); err != nil || string(out) != "quiet\n" {
		t.Errorf("a shell with the library preloaded: %v, %q", err, out)
	}
	alone := t.TempDir() // without libscaffe.so
	for _, name := range []string{"libscaffe-mpi.so", "threads"} {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(alone, name), b, 0o777)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	said = ranks(t, alone, 2, []string{"SCAFFE_MIN=1"}, "threads", "single")
	if !strings.Contains(said, "are passed on to the MPI library: libscaffe.so") {
		t.Errorf("without libscaffe.so the ranks do not say so:\n%s", said)
	}
}

// From Fortran, whose bindings call PMPI_X in Open MPI and MPI_X in MPICH.
func TestMPIFortran(t *testing.T) {
	folder := built(t)
	compiler := strings.Replace(os.Getenv("SCAFFE_MPICC"), "mpicc", "mpifort", 1)
	source, err := filepath.Abs("testdata/f08.f90")
	if err != nil {
		t.Fatal(err)
	}
	compile := exec.CommandContext(t.Context(), compiler, "-o", filepath.Join(folder, "f08"), source)
	compile.Dir = folder
	if out, err := compile.CombinedOutput(); err != nil {
		t.Skipf("no Fortran (apt-get install gfortran): %s: %v\n%s", compiler, err, out)
	}
	said := ranks(t, folder, 2, []string{"SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, "f08")
	everythingServed(t, said, 14, 4)
	for name, n := range map[string]int{"MPI_Iallgather": 4, "MPI_Ireduce_scatter": 4, "MPI_Ialltoall": 2, "MPI_Igather": 2, "MPI_Iscatter": 2} {
		if !regexp.MustCompile(fmt.Sprintf(`%s +served %d\n`, name, n)).MatchString(said) {
			t.Errorf("of %s not %d calls were served:\n%s", name, n, said)
		}
	}
}

// From Python, which opens MPI where other libraries do not see it, and asks for all threads.
func TestMPIPython(t *testing.T) {
	folder := built(t)
	var python, version string
	for _, python = range []string{"python3", "/usr/bin/python3"} { // the system's, which has the system's packages
		out, err := exec.CommandContext(t.Context(), python, "-c", "import numpy, mpi4py\nmpi4py.rc.initialize = False\nfrom mpi4py import MPI\nprint(MPI.Get_library_version())").Output()
		if version = string(out); err == nil {
			break
		}
		version = ""
	}
	if version == "" {
		t.Skip("no mpi4py (apt-get install python3-mpi4py python3-numpy)")
	}
	if lib := mpi.ParseLibrary(version); lib.Family() != mpi.ParseLibrary(mpi.Built()).Family() {
		t.Skipf("the system's mpi4py is built for %v", lib)
	}
	everythingServed(t, ranks(t, folder, 3, []string{"SCAFFE_MIN=1", "SCAFFE_REPORT=1"}, python, "testdata/script.py"), 21, 12)
}

// everythingServed holds a report to so many allreduces that were served, and so many that do not block.
func everythingServed(t *testing.T, said string, allreduces, iallreduces int) {
	t.Helper()
	if !strings.Contains(said, "MPI_Allreduce      served "+strconv.Itoa(allreduces)) ||
		!strings.Contains(said, "MPI_Iallreduce     served "+strconv.Itoa(iallreduces)+"\n") {
		t.Errorf("not %d calls were served:\n%s", allreduces, said)
	}
}
