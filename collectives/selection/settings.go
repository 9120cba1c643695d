package selection

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule/sim"
)

// What may decide, besides the call itself, highest first: the flags, the
// environment, the user's file. Only then does the cost model.
const (
	flagAlgorithm = "--algorithm"
	// EnvAlgorithm names a spec for all calls (tuned: none), EnvTable the file of a
	// tuning table; the word none as the latter also leaves the user's file alone.
	EnvAlgorithm = "SCAFFE_ALGORITHM"
	EnvTable     = "SCAFFE_TABLE"
)

// UserTable returns the path of the tuning table that serves where none is
// named: scaffe/table in the user's configuration folder.
func UserTable() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "scaffe", "table")
}

// Settings are what a Selector is made of, in a form that goes from rank to
// rank: text, so that every rank reads the same and comes to the same bits.
type Settings struct {
	Sources []SourceText
	// Model is the text form of a cost model that stands above those of tables,
	// From where it comes from. Without it both are empty.
	Model string
	From  string
}

// SourceText is a Source as text: of its Spec and Table one is empty.
type SourceText struct{ Name, Spec, Table string }

// Flags are what a command line asks for; the zero value is nothing.
type Flags struct {
	Spec  spec.Spec // of --algorithm, unless it has no levels
	Tuned bool      // --algorithm tuned: select, whatever SCAFFE_ALGORITHM says
	Table string    // the file of --table
}

// ReadSettings collects the settings of this process: what was asked for by flags,
// then those of the environment and of files.
func ReadSettings(f Flags) (Settings, error) {
	var s Settings
	table := func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("tuning table: %w", err)
		}
		s.Sources = append(s.Sources, SourceText{Name: path, Table: string(text)})
		return nil
	}
	if len(f.Spec.Levels) > 0 {
		s.Sources = append(s.Sources, SourceText{Name: flagAlgorithm, Spec: f.Spec.String()})
	}
	if f.Table != "" {
		if err := table(f.Table); err != nil {
			return s, fmt.Errorf("--table: %w", err)
		}
	}
	if v := os.Getenv(EnvAlgorithm); v != "" && v != spec.Tuned && !f.Tuned {
		s.Sources = append(s.Sources, SourceText{Name: EnvAlgorithm, Spec: v})
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

// Selector makes a Selector of settings; from the same ones always the same.
func (s Settings) Selector() (*Selector, error) {
	sel := Default()
	for _, text := range s.Sources {
		src := Source{Name: text.Name}
		var err error
		if text.Spec != "" {
			if src.Spec, err = spec.Parse(text.Spec); err != nil {
				return nil, fmt.Errorf("%s: %w", text.Name, err)
			}
		} else if src.Table, err = ParseTable(text.Name, text.Table); err != nil {
			return nil, err
		}
		if src.Table != nil && src.Table.Model != nil && sel.Assumes() {
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

// NewSelector is ReadSettings and then Selector, for questions about layouts that
// are not running.
func NewSelector(f Flags) (*Selector, error) {
	s, err := ReadSettings(f)
	if err != nil {
		return nil, err
	}
	return s.Selector()
}
