package staging

import (
	"github.com/scaffe/scaffe/nbc"
)

// Migrate makes the calling thread the one that makes all calls from now on, where the inner transport
// and the accelerator allow that.
func (t *Transport) Migrate() bool { return t.MigrateWith(t.copies) }

// complete returns t with what the inner transport alone does.
func (t *Transport) complete() nbc.Transport {
	switch l, e := t.Abilities(); {
	case l != nil && e != nil:
		return struct {
			*Transport
			nbc.Library
			nbc.Eager
		}{t, l, e}
	case l != nil:
		return struct {
			*Transport
			nbc.Library
		}{t, l}
	case e != nil:
		return struct {
			*Transport
			nbc.Eager
		}{t, e}
	}
	return t
}
