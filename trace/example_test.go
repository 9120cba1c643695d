package trace_test

import (
	"fmt"
	"log"

	"github.com/scaffe/scaffe/trace"
)

func ExampleAnalyze() {
	t, err := trace.ReadFile("testdata/hand.json")
	if err != nil {
		log.Fatal(err)
	}
	r := trace.Analyze(t)
	fmt.Println(r.Title())
	fmt.Println("an iteration:", r.Path.Total())
	fmt.Println(r.HiddenNote())
	// Output:
	// 2 ranks on 2 nodes, iterations 10 to 11
	// an iteration: 100ms
	// Buckets are in flight for 73.500 ms an iteration, added up; 20.4 % of it is hidden.
}
