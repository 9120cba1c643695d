//go:build !linux

package port

import (
	"context"
	"time"
)

// prompt is the machine's clock, with what every system has.
type prompt struct{}

func newPrompt() prompt { return prompt{} }

func (prompt) now() time.Time { return time.Now() }

func (prompt) wait(ctx context.Context, until time.Time) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
