package proto

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"

	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/internal/atomicfile"
)

// ErrFormat is wrapped by every error about a binary file that is cut short,
// corrupt, or of another kind.
var ErrFormat = errors.New("unexpected file format")

// ReadModel reads a model (.caffemodel): a NetParameter whose layers carry
// their blobs. Unknown fields are skipped; each blob's values are checked against
// its shape. The layers of models of 2013 and 2014 (V0LayerParameter,
// V1LayerParameter) are upgraded to today's.
func ReadModel(path string) (*NetParameter, error) {
	net := &NetParameter{}
	if err := readBinary(path, "model (NetParameter)", net); err != nil {
		return nil, err
	}
	if err := checkModel(net); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return net, nil
}

// checkModel upgrades a model and checks its blobs.
func checkModel(net *NetParameter) error {
	f := &NetFile{Net: net, root: &node{}, model: true}
	if err := f.upgrade(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if len(net.GetLayer()) == 0 {
		return fmt.Errorf("%w: it has no layers: it is not a model, or it is cut short", ErrFormat)
	}
	for _, l := range net.GetLayer() {
		for i, b := range l.GetBlobs() {
			if err := CheckBlob(b); err != nil {
				return fmt.Errorf("%w: layer %q, blob %d: %w", ErrFormat, l.GetName(), i, err)
			}
		}
	}
	return nil
}

// ReadState reads a solver's state (.solverstate) and checks each blob of its
// history.
func ReadState(path string) (*SolverState, error) {
	s := &SolverState{}
	if err := readBinary(path, "solver state (SolverState)", s); err != nil {
		return nil, err
	}
	if err := checkState(s); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

func checkState(s *SolverState) error {
	if s.Iter == nil || s.GetIter() < 0 || s.GetCurrentStep() < 0 {
		return fmt.Errorf("%w: it has no iteration number: it is not a solver state", ErrFormat)
	}
	for i, b := range s.GetHistory() {
		if err := CheckBlob(b); err != nil {
			return fmt.Errorf("%w: history blob %d: %w", ErrFormat, i, err)
		}
	}
	return nil
}

// ReadBlob reads one blob with its values, such as a mean file (.binaryproto).
func ReadBlob(path string) (*BlobProto, error) {
	b := &BlobProto{}
	if err := readBinary(path, "blob (BlobProto)", b); err != nil {
		return nil, err
	}
	if err := CheckBlob(b); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", path, ErrFormat, err)
	}
	return b, nil
}

// readBinary reads a message of the given kind.
func readBinary(path, kind string, m pb.Message) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("read %s: %w: not a regular file", path, ErrFormat)
	}
	if info.Size() > math.MaxInt32 {
		return fmt.Errorf("read %s: %w: %d bytes are more than a protocol buffer can hold (2 GiB)", path, ErrFormat, info.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	if err := unmarshal(b, kind, m); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func unmarshal(b []byte, kind string, m pb.Message) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: it is empty", ErrFormat)
	}
	if bytes.HasPrefix(b, []byte("\x89HDF\r\n\x1a\n")) {
		return fmt.Errorf("%w: it is an HDF5 file, and only the binary protocol buffer form of a %s is supported (snapshot_format: BINARYPROTO)", ErrFormat, kind)
	}
	err := pb.UnmarshalOptions{AllowPartial: true, DiscardUnknown: true}.Unmarshal(b, m)
	if err == nil {
		return nil
	}
	if cut := cutShort(b); cut != "" {
		return fmt.Errorf("%w: the %s is cut short or corrupt: %s", ErrFormat, kind, cut)
	}
	return fmt.Errorf("%w: it is not a %s, or it is corrupt: %w", ErrFormat, kind, err)
}

// cutShort names the field that runs past the end, or returns "".
func cutShort(b []byte) string {
	for at := 0; at < len(b); {
		num, typ, tagLen := protowire.ConsumeTag(b[at:])
		if tagLen < 0 {
			return fmt.Sprintf("there is no field at byte %d of %d", at, len(b))
		}
		if n := protowire.ConsumeFieldValue(num, typ, b[at+tagLen:]); n >= 0 {
			at += tagLen + n
			continue
		}
		if size, n := protowire.ConsumeVarint(b[at+tagLen:]); typ == protowire.BytesType && n > 0 {
			return fmt.Sprintf("field %d at byte %d needs %d bytes, %d are left", num, at, size, len(b)-at-tagLen-n)
		}
		return fmt.Sprintf("field %d at byte %d of %d is broken", num, at, len(b))
	}
	return ""
}

// Writer writes binary files, each atomically: see package atomicfile. The
// zero value writes to the file system of the operating system.
type Writer struct {
	FS atomicfile.FS
	// MaxBytes, unless 0, is the size of the largest file that it writes, below
	// the 2 GiB that protocol buffers, and so Caffe's formats, allow.
	MaxBytes int
}

// Limit returns the size of the largest file that w writes, in bytes.
func (w Writer) Limit() int {
	if w.MaxBytes > 0 && w.MaxBytes < math.MaxInt32 {
		return w.MaxBytes
	}
	return math.MaxInt32
}

// Model writes a model (.caffemodel).
func (w Writer) Model(path string, net *NetParameter) error { return w.write(path, net) }

// State writes a solver's state (.solverstate).
func (w Writer) State(path string, s *SolverState) error { return w.write(path, s) }

// Blob writes one blob, such as a mean file (.binaryproto).
func (w Writer) Blob(path string, b *BlobProto) error { return w.write(path, b) }

// write marshals so that equal messages give equal bytes.
func (w Writer) write(path string, m pb.Message) error {
	if size := pb.Size(m); size > w.Limit() {
		return fmt.Errorf("write %s: %d bytes are more than the file can hold (%d)", path, size, w.Limit())
	}
	b, err := pb.MarshalOptions{AllowPartial: true, Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.Write(w.FS, path, b)
}
