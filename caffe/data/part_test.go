package data

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPart_PartsDivideTheBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.IntRange(1, 33).Draw(t, "of")
		batch := rapid.IntRange(of, 300).Draw(t, "batch")
		weak := rapid.Bool().Draw(t, "weak")
		at, least, most := 0, batch, 0
		for i := range of {
			p := Part{Index: i, Of: of, Weak: weak}
			if err := p.Check(batch); err != nil {
				t.Fatal(err)
			}
			lo, hi := p.Range(batch)
			if lo != at || p.Local(batch) != hi-lo {
				t.Fatalf("part %d: [%d, %d) after %d, local %d", i, lo, hi, at, p.Local(batch))
			}
			at, least, most = hi, min(least, hi-lo), max(most, hi-lo)
		}
		if global := (Part{Of: of, Weak: weak}).Global(batch); at != global {
			t.Fatalf("the parts cover %d of %d", at, global)
		}
		if most-least > 1 || weak && least != batch {
			t.Fatalf("parts of %d to %d samples", least, most)
		}
	})
}

func TestPart_ZeroIsTheWhole(t *testing.T) {
	if lo, hi := (Part{}).Range(7); lo != 0 || hi != 7 || (Part{}).Global(7) != 7 {
		t.Errorf("zero part reads [%d, %d) of 7", lo, hi)
	}
}

func TestPart_Refusals(t *testing.T) {
	for _, c := range []struct {
		p     Part
		batch int
		want  string
	}{
		{Part{Index: 3, Of: 3}, 9, "part 3 of 3 does not exist"},
		{Part{Index: -1, Of: 3}, 9, "does not exist"},
		{Part{Of: -2}, 9, "does not exist"},
		{Part{Index: 1}, 9, "part 1 of 1"},
		{Part{}, 0, "batch_size must be at least 1"},
		{Part{Of: 4}, 3, "batch_size 3 cannot be divided among 4 workers"},
		{Part{Index: 3, Of: 4}, 3, "batch_size 3 cannot be divided among 4 workers"},
	} {
		if err := c.p.Check(c.batch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v of %d: %v, want %q", c.p, c.batch, err, c.want)
		}
	}
	if err := (Part{Of: 4, Weak: true}).Check(3); err != nil {
		t.Errorf("weak: %v", err)
	}
}
