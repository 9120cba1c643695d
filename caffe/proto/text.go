package proto

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// NetFile is a net with the position of each of its layers and fields.
type NetFile struct {
	// Path is the file's name as given; every error begins with it.
	Path string
	// Net is the net, with the old forms that Caffe still takes replaced by
	// today's: the layer messages of 2013 and 2014 by LayerParameter; input,
	// input_shape and input_dim by an Input layer. Changing Net.Layer
	// invalidates the positions of the layers.
	Net *NetParameter

	root     *node
	layers   []*node // parallel to Net.Layer; empty if positions are not known
	warnings []string
	model    bool // only the blobs matter: mistakes elsewhere are ignored
}

// Warnings lists what an upgrade of the net left out, each with file, line and
// column, for a log.
func (f *NetFile) Warnings() []string { return f.warnings }

// SolverFile is a solver with the position of each of its fields.
type SolverFile struct {
	// Path is the file's name as given; every error begins with it.
	Path string
	// Solver is what the file says, with solver_type replaced by type.
	Solver *SolverParameter

	root *node
}

// ReadNet reads a net in text form and checks that scaffe supports all of it.
// The error lists everything that is wrong, each with file, line and column.
func ReadNet(path string) (*NetFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read net: %w", err)
	}
	f, err := ParseNet(path, text)
	if err != nil {
		return nil, err
	}
	return f, f.Validate()
}

// ParseNet reads a net from text. Errors begin with name. It does not check
// whether scaffe supports the net: see Validate.
func ParseNet(name string, text []byte) (*NetFile, error) {
	net := &NetParameter{}
	root, err := parseText(name, text, net)
	if err != nil {
		return nil, err
	}
	return newNetFile(name, net, root)
}

// NewNetFile wraps a net that does not come from a file. Its layers have no
// lines; errors begin with name.
func NewNetFile(name string, net *NetParameter) (*NetFile, error) {
	return newNetFile(name, pb.Clone(net).(*NetParameter), &node{pos: Pos{File: name}})
}

func newNetFile(name string, net *NetParameter, root *node) (*NetFile, error) {
	f := &NetFile{Path: name, Net: net, root: root, layers: root.all("layer")}
	if len(f.layers) != len(net.GetLayer()) {
		f.layers = nil
	}
	return f, f.upgrade()
}

// ReadSolver reads a solver in text form and checks that scaffe supports all
// of it. As in Caffe, snapshot_prefix defaults to the file's own path without its
// extension; to one that is a directory, the file's name is added.
func ReadSolver(path string, options ...SolverOption) (*SolverFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read solver: %w", err)
	}
	f, err := ParseSolver(path, text, options...)
	if err != nil {
		return nil, err
	}
	f.setSnapshotPrefix()
	return f, f.Validate()
}

// ParseSolver reads a solver from text. Errors begin with name. It does not check
// whether scaffe supports the solver: see Validate.
func ParseSolver(name string, text []byte, options ...SolverOption) (*SolverFile, error) {
	s := &SolverParameter{}
	root, err := parseText(name, text, s)
	if err != nil {
		return nil, err
	}
	f := &SolverFile{Path: name, Solver: s, root: root}
	for _, o := range options {
		o(f)
	}
	return f, f.upgrade()
}

// LayerPos returns the position of layer i of Net, or of a field in it: the path
// goes from the layer inward, with an index if a field is repeated, as in
// LayerPos(3, "param[1]", "lr_mult"). A field that is not set has the position of
// the innermost message that is.
func (f *NetFile) LayerPos(i int, path ...string) Pos {
	if i < 0 || i >= len(f.layers) {
		return Pos{File: f.Path}
	}
	return f.layers[i].find(path...).pos
}

// FieldPos returns the position of a field of the net itself, as LayerPos does.
func (f *NetFile) FieldPos(path ...string) Pos { return f.root.find(path...).pos }

// LayerError returns an error about layer i, at the position of the given field.
func (f *NetFile) LayerError(i int, path []string, format string, args ...any) error {
	return errorAt(f.LayerPos(i, path...), "layer %q: "+format, append([]any{f.Net.GetLayer()[i].GetName()}, args...)...)
}

// FieldPos returns the position of a field of the solver, as NetFile.LayerPos does.
func (f *SolverFile) FieldPos(path ...string) Pos { return f.root.find(path...).pos }

// parseText reads a message and the tree of its positions, and returns better
// errors than the parser's.
func parseText(file string, text []byte, m pb.Message) (*node, error) {
	text, err := clean(file, text)
	if err != nil {
		return nil, err
	}
	root, treeErr := parseTree(file, text)
	if treeErr == nil {
		if errs := checkNames(root, m.ProtoReflect().Descriptor(), ""); len(errs) > 0 {
			return nil, byLine(errs)
		}
	}
	if err := (prototext.UnmarshalOptions{RecursionLimit: maxNesting}).Unmarshal(text, m); err != nil {
		return nil, translate(root, text, err)
	}
	// If only the tree failed, the file is right and positions are not known.
	return root, nil
}

// placed matches the parser's errors. The blank after "proto:" may be a no-break space.
var placed = regexp.MustCompile(`^proto:[\s\x{a0}]*(syntax error )?\(line (\d+):(\d+)\): ([\s\S]*)$`)

// translate adds file and layer to one of the parser's errors.
func translate(root *node, text []byte, err error) error {
	m := placed.FindStringSubmatch(err.Error())
	if m == nil {
		if p := openBrace(root.pos.File, text); p.Line > 0 {
			return errorAt(p, "syntax error: this brace is not closed")
		}
		return errorAt(root.pos, "%s", strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0"))
	}
	line, _ := strconv.Atoi(m[2])
	col, _ := strconv.Atoi(m[3])
	msg := strings.TrimSpace(m[4])
	if m[1] != "" {
		msg = "syntax error: " + msg
	}
	return errorAt(Pos{root.pos.File, line, col}, "%s%s", msg, root.around(line))
}

// around names the layer at a line, as " in layer NAME".
func (n *node) around(line int) string {
	var last *node
	for _, k := range n.kids {
		if k.pos.Line <= line {
			last = k
		}
	}
	if last == nil || last.name != "layer" && last.name != "layers" {
		return ""
	}
	return fmt.Sprintf(" in layer %q", last.layerName())
}

// layerName returns the name of the layer n, whatever its form.
func (n *node) layerName() string {
	if v0 := n.all("layer"); len(v0) > 0 {
		return v0[0].first("name")
	}
	return n.first("name")
}

// checkNames checks all field and enum names below n against a message's
// descriptor. Errors say where n is with context.
func checkNames(n *node, d protoreflect.MessageDescriptor, context string) []error {
	var errs []error
	for _, k := range n.kids {
		fd := d.Fields().ByName(protoreflect.Name(k.name))
		switch {
		case fd == nil && !identifier.MatchString(k.name): // no field at all: the parser's errors say more
		case fd == nil:
			errs = append(errs, errorAt(k.pos, "unknown field %q%s%s", k.name, context, fieldHint(k.name, d)))
		case fd.Message() != nil:
			errs = append(errs, checkNames(k, fd.Message(), inside(k, fd, context))...)
		case fd.Enum() != nil && len(k.kids) == 0:
			errs = append(errs, checkEnum(k, fd, context)...)
		case fd.Kind() == protoreflect.FloatKind && octal.MatchString(k.value):
			errs = append(errs, errorAt(k.pos, "invalid %s %s%s: want a decimal number without a leading 0", fd.Name(), k.value, context))
		}
	}
	return errs
}

// octal matches numbers that protoc accepts for integer fields only; the parser
// would take them as decimal.
var octal = regexp.MustCompile(`^-?0[0-9]+$`)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

func inside(k *node, fd protoreflect.FieldDescriptor, context string) string {
	switch fd.FullName() {
	case "caffe.NetParameter.layer", "caffe.NetParameter.layers":
		return fmt.Sprintf(" in layer %q", k.layerName())
	case "caffe.V1LayerParameter.layer":
		return context
	}
	if context == "" {
		return " in " + string(fd.Name())
	}
	return " in " + string(fd.Name()) + " of" + strings.TrimPrefix(context, " in")
}

func checkEnum(k *node, fd protoreflect.FieldDescriptor, context string) []error {
	values := fd.Enum().Values()
	if number, err := strconv.ParseInt(k.value, 0, 32); err == nil {
		if values.ByNumber(protoreflect.EnumNumber(number)) != nil {
			return nil
		}
	}
	if values.ByName(protoreflect.Name(k.value)) != nil {
		return nil
	}
	var names []string
	for i := range values.Len() {
		names = append(names, string(values.Get(i).Name()))
	}
	return []error{errorAt(k.pos, "invalid %s %s%s: want one of %s", fd.Name(), k.value, context, strings.Join(names, ", "))}
}

// fieldHint suggests a field that may have been meant: one of a similar name, or
// the field of that name in a message within.
func fieldHint(name string, d protoreflect.MessageDescriptor) string {
	var names []string
	var holders []string
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		names = append(names, string(fd.Name()))
		if fd.Message() != nil && fd.Message().Fields().ByName(protoreflect.Name(name)) != nil {
			holders = append(holders, string(fd.Name()))
		}
	}
	if guess := nearest(name, names); guess != "" {
		return fmt.Sprintf(" (did you mean %q?)", guess)
	}
	if len(holders) > 0 && len(holders) <= 4 {
		return fmt.Sprintf(" (it belongs inside %s)", strings.Join(holders, " or "))
	}
	return ""
}

// nearest returns the name closest to name, if fewer than a third of its letters
// differ, or "".
func nearest(name string, names []string) string {
	best, bestDistance := "", len(name)/3+1
	for _, n := range names {
		if d := distance(name, n); d < bestDistance {
			best, bestDistance = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance, ignoring case.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
