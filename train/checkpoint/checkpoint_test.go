package checkpoint_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/atomicfile/errorfs"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// layout is that of the tests' net.
var layout = checkpoint.Layout{Rule: "SGD", Histories: 1, Elements: 50, Params: []checkpoint.Param{
	{Layer: "conv 1", Shape: []int{2, 4, 2, 2}}, {Layer: "ip1", Shape: []int{16}, Off: 32}, {Layer: "ip1", Off: 48},
}}

// shards are who holds what; one rank has nothing, and two have residuals of the first parameter as a
// matrix of 8×4, and hold something back of the second.
var shards = []checkpoint.Shard{
	{
		Ranges:    []checkpoint.Range{{Off: 10, Len: 20}, {Off: 49, Len: 1}},
		Residuals: []checkpoint.Range{{Len: 32}}, Sums: []checkpoint.Stripe{{Rows: 8, Cols: 4, Columns: checkpoint.Range{Len: 3}}},
		Held: []checkpoint.Range{{Off: 32, Len: 16}},
	},
	{},
	{
		Ranges:    []checkpoint.Range{{Off: 0, Len: 10}, {Off: 30, Len: 19}},
		Residuals: []checkpoint.Range{{Len: 32}}, Sums: []checkpoint.Stripe{{Rows: 8, Cols: 4, Columns: checkpoint.Range{Off: 3, Len: 1}}},
		Held: []checkpoint.Range{{Off: 32, Len: 16}},
	},
}

// residual is a value of what a rank of the set has left out.
func residual(iter, rank, i int) float32 { return float32(iter*100+rank*1000+i) + 0.5 }

// stateOf returns what the net has after so many iterations.
func stateOf(iter int) [][]float32 {
	state := [][]float32{make([]float32, layout.Elements), make([]float32, layout.Elements)}
	for k := range state {
		for i := range state[k] {
			state[k][i] = float32(1000*iter + 100*k + i)
		}
	}
	return state
}

// writeSet writes a set as the ranks do, and removes the sets before the last two.
func writeSet(files atomicfile.FS, dir string, iter int) error {
	m := checkpoint.Manifest{Iter: iter, Layout: layout, Shards: slices.Clone(shards)}
	state := stateOf(iter)
	for rank := range m.Shards {
		var values []float32
		for k := range state {
			for _, r := range m.Shards[rank].Ranges {
				values = append(values, state[k][r.Off:r.End()]...)
			}
		}
		for i := range m.Shards[rank].Len(layout.Histories) - len(values) {
			values = append(values, residual(iter, rank, i))
		}
		var err error
		if m.Shards[rank].Digest, err = checkpoint.WriteShard(files, checkpoint.ShardPath(dir, iter, rank), values); err != nil {
			return err
		}
	}
	if err := m.Write(files, dir); err != nil {
		return err
	}
	return checkpoint.Clean(files, dir, iter, iter-100)
}

// loaded returns the iteration of the newest set of dir, of which it makes sure that it is whole.
func loaded(t *testing.T, dir string) int {
	t.Helper()
	path, err := checkpoint.Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	state := stateOf(0)
	m, err := checkpoint.Load(path, layout, state)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range stateOf(m.Iter) {
		if !slices.Equal(state[k], want) {
			t.Errorf("iteration %d has %v, want %v", m.Iter, state[k], want)
		}
	}
	for rank, n := range map[int]int{0: 32 + 24, 2: 32 + 8} {
		for from := range n {
			values := make([]float32, n-from)
			if err := m.ReadResiduals(dir, rank, from, values); err != nil {
				t.Fatal(err)
			}
			for i, x := range values {
				if x != residual(m.Iter, rank, from+i) {
					t.Fatalf("iteration %d: residual %d of rank %d is %v", m.Iter, from+i, rank, x)
				}
			}
		}
	}
	return m.Iter
}

func names(t *testing.T, dir string) string {
	t.Helper()
	found, err := fs.Glob(os.DirFS(dir), "*")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

// Two sets are kept, and files that are none of ours.
func TestTwoSetsAreKept(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"notes.txt", "s_iter_100.solverstate", ".iter_700.rank_1.shard.0123456789abcdef.tmp", "iter_50.rank_7.shard"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, iter := range []int{900, 1000, 1100} {
		if err := writeSet(nil, dir, iter); err != nil {
			t.Fatal(err)
		}
	}
	want := "iter_1000.manifest iter_1000.rank_0.shard iter_1000.rank_2.shard iter_1100.manifest iter_1100.rank_0.shard iter_1100.rank_2.shard notes.txt s_iter_100.solverstate"
	if got := names(t, dir); got != want {
		t.Errorf("the directory holds\n%s\nwant\n%s", got, want)
	}
	if iter := loaded(t, dir); iter != 1100 {
		t.Errorf("the newest set is of iteration %d", iter)
	}
}

// TestKilledAtAnyOperation: whatever was the last thing that a killed process did to a file,
// there is a whole set, the new one or the one before; the next set takes away what is left.
func TestKilledAtAnyOperation(t *testing.T) {
	older, newer := 0, 0
	for at := int64(0); ; at++ {
		dir := t.TempDir()
		for _, iter := range []int{100, 200} {
			if err := writeSet(nil, dir, iter); err != nil {
				t.Fatal(err)
			}
		}
		killed := &errorfs.Killed{At: at}
		if err := writeSet(killed, dir, 300); killed.Dead() != errors.Is(err, errorfs.ErrKilled) {
			t.Fatal(err)
		}
		switch iter := loaded(t, dir); iter {
		case 200:
			older++
		case 300:
			newer++
		default:
			t.Errorf("killed before operation %d, the newest set is of iteration %d", at, iter)
		}
		if !killed.Dead() {
			break
		}
		if err := writeSet(nil, dir, 300); err != nil { // again, as a run does that goes on from 200
			t.Fatal(err)
		}
		if err := writeSet(nil, dir, 400); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 6 {
			t.Errorf("killed before operation %d, %v are left: %v", at, files, err)
		}
	}
	if older < 10 || newer < 3 {
		t.Errorf("killed %d times before the set was whole and %d times after: that was no writing of a set", older, newer)
	}
}

// TestFullDiskSpoilsNoEarlierSet: at whichever byte, and whichever operation fails.
func TestFullDiskSpoilsNoEarlierSet(t *testing.T) {
	faults := []*errorfs.FS{{Fault: errorfs.Create}, {Fault: errorfs.Sync}, {Fault: errorfs.Close}, {Fault: errorfs.Rename}}
	for after := int64(0); after < 900; after += 61 {
		faults = append(faults, &errorfs.FS{Fault: errorfs.Write, After: after})
	}
	dir := t.TempDir()
	if err := writeSet(nil, dir, 100); err != nil {
		t.Fatal(err)
	}
	before := names(t, dir)
	for _, f := range faults {
		if err := writeSet(f, dir, 200); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "iter_200.") {
			t.Errorf("%s at %d: %v", f.Fault, f.After, err)
		}
		if iter := loaded(t, dir); iter != 100 {
			t.Errorf("%s at %d: the newest set is of iteration %d", f.Fault, f.After, iter)
		}
	}
	if err := checkpoint.Clean(nil, dir, 100); err != nil || names(t, dir) != before {
		t.Errorf("%v: there is %s", err, names(t, dir))
	}
}

// What is wrong with a set is one line that names the file.
func TestWhatIsWrongWithASet(t *testing.T) {
	other := func(change func(*checkpoint.Layout)) func(*testing.T, string) checkpoint.Layout {
		return func(*testing.T, string) checkpoint.Layout {
			l := layout
			l.Params = slices.Clone(l.Params)
			change(&l)
			return l
		}
	}
	file := func(name string, change func(b []byte) []byte) func(*testing.T, string) checkpoint.Layout {
		return func(t *testing.T, dir string) checkpoint.Layout {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, change(b), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			return layout
		}
	}
	for want, change := range map[string]func(*testing.T, string) checkpoint.Layout{
		"iter_300.manifest: it is of solver type SGD, and this one is Adam":                                                            other(func(l *checkpoint.Layout) { l.Rule, l.Histories = "Adam", 2 }),
		"iter_300.manifest: it is of another net: it has 3 parameters, and this one 2":                                                 other(func(l *checkpoint.Layout) { l.Params = l.Params[:2] }),
		`iter_300.manifest: it is of another net: layer "ip1" with a parameter of 16, where this one has "ip1" with 4x4`:               other(func(l *checkpoint.Layout) { l.Params[1].Shape = []int{4, 4} }),
		`iter_300.manifest: it is of another net: layer "conv 1" with a parameter of 2x4x2x2, where this one has "conv1" with 2x4x2x2`: other(func(l *checkpoint.Layout) { l.Params[0].Layer = "conv1" }),
		`iter_300.manifest: its parameters lie otherwise: one of layer "ip1" at 48, here at 49`:                                        other(func(l *checkpoint.Layout) { l.Params[2].Off = 49 }),
		"iter_300.manifest: it is damaged: its last line is not the digest of the others":                                              file("iter_300.manifest", func(b []byte) []byte { b[len(b)/2]++; return b }),
		"iter_300.manifest: it is damaged: its last line":                                                                              file("iter_300.manifest", func(b []byte) []byte { return nil }),
		"iter_300.rank_0.shard has 519 bytes, where its manifest says 520: it is not whole":                                            file("iter_300.rank_0.shard", func(b []byte) []byte { return b[:len(b)-1] }),
		"iter_300.rank_2.shard has been changed: its digest is not that of its manifest":                                               file("iter_300.rank_2.shard", func(b []byte) []byte { b[100] ^= 1; return b }),
		"iter_300.rank_0.shard has been changed: its digest is not that of its manifest":                                               file("iter_300.rank_0.shard", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), // a residual
		"iter_300.rank_2.shard: no such file or directory": func(t *testing.T, dir string) checkpoint.Layout {
			if err := os.Remove(filepath.Join(dir, "iter_300.rank_2.shard")); err != nil {
				t.Fatal(err)
			}
			return layout
		},
	} {
		dir := t.TempDir()
		if err := writeSet(nil, dir, 300); err != nil {
			t.Fatal(err)
		}
		l := change(t, dir)
		path, err := checkpoint.Find(dir)
		if err == nil {
			_, err = checkpoint.Load(path, l, [][]float32{make([]float32, 60), make([]float32, 60), make([]float32, 60)})
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Shards without a manifest are no set.
func TestDirectoriesWithoutSets(t *testing.T) {
	dir := t.TempDir()
	if err := writeSet(nil, dir, 300); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(checkpoint.ManifestPath(dir, 300)); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Find(dir); err == nil || !strings.Contains(err.Error(), "holds no checkpoint: there is no iter_N.manifest") {
		t.Errorf("%v", err)
	}
	if _, err := checkpoint.Find(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if path, err := checkpoint.Find(checkpoint.ManifestPath(dir, 7)); err != nil || path != checkpoint.ManifestPath(dir, 7) {
		t.Errorf("%s, %v", path, err)
	}
}

// A manifest whose shards miss an element, or hold one twice, is refused: no digest helps.
func TestShardsThatAreNotTheWholeNet(t *testing.T) {
	for _, ranges := range [][]checkpoint.Range{
		{{Off: 0, Len: 49}}, {{Off: 0, Len: 51}}, {{Off: 0, Len: 30}, {Off: 29, Len: 21}}, {{Off: 0, Len: 30}, {Off: 31, Len: 19}}, nil,
	} {
		m := checkpoint.Manifest{Iter: 1, Layout: layout, Shards: []checkpoint.Shard{{Ranges: ranges}}}
		if _, err := checkpoint.Parse(m.Text()); err == nil {
			t.Errorf("%v is accepted", ranges)
		}
	}
	if _, err := checkpoint.Parse([]byte(fmt.Sprintf("%s\n", "digest"))); err == nil {
		t.Error("a text that is none is accepted")
	}
}

// Residuals that do not fit together are refused.
func TestResidualsThatDoNotFit(t *testing.T) {
	stripe := func(rows, cols, from, n int) checkpoint.Stripe {
		return checkpoint.Stripe{Rows: rows, Cols: cols, Columns: checkpoint.Range{Off: from, Len: n}}
	}
	for want, change := range map[string]func(a, b *checkpoint.Shard){
		"the residuals of rank 0 are not those of the other ranks": func(a, _ *checkpoint.Shard) { a.Residuals = []checkpoint.Range{{Len: 16}} },
		"where 3 comes next":   func(_, b *checkpoint.Shard) { b.Sums[0].Columns.Off = 2 },
		"end at column 3 of 4": func(_, b *checkpoint.Shard) { b.Sums = nil },
		"8×3, which are not of the matrices of its residuals": func(a, _ *checkpoint.Shard) { a.Sums[0] = stripe(8, 3, 0, 3) },
		"columns [3:5]": func(_, b *checkpoint.Shard) { b.Sums[0] = stripe(8, 4, 3, 2) },
		"what rank 0 holds back is not of the other ranks' parameters": func(a, _ *checkpoint.Shard) { a.Held = []checkpoint.Range{{Off: 32, Len: 8}} },
		"elements [40:56] are held back, of 50": func(a, b *checkpoint.Shard) {
			a.Held = []checkpoint.Range{{Off: 40, Len: 16}}
			b.Held = a.Held
		},
		"there are residuals of elements": func(a, b *checkpoint.Shard) {
			a.Residuals = []checkpoint.Range{{Off: 40, Len: 32}}
			b.Residuals = a.Residuals
			a.Sums[0].Off, b.Sums[0].Off = 40, 40
		},
	} {
		m := checkpoint.Manifest{Iter: 1, Layout: layout, Shards: slices.Clone(shards)}
		for i := range m.Shards {
			m.Shards[i].Sums = slices.Clone(m.Shards[i].Sums)
		}
		if _, err := checkpoint.Parse(m.Text()); err != nil {
			t.Fatal(err)
		}
		change(&m.Shards[0], &m.Shards[2])
		if _, err := checkpoint.Parse(m.Text()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A manifest of the first version, which had no residuals, is read, and known as such.
func TestManifestsOfTheFirstVersion(t *testing.T) {
	m := checkpoint.Manifest{Iter: 1, Layout: layout, Shards: []checkpoint.Shard{{Ranges: []checkpoint.Range{{Len: 50}}}}}
	now := string(m.Text())
	before := strings.Replace(now[:strings.LastIndex(now, "digest ")], "# scaffe checkpoint 2:", "# scaffe checkpoint 1:", 1)
	for text, first := range map[string]bool{now: false, fmt.Sprintf("%sdigest %x\n", before, sha256.Sum256([]byte(before))): true} {
		got, err := checkpoint.Parse([]byte(text))
		if err != nil || got.NoResiduals != first || got.Iter != 1 || len(got.Shards) != 1 {
			t.Errorf("%v, %+v of\n%s", err, got, text)
		}
	}
}
