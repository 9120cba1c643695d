package collectives

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/host"
)

// Configure is a collective that makes all ranks select alike, as rank 0's
// options, environment and files say; a remote node may have another
// environment, or not the file. Until then, and without it, the options' Spec
// or the cost model decides. It returns what a person should know, such as that
// a table was made elsewhere. Communicators made of this one afterwards select
// as it does.
func (c *Comm) Configure(ctx context.Context) (warnings []string, err error) {
	var s selection.Settings
	var sel *selection.Selector
	if c.rank == 0 {
		if s, err = selection.ReadSettings(selection.Flags{Spec: c.opts.Spec, Tuned: c.opts.Tuned, Table: c.opts.Table}); err == nil {
			sel, err = s.Selector()
		}
	}
	if err := c.Agree(ctx, err); err != nil {
		return nil, err
	}
	if c.rank == 0 && sel.Assumes() {
		s.Model, s.From = sel.Model.On(host.Cores()).String(), sel.From
	}
	if sel, err = c.share(ctx, s); err != nil {
		return nil, err
	}
	if c.opts.Measure && sel.Assumes() {
		if s, warnings, err = c.measure(ctx, sel, s); err != nil {
			return nil, err
		}
		if sel, err = c.share(ctx, s); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	c.selector = sel
	c.choices.clear()
	kept := c.dropAllLocked()
	c.mu.Unlock()
	closeKept(kept) // they were prepared as was chosen before
	for _, src := range sel.Sources {
		if src.Table != nil {
			warnings = append(warnings, src.Table.Warnings(c.Machine(), c.layout)...)
		}
	}
	return warnings, nil
}

// share sends rank 0's settings to all and makes a Selector of them.
func (c *Comm) share(ctx context.Context, s selection.Settings) (*selection.Selector, error) {
	text, err := json.Marshal(s)
	if err == nil {
		text, err = c.BcastBytes(ctx, text, 0)
	}
	if err == nil && c.rank != 0 {
		s = selection.Settings{}
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("collectives: rank 0's settings: %w", err)
	}
	return s.Selector()
}
