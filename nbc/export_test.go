package nbc

import "context"

// Looked returns how many times e has looked at a request for whether it
// stalls.
func Looked(e *Engine) (n int) {
	_ = e.Do(context.Background(), func() error {
		n = e.stalls.looked
		return nil
	})
	return n
}
