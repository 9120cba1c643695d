package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
)

// Each layer goes by the scheme of Algorithm 1, and any number of workers learn the same.
func Example_train() {
	for _, ranks := range []int{4, 2} {
		err := launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
			return train(ctx, comm, 300)
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// ip1: sfb, for 4 workers, 4 servers, 8 samples
	// ip2: ps, for 4 workers, 4 servers, 8 samples
	// iteration 0: loss 0.44
	// iteration 299: loss 0.01
	// ip1: sfb, for 2 workers, 2 servers, 16 samples
	// ip2: ps, for 2 workers, 2 servers, 16 samples
	// iteration 0: loss 0.44
	// iteration 299: loss 0.01
}

// TestPoseidon_PluggedInWithFewLines: "one needs to … insert Poseidon's syncer APIs in between gradient
// generation and application" (section 4.2): the whole program, its net too, is less than the 150
// lines of code that Caffe took.
func TestPoseidon_PluggedInWithFewLines(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	if n >= 150 || strings.Contains(string(text), "scaffe/caffe") {
		t.Errorf("it has %d lines, or needs caffe", n)
	}
}
