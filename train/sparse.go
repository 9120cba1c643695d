package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/syncer/dgc"
)

// isDGC reports whether a scheme sends the largest values of gradients alone.
func isDGC(s exchange.Scheme) bool { return s == exchange.DGC }

// sparse reports whether all layers go by dgc.
func (w *Worker) sparse() bool {
	return len(w.schemes.used) > 0 && !w.schemes.any(func(s exchange.Scheme) bool { return !isDGC(s) })
}

// checkSparse refuses what the scheme dgc cannot have.
func (w *Worker) checkSparse(ctx context.Context, c Config) error {
	var err error
	rule, momentum := w.solver.Rule().Name(), w.solver.Param().GetMomentum()
	switch {
	case !w.schemes.any(isDGC):
		if c.Sparse != nil {
			err = errors.New("a sparsity or a warm-up is of the scheme dgc, by which no layer goes: ask for --scheme dgc, or remove --sparsity and --warmup")
		}
	case rule != "SGD":
		err = fmt.Errorf("the scheme dgc corrects the momentum of SGD, and the solver's type is %s: use type: \"SGD\", or another scheme", rule)
	case !(momentum >= 0 && momentum < 1):
		err = fmt.Errorf("the scheme dgc needs a momentum in [0, 1), and the solver's is %v: use such a momentum, or another scheme", momentum)
	case w.solver.Clips() && !w.sparse():
		err = errors.New("the scheme dgc clips gradients before they are sent, other schemes their sum: with clip_gradients, ask for --scheme dgc for all layers, or for none")
	default:
		sparse := c.Sparse.Or()
		err = sparse.Check()
	}
	return w.comm.Agree(ctx, err)
}

// clipOwn returns what this rank's gradients are multiplied with so that their norm is at most this worker's
// fraction of clip_gradients (Lin et al. 2018, section 3.2). The backward pass has ended, and nothing has been sent.
func (w *Worker) clipOwn() float32 {
	if w.squares == nil {
		w.squares = make([]float64, w.solver.NormBlocks())
	}
	w.solver.Squares(0, w.solver.Net().PackedCount(), w.squares)
	limit := float64(w.solver.Param().GetClipGradients()) * dgc.Fraction(len(w.roles.workers))
	return solver.ClipScale(float32(limit), w.squares)
}
