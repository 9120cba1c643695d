package collectives_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// TestTheSameCallAgain: a call that does not block and was made before with the same
// buffers is another request, whatever becomes of the one before it.
func TestTheSameCallAgain(t *testing.T) {
	err := world(t, 3, 0, nbc.Options{}, func(c *collectives.Comm, _ *nbc.Engine) error {
		ctx := context.Background()
		in, out := make([]int64, 5), make([]int64, 5)
		var before *nbc.Request
		for i := range 40 {
			for j := range in {
				in[j] = int64(c.Rank()*100 + i + j)
			}
			r, err := c.Iallreduce(mem.Of(in), mem.Of(out), mem.Int64, mem.Sum)
			if err != nil {
				return err
			}
			if before != nil {
				before.Close() // again: it is closed already
				if _, err := before.Test(); err != nil {
					return err
				}
				if err := before.Start(); err == nil || !strings.Contains(err.Error(), "is started after it was closed") {
					return fmt.Errorf("a closed request was started: %v", err)
				}
			}
			if i%2 == 1 { // a blocking call of the same buffers' type beside it
				if err := c.Barrier(ctx); err != nil {
					return err
				}
			}
			if err := r.Wait(ctx); err != nil {
				return err
			}
			for j := range out {
				if want := int64(300 + 3*(i+j)); out[j] != want {
					return fmt.Errorf("call %d: element %d is %d, not %d", i, j, out[j], want)
				}
			}
			r.Close()
			before = r
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
