package proto

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// reporter returns an error about the field at a path.
type reporter func(path []string, format string, args ...any) error

// Validate reports every layer and field of the net that scaffe does not
// support, and what Caffe would refuse before it looks at shapes: it joins an
// *Error for each, in the order of the lines.
func (f *NetFile) Validate() error {
	top := func(path []string, format string, args ...any) error {
		return errorAt(f.FieldPos(path...), format, args...)
	}
	errs := checkMessage(f.Net.ProtoReflect(), nil, top)
	for i, l := range f.Net.GetLayer() {
		errs = append(errs, f.checkLayer(i, l)...)
	}
	return byLine(errs)
}

func (f *NetFile) checkLayer(i int, l *LayerParameter) []error {
	report := func(path []string, format string, args ...any) error {
		return f.LayerError(i, path, format, args...)
	}
	errs := checkMessage(l.ProtoReflect(), nil, report)
	used, ok := layerParams[l.GetType()]
	switch {
	case l.Type == nil:
		return append(errs, report(nil, "has no type"))
	case !ok:
		return append(errs, report([]string{"type"}, "type %q is not supported%s", l.GetType(), typeHint(l.GetType())))
	}
	l.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		name := string(fd.Name())
		if strings.HasSuffix(name, "_param") && !slices.Contains(used, name) {
			errs = append(errs, report([]string{name}, "a layer of type %s does not use %s%s", l.GetType(), name, usedText(used)))
		}
		return true
	})
	if l.GetType() == "Data" && (l.DataParam == nil || l.DataParam.Backend == nil) {
		errs = append(errs, report([]string{"data_param"}, "has no backend, and Caffe's default is LEVELDB, which is not supported: convert the data set to LMDB and set backend: LMDB"))
	}
	if len(l.Include) > 0 && len(l.Exclude) > 0 {
		errs = append(errs, report([]string{"exclude"}, "include and exclude cannot be used together: keep one kind"))
	}
	if n := len(l.PropagateDown); n != 0 && n != len(l.Bottom) {
		errs = append(errs, report([]string{"propagate_down"}, "has %d propagate_down for %d bottoms: give none, or one each", n, len(l.Bottom)))
	}
	return errs
}

func typeHint(typ string) string {
	if guess := nearest(typ, LayerTypes()); guess != "" {
		return fmt.Sprintf(" (did you mean %q?)", guess)
	}
	return ": supported are " + strings.Join(LayerTypes(), ", ")
}

func usedText(used []string) string {
	if len(used) == 0 {
		return ": remove it"
	}
	return fmt.Sprintf(", only %s: remove it", strings.Join(used, " and "))
}

// checkMessage checks every field that is set, in m and in the messages within
// it, against the rules. It does not enter the layers of a net, which are
// checked one by one (checkLayer) after they have been upgraded.
func checkMessage(m protoreflect.Message, path []string, report reporter) []error {
	var errs []error
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) || fd.FullName() == "caffe.NetParameter.layer" || fd.FullName() == "caffe.NetParameter.layers" {
			continue
		}
		each(fd, m.Get(fd), func(step string, v protoreflect.Value) {
			at := append(slices.Clone(path), step)
			if r, ok := rules[fd.FullName()]; ok {
				if why := r.check(v); why != "" {
					errs = append(errs, report(at, "%s: %s", fd.Name(), why))
				}
			}
			switch {
			case fd.Kind() == protoreflect.FloatKind && !finite(v.Float()):
				errs = append(errs, report(at, "%s: must be a finite number (got %s)", fd.Name(), strings.ToLower(fmt.Sprint(v.Float()))))
			case fd.Message() == nil:
			case fd.Message().FullName() == "caffe.BlobShape":
				errs = append(errs, checkTextShape(v.Message().Interface().(*BlobShape), fd, at, report)...)
			default:
				errs = append(errs, checkMessage(v.Message(), at, report)...)
			}
		})
	}
	return errs
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// each calls do with every value of a field and its step in a path.
func each(fd protoreflect.FieldDescriptor, v protoreflect.Value, do func(step string, v protoreflect.Value)) {
	if !fd.IsList() {
		do(string(fd.Name()), v)
		return
	}
	for i := range v.List().Len() {
		do(fmt.Sprintf("%s[%d]", fd.Name(), i), v.List().Get(i))
	}
}

// checkTextShape checks the shape of a blob in a text file. That of a Reshape layer
// may hold one -1, which is inferred from the others, and 0, which keeps an
// extent.
func checkTextShape(s *BlobShape, fd protoreflect.FieldDescriptor, path []string, report reporter) []error {
	dims := s.GetDim()
	if fd.FullName() == "caffe.ReshapeParameter.shape" {
		free := 0
		dims = slices.Clone(dims)
		for i, d := range dims {
			if d == -1 {
				free++
			}
			if d == -1 || d == 0 {
				dims[i] = 1
			}
		}
		if free > 1 {
			return []error{report(path, "shape %v holds more than one -1", s.GetDim())}
		}
	}
	if _, err := CheckShape(dims); err != nil {
		return []error{report(path, "%v", err)}
	}
	return nil
}

// maxCount is how many elements Caffe's blobs, and so ours, can hold.
const maxCount = math.MaxInt32

// CheckShape returns the number of elements of a shape (1 for one without
// axes), or an error if an extent is negative or there are more elements than
// a blob can hold (2³¹ − 1, as in Caffe).
func CheckShape(dims []int64) (int, error) {
	if len(dims) > maxAxes {
		return 0, fmt.Errorf("shape has %d axes, more than the %d that a blob can have", len(dims), maxAxes)
	}
	n := int64(1)
	for _, d := range dims {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative extent", dims)
		}
		if d > maxCount {
			return 0, fmt.Errorf("shape %v has more than %d elements", dims, maxCount)
		}
		if n *= d; n > maxCount {
			return 0, fmt.Errorf("shape %v has more than %d elements", dims, maxCount)
		}
	}
	return int(n), nil
}

// maxAxes is Caffe's kMaxBlobAxes.
const maxAxes = 32
