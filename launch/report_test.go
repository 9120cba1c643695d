package launch_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// TestSignalWhileRank0Reports: a rank that has failed and gets a signal, since others
// that rank 0 has answered have ended, still waits for its own answer, and so does not
// print the reason a second time. Where rank 0 does not answer any more, it prints the
// reason before the launcher kills it.
func TestSignalWhileRank0Reports(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers bool
		printed int
	}{
		{"rank 0 answers", true, 1},
		{"rank 0 has ended", false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := inproc.NewWorld(2, inproc.Options{})
				engines := make([]*nbc.Engine, 2)
				for r := range engines {
					k, err := kernels.NewCPU()
					if err != nil {
						t.Fatal(err)
					}
					if engines[r], err = nbc.Start(w.Open(r), device.CPU(k), nbc.Options{}); err != nil {
						t.Fatal(err)
					}
					defer engines[r].Close()
				}
				var log written
				launch.Fail(engines, errors.New(reason), &log, func(signal func() bool) {
					if !signal() {
						t.Error("rank 1 does not know that it has failed")
					}
					if !c.answers {
						time.Sleep(launch.HurryTimeout / 4) // in which rank 1 asks again: it is too soon for an answer
						_ = engines[0].Close()
					}
					time.Sleep(launch.HurryTimeout / 2)
				})
				if got := strings.Count(log.String(), "rank 1: "+reason); got != c.printed {
					t.Errorf("the reason is printed %d times, want %d:\n%s", got, c.printed, log.String())
				}
			})
		})
	}
}
