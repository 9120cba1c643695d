package coordinator

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// weighedBook is two convolutions and an inner product on four ranks, whose layers alone take what times says.
func weighedBook(t interface{ Fatal(...any) }, asked string, times func(l *Layer, s Scheme) time.Duration) *Audit {
	everyone := Places{All: true}
	b, err := New(Config{Nodes: []int{0, 1, 2, 3}, Workers: everyone, Servers: everyone, Batch: []int{4, 4, 4, 4}, Layers: []Layer{
		{Name: "conv1", Type: "Convolution", Params: []Range{{Off: 0, Len: 100}}},
		{Name: "conv2", Type: "Convolution", Params: []Range{{Off: 100, Len: 200}}},
		{Name: "fc", Type: FC, Rows: 100, Cols: 90, Params: []Range{{Off: 300, Len: 9000}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseAsked(asked)
	if err != nil {
		t.Fatal(err)
	}
	a, err := b.Choose(want, func(l *Layer, s Scheme) (Prediction, error) {
		return Prediction{Time: times(l, s), Spec: "ring"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// alike makes allreduce the least of every layer alone.
func alike(_ *Layer, s Scheme) time.Duration {
	return map[Scheme]time.Duration{Allreduce: 1, Reduce: 2, PS: 3, SFB: 4, Adam: 5, OneBit: 6, DGC: 7}[s] * time.Millisecond
}

// The least of each layer alone is not taken where the iteration is longer by it; what was asked for by name stays; the
// audit says why, and what was weighed.
func TestByIteration(t *testing.T) {
	for _, c := range []struct {
		name, asked string
		predict     Iterator
		want        []Scheme
	}{
		{"servers hide", "auto", func(m Moves, _ float64) (Foreseen, error) {
			s := m.Schemes
			return Foreseen{Time: time.Duration(100+10*count(s, Allreduce)+5*count(s, SFB)+20*count(s, Reduce)) * time.Millisecond}, nil
		}, []Scheme{PS, PS, PS}},
		{"a rule holds", "auto,conv1=reduce", func(m Moves, _ float64) (Foreseen, error) {
			s := m.Schemes
			return Foreseen{Time: time.Duration(100+10*count(s, Allreduce)+5*count(s, SFB)+20*count(s, Reduce)) * time.Millisecond}, nil
		}, []Scheme{Reduce, PS, PS}},
		{"a single layer", "auto", func(m Moves, _ float64) (Foreseen, error) {
			s := m.Schemes
			if slices.Equal(s, []Scheme{Allreduce, Reduce, SFB}) {
				return Foreseen{Time: 50 * time.Millisecond}, nil
			}
			return Foreseen{Time: time.Duration(100+10*count(s, PS)-20*count(s, SFB)) * time.Millisecond}, nil
		}, []Scheme{Allreduce, Reduce, SFB}},
		{"a tie, by the slow network", "auto", func(m Moves, slower float64) (Foreseen, error) {
			s := m.Schemes
			return Foreseen{Time: time.Duration(1e8 + float64(count(s, PS))*5e5 + 1e7*(slower-1)*float64(3-count(s, PS)))}, nil
		}, []Scheme{PS, PS, PS}},
		{"a tie, by the port", "auto", func(m Moves, _ float64) (Foreseen, error) {
			s := m.Schemes
			return Foreseen{Time: time.Duration(1e8 + float64(count(s, PS))*2e5), Port: time.Duration(1e7 - 1e6*count(s, PS))}, nil
		}, []Scheme{PS, PS, PS}},
		{"no tie on a slow network, whatever the port", "auto", func(m Moves, slower float64) (Foreseen, error) {
			s := m.Schemes
			return Foreseen{Time: time.Duration(1e8 + 1e7*(slower-1)*float64(count(s, PS))), Port: time.Duration(1e7 - 1e6*count(s, PS))}, nil
		}, []Scheme{Allreduce, Allreduce, Allreduce}},
		{"all alike: each layer's least", "auto", func(Moves, float64) (Foreseen, error) { return Foreseen{Time: time.Second}, nil }, []Scheme{Allreduce, Allreduce, Allreduce}},
		{"Algorithm 1 is not touched", "poseidon", func(Moves, float64) (Foreseen, error) { return Foreseen{}, errors.New("asked") }, []Scheme{PS, PS, SFB}},
	} {
		a := weighedBook(t, c.asked, alike)
		if err := a.ByIteration("SC-OBR, as told", c.predict); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := a.Schemes(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		text := strings.Join(a.Text(), "\n")
		if said := strings.Contains(text, "chosen by the predicted iteration (SC-OBR, as told)"); said != (c.asked != "poseidon") {
			t.Errorf("%s: the audit is\n%s", c.name, text)
		}
		if c.want[1] == PS && c.asked != "poseidon" && a.Rows[1].Reason != "for the iteration; alone it takes 3.00 of allreduce's time" {
			t.Errorf("%s: reason %q", c.name, a.Rows[1].Reason)
		}
		for _, p := range a.Book.Pairs {
			if a.Rows[p.Layer].Choice != PS {
				t.Errorf("%s: %s has pairs and goes by %v", c.name, a.Rows[p.Layer].Layer.Name, a.Rows[p.Layer].Choice)
			}
		}
	}
	a := weighedBook(t, "auto", alike)
	broken := errors.New("broken")
	if err := a.ByIteration("", func(Moves, float64) (Foreseen, error) { return Foreseen{}, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func count(schemes []Scheme, s Scheme) (n int) {
	for _, x := range schemes {
		if x == s {
			n++
		}
	}
	return n
}

// Whatever an iteration is made of, no choice that was weighed is quicker by more than predictions are worth, and the
// same question has the same answer.
func TestByIterationTakesTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SliceOfN(rapid.IntRange(0, 50), 3*int(schemes), 3*int(schemes)).Draw(t, "ms by layer and scheme")
		var lock sync.Mutex
		tried := map[string]time.Duration{}
		predict := func(m Moves, slower float64) (Foreseen, error) {
			s := m.Schemes
			sum := 100.0
			for i, x := range s {
				sum += slower * float64(of[i*int(schemes)+int(x)])
			}
			it := time.Duration(sum * float64(time.Millisecond))
			if slower == 1 {
				var key []string
				for _, x := range s {
					key = append(key, x.String())
				}
				lock.Lock()
				tried[strings.Join(key, ",")] = it
				lock.Unlock()
			}
			return Foreseen{Time: it}, nil
		}
		a := weighedBook(t, "auto", alike)
		if err := a.ByIteration("", predict); err != nil {
			t.Fatal(err)
		}
		for s, it := range tried {
			if float64(a.Iterations.Chosen) > nearTie*float64(it) {
				t.Fatalf("%v, %v; but %s takes %v", a.Schemes(), a.Iterations.Chosen, s, it)
			}
		}
		for _, want := range []string{"ps,ps,sfb", "ps,ps,ps", "reduce,reduce,reduce", "allreduce,allreduce,allreduce"} {
			if _, there := tried[want]; !there {
				t.Fatalf("%s was not weighed", want)
			}
		}
		again := weighedBook(t, "auto", alike)
		if err := again.ByIteration("", predict); err != nil || !reflect.DeepEqual(again.Schemes(), a.Schemes()) {
			t.Fatalf("%v, then %v: %v", a.Schemes(), again.Schemes(), err)
		}
	})
}

// Slices are taken where the predicted iteration is shorter by them, with the pairs that they are; the audit says why or
// why not, other ranks hear it, and the choice keeps it.
func TestP3_AutoSlicesWhereItPays(t *testing.T) {
	const may = 2 * Cut
	for _, c := range []struct {
		name  string
		may   Slice
		gain  time.Duration // by slices, for each layer by ps
		apart bool          // are servers
		slice Slice
		text  string
	}{
		{"they pay", may, 20 * time.Millisecond, false, may, "cut to slices of 2048: the least iteration with them is predicted to take 0.4 of the least without"},
		{"a little, where servers do not work", may, 500 * time.Microsecond, true, may, "cut to slices of 2048: the least iteration with them is predicted to take 0.985 of the least without"},
		{"nothing, there", may, 0, true, AutoSlice, "not cut to slices: the least iteration with them is predicted to take 1 of the least without"},
		{"too little", may, 500 * time.Microsecond, false, AutoSlice, "not cut to slices: the least iteration with them is predicted to take 0.985 of the least without, too little to gain for so many messages"},
		{"they cost", may, -20 * time.Millisecond, false, AutoSlice, "not cut to slices: the least iteration with them is predicted to take 1.6 of the least without"},
		{"they are not to be", 0, 20 * time.Millisecond, false, AutoSlice, ""},
	} {
		book := func() *Audit {
			a := weighedBook(t, "auto", alike)
			if a.Book.MaySlice = c.may; c.apart {
				a.Book.Workers, a.Book.Servers = []int{0, 1}, []int{2, 3}
			}
			return a
		}
		a := book()
		predict := func(m Moves, _ float64) (Foreseen, error) {
			if m.Slice > 0 && count(m.Schemes, PS)+count(m.Schemes, SFB) < 3 {
				t.Errorf("%s: slices of %v are weighed", c.name, m.Schemes)
			}
			f := Foreseen{Time: time.Duration(100+10*count(m.Schemes, Allreduce)+20*count(m.Schemes, Reduce)+30*count(m.Schemes, SFB)) * time.Millisecond}
			if m.Slice > 0 {
				f.Time -= time.Duration(count(m.Schemes, PS)) * c.gain
			}
			return f, nil
		}
		if err := a.ByIteration("", predict); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(a.Text(), "\n")
		if a.Book.Slice != c.slice || !slices.Equal(a.Schemes(), []Scheme{PS, PS, PS}) || !strings.Contains(text, c.text) || (c.text == "") == strings.Contains(text, "to slices") {
			t.Errorf("%s: slices of %v, %v\n%s", c.name, a.Book.Slice, a.Schemes(), text)
		}
		pairs := 3 // a layer each
		if c.slice > 0 {
			pairs += 4 // 9000 elements are 4 slices and a part of one
		}
		if len(a.Book.Pairs) != pairs {
			t.Errorf("%s: %d pairs, want %d: %v", c.name, len(a.Book.Pairs), pairs, a.Book.Pairs)
		}

		other := book()
		heard, err := other.Book.Hear(other.Asked, a.Told())
		if err != nil || heard.Book.Slice != c.slice || !reflect.DeepEqual(heard.Book.Pairs, a.Book.Pairs) || strings.Join(heard.Text(), "\n") != text {
			t.Errorf("%s: %v, heard\n%s", c.name, err, strings.Join(heard.Text(), "\n"))
		}

		// A run that goes on keeps it, whatever would be taken now, unless slices were asked for.
		choice, err := ParseChoice(a.Choice().Text())
		if err != nil {
			t.Fatal(err)
		}
		for asked, want := range map[Slice]Slice{AutoSlice: choice.Slice, LayerSlice: LayerSlice} {
			later := book()
			later.Book.MaySlice = may
			if later.Book.slice(asked); asked != AutoSlice {
				later.Book.MaySlice = 0
			}
			err := later.ByIteration("", func(m Moves, _ float64) (Foreseen, error) {
				return Foreseen{Time: time.Second - time.Duration(count(m.Schemes, Reduce))*time.Millisecond}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := later.Keep(choice, "file"); err != nil || later.Book.Slice != want || !slices.Equal(later.Schemes(), a.Schemes()) {
				t.Errorf("%s, resumed with %v: %v, slices of %v, want %v", c.name, asked, err, later.Book.Slice, want)
			}
		}
	}
}

// A choice that is kept has its own iteration told.
func TestKeptChoiceHasItsIteration(t *testing.T) {
	predict := func(m Moves, _ float64) (Foreseen, error) {
		s := m.Schemes
		return Foreseen{Time: time.Duration(100+10*count(s, Allreduce)+20*count(s, Reduce)) * time.Millisecond}, nil
	}
	a := weighedBook(t, "auto", alike)
	before := a.Choice() // layer by layer
	if err := a.ByIteration("", predict); err != nil {
		t.Fatal(err)
	}
	if a.Iterations.Chosen != 100*time.Millisecond {
		t.Fatal(a.Iterations.Chosen)
	}
	if err := a.Keep(before, "file"); err != nil || a.Iterations.Chosen != 130*time.Millisecond {
		t.Errorf("%v, %v", a.Iterations.Chosen, err)
	}
}

// What one rank has chosen, the others have too, with its reasons; what is not whole is refused.
func TestToldChoiceIsHeard(t *testing.T) {
	predict := func(m Moves, _ float64) (Foreseen, error) {
		s := m.Schemes
		return Foreseen{Time: time.Duration(100+10*count(s, Allreduce)+20*count(s, Reduce)) * time.Millisecond}, nil
	}
	a, other := weighedBook(t, "auto", alike), weighedBook(t, "auto", alike)
	if err := a.ByIteration("as told", predict); err != nil {
		t.Fatal(err)
	}
	a.Notes = append(a.Notes, "# a note")
	b, err := other.Book.Hear(other.Asked, a.Told())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(b.Text(), "\n"), strings.Join(a.Text(), "\n"); got != want || !reflect.DeepEqual(b.Book.Pairs, a.Book.Pairs) {
		t.Errorf("heard\n%s\ntold\n%s", got, want)
	}
	if err := b.Keep(other.Choice(), "file"); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "{}", `{"Rows":[{}]}`} {
		if _, err := b.Book.Hear(b.Asked, []byte(text)); err == nil {
			t.Errorf("%q is heard", text)
		}
	}
}
