package nbc

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Where a collective stalls, its rank asks those that it waits for, and, once
// half of the deadline has passed, those that they wait for in turn. Asked
// ranks answer from their progress loops, whatever their callers do.
const (
	askFirst   = 500 * time.Millisecond // without progress; less for a short deadline
	askedMost  = 64                     // ranks, of one request
	lengthWait = 10 * time.Second       // for the answer of a rank that sent another length

	silentLeast = time.Second // see silentWait
	silentMost  = 10 * time.Second
	aliveWait   = 30 * time.Second // for a rank that has answered before
	askAgain    = time.Second      // where a question or its answer may be lost

	sweepEvery = 5 * time.Millisecond // between looks at all requests, which
	sweepEach  = time.Microsecond     // take a hundredth of the time at most
	sweepMost  = 256                  // are looked at in one turn of the loop
	askMost    = 64                   // of which begin to ask, in one look at all
)

// stallMonitor watches the requests under way: it asks other ranks about those
// that do not move, answers what they ask, and judges those that have outlasted
// their deadlines. It is guarded by the engine's loopLock and is given the time;
// the errors it returns are why the engine fails.
type stallMonitor struct {
	rank, size int
	exec       *executor
	identities *identities
	notifier   Notifier // nil where the transport is none
	warn       func(string)
	note       func(from int, text string)
	patient    bool // beyond a deadline requests are waited for, whatever others answer

	buf       [NoticeRoom]byte
	history   history
	inquiries uint64 // how many there have been
	sweep     time.Time
	at        int // the slot to look at next
	asks      int // how many more requests may ask until all have been looked at
	looked    int // at requests, ever
	warned    warned
}

// watch is what the monitor knows of one execution of a request.
type watch struct {
	started      time.Time
	due          time.Time // when it is judged
	max          time.Time // when it is given up in any case
	left         int       // ops, when last looked at
	moved, askAt time.Time // when it moved last, and when to ask (again)
	inquiry      *inquiry
	warnAt       time.Time // zero: it has not been waited for beyond its deadline
	late         bool      // a rank was late when it was judged last
	suspect      error     // failed, but a rank is asked first
	suspected    int       // which
	suspectUntil time.Time
}

// admit begins to watch an execution of r.
func (m *stallMonitor) admit(r *Request, now time.Time) {
	if r.watch == nil {
		r.watch = &watch{}
	}
	*r.watch = watch{started: now, due: now.Add(r.bind.Deadline), max: now.Add(r.maxDeadline), left: -1}
	m.history.last = r.called()
}

// look looks at the requests under way, now and then: at some of them at a time, so that
// no turn of the loop takes longer where there are thousands.
func (m *stallMonitor) look(now time.Time) error {
	if now.Before(m.sweep) {
		return nil
	}
	if m.at >= len(m.exec.active) {
		m.at, m.asks = 0, askMost
	}
	some := m.exec.active[m.at:min(m.at+sweepMost, len(m.exec.active))]
	m.at += len(some)
	m.sweep = now.Add(time.Duration(len(some)) * sweepEach)
	if m.at == len(m.exec.active) {
		m.sweep = now.Add(max(sweepEvery, time.Duration(len(some))*sweepEach))
	}
	for _, r := range some {
		if r == nil {
			continue
		}
		m.looked++
		if err := m.lookAt(r, now); err != nil {
			return err
		}
	}
	return nil
}

// mayAsk reports whether one more request may ask other ranks; otherwise it is looked at
// again soon. Thousands that stall together would be busy with nothing but questions, which
// all end at the same rank.
func (m *stallMonitor) mayAsk() bool {
	m.asks--
	return m.asks >= 0
}

func (m *stallMonitor) lookAt(r *Request, now time.Time) error {
	w := r.watch
	moves := r.left != w.left
	if moves {
		w.left, w.moved = r.left, now
	}
	switch {
	case w.suspect != nil:
		if now.After(w.suspectUntil) {
			return w.suspect
		}
	case moves && !w.warnAt.IsZero(): // who was late has come: it has its time anew
		w.due, w.inquiry, w.late = earlier(now.Add(r.bind.Deadline), w.max), nil, false
	case !now.Before(w.due):
		return m.overdue(r, now)
	case moves:
		w.inquiry = nil
		w.askAt = now.Add(min(askFirst, r.bind.Deadline/4))
	case !now.Before(w.askAt) && m.notifier != nil && m.mayAsk():
		w.askAt = now.Add(min(max(now.Sub(w.moved), time.Millisecond), max(r.bind.Deadline/8, time.Millisecond)))
		m.inquire(r, now, now.Sub(w.started) >= r.bind.Deadline/2)
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// overdue judges a request that has outlasted its deadline, after a last round
// of questions: its error must name the rank that holds it up, not one that is
// merely slow to answer.
func (m *stallMonitor) overdue(r *Request, now time.Time) error {
	w := r.watch
	if m.notifier != nil && (w.inquiry == nil || !w.inquiry.last) {
		if !m.mayAsk() {
			return nil
		}
		m.inquire(r, now, true)
		w.inquiry.last, w.askAt = true, now.Add(askAgain)
		return nil
	}
	if q := w.inquiry; q != nil && q.waits(now, r.bind.Deadline) {
		if !now.Before(w.askAt) {
			w.askAt = now.Add(askAgain)
			m.repeat(r)
		}
		return nil
	}
	peers := w.inquiry.peers(now, r.bind.Deadline)
	if m.patient && now.Before(w.max) {
		m.tellStalled(r, now, peers)
		return nil
	}
	late, answer := lateRanks(peers)
	if now.Before(w.max) && answer && (len(late) > 0 || w.late) {
		m.extend(r, now, late)
		return nil
	}
	limit := r.bind.Deadline
	if !now.Before(w.max) {
		limit = r.maxDeadline
	}
	return &DeadlineError{Request: r.name(), Deadline: limit, Edges: r.edges(m.rank), Peers: peers}
}

// lateRanks returns the ranks that have not come to a collective and do not wait
// for another rank: they compute, read or write, and will come. It also reports
// whether all ranks answer and work; where one does not, waiting is in vain.
func lateRanks(peers []PeerState) (late []PeerState, answer bool) {
	for _, p := range peers {
		switch {
		case p.Status == NoReply || p.Status == Failed:
			return nil, false
		case p.Status == NotEntered && len(p.Edges) == 0:
			late = append(late, p)
		}
	}
	return late, true
}

// extend waits for late ranks beyond the deadline. Where they have come
// meanwhile, late is empty: then the collective has its whole time once more.
func (m *stallMonitor) extend(r *Request, now time.Time, late []PeerState) {
	w := r.watch
	w.late = len(late) > 0
	next := min(max(r.bind.Deadline/4, askAgain), aliveWait)
	if !w.late {
		next = r.bind.Deadline
	}
	w.due = earlier(now.Add(next), w.max)
	w.inquiry.last = false
	if w.late && !now.Before(w.warnAt) {
		age := now.Sub(w.started)
		w.warnAt = now.Add(age) // after twice, four times, eight times the deadline
		m.tellLate(r, now, age, late)
	}
}

// tellStalled says what a patient engine waits for, and again after twice, four times, eight times the deadline.
func (m *stallMonitor) tellStalled(r *Request, now time.Time, peers []PeerState) {
	age := now.Sub(r.watch.started)
	r.watch.due = earlier(now.Add(age), r.watch.max)
	if r.watch.inquiry != nil {
		r.watch.inquiry.last = false
	}
	if m.warn != nil {
		text := fmt.Sprintf("rank %d has waited in %s for %v: %s", m.rank, r.name(), age.Round(time.Second), diagnosis(r.edges(m.rank), peers))
		go m.warn(text) // which may write to a terminal
	}
}

// inquire asks everyone that r waits for.
func (m *stallMonitor) inquire(r *Request, now time.Time, deep bool) {
	if m.notifier == nil {
		return
	}
	q := m.newRound(r)
	q.deep = q.deep || deep
	for _, edge := range r.edges(m.rank) {
		m.follow(r, edge, now)
	}
}

// newRound begins a round of questions about r.
func (m *stallMonitor) newRound(r *Request) *inquiry {
	if r.watch.inquiry == nil {
		m.inquiries++
		r.watch.inquiry = &inquiry{id: m.inquiries<<slotBits | uint64(r.slot)}
	}
	r.watch.inquiry.round++
	return r.watch.inquiry
}

// follow asks the rank at the other end of an edge about the edge's collective,
// for the sake of r.
func (m *stallMonitor) follow(r *Request, edge Edge, now time.Time) {
	if edge.Peer >= 0 {
		m.ask(r, edge.Peer, edge, now)
		return
	}
	for rank := range m.size { // the library's own: it may be anyone
		m.ask(r, rank, edge, now)
	}
}

// ask asks a rank, once in a round.
func (m *stallMonitor) ask(r *Request, rank int, edge Edge, now time.Time) {
	q := r.watch.inquiry
	k := q.find(rank, edge.Execution)
	if k == nil {
		if rank == m.rank && edge.Execution == r.execution() || rank >= m.size || len(q.asked) == askedMost {
			return
		}
		q.asked = append(q.asked, question{rank: rank, about: edge.Execution, request: edge.Request})
		k = &q.asked[len(q.asked)-1]
	}
	if k.round == q.round {
		return
	}
	k.round, k.at = q.round, now
	if rank == m.rank { // the chain has come back: it goes on with what else is under way here
		a := m.statusOf(edge.Execution, nil)
		k.take(rank, &a)
		for _, edge := range a.Edges {
			m.follow(r, edge, now)
		}
		return
	}
	if k.since.IsZero() {
		k.since = now
	}
	m.send(r, k)
}

// send sends a question. One that is lost is one more without an answer.
func (m *stallMonitor) send(r *Request, k *question) {
	q := r.watch.inquiry
	n := notice{ID: q.id, About: k.about, Deep: q.deep}
	if k.about == r.execution() {
		n.Print, n.Call = r.print, r.describe()
	}
	_ = m.notifier.Notify(k.rank, n.encode())
}

// repeat sends the round's open questions again.
func (m *stallMonitor) repeat(r *Request) {
	q := r.watch.inquiry
	for i := range q.asked {
		if k := &q.asked[i]; k.round == q.round && !k.since.IsZero() {
			m.send(r, k)
		}
	}
}

// read takes what other engines ask, answer and tell. failed is why this one
// has failed, nil if it has not.
func (m *stallMonitor) read(failed error, now time.Time) error {
	for m.notifier != nil {
		from, n := m.notifier.NextNotice(m.buf[:])
		if from < 0 {
			return nil
		}
		var err error
		switch n, ok := decode(m.buf[:n]); {
		case !ok:
		case n.Note != "":
			m.note(from, n.Note)
		case n.Warning != "":
			m.hearWarning(&n, now)
		case n.Answer:
			err = m.hear(from, &n, now)
		default:
			err = m.answer(from, &n, failed, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// find returns the request under way that is, or was, or will be x.
func (m *stallMonitor) find(x Execution) *Request {
	if r := m.identities.find(identity{x.Comm, x.Instance}); r != nil && m.exec.holds(r) {
		return r
	}
	return nil
}

// answer tells a rank how this one stands with a collective, and does what
// follows from the question.
func (m *stallMonitor) answer(from int, q *notice, failed error, now time.Time) error {
	a := m.statusOf(q.About, failed)
	a.ID = q.ID
	_ = m.notifier.Notify(from, a.encode())
	if a.Status != InCollective {
		return nil
	}
	return m.react(from, q, now)
}

// statusOf returns how this rank stands with a collective.
func (m *stallMonitor) statusOf(x Execution, failed error) notice {
	a := notice{Answer: true, About: x, Status: NotEntered}
	r, p := m.find(x), m.history.find(x)
	switch {
	case failed != nil:
		a.Status, a.Reason = Failed, failed.Error()
	case r != nil && r.round == x.Round:
		a.Status, a.Print, a.Call, a.Edges = InCollective, r.print, r.describe(), r.edges(m.rank)
	case p != nil:
		b := Binding{Name: p.what.name, Call: p.what.call, Datatype: p.what.dt, Op: p.what.op}
		a.Status, a.Print, a.Call = Completed, p.print, b.describe()
	case r != nil && r.round > x.Round:
		a.Status = Completed
	default:
		a.Last, a.Edges = m.history.last.String(), m.edges(edgesTold)
	}
	return a
}

// react does what a question about a collective that this rank is in gives
// reason to: the asking rank may have called it otherwise, or want to know what
// this one waits for.
func (m *stallMonitor) react(from int, q *notice, now time.Time) error {
	r := m.find(q.About)
	switch {
	case q.Call != "" && r.print != q.Print:
		return m.mismatch(r, from, q.Call)
	case q.Deep && r.watch.inquiry == nil:
		m.inquire(r, now, true)
	}
	return nil
}

// hear takes an answer.
func (m *stallMonitor) hear(from int, n *notice, now time.Time) error {
	r := m.asking(n.ID)
	if r == nil {
		return nil
	}
	w := r.watch
	k := w.inquiry.find(from, n.About)
	if k == nil {
		return nil
	}
	k.take(from, n)
	own := n.About == r.execution()
	switch {
	case own && n.Call != "" && n.Print != r.print:
		return m.mismatch(r, from, n.Call)
	case own && w.suspect != nil && from == w.suspected:
		return w.suspect
	case w.inquiry.deep:
		for _, edge := range n.Edges {
			m.follow(r, edge, now)
		}
	}
	return nil
}

// slotBits is how many bits of an inquiry's number are its request's slot.
const slotBits = 32

// asking returns the request with inquiry id.
func (m *stallMonitor) asking(id uint64) *Request {
	slot := id & (1<<slotBits - 1)
	if slot >= uint64(len(m.exec.active)) {
		return nil
	}
	if r := m.exec.active[slot]; r != nil && r.watch.inquiry != nil && r.watch.inquiry.id == id {
		return r
	}
	return nil
}

func (m *stallMonitor) mismatch(r *Request, peer int, call string) error {
	return &MismatchError{Request: r.name(), Rank: m.rank, Call: r.describe(), Peer: peer, PeerCall: call}
}

// suspect takes the error of an op. Where a message had another length than
// r expects, the likely reason is that its sender called something else: it is
// asked before the engine fails, and the result is nil.
func (m *stallMonitor) suspect(r *Request, peer int, err error, now time.Time) error {
	w := r.watch
	if w.suspect != nil {
		return nil
	}
	if m.notifier == nil || peer == m.rank || !errors.Is(err, ErrLength) {
		return err
	}
	w.suspect, w.suspected, w.suspectUntil = err, peer, now.Add(lengthWait)
	m.newRound(r)
	m.ask(r, peer, Edge{Request: r.name(), Execution: r.execution()}, now)
	return nil
}

// edges returns what this rank waits for: as many as asked for, or some more.
func (m *stallMonitor) edges(most int) []Edge {
	var edges []Edge
	for _, r := range m.exec.active {
		if len(edges) >= most {
			break
		}
		if r != nil {
			edges = append(edges, r.edges(m.rank)...)
		}
	}
	return edges
}

// failure is the error of a request that the engine's failure ended: with
// what this rank was waiting for, where the cause lies elsewhere, or r says what it is about.
func (m *stallMonitor) failure(r *Request, cause error, now time.Time) error {
	var abort *AbortError
	var deadline *DeadlineError
	elsewhere := errors.As(cause, &abort) && abort.Rank != m.rank
	if abort == nil && r.bind.About != nil && !errors.As(cause, &deadline) { // a rank that is gone: what of it is waited for
		elsewhere = true
	}
	if edges := r.edges(m.rank); elsewhere && len(edges) > 0 {
		return fmt.Errorf("%s failed: %w (here %s)", r.name(), cause, diagnosis(edges, r.watch.inquiry.peers(now, r.bind.Deadline)))
	}
	return fmt.Errorf("%s failed: %w", r.name(), cause)
}

// warningsEach is how many collectives are warned of that are late together.
const warningsEach = 3

// warned is what has been warned of: of late collectives the first few, and of others nothing before
// it is their turn again. Thousands may wait for one rank.
type warned struct {
	of    [warningsEach]warning // the last
	some  int                   // how many of them since
	since time.Time
	age   time.Duration // of the first of them; for as long as that again no others are warned of
}

// warning is of a collective, of such an age.
type warning struct {
	about Execution
	age   time.Duration
}

// admits reports whether there is to be a warning, and whether it is the last for a while.
func (w *warned) admits(n warning, now time.Time) (ok, last bool) {
	for _, o := range w.of {
		if o.about == n.about && n.age < 2*o.age { // several ranks wait in it
			return false, false
		}
	}
	if w.some == 0 || now.Sub(w.since) >= w.age {
		w.since, w.age, w.some = now, n.age, 0
	}
	if w.some == warningsEach {
		return false, false
	}
	w.of[w.some] = n
	w.some++
	return true, w.some == warningsEach
}

// tellLate lets rank 0 warn of late ranks.
func (m *stallMonitor) tellLate(r *Request, now time.Time, age time.Duration, late []PeerState) {
	n := notice{About: r.execution(), Age: age.Round(time.Second)}
	if m.rank != 0 { // which hears of no more than it would say
		if ok, _ := m.warned.admits(warning{n.About, n.Age}, now); !ok {
			return
		}
	}
	n.Warning = fmt.Sprintf(
		"%s has not ended after %v, on rank %d: %s; waiting on, since the ranks answer, for %v at most",
		r.name(), age.Round(time.Second), m.rank, some(late, peersShown), r.maxDeadline)
	if m.rank != 0 {
		_ = m.notifier.Notify(0, n.encode())
		return
	}
	m.hearWarning(&n, now)
}

// hearWarning warns, of some of the collectives that are late together, of each once where several ranks
// wait in it.
func (m *stallMonitor) hearWarning(n *notice, now time.Time) {
	if m.warn == nil {
		return
	}
	ok, last := m.warned.admits(warning{n.About, n.Age}, now)
	if !ok {
		return
	}
	text := strings.ToValidUTF8(n.Warning, "")
	if last {
		text += fmt.Sprintf("; of others that wait as well nothing is said for %v", m.warned.age)
	}
	go m.warn(text) // which may write to a terminal
}
