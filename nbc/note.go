package nbc

// Note hands a short text to rank to, outside the collectives, if its engine
// has a handler (HandleNotes). It returns at once: a note may be lost, as when
// dozens to that rank have not been taken yet, and comes cut to NoticeRoom
// bytes. Unlike a collective it needs nothing of the other rank but its progress
// loop, and works after the engine has failed. Without a Notifier nothing is sent.
func (e *Engine) Note(to int, text string) {
	_, _ = e.enqueue(func() error { // a closed engine has nothing to say
		if e.stalls.notifier == nil {
			return nil
		}
		return e.stalls.notifier.Notify(to, notice{Note: text}.encode())
	})
}

// HandleNotes has f called with every note that arrives from now on. f runs on
// the engine's progress loop, so it must not block or call the engine.
func (e *Engine) HandleNotes(f func(from int, text string)) { e.onNote.Store(&f) }

// Failed returns a channel that is closed when the engine fails; Err says why.
func (e *Engine) Failed() <-chan struct{} { return e.hasFailed }

func (e *Engine) note(from int, text string) {
	if f := e.onNote.Load(); f != nil {
		(*f)(from, text)
	}
}
