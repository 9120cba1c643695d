package collectives

import "github.com/scaffe/scaffe/nbc"

// Engine returns the engine that executes c's collectives, for programs that
// look below the verbs: benchmarks, diagnosis.
func (c *Comm) Engine() *nbc.Engine { return c.engine }
