package selection_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
)

// A class is of sizes that differ by less than a half, is its own class, and is answered
// as what it stands for; where there is a table, every size is its own class.
func TestClass(t *testing.T) {
	s := selection.Default()
	l := spec.LayoutOf([]int{0, 0})
	classes := map[int]bool{}
	for bytes := range 1 << 16 {
		q := selection.Query{Bytes: bytes}
		class := s.Class(q)
		if class.Bytes < bytes || 2*class.Bytes > 3*bytes && bytes > 2 || s.Class(class) != class {
			t.Fatalf("the class of %d bytes is %d, whose is %d", bytes, class.Bytes, s.Class(class).Bytes)
		}
		least := selection.Query{Bytes: s.Below(class) + 1}
		if bytes > 2 && (s.Class(least) != class || s.Class(selection.Query{Bytes: least.Bytes - 1}) == class) {
			t.Fatalf("the class of %d bytes is said to begin at %d", class.Bytes, least.Bytes)
		}
		classes[class.Bytes] = true
	}
	if n := len(classes); n > 34 {
		t.Errorf("%d classes up to 64K", n)
	}
	rapid.Check(t, func(t *rapid.T) {
		q := selection.Query{Bytes: rapid.IntRange(0, 1<<22).Draw(t, "bytes")}
		a, errA := s.Select(l, q, spec.Spec{})
		b, errB := s.Select(l, s.Class(q), spec.Spec{})
		if errA != nil || errB != nil || a.Text != b.Text {
			t.Errorf("%d bytes are served by %s, their class by %s (%v, %v)", q.Bytes, a.Text, b.Text, errA, errB)
		}
	})
	s.Sources = []selection.Source{{Table: &selection.Table{}}}
	if q := (selection.Query{Bytes: 12345}); s.Class(q) != q {
		t.Errorf("where there is a table, the class of %v is %v", q, s.Class(q))
	}
	if q := (selection.Query{Bytes: 12345}); s.Below(q) != q.Bytes {
		t.Errorf("where there is a table, %d is below the class of %d bytes", s.Below(q), q.Bytes)
	}
}
