package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/internal/report"
)

type row struct {
	name  string
	n     int
	took  time.Duration
	ratio float64
	ok    bool
	best  any
}

func table() report.Table[row] {
	return report.Table[row]{
		Head:  []report.Field{{"net", `a "b"`}, {"total_ms", 1500 * time.Microsecond}, {"seed", nil}},
		Above: []string{"# above"},
		Below: []string{"below"},
		Columns: []report.Column[row]{
			{Name: "layer", Left: true, Value: func(r row) any { return r.name }},
			{Name: "count", Value: func(r row) any { return r.n }},
			{Name: "took_ms", Digits: 2, Value: func(r row) any { return r.took }},
			{Name: "ratio", Title: "× first", Digits: 3, Value: func(r row) any { return r.ratio }},
			{Name: "ok", Hidden: true, Value: func(r row) any { return r.ok }},
			{Name: "idle_ms", Title: "idle", Digits: 1, Dash: true, Value: func(r row) any { return time.Duration(0) }},
			{Name: "verdict", Value: func(r row) any {
				return report.Shown{Value: r.ok, Text: map[bool]string{true: "met", false: "missed"}[r.ok]}
			}},
			{Name: "tags", Value: func(row) any { return []string{"a", "b"} }},
			{Name: "best", Value: func(r row) any { return r.best }},
			{Title: "note", Left: true, Value: func(r row) any { return strings.ToUpper(r.name) }},
		},
		Rows: []row{
			{"conv", 12, 1234567 * time.Nanosecond, 1, true, 7},
			{"größe, x", 3, 0, math.Inf(1), false, nil},
		},
	}
}

func TestFormats(t *testing.T) {
	for format, want := range map[report.Format]string{
		report.Text: `# above
layer     count  took ms  × first  idle  verdict  tags  best  note
conv         12     1.23    1.000     -      met   a b     7  CONV
größe, x      3     0.00        -     -   missed   a b     -  GRÖSSE, X
below
`,
		report.CSV: `net,total_ms,seed,layer,count,took_ms,ratio,ok,idle_ms,verdict,tags,best
"a ""b""",1.5,,conv,12,1.234567,1,true,0,true,a b,7
"a ""b""",1.5,,"größe, x",3,0,,false,0,false,a b,
`,
		report.JSON: `{"net":"a \"b\"","total_ms":1.5,"seed":null,"rows":[
{"layer":"conv","count":12,"took_ms":1.234567,"ratio":1,"ok":true,"idle_ms":0,"verdict":true,"tags":["a","b"],"best":7},
{"layer":"größe, x","count":3,"took_ms":0,"ratio":null,"ok":false,"idle_ms":0,"verdict":false,"tags":["a","b"],"best":null}]}
`,
	} {
		var b bytes.Buffer
		tab := table()
		if err := tab.Write(&b, format); err != nil {
			t.Fatal(err)
		}
		got := b.String()
		want = strings.ReplaceAll(want, "GRÖSSE", strings.ToUpper("größe"))
		if got != want {
			t.Errorf("%s:\n%swant\n%s", format, got, want)
		}
		if format == report.JSON && !json.Valid(b.Bytes()) {
			t.Errorf("not JSON:\n%s", got)
		}
	}
}

// A table without rows is still one: CSV has its names, JSON an empty list.
func TestEmpty(t *testing.T) {
	tab := table()
	tab.Rows = nil
	for format, want := range map[report.Format]string{
		report.CSV:  "net,total_ms,seed,layer,count,took_ms,ratio,ok,idle_ms,verdict,tags,best\n",
		report.JSON: `{"net":"a \"b\"","total_ms":1.5,"seed":null,"rows":[]}` + "\n",
	} {
		var b bytes.Buffer
		if err := tab.Write(&b, format); err != nil || b.String() != want {
			t.Errorf("%s: %v\n%swant\n%s", format, err, &b, want)
		}
	}
}

func TestStream(t *testing.T) {
	tab := table()
	for format, want := range map[report.Format]string{
		report.CSV:  "layer,count,took_ms,ratio,ok,idle_ms,verdict,tags,best\nconv,12,1.234567,1,true,0,true,a b,7\n\"größe, x\",3,0,,false,0,false,a b,\n",
		report.JSON: `{"layer":"conv","count":12,"took_ms":1.234567,"ratio":1,"ok":true,"idle_ms":0,"verdict":true,"tags":["a","b"],"best":7}` + "\n" + `{"layer":"größe, x","count":3,"took_ms":0,"ratio":null,"ok":false,"idle_ms":0,"verdict":false,"tags":["a","b"],"best":null}` + "\n",
	} {
		var b bytes.Buffer
		s := report.NewStream(&b, format, tab.Columns)
		for _, r := range tab.Rows {
			if err := s.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != want {
			t.Errorf("%s:\n%swant\n%s", format, &b, want)
		}
	}
}

func TestDocument(t *testing.T) {
	tab := table()
	tab.Rows, tab.Columns = tab.Rows[:1], tab.Columns[:2]
	empty := table()
	empty.Rows = nil
	var b bytes.Buffer
	err := report.WriteDocument(&b, []report.Field{{"path", map[string]float64{"a_ms": 1}}}, report.Named{"layers", &tab}, report.Named{"ranks", &empty})
	want := `{"path":{"a_ms":1},"layers":[
{"layer":"conv","count":12}],
"ranks":[]}
`
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, &b, want)
	}
	if err := report.WriteDocument(full{}, nil, report.Named{"x", &tab}); err == nil {
		t.Error("a full disk is no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestErrors(t *testing.T) {
	tab := table()
	for _, f := range []report.Format{report.Text, report.CSV, report.JSON} {
		if err := tab.Write(full{}, f); err == nil || err.Error() != "full" {
			t.Errorf("%s to a full disk: %v", f, err)
		}
		if f == report.Text {
			continue
		}
		if err := report.NewStream(full{}, f, tab.Columns).Write(tab.Rows[0]); err == nil || err.Error() != "full" {
			t.Errorf("a stream of %s to a full disk: %v", f, err)
		}
	}
	for _, err := range []error{tab.Write(os.Stdout, "yaml"), func() error { _, err := report.ParseFormat("yaml"); return err }()} {
		if err == nil || err.Error() != `invalid --format "yaml": want text, csv or json` {
			t.Error(err)
		}
	}
}

func ExampleTable() {
	type layer struct {
		name    string
		forward time.Duration
	}
	t := report.Table[layer]{
		Head: []report.Field{{Name: "net", Value: "LeNet"}},
		Columns: []report.Column[layer]{
			{Name: "layer", Left: true, Value: func(l layer) any { return l.name }},
			{Name: "forward_ms", Digits: 2, Value: func(l layer) any { return l.forward }},
		},
		Rows: []layer{{"conv1", 1500 * time.Microsecond}, {"ip1", 250 * time.Microsecond}},
	}
	_ = t.Write(os.Stdout, report.Text)
	_ = t.Write(os.Stdout, report.CSV)
	_ = t.Write(os.Stdout, report.JSON)
	// Output:
	// layer  forward ms
	// conv1        1.50
	// ip1          0.25
	// net,layer,forward_ms
	// LeNet,conv1,1.5
	// LeNet,ip1,0.25
	// {"net":"LeNet","rows":[
	// {"layer":"conv1","forward_ms":1.5},
	// {"layer":"ip1","forward_ms":0.25}]}
}
