package collectives

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/scaffe/scaffe/schedule/sim"
)

// What may decide, beside the call itself, highest first: the flags, the
// environment, the user's file. Only then does the cost model.
const (
	flagAlgorithm = "--algorithm"
	// EnvAlgorithm names a spec for all calls, EnvTable the file of a tuning
	// table; the word none as the latter also leaves the user's file alone.
	EnvAlgorithm = "SCAFFE_ALGORITHM"
	EnvTable     = "SCAFFE_TABLE"
)

// UserTable returns the path of the tuning table that serves where nobody
// names one: scaffe/table in the user's configuration folder.
func UserTable() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "scaffe", "table")
}

// settings are what a Selector is made of, in a form that goes from rank to
// rank: text, so that every rank reads the same and comes to the same bits.
type settings struct {
	Sources []sourceText
	Model   string
	From    string
}

type sourceText struct{ Name, Spec, Table string }

// read collects the settings of this process: options, environment, files.
func (o Options) read() (settings, error) {
	var s settings
	table := func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("tuning table: %w", err)
		}
		s.Sources = append(s.Sources, sourceText{Name: path, Table: string(text)})
		return nil
	}
	if len(o.Spec.Levels) > 0 {
		s.Sources = append(s.Sources, sourceText{Name: flagAlgorithm, Spec: o.Spec.String()})
	}
	if o.Table != "" {
		if err := table(o.Table); err != nil {
			return s, fmt.Errorf("--table: %w", err)
		}
	}
	if v := os.Getenv(EnvAlgorithm); v != "" {
		s.Sources = append(s.Sources, sourceText{Name: EnvAlgorithm, Spec: v})
	}
	switch path := os.Getenv(EnvTable); path {
	case "none":
	case "":
		if path = UserTable(); path != "" {
			if err := table(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return s, err
			}
		}
	default:
		if err := table(path); err != nil {
			return s, fmt.Errorf("%s: %w", EnvTable, err)
		}
	}
	return s, nil
}

// selector makes a Selector of settings; from the same ones always the same.
func (s settings) selector() (*Selector, error) {
	sel := &Selector{Model: defaultSelector.Model, From: defaultSelector.From}
	for _, text := range s.Sources {
		src := Source{Name: text.Name}
		var err error
		if text.Spec != "" {
			if src.Spec, err = ParseSpec(text.Spec); err != nil {
				return nil, fmt.Errorf("%s: %w", text.Name, err)
			}
		} else if src.Table, err = ParseTable(text.Name, text.Table); err != nil {
			return nil, err
		}
		if src.Table != nil && src.Table.Model != nil && sel.From == defaultSelector.From {
			sel.Model, sel.From = *src.Table.Model, "parameters of "+text.Name
		}
		sel.Sources = append(sel.Sources, src)
	}
	if s.Model != "" {
		m, err := sim.ParseModel(s.Model)
		if err != nil {
			return nil, err
		}
		sel.Model, sel.From = m, s.From
	}
	return sel, nil
}

// NewSelector reads options, environment and files, for questions about
// layouts that are not running.
func NewSelector(o Options) (*Selector, error) {
	s, err := o.read()
	if err != nil {
		return nil, err
	}
	return s.selector()
}

// Configure is a collective that makes all ranks select alike, as rank 0's
// options, environment and files say; a remote node may have another
// environment, or not the file. Until then, and without it, the options' Spec
// or the cost model decides. It returns what a person should know, such as that
// a table was made elsewhere. Communicators made of this one afterwards select
// as it does.
func (c *Comm) Configure(ctx context.Context) (warnings []string, err error) {
	var s settings
	var sel *Selector
	if c.rank == 0 {
		if s, err = c.opts.read(); err == nil {
			sel, err = s.selector()
		}
	}
	if err := c.Agree(ctx, err); err != nil {
		return nil, err
	}
	if c.rank == 0 && sel.From == defaultSelector.From {
		s.Model, s.From = sel.Model.On(c.layout.PPN, Cores()).String(), sel.From
	}
	if sel, err = c.share(ctx, s); err != nil {
		return nil, err
	}
	if c.opts.Measure && sel.From == defaultSelector.From && c.layout.Nodes > 1 {
		m, err := c.measure(ctx, sel.Model)
		if err != nil {
			return nil, err
		}
		s.Model, s.From = m.String(), "parameters measured at start"
		if sel, err = c.share(ctx, s); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	c.selector = sel
	c.choices.clear()
	kept := c.recent.request
	c.recent = recent{}
	c.mu.Unlock()
	if kept != nil { // prepared as was chosen before
		kept.Close()
	}
	for _, src := range sel.Sources {
		if src.Table != nil {
			warnings = append(warnings, src.Table.Warnings(c.opts.Machine, c.layout)...)
		}
	}
	return warnings, nil
}

// Cores returns the number of cores of this machine; unlike runtime.NumCPU, of
// all, not only of those that mpirun bound this rank to.
func Cores() int {
	text, err := os.ReadFile("/proc/cpuinfo")
	n := strings.Count("\n"+string(text), "\nprocessor\t")
	if err != nil || n == 0 {
		return runtime.NumCPU()
	}
	return n
}

// share sends rank 0's settings to all and makes a Selector of them.
func (c *Comm) share(ctx context.Context, s settings) (*Selector, error) {
	text, err := json.Marshal(s)
	if err == nil {
		text, err = c.bcastBytes(ctx, text, 0)
	}
	if err == nil && c.rank != 0 {
		s = settings{}
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("collectives: rank 0's settings: %w", err)
	}
	return s.selector()
}

// Warnings says where the table was made for something else than what it is
// used on. What is not known is not compared.
func (t *Table) Warnings(m Machine, l Layout) (w []string) {
	differ := func(what, made, here string) {
		if made != "" && here != "" && made != here {
			w = append(w, fmt.Sprintf("%s was tuned on another machine (%s: %s; here: %s): its choices may not be the best ones; scaffe tune makes a new table", t.Name, what, made, here))
		}
	}
	differ("host", t.Made.Machine.Host, m.Host)
	differ("MPI", t.Made.Machine.MPI, m.MPI)
	if made := t.Made.Layout; made.Ranks > 0 && made != l {
		w = append(w, fmt.Sprintf("%s was tuned for %v, this is %v: scaffe tune makes a table for it", t.Name, made, l))
	}
	served := false
	for i := range t.Rules {
		served = served || t.Rules[i].Nodes.has(l.Nodes) && t.Rules[i].PPN.has(l.PPN)
	}
	if !served {
		w = append(w, fmt.Sprintf("%s has no line for %v: the cost model decides", t.Name, l))
	}
	return w
}
