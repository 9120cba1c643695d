package nbc

// Payload is what messages held, in bytes.
type Payload struct{ Sent, Received int64 }

// Payload returns what the messages of this rank's collectives held that have
// ended so far, each as often as it was executed. Collectives of the transport's
// library are not counted. It may be called from any goroutine.
func (e *Engine) Payload() Payload { return Payload{e.payloadOut.Load(), e.payloadIn.Load()} }

// Payload returns what the messages of one execution of r hold, as Engine.Payload counts
// it: nothing where the library serves it.
func (r *Request) Payload() Payload {
	return Payload{int64(r.bind.Datatype.Bytes(r.plan.sent)), int64(r.bind.Datatype.Bytes(r.plan.received))}
}

// Add returns the sum of p and o.
func (p Payload) Add(o Payload) Payload { return Payload{p.Sent + o.Sent, p.Received + o.Received} }

// account keeps account of an execution that has ended.
func (e *Engine) account(r *Request) {
	e.stalls.history.add(r)
	p := r.Payload()
	if p.Sent > 0 {
		e.payloadOut.Add(p.Sent)
	}
	if p.Received > 0 {
		e.payloadIn.Add(p.Received)
	}
}
