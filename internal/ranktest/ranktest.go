// Package ranktest runs the ranks of a test as processes: it starts mpirun with the
// test's own program, whose TestMain then is a rank.
//
//	func TestMain(m *testing.M) { ranktest.Main(m, rank) }
//
//	func rank(p ranktest.Process) { p.Report(…, "done") }
//
//	func TestMPI(t *testing.T) {
//		for r, said := range ranktest.Run(t, 4, "a word for the ranks").Reports {
//
// Tests that use it are skipped where scripts/with-mpi does not say where mpirun is.
package ranktest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// variable makes the program a rank: it holds the folder of the run and the words.
const variable = "SCAFFE_TEST_RANK"

// Only what hangs takes as long as these.
const (
	hung = 20 * time.Minute // of mpirun
	mute = time.Minute      // of a rank that the others wait for
)

// Main is TestMain. In a process that Run has started it calls rank, which does not
// need to return, and ends the process with status 0.
func Main(m *testing.M, rank func(Process)) {
	Rank(rank)
	os.Exit(m.Run())
}

// Rank does nothing but in a process that Run has started: there it calls rank and ends the process, as Main does.
func Rank(rank func(Process)) {
	if text := os.Getenv(variable); text != "" {
		words := strings.Split(text, ",")
		rank(Process{Folder: words[0], Words: words[1:]})
		os.Exit(0)
	}
}

// Process is what a rank's process knows of its run.
type Process struct {
	Folder string   // which all ranks share, empty at first
	Words  []string // that Run was given
}

// file is where a rank reports.
func file(folder string, rank int) string { return filepath.Join(folder, fmt.Sprint("rank", rank)) }

// Report says what came of a rank; Run returns it.
func (p Process) Report(rank int, text string) {
	whole := file(p.Folder, rank) + ".part" // the file appears with its text
	err := os.WriteFile(whole, []byte(text), 0o666)
	if err == nil {
		err = os.Rename(whole, file(p.Folder, rank))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Await waits until these ranks have reported: mpirun ends all ranks with the first
// that ends badly or leaves MPI as it is.
func (p Process) Await(ranks ...int) {
	for until := time.Now().Add(mute); len(ranks) > 0 && time.Now().Before(until); {
		if _, err := os.Stat(file(p.Folder, ranks[0])); err == nil {
			ranks = ranks[1:]
			continue
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Ended is a run that has ended.
type Ended struct {
	Reports []string // each rank's, empty where there is none
	Printed string   // by the ranks and by mpirun
	Err     error    // of mpirun
	Folder  string
}

// Run runs the test's program on n ranks.
func Run(t *testing.T, n int, words ...string) Ended {
	t.Helper()
	return Through(t, nil, n, words...)
}

// Programs returns the folder of osu-bench's programs osu_*, built with the library that scripts/with-mpi has chosen, beside
// which it stays: what is up to date there is not built again. They are one file, which goes by the name that it has.
func Programs(t *testing.T) string {
	t.Helper()
	mpi := os.Getenv("SCAFFE_MPI_DIR")
	if mpi == "" {
		t.Skip("no MPI: run `make test-mpi`")
	}
	dir := filepath.Join(mpi, "osu-bench")
	all := filepath.Join(dir, "gpu-check")
	if out, err := exec.Command("go", "build", "-o", all, "github.com/scaffe/scaffe/osu-bench/gpu-check").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names, err := exec.Command("go", "list", "github.com/scaffe/scaffe/osu-bench/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(dir, "new-") // tests of several packages do this at a time
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	for name := range strings.FieldsSeq(string(names)) {
		if name = path.Base(name); !strings.HasPrefix(name, "osu_") {
			continue
		}
		link := filepath.Join(fresh, name)
		if err := os.Link(all, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Through is Run with mpirun as the arguments of another command, nil for none.
func Through(t *testing.T, command []string, n int, words ...string) Ended {
	t.Helper()
	dir := os.Getenv("SCAFFE_MPI_DIR")
	if dir == "" {
		t.Skip("no MPI: run `make test-mpi`")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	end := Ended{Folder: t.TempDir()}
	// A file and no pipe, which a rank that mpirun leaves behind would hold open.
	printed, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	args := append(command[:len(command):len(command)], filepath.Join(dir, "bin", "mpirun"), "-np", strconv.Itoa(n), program)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+strings.Join(append([]string{end.Folder}, words...), ","))
	cmd.Stdout, cmd.Stderr = printed, printed
	end.Err = cmd.Run()
	text, err := os.ReadFile(printed.Name())
	if err != nil {
		t.Fatal(err)
	}
	end.Printed = string(text)
	if ctx.Err() != nil {
		t.Fatalf("mpirun hung\n%s", end.Printed)
	}
	for r := range n {
		report, _ := os.ReadFile(file(end.Folder, r)) // one that is stuck has none
		end.Reports = append(end.Reports, string(report))
	}
	return end
}
