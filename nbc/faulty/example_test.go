package faulty_test

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// A transport that delays and reorders what it is given, by a seed.
func Example() {
	world := inproc.NewWorld(2, inproc.Options{})
	inner, err := world.Open(0)()
	if err != nil {
		fmt.Println(err)
		return
	}
	var t nbc.Transport = faulty.Wrap(inner, faulty.Plan{Seed: 7, Delay: 5, Reorder: true})
	fmt.Println(t.Rank(), t.Size())
	fmt.Println(t.Send(1, 1, nbc.Tag{Instance: 1}, mem.Of([]float32{1})))
	fmt.Println(t.Abort(context.Background(), "an example ends"), t.Close())
	// Output:
	// 0 2
	// <nil>
	// <nil> <nil>
}
