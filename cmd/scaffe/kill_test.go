package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// killSolver snapshots so often that many a kill hits one.
const killSolver = `net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" display: 1
max_iter: 40 snapshot: 2 snapshot_prefix: "s" random_seed: 3`

const killIters = 40

// killedSchemes are the flags that the runs take turns with. With apart rank 0 only serves, and
// the others only work; with ps all do both. Slices are P3's.
var killedSchemes = map[string][]string{
	"reduce": {"--scheme", "reduce"},
	"ps":     {"--scheme", "ps"},                                // in slices
	"drop":   {"--scheme", "ps", "--consistency", "drop:10m"},   // nobody is that late
	"ssp":    {"--scheme", "ps", "--consistency", "ssp:2"},      // whose bits differ between runs
	"apart":  {"--scheme", "ps", "--servers", "0", "--workers"}, // likewise
	"sfb":    {"--scheme", "sfb"},
	"onebit": {"--scheme", "onebit"},                                     // goes on from checkpoints, which have residuals, alone
	"dgc":    {"--scheme", "dgc", "--sparsity", "0.9", "--warmup", "20"}, // likewise
}

// moment is when a rank is killed, or two.
type moment struct {
	ranks, victim int
	both          bool   // the victim, and the next rank
	scheme        string // of killedSchemes
	// after is the iteration that must have been shown; 0: the victim's process
	// is there, and sets itself up.
	after int
	delay time.Duration // after that
	// checkpoints has the ranks write a checkpoint after every iteration, from which training
	// goes on, rather than from a snapshot.
	checkpoints bool
	// sliced cuts parameters into slices, which leave in the order of their urgency, rather than into pairs.
	sliced bool
	// stopped has the victim stop amid a layer: it is there, and does nothing.
	stopped bool
}

func (m moment) String() string {
	what := "snapshots"
	if m.checkpoints {
		what = "checkpoints"
	}
	if m.sliced {
		what += ", slices"
	}
	if m.stopped {
		what += ", stopped"
	}
	who := fmt.Sprintf("rank %d", m.victim)
	if m.both {
		who = fmt.Sprintf("ranks %d and %d", m.victim, m.second())
	}
	return fmt.Sprintf("%s of %d, %s, %s, %v after iteration %d", who, m.ranks, m.scheme, what, m.delay, m.after)
}

// second is the other victim.
func (m moment) second() int { return (m.victim + 1) % m.ranks }

// run is what the moment's run has in common with one that nobody kills.
func (m moment) run() moment { return moment{ranks: m.ranks, scheme: m.scheme, sliced: m.sliced} }

// repeats reports whether each run has the bits of the others.
func (m moment) repeats() bool { return m.scheme != "ssp" }

// flags returns the flags of the moment's run.
func (m moment) flags() []string {
	flags := []string{"--pair", "4K"}
	if m.sliced {
		flags = []string{"--slice", "1024", "--credit", "2"}
	}
	flags = append(flags, killedSchemes[m.scheme]...)
	if m.scheme == "apart" {
		var work []string
		for r := 1; r < m.ranks; r++ {
			work = append(work, strconv.Itoa(r))
		}
		flags = append(flags, strings.Join(work, ","))
	}
	return flags
}

// moments are n random moments, over the whole of a run.
func moments(n int) []moment {
	rnd := rand.New(rand.NewPCG(13, 4))
	ms := make([]moment, n)
	for i := range ms {
		m := &ms[i]
		m.ranks, m.scheme, m.both = 2, []string{"reduce", "drop", "apart", "onebit", "sfb", "ps", "ssp", "dgc"}[(i+i/8)%8], i%8 == 7
		if i%6 == 5 {
			m.ranks = 3
		}
		m.victim = rnd.IntN(m.ranks)
		m.sliced = *killSoak > 0 || m.scheme == "apart" || m.scheme == "ps"
		m.checkpoints = i%2 == 1 || m.scheme == "onebit" || m.scheme == "dgc"
		if i%5 == 4 { // while it sets itself up, which takes most of a second
			m.delay = time.Duration(rnd.IntN(500)) * time.Millisecond
			continue
		}
		m.after = 1 + rnd.IntN(killIters-10)
		m.delay = time.Duration(rnd.IntN(6000)) * time.Microsecond
		m.stopped = m.scheme == "apart" || m.scheme == "ps"
	}
	return ms
}

// killSoak is how many moments are tried, in place of a few: make soak asks for thirty.
var killSoak = flag.Int("kill.soak", 0, "try so many moments")

// killedTogether is how many of them are tried at a time: their mpiruns mostly
// sleep.
const killedTogether = 5

// TestKilledAtAnyMoment: whichever rank is killed, a worker, a server, what is both, or
// two, whenever, the others end and a rank is named; where one stops amid a layer, so is the slice that is waited for; snapshots and checkpoints are whole or absent; and training that goes on
// from the newest comes to the very weights of a run that nobody killed, where two runs have the same.
func TestKilledAtAnyMoment(t *testing.T) {
	measuredOnce(t)
	run := mpirun(t)
	n := 8 // every scheme
	switch {
	case *killSoak > 0:
		n = *killSoak
	case testing.Short():
		n = 5
	}
	data := workplace(t, 10)
	all := moments(n)
	want := map[moment][]byte{}
	for _, m := range all {
		if m = m.run(); want[m] != nil || !m.repeats() {
			continue
		}
		dir := killplace(t, data)
		if r := command(t, dir, run, m.args("")...); r.code != 0 {
			t.Fatal(r.stderr)
		}
		want[m] = finalWeights(t, dir)
	}
	if bytes.Equal(want[all[0].run()], finalWeights(t, killplace(t, data))) {
		t.Fatal("the comparison sees no difference between something and nothing")
	}
	var torn, early, none atomic.Int32
	todo := make(chan moment)
	var wg sync.WaitGroup
	for range killedTogether {
		wg.Go(func() {
			for m := range todo {
				t.Run(m.String(), func(t *testing.T) {
					dir := m.place(t, data)
					was, named := killed(t, dir, run, m)
					for tries := 1; m.stopped && !named; tries++ { // it was between two iterations, or had ended
						if tries == 20 {
							t.Fatal("stopped twenty times, and the others never named a slice")
						}
						dir, m.delay = m.place(t, data), m.delay+time.Millisecond
						was, named = killed(t, dir, run, m)
					}
					if !was {
						early.Add(1)
					}
					newest := m.newest(t, dir)
					if left := unfinished(dir, m); len(left) > 0 {
						torn.Add(1)
					}
					if newest == "" {
						none.Add(1)
					}
					if r := command(t, dir, run, m.args(newest)...); r.code != 0 {
						t.Errorf("started again from %q it ended with %d\n%s", newest, r.code, last(r.stderr))
					} else if got := finalWeights(t, dir); len(got) == 0 || m.repeats() && !bytes.Equal(got, want[m.run()]) {
						t.Errorf("gone on from %q, the weights are not those of a run that nobody killed", newest)
					}
				})
			}
		})
	}
	for _, m := range all {
		todo <- m
	}
	close(todo)
	wg.Wait()
	t.Logf("%d killed, %d of them while a file was written, %d before the first snapshot; %d had ended before", n-int(early.Load()), torn.Load(), none.Load(), early.Load())
	if int(early.Load()) == n { // a slow or busy machine may be late for some
		t.Error("all runs had ended before they could be killed")
	}
}

// TestKilledAgainAndAgain: ranks of one process die together. Killed after
// every few iterations, and each time started again from the newest snapshot,
// training comes to the weights of a run that nobody killed.
func TestKilledAgainAndAgain(t *testing.T) {
	measuredOnce(t)
	long(t)
	data := workplace(t, 10)
	args := []string{"train", "--local", "2", "--solver", "solver.prototxt"}
	whole, dir := killplace(t, data), killplace(t, data)
	if r := command(t, whole, scaffe, args...); r.code != 0 {
		t.Fatal(r.stderr)
	}
	rnd := rand.New(rand.NewPCG(13, 5))
	newest, times := "", 0
	for at := 0; at < killIters-8; times++ {
		more := args
		if newest != "" {
			more = append(args[:len(args):len(args)], "--snapshot", newest)
		}
		r := begin(t, dir, scaffe, more...)
		r.until(fmt.Sprintf("^iteration %d: loss", at+2+rnd.IntN(4)))
		time.Sleep(time.Duration(rnd.IntN(4000)) * time.Microsecond)
		_ = syscall.Kill(r.cmd.Process.Pid, syscall.SIGKILL)
		if got := r.end(); strings.Contains(got.stderr, " iterations, ") {
			break // was quicker
		}
		newest = wholeSnapshots(t, dir)
		_, _ = fmt.Sscanf(newest, "s_iter_%d.", &at)
	}
	if r := command(t, dir, scaffe, append(args, "--snapshot", newest)...); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if !bytes.Equal(finalWeights(t, dir), finalWeights(t, whole)) {
		t.Errorf("killed %d times, and gone on from %s at last, the weights are not those of a run that nobody killed", times, newest)
	}
	t.Logf("killed %d times, gone on from %s at last", times, newest)
}

// unfinished returns the files of which a killed run has written a part.
func unfinished(dir string, m moment) []string {
	pattern := ".s_iter_*.tmp"
	if m.checkpoints {
		pattern = "sets/.iter_*.tmp"
	}
	left, _ := filepath.Glob(filepath.Join(dir, pattern))
	return slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == stray })
}

// stray is a temporary file that another run left.
const stray = ".s_iter_39.solverstate.00000000deadbeef.tmp"

// killplace makes a folder of its own for one run, with a stray file in it.
func killplace(t *testing.T, data string) string {
	t.Helper()
	dir, err := os.MkdirTemp(data, "run")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"train_lmdb", "test_lmdb", "net.prototxt"} {
		if err := os.Symlink(filepath.Join(data, name), filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for name, text := range map[string]string{"solver.prototxt": killSolver, stray: "half of"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	return dir
}

// place is killplace for the moment's run. Who is to be stopped amid a layer shall seldom write files.
func (m moment) place(t *testing.T, data string) string {
	dir := killplace(t, data)
	if m.stopped {
		write(t, dir, "solver.prototxt", strings.Replace(killSolver, "snapshot: 2", "snapshot: 8", 1))
	}
	return dir
}

// args is what mpirun is started with.
func (m moment) args(snapshot string) []string {
	args := []string{"-np", strconv.Itoa(m.ranks), scaffe, "train", "--solver", "solver.prototxt", "--deadline", "10m"}
	args = append(args, m.flags()...)
	if m.checkpoints {
		every := "1"
		if m.stopped { // as place says
			every = "8"
		}
		args = append(args, "--checkpoint", "sets", "--checkpoint-every", every)
	}
	if snapshot != "" {
		args = append(args, "--snapshot", snapshot)
	}
	return args
}

// newest returns what training goes on from, "" if there is nothing.
func (m moment) newest(t *testing.T, dir string) string {
	t.Helper()
	newest := wholeSnapshots(t, dir)
	if !m.checkpoints {
		return newest
	}
	sets, err := checkpoint.Sets(filepath.Join(dir, "sets"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if len(sets) == 0 {
		return ""
	}
	return "sets"
}

// finalWeights returns the last snapshot, the model and the state.
func finalWeights(t *testing.T, dir string) []byte {
	t.Helper()
	var all []byte
	for _, ext := range []string{"caffemodel", "solverstate"} {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("s_iter_%d.%s", killIters, ext)))
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		all = append(all, b...)
	}
	return all
}

// stopDeadline is how long the others wait for a rank that has stopped, and does not answer, rather than for one that is slow.
const stopDeadline = "2s"

// killed starts a run, kills or stops a rank when its moment has come, and sees to how
// the others end. It reports whether the rank was there to be killed, and, of one that stopped, whether the others
// named the slice that they waited for.
func killed(t *testing.T, dir, mpirun string, m moment) (was, named bool) {
	args := m.args("")
	if m.stopped {
		args = append(args, "--deadline", stopDeadline, "--max-deadline", "10m")
	}
	r := begin(t, dir, mpirun, args...)
	shown := regexp.MustCompile(fmt.Sprintf(`(?m)^iteration %d: loss`, m.after))
	victim := 0
	for victim == 0 || m.after > 0 && !shown.MatchString(r.text()) {
		if victim == 0 {
			victim = processOf(dir, strconv.Itoa(m.victim))
		}
		if r.ended() {
			return false, false
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(m.delay)
	if m.stopped {
		return stopped(t, r, m.victim, victim)
	}
	if m.both {
		if second := processOf(dir, strconv.Itoa(m.second())); second != 0 {
			_ = syscall.Kill(second, syscall.SIGKILL)
		}
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil && !m.both {
		return false, false
	}
	got := r.endAfterRanks()
	for begun := time.Now(); len(processes(dir)) > 0; time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			t.Errorf("mpirun has ended, but not %v\n%s", processes(dir), last(got.stderr))
			break
		}
	}
	if strings.Contains(got.stderr, " iterations, ") {
		return false, false // it had done its work
	}
	if got.code == 0 {
		t.Errorf("mpirun ended with status 0\n%s", last(got.stderr))
	}
	// Before the ranks know each other, whether one is named, and which one, is
	// up to the launcher.
	named = whoWasKilled(m.victim, victim).MatchString(got.stderr) || m.both && whoWasKilled(m.second(), -1).MatchString(got.stderr)
	if m.after > 0 && !named {
		t.Errorf("nobody names rank %d (process %d)\n%s", m.victim, victim, last(got.stderr))
	}
	return true, named
}

// stopped stops a rank of a run, and sees to how the others end: within their deadline, with an error that says for what of this rank
// they waited. It reports whether the rank was there to be stopped, and whether that was a slice.
func stopped(t *testing.T, r *running, rank, pid int) (was, named bool) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return false, false
	}
	for begun := time.Now(); len(processes(r.cmd.Dir)) > 1; time.Sleep(10 * time.Millisecond) { // mpirun may end before they are gone
		if time.Since(begun) > patience {
			t.Errorf("rank %d has stopped, and the others wait for ever\n%s", rank, last(r.text()))
			break
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // the launcher may leave it behind
	got := r.endAfterRanks()
	if strings.Contains(got.stderr, " iterations, ") {
		return false, false
	}
	if got.code == 0 {
		t.Errorf("rank %d has stopped, and mpirun ended with status 0\n%s", rank, last(got.stderr))
	}
	// Open MPI's mpirun may drop it.
	if strings.Contains(got.stderr, "did not end within") && !strings.Contains(got.stderr, fmt.Sprintf("rank %d has not answered", rank)) {
		t.Errorf("nobody says that rank %d has stopped\n%s", rank, last(got.stderr))
	}
	return true, whichSlice(rank).MatchString(got.stderr)
}

// whichSlice matches what names the slice that others wait for, of a rank that has stopped: parameters come from its server,
// gradients from a worker.
func whichSlice(rank int) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`did not end within %s: rank \d waits for (`+
		`slice \d+ of (conv1|ip1) from rank %[2]d(, its server \(chunk \d+ of bcast#p\d+\)| \(chunk \d+ of reduce#p\d+\))|`+
		`rank %[2]d(, its server,)? to take slice \d+ of (conv1|ip1) )`, stopDeadline, rank))
}

// whoWasKilled matches what names a killed rank.
func whoWasKilled(rank, pid int) *regexp.Regexp {
	// Open MPI's mpirun may drop what the ranks say last; it names the rank too.
	said := fmt.Sprintf(`rank %d is gone|rank %d \(process %d\)|process rank %d .* exited on signal 9`, rank, rank, pid, rank)
	if filepath.Base(os.Getenv("SCAFFE_MPI_DIR")) == "mpich" {
		// Its launcher kills the others within a millisecond; now and then one of
		// them is gone first.
		said += `|exited unexpectedly on .*: rank \d`
	}
	return regexp.MustCompile(said)
}

// wholeSnapshots loads all snapshots of dir and returns the state of the
// newest, "" if there is none.
func wholeSnapshots(t *testing.T, dir string) (newest string) {
	t.Helper()
	last := 0
	files, _ := filepath.Glob(filepath.Join(dir, "s_iter_*"))
	for _, path := range files {
		var iter int
		var err error
		switch {
		case strings.HasSuffix(path, ".caffemodel"):
			_, err = proto.ReadModel(path)
		case strings.HasSuffix(path, ".solverstate"):
			if _, err = proto.ReadState(path); err == nil {
				_, err = proto.ReadModel(strings.TrimSuffix(path, "solverstate") + "caffemodel")
			}
			_, _ = fmt.Sscanf(filepath.Base(path), "s_iter_%d.solverstate", &iter)
		case strings.HasSuffix(path, ".schemes"):
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				_, err = coordinator.ParseChoice(text)
			}
		default:
			err = fmt.Errorf("%s is neither a model nor a state, nor says by which schemes", path)
		}
		if err != nil {
			t.Error(err)
		}
		if iter > last {
			last, newest = iter, filepath.Base(path)
		}
	}
	return newest
}
