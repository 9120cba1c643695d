package blob_test

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/blob"
)

// Two images of one channel, 2×3, and one value's gradient.
func Example() {
	b := blob.New(2, 1, 2, 3)
	b.Data()[5] = 7  // image 0, row 1, column 2
	b.Diff()[5] = -1 // its gradient
	fmt.Println(b.Count(), b.Shape())
	// Output: 12 [2 1 2 3]
}
