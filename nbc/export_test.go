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

// Kept returns how many ends s keeps for its next look.
func Kept(s *Set) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended.Len()
}
