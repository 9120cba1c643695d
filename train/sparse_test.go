package train_test

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/data/dataset"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/dgc"
	"github.com/scaffe/scaffe/train"
)

// P3, section 5.5, compares with Deep Gradient Compression: a net is trained by the largest values of its gradients
// alone, near to how it is trained exactly, under every design with the same bits, run after run, from unequal parts of a batch, with clipped gradients
// and a warm-up; replicas stay equal, which training looks at before every snapshot.
func TestP3_SparseGradientsUnderEveryDesign(t *testing.T) {
	for _, more := range []string{"", "iter_size: 2 clip_gradients: 5"} {
		path, dir := files(t, 30)
		fullyConnected(t, path, dir, more)
		designs := []exchange.Design{exchange.SCB, exchange.SCOBR, exchange.SCOBR, exchange.WFBP, exchange.SCOB, exchange.SCOBNaive, exchange.TF}
		if testing.Short() {
			designs = designs[:2]
		}
		var first curve
		for i, d := range designs {
			c := mustRun(t, 4, path, func(_ int, c *train.Config) {
				c.Design, c.Asked, c.Bucket, c.Sparse = d, ask(t, "dgc"), 1, &coordinator.Sparse{Sparsity: 0.97, Warmup: 10}
			})
			if i == 0 {
				first = c
			}
			if !bytes.Equal(c.snapshot, first.snapshot) || !slices.Equal(c.loss, first.loss) || !slices.Equal(c.scores, first.scores) {
				t.Errorf("%q: %v has other bits than SC-B", more, d)
			}
		}
		exact := mustRun(t, 4, path, func(_ int, c *train.Config) { c.Asked, c.Bucket = ask(t, "allreduce"), 1 })
		if slices.Equal(exact.loss, first.loss) {
			t.Errorf("%q: nothing was held back", more)
		}
		for i, loss := range first.loss {
			if math.Abs(loss-exact.loss[i]) > 0.05*exact.loss[i] {
				t.Errorf("%q: iteration %d: a loss of %v, exactly %v", more, i, loss, exact.loss[i])
			}
		}
	}
}

// Where all is sent, factor masking (Lin et al., section 3.3) leaves no momentum, and training is that of SGD without, to rounding. Weight decay,
// whose momentum the update keeps, is left out here.
func TestSparsityZeroIsPlainSGD(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "weight_decay: 0.001", "weight_decay: 0", 1))
	write(t, path, string(text))
	sparse := mustRun(t, 3, path, func(_ int, c *train.Config) {
		c.Asked, c.Sparse = ask(t, "dgc"), &coordinator.Sparse{}
	})
	plain := strings.Replace(string(text), "momentum: 0.9", "momentum: 0", 1)
	if plain == string(text) || !strings.Contains(plain, "weight_decay: 0\n") {
		t.Fatalf("no solver of the kind that is needed: %s", text)
	}
	write(t, path, plain)
	exact := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Asked = ask(t, "allreduce") })
	for i, loss := range sparse.loss {
		if math.Abs(loss-exact.loss[i]) > 1e-4*math.Abs(exact.loss[i]) {
			t.Fatalf("iteration %d: a loss of %v, without momentum %v", i, loss, exact.loss[i])
		}
	}
}

// Gradients are clipped before they are sent, each worker's to the threshold times workers^(-1/2) (Lin et al., section
// 3.2). Where all samples are one, so are all workers' gradients, and the sum of four that have been clipped has twice
// the threshold's norm: training is that of plain SGD whose sum is clipped to that.
func TestSparseClipsEachWorker(t *testing.T) {
	path, dir := files(t, 32)
	picture := image.NewNRGBA(image.Rect(0, 0, 28, 28))
	for i := range picture.Pix {
		picture.Pix[i] = byte(i * 37)
		if i%4 == 3 {
			picture.Pix[i] = 255
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "one.png"), file.String())
	list, one := filepath.Join(dir, "list"), filepath.Join(dir, "one_lmdb")
	write(t, list, strings.Repeat("one.png 3\n", 4))
	if err := dataset.Images(dataset.ImagesOptions{List: list, Root: dir + "/", Path: one}); err != nil {
		t.Fatal(err)
	}
	replace := func(path string, pairs ...string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(string(text), pairs[i]) {
				t.Fatalf("%s has no %q", path, pairs[i])
			}
		}
		write(t, path, strings.NewReplacer(pairs...).Replace(string(text)))
	}
	replace(filepath.Join(dir, "net.prototxt"), filepath.Join(dir, "train_lmdb"), one, "mirror: true", "")
	replace(path, "max_iter: 50", "max_iter: 10 clip_gradients: 0.02", "momentum: 0.9", "momentum: 0", "weight_decay: 0.001", "weight_decay: 0")
	sparse := mustRun(t, 4, path, func(_ int, c *train.Config) { c.Asked, c.Sparse = ask(t, "dgc"), &coordinator.Sparse{} })
	replace(path, "clip_gradients: 0.02", "clip_gradients: 0.04")
	exact := mustRun(t, 4, path, func(_ int, c *train.Config) { c.Asked = ask(t, "allreduce") })
	first, last := exact.loss[0], exact.loss[len(exact.loss)-1]
	if first-last < 1e-3 {
		t.Fatalf("the loss goes from %v to %v only: too little to compare", first, last)
	}
	for i, loss := range sparse.loss {
		if math.Abs(loss-exact.loss[i]) > 0.02*(first-last) {
			t.Errorf("iteration %d: a loss of %v, with the sum clipped to twice the threshold %v (from %v)", i, loss, exact.loss[i], first)
		}
	}
}

// What dgc cannot have is one message, alike on all ranks.
func TestSparseMistakes(t *testing.T) {
	for _, k := range []struct {
		scheme, more string
		sparse       *coordinator.Sparse
		want         string
	}{
		{"dgc", `type: "Adam" momentum2: 0.999`, nil, "the solver's type is Adam: use type: \"SGD\", or another scheme"},
		{"dgc", `type: "Nesterov"`, nil, "the solver's type is Nesterov"},
		{"dgc", "", &coordinator.Sparse{Sparsity: 1}, "a sparsity of 1: want"},
		{"dgc", "", &coordinator.Sparse{Sparsity: -1}, "a sparsity of -1: want"},
		{"dgc", "", &coordinator.Sparse{Sparsity: 0.9, Warmup: -1}, "a warm-up of -1 iterations: want"},
		{"allreduce", "", &coordinator.Sparse{Sparsity: 0.9}, "ask for --scheme dgc, or remove --sparsity and --warmup"},
		{"dgc,ip0=allreduce", "clip_gradients: 1", nil, "with clip_gradients, ask for --scheme dgc for all layers, or for none"},
	} {
		path, dir := files(t, 30)
		fullyConnected(t, path, dir, k.more)
		errs := make([]error, 2)
		_ = launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ReadSolver(path)
			if err != nil {
				return err
			}
			w, err := train.New(ctx, comm, train.Config{Solver: f, Asked: ask(t, k.scheme), Sparse: k.sparse})
			if errs[comm.Rank()] = err; err == nil {
				return errors.Join(comm.Barrier(ctx), w.Close())
			}
			return nil
		})
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), k.want) {
				t.Errorf("%+v: rank %d: %v", k, rank, err)
			}
		}
	}
}

// heldOf returns what each rank holds back at the end of a run, or where it goes on from a checkpoint.
func heldOf(t *testing.T, ranks int, path string, run bool, change func(c *train.Config)) (all [][]exchange.Held, notes []string) {
	t.Helper()
	all = make([][]exchange.Held, ranks)
	err := launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
		f, err := proto.ReadSolver(path)
		if err != nil {
			return err
		}
		c := train.Config{Solver: f}
		change(&c)
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		if run {
			_, err = w.Run(ctx)
		}
		for _, h := range w.Exchange().Held() {
			h.Held = dgc.Held{Velocity: slices.Clone(h.Velocity), Accumulated: slices.Clone(h.Accumulated)}
			all[comm.Rank()] = append(all[comm.Rank()], h)
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

// What was held back is sent later, after a restart too, on any workers and whatever the buckets: workers go on with
// their own, and what workers held who are gone is added to others'. Where it is lost, a note says so.
func TestHeldOnOtherRanks(t *testing.T) {
	path, dir := files(t, 30)
	withStatistics(t, path, dir, "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "max_iter: 40", "max_iter: 8 test_initialization: false", 1))
	into := filepath.Join(dir, "sets")
	had, notes := heldOf(t, 3, path, true, func(c *train.Config) {
		c.Asked, c.Checkpoint.Dir, c.Bucket = ask(t, "dgc"), into, 1
	})
	if len(had[0]) < 4 || notes != nil || slices.Max(had[1][0].Accumulated) == 0 {
		t.Fatalf("%d parameters have something held back; notes %v", len(had[0]), notes)
	}
	for _, k := range []struct{ workers, servers []int }{
		{[]int{0, 1, 2}, []int{0}}, {[]int{0, 1}, []int{0}}, {[]int{1, 2, 3, 4}, []int{0}}, {[]int{1, 3}, []int{0, 2}},
	} {
		ranks := 1 + max(slices.Max(k.workers), slices.Max(k.servers))
		got, notes := heldOf(t, ranks, path, false, func(c *train.Config) {
			c.Asked, c.Snapshot, c.Workers.Ranks, c.Servers.Ranks, c.Bucket = ask(t, "dgc"), into, k.workers, k.servers, 1<<20
		})
		if notes != nil {
			t.Errorf("workers %v: notes %v", k.workers, notes)
		}
		for p, of := range had[0] {
			for i, rank := range k.workers {
				u, v := make([]float32, of.Len), make([]float32, of.Len)
				for number := i; number < len(had); number += len(k.workers) {
					for e := range u {
						u[e] += had[number][p].Velocity[e]
						v[e] += had[number][p].Accumulated[e]
					}
				}
				if own := got[rank][p]; own.Range != of.Range || !slices.Equal(own.Velocity, u) || !slices.Equal(own.Accumulated, v) {
					t.Errorf("workers %v: rank %d goes on with something else held back of elements %v", k.workers, rank, of.Range)
				}
			}
		}
	}
	for _, k := range []struct {
		scheme, from, want string
	}{
		{"dgc,ip0=sfb", into, "iter_8.manifest has what was held back of ip0, which do not go by dgc here"},
		{"ps", into, "iter_8.manifest has what was held back of"},
		{"dgc", filepath.Join(dir, "s_iter_8.solverstate"), "dgc: a snapshot has nothing of what was held back"},
	} {
		_, notes := heldOf(t, 3, path, false, func(c *train.Config) { c.Asked, c.Snapshot = ask(t, k.scheme), k.from })
		if len(notes) != 1 || !strings.Contains(notes[0], k.want) {
			t.Errorf("%s: notes %q, want %q", k.scheme, notes, k.want)
		}
	}
}
