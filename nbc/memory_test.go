package nbc_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// An engine over a device and a transport of host memory serves that alone, and copies within it.
func TestMemoryOfTheHost(t *testing.T) {
	e, err := nbc.Start(inproc.NewWorld(1, inproc.Options{}).Open(0), host(t), nbc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if !e.Serves(mem.Host) || e.Serves(mem.CUDA) {
		t.Error("it serves other memory than the host's")
	}
	a, err := e.AllocIn(mem.Host, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Free(a)
	if _, err := e.AllocIn(mem.CUDA, 100); err == nil || !strings.Contains(err.Error(), "cuda memory is not served") {
		t.Errorf("memory of a GPU: %v", err)
	}
	ctx, src := context.Background(), bytes.Repeat([]byte{7}, 100)
	if err := e.Copy(ctx, a, mem.Of(src)); err != nil || !bytes.Equal(mem.Bytes(a), src) {
		t.Errorf("copy: %v, %v", err, mem.Bytes(a))
	}
	if err := e.Copy(ctx, a, mem.Of(src[1:])); err == nil {
		t.Error("a copy of 99 bytes to 100")
	}
	if err := e.Copy(ctx, mem.Buffer{}, mem.Buffer{}); err != nil {
		t.Errorf("a copy of nothing: %v", err)
	}
	device := mem.At(a.Pointer(), 100, mem.CUDA)
	if err := e.Copy(ctx, device, a); err == nil || !strings.Contains(err.Error(), "cuda memory is not served") {
		t.Errorf("a copy to a GPU: %v", err)
	}
	whole := schedule.Range{Len: 100}
	plan, err := nbc.Compile(&schedule.Schedule{Size: 1, Count: 100, Ops: []schedule.Op{
		{Kind: schedule.Copy, Peer: -1, Src: schedule.In.At(whole), Dst: schedule.Out.At(whole)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Prepare(plan, nbc.Binding{Name: "copy", In: a, Out: device, Datatype: mem.Uint8}); err == nil || !strings.Contains(err.Error(), `buffer "out"`) {
		t.Errorf("a request on a GPU's memory: %v", err)
	}
}
