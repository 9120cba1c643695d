package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// pretended is an accelerator that is none: its memory is the host's.
type pretended struct {
	nbc.Device
	room int // bytes of one allocation at most; 0: any
}

func (p pretended) Alloc(n int) (mem.Buffer, error) {
	if p.room > 0 && n > p.room {
		return mem.Buffer{}, fmt.Errorf("no room for %d bytes", n)
	}
	return mem.TryAlloc(n)
}

func (pretended) Space() mem.Space                    { return mem.Host }
func (pretended) Free(b mem.Buffer)                   { b.Free() }
func (pretended) AllocHost(n int) (mem.Buffer, error) { return mem.TryAlloc(n) }
func (pretended) FreeHost(b mem.Buffer)               { b.Free() }
func (pretended) Busy() bool                          { return false }
func (pretended) Combining() bool                     { return false }
func (pretended) Folds(mem.Datatype, mem.Op) bool     { return false }
func (pretended) Reduce(nbc.Token, mem.Datatype, mem.Op, mem.Buffer, mem.Buffer, mem.Buffer) (bool, error) {
	return true, nil
}

// startedOn returns rank 0's model, where it comes from and warnings, of a start of two ranks with a GPU of a kind each, with room for so many bytes; none: without. It counts how
// often one was opened.
func startedOn(t *testing.T, kind string, room int, fails error) (model, from string, warnings []string, opened int, errs [2]error) {
	t.Helper()
	w := inproc.NewWorld(2, inproc.Options{})
	var wg sync.WaitGroup
	var opens atomic.Int32
	for r := range errs {
		k, err := kernels.NewCPU()
		if err != nil {
			t.Fatal(err)
		}
		e, err := nbc.Start(w.Open(r), device.CPU(k), nbc.Options{Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		wg.Go(func() {
			node := selection.Node{Machine: selection.Machine{Host: "a test, 2 cores"}}
			c := collectives.World(e, collectives.Options{Measure: true, Node: node})
			if kind != "" {
				c.HasGPU(collectives.GPU{Kept: selection.Kept{Node: node, GPU: kind}, Devices: 1, Lends: 2, Turns: true, Open: func() (nbc.Accelerator, error) {
					opens.Add(1)
					k, err := kernels.NewCPU()
					return pretended{device.CPU(k), room}, errors.Join(err, fails)
				}})
			}
			said, err := c.Configure(context.Background())
			if errs[r] = err; r == 0 && err == nil {
				model, from, warnings = c.Selector().Model.String(), c.Selector().From, said
			}
		})
	}
	wg.Wait()
	return model, from, warnings, int(opens.Load()), errs
}

// GPUs are measured by the first starts that have them, and by one rank; what is kept of one is taken by those that follow, and not for another kind. A start
// without them measures nothing of the kind, and keeps nothing.
func TestGPUIsMeasured(t *testing.T) {
	if raced {
		t.Skip("measuring takes four times as long with the race detector, and TestMachineIsMeasured has the collective")
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv(selection.EnvMeasure, selection.MeasureOnce)
	files := func() []string {
		paths, err := filepath.Glob(filepath.Join(cache, "scaffe", "gpu-*.json"))
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	host, _, _, opened, _ := startedOn(t, "", 0, nil)
	if opened > 0 || len(files()) > 0 || strings.Contains(host, "gpu.") {
		t.Errorf("without GPUs, %d were opened, %v are kept, and the model is %s", opened, files(), host)
	}
	model, _, warnings, opened, errs := startedOn(t, "one", 0, nil)
	if err := errors.Join(errs[:]...); err != nil || opened != 1 || len(files()) != 1 || len(warnings) > 0 {
		t.Fatalf("the first start opens %d, keeps %v, warns of %q (%v)", opened, files(), warnings, err)
	}
	for _, want := range []string{"gpu.launch=", "gpu.up.bandwidth=", "gpu.devices=1 gpu.lends=2 gpu.turns=1"} {
		if !strings.Contains(model, want) {
			t.Errorf("no %q in %s", want, model)
		}
	}
	if got, _, _ := strings.Cut(model, " gpu."); got != host {
		t.Errorf("with a GPU the host's parameters are %s, without %s", got, host)
	}
	text, err := os.ReadFile(files()[0])
	if err == nil {
		err = os.WriteFile(files()[0], []byte(strings.Replace(string(text), `"Date": "2`, `"Date": "1`, 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	again, from, _, opened, _ := startedOn(t, "one", 0, nil)
	if opened != 0 || again != model || !strings.Contains(from, "those of one, measured on 1") {
		t.Errorf("the second one opens %d, and has %s, from %s", opened, again, from)
	}
	if _, from, _, opened, _ = startedOn(t, "another", 0, nil); opened != 1 || !strings.Contains(from, "those of another, measured on 2") || len(files()) != 2 {
		t.Errorf("on another GPU a start opens %d, and has parameters from %s", opened, from)
	}
	t.Setenv(selection.EnvMeasure, "")
	if _, from, _, opened, _ = startedOn(t, "one", 0, nil); opened != 1 || !strings.Contains(from, "those of one, measured 2 times, last on 2") {
		t.Errorf("where three starts measure, the second one opens %d, and has parameters from %s", opened, from)
	}
	t.Setenv(selection.EnvMeasure, selection.MeasureOff)
	if model, _, _, opened, _ = startedOn(t, "one", 0, nil); opened != 0 || strings.Contains(model, "gpu.") {
		t.Errorf("asked not to measure, a start opens %d, and has %s", opened, model)
	}
	t.Setenv(selection.EnvMeasure, selection.MeasureAgain)
	if model, _, _, _, errs = startedOn(t, "a full one", 6<<20, nil); errors.Join(errs[:]...) != nil || !strings.Contains(model, "gpu.launch=") {
		t.Errorf("with room for 6 MiB, the model is %s (%v)", model, errors.Join(errs[:]...))
	}
	if _, _, _, _, errs = startedOn(t, "a full one", 1<<20, nil); errs[0] == nil || !strings.Contains(errs[0].Error(), "no room for 6291456 bytes") {
		t.Errorf("with room for 1 MiB: %v", errs[0])
	}
	_, _, _, _, errs = startedOn(t, "one", 0, errors.New("the GPU is gone"))
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "measuring one: ") || !strings.Contains(err.Error(), "the GPU is gone") {
			t.Errorf("rank %d, of a GPU that fails: %v", r, err)
		}
	}
}
