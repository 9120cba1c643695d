package launch_test

import (
	"context"
	"os"
	"runtime"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
)

// The progress thread has a processor of Go's where mpirun has bound the process to one
// core, unless the environment forbids it.
func TestRunProvidesForTheProgressThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	before, set := os.LookupEnv("GOMAXPROCS")
	defer func() {
		if set {
			_ = os.Setenv("GOMAXPROCS", before)
		} else {
			_ = os.Unsetenv("GOMAXPROCS")
		}
	}()
	for value, enough := range map[string]func(n int) bool{
		"1": func(n int) bool { return n == 1 },
		"":  func(n int) bool { return n > 1 },
	} {
		runtime.GOMAXPROCS(1)
		if err := os.Setenv("GOMAXPROCS", value); err != nil {
			t.Fatal(err)
		}
		err := launch.Run(context.Background(), launch.Options{Local: 1}, func(context.Context, *collectives.Comm) error {
			if n := runtime.GOMAXPROCS(0); !enough(n) {
				t.Errorf("GOMAXPROCS=%s: Go has %d processors", value, n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
