package exchange

// ports is what is left in a step of the ports of a worker, which are all alike, and of servers that are apart.
type ports struct {
	out, in float64
	servers []serverPort
}

// serverPort is what is left of a server's port: for gradients, which come in, and parameters, which go out.
type serverPort struct{ pushed, pulled float64 }

// of is what is left of it for a stage on the network.
func (s *serverPort) of(g stage) *float64 {
	if g == pushed {
		return &s.pushed
	}
	return &s.pulled
}

// free has nothing taken yet.
func (p *ports) free() {
	p.out, p.in = 1, 1
	for i := range p.servers {
		p.servers[i] = serverPort{1, 1}
	}
}

// take has a bucket on the network take what is left of the ports that it passes, and returns how fast that lets it go: 1 as
// if it had the network to itself.
func (p *ports) take(b *expected) float64 {
	out, in := b.port, b.port
	switch {
	case !b.OneWay:
	case b.stage == pushed:
		in = 0
	default:
		out = 0
	}
	speed := min(fits(out, p.out), fits(in, p.in))
	for i, share := range b.Shares {
		speed = min(speed, fits(share*b.server, *p.servers[i].of(b.stage)))
	}
	p.out -= speed * out
	p.in -= speed * in
	for i, share := range b.Shares {
		*p.servers[i].of(b.stage) -= speed * share * b.server
	}
	return speed
}

// fits is how much of what needs a part of a port finds room in what is left of it, 1 at most.
func fits(part, left float64) float64 {
	if part <= left || part == 0 {
		return 1
	}
	return max(0, left) / part
}
