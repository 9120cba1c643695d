package nbc_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

// The tests of this file start mpirun with this very program, whose ranks are
// then processes. They run where scripts/with-mpi says where mpirun is.

// rankOf names the environment variable that makes this program a rank: it
// holds the scenario, the transport and the folder for what the ranks say.
const rankOf = "SCAFFE_TEST_ENGINE"

// scenarios are what such a rank does. The text it returns is printed.
var scenarios = map[string]func(e *nbc.Engine) string{
	"giving up": givingUp,
}

func TestMain(m *testing.M) {
	if how := strings.Split(os.Getenv(rankOf), ","); len(how) == 3 {
		runRank(scenarios[how[0]], how[1], how[2])
	}
	os.Exit(m.Run())
}

// runRank runs a scenario, writes what it returns to a file, and ends the
// process when all have: mpirun ends the others with the first that leaves MPI
// as it is.
func runRank(scenario func(e *nbc.Engine) string, transport, folder string) {
	k, err := kernels.NewCPU()
	if err != nil {
		panic(err)
	}
	open := overmpi.Open(overmpi.Options{CloseWait: 5 * time.Second})
	if transport == "shm" {
		open = shm.Over(open, shm.Options{})
	}
	e, err := nbc.Start(open, device.CPU(k), nbc.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text := scenario(e)
	if err := os.WriteFile(said(folder, e.Rank()), []byte(text), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for r, until := 0, time.Now().Add(time.Minute); r < e.Size() && time.Now().Before(until); {
		if _, err := os.Stat(said(folder, r)); err == nil {
			r++
			continue
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = e.Close()
	os.Exit(0)
}

// said is the file in which a rank says what came of its scenario.
func said(folder string, rank int) string { return filepath.Join(folder, fmt.Sprint("rank", rank)) }

// mpirun runs a scenario on n ranks, and returns what each said and what they
// printed.
func mpirun(t *testing.T, n int, scenario, transport string) (ranks []string, printed string) {
	t.Helper()
	dir := os.Getenv("SCAFFE_MPI_DIR")
	if dir == "" {
		t.Skip("no MPI: run `make test-mpi`")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "bin", "mpirun"), "-np", fmt.Sprint(n), program)
	cmd.Env = append(os.Environ(), rankOf+"="+strings.Join([]string{scenario, transport, folder}, ","))
	cmd.WaitDelay = 5 * time.Second
	out, _ := cmd.CombinedOutput() // a rank that leaves MPI as it is makes mpirun complain
	if ctx.Err() != nil {
		t.Fatalf("mpirun hung\n%s", out)
	}
	for r := range n {
		text, _ := os.ReadFile(said(folder, r)) // one that is stuck has none
		ranks = append(ranks, string(text))
	}
	return ranks, string(out)
}

// givingUp: rank 1 gives up, while rank 0 computes and the others wait.
func givingUp(e *nbc.Engine) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reduce := func(instance uint32) error {
		const count = 1 << 20 // too large to be sent before it is received
		buf := mem.Of(make([]float32, count))
		p, err := plan(e.Rank(), e.Size(), count, count/4)
		if err != nil {
			return err
		}
		r, err := e.Prepare(p, nbc.Binding{Name: "reduce", Instance: instance, In: buf, Out: buf})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	if err := reduce(1); err != nil {
		return err.Error()
	}
	switch e.Rank() {
	case 0:
		time.Sleep(time.Second)
	case 1:
		return fmt.Sprint("told the others: ", e.Abort(ctx, "a file is missing"))
	}
	return fmt.Sprint("learned: ", reduce(2))
}

// TestMPIOneThreadAtATime: while a rank gives up, its caller's thread and the
// engine's do not call the transport at once. Only the race detector sees that.
func TestMPIOneThreadAtATime(t *testing.T) {
	if !raceDetector {
		t.Skip("the race detector is needed: scripts/test-mpi")
	}
	for _, transport := range []string{"mpi", "shm"} {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprint(transport, n), func(t *testing.T) {
				ranks, out := mpirun(t, n, "giving up", transport)
				if strings.Contains(out, "DATA RACE") {
					t.Errorf("races:\n%s", out)
				}
				for r, text := range ranks {
					want := "rank 1 gave up: a file is missing"
					if r == 1 {
						want = "told the others: <nil>"
					}
					if !strings.Contains(text, want) {
						t.Errorf("rank %d says %q, without %q:\n%s", r, text, want, out)
					}
				}
			})
		}
	}
}
