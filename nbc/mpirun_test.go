package nbc_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/internal/ranktest"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

// scenarios are what ranks do that are processes. The text it returns is reported.
var scenarios = map[string]func(e *nbc.Engine) string{
	"giving up": givingUp,
}

func TestMain(m *testing.M) { ranktest.Main(m, runRank) }

// runRank runs a scenario over a transport.
func runRank(p ranktest.Process) {
	scenario, transport := scenarios[p.Words[0]], p.Words[1]
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
	p.Report(e.Rank(), scenario(e))
	for r := range e.Size() {
		p.Await(r)
	}
	_ = e.Close()
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
				run := ranktest.Run(t, n, "giving up", transport)
				if strings.Contains(run.Printed, "DATA RACE") {
					t.Errorf("races:\n%s", run.Printed)
				}
				for r, text := range run.Reports {
					want := "rank 1 gave up: a file is missing"
					if r == 1 {
						want = "told the others: <nil>"
					}
					if !strings.Contains(text, want) {
						t.Errorf("rank %d says %q, without %q:\n%s", r, text, want, run.Printed)
					}
				}
			})
		}
	}
}
