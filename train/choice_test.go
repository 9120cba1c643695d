package train_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/atomicfile/errorfs"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train"
)

// A run that chooses nothing leaves no choice of an earlier run beside its snapshots.
func TestChoiceOfAnEarlierRun(t *testing.T) {
	path, dir := files(t, 30)
	file := filepath.Join(dir, "s_iter_20.schemes")
	write(t, file, "an earlier run's")
	mustRun(t, 2, path, func(_ int, c *train.Config) { c.Scheme = exchange.Reduce })
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "s_iter_20.solverstate")); err != nil {
		t.Error(err)
	}
}

// The choice of auto lies beside every snapshot. A run that goes on from one with as many workers
// keeps it, whatever it would take now and whoever serves, and has the bits of one that was not interrupted; with
// another number of workers, or without the file, it chooses anew and says so. A file that is
// damaged, or of another net, ends all ranks with what to do.
func TestChoiceLiesBesideSnapshots(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	net := filepath.Join(dir, "net.prototxt")
	text, err := os.ReadFile(net)
	if err != nil {
		t.Fatal(err)
	}
	write(t, net, strings.Replace(string(text), "num_output: 30 ", "num_output: 120 ", 1)) // with layers of several slices
	auto := ask(t, "auto")
	snapshot := filepath.Join(dir, "s_iter_20.solverstate")
	file := filepath.Join(dir, "s_iter_20.schemes")
	with := func(from string) curve {
		return mustRun(t, 3, path, func(_ int, c *train.Config) { c.Asked, c.Bucket, c.Snapshot = auto, 1, from })
	}
	resumed := func(ranks int) (*coordinator.Audit, error) {
		_, audit, err := chosen(t, ranks, path, train.Config{Asked: auto, Bucket: 1, Snapshot: snapshot})
		return audit, err
	}
	with("")
	if text, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	choice, err := coordinator.ParseChoice(text)
	if err != nil || choice.Workers != 3 || choice.Asked.String() != "auto" || len(choice.Layers) != 5 || choice.Layers[3].Name != "ip0" {
		t.Fatalf("%v: %+v", err, choice)
	}
	last, err := os.ReadFile(filepath.Join(dir, "s_iter_30.schemes"))
	if err != nil || !bytes.Equal(last, text) {
		t.Errorf("the file beside the last snapshot: %v\n%s", err, last)
	}

	// What no network would choose: each layer another scheme.
	for i, s := range []exchange.Scheme{exchange.PS, exchange.Reduce, exchange.SFB, exchange.SFB, exchange.Allreduce} {
		choice.Layers[i].Scheme = s
	}
	write(t, file, string(choice.Text()))
	audit, err := resumed(3)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range audit.Rows {
		if r.Choice != choice.Layers[i].Scheme {
			t.Errorf("layer %s goes by %v, not %v", r.Layer.Name, r.Choice, choice.Layers[i].Scheme)
		}
	}
	if !slices.Equal(audit.Notes, []string{"# schemes kept from " + file}) {
		t.Errorf("%q", audit.Notes)
	}
	with(snapshot) // and its snapshots have it beside them too
	if after, err := os.ReadFile(filepath.Join(dir, "s_iter_30.schemes")); err != nil || string(after) != string(choice.Text()) {
		t.Errorf("beside the snapshot of the resumed run: %v\n%s", err, after)
	}

	// Slices are kept too, and executed: by ps as KV pairs, by the other schemes that are cut as parts of a bucket.
	choice.Slice, choice.Layers[2].Scheme = 1024, exchange.PS
	write(t, file, string(choice.Text()))
	_, err = runHooked(t, 3, path, func(_ int, c *train.Config) {
		c.Asked, c.Bucket, c.Snapshot, c.MaySlice = auto, 1, snapshot, coordinator.DefaultSlice
	}, func(rank int, w *train.Worker) {
		cut := 0
		for _, a := range w.Exchange().Accounts() {
			want := 1
			if a.Scheme == exchange.PS || a.Scheme == exchange.Reduce || a.Scheme == exchange.Allreduce {
				want = (a.Len + 1023) / 1024
			}
			if cut = max(cut, want); a.Parts < want || want == 1 && a.Parts > 1 {
				t.Errorf("rank %d: %s, %d elements by %v, has %d parts", rank, a.Name, a.Len, a.Scheme, a.Parts)
			}
		}
		if w.Audit().Book.Slice != 1024 || cut < 2 {
			t.Errorf("rank %d: slices of %v, at most %d", rank, w.Audit().Book.Slice, cut)
		}
	})
	if err != nil {
		t.Error(err)
	}

	_, audit, err = chosen(t, 4, path, train.Config{
		Asked: auto, Bucket: 1, Snapshot: snapshot,
		Workers: coordinator.Places{Ranks: []int{0, 1, 3}}, Servers: coordinator.Places{Ranks: []int{2}},
	})
	if err != nil || !slices.Equal(audit.Notes, []string{"# schemes kept from " + file}) || audit.Rows[0].Choice != exchange.PS {
		t.Errorf("with a server apart: %v, %v", err, audit)
	}
	if audit, err = resumed(2); err != nil || len(audit.Notes) != 1 || audit.Notes[0] != "# schemes chosen anew: "+file+" is of 3 workers, here are 2" {
		t.Errorf("on two ranks: %v, %v", err, audit)
	}
	for want, text := range map[string]string{
		"it is damaged: its last line is not the digest of the others":         string(text[:len(text)-3]),
		`it is of another net: layer "ip0" with 1 parameters, where`:           string((&coordinator.Choice{Asked: *auto, Workers: 3, Layers: append(slices.Clone(choice.Layers[:3]), coordinator.Chosen{Name: "ip0", Elements: 1}, choice.Layers[4])}).Text()),
		"it is damaged: its last line is not the digest of the others: remove": "",
	} {
		write(t, file, text)
		if _, err := resumed(3); err == nil || strings.Count(err.Error(), want) != 1 || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove it, and schemes are chosen anew") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if audit, err = resumed(3); err != nil || len(audit.Notes) != 1 || audit.Notes[0] != "# schemes chosen anew: there is no "+file {
		t.Errorf("without the file: %v, %v", err, audit)
	}
	if _, audit, err := chosen(t, 3, path, train.Config{Asked: ask(t, "reduce,ip1=sfb"), Bucket: 1, Snapshot: snapshot}); err != nil || len(audit.Notes) != 0 {
		t.Errorf("where nothing is to be chosen: %v, %v", err, audit)
	}
}

// TestResumedChoiceHasTheSameBits: of a run of that choice which was not interrupted.
func TestResumedChoiceHasTheSameBits(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	config := func(asked, from string) func(int, *train.Config) {
		return func(_ int, c *train.Config) { c.Asked, c.Bucket, c.Snapshot = ask(t, asked), 1, from }
	}
	whole := mustRun(t, 3, path, config("conv1=ps,rows=sfb,turned=reduce,ip0=sfb,ip1=allreduce,auto", ""))
	file := filepath.Join(dir, "s_iter_20.schemes")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	choice, err := coordinator.ParseChoice(text)
	if err != nil {
		t.Fatal(err)
	}
	choice.Asked = *ask(t, "auto")
	write(t, file, string(choice.Text()))
	rest := mustRun(t, 3, path, config("auto", filepath.Join(dir, "s_iter_20.solverstate")))
	if !slices.Equal(rest.loss, whole.loss[20:]) || !bytes.Equal(rest.snapshot, whole.snapshot) {
		t.Error("the resumed run has other bits than the whole one")
	}
}

// A choice that cannot be written is an error of the snapshot, and leaves no state behind.
func TestChoiceThatCannotBeWritten(t *testing.T) {
	path, dir := files(t, 30)
	_, err := run(t, 2, path, func(_ int, c *train.Config) {
		c.Asked = ask(t, "auto")
		c.Options.Writer.FS = &onlySchemes{}
	})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "snapshot of iteration 20") || !strings.Contains(err.Error(), "s_iter_20.schemes") {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "s_iter_20.s*")); len(left) != 0 {
		t.Errorf("it leaves %v", left)
	}
}

// onlySchemes is a file system that is full for files of schemes.
type onlySchemes struct{}

func (onlySchemes) of(path string) atomicfile.FS {
	if strings.Contains(path, ".schemes") {
		return &errorfs.FS{Fault: errorfs.Write}
	}
	return atomicfile.OS
}

func (o onlySchemes) Create(path string) (atomicfile.File, error) { return o.of(path).Create(path) }
func (o onlySchemes) Rename(from, to string) error                { return o.of(to).Rename(from, to) }
func (o onlySchemes) Remove(path string) error                    { return o.of(path).Remove(path) }
func (o onlySchemes) SyncDir(dir string) error                    { return atomicfile.OS.SyncDir(dir) }
