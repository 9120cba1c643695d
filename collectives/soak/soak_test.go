package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

var (
	soakFor  = flag.Duration("soak.for", 0, "run series of programs for this long; 0: a few")
	soakSeed = flag.Uint64("soak.seed", 0, "the first seed; 0: chosen, with -soak.for, or 1")
	soakOver = flag.String("soak.over", "", "the transport: inproc, shm, mpi, or mpi:N with tags up to N alone; all of them by itself")
	ranks    = flag.Int("soak.ranks", 0, "the number of ranks; 0: 2 to 6 in turn, under mpirun 2 to 4")
)

// perSeries is how many programs a world runs: with seeds in a row, the last of
// an odd first seed with a rank that gives up.
const perSeries = 10

// deadline bounds a collective of a program that hangs.
const deadline = 5 * time.Minute

// series is what a world of ranks runs.
type series struct {
	seed  uint64
	over  string
	ranks int
}

func (s series) String() string {
	return fmt.Sprintf("make soak SEED=%d OVER=%s RANKS=%d", s.seed, s.over, s.ranks)
}

// aborts reports whether a rank gives up in the end.
func (s series) aborts() bool { return s.seed/perSeries%2 == 0 }

// programs calls run with every program in turn.
func (s series) programs(run func(*Program) error) error {
	for i := range uint64(perSeries) {
		p := New(s.seed+i, Options{Ranks: s.ranks, Steps: 40, Library: s.over != "inproc", Abort: i == perSeries-1 && s.aborts()})
		if err := run(p); err != nil {
			return fmt.Errorf("program %d of the series: %w", i, err)
		}
	}
	return nil
}

// inProcess runs the programs on goroutines, each in a world of its own that
// delivers messages in an order of the seed's.
func (s series) inProcess(ctx context.Context) error {
	return s.programs(func(p *Program) error {
		w := inproc.NewWorld(s.ranks, inproc.Options{Seed: p.Seed % 4})
		open := func(rank int) func() (nbc.Transport, error) {
			return func() (nbc.Transport, error) {
				t, err := w.Open(rank)()
				if err == nil && p.Seed%3 == 0 {
					t = faulty.Wrap(t, faulty.Plan{Seed: p.Seed, Delay: 5, Reorder: true})
				}
				return t, err
			}
		}
		return errors.Join(collectivestest.World(s.ranks, open, nbc.Options{Deadline: deadline}, func(c *collectives.Comm, _ *nbc.Engine) error {
			return Run(ctx, c, p)
		})...)
	})
}

// asRank names the environment variable that makes this program a rank under
// mpirun: the folder for errors, and the series.
const asRank = "SCAFFE_TEST_SOAK"

func TestMain(m *testing.M) {
	if text := os.Getenv(asRank); text != "" {
		var folder string
		var s series
		if _, err := fmt.Sscan(text, &folder, &s.seed, &s.over, &s.ranks); err != nil {
			panic(err)
		}
		os.Exit(s.rank(folder))
	}
	os.Exit(m.Run())
}

// rank runs all programs as one rank of several processes.
func (s series) rank(folder string) int {
	e, err := s.engine()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	world := collectives.World(e, collectives.Options{})
	aborted := false
	err = s.programs(func(p *Program) error {
		aborted = p.aborts()
		return Run(context.Background(), world, p)
	})
	if err != nil {
		_ = os.WriteFile(filepath.Join(folder, fmt.Sprint("rank", e.Rank())), []byte(err.Error()), 0o666)
	} else {
		_ = os.WriteFile(filepath.Join(folder, fmt.Sprint("ended", e.Rank())), nil, 0o666)
	}
	s.await(folder)
	if closed := e.Close(); err == nil && !aborted && closed != nil {
		fmt.Fprintln(os.Stderr, closed)
		return 1
	}
	if err != nil {
		return 1
	}
	return 0
}

// await waits until every rank has written how it ended: mpirun ends them all
// with the first that leaves badly.
func (s series) await(folder string) {
	for range 600 {
		files, _ := os.ReadDir(folder)
		if len(files) >= s.ranks {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s series) engine() (*nbc.Engine, error) {
	k, err := kernels.NewCPU()
	if err != nil {
		return nil, err
	}
	var o overmpi.Options
	if _, bound, found := strings.Cut(s.over, ":"); found {
		if _, err := fmt.Sscan(bound, &o.TagBound); err != nil {
			return nil, err
		}
	}
	open := overmpi.Open(o)
	if s.over == "shm" {
		open = shm.Over(open, shm.Options{})
	}
	return nbc.Start(open, device.CPU(k), nbc.Options{Deadline: deadline})
}

// underMPI runs the series on processes of mpirun.
func (s series) underMPI(t *testing.T) error {
	folder, program := t.TempDir(), os.Args[0]
	ctx, cancel := context.WithTimeout(t.Context(), 4*deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("SCAFFE_MPI_DIR"), "bin", "mpirun"), "-np", fmt.Sprint(s.ranks), program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %d", asRank, folder, s.seed, s.over, s.ranks))
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	var errs []error
	ended := 0
	for r := range s.ranks {
		if b, e := os.ReadFile(filepath.Join(folder, fmt.Sprint("rank", r))); e == nil {
			errs = append(errs, errors.New(string(b)))
		}
		if _, e := os.Stat(filepath.Join(folder, fmt.Sprint("ended", r))); e == nil {
			ended++
		}
	}
	if s.aborts() && ctx.Err() == nil { // MPI may be left as it is then, which mpirun does not like
		err = nil
	}
	if err != nil || ended != s.ranks {
		errs = append(errs, fmt.Errorf("%d of %d ranks ended well", ended, s.ranks))
		return fmt.Errorf("mpirun: %v\n%w\n%s", err, errors.Join(errs...), out)
	}
	return nil
}

// TestSoak runs series of programs over every transport that there is.
func TestSoak(t *testing.T) {
	overs := []string{"inproc"}
	if os.Getenv("SCAFFE_MPI_DIR") != "" {
		overs = append(overs, "mpi:3", "shm", "mpi:32767", "mpi")
	}
	if *soakOver != "" {
		overs = []string{*soakOver}
	}
	seed := *soakSeed
	switch {
	case seed != 0:
	case *soakFor > 0:
		seed = rand.Uint64N(1 << 40)
	default:
		seed = 1
	}
	begun := time.Now()
	for n := 0; n < len(overs) || time.Since(begun) < *soakFor; n++ {
		s := series{seed: seed + uint64(n/len(overs)*perSeries), over: overs[n%len(overs)], ranks: *ranks}
		if s.ranks == 0 {
			most := 4
			if s.over == "inproc" {
				most = 6
			}
			s.ranks = 2 + int(mix(s.seed+uint64(n))%uint64(most-1))
		}
		run := func() error { return s.underMPI(t) }
		if s.over == "inproc" {
			run = func() error { return s.inProcess(t.Context()) }
		}
		if err := run(); err != nil {
			t.Fatalf("%v\nto run the same again: %v", err, s)
		}
		t.Logf("%v: well", s)
	}
}

// TestProgramsAreFunctionsOfTheirSeeds, and use everything there is.
func TestProgramsAreFunctionsOfTheirSeeds(t *testing.T) {
	kinds := map[string]bool{}
	for seed := range uint64(50) {
		o := Options{Ranks: 4, Steps: 40, Library: true, Abort: seed%2 == 0}
		p := New(seed, o)
		if p.String() != New(seed, o).String() {
			t.Fatalf("seed %d gives two programs", seed)
		}
		for _, s := range p.steps {
			kinds[fmt.Sprintf("%T", s)] = true
		}
		for i, members := range p.comms {
			if len(members) == 0 || len(slices.Compact(slices.Sorted(slices.Values(members)))) != len(members) {
				t.Errorf("seed %d: communicator %d has the ranks %v", seed, i, members)
			}
		}
	}
	if len(kinds) != 7 {
		t.Errorf("the programs have only %v", kinds)
	}
}
