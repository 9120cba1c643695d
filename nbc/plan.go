package nbc

import "github.com/scaffe/scaffe/schedule"

// Window is how many receives of one pair of ranks and collective are in flight at
// most, SendWindow how many sends.
const (
	Window     = schedule.RecvWindow
	SendWindow = schedule.SendWindow
)

// Plan is a schedule made ready for execution: who waits for whom. It is immutable,
// and one Plan serves any number of requests.
type Plan struct {
	schedule *schedule.Schedule
	graph    *schedule.Graph
	uses     [3]bool // by schedule.Buffer
}

// Compile makes s ready for execution, with the windows of the engine.
func Compile(s *schedule.Schedule) (*Plan, error) {
	g, err := schedule.Compile(s, schedule.Windows{Send: SendWindow, Recv: Window})
	if err != nil {
		return nil, err
	}
	p := &Plan{schedule: s, graph: g}
	for i := range s.Ops {
		op := &s.Ops[i]
		p.uses[op.Src.Buf] = p.uses[op.Src.Buf] || op.Reads()
		p.uses[op.Dst.Buf] = p.uses[op.Dst.Buf] || op.Writes()
	}
	return p, nil
}

// Schedule returns the schedule that the plan was compiled from.
func (p *Plan) Schedule() *schedule.Schedule { return p.schedule }
