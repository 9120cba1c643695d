package staging

import "github.com/scaffe/scaffe/nbc"

// GiveBack gives the slot of the operation back that tok names, as if nothing used it any more.
func GiveBack(t nbc.Transport, tok nbc.Token) {
	at := t.(*Transport)
	at.giveBack(at.own(tok))
}

// Pinned returns how many bytes the transport has in slots.
func Pinned(t nbc.Transport) int { return t.(*Transport).slots.all }
