package mem_test

import (
	"testing"

	"github.com/scaffe/scaffe/mem"
)

// TestRewrite: every cache line is written, and what was there comes back with the next time.
func TestRewrite(t *testing.T) {
	b := make([]byte, 200)
	for times := range 2 {
		mem.Rewrite(mem.Of(b))
		for from := 0; from < len(b); from += 64 {
			changed := 0
			for _, v := range b[from:min(from+64, len(b))] {
				changed += int(v)
			}
			if want := 1 - times; changed != want {
				t.Errorf("after %d times %d bits are changed in the line from byte %d on, want %d", times+1, changed, from, want)
			}
		}
	}
	mem.Rewrite(mem.Buffer{})
}
