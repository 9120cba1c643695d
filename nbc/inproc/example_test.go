package inproc_test

import (
	"fmt"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// A message between two ranks, driven by hand: what an engine does.
func Example() {
	world := inproc.NewWorld(2, inproc.Options{})
	sender, err := world.Open(0)()
	if err != nil {
		fmt.Println(err)
		return
	}
	receiver, err := world.Open(1)()
	if err != nil {
		fmt.Println(err)
		return
	}
	got := make([]float32, 2)
	tag := nbc.Tag{Instance: 1}
	if err := sender.Send(7, 1, tag, mem.Of([]float32{3, 4})); err != nil {
		fmt.Println(err)
	}
	if err := receiver.Recv(8, 0, tag, mem.Of(got)); err != nil {
		fmt.Println(err)
	}
	var done [1]nbc.Completion
	n, err := receiver.Poll(done[:])
	fmt.Println(n, done[0].Token, got, err)
	// Output: 1 8 [3 4] <nil>
}
