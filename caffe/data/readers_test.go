//go:build cgo

package data

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/PowerDNS/lmdb-go/lmdb"
	"pgregory.net/rapid"
)

// S-Caffe section 4.1 (Figure 3): a reader per rank. No two ranks read the
// same sample in an epoch, and together they read every one: whatever the
// numbers of ranks, samples and workers, weak and strong, also where neither
// divides the other, from an LMDB and from a list, shuffled or not.
func TestSCaffe_ParallelReadersShareAnEpoch(t *testing.T) {
	const most = 60
	images := imageList(t, most)
	text, err := os.ReadFile(images)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	paths := map[int]string{}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, most).Draw(rt, "samples")
		of := rapid.IntRange(1, min(n, 9)).Draw(rt, "ranks")
		weak := rapid.Bool().Draw(rt, "weak")
		batch := rapid.IntRange(of, 40).Draw(rt, "batch")
		workers := rapid.IntRange(1, 3).Draw(rt, "workers")
		kind := rapid.SampledFrom([]string{"lmdb", "list", "shuffled list"}).Draw(rt, "kind")
		var open func() (Source, error)
		if kind == "lmdb" {
			if paths[n] == "" {
				paths[n] = makeLMDB(t, n, Shape{1, 1, 2}, nil)
			}
			open = func() (Source, error) { return OpenLMDB(paths[n], Native) }
		} else {
			list := fmt.Sprintf("%s.%d", images, n)
			if err := os.WriteFile(list, []byte(strings.Join(lines[:n], "")), 0o644); err != nil {
				rt.Fatal(err)
			}
			open = func() (Source, error) {
				return OpenList(list, ListOptions{Root: filepath.Dir(images) + "/", Height: 2, Width: 2, Shuffle: kind != "list", Seed: 3})
			}
		}
		const epochs = 2
		var ranks []*Loader
		for i := range of {
			src, err := open()
			if err != nil {
				rt.Fatal(err)
			}
			l := mustLoader(rt, Config{Source: src, Transform: plain(), BatchSize: batch, Labels: true, Options: Options{Part: Part{Index: i, Of: of, Weak: weak}, Seed: 3, Workers: workers}})
			defer l.Close()
			ranks = append(ranks, l)
		}
		// The samples in the order in which the ranks' batches lie side by side:
		// n of them are an epoch.
		var read []int
		var by []int // the rank that read it
		for len(read) < epochs*n {
			for i, l := range ranks {
				_, labels, err := nextBatch(l)
				if err != nil {
					rt.Fatal(err)
				}
				for _, label := range labels {
					read, by = append(read, int(label)), append(by, i)
				}
			}
		}
		for e := range epochs {
			reader := map[int]int{}
			for j := e * n; j < (e+1)*n; j++ {
				if other, twice := reader[read[j]]; twice {
					rt.Fatalf("epoch %d: ranks %d and %d both read sample %d", e, other, by[j], read[j])
				}
				reader[read[j]] = by[j]
			}
			for i := range n {
				if _, ok := reader[i]; !ok {
					rt.Fatalf("epoch %d: no rank reads sample %d of %d", e, i, n)
				}
			}
		}
	})
}

// The readers of one LMDB: as many as the paper's largest run had GPUs.
const (
	readers      = 160
	readersBatch = 331 // does not divide
	readersLMDB  = 700
	readersRead  = 5 // batches
)

// openReader opens reader i of the test's 160.
func openReader(path string, i int) (*Loader, error) {
	src, err := OpenLMDB(path, Native)
	if err != nil {
		return nil, err
	}
	return NewLoader(Config{
		Source: src, Transform: plain(), BatchSize: readersBatch, Labels: true,
		Options: Options{Part: Part{Index: i, Of: readers}, Workers: 2},
	})
}

// readLabels reads the labels of the test's batches.
func readLabels(l *Loader) (labels []float32, err error) {
	for range readersRead {
		_, ls, err := nextBatch(l)
		if err != nil {
			return nil, err
		}
		labels = append(labels, ls...)
	}
	return labels, nil
}

// checkReaders checks that the readers' parts make up the data set in order.
func checkReaders(t *testing.T, labels [][]float32) {
	t.Helper()
	at := 0
	for k := range readersRead {
		for i := range readers {
			local := Part{Index: i, Of: readers}.Local(readersBatch)
			if len(labels[i]) != readersRead*local {
				t.Fatalf("reader %d read %d samples, want %d", i, len(labels[i]), readersRead*local)
			}
			for _, got := range labels[i][k*local : (k+1)*local] {
				if got != float32(at%readersLMDB) {
					t.Fatalf("batch %d, reader %d: label %v, want %d", k, i, got, at%readersLMDB)
				}
				at++
			}
		}
	}
}

// S-Caffe section 4.1 says that LMDB fails with more than 64 readers. 160 in one
// process, all open at once and each with two goroutines, share one mapping.
func TestLMDB_160ReadersInOneProcess(t *testing.T) {
	path := makeLMDB(t, readersLMDB, Shape{1, 3, 3}, nil)
	loaders := make([]*Loader, readers)
	labels := make([][]float32, readers)
	each := func(f func(i int) error) {
		var wg sync.WaitGroup
		for i := range readers {
			wg.Go(func() {
				if err := f(i); err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	}
	each(func(i int) (err error) { loaders[i], err = openReader(path, i); return err })
	if t.Failed() {
		return
	}
	environments.Lock()
	if n := len(environments.open); n != 1 || environments.open[0].users != 2*readers {
		t.Errorf("%d environments are open, %d users of the first", n, environments.open[0].users)
	}
	environments.Unlock()
	each(func(i int) (err error) { labels[i], err = readLabels(loaders[i]); return err })
	each(func(i int) error { return loaders[i].Close() })
	if !t.Failed() {
		checkReaders(t, labels)
	}
	environments.Lock()
	if n := len(environments.open); n != 0 {
		t.Errorf("%d environments stay open", n)
	}
	environments.Unlock()
}

// 160 readers in eight processes, as the ranks of a node are, all open at once.
func TestLMDB_160ReadersInEightProcesses(t *testing.T) {
	const processes = 8
	path := makeLMDB(t, readersLMDB, Shape{1, 3, 3}, nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	labels := make([][]float32, readers)
	var wg, ready sync.WaitGroup
	ready.Add(processes)
	for p := range processes {
		wg.Go(func() {
			open := sync.OnceFunc(ready.Done)
			defer open()
			first, n := p*readers/processes, readers/processes
			c := exec.Command(exe)
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", envReaders, first, n, path))
			c.Stderr = os.Stderr
			stdin, err := c.StdinPipe()
			if err != nil {
				t.Error(err)
				return
			}
			stdout, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			out := bufio.NewScanner(stdout)
			out.Buffer(nil, 1<<20)
			out.Scan() // "open"
			open()
			ready.Wait()
			_ = stdin.Close() // now all are open: read
			for i := first; i < first+n && out.Scan(); i++ {
				for _, f := range strings.Fields(out.Text()) {
					v, err := strconv.Atoi(f)
					if err != nil {
						t.Error(err)
					}
					labels[i] = append(labels[i], float32(v))
				}
			}
			if err := c.Wait(); err != nil {
				t.Errorf("process %d: %v", p, err)
			}
		})
	}
	wg.Wait()
	if !t.Failed() {
		checkReaders(t, labels)
	}
	if files, err := os.ReadDir(path); err != nil || len(files) != 1 {
		t.Errorf("the LMDB holds %v %v", files, err)
	}
}

func init() { asReaders = readerProcess }

// readerProcess opens its readers, says so, waits for the others and prints
// the labels that each of them reads.
func readerProcess() int {
	if err := beReaders(os.Getenv(envReaders)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func beReaders(args string) error {
	var first, n int
	var path string
	if _, err := fmt.Sscan(args, &first, &n, &path); err != nil {
		return err
	}
	var loaders []*Loader
	for i := range n {
		l, err := openReader(path, first+i)
		if err != nil {
			return err
		}
		loaders = append(loaders, l)
	}
	fmt.Println("open")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for _, l := range loaders {
		labels, err := readLabels(l)
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
		fmt.Println(strings.Trim(fmt.Sprint(labels), "[]"))
	}
	return nil
}

// What OpenLMDB avoids: opened as usual, an LMDB has room for 126 readers, of
// all processes of a node together.
func TestLMDB_WithLocksReader127Fails(t *testing.T) {
	path := makeLMDB(t, 10, Shape{1, 1, 1}, nil)
	env, err := lmdb.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	if err := env.Open(path, lmdb.Readonly, 0o644); err != nil {
		t.Fatal(err)
	}
	var txns []*lmdb.Txn
	defer func() {
		for _, txn := range txns {
			txn.Abort()
		}
	}()
	for len(txns) < readers {
		txn, err := env.BeginTxn(nil, lmdb.Readonly)
		if err != nil {
			if !lmdb.IsErrno(err, lmdb.ReadersFull) || len(txns) != 126 {
				t.Errorf("reader %d: %v", len(txns)+1, err)
			}
			break
		}
		txns = append(txns, txn)
	}
	if len(txns) == readers {
		t.Errorf("%d readers with locks: NoLock is not needed any more", readers)
	}
	// Ours read on meanwhile.
	src, err := OpenLMDB(path, Native)
	if err != nil {
		t.Fatal(err)
	}
	var s Sample
	if err := src.Read(0, 9, &s); err != nil || s.Label != 9 {
		t.Errorf("%v %v", s.Label, err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

// A source keeps the file that it opened, and one opened after a replacement
// has the new one.
func TestLMDB_ReplacedWhileItIsRead(t *testing.T) {
	path := makeLMDB(t, 5, Shape{1, 1, 1}, nil)
	old, err := OpenLMDB(path, Native)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Create(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Put("a", marshal(t, rawDatum(1, 1, 1))), w.Commit()); err != nil {
		t.Fatal(err)
	}
	src, err := OpenLMDB(path, Native)
	if err != nil {
		t.Fatal(err)
	}
	fork, err := old.Fork()
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	var s Sample
	if err := fork.Read(0, 4, &s); err != nil || s.Label != 4 || fork.Len() != 5 || src.Len() != 1 {
		t.Errorf("the old one has %d samples (%v), the new one %d", fork.Len(), err, src.Len())
	}
	if err := errors.Join(fork.Close(), src.Close()); err != nil {
		t.Error(err)
	}
	if n := len(environments.open); n != 0 {
		t.Errorf("%d environments stay open", n)
	}
}
