package metrics

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/netutil"
)

// pipes is a listener of connections in memory, whose deadlines are those of
// the test's clock.
type pipes struct {
	incoming chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.incoming:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.incoming <- theirs
	return ours
}

// limited runs a test against a server within a bubble.
func limited(t *testing.T, test func(t *testing.T, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn, 2*maxConnections), make(chan struct{})}
		s := newHTTP(NewTraining().Registry)
		done := make(chan struct{})
		go func() { _ = s.Serve(netutil.LimitListener(p, maxConnections)); close(done) }()
		test(t, p)
		_ = s.Close()
		<-done
		time.Sleep(time.Second) // the server holds on to a connection that it refuses for a moment
	})
}

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// answered sends a request and reads its answer.
func answered(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
}

// ended waits until the server closes a connection, and returns how long that
// took. Without a limit it never does: the bubble then deadlocks, which fails
// the test.
func ended(c net.Conn) time.Duration {
	began := time.Now()
	_, _ = io.Copy(io.Discard, c)
	return time.Since(began)
}

func TestIdleConnectionEnds(t *testing.T) {
	limited(t, func(t *testing.T, p *pipes) {
		c := p.dial()
		answered(t, c)
		if took := ended(c); took != idleTimeout {
			t.Errorf("an idle connection ended after %v, want %v", took, idleTimeout)
		}
	})
}

func TestSlowRequestEnds(t *testing.T) {
	limited(t, func(t *testing.T, p *pipes) {
		c := p.dial()
		if _, err := io.WriteString(c, request[:10]); err != nil {
			t.Fatal(err)
		}
		if took := ended(c); took != headerTimeout {
			t.Errorf("half a request ended after %v, want %v", took, headerTimeout)
		}
	})
}

// A client that asks and does not read its answer.
func TestSlowReaderEnds(t *testing.T) {
	limited(t, func(t *testing.T, p *pipes) {
		c := p.dial()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		if _, err := io.WriteString(c, request); err == nil {
			t.Error("the connection still takes requests")
		}
	})
}

func TestLongHeader(t *testing.T) {
	limited(t, func(t *testing.T, p *pipes) {
		c := p.dial()
		go func() {
			_, _ = io.WriteString(c, strings.TrimSuffix(request, "\r\n")+"X: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%v, %v", resp, err)
		}
		_ = c.Close()
	})
}

func TestManyConnections(t *testing.T) {
	limited(t, func(t *testing.T, p *pipes) {
		held := make([]net.Conn, maxConnections)
		for i := range held {
			held[i] = p.dial()
			answered(t, held[i])
		}
		late := p.dial()
		sent := make(chan error)
		go func() { // a write to a pipe waits for its reader
			_, err := fmt.Fprint(late, request)
			sent <- err
		}()
		synctest.Wait()
		select {
		case <-sent:
			t.Fatalf("connection %d was read from", maxConnections+1)
		default:
		}
		_ = held[0].Close()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(late), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%v, %v", resp, err)
		}
	})
}
