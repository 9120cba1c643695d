package coordinator

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/scaffe/scaffe/internal/report"
)

// Write writes the audit: a row a layer, and in JSON the whole book.
func (a *Audit) Write(w io.Writer, f report.Format) error {
	t := a.table()
	if f != report.JSON {
		return t.Write(w, f)
	}
	b := a.Book
	head := append(a.head(),
		report.Field{Name: "nodes", Value: b.Nodes}, report.Field{Name: "workers", Value: b.Workers},
		report.Field{Name: "servers", Value: b.Servers}, report.Field{Name: "batch", Value: b.Batch})
	return report.WriteDocument(w, head, report.Named{Name: "rows", Rows: t}, report.Named{Name: "iterations", Rows: a.Iterations.table()}, report.Named{Name: "layers", Rows: a.layers()}, report.Named{Name: "pairs", Rows: a.pairs()})
}

// head is what all rows have in common.
func (a *Audit) head() []report.Field {
	b := a.Book
	return []report.Field{
		{Name: "scheme", Value: a.Asked.String()},
		{Name: "n_worker", Value: len(b.Workers)},
		{Name: "n_server", Value: len(b.Servers)},
		{Name: "n_node", Value: b.NodeCount()},
		{Name: "batchsize", Value: b.factorRows(&Layer{})},
		{Name: "pair_bytes", Value: b.PairBytes},
	}
}

// sliced says what slices are cut of.
func (b *Book) sliced() []string {
	if b.Slice <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("# slices of at most %v elements, cut at multiples of %d: ps (its pairs), reduce and allreduce; factors (sfb, adam) and quantised gradients (onebit) are not cut, nor is what dgc selects from", b.Slice, Cut)}
}

// Text returns what Write writes as text, line by line.
func (a *Audit) Text() []string {
	var b strings.Builder
	_ = a.table().Write(&b, report.Text) // a Builder takes all
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func (a *Audit) table() *report.Table[Row] {
	b := a.Book
	t := &report.Table[Row]{
		Head: a.head(), Rows: a.Rows,
		Above: append(append([]string{fmt.Sprintf("# scheme %v: P1 = %d workers, P2 = %d servers, %d nodes, K = %d, pairs of %s",
			a.Asked, len(b.Workers), len(b.Servers), b.NodeCount(), b.factorRows(&Layer{}), b.pair())}, b.sliced()...), a.Notes...),
		Columns: []report.Column[Row]{
			{Name: "layer", Left: true, Value: func(r Row) any { return r.Layer.Name }},
			{Name: "type", Hidden: true, Value: func(r Row) any { return r.Layer.Type }},
			{Name: "shape", Left: true, Value: func(r Row) any { return report.Optional(r.Layer.Shape(), r.Layer.Rows > 0) }},
			{Name: "parameters", Value: func(r Row) any { return r.Layer.Elements() }},
		},
		Below: a.below(),
	}
	exact := map[Scheme]bool{}
	for _, s := range candidates {
		exact[s] = true
	}
	for _, s := range Schemes() {
		t.Columns = append(t.Columns, report.Column[Row]{
			Name: s.String() + "_bytes", Title: s.String() + " MB", Hidden: !exact[s],
			Value: func(r Row) any {
				o := r.Of(s)
				return report.Optional(report.Shown{Value: o.Bytes, Text: fmt.Sprintf("%.4g", o.Bytes/1e6)}, o.Serves)
			},
		}, report.Column[Row]{
			Name: s.String() + "_ms", Title: "ms", Digits: 3, Hidden: !exact[s],
			Value: func(r Row) any { o := r.Of(s); return report.Optional(o.Time, o.Serves && o.Spec != "") },
		})
	}
	t.Columns = append(t.Columns,
		report.Column[Row]{Name: "choice", Left: true, Value: func(r Row) any { return r.Choice }},
		report.Column[Row]{Name: "spec", Left: true, Value: func(r Row) any { s := r.Of(r.Choice).Spec; return report.Optional(s, s != "") }},
		report.Column[Row]{Name: "runner_up", Left: true, Value: func(r Row) any { return report.Optional(r.RunnerUp, r.RunnerUp != Auto) }},
		report.Column[Row]{Name: "reason", Left: true, Value: func(r Row) any { return r.Reason }})
	return t
}

// below sums up: what the choices cost in all, beside one scheme for the whole net.
func (a *Audit) below() []string {
	sum := func(pick func(r *Row) Scheme) (gbit float64, t time.Duration) {
		for i := range a.Rows {
			o := a.Rows[i].Of(pick(&a.Rows[i]))
			gbit, t = gbit+8*o.Bytes/1e9, t+o.Time
		}
		return gbit, t
	}
	line := func(name string, pick func(r *Row) Scheme) string {
		gbit, t := sum(pick)
		if t == 0 {
			return fmt.Sprintf("# %s: %.4g Gbit in and out of the busiest rank", name, gbit)
		}
		return fmt.Sprintf("# %s: %.4g Gbit in and out of the busiest rank, %.3f ms alone", name, gbit, report.Milliseconds(t))
	}
	lines := []string{"", line("as chosen", func(r *Row) Scheme { return r.Choice })}
	for _, s := range candidates {
		if s != SFB {
			lines = append(lines, line("all "+s.String(), func(*Row) Scheme { return s }))
		}
	}
	lines = append(lines, line("poseidon", func(r *Row) Scheme { return a.Book.best(r.Layer) }))
	if a.Iterations != nil {
		lines = append(lines, "# "+a.Iterations.Text())
	}
	if text := a.Iterations.sliced(a.Book.Slice); text != "" {
		lines = append(lines, "# "+text)
	}
	return lines
}

// layers are the book's layers, for programs.
func (a *Audit) layers() *report.Table[*Layer] {
	t := &report.Table[*Layer]{Columns: []report.Column[*Layer]{
		{Name: "layer", Value: func(l *Layer) any { return l.Name }},
		{Name: "type", Value: func(l *Layer) any { return l.Type }},
		{Name: "shape", Value: func(l *Layer) any { return report.Optional(l.Shape(), l.Rows > 0) }},
		{Name: "refuses", Value: func(l *Layer) any { return report.Optional(l.Refuses, l.Refuses != "") }},
		{Name: "factor_rows", Value: func(l *Layer) any { return report.Optional(l.Factors, l.Factors != nil) }},
		{Name: "offsets", Value: func(l *Layer) any { return each(l.Params, func(r Range) int { return r.Off }) }},
		{Name: "elements", Value: func(l *Layer) any { return each(l.Params, func(r Range) int { return r.Len }) }},
	}}
	for i := range a.Book.Layers {
		t.Rows = append(t.Rows, &a.Book.Layers[i])
	}
	return t
}

func each[A, B any](all []A, of func(A) B) []B {
	var out []B
	for _, x := range all {
		out = append(out, of(x))
	}
	return out
}

// pairs are the book's KV pairs, for programs.
func (a *Audit) pairs() *report.Table[Pair] {
	return &report.Table[Pair]{Rows: a.Book.Pairs, Columns: []report.Column[Pair]{
		{Name: "layer", Value: func(p Pair) any { return a.Book.Layers[p.Layer].Name }},
		{Name: "offset", Value: func(p Pair) any { return p.Off }},
		{Name: "elements", Value: func(p Pair) any { return p.Len }},
		{Name: "server", Value: func(p Pair) any { return p.Server }},
	}}
}
