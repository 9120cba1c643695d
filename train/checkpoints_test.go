package train_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/atomicfile/errorfs"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/onebit"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// withSets has a run keep checkpoints, and returns of which iterations it has told.
func withSets(dir string, every int, more func(int, *train.Config)) (told *[]int, change func(int, *train.Config)) {
	told = new([]int)
	return told, func(rank int, c *train.Config) {
		c.Checkpoint = train.Checkpoint{Dir: dir, Every: every}
		c.Events.OnCheckpoint = func(p train.Checkpointed) { *told = append(*told, p.Iter) }
		if more != nil {
			more(rank, c)
		}
	}
}

// sets returns the iterations of the whole sets of a directory.
func sets(t *testing.T, dir string) []int {
	t.Helper()
	iters, err := checkpoint.Sets(dir)
	if err != nil {
		t.Fatal(err)
	}
	return iters
}

// copySet copies what a run has left, as a run that ended there would have.
func copySet(t *testing.T, from, to string, iter int) {
	t.Helper()
	files, err := filepath.Glob(checkpoint.Stem(from, iter) + ".*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPoseidon_GoesOnFromACheckpoint: section 4.1's KV stores save what they hold; a run
// that goes on from there has the bits of one that was not interrupted. With each scheme, with
// BatchNorm's statistics and unequal shares, whoever wrote what; on as many ranks, and where
// the scheme's bits do not depend on it, with other servers.
func TestPoseidon_GoesOnFromACheckpoint(t *testing.T) {
	linear, err := spec.Parse("linear")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		scheme, more string
		again        func(c *train.Config)
	}{
		{"reduce", "", nil},
		{"allreduce", `type: "Adam" momentum2: 0.999`, nil},
		{"ps", "clip_gradients: 0.5", func(c *train.Config) { c.Servers.Ranks, c.Pair = []int{2}, 0 }},
		{"sfb", "iter_size: 2", nil},
		{"onebit", "clip_gradients: 5", nil},
		{"dgc", "", nil},
		{"dgc", "clip_gradients: 0.5 iter_size: 2", nil},
		{"dgc,ip0=onebit,conv1=reduce", "", nil},
		{"allreduce,ip0=sfb,conv1=reduce", "", nil},
		{"linear reduce, then ps", "", func(c *train.Config) { c.Asked = ask(t, "ps") }},
	} {
		t.Run(fmt.Sprint(i, " ", c.scheme), func(t *testing.T) {
			path, dir := files(t, 30)
			withStatistics(t, path, dir, c.more)
			how := func(_ int, f *train.Config) {
				if f.Bucket, f.Pair = 1, 4<<10; c.scheme == "linear reduce, then ps" {
					f.Asked, f.Spec = ask(t, "reduce"), linear
				} else {
					f.Asked = ask(t, c.scheme)
				}
				if strings.Contains(c.scheme, "dgc") { // most iterations are of the warm-up
					f.Sparse = &coordinator.Sparse{Sparsity: 0.9, Warmup: 36}
				}
			}
			into := filepath.Join(dir, "sets")
			told, change := withSets(into, 7, how)
			whole := mustRun(t, 3, path, change)
			history := state(t, dir, 40)
			got := sets(t, into)
			// One that was due while another was written waits for it.
			if len(got) != 2 || got[1] != 40 || len(*told) < 2 || (*told)[0] != 7 || !slices.Equal((*told)[len(*told)-2:], got) {
				t.Fatalf("there are sets of iterations %v, told of %v", got, *told)
			}
			rest := mustRun(t, 3, path, func(rank int, f *train.Config) {
				how(rank, f)
				if f.Snapshot = checkpoint.ManifestPath(into, got[0]); c.again != nil {
					c.again(f)
				}
			})
			if !slices.Equal(rest.loss, whole.loss[got[0]:]) || string(rest.snapshot) != string(whole.snapshot) {
				t.Errorf("gone on from iteration %d, it has other bits than the whole run", got[0])
			}
			if string(state(t, dir, 40)) != string(history) {
				t.Errorf("gone on from iteration %d, it has another history than the whole run", got[0])
			}
		})
	}
}

// residualsOf returns what each rank has left out at the end of a run, or where it goes on from a
// checkpoint.
func residualsOf(t *testing.T, ranks int, path string, run bool, change func(rank int, c *train.Config)) (all [][]onebit.Residual, notes []string) {
	t.Helper()
	all = make([][]onebit.Residual, ranks)
	err := launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
		f, err := proto.ReadSolver(path)
		if err != nil {
			return err
		}
		c := train.Config{Solver: f, Bucket: 1}
		change(comm.Rank(), &c)
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		if run {
			_, err = w.Run(ctx)
		}
		for _, r := range w.Exchange().Residuals() {
			r.Gradient, r.Sum = slices.Clone(r.Gradient), slices.Clone(r.Sum)
			all[comm.Rank()] = append(all[comm.Rank()], r)
		}
		if comm.Rank() == 0 {
			notes = w.Notes()
		}
		return errors.Join(err, comm.Barrier(ctx))
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, notes
}

// Seide et al.: what quantising left out is added later, after a restart too. Workers go on with
// their own; what workers have left out who are gone is added to others'; columns of sums
// are those of whoever adds them then. Where a layer does not go by onebit any more, or the run goes on
// from a snapshot, which has no residuals, a note says so.
func TestResidualsOnOtherRanks(t *testing.T) {
	path, dir := files(t, 30)
	withStatistics(t, path, dir, "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "max_iter: 40", "max_iter: 8 test_initialization: false", 1))
	into := filepath.Join(dir, "sets")
	had, notes := residualsOf(t, 3, path, true, func(_ int, c *train.Config) {
		c.Asked, c.Checkpoint.Dir = ask(t, "onebit"), into
	})
	if len(had[0]) != 2 || notes != nil {
		t.Fatalf("%d layers have residuals; notes %v", len(had[0]), notes)
	}
	for _, k := range []struct{ workers, servers []int }{
		{[]int{0, 1, 2}, []int{0}}, {[]int{0, 1}, []int{0}}, {[]int{1, 2, 3, 4}, []int{0}}, {[]int{1, 3}, []int{0, 2}},
	} {
		ranks := 1 + max(slices.Max(k.workers), slices.Max(k.servers))
		got, notes := residualsOf(t, ranks, path, false, func(_ int, c *train.Config) {
			c.Asked, c.Snapshot, c.Workers.Ranks, c.Servers.Ranks = ask(t, "onebit"), into, k.workers, k.servers
		})
		if notes != nil {
			t.Errorf("workers %v: notes %v", k.workers, notes)
		}
		for layer, of := range had[0] {
			gradients := make([][]float32, len(k.workers))
			for number := range had {
				if i := number % len(k.workers); number < len(k.workers) {
					gradients[i] = had[number][layer].Gradient
				} else {
					gradients[i] = slices.Clone(gradients[i])
					for j, x := range had[number][layer].Gradient {
						gradients[i][j] += x
					}
				}
			}
			whole, columns := make([]float32, of.Len), 0
			eachSum(had, layer, func(at int, x *float32) { whole[at] = *x })
			for number, rank := range k.workers {
				own := got[rank][layer]
				if want := gradients[number]; own.Range != of.Range || !slices.Equal(own.Gradient, want) && (want != nil || slices.Max(own.Gradient) != 0 || slices.Min(own.Gradient) != 0) {
					t.Errorf("workers %v: rank %d goes on with another residual of layer %d", k.workers, rank, layer)
				}
				columns += own.Columns.Len
			}
			eachSum(got, layer, func(at int, x *float32) {
				if *x != whole[at] {
					t.Fatalf("workers %v, layer %d: element %d of the sums has the residual %v, not %v", k.workers, layer, at, *x, whole[at])
				}
			})
			if columns != of.Cols {
				t.Errorf("workers %v: the sums of %d columns of %d have residuals", k.workers, columns, of.Cols)
			}
		}
	}
	for _, k := range []struct {
		ranks              int
		scheme, from, want string
	}{
		{2, "onebit,ip0=sfb", into, "iter_8.manifest has residuals of ip0, which do not go by onebit here"},
		{2, "ps", into, "iter_8.manifest has residuals of ip0, ip1, which"},
		{1, "onebit", into, "iter_8.manifest has residuals of ip0, ip1, which"},
		{3, "onebit", filepath.Join(dir, "s_iter_8.solverstate"), "onebit: a snapshot has no residuals"},
	} {
		_, notes := residualsOf(t, k.ranks, path, false, func(_ int, c *train.Config) { c.Asked, c.Snapshot = ask(t, k.scheme), k.from })
		if len(notes) != 1 || !strings.Contains(notes[0], k.want) {
			t.Errorf("%s on %d ranks: notes %q, want %q", k.scheme, k.ranks, notes, k.want)
		}
	}
}

// eachSum calls f with the residuals of sums that all ranks have of a layer, and where each is in
// its matrix.
func eachSum(all [][]onebit.Residual, layer int, f func(at int, x *float32)) {
	for _, own := range all {
		if own == nil {
			continue // it only serves
		}
		r := own[layer]
		for i := range r.Sum {
			f(i/r.Columns.Len*r.Cols+r.Columns.Off+i%r.Columns.Len, &r.Sum[i])
		}
	}
}

// A run goes on from a checkpoint of any number of ranks, and keeps its own in the same
// directory.
func TestGoesOnOnOtherRanks(t *testing.T) {
	path, dir := files(t, 30)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.NewReplacer("max_iter: 50", "max_iter: 15", "test_interval: 25", "", "test_iter: 5", "").Replace(string(text)))
	into := filepath.Join(dir, "sets")
	whole := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Scheme, c.Pair = exchange.PS, 4<<10 })
	stopped := func(f *train.Config) {
		done, after := 0, f.Events.Solver.OnIteration
		f.Events.Solver.OnIteration = func(i solver.Iteration) { done++; after(i) }
		f.Requests = func() (snapshot, stop bool) { return false, done == 2 } // which the third says
	}
	_, change := withSets(into, 0, func(_ int, c *train.Config) { c.Scheme, c.Pair = exchange.PS, 4<<10; stopped(c) })
	loss := mustRun(t, 3, path, change).loss
	for _, ranks := range []int{2, 4, 1} {
		_, change := withSets(into, 0, func(_ int, c *train.Config) { c.Scheme, c.Snapshot = exchange.Allreduce, into; stopped(c) })
		loss = append(loss, mustRun(t, ranks, path, change).loss...)
	}
	if got := sets(t, into); !slices.Equal(got, []int{9, 12}) {
		t.Errorf("there are sets of iterations %v", got)
	}
	_, change = withSets(into, 0, func(_ int, c *train.Config) { c.Snapshot = into })
	loss = append(loss, mustRun(t, 3, path, change).loss...)
	if err := near(whole.loss, loss); err != nil {
		t.Error(err)
	}
}

// The choice of auto is kept with a checkpoint as with a snapshot, and gone with it.
func TestCheckpointsKeepTheChoice(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	into := filepath.Join(dir, "sets")
	_, change := withSets(into, 10, func(_ int, c *train.Config) { c.Asked, c.Bucket = ask(t, "auto"), 1 })
	mustRun(t, 3, path, change)
	iters := sets(t, into)
	choice := checkpoint.Stem(into, iters[len(iters)-1]) + ".schemes"
	_, audit, err := chosen(t, 3, path, train.Config{Asked: ask(t, "auto"), Bucket: 1, Snapshot: into})
	if err != nil || !slices.Equal(audit.Notes, []string{"# schemes kept from " + choice}) {
		t.Errorf("%v: %+v", err, audit)
	}
	if all, _ := filepath.Glob(filepath.Join(into, "*.schemes")); len(all) != len(iters) {
		t.Errorf("there are %v with sets of iterations %v", all, iters)
	}
}

// slowFiles is a file system in which shards, but for the first n, wait until they may go on.
type slowFiles struct {
	mu sync.Mutex
	n  int
	on chan struct{}
}

func (s *slowFiles) Create(path string) (atomicfile.File, error) {
	wait := false
	if s.mu.Lock(); strings.Contains(path, ".shard.") {
		s.n--
		wait = s.n < 0
	}
	s.mu.Unlock()
	if wait {
		<-s.on
	}
	return atomicfile.OS.Create(path)
}
func (s *slowFiles) Rename(from, to string) error { return atomicfile.OS.Rename(from, to) }
func (s *slowFiles) Remove(path string) error     { return atomicfile.OS.Remove(path) }
func (s *slowFiles) SyncDir(dir string) error     { return atomicfile.OS.SyncDir(dir) }

// TestIterationsDoNotWaitForTheDisk: while the first checkpoint is held up, 20 more
// iterations are made; what is due meanwhile is written when it is done.
func TestIterationsDoNotWaitForTheDisk(t *testing.T) {
	path, dir := files(t, 30)
	into := filepath.Join(dir, "sets")
	slow := &slowFiles{n: 3, on: make(chan struct{})} // what each rank tries at first
	var once sync.Once
	told, change := withSets(into, 5, func(rank int, c *train.Config) {
		c.Options.Writer.FS, c.Scheme = slow, exchange.PS
		after := c.Events.Solver.OnIteration
		c.Events.Solver.OnIteration = func(i solver.Iteration) {
			if after(i); i.Iter == 25 {
				once.Do(func() { close(slow.on) })
			}
		}
	})
	whole := mustRun(t, 3, path, change)
	if len(whole.loss) != 50 || (*told)[0] != 5 || (*told)[1] < 26 || !slices.Equal(sets(t, into), (*told)[len(*told)-2:]) {
		t.Errorf("%d iterations; told of sets of iterations %v, there are %v", len(whole.loss), *told, sets(t, into))
	}
}

// TestCheckpointThatCannotBeWritten: one message ends all ranks, whoever's disk is full and
// whatever it was to write; the earlier set is untouched.
func TestCheckpointThatCannotBeWritten(t *testing.T) {
	path, dir := files(t, 30)
	into := filepath.Join(dir, "sets")
	for _, what := range []string{"rank_2.shard", "manifest"} {
		_ = os.RemoveAll(into)
		_, change := withSets(into, 20, func(_ int, c *train.Config) {
			c.Scheme, c.Pair = exchange.PS, 4<<10
			c.Options.Writer.FS = afterTheFirst{what}
		})
		_, err := run(t, 3, path, change)
		if !errors.Is(err, syscall.ENOSPC) && (err == nil || !strings.Contains(err.Error(), "no space left")) {
			t.Errorf("%s: %v", what, err)
		} else if strings.Count(err.Error(), ": checkpoint of iteration ") != 1 || !strings.Contains(err.Error(), "."+what+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
		if got := sets(t, into); !slices.Equal(got, []int{20}) {
			t.Errorf("%s: there are sets of iterations %v", what, got)
		}
	}
}

// afterTheFirst is a file system that is full for files of such a name, once the set of
// iteration 20 is there.
type afterTheFirst struct{ name string }

func (o afterTheFirst) of(path string) atomicfile.FS {
	if strings.Contains(path, o.name) && !strings.Contains(path, "iter_0.") && !strings.Contains(path, "iter_20.") {
		return &errorfs.FS{Fault: errorfs.Write}
	}
	return atomicfile.OS
}

func (o afterTheFirst) Create(path string) (atomicfile.File, error) { return o.of(path).Create(path) }

func (o afterTheFirst) Rename(from, to string) error { return o.of(to).Rename(from, to) }

func (o afterTheFirst) Remove(path string) error { return o.of(path).Remove(path) }

func (o afterTheFirst) SyncDir(dir string) error { return atomicfile.OS.SyncDir(dir) }

// TestCheckpointsThatAreNone: one line on all ranks.
func TestCheckpointsThatAreNone(t *testing.T) {
	path, dir := files(t, 30)
	into := filepath.Join(dir, "sets")
	_, change := withSets(into, 25, func(_ int, c *train.Config) { c.Scheme = exchange.PS; c.Pair = 4 << 10 })
	mustRun(t, 3, path, change)
	damaged := func(name string, change func(b []byte) []byte) string {
		to := t.TempDir()
		copySet(t, into, to, 50)
		b, err := os.ReadFile(filepath.Join(to, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), change(b), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	other := filepath.Join(dir, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	otherPath := filepath.Join(other, "solver.prototxt")
	for from, to := range map[string]string{path: otherPath, filepath.Join(dir, "net.prototxt"): filepath.Join(other, "net.prototxt")} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, strings.NewReplacer("num_output: 6", "num_output: 7", dir+"/net.prototxt", other+"/net.prototxt").Replace(string(b)))
	}
	for _, c := range []struct {
		solver, from, into, want string
	}{
		{otherPath, into, "", `it is of another net: layer "conv1" with a parameter of 6x3x5x5, where this one has "conv1" with 7x3x5x5`},
		{path, damaged("iter_50.rank_0.shard", func(b []byte) []byte { return b[:len(b)/2] }), "", "iter_50.rank_0.shard has"},
		{path, damaged("iter_50.rank_1.shard", func(b []byte) []byte { b[9] ^= 4; return b }), "", "iter_50.rank_1.shard has been changed"},
		{path, damaged("iter_50.manifest", func(b []byte) []byte { return b[:len(b)-1] }), "", "iter_50.manifest: it is damaged"},
		{path, checkpoint.ManifestPath(into, 40), "", "iter_40.manifest: no such file"},
		{path, dir, "", dir + " holds no checkpoint"},
		{path, "", into, "has a checkpoint of iteration 50, and this run begins at 0: go on from it (--snapshot " + into + ")"},
		{path, "", path, "solver.prototxt"}, // no directory
	} {
		_, err := run(t, 2, c.solver, func(_ int, f *train.Config) { f.Snapshot, f.Checkpoint.Dir, f.Scheme = c.from, c.into, exchange.PS })
		if err == nil || strings.Count(err.Error(), c.want) != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, c.want)
		}
	}
}

// Numbers that are not finite are not written, and named as those of a snapshot are.
func TestNoCheckpointOfNumbersThatAreNotFinite(t *testing.T) {
	path, dir := files(t, 30)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "base_lr: 0.01", "base_lr: 3e38", 1)+"snapshot_after_train: false")
	into := filepath.Join(dir, "sets")
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.PS} {
		_, change := withSets(into, 1, func(_ int, c *train.Config) { c.Scheme, c.Options.SkipNotFinite = scheme, true })
		if _, err := run(t, 2, path, change); err == nil || !strings.Contains(err.Error(), "checkpoint of iteration 1: iteration 0: its update made parameter") {
			t.Errorf("%v: %v", scheme, err)
		}
		if got := sets(t, into); len(got) != 0 {
			t.Errorf("%v: there are sets of iterations %v", scheme, got)
		}
	}
}
