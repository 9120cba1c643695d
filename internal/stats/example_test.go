package stats_test

import (
	"fmt"

	"github.com/scaffe/scaffe/internal/stats"
)

func ExampleMedian() {
	before := stats.Median([]float64{10.1, 9.9, 10.3, 10.0, 10.2, 10.1, 9.8})
	after := stats.Median([]float64{8.1, 7.9, 8.3, 8.0, 8.2, 8.1, 7.8})
	fmt.Println(before.Median, before)
	fmt.Println(after.Median, after)
	fmt.Println("cannot be told apart:", before.Overlaps(after))
	// Output:
	// 10.1 9.80-10.30
	// 8.1 7.80-8.30
	// cannot be told apart: false
}
