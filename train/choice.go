package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// choiceSuffix is how the files end in which the choices of schemes lie beside snapshots.
const choiceSuffix = ".schemes"

// choicePath returns the name of the file beside a snapshot, or a checkpoint's manifest.
func choicePath(snapshot string) string {
	return strings.TrimSuffix(strings.TrimSuffix(snapshot, ".solverstate"), checkpoint.Suffix) + choiceSuffix
}

// keepChoice has a run that goes on from a snapshot keep the schemes that were chosen before
// it, as they lie beside it: the root reads them, and tells all ranks.
func (w *Worker) keepChoice(ctx context.Context, c Config, a *coordinator.Audit) error {
	if !a.Asked.Chooses() {
		return nil
	}
	const noSnapshot, noFile, aFile = 0, 1, 2
	found := []int64{noSnapshot}
	var text []byte
	var err error
	path := choicePath(c.Snapshot)
	if w.comm.Rank() == root && c.Snapshot != "" {
		switch text, err = os.ReadFile(path); {
		case errors.Is(err, os.ErrNotExist):
			found[0], err = noFile, nil
		default:
			found[0] = aFile
		}
	}
	if err = w.comm.Agree(ctx, err); err != nil {
		return err
	}
	if err := w.comm.Bcast(ctx, mem.Of(found), mem.Int64, root); err != nil {
		return err
	}
	switch found[0] {
	case noSnapshot:
		return nil
	case noFile:
		a.ChosenAnew(fmt.Sprintf("there is no %s", path))
		return nil
	}
	if text, err = w.comm.BcastBytes(ctx, text, root); err != nil {
		return err
	}
	before, err := coordinator.ParseChoice(text)
	if err == nil {
		err = a.Keep(before, path)
	}
	if err != nil {
		err = fmt.Errorf("%s, the schemes beside the snapshot: %w: remove it, and schemes are chosen anew", path, err)
	}
	return w.comm.Agree(ctx, err)
}

// writeChoice writes the schemes that were chosen beside a snapshot. Where none were, those
// of an earlier run that had a snapshot of this name are removed: they are not this one's.
func (w *Worker) writeChoice(stem string) error {
	if a := w.schemes.audit; a != nil && a.Asked.Chooses() {
		return atomicfile.Write(w.files, stem+choiceSuffix, a.Choice().Text())
	}
	return atomicfile.Remove(w.files, stem+choiceSuffix)
}
